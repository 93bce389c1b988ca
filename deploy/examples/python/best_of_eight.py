# SPDX-License-Identifier: Apache-2.0
"""An agent that forks its session eight ways, tries an edit in each, and keeps the best.

    python3 best_of_eight.py

The session holds a program, its tests and a data set. Each fork begins with these files, without a
copy of them, and none sees what another one writes. An edit is scored by the tests that pass and by
the time that the program takes. What a model would propose stands in ``EDITS``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass

from stockade import aio

PROGRAM = """\
def common(a, b):
    found = []
    for x in a:
        for y in b:
            if x == y and x not in found:
                found.append(x)
    return sorted(found)
"""

TESTS = """\
import json, time
from work import common

data = json.load(open("data.json"))
cases = [([], []), ([1], [1]), ([2, 1, 1], [1, 2]), ([1], [2]), (data["a"], data["b"])]
passed = 0
begin = time.perf_counter()
for a, b in cases:
    try:
        passed += common(a, b) == sorted(set(a) & set(b))
    except Exception:
        pass
print(passed, time.perf_counter() - begin)
"""

DATA = """\
import json, random
rng = random.Random(1)
lists = {name: [rng.randrange(4000) for _ in range(1500)] for name in "ab"}
json.dump(lists, open("data.json", "w"))
"""

#: What a model would propose: some are slow, some are wrong, one does not parse.
EDITS = (
    PROGRAM,
    "def common(a, b):\n    return [x for x in a if x in b]\n",
    "def common(a, b):\n    return sorted({x for x in a if x in b})\n",
    "def common(a, b):\n    return sorted(set(a) & set(b))\n",
    "def common(a, b):\n    return list(set(a) & set(b))\n",
    "def common(a, b):\n    other = set(b)\n    return sorted({x for x in a if x in other})\n",
    "def common(a, b)\n    return sorted(set(a).intersection(b))\n",
    "def common(a, b):\n    while True:\n        pass\n",
)


@dataclass
class Trial:
    """One edit, in a fork of its own."""

    sandbox: aio.Sandbox
    number: int
    passed: int = 0
    seconds: float = float("inf")

    @property
    def score(self) -> tuple[int, float]:
        """More tests are better, then less time."""
        return self.passed, -self.seconds

    async def run(self, edit: str) -> Trial:
        """Write the edit, and measure it."""
        await self.sandbox.snapshot("before")
        await self.sandbox.files.write("work.py", edit)
        result = await self.sandbox.run("python3", "test.py", timeout=20)
        if result.ok:
            passed, seconds = result.stdout.split()
            self.passed, self.seconds = int(passed), float(seconds)
        return self


async def main() -> int:
    """Try all edits at a time."""
    begin = time.monotonic()
    async with await aio.Sandbox.create(ttl=600) as session:
        await session.files.write("work.py", PROGRAM)
        await session.files.write("test.py", TESTS)
        await session.run("python3", "-c", DATA, check=True)
        forking = time.monotonic()
        forks = await session.fork(len(EDITS))
        print(f"{len(forks)} forks in {(time.monotonic() - forking) * 1000:.0f} ms")
        try:
            trials = await asyncio.gather(
                *(Trial(fork, i).run(EDITS[i]) for i, fork in enumerate(forks))
            )
            for trial in trials:
                shown = f"{trial.seconds * 1000:.1f} ms" if trial.passed else "-"
                print(f"edit {trial.number}: {trial.passed} tests pass, {shown}")
            best = max(trials, key=lambda trial: trial.score)
            patch = await best.sandbox.patch("/home/agent/work.py", "before")
            kept = await best.sandbox.files.read("work.py")
            await session.files.write("work.py", kept)
        finally:
            await asyncio.gather(*(fork.delete() for fork in forks))
        print(f"kept edit {best.number}:\n{(patch or b'').decode()}", end="")
        print(f"in {time.monotonic() - begin:.2f} s")
    return 0 if best.passed == 5 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
