"""The client for asyncio: many calls at once on one connection, all in one event loop.

One task per connection reads and feeds the core; whoever waits for a call sleeps on the call's
event. A client belongs to the event loop that it was first used in.
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
from stockade import methods
from stockade.attempts import Attempts
from stockade.errors import (
    BrokerUnreachable,
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    ProtocolError,
    StockadeError,
)
from stockade.methods import Method, Request, Response
from stockade.stubs import Schema
from stockade.v1 import system_service_pb2
from stockade.wire import Call, Core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from stockade.address import Address

KEEPALIVE = 20.0  # seconds of silence after which a PING goes out
MISSED_MAX = 2  # PINGs without a sign of life, after which the connection counts as lost
_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024


class _Link:
    """One connection and the task that reads from it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, core: Core
    ) -> None:
        self.core = core
        self._reader = reader
        self._writer = writer
        self._room: set[asyncio.Event] = set()
        self._draining: Optional[asyncio.Task[None]] = None
        self._missed = 0
        self._heard = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.loop.call_later(KEEPALIVE, self._keep_alive)
        self._task = asyncio.create_task(self._read(), name="stockade-reader")

    @classmethod
    async def connect(cls, address: Address, timeout: float) -> _Link:
        """Connect and greet within `timeout` seconds. ``BrokerUnreachable`` when that fails."""
        core = Core(ipc=address.ipc)
        try:
            reader, writer = await asyncio.wait_for(_connect(core, address), timeout)
        except StockadeError:
            raise
        except (asyncio.TimeoutError, TimeoutError):
            raise BrokerUnreachable(f"{address.text}: no greeting within {timeout:g} s") from None
        except OSError as e:
            raise BrokerUnreachable(f"connect to {address.text}: {e.strerror or e}") from e
        return cls(reader, writer, core)

    async def open(
        self,
        method: Method[Any, Any],
        payload: bytes,
        attempts: Attempts,
        metadata: Iterable[tuple[str, str]],
    ) -> Call:
        """Open a call as soon as the connection has room for one more, and write it."""
        await self._wait_for_room(method, attempts.deadline)
        left = None if attempts.deadline is None else attempts.deadline - time.monotonic()
        call = self.core.open(
            method.path,
            payload,
            streaming=method.streaming,
            timeout=left,
            metadata=[*metadata, *attempts.metadata()],
        )
        call.waiter = asyncio.Event()
        self.flush()
        try:
            await self._writer.drain()  # the broker takes no more than it can handle
        except OSError as e:
            self.lost(f"write to the broker: {e.strerror or e}")
        except BaseException:
            self.abandon(call)
            raise
        return call

    async def _wait_for_room(self, method: Method[Any, Any], deadline: Optional[float]) -> None:
        while True:
            if not self.core.usable:
                why = self.core.goaway or str(self.core.dead)
                raise ConnectionLost(why, method=method.path, maybe_executed=False)
            if self.core.has_room(streaming=method.streaming):
                return
            room = asyncio.Event()
            self._room.add(room)
            try:
                if not await _sleep_on(room, deadline):
                    raise DeadlineExceeded("wait for room on the connection", method=method.path)
            finally:
                self._room.discard(room)

    async def wait(self, call: Call, until: Optional[float]) -> Optional[bytes]:
        """Wait for a call's next message. None: it is over; its error is raised if there is one."""
        event = call.waiter
        assert isinstance(event, asyncio.Event)
        while not call.messages and not call.done:
            event.clear()
            if not await _sleep_on(event, until):
                raise DeadlineExceeded("no answer in time", method=call.method)
        if not call.messages:
            if call.error is not None:
                raise call.error
            return None
        message = call.messages.popleft()
        self.core.taken(call)
        self.flush()
        return message

    def abandon(self, call: Call) -> None:
        """Give a call up."""
        self.core.abandon(call)
        self.flush()

    def flush(self) -> None:
        """Hand over what is to be written. What the broker does not take stays in the core."""
        if self._draining is None:
            self._write()
            if self.core.output:
                self._draining = self.loop.create_task(self._drain(), name="stockade-writer")

    def _write(self) -> None:
        full = self._writer.transport.get_write_buffer_size() >= _WRITE_BYTES
        if self.core.output and self.core.dead is None and not full:
            chunk = self.core.offer(_WRITE_BYTES)
            self._writer.write(chunk)
            self.core.sent(len(chunk))

    async def _drain(self) -> None:
        try:
            while self.core.output and self.core.dead is None:
                await self._writer.drain()
                self._write()
        except OSError as e:
            self.lost(f"write to the broker: {e.strerror or e}")
        finally:
            self._draining = None

    async def _read(self) -> None:
        why = "the broker closed the connection"
        try:
            while True:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    break
                self._heard = time.monotonic()
                self._missed = 0
                if not self._feed(data):
                    why = self.core.goaway or why
                    break
        except ProtocolError as e:
            why = str(e)
        except OSError as e:
            why = f"read from the broker: {e.strerror or e}"
        except asyncio.CancelledError:
            why = "the event loop was closed"
            raise
        finally:
            self.lost(why)

    def _feed(self, data: bytes) -> bool:
        changed = self.core.feed(data)
        for call in changed:
            assert isinstance(call.waiter, asyncio.Event)
            call.waiter.set()
        if changed or self.core.goaway:
            self._wake_room()
        self.flush()
        return self.core.goaway is None or not self.core.idle

    def _keep_alive(self) -> None:
        if self.core.dead is not None:
            return
        silent = time.monotonic() - self._heard
        if silent >= KEEPALIVE:
            self._missed += 1
            if self._missed > MISSED_MAX:
                self.lost(f"the broker was silent for {silent:.3g} s")
                return
            self.core.ping()
            self.flush()
            silent = 0
        self.loop.call_later(KEEPALIVE - silent, self._keep_alive)

    def _wake_room(self) -> None:
        for room in self._room:
            room.set()

    def lost(self, why: str) -> None:
        """End the connection: every open call fails. Once is enough."""
        for call in self.core.lost(why):
            assert isinstance(call.waiter, asyncio.Event)
            call.waiter.set()
        self._wake_room()
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._writer.transport.abort()

    async def closed(self) -> None:
        """Wait until the connection and its task are gone."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.wait([self._task])


async def _connect(
    core: Core, address: Address
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and greet."""
    if address.ipc:
        reader, writer = await asyncio.open_unix_connection(address.path, limit=_READ_BYTES)
    else:
        reader, writer = await asyncio.open_connection(
            address.host, address.port, limit=_READ_BYTES
        )
    try:
        hello = core.offer(_WRITE_BYTES)
        writer.write(hello)
        core.sent(len(hello))
        while not core.greeted:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise BrokerUnreachable(
                    f"{address.text}: closed the connection before the first byte"
                )
            core.feed(data)
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _sleep_on(event: asyncio.Event, until: Optional[float]) -> bool:
    """Wait for an event; False when `until`, a time of ``time.monotonic()``, comes first."""
    if until is None:
        await event.wait()
        return True
    left = until - time.monotonic()
    if left <= 0:
        return False
    timer = asyncio.get_running_loop().call_later(left, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
    return True


class MessageStream(Generic[Response]):
    """The messages of a streaming call, in order: ``async for``.

    Use ``async with``, or ``cancel()``, to give it up. When it ended badly the iteration raises the
    ``CallError``.
    """

    def __init__(
        self,
        client: Client,
        link: _Link,
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


def _parse(link: _Link, call: Call, response: type[Response], data: bytes) -> Response:
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
        self._link: Optional[_Link] = None
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

    async def _connect(self, attempts: Attempts) -> _Link:
        """Return a connection that takes calls; after a doubt, only to the same broker."""
        link = await self._usable_link(attempts)
        if attempts.doubt is not None and not await self._same_broker(link, attempts):
            raise attempts.give_up()
        return link

    async def _same_broker(self, link: _Link, attempts: Attempts) -> bool:
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

    async def _usable_link(self, attempts: Attempts) -> _Link:
        if self._connecting is None:  # 3.9 binds a lock to the event loop where it is made
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                timeout = self._connect_timeout
                if attempts.deadline is not None:
                    timeout = min(timeout, max(0.001, attempts.deadline - time.monotonic()))
                self._link = await _Link.connect(self._address, timeout)
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

    async def schema(self) -> Schema:
        """Fetch the broker's descriptors: stubs for what this package has no wrapper for."""
        request = system_service_pb2.GetFileDescriptorSetRequest()
        return Schema((await self.call(methods.REFLECT, request)).file_descriptor_set)


def _drop(link: _Link) -> None:
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
