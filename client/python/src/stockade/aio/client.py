# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: many calls at once on one connection, all in one event loop.

A client belongs to the event loop that it was first used in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Optional, Union

from stockade import address as addresses
from stockade import methods, telemetry, templates
from stockade.aio.link import Link
from stockade.aio.telemetry import EventStream
from stockade.calls import Caller, Stream
from stockade.errors import Cancelled
from stockade.fields import made
from stockade.methods import Method, Request, Response
from stockade.scoped import AsyncScoped
from stockade.stubs import Schema
from stockade.v1 import system_service_pb2, telemetry_service_pb2, template_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from typing_extensions import Self

    from stockade.attempts import Attempts
    from stockade.filing import Contents
    from stockade.limits import Seconds
    from stockade.requests import TemplateInfo
    from stockade.tls import TLS


class MessageStream(Stream[Response], AsyncScoped):
    """The messages of a streaming call, in order: ``async for``.

    Use ``async with``, or ``cancel()``, to give it up. When it ended badly the iteration raises the
    ``CallError``.
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Response:
        message = await self._next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, until: Optional[float] = None) -> Optional[Response]:
        """Return the next message. See ``stockade.MessageStream.get``."""
        return await self._get(until)

    async def _exit(self, error: Optional[BaseException]) -> None:
        self.cancel()


class Client(Caller, AsyncScoped):
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
        self._link: Optional[Link] = None
        self._finalizer: Optional[weakref.finalize[..., Client]] = None
        self._connecting: Optional[asyncio.Lock] = None

    async def _exit(self, error: Optional[BaseException]) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Open calls fail; later calls raise ``Cancelled``."""
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
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
    ) -> Response:
        """Make a unary call and return its response. See ``stockade.Client.call``."""
        return await self._call(
            method, request, timeout=timeout, metadata=metadata, idempotency_key=idempotency_key
        )

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: Optional[Seconds] = None,
        metadata: Iterable[tuple[str, str]] = (),
        idempotency_key: Optional[str] = None,
        resume: bool = False,
    ) -> MessageStream[Response]:
        """Make a streaming call. See ``stockade.Client.stream``."""
        stream: MessageStream[Response] = await self._stream(
            method,
            request,
            timeout=timeout,
            metadata=metadata,
            idempotency_key=idempotency_key,
            resume=resume,
            made=MessageStream,
        )
        return stream

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _usable_link(self, attempts: Attempts) -> Link:
        if self._connecting is None:  # 3.9 binds a lock to the event loop where it is made
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._link is None or not self._link.core.usable:
                self._link = await Link.connect(self._address, self._time_to_connect(attempts))
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(self, _drop, self._link)
            return self._link

    # What needs no sandbox.

    async def info(self, *, tenant: str = "") -> system_service_pb2.InfoResponse:
        """Return information about the broker and its host.

        ``tenant``  whose weight, quotas and use; another one than the caller's requires root
        """
        return await self.call(methods.INFO, made(system_service_pb2.InfoRequest, tenant=tenant))

    def templates(self) -> AsyncIterator[TemplateInfo]:
        """Iterate over the templates of the host, then over those that the caller made."""
        return templates.templates(self)

    async def delete_template(self, name: str) -> None:
        """Delete a template that the caller made: sandboxes of it keep their files.

        Raises ``NotFound``; ``FailedPrecondition``: it is the host's.
        """
        request = made(template_service_pb2.TemplateServiceDeleteRequest, name=name)
        await self.call(methods.DELETE_TEMPLATE, request)

    def push_template(self, name: str) -> AsyncIterator[bytes]:
        """Iterate over the bytes of the archive of a template that the caller made.

        Raises ``NotFound``; ``FailedPrecondition``: it is the host's; ``ResourceExhausted``: the
        caller pushes or loads one already.
        """
        return templates.push(self, name)

    async def load_template(
        self, archive: Contents, *, name: str = "", replace: bool = False
    ) -> TemplateInfo:
        """Make a template of an archive: bytes, an open file, or an iterable of bytes.

        ``name``     of the new template; "": that in the archive
        ``replace``  the template of this name that the caller made, when the new one is complete

        Raises ``AlreadyExists``; ``InvalidArgument``: no broker pushed the archive, or it was
        changed; ``DataLoss``: it ends early; ``FailedPrecondition``: the host has not the
        template below it, or the archive is of a later version; ``ResourceExhausted``.
        """
        return await templates.load(self, archive, name, replace)

    async def serving(self, service: str = "") -> bool:
        """Return whether the broker, or one of its services, accepts calls.

        ``NotFound``: the service does not exist.
        """
        request = made(system_service_pb2.HealthServiceCheckRequest, service=service)
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
        instance: str = "",
        kept_only: bool = False,
        reconnect: bool = True,
        on_gap: Optional[telemetry.GapCallback] = None,
    ) -> EventStream:
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
        return EventStream(begin, await begin(cursor.request), cursor, on_gap)

    async def record(self, process: str = "") -> telemetry_service_pb2.GetRecordResponse:
        """Return the kernel's record of a job, while it runs and after it ended.

        ``process``  its id, or the first digits of it; empty: the caller's job that ended last
        """
        request = made(telemetry_service_pb2.GetRecordRequest, process_id=process)
        return await self.call(methods.GET_RECORD, request)

    def usage(
        self, sandbox: str = "", *, tenant: str = ""
    ) -> AsyncIterator[telemetry_service_pb2.Usage]:
        """Iterate over the current resource use of sandboxes.

        ``sandbox``  only this sandbox, by id or name (nothing if it does not exist); empty: all
        ``tenant``   another caller, such as ``"uid:1000"``, or ``"*"`` for all; requires root

        Most fields of its messages (``Usage`` in ``telemetry_service.proto``) are totals; compute a
        rate from the difference of two messages.
        """
        return self._usage(sandbox, tenant)

    async def schema(self) -> Schema:
        """Fetch the broker's descriptors, for methods without a wrapper in this package."""
        request = system_service_pb2.GetFileDescriptorSetRequest()
        return Schema((await self.call(methods.REFLECT, request)).file_descriptor_set)


def _drop(link: Link) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed, and with it the connection
        link.loop.call_soon_threadsafe(link.lost, "the client was collected")


_defaults: dict[asyncio.AbstractEventLoop, dict[tuple[str, Optional[str]], Client]] = {}


def default_client() -> Client:
    """Return the event loop's shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``."""
    key = (addresses.parse(None).text, os.environ.get("STOCKADE_TOKEN"))
    for loop in list(_defaults):
        if loop.is_closed():  # its clients refer to it, and would keep it alive
            _defaults.pop(loop, None)
    clients = _defaults.setdefault(asyncio.get_running_loop(), {})
    client = clients.get(key)
    if client is None or client._closed:
        client = clients[key] = Client(key[0], token=key[1])
    return client


def chosen(client: Optional[Client]) -> Client:
    """Return the client that the caller named, else the event loop's shared one."""
    if client is None:
        return default_client()
    if not isinstance(client, Client):
        raise TypeError(f"client={client!r}: expected a stockade.aio.Client")
    return client


async def info(*, client: Optional[Client] = None) -> system_service_pb2.InfoResponse:
    """Return information about the broker and its host: see ``Client.info``."""
    return await chosen(client).info()
