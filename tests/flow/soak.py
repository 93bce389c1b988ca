#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""10,000 one-shot jobs (2,000 with sanitizers) leave the host as it was: cgroups, mounts, namespaces, descriptors, processes
and memory."""

import os
import subprocess
import sys
import time

from broker import BUILD, Broker, sanitized

JOBS = int(os.environ.get("STOCKADE_SOAK_JOBS", "2000" if sanitized() else "10000"))


def load(broker, jobs, clients):
    return subprocess.run([os.path.join(BUILD, "tests", "bench", "stockade-load"), broker.address, str(jobs), str(clients)],
                          check=False).returncode


def main():
    with Broker() as broker:
        # the first ones fill caches and pools; what stays after them must not grow
        assert load(broker, min(500, JOBS), 24) == 0
        before = broker.rests()
        started = time.monotonic()
        assert load(broker, JOBS, 8) == 0, "a job was answered wrongly"
        print(f"{JOBS} jobs in {time.monotonic() - started:.1f} s")
        assert broker.settles(before, memory_kib=16384), "the host differs"
        print(f"before and after: {before}")
        assert broker.stop() == 0, broker.log()[-2000:]
        assert not broker.cgroups(), f"left over: {broker.cgroups()}"
    print("1 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
