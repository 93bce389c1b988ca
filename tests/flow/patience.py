# SPDX-License-Identifier: Apache-2.0
"""How long a test waits for what must come: longer where the machine is slow, as an emulated one (STOCKADE_SLOWNESS says
how many times). It is a bound for what never comes, and changes nothing of what is checked.
"""

import os
import subprocess

SLOWNESS = float(os.environ.get("STOCKADE_SLOWNESS", "1"))


def patience(seconds):
    return seconds * SLOWNESS


# A `drain` that no test waits for: in seconds, and not more than the broker takes.
LONG_DRAIN = min(int(patience(60)), 600)


class Popen(subprocess.Popen):
    """Waits with patience."""

    def wait(self, timeout=None):
        return super().wait(None if timeout is None else patience(timeout))

    def communicate(self, input=None, timeout=None):  # noqa: A002 (subprocess's own name)
        return super().communicate(input, None if timeout is None else patience(timeout))


def run(argv, timeout=60, **kw):
    """subprocess.run(), with patience and without its exception for exit codes."""
    return subprocess.run(argv, timeout=patience(timeout), check=False, **kw)
