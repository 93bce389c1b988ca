# SPDX-License-Identifier: Apache-2.0
"""Calls on a connection to a broker, for threads and asyncio alike (``both``).

The connection (``link``, ``aio.link``) is made with the first call and again when it was lost. See
``attempts`` for what is sent again then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, Optional, Protocol, Union

from google.protobuf.message import DecodeError

from stockade import address as addresses
from stockade import methods
from stockade.approving import approval_metadata
from stockade.attempts import Attempts
from stockade.errors import (
    BrokerUnreachable,
    ConnectionLost,
    ProtocolError,
    ResourceExhausted,
    StockadeError,
    Unavailable,
)
from stockade.fields import made
from stockade.limits import Seconds, seconds
from stockade.methods import Method, Request, Response
from stockade.v1 import system_service_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Mapping

    from stockade.tls import TLS
    from stockade.wire import Call


# Seconds between attempts while the queue that a call fills is full.
_PUSH_DELAY_FIRST, _PUSH_DELAY_MOST = 0.002, 0.1


class Connection(Protocol):
    """What is needed of a link. ``open`` and ``wait`` are where it waits."""

    async def open(
        self,
        method: Method[Any, Any],
        payload: bytes,
        attempts: Attempts,
        metadata: Iterable[tuple[str, str]],
    ) -> Call:
        """Open a call as soon as there is room for one more, and write it."""

    async def wait(self, call: Call, until: Optional[float]) -> Optional[bytes]:
        """Wait for a call's next message. None: it ended with OK; its error is raised otherwise."""

    def abandon(self, call: Call) -> None:
        """Cancel a call."""

    def collected(self, call: Call) -> None:
        """Cancel a call, from a destructor."""

    def leave(self, call: Call) -> None:
        """Ignore the rest of the call, except its END."""

    def spoilt(self, error: ProtocolError) -> None:
        """End a connection whose broker breaks the protocol."""


def parse(link: Connection, call: Call, response: type[Response], data: bytes) -> Response:
    """Return the message of an answer; one that is none ends the connection."""
    message = response()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError):
        error = ProtocolError(
            f"{call.method}: the response is not a {response.DESCRIPTOR.full_name}"
        )
        link.spoilt(error)
        raise error from None
    return message


class Stream(Generic[Response]):
    """The messages of a streaming call, in order."""

    def __init__(
        self,
        client: Caller,
        link: Connection,
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

    async def _get(self, until: Optional[float]) -> Optional[Response]:
        if self._over:
            return None
        data, self._first = self._first, None
        if data is None:
            data = await self._link.wait(self._call, until)
        if data is None:
            self._over = True
            return None
        return parse(self._link, self._call, self._response, data)

    async def _next(self) -> Optional[Response]:
        try:
            return await self._get(self._until)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the call.

        The effect depends on the method; ``Run`` cancels its job.
        """
        self._over = True
        self._link.abandon(self._call)

    def _leave(self) -> None:
        """Nothing more will come but the END."""
        self._over = True
        self._link.leave(self._call)

    def __del__(self) -> None:
        if not self._over:
            self._link.collected(self._call)


class Ahead:
    """A unary call that was sent, and whose answer nobody has waited for yet."""

    def __init__(self, link: Connection, call: Call, until: Optional[float]) -> None:
        self._link = link
        self._call = call
        self._until = until

    async def done(self) -> None:
        """Wait for its answer, whose fields do not matter."""
        try:
            await self._link.wait(self._call, self._until)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._link.abandon(self._call)


class Caller:
    """Makes calls, again where that is harmless."""

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[Union[str, os.PathLike[str]]] = None,
        tls: Optional[TLS] = None,
        metadata: Optional[Mapping[str, str]] = None,
        connect_timeout: Seconds = 5.0,
        retry_for: Seconds = 10.0,
    ) -> None:
        self._address = addresses.parse(address, tls)
        if token is not None and token_file is not None:
            raise ValueError("token and token_file: one of the two")
        self._token_file = token_file
        self._pairs = addresses.metadata(token, metadata, own=token_file is None)
        if token_file is not None:
            addresses.token_in(token_file)
        self._connect_timeout = seconds("connect_timeout", connect_timeout)
        self._retry_for = seconds("retry_for", retry_for)
        self._closed = False
        self._connected = False  # at some time

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}{' closed' if self._closed else ''}>"

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._address.text

    def _metadata(self, more: Iterable[tuple[str, str]] = ()) -> list[tuple[str, str]]:
        """Return what every call carries, without the credential if a call has its own."""
        if any(key == "authorization" for key, _ in more):
            return [pair for pair in self._pairs if pair[0] != "authorization"]
        if self._token_file is None:
            return self._pairs
        token = addresses.token_in(self._token_file)
        return [*self._pairs, ("authorization", f"Bearer {token}")]

    async def _usable_link(self, attempts: Attempts) -> Connection:
        """Return a connection that takes calls, after making one where there is none."""
        raise NotImplementedError

    async def _sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def _call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
    ) -> Response:
        attempts = self._attempts(method, timeout, idempotency_key)
        payload = request.SerializeToString()
        while True:
            try:
                link, call, first = await self._begin(method, payload, attempts, metadata)
                if first is not None:
                    link.abandon(call)
                    raise ProtocolError(f"{method.path}: the broker sent more than one response")
                return parse(link, call, method.response, call.payload)
            except StockadeError as e:
                delay = attempts.after(e, time.monotonic())
            await self._sleep(delay)

    async def _ahead(self, method: Method[Request, Response], request: Request) -> Ahead:
        """Send a call without waiting for its answer. It is not sent again."""
        attempts = self._attempts(method, None, None)
        link = await self._usable_link(attempts)
        call = await link.open(method, request.SerializeToString(), attempts, self._metadata())
        return Ahead(link, call, attempts.patience)

    async def _stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
        resume: bool = False,
        made: type[Stream[Any]] = Stream,
    ) -> Any:
        """Return a stream of class ``made`` once its first message is there, or its end."""
        attempts = self._attempts(method, timeout, idempotency_key)
        attempts.lost |= resume
        payload = request.SerializeToString()
        while True:
            try:
                link, call, first = await self._begin(method, payload, attempts, metadata)
                return made(self, link, call, method.response, attempts.patience, first)
            except StockadeError as e:
                delay = attempts.after(e, time.monotonic())
            await self._sleep(delay)

    async def _pages(self, method: Method[Any, Any], request: Any) -> AsyncIterator[Any]:
        """Yield the answers of a paged list."""
        while True:
            page = await self._call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _watch(self, method: Method[Any, Any], request: Any) -> AsyncIterator[Any]:
        """Yield the messages of a stream, and go on after a restart of the broker.

        The caller writes into ``request`` where it is to go on.
        """
        stream: Optional[Stream[Any]] = None
        seen, failures = False, 0
        while True:
            try:
                stream = await self._stream(method, request, resume=failures > 0)
                while (message := await stream._next()) is not None:
                    failures, seen = 0, True
                    yield message
            except Unavailable as e:
                if isinstance(e, BrokerUnreachable) and not seen and failures == 0:
                    raise
            else:
                return
            finally:
                if stream is not None:
                    stream.cancel()
            failures += 1
            await self._sleep(min(0.05 * 2.0 ** min(failures, 5), 1.0))

    async def _usage(self, sandbox: str, tenant: str) -> AsyncIterator[telemetry_service_pb2.Usage]:
        request = made(telemetry_service_pb2.ListUsageRequest, sandbox_id=sandbox, tenant=tenant)
        async for page in self._pages(methods.LIST_USAGE, request):
            for usage in page.usage:
                yield usage

    async def _push(self, method: Method[Any, Any], request: Any) -> None:
        """Make a call that puts bytes into a queue.

        While that is full nothing of them is taken, so they are sent again.
        """
        delay = _PUSH_DELAY_FIRST
        while True:
            try:
                await self._call(method, request)
            except ResourceExhausted:
                await self._sleep(delay)
                delay = min(_PUSH_DELAY_MOST, delay * 2)
            else:
                return

    def _attempts(
        self, method: Method[Any, Any], timeout: Optional[Seconds], key: Optional[str]
    ) -> Attempts:
        now = time.monotonic()
        return Attempts(
            method,
            now=now,
            timeout=None if timeout is None else seconds("timeout", timeout),
            retry_for=self._retry_for,
            key=key,
            connected=self._connected,
        )

    async def _begin(
        self,
        method: Method[Any, Any],
        payload: bytes,
        attempts: Attempts,
        metadata: Iterable[tuple[str, str]],
    ) -> tuple[Connection, Call, Optional[bytes]]:
        """Make one attempt, as far as the first message; None is a good end without one."""
        link = await self._usable_link(attempts)
        self._connected = True
        if attempts.doubt is not None and not await self._same_broker(link, attempts):
            raise attempts.give_up()
        metadata = tuple(metadata)
        pairs = [*self._metadata(metadata), *approval_metadata(), *metadata]
        call = await link.open(method, payload, attempts, pairs)
        try:
            return link, call, await link.wait(call, attempts.patience)
        except BaseException:
            link.abandon(call)
            raise

    async def _same_broker(self, link: Connection, attempts: Attempts) -> bool:
        """After a doubt a call goes out again only to the broker that got it the first time."""
        once = Attempts(methods.INFO, now=time.monotonic(), timeout=self._connect_timeout)
        call = await link.open(methods.INFO, b"", once, self._metadata())
        try:
            await link.wait(call, once.patience)
        except ConnectionLost:
            raise
        except StockadeError:
            return False
        finally:
            link.abandon(call)
        info = parse(link, call, system_service_pb2.InfoResponse, call.payload)
        return attempts.same_broker(info.uptime_ms / 1000, time.monotonic())

    def _time_to_connect(self, attempts: Attempts) -> float:
        if attempts.deadline is None:
            return self._connect_timeout
        return min(self._connect_timeout, max(0.001, attempts.deadline - time.monotonic()))
