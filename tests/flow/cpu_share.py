#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of the CPU: what computes gets what others leave. Runs alone, since a tenant beside other tests gets too little to count."""

from api import PROCESS, SANDBOX, main
from broker import Broker, hybrid
from inside import cgroups_of
from runner import check, until


def cpu_share(b, box):
    """100: all of the usual weight; 0: idle for the scheduler."""
    _, where, _ = cgroups_of(b, box)
    name, full = ("cpu.shares", 1024) if hybrid() else ("cpu.weight", 100)
    with open(f"{where['cpu']}/cpu.idle", encoding="utf-8") as f:
        if f.read() == "1\n":
            return 0
    with open(f"{where['cpu']}/{name}", encoding="utf-8") as f:
        return round(int(f.read()) * 100 / full)


def what_computes_all_the_time_is_idle_for_the_scheduler_until_it_rests(b, c):
    for weight, while_it_computes in ((100, 0), (50, 0), (500, 10)):
        box = c.unary(SANDBOX + "Create", {"limits": {"cpu_weight": weight}}).sandbox.id
        check(cpu_share(b, box) == weight, "it begins with all of its weight")
        job = c.start(box, "while :; do :; done")
        until(lambda box=box, share=while_it_computes: cpu_share(b, box) == share, f"{weight}: it computes")
        c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
        c.finish(job)
        c.start(box, "sleep 60")
        until(lambda box=box, share=weight: cpu_share(b, box) == share, f"{weight}: it rests")
        c.unary(SANDBOX + "Delete", {"id": box})


def a_tenant_that_computes_in_short_jobs_begins_the_next_with_a_small_share(b, c):
    def begins_with():
        box = c.unary(SANDBOX + "Create", {}).sandbox.id
        share = cpu_share(b, box)
        c.unary(SANDBOX + "Delete", {"id": box})
        return share

    burn = "exec python3 -c 'import time\nwhile time.process_time() < 0.2: pass'"
    until(lambda: begins_with() == 100, "it has rested")

    def burnt():
        for job in [c.begin_run(burn) for _ in range(8)]:  # none of them computes for as long as it takes by itself
            c.finish(job)
        return begins_with() == 0

    until(burnt, "it begins idle")
    until(lambda: begins_with() == 100, "it has rested again")


def weights_share_what_there_is(b, c):
    """Both sandboxes use both CPUs all the time; ten times the weight gets several times the CPU."""
    burn = "for i in 1 2 3 4; do while :; do :; done & done; echo up; wait"
    jobs = [c.begin_run(burn, {"cpu_weight": w, "cpu_millis": 64000, "wall_ms": 600000}) for w in (1000, 100)]
    for job in jobs:
        c.until(job, lambda job=job: job.output == b"up\n")

    def used():
        figures = {u.sandbox_id: u.cpu_ns for u in c.unary("/stockade.v1.TelemetryService/ListUsage", {}).usage}
        return [figures[job.sandbox] for job in jobs]

    until(lambda: min(used()) > 500e6, "both are known to compute: their start is over")
    before = used()
    until(lambda: used()[0] > before[0] + 1e9, "the heavy one goes on")
    heavy, light = (now - then for now, then in zip(used(), before))
    check(heavy > 3 * light, f"{heavy} and {light} ns of CPU")
    for job in jobs:
        c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
        c.finish(job)


TESTS = [what_computes_all_the_time_is_idle_for_the_scheduler_until_it_rests,
         a_tenant_that_computes_in_short_jobs_begins_the_next_with_a_small_share, weights_share_what_there_is]

if __name__ == "__main__":
    main(Broker(), TESTS)
