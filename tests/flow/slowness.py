# SPDX-License-Identifier: Apache-2.0
"""Timeouts of tests, multiplied on slow machines, such as emulated ones, by STOCKADE_SLOWNESS. They only bound the wait for
an event that never occurs, and change nothing of what is checked.
"""

import os
import subprocess

SLOWNESS = float(os.environ.get("STOCKADE_SLOWNESS", "1"))


def scaled(seconds):
    return seconds * SLOWNESS


# A `drain` in seconds that no test waits for, at most the broker's maximum.
LONG_DRAIN = min(int(scaled(60)), 600)


class Popen(subprocess.Popen):
    """With scaled timeouts."""

    def wait(self, timeout=None):
        return super().wait(None if timeout is None else scaled(timeout))

    def communicate(self, input=None, timeout=None):  # noqa: A002 (subprocess's own name)
        return super().communicate(input, None if timeout is None else scaled(timeout))


def run(argv, timeout=60, **kw):
    """subprocess.run(), with a scaled timeout and without the exception for exit codes."""
    return subprocess.run(argv, timeout=scaled(timeout), check=False, **kw)
