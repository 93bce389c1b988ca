# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox, for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade.both import each, now
from stockade.filing import (
    Contents,
    FileEvent,
    FileInfo,
    FilePath,
    Filing,
    Watching,
    bounds,
)
from stockade.scoped import Scoped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stockade.folders import LocalPath
    from stockade.limits import Size


class Watch(Watching, Scoped):
    """Changes of files, as an iterator. Close it, or use it in a ``with`` block."""

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileEvent:
        event = now(self._next())
        if event is None:
            raise StopIteration
        return event

    def _exit(self, error: Optional[BaseException]) -> None:
        self.close()


class Files(Filing):
    """The files of a sandbox (``Sandbox.files``), as its jobs see them.

    A relative path begins at the template's working directory. A symbolic link never leads out of
    the sandbox. Names that are not UTF-8 are text as ``os.fsdecode`` makes it, or bytes.
    """

    def stat(self, path: FilePath, *, follow: bool = False) -> FileInfo:
        """Describe a file; with ``follow`` what a symbolic link leads to.

        ``NotFound``: it does not exist.
        """
        return now(self._stat(path, follow))

    def exists(self, path: FilePath) -> bool:
        """Return whether there is a file."""
        return now(self._exists(path))

    def list(
        self, path: FilePath = ".", *, depth: int = 1, glob: Optional[FilePath] = None
    ) -> Iterator[FileInfo]:
        """Iterate over the files in a folder, sorted by path.

        ``depth``  levels below the folder, up to 64
        ``glob``   only names that match; with ``/`` the path below the folder is compared
        """
        return each(self._list(path, depth, glob))

    def chunks(self, path: FilePath, *, offset: int = 0, length: int = 0) -> Iterator[bytes]:
        """Iterate over the contents of a regular file, or ``length`` bytes of it.

        An iteration that ends without an exception is complete.
        """
        return each(self._chunks(path, offset, length))

    def read(
        self,
        path: FilePath,
        *,
        offset: int = 0,
        length: int = 0,
        max_bytes: Size = 64 * 1024 * 1024,
    ) -> bytes:
        """Return the contents of a regular file, or ``length`` bytes of it.

        ``DataLoss``: more than ``max_bytes`` bytes. ``FailedPrecondition``: it is no regular
        file.
        """
        return now(self._read(path, offset, length, max_bytes))

    def read_text(self, path: FilePath, *, max_bytes: Size = 64 * 1024 * 1024) -> str:
        """Return the contents of a regular file as text (UTF-8)."""
        return now(self._read(path, 0, 0, max_bytes)).decode()

    def write(
        self,
        path: FilePath,
        contents: Contents,
        *,
        mode: int = 0,
        parents: bool = False,
        only_if_absent: bool = False,
        if_version: str = "",
    ) -> FileInfo:
        """Write a file as a whole: a reader sees the old contents or the new ones.

        ``contents``        bytes, text (as UTF-8), a binary file, or an iterable of bytes
        ``mode``            permissions; 0: those of the file that it replaces, or 0o644
        ``parents``         make the folders that are missing
        ``only_if_absent``  raise ``AlreadyExists`` if something is there
        ``if_version``      raise ``Aborted`` unless the file has this version
        """
        return now(self._write(path, contents, mode, parents, only_if_absent, if_version))

    def upload_archive(
        self,
        path: FilePath,
        archive: Contents,
        *,
        compressed: bool = False,
        bytes_max: Size = 0,
        entries_max: int = 0,
        ratio_max: int = 0,
    ) -> int:
        """Unpack a tar archive into a folder, and return the number of files and folders.

        ``archive``      bytes, a binary file, or an iterable of bytes
        ``compressed``   it is a .tar.zst
        ``bytes_max``    maximum size of all files, or ``"1G"``; 0: no bound but the sandbox's disk
        ``entries_max``  maximum number of files and folders; 0: 1,000,000
        ``ratio_max``    how many times as large it may become, beyond the first MiB; 0: 1,000

        ``InvalidArgument``: the archive is damaged, or leads out of the folder. ``DataLoss``: it
        ends early. What came before stays.
        """
        return now(
            self._upload(path, archive, bounds(bytes_max, entries_max, ratio_max), compressed)
        )

    def download_archive(
        self,
        path: FilePath,
        *,
        compressed: bool = False,
        bytes_max: Size = 0,
        entries_max: int = 0,
    ) -> Iterator[bytes]:
        """Iterate over a tar archive of a file, or of what a folder holds.

        ``compressed``   as a .tar.zst
        ``bytes_max``    maximum size of all files, or ``"1G"``; 0: no bound
        ``entries_max``  maximum number of files and folders; 0: 1,000,000

        A job may have made any file and link in it: ``download_folder`` unpacks it safely.
        """
        return each(self._download(path, bounds(bytes_max, entries_max), compressed))

    def upload_folder(
        self, folder: LocalPath, path: FilePath, *, bytes_max: Size = 0, entries_max: int = 0
    ) -> int:
        """Upload what a folder of this machine holds, and return the number of files and folders.

        ``folder``       of this machine
        ``path``         the folder in the sandbox; it is made if it is missing
        ``bytes_max``    maximum size of all files, or ``"1G"``; 0: no bound but the sandbox's disk
        ``entries_max``  maximum number of files and folders; 0: 1,000,000

        Symbolic links go as such. FIFOs, sockets and devices are left out.
        """
        return now(self._upload_folder(folder, path, bounds(bytes_max, entries_max)))

    def download_folder(
        self, path: FilePath, folder: LocalPath, *, bytes_max: Size = 0, entries_max: int = 0
    ) -> int:
        """Download what a folder of the sandbox holds, and return the number of files and folders.

        ``path``         the folder in the sandbox
        ``folder``       of this machine; it is made if it is missing
        ``bytes_max``    maximum size of all files, or ``"1G"``; 0: no bound
        ``entries_max``  maximum number of files and folders; 0: 1,000,000

        Existing files are replaced. Nothing is written outside of the folder, whatever a job has
        made. ``InvalidArgument``: a symbolic link leads out of it (``LINK_LEADS_OUT``), or the
        archive is damaged; what came before stays.
        """
        return now(self._download_folder(path, folder, bounds(bytes_max, entries_max)))

    def make_dir(self, path: FilePath, *, mode: int = 0, parents: bool = False) -> FileInfo:
        """Make a folder; with ``parents`` those above it, too, and it may exist."""
        return now(self._make_dir(path, mode, parents))

    def move(
        self,
        path: FilePath,
        to: FilePath,
        *,
        parents: bool = False,
        only_if_absent: bool = False,
    ) -> FileInfo:
        """Rename a file or folder."""
        return now(self._move(path, to, parents, only_if_absent))

    def copy(self, path: FilePath, to: FilePath, *, parents: bool = False) -> FileInfo:
        """Copy a file, or a folder with everything in it, inside the sandbox."""
        return now(self._copy(path, to, parents))

    def remove(self, path: FilePath, *, recursive: bool = False, missing_ok: bool = False) -> int:
        """Remove a file or folder, and return the number of files that were removed."""
        return now(self._remove(path, recursive, missing_ok))

    def watch(self, path: FilePath = ".", *, recursive: bool = False) -> Watch:
        """Watch a file, or what a folder holds; it has begun when this returns.

        ``recursive``  also the folders below it; symbolic links are not followed

        The iteration ends when the folder is removed or renamed. Writes to the same file are
        joined; writes through ``mmap`` are not seen. ``ResourceExhausted``: more than 16,384
        folders.
        """
        return Watch(*now(self._watch(path, recursive)))

    def set_mode(self, path: FilePath, mode: int) -> FileInfo:
        """Set the permissions of a file or folder."""
        return now(self._set_mode(path, mode))
