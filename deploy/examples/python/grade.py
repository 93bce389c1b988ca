# SPDX-License-Identifier: Apache-2.0
"""Grades 200 submissions in parallel, each in a sandbox of its own, with a progress bar.

    python3 grade.py [SUBMISSIONS]

A submission is a program that should print the sum of the numbers on stdin. Some are wrong, some
never end, some eat memory, some do not even parse: none of them disturbs another, and each one's
end is named.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import time

from stockade import Limits, Outcome, Result, aio

PARALLEL = 16  # at once; the broker queues what is more than its CPUs can do
NUMBERS = " ".join(str(n) for n in range(1, 101))
EXPECTED = "5050"
BAR = 40
LIMITS = Limits(memory="64M", cpu_time=1)

PROGRAMS = (
    "print(sum(map(int, input().split())))",
    "n = 0\nfor word in input().split():\n    n += int(word)\nprint(n)",
    "print(max(map(int, input().split())))",
    "while True: pass",
    "print(sum(map(int, input().split()))",
    "x = ['x' * 1_000_000 for _ in range(10_000)]",
    "import sys\nsys.exit(3)",
    "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)",
)


def verdict(result: Result) -> str:
    """Name what came of a submission."""
    if result.outcome is Outcome.LIMIT and result.limit_hit is not None:
        return f"limit {result.limit_hit.name}"
    if result.ok:
        return "right" if result.stdout.strip() == EXPECTED else "wrong"
    return "error"


async def grade(program: str, gate: asyncio.Semaphore) -> Result:
    """Run one submission in a fresh sandbox."""
    async with gate:
        return await aio.run("python3", "-c", program, stdin=NUMBERS, timeout=60, limits=LIMITS)


def show(done: int, total: int, begin: float) -> None:
    """Draw the bar."""
    full = BAR * done // total
    rate = done / (time.monotonic() - begin)
    end = "\n" if done == total else ""
    print(f"\r[{'#' * full}{'.' * (BAR - full)}] {done}/{total}  {rate:.0f}/s", end=end, flush=True)


async def main() -> int:
    """Grade them all and print how many ended in which way."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    gate = asyncio.Semaphore(PARALLEL)
    begin, cpu = time.monotonic(), 0.0
    verdicts: collections.Counter[str] = collections.Counter()
    tasks = [grade(PROGRAMS[i % len(PROGRAMS)], gate) for i in range(total)]
    for done, task in enumerate(asyncio.as_completed(tasks), 1):
        result = await task
        verdicts[verdict(result)] += 1
        cpu += result.bill.cpu_time or 0
        show(done, total, begin)
    for name, count in verdicts.most_common():
        print(f"{count:5} {name}")
    print(f"{cpu:.2f} s of CPU in {time.monotonic() - begin:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
