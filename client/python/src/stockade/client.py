# SPDX-License-Identifier: Apache-2.0
"""A client with threads: many calls at once on one connection, from as many threads as you like."""

from __future__ import annotations

import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Optional, Union

from stockade import address as addresses
from stockade import methods, telemetry, templates
from stockade.both import each, now
from stockade.calls import Caller, Stream
from stockade.errors import Cancelled
from stockade.fields import made
from stockade.link import Link
from stockade.methods import Method, Request, Response
from stockade.scoped import Scoped
from stockade.v1 import system_service_pb2, telemetry_service_pb2, template_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Self

    from stockade.attempts import Attempts
    from stockade.filing import Contents
    from stockade.limits import Seconds
    from stockade.requests import TemplateInfo
    from stockade.stubs import Schema
    from stockade.tls import TLS


class MessageStream(Stream[Response], Scoped):
    """The messages of a streaming call, in order.

    Iterate over it. Use ``with``, or ``cancel()``, to cancel the call.

    The iteration ends with the call; if the call fails, the iteration raises the ``CallError``.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Response:
        message = now(self._next())
        if message is None:
            raise StopIteration
        return message

    def get(self, until: Optional[float] = None) -> Optional[Response]:
        """Return the next message, or None at the end of the stream.

        ``until`` is a time of ``time.monotonic()``. At that time ``DeadlineExceeded`` is raised;
        the stream continues.
        """
        return now(self._get(until))

    def _exit(self, error: Optional[BaseException]) -> None:
        self.cancel()


class Client(Caller, Scoped):
    """A connection to a broker, which reconnects automatically.

    Thread-safe.

    ``address``          ``ipc:///path``, ``unix:/path``, ``tcp://host:port`` or
                         ``tls+tcp://host:port``; None: the variable ``STOCKADE_ADDRESS``, then the
                         broker's default socket
    ``token``            sent as ``authorization: Bearer TOKEN``; None: the variable
                         ``STOCKADE_TOKEN``
    ``token_file``       a file whose first line is the token, in place of ``token``. Each call
                         reads it, so that a token that is replaced (renamed over it) counts at
                         once; a call raises ``StockadeError`` if it cannot be read
    ``tls``              a ``TLS``, for ``tls+tcp`` addresses; None: what its variables say
    ``metadata``         sent with every call, such as ``{"traceparent": "..."}``
    ``connect_timeout``  timeout for the connection and the greeting, in seconds
    ``retry_for``        seconds for which the client retries a call if a retry is safe, and waits
                         for a broker that it was connected to before; 0: never

    >>> with Client() as client:                                                    # doctest: +SKIP
    ...     client.info().version
    '0.1.0'
    """

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
        super().__init__(
            address,
            token=token,
            token_file=token_file,
            tls=tls,
            metadata=metadata,
            connect_timeout=connect_timeout,
            retry_for=retry_for,
        )
        self._lock = threading.Lock()
        self._link: Optional[Link] = None
        self._finalizer: Optional[weakref.finalize[..., Client]] = None
        _clients.add(self)

    def _exit(self, error: Optional[BaseException]) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Open calls fail; later calls raise ``Cancelled``."""
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
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
    ) -> Response:
        """Make a unary call and return its response.

        ``timeout``          seconds; None: the method's longest deadline
        ``idempotency_key``  None: the client generates one if the method needs it

        Raises the ``CallError`` of the status, or ``ConnectionLost`` if the connection broke and a
        retry could execute the call twice.
        """
        return now(
            self._call(
                method,
                request,
                timeout=timeout,
                metadata=metadata,
                idempotency_key=idempotency_key,
            )
        )

    def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
        resume: bool = False,
    ) -> MessageStream[Response]:
        """Make a streaming call.

        Returns when the first message has arrived, or the stream has ended without one.

        ``resume``  the call continues another one that lost its connection: wait until the broker
                    is available again

        Raises the same exceptions as ``call``. The iteration raises later errors.
        """
        stream: MessageStream[Response] = now(
            self._stream(
                method,
                request,
                timeout=timeout,
                metadata=metadata,
                idempotency_key=idempotency_key,
                resume=resume,
                made=MessageStream,
            )
        )
        return stream

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - a coroutine that blocks (``both``)

    async def _usable_link(self, attempts: Attempts) -> Link:
        with self._lock:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                self._link = Link(self._address, self._time_to_connect(attempts))
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

    def info(self, *, tenant: str = "") -> system_service_pb2.InfoResponse:
        """Return information about the broker and its host.

        ``tenant``  whose weight, quotas and use; another one than the caller's requires root
        """
        return self.call(methods.INFO, made(system_service_pb2.InfoRequest, tenant=tenant))

    def templates(self) -> Iterator[TemplateInfo]:
        """Iterate over the templates of the host, then over those that the caller made."""
        return each(templates.templates(self))

    def delete_template(self, name: str) -> None:
        """Delete a template that the caller made: sandboxes of it keep their files.

        Raises ``NotFound``; ``FailedPrecondition``: it is the host's.
        """
        request = made(template_service_pb2.TemplateServiceDeleteRequest, name=name)
        self.call(methods.DELETE_TEMPLATE, request)

    def push_template(self, name: str) -> Iterator[bytes]:
        """Iterate over the bytes of the archive of a template that the caller made.

        Raises ``NotFound``; ``FailedPrecondition``: it is the host's; ``ResourceExhausted``: the
        caller pushes or loads one already.
        """
        return each(templates.push(self, name))

    def load_template(
        self, archive: Contents, *, name: str = "", replace: bool = False
    ) -> TemplateInfo:
        """Make a template of an archive: bytes, an open file, or an iterable of bytes.

        ``name``     of the new template; "": that in the archive
        ``replace``  the template of this name that the caller made, when the new one is complete

        Raises ``AlreadyExists``; ``InvalidArgument``: no broker pushed the archive, or it was
        changed; ``DataLoss``: it ends early; ``FailedPrecondition``: the host has not the
        template below it, or the archive is of a later version; ``ResourceExhausted``.
        """
        return now(templates.load(self, archive, name, replace))

    def serving(self, service: str = "") -> bool:
        """Return whether the broker, or one of its services, accepts calls.

        ``NotFound``: the service does not exist.
        """
        request = made(system_service_pb2.HealthServiceCheckRequest, service=service)
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
        instance: str = "",
        kept_only: bool = False,
        reconnect: bool = True,
        on_gap: Optional[telemetry.GapCallback] = None,
    ) -> telemetry.EventStream:
        """Return the events of sandboxes as they happen (``telemetry_service.proto``).

        ``sandboxes``      only these sandboxes, by id
        ``process``        only this job, by id
        ``kinds``          only these kinds, such as ``"denied"`` or ``"exec"``
        ``severity``       only this severity or higher, such as ``"warning"``
        ``tenant``         another caller, such as ``"uid:1000"``, or ``"*"`` for all; requires root
        ``from_sequence``  start with this event, if it is still kept; 0: only new events
        ``instance``       run of the broker that the number belongs to: ``Event.instance``
        ``kept_only``      end after the last event that has happened so far
        ``reconnect``      continue when the connection breaks or the broker is restarted
        ``on_gap``         called for missing events; its argument describes them
        """
        request = telemetry.request(
            sandboxes=sandboxes,
            process=process,
            kinds=kinds,
            severity=severity,
            tenant=tenant,
            from_sequence=from_sequence,
            instance=instance,
            kept_only=kept_only,
        )
        begin = partial(self.stream, methods.SUBSCRIBE)
        cursor = telemetry.Cursor(request, reconnect=reconnect)
        return telemetry.EventStream(begin, cursor, on_gap)

    def record(self, process: str = "") -> telemetry_service_pb2.GetRecordResponse:
        """Return the kernel's record of a job, while it runs and after it ended.

        ``process``  its id, or the first digits of it; empty: the caller's job that ended last
        """
        request = made(telemetry_service_pb2.GetRecordRequest, process_id=process)
        return self.call(methods.GET_RECORD, request)

    def usage(
        self, sandbox: str = "", *, tenant: str = ""
    ) -> Iterator[telemetry_service_pb2.Usage]:
        """Iterate over the current resource use of sandboxes.

        ``sandbox``  only this sandbox, by id or name (nothing if it does not exist); empty: all
        ``tenant``   another caller, such as ``"uid:1000"``, or ``"*"`` for all; requires root

        Most fields of its messages (``Usage`` in ``telemetry_service.proto``) are totals; compute a
        rate from the difference of two messages.
        """
        return each(self._usage(sandbox, tenant))

    def schema(self) -> Schema:
        """Fetch the broker's descriptors, for methods without a wrapper in this package."""
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
        if client is None or client._closed:
            client = _defaults[key] = Client(key[0], token=key[1])
        return client


def chosen(client: Optional[Client]) -> Client:
    """Return the client that the caller named, else the shared one."""
    if client is None:
        return default_client()
    if not isinstance(client, Client):
        raise TypeError(f"client={client!r}: expected a stockade.Client")
    return client


def info(*, client: Optional[Client] = None) -> system_service_pb2.InfoResponse:
    """Return information about the broker and its host: see ``Client.info``."""
    return chosen(client).info()


def _after_fork() -> None:
    global _default_lock  # noqa: PLW0603 - its holder is not in this process
    _default_lock = threading.Lock()
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
