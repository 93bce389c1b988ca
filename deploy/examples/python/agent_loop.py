# SPDX-License-Identifier: Apache-2.0
"""An agent loop: a model writes code, the sandbox runs it, the model reads what came of it.

    python3 agent_loop.py                # with the stand-in below: no model, no network
    python3 agent_loop.py "your task"    # with your model: put its call into `ask`

Everything that the model's code can do is bounded by the sandbox: memory, time, processes, files,
no network.
"""

from __future__ import annotations

import sys

from stockade import Limits, Outcome, Result, Sandbox

TURNS_MAX = 6
OUTPUT_MAX = 2000  # characters of output that go back to the model

# What a model would write, one answer after the other: a bug, a loop without end, and then the
# right thing.
STAND_IN = [
    """
import statistics
print(statistics.mean(primes))
""",
    """
n, primes = 2, []
while len(primes) < 100:
    if all(n % p for p in primes): primes.append(n)
""",
    """
n, primes = 2, []
while len(primes) < 100:
    if all(n % p for p in primes): primes.append(n)
    n += 1
print('mean of the first 100 primes:', sum(primes) / 100)
""",
    "DONE",
]


def ask(_task: str, history: list[tuple[str, str]]) -> str:
    """Return the next piece of Python, or DONE. Replace this by a call of your model."""
    return STAND_IN[len(history)]


def feedback(result: Result) -> str:
    """Say what came of it in words that a model can act on."""
    text = (result.stdout + result.stderr)[-OUTPUT_MAX:]
    if result.ok:
        return f"It worked:\n{text}"
    if result.outcome is Outcome.LIMIT:
        return f"It was stopped by a limit: {result.limit_hit}. Output so far:\n{text}"
    return f"It failed ({result}):\n{text}"


def main() -> int:
    """Run the loop. The exit code is 0 when the model was content."""
    task = " ".join(sys.argv[1:]) or "Compute the mean of the first 100 primes."
    history: list[tuple[str, str]] = []
    print(f"task: {task}")
    with Sandbox.create(ttl=300, limits=Limits(memory="256M", pids=64)) as sandbox:
        for turn in range(1, TURNS_MAX + 1):
            code = ask(task, history)
            if code.strip() == "DONE":
                print(f"done after {turn - 1} runs")
                return 0
            result = sandbox.run("python3", "-", stdin=code, timeout=2)
            said = feedback(result)
            cpu = result.bill.cpu_time or 0
            print(f"--- run {turn}: {cpu:.3f} s of CPU\n{said.rstrip()}")
            history.append((code, said))
    print("gave up")
    return 1


if __name__ == "__main__":
    sys.exit(main())
