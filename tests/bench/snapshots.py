#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of an idle sandbox, rolling back and forking, beside copies of the same files by cp, in turns.

    STOCKADE_BUILD=build/release tests/bench/snapshots.py [ROUNDS [FOLDER]]      prints one JSON line per row

Each row is measured with 1 MiB and with 1 GiB of files. A round writes a byte first, so that there is something to keep. The
requests go over the wire, from a client without a library; cp copies the same files
from one folder of /dev/shm to another; or of FOLDER, such as one on btrfs or xfs, where --reflink shares the blocks.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from api import SANDBOX, connect  # noqa: E402
from broker import Broker  # noqa: E402

MIB = 1 << 20
FILES = 64
SNAPSHOT, FILE = "/stockade.v1.SnapshotService/", "/stockade.v1.FileService/"
CONFIG = """
pool: 2
bpf: {enabled: false}
limits_max: {disk: 2G, memory: 4G}
templates:
  - name: default
    limits: {disk: 1600M, memory: 2G, inodes: 10000}
"""


class Times:
    def __init__(self, bench, row):
        self.bench, self.row, self.us = bench, row, []

    def __call__(self, work):
        begun = time.monotonic_ns()
        result = work()
        self.us.append((time.monotonic_ns() - begun) / 1000)
        return result

    def show(self):
        self.us.sort()
        at = lambda share: self.us[min(len(self.us) - 1, int(len(self.us) * share))]  # noqa: E731
        print(json.dumps({"bench": self.bench, "row": self.row, "p50_us": round(at(0.5), 1), "p99_us": round(at(0.99), 1)}), flush=True)


def fill(c, box, mib, folder):
    size = mib * MIB // FILES
    line = f"mkdir d; i=0; while [ $i -lt {FILES} ]; do head -c {size} /dev/urandom > d/$i; i=$((i+1)); done"
    c.finish(c.start(box, line))
    os.mkdir(f"{folder}/d")
    for i in range(FILES):
        with open(f"{folder}/d/{i}", "wb") as f:
            f.write(os.urandom(size))


def copy(folder, *flags):
    subprocess.run(["cp", *flags, f"{folder}/d", f"{folder}/copy"], check=True)


def measure(c, mib, rounds, where):
    name = f"snapshots {mib} MiB" if mib < 1024 else "snapshots 1 GiB"
    create, nothing, back, fork = (Times(name, row) for row in ("create", "create, nothing written", "restore", "fork"))
    copies = {flags: Times(name, f"cp {' '.join(flags)}") for flags in (("-a",), ("-a", "--reflink=auto"))}
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    with tempfile.TemporaryDirectory(dir=where) as folder:
        fill(c, box, mib, folder)
        c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": "base"})
        few = max(3, rounds * 2 // mib)
        for i in range(rounds):
            c.unary(FILE + "Write", {"sandbox_id": box, "path": b"byte", "data": b"%d" % i})
            create(lambda: c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": "s"}))
            nothing(lambda: c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": "t"}))
            back(lambda: c.unary(SNAPSHOT + "Restore", {"sandbox": box, "name": "base"}))
            for snapshot in ("s", "t"):
                c.unary(SNAPSHOT + "Delete", {"sandbox": box, "name": snapshot})
            if i % 10 == 0:
                made = fork(lambda: c.unary(SANDBOX + "Fork", {"id": box, "count": 1, "snapshot": "base"}).sandboxes[0])
                c.unary(SANDBOX + "Delete", {"id": made.id})
            if i < few:
                for flags, times in copies.items():
                    times(lambda flags=flags: copy(folder, *flags))
                    shutil.rmtree(f"{folder}/copy")
    c.unary(SANDBOX + "Delete", {"id": box})
    for times in (create, nothing, back, fork, *copies.values()):
        times.show()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    where = sys.argv[2] if len(sys.argv) > 2 else "/dev/shm"
    with Broker(config=CONFIG) as broker:
        c = connect(broker)
        for mib in (1, 1024):
            measure(c, mib, rounds, where)


if __name__ == "__main__":
    main()
