#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are asleep: what wakes them, what they keep and lose, whatever happens to the broker, its disk, their template
and their owner meanwhile."""

import glob
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from broker import Broker, small_disk
from cli import expect
from kept import box, refused, sh
from runner import check, run_cases, until

CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
quotas: {kept_bytes_per_caller: 96M, sandboxes_per_caller: 6}
limits_max: {disk: 256M, memory: 512M}
templates:
  - {name: default, limits: {disk: 128M, memory: 256M}, network: {mode: none}}
  - {name: other, limits: {disk: 16M, memory: 128M}}
  - {name: sleepy, limits: {disk: 16M, memory: 128M}, sleep_after: 1s}
"""
NO_OTHER = CONFIG.replace("  - {name: other, limits: {disk: 16M, memory: 128M}}\n", "")
KILLS = int(os.environ.get("STOCKADE_KILLS", "3"))


def sleep(b, sandbox, *more):
    return expect(b.cli("sleep", *more, sandbox), 0)


def get(b, sandbox):
    code, found = b.json("get", sandbox)
    check(code == 0, found)
    return found


def state(b, sandbox):
    return get(b, sandbox)["state"]


def names(b):
    return [s["name"] for s in b.json("ls")[1]]


def records(b):
    return sorted(os.listdir(f"{b.state}/store"))


def layers(b):
    return sorted(os.listdir(f"{b.state}/layers")) if os.path.isdir(f"{b.state}/layers") else []


def nothing_is_left(b):
    until(lambda: not records(b) and not layers(b), lambda: f"nothing is left: {records(b)} {layers(b)}")


def tidy_up(b):
    for sandbox in b.json("ls")[1]:
        b.cli("rm", sandbox["id"])
    for p in b.json("snapshot", "ls")[1]:
        b.cli("snapshot", "rm", p["name"])
    nothing_is_left(b)


def is_guest(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            return any(line.startswith("NSpid:") and line.split()[-1] == "1" and len(line.split()) > 2 for line in f)
    except OSError:
        return False


def host(b):
    now = b.host()
    return {what: now[what] for what in ("cgroups", "mounts", "namespaces", "processes")}


def again(b, how):
    how()
    b.start()


def what_cannot_sleep_is_refused(b):
    refused(b.cli("sleep", "none"), b"there is no sandbox none")
    refused(b.cli("wake", "none"), b"there is no sandbox none")
    refused(b.cli("sleep"), b"SANDBOX is missing")
    refused(b.cli("create", "--sleep-after", "10ms"), b"--sleep-after")
    refused(b.cli("create", "--sleep-after", "31d"), b"--sleep-after")
    one = box(b, "--name", "box")
    sh(b, one, "echo 1 > A")
    job = b.popen("exec", one, "--", "sleep", "100", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: get(b, one)["processes"] == 1, "the job runs")
    refused(b.cli("sleep", one), b"1 process runs in sandbox", b"wait for them to end", b"or stop all")
    check(sleep(b, one, "--stop").stderr == b"%s: 1 process ended when it fell asleep\n" % one.encode(), "it says what ended")
    out, err = job.communicate(timeout=60)
    check(job.returncode != 0 and b"falls asleep" in err, f"{job.returncode} {out} {err}")
    check(sh(b, "box", "cat A") == "1\n", "its files are there")
    expect(b.cli("pause", one), 0)
    refused(b.cli("sleep", one), b"is paused", b"stockade resume")
    expect(b.cli("resume", one), 0)
    tidy_up(b)


def another_caller_sees_nothing(b):
    one = box(b, "--name", "mine")
    sleep(b, one)
    check(json.loads(expect(b.stranger("ls", "-o", "json"), 0).stdout) == [], "its list is empty")
    for name in ("mine", one):
        for command in (("get", name), ("wake", name), ("sleep", name), ("rm", name), ("exec", name, "true"), ("fork", name)):
            refused(b.stranger(*command), b"there is no sandbox " + name.encode())
    check(state(b, one) == "ASLEEP", "nobody woke it")
    theirs = expect(b.stranger("create", "--name", "mine"), 0).stdout.decode().strip()  # names are per caller
    expect(b.stranger("rm", theirs), 0)
    tidy_up(b)


def it_keeps_what_it_is_and_nothing_of_it_is_in_memory(b):
    expect(b.cli("volume", "create", "data", "--size", "8M"), 0)
    first = box(b, "--volume", "data:/data")
    sleep(b, first)
    expect(b.cli("rm", first), 0)
    b.rests()
    before = host(b)
    one = box(b, "--name", "box", "--label", "a=b", "--label", "c=d", "--memory", "200M", "--ttl", "1h", "--sleep-after", "1d",
              "--volume", "data:/data")
    sh(b, one, "echo 1 > A; echo t > /tmp/T; echo v > /data/V; mkdir -m 700 d")
    expect(b.cli("snapshot", "create", one, "s1"), 0)
    sh(b, one, "echo 2 > B; rm A")
    expect(b.cli("snapshot", "create", one, "s2"), 0)
    expect(b.cli("snapshot", "restore", one, "s1"), 0)
    sh(b, one, "echo 3 > C")
    was = get(b, one)
    sleep(b, "box")
    now = get(b, "box")
    check(now["state"] == "ASLEEP" and now["last_sleep"]["bytes"] > 0 and now["last_sleep"]["wake_time"] is None, now)
    for key in was:
        if key not in ("state", "last_sleep"):
            check(now[key] == was[key], f"{key}: {now[key]} was {was[key]}")
    check(all(p["result"] for p in b.json("ps", one)[1]), "ps wakes nobody")
    check(state(b, one) == "ASLEEP", "neither do get and ls")
    check(b.json("info")[1]["sandboxes_own"] == 0, "it is no sandbox of the host")
    until(lambda: host(b) == before, lambda: f"nothing of it is left in memory: {host(b)}, not {before}")
    refused(b.cli("create", "--name", "box"), b"a sandbox with the name box already exists")
    again(b, b.stop)
    check({k: v for k, v in get(b, one).items()} == now, f"{get(b, one)} was {now}")
    check([s["name"] for s in b.json("ls", "--label", "a=b")[1]] == ["box"], "labels are found")
    check(b.json("ls", "--label", "a=x")[1] == [], "and others are not")
    check(sh(b, "box", "ls; cat C /tmp/T /data/V; stat -c '%a %U' d") == "A\nC\nd\n3\nt\nv\n700 agent\n", "files")
    now = get(b, one)
    check(now["state"] == "RUNNING" and now["last_sleep"]["wake_time"] is not None, now)
    for key in was:
        if key not in ("state", "last_sleep", "processes"):
            check(now[key] == was[key], f"{key}: {now[key]} was {was[key]}")
    points = {p["name"]: p for p in b.json("snapshot", "ls", one)[1]}
    check(list(points) == ["s1", "s2"] and points["s1"]["current"] and not points["s2"]["current"], points)
    expect(b.cli("snapshot", "restore", one, "s2"), 0)
    check(sh(b, one, "ls; cat B") == "B\nd\n2\n", "s2")
    expect(b.cli("rm", one), 0)
    expect(b.cli("volume", "rm", "data"), 0)
    nothing_is_left(b)


def every_call_that_needs_it_wakes_it(b):
    one = box(b)
    sh(b, one, "echo 1 > A")
    with open(f"{b.folder}/file", "w", encoding="utf-8") as f:
        f.write("x")
    commands = (("exec", one, "cat", "A"), ("fs", "cat", one, "A"), ("fs", "ls", one, "."), ("cp", f"{b.folder}/file", f"{one}:B"),
                ("snapshot", "ls", one), ("snapshot", "create", one, "s"), ("snapshot", "diff", one, "s"), ("fork", one),
                ("code", "--sandbox", one, "-c", "1+1"), ("pause", one), ("network", one, "--network", "none"),
                ("update", one, "--label", "x=y"), ("template", "create", "made", "--from", one), ("wake", one))
    for command in commands:
        sleep(b, one)
        expect(b.cli(*command), 0)
        check(state(b, one) in ("RUNNING", "PAUSED"), f"{command}: {state(b, one)}")
        if command[0] == "pause":
            expect(b.cli("resume", one), 0)
    expect(b.cli("template", "rm", "made"), 0)
    check(sh(b, one, "cat A B; ls") == "1\nxA\nB\n", "its files went through all of it")
    tidy_up(b)


def many_calls_at_once_wake_it_once(b):
    one = box(b)
    sh(b, one, "echo 1 > A")
    for turn in range(3):
        sleep(b, one)
        calls = [b.popen("exec", one, "cat", "A", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
        killed = b.popen("exec", one, "cat", "A", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        killed.kill()
        killed.communicate()
        for call in calls:
            out, err = call.communicate(timeout=120)
            check((call.returncode, out) == (0, b"1\n"), f"turn {turn}: {call.returncode} {out} {err}")
    check(len(b.json("ls")[1]) == 1, "there is one sandbox")
    tidy_up(b)


def contexts_are_lost_and_that_is_said(b):
    one = box(b)
    expect(b.cli("code", "--sandbox", one, "-c", "x = 41"), 0)
    check(sleep(b, one).stderr == b"%s: 1 context ended, with its variables when it fell asleep\n" % one.encode(), "said")
    check(get(b, one)["last_sleep"]["contexts_ended"] == 1, "and kept")
    check(b"1 context ended" in expect(b.cli("wake", one), 0).stderr, "and said again")
    check(b"NameError" in b.cli("code", "--sandbox", one, "-c", "x").stderr + b.cli("code", "--sandbox", one, "-c", "x").stdout,
          "the variable is gone")
    tidy_up(b)


def events_and_metrics_say_so(b):
    one = box(b)
    watch = b.popen("events", "-o", "json", "--sandbox", one, "--kind", "sandbox_asleep", "--kind", "sandbox_awake",
                    "--kind", "sandbox_deleted", "--from", "1", "-f", stdout=subprocess.PIPE)
    sleep(b, one)
    event = json.loads(watch.stdout.readline())
    check(event["kind"] == "sandbox_asleep" and "it fell asleep" in event["note"], event)
    expect(b.cli("wake", one), 0)
    event = json.loads(watch.stdout.readline())
    check(event["kind"] == "sandbox_awake" and event["sandbox_id"] == one, event)
    expect(b.cli("rm", one), 0)
    event = json.loads(watch.stdout.readline())
    check(event["kind"] == "sandbox_deleted", event)
    watch.kill()
    watch.communicate()
    text = expect(b.cli("metrics"), 0).stdout.decode()
    check("stockade_sandbox_sleeps_total" in text and "stockade_sandbox_wakes_total" in text, text)
    tidy_up(b)


def quotas_hold(b):
    one, two = box(b), box(b)
    sh(b, one, "head -c 60000000 /dev/urandom > big")
    sh(b, two, "head -c 60000000 /dev/urandom > big; echo 2 > A")
    sleep(b, one)
    refused(b.cli("sleep", two), b"quotas.kept_bytes_per_caller")
    check(state(b, two) == "RUNNING" and sh(b, two, "cat A; stat -c %s big") == "2\n60000000\n", "it is awake, with its files")
    check(len(records(b)) == 1, records(b))
    expect(b.cli("rm", two), 0)
    others = [box(b) for _ in range(6)]
    refused(b.cli("wake", one), b"uid:0 has 6 sandboxes, and 1 more would exceed its quota of 6")
    refused(b.cli("exec", one, "true"), b"uid:0 has 6 sandboxes, and 1 more would exceed its quota of 6")
    check(state(b, one) == "ASLEEP", "it stays asleep")
    expect(b.cli("rm", others[0]), 0)
    check(sh(b, one, "stat -c %s big") == "60000000\n", "and has lost nothing")
    sleep(b, one)  # what has not changed is not kept twice
    sh(b, one, "echo a > A")
    sleep(b, one)
    check(len(records(b)) == 1, f"one record: {records(b)}")
    tidy_up(b)


def a_call_meanwhile_keeps_it_awake(b):
    one = box(b)
    used = 0
    turns = 0
    while turns < 8 or (used == 0 and turns < 60):  # which of the two is faster is chance
        turn, turns = turns, turns + 1
        sh(b, one, f"head -c 6000000 /dev/urandom > big{turn % 2}; echo {turn} > A")
        falling = b.popen("sleep", one, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if turn % 2:
            until(lambda: falling.poll() is not None or glob.glob(f"{b.state}/layers/new-*"), "it is being kept", 10)
        check(sh(b, one, f"cat A; echo {turn} >> B; tail -n 1 B") == f"{turn}\n{turn}\n", "the call sees all files")
        _, err = falling.communicate(timeout=60)
        if falling.returncode != 0:
            check(b"another call needed it meanwhile" in err or b"in sandbox" in err, err)
            used += b"meanwhile" in err
        check(sh(b, one, "tail -n 1 B") == f"{turn}\n", "and what it wrote stays")
    check(used > 0, "a call was faster")
    check(sh(b, one, "wc -l < B") == f"{turns}\n", "all")
    tidy_up(b)


def delete_and_time_to_live_work_asleep(b):
    one = box(b, "--name", "one")
    sh(b, one, "echo 1 > A")
    sleep(b, one)
    expect(b.cli("rm", "one"), 0)
    refused(b.cli("get", one), b"there is no sandbox")
    nothing_is_left(b)
    for turn in range(4):  # while it falls asleep, and while it wakes up
        one = box(b)
        sh(b, one, "head -c 4000000 /dev/urandom > big")
        if turn % 2:
            sleep(b, one)
        other = b.popen("wake" if turn % 2 else "sleep", one, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if turn > 1:
            time.sleep(0.02)
        expect(b.cli("rm", one), 0)
        other.communicate(timeout=60)
        if turn > 1:
            again(b, b.kill)
        check(b.json("ls")[1] == [], f"turn {turn}: a sandbox that was deleted does not come back: {b.json('ls')}")
        nothing_is_left(b)
    one = box(b, "--ttl", "2s")
    sleep(b, one)
    until(lambda: b.json("ls")[1] == [], "its time to live ends while it is asleep")
    nothing_is_left(b)
    one = box(b, "--ttl", "3s")
    sleep(b, one)
    expect(b.cli("wake", one), 0)
    until(lambda: b.json("ls")[1] == [], "and after it was woken up")
    nothing_is_left(b)
    one = box(b, "--ttl", "2s")
    sleep(b, one)
    b.stop()
    time.sleep(2.1)
    b.start()
    until(lambda: b.json("ls")[1] == [], "and while there is no broker")
    nothing_is_left(b)


def idle_ones_fall_asleep(b):
    one = box(b, "--template", "sleepy")
    busy = box(b, "--sleep-after", "1s")
    awake = box(b)
    check(get(b, one)["sleep_after_ms"] == 1000, get(b, one))
    expect(b.cli("code", "--sandbox", one, "-c", "x = 1"), 0)  # a context that runs nothing does not keep it awake
    job = b.popen("exec", busy, "--", "sleep", "1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: state(b, one) == "ASLEEP", "it falls asleep")
    last = get(b, one)["last_sleep"]
    check(last["idle"] and last["contexts_ended"] == 1, last)
    time.sleep(1.5)
    check(state(b, busy) == "RUNNING" and state(b, awake) == "RUNNING", "the others do not")
    job.kill()
    job.communicate()
    expect(b.cli("wake", one), 0)
    check(state(b, one) == "RUNNING", "it is awake")
    until(lambda: state(b, one) == "ASLEEP", "and falls asleep again")
    again(b, b.stop)
    expect(b.cli("wake", one), 0)
    until(lambda: state(b, one) == "ASLEEP", "also in another run of the broker")
    tidy_up(b)


def checkpoints_do_not_end_unasked(b):
    one = box(b, "--sleep-after", "1s")
    expect(b.cli("code", "--sandbox", one, "-c", "x = 41"), 0)
    expect(b.cli("checkpoint", "create", one, "kept"), 0)
    refused(b.cli("sleep", one), b"1 process runs", b"delete checkpoints")
    time.sleep(1.5)
    check(state(b, one) == "RUNNING", "it is not idle")
    expect(b.cli("checkpoint", "restore", one, "kept"), 0)
    check(expect(b.cli("code", "--sandbox", one, "-c", "x + 1"), 0).stdout == b"42\n", "the context was not ended, either")
    sleep(b, one, "--stop")
    last = get(b, one)["last_sleep"]
    check((last["processes_ended"], last["contexts_ended"]) == (1, 1), last)
    check(b"kept" not in expect(b.cli("checkpoint", "ls", one), 0).stdout, "it has ended")
    check(state(b, one) == "RUNNING", "the question woke it up")
    tidy_up(b)


def an_open_transaction_keeps_both_awake(b):
    one = box(b, "--sleep-after", "1s")
    sh(b, one, "echo 1 > A")
    inside = expect(b.cli("transaction", "begin", one), 0).stdout.decode().strip()
    sh(b, inside, "echo 2 > A")
    for sandbox in (one, inside):
        refused(b.cli("sleep", "--stop", sandbox), b"1 transaction of sandbox", b"commit or discard them first")
    time.sleep(1.5)
    check((state(b, one), state(b, inside)) == ("RUNNING", "RUNNING"), "neither falls asleep by itself")
    expect(b.cli("transaction", "commit", inside), 0)
    sleep(b, one)
    check(b.json("transaction", "ls", one)[1] == [] and state(b, one) == "ASLEEP", "what it did is forgotten, and nobody woke it")
    check(sh(b, one, "cat A") == "2\n", "what was committed stays")
    sleep(b, one)
    inside = expect(b.cli("transaction", "begin", one), 0).stdout.decode().strip()
    sh(b, inside, "echo 3 > A")
    expect(b.cli("transaction", "commit", inside), 0)
    sleep(b, one)
    check(sh(b, one, "cat A") == "3\n", "also over layers of an earlier sleep")
    tidy_up(b)


def a_template_that_has_gone_or_changed_loses_nothing(b):
    one = box(b, "--template", "other", "--memory", "120M")
    sh(b, one, "echo 1 > A")
    sleep(b, one)
    b.reload(NO_OTHER)
    check(state(b, one) == "ASLEEP", "it is listed")
    refused(b.cli("wake", one), b"its template other was removed", b"put the template back")
    again(b, b.stop)
    refused(b.cli("exec", one, "cat", "A"), b"its template other was removed")
    b.reload(CONFIG.replace("{name: other, limits: {disk: 16M", "{name: other, limits_max: {memory: 64M}, limits: {disk: 16M")
             .replace("memory: 128M}}\n  - {name: sleepy", "memory: 64M}}\n  - {name: sleepy"))
    check(sh(b, one, "cat A") == "1\n", "its files are there")
    check(get(b, one)["limits"]["memory_bytes"] == 64 << 20, "within the limits of now")
    b.reload(CONFIG)
    tidy_up(b)


def damaged_files_are_found(b):
    one = box(b)
    sh(b, one, "echo good > A")
    sleep(b, one)
    path, = glob.glob(f"{b.state}/layers/*/s/home/agent/A")
    stat = os.stat(path)
    with open(path, "r+b") as f:
        f.write(b"B")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    again(b, b.stop)
    refused(b.cli("exec", one, "cat", "A"), b"is damaged")
    check(state(b, one) == "ASLEEP", "it stays asleep")
    tidy_up(b)


def what_was_lost_awake_falls_back_and_says_so(b):
    one = box(b, "--name", "one")
    sh(b, one, "echo 1 > A")
    sleep(b, one)
    record, = glob.glob(f"{b.state}/store/*.record")
    before = os.stat(record).st_ino
    sh(b, one, "echo 2 > A")
    until(lambda: os.stat(record).st_ino != before, "it is noted that it is awake")
    again(b, b.kill)
    check(state(b, "one") == "ASLEEP" and get(b, "one")["last_sleep"]["fell_back"], get(b, "one"))
    woken = expect(b.cli("wake", "one"), 0)
    check(b"it was lost while it was awake" in woken.stderr, woken)
    check(sh(b, "one", "cat A") == "1\n", "its files are those of its sleep")
    sh(b, "one", "echo 3 > A")
    sleep(b, "one")
    check(not get(b, "one")["last_sleep"]["fell_back"], "that was then")
    check(sh(b, "one", "cat A") == "3\n", "as it was")
    for pid in [pid for pid in b.processes() if is_guest(pid)]:
        os.kill(pid, signal.SIGKILL)
    until(lambda: state(b, "one") == "ASLEEP" and get(b, "one")["last_sleep"]["fell_back"], "a guest that is killed, too")
    check(sh(b, "one", "cat A") == "3\n", "its files")
    tidy_up(b)


def a_kill_in_any_step_leaves_the_old_state_or_the_new_one(b):
    rng = random.Random(1)
    one = box(b, "--ttl", "1h")
    sh(b, one, "echo -1 > A")
    sleep(b, one)
    known = "-1"
    for turn in range(KILLS):
        wanted = str(turn)
        sh(b, one, f"echo {wanted} > A; head -c {rng.choice([0, 4 << 20])} /dev/urandom > big")
        command = b.popen("sleep", one, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wakes = rng.random() < 0.5
        if wakes:
            command.communicate(timeout=60)
            known = wanted
            command = b.popen("exec", one, "true", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        timer = threading.Timer(rng.uniform(0, 0.05 if wakes else 0.3), b.process.kill)
        timer.start()
        command.communicate(timeout=120)
        timer.join()
        b.process.wait()
        b.start()
        check([s["id"] for s in b.json("ls")[1]] == [one] and state(b, one) == "ASLEEP", f"turn {turn}: {b.json('ls')}")
        if not wakes and command.returncode == 0:
            known = wanted
        text = sh(b, one, "cat A").strip()
        check(text in (known, wanted), f"turn {turn}: {text}, not {known} or {wanted}")
        known = text
        until(lambda: not [n for n in layers(b) if "-" in n], lambda: f"nothing half is left: {layers(b)}")
        expect(b.cli("sleep", one), 0)
        until(lambda: len(records(b)) == 1, lambda: records(b))  # the one before goes when the new one is on the disk
    tidy_up(b)


def a_full_disk_refuses_and_loses_nothing(_):
    b = Broker(config=CONFIG, name="-full")
    b.prefix = small_disk(b.state, 24)
    with b:
        one, two = box(b), box(b)
        sh(b, one, "echo a > A")
        sh(b, two, "echo b > B; head -c 40000000 /dev/urandom > big")
        sleep(b, one)
        refused(b.cli("sleep", two), b"No space left on device", b"free some space on the disk of the state directory")
        check(state(b, two) == "RUNNING" and sh(b, two, "cat B; stat -c %s big") == "b\n40000000\n", "it is awake, with its files")
        check(sh(b, one, "cat A") == "a\n", "and so is the other one")
        sh(b, one, "head -c 40000000 /dev/urandom > big; echo c > A")
        refused(b.cli("sleep", one), b"No space left on device")
        check(sh(b, one, "cat A") == "c\n", "also one that slept before")
        sh(b, one, "rm big")
        sleep(b, one)
        check(sh(b, one, "cat A") == "c\n", "it sleeps when there is room")


def main():
    with Broker(config=CONFIG) as b:
        cases = (what_cannot_sleep_is_refused, another_caller_sees_nothing, quotas_hold,
                 a_template_that_has_gone_or_changed_loses_nothing, damaged_files_are_found,
                 it_keeps_what_it_is_and_nothing_of_it_is_in_memory, every_call_that_needs_it_wakes_it,
                 many_calls_at_once_wake_it_once, contexts_are_lost_and_that_is_said, events_and_metrics_say_so,
                 a_call_meanwhile_keeps_it_awake, delete_and_time_to_live_work_asleep, idle_ones_fall_asleep,
                 checkpoints_do_not_end_unasked, an_open_transaction_keeps_both_awake, what_was_lost_awake_falls_back_and_says_so,
                 a_kill_in_any_step_leaves_the_old_state_or_the_new_one, a_full_disk_refuses_and_loses_nothing)
        return run_cases(cases, lambda case: case(b), lambda: tidy_up(b))


sys.exit(main())
