"""A client with threads: many calls at once on one connection, from as many threads as you like.

  caller's thread   opens a call in the core, writes, waits on the call's condition
  reader thread     one per connection: reads, feeds the core, wakes the callers of what changed;
  keeps alive

The connection is made with the first call and again when it was lost. See ``attempts`` for what is
sent again then.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections import deque
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
from stockade.v1 import system_service_pb2
from stockade.wire import Call, Core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from stockade.address import Address
    from stockade.stubs import Schema

KEEPALIVE = 20.0  # seconds of silence after which a PING goes out
MISSED_MAX = 2  # PINGs without a sign of life, after which the connection counts as lost
_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024


class _Link:
    """One connection and its reader thread.

    ``lock`` guards the core; ``_send_lock`` is held by whoever writes, and taken before ``lock``.
             The reader never
    waits for either side to take bytes: while it waited, the broker could not get rid of what it
    has for us.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        try:
            self._sock = address.connect(timeout)
        except OSError as e:
            raise BrokerUnreachable(f"connect to {address.text}: {e.strerror or e}") from e
        self.core = Core(ipc=address.ipc)
        self.lock = threading.Lock()
        self.abandoned: deque[Call] = deque()  # by a garbage collector that could not take the lock
        self._room = threading.Condition(self.lock)
        self._send_lock = threading.Lock()
        self._missed = 0
        try:
            self._greet(address, timeout)
        except BaseException:
            self._sock.close()
            raise
        self._sock.settimeout(KEEPALIVE)
        threading.Thread(target=self._read, name="stockade-reader", daemon=True).start()

    def _greet(self, address: Address, timeout: float) -> None:
        end = time.monotonic() + timeout
        try:
            self._sock.sendall(self.core.output)
            self.core.sent(len(self.core.output))
            while not self.core.greeted:
                self._sock.settimeout(max(0.001, end - time.monotonic()))
                data = self._sock.recv(_READ_BYTES)
                if not data:
                    raise BrokerUnreachable(
                        f"{address.text}: closed the connection before the first byte"
                    )
                self.core.feed(data)
        except StockadeError:
            raise
        except socket.timeout:
            raise BrokerUnreachable(f"{address.text}: no greeting within {timeout:g} s") from None
        except OSError as e:
            raise BrokerUnreachable(f"greet {address.text}: {e.strerror or e}") from e

    # Callers' threads.

    def open(
        self,
        method: Method[Any, Any],
        payload: bytes,
        attempts: Attempts,
        metadata: Iterable[tuple[str, str]],
    ) -> Call:
        """Open a call as soon as the connection has room for one more, and write it."""
        with self.lock:
            self._wait_for_room(method, attempts.deadline)
            left = None if attempts.deadline is None else attempts.deadline - time.monotonic()
            call = self.core.open(
                method.path,
                payload,
                streaming=method.streaming,
                timeout=left,
                metadata=[*metadata, *attempts.metadata()],
            )
            call.waiter = threading.Condition(self.lock)
        try:
            self.flush()
        except BaseException:
            self.abandon(call)
            raise
        return call

    def _wait_for_room(self, method: Method[Any, Any], deadline: Optional[float]) -> None:
        while True:
            if not self.core.usable:
                why = self.core.goaway or str(self.core.dead)
                raise ConnectionLost(why, method=method.path, maybe_executed=False)
            if self.core.has_room(streaming=method.streaming):
                return
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded("wait for room on the connection", method=method.path)
            self._room.wait(left)

    def wait(self, call: Call, until: Optional[float]) -> Optional[bytes]:
        """Wait for a call's next message. None: it is over, well; its error is raised otherwise."""
        waiter = call.waiter
        assert isinstance(waiter, threading.Condition)
        with self.lock:
            while not call.messages and not call.done:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineExceeded("no answer in time", method=call.method)
                waiter.wait(left)
            if not call.messages:
                if call.error is not None:
                    raise call.error
                return None
            message = call.messages.popleft()
            self.core.taken(call)
        self.flush()
        return message

    def abandon(self, call: Call) -> None:
        """Give a call up, from a caller's thread."""
        with self.lock:
            self.core.abandon(call)
        with contextlib.suppress(StockadeError):
            self.flush()

    def flush(self) -> None:
        """Write what is to be written. A failure ends the connection, and so every call on it."""
        self._sweep()
        while self.core.output:
            with self._send_lock:
                self._drain()

    def _sweep(self) -> None:
        while self.abandoned:
            call = self.abandoned.popleft()
            with self.lock:
                self.core.abandon(call)

    def _drain(self) -> None:
        while True:
            with self.lock:
                if self.core.dead is not None:
                    self.core.output.clear()
                chunk = self.core.offer(_WRITE_BYTES)
            if not chunk:
                return
            try:
                n = self._sock.send(chunk)
            except OSError as e:
                with self.lock:
                    self.core.sent(0)
                self.lost(f"write to the broker: {e.strerror or e}")
                return
            with self.lock:
                self.core.sent(n)

    # The reader's thread.

    def _read(self) -> None:
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        why = "the broker closed the connection"
        try:
            while True:
                try:
                    n = self._sock.recv_into(buffer)
                except socket.timeout:
                    if not self._keep_alive():
                        why = f"the broker was silent for {KEEPALIVE * (MISSED_MAX + 1):g} s"
                        break
                    continue
                if n == 0:
                    break
                self._missed = 0
                if not self._feed(view[:n]):
                    why = self.core.goaway or why
                    break
        except ProtocolError as e:
            why = str(e)
        except OSError as e:
            why = f"read from the broker: {e.strerror or e}"
        self.lost(why)
        with self._send_lock:
            self._sock.close()

    def _feed(self, data: memoryview) -> bool:
        with self.lock:
            changed = self.core.feed(data)
            for call in changed:
                assert isinstance(call.waiter, threading.Condition)
                call.waiter.notify()
            if changed or self.core.goaway:
                self._room.notify_all()
            going = self.core.goaway is None or not self.core.idle
        self._flush_now()
        return going

    def _keep_alive(self) -> bool:
        self._missed += 1
        if self._missed > MISSED_MAX:
            return False
        with self.lock:
            self.core.ping()
        self._flush_now()
        return True

    def _flush_now(self) -> None:
        """Write what the socket takes at once.

        A caller that is writing takes the rest along: it looks again.
        """
        if not self.core.output or not self._send_lock.acquire(blocking=False):
            return
        try:
            with self.lock, contextlib.suppress(BlockingIOError):
                self.core.sent(os.write(self._sock.fileno(), self.core.offer(_WRITE_BYTES)))
        finally:
            self._send_lock.release()

    def lost(self, why: str) -> None:
        """End the connection: every open call fails. Any thread; once is enough."""
        with self.lock:
            for call in self.core.lost(why):
                assert isinstance(call.waiter, threading.Condition)
                call.waiter.notify_all()
            self._room.notify_all()
        self.shut()

    def shut(self) -> None:
        """Let the reader see the end of the connection. Takes no lock: a destructor may call it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Drop the connection in a forked child: it is the parent's."""
        self._sock.close()


class MessageStream(Generic[Response]):
    """The messages of a streaming call, in order.

    Iterate over it; use ``with``, or ``cancel()``, to give it up.

    When it is over the iteration ends; when it ended badly the ``CallError`` is raised there.
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Response:
        try:
            message = self.get(self._until)
        except BaseException:
            self.cancel()
            raise
        if message is None:
            raise StopIteration
        return message

    def get(self, until: Optional[float] = None) -> Optional[Response]:
        """Return the next message, or None at the end of the stream.

        ``until`` is a time of ``time.monotonic()``: ``DeadlineExceeded`` is raised then, and the
        stream goes on.
        """
        if self._over:
            return None
        data, self._first = self._first, None
        if data is None:
            data = self._link.wait(self._call, until)
        if data is None:
            self._over = True
            return None
        return _parse(self._link, self._call, self._response, data)

    def cancel(self) -> None:
        """Give the call up.

        What the broker does then is the method's own matter: ``Run`` ends the job.
        """
        self._over = True
        self._link.abandon(self._call)

    def _leave(self) -> None:
        """Nothing more will come but the END."""
        self._over = True
        with self._link.lock:
            self._link.core.leave(self._call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        if not self._over:
            self._link.abandoned.append(
                self._call
            )  # a destructor may run while this thread holds the lock


def _parse(link: _Link, call: Call, response: type[Response], data: bytes) -> Response:
    message = response()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError):
        error = ProtocolError(f"{call.method}: the answer is no {response.DESCRIPTOR.full_name}")
        with link.lock:
            link.core.dead = error
        link.lost(str(error))
        raise error from None
    return message


class Client:
    """A connection to a broker, made when it is needed and made again when it was lost.

    Thread-safe.

    ``address``          ``ipc:///path`` or ``tcp://host:port``; None: the variable
                         ``STOCKADE_ADDRESS``, then the broker's default socket
    ``token``            sent as ``authorization: Bearer TOKEN``; None: the variable
                         ``STOCKADE_TOKEN``
    ``metadata``         sent with every call, such as ``{"traceparent": "..."}``
    ``connect_timeout``  seconds for connecting and greeting
    ``retry_for``        seconds for which a call is tried again where that is harmless; 0: never

    >>> with Client() as client:                                                    # doctest: +SKIP
    ...     client.info().version
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
        self._lock = threading.Lock()
        self._link: Optional[_Link] = None
        self._finalizer: Optional[weakref.finalize[..., Client]] = None
        self._closed = False
        _clients.add(self)

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._address.text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Open calls fail; a later one raises ``Cancelled``."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.lost("the client was closed")

    # Calls.

    def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[float] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
    ) -> Response:
        """Make a unary call and return its response.

        ``timeout``          seconds; None: the method's longest
        ``idempotency_key``  None: one is made where the method needs one

        Raises the ``CallError`` of the status; ``ConnectionLost`` when the connection broke and
        sending it again could execute it twice.
        """
        attempts = self._attempts(method, timeout, idempotency_key)
        payload = request.SerializeToString()
        while True:
            try:
                link = self._connect(attempts)
                call = link.open(method, payload, attempts, [*self._metadata, *metadata])
                try:
                    if link.wait(call, attempts.patience) is not None:
                        raise ProtocolError(f"{method.path}: a stream where one answer was due")
                except BaseException:
                    link.abandon(call)
                    raise
                return _parse(link, call, method.response, call.payload)
            except StockadeError as e:
                time.sleep(attempts.after(e, time.monotonic()))

    def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[float] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
        resume: bool = False,
    ) -> MessageStream[Response]:
        """Make a streaming call.

        Returns when the first message is there, or when the stream ended without one.

        ``resume``  the call goes on where another one lost its connection: wait for the broker to
                    come back

        Raises like ``call``. What fails later is raised by the iteration.
        """
        attempts = self._attempts(method, timeout, idempotency_key)
        attempts.lost = resume
        payload = request.SerializeToString()
        while True:
            try:
                link = self._connect(attempts)
                call = link.open(method, payload, attempts, [*self._metadata, *metadata])
                try:
                    first = link.wait(call, attempts.patience)
                except BaseException:
                    link.abandon(call)
                    raise
                return MessageStream(self, link, call, method.response, attempts.patience, first)
            except StockadeError as e:
                time.sleep(attempts.after(e, time.monotonic()))

    def _attempts(
        self, method: Method[Any, Any], timeout: Optional[float], key: Optional[str]
    ) -> Attempts:
        now = time.monotonic()
        return Attempts(method, now=now, timeout=timeout, retry_for=self._retry_for, key=key)

    def _connect(self, attempts: Attempts) -> _Link:
        """Return a connection that takes calls; after a doubt, only to the same broker."""
        link = self._usable_link(attempts)
        if attempts.doubt is not None and not self._same_broker(link, attempts):
            raise attempts.give_up()
        return link

    def _same_broker(self, link: _Link, attempts: Attempts) -> bool:
        once = Attempts(methods.INFO, now=time.monotonic(), timeout=self._connect_timeout)
        call = link.open(methods.INFO, b"", once, self._metadata)
        try:
            link.wait(call, once.patience)
        except ConnectionLost:
            raise
        except StockadeError:
            return False
        finally:
            link.abandon(call)
        info = _parse(link, call, system_service_pb2.InfoResponse, call.payload)
        return attempts.same_broker(info.uptime_ms / 1000, time.monotonic())

    def _usable_link(self, attempts: Attempts) -> _Link:
        with self._lock:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                timeout = self._connect_timeout
                if attempts.deadline is not None:
                    timeout = min(timeout, max(0.001, attempts.deadline - time.monotonic()))
                self._link = _Link(self._address, timeout)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(self, self._link.shut)
            return self._link

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        link, self._link = self._link, None
        if link is not None:
            link.forget()

    # What needs no sandbox.

    def info(self) -> system_service_pb2.InfoResponse:
        """Return what the broker says about itself and its host: templates, what is degraded."""
        return self.call(methods.INFO, system_service_pb2.InfoRequest())

    def serving(self, service: str = "") -> bool:
        """Tell whether the broker, or one of its services, takes calls.

        ``NotFound``: no such service.
        """
        request = system_service_pb2.HealthServiceCheckRequest(service=service)
        status = self.call(methods.HEALTH_CHECK, request).status
        return status == system_service_pb2.SERVING_STATUS_SERVING

    def schema(self) -> Schema:
        """Fetch the broker's descriptors: stubs for what this package has no wrapper for."""
        from stockade.stubs import Schema  # noqa: PLC0415 - stubs needs this module

        response = self.call(methods.REFLECT, system_service_pb2.GetFileDescriptorSetRequest())
        return Schema(response.file_descriptor_set)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_default_lock = threading.Lock()
_defaults: dict[tuple[str, Optional[str]], Client] = {}


def default_client() -> Client:
    """Return the process's shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``."""
    key = (addresses.parse(None).text, os.environ.get("STOCKADE_TOKEN"))
    with _default_lock:
        client = _defaults.get(key)
        if client is None:
            client = _defaults[key] = Client(key[0], token=key[1])
        return client


def _after_fork() -> None:
    global _default_lock  # noqa: PLW0603 - whoever held it is not in this process
    _default_lock = threading.Lock()
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
