#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1,000 sandboxes at once: each of them works, and nothing is left of them."""

import os
import time

from api import SANDBOX, connect
from broker import Broker, rss_kib, skip
from runner import check, until

CONFIG = "pool: 8\nnetns_pool: 8\nquotas: {sandboxes: 1100, sandboxes_per_caller: 1000}\nids: {slots: 1200}\nttl: {default: 1h}\n"
MANY = int(os.environ.get("STOCKADE_SANDBOXES", "1000"))
NEED_MIB = MANY  # half a MiB of each is the sandbox's own; the rest is what the host keeps to live


def available_mib():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return next(int(line.split()[1]) >> 10 for line in f if line.startswith("MemAvailable:"))


def ready(c):
    info = c.unary("/stockade.v1.SystemService/Info", {})
    return info.templates[0].pool_ready == info.templates[0].pool_size


def main():
    if available_mib() < NEED_MIB:
        skip(f"{MANY} sandboxes need {NEED_MIB} MiB of memory, {available_mib()} are there")
    with Broker(config=CONFIG) as b:
        c = connect(b)
        until(lambda: ready(c), "the pool is full")
        check(b.cli("run", "--", "true").returncode == 0, "warm")
        before, begun = b.rests(), time.monotonic()
        ids = []
        while len(ids) < MANY:
            calls = [c.begin(SANDBOX + "Create", {}) for _ in range(min(16, MANY - len(ids)))]
            ids += [c.end(SANDBOX + "Create", call).sandbox.id for call in calls]
        took = time.monotonic() - begun
        print(f"{MANY} sandboxes in {took:.1f} s", flush=True)
        check(len(set(ids)) == MANY, "ids are unique")
        for id_ in ids[:: max(1, MANY // 20)]:
            job = c.finish(c.start(id_, "echo alive"))
            check(job.output == b"alive\n", f"{id_} works")
        if MANY == 1000:
            check(c.fails(SANDBOX + "Create", {}).reason == "QUOTA_SANDBOXES", "one more is one too many")
        listed, token = 0, ""
        while True:
            page = c.unary(SANDBOX + "List", {"page_size": 300, "page_token": token})
            listed, token = listed + len(page.sandboxes), page.next_page_token
            if not token:
                break
        check(listed == MANY, f"{listed} are listed")
        check(rss_kib(b.process.pid) < 256 << 10, f"the broker takes {rss_kib(b.process.pid)} KiB")
        while ids:
            calls = [c.begin(SANDBOX + "Delete", {"id": id_}) for id_ in ids[:16]]
            for call in calls:
                c.end(SANDBOX + "Delete", call)
            ids = ids[16:]
        # The first thousand leave 25 MiB with sanitizers, which keep freed memory, the next ones 2 MiB.
        check(b.settles(before, 30, memory_kib=32 << 10), "the host is as before")


if __name__ == "__main__":
    main()
    print("ok")
