#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files into a sandbox and back, through `stockade cp`, beside cp and tar | tar of this machine.

    STOCKADE_BUILD=build/release tests/bench/files.py [MIB]      prints MB/s, and the broker's memory before and after

All files are in memory: the sandbox's because its disk is a tmpfs, the others in /dev/shm.
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from broker import Broker  # noqa: E402


def rate(mib, argv):
    begun = time.monotonic()
    subprocess.run(argv, check=True, shell=isinstance(argv, str))
    return mib * 1.048576 / (time.monotonic() - begun)


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with Broker() as b, tempfile.TemporaryDirectory(dir="/dev/shm") as here:
        limits = ["--memory", f"{mib * 2 + 256}M", "--disk", f"{mib + 256}M", "--file-size", f"{mib + 1}M"]
        made = b.cli("create", *limits)
        if made.returncode != 0:
            sys.exit(made.stderr.decode())
        box = made.stdout.decode().strip()
        source, back, other = f"{here}/source", f"{here}/back", f"{here}/other"
        with open(source, "wb") as f:
            for _ in range(mib):
                f.write(os.urandom(1 << 20))
        os.mkdir(other)
        before = peak_kib(b.process.pid)
        rows = {"stockade cp, in": b.command("cp", source, f"{box}:f"), "stockade cp, out": b.command("cp", f"{box}:f", back)}
        for name, argv in rows.items():
            print(f"{name:20} {rate(mib, argv):6.0f} MB/s", flush=True)
        subprocess.run(["cmp", source, back], check=True)
        print(f"broker, peak memory  {before} KiB before, {peak_kib(b.process.pid)} KiB after")
        os.unlink(back)
        print(f"{'cp':20} {rate(mib, ['cp', source, back]):6.0f} MB/s")
        os.unlink(back)
        print(f"{'tar | tar':20} {rate(mib, f'tar -C {here} -cf - source | tar -C {other} -xf -'):6.0f} MB/s")


if __name__ == "__main__":
    main()
