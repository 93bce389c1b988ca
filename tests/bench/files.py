#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files into a sandbox and back, through `stockade cp`, beside cp and tar | tar of this machine, in turns.

    STOCKADE_BUILD=build/release tests/bench/files.py [MIB [ROUNDS]]      prints one JSON line per row

All files are in memory: the sandbox's because its disk is a tmpfs, the others in /dev/shm. A host may take free memory away
from a virtual machine, and then the first to write to it pays for its return, whoever that is. So before each row as much memory
as it needs is written to and freed again.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from broker import Broker  # noqa: E402

MIB = 1 << 20
SMALL = 16 * 1024  # size of each file of the folder


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next((int(line.split()[1]) for line in f if line.startswith("VmHWM")), 0)


class Peaks(threading.Thread):
    """The highest memory use of the client and of the program in the sandbox, while it runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.kib = {"stockade": 0, "stockade-files": 0}
        self.stopped = threading.Event()

    def look(self, pid):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                name = f.read().strip()
            if name in self.kib:
                self.kib[name] = max(self.kib[name], peak_kib(pid))
        except OSError:
            pass  # it has ended

    def run(self):
        while not self.stopped.wait(0.05):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                self.look(pid)


def warm(folder, mib):
    with open(f"{folder}/warm", "wb") as f:
        for _ in range(mib):
            f.write(bytes(MIB))
    os.unlink(f"{folder}/warm")


def timed(argv):
    begun = time.monotonic()
    subprocess.run(argv, check=True)
    return time.monotonic() - begun


class Copies:
    """The rows, each a command and the two paths that must hold the same afterwards."""

    def __init__(self, broker, box, here, mib):
        self.mib, self.here = mib, here
        one, many, back = f"{here}/one", f"{here}/many", f"{here}/back"
        with open(one, "wb") as f:
            for _ in range(mib):
                f.write(os.urandom(MIB))
        os.mkdir(many)
        for i in range(mib * MIB // 8 // SMALL):
            with open(f"{many}/{i}", "wb") as f:
                f.write(os.urandom(SMALL))
        cp = lambda a, b: broker.command("cp", a, b)  # noqa: E731
        tar = lambda a: ["sh", "-c", f"mkdir {back}; tar -C {here} -cf - {a} | tar -C {back} -xf -"]  # noqa: E731
        self.rows = {
            f"{mib} MiB in": (cp(one, f"{box}:one"), mib),
            f"{mib} MiB out": (cp(f"{box}:one", back), mib),
            "tar | tar of it": (tar("one"), mib),
            "cp of it": (["cp", one, back], mib),
            f"{mib // 8} MiB of 16 KiB files, in": (cp(many, f"{box}:many"), mib // 8),
            f"{mib // 8} MiB of 16 KiB files, out": (cp(f"{box}:many", back), mib // 8),
            "tar | tar of them": (tar("many"), mib // 8),
            "cp -r of them": (["cp", "-r", many, back], mib // 8),
        }
        self.remove = broker.command("fs", "rm", "--recursive", box, "one", "many")

    def clean(self):
        back = f"{self.here}/back"
        if os.path.isdir(back):
            shutil.rmtree(back)
        elif os.path.exists(back):
            os.unlink(back)

    def measure(self, rounds):
        seconds = {name: [] for name in self.rows}
        for _ in range(rounds):
            for name, (argv, mib) in self.rows.items():
                warm(self.here, mib + mib // 4)
                seconds[name].append(timed(argv))
                if name.endswith("out"):
                    source = "one" if "of" not in name else "many"
                    subprocess.run(["diff", "-rq", f"{self.here}/{source}", f"{self.here}/back"], check=True)
                self.clean()
            subprocess.run(self.remove, check=True)
        return seconds


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with Broker() as b, tempfile.TemporaryDirectory(dir="/dev/shm") as here:
        made = b.cli("create", "--memory", f"{mib * 2 + 512}M", "--disk", f"{mib * 2}M", "--file-size", f"{mib + 1}M")
        if made.returncode != 0:
            sys.exit(made.stderr.decode())
        copies = Copies(b, made.stdout.decode().strip(), here, mib)
        before = peak_kib(b.process.pid)
        peaks = Peaks()
        peaks.start()
        seconds = copies.measure(rounds)
        peaks.stopped.set()
        for name, times in seconds.items():
            bench = "files" if "16 KiB" not in name and "them" not in name else "small files"
            row = {"bench": bench, "row": name, "p50_us": statistics.median(times) * 1e6, "p99_us": max(times) * 1e6,
                   "mb_per_second": round(copies.rows[name][1] * 1.048576 / statistics.median(times))}
            print(json.dumps(row), flush=True)
        grown = peak_kib(b.process.pid) - before
        print(f"peak memory: broker {grown} KiB more than before, client {peaks.kib['stockade']} KiB, "
              f"program in the sandbox {peaks.kib['stockade-files']} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
