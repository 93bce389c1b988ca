#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The clock of the host is set back and forth while a broker runs: nothing that expired comes back, nothing ends early by it or hangs,
and the audit log stays whole. Only the broker has another clock (programs/clock.c)."""

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime

from broker import Broker
from runner import check, run_cases, time_passes, until

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """
audit: {checkpoint_records: 8, checkpoint_interval: 100ms}
templates: [{name: default, limits: {disk: 16M}}]
"""
HOUR = 3600
DAY = 24 * HOUR


def set_clock(b, seconds):
    with open(f"{b.folder}/clock", "r+b") as f:
        f.write(seconds.to_bytes(8, "little", signed=True))
    b.offset = seconds


def key(b, ttl):
    code, made = b.json("key", "create", "--ttl", ttl)
    check(code == 0, made)
    return made["secret"]


def with_key(b, secret):
    return b.cli("ls", env=dict(os.environ, STOCKADE_TOKEN=secret))


def box(b, *more):
    code, made = b.json("create", *more)
    check(code == 0, made)
    return made["id"]


def names(b):
    return {s["id"] for s in b.json("ls")[1]}


def a_clock_that_is_set_back_revives_no_key(b):
    secret = key(b, "1s")
    check(with_key(b, secret).returncode == 0, "it is valid")
    until(lambda: with_key(b, secret).returncode != 0, "it expires")
    set_clock(b, -DAY)
    r = with_key(b, secret)
    check(r.returncode != 0 and b"expired" in r.stderr, r.stderr)
    lives = key(b, "1h")
    check(with_key(b, lives).returncode == 0, "a new one is valid")
    set_clock(b, 0)
    check(with_key(b, lives).returncode == 0 and with_key(b, secret).returncode != 0, "as before")


def a_clock_that_is_set_forward_ends_keys_and_no_sandboxes(b):
    secret, kept = key(b, "1h"), box(b, "--ttl", "1h")
    set_clock(b, DAY)
    check(with_key(b, secret).returncode != 0, "it has expired")
    time_passes("a time to live by the wall would end within a tick", 0.3)
    check(kept in names(b) and b.cli("exec", kept, "--", "true").returncode == 0, "the sandbox lives its hour")
    set_clock(b, 0)
    b.cli("rm", kept)


def timers_do_not_follow_the_clock(b):
    short = box(b, "--ttl", "2s")
    job = b.popen("run", "--timeout", "2s", "--", "sleep", "60", stdout=-1, stderr=-1)
    set_clock(b, -DAY)
    time_passes("in the middle of both", 0.5)
    set_clock(b, DAY)
    time_passes("in the middle of both", 0.5)
    set_clock(b, -HOUR)
    begun = time.monotonic()
    check(job.wait() != 0 and time.monotonic() - begun < 30, "the job reaches its timeout")
    until(lambda: short not in names(b), "the sandbox reaches its time to live", 20)
    set_clock(b, 0)


def who_wakes_up_lives_no_longer_than_its_time_to_live(b):
    asleep = box(b, "--ttl", "1h")
    check(b.cli("sleep", asleep).returncode == 0, "it is asleep")
    set_clock(b, -DAY)
    check(b.cli("exec", asleep, "--", "true").returncode == 0, "it wakes up")
    left = datetime.fromisoformat(next(s for s in b.json("ls")[1] if s["id"] == asleep)["expire_time"]).timestamp() - (time.time() - DAY)
    check(0 < left <= HOUR + 5, f"{left} s")
    set_clock(b, 0)
    b.cli("rm", asleep)


def the_audit_log_is_whole_and_still_signed(b):
    def found():
        code, shown = b.json("audit", "verify", "--public-key", f"{b.state}/audit/audit.pub", f"{b.state}/audit")
        check(code == 0 and shown["whole"] and shown["missed"] == 0, shown)
        return shown
    before = found()
    set_clock(b, -DAY)
    box(b)
    until(lambda: found()["checkpoints"] > before["checkpoints"], "a checkpoint with the clock of yesterday")
    set_clock(b, DAY)
    box(b)
    set_clock(b, 0)
    until(lambda: found()["not_signed"] == 0, "all of it is signed")
    lines = b.cli("audit", "export", f"{b.state}/audit").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    times = [r["time"] for r in records]
    check(times != sorted(times) and [r["sequence"] for r in records] == list(range(1, len(records) + 1)), "times go back, sequences do not")
    b.cli("rm", "--all")


def main():
    folder = tempfile.mkdtemp(prefix="stockade-clock-")
    library = f"{folder}/clock.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", f"{HERE}/programs/clock.c", "-o", library],
                   check=True)
    b = Broker(config=CONFIG)
    with open(f"{b.folder}/clock", "wb") as f:
        f.write(bytes(8))
    b.prefix = ["env", f"LD_PRELOAD={library}", f"STOCKADE_TEST_CLOCK={b.folder}/clock"]
    with b:
        sys.exit(run_cases([a_clock_that_is_set_back_revives_no_key, a_clock_that_is_set_forward_ends_keys_and_no_sandboxes,
                            timers_do_not_follow_the_clock, who_wakes_up_lives_no_longer_than_its_time_to_live,
                            the_audit_log_is_whole_and_still_signed], lambda case: case(b), lambda: set_clock(b, 0)))


main()
