# SPDX-License-Identifier: Apache-2.0
"""A second set of work that no rule was made with, written before the rules that held_out.py had shown to be wrong were changed, and run
for the first time after that. For `run --held-again`, as held_out.py: what it shows is published as it is.

A tool that this machine does not have is left out; each kind has some that every machine has.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

WORK = {
    "process-inspection": (SH, "sleep 20 & S=$!; top -b -n 1 | head -5; pgrep -a sleep; pgrep -f 'slee[p]' | wc -l; pidof sleep; lsof -p $S 2>/dev/null | wc -l; lsof -i 2>/dev/null | wc -l; ps -ef | wc; "
                           "ps -o pid,ppid,etime,comm,rss -p $S; pstree 2>/dev/null | head -3; free; vmstat 2>/dev/null; uptime; cat /proc/$S/status /proc/$S/limits /proc/$S/smaps 2>/dev/null | wc; ls -l /proc/$S/fd | wc; kill $S"),
    "psutil-like": (PY, """
import os
rows = []
for p in filter(str.isdigit, os.listdir("/proc")):
    try:
        s = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split(); c = open(f"/proc/{p}/cmdline", "rb").read().split(b"\\0")
        io = [open(f"/proc/{p}/{f}").read() for f in ("status", "io", "statm", "cgroup", "oom_score", "wchan")]
        rows.append((p, s[0], c[0], len(os.listdir(f"/proc/{p}/fd")), os.readlink(f"/proc/{p}/exe"), os.readlink(f"/proc/{p}/cwd")))
    except OSError: pass
print(len(rows), os.getloadavg(), open("/proc/net/dev").read().count("\\n"), open("/proc/diskstats").read().count("\\n") if os.path.exists("/proc/diskstats") else 0)
"""),
    "network-diagnosis": (SH, "ip addr 2>&1 | head -3; ip route 2>&1 | wc; ss -tlnp 2>&1 | wc; cat /etc/resolv.conf /etc/hosts /etc/nsswitch.conf 2>/dev/null | wc; getent hosts localhost; ping -c 1 -W 1 127.0.0.1 2>&1 | tail -1; "
                          "curl -sS -m 1 http://127.0.0.1:9/ 2>&1; curl -sS -m 1 https://www.example.org/ 2>&1 | head -1; python3 -c 'import socket\nprint(socket.gethostname(), socket.getaddrinfo(\"localhost\", 80)[0][4])'; cat /proc/net/tcp | wc -l; exit 0"),
    "java": (SH, "command -v javac >/dev/null || { awk 'BEGIN { for (i = 0; i < 100000; i++) s += i; print s }'; exit 0; }\nmkdir -p p/q && printf 'package q; public class A { public static void main(String[] a) throws Exception { var t = new Thread[8]; "
                 "for (int i = 0; i < 8; i++) { t[i] = new Thread(() -> new java.util.Random().ints(100000).sum()); t[i].start(); } for (var x : t) x.join(); System.out.println(java.util.stream.IntStream.range(0, 1000).sum()); } }' > p/q/A.java; "
                 "javac -d out p/q/A.java && java -cp out q.A; jar cfe a.jar q.A -C out . && java -Xmx64m -jar a.jar; java -version 2>&1 | head -1; exit 0"),
    "go": (SH, "export HOME=$PWD GOCACHE=$PWD/c GOFLAGS=-mod=mod GOPROXY=off PATH=$PATH:/usr/local/go/bin; go version 2>&1 | head -1; mkdir m && cd m; printf 'package main\\nimport \"fmt\"\\nfunc main() { c := make(chan int); go func() { c <- 42 }(); fmt.Println(<-c) }\\n' > main.go; "
               "printf 'module x\\n' > go.mod; go vet . 2>&1 | tail -1; go run . 2>&1 | tail -1; ls | wc -l; exit 0"),
    "rust-like": (SH, "export HOME=$PWD; rustc --version 2>&1 | head -1; cargo init -q x 2>&1 | tail -1; cargo build -q --offline --manifest-path x/Cargo.toml 2>&1 | tail -1; clang --version 2>/dev/null | head -1; echo 'template<int N> struct F { static const int v = N * F<N - 1>::v; }; "
                      "template<> struct F<0> { static const int v = 1; }; int main() { return F<5>::v != 120; }' > f.cc; g++ -O2 -o f f.cc && ./f; clang++ -O1 -fsanitize=undefined -o g f.cc 2>/dev/null && ./g; readelf -d f | wc -l; ldd f | head -3; exit 0"),
    "cmake-ninja": (SH, "mkdir s && cd s && for i in $(seq 10); do echo \"int f$i(void) { return $i; }\" > f$i.c; done; echo 'int f1(void); int main(void) { return f1() != 1; }' > main.c; printf 'cmake_minimum_required(VERSION 3.10)\\nproject(x C)\\nfile(GLOB S f*.c)\\nadd_library(l SHARED ${S})\\n"
                        "add_executable(m main.c)\\ntarget_link_libraries(m l)\\nenable_testing()\\nadd_test(NAME t COMMAND m)\\n' > CMakeLists.txt; cmake -G Ninja -B b . >/dev/null 2>&1 || cmake -B b . >/dev/null 2>&1; cmake --build b >/dev/null && (cd b && ctest -Q; ./m); DESTDIR=$PWD/d cmake --install b >/dev/null 2>&1; rm -r b; ls | wc -l"),
    "git-bisect": (SH, "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q r && cd r; for i in $(seq 24); do echo \"print($i)\" > p.py; mkdir -p d$i; echo $i > d$i/f; git add -A; git commit -qm $i; done; git bisect start HEAD HEAD~22 >/dev/null; "
                       "git bisect run sh -c '[ $(python3 p.py) -lt 13 ]' | tail -1; git bisect reset -q; git blame p.py | wc -l; git stash list; git mv d1 e1; git commit -qam mv; git clone -q --bare . ../b.git; git push -q ../b.git HEAD:x; git fsck 2>&1 | tail -1; git format-patch -q -3; git am -q *.patch 2>&1 | tail -1; git am --abort 2>/dev/null; git repack -adq; git clean -fdq"),
    "database-dump": (SH, "command -v sqlite3 >/dev/null && { sqlite3 a.db 'create table t(a integer primary key, b text, c blob); with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000) insert into t select i, hex(i), randomblob(30) from n'; "
                          "sqlite3 a.db .dump > a.sql; sqlite3 b.db < a.sql; sqlite3 b.db 'pragma integrity_check; select count(*) from t'; sqlite3 a.db '.backup c.db'; gzip -k a.sql; zcat a.sql.gz | wc -c; }; "
                          "python3 -c 'import dbm.dumb as d, shelve\nk = d.open(\"k\", \"c\")\nfor i in range(300): k[str(i)] = str(i * i)\nk.close()\ns = shelve.open(\"s\")\ns[\"a\"] = list(range(100))\ns.close()'; ls | wc -l"),
    "archives": (SH, "mkdir -p t/{a,b,c} && for i in $(seq 150); do seq $i > t/a/$i; ln -s ../a/$i t/b/l$i; done; tar cf t.tar t; tar czf t.tgz t; tar cJf t.txz t; zip -qr t.zip t; (find t | cpio -o 2>/dev/null) > t.cpio; for a in t.tar t.tgz t.txz; do mkdir x.$a; tar xf $a -C x.$a; done; mkdir z; unzip -qo t.zip -d z; "
                     "unzip -qo t.zip -d z; tar df t.tar; zstd -q t.tar 2>/dev/null; bzip2 -k t.tar; xz -t t.txz; python3 -c 'import zipfile, tarfile\nprint(len(zipfile.ZipFile(\"t.zip\").namelist()), len(tarfile.open(\"t.tgz\").getnames()))'; sha256sum t.* | wc -l; rm -r x.* z"),
    "editors": (SH, "export HOME=$PWD; for i in $(seq 60); do seq 20 > f$i.txt; done; for i in $(seq 20); do printf '1,5s/^/x/\\nw\\nq\\n' | ed -s f$i.txt; done; vim -u NONE -es -c 'argdo %s/1/one/ge | update' -c qa f2*.txt </dev/null; sed -i.bak 's/2/two/' f*.txt; perl -pi -e 's/3/three/' f*.txt; "
                    "cp f1.txt o.txt; echo y >> o.txt; diff -u f1.txt o.txt > p.diff; patch -s f1.txt p.diff; mv f2.txt g.txt; for f in *.bak; do mv \"$f\" \"old-$f\"; done; ls | wc -l"),
    "loopback-servers": (PY, """
import concurrent.futures, socket, socketserver, threading, urllib.request, http.server
class E(socketserver.StreamRequestHandler):
    def handle(self):
        for l in self.rfile: self.wfile.write(l)
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self): b = self.rfile.read(int(self.headers["content-length"])); self.send_response(200); self.end_headers(); self.wfile.write(b[::-1])
    def log_message(self, *a): pass
e = socketserver.ThreadingTCPServer(("127.0.0.1", 0), E); h = http.server.ThreadingHTTPServer(("0.0.0.0", 0), H)
for s in (e, h): threading.Thread(target=s.serve_forever, daemon=True).start()
def echo(i):
    with socket.create_connection(e.server_address) as s: s.sendall(b"x" * 500 + b"\\n"); return len(s.recv(1000))
def post(i): return len(urllib.request.urlopen(f"http://127.0.0.1:{h.server_port}/", b"y" * 20000).read())
with concurrent.futures.ThreadPoolExecutor(10) as p: print(sum(p.map(echo, range(150))), sum(p.map(post, range(80))))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(200): v.sendto(b"z", u.getsockname()); u.recv(10)
"""),
    "node-project": (SH, "command -v node >/dev/null || exit 0; export HOME=$PWD; npm init -y >/dev/null 2>&1; mkdir -p src lib; for i in $(seq 120); do echo \"exports.f$i = x => x + $i\" > src/m$i.js; done; echo 'const fs = require(\"fs\"), path = require(\"path\"); for (const f of fs.readdirSync(\"src\")) { "
                         "const t = \"lib/.\" + f + \".tmp\"; fs.writeFileSync(t, fs.readFileSync(path.join(\"src\", f), \"utf8\").replace(/=>/, \"=> 0 +\")); fs.renameSync(t, \"lib/\" + f) } console.log(fs.readdirSync(\"lib\").length)' > build.js; node build.js; node build.js; "
                         "echo 'const t = require(\"node:test\"), a = require(\"assert\"); t(\"a\", () => a.equal(require(\"./lib/m3.js\").f3(1), 4))' > a.test.js; node --test 2>&1 | tail -2; npm run 2>/dev/null | wc -l; node -e 'new (require(\"worker_threads\").Worker)(\"console.log(1)\", {eval: true})'; rm -rf lib"),
    "python-packaging": (SH, "export HOME=$PWD PIP_NO_INDEX=1; mkdir -p p/x && echo 'def f(): return 1' > p/x/__init__.py; printf '[project]\\nname = \"x\"\\nversion = \"1\"\\n' > p/pyproject.toml; python3 -m pip download -q y 2>&1 | tail -1; python3 -m pip list 2>/dev/null | wc -l; python3 -m pip check 2>/dev/null | tail -1; "
                             "python3 -m pip cache dir; python3 -m pip install -q --target t ./p 2>&1 | tail -1; python3 -m zipapp p -m x:f -o a.pyz; python3 a.pyz; python3 -m compileall -q p; python3 -m pydoc -b 2>/dev/null </dev/null & sleep 0.5; kill $! 2>/dev/null; python3 -c 'import ensurepip, sysconfig; print(len(sysconfig.get_paths()))'; exit 0"),
    "debug-tools": (SH, "printf '#include <stdlib.h>\\nint main(int c, char **v) { int *p = malloc(40); for (int i = 0; i < 10; i++) p[i] = i; int s = 0; for (int i = 0; i < 10; i++) s += p[i]; free(p); return s != 45; }\\n' > a.c; gcc -g -O0 --coverage -o a a.c && ./a; gcov a.c 2>/dev/null | head -2; gcc -g -fsanitize=address -o b a.c && ASAN_OPTIONS=detect_leaks=0 ./b; "
                        "nm a | wc -l; addr2line -e a main; objdump -d a | wc -l; strings a | wc -l; file a 2>/dev/null; gdb -batch -ex 'info functions main' -ex 'disassemble main' a 2>/dev/null | wc -l; python3 -X faulthandler -c 'import cProfile; cProfile.run(\"sum(range(1000))\")' | head -3; (ulimit -c 0; sh -c 'kill -SEGV $$'); python3 -m trace --count -C c /dev/null; exit 0"),
    "data-frames": (PY, """
import csv, gzip, io, json, os, pickle, random, statistics, sys, tempfile
r = random.Random(int(sys.argv[1])); os.mkdir("parts")
for n in range(60):
    with gzip.open(f"parts/part-{n:03}.csv.gz", "wt") as f: csv.writer(f).writerows((r.randrange(50), r.gauss(0, 1)) for _ in range(400))
g = {}
for p in sorted(os.listdir("parts")):
    for k, v in csv.reader(gzip.open("parts/" + p, "rt")): g.setdefault(int(k), []).append(float(v))
for k, v in g.items():
    t = tempfile.NamedTemporaryFile("w", dir=".", delete=False); json.dump({"k": k, "mean": statistics.mean(v), "sd": statistics.pstdev(v)}, t); t.close(); os.replace(t.name, f"g{k}.json")
for k in g: d = json.load(open(f"g{k}.json")); d["n"] = len(g[k]); json.dump(d, open(f"g{k}.json", "w"))
pickle.dump(g, open("all.pickle", "wb")); print(len(pickle.load(open("all.pickle", "rb"))))
"""),
    "photo-sorting": (PY, """
import hashlib, os, random, shutil, sys
r = random.Random(int(sys.argv[1])); os.makedirs("camera")
for i in range(900): open(f"camera/DSC{i:05}.JPG", "wb").write(r.randbytes(300))
for i, n in enumerate(sorted(os.listdir("camera"))):
    d = f"sorted/2024-{i % 12 + 1:02}"; os.makedirs(d, exist_ok=True); os.rename("camera/" + n, f"{d}/{hashlib.md5(n.encode()).hexdigest()[:8]}.jpg")
for root, _, files in os.walk("sorted"):
    for k, n in enumerate(sorted(files)): os.rename(f"{root}/{n}", f"{root}/{k:04}.jpeg")
shutil.copytree("sorted", "backup"); print(sum(len(f) for _, _, f in os.walk("backup"))); shutil.rmtree("backup")
"""),
    "config-generation": (SH, "export HOME=$PWD; mkdir -p etc/{nginx,cron.d,systemd,ssl} && for h in $(seq 50); do printf 'server { listen 80; server_name h%s; }\\n' $h > etc/nginx/h$h.conf; done; echo '0 3 * * * root backup' > etc/cron.d/backup; printf 'DB=x\\nKEY=y\\n' > env.example; envsubst < env.example 2>/dev/null | wc -l; "
                              "openssl req -x509 -newkey rsa:2048 -nodes -keyout etc/ssl/k.txt -out etc/ssl/c.txt -days 1 -subj /CN=x 2>/dev/null; openssl x509 -in etc/ssl/c.txt -noout -subject 2>/dev/null; m4 -DX=1 /dev/null 2>/dev/null; jq -n '[range(100)]|add' 2>/dev/null; python3 -c 'import configparser, json, tomllib\nprint(json.dumps(tomllib.loads(\"a = 1\")))'; "
                              "umask 077; echo s > token; chmod 600 token; chmod -R u=rwX,go= etc; install -m 755 -D token bin/t; find etc -type f -exec chmod 644 {} +; stat -c %a etc/cron.d/backup; gpg --version 2>/dev/null | head -1; exit 0"),
    "test-runner": (SH, "mkdir -p tests && for i in $(seq 25); do printf 'import os, subprocess, sys, tempfile, unittest\\nclass T%s(unittest.TestCase):\\n    def setUp(self): self.d = tempfile.TemporaryDirectory()\\n    def tearDown(self): self.d.cleanup()\\n    def test_a(self):\\n        p = os.path.join(self.d.name, \"f\"); open(p, \"w\").write(\"x\"); os.rename(p, p + \"2\"); "
                        "self.assertEqual(subprocess.run([\"/bin/echo\", \"hi\"], capture_output=True).stdout, b\"hi\\\\n\")\\n    def test_b(self): self.assertRaises(ZeroDivisionError, lambda: 1 / 0)\\n' $i > tests/test_$i.py; done; touch tests/__init__.py; python3 -m unittest -q 2>&1 | tail -1; python3 -m pytest -q tests 2>&1 | tail -1; python3 -m doctest /dev/null; "
                        "for i in 1 2 3; do timeout 5 python3 -m unittest -q tests.test_$i 2>&1 | tail -1; done; find . -name __pycache__ -prune -exec rm -rf {} +"),
    "terminal-work": (SH, "export HOME=$PWD TERM=xterm; script -qec 'ls / | wc -l; stty size' /dev/null </dev/null 2>&1 | tail -1; tmux -S ./t new -d 'sleep 1' 2>/dev/null; tmux -S ./t kill-server 2>/dev/null; python3 -c 'import os, pty\npty.spawn([\"/bin/sh\", \"-c\", \"tty; echo hi\"])' </dev/null; busybox ls / 2>/dev/null | wc -l; bc <<< '2^100' 2>/dev/null; "
                          "echo 'puts [expr {6 * 7}]' | tclsh 2>/dev/null; cal 2>/dev/null | head -1; watch -n 1 -t true 2>/dev/null & sleep 0.3; kill $! 2>/dev/null; tput cols 2>/dev/null; man -w ls 2>/dev/null | head -1; mkfifo q; (cat q > out &) ; echo hi > q; flock out -c 'wc -c < out'; (coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} l; echo $l); exit 0"),
}
