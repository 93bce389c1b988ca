# SPDX-License-Identifier: Apache-2.0
"""Folders of this machine as tar archives.

An archive that comes from a sandbox is hostile: a job may have made any file, and any bytes. It is
unpacked by descriptors of folders, each opened from the one above and never through a link, so
nothing is written outside of the chosen folder. Only what the broker packs is accepted: files,
folders and symbolic links that stay in the folder, with GNU's headers for long names.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Union

from stockade.errors import DataLoss, InvalidArgument, ResourceExhausted

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A path of this machine.
LocalPath = Union[str, "os.PathLike[str]"]

BLOCK = 512
PIECE_BYTES = 60 * 1024
LEVELS_MAX = 128
NAME_BYTES_MAX = 4096
_HERE = ("", ".")
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)


def _header(path: str, kind: bytes, status: os.stat_result, link: str = "") -> bytes:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.mode = stat.S_IMODE(status.st_mode) & 0o777
    info.mtime = max(0, int(status.st_mtime))
    info.size = status.st_size if kind == tarfile.REGTYPE else 0
    info.linkname = link
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _file(folder: int, name: str, path: str) -> Iterator[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path}: it is no regular file any more")
        yield _header(path, tarfile.REGTYPE, status)
        left = status.st_size
        while left > 0:
            # one that becomes shorter meanwhile is filled up, since its size has been sent
            data = os.read(fd, min(left, PIECE_BYTES)) or bytes(min(left, PIECE_BYTES))
            yield data
            left -= len(data)
        yield bytes(-status.st_size % BLOCK)
    finally:
        os.close(fd)


def _folder(fd: int, path: str, level: int) -> Iterator[bytes]:
    if level > LEVELS_MAX:
        raise ResourceExhausted(f"{path[:100]}...: more than {LEVELS_MAX} levels")
    for name in sorted(os.listdir(fd)):
        below = f"{path}{name}"
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            yield from _file(fd, name, below)
        elif stat.S_ISLNK(status.st_mode):
            yield _header(below, tarfile.SYMTYPE, status, os.readlink(name, dir_fd=fd))
        elif stat.S_ISDIR(status.st_mode):
            inner = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
            )
            try:
                yield _header(f"{below}/", tarfile.DIRTYPE, status)
                yield from _folder(inner, f"{below}/", level + 1)
            finally:
                os.close(inner)


def pack(folder: LocalPath) -> Iterator[bytes]:
    """Yield an archive of what a folder holds. FIFOs, sockets and devices are left out."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from _folder(fd, "", 1)
        yield bytes(2 * BLOCK)
    finally:
        os.close(fd)


def refused(name: str, why: str, reason: str = "ARCHIVE_REFUSED") -> InvalidArgument:
    """Return the error for an entry that is not unpacked."""
    return InvalidArgument(f"unpack {name[:200]!r}: {why}", reason=reason)


def _names(path: str) -> list[str]:
    names = [n for n in path.split("/") if n not in _HERE]
    if path.startswith("/") or ".." in names or "\0" in path:
        raise refused(path, "the name is absolute, or has '..' or NUL")
    if len(names) > LEVELS_MAX:
        raise refused(path, "it has too many levels")
    return names


def stays(depth: int, target: str) -> bool:
    """Return whether a symbolic link, so many folders deep, leads to somewhere in the folder.

    The folders above it are no links, so as many ``..`` as there are folders stay inside. After
    another name ``..`` may lead anywhere, because that name can be a link.
    """
    names = [n for n in target.split("/") if n not in _HERE]
    up = 0
    while up < len(names) and names[up] == "..":
        up += 1
    return bool(target) and not target.startswith("/") and up <= depth and ".." not in names[up:]


class Unpacker:
    """Unpacks an archive into a folder, in parts of any size. Existing files are replaced."""

    def __init__(self, folder: LocalPath) -> None:
        with suppress(FileExistsError):
            Path(folder).mkdir()
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._block = bytearray()  # of a header, or of a long name
        self._want = BLOCK
        self._long = b""  # b"L", b"K": of the block
        self._texts: dict[bytes, str] = {}  # long names, for the next entry
        self._fd = -1
        self._left = 0  # bytes of a file
        self._padding = 0
        self._info: tarfile.TarInfo | None = None  # of the file
        self._ended = False
        #: Files, folders and links so far.
        self.entries = 0

    def feed(self, data: bytes) -> None:
        """Take the next part."""
        view = memoryview(data)
        while view and not self._ended:
            if self._left > 0:
                n = os.write(self._fd, view[: self._left])
                self._left -= n
                if self._left == 0:
                    self._end_file()
            elif self._padding > 0:
                n = min(len(view), self._padding)
                self._padding -= n
            else:
                n = min(len(view), self._want - len(self._block))
                self._block += view[:n]
                if len(self._block) == self._want:
                    self._take(bytes(self._block))
            view = view[n:]

    def finish(self) -> int:
        """Return the number of entries. ``DataLoss``: the archive ended early."""
        if not self._ended:
            raise DataLoss("the archive ends early", reason="ARCHIVE_CUT")
        return self.entries

    def close(self) -> None:
        """Close what is open."""
        for fd in (self._fd, self._root):
            if fd >= 0:
                os.close(fd)
        self._fd = self._root = -1

    def _take(self, block: bytes) -> None:
        self._block.clear()
        self._want = BLOCK
        if self._long:
            self._texts[self._long] = os.fsdecode(block.split(b"\0", 1)[0])
            self._long = b""
            return
        if not any(block):
            self._ended = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as e:
            raise refused("an archive", "a header is damaged") from e
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            if not 0 < info.size <= NAME_BYTES_MAX:
                raise refused("an archive", "a name is too long")
            self._long = info.type
            self._want = info.size + -info.size % BLOCK
            return
        info.name = self._texts.pop(tarfile.GNUTYPE_LONGNAME, info.name)
        info.linkname = self._texts.pop(tarfile.GNUTYPE_LONGLINK, info.linkname)
        self._entry(info)

    def _entry(self, info: tarfile.TarInfo) -> None:
        names = _names(info.name)
        self.entries += 1
        if not names:
            return  # the folder itself
        folder = self._enter(names[:-1], info.name)
        try:
            if info.isdir():
                self._make_folder(folder, names[-1], info)
            elif info.issym():
                if not stays(len(names) - 1, info.linkname):
                    why = "the symbolic link leads out of the folder"
                    raise refused(info.name, why, "LINK_LEADS_OUT")
                self._remove(folder, names[-1])
                os.symlink(info.linkname, names[-1], dir_fd=folder)
            elif info.type in _FILES and info.size >= 0:
                self._begin_file(folder, names[-1], info)
            else:
                raise refused(info.name, "only files, folders and symbolic links are unpacked")
        finally:
            os.close(folder)

    def _enter(self, names: list[str], path: str) -> int:
        fd = os.dup(self._root)
        for name in names:
            above = fd
            try:
                fd = self._open_folder(above, name, path)
            finally:
                os.close(above)
        return fd

    def _open_folder(self, above: int, name: str, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=above)
        try:
            return os.open(name, flags, dir_fd=above)
        except OSError as e:
            if e.errno in (errno.ENOTDIR, errno.ELOOP):
                raise refused(path, "a link or a file is on the way to it") from e
            raise

    def _remove(self, folder: int, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)

    def _make_folder(self, folder: int, name: str, info: tarfile.TarInfo) -> None:
        inner = self._open_folder(folder, name, info.name)
        try:
            os.fchmod(inner, info.mode & 0o777 | 0o700)  # its files may follow
        finally:
            os.close(inner)

    def _begin_file(self, folder: int, name: str, info: tarfile.TarInfo) -> None:
        self._remove(folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(name, flags, 0o600, dir_fd=folder)
        self._info = info
        self._left = info.size
        self._padding = -info.size % BLOCK
        if self._left == 0:
            self._end_file()

    def _end_file(self) -> None:
        assert self._info is not None
        os.fchmod(self._fd, self._info.mode & 0o777)
        if self._info.mtime > 0:
            os.utime(self._fd, (self._info.mtime, self._info.mtime))
        os.close(self._fd)
        self._fd = -1
