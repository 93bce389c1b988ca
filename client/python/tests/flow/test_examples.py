# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say, against a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker import Broker

EXAMPLES = Path(__file__).resolve().parents[4] / "deploy/examples/python"


def example(broker: Broker, name: str, *args: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *args],
        env={**os.environ, "STOCKADE_ADDRESS": broker.ipc},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_agent_loop_gets_to_its_answer(broker: Broker) -> None:
    assert "mean of the first 100 primes: 241.33" in example(broker, "agent_loop.py")


def test_every_submission_is_graded_and_each_end_is_named(broker: Broker) -> None:
    printed = example(broker, "grade.py", "16")
    assert "16/16" in printed
    for line in ("6 error", "4 right", "2 wrong", "2 limit memory_bytes", "2 limit cpu_time_ms"):
        assert f" {line}\n" in printed


def test_snippets_get_partial_credit_and_a_rate_is_printed(broker: Broker) -> None:
    printed = example(broker, "grade_batch.py", "24")
    points = (("digits", "3.50"), ("factorial", "3.50"), ("reverse", "6.00"))
    for name, sum_ in points:
        assert re.search(rf"^{name} +{sum_} points$", printed, re.MULTILINE), printed
    ends = ("8 right", "8 partly right", "4 wrong", "2 limit memory_bytes", "2 limit cpu_time_ms")
    for line in ends:
        assert f" {line}\n" in printed, printed
    assert re.search(r"^24 snippets in .* s, [1-9][0-9]* per second$", printed, re.MULTILINE)


def test_eight_edits_are_tried_in_forks_and_the_best_is_kept(broker: Broker) -> None:
    printed = example(broker, "best_of_eight.py")
    assert re.search(r"^8 forks in [0-9]+ ms$", printed, re.MULTILINE), printed
    for line in ("edit 0: 5 tests pass", "edit 1: 3 tests pass", "edit 6: 0 tests pass, -"):
        assert f"\n{line}" in printed, printed
    assert re.search(r"^kept edit [35]:$", printed, re.MULTILINE), printed
    assert "\n--- a/home/agent/work.py\n+++ b/home/agent/work.py\n" in printed
    assert re.search(r"^in [0-9.]+ s$", printed, re.MULTILINE)


def test_the_chart_of_the_analysis_is_saved(broker: Broker, tmp_path: Path) -> None:
    printed = example(broker, "pandas_chart.py", tmp_path / "chart.png")
    assert "north" in printed
    assert re.search(r"^in [0-9.]+ s$", printed, re.MULTILINE)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_the_code_of_the_readme_runs_as_it_stands(broker: Broker) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert len(blocks) > 6
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join(blocks)],
        env={**os.environ, "STOCKADE_ADDRESS": broker.ipc},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("42\n\n0\n")
