"""A process in a sandbox, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import signal as signals
import time
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Optional

from stockade import methods, requests
from stockade.errors import (
    CallError,
    ConnectionLost,
    FailedPrecondition,
    NotFound,
    ProtocolError,
    ResourceExhausted,
)
from stockade.v1 import process_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from stockade.aio.client import Client, MessageStream
    from stockade.events import Collector, Event
    from stockade.requests import Feed
    from stockade.result import Result

# Seconds between attempts while the queue of a job's stdin is full.
_INPUT_DELAY_FIRST, _INPUT_DELAY_MOST = 0.002, 0.1


class Process:
    """A process that runs in a sandbox.

    Iterating over it gives its output as it comes (``Output``, ``Gap``) and ends when it is over.
    Read it from one thread at a time; everything else may be used from any thread. As a context
    manager it is killed at the end of the block when it still runs.
    """

    def __init__(
        self,
        client: Client,
        stream: MessageStream[Any],
        collector: Collector,
        *,
        resumable: bool,
    ) -> None:
        self._client = client
        self._stream = stream
        self._collector = collector
        self._resumable = resumable
        self._feeder: Optional[asyncio.Task[None]] = None
        self._feed_error: Optional[BaseException] = None

    @classmethod
    async def _open(
        cls,
        client: Client,
        stream: MessageStream[Any],
        collector: Collector,
        *,
        resumable: bool,
    ) -> Process:
        first = await stream.get(None)
        if first is None:
            raise ProtocolError("the broker ended the stream without a word")
        collector.feed(first.event)
        return cls(client, stream, collector, resumable=resumable)

    @property
    def id(self) -> str:
        """32 lower-case hex digits.

        ``Sandbox.attach`` finds the process by them. Empty when it never started.
        """
        return self._collector.process_id

    @property
    def sandbox_id(self) -> str:
        """The sandbox that it runs in."""
        return self._collector.sandbox_id

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self._collector.pid

    @property
    def result(self) -> Optional[Result]:
        """The result when its end has been read, else None."""
        return self._collector.result

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._next(None)
        if event is None:
            raise StopAsyncIteration
        return event

    async def _next(self, until: Optional[float]) -> Optional[Event]:
        while self._collector.result is None:
            try:
                message = await self._stream.get(until)
            except ConnectionLost as lost:
                await self._resume(lost)
                continue
            if message is None:
                self._collector.finish()
                break
            event = self._collector.feed(message.event)
            if event is not None:
                return event
        self._stream._leave()
        return None

    async def _resume(self, lost: ConnectionLost) -> None:
        """Attach again where the output broke off. The process itself went on."""
        if not self._resumable:
            raise lost
        request = process_service_pb2.AttachRequest(
            process_id=self.id, offset=self._collector.offset
        )
        try:
            self._stream = await self._client.stream(methods.ATTACH, request, resume=True)
        except NotFound as e:  # another broker answers
            raise lost from e

    async def wait(self, timeout: Optional[float] = None) -> Result:
        """Read to the end and return the result.

        ``timeout`` is in seconds: ``DeadlineExceeded`` (a ``TimeoutError``) is raised then, the
        process goes on, and ``wait`` may be called again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while await self._next(until) is not None:
            pass
        self._stop_feeding()
        if self._feed_error is not None:
            raise self._feed_error
        return self._collector.finish()

    async def send_stdin(self, data: bytes | str) -> None:
        """Write to its stdin, or to its terminal. Waits while the queue is full (256 KiB).

        Raises ``FailedPrecondition`` when stdin is closed or the process has ended.
        """
        for piece in requests.cut(data.encode() if isinstance(data, str) else data):
            await _input(self._client, self.id, piece)

    async def close_stdin(self) -> None:
        """End its stdin, after what was sent. On a terminal: send end-of-file (^D)."""
        request = process_service_pb2.CloseInputRequest(process_id=self.id)
        await self._client.call(methods.CLOSE_INPUT, request)

    async def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the main process; ``group``: to its whole process group.

        Raises ``FailedPrecondition`` or ``NotFound`` when it has ended.
        """
        request = process_service_pb2.SignalRequest(
            process_id=self.id, signal=int(number), group=group
        )
        await self._client.call(methods.SIGNAL, request)

    async def kill(self) -> None:
        """End it and its process group with SIGKILL. Nothing happens when it is over already."""
        if self.result is None and self.id:
            with contextlib.suppress(FailedPrecondition, NotFound):
                await self.signal(signals.SIGKILL, group=True)

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal. Raises ``FailedPrecondition`` when it has none."""
        size = requests.terminal_size(rows, columns)
        request = process_service_pb2.ResizeRequest(process_id=self.id, size=size)
        await self._client.call(methods.RESIZE, request)

    def detach(self) -> None:
        """Stop reading.

        In a sandbox the process goes on (``Sandbox.attach``); a one-shot job is cancelled.
        """
        self._stream.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self._abort()

    async def _abort(self) -> None:
        if self._resumable:  # a one-shot job ends with its stream
            with contextlib.suppress(CallError):
                await self.kill()
        self._stop_feeding()
        self.detach()

    def _stop_feeding(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
            self._feeder = None

    def _feed(self, feed: Feed) -> None:
        if feed.more is not None and self.result is None:
            self._feeder = asyncio.create_task(_feed(self._client, self, feed))


async def _input(client: Client, process_id: str, data: bytes) -> None:
    """Send one piece of input.

    While the queue is full nothing of it is taken, so it is sent again.
    """
    request = process_service_pb2.InputRequest(process_id=process_id, data=data)
    delay = _INPUT_DELAY_FIRST
    while True:
        try:
            await client.call(methods.INPUT, request)
        except ResourceExhausted:
            await asyncio.sleep(delay)
            delay = min(_INPUT_DELAY_MOST, delay * 2)
        else:
            return


async def _pieces(feed: Feed) -> AsyncIterator[bytes]:
    if isinstance(feed.more, AsyncIterable):
        async for data in feed.more:
            for piece in requests.cut(data):
                yield piece
    else:
        for piece in feed.pieces():
            yield piece


async def _feed(client: Client, process: Process, feed: Feed) -> None:
    """Feed a job's stdin while the caller reads its output."""
    try:
        async for piece in _pieces(feed):
            await _input(client, process.id, piece)
        await process.close_stdin()
    except (FailedPrecondition, NotFound):  # it does not read any more, as with a broken pipe
        pass
    except Exception as e:  # told to whoever waits
        process._feed_error = e
        with contextlib.suppress(CallError):
            await process.kill()
