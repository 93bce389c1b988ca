#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SnapshotService.Diff and DiffFile: against what two listings of all files say, hostile trees, and the texts against patch(1)."""

import os
import random
import subprocess
import tempfile

import sp
from api import NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from runner import check, until
from snapshots import SNAPSHOT, guests, make, mounts_of, new, no, restore, sh
from sp import EXHAUSTED, INVALID

CONFIG = """
socket: {mode: 0666}
pool: 1
bpf: {enabled: false}
templates:
  - name: default
    limits: {disk: 64M, inodes: 30000, memory: 256M}
"""
ADDED, CHANGED, REMOVED = 1, 2, 3
UNAVAILABLE = 14


def diff(c, box, first, second="", **more):
    """path -> change"""
    found, token = {}, b""
    while True:
        page = c.unary(SNAPSHOT + "Diff", {"sandbox_id": box, "first": first, "second": second, "page_token": token, **more})
        for change in page.changes:
            check(change.path not in found, f"{change.path} came twice")
            found[change.path] = change
        token = page.next_page_token
        if not token:
            break
    check(list(found) == sorted(found, key=lambda p: p.split(b"/")), "sorted")
    return found


def kinds(changes):
    return {path: change.kind for path, change in changes.items()}


def patch(c, box, path, first, second=""):
    call = c.begin(SNAPSHOT + "DiffFile", {"sandbox_id": box, "first": first, "second": second, "path": path}, credit=1000)
    answer, head, data = sp.message("stockade.v1.SnapshotServiceDiffFileResponse"), None, b""
    while True:
        frame = c.recv(call)
        if frame.kind == sp.END:
            if frame.status.code:
                raise sp.Failed(frame.status)
            return head, data
        m = answer.FromString(frame.payload)
        if head is None:
            head = m
        data += m.data


def no_patch(c, box, path, code, word):
    try:
        patch(c, box, path, "a")
    except sp.Failed as e:
        check(e.code == code and word in f"{e.message} {e.details}", f"{path}: {e.code} {e.message} {e.details}")
        return
    check(False, f"{path}: no failure")


# ---- what is refused


def what_is_not_there_is_not_found(b, c):
    box = new(c)
    no(c, "Diff", {"sandbox_id": "none", "first": "a"}, NOT_FOUND)
    no(c, "Diff", {"sandbox_id": box, "first": "a"}, NOT_FOUND, "SNAPSHOT_UNKNOWN")
    make(c, box, "a")
    no(c, "Diff", {"sandbox_id": box, "first": "a", "second": "b"}, NOT_FOUND, "SNAPSHOT_UNKNOWN")
    no(c, "Diff", {"sandbox_id": box, "first": ""}, INVALID, "first")
    for path in (b"tmp", b"/tmp/../etc", b"/tmp/./x", b"//tmp", b"/tmp//x", b"/a\0b", b"/" + b"x" * 4096):
        no(c, "Diff", {"sandbox_id": box, "first": "a", "path": path}, INVALID, "path")
    no(c, "Diff", {"sandbox_id": box, "first": "a", "page_token": b"x\0y"}, INVALID, "page_token")
    no(c, "Diff", {"sandbox_id": box, "first": "a", "page_size": 1001}, INVALID, "page_size")
    sh(c, box, "mkdir d; mkfifo f; head -c 9000000 /dev/zero | tr '\\0' x > large; yes | head -n 200001 > lines")
    no_patch(c, box, b"/home/agent/none", NOT_FOUND, "FILE_NOT_FOUND")
    no_patch(c, box, b"/home/agent/d", PRECONDITION, "IS_A_FOLDER")
    no_patch(c, box, b"/home/agent/f", PRECONDITION, "NOT_REGULAR")
    no_patch(c, box, b"/home/agent/f", PRECONDITION, "it is a FIFO")
    no_patch(c, box, b"/home/agent/large", EXHAUSTED, "TEXT_TOO_LARGE")
    no_patch(c, box, b"/home/agent/lines", EXHAUSTED, "TEXT_TOO_LARGE")
    c.unary(SANDBOX + "Pause", {"id": box})
    no(c, "Diff", {"sandbox_id": box, "first": "a"}, PRECONDITION, "paused")


def another_user_sees_no_difference(b, c):
    box = new(c)
    make(c, box, "a")
    r = b.stranger("snapshot", "diff", box, "a")
    check(r.returncode == 1 and b"no sandbox" in r.stderr, f"{r.returncode} {r.stderr}")


# ---- what it finds

LISTING = r"""
import hashlib, os, stat, sys
for top in ("/home/agent", "/tmp", "/var/tmp", "/dev/shm"):
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            what = ""
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(path).hex()
            elif stat.S_ISREG(st.st_mode):
                what = hashlib.md5(open(path, "rb").read()).hexdigest()
            print(path.hex(), oct(st.st_mode), st.st_size if stat.S_ISREG(st.st_mode) else 0, what)
"""

TURN = r"""
import os, random, shutil, sys
rng = random.Random(int(sys.argv[1]))
tops = [b"/home/agent", b"/tmp", b"/var/tmp", b"/dev/shm"]
def any_path():
    path = rng.choice(tops)
    for _ in range(rng.randint(1, 4)):
        path += b"/" + rng.choice([b"a", b"b", b"c", b"a!", b"n\xff\x01", b"x\ny", b"\x01", b".wh.a", b".wh..wh..opq"])
    return path
for _ in range(60):
    path, other = any_path(), any_path()
    try:
        what = rng.randint(0, 9)
        if what <= 2:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "wb").write(rng.choice([b"", b"one", b"two", b"x" * 5000]))
        elif what == 3:
            os.makedirs(path)
        elif what == 4:
            shutil.rmtree(path)
        elif what == 5:
            os.unlink(path)
        elif what == 6:
            os.chmod(path, rng.choice([0o600, 0o644, 0o755]) | (0o700 if os.path.isdir(path) else 0))
        elif what == 7:
            os.symlink(rng.choice([b"/etc", b"a", b"gone\xfe"]), path)
        elif what == 8:
            os.rename(path, other)
        elif rng.randint(0, 1):
            os.link(path, other)
        else:
            os.utime(path)
    except OSError:
        pass
"""


def listing(c, box):
    lines = [line.split(" ") for line in sh(c, box, f"python3 -c '{LISTING}'").splitlines()]
    return {bytes.fromhex(path): (mode, int(size), what) for path, mode, size, what in lines}


def expected(first, second):
    found = {}
    for path in first.keys() | second.keys():
        if path not in first:
            found[path] = ADDED
        elif path not in second:
            found[path] = REMOVED
        elif first[path] != second[path]:
            found[path] = CHANGED
    return found


def two_listings_of_all_files_say_the_same(b, c):
    for seed in range(3):
        box = new(c)
        rng = random.Random(seed)
        states = {}
        make(c, box, "s0")
        states["s0"] = listing(c, box)
        for i in range(1, 8):
            if rng.randint(0, 2) == 0:
                restore(c, box, rng.choice(sorted(states)))  # branches
            sh(c, box, f"python3 -c '{TURN}' {seed * 100 + i}")
            states[f"s{i}"] = listing(c, box)
            make(c, box, f"s{i}")
        sh(c, box, f"python3 -c '{TURN}' {seed * 100 + 99}")
        states[""] = listing(c, box)
        for first in states:
            for second in states:
                if not first:
                    continue
                found = diff(c, box, first, second, page_size=rng.choice([1, 7, 100, 1000]) if second == "" else 1000)
                want = expected(states[first], states[second])
                check(kinds(found) == want, f"seed {seed}, {first} to {second or 'now'}: {kinds(found)} is not {want}")
                for path, change in found.items():
                    for side, state in ((change.before, states[first]), (change.after, states[second])):
                        if path in state:
                            mode, size, _ = state[path]
                            check((side.mode, side.size) == (int(mode, 8) & 0o7777, size), f"{path}: {side}")
        sub = b"/home/agent/a"
        within = {p: k for p, k in expected(states["s1"], states[""]).items() if p == sub or p.startswith(sub + b"/")}
        check(kinds(diff(c, box, "s1", path=sub)) == within, "below a path")
        c.unary(SANDBOX + "Delete", {"id": box})


def times_alone_and_files_that_were_only_opened_are_no_difference(b, c):
    box = new(c)
    sh(c, box, "mkdir d; echo a > d/a; echo b > b; ln -s b l")
    make(c, box, "a")
    check(diff(c, box, "a") == {} and diff(c, box, "a", "a") == {}, "nothing was written")
    sh(c, box, "touch d/a b; exec 3<> b; touch -h l; echo x > d/x; rm d/x")
    check(diff(c, box, "a") == {}, f"{kinds(diff(c, box, 'a'))}")
    sh(c, box, "echo B > b")
    found = diff(c, box, "a")
    check(list(found) == [b"/home/agent/b"] and found[b"/home/agent/b"].contents, f"{found}")


def a_folder_that_was_replaced_shows_both(b, c):
    box = new(c)
    sh(c, box, "mkdir -p d/deep; echo 1 > d/deep/old; echo 1 > d/both; echo f > f; mkdir to")
    make(c, box, "a")
    sh(c, box, "rm -r d; mkdir d; echo 2 > d/both; echo 3 > d/new; rm f; mkdir f; echo 4 > f/in; rmdir to; echo 5 > to")
    make(c, box, "b")
    want = {b"d/deep": REMOVED, b"d/deep/old": REMOVED, b"d/both": CHANGED, b"d/new": ADDED, b"f": CHANGED, b"f/in": ADDED, b"to": CHANGED}
    found = diff(c, box, "a", "b")
    check(kinds(found) == {b"/home/agent/" + p: k for p, k in want.items()}, f"{kinds(found)}")
    check(found[b"/home/agent/f"].before.type == 1 and found[b"/home/agent/f"].after.type == 2, "file to folder")
    back = diff(c, box, "b", "a")
    turned = {ADDED: REMOVED, REMOVED: ADDED, CHANGED: CHANGED}
    check(kinds(back) == {p: turned[k] for p, k in kinds(found).items()}, "the other way")
    check(kinds(diff(c, box, "a")) == kinds(found), "now is the same")


def what_its_user_may_not_read_is_marked(b, c):
    box = new(c)
    sh(c, box, "mkdir shut; echo 1 > shut/in; echo 1 > mute")
    make(c, box, "a")
    sh(c, box, "echo 2 > shut/in; chmod 0 shut; echo 2 > mute; chmod 0 mute")
    found = diff(c, box, "a")
    check(found[b"/home/agent/shut"].unreadable, f"{found}")
    check(found[b"/home/agent/mute"].contents and found[b"/home/agent/mute"].unreadable, f"{found}")


def deep_trees_and_many_files_come_in_pages(b, c):
    box = new(c)
    make(c, box, "a")
    sh(c, box, "python3 -c 'import os\nfor i in range(3000): os.mkdir(\"d\"); os.chdir(\"d\")'; mkdir many; cd many;"
       " i=0; while [ $i -lt 5000 ]; do : > file-with-a-rather-long-name-$i; i=$((i+1)); done")
    found = diff(c, box, "a", page_size=1000)
    check(sum(1 for p in found if p.startswith(b"/home/agent/many/")) == 5000, f"{len(found)} changes")
    deepest = max((p for p in found if p.startswith(b"/home/agent/d")), key=len)
    check(len(deepest) > 3800 and found[deepest].unreadable, f"{len(deepest)} bytes")
    check(not any(found[p].unreadable for p in found if p != deepest), "only there the list is cut")


def jobs_run_meanwhile_and_links_lead_nowhere(b, c):
    box = new(c)
    sh(c, box, "mkdir -p d/e; echo x > d/e/f; echo x > p")
    make(c, box, "a")
    job = c.start(box, "while :; do rm -rf d; ln -s /etc d; rm d; mkdir -p d/e; ln -s /etc/passwd d/e/f; rm -r d; mkfifo d; rm d; rm -f p; mkfifo p;"
                  " mkdir -p d/e; echo y > d/e/f; rm p; ln -s / p; echo turn; rm p; echo z > p; done")
    for i in range(1000):
        for path, change in diff(c, box, "a").items():
            check(path.startswith(b"/home/agent/") and b"passwd" not in path, f"{path} {change}")
        if i % 10 == 0:
            try:
                _, text = patch(c, box, b"/home/agent/d/e/f", "a")
                check(b"root" not in text, f"{text}")
            except sp.Failed as e:
                check(e.code in (NOT_FOUND, PRECONDITION), f"{e}")
    check(job.result is None, "the job still runs")


def a_killed_program_ends_the_call_and_a_stopped_one_too(b, c):
    box = new(c)
    make(c, box, "a")
    sh(c, box, "i=0; while [ $i -lt 5000 ]; do : > f$i; i=$((i+1)); done")
    job = c.start(box, "while :; do pkill -9 stockade-files; done")
    codes = set()
    for _ in range(20):
        call = c.begin(SNAPSHOT + "Diff", {"sandbox_id": box, "first": "a", "page_size": 1000})
        codes.add(c.recv(call).status.code)
        if UNAVAILABLE in codes:
            break
    check(codes <= {0, UNAVAILABLE}, f"{codes}")
    c.unary("/stockade.v1.ProcessService/Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)
    until(lambda: len(guests(b, box)) <= 3, "its processes are gone")
    check(len(diff(c, box, "a", page_size=1000)) == 5000, "and again")


def nothing_is_left_of_a_comparison(b, c):
    box = new(c)
    make(c, box, "a")
    for name in "bcd":
        sh(c, box, f"echo {name} > {name}")
        make(c, box, name)
    before = None
    for i in range(300):
        if i == 100:
            before = mounts_of(b, box), len(os.listdir(f"/proc/{b.spawner()}/fd"))
        gone = i % 3 == 0
        other = connect(b) if gone else c
        call = other.begin(SNAPSHOT + "Diff", {"sandbox_id": box, "first": "a", "second": "d"})
        if gone:
            other.close()
        else:
            check(c.recv(call).status.code == 0, "it answers")
        if i % 50 == 0:
            restore(c, box, "abcd"[i // 50 % 4])
    until(lambda: len(os.listdir(f"/proc/{b.spawner()}/fd")) <= before[1], "no descriptor")
    until(lambda: mounts_of(b, box) <= before[0], "no mount")


# ---- texts


def patches_turn_one_file_into_the_other(b, c):
    box = new(c)
    rng = random.Random(7)
    texts = [(b"", b"a\n"), (b"a\n", b""), (b"a", b"a\n"), (b"a\nb", b"a\nc"), (b"x\n" * 50, b"y\n" * 50), (b"\n" * 9, b"\n" * 4)]
    for i in range(30):
        first = [b"%d\n" % rng.randint(0, 20 + i * 20) for _ in range(rng.randint(0, 300))]
        second = list(first)
        for _ in range(rng.randint(0, 40)):
            at = rng.randint(0, len(second))
            second[at:at + rng.randint(0, 3)] = [b"new %d\n" % rng.randint(0, 9) for _ in range(rng.randint(0, 3))]
        texts.append((b"".join(first), b"".join(second)))
    big = [b"%d\n" % i for i in range(50000)]
    texts.append((b"".join(big), b"".join(rng.sample(big, len(big)))))  # beyond the cost
    for i, (first, _) in enumerate(texts):
        c.unary("/stockade.v1.FileService/Write", {"sandbox_id": box, "path": b"t%d" % i, "data": first})
    make(c, box, "a")
    for i, (_, second) in enumerate(texts):
        c.unary("/stockade.v1.FileService/Write", {"sandbox_id": box, "path": b"t%d" % i, "data": second})
    with tempfile.TemporaryDirectory() as here:
        for i, (first, second) in enumerate(texts):
            head, text = patch(c, box, b"/home/agent/t%d" % i, "a")
            if first == second:
                check(text == b"" and not head.HasField("change"), "the same")
                continue
            check(text.startswith(b"--- a/home/agent/t%d\n+++ b/home/agent/t%d\n@@ -" % (i, i)), f"{text[:80]}")
            with open(f"{here}/t", "wb") as f:
                f.write(first)
            r = subprocess.run(["patch", "-s", "-p0", f"{here}/t"], input=text, capture_output=True, check=False)
            with open(f"{here}/t", "rb") as f:
                check(r.returncode == 0 and f.read() == second, f"{i}: {r.stdout} {r.stderr} {text[:300]}")


def added_removed_binary_and_odd_names_have_their_marks(b, c):
    box = new(c)
    sh(c, box, "echo old > gone; printf 'a\\000b' > bin; printf 'x\\377\\n' > bytes")
    make(c, box, "a")
    sh(c, box, "rm gone; echo new > come; printf 'a\\000c' > bin; printf 'y\\377\\n' > bytes; echo q > \"$(printf 'n\\n\"q\\\\')\"; chmod 755 come")
    check(patch(c, box, b"/home/agent/gone", "a")[1] == b"--- a/home/agent/gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-old\n", "removed")
    head, text = patch(c, box, b"/home/agent/come", "a")
    check(text == b"--- /dev/null\n+++ b/home/agent/come\n@@ -0,0 +1,1 @@\n+new\n" and head.change.after.mode == 0o755, f"{text}")
    head, text = patch(c, box, b"/home/agent/bin", "a")
    check(head.binary and text == b"" and head.change.kind == CHANGED, f"{head}")
    check(patch(c, box, b"/home/agent/bytes", "a")[1].endswith(b"-x\xff\n+y\xff\n"), "bytes as they are")
    text = patch(c, box, b'/home/agent/n\n"q\\', "a")[1]
    check(text.startswith(b'--- /dev/null\n+++ "b/home/agent/n\\012\\"q\\\\"\n'), f"{text}")


TESTS = [what_is_not_there_is_not_found, another_user_sees_no_difference, two_listings_of_all_files_say_the_same,
         times_alone_and_files_that_were_only_opened_are_no_difference, a_folder_that_was_replaced_shows_both,
         what_its_user_may_not_read_is_marked, deep_trees_and_many_files_come_in_pages, jobs_run_meanwhile_and_links_lead_nowhere,
         a_killed_program_ends_the_call_and_a_stopped_one_too, nothing_is_left_of_a_comparison, patches_turn_one_file_into_the_other,
         added_removed_binary_and_odd_names_have_their_marks]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
