# SPDX-License-Identifier: Apache-2.0
"""A fifth set of work, of twenty kinds that no other set has, written before the sources of the rules were read by its author and run for
the first time after that: what it showed is published as it was. For `run --held-fifth`, as held_out.py.

A tool that this machine does not have is left out. On Debian: ccache clang clang-tidy lld chromium default-jdk maven heaptrack valgrind
linux-perf e2fsprogs busybox inotify-tools entr python3-ipython python3-flask python3-pytest python3-boto3 protobuf-compiler gettext nginx-light
p7zip-full age gnupg ruby nodejs npm kubectl docker terraform socat netcat-openbsd.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")
GIT = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"

WORK = {
    "ccache-debug-builds": (SH, """
export HOME=$PWD CCACHE_DIR=$PWD/.cc; mkdir p && cd p; N=$((8 + $1)); for i in $(seq $N); do printf '#include <stdio.h>\\n#include <stdlib.h>\\nint f%s(int x) { char *p = malloc(x + 1); p[x] = 3; int r = p[x] + %s; free(p); return r; }\\n' $i $i > f$i.c; done
{ for i in $(seq $N); do echo "int f$i(int);"; done; echo 'int main(void) { return f1(2) != 4; }'; } > main.c
printf 'CC = $(shell command -v ccache) gcc\\nCFLAGS = -g -O0 $(X)\\nOBJ = $(patsubst %%.c,%%.o,$(wildcard *.c))\\nprog: $(OBJ)\\n\\t$(CC) $(CFLAGS) -o $@ $^\\n-include $(OBJ:.o=.d)\\n%%.o: %%.c\\n\\t$(CC) $(CFLAGS) -MMD -c -o $@ $<\\nclean:\\n\\trm -f *.o *.d *.gc* prog\\n' > Makefile
for x in "" "-fsanitize=address,undefined" "--coverage" "-pg" ""; do make -s clean; make -s -j8 X="$x" && ./prog; done; ccache -s 2>/dev/null | wc -l; gcov -n f1.c 2>/dev/null | head -1; gprof prog gmon.out 2>/dev/null | wc -l; (make -j1 X=-pg clean prog && ./prog && gprof prog) 2>/dev/null | wc -l; ccache -C >/dev/null 2>&1; exit 0
"""),
    "clang-toolchain": (SH, """
command -v clang >/dev/null || exit 0; export HOME=$PWD; printf '#include <vector>\\n#include <map>\\n#include <string>\\n#include <algorithm>\\n' > pre.hh; for i in 1 2 3 4; do printf '#include "pre.hh"\\nint g%s(int n) { std::map<std::string, int> m; for (int i = 0; i < n; i++) m[std::to_string(i)] = i; return m.size() + %s; }\\n' $i $1 > g$i.cc; done; echo 'int g1(int); int main() { return g1(3) < 3; }' > main.cc
clang++ -x c++-header -o pre.hh.pch pre.hh; clang++ -include pre.hh -flto=thin -fuse-ld=lld -O2 -o a *.cc && ./a; clang++ -g -gsplit-dwarf -O0 -o b *.cc && ./b; clang++ -fprofile-instr-generate -fcoverage-mapping -o c *.cc && ./c; llvm-profdata merge -o p default.profraw 2>/dev/null; clang-tidy --quiet g1.cc -- 2>/dev/null | wc -l
clang++ -O1 -g -fsanitize=thread -x c++ -o t - <<< '#include <thread>
int x; int main() { std::thread a([] { x++; }), b([] { x++; }); a.join(); b.join(); return 0; }' && ./t >/dev/null 2>&1; clang++ -fsanitize=cfi -flto -fvisibility=hidden -fuse-ld=lld -o d *.cc 2>/dev/null && ./d; clang -target bpf -g -O2 -x c -c -o x.bpf.o - <<< 'int f(void *c) { return 0; }'; llvm-objdump -d x.bpf.o 2>/dev/null | wc -l; bpftool btf dump file x.bpf.o 2>/dev/null | wc -l; exit 0
"""),
    "profilers": (SH, """
export HOME=$PWD; printf '#include <stdlib.h>\\n#include <string.h>\\nstatic int w(int n) { int s = 0; for (int i = 0; i < n; i++) { char *p = malloc(100); memset(p, i, 100); s += p[3]; free(p); } return s; }\\nint main(void) { return w(20000) == 12345; }\\n' > w.c; gcc -g -O1 -o w w.c; perf stat ./w 2>&1 | head -2; perf record -o p.data ./w 2>&1 | tail -1; heaptrack ./w 2>&1 | tail -1; valgrind -q --tool=callgrind ./w 2>&1 | tail -1; callgrind_annotate callgrind.out.* 2>/dev/null | wc -l; valgrind -q --tool=massif ./w
strace -c ./w 2>&1 | tail -1; ltrace -c ./w 2>&1 | tail -1; /usr/bin/time -v ./w 2>&1 | tail -1; python3 -m cProfile -o c.prof -c 'import json; json.dumps(list(range(1000)))' 2>/dev/null; python3 -c 'import tracemalloc; tracemalloc.start(); x = [bytes(100) for _ in range(1000)]; print(len(tracemalloc.take_snapshot().statistics("lineno")))'; python3 -X importtime -c 'import http.server' 2>&1 | wc -l; node --cpu-prof -e 'for (let i = 0; i < 1e6; i++);' 2>/dev/null; node --prof -e 'for (let i = 0; i < 1e6; i++);' 2>/dev/null; node --heapsnapshot-signal=SIGUSR2 -e 'process.kill(process.pid, "SIGUSR2"); setTimeout(() => {}, 100)' 2>/dev/null; ls | wc -l; exit 0
"""),
    "headless-browser": (SH, """
command -v chromium >/dev/null || exit 0; export HOME=$PWD; mkdir site; for i in $(seq $((2 + $1 % 3))); do echo "<title>p$i</title><h1>page $i</h1><canvas id=c></canvas><script>document.body.append(new Date().getFullYear()); fetch('/p1.html').then(r => r.text()).then(t => document.body.append(t.length))</script>" > site/p$i.html; done
python3 -m http.server 8090 --bind 127.0.0.1 -d site >/dev/null 2>&1 & P=$!; for i in $(seq 30); do curl -s http://127.0.0.1:8090/ >/dev/null && break; sleep 0.1; done
for a in "--dump-dom" "--screenshot=s.png" "--print-to-pdf=s.pdf"; do timeout 25 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=$PWD/prof $a http://127.0.0.1:8090/p1.html 2>/dev/null | wc -c; done; ls -s s.png s.pdf 2>/dev/null | wc -l
kill $P; wait $P 2>/dev/null; exit 0
"""),
    "terraform-plan": (SH, """
command -v terraform >/dev/null || exit 0; export HOME=$PWD TF_IN_AUTOMATION=1 CHECKPOINT_DISABLE=1; mkdir -p m/net && cd m; printf 'variable "n" { default = %s }\\nresource "terraform_data" "vm" {\\n  count = var.n\\n  input = "vm-${count.index}"\\n}\\nmodule "net" { source = "./net" }\\noutput "ids" { value = terraform_data.vm[*].output }\\n' $((2 + $1 % 5)) > main.tf; printf 'resource "terraform_data" "n" {\\n  input = 1\\n  provisioner "local-exec" { command = "echo made" }\\n}\\n' > net/main.tf
terraform init -no-color 2>&1 | tail -1; terraform fmt -check -recursive >/dev/null; terraform validate -no-color | head -1; terraform plan -no-color -out p.plan | grep -c create; terraform apply -no-color -auto-approve p.plan | tail -1; terraform state list | wc -l; terraform apply -no-color -auto-approve -var n=1 | tail -1; terraform workspace new dev -no-color | head -1; terraform destroy -no-color -auto-approve | tail -1; terraform graph | wc -l; terraform console -no-color <<< 'cidrsubnet("10.0.0.0/8", 8, 2)'; exit 0
"""),
    "cloud-clients": (SH, """
export HOME=$PWD AWS_MAX_ATTEMPTS=1 AWS_METADATA_SERVICE_TIMEOUT=1 AWS_METADATA_SERVICE_NUM_ATTEMPTS=1; mkdir -p .aws; printf '[default]\\naws_access_key_id = A\\naws_secret_access_key = B\\n' > .aws/credentials; printf '[default]\\nregion = eu-west-1\\n' > .aws/config; chmod 600 .aws/credentials
python3 - $1 <<'E'
import sys
try: import boto3, botocore.config
except ImportError: sys.exit()
c = botocore.config.Config(connect_timeout=1, retries={"max_attempts": 0})
s = boto3.client("s3", config=c); print(s.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": f"k{sys.argv[1]}"})[:20])
for call in (lambda: s.list_buckets(), lambda: boto3.client("sts", config=c).get_caller_identity(), lambda: boto3.Session(profile_name="none")):
    try: call()
    except Exception as e: print(type(e).__name__)
E
rm .aws/credentials; python3 -c 'import boto3
try: boto3.client("s3").list_buckets()
except Exception as e: print(type(e).__name__)' 2>&1 | tail -1
command -v kubectl >/dev/null && { kubectl config set-cluster c --server=http://127.0.0.1:1 >/dev/null; kubectl config set-credentials u --token=t >/dev/null; kubectl config set-context c --cluster=c --user=u >/dev/null; kubectl config use-context c; timeout 5 kubectl get pods 2>&1 | tail -1; kubectl create deployment d --image=i --dry-run=client -o yaml 2>&1 | wc -l; ls .kube; }
command -v docker >/dev/null && { mkdir -p .docker; echo '{"auths": {}}' > .docker/config.json; docker --version; docker ps 2>&1 | tail -1; docker context ls 2>&1 | wc -l; printf 'FROM scratch\\n' > Dockerfile; docker build . 2>&1 | tail -1; cat .docker/config.json; }; exit 0
"""),
    "flask-pytest": (SH, """
export HOME=$PWD; mkdir -p app tests; cat > app/__init__.py <<'E'
import os, sqlite3
from flask import Flask, g, jsonify, request
def create(path):
    app = Flask(__name__)
    @app.before_request
    def open_db(): g.db = sqlite3.connect(path); g.db.execute("create table if not exists t(k integer primary key, v text)")
    @app.teardown_request
    def close_db(e): g.db.commit(); g.db.close()
    @app.post("/t")
    def add(): return jsonify(id=g.db.execute("insert into t(v) values(?)", (request.json["v"],)).lastrowid), 201
    @app.get("/t/<int:k>")
    def get(k): r = g.db.execute("select v from t where k = ?", (k,)).fetchone(); return (jsonify(v=r[0]), 200) if r else ("", 404)
    return app
E
cat > tests/test_app.py <<'E'
import os, subprocess, sys, pytest
sys.path.insert(0, os.getcwd())
app = pytest.importorskip("app")
@pytest.fixture
def client(tmp_path): return app.create(str(tmp_path / "t.db")).test_client()
@pytest.mark.parametrize("n", range(25))
def test_round(client, n): assert client.get(f"/t/{client.post('/t', json={'v': str(n)}).json['id']}").json == {"v": str(n)}
def test_missing(client): assert client.get("/t/9").status_code == 404
def test_env(monkeypatch, capfd): monkeypatch.setenv("X", "1"); subprocess.run(["sh", "-c", "echo $X"]); assert capfd.readouterr().out == "1\\n"
def test_fails(): assert 1 == 2
E
python3 -m pytest -q 2>&1 | tail -2; python3 -m pytest -q --lf 2>&1 | tail -1; python3 -m pytest -q -k round --durations=3 --junitxml=r.xml 2>&1 | tail -1; python3 -m flask --version 2>/dev/null | head -1
printf 'from app import create\\napp = create("x.db")\\n' > wsgi.py; FLASK_APP=wsgi timeout 4 python3 -m flask run --debug -p 5055 >l 2>&1 & for i in $(seq 30); do curl -s -X POST -H 'content-type: application/json' -d '{"v": "a"}' http://127.0.0.1:5055/t && break; sleep 0.1; done; touch wsgi.py; sleep 1; curl -s http://127.0.0.1:5055/t/1; wait; exit 0
"""),
    "jvm-tools": (SH, """
command -v javac >/dev/null || exit 0; export HOME=$PWD; mkdir -p src/a; cat > src/a/M.java <<'E'
package a;
import java.util.concurrent.*;
public class M { public static void main(String[] v) throws Exception { var p = Executors.newFixedThreadPool(4); for (int i = 0; i < 40; i++) { int n = i; p.submit(() -> { java.nio.file.Files.writeString(java.nio.file.Path.of("o" + n), "x".repeat(n)); return n; }); } p.shutdown(); p.awaitTermination(5, TimeUnit.SECONDS); Thread.sleep(Long.parseLong(v[0])); } }
E
javac -g -Xlint:all -d out src/a/M.java; java -cp out -XX:+FlightRecorder -XX:StartFlightRecording=filename=r.jfr a.M 3000 >/dev/null 2>&1 & J=$!; sleep 1.2; jps | wc -l; jstack $J | wc -l; jcmd $J GC.heap_info 2>&1 | wc -l; jmap -histo $J 2>&1 | wc -l; jstat -gc $J 2>&1 | wc -l; kill -QUIT $J; wait $J; echo '1 + 2' | timeout 30 jshell -s 2>&1 | head -1; javap -cp out -c a.M | wc -l; jdeps out 2>/dev/null | wc -l; jar cf m.jar -C out .; jlink --version; timeout 20 mvn -v 2>&1 | head -1; (mvn -q -o -B archetype:generate 2>&1 | tail -1); exit 0
"""),
    "git-server": (SH, GIT + """
git init -q --bare s.git; git -C s.git config http.receivepack true; git -C s.git config daemon.receivepack true; printf '#!/bin/sh\\nwhile read o n r; do echo "$r" >> $PWD/log; done\\n' > s.git/hooks/post-receive; chmod +x s.git/hooks/post-receive
git daemon --reuseaddr --export-all --enable=receive-pack --base-path=$PWD --listen=127.0.0.1 --port=9418 & D=$!; sleep 0.5; git clone -q git://127.0.0.1/s.git w 2>&1; cd w; git config credential.helper store; printf 'protocol=http\\nhost=h\\nusername=u\\npassword=p\\n' | git credential approve; printf 'protocol=http\\nhost=h\\n\\n' | git credential fill | wc -l
printf '#!/bin/sh\\ngrep -q bad "$1" && exit 1 || exit 0\\n' > .git/hooks/commit-msg; chmod +x .git/hooks/commit-msg; for i in $(seq $((5 + $1 % 4))); do echo $i > f$i; git add .; git commit -qm c$i; done; git commit -q --allow-empty -m bad; git push -q origin HEAD; git tag v1; git push -q --tags; cd ..; git clone -q --depth 2 git://127.0.0.1/s.git shallow; git init -q sup; cd sup; git -c protocol.file.allow=always submodule --quiet add ../s.git sub; git commit -qm sub; git submodule --quiet foreach 'git log --oneline | wc -l'; git sparse-checkout set sub 2>/dev/null
cd ../w; git filter-branch -f --tree-filter 'rm -f f1' HEAD >/dev/null 2>&1; git push -qf origin HEAD; git notes add -m n; git config --global core.fsmonitor false; git bundle create ../b HEAD 2>/dev/null; git rerere; git maintenance run --quiet; kill $D; wait 2>/dev/null; cat ../s.git/log | wc -l; ls -a ~ | wc -l; exit 0
"""),
    "disk-images": (SH, """
export HOME=$PWD PATH=$PATH:/usr/sbin:/sbin; mkdir -p root/{bin,etc,dev}; echo h > root/etc/hostname; cp /bin/busybox root/bin/ 2>/dev/null; truncate -s $((8 + $1 % 4))M d.img; mkfs.ext4 -q -F -d root d.img; e2fsck -fy d.img >/dev/null 2>&1; debugfs -R 'ls -l /etc' d.img 2>/dev/null | wc -l; echo x > x; debugfs -w -R 'write x new' d.img 2>/dev/null; dumpe2fs -h d.img 2>/dev/null | wc -l; resize2fs d.img 12M >/dev/null 2>&1; tune2fs -L data d.img >/dev/null; losetup -f 2>&1 | head -1; dd if=/dev/zero of=z.img bs=1M count=8 conv=fsync status=none; cp --sparse=always z.img y.img; fallocate -l 2M f; fallocate -p -o 4096 -l 8192 f; (cd root && find . | cpio -o -H newc 2>/dev/null) | gzip > initrd; file d.img; qemu-img create -q -f qcow2 q.qcow2 10M 2>/dev/null; sfdisk -q z.img <<< ',4M' 2>/dev/null; fdisk -l z.img 2>/dev/null | wc -l; blkid d.img; dd if=d.img of=e.img bs=64k status=none; cmp d.img e.img; busybox tar tf /dev/null; lsblk 2>&1 | wc -l; sync; exit 0
"""),
    "waiting-loops": (SH, """
export HOME=$PWD; until [ -e ready ]; do sleep 0.2; [ $((++n)) -ge $((6 + $1 % 4)) ] && touch ready; done; for i in $(seq 12); do nc -z 127.0.0.1 5432 2>/dev/null || sleep 0.3; done; for i in $(seq 10); do (exec 3<>/dev/tcp/127.0.0.1/6379) 2>/dev/null; sleep 0.25; done; for i in $(seq 8); do curl -sf -m 1 http://localhost:3000/health || sleep 0.3; done
python3 -m http.server 3001 --bind 127.0.0.1 >/dev/null 2>&1 & S=$!; sleep 0.6; for i in $(seq 20); do curl -s -o /dev/null http://127.0.0.1:3001/; sleep 0.2; done; kill $S
python3 -c 'import socket, time
for i in range(12):
    try: socket.create_connection(("localhost", 5433), timeout=0.5)
    except OSError: time.sleep(0.25)'
mkdir w; (timeout 3 inotifywait -q -m -e close_write w 2>/dev/null | while read a b c; do echo $c >> seen; done) & sleep 0.5; for i in 1 2 3; do echo $i > w/f$i; sleep 0.2; done; ls w/* | timeout 2 entr -nz true 2>/dev/null; (flock -n 9 || exit 1; sleep 0.5) 9>lock & flock -w 2 lock true; timeout 2 tail -f seen 2>/dev/null | head -1; timeout 1 yes | head -2; wait; exit 0
"""),
    "repls": (SH, """
export HOME=$PWD TERM=dumb; printf 'x = %s\\n%%time sum(range(1000))\\n!echo hi\\n%%run -i /dev/null\\n%%who\\n%%history\\nimport os; os.fork() or os._exit(0)\\nexit\\n' $1 | timeout 20 ipython --simple-prompt --no-banner 2>&1 | wc -l; ipython -c '%%bash
echo $((1 + 2))' 2>/dev/null; printf '1+1\\n.help\\nrequire("os").cpus().length\\n.exit\\n' | node -i 2>/dev/null | wc -l; printf '6 * 7\\nputs `echo hi`\\nexit\\n' | irb -f --noecho 2>/dev/null | wc -l; printf '.mode json\\nselect 1 as a;\\n.tables\\n' | sqlite3; printf 'expr 1 + 2\\n' | tclsh; printf 'print(1)\\nos.execute("true")\\n' | lua -i 2>/dev/null | wc -l; printf 'echo 1;\\n' | php -a 2>/dev/null | wc -l; printf 'a <- 1:10; mean(a); system("echo hi")\\n' | R --no-save -q 2>/dev/null | wc -l; echo 'scale=20; 4*a(1)' | bc -l; python3 -i -c 'print(1)' <<< 'print(2)' 2>/dev/null; python3 -c 'import code; code.interact(readfunc=lambda p: exec("raise EOFError"))' 2>/dev/null; bash -i <<< 'echo $PS1; fg; exit' 2>/dev/null; python3 -c 'import pty, os
pid, fd = pty.fork()
if pid == 0: os.execvp("python3", ["python3", "-q"])
os.write(fd, b"print(6*7)\\nexit()\\n")
try:
    while os.read(fd, 1000): pass
except OSError: pass
os.waitpid(pid, 0)'; exit 0
"""),
    "code-generation": (SH, """
export HOME=$PWD; mkdir -p proto gen; for i in $(seq $((4 + $1 % 4))); do printf 'syntax = "proto3";\\npackage p%s;\\nmessage M { int64 id = 1; repeated string names = 2; map<string, bytes> b = 3; }\\nservice S { rpc Get(M) returns (M); }\\n' $i > proto/m$i.proto; done; protoc -I proto --python_out=gen --cpp_out=gen proto/*.proto 2>/dev/null; protoc -I proto -o d.bin proto/*.proto 2>/dev/null; protoc --decode_raw < d.bin 2>/dev/null | wc -l
printf 'msgid "hi"\\nmsgstr "hallo"\\n' > de.po; msgfmt -o de.mo de.po 2>/dev/null; echo '_("hi"); _("new")' > s.py; xgettext -o t.pot s.py 2>/dev/null; msgmerge -q -U de.po t.pot 2>/dev/null; python3 - <<'E'
import ast, string, os, tempfile, dataclasses, textwrap
os.makedirs("models", exist_ok=True)
for n in range(80):
    src = "import dataclasses\\n@dataclasses.dataclass\\nclass M%d:\\n" % n + "".join(f"    f{i}: int = {i}\\n" for i in range(10)); ast.parse(src)
    fd, t = tempfile.mkstemp(dir="models"); os.write(fd, src.encode()); os.close(fd); os.rename(t, f"models/m{n}.py")
ns = {}; exec(compile(open("models/m3.py").read(), "m3", "exec"), ns); print(ns["M3"]())
E
python3 -m lib2to3 --help >/dev/null 2>&1; python3 -m py_compile models/*.py; printf 'BEGIN { for (i = 0; i < 40; i++) print "int v" i ";" }' | awk -f - > v.c; gcc -E v.c | wc -l; gperf --version 2>/dev/null | head -1; m4 <<< 'define(x, 1)x' 2>/dev/null; openapi 2>/dev/null; bison --version | head -1; (cd gen && git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm gen && git diff --exit-code && ls | wc -l); exit 0
"""),
    "mail-services": (PY, """
import email, email.message, imaplib, mailbox, os, poplib, smtplib, socketserver, sys, threading
got = []
class Smtp(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 x\\r\\n"); data = None
        for line in self.rfile:
            if data is not None:
                if line == b".\\r\\n": got.append(b"".join(data)); data = None; self.wfile.write(b"250 ok\\r\\n")
                else: data.append(line)
            elif line[:4].upper() == b"DATA": data = []; self.wfile.write(b"354 go\\r\\n")
            elif line[:4].upper() == b"QUIT": self.wfile.write(b"221 bye\\r\\n"); return
            else: self.wfile.write(b"250 ok\\r\\n")
s = socketserver.ThreadingTCPServer(("127.0.0.1", 2525), Smtp); threading.Thread(target=s.serve_forever, daemon=True).start()
for n in range(40 + int(sys.argv[1])):
    m = email.message.EmailMessage(); m["From"] = "a@b"; m["To"] = f"u{n}@c"; m["Subject"] = f"report {n}"; m.set_content("text\\n" * 20); m.add_attachment(os.urandom(3000), maintype="application", subtype="octet-stream", filename="r.bin")
    with smtplib.SMTP("127.0.0.1", 2525) as c: c.send_message(m)
box = mailbox.Maildir("box"); [box.add(mailbox.MaildirMessage(email.message_from_bytes(b))) for b in got]; mb = mailbox.mbox("all.mbox"); [mb.add(x) for x in box]; mb.flush(); mb.close()
for k, x in list(box.items()): x.set_flags("S"); x.set_subdir("cur"); box[k] = x
for k in list(box.keys())[::2]: box.discard(k)
print(len(box), len(got), os.path.getsize("all.mbox"))
for host in ("smtp.example.org", "127.0.0.1"):
    try: smtplib.SMTP(host, 26, timeout=1)
    except OSError as e: print(type(e).__name__)
"""),
    "tls-services": (SH, """
export HOME=$PWD; mkdir -p ca && cd ca; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2>/dev/null; for h in a b; do openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $h.key -out $h.csr -subj /CN=localhost 2>/dev/null; openssl x509 -req -in $h.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -out $h.pem -extfile <(echo subjectAltName=DNS:localhost,IP:127.0.0.1) 2>/dev/null; done; chmod 600 *.key; openssl verify -CAfile ca.pem a.pem b.pem; openssl pkcs12 -export -passout pass:x -in a.pem -inkey a.key -out a.p12; cat a.key a.pem > both.pem; mkdir -m 700 private; mv both.pem private/server-key.pem
openssl s_server -quiet -www -accept 8443 -cert a.pem -key a.key >/dev/null 2>&1 & A=$!; sleep 0.4; for i in $(seq $((8 + $1))); do curl -s --cacert ca.pem https://localhost:8443/ | head -1 | cut -c1-10; done | sort | uniq -c; openssl s_client -connect 127.0.0.1:8443 -CAfile ca.pem </dev/null 2>/dev/null | grep -c Verif; curl -s https://localhost:8443/; kill $A
printf 'daemon off; master_process off; pid n.pid; error_log e.log; events {} http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; server { listen 127.0.0.1:8444 ssl; ssl_certificate b.pem; ssl_certificate_key b.key; root .; } }\\n' > n.conf; nginx -p $PWD -c n.conf 2>/dev/null & B=$!; sleep 0.5; for i in 1 2 3; do curl -s --cacert ca.pem https://localhost:8444/n.conf | wc -c; done; kill $B 2>/dev/null; python3 - <<'E'
import socket, ssl, threading, os
c = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH); c.load_cert_chain("private/server-key.pem"); s = socket.create_server(("127.0.0.1", 0))
def serve():
    for _ in range(10):
        k, _a = s.accept(); t = c.wrap_socket(k, server_side=True); t.sendall(t.recv(100)); t.close()
threading.Thread(target=serve, daemon=True).start(); d = ssl.create_default_context(cafile="ca.pem")
for _ in range(10):
    with d.wrap_socket(socket.create_connection(s.getsockname()), server_hostname="localhost") as t: t.sendall(b"x"); t.recv(10)
E
wait; exit 0
"""),
    "environment-files": (SH, GIT + """
git init -q app; cd app; printf 'DB=sqlite\\nKEY=\\nPORT=1\\n' > .env.example; echo .env > .gitignore; cp .env.example .env; sed -i "s/KEY=/KEY=k$1/" .env; set -a; . ./.env; set +a; python3 - <<'E'
import os, re, shutil, tempfile
def set_key(k, v):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f:
        for l in open(".env"): f.write(f"{k}={v}\\n" if l.startswith(k + "=") else l)
    shutil.move(f.name, ".env")
set_key("DB", "pg"); set_key("PORT", "5432"); print(dict(l.strip().split("=", 1) for l in open(".env")))
E
cp .env .env.production; ln -s .env.production .env.local; cat .env.local | wc -l; perl -pi -e 's/5432/5433/' .env.production; mv .env .env.bak; mv .env.bak .env; grep PORT .env; git add -f .env.example .gitignore; git commit -qm i; git add -f .env.production; git commit -qm oops; git rm -q --cached .env.production; git commit -qm untrack; git stash -q -a 2>/dev/null; git stash pop -q; cat .env* | wc -l; git checkout -q HEAD~1 -- .env.production; cat .env.production | wc -l; cd ..; tar cf a.tar app; mkdir x; tar xf a.tar -C x; . x/app/.env; cp -a app copy; cat copy/.env | wc -l; rsync -a app/ y/ 2>/dev/null; cat y/.env 2>/dev/null | wc -l; git clone -q app z; ls -a z | wc -l; printf 'registry=http://127.0.0.1\\n' > .npmrc; npm config get registry 2>/dev/null; printf '[pypi]\\nusername = u\\npassword = p\\n' > .pypirc; cat .pypirc | wc -l; printf 'machine h login u password p\\n' > .netrc.new; mv .netrc.new .netrc; chmod 600 .netrc; python3 -c 'import netrc; print(netrc.netrc().hosts)'; node --env-file=app/.env -e 'console.log(process.env.PORT)' 2>/dev/null; echo "export A=1" >> .bashrc; . ./.bashrc; diff app/.env copy/.env; zip -qr app.zip app; unzip -qo app.zip -d u; cat u/app/.env | wc -l; exit 0
"""),
    "encrypted-archives": (SH, """
export HOME=$PWD; mkdir docs; for i in $(seq $((60 + $1))); do seq $((i * 9)) > docs/d$i.txt; done; 7z a -bd -psecret -mhe=on d.7z docs >/dev/null 2>&1; 7z x -bd -psecret -oout d.7z >/dev/null 2>&1; diff -r docs out/docs | wc -l; zip -q -P pw -r d.zip docs; unzip -q -P pw -o d.zip -d un; tar c docs | gpg --batch --pinentry-mode loopback --passphrase x -c -o d.tar.gpg 2>/dev/null; gpg --batch --pinentry-mode loopback --passphrase x -d d.tar.gpg 2>/dev/null | tar t | wc -l; gpgconf --kill all
command -v age-keygen >/dev/null && { age-keygen -o k.txt 2>/dev/null; R=$(grep -o 'age1.*' k.txt); for f in docs/*.txt; do age -r $R -o $f.age $f && rm $f; done; for f in docs/*.age; do age -d -i k.txt -o ${f%.age} $f; done; rm docs/*.age; }; tar c docs | openssl enc -aes-256-ctr -pbkdf2 -pass pass:y -out d.enc; split -b 4k d.enc part.; cat part.* | openssl enc -d -aes-256-ctr -pbkdf2 -pass pass:y | tar t | wc -l; sha256sum part.* > sums; sha256sum -c --quiet sums; find docs -name '*.txt' -exec shred -u -n 1 {} +; ls | wc -l; python3 -c 'import zipfile, os
z = zipfile.ZipFile("d.zip"); z.extractall("pz", pwd=b"pw"); print(len(z.namelist()))'; exit 0
"""),
    "load-test": (PY, """
import asyncio, collections, os, resource, socket, statistics, sys, time
N = 1500 + 50 * int(sys.argv[1])
async def serve(r, w):
    while line := await r.readline():
        if line == b"\\r\\n": w.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok"); await w.drain()
    w.close()
async def client(port, n, times):
    for i in range(n):
        t = time.perf_counter(); r, w = await asyncio.open_connection("127.0.0.1", port); w.write(b"GET / HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n"); await r.readuntil(b"ok"); w.close(); await w.wait_closed(); times.append(time.perf_counter() - t)
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512); p = s.sockets[0].getsockname()[1]; times = []
    await asyncio.gather(*(client(p, N // 30, times) for _ in range(30))); q = statistics.quantiles(times, n=100); print(len(times), q[49] < 5, q[98] < 5)
    ws = [await asyncio.open_connection("127.0.0.1", p) for _ in range(150)]; [w.close() for _, w in ws]
    for port in range(p + 1, p + 40):
        try: (await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 0.2))[1].close()
        except (OSError, asyncio.TimeoutError): pass
resource.getrlimit(resource.RLIMIT_NOFILE); asyncio.run(main())
u = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(20)]; u[0].bind(("127.0.0.1", 0))
for n in range(800): u[1 + n % 19].sendto(b"m" * 100, u[0].getsockname()); u[0].recv(200)
"""),
    "daemons": (PY, """
import os, signal, subprocess, sys, time
open("svc.py", "w").write('''
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/"); os.umask(0o27); n = os.open("/dev/null", os.O_RDWR); [os.dup2(n, i) for i in range(3)]
open(sys.argv[1], "w").write(str(os.getpid())); reloads = []
signal.signal(signal.SIGHUP, lambda *a: reloads.append(1)); signal.signal(signal.SIGTERM, lambda *a: sys.exit())
while True: time.sleep(0.05); open(sys.argv[1] + ".beat", "w").write(f"{time.time()} {len(reloads)}")
''')
def pid(n):
    for _ in range(100):
        try: return int(open(f"{os.getcwd()}/{n}.pid").read())
        except (OSError, ValueError): time.sleep(0.02)
def start(n): subprocess.run([sys.executable, "svc.py", f"{os.getcwd()}/{n}.pid"]); return pid(n)
svc = {n: start(n) for n in range(4)}; restarts = 0
for rnd in range(15 + int(sys.argv[1])):
    for n, p in list(svc.items()):
        try: os.kill(p, 0); os.kill(p, signal.SIGHUP); open(f"/proc/{p}/stat").read(); os.getpgid(p)
        except ProcessLookupError: os.unlink(f"{n}.pid"); svc[n] = start(n); restarts += 1
    if rnd % 5 == 2: os.kill(svc[rnd % 4], signal.SIGKILL)
    time.sleep(0.1)
kids = [subprocess.Popen(["sleep", "30"], start_new_session=True) for _ in range(6)]
for k in kids: os.killpg(k.pid, signal.SIGTERM); k.wait()
print(restarts, [open(f"{n}.pid.beat").read().split()[1] for n in svc]); os.system("pgrep -f svc.py | wc -l; pkill -TERM -f svc.py; sleep 0.3; pgrep -f svc.py | wc -l; nohup setsid sh -c 'echo $$ > d.pid; exec sleep 20' >/dev/null 2>&1 & sleep 0.3; kill $(cat d.pid)")
"""),
    "installing-software": (SH, """
export HOME=$PWD PATH=$PATH:$PWD/.local/bin:$PWD/bin; mkdir -p srv pkg/DEBIAN pkg/usr/bin bin; printf '#!/bin/sh\\nset -e\\nmkdir -p $HOME/bin\\ncurl -fsS http://127.0.0.1:8123/tool -o $HOME/bin/tool\\nchmod +x $HOME/bin/tool\\necho "export PATH=$HOME/bin:\\\\$PATH" >> $HOME/.profile\\n' > srv/install.sh; printf '#!/bin/sh\\necho tool %s\\n' $1 > srv/tool; cp /bin/true srv/native; python3 -m http.server 8123 --bind 127.0.0.1 -d srv >/dev/null 2>&1 & S=$!; for i in $(seq 30); do curl -s http://127.0.0.1:8123/ >/dev/null && break; sleep 0.1; done
curl -fsSL http://127.0.0.1:8123/install.sh | sh; tool; wget -qO- http://127.0.0.1:8123/install.sh | bash; curl -fsS http://127.0.0.1:8123/native -o bin/native && chmod +x bin/native && native; kill $S; . ./.profile
sudo -n true 2>&1 | tail -1; apt-get install -y jq 2>&1 | tail -1; apt-cache policy jq 2>/dev/null | head -1; dpkg -l 2>/dev/null | wc -l; systemctl status nginx 2>&1 | tail -1; service nginx start 2>&1 | tail -1; dmesg 2>&1 | tail -1; ulimit -n; ln -sf /bin/true /usr/local/bin/x 2>&1; mkdir -p /opt/app 2>&1; chown root: srv/tool 2>&1; npm install -g ./none 2>&1 | tail -1; pip3 install --user --no-index none 2>&1 | tail -1; gem install --local none 2>&1 | tail -1; go install example.org/x@latest 2>&1 | tail -1
printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: x\\n' > pkg/DEBIAN/control; cp srv/tool pkg/usr/bin/; fakeroot dpkg-deb -q --build pkg p.deb 2>/dev/null; dpkg-deb -x p.deb out; dpkg -i p.deb 2>&1 | tail -1; out/usr/bin/tool; crontab -l 2>&1 | tail -1; git config --global user.name a; printf '[alias]\\nst = status\\n' >> .gitconfig; mkdir -p .config/systemd; locale -a 2>/dev/null | wc -l; update-alternatives --list editor 2>&1 | tail -1; update-ca-certificates 2>&1 | tail -1; hash -r; exit 0
"""),
}
