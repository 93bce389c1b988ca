# SPDX-License-Identifier: Apache-2.0
"""A third set of work, of other programs than the first two, written before the sources of the rules were read and run for the first
time after that. For `run --held-third`, as held_out.py: what it shows is published as it is.

A tool that this machine does not have is left out. On Debian: autoconf automake libtool meson ninja-build bison flex postgresql
texlive-latex-base ghostscript poppler-utils qpdf imagemagick ruby lua5.4 r-base-core php-cli gawk python3-numpy python3-pandas
python3-ipykernel python3-jupyter-client python3-jinja2 gnupg age openssh-client openssl gdb strace ltrace valgrind rsync golang nodejs
redis-server nginx-light socat netcat-openbsd logrotate inotify-tools entr rename parallel tmux expect fakeroot dpkg-dev git sqlite3.
"""

SH, PY = ("/bin/bash", "-c"), ("/usr/bin/python3", "-c")
GIT = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"

WORK = {
    "autotools": (SH, """
command -v autoreconf >/dev/null || exit 0
mkdir hello && cd hello && mkdir src tests
cat > configure.ac <<'E'
AC_INIT([hello], [1.0], [bugs@example.org])
AM_INIT_AUTOMAKE([foreign subdir-objects])
AC_PROG_CC
AC_CHECK_HEADERS([unistd.h sys/mman.h sys/epoll.h])
AC_CHECK_FUNCS([strlcpy mmap fork vfork])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
E
printf 'bin_PROGRAMS = hello\\nhello_SOURCES = src/main.c\\nTESTS = tests/t.sh\\nEXTRA_DIST = tests/t.sh\\n' > Makefile.am
echo '#include <stdio.h>
int main(void) { puts("hello"); return 0; }' > src/main.c
printf '#!/bin/sh\\n./hello | grep -q hello\\n' > tests/t.sh; chmod +x tests/t.sh
autoreconf -i >/dev/null 2>&1; ./configure -q --prefix=/usr >/dev/null 2>&1; make -s -j4 >/dev/null 2>&1; make -s check 2>&1 | grep -c PASS; make -s DESTDIR=$PWD/inst install >/dev/null; make -s dist >/dev/null 2>&1; tar tzf hello-1.0.tar.gz | wc -l; make -s distclean >/dev/null 2>&1; ls | wc -l
"""),
    "meson-parser": (SH, """
mkdir calc && cd calc
cat > calc.y <<'E'
%{
#include <stdio.h>
int yylex(void); void yyerror(const char *s) { fprintf(stderr, "%s\\n", s); }
%}
%token NUM
%left '+' '-'
%left '*'
%%
all: all line | ; line: e '\\n' { printf("%d\\n", $1); }
e: e '+' e { $$ = $1 + $3; } | e '-' e { $$ = $1 - $3; } | e '*' e { $$ = $1 * $3; } | '(' e ')' { $$ = $2; } | NUM
%%
int main(void) { return yyparse(); }
E
cat > scan.l <<'E'
%option noyywrap nounput noinput
%{
#include <stdlib.h>
#include "calc.tab.h"
%}
%%
[0-9]+ { yylval = atoi(yytext); return NUM; }
[ \\t] ;
.|\\n { return *yytext; }
%%
E
bison -d calc.y 2>/dev/null && flex scan.l 2>/dev/null
cat > meson.build <<'E'
project('calc', 'c')
e = executable('calc', 'calc.tab.c', 'lex.yy.c', install: true)
test('sum', find_program('t.sh'), args: [e])
E
printf '#!/bin/sh\\n[ "$(echo "2*(3+4)" | $1)" = 14 ]\\n' > t.sh; chmod +x t.sh
meson setup b --buildtype=debug >/dev/null 2>&1 && meson compile -C b >/dev/null && meson test -C b 2>&1 | grep -c OK; DESTDIR=$PWD/d meson install -C b --quiet 2>/dev/null; meson configure b -Db_sanitize=address >/dev/null 2>&1; meson compile -C b >/dev/null 2>&1; echo 1+1 | b/calc; ctags -R . 2>/dev/null; ls | wc -l
"""),
    "postgres-migrations": (SH, """
B=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1); [ -n "$B" ] || exit 0
export PATH=$B:$PATH PGHOST=$PWD PGUSER=app PGDATABASE=postgres HOME=$PWD
initdb -D data -U app -A trust --no-sync >/dev/null 2>&1; pg_ctl -D data -w -l log -o "-k $PWD -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB" start >/dev/null || tail -3 log
mkdir m; echo 'create table users(id serial primary key, name text not null);' > m/001.sql; echo 'alter table users add column mail text; create index on users(mail);' > m/002.sql
echo 'create table orders(id serial primary key, u int references users, cents int check (cents > 0)); create view totals as select u, sum(cents) from orders group by u;' > m/003.sql
psql -qc 'create table schema_version(v text primary key)'; for f in m/*.sql; do psql -q1v ON_ERROR_STOP=1 -f $f -c "insert into schema_version values('$f')"; done
psql -qc "insert into users(name) select 'u' || n from generate_series(1, $((2000 + $1))) n; insert into orders(u, cents) select 1 + n % 2000, n + 1 from generate_series(1, 5000) n"; psql -qc 'vacuum analyze'
printf 'localhost:5432:*:app:x\\n' > .pgpass; chmod 600 .pgpass; psql -h localhost -Atc 'select count(*) from totals'; pg_dump > dump.sql; createdb copy && psql -qd copy -f dump.sql >/dev/null; psql -d copy -Atc 'select count(*) from orders'; pgbench -i -q -s 1 >/dev/null 2>&1; pgbench -c 4 -T 1 2>/dev/null | tail -1
pg_ctl -D data -m fast stop >/dev/null; exit 0
"""),
    "latex-report": (SH, """
command -v pdflatex >/dev/null || exit 0; D=/usr/share/texlive/texmf-dist; export HOME=$PWD TEXINPUTS=.:$D/tex//: TFMFONTS=$D/fonts/tfm//: T1FONTS=$D/fonts/type1//: TEXFONTMAPS=.:$D/fonts/map//: BSTINPUTS=$D/bibtex/bst//: TEXFORMATS=.
echo 'english hyphen.tex' > language.dat; echo '\\input hyphen.tex' > language.def; pdftex -ini -etex -interaction=batchmode -jobname=pdflatex -progname=pdflatex '*pdflatex.ini' >/dev/null 2>&1
cat > r.tex <<'E'
\\pdfmapfile{=cm.map}\\documentclass{article}\\begin{document}\\title{Report}\\author{A}\\maketitle\\tableofcontents
\\section{One}See \\ref{t} and \\cite{knuth}.\\begin{table}\\begin{tabular}{ll}a&b\\\\\\\\1&2\\end{tabular}\\caption{T}\\label{t}\\end{table}
\\section{Two}$$\\int_0^1 x^2\\,dx=\\frac13$$\\bibliographystyle{plain}\\bibliography{r}\\end{document}
E
echo '@book{knuth, author={Donald Knuth}, title={The TeXbook}, year=1984, publisher={AW}}' > r.bib
pdflatex -interaction=batchmode r >/dev/null; bibtex -terse r 2>/dev/null; pdflatex -interaction=batchmode r >/dev/null; pdflatex -interaction=batchmode r >/dev/null
pdftotext r.pdf - | wc -w; pdfinfo r.pdf | grep Pages; pdftoppm -r 50 -png r.pdf page; qpdf --linearize r.pdf l.pdf; qpdf --encrypt u o 256 -- r.pdf e.pdf; qpdf --check l.pdf | tail -1; gs -q -sDEVICE=pdfwrite -o s.pdf r.pdf r.pdf; ls | wc -l; rm -f *.aux *.log *.toc *.bbl *.blg
"""),
    "image-magick": (SH, """
command -v convert >/dev/null || exit 0; export HOME=$PWD; mkdir in out
for i in $(seq 25); do convert -size 64x48 plasma:red-blue -seed $i in/$i.png; done
mogrify -path out -resize 50% -format jpg in/*.png; mogrify -strip -quality 80 out/*.jpg; convert out/*.jpg -append all.png; montage out/*.jpg -geometry +2+2 m.png 2>/dev/null
identify out/*.jpg | wc -l; convert in/1.png -rotate 90 -blur 0x2 r.gif; convert -delay 10 in/[1-5].png a.gif; compare -metric RMSE in/1.png in/2.png null: 2>&1 | head -c 9; for f in out/*.jpg; do mv $f ${f%.jpg}-small.jpg; done; echo; ls out | wc -l
"""),
    "ruby-scripts": (SH, """
command -v ruby >/dev/null || exit 0; export HOME=$PWD; mkdir -p g/lib g/test && cd g
echo 'module Slug; def self.call(s) = s.downcase.gsub(/[^a-z]+/, "-"); end' > lib/slug.rb
printf 'require "minitest/autorun"\\nrequire "slug"\\nclass T < Minitest::Test\\n  def test_a; assert_equal "a-b", Slug.call("A b"); end\\nend\\n' > test/t.rb
ruby -Ilib test/t.rb 2>&1 | tail -1; printf 'Gem::Specification.new { |s| s.name = "slug"; s.version = "1"; s.summary = "x"; s.authors = ["a"]; s.files = ["lib/slug.rb"] }\\n' > slug.gemspec
gem build -q slug.gemspec 2>&1 | tail -1; gem install -q --local --no-document --install-dir gems slug-1.gem 2>&1 | tail -1; GEM_PATH=gems ruby -rslug -e 'puts Slug.call("X Y")'
ruby -rerb -rjson -ryaml -e 'puts ERB.new("<% 3.times do |i| %><%= i %><% end %>").result; puts JSON.generate(YAML.load("a: [1, 2]")); 4.times.map { |i| fork { exit i } }; puts Process.waitall.size; puts `uname -s`; puts Dir["**/*"].size; Thread.new { puts 1 }.join; r = Ractor.new { 2 } rescue nil'
exit 0
"""),
    "r-statistics": (SH, """
command -v Rscript >/dev/null || exit 0; export HOME=$PWD
cat > a.R <<'E'
n <- 500 + as.integer(commandArgs(TRUE)[1]); d <- data.frame(g = sample(letters[1:5], n, TRUE), x = rnorm(n)); d$y <- 3 * d$x + rnorm(n)
write.csv(d, "d.csv", row.names = FALSE); d <- read.csv("d.csv"); print(coef(lm(y ~ x, d))); print(aggregate(y ~ g, d, mean)); pdf("p.pdf"); plot(d$x, d$y); hist(d$y); invisible(dev.off())
print(length(parallel::mclapply(1:8, function(i) mean(rnorm(1e4)), mc.cores = 2))); saveRDS(d, "d.rds"); stopifnot(nrow(readRDS("d.rds")) == n); print(system("echo hi", intern = TRUE)); con <- socketConnection; cat(Sys.info()[["sysname"]], R.version.string, "\\n")
E
Rscript --vanilla a.R $1; R -q --no-save -e 'summary(c(1, 2, 3))' 2>/dev/null | tail -1; ls | wc -l
"""),
    "small-languages": (SH, """
export HOME=$PWD
command -v lua5.4 >/dev/null && lua5.4 -e 'local t = {} for i = 1, 2000 do t[i] = tostring(i) end table.sort(t) print(#table.concat(t)) local f = io.popen("date +%Y") print(f:read("a")) os.rename("x", "y") print(os.tmpname() ~= nil) local c = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) print(c(), c())'
command -v php >/dev/null && php -r 'echo strlen(json_encode(range(1, 100))), "\\n"; file_put_contents("a.txt", serialize([1, 2])); print_r(unserialize(file_get_contents("a.txt"))); echo shell_exec("ls | wc -l"); echo preg_replace("/a/", "b", "aaa"), "\\n";'
perl -MFile::Find -MStorable -MTime::HiRes -MIPC::Open3 -e 'my $n = 0; find(sub { $n++ if -f }, "/usr/share/perl5"); print "$n\\n"; store([1..10], "s"); print scalar(@{retrieve("s")}), "\\n"; my $p = open3(my $in, my $out, undef, "sort"); print $in "b\\na\\n"; close $in; print <$out>; waitpid $p, 0; my $k = fork // die; exit 0 unless $k; waitpid $k, 0'
gawk 'BEGIN { c = "sort"; print "b\\na" |& c; close(c, "to"); while ((c |& getline l) > 0) print l; print strftime("%Y"), ENVIRON["HOME"] != "" }' 2>/dev/null; printf '2k 7 3 / p\\n' | dc 2>/dev/null; echo 'scale=20; 4*a(1)' | bc -l 2>/dev/null; tclsh <<< 'set f [open x w]; puts $f [clock seconds]; close $f; puts [exec cat x | wc -c]' 2>/dev/null; exit 0
"""),
    "numpy-pandas": (PY, """
import sys
try: import numpy as np, pandas as pd
except ImportError: sys.exit(0)
r = np.random.default_rng(int(sys.argv[1])); d = pd.DataFrame({"g": r.integers(0, 20, 20000), "x": r.normal(size=20000), "t": pd.date_range("2024-01-01", periods=20000, freq="min")})
d.to_csv("d.csv", index=False); e = pd.read_csv("d.csv", parse_dates=["t"]); print(e.groupby("g").x.agg(["mean", "std"]).shape, e.set_index("t").x.resample("D").mean().shape)
a = r.normal(size=(300, 300)); print(np.linalg.svd(a, compute_uv=False)[:2], np.linalg.inv(a).shape, np.fft.rfft(a).shape); m = np.memmap("m.dat", dtype="f8", mode="w+", shape=(500, 500)); m[:] = 1; m.flush(); np.savez_compressed("a.npz", a=a, e=e.x); print(np.load("a.npz")["a"].shape)
for n in range(30): e.sample(50, random_state=n).to_json(f"s{n}.json")
e.to_pickle("p.pkl"); print(pd.read_pickle("p.pkl").merge(pd.DataFrame({"g": range(20), "w": 1.0})).pivot_table(index="g", values="x").shape)
"""),
    "notebook-kernel": (SH, """
export HOME=$PWD; python3 -c 'import ipykernel, jupyter_client' 2>/dev/null || exit 0
cat > k.py <<'E'
import sys
from jupyter_client.manager import KernelManager
for transport in ("tcp", "ipc"):
    km = KernelManager(transport=transport, kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]) if False else KernelManager(transport=transport)
    km.start_kernel(); kc = km.client(); kc.start_channels(); kc.wait_for_ready(timeout=60)
    for code in ("import os, sys; x = 41", "x + 1", "!ls | wc -l", "%timeit -n1 -r1 sum(range(1000))", "%%bash\\necho hi", "import subprocess; subprocess.run(['true'])", "1 / 0", "open('out.txt', 'w').write('x')"):
        kc.execute(code); print(kc.get_shell_msg(timeout=30)["content"]["status"])
    km.interrupt_kernel(); kc.stop_channels(); km.shutdown_kernel(now=False)
E
timeout 100 python3 k.py 2>&1 | tail -20; exit 0
"""),
    "keys-and-signing": (SH, """
export HOME=$PWD GNUPGHOME=$PWD/.gnupg; mkdir -m 700 .gnupg .ssh; echo 'the report' > f
gpg --batch -q --passphrase '' --quick-gen-key 'A <a@example.org>' ed25519 sign 1d 2>/dev/null; gpg --batch -q --armor --detach-sign f 2>/dev/null; gpg -q --verify f.asc f 2>/dev/null; gpg --armor --export > pub.asc; gpg --batch -q --passphrase x --pinentry-mode loopback -c f 2>/dev/null; gpg --list-keys --with-colons | wc -l; gpgconf --kill all
command -v age >/dev/null && { age-keygen -o key.txt 2>/dev/null; age -r $(age-keygen -y key.txt) -o f.age f; age -d -i key.txt f.age; }
ssh-keygen -q -t ed25519 -N '' -C a@b -f .ssh/id_ed25519; ssh-keygen -q -t rsa -b 2048 -m PEM -N '' -f deploy_key; ssh-keygen -y -f deploy_key > d.pub; ssh-keygen -lf d.pub | wc -l; ssh-keygen -Y sign -q -f .ssh/id_ed25519 -n file f 2>/dev/null; echo "a@b $(cat .ssh/id_ed25519.pub)" > allowed; ssh-keygen -Y verify -f allowed -I a@b -n file -s f.sig < f; printf 'Host h\\n  User u\\n' > .ssh/config; ssh -F .ssh/config -G h | head -1
eval $(ssh-agent) >/dev/null; ssh-add -q .ssh/id_ed25519 2>/dev/null; ssh-add -l | wc -l; ssh-agent -k >/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 9 -subj /CN=ca 2>/dev/null; openssl req -newkey rsa:2048 -nodes -keyout s.key -out s.csr -subj /CN=s 2>/dev/null; openssl x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out s.crt 2>/dev/null; openssl verify -CAfile ca.crt s.crt; openssl pkcs12 -export -in s.crt -inkey s.key -passout pass:x -out s.p12; chmod 600 *.key; cat s.key s.crt > s.pem; exit 0
"""),
    "debuggers": (SH, """
cat > a.c <<'E'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int c, char **v) { char *p = malloc(16); strcpy(p, "hello"); printf("%s %d\\n", p, fib(c > 1 ? atoi(v[1]) : 12)); free(p); return 0; }
E
gcc -g -O0 -o a a.c; gdb -q -batch -ex 'break fib if n == 3' -ex run -ex bt -ex 'info locals' -ex 'p n' -ex finish -ex kill ./a 2>&1 | tail -3
strace -f -o t.txt -e trace=openat,execve,write ./a 2>/dev/null; wc -l < t.txt; strace -c ./a 2>&1 | tail -1; ltrace -o l.txt ./a 2>/dev/null; valgrind -q --error-exitcode=3 ./a 2>&1 | tail -2; valgrind -q --tool=callgrind --callgrind-out-file=cg ./a 2>&1 | tail -1; (ulimit -c unlimited; sh -c 'kill -ABRT $$') 2>/dev/null
printf 'x = 1\\nprint(x)\\n' > x.py; python3 -m pdb -c 'b 2' -c c -c 'p x' -c q x.py 2>&1 | tail -2; (sleep 3 & P=$!; gdb -q -batch -p $P -ex bt 2>&1 | tail -1; kill $P); exit 0
"""),
    "rsync-backups": (SH, """
command -v rsync >/dev/null || exit 0; mkdir -p src/{a,b,c} snap; for i in $(seq 400); do echo "file $i" > src/$(printf a\\\\nb\\\\nc | sed -n $((i % 3 + 1))p)/$i.txt; done; ln -s a src/l
for day in 1 2 3 4 5; do for i in $(seq 20); do echo "day $day" >> src/a/$((i * 3)).txt; done; rsync -a --delete ${last:+--link-dest=$PWD/$last} src/ snap/$day/; last=snap/$day; done; rm -rf snap/1 snap/2
rsync -aHAXn --itemize-changes src/ snap/5/ 2>/dev/null | wc -l; rsync -rc --inplace --backup --suffix=~ src/ mirror/; rm -r src/b; rsync -a --delete-after --partial src/ mirror/; du -s snap | wc -l; find snap -links +1 -type f | wc -l; tar -c --listed-incremental=s.snar -f full.tar src; echo x > src/a/new; tar -c --listed-incremental=s.snar -f inc.tar src; (cd snap/5 && find . -type f -print0 | xargs -0 sha256sum > ../sums; sha256sum -c --quiet ../sums); ls snap
"""),
    "go-module": (SH, """
export PATH=$PATH:/usr/local/go/bin HOME=$PWD GOCACHE=$PWD/.cache GOFLAGS=-mod=mod GOPROXY=off GOTELEMETRY=off CGO_ENABLED=0; command -v go >/dev/null || exit 0
mkdir -p m/sum && cd m && printf 'module example.org/m\\n\\ngo 1.20\\n' > go.mod; printf 'package sum\\n\\n// All adds.\\nfunc All(v ...int) (s int) {\\n\\tfor _, x := range v {\\n\\t\\ts += x\\n\\t}\\n\\treturn\\n}\\n' > sum/sum.go
printf 'package sum\\n\\nimport "testing"\\n\\nfunc TestAll(t *testing.T) {\\n\\tt.Parallel()\\n\\tif All(1, 2) != 3 {\\n\\t\\tt.Fatal()\\n\\t}\\n}\\n' > sum/sum_test.go; printf 'package main\\n\\nimport "example.org/m/sum"\\n\\nfunc main() { println(sum.All(1, 2)) }\\n' > main.go
gofmt -l . ; go build -p 2 -o app . 2>&1 | tail -2; ./app; go test -p 2 ./sum 2>&1 | tail -1; go list -m all 2>&1 | tail -1; go env GOOS; go mod tidy 2>&1 | tail -1; exit 0
"""),
    "node-bundler": (SH, """
command -v node >/dev/null || exit 0; export HOME=$PWD npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false; mkdir -p app/packages/{a,b} app/src && cd app
echo '{"name": "app", "private": true, "workspaces": ["packages/*"], "scripts": {"build": "node build.mjs", "postbuild": "ls dist | wc -l"}}' > package.json; for p in a b; do echo "{\\"name\\": \\"$p\\", \\"version\\": \\"1.0.0\\", \\"main\\": \\"i.js\\"}" > packages/$p/package.json; echo "module.exports = '$p'" > packages/$p/i.js; done
npm install --silent 2>&1 | tail -1; for i in $(seq 60); do echo "export const v$i = $i; export default () => import('./m$((i % 60 + 1)).js')" > src/m$i.js; done
cat > build.mjs <<'E'
import { readFile, writeFile, mkdir, readdir, rename, rm, watch } from "node:fs/promises"; import { createHash } from "node:crypto"; import { gzipSync, brotliCompressSync } from "node:zlib"; import { Worker } from "node:worker_threads"; import { once } from "node:events";
await rm("dist", { recursive: true, force: true }); await mkdir("dist");
const all = await Promise.all((await readdir("src")).map(async f => [f, await readFile("src/" + f, "utf8")]));
for (const [f, t] of all) { const h = createHash("sha256").update(t).digest("hex").slice(0, 8), o = `dist/${f.replace(".js", "")}.${h}.js`; await writeFile(o + ".tmp", t.replace(/export const/g, "const")); await rename(o + ".tmp", o); await writeFile(o + ".gz", gzipSync(t)); await writeFile(o + ".br", brotliCompressSync(t)); await writeFile(o + ".map", JSON.stringify({ version: 3, sources: [f], mappings: "" })); }
const w = new Worker("require('node:worker_threads').parentPort.postMessage(require('a') + require('b'))", { eval: true }); console.log((await once(w, "message"))[0]);
E
npm run -s build; npm run -s build; npm ls --all 2>/dev/null | wc -l; npm pack -s --workspaces 2>/dev/null | wc -l; node --check src/m1.js 2>/dev/null; node -p 'process.memoryUsage().rss > 0'; exit 0
"""),
    "local-services": (SH, """
export HOME=$PWD PATH=$PATH:/usr/sbin; mkdir -p www tmp; echo hello > www/index.html
command -v redis-server >/dev/null && { redis-server --port 6390 --bind 127.0.0.1 --daemonize yes --dir $PWD --save '' --logfile r.log >/dev/null 2>&1; for i in $(seq 30); do redis-cli -p 6390 ping 2>/dev/null | grep -q PONG && break; sleep 0.1; done; for i in $(seq 20); do redis-cli -p 6390 set k$i v$i >/dev/null; done; redis-cli -p 6390 dbsize; redis-cli -p 6390 bgsave; redis-cli -p 6390 config get maxmemory | wc -l; }
command -v nginx >/dev/null && { echo "pid $PWD/n.pid; error_log $PWD/e.log; worker_processes 2; events {} http { access_log $PWD/a.log; client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u; scgi_temp_path tmp/s; server { listen 127.0.0.1:8085; root $PWD/www; location /p { proxy_pass http://127.0.0.1:8086/; } } }" > n.conf; nginx -t -c $PWD/n.conf -p $PWD 2>&1 | tail -1; nginx -c $PWD/n.conf -p $PWD 2>/dev/null; for i in $(seq 30); do curl -s -o /dev/null http://127.0.0.1:8085/; done; python3 -m http.server 8086 -d www >/dev/null 2>&1 & H=$!; sleep 0.5; curl -s http://127.0.0.1:8085/p; curl -sI http://localhost:8085/ | head -1; nginx -c $PWD/n.conf -p $PWD -s reload 2>/dev/null; nginx -c $PWD/n.conf -p $PWD -s stop 2>/dev/null; kill $H; wc -l < a.log; }
command -v socat >/dev/null && { socat TCP-LISTEN:8087,bind=127.0.0.1,reuseaddr,fork SYSTEM:'tr a-z A-Z' & S=$!; sleep 0.4; for i in 1 2 3; do echo shout | socat - TCP:127.0.0.1:8087; done; kill $S; }; command -v nc >/dev/null && { nc -l -p 8088 -s 127.0.0.1 > got & sleep 0.3; echo sent | nc -q 0 127.0.0.1 8088; wait $!; cat got; nc -z -v -w 1 127.0.0.1 8085 2>&1 | wc -l; for p in 5432 3306 6390 8080; do nc -z -w 1 localhost $p && echo up $p; done; }
redis-cli -p 6390 shutdown nosave 2>/dev/null; exit 0
"""),
    "schedulers": (SH, """
export HOME=$PWD; mkdir -p logs jobs; for i in $(seq 6); do seq 2000 > logs/app$i.log; done
printf '%s/logs/*.log {\\n rotate 3\\n size 1k\\n compress\\n missingok\\n copytruncate\\n}\\n' "$PWD" > lr.conf; chmod 644 lr.conf; PATH=$PATH:/usr/sbin; for n in 1 2 3; do logrotate -f -s st lr.conf 2>&1 | tail -1; for i in $(seq 6); do seq 500 >> logs/app$i.log; done; done; ls logs | wc -l
cat > cron.py <<'E'
import sched, subprocess, time, sys
s = sched.scheduler(time.monotonic, time.sleep)
for i in range(8): s.enter(0.15 * i, 1, lambda i=i: subprocess.run(["sh", "-c", f"date >> jobs/{i % 3}.out; sleep 0.05"]))
s.run()
E
python3 cron.py; (flock -n 9 || exit 1; sleep 0.2) 9> lock & flock -w 2 lock true; wait; command -v inotifywait >/dev/null && { (sleep 0.3; touch jobs/new; mv jobs/new jobs/done) & inotifywait -qq -t 3 -e create jobs; wait; }; command -v entr >/dev/null && { (sleep 0.4; echo x >> lr.conf) & timeout 2 sh -c 'ls lr.conf | entr -n -z wc -l lr.conf' 2>/dev/null; wait; }
printf '*/5 * * * * echo tick\\n' > crontab.txt; crontab crontab.txt 2>/dev/null; for i in 1 2 3 4 5 6; do curl -s -m 1 -o /dev/null http://127.0.0.1:8099/health || true; sleep 0.25; done; find logs -name '*.gz' -mmin -5 -exec zcat {} + | wc -l; timeout -s INT 0.5 sleep 3; nohup sleep 0.1 >/dev/null 2>&1 & wait; exit 0
"""),
    "mass-renames": (SH, """
mkdir -p m/{x,y,z}; for i in $(seq 260); do echo "song $i" > "m/x/Track $i (live).MP3"; echo $i > m/y/IMG_$i.JPG; done
find m -depth -name '* *' -print0 | while IFS= read -r -d '' f; do mv "$f" "$(dirname "$f")/$(basename "$f" | tr ' ' _)"; done; find m/x -name '*.MP3' | sed 's/.*/"&"/' | xargs -n 1 sh -c 'mv "$0" "${0%.MP3}.mp3"'
command -v rename >/dev/null && { rename 's/\\(live\\)/live/' m/x/*.mp3; rename 'y/A-Z/a-z/' m/y/*.JPG; }; command -v parallel >/dev/null && { echo will cite | parallel --citation >/dev/null 2>&1; ls m/y | parallel -j 4 'cp m/y/{} m/z/{.}.copy'; }; find m -type f -exec md5sum {} + | sort | uniq -w32 -D | wc -l; find m -type f | shuf -n 40 | xargs -P 3 -n 5 touch -d yesterday; find m -newermt yesterday -type f | wc -l
python3 -c 'import os, pathlib
for p in sorted(pathlib.Path("m/y").iterdir()): p.rename(p.with_name("2024-" + p.name))
for a, b in zip(*[iter(sorted(os.listdir("m/x")))] * 2): os.rename("m/x/" + a, "m/t"); os.rename("m/x/" + b, "m/x/" + a); os.rename("m/t", "m/x/" + b)'; ls m/* | wc -l
"""),
    "sessions-and-packaging": (SH, GIT + """
export TERM=xterm-256color LANG=C.UTF-8; tmux -L w -f /dev/null new-session -d -s w -x 100 -y 30 'bash --norc' 2>/dev/null && { tmux -L w send-keys -t w 'echo $((6*7)) > answer; ls' Enter; tmux -L w split-window -t w 'top -b -n 1 | head -20; sleep 1'; sleep 0.8; tmux -L w capture-pane -p -t w | wc -l; tmux -L w list-panes -t w | wc -l; tmux -L w kill-server; }; cat answer 2>/dev/null
command -v expect >/dev/null && expect -c 'log_user 0; set timeout 1; spawn python3 -q; expect ">>>"; send "6*7\\r"; expect "42"; puts got; send "exit()\\r"; expect eof; spawn bash --norc -i; expect "$"; send "read -sp Password: x; echo done\\r"; expect "Password:"; send "secret\\r"; expect "done"; send "exit\\r"; expect eof'
script -qc 'git --version; sleep 0.1' t.out -T t.tim </dev/null >/dev/null 2>&1; wc -l < t.out
mkdir -p pkg/DEBIAN pkg/usr/bin; printf '#!/bin/sh\\necho hi\\n' > pkg/usr/bin/hi; chmod 755 pkg/usr/bin/hi; printf 'Package: hi\\nVersion: 1\\nArchitecture: all\\nMaintainer: A <a@b>\\nDescription: x\\n' > pkg/DEBIAN/control; printf '#!/bin/sh\\nset -e\\n' > pkg/DEBIAN/postinst; chmod 755 pkg/DEBIAN/postinst
dpkg-deb --root-owner-group -b pkg hi.deb >/dev/null; dpkg-deb -c hi.deb | wc -l; command -v fakeroot >/dev/null && fakeroot sh -c 'chown root:root pkg/usr/bin/hi; tar cf r.tar pkg; stat -c %u pkg/usr/bin/hi'; dpkg-deb -x hi.deb x; sh x/usr/bin/hi; ar t hi.deb | wc -l
git init -q --bare b.git; git init -q sub; (cd sub; echo x > f; git add .; git commit -qm s); git init -q r && cd r && printf '#!/bin/sh\\nexit 0\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit; for i in $(seq 8); do echo $i >> f; git add f; git commit -qm "c$i"; done; git -c protocol.file.allow=always submodule -q add $PWD/../sub s 2>/dev/null; git commit -qam sub; GIT_SEQUENCE_EDITOR="sed -i '2s/pick/squash/;3s/pick/reword/'" GIT_EDITOR=true git rebase -q -i HEAD~5 --exec true 2>&1 | tail -1; git filter-branch -f --msg-filter 'sed s/c/d/' HEAD~3..HEAD >/dev/null 2>&1; git fast-export --all | wc -l; git push -q ../b.git HEAD:refs/heads/main; git tag v1; git describe --tags; git bundle create -q ../x.bundle HEAD; exit 0
"""),
    "templates-and-state": (SH, """
export HOME=$PWD; mkdir -p stack/{modules,envs/{dev,prod}} && cd stack
cat > plan.py <<'E'
import difflib, fcntl, hashlib, json, os, pathlib, subprocess, sys, tempfile
try: from jinja2 import Environment, DictLoader; render = lambda t, **k: Environment(loader=DictLoader({"t": t})).get_template("t").render(**k)
except ImportError:
    import string; render = lambda t, **k: t.replace("{{ name }}", str(k["name"])).replace("{{ size }}", str(k["size"]))
T = 'resource "vm" "{{ name }}" {\\n  size = {{ size }}\\n  key = file("~/.ssh/id_rsa.pub")\\n  password = "${var.password}"\\n}\\n'
def plan(env, sizes):
    lock = open(f"envs/{env}/.lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    state = pathlib.Path(f"envs/{env}/terraform.tfstate"); old = json.loads(state.read_text()) if state.exists() else {}
    new = {f"vm{i}": {"text": render(T, name=f"vm{i}", size=s), "id": hashlib.sha1(f"{env}{i}".encode()).hexdigest()} for i, s in enumerate(sizes)}
    diff = [l for k in sorted(set(old) | set(new)) for l in difflib.unified_diff(old.get(k, {}).get("text", "").splitlines(), new.get(k, {}).get("text", "").splitlines(), lineterm="")]
    for k, v in new.items(): pathlib.Path(f"envs/{env}/{k}.tf").write_text(v["text"])
    for k in set(old) - set(new): os.unlink(f"envs/{env}/{k}.tf")
    if state.exists(): os.replace(state, f"{state}.backup")
    fd, t = tempfile.mkstemp(dir=state.parent); os.write(fd, json.dumps(new, indent=1).encode()); os.fsync(fd); os.close(fd); os.rename(t, state)
    return len(diff)
for env in ("dev", "prod"): print(env, plan(env, range(40)), plan(env, range(3, 60)), plan(env, range(10)))
E
python3 plan.py; printf 'all: {{hosts}}\\nuser: ${USER_NAME}\\n' > t; USER_NAME=x envsubst < t 2>/dev/null; m4 -P <<< 'm4_define(a, b)a' 2>/dev/null; jq -r '.vm1.id' envs/dev/terraform.tfstate 2>/dev/null; for f in envs/*/*.tf; do sed -i 's/size = /size  = /' $f; done; grep -rl password . | wc -l; find . -name '*.tf' | xargs cat | sha256sum; python3 - <<'E'
import concurrent.futures as c, multiprocessing as m, multiprocessing.shared_memory as s, os, signal
def f(n): return sum(range(n * 1000))
if __name__ == "__main__":
    b = s.SharedMemory(create=True, size=4096); b.buf[0] = 7; q = m.get_context("fork").Queue(); p = m.get_context("fork").Process(target=lambda: q.put(b.buf[0])); p.start(); print(q.get()); p.join(); b.close(); b.unlink()
    with c.ProcessPoolExecutor(3, mp_context=m.get_context("fork")) as e: print(sum(e.map(f, range(60))))
    with m.get_context("fork").Manager() as g: d = g.dict(); d["a"] = 1; print(dict(d))
    x = m.get_context("fork").Process(target=signal.pause); x.start(); x.terminate(); x.join(); print(x.exitcode)
E
exit 0
"""),
}
