#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FileService over the wire: every method and its refusals (check 19; 20 to 23 are in files_hostile.py, 24 in snapshots.py, 25 in
files_archives.py)."""

import contextlib
import hashlib
import io
import os
import tarfile
import threading
import time

import sp
from api import PRECONDITION, NOT_FOUND, EXISTS, SANDBOX, connect, main
from broker import Broker
from runner import check, until

FILE = "/stockade.v1.FileService/"
INVALID, DENIED, EXHAUSTED, ABORTED, RANGE, UNAVAILABLE = 3, 7, 8, 10, 11, 14
HOME = b"/home/agent/"
MIB = 1 << 20


@contextlib.contextmanager
def fails(code, reason=None):
    try:
        yield
    except sp.Failed as e:
        check(e.code == code, f"code {code}: {e}")
        check(reason in (None, e.reason), f"{reason}: {e.reason}, {e}")
        return
    check(False, f"it succeeded instead of failing with {code} {reason}")


class Files:
    """The files of a sandbox."""

    def __init__(self, c, **create):
        self.c = c
        self.id = c.unary(SANDBOX + "Create", create).sandbox.id

    def __call__(self, method, path, **fields):
        return self.c.unary(FILE + method, {"sandbox_id": self.id, "path": path, **fields})

    def sh(self, line):
        job = self.c.finish(self.c.start(self.id, line))
        check(job.result.exit_code == 0, f"{line}: {job.output!r}")
        return job.output

    def nameless(self, folder):
        """The kernel has files without a name there (overlayfs: from Linux 6.10 on)."""
        tries = f"import os\ntry: os.open('{folder}', os.O_TMPFILE | os.O_WRONLY); print('yes')\nexcept OSError: print('no')"
        return self.sh(f'python3 -c "{tries}"') == b"yes\n"

    def stream(self, method, path, **fields):
        call = self.c.begin(FILE + method, {"sandbox_id": self.id, "path": path, **fields}, credit=1000)
        answer = sp.message(f"stockade.v1.FileService{method}Response")
        while True:
            frame = self.c.recv(call)
            if frame.kind == sp.END:
                if frame.status.code:
                    raise sp.Failed(frame.status)
                return
            yield answer.FromString(frame.payload)

    def read(self, path, **fields):
        return b"".join(m.data for m in self.stream("Read", path, **fields))

    def write(self, path, data, **options):
        return self("Write", path, data=data, options=options).file

    def send(self, path, pieces, **options):
        """OpenWrite, Send and Finish."""
        stream = self.stream("OpenWrite", path, options=options)
        transfer = next(stream).transfer_id
        at = 0
        with contextlib.suppress(sp.Failed):  # the stream has the reason
            for piece in pieces:
                self.c.unary(FILE + "Send", {"transfer_id": transfer, "offset": at, "data": piece})
                at += len(piece)
            self.c.unary(FILE + "Finish", {"transfer_id": transfer, "bytes": at})
        return next(stream).file

    def list(self, path, **fields):
        token, found = b"", []
        while True:
            page = self("List", path, page_token=token, **fields)
            found += page.files
            token = page.next_page_token
            if not token:
                return found


def what_is_not_there_is_refused(b, c):
    f = Files(c)
    with fails(NOT_FOUND, "FILE_NOT_FOUND"):
        f("Stat", HOME + b"no")
    with fails(NOT_FOUND, "FILE_NOT_FOUND"):
        f.read(HOME + b"no")
    with fails(NOT_FOUND, "FILE_NOT_FOUND"):
        f.write(HOME + b"no/such/folder", b"x")
    for method in ("Remove", "SetMode"):
        with fails(NOT_FOUND, "FILE_NOT_FOUND"):
            f(method, HOME + b"no")
    with fails(NOT_FOUND):
        f("Move", HOME + b"no", to=HOME + b"yes")
    with fails(INVALID):
        f("Stat", b"a\0b")
    with fails(INVALID):
        f("Stat", b"")
    with fails(INVALID):
        f("Stat", b"x" * 4096)
    with fails(NOT_FOUND):
        c.unary(FILE + "Stat", {"sandbox_id": "0" * 32, "path": b"/"})
    with fails(NOT_FOUND, "TRANSFER_UNKNOWN"):
        c.unary(FILE + "Send", {"transfer_id": "0" * 32, "data": b"x"})


def what_the_jobs_user_may_not_do_is_refused(b, c):
    f = Files(c)
    with fails(DENIED):
        f.write(b"/etc/passwd", b"x")
    with fails(DENIED):
        f("MakeDir", b"/usr/x")
    with fails(DENIED):
        f("Remove", b"/etc/passwd")
    f.sh("echo secret > s; chmod 0 s")
    with fails(DENIED, "FILE_PERMISSION"):
        f.read(b"s")
    with fails(DENIED):
        f("SetMode", b"/etc/passwd", mode=0o777)


def what_is_no_regular_file_is_refused_at_once(b, c):
    f = Files(c)
    f.sh("mkfifo fifo; ln -s fifo to-fifo; mkdir folder;"
         " python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    for name in (b"fifo", b"to-fifo", b"/dev/tty", b"/dev/zero", b"sock"):
        begun = time.monotonic()
        with fails(PRECONDITION):
            f.read(name)
        check(time.monotonic() - begun < 5, f"{name} took long")
        check(name == b"sock" or f("Stat", name, follow=True).file.type == 4, f"{name} is of another type")
    with fails(PRECONDITION, "IS_A_FOLDER"):
        f.read(b"folder")
    with fails(PRECONDITION, "IS_A_FOLDER"):
        f.write(b"folder", b"x")
    with fails(PRECONDITION, "NOT_A_FOLDER"):
        f("List", b"fifo")
    with fails(PRECONDITION):
        f("Copy", b"fifo", to=b"copy")


def a_file_is_written_atomically_and_read_back(b, c):
    f = Files(c)
    data = os.urandom(300000)
    made = f.write(b"a/b/c", data, parents=True, mode=0o640)
    check((made.path, made.type, made.size, made.mode) == (HOME + b"a/b/c", 1, len(data), 0o640), str(made))
    check(f.sh("sha256sum < a/b/c; stat -c %a:%U a/b/c").split()[2] == b"640:agent", "mode and owner")
    check(f.read(b"a/b/c") == data, "the same bytes")
    check(f.read(b"a/b/c", offset=299990) == data[-10:], "the last bytes")
    check(f.read(b"a/b/c", offset=5, length=7) == data[5:12], "a range")
    check(f.read(b"a/b/c", offset=1 << 40) == b"", "beyond the end")
    check(f.write(b"a/b/c", b"new").mode == 0o640, "it keeps its mode")
    check(f.write(b"empty", b"").size == 0 and f.read(b"empty") == b"", "an empty file")
    check([x.path for x in f.list(b"a/b")] == [b"c"], "nothing else is left")
    f.sh("echo target > t; ln -s t l")
    f.write(b"l", b"replaced")
    check(f.sh("cat t; test ! -h l") == b"target\n", "a link is replaced, not followed")


def a_reader_sees_the_old_contents_or_the_new_ones(b, c):
    """A job reads a file again and again while it is replaced, with one message and with several; no read is mixed or cut."""
    f = Files(c)
    size = 65536
    f.write(b"f", b"a" * size, mode=0o640)
    code = ("import os\nfirst = os.open('f', 0)\nprint('begun', flush=True)\nlast = b''\n"
            "while last != b'z':\n text = open('f', 'rb').read()\n last = text[:1]\n"
            f" assert text == last * {size}, (len(text), set(text))\n assert os.stat('f').st_mode & 0o7777 == 0o640\n"
            f"assert os.read(first, {2 * size}) == b'a' * {size}\nprint('whole')")
    job = c.start(f.id, f"exec python3 -c \"{code}\"")
    c.until(job, lambda: b"begun" in job.output)
    for letter in b"bcdefghijklmnopqrstuvwxy":
        data = bytes([letter]) * size
        f.send(b"f", [data[:1000], data[1000:]]) if letter % 2 else f.write(b"f", data)
    f.write(b"f", b"z" * size)
    done = c.finish(job)
    check(done.result.exit_code == 0 and b"whole" in done.output, done.output)
    check([x.path for x in f.list(b".")] == [b"f"], "nothing else is left")


def a_large_file_is_written_in_pieces(b, c):
    f = Files(c)
    pieces = [os.urandom(256 * 1024) for _ in range(12)]
    made = f.send(b"big", pieces)
    check(made.size == 3 * MIB and f.read(b"big") == b"".join(pieces), "the same bytes")
    stream = f.stream("OpenWrite", b"x")
    transfer = next(stream).transfer_id
    with fails(RANGE):
        c.unary(FILE + "Send", {"transfer_id": transfer, "offset": 5, "data": b"x"})
    for _ in range(3):  # a repeated call changes nothing
        c.unary(FILE + "Send", {"transfer_id": transfer, "offset": 0, "data": b"abc"})
    c.unary(FILE + "Send", {"transfer_id": transfer, "offset": 1, "data": b"bcdef"})
    with fails(RANGE):
        c.unary(FILE + "Finish", {"transfer_id": transfer, "bytes": 3})
    check([x.path for x in f.list(b".", glob=b"x")] == [], "it appears at the end only")
    c.unary(FILE + "Finish", {"transfer_id": transfer, "bytes": 6})
    check(next(stream).file.size == 6 and f.read(b"x") == b"abcdef", "what was sent, once")
    with fails(NOT_FOUND):
        next(connect(b).unary(FILE + "Send", {"transfer_id": transfer, "data": b"x"}))


def a_transfer_that_is_given_up_leaves_nothing(b, c):
    f = Files(c)
    other = connect(b)
    call = other.begin(FILE + "OpenWrite", {"sandbox_id": f.id, "path": b"half"}, credit=10)
    transfer = sp.message("stockade.v1.FileServiceOpenWriteResponse").FromString(other.recv(call).payload).transfer_id
    free = lambda: int(f.sh("stat -f -c %f ."))  # noqa: E731  blocks of 4 KiB
    before = free()
    for i in range(4):
        other.unary(FILE + "Send", {"transfer_id": transfer, "offset": i << 18, "data": b"x" * (1 << 18)})
    until(lambda: free() <= before - 256, "it is being written")  # Send does not wait for it
    other.close()
    until(lambda: free() > before - 16 and not f.sh("ls -A | grep stockade-write; true"), "the draft is removed")
    check(not any(x.path == b"half" for x in f.list(b".")), "and no file appears")


def conditions_hold_or_nothing_is_written(b, c):
    f = Files(c)
    first = f.write(b"f", b"1", only_if_absent=True)
    with fails(EXISTS, "FILE_EXISTS"):
        f.write(b"f", b"2", only_if_absent=True)
    second = f.write(b"f", b"3", only_if_version=first.version)
    with fails(ABORTED, "CHANGED"):
        f.write(b"f", b"4", only_if_version=first.version)
    f.sh("echo more >> f")
    with fails(ABORTED, "CHANGED"):
        f.write(b"f", b"5", only_if_version=second.version)
    check(f.read(b"f") == b"3more\n", "none of them was written")
    with fails(ABORTED, "CHANGED"):
        f.write(b"new", b"5", only_if_version=second.version)


def folders_are_made_moved_copied_and_removed(b, c):
    f = Files(c)
    check(f("MakeDir", b"d", mode=0o700).file.mode == 0o700, "with a mode")
    with fails(EXISTS):
        f("MakeDir", b"d")
    f("MakeDir", b"d/e/f", parents=True)
    f("MakeDir", b"d/e/f", parents=True)
    f.write(b"d/e/f/g", b"x" * 5000, mode=0o755)
    f.sh("ln -s g d/e/f/link; mkfifo d/fifo")
    copied = f("Copy", b"d", to=b"copy")
    check((copied.copied, copied.skipped) == (5, 1), str(copied))
    check(f.sh("stat -c %a copy copy/e/f/g; readlink copy/e/f/link") == b"700\n755\ng\n", "modes and links")
    with fails(EXISTS):
        f("Copy", b"d", to=b"copy")
    f("Copy", b"d", to=b"d/e/inside")  # into itself
    check(f.read(b"d/e/inside/e/f/g") == b"x" * 5000, "once")
    with fails(PRECONDITION, "NOT_EMPTY"):
        f("Remove", b"d")
    check(f("Move", b"copy", to=b"p/q", parents=True).file.path == HOME + b"p/q", "moved")
    with fails(EXISTS):
        f("Move", b"d/e/f/g", to=b"p/q/e/f/g", only_if_absent=True)
    check(f("Remove", b"d", recursive=True).removed > 8, "with everything in it")
    check([x.path for x in f.list(b".", glob=b"[dp]")] == [b"p"], "only p is left")
    check(f("SetMode", b"p", mode=0o555).file.mode == 0o555, "mode")
    with fails(PRECONDITION, "LINK"):
        f("SetMode", b"p/q/e/f/link", mode=0o777)


def a_list_is_sorted_paged_and_filtered(b, c):
    f = Files(c)
    f.sh("mkdir -p l/b/c l/b-d l/.hidden; touch l/a l/b/x.py l/b/c/y.py l/b-d/z.txt l/b.py;"
         " for i in $(seq 1000); do : > l/b/c/n$i; done")
    paths = [x.path for x in f.list(b"l", depth=3, page_size=7)]
    check(len(paths) == 1009 and len(set(paths)) == 1009, f"{len(paths)} files")
    check(paths == [x.path for x in f.list(b"l", depth=3, page_size=1000)], "in pages of any size")
    check(paths.index(b"b") < paths.index(b"b/c") < paths.index(b"b/c/n1") < paths.index(b"b-d"), str(paths[:10]))
    check([x.path for x in f.list(b"l")] == [b".hidden", b"a", b"b", b"b-d", b"b.py"], "one level")
    check({x.path for x in f.list(b"l", depth=9, glob=b"*.py")} == {b"b/x.py", b"b/c/y.py", b"b.py"}, "by name")
    check([x.path for x in f.list(b"l", depth=9, glob=b"b/*.py")] == [b"b/x.py"], "by path")


def names_need_not_be_utf8(b, c):
    f = Files(c)
    names = [b"\xff\xfe", b"new\nline", b"\x1b[31mred", b"x" * 255, "\u202ename".encode(), b" ", b"-rf", b"*"]
    for name in names:
        f.write(b"odd/" + name, name, parents=True)
    check(sorted(x.path for x in f.list(b"odd")) == sorted(names), "all of them")
    for name in names:
        check(f.read(b"odd/" + name) == name, repr(name))
    with fails(NOT_FOUND):
        f.read(b"odd/\xff\xff\x1b")
    with fails(INVALID, "NAME_TOO_LONG"):
        f.write(b"x" * 256, b"")
    check(f("Remove", b"odd", recursive=True).removed == len(names) + 1, "removed")


def a_full_disk_is_reported_and_leaves_the_old_file(b, c):
    f = Files(c, limits={"disk_bytes": 2 * MIB})
    f.write(b"f", b"old")
    with fails(EXHAUSTED, "DISK_FULL"):
        f.send(b"f", [os.urandom(256 * 1024) for _ in range(16)])
    check(f.read(b"f") == b"old", "the old contents")
    check(f.write(b"g", b"x" * MIB).size == MIB, "the draft is gone")


def what_does_not_fit_into_memory_is_refused_with_that_limit(b, c):
    f = Files(c, limits={"memory_bytes": 48 * MIB, "disk_bytes": 256 * MIB})
    nameless = f.nameless(".")
    with fails(EXHAUSTED, "LIMIT_MEMORY"):
        f.send(b"f", [b"x" * (256 * 1024)] * 512)
    if nameless:  # otherwise the draft fills the memory
        # Nothing is printed while there is no memory for df, either.
        until(lambda: int(f.sh("df -k --output=used /home/agent | tail -1") or 1 << 20) < 8192, "the draft is gone")


def a_reader_that_stalls_delays_no_other(b, c):
    f = Files(c)
    f.send(b"big", [b"x" * 262144] * 16)
    for _ in range(20):
        c.begin(FILE + "Read", {"sandbox_id": f.id, "path": b"big"}, credit=1)
    other = Files.__new__(Files)
    other.c, other.id = connect(b), f.id
    begun = time.monotonic()
    check(other.read(b"big") == b"x" * 4 * MIB, "another reader")
    check(time.monotonic() - begun < 10, "at once")


def operations_are_bounded(b, c):
    f = Files(c)
    f.send(b"big", [b"x" * 262144] * 4)
    refused = 0
    for _ in range(80):
        call = c.begin(FILE + "Read", {"sandbox_id": f.id, "path": b"big"}, credit=1)
        frame = c.recv(call)
        refused += frame.kind == sp.END and frame.status.code == EXHAUSTED
    check(refused == 80 - 64, f"{refused} were refused")


def the_command_lists_reads_and_changes_files(b, c):
    f = Files(c)
    for args, word in ((("fs", "nosuch", f.id), b"no action"), (("fs", "mv", f.id, "a"), b"takes 2 paths"),
                       (("fs", "chmod", f.id, "a"), b"needs --mode"), (("fs", "chmod", f.id, "a", "--mode", "9"), b"octal")):
        r = b.cli(*args)
        check((r.returncode, r.stdout) == (2, b"") and word in r.stderr, str(r))
    r = b.cli("fs", "cat", f.id, "nothing")
    check(r.returncode == 1 and b"No such file" in r.stderr, str(r))
    data = os.urandom(2 * MIB)
    check(b.cli("fs", "write", f.id, "a/b", "-p", "--mode", "640", input=data).returncode == 0, "write")
    check(b.cli("fs", "cat", f.id, "a/b").stdout == data, "cat")
    check(b.cli("fs", "write", f.id, "a/b", "--no-clobber", input=b"").returncode == 1, "--no-clobber")
    check(b.cli("fs", "mkdir", f.id, "d/e", "--parents").returncode == 0, "mkdir")
    check(b.cli("fs", "cp", f.id, "a", "copy").returncode == 0, "cp")
    check(b.cli("fs", "mv", f.id, "copy/b", "d/e/f").returncode == 0, "mv")
    check(b.cli("fs", "chmod", f.id, "d/e/f", "--mode", "755").returncode == 0, "chmod")
    lines = b.cli("fs", "ls", f.id, "-r", ".").stdout.decode().splitlines()
    check([x.split()[-1] for x in lines] == ["a", "a/b", "copy", "d", "d/e", "d/e/f"], str(lines))
    check(lines[-1].startswith("-rwxr-xr-x") and str(2 * MIB) in lines[-1], lines[-1])
    check(b.json("fs", "stat", f.id, "d/e/f")[1]["mode"] == "0755", "stat -o json")
    check([x["path"] for x in b.json("fs", "ls", f.id, "--glob", "[ad]")[1]] == ["a", "d"], "ls -o json")
    r = b.cli("fs", "rm", f.id, "a")
    check(r.returncode == 1 and b"hint: remove what it holds, too: -r\n" in r.stderr, "a folder that is not empty")
    check(b.cli("fs", "rm", "-r", f.id, "a", "d").returncode == 0 and len(f.list(b".")) == 1, "rm")
    f.write(b"\x1b[2Jx\xff", b"")
    check(b"\x1b" not in b.cli("fs", "ls", f.id).stdout, "a name cannot write to the terminal")


def archive_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, link, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def upload(f, data, path=b"up", **fields):
    stream = f.stream("Upload", path, **fields)
    transfer = next(stream).transfer_id
    at = 0
    with contextlib.suppress(sp.Failed):  # the stream has the reason
        for at in range(0, len(data), 262144):
            f.c.unary(FILE + "Send", {"transfer_id": transfer, "offset": at, "data": data[at:at + 262144]})
        f.c.unary(FILE + "Finish", {"transfer_id": transfer, "bytes": len(data)})
    return next(stream).counts


def download(f, path, **fields):
    data, counts = b"", None
    for m in f.stream("Download", path, **fields):
        data += m.data
        counts = m.counts if m.HasField("counts") else counts
    return data, counts


def transfers(b, f, n):
    """The events of what went in and out: n of them, sooner or later."""
    def seen():
        own = [e for e in b.json("events", "--from", "1", "--kind", "file_transfer")[1] if e["sandbox_id"] == f.id]
        return own if len(own) >= n else None
    return until(seen, f"{n} events")


def what_goes_in_and_out_is_an_event(b, c):
    f = Files(c)
    blake = lambda data: hashlib.blake2b(data, digest_size=32).hexdigest()
    with fails(NOT_FOUND):
        f.read(b"no")
    f("MakeDir", b"d")
    f.write(b"d/a\xff", b"hello")
    f.send(b"d/big", [b"x" * 262144] * 65)
    check(f.read(b"d/big", offset=5, length=3) == b"xxx", "a part")
    whole = archive_of(("n", tarfile.REGTYPE, "", b"1"))
    upload(f, whole, b"up")
    with fails(INVALID):
        upload(f, b"x" * 1024, b"up")
    data, _ = download(f, b"up")
    seen = [(e["transfer"]["direction"], e["transfer"]["method"], e["transfer"]["path"], e["transfer"]["bytes"],
             e["transfer"]["digest"], e["transfer"]["complete"]) for e in transfers(b, f, 6)]
    check(seen == [("in", "Write", "d/a\ufffd", 5, blake(b"hello"), True),
                   ("in", "Write", "d/big", 65 * 262144, "", True),
                   ("out", "Read", "d/big", 3, blake(b"xxx"), True),
                   ("in", "Upload", "up", len(whole), blake(whole), True),
                   ("in", "Upload", "up", 1024, blake(b"x" * 1024), False),
                   ("out", "Download", "up", len(data), blake(data), True)], str(seen))


def a_paused_sandbox_refuses(b, c):
    f = Files(c)
    f.write(b"f", b"x")
    c.unary(SANDBOX + "Pause", {"id": f.id})
    with fails(PRECONDITION):
        f("Stat", b"f")
    c.unary(SANDBOX + "Resume", {"id": f.id})
    check(f.read(b"f") == b"x", "it goes on")


def a_deleted_sandbox_ends_its_operations(b, c):
    f = Files(c)
    f.send(b"big", [b"x" * 262144] * 16)
    call = c.begin(FILE + "Read", {"sandbox_id": f.id, "path": b"big"}, credit=2)
    c.recv(call)
    done = threading.Thread(target=lambda: connect(b).unary(SANDBOX + "Delete", {"id": f.id}))
    done.start()
    frame = c.recv(call)
    while frame.kind != sp.END:
        frame = c.recv(call)
    check(frame.status.code in (ABORTED, UNAVAILABLE), str(frame))
    done.join()


TESTS = [t for t in list(globals().values()) if callable(t) and getattr(t, "__code__", None)
         and t.__code__.co_varnames[:t.__code__.co_argcount] == ("b", "c")]

if __name__ == "__main__":
    main(Broker(), TESTS)
