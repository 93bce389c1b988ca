# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox: what threads and asyncio have in common (``both``)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from stockade import folders, methods
from stockade.errors import (
    BrokerUnreachable,
    ConnectionLost,
    DataLoss,
    FailedPrecondition,
    NotFound,
    ProtocolError,
    StockadeError,
)
from stockade.fields import is_a, made, utf8, wrong
from stockade.limits import Size, named, size_bytes
from stockade.v1 import file_service_pb2, snapshot_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stockade.calls import Ahead, Caller, Stream
    from stockade.folders import LocalPath

#: A path in a sandbox. A name that is not UTF-8 is bytes, or text of ``os.fsdecode``.
FilePath = Union[str, bytes, "os.PathLike[str]"]

#: What a file may be written from.
Contents = Union[str, bytes, bytearray, memoryview, "Iterable[bytes]", Any]

PIECE_BYTES = 256 * 1024
WINDOW = 3  # calls of Send without an answer: the broker queues 1 MiB of a transfer
WHOLE_BYTES = 1024 * 1024  # of one call of Write

_TYPES: dict[int, Literal["file", "folder", "link", "other"]] = {
    file_service_pb2.FILE_TYPE_FILE: "file",
    file_service_pb2.FILE_TYPE_FOLDER: "folder",
    file_service_pb2.FILE_TYPE_LINK: "link",
}


@dataclass(frozen=True)
class FileInfo:
    """A file of a sandbox."""

    #: Its path: as it was given, or below the folder that was listed (``os.fsencode``: its bytes).
    path: str
    #: ``"file"``, ``"folder"``, ``"link"``, or ``"other"``: a FIFO, a socket, a device.
    type: Literal["file", "folder", "link", "other"]
    #: Size of a regular file in bytes.
    size: int
    #: Permissions, as ``chmod`` has them.
    mode: int
    #: When its contents last changed.
    modified: datetime
    #: The target of a symbolic link, or "".
    target: str
    #: Changes whenever the file changes; ``write`` takes it as ``if_version``.
    version: str


@dataclass(frozen=True)
class Change:
    """A file that differs between two states of a sandbox's files."""

    #: ``"added"``, ``"changed"`` (type, permissions, contents or target), or ``"removed"``.
    kind: Literal["added", "changed", "removed"]
    #: Its absolute path (``os.fsencode``: its bytes).
    path: str
    #: As it was; None: it was added. ``path`` is the same.
    before: Optional[FileInfo]
    #: As it is; None: it was removed.
    after: Optional[FileInfo]
    #: Changed, and the contents differ.
    contents: bool
    #: The sandbox's user may not read it, so size and time were compared, or what the folder holds
    #: is missing.
    unreadable: bool


@dataclass(frozen=True)
class FileEvent:
    """A change that ``Files.watch`` reports."""

    #: What happened. ``"overflow"``: changes before this were lost, because there were too many:
    #: list the folder again. ``"unwatched"``: in some folders nothing is reported, because there
    #: are too many, or they are not readable.
    change: Literal[
        "create", "write", "remove", "rename", "chmod", "overflow", "unwatched", "unknown"
    ]
    #: The path below the folder; ``"."`` is the folder itself. Of a file: its name.
    path: str = ""
    #: Of a renaming: the path before.
    before: str = ""
    #: It is a folder.
    folder: bool = False


_EVENTS: dict[int, Literal["create", "write", "remove", "rename", "chmod"]] = {
    file_service_pb2.FILE_CHANGE_CREATE: "create",
    file_service_pb2.FILE_CHANGE_WRITE: "write",
    file_service_pb2.FILE_CHANGE_REMOVE: "remove",
    file_service_pb2.FILE_CHANGE_RENAME: "rename",
    file_service_pb2.FILE_CHANGE_CHMOD: "chmod",
}


def path_bytes(path: FilePath, what: str = "path") -> bytes:
    """Return a path as the broker takes it. ``TypeError`` or ``ValueError`` names what is none."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise wrong(what, path, "text, bytes or a path")
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{what}={path!r}: has a surrogate that stands for no byte") from None
    if not data:
        raise ValueError(f"{what}: must not be empty")
    return data


def path_text(path: bytes) -> str:
    """Return a path of the broker as text."""
    return os.fsdecode(path)


_CHANGES: dict[int, Literal["added", "changed", "removed"]] = {
    1: "added",
    2: "changed",
    3: "removed",
}


def change(message: snapshot_service_pb2.Change) -> Change:
    """Return a change from its message."""
    path = os.fsdecode(message.path)
    return Change(
        kind=_CHANGES.get(message.kind, "changed"),
        path=path,
        before=replace(file_info(message.before), path=path)
        if message.HasField("before")
        else None,
        after=replace(file_info(message.after), path=path) if message.HasField("after") else None,
        contents=message.contents,
        unreadable=message.unreadable,
    )


def file_info(message: file_service_pb2.File) -> FileInfo:
    """Return a file from its message."""
    at = message.modify_time
    return FileInfo(
        path=os.fsdecode(message.path),
        type=_TYPES.get(message.type, "other"),
        size=message.size,
        mode=message.mode,
        modified=datetime.fromtimestamp(at.seconds + at.nanos / 1e9, timezone.utc),
        target=os.fsdecode(message.target),
        version=message.version,
    )


def check_contents(what: str, contents: Contents, expected: str) -> None:
    """Raise the ``TypeError`` for what gives no bytes."""
    if not isinstance(contents, (Iterable, memoryview)) and not hasattr(contents, "read"):
        raise wrong(what, contents, expected)


def archive_pieces(archive: Contents) -> Iterator[bytes]:
    """Return ``pieces`` of an archive, which is no text."""
    expected = "bytes, a binary file or an iterable of bytes"
    if isinstance(archive, str):
        hint = "; open(path, 'rb') gives the bytes of a file"
        raise wrong("archive", archive, expected + hint)
    check_contents("archive", archive, expected)
    return pieces(archive, "archive")


def pieces(contents: Contents, what: str = "contents") -> Iterator[bytes]:
    """Yield what is written, in pieces that a call may carry."""
    if isinstance(contents, str):
        contents = utf8(what, contents)
    if isinstance(contents, (bytes, bytearray, memoryview)):
        view = memoryview(contents).cast("B")
        for at in range(0, len(view), PIECE_BYTES):
            yield bytes(view[at : at + PIECE_BYTES])
        return
    read = getattr(contents, "read", None)
    source: Iterable[bytes] = contents if read is None else iter(lambda: read(PIECE_BYTES), b"")
    for data in source:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"{what}: bytes are needed, not {type(data).__name__}"
                + ("; open the file with 'rb'" if read is not None else "")
            )
        yield from pieces(data, what)


async def transfer(client: Caller, method: Any, request: Any, data: Iterable[bytes]) -> Any:
    """Send all bytes of a transfer, and return its last message."""
    stream: Stream[Any] = await client._stream(method, request)
    try:
        first = await stream._get(None)
        if first is None or not first.transfer_id:
            raise ProtocolError("the broker began a transfer without an id")
        await _send_all(client, first.transfer_id, data)
        last = await stream._get(None)
        if last is None or await stream._get(None) is not None:
            raise ProtocolError("the broker ended a transfer without a result")
        return last
    finally:
        stream.cancel()


async def _send_all(client: Caller, transfer_id: str, data: Iterable[bytes]) -> None:
    at = 0
    window: deque[Ahead] = deque()
    try:
        for piece in data:
            request = made(
                file_service_pb2.FileServiceSendRequest,
                transfer_id=transfer_id,
                offset=at,
                data=piece,
            )
            if len(window) == WINDOW:
                await window.popleft().done()
            window.append(await client._ahead(methods.FILE_SEND, request))
            at += len(piece)
        while window:
            await window.popleft().done()
        end = made(file_service_pb2.FileServiceFinishRequest, transfer_id=transfer_id, bytes=at)
        await client._call(methods.FILE_FINISH, end)
    except NotFound as e:
        if e.reason != "TRANSFER_UNKNOWN":  # otherwise the stream has the reason
            raise
    except (BrokerUnreachable, ConnectionLost) as e:  # a piece was not sent; the transfer had begun
        raise ConnectionLost(e.message, method=methods.FILE_SEND.path) from e
    finally:
        for call in window:
            call.cancel()


class Watching:
    """A stream of changes, and those of its last message."""

    def __init__(self, stream: Stream[Any], folders: int) -> None:
        self._stream = stream
        self._events: list[FileEvent] = []  # the next one is the last
        self._unwatched = 0
        #: Number of folders that were watched at the beginning.
        self.folders = folders

    def close(self) -> None:
        """End the watch."""
        self._stream.cancel()

    def _take(self, message: file_service_pb2.FileServiceWatchResponse) -> None:
        events = [FileEvent("overflow")] if message.overflow else []
        if message.unwatched > self._unwatched:
            events.append(FileEvent("unwatched"))
        self._unwatched = message.unwatched
        events += [
            FileEvent(
                _EVENTS.get(e.change, "unknown"),
                os.fsdecode(e.path),
                os.fsdecode(e.before),
                e.folder,
            )
            for e in message.events
        ]
        self._events = events[::-1]

    async def _next(self) -> Optional[FileEvent]:
        while not self._events:
            message = await self._stream._get(None)
            if message is None:
                return None
            self._take(message)
        return self._events.pop()


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    kept = bytearray()
    for part in parts:
        kept += part
        if len(kept) >= PIECE_BYTES // 2:
            yield bytes(kept)
            kept.clear()
    yield bytes(kept)


def bounds(bytes_max: Size, entries_max: int, ratio_max: int = 0) -> dict[str, int]:
    """Return the fields of a request that bound an archive."""
    most = named("bytes_max", size_bytes, bytes_max)
    fields = {"bytes_max": most, "entries_max": entries_max}
    return {**fields, "ratio_max": ratio_max} if ratio_max else fields


def _form(compressed: bool) -> int:
    zst = is_a(bool, "compressed", compressed)
    form = file_service_pb2.ARCHIVE_FORMAT_TAR_ZST if zst else 0
    return int(form)


class Filing:
    """The calls of ``FileService`` for one sandbox."""

    def __init__(self, client: Caller, sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    def _request(self, kind: Any, path: FilePath, **fields: Any) -> Any:
        return made(kind, sandbox_id=self._sandbox, path=path_bytes(path), **fields)

    async def _stat(self, path: FilePath, follow: bool) -> FileInfo:
        request = self._request(file_service_pb2.FileServiceStatRequest, path, follow=follow)
        return file_info((await self._client._call(methods.FILE_STAT, request)).file)

    async def _exists(self, path: FilePath) -> bool:
        try:
            await self._stat(path, follow=False)
        except NotFound as e:
            if e.reason != "FILE_NOT_FOUND":
                raise
            return False
        return True

    async def _list(
        self, path: FilePath, depth: int, glob: Optional[FilePath]
    ) -> AsyncIterator[FileInfo]:
        request = self._request(file_service_pb2.FileServiceListRequest, path, depth=depth)
        request.page_size = 1000
        if glob is not None:
            request.glob = path_bytes(glob, "glob")
        async for page in self._client._pages(methods.FILE_LIST, request):
            for message in page.files:
                yield file_info(message)

    async def _chunks(self, path: FilePath, offset: int, length: int) -> AsyncIterator[bytes]:
        request = self._request(
            file_service_pb2.FileServiceReadRequest, path, offset=offset, length=length
        )
        stream: Stream[Any] = await self._client._stream(methods.FILE_READ, request)
        try:
            while (message := await stream._get(None)) is not None:
                if message.data:
                    yield message.data
        finally:
            stream.cancel()

    async def _read(self, path: FilePath, offset: int, length: int, max_bytes: Size) -> bytes:
        most = named("max_bytes", size_bytes, max_bytes)
        got = bytearray()
        async for data in self._chunks(path, offset, length):
            got += data
            if len(got) > most:
                raise DataLoss(
                    f"{path!r} has more than max_bytes={most}; read it with chunks()",
                    method=methods.FILE_READ.path,
                )
        return bytes(got)

    async def _write(
        self,
        path: FilePath,
        contents: Contents,
        mode: int,
        parents: bool,
        only_if_absent: bool,
        if_version: str,
    ) -> FileInfo:
        options = made(
            file_service_pb2.WriteOptions,
            as_={"only_if_version": "if_version"},
            mode=mode,
            parents=parents,
            only_if_absent=only_if_absent,
            only_if_version=if_version,
        )
        check_contents("contents", contents, "text, bytes, a binary file or an iterable of bytes")
        if isinstance(contents, str):
            contents = utf8("contents", contents)
        if isinstance(contents, (bytes, bytearray)) and len(contents) <= WHOLE_BYTES:
            request = self._request(
                file_service_pb2.FileServiceWriteRequest,
                path,
                data=bytes(contents),
                options=options,
            )
            return file_info((await self._client._call(methods.FILE_WRITE, request)).file)
        opened = self._request(file_service_pb2.FileServiceOpenWriteRequest, path, options=options)
        last = await self._transfer(methods.FILE_OPEN_WRITE, opened, pieces(contents))
        return file_info(last.file)

    async def _upload(
        self, path: FilePath, archive: Contents, bounds: dict[str, int], compressed: bool = False
    ) -> int:
        request = self._request(
            file_service_pb2.FileServiceUploadRequest, path, format=_form(compressed), **bounds
        )
        last = await self._transfer(methods.FILE_UPLOAD, request, archive_pieces(archive))
        entries: int = last.counts.entries
        return entries

    async def _download(
        self, path: FilePath, bounds: dict[str, int], compressed: bool = False
    ) -> AsyncIterator[bytes]:
        request = self._request(
            file_service_pb2.FileServiceDownloadRequest, path, format=_form(compressed), **bounds
        )
        stream: Stream[Any] = await self._client._stream(methods.FILE_DOWNLOAD, request)
        whole = False
        try:
            while (message := await stream._get(None)) is not None:
                whole |= message.HasField("counts")
                if message.data:
                    yield message.data
        finally:
            stream.cancel()
        if not whole:
            raise ProtocolError("the broker ended an archive without a result")

    async def _upload_folder(
        self, folder: LocalPath, path: FilePath, bounds: dict[str, int]
    ) -> int:
        # as large as the packets that go to the sandbox: an archive has many small parts
        return await self._upload(path, _joined(folders.pack(folder)), bounds)

    async def _download_folder(
        self, path: FilePath, folder: LocalPath, bounds: dict[str, int]
    ) -> int:
        if (await self._stat(path, follow=True)).type != "folder":
            raise FailedPrecondition(
                f"{path!r} is no folder; use read() or chunks()", reason="NOT_A_FOLDER"
            )
        into = folders.Unpacker(folder)
        try:
            async for data in self._download(path, bounds):
                into.feed(data)
            return into.finish()
        finally:
            into.close()

    async def _watch(self, path: FilePath, recursive: bool) -> tuple[Stream[Any], int]:
        request = self._request(file_service_pb2.FileServiceWatchRequest, path, recursive=recursive)
        stream: Stream[Any] = await self._client._stream(methods.FILE_WATCH, request)
        first = await stream._get(None)
        if first is None:
            raise ProtocolError("the broker ended a watch before it began")
        return stream, first.folders

    async def _transfer(self, method: Any, request: Any, data: Iterable[bytes]) -> Any:
        return await transfer(self._client, method, request, data)

    async def _make_dir(self, path: FilePath, mode: int, parents: bool) -> FileInfo:
        request = self._request(
            file_service_pb2.FileServiceMakeDirRequest, path, mode=mode, parents=parents
        )
        return file_info((await self._client._call(methods.FILE_MAKE_DIR, request)).file)

    async def _move(
        self, path: FilePath, to: FilePath, parents: bool, only_if_absent: bool
    ) -> FileInfo:
        request = self._request(
            file_service_pb2.FileServiceMoveRequest,
            path,
            to=path_bytes(to, "to"),
            parents=parents,
            only_if_absent=only_if_absent,
        )
        return file_info((await self._client._call(methods.FILE_MOVE, request)).file)

    async def _copy(self, path: FilePath, to: FilePath, parents: bool) -> FileInfo:
        request = self._request(
            file_service_pb2.FileServiceCopyRequest, path, to=path_bytes(to, "to"), parents=parents
        )
        return file_info((await self._client._call(methods.FILE_COPY, request)).file)

    async def _remove(self, path: FilePath, recursive: bool, missing_ok: bool) -> int:
        request = self._request(
            file_service_pb2.FileServiceRemoveRequest, path, recursive=recursive
        )
        try:
            return (await self._client._call(methods.FILE_REMOVE, request)).removed
        except StockadeError as e:
            if missing_ok and isinstance(e, NotFound) and e.reason == "FILE_NOT_FOUND":
                return 0
            raise

    async def _set_mode(self, path: FilePath, mode: int) -> FileInfo:
        request = self._request(file_service_pb2.FileServiceSetModeRequest, path, mode=mode)
        return file_info((await self._client._call(methods.FILE_SET_MODE, request)).file)
