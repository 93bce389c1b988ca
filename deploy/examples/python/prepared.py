# SPDX-License-Identifier: Apache-2.0
"""Installs a package once, in a sandbox, and starts many jobs from the result.

    python3 prepared.py [PACKAGE [JOBS]]     # default: pandas, 1000

The setup may reach the package index and nothing else; the jobs reach nothing. Prints the times.
"""

from __future__ import annotations

import asyncio
import sys
import time

import stockade
from stockade import Limits, Network, Sandbox, aio

INDEX = ("pypi.org:443", "files.pythonhosted.org:443")
PARALLEL = 16
NAME = "prepared"
LIMITS = Limits(memory="1G", disk="1G", inodes=100_000, cpu_time=300, timeout=300)


def prepare(package: str) -> None:
    """Make a template in which the package is installed."""
    network = Network.allowlist(*INDEX)
    with Sandbox.create(limits=LIMITS, network=network, ttl=600) as setup:
        setup.run("pip", "install", "--quiet", package).check()
        print(setup.make_template(NAME))


async def jobs(package: str, count: int) -> int:
    """Run jobs in sandboxes of the template; return how many could import the package."""
    turn = asyncio.Semaphore(PARALLEL)

    async def one() -> bool:
        async with turn:
            result = await aio.run("python3", "-c", f"import {package}", template=NAME)
        return result.ok

    return sum(await asyncio.gather(*(one() for _ in range(count))))


def main() -> int:
    """Prepare, run, and clean up."""
    package = sys.argv[1] if len(sys.argv) > 1 else "pandas"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    client = stockade.default_client()
    began = time.monotonic()
    prepare(package)
    ready = time.monotonic()
    try:
        good = asyncio.run(jobs(package, count))
    finally:
        client.delete_template(NAME)
    seconds = time.monotonic() - ready
    print(f"installed once in {ready - began:.1f} s")
    print(f"{good} of {count} jobs imported {package} in {seconds:.1f} s")
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.exit(main())
