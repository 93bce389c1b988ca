# SPDX-License-Identifier: Apache-2.0
"""One connection into a sandbox, for threads and asyncio alike (``both``).

What the sandbox says comes as a stream, what it is told goes as calls: two directions that run
beside each other, and end each other.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any, Callable, Optional

from stockade import methods
from stockade.errors import FailedPrecondition, NotFound, ProtocolError, StockadeError
from stockade.fields import made
from stockade.v1 import sandbox_service_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from stockade.calls import Caller, Stream

PIECE_BYTES = 32 * 1024
CONNECTIONS_MAX = 64  # at once, of one port: the broker takes no more of one sandbox

#: Called with the failure of a connection, such as a port without a listener.
ForwardError = Callable[[StockadeError], object]


def listen(host: str, port: int) -> socket.socket:
    """Listen on this machine's loopback. ``ValueError``: another address; ``OSError``: taken."""
    address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    if not address.is_loopback:
        raise ValueError(f"host={host!r}: not a loopback address")
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), port))
        sock.listen(CONNECTIONS_MAX)
    except BaseException:
        sock.close()
        raise
    return sock


def request(sandbox: str, port: int) -> sandbox_service_pb2.SandboxServiceForwardRequest:
    """Return the request for a connection."""
    return made(sandbox_service_pb2.SandboxServiceForwardRequest, id=sandbox, port=port)


class Tunnel:
    """A connection to a port of a sandbox."""

    def __init__(self, client: Caller, sandbox: str, port: int) -> None:
        self._client = client
        self._request = request(sandbox, port)
        self._stream: Optional[Stream[Any]] = None
        self._id = ""
        self._over = False

    async def open(self) -> None:
        """Connect. ``PermissionDenied``: the policy; ``FailedPrecondition``: no listener."""
        self._stream = await self._client._stream(methods.FORWARD, self._request)
        first = await self._stream._get(None)
        if first is None or not first.connection_id:
            self.end()
            raise ProtocolError("the broker opened a connection without saying which")
        self._id = first.connection_id

    async def down(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Pass on the bytes from the sandbox until their end."""
        assert self._stream is not None
        while (message := await self._stream._get(None)) is not None:
            if message.data:
                await send(message.data)

    async def up(self, receive: Callable[[int], Awaitable[bytes]]) -> None:
        """Pass on the bytes to the sandbox until their end, or the end of the connection."""
        try:
            while data := await receive(PIECE_BYTES):
                piece = made(
                    sandbox_service_pb2.SandboxServiceForwardInputRequest,
                    connection_id=self._id,
                    data=data,
                )
                await self._client._push(methods.FORWARD_INPUT, piece)
            if self._over:
                return
            end = made(
                sandbox_service_pb2.SandboxServiceForwardCloseRequest, connection_id=self._id
            )
            await self._client._call(methods.FORWARD_CLOSE, end)
        except (NotFound, FailedPrecondition):
            pass

    def end(self) -> None:
        """Close it immediately. Does nothing if it has ended or was never open."""
        self._over = True
        if self._stream is not None:
            self._stream.cancel()
