# SPDX-License-Identifier: Apache-2.0
# Diffs of a tree applied, reversed, applied with an offset, and refused where they do not fit.
mkdir a && seq 40 >a/f && seq 5 >a/g && cp -r a b && sed -i 's/^20$/twenty/' b/f && echo new >b/n && rm b/g
diff -ruN a b >d.patch || echo "diff says $?"
cp -r a c && (cd c && patch -p1 <../d.patch) && diff -r b c && (cd c && patch -Rp1 <../d.patch) && diff -r a c
sed -i '1,3d' c/f && (cd c && patch -p1 <../d.patch) && grep -n twenty c/f
seq 100 140 >c/f && { (cd c && patch -fp1 <../d.patch) || echo "patch says $?"; } && find c | sort
