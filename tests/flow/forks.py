#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forks over the wire and through the command: refusals, shared layers, own writes, own bills, nothing left over."""

import functools
import os
import random
import subprocess

from api import NOT_FOUND, PRECONDITION, SANDBOX, SYSTEM, connect, main
from broker import Broker
from runner import check, time_passes, until
from snapshots import SNAPSHOT, make, names, new, sh
from sp import DEADLINE, EXHAUSTED, INVALID

ABORTED, UNAVAILABLE = 10, 14

CONFIG = """
socket: {mode: 0666}
pool: 4
bpf: {enabled: false}
quotas: {sandboxes_per_caller: 24}
templates:
  - name: default
    limits: {disk: 16M, inodes: 2000, memory: 128M}
"""


def fork(c, box, count=1, **more):
    return [s.id for s in c.unary(SANDBOX + "Fork", {"id": box, "count": count, **more}).sandboxes]


def no(c, fields, code, *words):
    failed = c.fails(SANDBOX + "Fork", fields)
    text = f"{failed.message} {failed.details}"
    check(failed.code == code, f"{fields}: {failed.code} {text}, not {code}")
    for word in words:
        check(word in text, f"{fields}: {word!r} is not in {text!r}")


def settled(c, n):
    """Sandboxes that are being removed count to the quota, too."""
    until(lambda: c.unary(SYSTEM + "Info", {}).sandboxes_own == n, f"{n} sandboxes in all")


def boxes(c):
    return {s.id for s in c.unary(SANDBOX + "List", {}).sandboxes}


def what_cannot_be_forked_is_refused_and_leaves_nothing(b, c):
    box = new(c)
    no(c, {"id": "none"}, NOT_FOUND)
    no(c, {"id": box, "snapshot": "none"}, NOT_FOUND, "SNAPSHOT_UNKNOWN")
    no(c, {"id": box, "count": 101}, INVALID, "count")
    job = c.start(box, "echo x; sleep 100")
    c.until(job, lambda: b"x" in job.output)
    no(c, {"id": box}, PRECONDITION, "JOBS_RUN")
    c.unary(SANDBOX + "Pause", {"id": box})
    no(c, {"id": box}, PRECONDITION, "paused")
    c.unary(SANDBOX + "Resume", {"id": box})
    no(c, {"id": box, "count": 30, "stop": True}, EXHAUSTED, "QUOTA_SANDBOXES")
    until(lambda: boxes(c) == {box}, "all or none")
    settled(c, 1)
    r = b.stranger("fork", box)
    check(r.returncode == 1 and b"no sandbox" in r.stderr, f"{r.returncode} {r.stderr}")


def forks_see_the_files_and_none_of_each_others_writes(b, c):
    box = new(c, metadata={"task": "t"}, ttl_ms=60000)
    sh(c, box, "echo a > A; mkdir d; echo x > d/x; chmod 700 d; ln -s A L; echo t > /tmp/T; echo s > /dev/shm/S; echo 'u' > $(printf 'n\\377')")
    look = "cat A d/x /tmp/T /dev/shm/S; stat -c '%n %U %a' A d; ls | od -c | md5sum; id -u"
    was = sh(c, box, look)
    made = fork(c, box, 8)
    check(len(set(made)) == 8 and box not in made, f"{made}")
    for i, one in enumerate(made):
        check(sh(c, one, look) == was, f"{sh(c, one, look)} is not {was}")
        sh(c, one, f"echo {i} > A; rm -r d; echo {i} > only{i}; rm /dev/shm/S")
    check(sh(c, box, look) == was, "the first is as it was")
    for i, one in enumerate(made):
        check(sh(c, one, "cat A; ls only* /dev/shm; ls d 2>/dev/null; true") == f"{i}\nonly{i}\n\n/dev/shm:\n", f"{i}")
    got = c.unary(SANDBOX + "Get", {"id": made[0]}).sandbox
    check(got.metadata["task"] == "t" and got.name == "" and got.limits.disk_bytes == 16 << 20 and got.HasField("expire_time"), f"{got}")
    check(not names(c, made[0]), "no snapshots")
    sh(c, box, "echo later > A")
    check(sh(c, made[3], "cat A") == "3\n", "what the first writes stays its own")


def a_snapshot_is_forked_while_jobs_run(b, c):
    box = new(c)
    sh(c, box, "echo a > A")
    make(c, box, "a")
    job = c.start(box, "echo b > A; echo x; sleep 100")
    c.until(job, lambda: b"x" in job.output)
    one, = fork(c, box, snapshot="a")
    check(sh(c, one, "cat A") == "a\n" and job.result is None, "and the job goes on")
    two, = fork(c, box, stop=True)
    check(sh(c, two, "cat A") == "b\n" and c.finish(job).result.outcome == 7, "of now: it was stopped")


def forks_of_forks_outlive_all_before_them(b, c):
    box = new(c)
    chain = [box]
    for i in range(6):
        sh(c, chain[-1], f"echo {i} > f{i}; echo {i} >> all")
        chain += fork(c, chain[-1])
    c.unary(SNAPSHOT + "Create", {"sandbox": chain[-1], "name": "s"})
    for gone in chain[:-1]:
        c.unary(SANDBOX + "Delete", {"id": gone})
    others = [new(c) for _ in range(7)]  # they get the same ids of the host
    last = chain[-1]
    check(sh(c, last, "cat all; cat f0 f5; stat -c %U all") == "0\n1\n2\n3\n4\n5\n0\n5\nagent\n", "all layers")
    sh(c, last, "rm f*; echo x > all")
    c.unary(SNAPSHOT + "Restore", {"sandbox": last, "name": "s"})
    check(sh(c, last, "ls; cat all | wc -l") == "all\nf0\nf1\nf2\nf3\nf4\nf5\n6\n", "and back")
    for other in others:
        check(sh(c, other, "ls -A") == "", "nobody else sees them")


def cpu(job):
    return job.result.bill.cpu_user_ns.value + job.result.bill.cpu_system_ns.value


def forks_are_billed_apart_and_have_limits_of_their_own(b, c):
    box = new(c)
    sh(c, box, "head -c 12000000 /dev/zero > big")
    one, two = fork(c, box, 2)
    for fresh in one, two:
        job = c.finish(c.start(fresh, "head -c 12000000 /dev/zero > more; wc -c big"))
        check(job.result.exit_code == 0 and b"12000000" in job.output, f"{job.output} {job.result}")
    check(c.finish(c.start(box, "head -c 12000000 /dev/zero > more")).result.exit_code == 1, "the first has them already")
    job = c.finish(c.start(one, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
    other = c.finish(c.start(two, "true"))
    check(cpu(job) > 2 * cpu(other), "own bills")


def where_files_cannot_be_shared_a_fork_is_a_bounded_copy(b, c):
    """Before Linux 6.3."""
    copies = b.feature("forks")["detail"].startswith("each fork costs a copy of the files")
    box = new(c)
    sh(c, box, "head -c 3M /dev/urandom > big; ln big same")
    reply = c.unary(SANDBOX + "Fork", {"id": box, "count": 2})
    check((6 << 20 <= reply.copied_bytes < 7 << 20) if copies else reply.copied_bytes == 0, f"{reply.copied_bytes}")
    for one in reply.sandboxes:
        check(sh(c, one.id, "cmp big same; stat -c '%h %U' big") == "2 agent\n", "the same files")
    if not copies:
        return
    no(c, {"id": box, "copy_bytes_max": 1 << 20}, EXHAUSTED, "COPY_BYTES", "copy_bytes_max")
    for name in "abc":  # more layers: the time is that of all copies
        sh(c, box, f"echo {name} > {name}")
        c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": name})
    no(c, {"id": box, "copy_ms_max": 2}, DEADLINE, "COPY_TIME", "copy_ms_max", "longer than 2 ms")
    sh(c, box, "head -c 6M /dev/urandom > more")
    one, = fork(c, box)
    full = c.finish(c.start(one, "head -c 10M /dev/urandom > own"))
    check(full.result.exit_code != 0, "the copy counts to the fork's disk")
    settled(c, 4)


def a_parent_that_is_deleted_meanwhile_leaves_all_or_none(b, c):
    for _ in range(5):
        box = new(c)
        sh(c, box, "echo a > A")
        other = connect(b)
        call = other.begin(SANDBOX + "Fork", {"id": box, "count": 6})
        c.unary(SANDBOX + "Delete", {"id": box})
        frame = other.recv(call)
        left = boxes(c)
        if frame.status.code == 0:
            check(len(left) == 6, f"{left}")
            for one in left:
                check(sh(c, one, "cat A") == "a\n", "whole")
                c.unary(SANDBOX + "Delete", {"id": one})
        else:
            check(frame.status.code in (ABORTED, NOT_FOUND), f"{frame.status}")
            until(lambda: not boxes(c), "none is left")
        settled(c, 0)
    rng = random.Random(1)
    for turn in range(30):  # its guest ends before the spawner knows that it is being removed
        box = new(c)
        sh(c, box, f"echo {turn} > A")
        name = make(c, box).name
        what = [(SANDBOX + "Fork", {"id": box, "count": 2})] * 3 + [
            ("/stockade.v1.TemplateService/Create", {"name": f"t{turn}", "sandbox": box}),
            (SNAPSHOT + "Diff", {"sandbox_id": box, "first": name})]
        others = [connect(b) for _ in what]
        calls = [other.begin(*one) for other, one in zip(others, what)]
        time_passes("the forks are somewhere on their way", rng.uniform(0, 0.02))
        c.unary(SANDBOX + "Delete", {"id": box})
        for other, call, (method, _) in zip(others, calls, what):
            status = other.recv(call).status
            cut = method.endswith("/Diff") and status.code == UNAVAILABLE  # its program ended first: try again
            check(cut or status.code in (0, ABORTED, NOT_FOUND, PRECONDITION), f"turn {turn}: {method}: {status}")
            other.close()
        b.cli("rm", "--all")  # some may be going already
    settled(c, 0)


def busy(c, box):
    """A fork or snapshot is being made."""
    try:
        make(c, box)
    except Exception:  # noqa: BLE001
        return True
    return boxes(c) != {box}


def a_caller_that_goes_leaves_no_forks(b, c):
    box = new(c)
    gone = connect(b)
    gone.begin(SANDBOX + "Fork", {"id": box, "count": 8})
    gone.close()
    until(lambda: c.unary(SANDBOX + "Get", {"id": box}) and boxes(c) == {box} and not busy(c, box), "they are removed")
    settled(c, 1)
    check(len(fork(c, box, 20)) == 20, "and the quota has room for more")


def many_forks_leave_nothing(b, c):
    box = new(c)
    sh(c, box, "echo a > A")

    def turn():
        for one in fork(c, box, 10):
            c.unary(SANDBOX + "Delete", {"id": one})

    turn()
    before = len(os.listdir(f"/proc/{b.spawner()}/fd")), subprocess.run(["grep", "-c", "", "/proc/self/mountinfo"],
                                                                    capture_output=True, check=True).stdout
    for _ in range(5):
        turn()
    until(lambda: len(os.listdir(f"/proc/{b.spawner()}/fd")) <= before[0] + 12, "descriptors come back")  # user namespaces of slots stay
    check(subprocess.run(["grep", "-c", "", "/proc/self/mountinfo"], capture_output=True, check=True).stdout == before[1], "no mounts")
    check(sh(c, box, "cat A") == "a\n", "and the first is as it was")


def the_command_prints_ids(b, c):
    b.cli("create", "--name", "agent")
    b.cli("exec", "agent", "--", "sh", "-c", "echo a > A")
    r = b.cli("fork", "--count", "3", "agent")
    ids = r.stdout.decode().split()
    check(r.returncode == 0 and len(ids) == 3, f"{r.stdout} {r.stderr}")
    check(b.cli("exec", ids[2], "--", "cat", "A").stdout == b"a\n", "its files")
    b.cli("snapshot", "create", "agent", "s")
    code, listed = b.json("fork", "--snapshot", "s", "--ttl", "1m", "agent")
    check(code == 0 and len(listed) == 1 and listed[0]["id"] not in ids, f"{listed}")
    for line, words in ((("fork", "--count", "101", "agent"), b"at most 100"), (("fork", "nobody"), b"no sandbox"),
                        (("fork", "--snapshot", "none", "agent"), b"has no snapshot none")):
        r = b.cli(*line)
        check(r.returncode != 0 and words in r.stderr, f"{line}: {r.returncode} {r.stderr}")


TESTS = [what_cannot_be_forked_is_refused_and_leaves_nothing, forks_see_the_files_and_none_of_each_others_writes,
         a_snapshot_is_forked_while_jobs_run, forks_of_forks_outlive_all_before_them,
         forks_are_billed_apart_and_have_limits_of_their_own, where_files_cannot_be_shared_a_fork_is_a_bounded_copy,
         a_parent_that_is_deleted_meanwhile_leaves_all_or_none,
         a_caller_that_goes_leaves_no_forks, many_forks_leave_nothing, the_command_prints_ids]


def alone(test):
    """Without the sandboxes of the tests before it: the quota is small."""
    @functools.wraps(test)
    def run(b, c):
        b.cli("rm", "--all")
        settled(c, 0)
        test(b, c)
    return run


if __name__ == "__main__":
    main(Broker(config=CONFIG), [alone(test) for test in TESTS])
