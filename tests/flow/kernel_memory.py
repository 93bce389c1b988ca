#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel memory that no cgroup is charged for is bounded: lists of names of folders that come from several layers."""

import time

from api import EXITED, LIMIT, SANDBOX, connect, main
from broker import Broker
from root_inside import needs_the_ids_of_usr
from runner import check, until

SNAPSHOT = "/stockade.v1.SnapshotService/"
METRICS = "/stockade.v1.MetricsService/Get"
CONFIG = """
bpf: {enabled: false}
pool: 1
templates:
  - name: default
  - {name: rooted, user: root, root: writable}
"""
MIB = 1 << 20
MOST = 128 * MIB  # sandbox/lists_watch.c
# A look each 100 ms, on a host that has other work; without the guard it is 700 MiB and more.
LATE = 192 * MIB
NAMES = """python3 -c '
import os, sys
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
open("0", "w").close()
for i in range(int(sys.argv[2])):
    os.link("0", f"{i:0100}")
' """
# Each descriptor reads a version of the folder of its own, whose list the kernel keeps. "hide": they are in sockets, in no table;
# "nest": in sockets that are in a socket, so that no folder is seen; "apart": in the table of a thread.
HOLD = """exec python3 -c '
import ctypes, os, socket, sys, threading, time
folder, n, how = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
names = ctypes.create_string_buffer(400)  # the first read makes the whole list
getdents64 = 217 if os.uname().machine == "x86_64" else 61
close_range, unshare = 436, 2
call = ctypes.CDLL(None).syscall
pair = lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
kept = []

def read_one():
    fd = os.open(folder, os.O_RDONLY)
    assert call(getdents64, fd, names, 400) > 0
    open(folder + "/version", "w").close()
    os.unlink(folder + "/version")
    return fd

def put(into, fds):  # into a socket, which must not be full
    socket.send_fds(into[0], [b"x"], fds)
    for fd in fds:
        os.close(fd)

def hold():
    if how == ["apart"]:
        assert call(close_range, 5000, 5000, unshare) == 0
    outer = []
    while len(kept) < n:
        fds = [read_one() for i in range(5 if how in (["hide"], ["nest"]) else 1)]
        if how in (["hide"], ["nest"]):
            inner = pair()
            put(inner, fds)
            fds = [inner]
        if how == ["nest"]:
            outer = outer if len(kept) % 4 else pair()
            put(outer, [inner[0].detach(), inner[1].detach()])
            fds = [outer]
        kept.extend(fds)
    print("all", len(kept), flush=True)
    time.sleep(600)

print("begun", flush=True)
thread = threading.Thread(target=hold)
thread.start()
thread.join()' """
# The names exist only while the lists are made.
CYCLE = """exec python3 -c '
import os, time
held = []
print("begun", flush=True)
while len(held) < 2000:
    for i in range(3000):
        os.link("many/0", f"many/{i}" + 200 * "x")
    for i in range(20):
        fd = os.open("many", os.O_RDONLY)
        os.listdir(fd)
        held.append(fd)
        os.link("many/0", "many/y")
        os.unlink("many/y")
    for i in range(3000):
        os.unlink(f"many/{i}" + 200 * "x")
print("all", len(held), flush=True)
time.sleep(600)' """


def uncharged():
    """Bytes of the kernel's general caches without an account (/proc/slabinfo)."""
    total = 0
    with open("/proc/slabinfo", encoding="ascii") as f:
        for word in map(str.split, f):
            if word[0].startswith("kmalloc-") and (word[0][8].isdigit() or word[0][8:].startswith("rnd-")):
                total += int(word[2]) * int(word[3])
    return total


def ends(c):
    every = c.unary(METRICS, {"prefix": "stockade_sandboxes_kernel_memory_ends_total"}).metrics
    return [sample.value for sample in every[0].samples][0]


def findings(b, box):
    code, all_ = b.json("anomalies", "--sandbox", box, "--rule", "kernel-memory")
    check(code == 0, f"anomalies: {code}")
    return all_


def new(c, **more):
    return c.unary(SANDBOX + "Create", more).sandbox.id


def sh(c, box, line):
    job = c.finish(c.start(box, line))
    check(job.result.outcome == EXITED and job.result.exit_code == 0, f"{line}: {job.output} {job.result}")
    return job.output


def with_layers(c, folder="many", names=15000, **more):
    box = new(c, **more)
    sh(c, box, NAMES + f"{folder} {names}")
    c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": "s"})
    return box


def is_ended_in_time(c, box, line):
    before = uncharged()
    job = c.start(box, line)
    peak, end = 0, time.monotonic() + 60
    while time.monotonic() < end and box in [s.id for s in c.unary(SANDBOX + "List", {}).sandboxes]:
        peak = max(peak, uncharged() - before)
        check(peak < MOST + LATE, f"{peak / MIB} MiB of lists, and the sandbox goes on")
        time.sleep(0.05)
    result = c.finish(job).result
    print(f"{peak / MIB:.0f} MiB of lists")
    check(result.outcome == LIMIT and "lists of names" in result.reason, f"{result.outcome} {result.reason}")
    check(result.limit_hit.name == "memory_bytes", f"limit {result.limit_hit.name!r}")
    until(lambda: uncharged() - before < MOST / 2, "the kernel has freed them")


def one_near_the_limit_is_found_and_goes_on(b, c):
    box = with_layers(c)
    job = c.start(box, HOLD + "many 40")  # of 1.9 MiB each
    until(lambda: findings(b, box), lambda: f"a finding: {b.log()[-400:]}")
    f = findings(b, box)[0]
    check(f["response"] == "alert" and f["process_id"] == job.id and "(limit: 128 MiB)" in f["text"] and "nothing was done" in f["text"], f"{f}")
    check(f["threshold"] == 50 and 50 <= f["score"] < 100 and job.result is None, f"{f}")
    check("kernel-memory" in b.cli("anomalies", "--rules").stdout.decode(), "it is among the rules")
    c.unary(SANDBOX + "Delete", {"id": box})


def what_holds_lists_ends_and_a_neighbour_does_not(b, c):
    before = ends(c)  # the one of the test before may have ended, too: what else the host's kernel has counts with it
    neighbour = with_layers(c, names=100)
    other = c.start(neighbour, HOLD + "many 20")
    c.until(other, lambda: b"all 20" in other.output)
    box = with_layers(c)
    is_ended_in_time(c, box, HOLD + "many 1000")
    last = findings(b, box)[-1]
    check("it was destroyed" in last["text"] and last["score"] >= 100 and last["process_id"] != "", f"{last}")
    check(not [f for f in findings(b, neighbour) if "destroyed" in f["text"] and "at the limit" not in f["text"]], "of the neighbour")
    check("kernel-memory" in b.log() and box in b.log(), f"{box} is not in the log: {b.log()[-400:]}")
    check(sh(c, neighbour, "echo x") == b"x\n" and other.result is None, "the neighbour was ended")
    check(ends(c) == before + 1, f"{ends(c)} are counted, {before} before")
    c.unary(SANDBOX + "Delete", {"id": neighbour})


def descriptors_on_their_way_through_a_socket_count(b, c):
    is_ended_in_time(c, with_layers(c), HOLD + "many 1000 hide")


def a_thread_with_descriptors_of_its_own_counts(b, c):
    is_ended_in_time(c, with_layers(c), HOLD + "many 1000 apart")


def descriptors_in_sockets_in_sockets_count(b, c):
    is_ended_in_time(c, with_layers(c), HOLD + "many 1000 nest")


def a_fork_holds_the_names_that_it_inherited(b, c):
    box = with_layers(c)
    fork = c.unary(SANDBOX + "Fork", {"id": box, "count": 1}).sandboxes[0].id
    is_ended_in_time(c, fork, HOLD + "many 1000")
    check(sh(c, box, "ls many | wc -l") == b"15001\n", "the one that it was forked from goes on")
    c.unary(SANDBOX + "Delete", {"id": box})


def root_inside_holds_the_names_of_the_root_without_a_snapshot(b, c):
    needs_the_ids_of_usr(b)
    box = new(c, template="rooted")
    sh(c, box, NAMES + "/usr/share 15000")
    is_ended_in_time(c, box, HOLD + "/usr/share 1000")


def names_that_are_removed_again_count(b, c):
    is_ended_in_time(c, with_layers(c, names=10, limits={"files": 4096}), CYCLE)


def who_lists_many_folders_and_closes_them_goes_on(b, c):
    box = with_layers(c)
    sh(c, box, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do touch many/$i; ls many >/dev/null; done")
    c.unary(SANDBOX + "Delete", {"id": box})


TESTS = [one_near_the_limit_is_found_and_goes_on, what_holds_lists_ends_and_a_neighbour_does_not, names_that_are_removed_again_count, descriptors_on_their_way_through_a_socket_count,
         descriptors_in_sockets_in_sockets_count, a_thread_with_descriptors_of_its_own_counts, a_fork_holds_the_names_that_it_inherited,
         root_inside_holds_the_names_of_the_root_without_a_snapshot, who_lists_many_folders_and_closes_them_goes_on]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
