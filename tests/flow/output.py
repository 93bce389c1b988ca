#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job's output with the command: all of it arrives unless a limit was requested, and truncated output is not a
success."""

import json
import os
import subprocess
import sys

from broker import Broker
from runner import check, run_cases

MUCH = 20_000_000
CONFIG = "templates: [{name: terse, limits: {output: 1KB}, pool: 0}]\n"


def expect(r, code, err=b""):
    check(r.returncode == code, f"exit code {r.returncode}, not {code}: {r.args}\n{(r.stdout or b'')[:200]!r}\n{r.stderr!r}")
    check(err in r.stderr and (err or not r.stderr), f"stderr {r.stderr[:500]!r}, expected {err!r}")
    return r


def what_goes_to_a_file_has_no_limit_but_the_one_asked_for(b):
    path = os.path.join(b.folder, "out")
    b.cli("create", "--name", "box")
    for command in (("run",), ("exec", "box")):
        with open(path, "wb") as f:
            expect(b.cli(*command, "--", "head", "-c", str(MUCH), "/dev/zero", stdout=f, stderr=subprocess.PIPE,
                         capture_output=False), 0)
        check(os.path.getsize(path) == MUCH, f"{command}: {os.path.getsize(path)} bytes")
    check("none" in [line.split()[-1] for line in b.cli("get", "box").stdout.decode().splitlines() if "output" in line],
          b.cli("get", "box").stdout)


def output_that_was_cut_is_reported_and_is_no_success(b):
    line = ("--", "head", "-c", "100000", "/dev/zero")
    told = b"98976 bytes of output were cut by the limit output; --output raises it"
    for command in (("run",), ("exec",)):
        box = ("box",) if command == ("exec",) else ()
        r = expect(b.cli(*command, "--output", "1K", *box, *line), 74, told)
        check(r.stdout == bytes(1024), r.stdout[:99])
        expect(b.cli(*command, "--output", "1K", "--output-cut=fail", *box, *line), 74, told)
        expect(b.cli(*command, "--output", "1K", "--output-cut=ok", *box, *line), 0, told)
    expect(b.cli("run", "--template", "terse", *line), 74, told)
    expect(b.cli("run", "--output-cut", "maybe", "true"), 125, b"'maybe' is not one of ok, fail")


def a_job_that_failed_keeps_its_own_code(b):
    line = ("--output", "1K", "--", "sh", "-c")
    expect(b.cli("run", *line, "head -c 9999 /dev/zero; exit 3"), 3, b"bytes of output were cut")
    expect(b.cli("run", *line, "head -c 9999 /dev/zero; kill -9 $$"), 137, b"bytes of output were cut")


def json_says_it_in_all_three_ways(b):
    r = b.cli("run", "-o", "json", "--output", "1K", "--", "head", "-c", "100000", "/dev/zero")
    o = json.loads(expect(r, 74, b"98976 bytes of output were cut").stdout)
    check(o["exit_code"] == 0 and o["output_missing_bytes"] == 98976, o["output_missing_bytes"])
    r = b.cli("run", "-o", "json", "--", "sh", "-c", "head -c 67200000 /dev/zero | tr '\\0' x")
    o = json.loads(expect(r, 74, b"91136 bytes of output exceed what -o json holds").stdout)
    check(len(o["stdout"]) == 64 << 20 and o["output_missing_bytes"] == 91136, o["output_missing_bytes"])


TESTS = [what_goes_to_a_file_has_no_limit_but_the_one_asked_for, output_that_was_cut_is_reported_and_is_no_success,
         a_job_that_failed_keeps_its_own_code, json_says_it_in_all_three_ways]


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases(TESTS, lambda case: case(b))
    sys.exit(status)


if __name__ == "__main__":
    main()
