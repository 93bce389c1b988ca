#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches with `warm: python`: jobs that are `python3 -c CODE` are forked from an interpreter that stays when their sandbox is reset.
They give what `python3 -c` gives; what a job does to the interpreter changes nothing for the next one; refusals; figures of each job."""

import json
import sys

from batch_reset import LEAVE_PYTHON, LOOK, line, same
from broker import Broker
from runner import check, run_cases
from slowness import scaled


def snippet(code, *args, **more):
    return line("python3", "-c", code, *args, **more)


def batch(b, lines, *options, code=0):
    r = b.cli("batch", "--reset", "files", "-p", "1", *options, "-", input="\n".join(lines).encode())
    check(r.returncode == code, r)
    return sorted((json.loads(text) for text in r.stdout.splitlines()), key=lambda d: d["number"])


def warm(b, lines, *options, code=0):
    return batch(b, lines, "--warm", "python", *options, code=code)


def counted(b, name):
    text = b.cli("metrics").stdout.decode()
    return sum(int(row.split()[1]) for row in text.splitlines() if row.startswith(f"stockade_batch_warm_{name}_total"))


def what_cannot_be_is_refused(b):
    r = b.cli("batch", "--warm", "python", "-", input=snippet("1").encode())
    check(r.returncode != 0 and b"warm" in r.stderr and b"BATCH_RESET_FILES" in r.stderr and not r.stdout, r)
    r = b.cli("batch", "--reset", "files", "--warm", "ruby", "/dev/null")
    check(r.returncode == 2 and b"python" in r.stderr, r)


# What python3 -c does in ways that a forked interpreter might not.
PLAIN = (
    "import sys; print(sys.argv, sys.orig_argv, sys.flags, sys.executable, sys.path, __name__, __doc__, __spec__, sorted(dir()))",
    "import os; print(sorted(os.environ.items()), os.getcwd(), os.umask(0), sorted(os.listdir('/proc/self/fd')), os.getppid())",
    "import sys; print([(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.fileno(), s.buffer.raw.name)"
    " for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__)])",
    "print(input()); print(input())", "import sys; print(sys.stdin.buffer.read())", "1/0", "x =", "def f():\n  raise ValueError('ä')\nf()",
    "import sys; sys.exit(3)", "import sys; sys.exit(-1)", "import sys; sys.exit(257)", "import sys; sys.exit(1 << 70)", "import sys; sys.exit('why')", "raise SystemExit",
    "raise KeyboardInterrupt", "import os; os.kill(os.getpid(), 15)", "import os; os.abort()", "import os; os._exit(7)",
    "open('/tmp/a', 'w').write('x'); f = open('/tmp/b', 'w'); f.write('kept'); import atexit; atexit.register(lambda: print(open('/tmp/a').read()))",
    "class A:\n  def __del__(self): print('gone')\na = A()\nb = [a]\nb.append(b)",
    "class A:\n  def __del__(self, print=print): print('gone')\nimport types, sys\nm = types.ModuleType('m')\nm.a = A()\nsys.modules['m'] = m",
    "class A:\n  def __del__(self, print=print): print('gone')\nimport types, sys\nm = types.ModuleType('m')\nm.a = A()\n"
    "last, module = sys.modules.popitem()\nsys.modules['m'] = m\nsys.modules[last] = module",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\nprint('main')",
    "import subprocess; print(subprocess.run(['echo', 'child'], capture_output=True).stdout)",
    "import multiprocessing as m\nprint(m.get_context('fork').Pool(2).map(abs, [-1, -2]))",
    "import os\nif os.fork() == 0: print('child'); raise SystemExit(4)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "import asyncio\nasync def f(): print(await asyncio.sleep(0.01, 'slept'))\nasyncio.run(f())",
    "import sys\ndef hook(*a): print('hook', a[0].__name__)\nsys.excepthook = hook\n1/0",
    "import signal; print(signal.getsignal(2), signal.getsignal(13), signal.pthread_sigmask(0, []), signal.getitimer(0))",
    "import resource; print([resource.getrlimit(i) for i in range(16)])", "import os; print(sorted(os.sched_getaffinity(0)), os.nice(0), os.getpgid(0) == os.getsid(0) == os.getpid())",
    "import gc, sys; print(gc.isenabled(), gc.get_threshold(), gc.callbacks, sys.getswitchinterval(), sys.getrecursionlimit(), sys.gettrace())",
    "import sys; sys.stdout.close()", "import os, sys; os.close(1); print('lost')", "print('ä', end='')", "import time; print(time.tzname)", "",
    "import warnings; warnings.warn('w')", "import site; print(site.ENABLE_USER_SITE, site.USER_SITE)", "print(open('/proc/self/cgroup').read() != '')",
)


def it_gives_what_python_gives(b):
    jobs = [snippet(code, "a", "", "ö", stdin="one\ntwo\n") for code in PLAIN]
    jobs += [snippet("import os, time; print(os.environ['A'], time.tzname)", env={"A": "b", "TZ": "Asia/Tokyo"}),
             snippet("import sys; print(sys.flags.optimize, sys.path)", env={"PYTHONOPTIMIZE": "1", "PYTHONPATH": "/x"}),
             line("python3", "-I", "-c", "import sys; print(sys.flags)"), snippet("import os; print(os.getcwd())", workdir="/tmp"),
             snippet("import resource; print(resource.getrlimit(7))", limits={"files": 77}), line("echo", "other"),
             snippet("import resource; print(resource.getrlimit(0))", limits={"cpu_time_ms": 3000})]
    before = counted(b, "jobs")
    told = [[{k: d.get(k) for k in ("outcome", "exit_code", "signal", "reason", "stdout", "stderr")} for d in results]
            for results in (batch(b, jobs, code=1), warm(b, jobs, code=1))]
    for job, one, other in zip(jobs, *told):
        check(one == other, f"{job}:\n{one}\n{other}")
    forked = counted(b, "jobs") - before
    check(forked == len(jobs) - 5, f"{forked} of {len(jobs)} were forked")


# What a job does to the interpreter that it was forked from, which has its uid.
FIND = """
import ctypes, os, signal, resource, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def is_there(p):
    try: os.kill(p, 0); return True
    except OSError: return False
pid, = [p for p in range(2, os.getpid()) if is_there(p)]  # /proc does not show it
def refused(what, *a):
    try: r = what(*a)
    except (OSError, PermissionError): return
    assert isinstance(r, int) and r < 0, (what, a, r)
def lookup(path): return len(os.listdir(path))
"""
ATTACKS = {
    "kill": "os.kill(pid, 9)",
    **{f"kill, and end at once, {n}": "os.kill(pid, 9); os._exit(0)" for n in range(8)},
    "a signal that python handles": "os.kill(pid, signal.SIGINT)",
    "signals that do not end it": "for n in (17, 18, 23, 28) * 100: os.kill(pid, n)",
    "stop": "os.kill(pid, signal.SIGSTOP)",
    "stop, and stop again when it goes on": "if os.fork() == 0:\n os.setsid()\n while True: os.kill(pid, signal.SIGSTOP)\nimport time; time.sleep(0.05)",
    "its descriptors": "resource.prlimit(pid, resource.RLIMIT_NOFILE, (20, 20))",
    "its memory": "resource.prlimit(pid, resource.RLIMIT_AS, (1 << 30, 1 << 30))",
    "its file sizes": "resource.prlimit(pid, resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))",
    "its processes": "resource.prlimit(pid, resource.RLIMIT_NPROC, (1, 1))",
    "its CPU time": "resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))",
    "its priority": "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    "its scheduling class": "os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))",
    "its I/O class": "print(libc.syscall(251 if os.uname().machine == 'x86_64' else 30, 1, pid, 3 << 13))",
    "its processors": "os.sched_setaffinity(pid, [min(os.sched_getaffinity(0))])",
    "ptrace": "refused(libc.ptrace, 16, pid, 0, 0); refused(libc.ptrace, 0x4206, pid, 0, 0)",
    "process_vm_writev": "class V(ctypes.Structure): _fields_ = [('a', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
                         "x = ctypes.create_string_buffer(8); v = V(ctypes.addressof(x), 8); refused(libc.process_vm_writev, pid, ctypes.byref(v), 1, ctypes.byref(v), 1, 0)",
    "its files in /proc": "for f in ('mem', 'maps', 'environ', 'auxv', 'fd/3', 'fd/0', 'exe', 'oom_score_adj', 'timerslack_ns', 'comm', 'clear_refs', 'coredump_filter'):\n"
                          " refused(open, f'/proc/{pid}/{f}', 'r+b')\nfor f in ('fd', 'map_files'): refused(lookup, f'/proc/{pid}/{f}')\nfor f in ('exe', 'cwd', 'root', 'fd/3', 'ns/net'): refused(os.readlink, f'/proc/{pid}/{f}')\nrefused(os.listdir, f'/proc/{pid}/cwd/')",
    "its descriptors by pidfd": "p = os.pidfd_open(pid)\nfor fd in range(10): refused(libc.syscall, 438, p, fd, 0)",
    "its process group": "refused(os.setpgid, pid, os.getpid())",
    "builtins": "import builtins, sys; builtins.print = builtins.len = None; sys.modules['os'] = None; sys.path[:] = []; builtins.__import__ = None",
    "ctypes in its own memory": "ctypes.memset(id(0) + 24, 7, 4)",
    "threads that stay": "import threading, time\nfor i in range(20): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "processes that hold its pipes": "if os.fork() == 0: os.setsid(); import time; time.sleep(1000)",
    "all the memory": "x = [bytearray(1 << 20) for i in range(10**6)]",
    "all the processes": "while True:\n try: os.fork()\n except OSError: break",
    "its pid as a job's": "for n in (0, 1): refused(os.waitpid, pid, n)",
}
KEEPS = {"signals that do not end it", "stop", "ptrace", "process_vm_writev", "its files in /proc", "its descriptors by pidfd", "its process group",
         "builtins", "ctypes in its own memory", "threads that stay", "its pid as a job's"}
AFTER = LOOK + """
import builtins, sys
assert builtins.print is not None and sys.modules["os"] is os and 1 + 0 == 1 and len("ab") == 2
def is_there(p):
    try: os.kill(p, 0); return True
    except OSError: return False
import time
for _ in range(1000):  # an interpreter that was killed may be on its way out
    if sum(map(is_there, range(2, os.getpid()))) == 1: break
    time.sleep(0.01)
else: raise AssertionError("something else is there")
print(os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)), libc.syscall(252 if os.uname().machine == "x86_64" else 31, 1, 0))
"""


def looks(result, name):
    check(result["outcome"] == "EXITED" and result["exit_code"] == 0, f"after {name}: {result}")
    seen, box, inherits = result["stdout"].strip().split("\n")
    return json.loads(seen), box, inherits


def a_job_that_attacks_the_interpreter_changes_nothing_for_the_next_one(b):
    jobs = [snippet(AFTER)]
    limits = {"wall_ms": int(scaled(5) * 1000)}
    for code in ATTACKS.values():
        jobs += [snippet(FIND + code, limits=limits), snippet(AFTER)]
    before = counted(b, "jobs"), counted(b, "lost")
    results = warm(b, jobs, "--memory", "256M", code=1)
    check(len(results) == len(jobs), f"{len(results)} results")
    first, _, inherits = looks(results[0], "nothing")
    for name, did, look in zip(ATTACKS, results[1::2], results[2::2]):
        check(did["outcome"] in ("EXITED", "LIMIT", "SIGNALED"), f"{name}: {did}")
        check(name not in KEEPS or name == "builtins" or did["exit_code"] == 0, f"{name} is refused: {did}")
        seen, _, inherits_now = looks(look, name)
        same(first, seen, name)
        check(inherits_now == inherits, f"after {name}: {inherits_now}, before: {inherits}")
    forked, lost = (counted(b, name) - n for name, n in zip(("jobs", "lost"), before))
    check(forked == len(jobs), f"{forked} of {len(jobs)} were forked, also after the attacks")
    check(9 <= lost <= len(ATTACKS) - len(KEEPS), f"{lost} interpreters were lost")


def a_job_finds_nothing_of_what_another_left(b):
    leave = {name: code for name, code in LEAVE_PYTHON.items() if "without end" not in name}
    jobs = [snippet(LOOK)]
    for code in leave.values():
        jobs += [snippet(code), snippet(LOOK)]
    results = warm(b, jobs)
    first = json.loads(results[0]["stdout"].split("\n")[0])
    for name, look in zip(leave, results[2::2]):
        same(first, json.loads(look["stdout"].split("\n")[0]), name)


def numbers_differ_and_what_jobs_share_is_documented(b):
    code = ("import json, os, random, secrets, tempfile, uuid; print(json.dumps([random.random(), secrets.token_hex(8), str(uuid.uuid4()),"
            " next(tempfile._get_candidate_names()), os.getpid()])); print(hash('a'), id(None))")
    told = [d["stdout"].split("\n") for d in warm(b, [snippet(code)] * 4)]
    for row in zip(*(json.loads(one[0]) for one in told)):
        check(len(set(row)) == 4, f"each has its own: {row}")
    check(len({one[1] for one in told}) == 1, f"the seed of hashes and the addresses are those of the interpreter: {told}")


def figures_are_those_of_the_job(b):
    busy = snippet("import time\nwhile time.process_time() < 0.3: pass\nx = bytearray(60 << 20)\nx[::4096] = b'x' * len(x[::4096])")
    bills = [d["bill"] for d in warm(b, [busy, snippet("1"), busy, snippet("1")])]
    cpu = [d["cpu_user_ns"] + d["cpu_system_ns"] for d in bills]
    check(min(cpu[0], cpu[2]) > 3e8 and max(cpu[1], cpu[3]) < scaled(0.1) * 1e9, f"CPU time: {cpu}")
    peak = [d["memory_peak_bytes"] for d in bills]
    check(min(peak[0], peak[2]) > 60 << 20 and max(peak[1], peak[3]) < 40 << 20, f"memory: {peak}")
    results = warm(b, [snippet("while True: pass", limits={"cpu_time_ms": 200}), snippet("print(1)")], code=1)
    check(results[0]["outcome"] == "LIMIT" and results[1]["stdout"] == "1\n", results)


def imports_of_the_template_are_there(b):
    told = warm(b, [snippet("import sys; print('decimal' in sys.modules)")] * 2, "--template", "imports")
    check([d["stdout"] for d in told] == ["True\n"] * 2, told)


def a_python_that_does_not_start_says_so_for_each_job(b):
    before = counted(b, "jobs")
    results = warm(b, [snippet("print(1)"), line("echo", "a"), snippet("print(1)")], "--template", "broken", code=1)
    check([d["stdout"] for d in results] == ["", "a\n", ""] and "PYTHONHOME" in results[0]["stderr"] and results[2]["exit_code"] == 1, results)
    check(counted(b, "jobs") == before, "none was forked")
    check("batch-cold" in b.log(), f"the log says so: {b.log()[-900:]}")


def a_batch_with_several_at_a_time_runs_each_once(b):
    jobs = [snippet(f"open('/tmp/{i}', 'w').close(); import os; print({i}, len(os.listdir('/tmp')))") for i in range(60)]
    r = b.cli("batch", "--reset", "files", "--warm", "python", "-p", "3", "-", input="\n".join(jobs).encode())
    told = [json.loads(text) for text in r.stdout.splitlines()]
    check(sorted(d["number"] for d in told) == list(range(60)) and all(d["stdout"] == f"{d['number']} 1\n" for d in told), told)


CASES = [what_cannot_be_is_refused, it_gives_what_python_gives, a_job_that_attacks_the_interpreter_changes_nothing_for_the_next_one,
         a_job_finds_nothing_of_what_another_left, numbers_differ_and_what_jobs_share_is_documented, figures_are_those_of_the_job,
         imports_of_the_template_are_there, a_python_that_does_not_start_says_so_for_each_job, a_batch_with_several_at_a_time_runs_each_once]
CONFIG = "pool: 2\ntemplates: [{name: default}, {name: imports, pool: 0, warm: {python: [decimal]}},\n            {name: broken, pool: 0, env: {PYTHONHOME: /nowhere}}]\n"

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        sys.exit(run_cases(CASES, lambda case: case(broker)))
