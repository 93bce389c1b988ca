#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The number of processes that a sandbox starts per second is bounded, and a sandbox below the limit is not
affected."""

from api import SANDBOX, SYSTEM, connect, main
from broker import Broker, skip
from runner import check, until

RATE = 50
PAUSED, RUNNING = 2, 1
CONFIG = f"quotas: {{forks_per_second: {RATE}}}\n"
# Forks for so many seconds, children that end at once, and says how many; or for ever. A held one sees the time pass.
STORM = """python3 -c '
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
n, until = 0, time.monotonic() + float(sys.argv[1])
print("begun", flush=True)
while time.monotonic() < until:
    try:
        if os.fork() == 0:
            os._exit(0)
        n += 1
    except BlockingIOError:  # as many as the limit permits have not ended yet
        pass
print(n)' """


def number(job):
    return int(job.output.split()[-1])


def a_storm_is_held_to_the_rate(b, c):
    limits = {"pids": 1024, "cpu_millis": 64000}
    fast = 0
    with Broker(config="quotas: {forks_per_second: 0}\n", name="-free") as other:
        fast = number(connect(other).run(STORM + "2", limits))
    most = RATE * (2 + 2) + RATE * 4  # the burst, the rate; and what begins between two looks of a broker that is busy
    for _ in range(4):  # one that gets no processor looks later still, but not each time
        slow = number(c.run(STORM + "2", limits))
        print(f"{fast} processes in 2 s without a limit, {slow} with {RATE} per second")
        if slow <= most:
            break
    check(slow >= RATE, "the burst is not there")
    if fast > 2 * most:  # else this machine is too slow for a storm
        check(slow <= most, f"{slow} processes, at most {most}")
        check("fork-rate" in b.log(), "not in the log")


def forks_that_the_limit_of_processes_refuses_count(b, c):
    """They cost the host nearly as much."""
    limits = {"pids": 64, "cpu_millis": 64000}
    before = b.log().count("fork-rate")
    box = c.unary(SANDBOX + "Create", {"limits": limits}).sandbox.id
    c.start(box, "exec python3 -c 'import os, time\nuntil = time.monotonic() + 60\n"
                      "while time.monotonic() < until:\n    try: os.fork()\n    except OSError: pass'")
    until(lambda: b.log().count("fork-rate") > before, "it is held")
    c.unary(SANDBOX + "Delete", {"id": box})


def most_forks_are_refused_before_the_process_is_copied(b, c):
    """By RLIMIT_NPROC; pids.max refuses the rest, so that the limit is reported."""
    job = c.run("exec python3 -c 'import os, resource, time\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[1], flush=True)\n"
                "until = time.monotonic() + 2\nwhile time.monotonic() < until:\n    try: os.fork()\n    except OSError: pass'",
                {"pids": 61, "cpu_millis": 64000})
    check(job.output.startswith(b"65\n"), f"RLIMIT_NPROC is {job.output!r}")
    check(job.result.limit_hit.name == "pids", f"limit {job.result.limit_hit.name!r}")


def who_stays_below_is_never_held(b, c):
    before = b.log()
    job = c.run("for i in $(seq 50); do /bin/true; done; echo done")
    said = b.log()[len(before):]
    check(job.output == b"done\n" and "fork-rate" not in said, f"{job.sandbox} was held: {said}")


def a_held_sandbox_is_paused_and_resumed_and_deleted(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"pids": 1024, "cpu_millis": 64000}}).sandbox.id
    job = c.start(box, STORM + "600")
    c.until(job, lambda: b"begun" in job.output)
    for _ in range(5):
        check(c.unary(SANDBOX + "Pause", {"id": box}).sandbox.state == PAUSED, "paused")
        check(c.unary(SANDBOX + "Resume", {"id": box}).sandbox.state == RUNNING, "running")
    check(c.run("echo x").output == b"x\n", "another sandbox goes on")
    c.unary(SANDBOX + "Delete", {"id": box})


TESTS = [a_storm_is_held_to_the_rate, forks_that_the_limit_of_processes_refuses_count,
         most_forks_are_refused_before_the_process_is_copied, who_stays_below_is_never_held, a_held_sandbox_is_paused_and_resumed_and_deleted]

if __name__ == "__main__":
    with Broker() as probe:
        features = connect(probe).unary(SYSTEM + "Info", {}).features
        if not any(f.name == "bpf-watch" and f.available for f in features):
            skip("nothing counts forks here")
    main(Broker(config=CONFIG), TESTS)
