"""Events as they happen, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade.telemetry import Batches, GapCallback

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from stockade.aio.client import MessageStream
    from stockade.v1 import telemetry_service_pb2


class EventStream:
    """Events as they happen: an asynchronous iterator, and a context that ends the subscription."""

    def __init__(
        self,
        stream: MessageStream[telemetry_service_pb2.SubscribeResponse],
        on_gap: Optional[GapCallback] = None,
    ) -> None:
        self._stream = stream
        self._batches = Batches(on_gap)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> telemetry_service_pb2.Event:
        while (event := self._batches.next()) is None:
            self._batches.feed(await self._stream.__anext__())
        return event

    def close(self) -> None:
        """End the subscription."""
        self._stream.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
