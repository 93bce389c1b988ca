# SPDX-License-Identifier: Apache-2.0
"""A peer for unit tests: the broker side of the wire, with lies where a test wants them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Callable

from stockade.v1 import system_service_pb2, wire_pb2
from stockade.wire import HELLO_REP, HELLO_REQ

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

ID_BIT = 0x80000000


def message(call_id: int, frame: wire_pb2.Frame | bytes, *, ipc: bool = True) -> bytes:
    """One SP message with a frame in it; raw bytes are taken for the frame as they are."""
    body = frame if isinstance(frame, bytes) else frame.SerializeToString()
    return (b"\1" if ipc else b"") + struct.pack(">QI", len(body) + 4, call_id) + body


def data(call_id: int, payload: bytes = b"") -> bytes:
    return message(call_id, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_DATA, payload=payload))


def end(call_id: int, payload: bytes = b"", code: int = 0, text: str = "") -> bytes:
    frame = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_END, payload=payload)
    if code:
        frame.status.code = code
        frame.status.message = text
    return message(call_id, frame)


def goaway(last_id: int, text: str = "draining") -> bytes:
    frame = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_GOAWAY)
    frame.status.code = 14
    frame.status.message = text
    return message(last_id, frame)


class Conversation:
    """One accepted connection, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(10)

    def read(self, n: int) -> bytes:
        got = b""
        while len(got) < n:
            more = self.sock.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def greet(self) -> Conversation:
        assert self.read(8) == HELLO_REQ
        self.send(HELLO_REP)
        return self

    def frame(self) -> tuple[int, wire_pb2.Frame]:
        head = self.read(13)
        assert head[0] == 1
        n, call_id = struct.unpack(">QI", head[1:])
        return call_id, wire_pb2.Frame.FromString(self.read(n - 4))

    def until(self, kind: int) -> tuple[int, wire_pb2.Frame]:
        while True:
            call_id, frame = self.frame()
            if frame.kind == kind:
                return call_id, frame

    def call(self) -> tuple[int, wire_pb2.Frame]:
        return self.until(wire_pb2.FRAME_KIND_CALL)

    def send(self, *parts: bytes) -> None:
        self.sock.sendall(b"".join(parts))

    def close(self) -> None:
        self.sock.close()


INFO = system_service_pb2.InfoResponse(version="1.2.3", uptime_ms=3_600_000)


def answer(c: Conversation, payload: bytes = INFO.SerializeToString()) -> wire_pb2.Frame:
    """Answer the next call, by default like a broker that has been up for an hour."""
    call_id, frame = c.call()
    c.send(end(call_id, payload))
    return frame


def once(c: Conversation) -> None:
    answer(c.greet())


def http(c: Conversation) -> None:
    c.read(8)
    c.send(b"HTTP/1.1 400\r\n\r\n")


class Peer:
    """Listens on a unix socket; each connection is handled by the next of the scripts."""

    def __init__(self, folder: Path, *scripts: Callable[[Conversation], object]) -> None:
        self.path = folder / "peer.sock"
        self.address = f"ipc://{self.path}"
        self.errors: list[BaseException] = []
        self.connections = 0
        self._scripts = scripts
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        for script in self._scripts:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(script, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, script: Callable[[Conversation], object], sock: socket.socket) -> None:
        conversation = Conversation(sock)
        try:
            script(conversation)
        except (OSError, EOFError):
            pass
        except BaseException as e:
            self.errors.append(e)
        finally:
            conversation.close()

    def away(self) -> None:
        """From now on no connection is possible."""
        self._listener.close()
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(5)
        for thread in self._threads:
            thread.join(15)
        if self.errors and error is None:
            raise self.errors[0]
