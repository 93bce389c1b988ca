#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Time limits: a job that is waited for has the template's; a job that stays runs as long as its sandbox, unless a
limit was requested."""

import datetime
import os
import sys
import time

from broker import Broker
from cli import Terminal, expect
from runner import check, run_cases, time_passes, until

CONFIG = "limits_default: {timeout: 0.7, cpu_time: 700ms}\nttl: {default: 10m}\n"
BURN = "import time\nwhile time.process_time() < 1: pass\nprint('burnt', flush=True)\ntime.sleep(600)"


def processes(b, box):
    return {p["id"]: p for p in b.json("ps", box)[1]}


def ended(b, box, process):
    return processes(b, box)[process].get("result")


def start(b, *args):
    return expect(b.cli("exec", "-d", *args), 0).stdout.decode().strip()


def box(b, name, *options):
    expect(b.cli("create", "--name", name, *options), 0)
    return name


def what_is_waited_for_has_the_limits_of_the_template(b):
    expect(b.cli("run", "--", "sleep", "60"), 124, b"", b"limit timeout of 700.0 ms; --timeout raises it")
    expect(b.cli("exec", box(b, "waited"), "--", "sleep", "60"), 124, b"", b"limit timeout of 700.0 ms")
    expect(b.cli("exec", "--timeout", "1h", "waited", "--", "sh", "-c", "sleep 1; echo over"), 0, b"over\n")


def what_stays_lives_longer(b):
    box(b, "stays", "--cpus", "2")
    job = start(b, "stays", "--", "python3", "-c", BURN)
    t = Terminal(b, "exec", "-it", "stays", "--", "bash", "--norc")
    t.type(b"sleep 1; echo o''ver\n")
    t.expect(b"over")
    t.type(b"exit 5\n")
    check(t.wait() == 5, t.process.returncode)
    os.close(t.fd)
    until(lambda: b.cli("logs", job).stdout == b"burnt\n", "it uses more CPU time than the template lets", 60)
    check(ended(b, "stays", job) is None, processes(b, "stays"))
    limits = b.json("get", "stays")[1]["limits"]
    check(limits["wall_ms"] == limits["cpu_time_ms"] == 700, limits)


def a_limit_that_was_asked_for_holds_for_what_stays_too(b):
    box(b, "asked")
    box(b, "made", "--timeout", "400ms")
    for name, args in (("asked", ("--timeout", "300ms", "asked")), ("made", ("made",))):
        job = start(b, *args, "--", "sleep", "600")
        until(lambda: ended(b, name, job), f"{name}: it ends")  # noqa: B023 (called at once)
        check(ended(b, name, job)["limit_hit"]["name"] == "wall_ms", ended(b, name, job))
    r = expect(b.cli("exec", "--timeout", "1s", "made", "--", "true"), 77, b"", b"create the sandbox with more")
    check(b"--timeout: " in r.stderr, r.stderr)


def what_stays_ends_with_its_sandbox(b):
    box(b, "short", "--ttl", "1")
    follow = b.popen("exec", "-t", "short", "--", "sleep", "600", stdout=-1, stderr=-1)
    _, err = follow.communicate(timeout=60)
    check(follow.returncode == 137 and b"cancelled" in err, err)


def update_changes_the_time_to_live_and_labels(b):
    box(b, "updated", "--ttl", "6s", "--label", "a=1", "--label", "b=2")
    begun = time.time()
    expect(b.cli("update", "--ttl", "2h", "--label", "a=", "-l", "c=3", "updated"), 0, b"updated\n")
    o = b.json("get", "updated")[1]
    left = datetime.datetime.fromisoformat(o["expire_time"].replace("Z", "+00:00")).timestamp() - begun
    check(7000 < left < 8000, o)
    check(o["labels"] == {"b": "2", "c": "3"}, o)
    time_passes("it would have ended with its first ttl", begun + 6.5 - time.time())
    expect(b.cli("exec", "updated", "--", "true"), 0)
    expect(b.cli("update", "updated"), 2, b"", b"there is nothing to change")
    expect(b.cli("update", "--ttl", "1m", "no-such"), 1, b"", b"no-such")
    expect(b.cli("update", "--ttl", "60d", "updated"), 77, b"", b"--ttl: 60d is above the maximum of 30d")


TESTS = [what_is_waited_for_has_the_limits_of_the_template, what_stays_lives_longer,
         a_limit_that_was_asked_for_holds_for_what_stays_too, what_stays_ends_with_its_sandbox,
         update_changes_the_time_to_live_and_labels]


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases(TESTS, lambda case: case(b), lambda: b.cli("rm", "--all"))
    sys.exit(status)


if __name__ == "__main__":
    main()
