#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees and jobs that are hostile to operations on files (checks 20 to 23)."""

import contextlib
import io
import os
import tarfile
import time

import sp
from api import NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from files import DENIED, EXHAUSTED, FILE, MIB, UNAVAILABLE, Files, download, fails, transfers
from runner import check, until

def links_lead_nowhere_outside(b, c):
    """Check 20: the link itself is reported, and a host's file is never reached."""
    f = Files(c)
    canary = f"{b.folder}/canary"
    with open(canary, "w", encoding="utf-8") as out:
        out.write("host")
    f.sh(f"ln -s {canary} c; ln -s / root; ln -s ../../../../../../../..{canary} up; ln -s /proc/self/root{canary} p;"
         " ln -s /proc/1/root r; ln -s loop loop")
    for path in (b"c", b"up", b"p", b"root" + canary.encode(), b"../.." + canary.encode(), b"r/etc/passwd"):
        try:
            check(b"host" not in f.read(path), f"{path} was read")
        except sp.Failed as e:
            check(e.code in (NOT_FOUND, DENIED, PRECONDITION), str(e))
    info = f("Stat", b"c").file
    check((info.type, info.target) == (3, canary.encode()), str(info))
    with fails(PRECONDITION, "LINK"):
        f.read(b"loop")
    with fails(PRECONDITION):
        f.read(b"/proc/self/fd/0")  # a magic link
    check({x.path for x in f.list(b".", depth=3) if x.type == 3} == {b"c", b"loop", b"p", b"r", b"root", b"up"},
          "a list follows none")


def a_tree_that_changes_all_the_time_is_harmless(b, c):
    """Checks 21 and 22: a file and a link swap, a folder and a link swap, while both are read, listed and copied."""
    f = Files(c)
    f.sh("mkdir -p w/d; echo inside > w/f; echo inside > w/d/f; ln -s /etc w/l; ln -s /etc/passwd w/g")
    code = ("import ctypes\nl = ctypes.CDLL(None)\nn = 0\nwhile True:\n"
            " l.renameat2(-100, b'w/f', -100, b'w/g', 2)\n l.renameat2(-100, b'w/d', -100, b'w/l', 2)\n"
            " n += 1\n if n == 100000: print('enough', flush=True)\n")
    swaps = c.start(f.id, f"exec python3 -c \"{code}\"")
    seen, begun = set(), time.monotonic()
    while time.monotonic() - begun < 6:
        for path in (b"w/f", b"w/d/f", b"w/d/passwd"):
            with contextlib.suppress(sp.Failed):
                seen.add(f.read(path)[:7])
        f.list(b"w", depth=2)
        with contextlib.suppress(sp.Failed):
            f("Copy", b"w", to=b"copy")
        f("Remove", b"copy", recursive=True) if f.list(b".", glob=b"copy") else None
        with contextlib.suppress(sp.Failed), tarfile.open(fileobj=io.BytesIO(download(f, b"w")[0])) as tar:
            for m in (m for m in tar.getmembers() if m.isfile()):
                check(tar.extractfile(m).read() == b"inside\n", f"{m.name} is what a link leads to")
    check(b"inside\n" in seen, str(seen))
    check(f.sh("head -c 5 /etc/passwd") == b"root:", "what the links lead to is untouched")
    c.unary("/stockade.v1.ProcessService/Signal", {"process_id": swaps.id, "signal": 9})


def a_removal_does_not_follow_what_replaces_a_folder(b, c):
    """Check 22: a folder and a link to another one swap places while the tree is removed, and while its permissions change."""
    f = Files(c)
    f.sh("mkdir keep; echo precious > keep/it; chmod 700 keep; mkdir v")
    code = ("import ctypes, os\nl = ctypes.CDLL(None)\nn = 0\nwhile True:\n"
            " try:\n  os.makedirs('v/d/e/f', exist_ok=True); os.symlink('../keep', 'v/l')\n except OSError: pass\n"
            " for i in range(50): l.renameat2(-100, b'v/d', -100, b'v/l', 2)\n"
            " n += 1\n if n == 1000: print('enough', flush=True)\n")
    swaps = c.start(f.id, f"exec python3 -c \"{code}\"")
    begun, removed = time.monotonic(), 0
    while time.monotonic() - begun < 3:
        with contextlib.suppress(sp.Failed):
            removed += f("Remove", b"v", recursive=True).removed
        with contextlib.suppress(sp.Failed):
            f("Move", b"v/d", to=b"v/moved")
    check(removed > 0, "something was removed")
    check(f.sh("cat keep/it; stat -c %a keep") == b"precious\n700\n", "what the link leads to is untouched")
    c.unary("/stockade.v1.ProcessService/Signal", {"process_id": swaps.id, "signal": 9})


def three_thousand_levels_are_bounded(b, c):
    """Check 23."""
    f = Files(c, limits={"inodes": 20000})
    f.sh("python3 -c \"import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\"")
    check(len(f.list(b".", depth=64, glob=b"d")) == 64, "a list ends at its depth")
    with fails(EXHAUSTED):
        f("Copy", b"d", to=b"e")
    with fails(EXHAUSTED):
        download(f, b".")
    odd = b"".join(bytes([i]) for i in range(1, 256) if i != ord("/"))[:255]
    f.write(odd, b"odd")
    check(f.read(odd) == b"odd" and odd in {x.path for x in f.list(b".")}, "a name of 254 odd bytes")
    begun = time.monotonic()
    check(f("Remove", b"d", recursive=True).removed >= 3000, "all of it")
    check(f("Remove", b"e", recursive=True).removed > 0, "the part of a copy")
    check(time.monotonic() - begun < 20, "in time")
    f.sh("python3 -c \"import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\"")
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": f.id, "name": "s"})
    with fails(PRECONDITION, "TOO_DEEP"):
        f("Remove", b"d", recursive=True)
    c.unary(SANDBOX + "Delete", {"id": f.id})


def a_job_that_kills_or_stops_the_program_harms_itself_alone(b, c):
    f = Files(c)
    f.write(b"big", b"x" * MIB)
    f.sh("i=0; while [ $i -lt 20 ]; do cat big; i=$((i+1)); done > huge")
    call = f.c.begin(FILE + "Read", {"sandbox_id": f.id, "path": b"huge"}, credit=8)  # more than fits into sockets
    check(f.c.recv(call).kind == sp.DATA, "it has begun")
    f.c.finish(f.c.start(f.id, "kill -9 -1"))
    f.c.send(call, sp.Frame(kind=sp.WINDOW, credit=1000))
    got = 0
    with fails(UNAVAILABLE, "FILES_CUT_OFF"):  # never a short file without an error
        while (frame := f.c.recv(call)).kind == sp.DATA:
            got += len(frame.payload)
        raise sp.Failed(frame.status)
    check(got < 20 * MIB, "it was cut off")
    until(lambda: again(f), "the next operation starts it again")


def again(f):
    try:
        return f.read(b"big", length=1) == b"x"
    except sp.Failed as e:
        check(e.code == UNAVAILABLE, str(e))
        return False


def a_job_cannot_hide_what_was_read(b, c):
    """It kills the program that reads, and the sandbox is deleted: the event comes when the call ends."""
    f = Files(c)
    f.send(b"big", [b"x" * 262144] * 32)
    d = connect(b)
    call = d.begin(FILE + "Read", {"sandbox_id": f.id, "path": b"big"}, credit=4)
    for _ in range(4):
        d.recv(call)
    f.sh("python3 -c 'import os\nfor p in range(2, 200):\n  if p not in (os.getpid(), os.getppid()):\n    try: os.kill(p, 9)\n    except OSError: pass'")
    c.unary(SANDBOX + "Delete", {"id": f.id})
    d.close()
    out = transfers(b, f, 2)[1]["transfer"]
    check((out["direction"], out["complete"]) == ("out", False) and out["bytes"] > 100000, str(out))


def a_write_that_is_killed_leaves_nothing(b, c):
    f = Files(c)
    f.sh("mkdir d")
    f.write(b"big", b"x")
    nameless = f.nameless("d")
    stream = f.stream("OpenWrite", b"d/f")
    transfer = next(stream).transfer_id
    c.unary(FILE + "Send", {"transfer_id": transfer, "offset": 0, "data": b"x" * 262144})
    f.sh("python3 -c 'import os\nfor p in range(2, 200):\n  if p not in (os.getpid(), os.getppid()):\n    try: os.kill(p, 9)\n    except OSError: pass'")
    with fails(UNAVAILABLE):
        next(stream)
    until(lambda: again(f), "a new program works")
    check(not nameless or not f.list(b"d"), "nothing is left where the file system has files without a name")
    f.write(b"d/f", b"1")
    f.write(b"d/f", b"2")
    check(f.read(b"d/f") == b"2", "replaced")
    check(not nameless or len(f.list(b"d")) == 1, "and nothing else is there")


TESTS = [
    links_lead_nowhere_outside,
    a_tree_that_changes_all_the_time_is_harmless,
    a_removal_does_not_follow_what_replaces_a_folder,
    three_thousand_levels_are_bounded,
    a_job_that_kills_or_stops_the_program_harms_itself_alone,
    a_job_cannot_hide_what_was_read,
    a_write_that_is_killed_leaves_nothing,
]

if __name__ == "__main__":
    main(Broker(), TESTS)
