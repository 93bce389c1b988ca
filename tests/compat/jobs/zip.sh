# SPDX-License-Identifier: Apache-2.0
# Archives and compressors, in threads where they have them, and back again.
mkdir -p d/e && seq 200000 >d/f && ln -s f d/l && printf x >d/e/g && chmod 700 d/e/g && touch -d 2001-02-03 d/e/g
zip -qry a.zip d && unzip -qt a.zip && mkdir o && (cd o && unzip -q ../a.zip && find . -printf '%m %p %l\n' | sort) && diff -r --no-dereference d o/d
for z in 'gzip -9' 'bzip2' 'xz -T2' 'zstd -qT2' 'lz4 -q'; do
    command -v "${z%% *}" >/dev/null || continue
    $z -c <d/f >c && ${z%% *} -dc <c | cmp - d/f && echo "$z: $(head -c 2 c | od -An -tx1)"
done
