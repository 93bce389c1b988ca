#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The evaluation of tests/bench/anomaly works: it reads ADFA-LD's format, records real sandboxes, and distinguishes
attacks from work."""

import os
import subprocess
import sys
import tempfile

from broker import BUILD, INSTALLED, skip
from slowness import SLOWNESS, run
from runner import check

SOURCE = os.environ.get("STOCKADE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
RUN = os.path.join(SOURCE, "tests/bench/anomaly/run")
SCORE = os.path.join(BUILD, "tests/bench/anomaly/bench-anomaly_score")


def row(text, *cells):
    """The figures of the row that begins with these cells."""
    start = "| " + " | ".join(cells) + " |"
    for line in text.splitlines():
        if line.startswith(start):
            return [cell.strip() for cell in line[len(start):].strip(" |").split("|")]
    raise AssertionError(f"no row {start} in {text}")


def write(folder, name, calls):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(" ".join(map(str, calls)) + "\n")


def traces_of_adfa_ld_are_read_and_scored():
    with tempfile.TemporaryDirectory() as folder:
        for i in range(5):
            write(folder, f"Training_Data_Master/UTD-{i}.txt", [6, 6, 63, 6, 42, 120, 6, 195] * 30 + [i])
            write(folder, f"Validation_Data_Master/UVD-{i}.txt", [6, 6, 63, 6, 42, 120, 6, 195] * (10 + i))
            write(folder, f"Attack_Data_Master/Adduser_1/UAD-{i}.txt", [6, 6, 63] * 9 + list(range(300, 330)))
        r = run([SCORE, "--adfa", folder], capture_output=True, text=True)
        check(r.returncode == 0 and "5 traces to train, 5 normal, 5 attacks" in r.stdout, r.stdout + r.stderr)
        check(row(r.stdout, "most of a window")[:2] == ["1.000", "1.00"], r.stdout)
        check(row(r.stdout, "unseen of all")[:2] == ["1.000", "1.00"], r.stdout)
        os.symlink("..", f"{folder}/Attack_Data_Master/Adduser_1/circle")
        again = run([SCORE, "--adfa", folder], capture_output=True, text=True)
        check(again.stdout == r.stdout, again.stdout + again.stderr)


def files_that_are_no_traces_are_named_with_what_is_wrong():
    with tempfile.TemporaryDirectory() as folder:
        for part in ("Training_Data_Master", "Validation_Data_Master", "Attack_Data_Master/Adduser_1"):
            write(folder, f"{part}/1.txt", [6, 6, 63, 6])
        wrong = (("6 6 x 6", "more than numbers"), ("6 -1 6", "no system call"), ("6 99999 6", "no system call"),
                 ("6 99999999999999999999999 6", "no system call"), ("", "without a call"), ("\x00\x01\xff", "more than numbers"),
                 ("6 " * 1000001, "more than a million"), ("6.5", "more than numbers"))
        for text, why in wrong:
            with open(f"{folder}/Attack_Data_Master/Adduser_1/9.txt", "w", encoding="latin-1") as f:
                f.write(text)
            r = run([SCORE, "--adfa", folder], capture_output=True, text=True)
            check(r.returncode == 1 and "Adduser_1/9.txt: " in r.stderr and why in r.stderr, f"{text[:30]}: {r.returncode} {r.stderr}")
        os.unlink(f"{folder}/Attack_Data_Master/Adduser_1/9.txt")
        os.unlink(f"{folder}/Validation_Data_Master/1.txt")
        r = run([SCORE, "--adfa", folder], capture_output=True, text=True)
        check(r.returncode == 1 and "Validation_Data_Master: no trace" in r.stderr, r.stderr)
        r = run([SCORE, "--adfa", folder + "/none"], capture_output=True, text=True)
        check(r.returncode == 1 and "No such file" in r.stderr, r.stderr)


def a_short_recording_tells_attacks_from_work():
    if SLOWNESS > 1:
        print("skipped: rates of an emulated machine tell nothing of attacks and work", flush=True)
        return
    r = run(["/usr/bin/python3", RUN, "--quick", "--build", BUILD], capture_output=True, text=True, timeout=300)
    if r.returncode == 77:
        skip(r.stdout.strip())
    check(r.returncode == 0 and "\n0 lost" in "\n" + r.stderr, r.stdout[-2000:] + r.stderr[-2000:])
    auc, at_0 = row(r.stdout, "known types", "per executable", "all three")[:2]
    check(float(auc) >= 0.9 and float(at_0) >= 0.75, r.stdout)
    check(float(row(r.stdout, "known types", "per executable", "tripwires")[0]) > 0.5, r.stdout)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("needs root")
    if INSTALLED or not os.path.exists(SCORE):
        skip("the scorer is not built")
    failed = 0
    for test in (files_that_are_no_traces_are_named_with_what_is_wrong, traces_of_adfa_ld_are_read_and_scored,
                 a_short_recording_tells_attacks_from_work):
        try:
            test()
            print(f"ok   {test.__name__}", flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as why:
            failed += 1
            print(f"FAIL {test.__name__}: {why}", flush=True)
    sys.exit(1 if failed else 0)
