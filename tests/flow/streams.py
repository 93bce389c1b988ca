#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libstockade in a poll loop: 2,000 streams in one thread, on many connections and on one; slow readers; the example."""

import os
import shutil
import subprocess
import sys
import tempfile

from broker import NO_BPF, Broker, skip
from library import cached, flags
from runner import check, run_cases
from slowness import scaled

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "deploy", "examples", "c")
STREAMS = 2000
# Of the resident size, per stream. AddressSanitizer adds red zones to each block and keeps freed ones.
STREAM_BYTES = 24576 if cached("STOCKADE_SANITIZE") else 4096
BUFFER_BYTES = 24_000_000 if cached("STOCKADE_SANITIZE") else 6_000_000
ONE_CONNECTION = NO_BPF + "rpc:\n  streams: 2048\n  calls: 4096\n"


class Programs:
    """Programs of C, compiled as a user compiles them."""

    def __init__(self, folder):
        self.folder = folder
        self.found, self.compiler, self.env = flags(folder)
        if not shutil.which(self.compiler):
            skip(f"no compiler ({self.compiler})")

    def compile(self, source):
        out = os.path.join(self.folder, os.path.basename(source)[:-2])
        subprocess.run([self.compiler, "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", source, "-o", out,
                        *self.found], check=True)
        return out

    def run(self, b, source, *args):
        r = subprocess.run([self.compile(source), *args], env=dict(os.environ, STOCKADE_ADDRESS=b.address, **self.env),
                           check=False, capture_output=True, text=True, timeout=scaled(300))
        print(r.stdout[:2000], r.stderr[:2000], sep="", end="", flush=True)
        check(r.returncode == 0, f"{os.path.basename(source)} ended with {r.returncode}")
        return r.stdout

    def streams(self, b, handles):
        self.run(b, os.path.join(HERE, "programs", "streams.c"), str(handles), str(STREAMS), str(STREAM_BYTES))


def two_thousand_streams_on_sixteen_connections_are_served_by_one_thread(programs):
    with Broker(name="-streams", config=NO_BPF) as b:
        programs.streams(b, 16)


def two_thousand_streams_on_one_connection_are_served_by_one_thread(programs):
    with Broker(name="-streams", config=ONE_CONNECTION) as b:
        programs.streams(b, 1)


def a_refused_stream_and_a_slow_one_do_not_disturb_the_others(programs):
    with Broker(name="-streams", config=NO_BPF) as b:
        programs.run(b, os.path.join(HERE, "programs", "slow.c"), "128", str(BUFFER_BYTES))


def the_example_runs_many_jobs(programs):
    with Broker(name="-streams", config=NO_BPF) as b:
        example = os.path.join(EXAMPLES, "many_jobs.c")
        out = programs.run(b, example, "60", "12", "sh", "-c", "echo one of them")
        check(out == "one of them\n" * 60, f"60 lines: {out!r}")


def main():
    with tempfile.TemporaryDirectory(prefix="stockade-streams-") as folder:
        programs = Programs(folder)
        return run_cases([
            two_thousand_streams_on_sixteen_connections_are_served_by_one_thread,
            two_thousand_streams_on_one_connection_are_served_by_one_thread,
            a_refused_stream_and_a_slow_one_do_not_disturb_the_others,
            the_example_runs_many_jobs,
        ], lambda case: case(programs))


if __name__ == "__main__":
    sys.exit(main())
