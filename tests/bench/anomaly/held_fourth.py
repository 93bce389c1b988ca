# SPDX-License-Identifier: Apache-2.0
"""A fourth set of work, of ten kinds, written after the rules were changed because of held_third.py, and run for the first time after
that: what it showed is published as it was. For `run --held-fourth`, as held_out.py.

A tool that this machine does not have is left out. On Debian: ffmpeg sox pandoc graphviz gfortran ocaml-nox guile-3.0 cppcheck shellcheck
clang ansible-core mercurial protobuf-compiler python3-numpy curl.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

WORK = {
    "media": (SH, """
command -v ffmpeg >/dev/null || exit 0; export HOME=$PWD
ffmpeg -v error -f lavfi -i testsrc=size=160x120:rate=10 -f lavfi -i sine=frequency=440 -t 2 -pix_fmt yuv420p a.mkv; ffprobe -v error -show_entries format=duration -of csv=p=0 a.mkv; mkdir f; ffmpeg -v error -i a.mkv f/%03d.png; ls f | wc -l
ffmpeg -v error -framerate 10 -i f/%03d.png -vf scale=80:60 b.gif; ffmpeg -v error -i a.mkv -vn a.wav; sox a.wav -r 8000 c.wav trim 0 1 reverse; soxi -D c.wav; sox a.wav c.wav -n stat 2>&1 | head -2; for i in f/*.png; do ffmpeg -v error -y -i $i ${i%.png}.jpg; rm $i; done; ls f | wc -l
"""),
    "documents": (SH, """
command -v pandoc >/dev/null || exit 0; export HOME=$PWD; mkdir ch; for i in $(seq 12); do printf '# Chapter %s\\n\\nText with *emphasis*, `code` and a [link](ch%s.md).\\n\\n| a | b |\\n|---|---|\\n| 1 | %s |\\n' $i $((i % 12 + 1)) $i > ch/ch$i.md; done
pandoc -s --metadata title=Book -o book.html ch/*.md; pandoc -o book.docx ch/*.md; pandoc -t plain book.docx | wc -w; pandoc -o book.epub --metadata title=Book ch/*.md; unzip -l book.epub | wc -l; for f in ch/*.md; do pandoc -o ${f%.md}.rst $f; done
printf 'digraph g { a -> b -> c; a -> c [label="x"] }\\n' > g.dot; dot -Tsvg -o g.svg g.dot; dot -Tpng -O g.dot; neato -Tplain g.dot | wc -l; sed -i 's/Chapter/Section/' ch/*.md; diff -r ch ch | wc -l; ls ch | wc -l
"""),
    "other-compilers": (SH, """
export HOME=$PWD; command -v gfortran >/dev/null && { printf 'program p\\n  implicit none\\n  integer :: i\\n  real(8) :: s = 0\\n  do i = 1, 100000\\n    s = s + 1d0 / i\\n  end do\\n  print *, s\\nend program\\n' > p.f90; gfortran -O2 -o p p.f90 && ./p; gfortran -fopenmp -o q p.f90 && OMP_NUM_THREADS=2 ./q; }
command -v ocamlfind >/dev/null; command -v ocamlopt >/dev/null && { printf 'let rec f n = if n < 2 then n else f (n - 1) + f (n - 2)\\nlet () = Printf.printf "%%d\\\\n" (f 20)\\n' > f.ml; ocamlopt -o f f.ml && ./f; ocaml f.ml; }
command -v guile >/dev/null && guile --no-auto-compile -c '(use-modules (ice-9 popen) (ice-9 rdelim)) (display (read-line (open-input-pipe "echo hi"))) (newline) (display (apply + (iota 1000)))'; printf 'class A { public static void main(String[] a) { System.out.println(new java.io.File(".").list().length); } }\\n' > A.java; command -v java >/dev/null && java -XX:TieredStopAtLevel=1 A.java 2>&1 | tail -1
printf '.globl _start\\n_start: mov $60, %%eax\\n xor %%edi, %%edi\\n syscall\\n' > s.s; as -o s.o s.s && ld -o s s.o && ./s; objcopy -O binary s.o s.bin; gcc -static -x c -o st - <<< 'int main(void) { return 0; }' && ./st; strip st; exit 0
"""),
    "static-analysis": (SH, """
mkdir src; for i in $(seq 15); do printf '#include <stdlib.h>\\nint f%s(int n) { int *p = malloc(n); if (!p) return -1; p[0] = n; int r = p[0]; free(p); return r; }\\n' $i > src/f$i.c; done; printf '#!/bin/sh\\nfor f in $(ls); do echo $f; done\\n' > s.sh
cppcheck -q -j 2 --enable=all --inconclusive src 2>&1 | wc -l; shellcheck s.sh | wc -l; clang-format -i src/*.c 2>/dev/null; clang --analyze -o r src/f1.c src/f2.c 2>&1 | wc -l; gcc -fanalyzer -fsyntax-only src/*.c 2>&1 | wc -l; python3 -m compileall -q . ; python3 -m tokenize /dev/null; python3 -W error -c 'import ast, glob
for f in glob.glob("/usr/lib/python3*/json/*.py"): ast.parse(open(f).read())
print("parsed")'; ctags -R src 2>/dev/null; grep -c . tags 2>/dev/null; cscope -Rb 2>/dev/null; git diff --no-index --stat src/f1.c src/f2.c | tail -1; exit 0
"""),
    "ansible-local": (SH, """
command -v ansible-playbook >/dev/null || exit 0; export HOME=$PWD ANSIBLE_NOCOWS=1 ANSIBLE_LOCALHOST_WARNING=false
printf 'user={{ user }}\\nport={{ port | default(80) }}\\n' > app.j2
cat > site.yml <<'E'
- hosts: localhost
  connection: local
  gather_facts: true
  gather_subset: [min]
  vars: {user: alice}
  tasks:
    - file: {path: "{{ lookup('env', 'HOME') }}/etc", state: directory, mode: "0750"}
    - template: {src: app.j2, dest: "{{ lookup('env', 'HOME') }}/etc/app.conf", backup: true}
      register: r
    - command: wc -l etc/app.conf
      args: {chdir: "{{ lookup('env', 'HOME') }}"}
    - debug: {var: r.changed}
E
timeout 50 ansible-playbook -i localhost, site.yml 2>&1 | tail -3; cat etc/app.conf; exit 0
"""),
    "mercurial": (SH, """
export HOME=$PWD HGUSER=a@b HGPLAIN=1; command -v hg >/dev/null || exit 0; hg init r && cd r; for i in $(seq 6); do echo $i >> f; mkdir -p d$i; echo $i > d$i/g; hg -q commit -A -m c$i; done; hg update -q 3; echo x >> h; hg -q commit -A -m side; hg merge -q 2>&1 | tail -1; hg -q commit -m merge; hg log -T '{rev} {desc}\\n' | wc -l; hg mv -q d1 e1; hg -q commit -m mv; hg clone -q . ../c; cd ../c; echo y >> f; hg -q commit -m y; hg push -q; hg bundle -q -a ../b.hg; hg annotate ../c/f | wc -l; hg verify -q; hg --config extensions.rebase= help rebase | head -1; hg archive -t tgz ../a.tgz; exit 0
"""),
    "fuzzing": (SH, """
command -v clang >/dev/null || exit 0
printf '#include <stdint.h>\\n#include <stdlib.h>\\n#include <string.h>\\nint LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { char *p = malloc(n + 1); memcpy(p, d, n); p[n] = 0; int r = n > 3 && p[0] == 70 && p[1] == 85; free(p); return r * 0; }\\n' > f.c
mkdir -p corpus; echo FU > corpus/a; clang -g -O1 -fsanitize=fuzzer,address,undefined -o f f.c 2>/dev/null && { ./f -runs=3000 corpus 2>&1 | tail -1; ./f -merge=1 merged corpus 2>&1 | tail -1; ./f -jobs=2 -workers=2 -runs=500 corpus >/dev/null 2>&1; ls corpus | wc -l; ./f -minimize_crash=0 corpus/a 2>&1 | tail -1; }
printf 'int main(void) { char *p = __builtin_malloc(9); p[3] = 1; return p[3] != 1; }\\n' > l.c; gcc -g -fsanitize=address -o l l.c && ./l 2>&1 | grep -c leak; ASAN_OPTIONS=detect_leaks=0 ./l; clang -fsanitize=memory -o m l.c 2>/dev/null && ./m; clang -fsanitize=thread -o t l.c 2>/dev/null && setarch -R ./t 2>/dev/null; exit 0
"""),
    "web-application": (SH, """
export HOME=$PWD; printf 'SECRET_KEY=\\nDATABASE=app.db\\n' > .env.example; cp .env.example .env; sed "s/SECRET_KEY=/SECRET_KEY=$(openssl rand -hex 16)/" .env.example > .env; chmod 600 .env; grep -c = .env; . ./.env
cat > app.py <<'E'
import http.server, json, os, sqlite3, sys
env = dict(l.strip().split("=", 1) for l in open(".env") if "=" in l); db = sqlite3.connect(env["DATABASE"], check_same_thread=False); db.execute("create table if not exists t(k text primary key, v text)")
class H(http.server.BaseHTTPRequestHandler):
    def do_PUT(self): db.execute("insert or replace into t values(?, ?)", (self.path, self.rfile.read(int(self.headers["content-length"])).decode())); db.commit(); self.send_response(204); self.end_headers()
    def do_GET(self): r = db.execute("select v from t where k = ?", (self.path,)).fetchone(); self.send_response(200 if r else 404); self.end_headers(); self.wfile.write((r or ("none",))[0].encode())
    def log_message(self, *a): print(*a, file=sys.stderr)
http.server.ThreadingHTTPServer(("127.0.0.1", 8077), H).serve_forever()
E
for n in 1 2; do python3 app.py 2>> log & P=$!; for i in $(seq 30); do (exec 3<>/dev/tcp/127.0.0.1/8077) 2>/dev/null && break; sleep 0.1; done; for i in $(seq 20); do curl -s -X PUT -d v$i http://127.0.0.1:8077/k$i; done; curl -s http://127.0.0.1:8077/k7; curl -s -T app.py http://127.0.0.1:8077/up; kill $P; wait $P 2>/dev/null; done
printf 'machine localhost login a password b\\n' > .netrc; chmod 600 .netrc; curl -sn -m 1 http://127.0.0.1:8078/ ; wc -l < log; sqlite3 app.db 'select count(*) from t' 2>/dev/null; exit 0
"""),
    "offline-setup": (SH, """
export HOME=$PWD; pip3 install --retries 0 --timeout 2 requests 2>&1 | tail -1; timeout 5 npm view left-pad 2>&1 | tail -1; timeout 4 git clone -q https://github.com/a/b 2>&1 | tail -1; curl -sS -m 2 https://example.com 2>&1 | tail -1; timeout 2 bash -c '</dev/tcp/1.1.1.1/443' 2>&1 | tail -1; ping -c 1 -W 1 8.8.8.8 2>&1 | tail -1; wget -q -T 1 -t 1 http://example.com/x 2>&1; apt-get update 2>&1 | tail -1
python3 -c 'import urllib.request, socket
for u in ("http://169.254.169.254/latest/meta-data/", "http://example.com/"):
    try: urllib.request.urlopen(u, timeout=1)
    except OSError as e: print(type(e).__name__)'; cat /etc/os-release | head -1; nproc; free -m | head -2 | tail -1; df -h . | tail -1; python3 --version; which gcc node go 2>/dev/null | wc -l; id -un; uname -sr; ls -la | wc -l; env | wc -l; exit 0
"""),
    "training": (PY, """
import json, multiprocessing, os, random, signal, sys, time
try: import numpy as np
except ImportError: np = None
r = random.Random(int(sys.argv[1])); os.mkdir("ckpt")
def part(seed):
    q = random.Random(seed); return [(q.random(), q.random()) for _ in range(4000)]
def save(n, w):
    t = f"ckpt/.{n}.tmp"
    with open(t, "w") as f: json.dump(w, f); f.flush(); os.fsync(f.fileno())
    os.replace(t, f"ckpt/step-{n:04}.json")
    for old in sorted(os.listdir("ckpt"))[:-3]: os.unlink("ckpt/" + old)
if __name__ == "__main__":
    stop = []; signal.signal(signal.SIGUSR1, lambda *a: stop.append(1))
    with multiprocessing.get_context("fork").Pool(3) as p: data = [x for l in p.map(part, range(6)) for x in l]
    w = [0.0, 0.0]
    for n in range(60):
        for a, b in r.sample(data, 500): e = w[0] * a + w[1] - (3 * a + 1 + 0.01 * b); w[0] -= 0.05 * e * a; w[1] -= 0.05 * e
        save(n, w)
        if n == 50: os.kill(os.getpid(), signal.SIGUSR1)
    print([round(x, 1) for x in w], bool(stop), sorted(os.listdir("ckpt")))
    if np is not None:
        x = np.random.default_rng(1).normal(size=(2000, 20)); u, s, v = np.linalg.svd(x, full_matrices=False); np.save("u.npy", u); print(np.load("u.npy", mmap_mode="r").shape, np.allclose(u * s @ v, x))
"""),
}
