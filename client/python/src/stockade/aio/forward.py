# SPDX-License-Identifier: Apache-2.0
"""A port of this machine's loopback, forwarded to a sandbox, for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Optional

from stockade.errors import StockadeError
from stockade.scoped import AsyncScoped
from stockade.tunnel import CONNECTIONS_MAX, PIECE_BYTES, ForwardError, Tunnel

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

    from typing_extensions import Self

    from stockade.calls import Caller


class Forward(AsyncScoped):
    """A port of this machine that ``Sandbox.forward`` forwards to a sandbox.

    Close it, or use it as a context manager: that ends every connection, too.
    """

    def __init__(
        self,
        client: Caller,
        sandbox: str,
        port: int,
        listener: socket.socket,
        on_error: Optional[ForwardError],
    ) -> None:
        self._client = client
        self._sandbox = sandbox
        self._to = port
        self._on_error = on_error
        self._server: Optional[asyncio.AbstractServer] = None
        self._open: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        #: The local address.
        self.host: str = listener.getsockname()[0]
        #: The local port.
        self.port: int = listener.getsockname()[1]

    async def _begin(self, listener: socket.socket) -> Self:
        self._server = await asyncio.start_server(self._accepted, sock=listener, limit=PIECE_BYTES)
        return self

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _exit(self, error: Optional[BaseException]) -> None:
        await self.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel = Tunnel(self._client, self._sandbox, self._to)

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            async with self._room:
                await tunnel.open()
                await _both(tunnel.down(send), tunnel.up(reader.read))
            await writer.drain()
            writer.close()
        except StockadeError as e:
            if self._on_error is not None:
                self._on_error(e)
        except OSError:  # the local peer has disconnected
            pass
        finally:
            tunnel.end()
            if not writer.is_closing():
                writer.transport.abort()


async def _both(down: Coroutine[Any, Any, None], up: Coroutine[Any, Any, None]) -> None:
    """Run until the sandbox says no more, or either direction fails."""
    tasks = [asyncio.ensure_future(down), asyncio.ensure_future(up)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
