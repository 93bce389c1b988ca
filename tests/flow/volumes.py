#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Volumes over the wire and through the command: refusals, quotas, sharing, restarts, hostile content, kill -9, nothing left."""

import functools
import glob
import os
import signal

from api import EXISTS, NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from runner import Skipped, check, until
from slowness import scaled
from snapshots import no as refused, sh
from sp import EXHAUSTED, INVALID

VOLUME = "/stockade.v1.VolumeService/"
MIB = 1 << 20
CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
quotas: {volumes_per_caller: 4, volume_bytes_per_caller: 256M}
limits_max: {disk: 256M, memory: 512M}
templates:
  - name: default
    paths: [/opt]
    limits: {disk: 16M, inodes: 2000, memory: 128M}
"""

no = functools.partial(refused, service=VOLUME)


def make(c, name, size=8 * MIB, inodes=500):
    return c.unary(VOLUME + "Create", {"name": name, "bytes": size, "inodes": inodes}).volume


def delete(c, name):
    c.unary(VOLUME + "Delete", {"name": name})


def names(c):
    return [v.name for v in c.unary(VOLUME + "List", {}).volumes]


def new(c, *mounts, **more):
    volumes = [{"volume": v, "path": path, "read_only": mode == "ro"} for v, path, mode in mounts]
    return c.unary(SANDBOX + "Create", {"volumes": volumes, **more}).sandbox.id


def remove(c, box):
    c.unary(SANDBOX + "Delete", {"id": box})


def files(b):
    """What is on the disk: of the index, and of the disks."""
    index = sorted(os.listdir(os.path.join(b.state, "volumes")))
    disks = os.path.join(b.state, "disks")
    return index, sorted(n[len("volume-"):] for n in os.listdir(disks)) if os.path.isdir(disks) else []


def loops(b):
    """Loop devices of this broker's disks."""
    found = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                if b.state in f.read():
                    found.append(path)
        except OSError:
            pass
    return found


# ---- what is refused


def what_is_not_there_is_not_found(b, c):
    for method in ("Get", "Delete"):
        no(c, method, {"name": "none"}, NOT_FOUND, "NO_VOLUME")
    for name in ("", "../x", "a b", "x" * 65, "a/b", "."):
        no(c, "Create", {"name": name}, INVALID)
    no(c, "Create", {"name": "a", "bytes": 1}, INVALID)
    no(c, "Create", {"name": "a", "inodes": 1}, INVALID)
    no(c, "Create", {"volumes": [{"volume": "none", "path": "/data"}]}, NOT_FOUND, "NO_VOLUME", service=SANDBOX)
    make(c, "a")
    no(c, "Create", {"name": "a"}, EXISTS, "VOLUME_EXISTS")
    for path in ("data", "/", "/a/../b", "/a//b", "/a/", "/a b", "/" + "x" * 127):
        no(c, "Create", {"volumes": [{"volume": "a", "path": path}]}, INVALID, service=SANDBOX)
    for path in ("/etc", "/etc/x", "/usr", "/usr/lib", "/opt", "/opt/x", "/proc/x", "/dev/shm", "/tmp", "/run/x", "/home", "/var"):
        no(c, "Create", {"volumes": [{"volume": "a", "path": path}]}, INVALID, "path", service=SANDBOX)
    twice = [{"volume": "a", "path": "/data"}, {"volume": "a", "path": "/data/x"}]
    no(c, "Create", {"volumes": twice}, INVALID, "another one", service=SANDBOX)
    no(c, "Create", {"volumes": [{"volume": "a", "path": "/bin/x"}]}, PRECONDITION, "NO_MOUNT_POINT", service=SANDBOX)
    delete(c, "a")
    check(names(c) == [], "none is left")


def quotas_of_a_caller_are_enforced(b, c):
    no(c, "Create", {"name": "big", "bytes": 257 * MIB}, EXHAUSTED, "VOLUME_BYTES", "volume_bytes_per_caller")
    for i, name in enumerate("abcd"):
        make(c, name, size=(i + 1) * MIB)
        r = b.cli("run", "-v", f"{name}:/d", "--", "sh", "-c", "head -c 16M /dev/zero > /d/x; stat -c %s /d/x")
        check((i + 1) * MIB <= int(r.stdout) <= (i + 3) * MIB, f"{i + 1} MiB hold {r}")
    no(c, "Create", {"name": "e", "bytes": MIB}, EXHAUSTED, "VOLUMES", "volumes_per_caller")
    check(names(c) == list("abcd"), "in their order")
    page = c.unary(VOLUME + "List", {"page_size": 3})
    rest = c.unary(VOLUME + "List", {"page_size": 3, "page_token": page.next_page_token})
    check([v.name for v in page.volumes] + [v.name for v in rest.volumes] == list("abcd"), "two pages")
    check(rest.next_page_token == "", "the last one")
    for name in "abcd":
        delete(c, name)


def volumes_of_another_user_do_not_exist(b, c):
    make(c, "mine")
    for line in (("volume", "show", "mine"), ("volume", "rm", "mine"), ("volume", "show", "none"), ("volume", "rm", "none")):
        r = b.stranger(*line)
        check(r.returncode == 1 and f"there is no volume {line[2]}".encode() in r.stderr, f"{line}: {r.returncode} {r.stderr}")
    r = b.stranger("run", "-v", "mine:/data", "true")
    check(r.returncode == 125 and b"there is no volume mine" in r.stderr, f"{r.returncode} {r.stderr}")
    check(b.stranger("volume", "ls").stdout.count(b"\n") == 1, "an empty list")
    r = b.stranger("volume", "create", "mine", "--size", "1M")
    check(r.returncode == 0, f"their own of the same name: {r.stderr}")
    check(b.stranger("volume", "rm", "mine").returncode == 0, "and gone")
    check(names(c) == ["mine"], "mine is there")
    delete(c, "mine")


def one_in_use_is_not_removed(b, c):
    make(c, "a")
    box = new(c, ("a", "/data", "rw"))
    no(c, "Delete", {"name": "a"}, PRECONDITION, "VOLUME_IN_USE", "1 sandbox")
    check(c.unary(VOLUME + "Get", {"name": "a"}).volume.sandboxes == 1, "one has it")
    remove(c, box)
    delete(c, "a")
    check(files(b) == ([], []), f"{files(b)}")


# ---- what works


def files_stay_and_are_shared(b, c):
    make(c, "a")
    one = new(c, ("a", "/data", "rw"))
    two = new(c, ("a", "/home/agent/in", "ro"))
    check(sh(c, one, "echo hi > /data/A; stat -c '%u %a' /data/A") == "1000 644\n", "it is the job's")
    check(sh(c, two, "cat in/A; stat -c %u in/A; touch in/B 2>/dev/null; echo $?") == "hi\n1000\n1\n", "and read-only there")
    info = c.unary(SANDBOX + "Get", {"id": two}).sandbox.volumes
    check([(v.volume, v.path, v.read_only) for v in info] == [("a", "/home/agent/in", True)], f"{info}")
    remove(c, one)
    check(sh(c, two, "cat in/A") == "hi\n", "still there")
    remove(c, two)
    r = b.cli("run", "-v", "a:/data", "--", "sh", "-c", "cat /data/A; echo more >> /data/A")
    check(r.stdout == b"hi\n", f"{r}")
    r = b.cli("run", "-v", "a:/data:ro", "--", "cat", "/data/A")
    check(r.stdout == b"hi\nmore\n", f"{r}")
    delete(c, "a")


def one_can_be_the_home_of_jobs(b, c):
    """As the manual says. It is no part of snapshots, also there."""
    make(c, "home")
    r = b.cli("run", "-v", "home:/home/agent", "--", "sh", "-c", "pwd; echo kept > A; echo $HOME; stat -c '%u %a' .")
    check(r.stdout == b"/home/agent\n/home/agent\n1000 755\n", f"{r}")
    box = new(c, ("home", "/home/agent", "rw"))
    check(sh(c, box, "cat A; echo one > A; echo one > /tmp/B") == "kept\n", "the next one finds it")
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": box, "name": "s"})
    sh(c, box, "echo two > A; echo two > /tmp/B")
    c.unary("/stockade.v1.SnapshotService/Restore", {"sandbox": box, "name": "s"})
    check(sh(c, box, "cat A /tmp/B; pwd") == "two\none\n/home/agent\n", "the volume stays as it is")
    r = b.cli("run", "-v", "home:/home", "true")
    check(r.returncode == 125 and b"/home/agent and /var/tmp, and folders in them, are possible" in r.stderr, f"{r}")
    remove(c, box)
    r = b.cli("run", "-v", "home:/var/tmp", "--", "cat", "/var/tmp/A")
    check(r.stdout == b"two\n", f"{r}")
    delete(c, "home")


WRITER = """exec python3 -c '
import os, sys
who = sys.argv[1]
log = os.open("/data/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
for i in range(300):
    os.write(log, ("%s %d\\n" % (who, i)).encode())
    open("/data/%s-%d" % (who, i % 50), "w").write(who * 1000)
    if i % 100 == 0:
        os.fsync(log)
for i in range(50):
    assert open("/data/%s-%d" % (who, i)).read() == who * 1000
' """


def two_sandboxes_write_at_once(b, c):
    """What each appends is whole, what each syncs is there, and one that fills the volume takes nothing from the other."""
    make(c, "a")
    one, two = (new(c, ("a", "/data", "rw")) for _ in range(2))
    other = connect(b)
    jobs = [(c, c.start(one, WRITER + "x")), (other, other.start(two, WRITER + "y"))]
    for client, job in jobs:
        check(client.finish(job).result.exit_code == 0, f"{job.result} {job.output!r}")
    lines = sh(c, one, "cat /data/log").splitlines()
    for who in "xy":
        check([line for line in lines if line[0] == who] == [f"{who} {i}" for i in range(300)], f"all lines of {who}")
    check(len(lines) == 600, f"{len(lines)} lines")
    full = sh(c, one, "python3 -c '\nimport os\nf = os.open(\"/data/full\", os.O_WRONLY | os.O_CREAT)\ntry:\n"
              " while True: os.write(f, bytes(65536))\nexcept OSError as e: print(e.errno)'")
    check(full == "28\n", f"ENOSPC: {full}")
    check(sh(c, two, "cat /data/y-0 | wc -c; (echo more > /data/x-1) 2>/dev/null; wc -l < /data/log") == "1000\n600\n", "kept")
    for box in (one, two):
        remove(c, box)
    delete(c, "a")


def the_quota_holds_and_nothing_is_lost(b, c):
    make(c, "a", size=4 * MIB, inodes=64)
    box = new(c, ("a", "/data", "rw"))
    sh(c, box, "echo kept > /data/K")
    check(sh(c, box, "cd /data; head -c 4000000 /dev/zero > A && wc -c < A") == "4000000\n", "what it may have")
    check(sh(c, box, "cd /data; head -c 30000000 /dev/zero > B 2>/dev/null; echo $?; cat K; rm A B") == "1\nkept\n", "no more")
    out = sh(c, box, "cd /data; i=0; while true > f$i; do i=$((i + 1)); done 2>/dev/null; echo $i; rm f*; cat K")
    n, kept = out.split()
    check(50 <= int(n) <= 100 and kept == "kept", f"{out}")
    check(int(sh(c, box, "stat -f -c '%b %S' /data | awk '{print $1 * $2}'")) < 8 * MIB, "and df says so")
    remove(c, box)
    delete(c, "a")


def what_it_holds_is_known(b, c):
    def use(volume):
        return (volume.use.bytes, volume.use.inodes) if volume.HasField("use") else None

    made = make(c, "a", size=16 * MIB, inodes=200)
    check(use(made) is None, "nobody has looked")
    empty = use(c.unary(VOLUME + "Get", {"name": "a"}).volume)
    check(empty[0] < 100_000 and empty[1] <= 1, f"empty: {empty}")
    box = new(c, ("a", "/data", "rw"))
    sh(c, box, "cd /data; head -c 3000000 /dev/urandom > A; mkdir d; touch d/1 d/2 d/3; sync")
    full = use(c.unary(VOLUME + "List", {}).volumes[0])
    check(3_000_000 <= full[0] - empty[0] <= 3_200_000 and full[1] - empty[1] == 5, f"{full}")
    remove(c, box)
    b.stop()
    b.start()
    c = connect(b)
    check(use(c.unary(VOLUME + "List", {}).volumes[0]) is None, "not known any more")
    check(use(c.unary(VOLUME + "Get", {"name": "a"}).volume) == full, "measured again")
    check(use(c.unary(VOLUME + "List", {}).volumes[0]) == full, "and known")
    check(b'"use":' in b.cli("volume", "show", "a", "-o", "json").stdout and b"used " in b.cli("volume", "show", "a").stdout, "shown")
    many = [c.begin(VOLUME + "Get", {"name": "a"}) for _ in range(20)]
    c.unary(VOLUME + "Delete", {"name": "a"})
    for call in many:
        c.recv(call)
    b.stop()
    b.start()
    make(connect(b), "b")
    c = connect(b)
    many = [c.begin(VOLUME + "Get", {"name": "b"}) for _ in range(20)] + [c.begin(VOLUME + "Delete", {"name": "b"})]
    for call in many:
        c.recv(call)
    check(names(c) == [] and files(b) == ([], []), f"each had an answer: {files(b)}")


def hostile_content_is_harmless(b, c):
    make(c, "a", size=32 * MIB, inodes=8000)
    box = new(c, ("a", "/data", "rw"))
    deep = "python3 -c \"import os\nfor i in range(3000):\n os.mkdir('d'); os.chdir('d')\""
    sh(c, box, f"cd /data; cp /usr/bin/id id; chmod 6755 id; ln -s /etc/shadow out; touch $(printf '\\377'); mkfifo p; {deep}")
    remove(c, box)
    box = new(c, ("a", "/data", "rw"))
    out = sh(c, box, "cd /data; ./id -u; cat out 2>&1 | grep -c -e denied -e 'No such'; ls | wc -l")
    check(out == "1000\n1\n5\n", f"and of no effect: {out!r}")
    check("nosuid,nodev" in sh(c, box, "grep ' /data ' /proc/self/mounts"), "nosuid and nodev")
    remove(c, box)
    delete(c, "a")


def snapshots_do_not_hold_it_and_forks_have_it(b, c):
    make(c, "a")
    box = new(c, ("a", "/data", "rw"))
    sh(c, box, "echo 1 > /data/A; echo 1 > B")
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": box, "name": "s"})
    sh(c, box, "echo 2 > /data/A; echo 2 > B")
    c.unary("/stockade.v1.SnapshotService/Restore", {"sandbox": box, "name": "s"})
    check(sh(c, box, "cat /data/A B") == "2\n1\n", "the volume is as it was")
    fork = c.unary(SANDBOX + "Fork", {"id": box}).sandboxes[0].id
    check(sh(c, fork, "cat /data/A B; echo 3 > /data/A") == "2\n1\n", "the fork has it")
    check(sh(c, box, "cat /data/A") == "3\n", "the same one")
    for it in (fork, box):
        remove(c, it)
    delete(c, "a")


def the_command_keeps_what_its_help_says(b, c):
    r = b.cli("volume", "create", "data", "--size", "10M")
    check(r.returncode == 0 and r.stdout == b"", f"{r}")
    check(b.cli("run", "-v", "data:/data", "touch", "/data/hello").returncode == 0, "its example")
    check(b"data" in b.cli("volume", "ls").stdout and b"10.0 MiB" in b.cli("volume", "show", "data").stdout, "it is listed")
    check(b'"bytes": 10485760' in b.cli("volume", "show", "data", "-o", "json").stdout.replace(b'":1', b'": 1'), "and in JSON")
    for line in (("volume",), ("volume", "make"), ("volume", "rm"), ("volume", "ls", "x"), ("volume", "ls", "--size", "1M")):
        check(b.cli(*line).returncode == 2, f"{line}")
    for mount in ("data", "data:", "data:data", ":/data", "data:/data:rx"):
        r = b.cli("run", "-v", mount, "true")
        check(r.returncode == 125 and b"NAME:PATH" in r.stderr, f"{mount}: {r}")
    check(b.cli("volume", "rm", "data").returncode == 0, "and removed")


# ---- restarts


def it_survives_restarts_and_kills_leave_nothing_else(b, c):
    make(c, "a")
    sh(c, new(c, ("a", "/data", "rw")), "echo kept > /data/A; sync")
    b.stop()
    b.start()
    for victim in ("broker", "spawner", "broker", "spawner"):
        c = connect(b)
        check("a" in names(c), f"{names(c)}")
        check(sh(c, new(c, ("a", "/data", "rw")), "cat /data/A; echo x > /data/B") == "kept\n", "what was written")
        c.begin(VOLUME + "Create", {"name": victim, "bytes": 64 * MIB})
        if victim == "broker":
            b.kill()
        else:
            os.kill(b.spawner(), signal.SIGKILL)
            b.process.wait(scaled(60))
        until(lambda: not loops(b), "no loop device is left")
        b.start()
        until(lambda: files(b)[0] == files(b)[1], lambda: f"the index and the disks agree: {files(b)}")
    c = connect(b)
    check(set(names(c)) <= {"a", "broker", "spawner"}, f"{names(c)}")
    for name in names(c):
        delete(c, name)
    check(files(b) == ([], []), f"{files(b)}")
    until(lambda: not loops(b), "no loop device is left")


def a_damaged_record_is_kept_with_its_disk(b, c):
    make(c, "a")
    name = files(b)[0][0]
    path = os.path.join(b.state, "volumes", name)
    with open(path, "rb") as f:
        whole = f.read()
    b.stop()
    for damaged in (whole[:-1], whole[:20] + b"x" + whole[21:], b""):
        with open(path, "wb") as f:
            f.write(damaged)
        b.start()
        check(names(connect(b)) == [], "it is not listed")
        check(files(b) == ([name], [name]), f"and not removed: {files(b)}")
        b.stop()
    check("is damaged" in b.log() and "start a newer one" not in b.log(), "and the log says so")
    for newer in (whole[:8] + b"\2\0\0\0" + whole[12:], whole[:8] + b"\2\0\0\0" + whole[12:40]):
        with open(path, "wb") as f:
            f.write(newer)
        b.start()
        check(names(connect(b)) == [], "one of a later version is not listed")
        check(files(b) == ([name], [name]), f"and not removed: {files(b)}")
        check("is of version 2" in b.log(), "the log says that the broker is older")
        b.stop()
    with open(path, "wb") as f:
        f.write(whole)
    b.start()
    c = connect(b)
    check(names(c) == ["a"], "it is back")
    delete(c, "a")


TESTS = [what_is_not_there_is_not_found, quotas_of_a_caller_are_enforced, volumes_of_another_user_do_not_exist,
         one_in_use_is_not_removed, files_stay_and_are_shared, one_can_be_the_home_of_jobs, the_quota_holds_and_nothing_is_lost, what_it_holds_is_known, hostile_content_is_harmless,
         snapshots_do_not_hold_it_and_forks_have_it, the_command_keeps_what_its_help_says,
         it_survives_restarts_and_kills_leave_nothing_else, a_damaged_record_is_kept_with_its_disk]


def each(test):
    def run(b, c):
        code, info = b.json("info")
        row = next(f for f in info["features"] if f["name"] == "disks")
        if not row["available"]:
            raise Skipped(row["detail"])
        try:
            test(b, c)
        except BaseException:
            b.cli("rm", "--all")
            for name in names(connect(b)):
                b.cli("volume", "rm", name)
            raise
    run.__name__ = test.__name__
    return run


if __name__ == "__main__":
    main(Broker(config=CONFIG), [each(test) for test in TESTS])
