"""A client with threads: many calls at once on one connection, from as many threads as you like.

The connection (``link``) is made with the first call and again when it was lost. See ``attempts``
for what is sent again then.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Generic, Optional

from google.protobuf.message import DecodeError

from stockade import address as addresses
from stockade import methods, telemetry
from stockade.attempts import Attempts
from stockade.errors import (
    Cancelled,
    ConnectionLost,
    ProtocolError,
    StockadeError,
)
from stockade.link import Link
from stockade.methods import Method, Request, Response
from stockade.v1 import system_service_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from stockade.stubs import Schema
    from stockade.wire import Call


class MessageStream(Generic[Response]):
    """The messages of a streaming call, in order.

    Iterate over it; use ``with``, or ``cancel()``, to give it up.

    When it is over the iteration ends; when it ended badly the ``CallError`` is raised there.
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


def _parse(link: Link, call: Call, response: type[Response], data: bytes) -> Response:
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
        self._link: Optional[Link] = None
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

    def _connect(self, attempts: Attempts) -> Link:
        """Return a connection that takes calls; after a doubt, only to the same broker."""
        link = self._usable_link(attempts)
        if attempts.doubt is not None and not self._same_broker(link, attempts):
            raise attempts.give_up()
        return link

    def _same_broker(self, link: Link, attempts: Attempts) -> bool:
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

    def _usable_link(self, attempts: Attempts) -> Link:
        with self._lock:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                timeout = self._connect_timeout
                if attempts.deadline is not None:
                    timeout = min(timeout, max(0.001, attempts.deadline - time.monotonic()))
                self._link = Link(self._address, timeout)
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

    def events(
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
    ) -> telemetry.EventStream:
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
        return telemetry.EventStream(self.stream(methods.SUBSCRIBE, request), on_gap)

    def record(self, process: str = "") -> telemetry_service_pb2.GetRecordResponse:
        """Return what the kernel saw of a job, while it runs and after it.

        ``process``  its id, or the beginning of it; empty: the caller's job that ended last
        """
        request = telemetry_service_pb2.GetRecordRequest(process_id=process)
        return self.call(methods.GET_RECORD, request)

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
