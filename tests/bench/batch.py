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


def rows_of(address, argv, jobs):
    """What runs them, and how many of them."""
    def of(n, *options, words=argv):
        return lambda: batch(address, words, n, *options), n
    bwrap = ["/usr/bin/bwrap", *BWRAP[1:]]
    rows = {
        "plain exec": (lambda: spawn_all(argv, jobs), jobs),
        "bubblewrap": (lambda: spawn_all(bwrap + argv, jobs), jobs),
        "batch, reset: files": of(jobs, "--reset", "files"),
        "batch, reset: files, network: off": of(jobs, "--reset", "files", "--network", "off"),
        "batch, reset: sandbox": of(jobs // 2),
        "batch, reset: sandbox, network: off": of(jobs // 2, "--network", "off"),
    }
    if argv is SNIPPET:
        named = ["python3", *argv[1:]]
        rows["batch, reset: files, warm"] = of(jobs * 4, "--reset", "files", "--warm", "python", words=named)
        rows["batch, reset: files, network: off, warm"] = of(jobs * 4, "--reset", "files", "--network", "off", "--warm", "python", words=named)
    return rows


def processor_s():
    """Of all processes of the host that are not idle ones: what a row took, if nothing else runs."""
    with open("/proc/stat", encoding="ascii") as f:
        words = [int(word) for word in f.readline().split()[1:9]]
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")


def main():
    address, n, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for name, argv, jobs in (("true", TRUE, n), ("touch /tmp/a", WRITES, n), ("python3 -c", SNIPPET, max(n // 8, 20))):
        rows = rows_of(address, argv, jobs)
        took, used = {row: [] for row in rows}, {row: [] for row in rows}
        for _ in range(rounds):
            for row, (run, of) in rows.items():
                begun, before = time.monotonic(), processor_s()
                run()
                took[row].append((time.monotonic() - begun) / of * 1e6)
                used[row].append((processor_s() - before) / of * 1e6)
        for row, each in took.items():
            each.sort()
            print(json.dumps({"bench": f"jobs per second, {name}, {AT_ONCE} at a time", "row": row, "n": jobs, "p50_us": each[len(each) // 2],
                              "p99_us": each[-1], "per_second": round(1e6 / each[len(each) // 2]), "processor_us": round(min(used[row]))}), flush=True)


if __name__ == "__main__":
    main()
