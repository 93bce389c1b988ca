#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs per second of `stockade batch`, by what a job finds of the one before it, beside bubblewrap and plain exec in turns.

    batch.py ADDRESS JOBS ROUNDS

A row's time is that of one job: the median and the longest of the rounds. The command is a part of what is measured: it reads the jobs, and writes a line of JSON for each result."""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

CLIENT = os.path.join(os.environ["STOCKADE_BUILD"], "client", "stockade")
AT_ONCE = 2 * os.cpu_count()
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
         "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--"]
TRUE, SNIPPET = ["/usr/bin/true"], ["/usr/bin/python3", "-c", "print(sum(range(100)))"]
WRITES = ["/usr/bin/touch", "/tmp/a"]


def spawn_all(argv, n):
    """As a program without a broker would: a few threads, each with one process at a time."""
    def one(_):
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        if os.waitpid(pid, 0)[1] != 0:
            raise SystemExit(f"{argv} failed")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(one, range(n)))


def batch(address, argv, n, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as jobs:
        jobs.write((json.dumps(argv) + "\n") * n)
        jobs.flush()
        r = subprocess.run([CLIENT, "--address", address, "batch", "-p", str(AT_ONCE), *options, jobs.name],
                           stdout=subprocess.DEVNULL, check=False)
    if r.returncode != 0:
        raise SystemExit(f"batch {options}: {r.returncode}")


def main():
    address, n, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bwrap = ["/usr/bin/bwrap", *BWRAP[1:]]
    for name, argv, jobs in (("true", TRUE, n), ("touch /tmp/a", WRITES, n), ("python3 -c", SNIPPET, max(n // 8, 20))):
        rows = {
            "plain exec": lambda a=argv, k=jobs: spawn_all(a, k),
            "bubblewrap": lambda a=argv, k=jobs: spawn_all(bwrap + a, k),
            "batch, reset: files": lambda a=argv, k=jobs: batch(address, a, k, "--reset", "files"),
            "batch, reset: files, network: off": lambda a=argv, k=jobs: batch(address, a, k, "--reset", "files", "--network", "off"),
            "batch, reset: sandbox": lambda a=argv, k=jobs // 2: batch(address, a, k),
            "batch, reset: sandbox, network: off": lambda a=argv, k=jobs // 2: batch(address, a, k, "--network", "off"),
        }
        took = {row: [] for row in rows}
        for _ in range(rounds):
            for row, run in rows.items():
                begun = time.monotonic()
                run()
                took[row].append((time.monotonic() - begun) / (jobs // 2 if "sandbox" in row else jobs) * 1e6)
        for row, each in took.items():
            each.sort()
            print(json.dumps({"bench": f"jobs per second, {name}, {AT_ONCE} at a time", "row": row, "n": jobs, "p50_us": each[len(each) // 2],
                              "p99_us": each[-1], "per_second": round(1e6 / each[len(each) // 2])}), flush=True)


if __name__ == "__main__":
    main()
