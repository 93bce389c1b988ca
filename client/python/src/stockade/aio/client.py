"""The client for asyncio: many calls at once on one connection, all in one event loop.

A client belongs to the event loop that it was first used in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Generic, Optional

from google.protobuf.message import DecodeError

from stockade import address as addresses
from stockade import methods, telemetry
from stockade.aio.link import Link
from stockade.aio.telemetry import EventStream
from stockade.attempts import Attempts
from stockade.errors import (
    Cancelled,
    ConnectionLost,
    ProtocolError,
    StockadeError,
)
from stockade.methods import Method, Request, Response
from stockade.stubs import Schema
from stockade.v1 import system_service_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from stockade.wire import Call


class MessageStream(Generic[Response]):
    """The messages of a streaming call, in order: ``async for``.

    Use ``async with``, or ``cancel()``, to give it up. When it ended badly the iteration raises the
    ``CallError``.
    """

    def __init__(
        self,
        client: Client,
        link: Link,
        call: Call,
        response: type[Response],
        until: Optional[float],
        first: Optional[bytes],
    ) -> None:
        self._client = client  # which closes its connection when it is collected
        self._link = link
        self._call = call
        self._response = response
        self._until = until
        self._first = first
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Response:
        try:
            message = await self.get(self._until)
        except BaseException:
            self.cancel()
            raise
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, until: Optional[float] = None) -> Optional[Response]:
        """Return the next message, or None at the end of the stream.

        ``until`` is a time of ``time.monotonic()``: ``DeadlineExceeded`` is raised then, and the
        stream goes on.
        """
        if self._over:
            return None
        data, self._first = self._first, None
        if data is None:
            data = await self._link.wait(self._call, until)
        if data is None:
            self._over = True
            return None
        return _parse(self._link, self._call, self._response, data)

    def cancel(self) -> None:
        """Give the call up. What the broker does then is the method's own: ``Run`` ends the job."""
        self._over = True
        self._link.abandon(self._call)

    def _leave(self) -> None:
        """Nothing more will come but the END."""
        self._over = True
        self._link.core.leave(self._call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        if not self._over:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._link.loop.call_soon_threadsafe(self._link.abandon, self._call)


def _parse(link: Link, call: Call, response: type[Response], data: bytes) -> Response:
    message = response()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError):
        error = ProtocolError(f"{call.method}: the answer is no {response.DESCRIPTOR.full_name}")
        link.core.dead = error
        link.lost(str(error))
        raise error from None
    return message


class Client:
    """A connection to a broker for one event loop, made when needed and again when it was lost.

    The arguments are those of ``stockade.Client``.

    >>> async with Client() as client:                                              # doctest: +SKIP
    ...     (await client.info()).version
    '0.1.0'
    """

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        token: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        connect_timeout: float = 5.0,
        retry_for: float = 10.0,
    ) -> None:
        self._address = addresses.parse(address)
        self._metadata = addresses.metadata(token, metadata)
        self._connect_timeout = connect_timeout
        self._retry_for = retry_for
        self._link: Optional[Link] = None
        self._finalizer: Optional[weakref.finalize[..., Client]] = None
        self._connecting: Optional[asyncio.Lock] = None
        self._closed = False

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._address.text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Open calls fail; a later one raises ``Cancelled``."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            link.lost("the client was closed")
            await link.closed()

    # Calls.

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[float] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
    ) -> Response:
        """Make a unary call and return its response. See ``stockade.Client.call``."""
        attempts = self._attempts(method, timeout, idempotency_key)
        payload = request.SerializeToString()
        while True:
            try:
                link = await self._connect(attempts)
                call = await link.open(method, payload, attempts, [*self._metadata, *metadata])
                try:
                    if await link.wait(call, attempts.patience) is not None:
                        raise ProtocolError(f"{method.path}: a stream where one answer was due")
                except BaseException:
                    link.abandon(call)
                    raise
                return _parse(link, call, method.response, call.payload)
            except StockadeError as e:
                await asyncio.sleep(attempts.after(e, time.monotonic()))

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[float] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
        resume: bool = False,
    ) -> MessageStream[Response]:
        """Make a streaming call. See ``stockade.Client.stream``."""
        attempts = self._attempts(method, timeout, idempotency_key)
        attempts.lost = resume
        payload = request.SerializeToString()
        while True:
            try:
                link = await self._connect(attempts)
                call = await link.open(method, payload, attempts, [*self._metadata, *metadata])
                try:
                    first = await link.wait(call, attempts.patience)
                except BaseException:
                    link.abandon(call)
                    raise
                return MessageStream(self, link, call, method.response, attempts.patience, first)
            except StockadeError as e:
                await asyncio.sleep(attempts.after(e, time.monotonic()))

    def _attempts(
        self, method: Method[Any, Any], timeout: Optional[float], key: Optional[str]
    ) -> Attempts:
        now = time.monotonic()
        return Attempts(method, now=now, timeout=timeout, retry_for=self._retry_for, key=key)

    async def _connect(self, attempts: Attempts) -> Link:
        """Return a connection that takes calls; after a doubt, only to the same broker."""
        link = await self._usable_link(attempts)
        if attempts.doubt is not None and not await self._same_broker(link, attempts):
            raise attempts.give_up()
        return link

    async def _same_broker(self, link: Link, attempts: Attempts) -> bool:
        once = Attempts(methods.INFO, now=time.monotonic(), timeout=self._connect_timeout)
        call = await link.open(methods.INFO, b"", once, self._metadata)
        try:
            await link.wait(call, once.patience)
        except ConnectionLost:
            raise
        except StockadeError:
            return False
        finally:
            link.abandon(call)
        info = _parse(link, call, system_service_pb2.InfoResponse, call.payload)
        return attempts.same_broker(info.uptime_ms / 1000, time.monotonic())

    async def _usable_link(self, attempts: Attempts) -> Link:
        if self._connecting is None:  # 3.9 binds a lock to the event loop where it is made
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                timeout = self._connect_timeout
                if attempts.deadline is not None:
                    timeout = min(timeout, max(0.001, attempts.deadline - time.monotonic()))
                self._link = await Link.connect(self._address, timeout)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(self, _drop, self._link)
            return self._link

    # What needs no sandbox.

    async def info(self) -> system_service_pb2.InfoResponse:
        """Return what the broker says about itself and its host: templates, what is degraded."""
        return await self.call(methods.INFO, system_service_pb2.InfoRequest())

    async def serving(self, service: str = "") -> bool:
        """Tell whether the broker, or one of its services, takes calls.

        ``NotFound``: no such service.
        """
        request = system_service_pb2.HealthServiceCheckRequest(service=service)
        status = (await self.call(methods.HEALTH_CHECK, request)).status
        return status == system_service_pb2.SERVING_STATUS_SERVING

    async def events(
        self,
        *,
        sandboxes: Iterable[str] = (),
        process: str = "",
        kinds: Iterable[telemetry.Kind] = (),
        severity: telemetry.Kind = 0,
        tenant: str = "",
        from_sequence: int = 0,
        kept_only: bool = False,
        on_gap: Optional[telemetry.GapCallback] = None,
    ) -> EventStream:
        """Return the events of sandboxes as they happen (``telemetry_service.proto``).

        ``sandboxes``      only these, by id
        ``process``        only this job, by id
        ``kinds``          only these, such as ``"denied"`` or ``"exec"``
        ``severity``       only what is at least this grave, such as ``"warning"``
        ``tenant``         of another caller, such as ``"uid:1000"``, or ``"*"``: for root
        ``from_sequence``  begin with this event, as far as it is kept; 0: with what is new
        ``kept_only``      end with the last event that has happened by now
        ``on_gap``         called where events are missing, with which
        """
        request = telemetry.request(
            sandboxes=sandboxes,
            process=process,
            kinds=kinds,
            severity=severity,
            tenant=tenant,
            from_sequence=from_sequence,
            kept_only=kept_only,
        )
        return EventStream(await self.stream(methods.SUBSCRIBE, request), on_gap)

    async def record(self, process: str = "") -> telemetry_service_pb2.GetRecordResponse:
        """Return what the kernel saw of a job, while it runs and after it.

        ``process``  its id, or the beginning of it; empty: the caller's job that ended last
        """
        request = telemetry_service_pb2.GetRecordRequest(process_id=process)
        return await self.call(methods.GET_RECORD, request)

    async def schema(self) -> Schema:
        """Fetch the broker's descriptors: stubs for what this package has no wrapper for."""
        request = system_service_pb2.GetFileDescriptorSetRequest()
        return Schema((await self.call(methods.REFLECT, request)).file_descriptor_set)


def _drop(link: Link) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed, and with it the connection
        link.loop.call_soon_threadsafe(link.lost, "the client was collected")


_defaults: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[tuple[str, Optional[str]], Client]
] = weakref.WeakKeyDictionary()


def default_client() -> Client:
    """Return the event loop's shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``."""
    key = (addresses.parse(None).text, os.environ.get("STOCKADE_TOKEN"))
    clients = _defaults.setdefault(asyncio.get_running_loop(), {})
    client = clients.get(key)
    if client is None:
        client = clients[key] = Client(key[0], token=key[1])
    return client
