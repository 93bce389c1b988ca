# SPDX-License-Identifier: Apache-2.0
"""An eighth set of work: the other twenty kinds of the draw that the head of held_seventh.py describes. For `run --held-eighth`.

Drawn here: prove-plus-comm polyglot-rust-c query-optimize filter-js-from-html large-scale-text-editing regex-chess
adaptive-rejection-sampler configure-git-webserver | requests flask matplotlib | cpp/xlsx2csv python/geotext |
dev 21, bootstrap 7, dev 3, bootstrap 6, new 4; bootstrap 4, dev 25 14 17 22 | fs_1 39, fs_4 22, fs_1 23, fs_4 10, fs_1 46 29 25 2 32, fs_4 19 |
14 3 0 1 7 | 10 7 23 5 11 | new-york-city-taxi-fare-prediction | 5 20 24 10 4 26 15 2.
Passed over: sqlite-with-gcov make-doom-for-mips count-dataset-tokens torch-tensor-parallelism qemu-startup compile-compcert mteb-retrieve
mcmc-sampling-stan pytorch-model-recovery mteb-leaderboard; pyvista sqlfluff.

Debian: coq rustc g++ make sqlite3 vim r-base-core git curl nginx-light expect zlib1g-dev nodejs unzip python3-numpy python3-scipy python3-pandas
python3-sklearn python3-matplotlib python3-bs4 python3-lxml python3-requests python3-flask python3-ipykernel python3-jupyter-client python3-pexpect python3-pytest.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")

WORK = {
    # Terminal-Bench
    "prove-plus-comm": (SH, r"""
mkdir -p workspace && cd workspace; cat > plus_comm.v <<'X'
Require Import Arith.
Theorem plus_comm : forall n m : nat, n + m = m + n.
Proof.
  intros n m. induction n as [|n' IHn'].
  - admit.
  - admit.
Admitted.
X
coqc --version; coqc plus_comm.v 2>&1 | head -4; printf 'destdir="/usr/local/lib/ocaml"\npath="/usr/lib/ocaml:/usr/local/lib/ocaml"\n' > findlib.conf; export OCAMLFIND_CONF=$PWD/findlib.conf; coqc plus_comm.v; printf 'From Coq Require Import Arith.\nCheck plus_n_O. Check plus_n_Sm.\n' > look.v; coqc look.v
sed -i 's/  - admit.$/  - simpl. rewrite <- plus_n_O. reflexivity./; 0,/Admitted/s/Admitted/Qed/' plus_comm.v; coqc plus_comm.v 2>&1 | head -5; python3 - <<'X'
p = "plus_comm.v"; s = open(p).read().split("  - simpl"); s = s[0] + "  - simpl" + s[1] + "  - simpl. rewrite IHn'. rewrite plus_n_Sm. reflexivity.\nQed.\n"; open(p, "w").write(s)
X
cat plus_comm.v; coqc plus_comm.v && ls -la *.vo *.glob; for i in $(seq $((1 + $1 % 3))); do printf 'Require Import Arith Lia List.\nImport ListNotations.\nLemma l%s : forall a b : nat, a * %s + b = b + %s * a. Proof. intros. lia. Qed.\nLemma r%s : forall l : list nat, rev (rev l) = l. Proof. apply rev_involutive. Qed.\nPrint Assumptions l%s.\n' $i $i $i $i $i > e$i.v; coqc e$i.v || exit 1; done; grep -c Admitted plus_comm.v | grep -q 0
"""),
    "polyglot-rust-c": (SH, r"""
mkdir -p app/polyglot && cd app/polyglot; cat > main.rs <<'X'
// \
/*
fn main() { let n: u32 = std::env::args().nth(1).unwrap().parse().unwrap(); let (mut a, mut b) = (1u64, 1u64); for _ in 0..n { let c = a + b; a = b; b = c; } println!("{}", a); }
// \
*/
#if 0
#endif
#include <cstdio>
#include <cstdlib>
int main(int, char **v) { unsigned long long a = 1, b = 1; for (int i = atoi(v[1]); i > 0; i--) { unsigned long long c = a + b; a = b; b = c; } printf("%llu\n", a); }
X
rustc --version; g++ --version | head -1; rustc main.rs 2>&1 | tail -3; g++ -x c++ main.rs -o cmain 2>&1 | tail -3
cat > main.rs <<'X'
#[cfg(any())] /*
*/ int zero;
fn main() {}
X
printf '/*/**/\n#include <cstdio>\n#include <cstdlib>\nint main(int, char **v) { unsigned long long a = 1, b = 1; for (int i = atoi(v[1]); i > 0; i--) { unsigned long long c = a + b; a = b; b = c; } printf("%%llu\\n", a); }\n#if 0\n*/\nfn main() { let n: u32 = std::env::args().nth(1).unwrap().parse().unwrap(); let (mut a, mut b) = (1u64, 1u64); for _ in 0..n { let c = a + b; a = b; b = c; } println!("{}", a); }\n/*/**/\n#endif\n// */\n' > main.rs
/usr/bin/rustc main.rs 2>&1 | head -20; g++ -x c++ main.rs -o cmain; for n in 0 1 5 $((10 + $1)); do ./main $n; ./cmain $n; done; rm -f main cmain; ls; rustc -O -C opt-level=2 main.rs -o /tmp/m && /tmp/m 40
"""),
    "query-optimize": (SH, r"""
mkdir -p app && cd app && python3 - "$1" <<'X'
import random, sqlite3, sys
r = random.Random(int(sys.argv[1])); d = sqlite3.connect("oewn.sqlite"); d.executescript("create table words(wordid integer, word text); create table synsets(synsetid integer, domainid integer, definition text); create table senses(wordid integer, synsetid integer);")
d.executemany("insert into words values(?, ?)", ((i, f"word{i}") for i in range(3000))); d.executemany("insert into synsets values(?, ?, ?)", ((i, i % 40, f"a thing {i}") for i in range(2000))); d.executemany("insert into senses values(?, ?)", ((r.randrange(3000), r.randrange(2000)) for _ in range(9000))); d.commit()
X
sqlite3 oewn.sqlite .schema; sqlite3 oewn.sqlite 'select count(*) from senses'; cat > my-sql-query.sql <<'X'
select w.word, count(*) n, (select count(distinct y.domainid) from senses s2 join synsets y on y.synsetid = s2.synsetid where s2.wordid = w.wordid) k from words w join senses s on s.wordid = w.wordid group by w.wordid having n >= 5 order by n desc, w.word limit 200;
X
time timeout 60 sqlite3 oewn.sqlite < my-sql-query.sql > slow.out; sqlite3 oewn.sqlite "explain query plan $(cat my-sql-query.sql)"; cat > sol.sql <<'X'
with t as materialized (select s.wordid, count(*) n, count(distinct y.domainid) k from senses s join synsets y on y.synsetid = s.synsetid group by s.wordid having n >= 5) select w.word, t.n, t.k from t join words w on w.wordid = t.wordid order by t.n desc, w.word limit 200;
X
time sqlite3 oewn.sqlite < sol.sql > fast.out; diff slow.out fast.out && wc -l fast.out; cp oewn.sqlite i.sqlite; sqlite3 i.sqlite 'create index a on senses(wordid, synsetid); create index b on synsets(synsetid, domainid); analyze; vacuum'; time sqlite3 i.sqlite < my-sql-query.sql | cmp - fast.out; for i in 1 2 3 4 5; do sqlite3 -readonly oewn.sqlite < sol.sql | md5sum; done | sort -u | wc -l; sqlite3 -csv -header oewn.sqlite 'select * from words limit 3'
"""),
    "filter-js-from-html": (SH, r"""
mkdir -p app/html && cd app; cat > filter.py <<'X'
import re, sys
from bs4 import BeautifulSoup
def clean(path):
    soup = BeautifulSoup(open(path, encoding="utf-8"), "html.parser")
    for t in soup(["script", "iframe", "object", "embed", "applet", "frame"]): t.decompose()
    for t in soup.find_all(True):
        for a in list(t.attrs):
            v = re.sub(r"[\x00-\x20]", "", " ".join(t.attrs[a]) if isinstance(t.attrs[a], list) else str(t.attrs[a])).lower()
            if a.lower().startswith("on") or v.startswith(("javascript:", "vbscript:", "data:text/html")) or "expression(" in v: del t.attrs[a]
        if t.name == "meta" and "refresh" in str(t.get("http-equiv", "")).lower(): t.decompose()
    open(path, "w", encoding="utf-8").write(str(soup))
if __name__ == "__main__": clean(sys.argv[1])
X
python3 - "$1" <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); bad = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<a href='javascript:alert(1)'>x</a>", "<svg/onload=alert(1)>", "<iframe src='javascript:alert(1)'></iframe>", "<body onload=alert(1)>", "<a href='java&#09;script:alert(1)'>x</a>", "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>", "<div style='width:expression(alert(1))'>y</div>"]; good = ["<p>text <b>bold</b></p>", "<ul><li>1</li></ul>", "<a href='/x'>y</a>", "<table><tr><td>1</td></tr></table>"]
for i in range(24): open(f"html/{i}.html", "w").write("<html><head><title>t</title></head><body>" + "".join(r.choice(bad + good * 2) for _ in range(20)) + "</body></html>")
X
cp -r html before; for f in html/*.html; do python3 filter.py $f || exit 1; done; grep -liE 'alert|onerror|javascript' html/*.html | wc -l; diff <(cat before/3.html) html/3.html | head -5; tr '>' '\n' < html/1.html | sort | uniq -c | sort -rn | head -5
cat > test_clean.py <<'X'
import glob, pytest, subprocess, sys
@pytest.mark.parametrize("p", glob.glob("html/*.html"))
def test_none(p): assert "alert" not in open(p).read()
def test_same(tmp_path): f = tmp_path / "a.html"; f.write_text("<p class=\"a\">x</p>"); subprocess.run([sys.executable, "filter.py", f], check=True); assert f.read_text() == "<p class=\"a\">x</p>"
X
python3 -m pytest -q test_clean.py
"""),
    "large-scale-text-editing": (SH, r"""
mkdir -p app && cd app; python3 - "$1" <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); n = 15000
with open("input.csv", "w") as f, open("expected.csv", "w") as e:
    for i in range(n):
        a = ["".join(r.choice("abcdef") for _ in range(5)) for _ in range(3)]; f.write(f"{a[0]}  , {a[1]},{a[2]}  \n"); e.write(";".join(x.upper() for x in (a[2], a[1], a[0])) + ";OK\n")
X
head -3 input.csv expected.csv; wc -l input.csv; cp input.csv orig.csv; vim --version | head -1; cat > apply_macros.vim <<'X'
call setreg('a', ":%s/\\s//g\n")
call setreg('b', ":%s/\\v^([^,]*),([^,]*),(.*)$/\\3;\\2;\\1/\n")
call setreg('c', ":%s/.*/\\U&/\n:%s/$/;OK/\n")
:normal @a
:normal @b
:normal @c
:wq
X
time vim -Nu NONE -i NONE -n -Es input.csv -S apply_macros.vim; cmp input.csv expected.csv && echo same || { sed -i 's/:normal @\(.\)/:execute "normal! @\1"/' apply_macros.vim; cp orig.csv input.csv; vim -Nu NONE -i NONE -n -es input.csv -S apply_macros.vim < /dev/null; cmp input.csv expected.csv || { diff input.csv expected.csv | head -4; }; }
grep -v call apply_macros.vim | wc -c; for i in 1 2 3; do cp orig.csv x.csv; sed -i -E 's/ //g; s/^([^,]*),([^,]*),(.*)$/\3;\2;\1/; s/.*/\U&;OK/' x.csv; cmp x.csv expected.csv || exit 1; done; awk -F';' '{print $1}' x.csv | sort | uniq -c | sort -rn | head -2; ls -la
"""),
    "regex-chess": (SH, r"""
mkdir -p app && cd app; cat > check.py <<'X'
import json, re, sys
def all_moves(fen):
    for pattern, repl in json.load(open("re.json")): fen = re.sub(pattern, repl, fen)
    return [x for x in fen.strip().split("\n") if x]
if __name__ == "__main__": print(len(all_moves(sys.argv[1])), *all_moves(sys.argv[1])[:3], sep="\n")
X
cat > make.py <<'X'
import json
out = [[r"(\d)", lambda: 0]][:0]
for d in range(8, 0, -1): out.append([str(d) + r"(?=[^ ]* w)", "." * d])
out.append(["/(?=[^ ]* w)", ""]); out.append([r"^([^ ]{64}) w.*$", r"[\1]"])
for sq in range(64):
    row, col = divmod(sq, 8)
    if row == 0: continue
    for to, target in ((sq - 8, r"\."), (sq - 9, "[a-z]"), (sq - 7, "[a-z]")):
        if to < 0 or abs(to % 8 - col) > 1: continue
        out.append([r"(?s)^\[(.{%d})(%s)(.{%d})P(.{%d})\](.*)$" % (to, target, sq - to - 1, 63 - sq), r"[\g<1>\g<2>\g<3>P\g<4>]\g<5>" + "\n" + r"\g<1>P\g<3>.\g<4>"])
out.append([r"^\[[^\]]*\]", ""]); json.dump(out, open("re.json", "w"))
X
python3 make.py; ls -l re.json; python3 -c 'import json; print(len(json.load(open("re.json"))))'; python3 check.py 'rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1'
python3 - "$1" <<'X'
import random, sys, check
r = random.Random(int(sys.argv[1]))
for _ in range(40):
    board = ["." for _ in range(64)]
    for s in r.sample(range(8, 56), 12): board[s] = r.choice("PPnbq")
    fen = "/".join("".join(board[i:i + 8]) for i in range(0, 64, 8))
    for k in range(8, 0, -1): fen = fen.replace("." * k, str(k))
    want = sum((board[s - 8] == ".") + (s % 8 > 0 and board[s - 9].islower()) + (s % 8 < 7 and board[s - 7].islower()) for s in range(64) if board[s] == "P")
    got = len(check.all_moves(fen + " w - - 0 1")); assert got == want, (fen, got, want)
print("all agree")
X
for f in '8/8/8/3p4/4P3/8/8/8' '8/8/2p1p3/3P4/8/8/8/8'; do python3 check.py "$f w - - 0 1"; done; wc -c re.json; test $(stat -c %s re.json) -lt 10485760
"""),
    "adaptive-rejection-sampler": (SH, r"""
mkdir -p app && cd app; Rscript --version 2>&1; cat > ars.R <<'X'
ars <- function(logf, n, x0, lower = -Inf, upper = Inf) {
  stopifnot(is.function(logf), n > 0, length(x0) >= 2)
  h <- function(x) { v <- logf(x); if (any(is.nan(v))) stop("not a density"); v }
  dh <- function(x) (h(x + 1e-6) - h(x - 1e-6)) / 2e-6
  xs <- sort(x0); out <- numeric(0)
  while (length(out) < n) {
    hs <- h(xs); ds <- dh(xs); if (any(diff(ds) > 1e-4)) stop("not log-concave")
    z <- c(lower, (diff(hs) - diff(xs * ds)) / -diff(ds), upper)
    b <- hs - xs * ds; w <- (exp(b + ds * z[-1]) - exp(b + ds * z[-length(z)])) / ds; w[!is.finite(w) | w < 0] <- 0
    k <- sample(length(xs), 1, prob = w); u <- runif(1)
    lo <- exp(ds[k] * z[k] ); hi <- exp(ds[k] * z[k + 1]); x <- log(lo + u * (hi - lo)) / ds[k]
    if (!is.finite(x)) next
    if (log(runif(1)) <= h(x) - (hs[k] + (x - xs[k]) * ds[k])) out <- c(out, x)
    if (length(xs) < 20 && min(abs(xs - x)) > 0.05) xs <- sort(c(xs, x))
  }
  out
}
test <- function() {
  s <- ars(function(x) dnorm(x, log = TRUE), 1500, c(-1.5, -0.4, 0.3, 1.2)); cat("TEST_NORMAL:", if (ks.test(s, "pnorm")$p.value > 1e-4) "PASS" else "FAIL", "mean", mean(s), "sd", sd(s), "\n"); write(s, "normal_samples.txt", ncolumns = 1)
  e <- ars(function(x) dexp(x, log = TRUE), 800, c(0.3, 1.1), lower = 0); cat("TEST_EXP: mean", mean(e), "\n")
  bad <- tryCatch(ars(function(x) log(0.5 * dnorm(x, -3) + 0.5 * dnorm(x, 3)), 10, c(-4, -1, 1, 4)), error = function(e) conditionMessage(e)); cat("TEST_BAD:", bad, "\n")
}
X
Rscript -e "set.seed($1 + 7); source('ars.R'); test()"; wc -l normal_samples.txt; Rscript -e 'x <- scan("normal_samples.txt", quiet = TRUE); pdf("h.pdf"); hist(x); invisible(dev.off()); print(summary(x)); print(shapiro.test(head(x, 500))$p.value)'; ls -l; R -q --vanilla -e 'sessionInfo()$R.version$version.string' | tail -2
"""),
    "configure-git-webserver": (SH, r"""
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; mkdir -p git srv/www nginx/tmp; git init -q --bare git/server; cat > git/server/hooks/post-receive <<X
#!/bin/bash
while read old new ref; do git --work-tree=$HOME/srv/www --git-dir=$HOME/git/server checkout -f \${ref#refs/heads/}; echo "deployed \$ref \$new" >> $HOME/deploy.log; done
X
chmod +x git/server/hooks/post-receive; cat > nginx/nginx.conf <<X
daemon on; pid $HOME/nginx/pid; error_log $HOME/nginx/error.log; worker_processes 1;
events { worker_connections 64; }
http { access_log $HOME/nginx/access.log; client_body_temp_path $HOME/nginx/tmp; proxy_temp_path $HOME/nginx/tmp; fastcgi_temp_path $HOME/nginx/tmp; uwsgi_temp_path $HOME/nginx/tmp; scgi_temp_path $HOME/nginx/tmp; server { listen 127.0.0.1:8080; root $HOME/srv/www; autoindex on; } }
X
/usr/sbin/nginx -t -c $HOME/nginx/nginx.conf -e $HOME/nginx/error.log 2>&1 | tail -1; /usr/sbin/nginx -c $HOME/nginx/nginx.conf -e $HOME/nginx/error.log; git clone -q git/server work 2>/dev/null; cd work; git checkout -q -b webbranch
for i in $(seq $((2 + $1 % 4))); do echo "hello world $i" > hello.html; mkdir -p d$i; echo "page $i" > d$i/i.html; git add -A; git commit -qm "v$i"; git push -q origin webbranch 2>&1 | tail -1; for n in $(seq 20); do curl -sf localhost:8080/hello.html | grep -q "world $i" && break; sleep 0.1; done; curl -s -o /dev/null -w '%{http_code} %{size_download}\n' localhost:8080/d$i/; done
curl -si localhost:8080/hello.html | head -4; curl -s localhost:8080/missing | grep -c 404; cd; cat deploy.log; ss -ltn 2>/dev/null | tail -2; pgrep -a nginx; wc -l nginx/access.log; git --git-dir git/server log --oneline webbranch | cat; /usr/sbin/nginx -c $HOME/nginx/nginx.conf -e $HOME/nginx/error.log -s stop; sleep 0.5; ! curl -s -m 2 localhost:8080 >/dev/null
"""),
    # SWE-bench
    "swe-requests": (SH, r"""
mkdir -p testbed && cd testbed; cp -r /usr/lib/python3/dist-packages/requests .; export PYTHONPATH=. GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; echo __pycache__ > .gitignore; git init -q; git add -A; git commit -qm base; git log --oneline | cat; grep -n "def rebuild_method" -A 25 requests/sessions.py; python3 -c 'import requests; print(requests.__version__, requests.__file__)'; python3 -c 'import requests; requests.get("https://httpbin.org/get", timeout=2)' 2>&1 | tail -1
cat > conftest.py <<'X'
import http.server, json, pytest, threading
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/redirect/"): n = int(self.path.split("/")[2]); self.send_response(302); self.send_header("Location", f"/redirect/{n - 1}" if n > 1 else "/get"); self.send_header("Set-Cookie", f"k{n}=v; Path=/"); self.send_header("Content-Length", "0"); self.end_headers(); return
        out = json.dumps({"method": self.command, "path": self.path, "headers": dict(self.headers), "data": body.decode("latin-1")}).encode(); self.send_response(401 if self.path == "/auth" and "Authorization" not in self.headers else 200); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(out))); self.end_headers(); self.wfile.write(out)
    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET
@pytest.fixture(scope="session")
def httpbin(): s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); threading.Thread(target=s.serve_forever, daemon=True).start(); yield f"http://127.0.0.1:{s.server_port}"; s.shutdown()
X
cat > test_requests.py <<'X'
import os, pytest, requests
@pytest.mark.parametrize("m", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_methods(httpbin, m): assert requests.request(m, httpbin + "/x", json={"a": 1} if m != "GET" else None).json()["method"] == m
@pytest.mark.parametrize("n", [1, 5, 12])
def test_redirect(httpbin, n): r = requests.get(f"{httpbin}/redirect/{n}"); assert len(r.history) == n and r.status_code == 200
def test_loop(httpbin):
    with pytest.raises(requests.TooManyRedirects): requests.get(httpbin + "/redirect/40")
def test_session(httpbin):
    with requests.Session() as s: s.get(httpbin + "/redirect/2"); assert "k1=v" in s.get(httpbin + "/get").json()["headers"]["Cookie"]
def test_auth(httpbin): assert requests.get(httpbin + "/auth").status_code == 401 and requests.get(httpbin + "/auth", auth=("u", "p")).status_code == 200
def test_files(httpbin): assert "hello" in requests.post(httpbin + "/f", files={"f": ("a.txt", b"hello")}).json()["data"]
def test_stream(httpbin): assert b"".join(requests.get(httpbin + "/get", stream=True).iter_content(7)).startswith(b"{")
@pytest.mark.parametrize("url", ["http://localhost:1", "http://no.such.host.invalid", "http://"])
def test_errors(url):
    with pytest.raises(requests.RequestException): requests.get(url, timeout=2)
def test_netrc(httpbin, tmp_path, monkeypatch): n = tmp_path / "netrc"; n.write_text("machine 127.0.0.1 login a password b\n"); n.chmod(0o600); monkeypatch.setenv("NETRC", str(n)); assert requests.get(httpbin + "/auth").status_code == 200
X
python3 -m pytest -rA -q -p no:cacheprovider test_requests.py 2>&1 | tail -6; sed -i 's/if response.status_code == codes.see_other and method != "HEAD":/if response.status_code == codes.see_other and method not in ("HEAD", "GET"):/' requests/sessions.py; git diff | head -20; for i in $(seq $((1 + $1 % 3))); do python3 -m pytest -q -p no:cacheprovider test_requests.py -k 'not no.such' || exit 1; done
"""),
    "swe-flask": (SH, r"""
mkdir -p testbed/templates && cd testbed; cp -r /usr/lib/python3/dist-packages/flask .; export PYTHONPATH=. GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; echo __pycache__ > .gitignore; git init -q; git add -A; git commit -qm base; grep -n "class Blueprint(" -A 3 flask/blueprints.py; grep -rn "'.' in\|\".\" in" flask/*.py | head; cat > app.py <<'X'
import sqlite3
from flask import Flask, Blueprint, abort, g, jsonify, redirect, render_template, request, session, url_for
app = Flask(__name__); app.secret_key = "dev"; bp = Blueprint("api", __name__, url_prefix="/api")
def db():
    if "db" not in g: g.db = sqlite3.connect("app.db"); g.db.execute("create table if not exists item(id integer primary key, name text)")
    return g.db
@app.teardown_appcontext
def close(_): g.pop("db", None) and None
@bp.route("/items", methods=["GET", "POST"])
def items():
    if request.method == "POST": db().execute("insert into item(name) values(?)", (request.json["name"],)); db().commit(); return "", 201
    return jsonify([n for (n,) in db().execute("select name from item")])
@app.route("/login/<u>")
def login(u): session["u"] = u; return redirect(url_for("index"))
@app.route("/")
def index(): return render_template("i.html", u=session.get("u"))
@app.cli.command("count")
def count(): print("items", db().execute("select count(*) from item").fetchone()[0])
@app.errorhandler(404)
def nf(e): return jsonify(error=str(e)), 404
app.register_blueprint(bp)
X
echo '<h1>Hello {{ u or "nobody" }}</h1>{% for i in range(3) %}{{ i }}{% endfor %}' > templates/i.html; flask --version 2>&1 | head -1; python3 -m flask --app app routes; FLASK_DEBUG=0 python3 -m flask --app app run --port 5$((100 + $1)) > server.log 2>&1 & P=$!
for i in $(seq 60); do curl -sf localhost:5$((100 + $1))/ >/dev/null && break; sleep 0.2; done; U=localhost:5$((100 + $1)); for i in $(seq 10); do curl -s -X POST -H 'Content-Type: application/json' -d "{\"name\": \"n$i\"}" $U/api/items; done; curl -s $U/api/items; curl -s -c jar -L -b jar $U/login/bob; curl -s -o /dev/null -w '%{http_code}\n' $U/nope; kill $P; wait $P 2>/dev/null; tail -2 server.log
cat > test_app.py <<'X'
import pytest, flask, app as m
@pytest.fixture
def c(tmp_path, monkeypatch): monkeypatch.chdir(tmp_path); return m.app.test_client()
@pytest.mark.parametrize("n", range(8))
def test_items(c, n): assert c.post("/api/items", json={"name": str(n)}).status_code == 201 and c.get("/api/items").json == [str(n)]
def test_session(c): assert b"bob" in c.get("/login/bob", follow_redirects=True).data
def test_dotted():
    with pytest.raises(ValueError): flask.Blueprint("a.b", __name__)
def test_cli(): r = m.app.test_cli_runner().invoke(args=["count"]); assert "items" in r.output
def test_empty():
    with pytest.raises(ValueError): flask.Blueprint("", __name__)
X
python3 -m pytest -rA -q -p no:cacheprovider test_app.py 2>&1 | tail -4; python3 - <<'X'
p = "flask/blueprints.py"; s = open(p).read(); a = "        super().__init__(\n"; s = s.replace(a, "        if not name:\n            raise ValueError(\"'name' may not be empty.\")\n\n" + a, 1); open(p, "w").write(s)
X
git diff --stat | cat; python3 -m pytest -q -p no:cacheprovider test_app.py
"""),
    "swe-matplotlib": (SH, r"""
mkdir -p testbed && cd testbed; export MPLBACKEND=Agg; cat > repro.py <<'X'
import sys, numpy as np, matplotlib, matplotlib.pyplot as plt
r = np.random.default_rng(int(sys.argv[1])); print(matplotlib.__version__, matplotlib.get_configdir(), matplotlib.get_cachedir())
fig, ax = plt.subplots(2, 2, figsize=(6, 5)); x = np.linspace(0, 9, 200)
ax[0, 0].plot(x, np.sin(x), label="sin"); ax[0, 0].legend(); ax[0, 1].scatter(r.random(80), r.random(80), c=r.random(80)); ax[1, 0].hist(r.normal(size=500), bins=30); ax[1, 1].bar(list("abcd"), r.random(4)); ax[1, 1].set_title(r"$\sum_i x_i^2$")
for e in ("png", "pdf", "svg"): fig.savefig("out." + e)
X
time python3 repro.py $1; time python3 repro.py $1; file out.*; ls ~/.cache/matplotlib ~/.config/matplotlib 2>/dev/null | head; grep -n "def align_ylabels" -A 12 /usr/lib/python3/dist-packages/matplotlib/figure.py | head -15
cat > test_fig.py <<'X'
import io, pickle, pytest, numpy as np, matplotlib.pyplot as plt
from matplotlib.testing.compare import compare_images
@pytest.fixture(autouse=True)
def closed(): yield; plt.close("all")
@pytest.mark.parametrize("ext", ["png", "svg", "pdf", "ps"])
def test_save(ext, tmp_path): f = plt.figure(); f.add_subplot().imshow(np.eye(9)); f.savefig(tmp_path / ("a." + ext)); assert (tmp_path / ("a." + ext)).stat().st_size > 500
def test_pickle(): f, ax = plt.subplots(); ax.plot([1, 2]); f.align_labels(); assert len(pickle.loads(pickle.dumps(f)).axes) == 1
def test_same(tmp_path):
    for n in "ab": f, ax = plt.subplots(); ax.plot(range(9)); f.savefig(tmp_path / (n + ".png"))
    assert compare_images(tmp_path / "a.png", tmp_path / "b.png", tol=0) is None
@pytest.mark.parametrize("n", [0, 1, 7])
def test_legend(n): f, ax = plt.subplots(); [ax.plot([i], label=str(i)) for i in range(n)]; f.canvas.draw(); assert len(ax.get_legend_handles_labels()[0]) == n
def test_animation(tmp_path):
    from matplotlib.animation import FuncAnimation, PillowWriter
    f, ax = plt.subplots(figsize=(2, 2)); (l,) = ax.plot([]); FuncAnimation(f, lambda i: l.set_data(range(i), range(i)), frames=4).save(tmp_path / "a.gif", writer=PillowWriter(5)); assert (tmp_path / "a.gif").exists()
X
python3 -m pytest -rA -q -p no:cacheprovider test_fig.py 2>&1 | tail -5; python3 -m pytest -q -x -p no:cacheprovider test_fig.py -k 'save or legend'
"""),
    # DevBench
    "dev-xlsx2csv": (SH, r"""
mkdir -p repo/src repo/tests && cd repo; python3 - "$1" <<'X'
import random, sys, zipfile
r = random.Random(int(sys.argv[1]))
for k in range(3):
    with zipfile.ZipFile(f"tests/{k}.xlsx", "w", zipfile.ZIP_DEFLATED) as z:
        rows = [[r.choice((r.randrange(999), f"s{r.randrange(99)}")) for _ in range(5)] for _ in range(200)]
        z.writestr("[Content_Types].xml", "<Types/>"); z.writestr("xl/worksheets/sheet1.xml", "<worksheet><sheetData>" + "".join("<row>" + "".join(f"<c><v>{v}</v></c>" for v in w) + "</row>" for w in rows) + "</sheetData></worksheet>")
    open(f"tests/{k}.csv", "w").write("".join(",".join(map(str, w)) + "\n" for w in rows))
X
cat > src/xlsx2csv.cpp <<'X'
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>
#include <zlib.h>
static uint32_t le(const std::string &s, size_t p, int n) { uint32_t v = 0; for (int i = 0; i < n; i++) v |= uint32_t(uint8_t(s[p + i])) << (8 * i); return v; }
static std::string member(const std::string &z, const std::string &name) {
    size_t e = z.rfind("PK\5\6"); if (e == std::string::npos) throw std::runtime_error("not a zip");
    size_t p = le(z, e + 16, 4); for (unsigned i = le(z, e + 10, 2); i--;) { size_t n = le(z, p + 28, 2); if (z.substr(p + 46, n) == name) { size_t o = le(z, p + 42, 4), d = o + 30 + le(z, o + 26, 2) + le(z, o + 28, 2); std::string out(le(z, p + 24, 4), 0); if (le(z, p + 10, 2) == 0) return z.substr(d, out.size());
        z_stream s; memset(&s, 0, sizeof s); inflateInit2(&s, -15); s.next_in = (Bytef *)z.data() + d; s.avail_in = le(z, p + 20, 4); s.next_out = (Bytef *)&out[0]; s.avail_out = out.size(); inflate(&s, Z_FINISH); inflateEnd(&s); return out; } p += 46 + n + le(z, p + 30, 2) + le(z, p + 32, 2); }
    throw std::runtime_error("no " + name); }
int main(int argc, char **argv) { if (argc != 3) { std::cerr << "usage: xlsx2csv in out\n"; return 2; }
    try { std::ifstream f(argv[1], std::ios::binary); std::string z{std::istreambuf_iterator<char>(f), {}}, x = member(z, "xl/worksheets/sheet1.xml"); std::ofstream o(argv[2]); size_t p = 0, e;
        while ((p = x.find("<row>", p)) != std::string::npos) { e = x.find("</row>", p); bool first = true; size_t q = p; while ((q = x.find("<v>", q)) < e) { size_t t = x.find("</v>", q); if (!first) o << ','; first = false; o << x.substr(q + 3, t - q - 3); q = t; } o << '\n'; p = e; } }
    catch (const std::exception &e) { std::cerr << e.what() << "\n"; return 1; } }
X
printf 'cmake_minimum_required(VERSION 3.10)\nproject(x CXX)\nset(CMAKE_CXX_STANDARD 17)\nfind_package(ZLIB REQUIRED)\nadd_executable(xlsx2csv src/xlsx2csv.cpp)\ntarget_link_libraries(xlsx2csv ZLIB::ZLIB)\nenable_testing()\nforeach(k 0 1 2)\n  add_test(NAME t${k} COMMAND sh -c "./xlsx2csv ${CMAKE_SOURCE_DIR}/tests/${k}.xlsx o${k} && cmp o${k} ${CMAKE_SOURCE_DIR}/tests/${k}.csv")\nendforeach()\n' > CMakeLists.txt
cmake -S . -B build -DCMAKE_BUILD_TYPE=Debug | tail -2; cmake --build build -j2 2>&1 | tail -2; ctest --test-dir build --output-on-failure | tail -4; cd build; ./xlsx2csv; ./xlsx2csv CMakeCache.txt x; ./xlsx2csv ../tests/0.xlsx x.csv && head -2 x.csv; unzip -l ../tests/0.xlsx | tail -1; cmake --install . --prefix ~/.local 2>&1 | tail -1; ctest -j2 | grep -q '100% tests passed'
"""),
    "dev-geotext": (SH, r"""
mkdir -p repo/geotext/data repo/tests && cd repo; cp /usr/share/zoneinfo/zone1970.tab /usr/share/zoneinfo/iso3166.tab geotext/data/ 2>/dev/null; grep -v '^#' geotext/data/iso3166.tab | head -2; touch tests/__init__.py; printf 'from .geotext import GeoText\n__version__ = "0.4.0"\n' > geotext/__init__.py; cat > geotext/geotext.py <<'X'
import collections, os, re
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
def table(name, key, value, f=str): return {f(r[key]): r[value] for r in (l.rstrip("\n").split("\t") for l in open(os.path.join(HERE, name), encoding="utf-8")) if not r[0].startswith("#")}
class GeoText:
    countries_index = table("iso3166.tab", 1, 0, str.lower)
    cities_index = table("zone1970.tab", 2, 0, lambda z: z.split("/")[-1].replace("_", " ").lower())
    def __init__(self, text):
        words = re.findall(r"[A-Z]+[à-ü]?[a-z]+(?:[ '-][A-Z]+[à-ü]?[a-z]+)*", text)
        self.countries = [w for w in words if w.lower() in self.countries_index]; self.cities = [w for w in words if w.lower() in self.cities_index]
        self.country_mentions = collections.OrderedDict(collections.Counter([self.countries_index[c.lower()] for c in self.countries] + [self.cities_index[c.lower()].split(",")[0] for c in self.cities]).most_common())
X
printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "geotext"\nversion = "0.4.0"\n[tool.setuptools]\npackages = ["geotext"]\n[tool.setuptools.package-data]\ngeotext = ["data/*"]\n' > pyproject.toml
python3 - "$1" > tests/test_geotext.py <<'X'
import sys
print("import pytest\nfrom geotext import GeoText\n@pytest.mark.parametrize('c', ['London', 'Paris', 'New York', 'Tokyo', 'Lima'])\ndef test_city(c): assert GeoText('I was in ' + c + ' once.').cities == [c]\ndef test_country(): assert GeoText('we fly to France and Brazil').countries == ['France', 'Brazil']\n" + "".join(f"def test_m{i}(): assert list(GeoText('London ' * {i + 1} + 'and Paris').country_mentions)[0] in ('GB', 'FR')\n" for i in range(3 + int(sys.argv[1]))))
X
python3 -m pytest -q tests; python3 -m venv --system-site-packages venv 2>&1 | tail -1; . venv/bin/activate; python -m pip install -q --no-build-isolation --no-deps --no-index . 2>&1 | tail -2; cd /tmp && python -c 'import geotext; print(geotext.__file__, geotext.GeoText("London and Berlin").country_mentions)'; python -m pip list 2>/dev/null | grep geotext; cd ~/repo; python -m pytest -q -p no:cacheprovider tests | tail -1; deactivate; rm -rf venv build *.egg-info; find . -name '*.pyc' -delete; ls
"""),
    # AgentBench OS
    "os-session-c": (SH, r"""
cd; for i in $(seq $((2 + $1))); do echo 123 > $i.helloworld; done; echo 1 > .helloworld; echo 2 > .tmp; mkdir -p experiment/dir1/dir2 experiment/dir1/dir3 experiment/dir4; find . -type f -name '*.helloworld' | wc -l; echo 'Hello World' > experiment/dir1/file1.txt; echo 'Linux is fun' > experiment/dir1/dir3/file4.txt; head -c $((1000 * ($1 + 1))) /dev/urandom > experiment/dir4/b.bin; find experiment -type f -exec stat -c '%s' {} \; | awk '{total+=$1} END {print total}'
mkdir -p ~/.local/bin; printf '#!/bin/bash\npython3 -c "print($*)"\n' > /usr/local/bin/calc 2>/dev/null || printf '#!/bin/bash\nawk "BEGIN { print $* }"\n' > ~/.local/bin/calc; sudo cp calc /usr/bin 2>&1 | head -1; chmod 755 ~/.local/bin/calc; hash -r; which calc; for e in '2 * (9 / 3)' '6 * (9 / 3) + 7' '1.5+2.25' "$1 * 3"; do calc "$e"; done; echo "alias c=calc" >> ~/.bashrc; bash -ic 'c 1+1' 2>/dev/null
free -m; total=$(free -m | grep Mem | awk '{print $2}'); fr=$(free -m | grep Mem | awk '{print $4}'); echo $(((total - fr) * 100 / total)); vmstat 2>/dev/null | tail -1; head -3 /proc/meminfo; cat /sys/fs/cgroup/memory.max 2>/dev/null; touch /usr/tmp1 2>&1; ls -1 /usr | grep -c '^[[:alpha:]]'; ls -A /usr | wc -l; df -h /usr | tail -1
"""),
    "os-session-d": (SH, r"""
useradd temp_student 2>&1; for i in 1 2 3 4 5; do sleep 30 & done; sudo -u temp_student sleep 100 2>&1 | head -1; ps -eo user:30,command | grep "^$(whoami)" | wc -l; ps -U $(id -u) | wc -l; top -b -n 1 | head -8; pgrep -c sleep; pkill sleep; wait 2>/dev/null
python3 - "$1" > stock.log <<'X'
import random, sys
r = random.Random(int(sys.argv[1])); [print(r.choice(("Alice", "Bob", "Jack")), "|", r.choice(("Purchase", "Sell")), "|", r.randrange(100), "|", r.randrange(1000)) for _ in range(2000)]
X
head -3 stock.log; grep -c 'Bob | Sell' stock.log; awk -F' \\| ' '$1 == "Bob" && $2 == "Sell" {n++; s += $4} END {print n, s}' stock.log; sort -t'|' -k3 -n stock.log | tail -1; getent group | wc -l; cat /etc/group | head -3; getent passwd | wc -l; [ -x "$(command -v npm)" ] && echo installed || echo not-yet; npm --version; node --version; groups; dpkg -l 2>/dev/null | wc -l; dpkg -s coreutils 2>&1 | head -2; exit 0
"""),
    # InterCode
    "bash-session-b": (SH, r"""
mkdir -p testbed/dir1 testbed/dir2 testbed/log && cd testbed; for i in $(seq $((20 + $1))); do printf '<?php\n\necho %s;\n\n?>\n' $i > dir1/f$i.php; echo "<p>foo $i</p>" > dir2/h$i.html; seq $i | gzip > dir2/z$i.gz; echo "log $i" > log/l$i.log; touch -d "$((i % 5)) days ago" log/l$i.log; echo t > foo$i; done
find . -name '*.php' -type f -exec grep -v -c '^$' {} + | awk -F: '{ cnt += $NF } END { print cnt }'; who | awk -F' ' '{print $1}' | sort -u | wc -l; bind -l 2>/dev/null | grep -c p; find log -mtime +1 | xargs tar -czvPf logs.tar.gz | wc -l; find /var/log -mtime +1 2>/dev/null | head -2; find . -name 'foo??' | sort | xargs wc -l | tail -1; find . -name '*.html' | xargs grep -l foo | wc -l; FILES="dir1/f2.php dir1/f1.php"; cat $(echo $FILES | tr ' ' '\n' | sort) | md5sum; find . -type f -name '*.gz' ! -name logs.tar.gz | xargs zcat | wc -l
ping -c 1 -W 1 $(hostname) 2>&1 | grep 'bytes from' | awk '{print $4}' | sed 's/://g'; ping -c 1 -W 1 127.0.0.1 2>&1 | tail -1; getent hosts localhost; hostname -i 2>&1; tar tzf logs.tar.gz 2>/dev/null | wc -l
"""),
    "sql-session-b": (SH, r"""
python3 - "$1" <<'X'
import random, sqlite3, sys
r = random.Random(int(sys.argv[1]))
for n, ddl in (("tvshow", "create table TV_series(id integer primary key, Share real)"), ("orchestra", "create table conductor(Conductor_ID integer primary key, Name text, Nationality text)"), ("poker_player", "create table poker_player(Poker_Player_ID integer primary key, People_ID int, Final_Table_Made int); create table people(People_ID integer primary key, Name text)"), ("flight_2", "create table airports(AirportCode text primary key, AirportName text); create table flights(FlightNo int, SourceAirport text, DestAirport text)"), ("world_1", "create table city(ID integer primary key, Name text, Population int)")):
    d = sqlite3.connect(n + ".sqlite"); d.executescript(ddl)
    for i in range(150):
        if n == "tvshow": d.execute("insert into TV_series values(?, ?)", (i, r.random() * 9))
        if n == "orchestra": d.execute("insert into conductor values(?, ?, ?)", (i, f"c{i}", r.choice(("USA", "UK", "France"))))
        if n == "poker_player": d.execute("insert into people values(?, ?)", (i, f"p{i}")); d.execute("insert into poker_player values(?, ?, ?)", (i, i, r.randrange(90)))
        if n == "flight_2": d.execute("insert into airports values(?, ?)", (f"A{i}", f"port {i}")); d.execute("insert into flights values(?, ?, ?)", (i, f"A{r.randrange(140)}", f"A{r.randrange(140)}"))
        if n == "world_1": d.execute("insert into city values(?, ?, ?)", (i, f"city{i}", r.randrange(2000000)))
    d.commit()
X
ls -l *.sqlite; sqlite3 tvshow.sqlite .tables .schema; sqlite3 tvshow.sqlite 'SELECT max(SHARE) , min(SHARE) FROM TV_series;'; sqlite3 orchestra.sqlite 'SELECT count(DISTINCT Nationality) FROM conductor'; sqlite3 poker_player.sqlite 'SELECT T1.Name FROM people AS T1 JOIN poker_player AS T2 ON T1.People_ID = T2.People_ID ORDER BY T2.Final_Table_Made' | head -3; sqlite3 flight_2.sqlite 'SELECT AirportName FROM Airports WHERE AirportCode NOT IN (SELECT SourceAirport FROM Flights UNION SELECT DestAirport FROM Flights)' | wc -l; sqlite3 -box world_1.sqlite 'SELECT name FROM city WHERE Population BETWEEN 160000 AND 900000 limit 3'
sqlite3 world_1.sqlite 'select nothing from nowhere' 2>&1; sqlite3 world_1.sqlite <<< $'begin;\nupdate city set Population = Population + 1;\nrollback;\n.dump city' | wc -l; expect -c 'set timeout 10; spawn sqlite3 orchestra.sqlite; expect "sqlite>"; send "select Nationality, count(*) from conductor group by 1;\r"; expect "UK"; expect "sqlite>"; send ".quit\r"; expect eof' | tail -3; for i in $(seq $((5 + $1))); do sqlite3 world_1.sqlite "insert into city(Name, Population) values('new$i', $i)"; done; sqlite3 world_1.sqlite 'pragma integrity_check; select count(*) from city'
"""),
    # DABench, in the kernel of a notebook, as its agents have it
    "da-session-b": (PY, r"""
import sys
from jupyter_client.manager import start_new_kernel
cells = ["import numpy as np, pandas as pd\nr = np.random.default_rng(%s); n = 890" % sys.argv[1],
"pd.DataFrame({'Pclass': r.integers(1, 4, n), 'Sex': r.choice(['male', 'female'], n), 'Age': np.where(r.random(n) < .2, np.nan, r.uniform(1, 80, n)), 'SibSp': r.integers(0, 4, n), 'Parch': r.integers(0, 3, n), 'Fare': r.lognormal(3, 1, n), 'Embarked': r.choice(['S', 'C', 'Q'], n), 'Survived': r.integers(0, 2, n)}).to_csv('test_ave.csv', index=False)",
"pd.DataFrame({'High Price': 500 + r.normal(0, 30, n), 'Total Traded Quantity': r.lognormal(12, 1, n)}).assign(**{'Low Price': lambda d: d['High Price'] - r.random(n) * 9}).to_csv('GODREJIND.csv', index=False)",
"pd.DataFrame({'Mar.2019': r.lognormal(5, 1, 60), 'Mar.2020': r.lognormal(5, 1, 60)}).to_csv('unemployement_industry.csv', index=False)",
"from scipy import stats\ng = pd.read_csv('GODREJIND.csv'); p = stats.shapiro(g['Total Traded Quantity']).pvalue; print('@is_normal[%s]' % ('no' if p < .05 else 'yes'))",
"t = pd.read_csv('test_ave.csv'); t.info(); t.head()", "from sklearn.linear_model import LinearRegression\nfrom sklearn.model_selection import train_test_split\nfrom sklearn.metrics import accuracy_score, mean_squared_error",
"x = pd.get_dummies(t.drop(columns='Survived'), columns=['Sex', 'Embarked']); LinearRegression().fit(x, t.Survived)",
"x = x.fillna(x.mean()); a, b, c, d = train_test_split(x, t.Survived, test_size=.2, random_state=42); print('@prediction_accuracy[%.2f]' % accuracy_score(d, LinearRegression().fit(a, c).predict(b) > .5))",
"u = pd.read_csv('unemployement_industry.csv'); a, b, c, d = train_test_split(u[['Mar.2019']], u['Mar.2020'], test_size=.3, random_state=42); print('@Mean_Squared_Error[%.2f]' % mean_squared_error(d, LinearRegression().fit(a, c).predict(b)))",
"t['FamilySize'] = t.SibSp + t.Parch; print('@correlation_coefficient[%.2f]' % t.FamilySize.corr(t.Fare))", "r_, p_ = stats.pearsonr(g['High Price'], g['Low Price']); print('@correlation_coefficient[%.2f] @p_value[%.4f] @relationship_type[linear]' % (r_, p_))",
"!ls -l *.csv", "%%bash\nwc -l *.csv", "%timeit -n 3 -r 2 t.describe()", "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nt.Fare.hist(); plt.savefig('fare.png')"]
km, kc = start_new_kernel(startup_timeout=120); errors, out = [], []
def hook(m):
    if m["msg_type"] == "error": errors.append(m["content"]["ename"])
    if m["msg_type"] == "stream": out.append(m["content"]["text"])
for c in cells: kc.execute_interactive(c, timeout=120, output_hook=hook)
kc.stop_channels(); km.shutdown_kernel(); print("".join(out)[-900:], errors); sys.exit(errors != ["ValueError"])
"""),
    # MLE-bench
    "nyc-taxi-fare": (SH, r"""
mkdir -p input && python3 - "$1" <<'X'
import numpy as np, pandas as pd, sys
r = np.random.default_rng(int(sys.argv[1])); n = 12000
d = pd.DataFrame({"key": [f"k{i}" for i in range(n)], "pickup_datetime": pd.to_datetime(r.integers(1230768000, 1435708800, n), unit="s").strftime("%Y-%m-%d %H:%M:%S UTC"), "pickup_longitude": -73.98 + r.normal(0, .03, n), "pickup_latitude": 40.75 + r.normal(0, .03, n), "dropoff_longitude": -73.98 + r.normal(0, .03, n), "dropoff_latitude": 40.75 + r.normal(0, .03, n), "passenger_count": r.integers(1, 7, n)})
d.insert(1, "fare_amount", (2.5 + 150 * np.hypot(d.pickup_longitude - d.dropoff_longitude, d.pickup_latitude - d.dropoff_latitude) + r.normal(0, 1, n)).clip(2.5)); d.loc[r.random(n) < .01, "pickup_latitude"] = 0
d[:10000].to_csv("input/train.csv", index=False); d[10000:].drop(columns="fare_amount").to_csv("input/test.csv", index=False); d[10000:][["key", "fare_amount"]].to_csv("private.csv", index=False)
X
ls -lh input; zip -q input/all.zip input/*.csv && rm input/train.csv && unzip -oq input/all.zip; cat > solution.py <<'X'
import numpy as np, pandas as pd
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score
def feat(d):
    t = pd.to_datetime(d.pickup_datetime.str.replace(" UTC", "", regex=False)); a, b, c, e = (np.radians(d[k]) for k in ("pickup_latitude", "dropoff_latitude", "pickup_longitude", "dropoff_longitude"))
    h = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin((e - c) / 2) ** 2; return pd.DataFrame({"km": 2 * 6371 * np.arcsin(np.sqrt(h)), "hour": t.dt.hour, "year": t.dt.year, "dow": t.dt.dayofweek, "pass": d.passenger_count, "lat": d.pickup_latitude, "lon": d.pickup_longitude})
train = pd.concat(pd.read_csv("input/train.csv", chunksize=2500)); train = train[train.pickup_latitude.between(40, 42) & (train.fare_amount > 0)]; test = pd.read_csv("input/test.csv")
x, y = feat(train), train.fare_amount; m = HistGradientBoostingRegressor(max_iter=60); print(-cross_val_score(m, x, y, cv=3, scoring="neg_root_mean_squared_error", n_jobs=2).mean()); g = GradientBoostingRegressor(n_estimators=25, subsample=.5, random_state=0).fit(x, y)
p = (m.fit(x, y).predict(feat(test)) + g.predict(feat(test))) / 2; pd.DataFrame({"key": test.key, "fare_amount": p}).to_csv("submission.csv", index=False)
X
python3 -u solution.py 2>&1 | tee log.txt; head -3 submission.csv; python3 -c 'import pandas as pd; a, s = pd.read_csv("private.csv"), pd.read_csv("submission.csv"); print(((a.fare_amount - s.fare_amount) ** 2).mean() ** .5); assert len(a) == len(s)'
"""),
    # MBPP, at an interactive prompt, as the agents of InterCode-Python have it
    "mbpp-prompt": (PY, r"""
import pexpect, random, sys
TASKS = [("def differ(a, b):\n    x = a ^ b\n    return x and not x & (x - 1)\n", "differ(13, 9)", "True"), ("def multiples(m, n): return list(range(n, (m + 1) * n, n))\n", "multiples(4, 3)", "[3, 6, 9, 12]"), ("def b2d(b): return int(str(b), 2)\n", "b2d(1101101)", "109"), ("def remove_occ(s, c):\n    s = s.replace(c, '', 1)\n    i = s.rfind(c)\n    return s[:i] + s[i + 1:] if i >= 0 else s\n", "remove_occ('hello', 'l')", "'heo'"),
("def count_ways(n):\n    a, b = [0] * (n + 1), [0] * (n + 1)\n    a[0] = b[1] = 1\n    for i in range(2, n + 1): a[i], b[i] = a[i - 2] + 2 * b[i - 1], a[i - 1] + b[i - 2]\n    return a[n]\n", "count_ways(12)", "2131"), ("import re\n\ndef no_digits(l): return [re.sub('[0-9]', '', i) for i in l]\n", "no_digits(['4words'])", "['words']"), ("import re\n\ndef under(t): return bool(re.search('^[a-z]+_[a-z]+$', t))\n", "under('aab_cbbbc')", "True"), ("import math\n\ndef not_prime(n): return any(n % i == 0 for i in range(2, int(math.sqrt(n)) + 1))\n", "not_prime(35)", "True")]
random.Random(int(sys.argv[1])).shuffle(TASKS); c = pexpect.spawn("python3 -i -q", encoding="utf-8", timeout=30, echo=False); c.expect(">>> "); good = 0
for code, call, want in TASKS:
    for line in code.split("\n"): c.sendline(line); c.expect([r">>> ", r"\.\.\. "])
    c.sendline(""); c.expect(">>> "); c.sendline(call); c.expect(">>> "); good += want in c.before
c.sendline("undefined_name"); c.expect("NameError"); c.expect(">>> "); c.sendline("while True: pass\n"); c.sendintr(); c.expect("KeyboardInterrupt"); c.expect(">>> "); c.sendline("print(len.__doc__)"); c.expect(">>> ")
c.sendline("exit()"); c.expect(pexpect.EOF); c.close(); print(good, "of", len(TASKS)); sys.exit(good != len(TASKS))
"""),
}
