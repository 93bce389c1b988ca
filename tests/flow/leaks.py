#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A broker whose processes leak fails its test, and one that ends in order leaks nothing."""

import os
import signal
import sys

from broker import Broker
from runner import check, run_cases, until


def a_report_of_a_leak_fails_the_test():
    for report in ("==7==ERROR: LeakSanitizer: detected memory leaks", "stockade-relay: leak: 48 bytes are still allocated"):
        broker = Broker()
        with open(broker.log_path, "w", encoding="utf-8") as log:
            log.write(f"ready\n{report}\n")
        try:
            broker.check_leaks()
        except AssertionError as e:
            check(report in str(e), f"it says which: {e}")
        else:
            check(False, f"nobody saw: {report}")


def a_broker_that_is_stopped_with_a_sandbox_leaks_nothing():
    with Broker() as b:
        for command in (("run", "--", "/bin/true"), ("create", "--name", "kept"), ("exec", "kept", "--", "/bin/true"), ("ps",)):
            r = b.cli(*command)
            check(r.returncode == 0, f"{command}: {r.returncode} {r.stderr}")
        code = b.stop()  # looks for leaks as well
        check(code == 0 and "stopped" in b.log(), f"ended with {code}: {b.log()}")


def ends_with_sandboxes(number, also_terminate):
    """The broker ends while the spawner, which got this signal, has sandboxes, one with a job and one with a policy."""
    with Broker(config="drain: 1s\n") as b:
        for command in (("create", "--name", "busy"), ("exec", "--detach", "busy", "--", "/bin/sleep", "1000"),
                        ("create", "--name", "kept", "--network", "open")):
            r = b.cli(*command)
            check(r.returncode == 0, f"{command}: {r.returncode} {r.stderr}")
        spawner = b.spawner()
        os.kill(spawner, number)
        try:
            if also_terminate:
                b.process.send_signal(signal.SIGTERM)
            until(lambda: b.process.poll() is not None, "the broker ends", 30)
        finally:
            if number == signal.SIGSTOP:
                os.kill(spawner, signal.SIGCONT)
        code, b.process = b.process.returncode, None
        check("stopped: status" in b.log(), f"ended with {code}: {b.log()}")
        check(code == 70, f"ended with {code}: {b.log()}")
        b.check_leaks()


def a_broker_whose_spawner_dies_frees_its_sandboxes():
    ends_with_sandboxes(signal.SIGKILL, False)


def a_broker_whose_spawner_hangs_frees_its_sandboxes():
    ends_with_sandboxes(signal.SIGSTOP, True)


sys.exit(run_cases([
    a_report_of_a_leak_fails_the_test,
    a_broker_that_is_stopped_with_a_sandbox_leaks_nothing,
    a_broker_whose_spawner_dies_frees_its_sandboxes,
    a_broker_whose_spawner_hangs_frees_its_sandboxes,
]))
