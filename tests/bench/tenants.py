#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One tenant beside another that has 10,000 jobs queued: the time of a run, alone and beside it, in turns.

    STOCKADE_BUILD=build/release tests/bench/tenants.py [ROUNDS [RUNS]]      prints p50 and p99 in ms, and their ratios

The busy tenant has three batches of 4,000 jobs; its jobs are `true`. PARALLEL, of the environment: how many of a batch run or wait for a
sandbox at a time, instead of the default. GAP_MS: the pause before each run (50; 0: back to back, where the runs alone already use most of two
processors). Between two rounds the batches are cancelled, and the broker is given time to rest."""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
import sp  # noqa: E402
from broker import Broker  # noqa: E402
from runner import until  # noqa: E402

sp.load("proto/gen/descriptor_set.bin")
JOBS = "/stockade.v1.ProcessService/"
BUSY, OTHER = 65533, 65532
BATCHES, EACH = 3, 4000
PARALLEL = int(os.environ.get("PARALLEL", "0"))  # 0: the default
GAP = int(os.environ.get("GAP_MS", "50")) / 1000
TRUE = {"command": {"args": ["/usr/bin/true"]}}


def client(b, uid):
    os.seteuid(uid)
    try:
        return sp.Client(b.address, timeout=120)
    finally:
        os.seteuid(0)


def run(c):
    time.sleep(GAP)
    begun = time.perf_counter()
    id_ = c.begin(JOBS + "Run", TRUE, credit=100)
    while c.recv(id_).kind != sp.END:
        pass
    return (time.perf_counter() - begun) * 1000


def fill(b, name):
    """The queues of the busy tenant. Returns its connections and calls."""
    busy = []
    for i in range(BATCHES):
        c = client(b, BUSY)
        key = f"{name}-{i}"
        id_ = c.begin(JOBS + "RunBatch", {"key": key, "window": 4096, **({"parallel": PARALLEL} if PARALLEL else {})}, credit=1000000)
        for first in range(0, EACH, 500):
            c.unary(JOBS + "AddToBatch", {"key": key, "first": first, "jobs": [TRUE] * 500})
        busy.append((c, id_))
    return busy


def quantiles(times):
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)]


def main():
    rounds, runs = (int(sys.argv[1]) if len(sys.argv) > 1 else 5), (int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    alone, beside = [], []
    with Broker(config="socket: {mode: 0666}\nquotas: {queue: 20000}\nrpc: {bytes_per_uid: 1G}\n") as b:
        c, root = client(b, OTHER), sp.Client(b.address)
        for _ in range(50):
            run(c)
        for i in range(rounds):
            alone += [run(c) for _ in range(runs)]
            busy = fill(b, f"k{i}")
            beside += [run(c) for _ in range(runs)]
            for other, id_ in busy:
                other.send(id_, sp.Frame(kind=sp.CANCEL))
                other.close()
            until(lambda: root.unary("/stockade.v1.SystemService/Info", {}).processes == 0, "the batches have ended", 60)
            time.sleep(0.5)
    (a50, a99), (b50, b99) = quantiles(alone), quantiles(beside)
    print(f"alone:  p50 {a50:.2f} ms, p99 {a99:.2f} ms ({len(alone)} runs)")
    print(f"beside: p50 {b50:.2f} ms, p99 {b99:.2f} ms, x {b50 / a50:.2f} and x {b99 / a99:.2f}")


if __name__ == "__main__":
    main()
