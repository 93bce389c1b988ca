# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of this folder: checks, waiting, and running cases.

A case is a function; its name is the sentence that is true when it passes.
"""

import sys
import time
import traceback

from slowness import scaled


class Skipped(Exception):
    """A case that cannot run here, with its reason."""


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def until(condition, what, seconds=30, brief=False):
    """Waits for an event, not for time: looks until the condition holds, and gives its value. `what` names it when it does
    not come; a function gives the words then, to tell how things are. `brief`: what is waited for does not last, so it is
    looked for all the time. tests/harness/wait.h has the same for C."""
    end = time.monotonic() + scaled(seconds)
    while True:
        begun = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"waited for {scaled(seconds)} s: {what() if callable(what) else what}")
        # A look that starts a program leaves most of the processor to others.
        time.sleep(0.001 if brief else min(max(0.01, 2 * (now - begun)), 0.3))


def time_passes(why, seconds):
    """For tests of time itself: `why` has the reason. The time is not longer on a slow machine."""
    assert why
    time.sleep(max(0, seconds))


def deliver(process, number):
    """Sends a signal, and waits until the process has taken it: two of a kind that are pending are one."""
    def pending():
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as f:
                masks = [int(line.split()[1], 16) for line in f if line.startswith(("SigPnd:", "ShdPnd:"))]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return any(mask >> (number - 1) & 1 for mask in masks)
    process.send_signal(number)
    until(lambda: not pending(), f"signal {number} is taken", brief=True)


ran = 0  # cases of this program that were not skipped


def run_cases(cases, call=lambda case: case(), cleanup=lambda: None):
    """Runs all cases, or those that the command line names: each by `call`, and `cleanup` after one that failed. Gives
    the exit status: 1 when one failed, or there is none; 77, which ctest calls skipped, while all of this program were."""
    global ran
    passed = failed = skipped = 0
    for case in cases:
        if sys.argv[1:] and case.__name__ not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        try:
            call(case)
            passed += 1
            print(f"ok   {case.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Skipped as why:
            skipped += 1
            print(f"skipped: {why}", flush=True)
        except Exception as why:  # noqa: BLE001 (whatever it was, the other cases are run)
            failed += 1
            print(f"FAIL {case.__name__}: {type(why).__name__} {why}", flush=True)
            traceback.print_exc(file=sys.stdout)
            cleanup()
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    ran += passed + failed
    if failed or not passed + skipped:
        return 1
    return 0 if ran else 77
