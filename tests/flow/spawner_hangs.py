#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A spawner that hangs (by SIGSTOP here; a task in state D looks the same from outside): it is detected, callers get
an error, running jobs continue within their limits, and the broker ends when it should."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import sp
from broker import Broker
from runner import check, run_cases, until

sp.load("proto/gen/descriptor_set.bin")
CHECK = "/stockade.v1.HealthService/Check"
SERVING, NOT_SERVING = 1, 2
ONE_READY = "drain: 1s\ntemplates:\n  - {name: default, pool: 1}\n"


def full(b):
    """The pool is full, so nothing is requested from the spawner before a call to the broker."""
    until(lambda: all(t["pool_ready"] == t["pool_size"] for t in b.json("info")[1]["templates"]), "the pool is full")


class Stopped:
    def __init__(self, b):
        self.pid = b.spawner()

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *why):
        os.kill(self.pid, signal.SIGCONT)


def health(c):
    return c.unary(CHECK, {})


def noticed(c):
    until(lambda: health(c).status == NOT_SERVING, "health says so")
    check("spawner" in health(c).reason, health(c).reason)


class Systemd:
    """Its end of NOTIFY_SOCKET."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stockade-test-")
        os.chmod(self.folder.name, 0o755)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{self.folder.name}/notify")
        os.chmod(f"{self.folder.name}/notify", 0o777)
        self.env = {"NOTIFY_SOCKET": f"{self.folder.name}/notify", "WATCHDOG_USEC": "1000000"}

    def fed(self, seconds):
        """How often it gets a keep-alive message in that time."""
        end, times = time.monotonic() + seconds, 0
        self.socket.setblocking(False)
        while time.monotonic() < end:
            try:
                times += self.socket.recv(4096) == b"WATCHDOG=1"
            except BlockingIOError:
                time.sleep(0.02)
        return times


def refused(r, what):
    check(r.returncode == 75 and b"spawner" in r.stderr, f"{what}: {r}")


# ---- what is said and done while it hangs: on one broker, one after the other


def begin_before_anybody_notices(b):
    """Operations that wait for the spawner from the start: two runs more than are ready, a job beyond its timeout, a
    deletion."""
    runs = [b.popen("run", "--timeout", "3s", "--", "true", stderr=subprocess.PIPE) for _ in range(3)]
    late = b.popen("exec", "-o", "json", "--timeout", "1s", "kept", "--", "sleep", "1000", stdout=subprocess.PIPE)
    gone = b.popen("rm", "deleted", stderr=subprocess.PIPE)
    return runs, late, gone


def a_client_that_waits_for_it_gets_an_error(runs, gone):
    ends = [(p.communicate(timeout=40)[1], p.returncode) for p in runs]
    check(sorted(code for _, code in ends) == [0, 75, 75], f"one was ready, two were not: {ends}")
    err = gone.communicate(timeout=40)[1]
    check(gone.returncode == 75 and b"spawner" in err, f"a deletion: {err}")


def what_needs_it_is_refused_at_once_and_the_rest_works(b):
    refused(b.cli("create", timeout=20), "create")
    refused(b.cli("pause", "kept", timeout=20), "pause")
    r = b.cli("exec", "kept", "--", "echo", "alive", timeout=30)
    check(r.stdout == b"alive\n", f"a job in a sandbox that is there: {r}")


def jobs_keep_their_limits(late):
    out = late.communicate(timeout=60)[0]
    check(b"wall" in out, f"its limit ended it: {out}")


def afterwards_all_is_as_it_was_asked_for(b, c):
    until(lambda: health(c).status == SERVING, "health says so")
    check(health(c).reason == "", health(c).reason)
    r = b.cli("run", "--", "true")
    check(r.returncode == 0, f"runs: {r}")
    r = b.cli("exec", "kept", "--", "cat", "/tmp/mine", timeout=30)
    check(r.stdout == b"mine\n", f"the sandbox that was kept is the same, and nobody blames its guest: {r}")
    check("guest-silent" not in b.log() and "sandbox-lost" not in b.log(), b.log()[-2000:])
    until(lambda: b.json("info")[1]["sandboxes_own"] == 1, "what was deleted has gone")


def a_spawner_that_hangs_is_detected_reported_and_used_again(b, systemd):
    full(b)
    check(b.cli("create", "--name", "kept").returncode == 0 and b.cli("create", "--name", "deleted").returncode == 0, "create")
    check(b.cli("exec", "kept", "--", "sh", "-c", "echo mine >/tmp/mine").returncode == 0, "exec")
    full(b)
    c = sp.Client(b.address)
    watch = c.begin("/stockade.v1.HealthService/Watch", {}, credit=100)
    answer = sp.message("stockade.v1.HealthServiceWatchResponse")
    says = lambda: answer.FromString(c.recv(watch).payload).status  # noqa: E731
    check(says() == SERVING and systemd.fed(0.6) > 0, "at first all is well")
    with Stopped(b):
        runs, late, gone = begin_before_anybody_notices(b)
        check(says() == NOT_SERVING, "a watcher is told")
        noticed(c)
        a_client_that_waits_for_it_gets_an_error(runs, gone)
        what_needs_it_is_refused_at_once_and_the_rest_works(b)
        jobs_keep_their_limits(late)
        systemd.fed(0.2)  # what came before
        check(systemd.fed(0.8) == 0, "systemd is not told that all is well")
    check(says() == SERVING, "a watcher is told")
    afterwards_all_is_as_it_was_asked_for(b, c)
    check(systemd.fed(0.6) > 0, "systemd is told again")


# ---- the end


def sigterm_ends_the_broker_whatever_the_spawner_does(b):
    p = b.popen("run", "--", "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.readline() == b"up\n", "it runs")
    spawner = b.spawner()
    jobs = [pid for pid, name in b.processes().items() if name == "sleep"]
    with Stopped(b):
        b.process.send_signal(signal.SIGTERM)
        code, b.process = b.process.wait(20), None
        check(code == 70, f"exit code {code}")
        check(f"kill -9 {spawner}" in b.log(), b.log()[-1000:])
        check(p.wait(20) != 0, "its client hears of it")
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in jobs), "no job runs on")
    until(lambda: not b.cgroups(), "the spawner cleans up when it continues")


SYSTEMD = Systemd()
with Broker(config=ONE_READY, env=SYSTEMD.env) as BROKER:
    code = run_cases([a_spawner_that_hangs_is_detected_reported_and_used_again, sigterm_ends_the_broker_whatever_the_spawner_does],
                     call=lambda case: case(*(BROKER, SYSTEMD)[:case.__code__.co_argcount]))
sys.exit(code)
