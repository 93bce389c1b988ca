#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Layers that are joined in the background: a sandbox has as many states as it likes, and each shows the files that it had."""

import os
import random
import time

from api import SANDBOX, connect, main
from broker import Broker
from forks import settled
from runner import check, until
from sp import EXHAUSTED, Failed
from snapshots import SNAPSHOT, delete, guests, make, mounts_of, new, restore, sh
from transactions import begin, commit

METRICS = "/stockade.v1.MetricsService/Get"
FILES = "/stockade.v1.FileService/"
CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
quotas: {kept_bytes_per_caller: 96M}
limits_max: {disk: 512M, memory: 1G}
templates:
  - name: default
    limits: {disk: 256M, inodes: 60000, memory: 512M}
"""
STATES = 1000
SLEEPS = int(os.environ.get("STOCKADE_SLEEPS", "200"))  # more than DEPTH
DEPTH = 47  # spawner/tree_layers.h

# Everything that a job can see of its files, but the numbers of inodes and links: names of one file are listed. A name that was replaced
# counts as a link until its layer is joined.
LOOK = """
import hashlib, os, stat
linked = {}
def show(path):
    s = os.lstat(path)
    what = [path, oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns]
    if stat.S_ISREG(s.st_mode):
        linked.setdefault((s.st_dev, s.st_ino), []).append(path)
        what += [s.st_size, s.st_blocks > 0]
        if os.access(path, os.R_OK):
            what.append(hashlib.sha256(open(path, 'rb').read()).hexdigest())
    elif stat.S_ISLNK(s.st_mode):
        what.append(os.readlink(path))
    try:
        what += sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in os.listxattr(path, follow_symlinks=False))
    except OSError as e:
        what.append(e.errno)
    print(what)
    if stat.S_ISDIR(s.st_mode):
        for n in sorted(os.listdir(path)):
            show(path + b'/' + n)
for root in (b'/home/agent', b'/tmp', b'/var/tmp', b'/dev/shm'):
    show(root)
for names in linked.values():
    print(sorted(names))
"""


def put(c, box, path, data):
    c.unary(FILES + "Write", {"sandbox_id": box, "path": path, "data": data})


def get(c, box, path):
    return c.unary(FILES + "Read", {"sandbox_id": box, "path": path})


def look(c, box):
    job = c.finish(c.start(box, f"python3 -c \"$(cat <<'E'\n{LOOK}\nE\n)\""))
    check(job.result.outcome == 1 and len(job.output) > 100, f"{job.result} {job.output[-500:]}")
    return job.output


def metric(c, name):
    name = f"stockade_layer_{name}"
    return sum(s.value for m in c.unary(METRICS, {"prefix": name}).metrics if m.name == name for s in m.samples)


def write_a_state(c, box, i):
    """Folders that hide others, whiteouts, links, modes, and names that are no text; seldom much."""
    sh(c, box, f"""
        i={i}; echo $i > now; echo $i > f$((i % 7)); rm -f f$(((i + 3) % 7)); mkdir -p d/e; echo $i > d/$i; rm -f d/$((i - 5))
        case $((i % 6)) in
        0) rm -rf d; mkdir d; echo opaque $i > d/o; touch "$(printf 'n\\377\\n')$i" ;;
        1) rm -rf t; ln -s /../../etc/shadow t; mkfifo p$i; chmod 4711 f$((i % 7)) ;;
        2) rm -rf t; mkdir t; echo in > t/in; ln now h$i; ln h$i d/h$i; setfattr -n user.a -v $i now 2>/dev/null ;;
        3) rm -rf d/e; echo a file > d/e; mv f$((i % 7)) moved$i; truncate -s 1G holes; echo end >> holes ;;
        4) rm -f d/e; mkdir -m 0700 d/e; mkdir -p deep/$i/2/3/4/5; touch .wh.now .wh..wh..opq; chmod 0500 d/e ;;
        5) rm -rf deep p*; echo $i > h$((i - 3)); touch -d @$i now; echo $i > /tmp/x; echo $i >> /dev/shm/y; chmod 700 d/e ;;
        esac; mknod w c 0 0 2>/dev/null; setfattr -n user.overlay.opaque -v y d 2>/dev/null
        setfattr -n trusted.overlay.opaque -v y d 2>/dev/null; true""")


def joined(c, before):
    until(lambda: metric(c, "joins_total") > before, "layers are joined")


def made(c, box, name):
    """Whether there was room: on a busy machine a join may take longer than the 30 s that a snapshot waits for one."""
    try:
        make(c, box, name)
    except Failed as e:
        check(e.code == EXHAUSTED, str(e))
        return False
    return True


def every_state_of_hostile_files_looks_as_it_did(b, c):
    box = new(c)
    seen = {}
    before = metric(c, "joins_total")
    for i in range(120):
        write_a_state(c, box, i)
        if i % 10 == 9:
            seen[f"s{i}"] = look(c, box)
            make(c, box, f"s{i}")
        else:
            make(c, box, "drop")
            delete(c, box, "drop")
    joined(c, before + 3)
    check(metric(c, "join_failures_total") == 0, "none failed")
    order = list(seen)
    random.shuffle(order)
    for name in order:
        restore(c, box, name)
        got = look(c, box)
        if got != seen[name]:
            a, z = got.splitlines(), seen[name].splitlines()
            check(False, f"{name}: now {sorted(set(a) - set(z))[:4]}, was {sorted(set(z) - set(a))[:4]}")
    fork = c.unary(SANDBOX + "Fork", {"id": box, "count": 1}).sandboxes[0].id
    check(look(c, fork) == seen[order[-1]], "and so it does in a fork")
    c.unary(SANDBOX + "Delete", {"id": box})
    for i in range(40):
        put(c, fork, b"more", b"%d" % i)
        until(lambda: made(c, fork, "drop"), "a snapshot has room", 120)
        delete(c, fork, "drop")
    c.unary(FILES + "Remove", {"sandbox_id": fork, "path": b"more"})
    check({n for n in look(c, fork).splitlines() if b"agent'," not in n} == {n for n in seen[order[-1]].splitlines() if b"agent'," not in n},
          "a fork joins what it inherited")


def a_thousand_snapshots_are_there_at_a_time_and_leave_nothing(b, c):
    box = new(c)
    put(c, box, b"A", b"start")
    make(c, box, "start")
    before = None
    begun = time.monotonic()
    for i in range(STATES):
        put(c, box, b"A", b"%d" % i)
        put(c, box, b"f%d" % (i % 10), b"%d" % i)
        make(c, box, f"s{i}")
        if i == 2:
            before = mounts_of(b, box)
    made = time.monotonic() - begun
    check(c.unary(SNAPSHOT + "Get", {"sandbox": box, "name": f"s{STATES - 1}"}).snapshot.current, "the last one")
    begun = time.monotonic()
    for i in random.sample(range(STATES), STATES):
        restore(c, box, f"s{i}")
        if i % 5 == 0:
            text = sh(c, box, "cat A; cat f*")
            check(text.startswith(f"{i}") and str(i) in text, f"{i}: {text}")
    print(f"# {STATES} snapshots in {made:.1f} s, as many roll backs in {time.monotonic() - begun:.1f} s, "
          f"{metric(c, 'joins_total'):.0f} joins of {metric(c, 'joined_layers_total'):.0f} layers", flush=True)
    restore(c, box, "start")
    for i in range(STATES):
        delete(c, box, f"s{i}")
    until(lambda: mounts_of(b, box) <= before + 2, lambda: f"{mounts_of(b, box)} mounts, not {before}")
    check(sh(c, box, "cat A; ls") == "startA\n", "as at first")
    check(len(guests(b, box)) == 1, "and no keeper is left")


def states_that_nobody_names_take_no_room(b, c):
    box = new(c)
    make(c, box, "empty")
    before = metric(c, "joins_total")
    sh(c, box, "head -c 60000000 /dev/urandom > large")
    large = sh(c, box, "md5sum large")
    for i in range(300):
        put(c, box, b"A", os.urandom(100000))
        make(c, box, "s")
        delete(c, box, "s")
    joined(c, before + 5)
    check(mounts_of(b, box) < 3 * DEPTH, f"{mounts_of(b, box)} mounts")
    check(sh(c, box, "md5sum large") == large, "the large file")
    sh(c, box, "head -c 100000000 /dev/zero > more")  # 60 of 256 MB are the large file, and 30 what was written in between
    check(metric(c, "joined_bytes_total") < 60e6, "and it was not copied")


def a_transaction_keeps_what_it_began_on(b, c):
    box = new(c)
    put(c, box, b"base", b"b")
    tx = begin(c, box)
    for i in range(60):
        for where in (box, tx):
            put(c, where, b"in" if where == tx else b"out", b"%d" % i)
            make(c, where, f"s{i}")
            delete(c, where, f"s{i}")
    check(commit(c, tx).state == 2, "committed")
    check(sh(c, box, "cat base in out") == "b5959", "both")


def a_copy_for_a_caller_comes_first(b, c):
    box = new(c)
    for i in range(19):
        put(c, box, b"A%d" % i, os.urandom(1000000))
        make(c, box, "s")
        delete(c, box, "s")
    job = c.start(box, "while :; do date > B; done")
    for i in range(40):
        put(c, box, b"C", b"%d" % i)
        c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": f"copy{i}", "copy": True})
    c.unary("/stockade.v1.ProcessService/Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)
    for i in (0, 20, 39):
        restore(c, box, f"copy{i}")
        check(sh(c, box, "cat C; ls A* | wc -l") == f"{i}19\n", f"copy{i}")


def a_sandbox_that_ends_in_the_middle_leaves_nothing(b, c):
    b.cli("rm", "--all")
    settled(c, 0)
    before = metric(c, "join_failures_total")
    for _ in range(10):
        box = new(c)
        for i in range(19):
            put(c, box, b"A%d" % i, os.urandom(500000))
            make(c, box, f"s{i}")
        put(c, box, b"B", b"x")
        c.begin(SNAPSHOT + "Create", {"sandbox": box})  # a join begins after it
        time.sleep(random.random() / 50)
        c.unary(SANDBOX + "Delete", {"id": box})
    settled(c, 0)
    check(metric(c, "join_failures_total") == before, "the end of a sandbox is no failure")


def two_hundred_sleeps_are_no_end(b, c):
    box = new(c)
    sh(c, box, "for i in $(seq 20); do echo $i > f$i; done")
    begun = time.monotonic()
    for i in range(SLEEPS):
        put(c, box, b"A", b"%d" % i)
        b.cli("sleep", box)
    print(f"# {SLEEPS} sleeps in {time.monotonic() - begun:.1f} s", flush=True)
    check(sh(c, box, "cat A f20") == f"{SLEEPS - 1}20\n", "its files")
    kept = len(os.listdir(f"{b.state}/layers"))
    check(kept <= DEPTH, f"{kept} layers in the state directory")
    c.unary(SANDBOX + "Delete", {"id": box})
    until(lambda: not os.listdir(f"{b.state}/layers"), "and none at the end")


TESTS = [every_state_of_hostile_files_looks_as_it_did, states_that_nobody_names_take_no_room, a_transaction_keeps_what_it_began_on,
         a_copy_for_a_caller_comes_first, a_sandbox_that_ends_in_the_middle_leaves_nothing,
         a_thousand_snapshots_are_there_at_a_time_and_leave_nothing, two_hundred_sleeps_are_no_end]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
