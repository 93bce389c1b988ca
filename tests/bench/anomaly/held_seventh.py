# SPDX-License-Identifier: Apache-2.0
"""A seventh set of work: twenty kinds, drawn from public listings of what agents are asked to do, by someone who had not read the rules.
For `run --held-seventh`, as held_out.py. held_eighth.py has the other half of the same draw.

Listings, and how many entries each set has of them: the tasks of Terminal-Bench 2 (68 of them were at hand; 8 kinds), the Python
repositories of SWE-bench (20; 3), the repositories of DevBench (22; 2), AgentBench OS (`dev`, `5/new` and the first ten of `7/bootstrap`;
2 sessions of five tasks), InterCode-Bash (`nl2bash_fs_1` and `_4`; a session of ten), InterCode-SQL (the first 20 of Spider; a session of
five), DABench (the first 20 questions; a session of five), MLE-bench (`low`, 22; 1), MBPP (the first 28; a session of eight).
Draw: `r = random.Random(20261128)`, then `r.shuffle()` of each list in its published order, in the order above; entries 1, 3, 5... of a
list are this set's, 2, 4, 6... the eighth's. An entry that needs what Debian 12 does not package, no network, a picture of a machine or
more than half a minute is replaced by the next one of its half.

Drawn here: raman-fitting dna-assembly path-tracing financial-document-processor train-fasttext
custom-memory-heap-crash password-recovery fix-code-vulnerability | scikit-learn sphinx marshmallow | cpp/logistic_system java/Actor_relationship_game |
bootstrap 9, new 8, dev 18, bootstrap 8, dev 1; dev 13 23 10 7 12 | fs_1 31 41, fs_4 9, fs_1 11 33, fs_4 18, fs_1 0 15 49, fs_4 21 |
8 12 10 13 11 | 9 32 28 27 18 | tabular-playground-series-dec-2021 | 22 17 12 8 14 19 9 3.
Passed over: hf-model-inference install-windows-3.11 feal-linear-cryptanalysis tune-mjcf pytorch-model-cli rstan-to-pystan gpt2-codegolf
extract-moves-from-video cobol-modernization (its compiler needs /etc/gnucobol) build-pov-ray caffe-cifar-10; pvlib.

Debian: fasttext tesseract-ocr imagemagick poppler-utils valgrind gdb g++ make default-jdk-headless mariadb-server-core
mariadb-client-core python3-numpy python3-scipy python3-pandas python3-sklearn python3-sphinx python3-marshmallow python3-bottle python3-pil python3-pytest git bsdextrautils.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

WORK = {
    # Terminal-Bench
    "raman-fitting": (SH, r"""
mkdir -p app && cd app && python3 - "$1" <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); lor = lambda x, a, m, g, c: a * g * g / ((x - m) ** 2 + g * g) + c
with open("graphene.dat", "w") as f:
    x = 1400.0
    while x < 2900: f.write(f"{x:.6f}".replace(".", ",") + "\t" + f"{lor(x, 9000, 1580, 9, 50) + lor(x, 12000, 2670, 17, 20) + r.gauss(0, 60):.4f}".replace(".", ",") + "\n"); x += 1.3
X
ls -la; head -5 graphene.dat; wc -l graphene.dat; file graphene.dat; tr ',' '.' < graphene.dat > clean.dat
cat > fit.py <<'X'
import json, numpy as np
from scipy.optimize import curve_fit
d = np.loadtxt("clean.dat"); f = lambda x, x0, g, a, o: a * g ** 2 / ((x - x0) ** 2 + g ** 2) + o; out = {}
for name, lo, hi, x0 in (("G", 1500, 1700, 1580), ("2D", 2500, 2900, 2700)):
    m = (d[:, 0] > lo) & (d[:, 0] < hi); p, _ = curve_fit(f, d[m, 0], d[m, 1], p0=[x0, 10, d[m, 1].max(), d[m, 1].min()])
    out[name] = dict(zip(("x0", "gamma", "amplitude", "offset"), map(float, p)))
json.dump(out, open("results.json", "w"), indent=2)
X
python3 fit.py && cat results.json && python3 -c 'import json; r = json.load(open("results.json")); assert abs(r["G"]["x0"] - 1580) < 5 and abs(r["2D"]["x0"] - 2670) < 5'
"""),
    "dna-assembly": (SH, r"""
mkdir -p app && cd app && python3 - "$1" <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); seq = lambda n: "".join(r.choice("acgt") for _ in range(n))
parts = {n: seq(k) for n, k in (("input", 900), ("egfp", 717), ("flag", 66), ("snap", 540))}
parts["output"] = parts["input"][:300] + parts["flag"] + parts["egfp"] + parts["snap"] + parts["input"][300:]
open("sequences.fasta", "w").write("".join(f">{n}\n" + "\n".join(s[i:i + 60] for i in range(0, len(s), 60)) + "\n" for n, s in parts.items()))
X
grep '>' sequences.fasta; awk '/^>/{n=$1;next}{l[n]+=length($0)}END{for(n in l)print n,l[n]}' sequences.fasta
cat > design.py <<'X'
import itertools, math
s, n = {}, None
for line in open("sequences.fasta"):
    if line[0] == ">": n = line[1:].strip(); s[n] = ""
    else: s[n] += line.strip()
rc = lambda x: x[::-1].translate(str.maketrans("acgt", "tgca"))
H = {"aa": -7.9, "tt": -7.9, "at": -7.2, "ta": -7.2, "ca": -8.5, "tg": -8.5, "gt": -8.4, "ac": -8.4, "ct": -7.8, "ag": -7.8, "ga": -8.2, "tc": -8.2, "cg": -10.6, "gc": -9.8, "gg": -8.0, "cc": -8.0}
S = {"aa": -22.2, "tt": -22.2, "at": -20.4, "ta": -21.3, "ca": -22.7, "tg": -22.7, "gt": -22.4, "ac": -22.4, "ct": -21.0, "ag": -21.0, "ga": -22.2, "tc": -22.2, "cg": -27.2, "gc": -24.4, "gg": -19.9, "cc": -19.9}
def tm(x):
    h = sum(H[x[i:i + 2]] for i in range(len(x) - 1)) + 2.4; e = sum(S[x[i:i + 2]] for i in range(len(x) - 1)) + 1.3
    return 1000 * h / (e + 1.987 * math.log(500e-9 / 4)) - 273.15 + 16.6 * math.log10(0.05)
def anneal(x): return next((x[:k] for k in range(15, 46) if 58 <= tm(x[:k]) <= 72), x[:25])
with open("primers.fasta", "w") as f:
    for i, n in enumerate(("input", "flag", "egfp", "snap")):
        fw, rv = anneal(s[n]), anneal(rc(s[n])); over = ("aatg", "gcca", "ttac", "cgtt", "aatg")
        f.write(f">{n}_fwd\nggctac" + "ggtctca" + over[i] + fw + f"\n>{n}_rev\nggctac" + "ggtctca" + rc(over[i + 1]) + rv + "\n"); print(n, round(tm(fw), 1), round(tm(rv), 1))
X
python3 design.py; cat primers.fasta; for e in ggtctc gagacc; do grep -c $e primers.fasta; done; test $(grep -c '>' primers.fasta) = 8
"""),
    "path-tracing": (SH, r"""
mkdir -p app && cd app; cat > image.c <<'X'
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { double x, y, z; } V;
static V add(V a, V b) { return (V){a.x + b.x, a.y + b.y, a.z + b.z}; }
static V mul(V a, double k) { return (V){a.x * k, a.y * k, a.z * k}; }
static double dot(V a, V b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static V norm(V a) { return mul(a, 1 / sqrt(dot(a, a))); }
static int hit(V o, V d, V c, double r, double *t) { V q = add(o, mul(c, -1)); double b = dot(q, d), e = b * b - dot(q, q) + r * r; if (e < 0) return 0; *t = -b - sqrt(e); return *t > 1e-4; }
static V trace(V o, V d, int depth) {
    V c = {0, 0.3, 4}; double t, best = 1e9; V n, col; int k = 0;
    if (hit(o, d, c, 1, &t) && t < best) { best = t; n = norm(add(add(o, mul(d, t)), mul(c, -1))); col = (V){0.9, 0.4, 0.3}; k = 1; }
    if (d.y < -1e-6 && (t = (-1 - o.y) / d.y) < best && t > 1e-4) { best = t; n = (V){0, 1, 0}; V p = add(o, mul(d, t)); double w = ((int)floor(p.x) + (int)floor(p.z)) & 1 ? 0.8 : 0.2; col = (V){w, w, w}; k = 1; }
    if (!k || depth > 3) { double s = 0.5 * (d.y + 1); return (V){1 - 0.5 * s, 1 - 0.3 * s, 1}; }
    V u; do u = (V){drand48() * 2 - 1, drand48() * 2 - 1, drand48() * 2 - 1}; while (dot(u, u) > 1);
    V l = trace(add(o, mul(d, best)), norm(add(n, u)), depth + 1); return (V){l.x * col.x, l.y * col.y, l.z * col.z};
}
int main(int argc, char **argv) {
    int w = argc > 1 ? atoi(argv[1]) : 120, h = w * 3 / 4, s = 24; FILE *f = fopen("reconstructed.ppm", "wb"); if (!f) return 1; fprintf(f, "P6\n%d %d\n255\n", w, h);
    for (int y = 0; y < h; y++) for (int x = 0; x < w; x++) { V c = {0, 0, 0}; for (int i = 0; i < s; i++) c = add(c, trace((V){0, 0, 0}, norm((V){(x + drand48()) / w - .5, (.5 - (y + drand48()) / h) * .75, 1}), 0));
        fputc(255 * sqrt(c.x / s), f); fputc(255 * sqrt(c.y / s), f); fputc(255 * sqrt(c.z / s), f); }
    return fclose(f);
}
X
gcc -static -O2 -Wall -o image image.c -lm && for w in 32 $((100 + $1 * 4)); do time ./image $w; done 2>&1 | grep real; gzip -k image.c; ls -l image.c.gz; xxd reconstructed.ppm | head -3; convert reconstructed.ppm out.png
cp reconstructed.ppm image.ppm; gcc -static -O2 -ffast-math -o image2 image.c -lm && ./image2 $((100 + $1 * 4)); python3 -c '
a, b = (open(n, "rb").read()[-30000:] for n in ("image.ppm", "reconstructed.ppm")); import math
dot = sum(x * y for x, y in zip(a, b)); print(dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b)))'
mkdir jail && cp image2 jail && (cd jail && ./image2 16 && ls -l)
"""),
    "financial-document-processor": (SH, r"""
mkdir -p app/documents && cd app; for i in $(seq $((6 + $1 % 4))); do
if [ $((i % 3)) = 0 ]; then T="Dear customer\nthank you for your order\nKind regards"; else T="INVOICE $((1000 + i))\nNet 1$i0.00\nVAT 2$i.50\nTotal 1$((20 + i)).50"; fi
convert -size 420x220 xc:white -font DejaVu-Sans -pointsize 26 -annotate +20+50 "$(printf "$T")" -density 100 documents/doc$i.$([ $((i % 2)) = 0 ] && echo jpg || echo png) 2>/dev/null; done
printf '%s\n' 'INVOICE 77' 'VAT 10.00' 'Total 60.00' > documents/note.txt; python3 -c 'from PIL import Image; Image.open("documents/doc1.png").convert("RGB").save("documents/scan.pdf", resolution=100)'; pdftotext documents/scan.pdf - | wc
ls -l documents; which tesseract pdftotext; mkdir -p invoices other; cat > process.py <<'X'
import csv, pathlib, re, shutil, subprocess
rows = []
for p in sorted(pathlib.Path("documents").iterdir()):
    if p.suffix == ".pdf":
        subprocess.run(["pdftoppm", "-r", "100", "-png", p, "/tmp/" + p.stem], check=True); text = "".join(subprocess.run(["tesseract", q, "-"], capture_output=True, text=True).stdout for q in pathlib.Path("/tmp").glob(p.stem + "*.png"))
    elif p.suffix == ".txt": text = p.read_text()
    else: text = subprocess.run(["tesseract", p, "stdout"], capture_output=True, text=True).stdout
    if re.search("invoice", text, re.I):
        total, vat = (re.search(w + r"\D*([\d.]+)", text) for w in ("Total", "VAT")); rows.append([p.name, total and total[1], vat and vat[1]]); shutil.move(p, "invoices")
    else: shutil.move(p, "other")
with open("invoices/summary.csv", "w", newline="") as f:
    w = csv.writer(f); w.writerow(["filename", "total_amount", "vat_amount"]); w.writerows(rows); w.writerow(["total", round(sum(float(r[1] or 0) for r in rows), 2), round(sum(float(r[2] or 0) for r in rows), 2)])
X
python3 process.py; cat invoices/summary.csv; ls documents invoices other; rm -f /tmp/scan*.png; test -z "$(ls documents)"
"""),
    "train-fasttext": (SH, r"""
mkdir -p app && cd app && python3 - "$1" <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); words = [f"w{i}" for i in range(3000)]
for name, n in (("train", 6000), ("test", 800)):
    with open(name + ".txt", "w") as f:
        for _ in range(n): k = r.randrange(5); f.write(f"__label__{k + 1} " + " ".join(r.choice(words[k * 500:k * 500 + 700]) for _ in range(30)) + "\n")
X
head -2 train.txt | cut -c1-80; cut -d' ' -f1 train.txt | sort | uniq -c; nproc; free -m | head -2; fasttext 2>&1 | head -3
nice -n 5 fasttext supervised -input train.txt -output model -dim 20 -epoch 4 -bucket 20000 -wordNgrams 1 -thread 2 2>&1 | tail -1; ls -lh model.*; fasttext test model.bin test.txt
for lr in 0.3 0.8; do fasttext supervised -input train.txt -output m$lr -dim 10 -epoch 3 -lr $lr -bucket 20000 -thread 1 >/dev/null 2>&1; fasttext test m$lr.bin test.txt | sed -n 2p; done
fasttext quantize -input train.txt -output model -cutoff 2000 -retrain >/dev/null 2>&1; ls -l model.ftz; test $(stat -c %s model.ftz) -lt 150000000; head -5 test.txt | fasttext predict-prob model.ftz - 2
"""),
    "custom-memory-heap-crash": (SH, r"""
mkdir -p app && cd app; cat > main.cpp <<'X'
#include <iostream>
#include <memory>
#include <string>
#include <vector>
struct Heap { char *base; size_t used = 0; explicit Heap(size_t n) : base(new char[n]) {} ~Heap() { delete[] base; base = nullptr; } void *get(size_t n) { void *p = base + used; used += (n + 15) & ~size_t(15); return p; } };
static Heap *g_heap; static bool g_on;
void *operator new(size_t n) { if (g_on && g_heap) return g_heap->get(n); return malloc(n); }
void operator delete(void *p) noexcept { if (g_heap && p >= g_heap->base && p < g_heap->base + (1 << 20)) return; free(p); }
void operator delete(void *p, size_t) noexcept { operator delete(p); }
void user_init(); void user_cleanup();
std::vector<std::string> *g_names;
int main() { user_init(); { Heap h(1 << 20); g_heap = &h; g_on = true; g_names = new std::vector<std::string>; for (int i = 0; i < 200; i++) g_names->push_back("a name that is long enough " + std::to_string(i)); g_on = false;
#ifndef NDEBUG
    delete g_names; g_names = nullptr;
#endif
    g_heap = nullptr; } user_cleanup(); std::cout << "done\n"; if (g_names) { delete g_names; } }
X
printf 'void user_init() {}\nvoid user_cleanup() {}\n' > user.cpp
g++ -g -O0 -o debug main.cpp user.cpp && ./debug; g++ -g -O2 -DNDEBUG -Wno-mismatched-new-delete -o release main.cpp user.cpp 2>/dev/null; (ulimit -c 0; ./release); echo "exit $?"
gdb -batch -nx -ex run -ex bt ./release 2>&1 | tail -8; valgrind -q --error-exitcode=9 ./release 2>&1 | head -12
printf '#include <string>\n#include <vector>\nextern std::vector<std::string> *g_names;\nvoid user_init() {}\nvoid user_cleanup() { g_names = nullptr; }\n' > user.cpp
g++ -g -O2 -DNDEBUG -Wno-mismatched-new-delete -o release main.cpp user.cpp 2>/dev/null && ./release && valgrind --leak-check=full ./release 2>&1 | tail -6; for i in $(seq $((3 + $1 % 3))); do ./release || exit 1; done
g++ -g -fsanitize=undefined -o san main.cpp user.cpp && ./san; nm -C release | grep -c operator
"""),
    "password-recovery": (SH, r"""
mkdir -p app/varsea && cd app/varsea; python3 - "$1" <<'X'
import io, random, sys, zipfile
r = random.Random(int(sys.argv[1])); z = io.BytesIO(); pw = "8XD" + "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(17)) + "W54"
with zipfile.ZipFile(z, "w") as f: f.writestr("launchcode.txt", "PASSWORD=" + pw)
raw = bytearray(r.randbytes(8 << 20)); raw[5 << 20:(5 << 20) + len(z.getvalue())] = z.getvalue(); open("disk.dat", "wb").write(raw); open("/tmp/answer", "w").write(pw)
X
ls -la . ..; file *; find / -xdev -name 'launchcode*' 2>/dev/null | head; df -h . | tail -1; strings -n 8 disk.dat | grep -n 'PASSWORD' ; strings -t d disk.dat | grep -m3 launchcode
grep -abo 'PK' disk.dat | head -20; off=$(grep -abo $'PK\x03\x04' disk.dat | tail -1 | cut -d: -f1); dd if=disk.dat of=carved.zip bs=1 skip=$off count=4096 status=none; unzip -l carved.zip 2>&1 | tail -3; xxd carved.zip | head -4
python3 - <<'X'
import re
d = open("disk.dat", "rb").read(); found = {m.decode() for m in re.findall(rb"8XD[A-Z0-9]{17}W54", d)}; print(found); open("../recovered_passwords.txt", "w").write("\n".join(found) + "\n")
X
diff ../recovered_passwords.txt /tmp/answer >/dev/null || diff <(tr -d '\n' < ../recovered_passwords.txt) /tmp/answer
"""),
    "fix-code-vulnerability": (SH, r"""
mkdir -p app/test && cd app; cp /usr/lib/python3/dist-packages/bottle.py .; python3 - <<'X'
import re
s = open("bottle.py").read(); s = re.sub(r"    if '\\n' in (key|value) or '\\r' in \1 or '\\0' in \1:\n        raise [^\n]*\n", "", s); open("bottle.py", "w").write(s)
X
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; git init -q; git add -A; git commit -qm base; wc -l bottle.py; grep -nE 'eval\(|exec\(|pickle|subprocess|os\.system|md5|random\.' bottle.py | head -30; grep -n "def _h" -A 4 bottle.py
cat > test/test_headers.py <<'X'
import bottle, pytest, threading, urllib.request, wsgiref.simple_server
@pytest.mark.parametrize("bad", ["x\r\nSet-Cookie: a=b", "x\ny", "x\ry", "x\0y"])
def test_injection(bad):
    with pytest.raises(ValueError): bottle.HTTPResponse("").set_header("X", bad)
    with pytest.raises(ValueError): bottle.HTTPResponse("").set_header(bad, "X")
@pytest.mark.parametrize("path", ["/", "/a/b", "/hello/world", "/%20"])
def test_route(path):
    app = bottle.Bottle(); app.route("/<p:path>", callback=lambda p: p); app.route("/", callback=lambda: "root"); out = []
    body = b"".join(app({"PATH_INFO": path, "REQUEST_METHOD": "GET", "SERVER_NAME": "x", "SERVER_PORT": "1", "wsgi.url_scheme": "http"}, lambda st, h, e=None: out.append(st))); assert out[0].startswith("200")
def test_server():
    app = bottle.Bottle(); app.route("/", callback=lambda: {"ok": 1}); s = wsgiref.simple_server.make_server("127.0.0.1", 0, app); t = threading.Thread(target=s.serve_forever); t.start()
    try: assert urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/").read() == b'{"ok": 1}'
    finally: s.shutdown(); t.join(); s.server_close()
def test_template(): assert bottle.template("Hi {{n}}", n="<b>") == "Hi &lt;b&gt;"
X
export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1; python3 -m pytest -q -rf -p no:cacheprovider test 2>&1 | tail -7; python3 - <<'X'
s = open("bottle.py").read(); check = "    if '\\n' in {0} or '\\r' in {0} or '\\0' in {0}:\n        raise ValueError('Header names must not contain control characters: %r' % {0})\n"
for f, v in (("_hkey", "key"), ("_hval", "value")):
    head = f"def {f}({v}):\n"; k = s.index(head) + len(head); at = s.index("    return", k); s = s[:at] + check.format(v) + s[at:]
open("bottle.py", "w").write(s)
X
git diff; printf '{"file_path": "/app/bottle.py", "cwe_id": ["cwe-93"]}\n' > report.jsonl; python3 -c 'import json; print([json.loads(l) for l in open("report.jsonl")])'; for i in $(seq $((1 + $1 % 3))); do python3 -m pytest -q -p no:cacheprovider test || exit 1; done
"""),
    # SWE-bench
    "swe-scikit-learn": (SH, r"""
mkdir -p testbed && cd testbed; P=/usr/lib/python3/dist-packages/sklearn; cp -r $P/linear_model/_ridge.py $P/linear_model/_base.py $P/metrics/_regression.py .
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; git init -q . && echo __pycache__ > .gitignore && git add -A && git commit -qm base; grep -rn "def fit" --include=*.py . | wc -l; grep -n "store_cv_values" -r . | head -5
cat > reproduce.py <<'X'
import sys, numpy as np
from sklearn import linear_model as lm
r = np.random.RandomState(int(sys.argv[1])); x = r.randn(100, 5); y = r.randint(0, 2, size=100)
print(lm.RidgeClassifierCV(alphas=np.arange(0.1, 100, 5), store_cv_values=True).fit(x, y).cv_values_.shape)
X
python3 reproduce.py $1; sed -i 's/store_cv_values=False/store_cv_values=False  # see the issue/' _ridge.py; git diff --stat; sed -n '/^class RidgeClassifierCV/,/Parameters/p' _ridge.py | head -20
cat > test_ridge.py <<'X'
import numpy as np, pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import Lasso, Ridge, RidgeClassifierCV, RidgeCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
@pytest.mark.parametrize("solver", ["svd", "cholesky", "lsqr", "sag", "saga", "sparse_cg"])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_ridge(solver, alpha): x, y = make_regression(80, 6, random_state=0); assert Ridge(alpha=alpha, solver=solver).fit(x, y).score(x, y) > 0.9
def test_cv(): x, y = make_classification(random_state=1); assert RidgeClassifierCV(store_cv_values=True).fit(x, y).cv_values_.ndim == 3
def test_grid(): x, y = make_regression(60, 4, random_state=2); assert GridSearchCV(make_pipeline(StandardScaler(), Lasso()), {"lasso__alpha": [0.1, 1]}, cv=3, n_jobs=2).fit(x, y).best_score_ > 0.5
def test_parallel(): x, y = make_regression(60, 4, random_state=3); assert len(cross_val_score(RidgeCV(), x, y, cv=4, n_jobs=2)) == 4
X
python3 -m pytest -rA -q -p no:cacheprovider test_ridge.py 2>&1 | tail -5; git add -A; git diff --cached > /tmp/patch.diff; git stash -q; git apply --check /tmp/patch.diff && git apply /tmp/patch.diff; python3 -m pytest -q test_ridge.py
"""),
    "swe-sphinx": (SH, r"""
mkdir -p testbed && cd testbed; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; sphinx-quickstart -q --sep -p demo -a me -v 1 --ext-autodoc --no-batchfile --makefile . >/dev/null; git init -q; git add -A; git commit -qm init
mkdir pkg; for i in $(seq $((4 + $1 % 4))); do printf '\"\"\"Module %s.\"\"\"\nfrom typing import Optional\n\n\ndef f%s(a: int, b: Optional[str] = None) -> int:\n    \"\"\"Does it.\n\n    :param a: a number\n    :param b: a name\n    \"\"\"\n    return a\n\n\nclass C%s:\n    \"\"\"A class.\"\"\"\n\n    #: a value\n    x = %s\n' $i $i $i $i > pkg/m$i.py; done; touch pkg/__init__.py
sed -i '1i import os, sys\nsys.path.insert(0, os.path.abspath(".."))' source/conf.py; sphinx-apidoc -q -o source pkg; sed -i 's/:caption: Contents:/&\n\n   modules/' source/index.rst
make -s html 2>&1 | tail -3; make -s text >/dev/null 2>&1; sphinx-build -q -b man source build/man; find build -type f | wc -l
cat > source/ext_note.py <<'X'
from docutils import nodes
from docutils.parsers.rst import Directive
class Hello(Directive):
    has_content = True
    def run(self): return [nodes.paragraph(text="Hello " + " ".join(self.content))]
def setup(app): app.add_directive("hello", Hello); return {"parallel_read_safe": True}
X
sed -i "s/^extensions = \[/&'ext_note', /; 2a sys.path.insert(0, os.path.abspath('.'))" source/conf.py; printf '\n.. hello::\n\n   world\n' >> source/index.rst; sphinx-build -q -j 2 -E -b html source build/html && grep -c 'Hello world' build/html/index.html
printf 'pytest_plugins = "sphinx.testing.fixtures"\n' > conftest.py; cat > test_ext.py <<'X'
from io import StringIO
from sphinx.application import Sphinx
def test_html(tmp_path): a = Sphinx("source", "source", str(tmp_path), str(tmp_path / "d"), "html", status=StringIO()); a.build(); assert "Hello world" in (tmp_path / "index.html").read_text()
def test_xml(tmp_path): a = Sphinx("source", "source", str(tmp_path), str(tmp_path / "d"), "xml", status=StringIO()); a.build(); assert (tmp_path / "index.xml").exists()
X
python3 -m pytest -rA -q test_ext.py 2>&1 | tail -4; git diff | wc -l; git status --short | head -5; make -s clean; test ! -e build/html
"""),
    "swe-marshmallow": (SH, r"""
mkdir -p testbed/src testbed/tests && cd testbed; cp -r /usr/lib/python3/dist-packages/marshmallow src/; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c PYTHONPATH=src; git init -q; git add -A; git commit -qm base
find . -name '*.py' | head -20; grep -n "class TimeDelta" -A 30 src/marshmallow/fields.py | head -40; cat > repro.py <<'X'
from datetime import timedelta
from marshmallow.fields import TimeDelta
td = TimeDelta(precision="milliseconds"); o = type("O", (), {"td": timedelta(milliseconds=345)})(); print(td.serialize("td", o))
X
python3 repro.py; sed -i 's|            return value.total_seconds() / base_unit.total_seconds()|            return round(value.total_seconds() / base_unit.total_seconds(), 6)|' src/marshmallow/fields.py; git diff --stat
python3 repro.py; python3 - "$1" > tests/test_fields.py <<'X'
import sys
print("import datetime as dt, pytest\nfrom marshmallow import Schema, ValidationError, fields, validate, post_load\nclass S(Schema):\n    i = fields.Integer(required=True, validate=validate.Range(0, 99))\n    s = fields.String(validate=validate.Length(max=9))\n    d = fields.DateTime()\n    u = fields.UUID()\n    e = fields.Email()\n    n = fields.List(fields.Nested(lambda: S(only=('i',))))\n")
for k in range(12 + int(sys.argv[1]) % 5): print(f"def test_load_{k}():\n    assert S().load({{'i': {k}, 'n': [{{'i': {k}}}]}})['n'][0]['i'] == {k}\n\ndef test_bad_{k}():\n    with pytest.raises(ValidationError): S().load({{'i': {k + 100}, 'e': 'x{k}'}})\n")
print("@pytest.mark.parametrize('ms', range(0, 1000, 25))\ndef test_td(ms):\n    f = fields.TimeDelta(precision='milliseconds'); assert abs(f.serialize('t', {'t': dt.timedelta(milliseconds=ms)}) - ms) <= 1\n")
X
python3 -m pytest -rA -q -p no:cacheprovider tests 2>&1 | tail -4; git add -A; git diff --cached --stat | tail -2; find . -name __pycache__ -prune -exec rm -rf {} +; python3 -W error -c 'import marshmallow; print(marshmallow.__file__)'
"""),
    # DevBench
    "dev-logistic-system": (SH, r"""
mkdir -p repo/src repo/test && cd repo; cat > src/cargo.h <<'X'
#pragma once
#include <map>
#include <string>
#include <vector>
struct Cargo { int id; double weight; std::string to; };
class Center { std::map<int, Cargo> stock; std::map<std::string, double> fee; public: bool add(const Cargo &c); bool remove(int id); double cost(int id) const; std::vector<Cargo> heavy(double w) const; void route(const std::string &to, double f); void save(const std::string &p) const; bool load(const std::string &p); size_t size() const; };
X
cat > src/cargo.cpp <<'X'
#include "cargo.h"
#include <fstream>
bool Center::add(const Cargo &c) { return stock.emplace(c.id, c).second; }
bool Center::remove(int id) { return stock.erase(id) == 1; }
double Center::cost(int id) const { auto c = stock.at(id); auto f = fee.find(c.to); return c.weight * (f == fee.end() ? 1 : f->second); }
std::vector<Cargo> Center::heavy(double w) const { std::vector<Cargo> r; for (auto &p : stock) if (p.second.weight > w) r.push_back(p.second); return r; }
void Center::route(const std::string &to, double f) { fee[to] = f; }
void Center::save(const std::string &p) const { std::ofstream o(p); for (auto &c : stock) o << c.second.id << ' ' << c.second.weight << ' ' << c.second.to << '\n'; }
bool Center::load(const std::string &p) { std::ifstream i(p); if (!i) return false; Cargo c; while (i >> c.id >> c.weight >> c.to) add(c); return true; }
size_t Center::size() const { return stock.size(); }
X
printf '#include "cargo.h"\n#include <iostream>\nint main(int argc, char **argv) { Center c; if (argc > 1) c.load(argv[1]); std::string op; while (std::cin >> op) { if (op == "add") { Cargo k; std::cin >> k.id >> k.weight >> k.to; std::cout << c.add(k) << "\\n"; } else if (op == "cost") { int i; std::cin >> i; std::cout << c.cost(i) << "\\n"; } else if (op == "save") { std::string p; std::cin >> p; c.save(p); } else std::cerr << "unknown " << op << "\\n"; } }\n' > src/main.cpp
printf '#include "../src/cargo.h"\n#include <cassert>\n#include <cstdio>\nint main() { Center c; for (int i = 0; i < 50; i++) assert(c.add({i, i * 1.5, "x"})); assert(!c.add({1, 1, "y"})); c.route("x", 2); assert(c.cost(4) == 12); assert(c.heavy(60).size() == 9); c.save("t.db"); Center d; assert(d.load("t.db") && d.size() == 50); std::remove("t.db"); puts("ok"); }\n' > test/unit.cpp
printf 'CXXFLAGS = -std=c++17 -O1 -g -Wall -MMD\nall: logistic unit\nlogistic: src/main.o src/cargo.o\n\t$(CXX) -o $@ $^\nunit: test/unit.o src/cargo.o\n\t$(CXX) -o $@ $^\ntest: all\n\t./unit\nclean:\n\trm -f logistic unit src/*.o test/*.o src/*.d test/*.d\n-include src/*.d\n' > Makefile
make -j2 2>&1 | tail -2; make -s test; for i in $(seq $((20 + $1))); do echo "add $i $i.5 city$((i % 4))"; done > in; echo 'save out.db' >> in; ./logistic < in | sort | uniq -c; wc -l out.db; echo 'cost 7' | ./logistic out.db
touch src/cargo.h; make -s 2>&1 | tail -1; CXXFLAGS='-std=c++17 --coverage -O0' make -s -B unit && ./unit && gcov -n src/cargo.gcda 2>/dev/null | head -3; make -s clean; ls
"""),
    "dev-actor-relationship-game": (SH, r"""
mkdir -p repo/src/main/java repo/src/test/java && cd repo; cat > src/main/java/ActorGraph.java <<'X'
import java.io.*; import java.nio.file.*; import java.util.*;
public class ActorGraph implements Serializable {
    final Map<String, Set<String>> movies = new TreeMap<>(), actors = new TreeMap<>();
    void add(String a, String m) { movies.computeIfAbsent(a, k -> new TreeSet<>()).add(m); actors.computeIfAbsent(m, k -> new TreeSet<>()).add(a); }
    List<String> path(String from, String to) {
        Map<String, String> prev = new HashMap<>(); Deque<String> q = new ArrayDeque<>(List.of(from)); prev.put(from, "");
        while (!q.isEmpty()) { String a = q.poll(); if (a.equals(to)) { LinkedList<String> r = new LinkedList<>(); for (String x = to; !x.isEmpty(); x = prev.get(x)) r.addFirst(x); return r; }
            for (String m : movies.getOrDefault(a, Set.of())) for (String b : actors.get(m)) if (prev.putIfAbsent(b, a) == null) q.add(b); }
        return List.of(); }
    public static void main(String[] v) throws Exception {
        ActorGraph g = new ActorGraph(); for (String l : Files.readAllLines(Path.of(v[0]))) { String[] f = l.split(","); g.add(f[0], f[1]); }
        try (var o = new ObjectOutputStream(new FileOutputStream("graph.bin"))) { o.writeObject(g); }
        try (var i = new ObjectInputStream(new FileInputStream("graph.bin"))) { g = (ActorGraph) i.readObject(); }
        Files.write(Path.of("actors.txt"), g.movies.keySet()); System.out.println(g.path(v[1], v[2])); } }
X
cat > src/test/java/GraphTest.java <<'X'
public class GraphTest { public static void main(String[] v) { ActorGraph g = new ActorGraph(); g.add("a", "m"); g.add("b", "m"); g.add("b", "n"); g.add("c", "n"); if (g.path("a", "c").size() != 3 || !g.path("a", "z").isEmpty()) throw new AssertionError(); System.out.println("passed"); } }
X
python3 -c "import random, sys; r = random.Random(int(sys.argv[1])); [print(f'actor{r.randrange(150)},movie{r.randrange(90)}') for _ in range(500)]" $1 | sed '1i actor0,movie0\nactor1,movie1' > data.csv
mkdir -p build/classes; javac -d build/classes src/main/java/*.java src/test/java/*.java && java -cp build/classes GraphTest; time java -Xmx128m -cp build/classes ActorGraph data.csv actor0 actor1; printf 'Main-Class: ActorGraph\n' > m.txt; jar cfm game.jar m.txt -C build/classes .; java -jar game.jar data.csv actor0 actor2; jar tf game.jar; wc -l actors.txt; ls -l graph.bin
"""),
    # AgentBench OS
    "os-session-a": (SH, r"""
mkdir -p experiment && cd experiment; printf 'Ubuntu\nDebian\nArch\n\n' > distros.txt; printf 'John,Doe,30\nJane,Doe,28\n\n' > sample.csv; printf '2022-01-01 14:34:21 [INFO] Server Started.\n\n' > server.log
for e in txt csv log; do find . -iname "*.$e" -exec cat {} + | grep -cv '^[[:space:]]*$'; done | paste -sd' '; cd; time find /usr -type d 2>/dev/null | wc -l
useradd -m -s /bin/bash -G root user1 2>&1; sudo useradd user1 2>&1 | head -1; getent passwd | wc -l; cut -d: -f1 /etc/passwd | sort | head -3
export TARGET_DIR=$HOME/TA_problem; mkdir -p $TARGET_DIR/dir1/dir2 $TARGET_DIR/dir3; for i in $(seq $((5 + $1))); do touch $TARGET_DIR/dir1/file$i.txt $TARGET_DIR/dir1/dir2/f$i; done; find $TARGET_DIR -type f -o -type d | wc -l
mkdir -p r1 r2; touch a.log b.log loga log.jsonl; python3 -c 'import time
for i in range(40):
    with open("log", "a+") as f: f.write("succeed")
    time.sleep(0.3)' & P=$!; sleep 1; ls -lat . | head -5; find . -maxdepth 2 -type f -newermt '-2 seconds' 2>/dev/null; ls -l log; sleep 1; ls -l log; ps aux | grep python | head -3; ls -l /proc/$P/fd; lsof -p $P 2>/dev/null | tail -2; kill $P; wait $P; echo 'answer: log'
"""),
    "os-session-b": (SH, r"""
nproc; lscpu | head -8; grep -c ^processor /proc/cpuinfo; cat /proc/sys/kernel/threads-max; ulimit -u; sysctl kernel.threads-max 2>&1; cat /proc/sys/kernel/pid_max; ls -l / | grep '^d' | grep -v '^d.*\.' | wc -l; ls -ld /*/ | wc -l
cd /root 2>&1; cd; mkdir root; cd root; for f in tmp .tmp2 .tm12p f .u .k $(seq -f 'x%g' $1) 9z; do echo abcd > $f; done; ls -1 | grep -c '^[[:alpha:]]'; ls -A | wc -l; mkdir -p home/tmpdir; echo x > home/OSbench; touch -d '3 days ago' home/old; touch home/tmpdir/inner; find home -type f -mtime -1 | wc -l; find /home -type f -mtime -1 2>/dev/null | wc -l; stat home/old | sed -n 5,8p; uptime; who; last 2>&1 | head -2; history | wc -l
"""),
    # InterCode
    "bash-session": (SH, r"""
mkdir -p testbed/dir1/subdir1 testbed/dir2/subdir2 testbed/dir3/subdir1/subsubdir1/tmp; cd testbed; for i in $(seq $((15 + $1))); do echo "public class A$((i % 7)) { }" > dir1/a$i.java; cp dir1/a$i.java j$i.java; printf '<?php\n\necho "hello world %s";\n---\n?>\n' $i > dir1/subdir1/p$i.php; echo "data $i" > dir2/FooBar$i.txt; seq $((i * 100)) > dir2/subdir2/old$i.dat; touch -d "$((i % 14)) days ago" dir2/subdir2/old$i.dat; : > dir3/e$i; done
find . -type f | sed -e 's/.*\.//' | sed -e 's/.*\///' | sort | uniq -c | sort -rn; find . -name '*.php' | xargs cat | awk '/[a-zA-Z0-9]/ {i++} END{print i}'; bind -P 2>/dev/null | head -3; find . -type f -mtime +7 | tee compressedP.list | xargs -I{} -P10 gzip {}; ls dir2/subdir2 | grep -c gz
find . -type f -exec ls -l {} \; | wc -l; who | cut -d' ' -f1 | sort | uniq; md5sum *.java | awk '{print $1}' | sort | uniq -d; find dir2 -name '*FooBar*' -print0 | xargs -0 -I{} cp -R {} dir3/subdir1/subsubdir1/tmp; ls dir3/subdir1/subsubdir1/tmp | wc -l; find . -not -empty -type f -exec ls -s {} \; | sort -n | head -5; cal -h 2>/dev/null | cut -c 4-17 | tail -n +3 | wc -w; ncal -h 2>/dev/null | head -2; git init -q . 2>/dev/null; git status --short | wc -l
"""),
    "sql-session": (SH, r"""
mkdir -p db; D=$PWD/db; mariadb-install-db --no-defaults --datadir=$D/data --auth-root-authentication-method=normal --skip-test-db --innodb-log-file-size=4M --innodb-data-file-path=ibdata1:4M:autoextend >$D/install.log 2>&1 || tail -5 $D/install.log
/usr/sbin/mariadbd --no-defaults --datadir=$D/data --socket=$D/s.sock --port=3307 --bind-address=127.0.0.1 --innodb-log-file-size=4M --innodb-buffer-pool-size=8M --innodb-data-file-path=ibdata1:4M:autoextend --pid-file=$D/pid >$D/log 2>&1 & P=$!
for i in $(seq 60); do mariadb --no-defaults -S $D/s.sock -u root -e 'select 1' >/dev/null 2>&1 && break; sleep 0.3; done; Q="mariadb --no-defaults -S $D/s.sock -u root -t"
python3 - "$1" > init.sql <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); p = print
p("create database spider; use spider; create table Paragraphs(Paragraph_ID int primary key, Document_ID int, Paragraph_Text text); create table orchestra(Orchestra_ID int primary key, Orchestra text, Record_Company text, Year_of_Founded int, Major_Record_Format varchar(20)); create table Cartoon(id int primary key, Title varchar(60), Directed_by varchar(40)); create table country(Code char(3) primary key, Name varchar(40), Continent varchar(20), Population int, GNP float); create table continents(ContId int primary key, Continent varchar(20)); create table countries(CountryId int primary key, CountryName varchar(40), Continent int); create table car_makers(Id int primary key, Maker varchar(20), Country int);")
for i in range(40): p(f"insert into Paragraphs values({i}, {r.randrange(9)}, 'text {i}'); insert into orchestra values({i}, 'o{i}', 'c{i % 4}', {1900 + i}, '{r.choice(('CD', 'DVD', 'LP'))}'); insert into Cartoon values({i}, 'The {r.randrange(999)}', 'd{i % 5}'); insert into country values('C{i:02}', 'n{i}', '{r.choice(('Asia', 'Europe'))}', {r.randrange(10 ** 6)}, {r.random() * 1000}); insert into countries values({i}, 'land{i}', {i % 5 + 1}); insert into car_makers values({i}, 'm{i}', {r.randrange(12)});")
for i, c in enumerate(("america", "europe", "asia", "africa", "australia")): p(f"insert into continents values({i + 1}, '{c}');")
X
$Q < init.sql; $Q spider -e 'show tables; describe orchestra'; $Q spider -e 'select count(*) from Paragraphs'; $Q spider -e 'select Major_Record_Format from orchestra group by Major_Record_Format order by count(*) asc'; $Q spider -e 'select Title from Cartoon order by title' | head -6; $Q spider -e 'select sum(Population), max(GNP) from country where Continent = "Asia"'
$Q spider -e 'select nothing from nowhere' 2>&1; $Q spider -e "select t1.CountryName from countries t1 join continents t2 on t1.Continent = t2.ContId join car_makers t3 on t1.CountryId = t3.Country where t2.Continent = 'europe' group by t1.CountryName having count(*) >= 3"; mariadb --no-defaults -h 127.0.0.1 -P 3307 -u root spider -e 'select version()' | tail -1; $Q -e shutdown; wait $P
"""),
    # DABench
    "da-session": (SH, r"""
mkdir -p data && python3 - "$1" <<'X'
import numpy as np, pandas as pd, sys
r = np.random.default_rng(int(sys.argv[1])); n = 1300
pd.DataFrame({"Date": pd.date_range("2014-01-01", periods=n).strftime("%d-%b-%Y"), "High Price": 500 + r.normal(0, 30, n), "Low Price": 480 + r.normal(0, 30, n), "Close Price": 490 + r.normal(0, 30, n), "Total Traded Quantity": r.lognormal(12, 1, n).astype(int)}).to_csv("data/GODREJIND.csv", index=False)
pd.DataFrame({"row m/z": r.uniform(100, 900, 300), "row retention time": r.uniform(0, 20, 300), "importance.score": np.where(r.random(300) < .1, np.nan, r.exponential(1, 300))}).to_csv("data/imp.score.ldlr.metabolome.csv", index=False)
pd.DataFrame({"age": np.where(r.random(n) < .03, np.nan, r.integers(18, 65, n)), "sex": r.choice(["male", "female"], n), "bmi": r.normal(30, 6, n), "children": r.integers(0, 5, n), "smoker": r.choice(["yes", "no"], n), "region": r.choice(["northeast", "southwest", None], n), "charges": r.lognormal(9, 1, n)}).to_csv("data/insurance.csv", index=False)
pd.DataFrame({"Industry": [f"i{i}" for i in range(20)], "Mar.2019": r.lognormal(5, 1, 20), "Mar.2020": r.lognormal(5, 1, 20)}).to_csv("data/unemployement_industry.csv", index=False)
X
python3 -c 'import pandas as pd; d = pd.read_csv("data/GODREJIND.csv"); print(d.head()); print(d.describe()); print("@mean_close_price[%.2f]" % d["Close Price"].mean())'
python3 -c 'import pandas as pd; s = pd.read_csv("data/imp.score.ldlr.metabolome.csv")["importance.score"]; print("@importance_score_mean[%.2f] @importance_score_std[%.2f]" % (s.mean(), s.std()))'
cat > prep.py <<'X'
import pandas as pd
d = pd.read_csv("data/insurance.csv"); print(d.isna().sum()); d = d.dropna(subset=["age", "sex", "region"]); d["sex"] = (d.sex == "male").astype(int); d["smoker"] = (d.smoker == "yes").astype(int); d["region"] = d.region.astype("category").cat.codes
for c in ("age", "bmi", "children", "charges"): d[c] = (d[c] - d[c].min()) / (d[c].max() - d[c].min())
print(d.mean().round(4)); d.to_csv("clean.csv", index=False); d.to_json("clean.json", orient="records"); d.to_pickle("clean.pkl"); print(pd.read_pickle("clean.pkl").equals(d))
q1, q3 = d.charges.quantile([.25, .75]); o = d[(d.charges < q1 - 1.5 * (q3 - q1)) | (d.charges > q3 + 1.5 * (q3 - q1))].charges; print(len(o), o.mean(), o.median())
u = pd.read_csv("data/unemployement_industry.csv")["Mar.2019"].dropna(); a, b = u.quantile([.25, .75]); k = u[u.between(a - 1.5 * (b - a), b + 1.5 * (b - a))]; print("@mean_mar_2019[%.2f] @sd_mar_2019[%.2f]" % (k.mean(), k.std()))
X
python3 prep.py; ls -l *.csv *.json *.pkl
"""),
    # MLE-bench
    "tabular-playground-dec-2021": (SH, r"""
mkdir -p input && cat > make.py <<'X'
import numpy as np, pandas as pd, sys
r = np.random.default_rng(int(sys.argv[1])); n = 5000
d = pd.DataFrame({"Id": range(n), "Elevation": r.normal(2900, 300, n), "Aspect": r.integers(0, 360, n), "Slope": r.integers(0, 50, n), **{f"Soil_Type{i}": r.integers(0, 2, n) for i in range(1, 11)}})
d["Cover_Type"] = 1 + (d.Elevation > 2800).astype(int) + (d.Slope > 25).astype(int); d[:4000].to_csv("input/train.csv", index=False); d[4000:].drop(columns="Cover_Type").to_csv("input/test.csv", index=False); d[4000:][["Id", "Cover_Type"]].assign(Cover_Type=2).to_csv("input/sample_submission.csv", index=False); d[4000:][["Id", "Cover_Type"]].to_csv("answers.csv", index=False)
X
python3 make.py $1; head -2 input/*.csv | cut -c1-80; cat > train.py <<'X'
import gc, joblib, numpy as np, pandas as pd
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold
t, e = pd.read_csv("input/train.csv"), pd.read_csv("input/test.csv"); f = [c for c in e if c != "Id"]; pred = np.zeros((len(e), 3)); score = []
for fold, (a, b) in enumerate(StratifiedKFold(3, shuffle=True, random_state=0).split(t, t.Cover_Type)):
    for m in (RandomForestClassifier(30, n_jobs=2, random_state=0), ExtraTreesClassifier(30, n_jobs=-1, random_state=0), HistGradientBoostingClassifier(max_iter=15)):
        m.fit(t.loc[a, f], t.Cover_Type[a]); score.append(m.score(t.loc[b, f], t.Cover_Type[b])); pred += m.predict_proba(e[f]); joblib.dump(m, f"model-{type(m).__name__}-{fold}.joblib", compress=3); gc.collect()
print(np.mean(score)); e[["Id"]].assign(Cover_Type=pred.argmax(1) + 1).to_csv("submission.csv", index=False)
X
nohup python3 train.py > train.log 2>&1 & wait $!; cat train.log; ls -l *.joblib | wc -l; python3 -c 'import pandas as pd; a, s = pd.read_csv("answers.csv"), pd.read_csv("submission.csv"); assert len(a) == len(s); print((a.Cover_Type.values == s.Cover_Type.values).mean())'
"""),
    # MBPP, run as the published harnesses of such benchmarks do: each candidate in a process of its own, with its own folder, time limit and fewer functions
    "mbpp-harness": (PY, r"""
import contextlib, faulthandler, io, json, multiprocessing, os, platform, random, resource, signal, sys, tempfile
TASKS = [("def first_dup(a):\n    s = set()\n    for x in a:\n        if x in s: return x\n        s.add(x)\n    return -1", "assert first_dup([1, 2, 3, 4, 4, 5]) == 4"), ("def square_perimeter(a): return 4 * a", "assert square_perimeter(10) == 40"),
    ("from collections import Counter\ndef count_common(w): return Counter(w).most_common(4)", "assert count_common(['one', 'two', 'one'])[0] == ('one', 2)"), ("def find_rotations(s):\n    t = s + s\n    for i in range(1, len(s) + 1):\n        if t[i:i + len(s)] == s: return i\n    return len(s)", "assert find_rotations('ab') == 2"),
    ("import re\ndef split_lower(t): return re.findall('[a-z][^a-z]*', t)", "assert split_lower('AbCd') == ['bC', 'd']"), ("def is_woodall(x):\n    x += 1; p = 0\n    while x % 2 == 0:\n        x //= 2; p += 1\n        if p == x: return True\n    return False", "assert is_woodall(383)"),
    ("import heapq\ndef small(l, n): return heapq.nsmallest(n, l)", "assert small([10, 20, 50, 70], 2) == [10, 20]"), ("def is_not_prime(n):\n    return any(n % i == 0 for i in range(2, int(n ** .5) + 1))", "assert is_not_prime(10)"), ("def wrong(x): return x + 1", "assert wrong(1) == 3"), ("def forever():\n    while True: pass", "forever()")]
class TimeUp(Exception): pass
def guard():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20)); faulthandler.disable()
    import builtins, shutil, subprocess
    builtins.exit = builtins.quit = None; os.environ["OMP_NUM_THREADS"] = "1"
    for n in ("kill", "system", "putenv", "remove", "removedirs", "fchdir", "setuid", "fork", "forkpty", "killpg", "rename", "truncate", "unlink", "chmod", "chown", "chroot"): setattr(os, n, None)
    shutil.rmtree = shutil.move = shutil.chown = subprocess.Popen = None
def run(code, result):
    with tempfile.TemporaryDirectory() as d:
        import shutil
        keep = os.chdir, shutil.rmtree, os.unlink, os.rmdir, os.chmod; back = os.getcwd(); os.chdir(d); guard()
        def up(*_): raise TimeUp
        signal.signal(signal.SIGALRM, up); signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with contextlib.redirect_stdout(io.StringIO()): exec(code, {})
            result.append("passed")
        except TimeUp: result.append("timed out")
        except BaseException as e: result.append(f"failed: {e!r}")
        signal.setitimer(signal.ITIMER_REAL, 0); os.chdir, shutil.rmtree, os.unlink, os.rmdir, os.chmod = keep; os.chdir(back)
r = random.Random(int(sys.argv[1])); tasks = TASKS * 2; r.shuffle(tasks); out = []
with multiprocessing.Manager() as m:
    for i, (code, test) in enumerate(tasks):
        result = m.list(); p = multiprocessing.Process(target=run, args=(code + "\n" + test + "\n", result)); p.start(); p.join(3)
        if p.is_alive(): p.kill()
        out.append({"task": i, "result": result[0] if len(result) else "timed out"})
with open("results.jsonl", "w") as f: f.writelines(json.dumps(o) + "\n" for o in out)
good = sum(o["result"] == "passed" for o in out); print(good, "of", len(out)); sys.exit(good != 16)
"""),
}
