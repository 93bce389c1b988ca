#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots and forks while jobs run: the files are copied from a frozen sandbox, and the jobs go on."""

import contextlib
import os
import signal
import time

from api import NOT_FOUND, PROCESS, SANDBOX, connect, main
from broker import Broker
from interpreter import CRASHED, DOWN, Cell, context, contexts, run
from runner import check, until
from snapshots import SNAPSHOT, delete, make, names, new, no, restore, sh
from sp import DEADLINE, EXHAUSTED, INVALID

CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
limits_max: {disk: 1G, memory: 2G}
templates:
  - name: default
    limits: {disk: 64M, inodes: 20000, memory: 256M}
"""
ABORTED = 10
BEAT = "i=0; while :; do i=$((i+1)); echo $i >> beat; echo $i; sleep 0.01; done"


def beating(c, box):
    job = c.start(box, BEAT)
    c.until(job, lambda: b"3\n" in job.output)
    return job


def goes_on(c, job):
    before = len(job.output)
    c.until(job, lambda: len(job.output) > before + 20)
    numbers = [int(n) for n in job.output.split(b"\n")[:-1]]
    check(numbers == list(range(1, len(numbers) + 1)), f"it went on where it was: {numbers}")


def fork(c, box, **more):
    return c.unary(SANDBOX + "Fork", {"id": box, **more})


# ---- what is refused


def what_is_too_large_or_too_slow_is_refused_and_the_jobs_go_on(b, c):
    box = new(c, limits={"disk_bytes": 640 << 20, "memory_bytes": 512 << 20})
    sh(c, box, "head -c 150000000 /dev/urandom > big")
    job = beating(c, box)
    for more, code, words in (
            ({"copy": True, "stop": True}, INVALID, ("copy", "stop")),
            ({"copy": True, "copy_bytes_max": 1}, INVALID, ("copy_bytes_max",)),
            ({"copy": True, "copy_ms_max": 60001}, INVALID, ("copy_ms_max",)),
            ({"copy": True, "copy_bytes_max": 1 << 20}, EXHAUSTED, ("COPY_BYTES", "copy_bytes_max", "1048576")),
            ({"copy": True, "copy_ms_max": 1}, DEADLINE, ("COPY_TIME", "copy_ms_max")),
    ):
        no(c, "Create", {"sandbox": box, **more}, code, *words)
        goes_on(c, job)
    check(not names(c, box), "there is none")
    sh(c, box, "head -c 130000000 /dev/urandom > more")
    no(c, "Create", {"sandbox": box, "copy": True, "copy_ms_max": 60000}, EXHAUSTED, "COPY_MEMORY", "memory_bytes")
    goes_on(c, job)
    c.unary(SANDBOX + "Delete", {"id": box})
    c.finish(job)


def a_disk_that_has_no_room_for_both_refuses_and_loses_nothing(b, c):
    box = new(c)
    sh(c, box, "head -c 40000000 /dev/urandom > big; md5sum big > sum")
    job = beating(c, box)
    no(c, "Create", {"sandbox": box, "copy": True, "copy_ms_max": 60000}, EXHAUSTED, "DISK_FULL", "disk_bytes")
    goes_on(c, job)
    check("big: OK" in sh(c, box, "md5sum -c sum; rm big"), "it is there")
    made = make(c, box, "later", copy=True)
    check(made.copied_bytes < 1 << 20, f"{made}")
    check(sh(c, box, "head -c 40000000 /dev/zero > again && echo fits") == "fits\n", "and its room is free again")
    c.unary(SANDBOX + "Delete", {"id": box})
    c.finish(job)


# ---- what it does


def the_jobs_go_on_and_the_files_are_those_of_one_moment(b, c):
    box = new(c)
    sh(c, box, "mkdir d; echo a > d/a; echo s > /dev/shm/S; echo t > /tmp/T; echo v > /var/tmp/V")
    job = beating(c, box)
    for n in range(3):  # the first one has no layer below
        made = make(c, box, f"copy{n}", copy=True)
        check(made.copied_bytes > 0 and 0 < made.frozen_us < 5e6 and not made.current, f"{made}")
        goes_on(c, job)
        sh(c, box, f"echo {n} >> d/a; mv /tmp/T /tmp/T{n}; mv /tmp/T{n} /tmp/T; rm -f /dev/shm/S")
    check(c.unary(SNAPSHOT + "Get", {"sandbox": box, "name": "copy1"}).snapshot.copied_bytes > 0, "and it is known later")
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)
    last = sh(c, box, "cat beat")
    seen = []
    for n in (0, 2, 1):
        restore(c, box, f"copy{n}")
        check(sh(c, box, "cat d/a /tmp/T /var/tmp/V") == "a\n" + "".join(f"{i}\n" for i in range(n)) + "t\nv\n", f"files of copy {n}")
        check((sh(c, box, "ls /dev/shm") == "S\n") == (n == 0), "and of /dev/shm")
        beat = sh(c, box, "cat beat")
        check(last.startswith(beat) and beat.endswith("\n") and beat not in seen, f"a moment of its own: {beat!r}")
        seen.append(beat)
    plain = make(c, box, "plain", copy=True)
    check(plain.copied_bytes == 0 and plain.frozen_us == 0, "without jobs nothing is copied")


def layers_lie_on_and_below_copies(b, c):
    box = new(c)
    sh(c, box, "echo a > A; mkdir gone; echo x > gone/x; mkdir whole; echo y > whole/y")
    make(c, box, "base")
    sh(c, box, "rm -r gone; rm -r whole; mkdir whole; echo z > whole/z; echo b > B")
    job = beating(c, box)
    make(c, box, "copied", copy=True)
    sh(c, box, "echo c > C; rm A")
    make(c, box, "again", copy=True)
    make(c, box, "end", stop=True)
    c.finish(job)
    look = "ls A B C; ls gone; cat whole/*"
    for name, found in (("copied", "A\nB\n"), ("end", "B\nC\n"), ("again", "B\nC\n")):
        restore(c, box, name)
        check(sh(c, box, "ls A B C 2>/dev/null; ls gone 2>/dev/null; cat whole/*") == found + "z\n", f"{name}: {sh(c, box, look + '; true')}")
    sh(c, box, "echo d > D")
    make(c, box, "on", stop=True)
    restore(c, box, "base")
    check(sh(c, box, "cat A gone/x whole/y; ls") == "a\nx\ny\nA\ngone\nwhole\n", "the base is as it was")
    differ = [(bytes(p.path), p.kind) for p in c.unary(SNAPSHOT + "Diff", {"sandbox_id": box, "first": "copied", "second": "end", "page_size": 100}).changes]
    check((b"/home/agent/A", 3) in differ and (b"/home/agent/C", 1) in differ and not any(b"whole" in p for p, _ in differ), f"{differ}")
    for name in ("copied", "again", "end", "on", "base"):
        delete(c, box, name)
    check(sh(c, box, "cat A") == "a\n", "the files of now stay")


def hostile_files_come_back_as_they_were(b, c):
    box = new(c)
    sh(c, box, "mkdir keep w; echo k > keep/k; echo l > low; setfattr -n user.overlay.opaque -v y keep 2>/dev/null; touch .wh.keep .wh..wh..opq;"
       " mkdir -p other; echo o > other/o; chmod 1777 other")
    make(c, box, "base")
    sh(c, box, "rm low; rm -r other; mkdir other; touch other/new; chmod 2750 other; mkfifo F; chmod 4755 keep/k; touch $(printf 'n\\377m');"
       " python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"S\")' 2>/dev/null;"
       " truncate -s 60M sparse; printf x | dd of=sparse bs=1 seek=30M conv=notrunc 2>/dev/null;"
       " python3 -c 'import os; os.makedirs(\"deep/\" + \"d/\" * 300)'; mkdir -p closed/in; chmod 0 closed;"
       " ln -s /../../../etc/shadow s; i=0; while [ $i -lt 100 ]; do ln keep/k hard$i; i=$((i+1)); done; touch -d 2001-02-03 keep/k")
    look = ("find . \\( -type d -printf '%p %M %U %G %T@\\n' -o -printf '%p %M %U %G %T@ %n %s %b %l\\n' \\) 2>/dev/null | grep -a -v -e beat -e '^\\. ' -e '^./deep/' | sort; find deep | md5sum;"
            " dd if=sparse bs=1 skip=30M count=1 2>/dev/null")
    first = sh(c, box, look)
    check("drwxr-s---" in first and " 101 " in first and str(60 << 20) in first, "what was to be made was made")
    job = c.start(box, "while :; do echo more >> beat; done & exec 3<>F; echo ready; sleep 1000 < $(printf 'n\\377m') 3>&1")
    c.until(job, lambda: b"ready" in job.output)
    made = make(c, box, "hostile", copy=True)
    check(made.copied_bytes < 10 << 20, f"holes stay holes: {made}")
    restore(c, box, "base", stop=True)
    c.finish(job)
    check(sh(c, box, "cat low other/o keep/k") == "l\no\nk\n", "the base")
    restore(c, box, "hostile")
    now = sh(c, box, look)
    check(now == first, f"{sorted(set(first.splitlines()) ^ set(now.splitlines()))}")


def forks_begin_with_the_moment_and_the_parent_goes_on(b, c):
    box = new(c)
    sh(c, box, "head -c 3000000 /dev/urandom > data; md5sum data > sum")
    job = beating(c, box)
    r = fork(c, box, count=3, copy=True)
    check(r.copied_bytes > 3000000 and r.frozen_us > 0, f"{r}")
    goes_on(c, job)
    for one in r.sandboxes:
        check("data: OK" in sh(c, one.id, "md5sum -c sum; echo mine > mine; rm data"), "its files")
        check(sh(c, one.id, "cat beat | tail -1; sleep 0.1; cat beat | tail -1").split()[0::2] != [], "no job of the parent")
    check(sh(c, box, "md5sum -c sum; ls mine 2>/dev/null; true") == "data: OK\n", "the parent has none of it")
    check(not names(c, box), "and no snapshot")
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)
    c.unary(SANDBOX + "Delete", {"id": box})
    check(sh(c, r.sandboxes[0].id, "cat mine sum | wc -l") == "2\n", "forks live on")
    for one in r.sandboxes:
        c.unary(SANDBOX + "Delete", {"id": one.id})


# ---- what goes wrong


def copiers(b):
    return [pid for pid, name in b.processes().items() if name == "stockade-keeper"]


def children(parent, name):
    found = []
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as f:
        for pid in f.read().split():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
                if comm.read().strip() == name:
                    found.append(int(pid))
    return found


def stopped_copier(b, c, box, call):
    """Begins a call, and stops the copier: the sandbox is frozen. It may be done before a look at all processes of the host is."""
    found = []
    spawner = b.spawner()
    begun = call()

    def caught():
        for pid in children(spawner, "stockade-keeper"):
            try:
                os.kill(pid, signal.SIGSTOP)
                found.append(pid)
            except ProcessLookupError:
                pass
        return found

    until(caught, "a copier", brief=True)
    return begun, found[0]


def a_copier_that_is_killed_or_hangs_leaves_the_sandbox_running(b, c):
    box = new(c, limits={"disk_bytes": 600 << 20, "memory_bytes": 900 << 20})
    sh(c, box, "head -c 150000000 /dev/urandom > big")
    job = beating(c, box)
    d = connect(b)
    begun, pid = stopped_copier(b, c, box, lambda: d.begin(SNAPSHOT + "Create", {"sandbox": box, "copy": True, "copy_ms_max": 60000}))
    os.kill(pid, signal.SIGKILL)
    failed = d.recv(begun).status
    check(failed.code == EXHAUSTED and "killed" in failed.message, f"{failed}")
    goes_on(c, job)
    begun, pid = stopped_copier(b, c, box, lambda: d.begin(SNAPSHOT + "Create", {"sandbox": box, "copy": True, "copy_ms_max": 700}))
    no(c, "Create", {"sandbox": box}, 9, "frozen")
    failed = d.recv(begun).status
    check(failed.code == DEADLINE and "COPY_TIME" in str(failed), f"{failed}")
    goes_on(c, job)
    os.kill(pid, signal.SIGCONT)
    until(lambda: not copiers(b), "it sees that nobody waits")
    # a caller that goes; the sandbox that is deleted meanwhile
    begun, pid = stopped_copier(b, c, box, lambda: d.begin(SNAPSHOT + "Create", {"sandbox": box, "name": "gone", "copy": True, "copy_ms_max": 60000}))
    d.close()
    os.kill(pid, signal.SIGCONT)
    until(lambda: names(c, box) == ["gone"], "it is completed")
    goes_on(c, job)
    d = connect(b)
    begun, pid = stopped_copier(b, c, box, lambda: d.begin(SNAPSHOT + "Create", {"sandbox": box, "copy": True, "copy_ms_max": 60000}))
    c.unary(SANDBOX + "Delete", {"id": box})
    failed = d.recv(begun).status
    check(failed.code in (ABORTED, NOT_FOUND), f"{failed}")
    c.finish(job)
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
    until(lambda: not copiers(b), "and no copier is left")


def cells_without_an_interpreter_wait_until_the_files_are_copied(b, c):
    """The last one has crashed, or there is none yet; and in a sandbox that is paused."""
    box = new(c, limits={"disk_bytes": 600 << 20, "memory_bytes": 900 << 20})
    sh(c, box, "head -c 50000000 /dev/urandom > big")
    job = beating(c, box)
    crashed, other, d = context(c, box).id, context(c, box).id, connect(b)

    def crash():
        for one in (crashed, other):
            check(run(c, "import os; os.kill(os.getpid(), 9)", context_id=one).end.status == CRASHED, "it has no interpreter")

    crash()
    begun, pid = stopped_copier(b, c, box, lambda: d.begin(SNAPSHOT + "Create", {"sandbox": box, "copy": True, "copy_ms_max": 60000}))
    cells = [Cell(c, {"code": "print(1)", "context_id": crashed}), Cell(c, {"code": "print(1)", "sandbox_id": box})]
    made = context(c, box)
    check(made.state == DOWN, f"it is there, and its first cell starts it: {made}")
    cells.append(Cell(c, {"code": "print(1)", "context_id": made.id}))
    until(lambda: [x.waiting for x in contexts(c, box)] == [1, 0, 1, 1], lambda: f"they wait: {contexts(c, box)}")
    os.kill(pid, signal.SIGCONT)
    d.recv(begun)
    check([cell.finish().text for cell in cells] == ["1\n"] * 3, "they go on")
    goes_on(c, job)
    crash()
    c.unary(SANDBOX + "Pause", {"id": box})
    cell = Cell(c, {"code": "print(2)", "context_id": crashed})
    until(lambda: contexts(c, box)[0].waiting == 1, lambda: f"it waits: {contexts(c, box)}")
    c.unary(SANDBOX + "Resume", {"id": box})
    check(cell.finish().text == "2\n", "it goes on")
    c.unary(SANDBOX + "Delete", {"id": box})
    c.finish(job)


def the_memory_of_the_copy_is_the_sandboxs(b, c):
    box = new(c, limits={"disk_bytes": 200 << 20, "memory_bytes": 256 << 20})
    sh(c, box, "head -c 60000000 /dev/urandom > big")
    job = beating(c, box)
    began = time.monotonic()
    made = make(c, box, "one", copy=True)
    took = time.monotonic() - began
    check(60000000 <= made.copied_bytes < 61500000, f"{made}")
    # MB/s is a figure of the machine: 20 is what no machine falls short of
    check(made.copied_bytes / made.frozen_us > 20, f"{made.copied_bytes / made.frozen_us:.0f} MB/s")
    print(f"# {made.copied_bytes / 1e6:.0f} MB copied, frozen for {made.frozen_us / 1000:.1f} ms, {took * 1000:.1f} ms in all,"
          f" {made.copied_bytes / made.frozen_us:.0f} MB/s")
    r = c.finish(c.start(box, "python3 -c 'x = bytearray(150 << 20)'"))
    check(r.result.outcome != 1 or r.result.exit_code != 0, f"120 MB of files leave no room for 150: {r.result.outcome}")
    delete(c, box, "one")
    goes_on(c, job)
    r = c.finish(c.start(box, "python3 -c 'x = bytearray(150 << 20)'"))
    check(r.result.outcome == 1 and r.result.exit_code == 0, f"its memory is free again: {r.result.outcome}")
    c.unary(SANDBOX + "Delete", {"id": box})
    c.finish(job)


TESTS = [what_is_too_large_or_too_slow_is_refused_and_the_jobs_go_on, a_disk_that_has_no_room_for_both_refuses_and_loses_nothing,
         the_jobs_go_on_and_the_files_are_those_of_one_moment, layers_lie_on_and_below_copies, hostile_files_come_back_as_they_were,
         forks_begin_with_the_moment_and_the_parent_goes_on, a_copier_that_is_killed_or_hangs_leaves_the_sandbox_running,
         cells_without_an_interpreter_wait_until_the_files_are_copied,
         the_memory_of_the_copy_is_the_sandboxs]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
