# SPDX-License-Identifier: Apache-2.0
# Copies with links and times, what changed alone, deletion, through a pipe to itself.
mkdir -p a/b && seq 5000 >a/f && ln -s f a/l && ln a/f a/h && touch -d 2001-02-03 a/f && dd if=/dev/urandom of=a/r bs=64k count=16 status=none
rsync -aH a/ c/ && diff -r a c && stat -c '%Y %h' c/f && readlink c/l
echo more >>a/f && rm a/r && rsync -aH --delete -i a/ c/ | grep -v '^\.d' | sort && diff -r a c
rsync -a --checksum --inplace a/ d/ && find d | sort
rsync -a --compare-dest="$PWD/c/" a/ e/ && find e -type f | wc -l
