#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A broker whose processes leak fails its test, and one that ends in order leaks nothing."""

import sys

from broker import Broker
from runner import check, run_cases


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


sys.exit(run_cases([
    a_report_of_a_leak_fails_the_test,
    a_broker_that_is_stopped_with_a_sandbox_leaks_nothing,
]))
