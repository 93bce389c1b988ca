#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the audit log costs run("true"): two brokers, one without a log and one with it, in turns.

    STOCKADE_BUILD=build/release audit.py [ROUNDS [GAP_MS]]

Each round is one run with each of them, in changing order, so a disturbance of the machine affects both. Prints a line of
JSON per row, as the other benchmarks do. Needs root, and bench-run_true of the build.
"""

import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../flow"))

from broker import BUILD, Broker  # noqa: E402

WARM_UP = 20
SETTINGS = {"none": "audit: {enabled: false}\n", "sync: interval": "", "sync: always": "audit: {sync: always}\n"}


class Client:
    """A process that runs once for each line."""

    def __init__(self, address):
        self.process = subprocess.Popen([f"{BUILD}/tests/bench/bench-run_true", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    gap = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.01
    brokers = {row: Broker(name=f"-{i}", config=config) for i, (row, config) in enumerate(SETTINGS.items())}
    clients = {row: Client(b.__enter__().address) for row, b in brokers.items()}
    found = {row: [] for row in brokers}
    order = list(brokers)
    for i in range(WARM_UP + rounds):
        order.append(order.pop(0))
        for row in order:
            us = clients[row].run()
            if i >= WARM_UP:
                found[row].append(us)
            time.sleep(gap)
    base = statistics.median(found["none"])
    pairs = {row: statistics.median(a / b for a, b in zip(all_of_them, found["none"])) for row, all_of_them in found.items()}
    for row, all_of_them in found.items():
        print(json.dumps({"row": row, "n": rounds, "p50_us": round(statistics.median(all_of_them), 1),
                          "p99_us": round(statistics.quantiles(all_of_them, n=100)[98], 1),
                          "of_medians": round(statistics.median(all_of_them) / base, 4), "of_pairs": round(pairs[row], 4)}), flush=True)
    for client in clients.values():
        client.process.communicate()
    for b in brokers.values():
        b.__exit__(None, None, None)


main()
