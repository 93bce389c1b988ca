# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox through a real broker, for threads and asyncio."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import aio

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_refused_is_an_exception_of_its_kind(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as sbx:
        files = sbx.files
        with pytest.raises(stockade.NotFound) as missing:
            files.read("no")
        assert missing.value.reason == "FILE_NOT_FOUND"
        with pytest.raises(stockade.PermissionDenied):
            files.write("/etc/passwd", "x")
        with pytest.raises(stockade.FailedPrecondition):
            files.read("/dev/zero")
        with pytest.raises(ValueError, match="path"):
            files.stat("")
        with pytest.raises(TypeError, match="bytes"):
            files.write("x", [1])
        files.write("full", b"x" * 100)
        with pytest.raises(stockade.DataLoss):
            files.read("full", max_bytes=99)
        assert not files.exists("x")


def test_files_are_written_read_listed_and_removed(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as sbx:
        files = sbx.files
        first = files.write("a/b.txt", "grüße", parents=True, mode=0o600)
        assert (first.path, first.type, first.size, first.mode) == (
            "/home/agent/a/b.txt",
            "file",
            7,
            0o600,
        )
        assert files.read_text("a/b.txt") == "grüße"
        assert files.read("a/b.txt", offset=2, length=3) == "grüße".encode()[2:5]
        assert sbx.run("cat", "a/b.txt").stdout == "grüße"
        with pytest.raises(stockade.AlreadyExists):
            files.write("a/b.txt", b"", only_if_absent=True)
        second = files.write("a/b.txt", b"2", if_version=first.version)
        with pytest.raises(stockade.Aborted):
            files.write("a/b.txt", b"3", if_version=first.version)
        assert files.stat("a/b.txt").version == second.version
        big = os.urandom(3 << 20)
        assert files.write("big", io.BytesIO(big)).size == len(big)
        assert files.read("big") == big
        assert b"".join(files.chunks("big")) == big
        assert files.write("parts", (bytes([i]) * 1000 for i in range(10))).size == 10000
        odd = os.fsdecode(b"a/\xff")
        files.write(odd, b"odd")
        assert [f.path for f in files.list("a")] == ["b.txt", os.fsdecode(b"\xff")]
        assert files.copy("a", "c").type == "folder"
        assert files.move("c", "d").path == "/home/agent/d"
        assert [f.path for f in files.list(depth=2, glob="*.txt")] == ["a/b.txt", "d/b.txt"]
        assert files.set_mode("d", 0o700).mode == 0o700
        assert files.make_dir("e/f", parents=True).type == "folder"
        assert files.remove("d", recursive=True) == 3
        assert files.remove("d", missing_ok=True) == 0
        assert files.exists("e")


def test_trees_go_as_archives(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as sbx:
        files = sbx.files
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo("d/f")
            info.size = 300000
            tar.addfile(info, io.BytesIO(b"x" * 300000))
        with pytest.raises(stockade.DataLoss):
            files.upload_archive("cut", out.getvalue()[:200000])
        with pytest.raises(stockade.InvalidArgument):
            files.upload_archive("bad", b"x" * 10240)
        with pytest.raises(stockade.ResourceExhausted):
            files.upload_archive("big", out.getvalue(), bytes_max=1000)
        assert files.upload_archive("up", io.BytesIO(out.getvalue())) == 1
        back = io.BytesIO(b"".join(files.download_archive("up")))
        with tarfile.open(fileobj=back) as tar:
            assert tar.getnames() == ["d", "d/f"]


def test_compressed_archives_are_bounded_by_their_ratio(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as sbx:
        files = sbx.files
        files.write("d/zeros", bytes(8 << 20), parents=True)
        small = b"".join(files.download_archive("d", compressed=True))
        assert len(small) < 4096
        with pytest.raises(stockade.ResourceExhausted, match="more than 1000 times"):
            files.upload_archive("e", small, compressed=True)
        with pytest.raises(stockade.DataLoss):
            files.upload_archive("e", small)
        assert files.upload_archive("e", small, compressed=True, ratio_max=100_000) == 1
        assert files.stat("e/zeros").size == 8 << 20


def test_folders_go_and_come_back(client: stockade.Client, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "big").write_bytes(os.urandom(3 << 20))
    (tree / "a" / "b" / os.fsdecode(b"\xff")).write_text("odd")
    (tree / "l").symlink_to("a/big")
    with stockade.Sandbox.create(client=client) as sbx:
        with pytest.raises(NotADirectoryError):
            sbx.files.upload_folder(tree / "a" / "big", "x")
        with pytest.raises(stockade.ResourceExhausted):
            sbx.files.upload_folder(tree, "x", bytes_max=1000)
        assert sbx.files.upload_folder(tree, "up/x") == 5
        assert sbx.run("sh", "-c", "wc -c < up/x/l").stdout.strip() == str(3 << 20)
        with pytest.raises(stockade.FailedPrecondition):
            sbx.files.download_folder("up/x/a/big", tmp_path / "no")
        assert sbx.files.download_folder("up", tmp_path / "back") == 6
        same = subprocess.run(["diff", "-r", tree, tmp_path / "back" / "x"], check=False)
        assert same.returncode == 0
        sbx.run("ln", "-s", "/etc", "up/out")
        with pytest.raises(stockade.InvalidArgument) as out:
            sbx.files.download_folder("up", tmp_path / "hostile")
        assert out.value.reason == "LINK_LEADS_OUT"


def test_changes_are_reported_as_they_happen(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as sbx:
        with pytest.raises(stockade.NotFound):
            sbx.files.watch("no")
        sbx.files.make_dir("d/e", parents=True)
        with sbx.files.watch("d", recursive=True) as watch:
            assert watch.folders == 2
            sbx.run("sh", "-c", "echo > d/f; mv d/f d/e/g; rm -r d")
            events = [(e.change, e.before, e.path) for e in watch]
        assert {("create", "", "f"), ("rename", "f", "e/g"), ("remove", "", "e")} <= set(events)
        assert events[-1] == ("remove", "", ".")


def test_a_full_disk_is_reported_by_the_write(client: stockade.Client) -> None:
    limits = stockade.Limits(disk="2M")
    with stockade.Sandbox.create(client=client, limits=limits) as sbx:
        with pytest.raises(stockade.ResourceExhausted) as full:
            sbx.files.write("big", (b"x" * 100000 for _ in range(100)))
        assert full.value.reason == "DISK_FULL"
        assert not sbx.files.exists("big")


def test_the_same_with_asyncio(client: stockade.Client, tmp_path: Path) -> None:
    async def work() -> None:
        async with aio.Client(client.address) as c, await aio.Sandbox.create(client=c) as sbx:
            files = sbx.files
            data = os.urandom(2 << 20)
            await files.write("f", io.BytesIO(data))
            assert await files.read("f") == data
            assert b"".join([part async for part in files.chunks("f")]) == data
            assert [f.path async for f in files.list()] == ["f"]
            assert await files.download_folder(".", tmp_path / "async") == 1
            assert await files.upload_folder(tmp_path / "async", "g") == 1
            assert await files.read("g/f") == data
            async with await files.watch() as watch:
                await files.remove("f")
                assert (await watch.__anext__()).change == "remove"
            assert not await files.exists("f")

    asyncio.run(work())
