# SPDX-License-Identifier: Apache-2.0
"""Archives that a sandbox may send: nothing is written outside of the chosen folder."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

import stockade
from stockade import folders

if TYPE_CHECKING:
    from pathlib import Path


def entry(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **more: Any) -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    info.mode = 0o644
    for key, value in more.items():
        setattr(info, key, value)
    padded = data + bytes(-len(data) % 512)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + padded


def unpack(folder: Path, data: bytes, step: int) -> int:
    into = folders.Unpacker(folder)
    try:
        for at in range(0, len(data), step):
            into.feed(data[at : at + step])
        return into.finish()
    finally:
        into.close()


END = bytes(1024)
LINK = tarfile.SYMTYPE

HOSTILE = {
    "dots": entry("../out", data=b"x"),
    "dots inside": entry("a/../../out", data=b"x"),
    "absolute": entry("/tmp/out", data=b"x"),
    "link out": entry("l", LINK, linkname="../x"),
    "absolute link": entry("l", LINK, linkname="/etc"),
    "link out, behind a dot": entry("./l", LINK, linkname="../x"),
    "link out by way of a link": entry("d/b", LINK, linkname="..")
    + entry("d/a", LINK, linkname="b/../.."),
    "through a link": entry("l", LINK, linkname="d") + entry("d", tarfile.DIRTYPE) + entry("l/f"),
    "through a file": entry("f", data=b"x") + entry("f/g", data=b"x"),
    "folder in the place of a link": entry("l", LINK, linkname="d") + entry("l", tarfile.DIRTYPE),
    "hard link": entry("h", tarfile.LNKTYPE, linkname="/etc/passwd"),
    "device": entry("d", tarfile.CHRTYPE),
    "FIFO": entry("p", tarfile.FIFOTYPE),
    "sparse": entry("s", tarfile.GNUTYPE_SPARSE),
    "deep": entry("a/" * 129 + "f"),
    "damaged": b"x" * 512,
    "a name without end": entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=1 << 40),
    "cut in a header": entry("f", data=b"x")[:100],
    "cut in a file": entry("f", data=b"x" * 5000)[:2000],
    "no end": entry("f", data=b"x"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("step", [1, 511, 1 << 20])
def test_a_hostile_archive_is_refused_and_writes_nothing_outside(
    tmp_path: Path, name: str, step: int
) -> None:
    (tmp_path / "x").write_text("kept")
    data = HOSTILE[name] + (b"" if name.startswith(("cut", "no end")) else END)
    with pytest.raises((stockade.InvalidArgument, stockade.DataLoss)) as why:
        unpack(tmp_path / "in", data, step)
    assert why.value.reason in {"ARCHIVE_REFUSED", "LINK_LEADS_OUT", "ARCHIVE_CUT"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "x"]
    assert (tmp_path / "x").read_text() == "kept"
    assert not os.path.lexists("/tmp/out")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").symlink_to("../kept")
    assert unpack(tmp_path / "in", entry("f", data=b"new", mode=0o6755) + END, 512) == 1
    assert (tmp_path / "kept").read_text() == "kept"
    assert (tmp_path / "in" / "f").read_text() == "new"
    assert (tmp_path / "in" / "f").stat().st_mode & 0o7777 == 0o755


def test_what_is_packed_comes_out_the_same(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    odd = os.fsdecode(b"\xff\n")
    long = "n" * 200
    (tree / long / long).mkdir(parents=True)
    (tree / long / long / odd).write_bytes(b"x" * 100_001)
    (tree / "empty").write_bytes(b"")
    (tree / long / "l").symlink_to("../" + long)
    os.mkfifo(tree / "p")
    data = b"".join(folders.pack(tree))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert len(tar.getnames()) == 5
    assert unpack(tmp_path / "back", data, 1000) == 5
    assert (tmp_path / "back" / long / long / odd).read_bytes() == b"x" * 100_001
    assert (tmp_path / "back" / "empty").stat().st_size == 0
    assert str((tmp_path / "back" / long / "l").readlink()) == "../" + long
    assert not (tmp_path / "back" / "p").exists()
