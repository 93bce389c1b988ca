#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the tripwires excuse, and jobs that imitate it: debuggers, LeakSanitizer, valgrind, wake-ups of servers, credentials that a job made."""

import shutil
import tempfile

from api import main
from broker import Broker
from runner import check, until

OWN_MEMORY = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[65536] __attribute__((aligned(16)));
static int target, request;
static void *thread(void *x) { target = *(int *)x == -1 ? gettid() : target; pause(); return 0; }
static int tracer(void *x) { (void)x; ptrace(request, target ? target : getppid(), 0, 0); return 0; }
int main(int c, char **v) {
    request = atoi(v[1]);
    target = c > 2 ? atoi(v[2]) : 0;
    pthread_t t;
    if (target == -1) { pthread_create(&t, 0, thread, &target); while (*(volatile int *)&target == -1) sched_yield(); }
    int shared = c > 3 ? 0 : CLONE_VM | CLONE_FS | CLONE_FILES;
    waitpid(clone(tracer, stack + sizeof stack, shared | SIGCHLD, 0), 0, 0);
    return 0;
}
"""
SIGNALS = "import os, signal, sys, time\nn = int(sys.argv[1])\np = os.fork()\nif p == 0:\n    signal.signal(n, signal.SIG_IGN); time.sleep(2); os._exit(0)\n" \
          "time.sleep(0.1)\nfor i in range(900): os.kill(p, n)\nos.kill(p, 9); os.wait()\n"
LIBRARY = "printf '__attribute__((constructor)) static void f(void) {}\\n' > e.c; gcc -shared -fPIC -o e.so e.c; "


def create(b):
    r = b.cli("create", "--ttl", "5m")
    check(r.returncode == 0, r.stderr)
    return r.stdout.decode().strip()


def bash(b, box, script, *args):
    r = b.cli("exec", "-n", box, "--", "/bin/bash", "-c", script, "job", *args)
    check(r.returncode == 0, f"{script}: {r.stdout} {r.stderr}")


def rules_of(b, box):
    """Graver than info. What follows the job's last event is an open that is always found, so nothing is still on its way."""
    b.cli("exec", "-n", box, "--", "/bin/bash", "-c", "cat /etc/shadow 2>/dev/null; true")
    shadow = [lambda f: f["rule"] == "sensitive-path" and "/etc/shadow" in f["text"]][0]
    until(lambda: any(map(shadow, b.json("anomalies", "--sandbox", box)[1])), "the mark")
    return {f["rule"] for f in b.json("anomalies", "--sandbox", box)[1] if f["severity"] != "info" and not shadow(f)}


def raised(b, script, *args):
    box = create(b)
    bash(b, box, script, *args)
    found = rules_of(b, box)
    b.cli("rm", box)
    return found


def only_a_debugger_of_the_host_may_ask_for_ptrace(b, _):
    own = "cp $(command -v python3) ./gdb && ./gdb -c 'import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)'"
    check(raised(b, own) == {"refused-call"}, "a name is no debugger")
    check(raised(b, "exec -a strace python3 -c 'import ctypes; ctypes.CDLL(None).prctl(15, b\"gdb\"); ctypes.CDLL(None).ptrace(16, 1, 0, 0)'")
          == {"dangerous-syscall", "refused-call"}, "nor is an argument, or what a process calls itself: the first process")
    for tool in ("gdb -q -batch -ex run /bin/true", "strace -f /bin/true", "ltrace -o x /bin/true"):
        if shutil.which(tool.split()[0]):
            check(raised(b, f"{tool} || true") == set(), tool)
    if shutil.which("strace"):
        check(raised(b, "strace python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(16, 1, 0, 0)'; python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(16, 1, 0, 0)'")
              == {"dangerous-syscall", "refused-call"}, "what runs beside or below a debugger is none")


def a_process_may_attach_to_its_own_memory_only(b, _):
    build = f"cat > a.c <<'E'\n{OWN_MEMORY}E\ngcc -w -pthread -o a a.c; "
    check(raised(b, build + "./a 16") == set(), "its parent, whose memory it shares")
    check(raised(b, build + "./a 16 -1") == set(), "another thread of its parent")
    for args, why in (("16 0 apart", "its parent, whose memory is another"), ("16902", "another request, PTRACE_SEIZE"), ("0", "PTRACE_TRACEME")):
        check(raised(b, build + f"./a {args}") == {"refused-call"}, why)
    check(raised(b, build + "./a 16 1") == {"dangerous-syscall", "refused-call"}, "the first process")


def libraries_are_found_where_a_loader_runs(b, _):
    if shutil.which("valgrind"):
        check(raised(b, "echo 'int main(void) { return 0; }' > a.c; gcc -o a a.c; valgrind -q ./a") == set(), "valgrind maps the program itself")
    check(raised(b, LIBRARY + "LD_PRELOAD=$PWD/e.so $(ls /lib*/ld-linux-*.so.* | head -1) /bin/ls") == {"preloaded-library"}, "a loader that is executed as a program")
    check(raised(b, LIBRARY + "LD_PRELOAD=$PWD/e.so /bin/ls") == {"preloaded-library"}, "the loader of the program")
    check(raised(b, LIBRARY + "cp /bin/ls app; for i in 1 2 3; do LD_PRELOAD=$PWD/e.so ./app; done; LD_PRELOAD=$PWD/e.so /bin/true") == {"preloaded-library"}, "an own program, and one of the host")
    check(raised(b, LIBRARY + "LD_PRELOAD=$PWD/e.so /bin/ls; LD_PRELOAD=$PWD/e.so /bin/true") == {"preloaded-library", "preloaded-programs"}, "two of the host")


def a_signal_that_ends_nobody_is_no_storm(b, _):
    job = f"cat > s.py <<'E'\n{SIGNALS}E\npython3 s.py $1"
    check(raised(b, job, "23") == set(), "SIGURG")
    check(raised(b, job, "10") == {"signal-storm"}, "SIGUSR1")


def credentials_that_a_job_made_are_its_own(b, _):
    check(raised(b, "umask 077; echo a:b > .pgpass; cat .pgpass; stat .pgpass; echo K=1 > .env; echo L=2 >> .env; cat .env; test -f .env") == set(), "made and read by one job")
    check(raised(b, "mkdir -m 700 .ssh; echo 'Host h' > .ssh/config; cat .ssh/config; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; cat .ssh/id_ed25519 .ssh/id_ed25519.pub; "
                    "cat .ssh/id_rsa.pub 2>/dev/null; true") == set(), "a key pair")
    for script, rule, why in (("echo x > .ssh/authorized_keys", "startup-file", "it lets somebody in"), ("echo x > .ssh/rc", "startup-file", "it is executed"),
                              ("cat .ssh/id_rsa; true", "credential-use", "a key that it did not make"), ("echo x > .env; ln .env y", "credential-use", "linking"),
                              ("echo x > .env; mv .env y", "credential-use", "moving"), ("mkdir x; mv x .ssh/.ssh", "credential-use", "a folder that may list who may log in"),
                              ("echo x > y; mv y .ssh/authorized_keys", "startup-file", "the name of a list of who may log in")):
        check(raised(b, "mkdir -p .ssh; " + script) == {rule}, why)


def a_file_that_a_job_made_may_become_a_credential(b, _):
    """Editors and git write another file, and give it the name."""
    check(raised(b, "echo K=1 > .env; sed -i s/1/2/ .env; cat .env; echo K=3 > .env.new; mv .env.new .env; cat .env; rm .env; echo x > y; ln y .env; cat .env; cat y") == set(), "moved there")
    check(raised(b, "mkdir .aws .kube .docker; ls .aws .kube; cat .kube/config .aws/credentials 2>/dev/null; echo x > .aws/credentials; cat .aws/credentials; rm .aws/credentials") <= {"sensitive-look"},
          "the names in a folder, and what is not there")
    if shutil.which("git"):
        check(raised(b, "export HOME=$PWD; git config --global credential.helper store; printf 'protocol=http\\nhost=h\\nusername=u\\npassword=p\\n' | git credential approve; "
                        "printf 'protocol=http\\nhost=h\\n\\n' | git credential fill | grep -q password=p") == set(), "git stores its own")
    box = create(b)
    given(b, box, ".env")
    bash(b, box, "python3 -c 'import ctypes; open(\"y\", \"w\").close(); assert ctypes.CDLL(None).renameat2(-100, b\"y\", -100, b\".env\", 2) == 0'; cat y >/dev/null")
    check(rules_of(b, box) == {"credential-use"}, "exchanging the names moves it away")
    b.cli("rm", box)
    for script, why in (("mv .env x; cat x", "moving"), ("ln .env x; cat x", "linking"), ("mv .env .env.local; mv .env.local .env; cat .env", "moving there and back"), ("rm .env", "removing"),
                        ("echo x > y; cat .env", "another one")):
        box = create(b)
        given(b, box, ".env")
        bash(b, box, script)
        check(rules_of(b, box) - {"sensitive-look"} == {"credential-use"}, f"what was given: {why}: {b.json('anomalies', '--sandbox', box)[1]}")
        b.cli("rm", box)


def honest_calls_that_are_refused(b, _):
    if shutil.which("perf"):
        check(raised(b, "perf stat /bin/true 2>/dev/null; true") == set(), "perf")
    own = "cp $(command -v python3) ./perf && ./perf -c 'import ctypes, os; ctypes.CDLL(None).syscall({\"x86_64\": 298, \"aarch64\": 241}[os.uname().machine], 0, 0, -1, -1, 0)'"
    check(raised(b, own) == {"refused-call"}, "a name is no perf")
    check(raised(b, "cat /proc/sys/kernel/core_pattern >/dev/null") == set(), "reading what everybody may read")
    check(raised(b, "echo x 2>/dev/null > /proc/sys/kernel/core_pattern; true") == {"sensitive-path"}, "writing to it")
    check(raised(b, "dmesg 2>/dev/null; true") == set(), "reading the log")
    check(raised(b, "dmesg -C 2>/dev/null; true") == {"dangerous-syscall", "refused-call"}, "clearing it")


def given(b, box, path):
    """As a client gives a credential to a sandbox."""
    r = b.cli("cp", "/etc/hostname", f"{box}:{path}")
    check(r.returncode == 0, r.stderr)


def a_credential_that_was_given_stays_one(b, _):
    box = create(b)
    bash(b, box, "echo mine > .env; cat .env")
    check(rules_of(b, box) == set(), "its own")
    bash(b, box, "cat .env")
    check(rules_of(b, box) == {"credential-use"}, "of another job")
    b.cli("rm", box)

    box = create(b)
    job = b.popen("exec", box, "--", "/bin/bash", "-c", "echo mine > .env; cat .env; touch ready; while [ ! -e go ]; do sleep 0.1; done; cat .env", stdout=-1)
    until(lambda: b.cli("exec", "-n", box, "--", "/bin/test", "-e", "ready").returncode == 0, "it waits with its own in place")
    check(rules_of(b, box) == set(), f"its own: {b.json('anomalies', '--sandbox', box)[1]}")
    given(b, box, ".env")
    given(b, box, "go")
    check(job.communicate(timeout=60)[0].split()[0] == b"mine", "it read both")
    until(lambda: any(f["comm"] == "cat" and f["text"] == '".env" was opened: /home/agent/.env' for f in b.json("anomalies", "--sandbox", box)[1]),
          lambda: f"the one that was given in its place is found: {b.json('anomalies', '--sandbox', box)[1]}")
    b.cli("rm", box)

    box = create(b)
    bash(b, box, "mkdir c")
    given(b, box, "c/.env")
    bash(b, box, "mkdir d; echo mine > d/.env; cat d/.env; mv d e; mv c d; cat d/.env")
    check(rules_of(b, box) == {"credential-use"}, "under the name of an own one, by moving folders")
    b.cli("rm", box)

    box = create(b)
    given(b, box, ".env")
    bash(b, box, "ln -s .env id.pub; cat id.pub; for i in $(seq 50); do echo x > w$i; done")
    check(rules_of(b, box) == {"credential-use"}, "a link with the name of a public key")
    b.cli("rm", box)

    box = create(b)
    given(b, box, ".env")
    bash(b, box, "echo >> .env; cat .env")
    check(rules_of(b, box) == {"credential-use"}, "writing to it does not make it one's own")
    b.cli("rm", box)


def what_the_owner_carries_is_not_done_by_a_job(b, _):
    box = create(b)
    with tempfile.TemporaryDirectory() as folder:
        for n in range(3):
            given(b, box, ".env")
            r = b.cli("cp", f"{box}:.env", f"{folder}/{n}")
            check(r.returncode == 0, r.stderr)
    check(rules_of(b, box) == set(), f"into the sandbox, and out of it: {b.json('anomalies', '--sandbox', box)[1]}")
    bash(b, box, "cat .env")
    check(rules_of(b, box) == {"credential-use"}, "a job that reads it")
    b.cli("rm", box)

    box = create(b)
    given(b, box, ".env")
    bash(b, box, "cp /bin/cat stockade-files; exec -a stockade-files ./stockade-files .env")
    check(rules_of(b, box) == {"credential-use"}, "a job with the name of the broker's program")
    b.cli("rm", box)


def found(b, box, rule):
    return [f for f in b.json("anomalies", "--sandbox", box)[1] if f["rule"] == rule]


def evidence_is_logged_and_several_kinds_of_it_are_an_alert(b, _):
    """Of one job, or of several of a sandbox; a flood of one kind hides no other."""
    box = create(b)
    given(b, box, ".env")
    bash(b, box, "cat .env; mv .env .env.bak; mv .env.bak .env; for i in $(seq 200); do : > r$i; chmod u+s r$i; done; unshare -Ur true || true")
    until(lambda: found(b, box, "refused-call"), "it is noted")
    noted = {f["rule"]: f["response"] for f in b.json("anomalies", "--sandbox", box)[1] if f["severity"] != "info"}
    check(noted.keys() >= {"credential-use", "set-id-file", "refused-call"}, str(noted))
    check(set(noted.values()) == {"log"}, f"no alert: {b.json('anomalies', '--sandbox', box)[1]}")
    bash(b, box, "timeout 1 bash -c ': > /dev/tcp/198.51.100.7/443'; true")
    until(lambda: found(b, box, "credential-connection"), "a credential, and a public address")
    bash(b, box, "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'; true")
    until(lambda: found(b, box, "combined-evidence"), "the third kind, of another job")
    one = found(b, box, "combined-evidence")[0]
    check(one["response"] == "alert" and all(part in one["text"] for part in ("set-id-file", "refused-call", "refused-socket")), f"it names its parts: {one}")
    b.cli("rm", box)


TESTS = [evidence_is_logged_and_several_kinds_of_it_are_an_alert, only_a_debugger_of_the_host_may_ask_for_ptrace, a_process_may_attach_to_its_own_memory_only, libraries_are_found_where_a_loader_runs,
         a_signal_that_ends_nobody_is_no_storm, credentials_that_a_job_made_are_its_own, a_credential_that_was_given_stays_one,
         a_file_that_a_job_made_may_become_a_credential, honest_calls_that_are_refused,
         what_the_owner_carries_is_not_done_by_a_job]

if __name__ == "__main__":
    main(Broker(config="pool: 2\n"), TESTS)
