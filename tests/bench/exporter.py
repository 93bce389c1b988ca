#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What stockade-exporter costs: a scrape beside many live sandboxes, and a run of `true` with and without the exporter.

    STOCKADE_BUILD=build/release tests/bench/exporter.py [SANDBOXES]
"""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from api import SANDBOX, connect  # noqa: E402
from broker import Broker  # noqa: E402
from exporter_process import Exporter  # noqa: E402

LIVE = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
SCRAPES, RUNS, ROUNDS = 100, 200, 4
CONFIG = ("socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 8\nnetns_pool: 8\nids: {slots: 1200}\nttl: {default: 1h}\n"
          "quotas: {sandboxes: 1150, sandboxes_per_caller: 1100}\n")


def quantiles(times):
    times = sorted(times)
    return "p50 {:.2f} ms, p99 {:.2f} ms".format(*(times[int(len(times) * p)] * 1000 for p in (0.5, 0.99)))


def timed(act):
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def scrapes(x):
    times = []
    for _ in range(SCRAPES):
        time.sleep(0.12)  # so that each one asks the broker
        times.append(timed(x.get))
    return times


def runs(c):
    return [timed(lambda: c.run("exit 0")) for _ in range(RUNS)]


def compare(b, c):
    """Pairs of rounds, one without and one with an exporter that is scraped five times per second."""
    without, beside = [], []
    for _ in range(ROUNDS):
        without += runs(c)
        with Exporter(b) as x:
            end = threading.Event()
            scraper = threading.Thread(target=lambda: [x.get() for _ in iter(lambda: end.wait(0.2), True)])
            scraper.start()
            beside += runs(c)
            end.set()
            scraper.join()
    return without, beside


def main():
    with Broker(config=CONFIG) as b:
        c = connect(b)
        runs(c)
        without, beside = compare(b, c)
        print(f"run without the exporter: {quantiles(without)}", flush=True)
        print(f"run beside the exporter, scraped 5 times per second: {quantiles(beside)}", flush=True)
        with Exporter(b) as x:
            print(f"scrape, no sandbox: {quantiles(scrapes(x))}", flush=True)
            made = 0
            while made < LIVE:
                calls = [c.begin(SANDBOX + "Create", {}) for _ in range(min(16, LIVE - made))]
                made += len([c.end(SANDBOX + "Create", call) for call in calls])
            print(f"scrape, {LIVE} sandboxes: {quantiles(scrapes(x))}, {len(x.get()[2])} bytes", flush=True)


if __name__ == "__main__":
    main()
