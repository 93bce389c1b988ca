# SPDX-License-Identifier: Apache-2.0
# Job control, pipes, substitutions, traps, limits, here-documents, coprocesses, files and their errors.
diff <(seq 3) <(seq 3) && echo same; exec 3<<<here && read -r l <&3 && echo "$l"; echo a | tee >(cat >t) >/dev/null; sleep 0.1; cat t
trap 'echo exit trap' EXIT; trap 'echo usr1' USR1; kill -USR1 $$; coproc c { read -r x; echo "got $x"; }; echo in >&"${c[1]}"; read -r l <&"${c[0]}"; echo "$l"; wait
set +e; (exit 3); echo $?; false | true; echo "${PIPESTATUS[@]}"; sleep 9 & kill %1; wait %1 2>/dev/null; echo $?; timeout 0.1 sleep 9; echo $?
for f in /usr/none /etc/none /none; do rm $f; rmdir $f; ls $f; done 2>&1; for d in /usr /usr/bin /etc; do touch $d/x; mkdir $d/x; ln -s x $d/y; done 2>&1 | sed 's/Read-only file system/Permission denied/'
umask 027; mkdir d; echo x >d/f; stat -c %a d d/f; chmod 4755 d/f; stat -c %a d/f; ln -s f d/l; readlink -f d/l | grep -c "^$PWD/d/f"; cp -a d e && diff -r d e; mv e/f e/g; find e | sort
(ulimit -n 50; ulimit -n); (ulimit -f 1; dd if=/dev/zero of=big bs=1k count=9 2>/dev/null; echo $?); (ulimit -v 100000; python3 -c 'x = bytearray(1 << 28)' 2>&1 | tail -1); ulimit -c
mkfifo p; (seq 5 >p &); cat p | paste -sd+ | bc; dd if=/dev/zero bs=1M count=64 2>/dev/null | wc -c; yes | head -c 1000000 | md5sum; echo "$((RANDOM >= 0)) ${#EPOCHREALTIME}"
seq 500 | xargs -P 8 -n 7 echo | wc -l; seq 300000 | sort -R --parallel=2 | sort -n | md5sum; find /usr/share/perl -name '*.pm' | wc -l; seq 9 | xargs -I{} sh -c 'exit 0'; (flock -n 9 && echo locked) 9>lock; nohup echo hup 2>/dev/null; setsid echo session; nice -n 5 nice
for d in /dev/null /dev/zero /dev/urandom /dev/full /dev/tty /dev/fd/0 /dev/stdin /dev/shm /dev/pts /proc/self/fd /proc/self/exe; do [ -e $d ] && echo $d; done; echo x >/dev/full; cat /dev/tty; head -c 9 /dev/urandom | wc -c
ps -o comm= -p $$; ls -l /proc/self/fd/ | wc -l; [ "$(cat /proc/$$/comm)" = bash ] && echo comm; date -u -d @0; TZ=Europe/Berlin date -d @0; locale -a | grep -c C.utf8; printf '%(%Y)T\n' 0; id -u | grep -c .; getent hosts localhost | wc -l; whoami | wc -l; hostname | wc -l
time -p true 2>/dev/null; kill -l 9; kill -0 $$; echo $?
