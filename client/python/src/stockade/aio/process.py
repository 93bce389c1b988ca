# SPDX-License-Identifier: Apache-2.0
"""A process in a sandbox, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Optional

from stockade import requests
from stockade.errors import CallError, FailedPrecondition, NotFound
from stockade.jobs import Job
from stockade.scoped import AsyncScoped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from stockade.calls import Caller, Stream
    from stockade.events import Collector, Event
    from stockade.limits import Seconds
    from stockade.requests import Data, Feed
    from stockade.result import Result


class Process(Job, AsyncScoped):
    """A process that runs in a sandbox: ``stockade.Process``, with ``await`` and ``async for``."""

    def __init__(
        self, client: Caller, stream: Stream[Any], collector: Collector, *, resumable: bool
    ) -> None:
        super().__init__(client, stream, collector, resumable=resumable)
        self._feeder: Optional[asyncio.Task[None]] = None
        self._feed_error: Optional[BaseException] = None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._next(None, handed=True)
        if event is None:
            raise StopAsyncIteration
        return event

    async def wait(self, timeout: Optional[Seconds] = None) -> Result:
        """Read to the end and return the result. See ``stockade.Process.wait``."""
        return await self._wait(timeout)

    async def send_stdin(self, data: Data) -> None:
        """Write to its stdin, or to its terminal. See ``stockade.Process.send_stdin``."""
        await self._send_stdin(data)

    async def close_stdin(self) -> None:
        """Close its stdin after the bytes that were sent. On a terminal: send end-of-file (^D)."""
        await self._close_stdin()

    async def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal. See ``stockade.Process.signal``."""
        await self._signal(number, group=group)

    async def kill(self) -> None:
        """Kill it and its process group with SIGKILL. Does nothing if it has ended already."""
        await self._kill()

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal. Raises ``FailedPrecondition`` if it has no terminal."""
        await self._resize(rows, columns)

    async def _exit(self, error: Optional[BaseException]) -> None:
        await self._abort()

    def _feed(self, feed: Feed) -> None:
        if feed.more is not None and self.result is None:
            self._feeder = asyncio.create_task(self._feed_all(feed))

    def _stop_feeding(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
            self._feeder = None

    def _check_fed(self) -> None:
        if self._feed_error is not None:
            raise self._feed_error

    async def _feed_all(self, feed: Feed) -> None:
        """Feed its stdin while the caller reads its output."""
        try:
            async for piece in _pieces(feed):
                await self._input(piece)
            await self._close_stdin()
        except (FailedPrecondition, NotFound):  # it does not read any more, as with a broken pipe
            pass
        except Exception as e:  # raised in the waiting call
            self._feed_error = e
            with contextlib.suppress(CallError):
                await self._kill()


async def _pieces(feed: Feed) -> AsyncIterator[bytes]:
    if isinstance(feed.more, AsyncIterable):
        async for data in feed.more:
            for piece in requests.cut(data):
                yield piece
    else:
        for piece in feed.pieces():
            yield piece
