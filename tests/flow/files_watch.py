#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FileService.Watch: what is refused, each change, renamings, many folders, and events that are lost."""

import json
import subprocess
import threading

import sp
from api import NOT_FOUND, SANDBOX, connect, main
from broker import Broker, rss_kib
from files import EXHAUSTED, FILE, HOME, Files, fails
from runner import check, until

CREATE, WRITE, REMOVE, RENAME, CHMOD = 1, 2, 3, 4, 5


class Watch:
    """Reads the stream of a watch in a thread, over a connection of its own."""

    def __init__(self, b, box, path=b".", **fields):
        self.c = connect(b, timeout=120)
        self.call = self.c.begin(FILE + "Watch", {"sandbox_id": box, "path": path, **fields}, credit=1 << 20)
        self.answer = sp.message("stockade.v1.FileServiceWatchResponse")
        first = self.c.recv(self.call)
        if first.kind == sp.END:
            raise sp.Failed(first.status)
        self.first = self.answer.FromString(first.payload)
        self.events, self.overflows, self.unwatched, self.status = [], 0, 0, None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            frame = self.c.recv(self.call)
            if frame.kind == sp.END:
                self.status = frame.status.code
                return
            m = self.answer.FromString(frame.payload)
            if m.overflow:
                self.events.append("overflow")
            self.overflows += m.overflow
            self.unwatched = m.unwatched
            self.events += [(e.change, e.path, e.before) if e.change == RENAME else (e.change, e.path) for e in m.events]

    def has(self, *events):
        until(lambda: all(e in self.events for e in events), what=lambda: f"{events} in {self.events[-50:]}")

    def catches_up(self, f, folder):
        """Until then an event may be among those that are lost: the kernel's queue is full, and nothing enters it. The folder is one
        that nobody moves: of those its files are reported when they come."""
        names = []

        def sees_a_new_file():
            names.append(f"caught-up-{len(names)}")
            f.sh(f"echo > {folder}/{names[-1]}")
            return any(e[0] == CREATE and e[1].endswith(tuple(n.encode() for n in names)) for e in list(self.events) if e != "overflow")

        until(sees_a_new_file, lambda: f"{names[-1]} in {self.events[-50:]}")


def what_cannot_be_watched_is_refused(b, c):
    f = Files(c, limits={"inodes": 100000})
    with fails(NOT_FOUND, "FILE_NOT_FOUND"):
        Watch(b, f.id, b"no")
    with fails(3):
        Watch(b, f.id, b"a\0b")
    with fails(NOT_FOUND):
        Watch(b, "0" * 32)
    f.sh("mkdir many; cd many; seq 17000 | xargs mkdir")
    with fails(EXHAUSTED, "WATCHES"):
        Watch(b, f.id, b"many", recursive=True)
    check(Watch(b, f.id, b"many").first.folders == 1, "not recursively")


def each_change_is_reported_with_its_path(b, c):
    f = Files(c)
    f.sh("mkdir -p d/e; echo x > d/old")
    w = Watch(b, f.id, b"d", recursive=True)
    check(w.first.folders == 2 and not w.first.events, w.first)
    f.sh("echo a > d/f; echo b >> d/e/g; chmod 600 d/f; mv d/f d/e/h; mv d/old out; mv out d/in; rm d/e/g; mkdir -p d/n/m; echo > d/n/m/k")
    w.has((CREATE, b"f"), (WRITE, b"f"), (WRITE, b"e/g"), (CHMOD, b"f"), (RENAME, b"e/h", b"f"), (REMOVE, b"old"), (CREATE, b"in"),
          (REMOVE, b"e/g"), (CREATE, b"n"), (CREATE, b"n/m"), (CREATE, b"n/m/k"))
    f.sh("mv d/n d/e/n2; echo >> d/e/n2/m/k; mv d/e top; echo x > top/after; rm -r d/in")
    w.has((RENAME, b"e/n2", b"n"), (WRITE, b"e/n2/m/k"), (REMOVE, b"e"), (REMOVE, b"in"))
    check(not [e for e in w.events if b"after" in e[1]], "what went out is not watched")
    f.write(b"d/\xff\n", b"x")
    until(lambda: [e for e in w.events if e[0] in (CREATE, RENAME) and e[1] == b"\xff\n"], what=lambda: w.events[-5:])


def a_folder_alone_and_a_file_alone(b, c):
    f = Files(c)
    f.sh("mkdir -p d/e; echo x > d/f")
    folder, file = Watch(b, f.id, b"d"), Watch(b, f.id, b"d/f")
    f.sh("echo > d/e/inner; echo > d/other; echo y >> d/f; rm d/f; echo z > d/f; mv d/f d/g; mv d/g d/f; chmod 600 d/f; mkdir d/last")
    folder.has((CREATE, b"last"))
    check((CREATE, b"e/inner") not in folder.events and (CREATE, b"other") in folder.events, folder.events)
    file.has((WRITE, b"f"), (REMOVE, b"f"), (CREATE, b"f"), (CHMOD, b"f"))
    check({e[1] for e in file.events} == {b"f"}, file.events)


def the_end_of_the_folder_ends_the_watch(b, c):
    f = Files(c)
    for end in ("rm -r d", "mv d elsewhere"):
        f.sh("mkdir -p d/e")
        w = Watch(b, f.id, b"d", recursive=True)
        f.sh(end)
        until(lambda: w.status is not None, what=lambda: w.events)  # noqa: B023
        check(w.status == 0 and w.events[-1] == (REMOVE, b"."), (w.status, w.events))
        f.sh("rm -rf elsewhere")
    w = Watch(b, f.id)
    c.unary(SANDBOX + "Delete", {"id": f.id})
    until(lambda: w.status is not None, what=lambda: w.events)
    check(w.status not in (0, 13), w.status)


def ten_thousand_folders_are_watched(b, c):
    f = Files(c)
    f.sh("mkdir d; cd d; for i in $(seq 100); do mkdir $i; (cd $i; seq 100 | xargs mkdir); done")
    w = Watch(b, f.id, b"d", recursive=True)
    check(w.first.folders == 10101, w.first)
    f.sh("for i in 1 50 100; do echo > d/$i/$i/f; done")
    w.has((CREATE, b"1/1/f"), (CREATE, b"50/50/f"), (CREATE, b"100/100/f"))
    f.sh("mv d/50 d/moved; echo > d/moved/7/g; rm -r d/1")
    w.has((RENAME, b"moved", b"50"), (CREATE, b"moved/7/g"), (REMOVE, b"1"))


def a_folder_that_is_filled_and_moved_at_once_is_entered(b, c):
    """Most are not at the place of their first event any more when that is read."""
    f = Files(c)
    f.sh("mkdir d")
    w = Watch(b, f.id, b"d", recursive=True)
    f.sh("""python3 -c '
import os
os.chdir("d")
for i in range(200):
    os.mkdir(f"n{i}"); open(f"n{i}/f", "w").close(); os.rename(f"n{i}", f"m{i}")
'""")
    w.catches_up(f, "d")
    seen = set(w.events)
    missed = [i for i in range(200) if not {(CREATE, b"n%d/f" % i), (CREATE, b"m%d/f" % i)} & seen]
    check(w.overflows > 0 or not missed, f"{missed} of {w.events[-50:]}")
    f.sh("for i in 0 100 199; do echo > d/m$i/g; done")
    w.has((CREATE, b"m0/g"), (CREATE, b"m100/g"), (CREATE, b"m199/g"))


def a_storm_of_renamings_ends_with_the_right_paths(b, c):
    f = Files(c)
    f.sh("mkdir -p d/a/b/c d/x; echo > d/a/b/c/f")
    w = Watch(b, f.id, b"d", recursive=True)
    f.sh("""python3 -c '
import os
os.chdir("d")
for i in range(2000):
    os.rename("a/b", "x/b"); os.rename("a", "a2"); os.rename("x/b", "a2/b"); os.rename("a2", "a")
    os.mkdir("n"); os.rename("n", "a/n"); os.rmdir("a/n")
open("a/b/c/end", "w")
'""")
    w.catches_up(f, "d")
    check(w.overflows > 0 or (CREATE, b"a/b/c/end") in w.events, f"{w.events[-50:]}")
    f.sh("mv d/a d/z; echo > d/z/b/c/last")
    w.has((RENAME, b"z", b"a"), (CREATE, b"z/b/c/last"))


def lost_events_are_reported_and_the_watch_goes_on(b, c):
    f = Files(c)
    f.sh("mkdir d")
    w = Watch(b, f.id, b"d", recursive=True)
    # while the program is stopped, the kernel's queue (16,384 events) is its only reader
    f.sh("""python3 -c '
import os, signal
def stopped(p):
    try:
        os.kill(p, signal.SIGSTOP)
    except OSError:
        return False
    return True
mine = [p for p in range(2, 100) if p not in (os.getpid(), os.getppid()) and stopped(p)]  # /proc does not show them
assert len(mine) >= 2, mine
for i in range(12000):
    open("d/%d" % i, "w").write("x")
os.makedirs("d/new/deep")
for p in mine: os.kill(p, signal.SIGCONT)
'""")
    until(lambda: w.overflows > 0, what=lambda: w.events[-5:])
    f.sh("echo > d/new/deep/after")
    w.has((CREATE, b"new/deep/after"))


def a_reader_that_stops_costs_no_memory(b, c):
    f = Files(c)
    f.sh("mkdir d")
    slow = connect(b)
    call = slow.begin(FILE + "Watch", {"sandbox_id": f.id, "path": b"d"}, credit=1)
    slow.recv(call)
    before = rss_kib(b.process.pid)
    f.sh("cd d; for i in $(seq 300); do seq -f %%030g_$i 100 | xargs touch; rm -f *; done".replace("%%", "%"))
    check(rss_kib(b.process.pid) - before < 4096, f"{rss_kib(b.process.pid) - before} KiB more")
    slow.send(call, sp.Frame(kind=sp.WINDOW, credit=100000))
    seen = False
    while not seen:
        seen = sp.message("stockade.v1.FileServiceWatchResponse").FromString(slow.recv(call).payload).overflow


def a_storm_with_a_reader_that_never_reads_harms_nobody(b, c):
    """With a watcher that reads, and one that never does; another sandbox works meanwhile."""
    f, other = Files(c), Files(connect(b))
    f.sh("mkdir d; echo > d/a")
    w = Watch(b, f.id, b"d")
    slow = connect(b)
    slow.recv(slow.begin(FILE + "Watch", {"sandbox_id": f.id, "path": b"d"}, credit=1))
    before = rss_kib(b.process.pid)
    job = c.start(f.id, "exec python3 -c \"import os\nos.chdir('d')\nfor i in range(30000): os.rename('a', 'b'); os.rename('b', 'a')\"")
    for _ in range(100):
        other.write(b"x", b"y")
    check(c.finish(job).result.exit_code == 0, str(job.result))
    w.catches_up(f, "d")
    check(rss_kib(b.process.pid) - before < 16384, f"{rss_kib(b.process.pid) - before} KiB more")
    slow.close()


def watchers_are_bounded_and_all_see_it(b, c):
    f, other = Files(c), Files(c)
    f.sh("mkdir d")
    other.sh("mkdir d")
    watchers, refused = [], 0
    for _ in range(100):
        try:
            watchers.append(Watch(b, f.id, b"d"))
        except sp.Failed as e:
            check(e.code == EXHAUSTED, str(e))
            refused += 1
    check(len(watchers) + refused == 100 and 30 <= len(watchers) <= 64, f"{len(watchers)} watch")
    beside = Watch(b, other.id, b"d")
    other.sh("echo > d/f")
    beside.has((CREATE, b"f"))
    f.sh("echo > d/f")
    for w in watchers:
        w.has((CREATE, b"f"))
    c.unary(SANDBOX + "Delete", {"id": f.id})
    for w in watchers:
        until(lambda w=w: w.status is not None, "each watch ends with the sandbox")
    other.write(b"g", b"x")


def a_tree_that_is_too_deep_is_refused(b, c):
    f = Files(c, limits={"inodes": 20000})
    f.sh("python3 -c \"import os\nfor i in range(3000): os.mkdir('dd'); os.chdir('dd')\"")
    with fails(EXHAUSTED, "WATCHES"):
        Watch(b, f.id, b".", recursive=True)
    f.sh("mkdir -p e/f")
    w = Watch(b, f.id, b"e", recursive=True)
    f.sh("mv dd e/f; echo > e/f/dd/dd/f")  # it comes later: as much of it as can be is watched
    w.has((CREATE, b"f/dd"))
    until(lambda: w.unwatched > 0, what=lambda: w.events)
    f.sh("echo > e/f/last")
    w.has((CREATE, b"f/last"))


def the_command_prints_changes(b, c):
    f = Files(c)
    f.sh("mkdir -p d/e")
    check(b.cli("fs", "watch", f.id, "nothing").returncode == 1, "what does not exist")
    text = subprocess.Popen(b.command("fs", "watch", "-r", f.id, "d"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    js = subprocess.Popen(b.command("fs", "watch", "-r", f.id, "d", "-o", "json"), stdout=subprocess.PIPE)
    check(b"watching 2 folders" in text.stderr.readline(), "text")
    check(json.loads(js.stdout.readline()) == {"watching": 2}, "JSON")
    f.sh("cd d; echo > e/f; mv e/f g; mkdir h; printf x > $(printf 'a\\033b'); cd ..; rm -r d")
    out, _ = text.communicate(timeout=60)
    lines = out.decode().splitlines()
    check(text.returncode == 0 and lines[0] == "create e/f" and "rename e/f -> g" in lines and "create h/" in lines, lines)
    check(lines[-1] == "remove ./" and "\033" not in out.decode(), lines)
    events = [json.loads(line) for line in js.communicate(timeout=60)[0].splitlines()]
    check({"change": "RENAME", "folder": False, "path": "g", "before": "e/f"} in events, events)


TESTS = [t for t in list(globals().values()) if callable(t) and getattr(t, "__code__", None)
         and t.__code__.co_varnames[:t.__code__.co_argcount] == ("b", "c")]

if __name__ == "__main__":
    main(Broker(), TESTS)
