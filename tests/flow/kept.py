#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kept snapshots: they outlast sandbox and broker, whatever kills it and whenever; a full disk loses nothing, and a
flipped bit is found."""

import contextlib
import glob
import json
import os
import random
import signal
import sys
import threading
import time

from broker import Broker, small_disk
from cli import expect
from runner import Skipped, check, run_cases, until
from volumes import loops

CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
quotas: {kept_bytes_per_caller: 64M}
limits_max: {disk: 256M, memory: 512M}
templates:
  - {name: default, limits: {disk: 128M, memory: 256M}}
  - {name: other, limits: {disk: 16M, memory: 128M}}
  - {name: disk, storage: disk, pool: 0, limits: {disk: 32M, memory: 128M}}
"""
KILLS = int(os.environ.get("STOCKADE_KILLS", "6"))


def refused(r, *words):
    check(r.returncode not in (0, -9, -11) and r.stdout == b"", r)
    for word in words:
        check(word in r.stderr, f"{word} is not in {r.stderr}")


def box(b, *more):
    return expect(b.cli("create", *more), 0).stdout.decode().strip()


def sh(b, sandbox, script):
    return expect(b.cli("exec", sandbox, "--", "sh", "-c", script), 0).stdout.decode()


def keep(b, sandbox, name):
    return expect(b.cli("snapshot", "create", "--keep", sandbox, name), 0).stdout.decode().strip()


def kept(b):
    code, all_of_them = b.json("snapshot", "ls")
    check(code == 0, all_of_them)
    return {p["name"]: p for p in all_of_them}


def layers(b):
    return sorted(os.listdir(f"{b.state}/layers"))


def forget(b):
    for name in kept(b):
        expect(b.cli("snapshot", "rm", name), 0)
    until(lambda: not layers(b), lambda: f"no layer is left: {layers(b)}")


def tidy_up(b):
    for sandbox in b.json("ls")[1]:
        expect(b.cli("rm", sandbox["id"]), 0)
    forget(b)


def again(b, how):
    how()
    b.start()


def what_is_not_there_is_refused(b):
    one = box(b)
    refused(b.cli("create", "--snapshot", "none"), b"there is no kept snapshot none")
    refused(b.cli("snapshot", "show", "none"), b"there is no kept snapshot none", b"stockade snapshot ls")
    refused(b.cli("snapshot", "rm", "none"), b"there is no kept snapshot none")
    refused(b.cli("snapshot", "restore", one, "none"), b"has no snapshot none")
    refused(b.cli("snapshot", "restore", "none"), b"restore needs a SANDBOX and a NAME")
    refused(b.cli("snapshot", "ls", "--keep"), b"--keep needs the action create")
    refused(b.cli("snapshot", "create", "--keep", "nobox"), b"nobox")
    check(kept(b) == {}, kept(b))
    expect(b.cli("rm", one), 0)


def names_quota_and_templates_are_checked(b):
    one, two, other = box(b), box(b), box(b, "--template", "other")
    sh(b, one, "echo a > A; head -c 40000000 /dev/urandom > big")
    keep(b, one, "n")
    refused(b.cli("snapshot", "create", "--keep", two, "n"), b"keeps a state with the name n already")
    check(b.json("snapshot", "ls", two)[1] == [], "a snapshot that is not kept is not made")
    refused(b.cli("snapshot", "restore", other, "n"), b"of template default, and this one is of other")
    refused(b.cli("create", "--template", "other", "--snapshot", "n"), b"leave the template out")
    sh(b, two, "head -c 30000000 /dev/urandom > big")
    refused(b.cli("snapshot", "create", "--keep", two, "m"), b"quotas.kept_bytes_per_caller")
    check(list(kept(b)) == ["n"], kept(b))
    until(lambda: len(layers(b)) == 1, lambda: f"one layer is left: {layers(b)}")
    sh(b, one, "echo b > B")
    keep(b, one, "n2")  # shares the large layer
    check(len(layers(b)) == 2, layers(b))
    tidy_up(b)


def another_caller_sees_nothing(b):
    one = box(b)
    sh(b, one, "echo secret > A")
    keep(b, one, "mine")
    kept_id = kept(b)["mine"]["kept_id"]
    check(json.loads(expect(b.stranger("snapshot", "ls", "-o", "json"), 0).stdout) == [], "its list is empty")
    for name in ("mine", kept_id):
        refused(b.stranger("create", "--snapshot", name), b"there is no kept snapshot")
        refused(b.stranger("snapshot", "show", name), b"there is no kept snapshot")
        refused(b.stranger("snapshot", "rm", name), b"there is no kept snapshot")
    for path in (f"{b.state}/layers", f"{b.state}/store"):
        check(os.stat(path).st_mode & 0o777 == 0o700, path)
    tidy_up(b)


def they_outlast_sandbox_and_broker(b):
    one = box(b, "--template", "other")
    sh(b, one, "echo 1 > A; mkdir d; chmod 700 d; echo x > d/x; echo t > /tmp/T")
    keep(b, one, "first")
    sh(b, one, "rm A; echo 2 > B")
    keep(b, one, "second")
    check(b.json("snapshot", "show", one, "second")[1]["kept_id"] != "", "the sandbox's list says so")
    expect(b.cli("rm", one), 0)
    again(b, b.stop)
    check(list(kept(b)) == ["first", "second"], kept(b))
    check(all(p["template"] == "other" for p in kept(b).values()), kept(b))
    two = box(b, "--snapshot", "second")
    check(sh(b, two, "ls; cat B d/x /tmp/T; stat -c '%a %U' d; echo 3 > C") == "B\nd\n2\nx\nt\n700 agent\n", "second")
    check(b.json("get", two)[1]["template"] == "other", "and its template")
    expect(b.cli("snapshot", "restore", two, "first"), 0)
    check(sh(b, two, "ls; cat A") == "A\nd\n1\n", "first")
    keep(b, two, "third")  # of kept layers alone: nothing new is written
    expect(b.cli("fork", two), 0)
    again(b, b.kill)
    check(list(kept(b)) == ["first", "second", "third"], kept(b))
    three = box(b, "--snapshot", kept(b)["third"]["kept_id"])
    expect(b.cli("snapshot", "rm", "third"), 0)
    expect(b.cli("snapshot", "rm", "first"), 0)
    expect(b.cli("snapshot", "rm", "second"), 0)
    check(sh(b, three, "cat A d/x") == "1\nx\n", "a sandbox keeps the layers that it shows")
    check(len(layers(b)) > 0, "they are there")
    expect(b.cli("rm", three), 0)
    until(lambda: not layers(b), lambda: f"no layer is left: {layers(b)}")


def a_flipped_bit_is_found_and_the_rest_stays_usable(b):
    one = box(b)
    sh(b, one, "echo good > A")
    keep(b, one, "good")
    sh(b, one, "echo damaged > D")
    keep(b, one, "damaged")
    path, = glob.glob(f"{b.state}/layers/*/s/home/agent/D")
    stat = os.stat(path)
    with open(path, "r+b") as f:
        f.write(b"D")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    again(b, b.stop)
    refused(b.cli("create", "--snapshot", "damaged"), b"is damaged")
    until(lambda: b.json("ls")[1] == [], "no sandbox is left of that")
    two = box(b, "--snapshot", "good")
    refused(b.cli("snapshot", "restore", two, "damaged"), b"is damaged")
    check(sh(b, two, "cat A") == "good\n", "it is as it was")
    tidy_up(b)


def a_record_that_cannot_be_read_is_left_and_no_layer_removed(b):
    one = box(b)
    for name in ("a", "b"):
        sh(b, one, f"echo {name} > A")
        keep(b, one, name)
    path = f"{b.state}/store/{kept(b)['b']['kept_id']}.record"
    with open(path, "r+b") as f:
        f.seek(200)
        f.write(b"?")
    before = layers(b)
    again(b, b.stop)
    check(list(kept(b)) == ["a"] and layers(b) == before, f"{kept(b)} {layers(b)}")
    check("its sum is wrong; it is left there" in b.log(), b.log()[-2000:])
    os.unlink(path)
    again(b, b.stop)
    until(lambda: len(layers(b)) == 1, lambda: f"the other layer is removed: {layers(b)}")
    forget(b)


class Killing:
    """Ends the broker, or a keeper that works for it, at some moment of a command."""

    def __init__(self, b, rng):
        self.b, self.keeper, self.after = b, rng.random() < 0.4, rng.uniform(0, 0.4)
        self.stop, self.killed = threading.Event(), False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def keepers(self):
        return [pid for pid, command in self.b.processes().items() if "stockade-keeper" in command]

    def run(self):
        if not self.keeper:
            self.stop.wait(self.after)
            self.b.process.kill()
            return
        while not self.killed and not self.stop.is_set():
            for pid in self.keepers():
                time.sleep(self.after / 20)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = True

    def done(self):
        """The command has ended; True: so has the broker, which was started again."""
        if self.keeper:
            self.stop.set()
        self.thread.join()
        if self.keeper:
            return False
        self.b.process.wait()
        self.b.start()
        return True


def is_whole(b, name, text):
    two = box(b, "--snapshot", name)
    check(sh(b, two, "cat A") == text + "\n", f"{name}: {text}")
    check(sh(b, two, "ls | wc -l; cat f1").split()[-1] == "1", name)
    expect(b.cli("rm", two), 0)


def a_kill_in_the_middle_leaves_the_old_state_or_the_new_one(b):
    """Of the broker or of a keeper, while a state is kept, while all are listed, and while one is deleted."""
    kill_in_the_middle(b, random.Random(1), KILLS, "default")


def a_kill_in_the_middle_does_so_with_files_on_disk(b):
    row = b.feature("storage-on-disk")
    if not row["available"]:
        raise Skipped(row["detail"])
    kill_in_the_middle(b, random.Random(3), max(3, KILLS // 2), "disk")
    disks = os.path.join(b.state, "disks")
    until(lambda: not loops(b) and not os.listdir(disks), lambda: f"no disk is left over: {loops(b)} {os.listdir(disks)}")


def kill_in_the_middle(b, rng, kills, template):
    known, keepers = {}, 0
    for turn in range(kills):
        what = rng.choice(("keep", "keep", "ls", "rm")) if known else "keep"
        name = f"k{turn}" if what == "keep" else rng.choice(list(known))
        one = box(b, "--template", template)
        if what == "keep":
            known[name] = f"turn {turn}"
            sh(b, one, f"echo {known[name]} > A; head -c {rng.choice([0, 4 << 20, 12 << 20])} /dev/urandom > big; "
                       f"for i in $(seq {rng.choice([1, 300])}); do echo $i > f$i; done")
        words = {"keep": ("snapshot", "create", "--keep", one, name), "ls": ("snapshot", "ls"), "rm": ("snapshot", "rm", name)}
        killing = Killing(b, rng)
        done = b.cli(*words[what]).returncode == 0
        restarted = killing.done()
        keepers += killing.killed
        now = kept(b)
        maybe = set() if what == "ls" else {name}
        check(set(known) - maybe <= set(now) <= set(known), f"turn {turn}, {what}: {list(known)} {list(now)}")
        if done and what != "ls":  # what was reported is so
            check((name in now) == (what == "keep"), f"turn {turn}, {what}: {list(now)}")
        known = {each: known[each] for each in now}
        if name in known:
            is_whole(b, name, known[name])
        if not restarted:
            expect(b.cli("rm", one), 0)
        until(lambda: not [n for n in layers(b) if "-" in n], lambda: f"nothing half is left: {layers(b)}")
        check(all(n.endswith(".record") for n in os.listdir(f"{b.state}/store")), os.listdir(f"{b.state}/store"))
        if len(known) > 3:
            oldest = next(iter(known))
            expect(b.cli("snapshot", "rm", oldest), 0)
            del known[oldest]
    print(f"{kills} kills, {keepers} of keepers, {len(known)} states at the end", flush=True)
    for name, text in known.items():
        is_whole(b, name, text)
    forget(b)


def a_kill_in_the_middle_of_a_commit_leaves_the_old_files_or_the_new_ones(b):
    """What was kept before is as it was, and what was kept after has all of the commit."""
    rng = random.Random(2)
    committed, took = 0, 0.5
    for turn in range(KILLS):
        one, n = box(b), rng.choice([1, 300])

        def write(sandbox, word, n=n):
            sh(b, sandbox, f"for i in $(seq {n}); do echo {word} > f$i; done")

        write(one, "old")
        keep(b, one, "old")
        tx = expect(b.cli("transaction", "begin", one), 0).stdout.decode().strip()
        write(tx, "new")
        if rng.random() < 0.5:  # both sides are compared first
            sh(b, one, "echo other > other")
        timer = threading.Timer(rng.uniform(0, took), b.process.kill)
        began = time.monotonic()
        timer.start()
        done = b.cli("transaction", "commit", tx).returncode == 0
        if done:
            took = time.monotonic() - began  # so about every second kill comes before the end
            committed += 1
            b.cli("snapshot", "create", "--keep", one, "new")
        timer.join()
        b.process.wait()
        b.start()
        now = kept(b)
        check("old" in now and (done or "new" not in now), f"{done} {list(now)}")
        check(b.json("ls")[1] == [] == b.json("transaction", "ls")[1], "neither the sandbox nor its transaction is left")
        for word in now:
            two = box(b, "--snapshot", word)
            check(sh(b, two, "cat f*").split() == [word] * n, f"all or nothing: {word}")
            expect(b.cli("rm", two), 0)
        until(lambda: not [n for n in layers(b) if "-" in n], lambda: f"nothing half is left: {layers(b)}")
        forget(b)
    print(f"{KILLS} kills, {committed} after the commit", flush=True)


def a_full_disk_refuses_and_loses_nothing(_):
    b = Broker(config=CONFIG, name="-full")
    b.prefix = small_disk(b.state, 24)
    with b:
        one = box(b)
        sh(b, one, "echo a > A")
        keep(b, one, "small")
        sh(b, one, "head -c 40000000 /dev/urandom > big")
        refused(b.cli("snapshot", "create", "--keep", one, "large"), b"No space left on device",
                b"free some space on the disk of the state directory")
        check(list(kept(b)) == ["small"], kept(b))
        check(sh(b, one, "cat A; stat -c %s big") == "a\n40000000\n", "the sandbox is as it was")
        two = box(b, "--snapshot", "small")
        check(sh(b, two, "ls; cat A") == "A\na\n", "and so is what was kept")
        sh(b, one, "rm big; echo b > B")
        expect(b.cli("snapshot", "restore", one, "small"), 0)
        sh(b, one, "echo c > C")
        keep(b, one, "again")
        check(list(kept(b)) == ["small", "again"], kept(b))


def main():
    with Broker(config=CONFIG) as b:
        cases = (what_is_not_there_is_refused, names_quota_and_templates_are_checked, another_caller_sees_nothing,
                 they_outlast_sandbox_and_broker, a_flipped_bit_is_found_and_the_rest_stays_usable,
                 a_record_that_cannot_be_read_is_left_and_no_layer_removed,
                 a_kill_in_the_middle_leaves_the_old_state_or_the_new_one, a_kill_in_the_middle_does_so_with_files_on_disk,
                 a_kill_in_the_middle_of_a_commit_leaves_the_old_files_or_the_new_ones, a_full_disk_refuses_and_loses_nothing)
        return run_cases(cases, lambda case: case(b), lambda: tidy_up(b))


if __name__ == "__main__":
    sys.exit(main())
