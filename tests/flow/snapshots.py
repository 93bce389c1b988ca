#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots over the wire and through the command: refusals, roll back, hostile files, nothing left over."""

import os
import subprocess
import time

from api import CANCELLED, EXISTS, NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from crash import alive
from runner import check, time_passes, until
from sp import EXHAUSTED, INVALID

SNAPSHOT = "/stockade.v1.SnapshotService/"
CONFIG = """
socket: {mode: 0666}
pool: 2
bpf: {enabled: false}
limits_max: {disk: 256M, memory: 512M}
templates:
  - name: default
    limits: {disk: 16M, inodes: 2000, memory: 128M}
"""
TURNS = 1000  # of a snapshot and a roll back


def no(c, method, fields, code, *words, service=SNAPSHOT):
    failed = c.fails(service + method, fields)
    text = f"{failed.message} {failed.details}"
    check(failed.code == code, f"{method} {fields}: {failed.code} {text}, not {code}")
    for word in words:
        check(word in text, f"{method} {fields}: {word!r} is not in {text!r}")


def sh(c, box, line):
    job = c.finish(c.start(box, line))
    check(job.result.outcome == 1, f"{line}: {job.result}")
    return job.output.decode(errors="backslashreplace")


def make(c, box, name="", **more):
    return c.unary(SNAPSHOT + "Create", {"sandbox": box, "name": name, **more}).snapshot


def restore(c, box, name, **more):
    return c.unary(SNAPSHOT + "Restore", {"sandbox": box, "name": name, **more}).snapshot


def delete(c, box, name):
    c.unary(SNAPSHOT + "Delete", {"sandbox": box, "name": name})


def names(c, box):
    return [p.name for p in c.unary(SNAPSHOT + "List", {"sandbox": box}).snapshots]


def new(c, **more):
    return c.unary(SANDBOX + "Create", more).sandbox.id


# ---- what is refused


def a_wrong_name_is_a_wrong_command_line(b, c):
    """Of a snapshot as of a volume and a template, and an argument that is empty is none that was left out."""
    box = new(c)
    for args in (("snapshot", "create", box, "a b"), ("snapshot", "restore", box, "a b"), ("snapshot", "rm", box, "a b"),
                 ("volume", "create", "a b"), ("template", "create", "a b", "--from", box), ("template", "show", "a b")):
        r = b.cli(*args)
        check(r.returncode == 2 and b"a b: name: 'a b' must consist of " in r.stderr, f"{args}: {r}")
    for number, args in ((3, ("snapshot", "create", box, "")), (2, ("volume", "create", "")), (3, ("fs", "ls", box, "")),
                         (1, ("rm", "")), (1, ("cp", "", f"{box}:"))):
        r = b.cli(*args)
        check(r.returncode == 2 and f": argument {number} must not be empty\n".encode() in r.stderr, f"{args}: {r}")
    check(names(c, box) == [], "nothing was made")
    r = b.cli("code", "--sandbox", box, "--timeout", "10d", "-c", "1")
    check(r.returncode == 77 and b"--timeout: 10d is above the maximum of 1d" in r.stderr, r)


def what_is_not_there_is_not_found(b, c):
    box = new(c)
    for method in ("Get", "Restore", "Delete"):
        no(c, method, {"sandbox": box, "name": "none"}, NOT_FOUND, "SNAPSHOT_UNKNOWN")
        no(c, method, {"sandbox": "none", "name": "none"}, NOT_FOUND)
    no(c, "Create", {"sandbox": "none"}, NOT_FOUND)
    no(c, "List", {"sandbox": "none"}, NOT_FOUND)
    for name in ("../x", "a b", "x" * 65, "a/b", "."):
        no(c, "Create", {"sandbox": box, "name": name}, INVALID)
    make(c, box, "one")
    no(c, "Create", {"sandbox": box, "name": "one"}, EXISTS, "NAME_IN_USE")
    check(names(c, box) == ["one"], "still the one")


def sandboxes_of_another_user_have_no_snapshots(b, c):
    box = new(c)
    make(c, box, "mine")
    for action in (("ls", box), ("show", box, "mine"), ("create", box, "x"), ("restore", box, "mine"), ("rm", box, "mine")):
        r = b.stranger("snapshot", *action)
        check(r.returncode == 1 and b"no sandbox" in r.stderr, f"{action}: {r.returncode} {r.stderr}")
    check(names(c, box) == ["mine"], "it is there")


def jobs_refuse_a_snapshot_unless_they_may_be_stopped(b, c):
    box = new(c)
    make(c, box, "empty")
    job = c.start(box, "echo begun > A; sync; echo x; sleep 100")
    c.until(job, lambda: b"x" in job.output)
    no(c, "Create", {"sandbox": box, "name": "s"}, PRECONDITION, "JOBS_RUN", "stop them")
    no(c, "Restore", {"sandbox": box, "name": "empty"}, PRECONDITION, "JOBS_RUN")
    make(c, box, "s", stop=True)
    check(c.finish(job).result.outcome == CANCELLED, "the job was cancelled")
    check(sh(c, box, "cat A") == "begun\n", "what it wrote is there")
    job = c.start(box, "trap '' TERM INT; echo more >> A; echo y; while :; do sleep 1; done")
    c.until(job, lambda: b"y" in job.output)
    restore(c, box, "s", stop=True)
    check(c.finish(job).result.outcome == CANCELLED, "the job was cancelled")
    check(sh(c, box, "cat A") == "begun\n", "what it wrote is gone")


def a_paused_sandbox_refuses_but_forgets(b, c):
    box = new(c)
    for name in "ab":
        sh(c, box, f"echo {name} > A")
        make(c, box, name)
    c.unary(SANDBOX + "Pause", {"id": box})
    no(c, "Create", {"sandbox": box}, PRECONDITION, "paused")
    no(c, "Restore", {"sandbox": box, "name": "a"}, PRECONDITION, "paused")
    delete(c, box, "a")
    c.unary(SANDBOX + "Resume", {"id": box})
    check(names(c, box) == ["b"] and sh(c, box, "cat A") == "b\n", "the files are as before")


def the_number_of_snapshots_is_bounded_and_a_deleted_one_makes_room(b, c):
    box = new(c)
    for i in range(1024):
        make(c, box, f"s{i}")
    no(c, "Create", {"sandbox": box, "name": "more"}, EXHAUSTED, "SNAPSHOTS", "delete some of them")
    delete(c, box, "s7")
    make(c, box, "more")


# ---- what it does


def what_was_cut_off_is_counted_and_gets_the_reason(b, c):
    box = new(c)
    check(make(c, box, "quiet").operations_ended == 0, "nothing was in progress")
    other = connect(b)
    calls = []
    for name in (b"one", b"two"):
        call = other.begin("/stockade.v1.FileService/OpenWrite", {"sandbox_id": box, "path": name}, credit=10)
        other.recv(call)  # its id: it runs
        calls.append(call)
    check(make(c, box, "busy").operations_ended == 2, "two uploads")
    for call in calls:
        frame = other.recv(call)
        check(frame.status.code == 10 and "another layer" in frame.status.message, f"{frame.status}")
    check(restore(c, box, "quiet").operations_ended == 0, "and none is left")
    check(c.unary(SNAPSHOT + "Get", {"sandbox": box, "name": "busy"}).snapshot.operations_ended == 0, "of that call alone")


def files_can_be_read_and_written_right_after_each_other_layer(b, c):
    box = new(c)
    files = "/stockade.v1.FileService/"
    make(c, box, "base")
    for i in range(100):
        c.unary(files + "Write", {"sandbox_id": box, "path": b"A", "data": b"%d" % i})
        make(c, box, "s")
        c.unary(files + "Stat", {"sandbox_id": box, "path": b"A"})
        restore(c, box, "base")
        delete(c, box, "s")


def a_kill_in_the_middle_leaves_nothing(b, c):
    own = Broker(config=CONFIG, name="-k").start()
    for victim in ("stockade-spawne", "stockaded"):
        for calls in (1, 4, 9):
            d = connect(own)
            box = new(d)
            sh(d, box, "echo a > A")
            make(d, box, "start")
            for i in range(calls):
                method, fields = (("Create", {"sandbox": box}), ("Restore", {"sandbox": box, "name": "start"}),
                                  ("Diff", {"sandbox_id": box, "first": "start"}))[i % 3]
                d.begin(SNAPSHOT + method, fields)
            everything = own.processes()
            os.kill(min(pid for pid, name in everything.items() if name == victim), 9)
            # mounts and layers exist in the namespaces of these processes alone
            until(lambda: own.process.poll() is not None and not alive(set(everything) - {own.process.pid}), "everything ends")
            own.process.wait()
            left = own.cgroups()
            own.start()
            fresh = [path for path in own.cgroups() if path in left and len(os.path.basename(path)) == 32]
            check(not fresh, f"not cleared: {fresh}")
    d = connect(own)
    box = new(d)
    sh(d, box, "echo a > A")
    make(d, box)
    check(own.stop() == 0 and not own.cgroups(), "and an orderly end")


def files_roll_back_and_forth(b, c):
    box = new(c)
    sh(c, box, "echo a > A; mkdir d; echo x > d/x; echo t > /tmp/T; echo v > /var/tmp/V; echo s > /dev/shm/S; ln -s A L; ln A H;"
       " chmod 4711 A; mkfifo F; touch $(printf 'n\\377m'); mkdir d/e; chmod 0 d/e")
    look = ("find . /tmp /var/tmp /dev/shm \\( -type d -printf '%p %M %U %G %T@\\n' -o -printf '%p %M %U %G %T@ %n %s %l\\n' \\) 2>/dev/null | sort;"
            " cat A /tmp/T /dev/shm/S")
    first = sh(c, box, look)
    one = make(c, box, "one")
    check(one.name == "one" and one.current and one.bytes > 0 and one.inodes > 8, f"{one}")
    check(any("memory" in n for n in one.not_included), f"it says what is missing: {one.not_included}")
    check(sh(c, box, look) == first, "nothing looks different")
    sh(c, box, "echo b > A; rm -r d L; mkdir L; echo T > /tmp/T; rm /var/tmp/V; echo S2 >> /dev/shm/S; echo n > new")
    second = sh(c, box, look)
    two = make(c, box)
    check(two.name == "snapshot-2" and two.current and two.total_bytes >= one.total_bytes, f"{two}")
    check(not c.unary(SNAPSHOT + "Get", {"sandbox": box, "name": "one"}).snapshot.current, "another is current")
    restore(c, box, "one")
    check(sh(c, box, look) == first, f"{sh(c, box, look)} is not {first}")
    check(sh(c, box, "ls new 2>/dev/null; true") == "", "what came later is gone")
    restore(c, box, two.name)
    check(sh(c, box, look) == second, "and back")
    check([p.current for p in c.unary(SNAPSHOT + "List", {"sandbox": box}).snapshots] == [False, True], "marks")


def hostile_files_come_back_as_they_were(b, c):
    box = new(c, limits={"disk_bytes": 64 << 20, "inodes": 20000})
    # what an upper layer means by its own: character devices, overlay's attributes, opaque folders
    sh(c, box, "mkdir keep; echo k > keep/k; mknod keep/w c 0 0 2>/dev/null; setfattr -n trusted.overlay.opaque -v y keep 2>/dev/null;"
       " setfattr -n user.overlay.opaque -v y keep 2>/dev/null; setfattr -n user.overlay.whiteout -v y keep/k 2>/dev/null;"
       " setfattr -n trusted.overlay.redirect -v /etc keep 2>/dev/null; touch .wh.keep .wh..wh..opq keep/.wh.k;"
       " i=0; d=deep; while [ $i -lt 400 ]; do mkdir -p $d; d=$d/d; i=$((i+1)); done;"
       " ln -s /../../../../etc/shadow s; ln -s /proc/1/root r; i=0; while [ $i -lt 200 ]; do ln keep/k hard$i; i=$((i+1)); done")
    look = "find . /tmp | sort | md5sum; cat keep/k; ls -la keep | sed 1d | awk '{print $1,$2,$5,$9}'; readlink s r"
    first = sh(c, box, look)
    make(c, box, "h")
    check(sh(c, box, look) == first, "sealed")
    sh(c, box, "rm -rf deep keep hard* s r; echo gone > keep")
    make(c, box, "h2")
    restore(c, box, "h")
    check(sh(c, box, look) == first, "restored")
    restore(c, box, "h2")
    check(sh(c, box, "cat keep; ls") == "gone\nkeep\n", "and back")


def what_a_snapshot_holds_counts_until_it_is_dropped(b, c):
    box = new(c)
    make(c, box, "empty")
    sh(c, box, "head -c 12000000 /dev/zero > big")
    big = make(c, box, "big")
    check(big.bytes >= 12000000, f"{big}")
    check(c.finish(c.start(box, "head -c 12000000 /dev/zero > more")).result.exit_code == 1, "16 MiB in all")
    sh(c, box, "rm -f more big")
    check(c.finish(c.start(box, "head -c 12000000 /dev/zero > more")).result.exit_code == 1, "the snapshot has it")
    restore(c, box, "empty")
    check(c.finish(c.start(box, "head -c 12000000 /dev/zero > more")).result.exit_code == 1, "the snapshot has it still")
    delete(c, box, "big")
    restore(c, box, "empty")
    sh(c, box, "head -c 12000000 /dev/zero > more")


def guests(b, box):
    """The processes of a sandbox without jobs: its guest."""
    found = subprocess.run(["grep", "-ls", box, *[f"/proc/{p}/cgroup" for p in b.processes()]], capture_output=True, check=False)
    return [int(path.split(b"/")[2]) for path in found.stdout.split()]


def mounts_of(b, box):
    for pid in guests(b, box):  # one that worked for a call before may end just now
        try:
            with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
                return len(f.readlines())
        except OSError:
            continue
    raise AssertionError(f"no process of {box}")


def a_thousand_snapshots_and_roll_backs_leave_nothing(b, c):
    box = new(c)
    sh(c, box, "echo a > A")
    make(c, box, "start")
    before = None
    job = "echo $(date +%N) > A; echo $$ > /tmp/x"
    for i in range(TURNS):
        if i % 50 == 0:  # a job costs more than all of the rest
            sh(c, box, job)
        make(c, box, "s")
        restore(c, box, "start")
        delete(c, box, "s")
        if i == 100:
            before = mounts_of(b, box), len(os.listdir(f"/proc/{b.spawner()}/fd"))
    until(lambda: len(os.listdir(f"/proc/{b.spawner()}/fd")) <= before[1], "helpers are reaped")
    check(mounts_of(b, box) <= before[0], f"{mounts_of(b, box)} mounts, not {before[0]}")
    check(sh(c, box, "cat A; ls; ls /tmp") == "a\nA\n", "as at first")
    check(names(c, box) == ["start"], "and the one snapshot")


def twenty_callers_at_the_same_time_leave_one_state(b, c):
    box = new(c)
    sh(c, box, "echo a > A")
    make(c, box, "start")
    others = [connect(b) for _ in range(20)]
    for turn in range(5):
        calls = []
        for i, other in enumerate(others):
            method, fields = (("Create", {"name": f"t{turn}-{i}"}), ("Restore", {"name": "start"}), ("Delete", {"name": f"t{turn}-{i - 2}"}),
                              ("List", {}))[i % 4]
            calls.append((other, other.begin(SNAPSHOT + method, {"sandbox": box, **fields})))
        codes = [other.recv(call).status.code for other, call in calls]
        check(set(codes) <= {0, NOT_FOUND, PRECONDITION}, f"{codes}")
        check(0 in codes[0::4] + codes[1::4], f"one of them wins: {codes}")
    check(sh(c, box, "cat A") == "a\n", "a state that there was")
    restore(c, box, "start")


def a_caller_that_goes_leaves_a_whole_snapshot(b, c):
    box = new(c)
    sh(c, box, "echo a > A")

    def is_made():
        """A caller that goes before its call has begun leaves nothing."""
        gone = connect(b)
        gone.begin(SNAPSHOT + "Create", {"sandbox": box, "name": "whole"})
        gone.close()
        time_passes("the call may begin", 0.2)
        return names(c, box) == ["whole"]

    until(is_made, "it was made")
    sh(c, box, "echo b > A")
    restore(c, box, "whole")
    check(sh(c, box, "cat A") == "a\n", "it holds the files")


def a_stalled_guest_is_no_obstacle(b, c):
    box = new(c)
    sh(c, box, "echo a > A")
    guest = guests(b, box)[0]
    os.kill(guest, 19)
    try:
        make(c, box, "stalled")
        begun = time.monotonic()
        c.unary(SANDBOX + "Delete", {"id": box})
        check(time.monotonic() - begun < 20, "and it can be deleted")
    finally:
        subprocess.run(["kill", "-CONT", str(guest)], check=False, capture_output=True)


def the_command_says_what_it_does(b, c):
    r = b.cli("create", "--name", "agent")
    check(r.returncode == 0, f"{r.stderr}")
    b.cli("exec", "agent", "--", "sh", "-c", "echo a > A")
    r = b.cli("snapshot", "create", "agent", "before")
    check((r.returncode, r.stdout) == (0, b"before\n"), f"{r.stdout} {r.stderr}")
    b.cli("exec", "agent", "--", "sh", "-c", "echo b > A")
    r = b.cli("snapshot", "create", "agent")
    check((r.returncode, r.stdout) == (0, b"snapshot-2\n"), f"{r.stdout} {r.stderr}")
    check(b.cli("snapshot", "restore", "agent", "before").returncode == 0, "restored")
    check(b.cli("exec", "agent", "--", "cat", "A").stdout == b"a\n", "rolled back")
    _, listed = b.json("snapshot", "ls", "agent")
    check([(p["name"], p["current"]) for p in listed] == [("before", True), ("snapshot-2", False)], f"{listed}")
    r = b.cli("snapshot", "ls", "agent")
    check(b"SNAPSHOT" in r.stdout and b"before" in r.stdout, f"{r.stdout}")
    r = b.cli("snapshot", "show", "agent", "before")
    check(b"not included  processes" in r.stdout, f"{r.stdout}")
    b.cli("exec", "agent", "--", "sh", "-c", "echo c > A; mkdir -m 700 d; : > \"$(printf 'n\\033')\"; chmod 600 A")
    r = b.cli("snapshot", "diff", "agent", "before")
    check(r.stdout == b"~ 0644 2 -> 0600 2         /home/agent/A\n+ folder 0700              /home/agent/d\n"
          b"+ 0644 0                   /home/agent/n?\n", f"{r.stdout} {r.stderr}")
    _, listed = b.json("snapshot", "diff", "agent", "before", "snapshot-2")
    check([(p["kind"], p["path"], p["before"]["mode"]) for p in listed] == [("CHANGED", "/home/agent/A", "0644")], f"{listed}")
    r = b.cli("snapshot", "diff", "--patch", "--path", "/home/agent/A", "agent", "before")
    check(r.stdout == b"--- a/home/agent/A\n+++ b/home/agent/A\n@@ -1,1 +1,1 @@\n-a\n+c\n", f"{r.stdout} {r.stderr}")
    r = b.cli("snapshot", "diff", "-p", "agent", "before")
    check(b"/home/agent/d: no file added\n" in r.stderr, f"{r.stderr}")
    r = b.cli("snapshot", "restore", "agent", "nowhere")
    check(r.returncode == 1 and b"has no snapshot nowhere" in r.stderr and b"option:" not in r.stderr, f"{r.stderr}")
    check(b.cli("snapshot", "rm", "agent", "before").returncode == 0, "removed")
    for line, words in ((("snapshot", "rm", "agent", "before"), b"has no snapshot before"),
                        (("snapshot", "create", "nobody"), b"no sandbox"),
                        (("snapshot", "fold", "agent"), b"there is no action 'fold'"),
                        (("snapshot", "show", "agent"), b"there is no kept snapshot agent"),
                        (("snapshot", "diff", "agent"), b"needs a SANDBOX and a NAME"),
                        (("snapshot", "ls", "-p", "agent"), b"need the action diff"),
                        (("snapshot", "diff", "-p", "-o", "json", "agent", "x"), b"--patch prints text"),
                        (("snapshot", "ls", "--stop", "agent"), b"--stop needs the action")):
        r = b.cli(*line)
        check(r.returncode != 0 and words in r.stderr, f"{line}: {r.returncode} {r.stderr}")


TESTS = [a_wrong_name_is_a_wrong_command_line,
    what_is_not_there_is_not_found, files_can_be_read_and_written_right_after_each_other_layer, what_was_cut_off_is_counted_and_gets_the_reason, a_kill_in_the_middle_leaves_nothing, sandboxes_of_another_user_have_no_snapshots,
         jobs_refuse_a_snapshot_unless_they_may_be_stopped, a_paused_sandbox_refuses_but_forgets,
         the_number_of_snapshots_is_bounded_and_a_deleted_one_makes_room, files_roll_back_and_forth,
         hostile_files_come_back_as_they_were, what_a_snapshot_holds_counts_until_it_is_dropped,
         a_thousand_snapshots_and_roll_backs_leave_nothing, twenty_callers_at_the_same_time_leave_one_state,
         a_caller_that_goes_leaves_a_whole_snapshot, a_stalled_guest_is_no_obstacle, the_command_says_what_it_does]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
