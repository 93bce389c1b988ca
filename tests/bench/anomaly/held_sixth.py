# SPDX-License-Identifier: Apache-2.0
"""A sixth set of work, of ten kinds that no other set has, written together with the fifth before the sources of the rules were read by its
author, and run for the first time after the rules were changed because of the fifth: what it showed is published as it was. For
`run --held-sixth`, as held_out.py.

A tool that this machine does not have is left out. On Debian: python3-sympy python3-networkx socat netcat-openbsd busybox p7zip-full ruby rake
php-cli nodejs parallel lua5.4 qpdf poppler-utils libimage-exiftool-perl.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")
GIT = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"

WORK = {
    "benchmarking": (SH, """
export HOME=$PWD; dd if=/dev/zero of=f bs=64k count=200 oflag=dsync status=none; dd if=f of=/dev/null bs=1M status=none; openssl speed -seconds 1 -bytes 1024 sha256 2>/dev/null | tail -1; timeout 4 7z b 1 -md16 2>/dev/null | tail -1; python3 -m timeit -n 2000 'sum(range(100))'; time (for i in $(seq $((200 + $1 * 10))); do /bin/true; done) 2>/dev/null; python3 - <<'E'
import concurrent.futures, hashlib, mmap, os, random, time
os.mkdir("fs"); t = time.time()
for i in range(1500): open(f"fs/{i}", "wb").write(b"x" * 512)
for i in range(1500): os.stat(f"fs/{i}"); os.rename(f"fs/{i}", f"fs/r{i}")
for i in range(1500): os.unlink(f"fs/r{i}")
f = os.open("f", os.O_RDWR); r = random.Random(1)
for _ in range(800): os.pwrite(f, b"y" * 4096, r.randrange(200) * 4096)
os.fdatasync(f); m = mmap.mmap(f, 1 << 20); m[:100] = b"z" * 100; m.flush()
def burn(n):
    e = time.time() + 2; k = 0
    while time.time() < e: hashlib.blake2b(b"x" * 1000).digest(); k += 1
    return k
with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as p: print(sum(p.map(burn, range(os.cpu_count()))) > 0)
E
printf '#include <pthread.h>\\n#include <sched.h>\\nstatic void *f(void *p) { for (int i = 0; i < 20000; i++) sched_yield(); return p; }\\nint main(void) { pthread_t t[8]; for (int i = 0; i < 8; i++) pthread_create(t + i, 0, f, 0); for (int i = 0; i < 8; i++) pthread_join(t[i], 0); return 0; }\\n' > t.c; gcc -O2 -pthread -o t t.c && ./t; taskset -c 0 ./t; nice -n 5 ./t; chrt -b 0 ./t 2>/dev/null; ionice -c 3 ./t 2>/dev/null; exit 0
"""),
    "mathematics": (PY, """
import cmath, decimal, fractions, itertools, random, sys, threading
r = random.Random(int(sys.argv[1]))
try:
    import sympy as s; x = s.symbols("x"); print(s.integrate(s.exp(-x ** 2) * s.cos(x), x), s.factor(x ** 6 - 1), s.Matrix(4, 4, lambda i, j: 1 / s.Integer(i + j + 1)).det())
except ImportError: pass
try:
    import networkx as n; g = n.gnp_random_graph(150, 0.05, seed=1); print(n.number_connected_components(g), len(n.pagerank(g)) if False else g.number_of_edges()); n.write_graphml(g, "g.xml") if False else n.write_edgelist(g, "g.txt")
except ImportError: pass
decimal.getcontext().prec = 60; print(decimal.Decimal(2).sqrt(), sum(fractions.Fraction(1, k) for k in range(1, 60)))
def queens(n, row=0, cols=0, d1=0, d2=0):
    if row == n: return 1
    return sum(queens(n, row + 1, cols | 1 << c, d1 | 1 << row + c, d2 | 1 << row - c + n) for c in range(n) if not (cols >> c & 1 or d1 >> row + c & 1 or d2 >> row - c + n & 1))
print(queens(8)); threading.stack_size(64 << 20); t = threading.Thread(target=lambda: queens(6)); t.start(); t.join()
sys.setrecursionlimit(5000)
a = [[r.random() for _ in range(60)] for _ in range(60)]
print(sum(sum(a[i][k] * a[k][j] for k in range(60)) for i in range(60) for j in range(60)) > 0)
"""),
    "pipes-and-transfers": (SH, """
export HOME=$PWD; mkdir src; for i in $(seq $((30 + $1))); do seq $i > src/$i; done; mkfifo p; (tar c src > p &); mkdir dst; tar x -C dst < p; diff -r src dst/src | wc -l
command -v socat >/dev/null && { socat TCP-LISTEN:7101,reuseaddr,fork,bind=127.0.0.1 EXEC:"wc -c" & A=$!; sleep 0.4; for i in 1 2 3; do head -c $((i * 1000)) /dev/zero | socat -t 2 - TCP:127.0.0.1:7101; done; socat UNIX-LISTEN:u.sock,fork TCP:127.0.0.1:7101 & B=$!; sleep 0.3; echo hello | socat -t 2 - UNIX-CONNECT:u.sock; socat -u OPEN:src/9 CREATE:copy; socat - SYSTEM:'read l; echo got $l',pty <<< hi 2>/dev/null | head -2; kill $A $B; }
command -v nc >/dev/null && { mkdir n; (timeout 5 nc -l 127.0.0.1 7102 > n/got &); sleep 0.4; tar cz src | timeout 5 nc -N 127.0.0.1 7102; tar tzf n/got | wc -l; (timeout 5 nc -lU v.sock > n/u &) ; sleep 0.3; echo x | timeout 3 nc -NU v.sock; printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 1 nc 127.0.0.1 7109; }
exec 7< <(seq 5); read -u 7 l; echo $l; tee >(wc -l > l1) >(sha256sum > l2) < src/20 >/dev/null; sleep 0.2; cat l1; (echo a; sleep 0.2; echo b) | while read x; do echo $x; done; ls src | parallel -j 4 'wc -c < src/{}' 2>/dev/null | sort -n | tail -1; yes | head -c 5M | pv -q 2>/dev/null | gzip -1 | wc -c; dd if=src/20 bs=1 count=20 2>/dev/null | xxd 2>/dev/null | head -1; coproc W { cat; }; echo z >&${W[1]}; read -u ${W[0]} q; echo $q; exit 0
"""),
    "crash-analysis": (SH, """
ulimit -c unlimited; export HOME=$PWD; printf '#include <stdlib.h>\\n#include <stdio.h>\\n#include <signal.h>\\n#include <execinfo.h>\\n#include <unistd.h>\\nstatic void h(int s) { void *b[20]; backtrace_symbols_fd(b, backtrace(b, 20), 2); _exit(128 + s); }\\nint main(int c, char **v) { if (v[1][0] == 104) signal(SIGSEGV, h); if (v[1][0] == 97) abort(); if (v[1][0] == 100) { volatile int z = 0; return 1 / z; } if (v[1][0] == 105) { raise(SIGILL); } if (v[1][0] == 115) { volatile char a[100]; return main(c, v) + a[3]; } if (v[1][0] == 102) { void *p = malloc(9); free(p); free(p); } *(volatile int *)0 = 1; return 0; }\\n' > c.c; gcc -w -g -O0 -rdynamic -o c c.c
for m in a d i s f h n; do ./c $m 2>&1 | tail -1; ./c $m >/dev/null 2>&1; echo $?; done; for n in $(seq $((3 + $1 % 3))); do python3 -c 'import os; os.abort()' 2>/dev/null; python3 -X faulthandler -c 'import ctypes; ctypes.string_at(0)' 2>&1 | tail -1; done; node -e 'process.abort()' 2>/dev/null; node -e 'throw new Error("x")' 2>&1 | tail -1; node --abort-on-uncaught-exception -e 'null.x' 2>/dev/null; perl -e 'kill 11, $$'; perl -MCarp -e 'sub f { Carp::confess("x") } f()' 2>&1 | tail -1; ruby -e 'raise "x"' 2>&1 | tail -1; bash -c 'set -e; trap "echo line $LINENO" ERR; false'; gdb -batch -ex run -ex bt --args ./c n 2>/dev/null | tail -1; addr2line -e c 0x1200; ls core* 2>/dev/null | wc -l; cat /proc/sys/kernel/core_pattern; (ulimit -v 50000; python3 -c 'x = bytes(1 << 27)' 2>&1 | tail -1); (ulimit -t 1; timeout 3 sh -c 'while :; do :; done'); (ulimit -f 1; head -c 5000 /dev/zero > big) 2>/dev/null; exit 0
"""),
    "ruby-gems": (SH, """
command -v gem >/dev/null || exit 0; export HOME=$PWD GEM_HOME=$PWD/gems; mkdir -p g/lib g/test && cd g; printf 'Gem::Specification.new { |s| s.name = "mine"; s.version = "0.1.%s"; s.summary = "x"; s.authors = ["a"]; s.files = Dir["lib/**/*"]; s.license = "MIT"; s.homepage = "http://x" }\\n' $1 > mine.gemspec; echo 'module Mine; def self.f(n) = n < 2 ? n : f(n - 1) + f(n - 2); end' > lib/mine.rb; printf 'require "minitest/autorun"; require_relative "../lib/mine"\\nclass T < Minitest::Test; def test_f; assert_equal 55, Mine.f(10); end; end\\n' > test/t.rb; printf 'task(:default) { sh "ruby -Ilib test/t.rb" }\\n' > Rakefile
gem build -q mine.gemspec 2>&1 | tail -1; gem install -q --local --no-document mine-*.gem 2>&1 | tail -1; ruby -e 'require "mine"; puts Mine.f(20)'; rake -s 2>&1 | tail -1; ruby test/t.rb 2>&1 | tail -1; bundle init 2>/dev/null | head -1; gem list 2>/dev/null | wc -l; gem environment 2>/dev/null | wc -l; erb <<< '<%= 6 * 7 %>'; ruby -rsocket -e 's = TCPServer.new("127.0.0.1", 0); t = Thread.new { c = s.accept; c.puts c.gets.upcase; c.close }; k = TCPSocket.new("127.0.0.1", s.addr[1]); k.puts "x"; puts k.gets; t.join'; ruby -e 'r, w = IO.pipe; fork { w.puts Process.pid; }; Process.wait; puts r.gets.to_i > 0; puts `date`.size; IO.popen("cat", "r+") { |p| p.write "x"; p.close_write; puts p.read }'; ruby -ryaml -rjson -rset -e 'File.write("a.yml", {a: (1..50).to_a}.to_yaml); puts YAML.unsafe_load_file("a.yml")[:a].sum'; ruby -wc lib/mine.rb; exit 0
"""),
    "php-application": (SH, """
command -v php >/dev/null || exit 0; export HOME=$PWD; mkdir www sess; cat > www/index.php <<'E'
<?php session_save_path(__DIR__ . "/../sess"); session_start(); $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1;
if ($_SERVER["REQUEST_URI"] === "/up" && isset($_FILES["f"])) { move_uploaded_file($_FILES["f"]["tmp_name"], __DIR__ . "/../up-" . uniqid()); echo "stored"; exit; }
header("content-type: application/json"); echo json_encode(["n" => $_SESSION["n"], "t" => strlen(shell_exec("echo hi")), "h" => password_hash("x", PASSWORD_BCRYPT, ["cost" => 4]) !== ""]);
E
php -S 127.0.0.1:8081 -t www www/index.php >log 2>&1 & P=$!; for i in $(seq 30); do curl -s http://127.0.0.1:8081/ >/dev/null && break; sleep 0.1; done; for i in $(seq $((15 + $1))); do curl -s -c j -b j http://127.0.0.1:8081/$i >/dev/null; done; head -c 20000 /dev/urandom > u; for i in 1 2 3; do curl -s -F f=@u http://127.0.0.1:8081/up; done; kill $P; wait $P 2>/dev/null; php -l www/index.php; php -r '$p = proc_open(["cat"], [["pipe", "r"], ["pipe", "w"]], $x); fwrite($x[0], "hi"); fclose($x[0]); echo stream_get_contents($x[1]), PHP_EOL; for ($i = 0; $i < 200; $i++) file_put_contents("c$i.json", json_encode(range(0, $i)), LOCK_EX); echo count(glob("c*.json")), PHP_EOL; foreach (glob("c*.json") as $f) unlink($f);'; php -m | wc -l; php -i | wc -l; wc -l < log; exit 0
"""),
    "language-server": (PY, """
import ast, glob, json, os, queue, subprocess, sys, threading, time
open("server.py", "w").write('''
import ast, json, os, sys, threading, time
roots = {}
def read():
    n = 0
    while (l := sys.stdin.buffer.readline().strip()): n = int(l.split(b":")[1]) if l.lower().startswith(b"content-length") else n
    return json.loads(sys.stdin.buffer.read(n)) if n else None
def send(m): b = json.dumps(m).encode(); sys.stdout.buffer.write(b"Content-Length: %d\\\\r\\\\n\\\\r\\\\n" % len(b) + b); sys.stdout.buffer.flush()
def watch(parent):
    while True:
        time.sleep(0.2)
        try: os.kill(parent, 0)
        except OSError: os._exit(1)
while m := read():
    if m["method"] == "initialize": threading.Thread(target=watch, args=(m["params"]["processId"],), daemon=True).start(); r = {"capabilities": {}}
    elif m["method"] == "open": roots[m["params"]] = ast.parse(open(m["params"]).read()); r = len(list(ast.walk(roots[m["params"]])))
    elif m["method"] == "symbols": r = [n.name for n in ast.walk(roots[m["params"]]) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    else: sys.exit()
    send({"id": m["id"], "result": r})
''')
p = subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE); n = 0
def call(method, params):
    global n; n += 1; b = json.dumps({"id": n, "method": method, "params": params}).encode(); p.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(b) + b); p.stdin.flush()
    if method == "exit": return None
    size = int(p.stdout.readline().split(b":")[1]); p.stdout.readline(); return json.loads(p.stdout.read(size))["result"]
call("initialize", {"processId": os.getpid()}); files = glob.glob("/usr/lib/python3*/[a-h]*.py")[: 40 + int(sys.argv[1])]
print(sum(call("open", f) for f in files) > 0, sum(len(call("symbols", f)) for f in files) > 0); time.sleep(0.5); call("exit", None); p.wait()
m = {}
for t in range(8):
    now = {e.path: e.stat().st_mtime_ns for e in os.scandir(".")}; m, old = now, m; open(f"gen{t}.py", "w").write("x = 1\\n"); subprocess.run([sys.executable, "-m", "pyflakes", f"gen{t}.py"], capture_output=True); time.sleep(0.1)
subprocess.run("ctags -R . 2>/dev/null; node -e 'const d = require(\\"inspector\\"); d.open(0, \\"127.0.0.1\\"); console.log(d.url().length > 10); d.close()' 2>/dev/null", shell=True)
"""),
    "image-layers": (SH, """
export HOME=$PWD; mkdir -p rootfs/{bin,etc,usr/lib,root/.ssh,home/u,tmp} l1 oci/blobs/sha256; cp /bin/busybox rootfs/bin/ 2>/dev/null || cp /bin/true rootfs/bin/; printf 'root:x:0:0::/root:/bin/sh\\nu:x:1000:1000::/home/u:/bin/sh\\n' > rootfs/etc/passwd; printf 'root:*:1::::::\\n' > rootfs/etc/shadow; chmod 640 rootfs/etc/shadow; echo k > rootfs/root/.ssh/authorized_keys; for i in $(seq $((100 + $1 * 5))); do echo $i > rootfs/usr/lib/l$i.so; done; ln -s busybox rootfs/bin/sh; mkfifo rootfs/tmp/f; chmod 4755 rootfs/bin/* 2>/dev/null; chmod 1777 rootfs/tmp
fakeroot sh -c 'chown -R 0:0 rootfs; mknod rootfs/null c 1 3; tar cf l1.tar -C rootfs .' 2>/dev/null || tar cf l1.tar -C rootfs .; echo two > rootfs/etc/two; rm rootfs/usr/lib/l1.so; tar cf l2.tar -C rootfs etc/two; for t in l1 l2; do gzip -nk $t.tar; s=$(sha256sum $t.tar.gz | cut -d' ' -f1); mv $t.tar.gz oci/blobs/sha256/$s; done; python3 - <<'E'
import glob, gzip, hashlib, io, json, os, tarfile
layers = sorted(glob.glob("oci/blobs/sha256/*")); diff = [hashlib.sha256(gzip.open(l).read()).hexdigest() for l in layers]
def blob(o): b = json.dumps(o).encode(); h = hashlib.sha256(b).hexdigest(); open("oci/blobs/sha256/" + h, "wb").write(b); return {"digest": "sha256:" + h, "size": len(b)}
c = blob({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff}}); m = blob({"schemaVersion": 2, "config": c, "layers": [{"digest": "sha256:" + os.path.basename(l)} for l in layers]}); json.dump({"manifests": [m]}, open("oci/index.json", "w"))
for l in layers:
    with tarfile.open(l) as t: t.extractall("unpacked", members=[x for x in t if x.isfile() or x.isdir() or x.issym()])
print(open("unpacked/etc/shadow").read() if os.path.exists("unpacked/etc/shadow") else "", len(os.listdir("oci/blobs/sha256")))
E
cat rootfs/etc/shadow rootfs/etc/passwd | wc -l; tar tf l1.tar | wc -l; find unpacked -perm -4000 | wc -l; (cd rootfs && find . -print0 | cpio -0o -H newc 2>/dev/null | xz -1 | wc -c); rm -rf unpacked rootfs; exit 0
"""),
    "refactoring": (SH, GIT + """
git init -q r && cd r; mkdir -p src/{core,api,util}; for d in core api util; do for i in $(seq $((25 + $1))); do printf 'from src.util import old_name\\nimport os\\ndef f%s(x):\\n\\treturn old_name(x) + %s   \\n' $i $i > src/$d/m$i.py; done; done; printf 'def old_name(x): return x\\n' > src/util/__init__.py; git add -A; git commit -qm a
grep -rl old_name src | xargs sed -i 's/old_name/new_name/g'; git diff --stat | tail -1; git commit -qam rename; find src -name '*.py' | while read f; do expand -t 4 "$f" | sed 's/ *$//' > "$f.tmp" && mv "$f.tmp" "$f"; done; git commit -qam ws; git mv src/core src/kernel; for f in src/kernel/*.py; do git mv $f ${f%.py}_k.py; done; git commit -qm mv; git log --follow --oneline src/kernel/m1_k.py | wc -l; python3 - <<'E'
import ast, pathlib, os, shutil
for p in pathlib.Path("src").rglob("*.py"):
    t = ast.parse(p.read_text()); t.body = [n for n in t.body if not isinstance(n, ast.Import)]; shutil.copy2(p, str(p) + ".orig"); p.write_text(ast.unparse(t) + "\\n")
for p in pathlib.Path("src").rglob("*.orig"): p.unlink()
E
git add -A; git commit -qm ast; git diff HEAD~1 > p.patch; git checkout -q HEAD~1; git apply p.patch; git checkout -q .; git checkout -q -; git revert --no-edit HEAD >/dev/null; git rebase -q --exec 'python3 -m compileall -q src' HEAD~3 2>&1 | tail -1; git reset -q --hard HEAD~1; git clean -fdxq; git shortlog -sn HEAD | cat; cat src/*/*.py | sort | uniq -c | sort -n | tail -1; find . -name '*.py' -newer .git/config | wc -l; exit 0
"""),
    "task-queues": (PY, """
import json, multiprocessing as m, os, queue, random, select, signal, socket, sqlite3, subprocess, sys, threading, time
r = random.Random(int(sys.argv[1])); db = sqlite3.connect("q.db", timeout=20, isolation_level=None); db.execute("pragma journal_mode=wal"); db.execute("create table j(id integer primary key, state text, tries int default 0, out text)")
db.executemany("insert into j(state) values(?)", [("new",)] * 60)
def worker(n, stop):
    d = sqlite3.connect("q.db", timeout=20, isolation_level=None); os.nice(1); signal.signal(signal.SIGTERM, lambda *a: os._exit(3))
    while not stop.is_set():
        row = d.execute("update j set state='run', tries=tries+1 where id=(select id from j where state='new' limit 1) returning id, tries").fetchone()
        if not row: time.sleep(0.05); stop.is_set() or d.execute("select count(*) from j where state='new'").fetchone()[0] or os._exit(0)
        elif row[0] % 11 == 0 and row[1] < 2: d.execute("update j set state='new' where id=?", (row[0],)); os.kill(os.getpid(), signal.SIGKILL)
        else: o = subprocess.run(["sh", "-c", f"echo {row[0]}"], capture_output=True).stdout; d.execute("update j set state='done', out=? where id=?", (o, row[0]))
if __name__ == "__main__":
    c = m.get_context("fork"); stop = c.Event(); ps = [c.Process(target=worker, args=(i, stop)) for i in range(4)]; [p.start() for p in ps]; end = time.time() + 25; restarts = 0
    while time.time() < end and db.execute("select count(*) from j where state != 'done'").fetchone()[0]:
        for i, p in enumerate(ps):
            if not p.is_alive(): ps[i] = c.Process(target=worker, args=(i, stop)); ps[i].start(); restarts += 1
        time.sleep(0.05)
    stop.set(); [p.join(2) for p in ps]; [p.terminate() for p in ps if p.is_alive()]; print(db.execute("select state, count(*) from j group by 1").fetchall(), restarts > 0)
    q = queue.PriorityQueue(); ts = [threading.Thread(target=lambda: [q.put((r.random(), k)) for k in range(100)]) for _ in range(6)]; [t.start() for t in ts]; [t.join() for t in ts]; print(q.qsize())
    a, b = socket.socketpair(); e = select.epoll(); e.register(b, select.EPOLLIN); a.send(b"x"); print(len(e.poll(1))); rd, wr = os.pipe(); signal.set_wakeup_fd(socket.socketpair()[0].fileno()) if False else None
    signal.signal(signal.SIGALRM, lambda *x: os.write(wr, b"t")); signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05); time.sleep(0.6); signal.setitimer(signal.ITIMER_REAL, 0); print(len(os.read(rd, 100)) > 5)
"""),
}
