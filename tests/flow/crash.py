#!/usr/bin/python3
"""kill -9 of the broker, of its spawner, and of both, in the middle of 100 jobs: within 1 s nothing runs any more, and
the next start finds and clears what is left."""

import os
import signal
import subprocess
import sys
import time

from broker import BUILD, Broker
from patience import Popen, patience

JOBS = int(os.environ.get("STOCKADE_CRASH_JOBS", "100"))


def start_jobs(broker):
    load = Popen([os.path.join(BUILD, "tests", "bench", "stockade-load"), broker.address, str(JOBS), str(JOBS), "sleep"],
                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert load.stdout.readline().strip() == "running", "the jobs did not start"
    return load


def alive(pids):
    """Those of pids that still run (a zombie of ours does not)."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append(pid)
        except OSError:
            pass
    return found


def crash(broker, victims):
    load = start_jobs(broker)
    until = time.monotonic() + patience(30)
    jobs = []
    while len(jobs) < JOBS and time.monotonic() < until:  # started is a shell that has yet to become sleep
        processes = broker.processes()
        jobs = [pid for pid, name in processes.items() if name == "sleep"]
    assert len(jobs) >= JOBS, f"{len(jobs)} of {JOBS} jobs run"
    sandboxed = [pid for pid, name in processes.items() if name not in ("stockaded", "stockade-spawne")]
    spawner = next(pid for pid, name in processes.items() if name == "stockade-spawne")
    for victim in victims:
        os.kill(broker.process.pid if victim == "broker" else spawner, signal.SIGKILL)
    killed = time.monotonic()
    while alive(sandboxed) and time.monotonic() < killed + patience(10):
        time.sleep(0.01)
    took = time.monotonic() - killed
    assert not alive(sandboxed), f"{len(alive(sandboxed))} processes live on"
    print(f"kill -9 {' and '.join(victims)}: {len(sandboxed)} processes gone after {took * 1000:.0f} ms")
    assert took < patience(1.0), f"took {took:.2f} s"
    # a spawner that lost its broker ends by itself, and the broker that lost its spawner too
    until = time.monotonic() + patience(10)
    while alive([broker.process.pid, spawner]) and time.monotonic() < until:
        broker.process.poll()
        time.sleep(0.02)
    assert not alive([broker.process.pid, spawner]), "a half of the pair lives on"
    broker.process.wait()
    broker.process = None
    load.wait(30)
    assert load.returncode != 0, "the clients were told nothing"


def main():
    passed = 0
    broker = Broker(config="limits_default: {wall_ms: 1h}\n")  # the first must not end before the last has begun
    for victims in (["broker"], ["spawner"], ["broker", "spawner"]):
        broker.start()
        crash(broker, victims)
        left = broker.cgroups()
        assert len(victims) == 1 or any(len(os.path.basename(c)) == 32 for c in left), "nothing was left to clear"
        broker.start()
        fresh = [c for c in broker.cgroups() if c in left and len(os.path.basename(c)) == 32]
        assert not fresh, f"not cleared: {fresh[:3]}"
        assert broker.cli("run", "--", "/bin/true").returncode == 0, "the new broker does not run jobs"
        assert broker.stop() == 0
        assert not broker.cgroups(), f"left over: {broker.cgroups()}"
        passed += 1
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
