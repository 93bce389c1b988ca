# SPDX-License-Identifier: Apache-2.0
"""One connection for asyncio: one task reads and feeds the core, callers sleep on events."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any, Optional

from stockade.address import QUEUE_DELAY
from stockade.errors import (
    BrokerUnreachable,
    DeadlineExceeded,
    ProtocolError,
    StockadeError,
)
from stockade.tls import rejected, unreachable
from stockade.wire import Call, Core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stockade.address import Address
    from stockade.attempts import Attempts
    from stockade.methods import Method

# Seconds without a frame after which a PING is sent; after the same time again, the connection
# counts as lost.
KEEPALIVE = 20.0
_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """One connection and the task that reads from it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, core: Core
    ) -> None:
        self.core = core
        self._reader = reader
        self._writer = writer
        self._room: set[asyncio.Event] = set()
        self._draining: Optional[asyncio.Task[None]] = None
        self.loop = asyncio.get_running_loop()
        self.loop.call_later(KEEPALIVE, self._keep_alive)
        self._task = asyncio.create_task(self._read(), name="stockade-reader")

    @classmethod
    async def connect(cls, address: Address, timeout: float) -> Link:
        """Connect and greet within `timeout` seconds. ``BrokerUnreachable`` when that fails."""
        core = Core(ipc=address.ipc, now=time.monotonic())
        try:
            connected = await _within(timeout, asyncio.ensure_future(_connect(core, address)))
        except StockadeError:
            raise
        except OSError as e:
            raise unreachable(address.text, e) from e
        if connected is None:
            raise BrokerUnreachable(f"{address.text}: no answer within {timeout:g} s")
        return cls(*connected, core)

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
            self.core.check_usable(method.path)
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
        """Wait for a call's next message. None: it ended with OK; its error is raised otherwise."""
        event = call.waiter
        assert isinstance(event, asyncio.Event)
        while not call.messages and not call.done:
            event.clear()
            if not await _sleep_on(event, until):
                raise DeadlineExceeded("no answer in time", method=call.method)
        message = self.core.take(call)
        self.flush()
        return message

    def abandon(self, call: Call) -> None:
        """Cancel a call."""
        self.core.abandon(call)
        self.flush()

    def collected(self, call: Call) -> None:
        """Cancel a call, from a destructor: on any thread; the event loop may be closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.abandon, call)

    def leave(self, call: Call) -> None:
        """Ignore the rest of the call, except its END."""
        self.core.leave(call)

    def spoilt(self, error: ProtocolError) -> None:
        """End a connection whose broker breaks the protocol."""
        self.core.dead = error
        self.lost(str(error))

    def flush(self) -> None:
        """Write the queued bytes. Bytes that the broker does not read stay in the core."""
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
        changed = self.core.feed(data, time.monotonic())
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
        now = time.monotonic()
        if not self.core.keep_alive(now, KEEPALIVE):
            self.lost(f"the broker has not responded for {2 * KEEPALIVE:g} s")
            return
        self.flush()
        self.loop.call_later(KEEPALIVE - self.core.silent(now), self._keep_alive)

    def _wake_room(self) -> None:
        for room in self._room:
            room.set()

    def lost(self, why: str) -> None:
        """End the connection: every open call fails. A second call does nothing."""
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


async def _within(timeout: float, connecting: asyncio.Task[_Streams]) -> Optional[_Streams]:
    """Wait for a connection; None when that takes longer.

    Not ``wait_for``: before Python 3.12 that forgets to be cancelled when both happen at once.
    """
    try:
        await asyncio.wait([connecting], timeout=timeout)
        if connecting.done():
            return connecting.result()
    except asyncio.CancelledError:
        connecting.add_done_callback(_drop)
        raise
    finally:
        connecting.cancel()
    await asyncio.wait([connecting])
    return None


def _drop(connecting: asyncio.Task[_Streams]) -> None:
    """Close a connection that has no waiter any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[1].close()


async def _unix_socket(path: str) -> socket.socket:
    """Connect to a unix socket. asyncio takes one whose queue is full for connected."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        while True:
            try:
                sock.connect(path)
            except BlockingIOError:
                await asyncio.sleep(QUEUE_DELAY)
            else:
                return sock
    except BaseException:
        sock.close()
        raise


async def _connect(core: Core, address: Address) -> _Streams:
    """Connect and greet."""
    if address.ipc:
        sock = await _unix_socket(address.path)
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=_READ_BYTES)
    else:
        tls = address.tls
        reader, writer = await asyncio.open_connection(
            address.host,
            address.port,
            limit=_READ_BYTES,
            ssl=None if tls is None else tls.context(),
            server_hostname=None if tls is None else tls.server_name or address.host,
        )
    try:
        if address.tls is not None:
            secure = writer.get_extra_info("ssl_object")
            address.tls.check(secure.getpeercert(binary_form=True))
        hello = core.offer(_WRITE_BYTES)
        writer.write(hello)
        core.sent(len(hello))
        while not core.greeted:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise rejected(address.text)
            core.feed(data, time.monotonic())
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
