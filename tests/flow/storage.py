#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes whose files are on disk: what is refused, that files are no memory, limits, layers, a full host, kill -9, nothing left."""

import json
import os
import signal
import subprocess

from api import PRECONDITION, PROCESS, SANDBOX, connect, main
from broker import Broker, binary, small_disk
from runner import Skipped, check, until
from slowness import scaled
from snapshots import make, restore
from sp import EXHAUSTED, INVALID
from volumes import loops, sh

MIB = 1 << 20
CONFIG = """
socket: {mode: 0666}
pool: 1
bpf: {enabled: false}
limits_max: {disk: 256M, memory: 512M, file_size: 256M}
templates:
  - name: default
    storage: disk
    limits: {disk: 96M, inodes: 1000, memory: 48M, file_size: 256M}
  - {name: memory, limits: {disk: 16M}}
"""
FILL = """python3 -c '
import os
f = os.open("%s", os.O_WRONLY | os.O_CREAT)
n = 0
try:
    while True: n += os.write(f, bytes(65536))
except OSError as e: print(e.errno, n)
'"""


def new(c, **more):
    return c.unary(SANDBOX + "Create", more).sandbox.id


def remove(c, box):
    c.unary(SANDBOX + "Delete", {"id": box})


def ready(c, n):
    def pool():
        return next(t for t in c.unary("/stockade.v1.SystemService/Info", {}).templates if t.name == "default").pool_ready
    until(lambda: pool() == n, lambda: f"{pool()} are ready")


# ---- what is refused


def a_host_without_what_it_needs_has_the_template_disabled(b, c):
    hide = ("unshare", "-m", "sh", "-c", 'for f in /usr/sbin/mkfs.ext4 /sbin/mkfs.ext4 /usr/bin/mkfs.ext4; do '
            '[ ! -e $f ] || mount --bind /dev/null $f || exit 9; done; exec "$@"', "sh")
    config = os.path.join(b.folder, "stockaded.yaml")
    for prefix, code in (((), 0), (hide, 78)):
        r = subprocess.run([*prefix, binary("stockaded"), "--check-config", "--config", config], capture_output=True, check=False)
        if r.returncode == 9:
            raise Skipped("no mounts here")
        check(r.returncode == code, f"{r}")
        check((b"template default: storage: disk: mkfs.ext4 is not installed" in r.stdout + r.stderr) == (code != 0), f"{r}")
    b.stop()
    b.prefix = list(hide)
    b.start()
    b.prefix = []
    try:
        failed = connect(b).fails(SANDBOX + "Create", {})
        check(failed.code == PRECONDITION and "mkfs.ext4 is not installed" in failed.message, f"{failed}")
        check(not b.feature("storage-on-disk")["available"], "info says so")
        check(b.cli("run", "--template", "memory", "true").returncode == 0, "and the others work")
    finally:
        b.stop()
        b.start()


def a_word_that_is_none_is_refused(b, c):
    path = os.path.join(b.folder, "wrong.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG.replace("storage: disk", "storage: tape"))
    r = subprocess.run([binary("stockaded"), "--check-config", "--config", path], capture_output=True, check=False)
    check(r.returncode == 78 and b"storage" in r.stderr + r.stdout, f"{r}")


def a_size_above_the_maximum_is_refused(b, c):
    for limits, field in (({"disk_bytes": 257 * MIB}, "limits.disk_bytes"), ({"disk_bytes": 1000}, "limits.disk_bytes"), ({"inodes": 3}, "limits.inodes")):
        failed = c.fails(SANDBOX + "Create", {"limits": limits})
        check(failed.code == INVALID and field in str(failed.details), f"{limits}: {failed}")


# ---- what works


def fill(c, box):
    """Errno and bytes of a file that takes all there is; it is removed."""
    return tuple(map(int, sh(c, box, FILL % "/tmp/full" + "; rm /tmp/full").split()))


def has_its_size(c, box, size, inodes=None):
    errno, n = fill(c, box)
    check(errno == 28 and size - MIB <= n <= size + 3 * MIB, f"{errno} {n} of {size}")
    if inodes is not None:
        made = int(sh(c, box, "python3 -c '\nimport os\nn = 0\ntry:\n while True: os.mknod(str(n)); n += 1\n"
                      "except OSError: print(n)\nfor i in range(n): os.unlink(str(i))'"))
        check(inodes - 50 <= made <= inodes + 100, f"{made} inodes of {inodes}")


def each_has_the_size_that_it_asks_for(b, c):
    """Less or more than the template's; a snapshot, a fork and one that was asleep keep it."""
    ready(c, 1)
    small, large, smallest = (new(c, limits=limits) for limits in (
        {"disk_bytes": 8 * MIB, "inodes": 300}, {"disk_bytes": 128 * MIB, "memory_bytes": 64 * MIB}, {"disk_bytes": 65536, "inodes": 64}))
    check(len(loops(b)) == 4, f"one is ready, and each has one: {loops(b)}")
    limits = c.unary(SANDBOX + "Get", {"id": small}).sandbox.limits
    check((limits.disk_bytes, limits.inodes, limits.memory_bytes) == (8 * MIB, 300, 48 * MIB), f"{limits}")
    has_its_size(c, small, 8 * MIB, 300)
    has_its_size(c, large, 128 * MIB)
    has_its_size(c, smallest, 65536, 64)
    sh(c, small, "echo one > A")
    make(c, small, "one")
    has_its_size(c, small, 8 * MIB, 300)
    restore(c, small, "one")
    has_its_size(c, small, 8 * MIB, 300)
    forks = [s.id for s in c.unary(SANDBOX + "Fork", {"id": small, "count": 2}).sandboxes]
    for fork in forks:
        check(sh(c, fork, "cat A") == "one\n", "it has the files")
        has_its_size(c, fork, 8 * MIB, 300)
    check(b.cli("run", "--disk", "8M", "true").returncode == 0 and b.cli("run", "--disk", "1T", "true").returncode != 0, "on the command line, too")
    for box in (small, large, smallest, *forks):
        remove(c, box)
    until(lambda: len(loops(b)) <= 1, lambda: f"only a ready one has a disk: {loops(b)}")


def limits_outlast_what_is_done_with_the_files(b, c):
    """Sleep, a kept snapshot, a fork, a roll back and a template: --disk and --inodes hold for what is written after each of them."""
    def has_room(box):
        block, blocks, inodes = map(int, sh(c, box, "stat -f -c '%S %a %d' /tmp").split())
        check(8 * MIB - 65536 <= block * blocks <= 11 * MIB and 250 <= inodes <= 400, f"{box}: {block * blocks} bytes and {inodes} inodes are free")

    for template in ("default", "memory"):
        flags = ("--template", template, "--disk", "8M", "--inodes", "300")
        box = b.cli("create", *flags).stdout.decode().strip()
        sh(c, box, "head -c 3000000 /dev/urandom > big; for i in $(seq 50); do : > f$i; done")
        kept, made = f"kept-{template}", f"made-{template}"
        steps = (("sleep", box), ("wake", box)), (("snapshot", "create", "--keep", box, kept),), (("snapshot", "restore", box, kept),)
        for commands in steps:
            for command in commands:
                check(b.cli(*command).returncode == 0, f"{command}")
            has_room(box)
        check(b.cli("template", "create", made, "--from", box).returncode == 0, "a template")
        for command in (("fork", box), ("create", "--snapshot", kept, *flags[2:]), ("create", "--template", made, *flags[2:])):
            other = b.cli(*command).stdout.decode().strip()
            limits = c.unary(SANDBOX + "Get", {"id": other}).sandbox.limits
            check((limits.disk_bytes, limits.inodes) == (8 * MIB, 300), f"{command}: {limits}")
            check(sh(c, other, "stat -c %s big; ls | wc -l").split() == ["3000000", "51"], f"{command}: its files")
            has_room(other)
            remove(c, other)
        remove(c, box)
        check(b.cli("template", "rm", made).returncode == 0 == b.cli("snapshot", "rm", kept).returncode, "tidy")


def one_that_is_cancelled_leaves_nothing(b, c):
    """A client that goes away while its disk is made, and more at a time than are made."""
    clients = [connect(b) for _ in range(9)]
    for other in clients:
        other.begin(SANDBOX + "Create", {"limits": {"disk_bytes": 9 * MIB}})
    for other in clients:
        other.close()
    box = new(c, limits={"disk_bytes": 9 * MIB})
    has_its_size(c, box, 9 * MIB)
    b.cli("rm", "--all")
    until(lambda: len(loops(b)) <= 1, lambda: f"only a ready one has a disk: {loops(b)}")


def files_are_no_memory(b, c):
    """More than the memory limit is written, and what is charged can be taken back at once."""
    box = new(c)
    check(sh(c, box, "head -c 80000000 /dev/urandom > big; cksum < big > sum; cksum < big | cmp - sum; stat -c %s big") == "80000000\n", "all there")
    usage = c.unary(SANDBOX + "Get", {"id": box}).sandbox
    check(usage.limits.memory_bytes == 48 * MIB, "of 48 MiB")
    check(sh(c, box, "python3 -c 'import mmap; m = mmap.mmap(-1, 20 << 20); m.write(b\"x\" * (20 << 20)); print(1)'") == "1\n", "and room for a process")
    remove(c, box)


def limits_hold_and_what_the_template_says_fits(b, c):
    box = new(c)
    errno, n = sh(c, box, FILL % "/tmp/full").split()
    check(errno == "28" and 95 * MIB <= int(n) <= 100 * MIB, f"{errno} {n}")
    more, kept = sh(c, box, "head -c 1000000 /dev/zero > y 2>/dev/null; stat -c %s y; rm -f y /tmp/full; echo kept > K; cat K").split()
    check(int(more) < 300_000 and kept == "kept", f"then nothing more fits: {more} {kept}")
    made = int(sh(c, box, "python3 -c '\nimport os\nn = 0\ntry:\n while True: os.mknod(str(n)); n += 1\n"
                  "except OSError: print(n)\nfor i in range(n): os.unlink(str(i))'"))
    check(950 <= made <= 1100, f"{made} inodes")
    check(sh(c, box, "ln -s A B; mkfifo F; mkdir -p d/e; mv d f; ls -A | tr '\\n' ' '") == "B F K f ", "a file system as any")
    check("nosuid,nodev" in sh(c, box, "grep ' /dev/shm ' /proc/mounts"), "without set-id and devices")
    remove(c, box)


def batch(b, scripts):
    lines = "\n".join(json.dumps({"args": ["sh", "-c", script]}) for script in scripts)
    r = b.cli("batch", "--reset", "files", "-p", "1", "-", input=lines.encode())
    return r, [d["stdout"].split() for d in sorted(map(json.loads, r.stdout.splitlines()), key=lambda d: d["number"])]


def a_batch_recycles_one(b, c):
    """A job that wrote something costs a new disk, of the whole size; one that did not costs nothing."""
    where = "readlink /proc/self/ns/ipc; stat -c %d /tmp; "
    fill = where + FILL % "/tmp/full"
    left = where + "echo A*; echo /tmp/* /dev/shm/*"
    r, told = batch(b, [where] * 12 + [where + "echo x > A; echo x > /dev/shm/S", left, fill, left, fill])
    check(r.returncode == 0 and len(told) == 17, f"{r}")
    # another one takes its place when a process is slow to end, for example
    check(len({tuple(t) for t in told[:12]}) <= 6, f"most of those that wrote nothing have the sandbox and the disk of the one before: {told}")
    check(all(t[2:] == ["A*", "/tmp/*", "/dev/shm/*"] for t in (told[13], told[15])), f"no job finds a file: {told}")
    check(all(t[2] == "28" and 95 * MIB <= int(t[3]) <= 100 * MIB for t in (told[14], told[16])), f"each has the whole limit: {told}")
    until(lambda: len(loops(b)) <= 1, lambda: f"only a ready one has a disk: {loops(b)}")


def layers_of_it_are_on_disk(b, c):
    """Snapshots, while a job runs too, rollbacks, forks and a transaction."""
    box = new(c)
    sh(c, box, "head -c 50000000 /dev/urandom > big; cksum big > sum; echo one > A; echo s > /dev/shm/S")
    make(c, box, "one")
    sh(c, box, "echo two > A; rm big; echo t > /dev/shm/S")
    make(c, box, "two")
    job = c.start(box, "while :; do date > now; sleep 0.1; done")
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": box, "name": "live", "copy": True})
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)
    restore(c, box, "one")
    check(sh(c, box, "cksum big | cmp - sum; cat A /dev/shm/S") == "one\ns\n", "as it was")
    fork = c.unary(SANDBOX + "Fork", {"id": box, "count": 1}).sandboxes[0].id
    sh(c, fork, "echo fork > A; cksum big | cmp - sum")
    remove(c, box)
    check(sh(c, fork, "cat A; cksum big | cmp - sum && stat -c '%u' big") == "fork\n1000\n", "it outlives its parent")
    full = sh(c, fork, FILL % "/tmp/full").split()
    check(full[0] == "28" and int(full[1]) <= 100 * MIB, f"its own disk has a limit: {full}")
    remove(c, fork)
    until(lambda: len(loops(b)) <= 1, lambda: f"only a ready one has a disk: {loops(b)}")


def one_that_sleeps_wakes(b, c):
    box = new(c, name="sleeper", limits={"disk_bytes": 64 * MIB})
    sh(c, box, "head -c 30000000 /dev/urandom > big; cksum big > sum")
    c.unary(SANDBOX + "Sleep", {"id": box})
    until(lambda: len(loops(b)) <= 1, lambda: f"it has no disk meanwhile: {loops(b)}")
    check(sh(c, box, "cksum big | cmp - sum; echo woken > A; cat A") == "woken\n", "its files are there")
    has_its_size(c, box, 64 * MIB)
    remove(c, box)


def a_full_host_refuses_and_harms_nobody(b, c):
    """All bytes are the sandbox's from the beginning, so two fit on this disk."""
    b.stop()
    b.prefix = small_disk(b.state, 290)
    try:
        b.start()
        c = connect(b)
        boxes = []
        for _ in range(2):
            ready(c, 1)
            boxes.append(new(c))
        failed = c.fails(SANDBOX + "Create", {})
        check(failed.code == EXHAUSTED and "HOST_DISK_FULL" in str(failed.details), f"{failed}")
        small = new(c, limits={"disk_bytes": 4 * MIB})
        has_its_size(c, small, 4 * MIB)
        remove(c, small)
        failed = c.fails("/stockade.v1.SnapshotService/Create", {"sandbox": boxes[0]})
        check(failed.code == EXHAUSTED and "HOST_DISK_FULL" in str(failed.details), f"no room for another upper layer: {failed}")
        remove(c, boxes.pop())
        r, _ = batch(b, ["true"])
        check(r.returncode == 1 and b"could not be reset" in r.stdout and b"has no room for" in r.stdout, f"nor for that of a batch that recycles: {r}")
        for box in boxes:
            errno, n = sh(c, box, FILL % "/tmp/full").split()
            check(errno == "28" and int(n) >= 95 * MIB, f"each has what it was promised: {n}")
        check(sh(c, boxes[0], "stat -c %s /tmp/full; rm /tmp/full; echo x > A; cat A").split()[1] == "x", "nothing is lost")
        remove(c, boxes[0])
        until(lambda: b.cli("run", "true").returncode == 0,
              lambda: f"then there is room for another one: {b.cli('run', 'true')} {loops(b)}", 120)
    finally:
        b.stop()
        b.prefix = []
        b.start()


def kills_leave_nothing(b, c):
    for victim in ("broker", "spawner"):
        c = connect(b)
        box = new(c)
        sh(c, box, "echo x > A")
        make(c, box, "one")
        c.begin(SANDBOX + "Create", {})
        if victim == "broker":
            b.kill()
        else:
            os.kill(b.spawner(), signal.SIGKILL)
            b.process.wait(scaled(60))
        until(lambda: not loops(b), lambda: f"{victim}: no loop device is left: {loops(b)}")
        disks = os.path.join(b.state, "disks")
        check(not os.path.isdir(disks) or os.listdir(disks) == [], "and no file")
        b.start()


TESTS = [a_host_without_what_it_needs_has_the_template_disabled, a_word_that_is_none_is_refused, a_size_above_the_maximum_is_refused,
         each_has_the_size_that_it_asks_for,
         limits_outlast_what_is_done_with_the_files, one_that_is_cancelled_leaves_nothing, files_are_no_memory, a_batch_recycles_one, limits_hold_and_what_the_template_says_fits, layers_of_it_are_on_disk, one_that_sleeps_wakes,
         a_full_host_refuses_and_harms_nobody, kills_leave_nothing]


def each(test):
    def run(b, _):
        row = b.feature("storage-on-disk")
        if not row["available"]:
            raise Skipped(row["detail"])
        try:
            test(b, connect(b))
        finally:
            if b.process is not None:
                b.cli("rm", "--all")
    run.__name__ = test.__name__
    return run


if __name__ == "__main__":
    main(Broker(config=CONFIG), [each(test) for test in TESTS])
