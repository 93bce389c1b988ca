#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches with `reset: files`: a job finds nothing of the one before it, whatever that left, and does not suffer from it; what
stays is what SECURITY.md lists; refusals; sandboxes that are given up; figures of each job."""

import json
import os
import signal
import sys
import time

from broker import Broker, hybrid
from runner import check, run_cases, until
from slowness import scaled

DISK = """
pool: 2
bpf: {enabled: false}
templates:
  - {name: default, storage: disk, limits: {disk: 32M, inodes: 2000}}
"""

# Everything that a job can see of its sandbox, as one line of JSON.
LOOK = r"""
import ctypes, json, os, resource, socket
def read(path):
    try:
        with open(path, errors="replace") as f: return f.read()
    except OSError as e: return e.strerror
seen = {}
for folder in ("/", "/home", "/home/agent", "/tmp", "/var", "/var/tmp", "/dev", "/dev/shm", "/dev/pts", "/run"):
    st = os.stat(folder)
    seen[folder] = [sorted(os.listdir(folder)), oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink]
fs = os.statvfs("/tmp")
seen["files in use"] = [fs.f_files - fs.f_ffree, fs.f_blocks - fs.f_bfree]
for kind in ("shm", "sem", "msg"): seen["sysv " + kind] = read("/proc/sysvipc/" + kind).count("\n")
libc = ctypes.CDLL(None, use_errno=True)
seen["queue"] = libc.mq_open(b"/left", os.O_RDONLY)
seen["processes"] = len([p for p in os.listdir("/proc") if p.isdigit()])
for table in ("tcp", "tcp6", "udp", "udp6", "raw", "packet", "netlink", "unix"):
    seen["net " + table] = max(0, read("/proc/net/" + table).count("\n") - 1)
def bind(family, address):
    s = socket.socket(family)
    try: s.bind(address); s.listen(); return "bound"
    except OSError as e: return e.strerror
    finally: s.close()
seen["abstract"] = bind(socket.AF_UNIX, "\0left")
try: seen["port"] = bind(socket.AF_INET, ("127.0.0.1", 8080))
except OSError as e: seen["port"] = e.strerror
seen["keys"] = read("/proc/keys")
seen["limits"] = [resource.getrlimit(i) for i in range(resource.RLIMIT_NLIMITS if hasattr(resource, "RLIMIT_NLIMITS") else 16)]
seen["environment"] = sorted(os.environ.items())
seen["umask"] = os.umask(0)
seen["descriptors"] = sorted(os.listdir("/proc/self/fd"))[:3]
seen["signals"] = [l for l in read("/proc/self/status").split("\n") if l.startswith(("Sig", "Shd", "Cap", "Seccomp:", "NoNew", "Groups"))]
seen["where"] = os.getcwd()
seen["oom"] = read("/proc/self/oom_score_adj")
seen["locks"] = read("/proc/locks")
seen["locked"] = read("/proc/self/status").split("VmLck:")[1].split()[0]
seen["mounts"] = sorted(" ".join(line.split(" ")[4:6]) for line in read("/proc/self/mountinfo").strip().split("\n"))
print(json.dumps(seen))
print(os.readlink("/proc/self/ns/ipc"))
"""

# After these the sandbox may be replaced: the kernel frees a large disk in its own time, and a fork storm is held.
MAY_BE_REPLACED = {"processes that fork without end", "a full disk", "no inode left"}

# One line each: what a hostile job leaves.
LEAVE = {
    "files": "for f in /home/agent /tmp /var/tmp /dev/shm; do echo x > $f/left; mkdir -p $f/.a/b/c; ln -s / $f/link; mkfifo $f/pipe; done",
    "modes and times of its folder": "chmod 111 /home/agent; touch -d 1999-01-01 /home/agent",
    "flags of its folder": "chattr +d +A /home/agent 2>/dev/null; lsattr -d /home/agent; true",
    "a folder without rights": "mkdir /tmp/shut; echo x > /tmp/shut/x; chmod 0 /tmp/shut",
    "names that are not UTF-8": "printf x > \"$(printf '/tmp/\\377\\376')\"; printf x > \"$(printf '/tmp/a\\nb')\"",
    "a full disk": "dd if=/dev/zero of=/tmp/full bs=1M 2>/dev/null; true",
    "no inode left": "i=0; while : > /tmp/n$i; do i=$((i + 1)); done 2>/dev/null; true",
    "files that nobody names": "exec 3> /tmp/gone; rm /tmp/gone; dd if=/dev/zero bs=1M count=4 >&3 2>/dev/null; setsid sleep 1000 & true",
    "processes": "for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &) ; true",
    "zombies": "sh -c 'for i in 1 2 3 4 5 6 7 8; do (exit 0) & done; exec sleep 1000' & sleep 0.1",
    "stopped processes": "sleep 1000 & kill -STOP $!; true",
    "the limits of its processes": "ulimit -n 10; ulimit -c 0; umask 077",
}
LEAVE_PYTHON = {
    "System V objects": r"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for key in list(range(1, 60)) + [0]:
    assert libc.shmget(key, 8192, 0o1000) >= 0 and libc.semget(key, 3, 0o1000) >= 0 and libc.msgget(key, 0o1000) >= 0
id = libc.shmget(77, 1 << 20, 0o1600); libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(id, None, 0); ctypes.memset(at, 65, 1 << 20)
libc.shmctl(id, 11, None)  # SHM_LOCK
""",
    "message queues": r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in (b"/left", b"/" + b"n" * 255, b"/\xff\xfe", b"/a b\n"):
    assert libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o0, None) >= 0, name
i = 0
while libc.mq_open(b"/q%d" % i, os.O_CREAT | os.O_RDWR, 0o0, None) >= 0: i += 1
assert i > 0
""",
    "connections": r"""
import socket
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("127.0.0.1", 8080)); l.listen(200)
for i in range(100):
    c = socket.create_connection(("127.0.0.1", 8080)); a, _ = l.accept(); a.send(b"x" * 1000); a.close(); c.close()
open_ones = [socket.create_connection(("127.0.0.1", 8080)) for i in range(50)]
u = socket.socket(type=socket.SOCK_DGRAM); u.bind(("127.0.0.1", 5353)); u.sendto(b"x", ("127.0.0.1", 5353))
""",
    "abstract names, and sockets that only they themselves hold": r"""
import array, os, socket
l = socket.socket(socket.AF_UNIX); l.bind("\0left"); l.listen()
for i in range(20):
    a, b = socket.socketpair()
    f = os.open(f"/tmp/held{i}", os.O_CREAT | os.O_RDWR); os.write(f, b"x" * 4096); os.unlink(f"/tmp/held{i}")
    for s, o in ((a, b), (b, a)):
        s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno(), o.fileno(), f, l.fileno()]))])
    a.close(); b.close(); os.close(f)
""",
    "locks, watches and timers": r"""
import ctypes, fcntl, os, signal
libc = ctypes.CDLL(None, use_errno=True)
n = libc.inotify_init1(0)
for path in (b"/tmp", b"/home/agent", b"/usr/bin/true", b"/etc/passwd"): assert libc.inotify_add_watch(n, path, 0xfff) >= 0
f = open("/usr/bin/true"); fcntl.flock(f, fcntl.LOCK_SH)
signal.setitimer(signal.ITIMER_REAL, 1000)
if os.fork() == 0: os.setsid(); signal.pause()
""",
    "terminals": r"""
import os, pty
held = [pty.openpty() for i in range(4)]
if os.fork() == 0: os.setsid(); os.open(os.ttyname(held[0][1]), os.O_RDWR); __import__("signal").pause()
""",
    "processes that fork without end": r"""
import os, time
if os.fork() != 0: time.sleep(0.3); os._exit(0)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
""",
}


def line(*args, **more):
    return json.dumps(dict({"args": list(args)}, **more) if more else list(args))


def batch(b, lines, *options, code=0, **kw):
    r = b.cli("batch", "--reset", "files", *options, "-", input="\n".join(lines).encode(), **kw)
    check(r.returncode == code, r)
    results = [json.loads(text) for text in r.stdout.splitlines()]
    return sorted(results, key=lambda d: d["number"])


def python(script, **more):
    return line("/usr/bin/python3", "-c", script, **more)


def what_it_cannot_clean_is_refused(b):
    for options, word in ((["--network", "open"], b"open"), (["--network", "allowlist"], b"allowlist")):
        r = b.cli("batch", "--reset", "files", *options, "-", input=line("true").encode())
        check(r.returncode != 0 and b"reset" in r.stderr and b"BATCH_RESET_FILES needs" in r.stderr and word in r.stderr and not r.stdout, r)
    r = b.cli("batch", "--reset", "file", "/dev/null")
    check(r.returncode == 2 and b"one of sandbox, files" in r.stderr, r)


def same(before, after, what):
    differ = {k: (before[k], after[k]) for k in before if before[k] != after.get(k)}
    check(not differ, f"after {what}: {differ}")


def a_job_finds_nothing_of_what_another_left(b):
    for mode in ("none", "off"):
        leave = {name: line("sh", "-c", script) for name, script in LEAVE.items()}
        leave |= {name: python(script, limits={"wall_ms": int(scaled(5) * 1000)}) for name, script in LEAVE_PYTHON.items() if mode == "none" or name != "connections"}
        lines = [python(LOOK)]
        for job in leave.values():
            lines += [job, python(LOOK)]
        results = batch(b, lines, "-p", "1", "--network", mode, code=1)
        check(len(results) == len(lines), f"{len(results)} results")
        looks = [d for d in results if d["number"] % 2 == 0]
        first, box = looks[0]["stdout"].strip().split("\n")
        first = json.loads(first)
        for name, look, left in zip(leave, looks[1:], results[1::2]):
            check(look["outcome"] == "EXITED" and look["exit_code"] == 0, f"after {name}: {look}")
            check(left["outcome"] in ("EXITED", "SIGNALED", "LIMIT"), f"{name}: {left}")
            if name in LEAVE_PYTHON and "without end" not in name:
                check(left["exit_code"] == 0, f"{name}: {left}")
            seen, where = look["stdout"].strip().split("\n")
            same(first, json.loads(seen), name)
            check(where == box or name in MAY_BE_REPLACED, f"it is another sandbox after {name}")
            box = where


def a_fresh_sandbox_looks_the_same(b):
    recycled = batch(b, [line("true"), python(LOOK)], "-p", "1")[1]
    r = b.cli("batch", "-", input=python(LOOK).encode())
    fresh = json.loads(json.loads(r.stdout)["stdout"].split("\n")[0])
    seen = json.loads(recycled["stdout"].split("\n")[0])
    for known in ("files in use",):  # the files that show limits are on another file system
        fresh.pop(known), seen.pop(known)
    same(fresh, seen, "a reset")


STAYS = r"""
import ctypes, json, os
libc = ctypes.CDLL(None)
name = lambda kind: os.readlink("/proc/self/ns/" + kind)
ids = [libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)]
print(json.dumps({"ns": {k: name(k) for k in ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")}, "pid": os.getpid(),
                  "ids": ids, "host": os.uname().nodename, "mounts": os.stat("/tmp").st_dev}))
"""


def what_stays_is_what_is_documented(b):
    with open(os.path.join(os.path.dirname(__file__), "../../SECURITY.md"), encoding="utf-8") as f:
        text = f.read().replace("\n", " ")
    results = [json.loads(d["stdout"]) for d in batch(b, [python(STAYS)] * 3, "-p", "1")]
    check(all(r["ns"] == results[0]["ns"] for r in results), f"the namespaces stay: {results}")
    check(results[0]["pid"] < results[1]["pid"] < results[2]["pid"], f"pids count on: {results}")
    check(len({tuple(r["ids"]) for r in results}) == 3, f"ids of System V count on: {results}")
    for word in ("**process ids**", "**ids of System V objects**", "**inode numbers**", "**counters of its network namespace**",
                 "**caches**"):
        check(word in text, f"SECURITY.md lists it: {word}")


def a_job_cannot_keep_a_neighbour_from_its_memory_or_time(b):
    jobs = []
    for _ in range(6):
        jobs.append(python("import mmap\nm = mmap.mmap(-1, 100 << 20)\nfor i in range(100): m.write(b'x' * (1 << 20))\nopen('/dev/shm/x', 'wb').write(b'x' * (30 << 20))"))
        jobs.append(line("sh", "-c", "while :; do :; done", limits={"cpu_time_ms": 100}))
        jobs.append(line("true"))
    results = batch(b, jobs, "-p", "1", "--memory", "192M", code=1)
    for d in results:
        want = "LIMIT" if d["number"] % 3 == 1 else "EXITED"
        check(d["outcome"] == want, d)
    small = [d["bill"]["memory_peak_bytes"] for d in results if d["number"] % 3 == 2]
    check(max(small) < 40 << 20, f"the memory of earlier jobs is not in the peak: {small}")
    cpu = [d["bill"]["cpu_user_ns"] + d["bill"]["cpu_system_ns"] for d in results if d["number"] % 3 == 2]
    check(max(cpu) < scaled(50) * 1e6, f"nor is their CPU time: {cpu}")


def figures_are_those_of_the_job(b):
    many = line("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait")
    results = batch(b, [many, line("true"), many, line("sleep", "0.05")], "-p", "1")
    peaks = [d["bill"].get("pids_peak") for d in results]
    if hybrid():
        check(peaks[0] >= 10 and peaks[1] is None and peaks[3] is None, f"a peak of others is not reported: {peaks}")
    else:
        check(peaks[0] >= 10 and peaks[1] <= 2 and peaks[2] >= 10 and peaks[3] <= 2, f"each has its own: {peaks}")


def jobs_with_other_limits_run_as_well(b):
    show = "ulimit -n; readlink /proc/self/ns/ipc"
    lines = [line("sh", "-c", show, limits={"files": 100 + i % 3}) for i in range(12)]
    results = [d["stdout"].split() for d in batch(b, lines, "-p", "1")]
    check([int(got) for got, _ in results] == [100 + i % 3 for i in range(12)], results)
    check(len({box for _, box in results}) == 1, f"in one sandbox: {results}")
    lines = [line("sh", "-c", "df -k /tmp | tail -1", limits={"disk_bytes": (20 + i % 3) << 20}) for i in range(9)]
    results = batch(b, lines, "-p", "2")
    check(all(abs(int(d["stdout"].split()[1]) - ((20 + d["number"] % 3) << 10)) < 1024 for d in results), results)


def a_sandbox_that_is_deleted_or_used_is_replaced(b):
    until(lambda: json.loads(b.cli("ls", "-o", "json").stdout) == [], "those of earlier batches have gone")
    p = b.popen("batch", "--reset", "files", "-p", "1", "--key", "k", "-", stdin=-1, stdout=-1)
    p.stdin.write(line("sh", "-c", "touch /tmp/x; echo a").encode() + b"\n")
    p.stdin.flush()
    check(json.loads(p.stdout.readline())["stdout"] == "a\n", "the first one")
    boxes = json.loads(b.cli("ls", "-o", "json").stdout)
    boxes = boxes if isinstance(boxes, list) else boxes["sandboxes"]
    check(len(boxes) == 1, boxes)
    box = boxes[0]["id"]
    r = b.cli("exec", box, "--", "sh", "-c", "echo poison > /tmp/poison")
    check(r.returncode == 0, r)
    p.stdin.write(line("sh", "-c", "ls /tmp; echo b").encode() + b"\n")
    p.stdin.flush()
    check(json.loads(p.stdout.readline())["stdout"] == "b\n", "the one after it finds nothing")
    for box in json.loads(b.cli("ls", "-o", "json").stdout):
        b.cli("rm", box["id"])
    p.stdin.write(line("echo", "c").encode() + b"\n")
    p.stdin.close()
    check(json.loads(p.stdout.readline())["stdout"] == "c\n", "and the one after that runs elsewhere")
    check(p.wait(scaled(30)) == 0, "the batch ends well")


def nothing_is_left_of_a_batch(b):
    batch(b, [line("true")] * 20, "-p", "4")
    before = b.rests()
    batch(b, [line("sh", "-c", "echo x > /tmp/x")] * 60, "-p", "4")
    until(lambda: json.loads(b.cli("ls", "-o", "json").stdout) == [], "its sandboxes go with it")
    left = b.settles(before)
    check(left is True, left)


def a_batch_that_waits_gives_its_sandboxes_up(b):
    p = b.popen("batch", "--reset", "files", "-p", "2", "-", stdin=-1, stdout=-1)
    p.stdin.write(line("true").encode() + b"\n")
    p.stdin.flush()
    check(json.loads(p.stdout.readline())["exit_code"] == 0, "one job")
    until(lambda: json.loads(b.cli("ls", "-o", "json").stdout) == [], "after some seconds of rest", 60)
    p.stdin.write(line("echo", "again").encode() + b"\n")
    p.stdin.close()
    check(json.loads(p.stdout.readline())["stdout"] == "again\n", "and takes others for the next job")
    check(p.wait(scaled(30)) == 0, "it ends well")


def another_tenant_is_not_kept_waiting(b):
    p = b.popen("batch", "--reset", "files", "-p", "8", "-", stdin=-1, stdout=-3)
    p.stdin.write(("\n".join([line("sh", "-c", ":> /tmp/a")] * 1500) + "\n").encode())
    p.stdin.close()
    slow = []
    while p.poll() is None:
        begun = time.monotonic()
        r = b.stranger("run", "--", "true")
        check(r.returncode == 0, r)
        slow.append(time.monotonic() - begun)
    check(p.returncode == 0 and slow and sorted(slow)[len(slow) // 2] < scaled(2), f"median of {len(slow)}: {sorted(slow)}")


def a_client_that_is_killed_resumes_without_a_second_execution(b):
    jobs = f"{b.folder}/jobs"
    with open(jobs, "w", encoding="utf-8") as f:
        f.write("\n".join(line("sh", "-c", f"echo {i}; cat /proc/sys/kernel/random/uuid") for i in range(300)))
    with open(f"{b.folder}/out", "w", encoding="utf-8") as out:
        p = b.popen("batch", "--reset", "files", "--key", "again", jobs, stdout=out)
        until(lambda: os.path.getsize(f"{b.folder}/out") > 4000, "some results")
        p.send_signal(signal.SIGKILL)
        p.wait()
    r = b.cli("batch", "--reset", "files", "--key", "again", "--resume", jobs)
    check(r.returncode == 0, r)
    with open(f"{b.folder}/out", encoding="utf-8") as f:
        lines = [text for text in f.read().split("\n") if text.endswith("}")] + r.stdout.decode().split("\n")
    results = {}
    for d in (json.loads(text) for text in lines if text):
        check(results.setdefault(d["number"], d["stdout"]) == d["stdout"], f"job {d['number']} was executed twice")
    check(sorted(results) == list(range(300)), f"{len(results)} of 300")


def a_neighbour_that_is_cancelled_disturbs_nobody(b):
    other = b.popen("batch", "--reset", "files", "-p", "4", "-", stdin=-1, stdout=-1)
    other.stdin.write(("\n".join([line("sh", "-c", "trap '' TERM INT; echo here; sleep 100")] * 50) + "\n").encode())
    other.stdin.close()
    until(lambda: any(s["processes"] for s in json.loads(b.cli("ls", "-o", "json").stdout)), "its jobs run")
    mine = b.popen("batch", "--reset", "files", "-p", "4", "-", stdin=-1, stdout=-1)
    mine.stdin.write(("\n".join([line("echo", "mine")] * 200) + "\n").encode())
    mine.stdin.close()
    first = json.loads(mine.stdout.readline())
    other.send_signal(signal.SIGINT)
    results = [first] + [json.loads(text) for text in mine.stdout.read().splitlines()]
    check(len(results) == 200 and all(r["stdout"] == "mine\n" and r["exit_code"] == 0 for r in results), f"{len(results)} of 200")
    check(mine.wait(scaled(30)) == 0 and other.wait(scaled(30)) != 0, "only the other one was cancelled")
    until(lambda: json.loads(b.cli("ls", "-o", "json").stdout) == [], "both are gone")


def at_a_quota_of_sandboxes_it_goes_on_with_those_that_it_has(b):
    def took(lanes):
        begun = time.monotonic()
        check(len(batch(b, [line("true")] * 200, "-p", str(lanes))) == 200, "a result of each")
        return time.monotonic() - begun

    within, above = took(2), took(8)
    # each refusal delayed the whole batch by 50 ms, if it waited for it: by 10 s
    check(above < 2 * within + 4, f"200 jobs took {above:.1f} s above the quota, {within:.1f} s within it")


CASES = [what_it_cannot_clean_is_refused, a_job_finds_nothing_of_what_another_left, a_fresh_sandbox_looks_the_same,
         what_stays_is_what_is_documented, a_job_cannot_keep_a_neighbour_from_its_memory_or_time, figures_are_those_of_the_job,
         jobs_with_other_limits_run_as_well, a_sandbox_that_is_deleted_or_used_is_replaced, nothing_is_left_of_a_batch,
         a_batch_that_waits_gives_its_sandboxes_up, another_tenant_is_not_kept_waiting,
         a_client_that_is_killed_resumes_without_a_second_execution, a_neighbour_that_is_cancelled_disturbs_nobody]
ON_DISK = [a_job_finds_nothing_of_what_another_left, what_stays_is_what_is_documented, nothing_is_left_of_a_batch,
           a_client_that_is_killed_resumes_without_a_second_execution]
NARROW = [at_a_quota_of_sandboxes_it_goes_on_with_those_that_it_has]

if __name__ == "__main__":
    with Broker() as broker:
        CODE = run_cases(CASES, lambda case: case(broker))
    with Broker(config=DISK) as broker:
        if broker.feature("storage-on-disk")["available"]:
            CODE = run_cases(ON_DISK, lambda case: case(broker)) or CODE
    with Broker(config="pool: 2\nquotas:\n  sandboxes_per_caller: 2\n") as broker:
        sys.exit(run_cases(NARROW, lambda case: case(broker)) or CODE % 77)
