#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files of a volume without a sandbox: refusals, hostile content, the sandbox behind it, the command."""

import io
import os
import tarfile
import tempfile

import sp
from api import NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from runner import Skipped, check, until
from sp import EXHAUSTED, INVALID

FILE = "/stockade.v1.FileService/"
VOLUME = "/stockade.v1.VolumeService/"
MIB = 1 << 20
CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
quotas: {sandboxes_per_caller: 2}
templates:
  - name: default
    limits: {disk: 16M, inodes: 2000, memory: 128M}
"""


class Files:
    def __init__(self, c, name, **create):
        self.c, self.name = c, name
        c.unary(VOLUME + "Create", {"name": name, "bytes": 32 * MIB, **create})

    def __call__(self, method, path, **fields):
        return self.c.unary(FILE + method, {"sandbox_id": f"volume:{self.name}", "path": path, **fields})

    def no(self, method, path, code, *words, **fields):
        request = {"sandbox_id": f"volume:{self.name}", "path": path, **fields}
        failed = self.c.fails(FILE + method, request)
        text = f"{failed.message} {failed.details}"
        check(failed.code == code and all(word in text for word in words), f"{method} {path}: {failed.code} {text}")

    def names(self, path=b"/", **fields):
        return [f.path for f in self("List", path, **fields).files]

    def read(self, path):
        call = self.c.begin(FILE + "Read", {"sandbox_id": f"volume:{self.name}", "path": path}, credit=1000)
        answer = sp.message("stockade.v1.FileServiceReadResponse")
        data = b""
        while True:
            frame = self.c.recv(call)
            if frame.kind == sp.END:
                if frame.status.code:
                    raise sp.Failed(frame.status)
                return data
            data += answer.FromString(frame.payload).data

    def delete(self, force=False):
        self.c.unary(VOLUME + "Delete", {"name": self.name, "force": force})


def boxes(c):
    return c.unary(SANDBOX + "List", {}).sandboxes


def box_with(c, name, path="/data"):
    return c.unary(SANDBOX + "Create", {"volumes": [{"volume": name, "path": path}]}).sandbox.id


def sh(c, box, line):
    job = c.finish(c.start(box, line))
    check(job.result.exit_code == 0, f"{line}: {job.output!r}")
    return job.output


# ---- what is refused


def what_is_no_volume_is_refused(b, c):
    for place, code in (("volume:none", NOT_FOUND), ("volume:", INVALID), ("volume:a/b", INVALID), ("disk:a", INVALID),
                        ("volume:" + "x" * 65, INVALID), ("volume:volume:a", INVALID)):
        failed = c.fails(FILE + "Stat", {"sandbox_id": place, "path": b"/"})
        check(failed.code == code, f"{place}: {failed}")
    check(not boxes(c), "and no sandbox was made")


def it_is_for_its_tenant_alone(b, c):
    a = Files(c, "mine")
    a("Write", b"/secret", data=b"42")
    for line in (("fs", "ls", "volume:mine"), ("fs", "cat", "volume:mine", "/secret"), ("cp", "volume:mine:/secret", "-")):
        r = b.stranger(*line)
        check(r.returncode == 1 and b"there is no volume mine" in r.stderr and b"42" not in r.stdout, f"{line}: {r}")
    a.delete()


def the_quota_of_sandboxes_counts(b, c):
    a = Files(c, "a")
    mine = [c.unary(SANDBOX + "Create", {}).sandbox.id for _ in range(2)]
    a.no("Stat", b"/", EXHAUSTED, "quotas.sandboxes_per_caller")
    for box in mine:
        c.unary(SANDBOX + "Delete", {"id": box})
    check(a("Stat", b"/").file.type == 2, "and then it works")
    a.delete()
    check(not boxes(c), "nothing is left")


def hostile_content_stays_inside(b, c):
    a = Files(c, "a")
    box = box_with(c, "a")
    sh(c, box, "cd /data; ln -s /etc/passwd out; ln -s ../../etc up; ln -s /proc/self/root r; mkfifo p; mkdir d; ln -s /inside in;"
               "echo yes > inside; touch $(printf '\\377')")
    c.unary(SANDBOX + "Delete", {"id": box})
    check(a.names() == [b"d", b"in", b"inside", b"out", b"p", b"r", b"up", b"\xff"], f"{a.names()}")
    check(a.read(b"/in") == b"yes\n", "an absolute link begins at the root of the volume")
    for path, reason in ((b"/out", "FILE_NOT_FOUND"), (b"/up/passwd", "FILE_NOT_FOUND"), (b"/r/etc/passwd", "FILE_NOT_FOUND"),
                         (b"/../../etc/passwd", "FILE_NOT_FOUND")):
        try:
            got = a.read(path)
        except sp.Failed as e:
            check(e.reason == reason, f"{path}: {e}")
            continue
        check(False, f"{path} led to {got[:40]!r}")
    try:
        a.read(b"/p")
        check(False, "a FIFO was read")
    except sp.Failed as e:
        check(e.reason == "NOT_REGULAR", f"{e}")
    a.delete()


# ---- what works


def metrics_count_it(b, c):
    def now(name):
        found = c.unary("/stockade.v1.MetricsService/Get", {"prefix": "stockade_" + name}).metrics
        return sum(s.value for s in found[0].samples)

    before = {name: now(name) for name in ("volumes", "volumes_quota_bytes", "file_read_bytes_total", "file_written_bytes_total")}
    a = Files(c, "a")
    a("Write", b"/x", data=b"x" * 100_000)
    a.read(b"/x")
    watch = c.begin(FILE + "Watch", {"sandbox_id": "volume:a", "path": b"/"}, credit=100)
    check(c.recv(watch).kind == sp.DATA, "it watches")
    check(now("volumes") - before["volumes"] == 1 and now("volumes_open") == 1, "one volume, open")
    check(now("volumes_quota_bytes") - before["volumes_quota_bytes"] == 32 * MIB, "its quota")
    check(now("file_written_bytes_total") - before["file_written_bytes_total"] == 100_000, "bytes written")
    check(now("file_read_bytes_total") - before["file_read_bytes_total"] == 100_000, "and read")
    check(now("file_operations") == 1, "the watch")
    c.unary(SANDBOX + "Delete", {"id": boxes(c)[0].id})
    until(lambda: now("file_operations") == 0, "it was cut off")
    a.delete()
    check(now("volumes") == before["volumes"] and now("volumes_open") == 0, "gone")


def files_are_those_of_the_sandboxes(b, c):
    a = Files(c, "a")
    a("Write", b"in/a.txt", data=b"one", options={"parents": True})
    check(a.names(depth=3) == [b"in", b"in/a.txt"], f"{a.names(depth=3)}")
    box = box_with(c, "a")
    check(sh(c, box, "cat /data/in/a.txt; stat -c ' %u %a' /data/in/a.txt") == b"one 1000 644\n", "it is the job's")
    sh(c, box, "echo two > /data/in/b.txt")
    check(a.read(b"/in/b.txt") == b"two\n", "both see the same files")
    check(c.unary(VOLUME + "Get", {"name": "a"}).volume.sandboxes == 2, "two sandboxes have it")
    c.unary(SANDBOX + "Delete", {"id": box})
    a("Move", b"/in", to=b"/out")
    a("Copy", b"/out", to=b"/copy")
    a("SetMode", b"/copy/a.txt", mode=0o600)
    check(a("Stat", b"/copy/a.txt").file.mode == 0o600, "its mode")
    check(a("Remove", b"/out", recursive=True).removed == 3, "removed")
    check(a.names(depth=2) == [b"copy", b"copy/a.txt", b"copy/b.txt"], f"{a.names(depth=2)}")
    a.delete()


def one_sandbox_serves_many_operations(b, c):
    a = Files(c, "a")
    calls = [c.begin(FILE + "Stat", {"sandbox_id": "volume:a", "path": b"/"}) for _ in range(40)]
    for call in calls:
        frame = c.recv(call)
        while frame.kind != sp.END:
            frame = c.recv(call)
        check(frame.status.code == 0, f"{frame.status}")
    found = boxes(c)
    check(len(found) == 1, f"{len(found)} sandboxes")
    check(dict(found[0].metadata) == {"stockade.volume": "a"}, f"{found[0]}")
    c.unary(SANDBOX + "Delete", {"id": found[0].id})
    check(a("Stat", b"/").file.type == 2, "after its removal there is another one")
    check(b.cli("rm", "--all").returncode == 0, "removed again")
    a.delete()


def removal_waits_for_nothing_idle(b, c):
    a = Files(c, "a")
    a("Write", b"/x", data=b"1")
    watch = c.begin(FILE + "Watch", {"sandbox_id": "volume:a", "path": b"/"}, credit=100)
    check(c.recv(watch).kind == sp.DATA, "it watches")
    failed = c.fails(VOLUME + "Delete", {"name": "a"})
    check(failed.code == PRECONDITION and "VOLUME_IN_USE" in str(failed.details), f"{failed}")
    box = box_with(c, "a")
    a.delete(force=True)
    frame = c.recv(watch)
    while frame.kind != sp.END:
        frame = c.recv(watch)
    check(frame.status.code != 0, "the watch was cut off")
    check(c.fails(SANDBOX + "Get", {"id": box}).code == NOT_FOUND, "the sandbox as well")
    until(lambda: not boxes(c), "no sandbox is left")


def it_survives_a_restart(b, c):
    a = Files(c, "a")
    a("Write", b"/kept", data=b"1")
    b.stop()
    b.start()
    a.c = connect(b)
    check(a.read(b"/kept") == b"1", "what was written")
    b.kill()
    b.start()
    a.c = connect(b)
    check(a.names() == [b"kept"], "after a kill, too")
    a.delete()
    check(not boxes(a.c), "nothing is left")


def the_command_keeps_what_its_help_says(b, c):
    with tempfile.TemporaryDirectory() as here:
        path = os.path.join(here, "in.csv")
        with open(path, "wb") as f:
            f.write(os.urandom(3 * MIB))
        check(b.cli("volume", "create", "data", "--size", "32M").returncode == 0, "made")
        r = b.cli("cp", path, "volume:data:/")
        check(r.returncode == 0, f"its example: {r}")
        check(b.cli("fs", "ls", "volume:data").stdout.endswith(b" in.csv\n"), "the other one")
        check(b.cli("fs", "write", "volume:data", "/sub", input=b"hello").returncode == 0, "written")
        check(b.cli("fs", "cat", "volume:data", "sub").stdout == b"hello", "and read")
        back = os.path.join(here, "back")
        check(b.cli("cp", "volume:data:/", back).returncode == 0, "a folder")
        check(sorted(os.listdir(back)) == ["in.csv", "sub"], f"{os.listdir(back)}")
        with open(path, "rb") as one, open(os.path.join(back, "in.csv"), "rb") as two:
            check(one.read() == two.read(), "the same bytes")
        with tarfile.open(fileobj=io.BytesIO(b.cli("cp", "volume:data:/", "-").stdout)) as t:
            check(sorted(t.getnames()) == ["in.csv", "sub"], f"{t.getnames()}")
        for line in (("cp", "a", "b"), ("cp", "volume:data:/", "volume:data:/x"), ("volume", "ls", "--force")):
            check(b.cli(*line).returncode == 2, f"{line}")
        check(b.cli("fs", "ls", "volume:" + "x" * 65).returncode == 1, "too long a name")
        check(b.cli("run", "-v", "data:/d", "cat", "/d/sub").stdout == b"hello", "a job sees it")
        check(b.cli("volume", "rm", "--force", "data").returncode == 0, "removed")


TESTS = [metrics_count_it, what_is_no_volume_is_refused, it_is_for_its_tenant_alone, the_quota_of_sandboxes_counts, hostile_content_stays_inside,
         files_are_those_of_the_sandboxes, one_sandbox_serves_many_operations, removal_waits_for_nothing_idle,
         it_survives_a_restart, the_command_keeps_what_its_help_says]


def each(test):
    def run(b, c):
        row = next(f for f in b.json("info")[1]["features"] if f["name"] == "disks")
        if not row["available"]:
            raise Skipped(row["detail"])
        try:
            test(b, c)
        except BaseException:
            b.cli("rm", "--all")
            for v in connect(b).unary(VOLUME + "List", {}).volumes:
                b.cli("volume", "rm", "--force", v.name)
            raise
    run.__name__ = test.__name__
    return run


if __name__ == "__main__":
    main(Broker(config=CONFIG), [each(test) for test in TESTS])
