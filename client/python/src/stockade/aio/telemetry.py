# SPDX-License-Identifier: Apache-2.0
"""Events as they happen, for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Callable, Optional

from stockade.errors import Unavailable
from stockade.scoped import AsyncScoped
from stockade.telemetry import Batches, Cursor, GapCallback

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from typing_extensions import Self

    from stockade.aio.client import MessageStream
    from stockade.v1 import telemetry_service_pb2

    Begin = Callable[
        [telemetry_service_pb2.SubscribeRequest],
        Awaitable[MessageStream[telemetry_service_pb2.SubscribeResponse]],
    ]


class EventStream(AsyncScoped):
    """Events as they happen: an asynchronous iterator, and a context that ends the subscription.

    It continues when the connection breaks or the broker is restarted, without a timeout.
    """

    def __init__(
        self,
        begin: Begin,
        stream: MessageStream[telemetry_service_pb2.SubscribeResponse],
        cursor: Cursor,
        on_gap: Optional[GapCallback] = None,
    ) -> None:
        self._begin = begin
        self._stream = stream
        self._cursor = cursor
        self._batches = Batches(on_gap)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> telemetry_service_pb2.Event:
        while (event := self._batches.next()) is None:
            try:
                message = await self._stream.__anext__()
            except Unavailable as error:
                await self._again(error)
                continue
            self._cursor.feed(message)
            self._batches.feed(message)
        return event

    async def _again(self, error: Unavailable) -> None:
        while True:
            await asyncio.sleep(self._cursor.after(error))
            try:
                self._stream = await self._begin(self._cursor.request)
            except Unavailable as another:
                error = another
            else:
                return

    def close(self) -> None:
        """End the subscription."""
        self._stream.cancel()

    async def _exit(self, error: Optional[BaseException]) -> None:
        self.close()
