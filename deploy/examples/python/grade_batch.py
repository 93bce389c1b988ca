# SPDX-License-Identifier: Apache-2.0
"""Grades 2,000 snippets of a model in one batch, and prints the rate.

    python3 grade_batch.py [--fresh] [SNIPPETS]

A snippet is the body of a function that a model wrote. Each task has tests: an argument on stdin,
and the output that it should give. A snippet gets a point for each test that it passes, so one that
is right but for a special case gets partial credit. The tests of a snippet run in one sandbox,
because they have one author. Nothing is left there of the snippet before it, and python is forked
from an interpreter that runs already; with --fresh each snippet has a sandbox and a python of its
own. A snippet that never ends, or takes too much memory, is named as such and gets the points of
the tests before it.
"""

from __future__ import annotations

import collections
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stockade import BatchJob, BatchResult, Limits, Outcome, batch

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Prints what the snippet gives for each argument, a line of JSON for each. It does
#: not know what is expected: a snippet that forged its output could only be right.
HARNESS = """
import json, sys
task = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr  # what the snippet prints is no result
for given in task["given"]:
    space = {}
    try:
        exec("def solve(x):\\n    " + task["body"].replace("\\n", "\\n    "), space)
        print(json.dumps(str(space["solve"](given))), file=out, flush=True)
    except Exception:
        print("null", file=out, flush=True)
"""


@dataclass(frozen=True)
class Task:
    """What a model was asked for, and how its answer is tested."""

    name: str
    #: Arguments, and the text of what they should give.
    tests: tuple[tuple[object, str], ...]
    #: What models answered.
    answers: tuple[str, ...]


TASKS = (
    Task(
        "reverse",
        (("abc", "cba"), ("", ""), ("äb", "bä"), ("a b", "b a")),
        (
            "return x[::-1]",
            "return ''.join(reversed(x))",
            "return x[-1] + x[1:-1][::-1] + x[0]",
            "return x",
        ),
    ),
    Task(
        "factorial",
        ((5, "120"), (1, "1"), (0, "1"), (20, "2432902008176640000")),
        (
            "r = 1\nfor i in range(2, x + 1):\n    r *= i\nreturn r",
            "return 1 if x == 1 else x * __import__('math').factorial(x - 1)",
            "return float(__import__('math').factorial(x))",
            "while x >= 0: pass",
        ),
    ),
    Task(
        "digits",
        ((123, "6"), (0, "0"), (-45, "9"), (10**30, "1")),
        (
            "return sum(map(int, str(abs(x))))",
            "return sum(map(int, str(x)))",
            "return ['x' * 10**6 for _ in range(10**5)]",
            "return sum(map(int str(x)))",
        ),
    ),
)
LIMITS = Limits(memory="64M", cpu_time=1)


def jobs(snippets: int) -> Iterator[BatchJob]:
    """Yield the jobs; the batch reads them as it needs them."""
    for number in range(snippets):
        task = TASKS[number % len(TASKS)]
        body = task.answers[number // len(TASKS) % len(task.answers)]
        yield BatchJob(
            ("python3", "-c", HARNESS),
            key=task.name,
            stdin=json.dumps({"body": body, "given": [given for given, _ in task.tests]}),
        )


def credit(done: BatchResult) -> tuple[float, str]:
    """Return the share of tests that a snippet passed, and how it ended."""
    expected = [text for _, text in next(task.tests for task in TASKS if task.name == done.key)]
    tests, lines = len(expected), done.result.stdout.splitlines()
    passed = sum(line == json.dumps(text) for line, text in zip(lines, expected))
    if done.result.outcome is Outcome.LIMIT and done.result.limit_hit is not None:
        return passed / tests, f"limit {done.result.limit_hit.name}"
    if not done.result.ok:
        return 0.0, "error"
    return passed / tests, "right" if passed == tests else "partly right" if passed else "wrong"


def main() -> int:
    """Grade them all, and print points by task, ends, and the rate."""
    fresh = sys.argv[1:2] == ["--fresh"]
    numbers = sys.argv[2:] if fresh else sys.argv[1:]
    snippets = int(numbers[0]) if numbers else 2000
    points: collections.Counter[str] = collections.Counter()
    ends: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    results = batch(
        jobs(snippets),
        limits=LIMITS,
        timeout=60,
        network="off",
        reset="sandbox" if fresh else "files",
        warm=None if fresh else "python",
    )
    for done in results:
        share, end = credit(done)
        points[done.key] += round(share * 100)
        ends[end] += 1
    seconds = time.monotonic() - begin
    for name, sum_ in sorted(points.items()):
        print(f"{name:10} {sum_ / 100:7.2f} points")
    for end, count in ends.most_common():
        print(f"{count:5} {end}")
    print(f"{sum(ends.values())} snippets in {seconds:.1f} s, {snippets / seconds:.0f} per second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
