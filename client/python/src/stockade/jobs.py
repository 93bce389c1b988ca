# SPDX-License-Identifier: Apache-2.0
"""A process in a sandbox, for threads and asyncio alike (``both``)."""

from __future__ import annotations

import contextlib
import signal as signals
import time
from typing import TYPE_CHECKING, Any, Optional

from stockade import methods, requests
from stockade.errors import (
    CallError,
    ConnectionLost,
    FailedPrecondition,
    NotFound,
    ProtocolError,
)
from stockade.fields import made
from stockade.limits import named, seconds
from stockade.result import shortened
from stockade.v1 import process_service_pb2

if TYPE_CHECKING:
    from typing_extensions import Self

    from stockade.calls import Caller, Stream
    from stockade.events import Collector, Event
    from stockade.limits import Seconds
    from stockade.requests import Data, Feed
    from stockade.result import Result


class Job:
    """A process, and the stream of what happens to it."""

    def __init__(
        self, client: Caller, stream: Stream[Any], collector: Collector, *, resumable: bool
    ) -> None:
        self._client = client
        self._stream = stream
        self._collector = collector
        self._resumable = resumable
        self._detached = False

    @classmethod
    async def _open(
        cls, client: Caller, stream: Stream[Any], collector: Collector, *, resumable: bool = True
    ) -> Self:
        """Read the first event: it says which process it is."""
        first = await stream._get(None)
        if first is None:
            raise ProtocolError("the broker ended the stream without a message")
        collector.feed(first.event)
        return cls(client, stream, collector, resumable=resumable)

    def __repr__(self) -> str:
        result = self.result
        how = f"pid {self.pid}" if result is None else str(result)
        command = "".join(f" {text}" for text in (shortened(self._collector.args),) if text)
        return f"<{type(self).__name__} {self.id or 'never started'}{command} {how}>"

    @property
    def id(self) -> str:
        """An opaque text of at most 48 characters.

        ``Sandbox.attach`` takes it. Empty if the process never started.
        """
        return self._collector.process_id

    @property
    def sandbox_id(self) -> str:
        """The sandbox that it runs in."""
        return self._collector.sandbox_id

    @property
    def pid(self) -> int:
        """Its pid inside the sandbox."""
        return self._collector.pid

    @property
    def result(self) -> Optional[Result]:
        """The result, or None if the end of its output has not been read yet."""
        return self._collector.result

    async def _next(self, until: Optional[float], *, handed: bool = False) -> Optional[Event]:
        while self._collector.result is None:
            try:
                message = await self._stream._get(until)
            except ConnectionLost as lost:
                await self._resume(lost)
                continue
            if message is None:
                if self._detached:
                    raise FailedPrecondition(
                        "the process was detached; its output cannot be read any more"
                    )
                self._collector.finish()
                break
            event = self._collector.feed(message.event, handed=handed)
            if event is not None:
                return event
        self._stream._leave()
        return None

    async def _resume(self, lost: ConnectionLost) -> None:
        """Attach again where the output broke off. The process itself went on."""
        if not self._resumable:
            raise lost
        request = made(
            process_service_pb2.AttachRequest, process_id=self.id, offset=self._collector.offset
        )
        try:
            self._stream = await self._client._stream(methods.ATTACH, request, resume=True)
        except NotFound as e:  # another broker answers
            raise lost from e

    def _feed(self, feed: Feed) -> None:
        """Feed its stdin in the background while the caller reads its output."""
        raise NotImplementedError

    def _stop_feeding(self) -> None:
        """What is fed to its stdin in the background ends."""

    def _check_fed(self) -> None:
        """Raise what went wrong there."""

    async def _wait(self, timeout: Optional[Seconds]) -> Result:
        until = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        while await self._next(until) is not None:
            pass
        self._stop_feeding()
        self._check_fed()
        return self._collector.finish()

    async def _to_end(self, feed: Feed, *, check: bool) -> Result:
        """Feed it, read it to its end, and return the result. It ends when that is interrupted."""
        try:
            self._feed(feed)
            result = await self._wait(None)
        except BaseException:
            await self._abort()
            raise
        return result.check() if check else result

    async def _input(self, data: bytes) -> None:
        request = made(process_service_pb2.InputRequest, process_id=self.id, data=data)
        await self._client._push(methods.INPUT, request)

    async def _send_stdin(self, data: Data) -> None:
        for piece in requests.cut(data):
            await self._input(piece)

    async def _close_stdin(self) -> None:
        request = made(process_service_pb2.CloseInputRequest, process_id=self.id)
        await self._client._call(methods.CLOSE_INPUT, request)

    async def _signal(self, number: int, *, group: bool) -> None:
        request = made(
            process_service_pb2.SignalRequest,
            process_id=self.id,
            signal=named("number", int, number),
            group=group,
        )
        await self._client._call(methods.SIGNAL, request)

    async def _kill(self) -> None:
        if self.result is None and self.id:
            with contextlib.suppress(FailedPrecondition, NotFound):
                await self._signal(signals.SIGKILL, group=True)

    async def _resize(self, rows: int, columns: int) -> None:
        size = requests.terminal_size(rows, columns)
        request = made(process_service_pb2.ResizeRequest, process_id=self.id, size=size)
        await self._client._call(methods.RESIZE, request)

    def detach(self) -> None:
        """Stop reading.

        A process in a sandbox keeps running (see ``Sandbox.attach``); a one-shot job is cancelled.
        """
        self._detached = True
        self._stream.cancel()

    async def _abort(self) -> None:
        if self._resumable:  # a one-shot job ends with its stream
            with contextlib.suppress(CallError):
                await self._kill()
        self._stop_feeding()
        self.detach()
