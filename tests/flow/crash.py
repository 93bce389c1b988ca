#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the broker, of its spawner, of the guests, and of all of them in every order, in the middle of jobs: within 1 s
nothing of them runs any more, and the next start finds and clears what is left. Time in which processes of this host waited for a
processor does not count: beside other work it says nothing about the broker."""

import itertools
import os
import signal
import subprocess
import sys
import time

from broker import BUILD, Broker
from slowness import Popen, scaled
from runner import until

JOBS = int(os.environ.get("STOCKADE_CRASH_JOBS", "100"))
FEW = 10  # for the many orders


def start_jobs(broker, n):
    load = Popen([os.path.join(BUILD, "tests", "bench", "stockade-load"), broker.address, str(n), str(n), "sleep"],
                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert load.stdout.readline().strip() == "running", "the jobs did not start"
    return load


def alive(pids):
    """The pids that still run (zombies do not count)."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append(pid)
        except OSError:
            pass
    return found


def waited_for_a_processor():
    """Seconds so far in which some process of the host could run and did not; 0 where the kernel does not say."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as f:
            return int(f.readline().rpartition("total=")[2]) / 1e6
    except OSError:
        return 0


def status(pid, key):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as f:
            return next(line.split()[1:] for line in f if line.startswith(key + ":"))
    except OSError:
        return []


def is_guest(pid):
    """Whether it is the first process of a pid namespace below ours."""
    return status(pid, "NSpid")[1:][-1:] == ["1"]


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # whoever was killed before has taken it along
            pass


def crash(broker, victims, n):
    """Returns the client that waits for the jobs, and the spawner's pid."""
    load = start_jobs(broker, n)
    until(lambda: list(broker.processes().values()).count("sleep") >= n, f"{n} shells have become sleep")
    processes = broker.processes()
    jobs = [pid for pid, name in processes.items() if name == "sleep"]
    broker_pid = broker.process.pid
    of = {"broker": [broker_pid], "spawner": [p for p in processes if status(p, "PPid") == [str(broker_pid)]],
          "guests": [pid for pid in processes if is_guest(pid)]}
    assert len(of["guests"]) >= n and len(of["spawner"]) == 1, str(of)
    sandboxed = [*jobs, *of["guests"]] if victims == ("guests",) else \
        [pid for pid, name in processes.items() if name not in ("stockaded", "stockade-spawne")]
    for victim in victims:
        kill(of[victim])
    killed, stalled = time.monotonic(), waited_for_a_processor()
    until(lambda: not alive(sandboxed), lambda: f"{len(alive(sandboxed))} processes live on", 60)
    stalled = waited_for_a_processor() - stalled
    took = time.monotonic() - killed
    print(f"kill -9 {' and '.join(victims)}: {len(sandboxed)} processes gone after {took * 1000:.0f} ms, {stalled * 1000:.0f} of them stalled")
    assert took - stalled < scaled(1.0), f"took {took:.2f} s"
    return load, of["spawner"][0]


def crash_of_the_pair(broker, victims, n):
    load, spawner = crash(broker, victims, n)
    # a spawner that lost its broker ends by itself, and the broker that lost its spawner too
    until(lambda: broker.process.poll() is not None and not alive([spawner]), "both halves of the pair end", 60)
    broker.process.wait()
    broker.process = None
    load.wait(30)
    assert load.returncode != 0, "the clients were told nothing"


def crash_of_the_guests(broker, n):
    """The others continue without them: the clients get an error, nothing of the sandboxes is left, and new jobs
    run."""
    load, spawner = crash(broker, ("guests",), n)
    load.wait(30)
    assert load.returncode != 0, "the clients were told nothing"
    assert alive([broker.process.pid, spawner]) == [broker.process.pid, spawner], "guests took the others along"
    assert broker.cli("run", "--", "/bin/true").returncode == 0, "no jobs run any more"


def main():
    passed = 0
    broker = Broker(config="limits_default: {timeout: 1h}\n")  # the first must not end before the last has begun
    broker.start()
    crash_of_the_guests(broker, FEW)
    passed += 1
    for victims in (("broker",), ("spawner",), ("broker", "spawner"), *itertools.permutations(("broker", "spawner", "guests"))):
        if len(victims) > 2:
            broker.without_bpf()
        crash_of_the_pair(broker, victims, FEW if len(victims) > 2 else JOBS)
        left = broker.cgroups()
        assert len(victims) != 2 or any(len(os.path.basename(c)) == 32 for c in left), "nothing was left to clear"
        broker.start()  # what is crashed next
        fresh = [c for c in broker.cgroups() if c in left and len(os.path.basename(c)) == 32]
        assert not fresh, f"not cleared: {fresh[:3]}"
        assert broker.cli("run", "--", "/bin/true").returncode == 0, "the new broker does not run jobs"
        passed += 1
    assert broker.stop() == 0
    assert not broker.cgroups(), f"left over: {broker.cgroups()}"
    for _ in range(5):  # a supervisor restarts at once, while the old spawner still cleans up
        broker.start()
        broker.kill()
    broker.start()
    assert broker.cli("run", "--", "/bin/true").returncode == 0, "the new broker does not run jobs"
    assert broker.stop() == 0
    passed += 1
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
