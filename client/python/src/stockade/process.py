"""A process in a sandbox, for programs with threads."""

from __future__ import annotations

import contextlib
import signal as signals
import threading
import time
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
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from stockade.client import Client, MessageStream
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
        self._feeder: Optional[_Feeder] = None
        first = self._stream.get(None)
        if first is None:
            raise ProtocolError("the broker ended the stream without a word")
        collector.feed(first.event)

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

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._next(None)
        if event is None:
            raise StopIteration
        return event

    def _next(self, until: Optional[float]) -> Optional[Event]:
        while self._collector.result is None:
            try:
                message = self._stream.get(until)
            except ConnectionLost as lost:
                self._resume(lost)
                continue
            if message is None:
                self._collector.finish()
                break
            event = self._collector.feed(message.event)
            if event is not None:
                return event
        self._stream._leave()
        return None

    def _resume(self, lost: ConnectionLost) -> None:
        """Attach again where the output broke off. The process itself went on."""
        if not self._resumable:
            raise lost
        request = process_service_pb2.AttachRequest(
            process_id=self.id, offset=self._collector.offset
        )
        try:
            self._stream = self._client.stream(methods.ATTACH, request, resume=True)
        except NotFound as e:  # another broker answers
            raise lost from e

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Read to the end and return the result.

        ``timeout`` is in seconds: ``DeadlineExceeded`` (a ``TimeoutError``) is raised then, the
        process goes on, and ``wait`` may be called again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._next(until) is not None:
            pass
        if self._feeder is not None:
            self._feeder.finish()
        return self._collector.finish()

    def send_stdin(self, data: bytes | str) -> None:
        """Write to its stdin, or to its terminal. Waits while the queue is full (256 KiB).

        Raises ``FailedPrecondition`` when stdin is closed or the process has ended.
        """
        for piece in requests.cut(data.encode() if isinstance(data, str) else data):
            _input(self._client, self.id, piece)

    def close_stdin(self) -> None:
        """End its stdin, after what was sent. On a terminal: send end-of-file (^D)."""
        request = process_service_pb2.CloseInputRequest(process_id=self.id)
        self._client.call(methods.CLOSE_INPUT, request)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the main process; ``group``: to its whole process group.

        Raises ``FailedPrecondition`` or ``NotFound`` when it has ended.
        """
        request = process_service_pb2.SignalRequest(
            process_id=self.id, signal=int(number), group=group
        )
        self._client.call(methods.SIGNAL, request)

    def kill(self) -> None:
        """End it and its process group with SIGKILL. Nothing happens when it is over already."""
        if self.result is None and self.id:
            with contextlib.suppress(FailedPrecondition, NotFound):
                self.signal(signals.SIGKILL, group=True)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal. Raises ``FailedPrecondition`` when it has none."""
        size = requests.terminal_size(rows, columns)
        request = process_service_pb2.ResizeRequest(process_id=self.id, size=size)
        self._client.call(methods.RESIZE, request)

    def detach(self) -> None:
        """Stop reading.

        In a sandbox the process goes on (``Sandbox.attach``); a one-shot job is cancelled.
        """
        self._stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._abort()

    def _abort(self) -> None:
        if self._resumable:  # a one-shot job ends with its stream
            with contextlib.suppress(CallError):
                self.kill()
        self.detach()

    def _feed(self, feed: Feed) -> None:
        if feed.more is not None and self.result is None:
            self._feeder = _Feeder(self._client, self, feed)


def _input(client: Client, process_id: str, data: bytes) -> None:
    """Send one piece of input.

    While the queue is full nothing of it is taken, so it is sent again.
    """
    request = process_service_pb2.InputRequest(process_id=process_id, data=data)
    delay = _INPUT_DELAY_FIRST
    while True:
        try:
            client.call(methods.INPUT, request)
        except ResourceExhausted:
            time.sleep(delay)
            delay = min(_INPUT_DELAY_MOST, delay * 2)
        else:
            return


class _Feeder:
    """A thread that feeds a job's stdin while the caller reads its output."""

    def __init__(self, client: Client, process: Process, feed: Feed) -> None:
        self._client = client
        self._process = process
        self._pieces = feed
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name="stockade-stdin", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for piece in self._pieces.pieces():
                _input(self._client, self._process.id, piece)
            self._process.close_stdin()
        except (FailedPrecondition, NotFound):  # it does not read any more, as with a broken pipe
            pass
        except BaseException as e:
            self._error = e
            with contextlib.suppress(CallError):
                self._process.kill()

    def finish(self) -> None:
        """Raise what went wrong in the thread.

        It may still wait for its source: then it is left alone.
        """
        if self._error is not None:
            raise self._error
