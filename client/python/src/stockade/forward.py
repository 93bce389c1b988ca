# SPDX-License-Identifier: Apache-2.0
"""A port of this machine's loopback, forwarded to a sandbox, for programs with threads."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Optional

from stockade.both import now
from stockade.errors import Cancelled, StockadeError
from stockade.scoped import Scoped
from stockade.tunnel import CONNECTIONS_MAX, ForwardError, Tunnel

if TYPE_CHECKING:
    from stockade.calls import Caller

_END_S = 5.0  # seconds for the threads of connections to end


class Forward(Scoped):
    """A port of this machine that ``Sandbox.forward`` forwards to a sandbox.

    Each connection to ``host`` and ``port`` is forwarded by threads of its own. Close it, or use it
    as a context manager; that also closes every connection.
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
        self._listener = listener
        self._on_error = on_error
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._open: set[_Connection] = set()
        self._closed = False
        #: The local address.
        self.host: str = listener.getsockname()[0]
        #: The local port.
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="stockade-forward", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and close every connection."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
            self._room.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            connection.end()
        until = time.monotonic() + _END_S
        for thread in [self._thread, *(connection.thread for connection in connections)]:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    def _exit(self, error: Optional[BaseException]) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # no descriptor is free, or the peer has gone already
                continue
            self._begin(_Connection(self, sock, Tunnel(self._client, self._sandbox, self._to)))

    def _begin(self, connection: _Connection) -> None:
        with self._lock:
            while len(self._open) >= CONNECTIONS_MAX and not self._closed:
                self._room.wait()
            if self._closed:
                connection.sock.close()
                return
            try:  # under the lock: close() waits for the threads of all that it finds
                connection.thread.start()
            except RuntimeError:  # no thread for it: its peer sees the connection end
                connection.sock.close()
                return
            self._open.add(connection)

    def _over(self, connection: _Connection) -> None:
        with self._lock:
            self._open.discard(connection)
            self._room.notify()

    def _tell(self, error: StockadeError) -> None:
        if self._on_error is not None and not (self._closed and isinstance(error, Cancelled)):
            self._on_error(error)


class _Connection:
    """A local connection, the thread that reads from the sandbox, and the one that writes to it."""

    def __init__(self, forward: Forward, sock: socket.socket, tunnel: Tunnel) -> None:
        self.sock = sock
        self._forward = forward
        self._tunnel = tunnel
        self.thread = threading.Thread(target=self._run, name="stockade-forward-down", daemon=True)

    def end(self) -> None:
        """Let both threads come to their end. Any thread."""
        self._tunnel.end()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            self._carry()
        except StockadeError as e:
            self._forward._tell(e)
        except OSError:  # the local peer has disconnected
            pass
        finally:
            self.sock.close()
            self._forward._over(self)

    def _carry(self) -> None:
        now(self._tunnel.open())
        up = threading.Thread(target=self._up, name="stockade-forward-up", daemon=True)
        up.start()
        try:
            if not self._forward._closed:
                now(self._tunnel.down(self._send))
        except StockadeError as e:
            self._forward._tell(e)
        finally:
            self.end()
            up.join()

    def _up(self) -> None:
        try:
            now(self._tunnel.up(self._receive))
        except StockadeError as e:
            self.end()
            self._forward._tell(e)
        except OSError:
            self.end()

    async def _send(self, data: bytes) -> None:
        self.sock.sendall(data)

    async def _receive(self, n: int) -> bytes:
        return self.sock.recv(n)
