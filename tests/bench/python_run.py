#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of run("true"): the C client, the Python client with threads, and the one for asyncio.

    STOCKADE_BUILD=build/release python_run.py [ROUNDS [GAP_MS]]

They alternate, run by run, with one broker, so a disturbance of the machine affects all of them. Prints a line of
JSON per row, as the other benchmarks do, with the ratio to the C client.
Needs root, the package `stockade`, and bench-run_true of the build.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "client/python/tests"))

import broker as brokers

import stockade
from stockade import aio

WARM_UP = 10


class CClient:
    """A process that runs once for each line."""

    row = "C"

    def __init__(self, build: Path, address: str) -> None:
        self._process = subprocess.Popen(
            [build / "tests/bench/bench-run_true", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def run(self) -> float:
        """Run once; microseconds by its own clock."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


class Threads:
    """The client with threads."""

    row = "Python"

    def __init__(self, address: str) -> None:
        self._client = stockade.Client(address)

    async def run(self) -> float:
        """Run once; microseconds."""
        begin = time.perf_counter()
        assert stockade.run("/usr/bin/true", client=self._client).ok
        return (time.perf_counter() - begin) * 1e6


class Asyncio:
    """The client for asyncio."""

    row = "Python, asyncio"

    def __init__(self, address: str) -> None:
        self._client = aio.Client(address)

    async def run(self) -> float:
        """Run once; microseconds."""
        begin = time.perf_counter()
        assert (await aio.run("/usr/bin/true", client=self._client)).ok
        return (time.perf_counter() - begin) * 1e6

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


async def measure(build: Path, address: str, rounds: int, gap: float) -> None:
    """Take turns and print the rows."""
    c, last = CClient(build, address), Asyncio(address)
    rows = (c, Threads(address), last)
    took: dict[str, list[float]] = {row.row: [] for row in rows}
    for i in range(-WARM_UP, rounds):
        for row in rows:
            await asyncio.sleep(gap)
            us = await row.run()
            if i >= 0:
                took[row.row].append(us)
    c.close()
    await last.close()
    base = statistics.median(took[c.row])
    for name, samples in took.items():
        p50, p99 = statistics.median(samples), statistics.quantiles(samples, n=100)[98]
        figures = {"p50_us": round(p50), "p99_us": round(p99), "ratio": round(p50 / base, 2)}
        bench = f"run true, {gap * 1000:g} ms apart"
        print(json.dumps({"bench": bench, "row": name, "n": len(samples), **figures}))


def main() -> int:
    """Start a broker and measure."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    gap = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.02
    build = brokers.build()
    if build is None or brokers.why_not():
        print(f"skipped: {brokers.why_not()}")
        return 77
    with brokers.Broker() as broker:
        asyncio.run(measure(build, broker.ipc, rounds, gap))
    return 0


if __name__ == "__main__":
    sys.exit(main())
