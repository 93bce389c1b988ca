# SPDX-License-Identifier: Apache-2.0
"""What happens in sandboxes: the request for events, and the events of its answers one by one."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Callable, Optional, Union

from stockade.errors import Unavailable
from stockade.fields import made
from stockade.scoped import Scoped
from stockade.v1 import record_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from stockade.client import MessageStream

#: Called with the ``Gap`` of a subscription: events that it did not get.
GapCallback = Callable[[telemetry_service_pb2.Gap], object]
Kind = Union[str, int]


def _number(enum: object, prefix: str, name: Kind) -> int:
    if isinstance(name, int):
        return name
    full = prefix + name.upper().replace("-", "_")
    try:
        number: int = enum.Value(full)  # type: ignore[attr-defined]
    except ValueError:
        raise ValueError(f"there is no {full}") from None
    return number


def request(
    *,
    sandboxes: Iterable[str] = (),
    process: str = "",
    kinds: Iterable[Kind] = (),
    severity: Kind = 0,
    tenant: str = "",
    from_sequence: int = 0,
    instance: str = "",
    kept_only: bool = False,
) -> telemetry_service_pb2.SubscribeRequest:
    """Return the request of a subscription; see ``Client.events``."""
    message = made(
        telemetry_service_pb2.SubscribeRequest,
        sandbox_ids=sandboxes,
        process_id=process,
        tenant=tenant,
        from_sequence=from_sequence,
        instance=instance,
        kept_only=kept_only,
    )
    for kind in kinds:
        number = _number(telemetry_service_pb2.EventKind, "EVENT_KIND_", kind)
        message.kinds.append(number)  # type: ignore[arg-type]
    grave = _number(record_pb2.Severity, "SEVERITY_", severity)
    message.severity = grave  # type: ignore[assignment]
    return message


class Batches:
    """The events of responses, one by one; gaps go to a callback."""

    def __init__(self, on_gap: Optional[GapCallback]) -> None:
        self._on_gap = on_gap
        self._events: deque[telemetry_service_pb2.Event] = deque()

    def feed(self, message: telemetry_service_pb2.SubscribeResponse) -> None:
        """Take one response."""
        if message.HasField("gap") and self._on_gap is not None:
            self._on_gap(message.gap)
        self._events.extend(message.events)

    def next(self) -> Optional[telemetry_service_pb2.Event]:
        """Return the next event that is here."""
        return self._events.popleft() if self._events else None


class Cursor:
    """The position at which a subscription continues after a break. No I/O and no clock."""

    def __init__(self, message: telemetry_service_pb2.SubscribeRequest, *, reconnect: bool) -> None:
        self._next = message
        self._reconnect = reconnect and not message.kept_only
        self._begun = False
        self._failures = 0

    @property
    def request(self) -> telemetry_service_pb2.SubscribeRequest:
        """The next request."""
        request = telemetry_service_pb2.SubscribeRequest()
        request.CopyFrom(self._next)
        return request

    def feed(self, message: telemetry_service_pb2.SubscribeResponse) -> None:
        """Take note of a response."""
        request = self._next
        if request.instance and message.instance != request.instance:
            request.from_sequence = 1
        elif request.from_sequence == 0:
            request.from_sequence = message.last_sequence + 1
        if message.HasField("gap"):
            behind = message.gap.to_sequence + 1
            request.from_sequence = max(request.from_sequence, behind)
        if message.events:
            request.from_sequence = message.events[-1].sequence + 1
        request.instance = message.instance
        self._begun = True
        self._failures = 0

    def after(self, error: Unavailable) -> float:
        """Return the seconds to wait before the next request, or raise the error."""
        if not self._reconnect or not self._begun:
            raise error
        self._failures += 1
        delay: float = min(0.05 * 2 ** min(self._failures - 1, 5), 1.0)
        return delay


class EventStream(Scoped):
    """Events as they happen: an iterator, and a context manager that ends the subscription.

    It continues when the connection breaks or the broker is restarted, without a timeout.
    """

    def __init__(
        self,
        begin: Callable[
            [telemetry_service_pb2.SubscribeRequest],
            MessageStream[telemetry_service_pb2.SubscribeResponse],
        ],
        cursor: Cursor,
        on_gap: Optional[GapCallback] = None,
    ) -> None:
        self._begin = begin
        self._cursor = cursor
        self._stream = begin(cursor.request)
        self._batches = Batches(on_gap)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> telemetry_service_pb2.Event:
        while (event := self._batches.next()) is None:
            try:
                message = next(self._stream)
            except Unavailable as error:
                self._again(error)
                continue
            self._cursor.feed(message)
            self._batches.feed(message)
        return event

    def _again(self, error: Unavailable) -> None:
        while True:
            time.sleep(self._cursor.after(error))
            try:
                self._stream = self._begin(self._cursor.request)
            except Unavailable as another:
                error = another
            else:
                return

    def close(self) -> None:
        """End the subscription."""
        self._stream.cancel()

    def _exit(self, error: Optional[BaseException]) -> None:
        self.close()
