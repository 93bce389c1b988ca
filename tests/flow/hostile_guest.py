#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Guests that somebody has taken over: they speak garbage, lie, flood, send descriptors, never answer, or make the broker
wait. The call ends with an error, other callers are served meanwhile, and nothing stays behind.

The guest is programs/hostile_guest.c, beside links to the programs of the build."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from replaced import build_without

HERE = os.path.dirname(os.path.abspath(__file__))


def with_hostile_guest():
    """A folder like the build's, whose guest is hostile."""
    folder = build_without("stockade-guest")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-std=gnu17", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-pthread",
                    f"{HERE}/programs/hostile_guest.c", "-o", f"{folder}/server/stockade-guest"], check=True)
    return folder


FOLDER = with_hostile_guest()

from broker import Broker  # noqa: E402 (it reads STOCKADE_BUILD)
from inject import READ, Traced  # noqa: E402
from runner import check, run_cases, time_passes, until  # noqa: E402
from slowness import Popen, scaled  # noqa: E402

CONFIG = "templates: [{name: default, pool: 2}]\n"
SLOWEST_S = 3  # of another caller's call, beside any attack
INTERRUPTED = (-4, -512)  # EINTR, ERESTARTSYS
MEMORY_KIB = 64 * 1024
# What `run` says about each attack.
BREACHES = {
    "gone": "the guest has ended",
    "nothing": "the guest has ended",
    "garbage": "the guest broke the protocol",
    "oversized": "the guest broke the protocol: a packet of more than",
    "no-kind": "the guest broke the protocol",
    "ready-again": "it reported Ready twice",
    "other-job": "it started a job that was not requested",
    "ends-first": "it reported the end of a job that does not run",
    "no-status": "it reported the end of a job that does not run",
    "a-descriptor": "it started a job that was not requested",
    "many-descriptors": "the guest broke the protocol: a packet with more descriptors than it may have",
    "itself": "the guest broke the protocol: a descriptor that is no device",
    "lingering": "the guest broke the protocol: a descriptor that is no device",
}


class Neighbour:
    """Another caller, who asks again and again, and how long it waited at most. The pauses are for the processors."""

    def __init__(self, b):
        self.b, self.slowest, self.calls, self.over, self.failed = b, 0.0, 0, threading.Event(), []
        self.thread = threading.Thread(target=self._ask)

    def _ask(self):
        while not self.over.is_set():
            begun = time.monotonic()
            r = self.b.cli("info")
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.calls += 1
            if r.returncode != 0:
                self.failed.append(r)
            self.over.wait(0.1)  # a thirtieth of SLOWEST_S

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *why):
        self.over.set()
        self.thread.join()
        if why[0] is None:
            check(not self.failed and self.calls > 0, self.failed[:1])
            check(self.slowest < scaled(SLOWEST_S), f"another caller waited for {self.slowest:.1f} s")


def attack(b, name, *flags):
    return b.cli("run", "--timeout", "3s", *flags, "--", f"attack={name}")


def is_served(b):
    r = attack(b, "honest")
    check(r.returncode == 0, f"an honest one: {r}")


def what_breaks_the_protocol_ends_the_sandbox_and_says_how(b):
    for name, words in BREACHES.items():
        with Neighbour(b):
            r = attack(b, name)
            check(r.returncode not in (0, None) and words in r.stderr.decode(), f"{name}: {r}")
        is_served(b)


def a_guest_that_never_answers_is_ended_by_the_time_limit(b):
    """Three at a time, each in a sandbox of its own: what takes time is their limits."""
    with Neighbour(b), ThreadPoolExecutor() as pool:
        answers = pool.map(lambda name: (name, attack(b, name)), ("silent", "never-ends", "deaf"))
        for name, r in answers:
            check(r.returncode not in (0, None), f"{name}: {r}")
    is_served(b)


def a_guest_that_does_not_answer_start_loses_its_sandbox(b):
    """Without a time limit, too."""
    with Neighbour(b):
        r = b.cli("run", "--", "attack=silent")
        check(r.returncode not in (0, None) and b"did not respond for 10 s, so the process was not started" in r.stderr, r)
    is_served(b)


def what_it_says_of_sizes_is_not_billed(b):
    code, result = b.json("run", "--", "attack=lies-about-sizes")
    check(code == 0, result)
    text = str(result)
    check("18446744073709551615" not in text, text)


def two_ends_of_one_job_lose_the_sandbox_and_not_the_first_answer(b):
    r = attack(b, "ends-twice")
    check(r.returncode == 0 or "broke the protocol" in r.stderr.decode(), r)
    is_served(b)


def control_characters_of_a_failure_are_escaped(b):
    r = attack(b, "long-failure")
    check(r.returncode == 127 and b"\x1b" not in r.stderr and len(r.stderr) < 4096, r)


def cgroups_and_processes_that_it_makes_go_with_it(b):
    for name in ("cgroups", "forks"):
        with Neighbour(b):
            attack(b, name)
        is_served(b)


def a_terminal_that_it_makes_blocking_does_not_stop_the_broker(b):
    """Its guest races with the broker; then the broker is held where it loses."""
    with Neighbour(b):
        job = terminal(b, "2s", "blocking-terminal")
        said, _ = job.communicate(timeout=scaled(120))
        check(job.returncode != 0, said)
    is_served(b)
    job = terminal(b, "60s", "slow-terminal")
    fd = until(lambda: terminals(b.process.pid), "the broker has the terminal")[0]
    until(lambda: loses_the_race(b.process.pid, fd), "a read of it waits", 60)
    said, _ = job.communicate(timeout=scaled(120))
    check(job.returncode != 0 and b"made a terminal blocking" in said and "the guest made a terminal blocking" in b.log(), f"{said} {b.log()}")
    is_served(b)


def terminal(b, timeout, name):
    """A job with a terminal: `script` gives the command one."""
    words = " ".join(b.command("run", "--timeout", timeout, "-it", "--", f"attack={name}"))
    return Popen(["script", "-qec", words, "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def terminals(pid):
    """Descriptors of masters."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}").endswith("ptmx"):
                found.append(int(name))
    return found


def loses_the_race(pid, fd):
    """At the next read of the terminal: what was there is gone, and it waits. Whether a timer has ended that read."""
    with Traced(pid) as broker, contextlib.closing(broker.descriptor(fd)) as ours:
        broker.stops_at(READ, fd)
        ours.take_away()
        return broker.result() in INTERRUPTED


def guest_that(does):
    """Changes what the guests of later brokers do at their birth."""
    path, mark = f"{FOLDER}/server/stockade-guest", b"AT-BIRTH:"
    with open(path, "r+b") as f:
        f.seek(f.read().index(mark) + len(mark))
        f.write(does)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def a_guest_that_fails_at_its_birth_keeps_nobody_busy(_):
    """Three brokers, each with guests that fail in one way: a spawner keeps the program with which it began."""
    with contextlib.ExitStack() as stack:
        brokers = {}
        for does in (b"ends", b"silent", b"floods"):
            guest_that(does)
            brokers[does] = stack.enter_context(Broker(config=CONFIG, name=f"-birth-{does.decode()}"))
        with ThreadPoolExecutor() as pool:
            for does, r in pool.map(lambda item: (item[0], attack(item[1], "honest")), brokers.items()):
                check(r.returncode not in (0, None), f"{does}: {r}")
        pids = {does: (b.process.pid, b.spawner()) for does, b in brokers.items()}
        before = {does: sum(map(cpu_seconds, both)) for does, both in pids.items()}
        time_passes("how busy they are in it", 5)
        for does, b in brokers.items():
            used = sum(map(cpu_seconds, pids[does])) - before[does]
            check(used < 1, f"{does}: {used:.2f} s of processor time in 5 s")
            check(b.cli("info").returncode == 0, does)


CASES = [what_breaks_the_protocol_ends_the_sandbox_and_says_how, a_guest_that_never_answers_is_ended_by_the_time_limit,
         a_guest_that_does_not_answer_start_loses_its_sandbox,
         what_it_says_of_sizes_is_not_billed, two_ends_of_one_job_lose_the_sandbox_and_not_the_first_answer,
         control_characters_of_a_failure_are_escaped, cgroups_and_processes_that_it_makes_go_with_it,
         a_terminal_that_it_makes_blocking_does_not_stop_the_broker, a_guest_that_fails_at_its_birth_keeps_nobody_busy]


def more(now, before):
    """What there is more of now. Descriptors may be fewer: the spawner closes those of ranges of ids."""
    return [(k, before[k], now[k]) for k in ("cgroups", "mounts", "namespaces", "processes") if now[k] > before[k]] + [
        (k, name, before[k][name], n) for k, room in (("fds", 0), ("rss_kib", MEMORY_KIB))
        for name, n in now[k].items() if n > before[k][name] + room]


def main():
    with Broker(config=CONFIG) as b:
        is_served(b)
        before = b.rests()
        status = run_cases(CASES, lambda case: case(b))
        until(lambda: not more(b.host(), before), lambda: f"everything is gone: {more(b.host(), before)}", 60)
        return status


if __name__ == "__main__":
    sys.exit(main())
