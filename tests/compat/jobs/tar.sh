# SPDX-License-Identifier: Apache-2.0
# Trees with links, modes, times, sparse files, long names; out and in again, compared.
mkdir -p d/e/f && cd d && seq 1000 >a && ln a hard && ln -s a soft && ln -s /nowhere dangling && mkfifo fifo && truncate -s 50M sparse
chmod 750 e && touch -d '2001-02-03 04:05:06' a && printf x >"$(printf 'n%.0s' {1..200})" && cd ..
for z in '' z J; do
    tar -c${z}Sf x.tar d && mkdir o && tar -xp${z}f x.tar -C o && diff -r --no-dereference d o/d && rm -r o
done
tar -cf - d | tar -tvf - | awk '{print $1, $3, $6}' | sed 's/^\(.\{10\}\) [0-9]* /\1 /' | sort
find d -printf '%y %m %n %p %l\n' | sort; stat -c '%Y %h' d/a; du -k --apparent-size d/sparse; [ "$(du -k d/sparse | cut -f1)" -lt 1000 ]
