#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that fall asleep and wake up (sleep.c), with 1 MiB and with 1 GiB of files.

    STOCKADE_BUILD=build/release tests/bench/sleep.py [ROUNDS]      prints one JSON line per row
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from broker import BUILD, Broker  # noqa: E402

CONFIG = """
pool: 2
quotas: {kept_bytes_per_caller: 4G}
limits_max: {disk: 2G, memory: 4G}
templates:
  - name: default
    limits: {disk: 1600M, memory: 2G}
"""


def main():
    rounds = sys.argv[1] if len(sys.argv) > 1 else "200"
    with Broker(config=CONFIG) as broker:
        for mib in ("1", "1024"):
            subprocess.run([os.path.join(BUILD, "tests", "bench", "bench-sleep"), broker.address, mib, rounds], check=True)


if __name__ == "__main__":
    main()
