"""What happens in sandboxes: the request for events, and the events of its answers one by one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Callable, Optional, Union

from stockade.v1 import record_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

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
    kept_only: bool = False,
) -> telemetry_service_pb2.SubscribeRequest:
    """Return the request of a subscription; see ``Client.events``."""
    message = telemetry_service_pb2.SubscribeRequest(
        sandbox_ids=sandboxes,
        process_id=process,
        tenant=tenant,
        from_sequence=from_sequence,
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


class EventStream:
    """Events as they happen: an iterator, and a context that ends the subscription."""

    def __init__(
        self,
        stream: MessageStream[telemetry_service_pb2.SubscribeResponse],
        on_gap: Optional[GapCallback] = None,
    ) -> None:
        self._stream = stream
        self._batches = Batches(on_gap)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> telemetry_service_pb2.Event:
        while (event := self._batches.next()) is None:
            self._batches.feed(next(self._stream))
        return event

    def close(self) -> None:
        """End the subscription."""
        self._stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
