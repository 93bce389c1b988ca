#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every hostile program of this folder as a job, and checks the host from outside.

    escape.py [--root] [--alone | --beside] [NUMBER...]          (or numbers in STOCKADE_ESCAPES)

With --root the jobs are root inside, over a writable root. --alone runs only the checks that need a host on which nothing
else runs, and --beside only the others; numbers choose among all of them.

Exit 0 if every barrier held; prints one line per check with the barrier it names, then "N passed, N failed, N
skipped".
"""

import ctypes
import glob
import hashlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from broker import BUILD, Broker, hybrid, skip  # noqa: E402
from slowness import scaled  # noqa: E402
from runner import time_passes, until  # noqa: E402

HELD, ESCAPED, SKIPPED = 0, 10, 77
PROGRAM = os.path.join(BUILD, "tests", "escape-job")
START = 'cat >/tmp/e && chmod 755 /tmp/e && exec /tmp/e "$0"'
HOST_FILES = ["/etc/passwd", "/etc/hosts", "/usr/lib/os-release", "/usr/bin/env", "/etc/shadow"]
ID_FIRST, ID_LAST = 0x70000000, 0x80000000


def status(key):
    with open("/proc/self/status", encoding="utf-8") as f:
        found = re.search(rf"^{key}:\s+(\S+)$", f.read(), re.M)
    return found and found.group(1)


class Host:
    """Objects that a job must not reach: a canary, a process, a listener, IPC objects; all contain one nonce."""

    def __init__(self):
        self.nonce = "canary-" + secrets.token_hex(8)
        self.canary = f"/tmp/{self.nonce}"
        with open(self.canary, "w", encoding="utf-8") as f:
            f.write("secret")
        self.process = subprocess.Popen(["sleep", "3600", ], env={"SECRET": self.nonce})
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.nonce)
        self.abstract.listen()
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.key = secrets.randbits(30) | 1
        self.shm = self.libc.shmget(self.key, 4096, 0o1666)
        with open(f"/dev/shm/{self.nonce}", "w", encoding="utf-8") as f:
            f.write("secret")
        # a directory on the host's PATH must not gain files: looked for by name at the end
        self.before = self.look()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.tcp.close()
        self.abstract.close()
        self.libc.shmctl(self.shm, 0, None)
        os.unlink(self.canary)
        os.unlink(f"/dev/shm/{self.nonce}")

    def look(self):
        def digest(path):
            with open(path, "rb") as f:
                return hashlib.sha256(f.read()).hexdigest()
        return {path: (digest(path), os.stat(path).st_nlink, os.stat(path).st_mode) for path in HOST_FILES
                if os.path.exists(path)}

    def environment(self):
        st = os.stat(self.canary)
        names = " ".join(os.readlink(f"/proc/self/ns/{n}") for n in os.listdir("/proc/self/ns"))
        return {
            "ESCAPE_CANARY": self.canary, "ESCAPE_CANARY_DEV": st.st_dev, "ESCAPE_CANARY_INO": st.st_ino,
            "ESCAPE_NONCE": self.nonce, "ESCAPE_HOST_PID": self.process.pid, "ESCAPE_NS": f" {names} ",
            "ESCAPE_FILTERS": status("Seccomp_filters") or 0, "ESCAPE_USER": USER,
            "ESCAPE_PORT": self.tcp.getsockname()[1], "ESCAPE_SHMID": self.shm, "ESCAPE_SHMKEY": self.key,
        }

    def pids_with_nonce(self):
        found = []
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if pid.isdigit() and self.nonce.encode() in f.read().replace(b"\0", b" ").split()[-1:][0:1]:
                        found.append(int(pid))
            except (OSError, IndexError):
                pass
        return found

    def made_files(self):
        return [f"{d}/{self.nonce}" for d in ("/", "/usr", "/usr/bin", "/etc", "/var", "/opt", "/root", "/dev")
                if os.path.exists(f"{d}/{self.nonce}")]


class Job:
    """One program run as a job: its output, and the broker's result."""

    def __init__(self, broker, host, number, flags=(), stdin=None):
        args = ["run", "-o", "json", "--label", f"check={number}"]
        for key, value in host.environment().items():
            args += ["--env", f"{key}={value}"]
        if not any(f.startswith("--timeout") for f in flags):
            args += ["--timeout", f"{scaled(60):.0f}s"]
        if "--cpu-time" not in flags:  # where processors are emulated, what others take counts as the job's
            args += ["--cpu-time", f"{scaled(60):.0f}s"]
        started = time.monotonic()
        with open(PROGRAM, "rb") as program:
            r = broker.cli(*args, *flags, "--", "/bin/sh", "-c", START, str(number), stdin=stdin or program)
        self.seconds = time.monotonic() - started
        self.code, self.stderr = r.returncode, r.stderr.decode(errors="replace")
        import json
        try:
            self.answer = json.loads(r.stdout)
        except ValueError:
            raise AssertionError(f"no JSON from run: {r.stdout[:300]!r} {self.stderr[:500]}") from None
        self.result = self.answer.get("result", self.answer)
        self.text = self.answer.get("stdout", "")
        self.outcome = self.result.get("outcome", "")
        self.limit = (self.result.get("limit_hit") or {}).get("name", "")
        self.also = [h.get("name") for h in self.result.get("limits_also_hit") or []]
        self.bill = self.result.get("bill") or {}

    def figure(self, name):
        value = self.bill.get(name)
        return int(value["value"] if isinstance(value, dict) else value or 0)

    def line(self):
        lines = [x for x in self.text.splitlines() if re.match(r"held|ESCAPED|skipped", x)]
        return lines[-1] if lines else f"{self.outcome} {self.limit} {self.result.get('reason', '')}".strip()


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def plain(job, host):
    expect(job.code == HELD, f"exit {job.code}")


def killed_by(limit):
    def check(job, host):
        expect("ESCAPED" not in job.text, job.line())
        expect(limit in [job.limit, *job.also], f"limit_hit is {job.limit!r}, outcome {job.outcome}")
        expect(job.outcome.endswith("LIMIT"), f"outcome {job.outcome}")
    return check


def killed_or_held(limit):
    def check(job, host):
        expect("ESCAPED" not in job.text, job.line())
        expect(job.code == HELD or limit in [job.limit, *job.also], f"exit {job.code}, limit {job.limit!r}")
    return check


def counted(limit, figure=None, most=None):
    def check(job, host):
        plain(job, host)
        expect(limit in [job.limit, *job.also], f"limit_hit is {job.limit!r} {job.also}")
        if figure:
            expect(0 < job.figure(figure) <= most, f"{figure} is {job.figure(figure)}")
    return check


def host_is_whole(job, host):
    plain(job, host)
    expect(host.look() == host.before, "a host file changed")
    expect(not host.made_files(), f"made on the host: {host.made_files()}")


def daemon_is_gone(job, host):
    plain(job, host)
    until(lambda: not host.pids_with_nonce(), lambda: f"dead within 1 s: {host.pids_with_nonce()}", 1)


def reply_was_quick(job, host):
    plain(job, host)
    expect(job.seconds < scaled(5), f"the reply took {job.seconds:.1f} s")


def wall_limit(job, host):
    expect(job.code == 124 and job.limit == "wall_ms", f"exit {job.code}, limit {job.limit!r}")
    expect(job.seconds < scaled(10), f"took {job.seconds:.1f} s")


def cpu_limit(job, host):
    expect(job.limit == "cpu_time_ms", f"exit {job.code}, limit {job.limit!r}")


def ended_at_all(job, host):
    expect(job.outcome != "", "no outcome")
    expect(job.seconds < scaled(20), f"took {job.seconds:.1f} s")
    expect(host.process.poll() is None, "the host's process was killed")


def bill_has_the_burn(job, host):
    plain(job, host)
    cpu = job.figure("cpu_user_ns") + job.figure("cpu_system_ns")
    expect(cpu > 250_000_000, f"only {cpu} ns in the bill")


def cpu_was_bounded(job, host):
    cpu, wall = (job.figure("cpu_user_ns") + job.figure("cpu_system_ns")) / 1e9, job.figure("wall_us") / 1e6
    expect(0.1 < cpu < 0.5 * wall + 0.6, f"{cpu:.2f} s of CPU in {wall:.2f} s at half a CPU")
    # on a busy host others may keep it below its quota, so that nothing is left to throttle
    expect(cpu < 0.4 * wall or job.figure("throttled_ns") > 0, "no throttled time in the bill")


def cache_was_counted(job, host):
    plain(job, host)
    expect(job.figure("memory_peak_bytes") >= 24 << 20, f"peak {job.figure('memory_peak_bytes')}")


CUT = ["--output-cut", "ok", "--output"]


def output_was_cut(wrote):
    def check(job, host):
        expect(job.code == HELD, f"exit {job.code}")
        total, cut = job.figure("output_bytes"), job.figure("output_cut_bytes")
        expect(total >= wrote, f"{total} bytes counted of {wrote}")
        expect(total - cut <= 1 << 20, f"{total - cut} bytes kept")
        expect("output_bytes" in [job.limit, *job.also], f"limit_hit {job.limit!r}")
        expect(len(job.text) <= (1 << 20) + 200, f"{len(job.text)} bytes arrived")
    return check


OPTIONS = {word for word in sys.argv[1:] if word.startswith("--")}
AS_ROOT = "--root" in OPTIONS
# Checks that need a host on which no other test runs: what is measured there is time, processor time, the memory of the host,
# its inotify instances or its pages, or a hundred sandboxes are full.
ALONE = {30, 31, 32, 35, 36, 38, 39, 40, 72, 78, 81, *range(224, 235), 249, 251}
CONFIG = "rpc: {bytes_per_uid: 1G}\n" + ("templates: [{name: default, user: root, root: writable}]\n" if AS_ROOT else "")
USER = 0 if AS_ROOT else 1000
# Checks that do not apply to root inside, and why.
NOT_AS_ROOT = {
    45: "root inside has seven capabilities: check 270",
    210: "a lease of root inside is on the inode of its own overlay, which the host never opens",
    212: "root inside may send signals to pid 1, which ignores them: check 273",
    47: "root inside may become any user of its own range: checks 48 and 273",
}

SMALL = ["--memory", "64M", "--disk", "32M"]
# number: (flags of run, what must be true of the job and the host); a number that is missing: no flags, exit 0
CHECKS = {
    2: ([], host_is_whole), 282: ([], host_is_whole), 4: ([], host_is_whole), 14: ([], host_is_whole), 18: ([], host_is_whole),
    17: (["--file-size", "64M"], plain),
    30: ([], daemon_is_gone), 31: ([], reply_was_quick), 32: (["--timeout", "1s"], wall_limit),
    35: ([], ended_at_all), 38: (["--timeout", "2s", "--pids", "64"], wall_limit), 39: ([], bill_has_the_burn),
    40: (["--timeout", "1s"], wall_limit),
    58: (SMALL, killed_by("memory_bytes")), 59: (["--memory", "256M", "--disk", "16M"], plain),
    60: (SMALL, killed_or_held("memory_bytes")), 61: (["--memory", "128M", "--disk", "64M"], cache_was_counted),
    62: (["--memory", "128M", "--files", "1024"], killed_or_held("memory_bytes")),
    63: (SMALL, killed_by("memory_bytes")),
    64: (["--pids", "64"], counted("pids", "pids_peak", 72)), 65: (["--pids", "64"], counted("pids", "pids_peak", 72)),
    66: (["--pids", "64"], counted("pids", "pids_peak", 72)),
    67: (["--memory", "256M", "--disk", "16M"], plain), 68: (["--inodes", "2000"], plain),
    69: (["--files", "128"], plain),
    72: (["--cpus", "0.5"], cpu_was_bounded),
    205: (SMALL, killed_or_held("memory_bytes")), 216: (SMALL, killed_or_held("memory_bytes")),
    250: (["--files", "16384"], plain),
    74: ([*CUT, "1M"], output_was_cut(48 << 20)), 75: ([*CUT, "1M"], output_was_cut(16 << 20)),
}


def check_32_cpu(broker, host):
    """Ignored signals do not help past a limit of CPU time either."""
    job = Job(broker, host, 32, ["--cpu-time", "500ms", "--timeout", "30s"])
    cpu_limit(job, host)
    return job.line()


def check_36(broker, host):
    with open(PROGRAM, "rb") as program:
        args = []
        for key, value in host.environment().items():
            args += ["--env", f"{key}={value}"]
        client = broker.popen("run", *args, "--", "/bin/sh", "-c", START, "36", stdin=program,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(host.pids_with_nonce, "the job starts", 20)
    client.kill()
    client.wait()
    until(lambda: not host.pids_with_nonce(), "the job is gone within 1 s of its client", 1)
    return "gone within 1 s of its client"


def check_48(broker, host):
    with open(PROGRAM, "rb") as program:
        client = broker.popen("run", "--env", f"ESCAPE_NONCE={host.nonce}", "--timeout", "20s", "--", "/bin/sh", "-c",
                              START, "48", stdin=program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        pids = until(host.pids_with_nonce, "the job starts", 15)
        with open(f"/proc/{pids[0]}/status", encoding="utf-8") as f:
            status = f.read()
        uids = [int(u) for u in re.search(r"^Uid:\s+(.*)$", status, re.M).group(1).split()]
        groups = re.search(r"^Groups:[ \t]*(.*)$", status, re.M).group(1).split()
        expect(all(ID_FIRST <= u < ID_LAST and u % 65536 == USER for u in uids), f"uids {uids}")
        expect(not groups, f"groups {groups}")
        return f"uid {uids[0]} on the host"
    finally:
        client.kill()
        client.wait()


def answer_time(broker):
    """Seconds that the broker takes to answer a health check, without the start of a client program."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(scaled(30))
        started = time.monotonic()
        s.connect(broker.address[len("ipc://"):])
        s.sendall(b"\0SP\0\0\x30\0\0")
        method = b"/stockade.v1.HealthService/Check"
        body = b"\x80\0\0\1" + b"\x08\x01\x12" + bytes([len(method)]) + method  # id, kind CALL, method
        s.sendall(b"\1" + len(body).to_bytes(8, "big") + body)
        hello = s.recv(8, socket.MSG_WAITALL)
        head = s.recv(9, socket.MSG_WAITALL)
        answer = s.recv(int.from_bytes(head[1:], "big"), socket.MSG_WAITALL)
        expect(hello == b"\0SP\0\0\x31\0\0" and answer[:4] == body[:4], f"no answer: {hello!r} {answer!r}")
        return time.monotonic() - started


def left_for_root(host):
    """How many more inotify instances root of the host can have, and whether it can make a message queue."""
    instances = []
    while len(instances) < 128 and (fd := host.libc.inotify_init1(os.O_CLOEXEC)) >= 0:
        instances.append(fd)
    for fd in instances:
        os.close(fd)
    name = f"/{host.nonce}".encode()
    queue = ctypes.CDLL("librt.so.1", use_errno=True).mq_open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600, None)
    if queue >= 0:
        os.close(queue)
        ctypes.CDLL("librt.so.1").mq_unlink(name)
    return len(instances), queue >= 0


def check_78(broker, host):
    before = left_for_root(host)
    with open(PROGRAM, "rb") as program:
        first = broker.popen("run", "--env", "ESCAPE_STAY=1", "--timeout", f"{scaled(120):.0f}s", "--", "/bin/sh", "-c", START,
                             "78", stdin=program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = first.stdout.readline().decode()
        expect(line.startswith("held"), f"the first says: {line}")
        after = left_for_root(host)
        expect(after[0] >= before[0] // 2 and after[1] == before[1], f"root had {before} and has {after}")
        second = Job(broker, host, 78)
        plain(second, host)
        return f"{line.strip().removeprefix('held: ')}; a second one the same; root {after[0]}"
    finally:
        first.kill()
        first.wait()
        first.stdout.close()


def at_pids_limit(broker):
    """How many sandboxes have their maximum number of processes."""
    def word(path, name):
        try:
            with open(f"/sys/fs/cgroup/{path}/{name}", encoding="ascii") as f:
                return f.read().strip()
        except OSError:
            return name
    return sum(word(path, "pids.current") == word(path, "pids.max") for path in broker.cgroups())


def check_81(broker, host):
    """A hundred, started ten at a time after the earlier ones run. They wait for the end of their input, so that a start does
    not take its turn beside all that the earlier ones compute, and then begin at once."""
    flags = ["--memory", "32M", "--disk", "8M", "--cpus", "0.2", "--pids", "16", "--files", "64", "--timeout", f"{scaled(300):.0f}s"]
    with open(PROGRAM, "rb") as f:
        program = f.read()
    start = START.replace("cat", f"head -c {len(program)}")
    clients = []
    try:
        end = time.monotonic() + scaled(280)
        running = 0
        while running < 100 and time.monotonic() < end and all(c.poll() is None for c in clients):
            if running == len(clients):
                for _ in range(10):
                    clients.append(broker.popen("run", *flags, "--", "/bin/sh", "-c", start, "81", stdin=subprocess.PIPE,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
                for c in clients[-10:]:
                    c.stdin.write(program)
                    c.stdin.flush()
            time_passes("ten more start", 0.1)
            running = broker.json("info")[1]["processes"]
        ended = [c.stderr.read(300) for c in clients if c.poll() is not None]
        expect(running == 100 and not ended, f"{running} of 100 run; those that ended said: {ended[:3]}")
        for c in clients:
            c.stdin.close()
        until(lambda: at_pids_limit(broker) == 100, lambda: f"{at_pids_limit(broker)} of 100 are at their limit of processes", 280)
        times = []
        for _ in range(20):
            time_passes("the next look", 0.1)
            times.append(answer_time(broker))
        expect(max(times) < scaled(1), f"the broker took {max(times):.2f} s to answer")
        # On an emulated processor a hundredth of it may not start a job within the broker's 10 s.
        for _ in range(1 if scaled(1) == 1 else 10):
            quick = broker.cli("run", "--", "/bin/true")
            if quick.returncode == 0:
                break
        expect(quick.returncode == 0, f"a neighbour's job failed: {quick.stderr.decode()}")
        expect(all(c.poll() is None for c in clients) and at_pids_limit(broker) == 100, "one of the 100 has ended")
        return f"100 at their limits; the broker answers in {sorted(times)[10] * 1000:.1f} ms, at most {max(times) * 1000:.0f}"
    finally:
        for c in clients:
            c.kill()
            c.wait()
            c.stderr.close()


def check_215(broker, host):
    """The guest's child enters the working folder of a job, which must not be a descriptor of the guest's cgroup."""
    box = f"workdir-{host.nonce}"
    expect(broker.cli("create", "--name", box).returncode == 0, "no sandbox")
    try:
        link = "for n in $(seq 3 12); do ln -s /proc/self/fd/$n /tmp/$n; done"
        expect(broker.cli("exec", box, "--", "sh", "-c", link).returncode == 0, "no links")
        for path in [f"/tmp/{n}" for n in range(3, 13)] + ["/proc/thread-self/fd/4/.."]:
            r = broker.cli("exec", "--workdir", path, box, "--", "ls", "-la", ".")
            expect(r.returncode == 126, f"{path} was entered: {r.stdout.decode(errors='replace')[:300]}")
        return "no descriptor of the guest is a folder to start in"
    finally:
        broker.cli("rm", box)


def host_memory():
    """The host's available memory, and the memory of its slabs, in MiB."""
    with open("/proc/meminfo", encoding="ascii") as f:
        figures = dict(line.split()[:2] for line in f)
    return int(figures["MemAvailable:"]) >> 10, int(figures["Slab:"]) >> 10


# What a sandbox of 64 MiB may use in addition to its memory: the same amount, and the use of other processes
# meanwhile.
TAKEN_MIB = 64 + 64 + 192


def taken_by(job, free, slab, line):
    """The memory that the job uses, compared with the host before or after it, whichever is more, because other
    processes also allocate and free memory."""
    now_free, now_slab = host_memory()
    job.kill()
    job.wait()
    job.stdout.close()
    time_passes("its sandbox goes", scaled(0.3))
    then_free, then_slab = host_memory()
    lost, grown = max(free, then_free) - now_free, now_slab - min(slab, then_slab)
    return lost, grown, f"{line.removeprefix('held: ')}; the host has {lost} MiB less, its slabs {grown} MiB more"


def check_memory(number, *flags):
    def check(broker, host):
        for attempt in range(3):
            free, slab = host_memory()
            with open(PROGRAM, "rb") as program:
                job = broker.popen("run", "--env", "ESCAPE_STAY=1", "--memory", "64M", "--timeout", f"{scaled(120):.0f}s",
                                   "--cpu-time", f"{scaled(120):.0f}s", *flags, "--", "/bin/sh", "-c", START, str(number),
                                   stdin=program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            line = job.stdout.readline().decode().strip() or f"ended by its memory limit: exit {job.wait()}"
            lost, grown, says = taken_by(job, free, slab, line)
            expect(line.startswith(("held", "ended by its memory limit: exit 137")), line)
            if lost < TAKEN_MIB and grown < TAKEN_MIB:
                return says
        raise AssertionError(says)
    return check


def pages_in_memory(path):
    """How many pages of a file the host holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        address = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), 1, 1, f.fileno(), ctypes.c_long(0)))
    pages = ctypes.create_string_buffer((size + 4095) // 4096)
    expect(libc.mincore(address, ctypes.c_size_t(size), pages) == 0, "mincore failed")
    libc.munmap(address, ctypes.c_size_t(size))
    return sum(page & 1 for page in pages.raw)


def check_251(broker, host):
    """A file of /usr that nobody maps: mapped pages cannot be dropped."""
    path = max(glob.glob("/usr/lib/python3*/**/*.py", recursive=True), key=os.path.getsize)
    with open(path, "rb") as f:
        f.read()
    before = pages_in_memory(path)
    expect(before * 4096 >= os.path.getsize(path), f"{path} is not in memory")
    job = Job(broker, host, 251, ["--env", f"ESCAPE_FILE={path}"])
    after = pages_in_memory(path)
    plain(job, host)
    expect(after == before, f"{before} pages of {path} were in memory, {after} are left")
    return f"{job.line()}: all {after} pages of {path}"


SPECIAL = {**{n: check_memory(n) for n in range(224, 235)}, 36: check_36, 48: check_48, 78: check_78, 81: check_81,
           215: check_215, 249: check_memory(249, "--inodes", "20000"), 251: check_251}


def chosen(number, wanted):
    """Whether this run has the check."""
    if wanted:
        return number in wanted
    return ("--alone" if number in ALONE else "--beside") in OPTIONS or not OPTIONS & {"--alone", "--beside"}


def run_one(broker, host, number):
    if AS_ROOT and number in NOT_AS_ROOT:
        return f"skipped: {NOT_AS_ROOT[number]}"
    if number in SPECIAL:
        return SPECIAL[number](broker, host)
    flags, verdict = CHECKS.get(number, ([], plain))
    job = Job(broker, host, number, flags)
    if job.code == SKIPPED:
        return job.line()
    expect("ESCAPED" not in job.text[:4096], job.line())
    verdict(job, host)
    if number == 32:
        return job.line() + "; " + check_32_cpu(broker, host)
    return job.line()


def main():
    if unknown := OPTIONS - {"--root", "--alone", "--beside"}:
        sys.exit(f"escape.py: no option {sorted(unknown)[0]}")
    if not os.path.exists(PROGRAM):
        skip(f"{PROGRAM} is not built")
    listing = subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.splitlines()
    checks = [(int(n), says, barrier) for n, says, barrier in (x.split("\t") for x in listing) if barrier]
    wanted = [int(a) for a in sys.argv[1:] if a not in OPTIONS] or [int(a) for a in os.environ.get("STOCKADE_ESCAPES", "").split()]
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    host = Host()
    try:
        # a hundred jobs of one caller get this program, 8 MB with sanitizers, on their stdin
        with Broker(env={"STOCKADE_TEST_SECRET": host.nonce}, config=CONFIG) as broker:
            for number, says, barrier in [row for row in checks if row[0] != 150 and chosen(row[0], wanted)]:
                try:
                    line = run_one(broker, host, number)
                    word = "skipped" if line.startswith("skipped") else "ok"
                except (AssertionError, OSError, subprocess.SubprocessError) as why:
                    word, line = "FAILED", str(why)[:600]
                counts[word] += 1
                print(f"{word:8}{number:4} {says} [{barrier}]: {line}", flush=True)
            expect(host.look() == host.before, "a host file changed")
            expect(host.process.poll() is None, "the host's process is gone")
            expect(broker.process.poll() is None, "the broker is gone")
    finally:
        host.close()
    print(f"{'hybrid' if hybrid() else 'pure v2'} cgroups")
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if counts["FAILED"] or not counts["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
