#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the kernel to the user: events of a job with its ids, records, gaps, live figures, and the feed."""

import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import sp
from api import EXITED, PROCESS, SANDBOX, SYSTEM, connect
from broker import Broker, binary
from slowness import scaled
from runner import Skipped, check, run_cases, time_passes, until

TELEMETRY = "/stockade.v1.TelemetryService/"
DENIED_CODE, OUT_OF_RANGE, EXHAUSTED = 7, 11, 8
KINDS = {}
FOLDER = tempfile.mkdtemp(prefix="stockade-feed-")
os.chmod(FOLDER, 0o755)
FEED = f"{FOLDER}/run/feed.sock"
CONNECT = "import socket\ntry: socket.create_connection(('192.0.2.1', 443), 2)\nexcept OSError as e: print(e.errno)"


def kind(name):
    if not KINDS:
        values = sp.message("stockade.v1.Event").DESCRIPTOR.fields_by_name["kind"].enum_type.values
        KINDS.update({v.name[len("EVENT_KIND_"):]: v.number for v in values})
    return KINDS[name]


class Subscription:
    """A stream of events that is read as it comes."""

    def __init__(self, b, credit=10000, **filters):
        self.client = connect(b, 20)
        self.call = self.client.begin(TELEMETRY + "Subscribe", filters, credit=credit)
        self.events, self.gaps, self.ended = [], [], None
        self.last = self.next().last_sequence  # it is there from now on

    def next(self):
        frame = self.client.recv(self.call)
        if frame.kind == sp.END:
            if frame.status.code:
                raise sp.Failed(frame.status)
            self.ended = True
            return None
        m = sp.message("stockade.v1.SubscribeResponse").FromString(frame.payload)
        if m.HasField("gap"):
            self.gaps.append(m.gap)
        self.events += m.events
        return m

    def until(self, condition):
        while not (found := next((e for e in self.events if condition(e)), None)):
            check(self.next() is not None, "the stream goes on")
        return found

    def ended_job(self, job):
        return self.until(lambda e: e.kind == kind("JOB_ENDED") and e.process_id == job)

    def all(self):
        while not self.ended:
            self.next()
        return self.events


def record(c, job):
    return c.unary(TELEMETRY + "GetRecord", {"process_id": job})


# ---- refusals

def what_does_not_fit_is_refused(b, c):
    for code, fields in ((3, {"kinds": [999]}), (3, {"severity": 9}), (OUT_OF_RANGE, {"from_sequence": 1 << 40}),
                         (3, {"sandbox_ids": ["x"]}), (3, {"tenant": "a b"})):
        try:
            Subscription(b, **fields)
            raise AssertionError(f"{fields} was taken")
        except sp.Failed as why:
            check(why.code == code, f"{fields}: {why}")
    for code, id_ in ((5, "f" * 32), (3, "123"), (5, "abcdef0123")):
        try:
            record(c, id_)
            raise AssertionError(f"{id_} has a record")
        except sp.Failed as why:
            check(why.code == code, f"{id_}: {why}")


def another_tenant_sees_nothing_of_it(b, c):
    job = c.run("true").id
    r = b.stranger("events", "-o", "json")
    check(r.returncode == 0 and r.stdout == b"", r.stdout + r.stderr)
    r = b.stranger("events", "-o", "json", "--tenant", "*")
    check(r.returncode == 77 and b"only its own sandboxes" in r.stderr, f"{r.returncode} {r.stderr}")
    r = b.stranger("inspect", "-o", "json", job)
    check(r.returncode != 0 and b"no record" in r.stderr, r.stderr)
    mine = Subscription(b, tenant="*", kept_only=True, from_sequence=1)
    check(any(e.process_id == job for e in mine.all()), "root sees it")


def too_many_subscriptions_are_refused(b, c):
    held = [Subscription(b) for _ in range(32)]
    try:
        Subscription(b)
        raise AssertionError("33 subscriptions")
    except sp.Failed as why:
        check(why.code == EXHAUSTED, str(why))
    del held[0]
    check(len(held) == 31, "one is let go")
    until(lambda: subscribes(b), "a place is free again")


def subscribes(b):
    try:
        Subscription(b)
        return True
    except sp.Failed:
        return False


# ---- events

def events_of_a_job_carry_its_sandbox_and_its_id(b, c):
    sub = Subscription(b)
    job = c.run("/bin/true; exit 3")
    end = sub.ended_job(job.id)
    check(end.sandbox_id == job.sandbox and end.tenant == "uid:0" and end.job.exit_code == 3, str(end))
    own = [e for e in sub.events if e.process_id == job.id]
    kinds = [e.kind for e in own]
    check(kind("JOB_STARTED") in kinds, str(kinds))
    executed = [e.execution.path for e in own if e.kind == kind("EXEC")]
    check(executed == ["/bin/sh", "/bin/true"], str(executed))
    check(len([e for e in own if e.kind == kind("EXIT")]) >= 2, str(kinds))
    check([e.sequence for e in sub.events] == sorted({e.sequence for e in sub.events}), "numbers go up")
    check(all(abs(e.time.seconds - time.time()) < 60 for e in own), "times are of the host's clock")


HOSTILE = r"""
import ctypes, os
name = b"/tmp/\xff\xc3\x1b[31m\n\xe2\x80\xae" + b"\xc3\xa9" * 90
os.mkdir(b"/tmp/.ssh")
for path in (name, b"/tmp/.ssh/\xfe\x1b]0;x\x07" + b"\xe4\xb8\xad" * 60):
    with open(path, "wb") as f: f.write(open("/bin/true", "rb").read())
    os.chmod(path, 0o755)
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"\xff\x1b[7m\n\xc3", 0, 0, 0)
        os.execv(path, [path])
    os.wait()
"""


def what_a_job_calls_things_is_text_in_events_and_records(b, c):
    sub = Subscription(b)  # one that is no UTF-8 could not be unpacked here
    shown = "x" + "é" * 200  # cut where its bytes are 256, which is within a character
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    argv = ["/usr/bin/python3", "-c", HOSTILE, shown]
    job = c.finish(c.stream("Start", {"sandbox_id": box, "command": {"args": argv}}))
    sub.ended_job(job.id)
    started = next(e for e in sub.events if e.kind == kind("JOB_STARTED") and e.process_id == job.id)
    check(started.job.args[3] == "x" + "é" * 127, started.job.args[3])
    paths = [e.execution.path for e in sub.events if e.kind == kind("EXEC") and e.process_id == job.id]
    check(len(paths) == 3 and paths[1].startswith("/tmp/\ufffd\ufffd\ufffd[31m"), str(paths))
    check(any(e.kind == kind("SENSITIVE_OPEN") for e in sub.events), "the other was opened, too")
    check(any("\ufffd" in x.path for x in job.result.record.executed), str(job.result.record.executed))
    for args in (("events", "--sandbox", box), ("inspect", job.id), ("anomalies", "--sandbox", box), ("ps",)):
        r = b.cli(*args)
        check(r.returncode == 0 and b"\x1b" not in r.stdout and b"\x07" not in r.stdout, f"{args}: {r.stdout}")
        r.stdout.decode()
    c.unary(SANDBOX + "Delete", {"id": box})


def a_denied_connect_is_an_event_and_stands_in_the_record(b, c):
    sub = Subscription(b, kinds=[kind("DENIED")])
    job = c.run(f'exec python3 -c "{CONNECT}"')
    check(job.output == b"1\n", f"EPERM at once: {job.output}")
    event = sub.until(lambda e: e.process_id == job.id)
    denial = event.denial
    check((denial.operation, denial.destination, denial.protocol, denial.reason) ==
          ("connect", "192.0.2.1:443", "tcp", "mode-none") and event.comm == "python3", str(event))
    check("--allow 192.0.2.1:443/tcp" in denial.hint, denial.hint)
    r = job.result.record
    check(r.denials_total == 1 and r.denials[0].destination == denial.destination, str(r.denials))
    check(r.network.connects_denied == 1 and not r.network.shared, str(r.network))
    check([x.path for x in r.executed][-1].endswith("python3") and r.execs >= 1, str(r.executed))
    kept = record(c, job.id)
    check(kept.record == r and kept.process.id == job.id and not kept.process.result.HasField("record"), str(kept))
    check(record(c, job.id[:8]).process.id == job.id and record(c, "").process.id == job.id, "by its beginning, and as the last")


def the_same_denial_is_listed_once_with_its_count(b, c):
    loop = "import socket\nfor i in range(30):\n try: socket.create_connection(('192.0.2.7', 80), 1)\n except OSError: pass"
    r = c.run(f'exec python3 -c "{loop}"').result.record
    check(len(r.denials) == 1 and r.denials[0].count == 30 == r.denials_total, str(r.denials))


def a_socket_below_usr_is_refused_and_reported_if_the_kernel_can(b, c):
    feature = next(f for f in c.unary(SYSTEM + "Info", {}).features if f.name == "bpf-unix")
    unix = ("import socket\nfor kind, call in ((socket.SOCK_STREAM, 'connect'), (socket.SOCK_DGRAM, 'send')):\n"
            " for path in ('/tmp/none', '\\0none', '/usr/none'):\n"
            "  s = socket.socket(socket.AF_UNIX, kind)\n"
            "  try: s.connect(path) if call == 'connect' else s.sendto(b'x', path)\n"
            "  except OSError as e: print(e.errno, end=' ')")
    job = c.run(f'exec python3 -c "{unix}"')
    enoent, refused, eperm = 2, 111, 1
    if not feature.available:
        check(job.output.split() == b"2 111 2 2 111 2".split(), f"nobody is there: {job.output}")
        raise Skipped(f"bpf-unix: {feature.detail}")
    check([int(x) for x in job.output.split()] == [enoent, refused, eperm] * 2, str(job.output))
    r = job.result.record
    check([(d.operation, d.destination, d.reason, d.count) for d in r.denials] == [("unix", "/usr/none", "unix", 2)], str(r.denials))


def two_jobs_of_a_sandbox_have_records_of_their_own(b, c):
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    long = c.start(box, "exec sleep 1")
    short = c.finish(c.start(box, "/bin/true; /bin/true"))
    long = c.finish(long)
    paths = [sorted({x.path for x in j.result.record.executed}) for j in (long, short)]
    check(paths[0][-1].endswith("/sleep"), str(paths))
    check("/bin/true" in paths[1] and "/bin/true" not in paths[0], str(paths))
    check(long.result.record.network.shared and short.result.record.network.shared, "their figures are the sandbox's")
    c.unary(SANDBOX + "Delete", {"id": box})


def system_calls_are_counted_for_who_asks(b, c):
    r = c.run("exec python3 -c 'import os\nfor i in range(1000): os.getppid()'", count_syscalls=True).result.record
    counts = {s.name: s.count for s in r.by_number}
    check(1000 <= counts.get("getppid", 0) < 1100 and r.syscalls >= 1000, str(counts))
    check("syscalls" in r.completeness.hooks and r.completeness.complete, str(r.completeness))
    check(r.syscalls_failed == sum(s.count for s in r.by_error) > 0, str(r.by_error))


DEEDS = r"""
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def child(deed):
    p = os.fork()
    if p == 0:
        deed()
        os._exit(0)
    return os.waitpid(p, 0)[1]
for i in range(5): child(lambda: None)
for i in range(3): child(lambda: os.kill(os.getpid(), signal.SIGKILL))
for i in range(7): child(lambda: os.kill(os.getppid(), signal.SIGWINCH))
for i in range(4): child(lambda: os.execv("/bin/true", ["true", str(i)]))
for i in range(11): os.close(os.open("f%d" % i, os.O_WRONLY | os.O_CREAT))
for i in range(6): os.rename("f%d" % i, "g%d" % i)
for i in range(5): os.unlink("f%d" % (6 + i))
for path in ("/etc/shadow", "/proc/1/environ", "x/.ssh/id_rsa"):
    try: os.close(os.open(path, os.O_RDONLY))
    except OSError: pass
for i in range(9): libc.syscall(425, 4, None)   # io_uring_setup
fd = os.memfd_create("x")
os.write(fd, open("/bin/true", "rb").read())
child(lambda: os.execve(fd, ["hidden"], {}))
for i in range(1234): libc.syscall(110)         # getppid
for i in range(321): libc.syscall(3, 4711)      # close of nothing: EBADF
for i in range(222): libc.syscall(2, b"/not/there", 0) if i % 2 else libc.syscall(257, -100, b"/not/there", 0)
for i in range(13):
    try: socket.socket().connect(("192.0.2.%d" % i, 443))
    except PermissionError: pass
"""


def a_record_has_what_the_job_did_and_nothing_else(b, c):
    job = c.run(f"exec python3 -c '{DEEDS}'", count_syscalls=True)
    r, calls = job.result.record, {s.name: s.count for s in job.result.record.by_number}
    check(job.result.exit_code == 0, job.output)
    errors = {s.name: s.count for s in r.by_error}
    # The first process, and 20 children; each ended, three of them by a signal.
    check((r.forks, r.exits, r.exits_by_signal) == (21, 21, 3), f"{r.forks} {r.exits} {r.exits_by_signal}")
    check((r.execs, r.unnamed_execs, r.signals) == (7, 1, 7), f"{r.execs} {r.unnamed_execs} {r.signals}")
    files = (r.opens_write, r.renames, r.unlinks, r.opens_sensitive)
    check(files == (11, 6, 5, 3), str(files))
    check(r.io_urings == 9 and r.oom_kills == 0, f"{r.io_urings} {r.oom_kills}")
    check(1234 <= calls["getppid"] <= 1250 and calls["io_uring_setup"] == 9, str(calls))
    check(321 <= errors["invalid"] <= 340 and errors["missing"] >= 222 and errors["denied"] >= 13, str(errors))
    done = {x.path: x for x in r.executed}
    true = [x for x in r.executed if x.path == "/bin/true"]
    check(len({x.args_hash for x in true}) == 4 and {x.count for x in true} == {1}, "four arguments, four hashes")
    check(len({x.inode for x in true}) == 1 and all(x.inode for x in done.values()), "one file")
    check([x.unnamed for x in r.executed].count(True) == 1, str(r.executed))
    check((r.denials_total, r.network.connects_denied) == (13, 13), f"{r.denials_total} {r.network}")
    done = r.completeness
    check(done.complete and not done.lost and {"exec", "egress", "syscalls"} <= set(done.hooks), str(done))
    start, end = (t.seconds + t.nanos / 1e9 for t in (done.start_time, done.end_time))
    check(0 < end - start < 120 and abs(end - time.time()) < 120, f"{start} {end}")


def a_running_job_can_be_inspected(b, c):
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    job = c.start(box, "/bin/true; exec sleep 30")
    until(lambda: record(c, job.id).record.executed_total >= 2, "its executions show")
    check(not record(c, job.id).process.HasField("result"), "it runs")
    c.unary(SANDBOX + "Delete", {"id": box})


def a_flood_of_one_sandbox_silences_no_other_and_is_reported(b, c):
    sub = Subscription(b)
    boxes = [c.unary(SANDBOX + "Create", {"limits": {"cpu_millis": 4000}}).sandbox.id for _ in range(2)]
    noise = c.start(boxes[0], "exec python3 -c 'import socket, time\nend = time.monotonic() + 1.5\n"
                              "while time.monotonic() < end:\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                              " for i in range(200):\n  try: s.sendto(b\"x\", (\"192.0.2.9\", 9))\n  except OSError: pass'")
    quiet = [c.finish(c.start(boxes[1], f'exec python3 -c "{CONNECT}"')) for _ in range(3)]
    noise = c.finish(noise)
    for job in quiet:
        sub.until(lambda e, j=job.id: e.kind == kind("DENIED") and e.process_id == j)
        check(not job.result.record.completeness.lost, "nothing of the quiet one was lost")
    sub.ended_job(noise.id)
    gap = sub.until(lambda e: e.kind == kind("GAP") and e.sandbox_id == boxes[0])
    lost = noise.result.record.completeness
    check(gap.lost.event_class == "denial" and gap.lost.events > 0 and len(gap.lost.cpus) > 0, str(gap))
    check(not lost.complete and sum(x.events for x in lost.lost) > 0, str(lost))
    r = noise.result.record
    check(r.network.connects_denied == r.denials_total, f"all of them: {r.network.connects_denied}, {r.denials_total}")
    check(not any(e.kind == kind("GAP") and e.sandbox_id == boxes[1] for e in sub.events), "no gap of the quiet one")
    for box in boxes:
        c.unary(SANDBOX + "Delete", {"id": box})


# ---- subscriptions

def make_events(c, n):
    """At least n ends of processes, in as many sandboxes as it takes to stay within what one may cause at once."""
    each = 1700
    limits = {"cpu_millis": 2000, "wall_ms": 600000, "cpu_time_ms": 600000}
    boxes = [c.unary(SANDBOX + "Create", {"limits": limits}).sandbox.id for _ in range(-(-n // each))]
    loop = f"i=0; while [ $i -lt {each} ]; do (:); i=$((i + 1)); done"
    jobs = [c.start(box, loop) for box in boxes]
    for job in jobs:
        check(c.finish(job).result.outcome == EXITED, "it has made all of them")
    return boxes


def a_subscriber_begins_at_a_number(b, c):
    first = Subscription(b)
    jobs = [c.run("true") for _ in range(3)]
    end = first.ended_job(jobs[0].id)
    later = Subscription(b, from_sequence=end.sequence + 1)
    later.ended_job(jobs[2].id)
    check(not any(e.process_id == jobs[0].id and e.sequence <= end.sequence for e in later.events), "not before it")
    check(any(e.process_id == jobs[1].id for e in later.events), "all behind it")
    kept = Subscription(b, from_sequence=1, kept_only=True)
    check(kept.all()[0].sequence == 1 and not kept.gaps, "what is kept, and then the end")


def filters_pass_what_they_name(b, c):
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    only = Subscription(b, sandbox_ids=[box], kinds=[kind("EXEC"), kind("JOB_ENDED")])
    grave = Subscription(b, severity=2, sandbox_ids=[box])
    c.run("true")
    job = c.finish(c.start(box, f'exec python3 -c "{CONNECT}"'))
    only.ended_job(job.id)
    check({e.sandbox_id for e in only.events} == {box}, "of that sandbox")
    check({e.kind for e in only.events} <= {kind("EXEC"), kind("JOB_ENDED")}, "of those kinds")
    check(grave.until(lambda e: e.kind == kind("DENIED")).severity == 2, "what is grave")
    check(all(e.severity >= 2 for e in grave.events), "and nothing else")
    c.unary(SANDBOX + "Delete", {"id": box})


def a_change_of_a_policy_is_one_event_with_its_mode(b, c):
    sub = Subscription(b, kinds=[kind("POLICY_CHANGED"), kind("SANDBOX_DELETED")])
    box = c.unary(SANDBOX + "Create", {"network": {"mode": 1}}).sandbox.id
    c.unary(SANDBOX + "Update", {"id": box, "ttl_ms": 60000})
    c.unary(SANDBOX + "Update", {"id": box, "network": {"mode": 1, "inbound": [{"first": 80}]}})
    c.unary(SANDBOX + "Delete", {"id": box})
    sub.until(lambda e: e.sandbox_id == box and e.kind == kind("SANDBOX_DELETED"))
    mine = [e for e in sub.events if e.sandbox_id == box]
    check([e.kind for e in mine] == [kind("POLICY_CHANGED"), kind("SANDBOX_DELETED")], f"what it was made with is no change: {mine}")
    check(mine[0].note == "none", mine[0].note)


def a_slow_subscriber_gets_a_gap_and_delays_no_other(b, c):
    slow = Subscription(b, credit=2, kinds=[kind("EXEC"), kind("EXIT"), kind("JOB_ENDED")])
    boxes = make_events(c, 5000)
    kept = Subscription(b, from_sequence=1, kept_only=True, kinds=[kind("EXEC"), kind("EXIT")]).all()
    check(len(kept) > 4200, f"{len(kept)} events")
    slow.client.send(slow.call, sp.Frame(kind=sp.WINDOW, credit=100000))
    job = c.finish(c.start(boxes[0], "true"))
    slow.ended_job(job.id)
    check(len(slow.gaps) >= 1 and slow.gaps[0].reason == "slow-reader", f"{len(slow.events)} events: {slow.gaps}")
    numbers = {e.sequence for e in slow.events}
    for gap in slow.gaps:
        inside = [e.sequence for e in kept if gap.from_sequence <= e.sequence <= gap.to_sequence]
        check(gap.count >= len(inside) > 0 and not numbers & set(inside), "the gap says which")
    for box in boxes:
        c.unary(SANDBOX + "Delete", {"id": box})


# ---- what is used now

def live_figures_follow_what_is_used(b, c):
    box = c.unary(SANDBOX + "Create", {"name": "busy", "limits": {"cpu_millis": 1000}}).sandbox.id
    job = c.start(box, "exec python3 -c 'b = bytearray(48 << 20)\nwhile True: pass'")
    ask = lambda: c.unary(TELEMETRY + "ListUsage", {"sandbox_id": "busy"}).usage[0]
    until(lambda: ask().memory_bytes > 45 << 20, "its memory shows")
    first, begun = ask(), time.monotonic()
    time_passes("it uses processor time", 0.5)
    second, took = ask(), time.monotonic() - begun
    check(0 < second.cpu_ns - first.cpu_ns < 1.5e9 * took, f"{second.cpu_ns - first.cpu_ns} ns in {took} s")
    check(second.jobs == 1 and 1 <= second.pids <= 4 and second.memory_limit_bytes > second.memory_bytes, str(second))
    check(second.execs >= 1 and second.tenant == "uid:0" and second.sandbox_id == box, str(second))
    # Two processes that want the one CPU that the sandbox may have.
    other = c.start(box, "while :; do :; done")
    if second.HasField("cpu_pressure"):
        until(lambda: ask().cpu_pressure.some_us > second.cpu_pressure.some_us, "who waits for a CPU shows")
    until(lambda: ask().jobs == 2, f"job {other.id} shows")
    r = b.cli("top", "--once", "-o", "json")
    found = [u for u in json.loads(r.stdout)["sandboxes"] if u["name"] == "busy"]
    check(found and found[0]["cpu_percent"] > 1, r.stdout)
    check(b.cli("top", "--once").stdout.startswith(b"1 sandbox, 2 jobs, CPU "), "as a table")
    check({p.id for p in c.unary(PROCESS + "List", {}).processes} >= {job.id, other.id}, "both still run")
    c.unary(SANDBOX + "Delete", {"id": box})


def the_command_shows_events_and_records(b, c):
    r = b.cli("run", "--bill", "--", "python3", "-c", CONNECT)
    check(b"denied       connect 192.0.2.1:443/tcp by python3: mode-none" in r.stderr, r.stderr)
    check(b.cli("create", "--name", "refused").returncode == 0, "create")
    r = b.cli("exec", "--bill", "refused", "python3", "-c", CONNECT)
    hint = re.search(r"to allow it: stockade (network refused --allow 192.0.2.1:443/tcp) [(]replaces the whole policy[)]\n", r.stderr.decode())
    check(hint, r.stderr)
    check(b.cli(*hint[1].split()).returncode == 0, "as the hint says")
    shown = b.cli("network", "refused").stdout.decode()
    check(re.search(r"allow +192\.0\.2\.1\S*:443/tcp\n", shown), shown)
    b.cli("rm", "refused")
    b.cli("run", "--", "python3", "-c", CONNECT)
    text = b.cli("inspect").stdout
    check(b"to allow it: --allow 192.0.2.1:443/tcp" in text and b"record      complete" in text, text)
    one = json.loads(b.cli("inspect", "-o", "json").stdout)
    check(one["record"]["denials"][0]["destination"] == "192.0.2.1:443", str(one))
    lines = b.cli("events", "--kind", "denied", "-o", "json").stdout.splitlines()
    check(json.loads(lines[-1])["process_id"] == one["id"], lines[-1])
    follow = subprocess.Popen([binary("stockade"), "events", "--address", b.address, "-f", "--kind", "job_ended"],
                              stdout=subprocess.PIPE)
    # It may subscribe after the first job has ended: then the next one's end is what it sees.
    until(lambda: b.cli("run", "--", "true").returncode == 0 and select.select([follow.stdout], [], [], 0.1)[0], "it follows")
    follow.send_signal(signal.SIGINT)
    check(b"job_ended" in follow.communicate()[0], "one line each")


# ---- the feed

class Sub:
    """A SUB socket by hand."""

    def __init__(self, hello=b"\0SP\0\0\x21\0\0"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(scaled(10))
        self.socket.connect(FEED)
        self.socket.sendall(hello)

    def read(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise sp.Closed("the feed closed")
            data += more
        return data

    def message(self):
        head = self.read(9)
        check(head[0] == 1, "SP over ipc")
        topic, _, body = self.read(struct.unpack(">Q", head[1:])[0]).partition(b"\n")
        return topic.decode(), sp.message("stockade.v1.Event").FromString(body)


def the_feed_publishes_every_event_to_sub_sockets(b, c):
    check(os.stat(FEED).st_mode & 0o777 == 0o600, "for root alone")
    sub = Sub()
    check(sub.read(8) == b"\0SP\0\0\x20\0\0", "it is a PUB socket")
    job = c.run("true")
    while True:
        topic, event = sub.message()
        if event.kind == kind("JOB_ENDED") and event.process_id == job.id:
            break
    check(topic == f"JOB_ENDED/INFO/{job.sandbox}", topic)


def a_peer_of_the_feed_that_is_no_sub_socket_or_does_not_read_delays_no_other(b, c):
    wrong = Sub(b"\0SP\0\0\x30\0\0")
    try:
        wrong.read(1)
        raise AssertionError("a REQ socket was answered")
    except (sp.Closed, ConnectionError):
        pass
    deaf, good = Sub(), Sub()
    good.read(8)
    seen = []
    reader = threading.Thread(target=lambda: [seen.append(good.message()) for _ in iter(lambda: len(seen) < 3000, False)])
    reader.start()
    boxes = make_events(c, 3100)
    reader.join(scaled(30))
    check(len(seen) == 3000, f"{len(seen)} messages came")
    numbers = [e.sequence for _, e in seen]
    check(numbers == sorted(numbers), "in order")
    deaf.socket.close()
    for box in boxes:
        c.unary(SANDBOX + "Delete", {"id": box})


def the_first_job_after_a_rest_is_watched_from_its_first_call(b, c):
    """The tracepoint is given up 5 s after the last sandbox: whoever comes then waits until it is there again."""
    with Broker(name="-rest") as rested:
        client = connect(rested)
        for rest in (0, 5.3):
            time_passes("a rest without sandboxes", rest)
            r = client.run("true").result.record
            missing = [x for x in r.completeness.missing if not x.startswith("unix:")]  # no hooks before Linux 6.7
            check(r.completeness.complete and not missing, f"after {rest} s: {r.completeness}")
            counts = {s.name: s.count for s in r.by_number}
            check("syscalls" in r.completeness.hooks and counts.get("setresuid") == 1, f"{rest}: {counts}")


def a_flood_hides_neither_what_came_first_nor_what_came_last(b, c):
    first, last = "/usr/bin/id", "/usr/bin/uname"
    r = c.run(f"{first}; for i in $(seq 100); do /bin/true $i; done; {last}").result.record
    names = [x.path for x in r.executed]
    check(first in names and names[-1] == last and len(names) == 64, str(names))
    check(r.cut and not r.completeness.complete and r.executed_total >= 103, str(r.completeness))


# ---- without programs

def without_programs_the_record_says_so(_b, _c):
    with Broker(name="-none", config="bpf: {enabled: false}\n") as b:
        c = connect(b)
        r = c.run("true").result.record
        check(not r.completeness.complete and not r.completeness.hooks, str(r))
        said = " ".join(r.completeness.missing)
        check("network:" in said and "processes:" in said and "syscalls:" in said, said)
        try:
            c.run("true", count_syscalls=True)
            raise AssertionError("it counts what it cannot")
        except sp.Failed as why:
            check(why.code == 9, str(why))
        sub = Subscription(b, from_sequence=1, kept_only=True)
        check({kind("JOB_STARTED"), kind("JOB_ENDED")} <= {e.kind for e in sub.all()}, "the broker's own events")
        box = c.unary(SANDBOX + "Create", {}).sandbox.id
        check([u.sandbox_id for u in c.unary(TELEMETRY + "ListUsage", {}).usage] == [box], "figures are there")


TESTS = [what_does_not_fit_is_refused, what_a_job_calls_things_is_text_in_events_and_records,
         another_tenant_sees_nothing_of_it, too_many_subscriptions_are_refused,
         events_of_a_job_carry_its_sandbox_and_its_id, a_denied_connect_is_an_event_and_stands_in_the_record,
         the_same_denial_is_listed_once_with_its_count, a_socket_below_usr_is_refused_and_reported_if_the_kernel_can,
         two_jobs_of_a_sandbox_have_records_of_their_own,
         system_calls_are_counted_for_who_asks, a_record_has_what_the_job_did_and_nothing_else, a_running_job_can_be_inspected,
         a_flood_of_one_sandbox_silences_no_other_and_is_reported, a_subscriber_begins_at_a_number,
         filters_pass_what_they_name, a_change_of_a_policy_is_one_event_with_its_mode,
         a_slow_subscriber_gets_a_gap_and_delays_no_other,
         live_figures_follow_what_is_used, the_command_shows_events_and_records,
         the_feed_publishes_every_event_to_sub_sockets,
         a_peer_of_the_feed_that_is_no_sub_socket_or_does_not_read_delays_no_other,
         the_first_job_after_a_rest_is_watched_from_its_first_call, a_flood_hides_neither_what_came_first_nor_what_came_last,
         without_programs_the_record_says_so]


def run_one(b, test):
    try:
        test(b, connect(b))
    finally:
        b.cli("rm", "--all")


def main():
    config = f"telemetry: {{feed: 'ipc://{FEED}'}}\nquotas: {{jobs_per_caller: 2000}}\n"
    # Hints name only what the template may be asked for.
    config += "templates: [{name: default, network_max: {mode: allowlist, outbound: ['192.0.2.0/24'], inbound: ['1-65535']}}]\n"
    with Broker(config=config) as b:
        programs = bool(connect(b).run("true").result.record.executed_total)
        for test in TESTS:
            if not programs and needs_programs(test):
                print(f"skipped: the programs cannot be loaded here: {test.__name__}", flush=True)
        status = run_cases([t for t in TESTS if programs or not needs_programs(t)], lambda test: run_one(b, test))
    shutil.rmtree(FOLDER)
    sys.exit(status)


def needs_programs(test):
    """What is left where the kernel or this host lets no program be loaded."""
    return test not in (what_does_not_fit_is_refused, another_tenant_sees_nothing_of_it,
                        too_many_subscriptions_are_refused, a_change_of_a_policy_is_one_event_with_its_mode,
                        the_feed_publishes_every_event_to_sub_sockets, without_programs_the_record_says_so)


if __name__ == "__main__":
    main()
