#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees of files as archives, in and out, compressed and hostile (check 25, with unit/tar.c and unit/zst.c)."""

import io
import os
import subprocess
import tarfile
import tempfile

from api import main
from broker import Broker
from files import EXHAUSTED, INVALID, MIB, Files, archive_of, download, fails, upload
from runner import check


def hostile_archives_are_refused(b, c):
    """Check 25; tests/unit/tar.c has the others."""
    f = Files(c)
    FILE_, LINK, HARD, CHR, FIFO = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
    for members in ([("../out", FILE_, "", b"x")], [("/tmp/out", FILE_, "", b"x")], [("d", LINK, "/tmp", b""), ("d/out", FILE_, "", b"x")],
                    [("h", HARD, "/etc/passwd", b"")], [("dev", CHR, "", b"")], [("p", FIFO, "", b"")]):
        with fails(INVALID, "ARCHIVE_REFUSED"):
            upload(f, archive_of(*members))
    whole = archive_of(("a", FILE_, "", b"x" * 100000))
    with fails(15, "ARCHIVE_CUT"):
        upload(f, whole[:60000])
    with fails(INVALID, "ARCHIVE_REFUSED"):
        upload(f, os.urandom(10240))
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        upload(f, whole, bytes_max=99999)
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        upload(f, archive_of(*[(str(i), FILE_, "", b"") for i in range(11)]), entries_max=10)
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        download(f, b"up", entries_max=5)
    check(f.sh("ls /tmp | grep -c out; true") == b"0\n", "nothing outside")


def trees_go_in_and_out(b, c):
    f = Files(c)
    counts = upload(f, archive_of(("d", tarfile.DIRTYPE, "", b""), ("d/f", tarfile.REGTYPE, "", b"x" * 70000),
                                  ("n" * 200, tarfile.REGTYPE, "", b"long"), ("l", tarfile.SYMTYPE, "/etc", b"")))
    check((counts.entries, counts.bytes) == (4, 70004), str(counts))
    f.sh("mkfifo up/fifo; chmod 750 up/d/f")
    data, counts = download(f, b"up")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {m.name: m for m in tar.getmembers()}
        check(set(found) == {"d", "d/f", "n" * 200, "l"}, str(set(found)))
        check(found["d/f"].mode == 0o750 and found["l"].linkname == "/etc", "modes and links")
        check(tar.extractfile("d/f").read() == b"x" * 70000, "contents")
    check((counts.entries, counts.skipped) == (4, 1), str(counts))
    with tarfile.open(fileobj=io.BytesIO(download(f, b"up/d/f")[0])) as tar:
        check(tar.getnames() == ["f"], "an archive of one file")


def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def compressed_trees_go_in_and_out_and_bombs_do_not(b, c):
    f = Files(c)
    ZST = 2
    with fails(INVALID):
        upload(f, b"", format=9)
    bomb = zstd(archive_of(("zeros", tarfile.REGTYPE, "", bytes(20 * MIB))))
    check(len(bomb) < 4096, "a bomb")
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        upload(f, bomb, format=ZST)
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        upload(f, bomb, format=ZST, ratio_max=100000, bytes_max=10 * MIB)
    with fails(EXHAUSTED, "ARCHIVE_TOO_LARGE"):
        upload(f, zstd(bytes(16 * MIB), "--long=27", "--no-content-size"), format=ZST)
    with fails(INVALID, "ARCHIVE_REFUSED"):
        upload(f, archive_of(("a", tarfile.REGTYPE, "", b"x")), format=ZST)
    with fails(INVALID, "ARCHIVE_REFUSED"):
        upload(f, zstd(archive_of(("../out", tarfile.REGTYPE, "", b"x"))), format=ZST)
    with fails(15, "ARCHIVE_CUT"):
        upload(f, zstd(archive_of(("a", tarfile.REGTYPE, "", os.urandom(100000))))[:50000], format=ZST)
    check(upload(f, bomb, b"big", format=ZST, ratio_max=100000).bytes == 20 * MIB, "where the caller wants it")
    data = download(f, b"big", format=ZST)[0]
    with tarfile.open(fileobj=io.BytesIO(zstd(data, "-d"))) as tar:
        check(len(data) < 4096 and tar.extractfile("zeros").read() == bytes(20 * MIB), "it is compressed")


def the_command_carries_compressed_archives(b, c):
    f = Files(c)
    here = tempfile.mkdtemp(dir=b.folder)
    os.makedirs(f"{here}/src/a")
    with open(f"{here}/src/a/text", "w", encoding="utf8") as out:
        out.write("a line\n" * 1000000)
    r = b.cli("cp", "--unpack", f"{f.id}:x", here)
    check(r.returncode == 2 and b"of this machine" in r.stderr, str(r))
    r = b.cli("cp", "--unpack", f"{here}/src", f"{f.id}:x")
    check(r.returncode == 2 and b"FROM is no file" in r.stderr, str(r))
    check(b.cli("cp", "--zstd", f"{here}/src", f"{f.id}:dst").returncode == 0, "there")
    r = b.cli("cp", "-z", f"{f.id}:dst", f"{here}/back")
    check(r.returncode == 75 and b"more than 1000 times" in r.stderr and b"--ratio" in r.stderr, f"a job may have made a bomb: {r}")
    check(b.cli("cp", "-z", "--ratio", "100000", f"{f.id}:dst", f"{here}/again").returncode == 0, "and back")
    check(subprocess.run(["diff", "-r", f"{here}/src", f"{here}/again"], check=False).returncode == 0, "the same")
    small = b.cli("cp", "-z", f"{f.id}:dst", "-").stdout
    check(small[:4] == b"\x28\xb5\x2f\xfd", "a .tar.zst on stdout")
    with open(f"{here}/a.tar.zst", "wb") as out:
        out.write(small)
    r = b.cli("cp", "--unpack", f"{here}/a.tar.zst", f"{f.id}:again")
    check(r.returncode == 75 and b"more than 1000 times" in r.stderr and b"--ratio" in r.stderr, str(r))
    check(b.cli("cp", "--unpack", "--ratio", "100000", f"{here}/a.tar.zst", f"{f.id}:again").returncode == 0, "unpacked")
    check(b.cli("cp", "--unpack", "-", f"{f.id}:plain", input=b.cli("cp", f"{f.id}:dst", "-").stdout).returncode == 0, "a .tar")
    check(f.sh("diff -r dst again && diff -r dst plain && wc -c <plain/a/text") == b"7000000\n", "the same")


def the_command_copies_files_and_folders(b, c):
    f = Files(c)
    here = tempfile.mkdtemp(dir=b.folder)
    os.makedirs(f"{here}/src/a/b")
    big = os.urandom(3 * MIB)
    for name, data in (("a/b/big", big), ("a/x", b"x"), ("empty", b"")):
        with open(f"{here}/src/{name}", "wb") as out:
            out.write(data)
    os.symlink("a/x", f"{here}/src/link")
    for args, word in (((here, here), b"exactly one"), ((f"{f.id}:a", f"{f.id}:b"), b"exactly one")):
        r = b.cli("cp", *args)
        check(r.returncode == 2 and word in r.stderr, str(r))
    for args in ((f"{here}/nothing", f"{f.id}:x"), (f"{f.id}:nothing", here)):
        check(b.cli("cp", *args).returncode == 1, "what does not exist")
    for args in ((f"{here}/src/a/x", f"{f.id}:new/"), ("-", f"{f.id}:new/")):
        r = b.cli("cp", *args, input=b"x")
        check(r.returncode == 1 and b"there is no folder new/" in r.stderr, f"a file is not made in place of a folder: {r}")
    check(b.cli("cp", f"{here}/src", f"{f.id}:dst").returncode == 0, "a folder")
    check(f.read(b"dst/a/b/big") == big and f.sh("readlink dst/link") == b"a/x\n", "with everything")
    check(b.cli("cp", f"{here}/src", f"{f.id}:dst").returncode == 0 and f.read(b"dst/src/a/x") == b"x", "into a folder")
    check(b.cli("cp", f"{f.id}:dst", f"{here}/back").returncode == 0, "back")
    check(subprocess.run(["diff", "-r", f"{here}/src", f"{here}/back/src"], check=False).returncode == 0, "the same")
    check(b.cli("cp", f"{f.id}:dst/a/b/big", here).returncode == 0, "a file into a folder")
    with open(f"{here}/big", "rb") as got:
        check(got.read() == big, "its contents")
    check(b.cli("cp", "-", f"{f.id}:in", input=big).returncode == 0 and f.read(b"in") == big, "stdin")
    check(b.cli("cp", f"{f.id}:in", "-").stdout == big, "stdout")
    with tarfile.open(fileobj=io.BytesIO(b.cli("cp", f"{f.id}:dst/src", "-").stdout)) as tar:
        check("a/b/big" in tar.getnames(), "a folder to stdout is an archive")
    f.sh("mkdir evil; ln -s /etc evil/x")
    r = b.cli("cp", f"{f.id}:evil", f"{here}/evil")
    check(r.returncode == 1 and b"leads out" in r.stderr and not os.path.lexists(f"{here}/evil/x"), str(r))


TESTS = [
    hostile_archives_are_refused,
    trees_go_in_and_out,
    compressed_trees_go_in_and_out_and_bombs_do_not,
    the_command_carries_compressed_archives,
    the_command_copies_files_and_folders,
]

if __name__ == "__main__":
    main(Broker(), TESTS)
