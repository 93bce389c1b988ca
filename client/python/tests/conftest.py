# SPDX-License-Identifier: Apache-2.0
"""Puts tests/ on the path for the tests' helpers; closes with the line that others count."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write `N passed, N failed, N skipped` alone on a line."""
    count = {key: len(terminalreporter.stats.get(key, ())) for key in ("passed", "skipped")}
    failed = sum(len(terminalreporter.stats.get(key, ())) for key in ("failed", "error"))
    terminalreporter.write_line(
        f"{count['passed']} passed, {failed} failed, {count['skipped']} skipped"
    )
