# SPDX-License-Identifier: Apache-2.0
"""A man in the middle: forwards bytes to a broker, and drops or changes what a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Callable, Optional

from stockade import address

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

#: Given the number of the connection, whether the bytes go to the broker, and the bytes: what to
#: forward instead. None drops the connection, both ways.
Change = Callable[[int, bool, bytes], Optional[bytes]]


class Proxy:
    """Listens on an address of the same kind as the broker's."""

    def __init__(self, folder: Path, broker: str, change: Change) -> None:
        self._broker = address.parse(broker)
        self._change = change
        if self._broker.ipc:
            self.address = f"ipc://{folder}/proxy.sock"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"{folder}/proxy.sock")
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._listener.listen(64)
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = self._broker.connect(5)
                far.settimeout(None)
                self._open += [near, far]
                self.connections += 1
                for source, target in ((near, far), (far, near)):
                    args = (self.connections, source is near, source, target)
                    threading.Thread(target=self._forward, args=args, daemon=True).start()

    def _forward(
        self, number: int, to_broker: bool, source: socket.socket, target: socket.socket
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65_536)
                try:
                    changed = self._change(number, to_broker, data) if data else None
                except Cut as cut:
                    target.sendall(cut.before)
                    break
                if changed is None:
                    break
                target.sendall(changed)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Drop every connection that is open now."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Cut(Exception):
    """Drop the connection, both ways, after these bytes."""

    def __init__(self, before: bytes) -> None:
        super().__init__()
        self.before = before


class CutAt:
    """Drops one connection of an ipc address, just before its frame of this number."""

    def __init__(self, frame: int) -> None:
        self._left = frame
        self._lock = threading.Lock()
        self._rest: dict[tuple[int, bool], bytes] = {}
        #: It has been dropped: there were so many frames.
        self.done = False
        #: Frames that went to the broker.
        self.sent: list[bytes] = []

    def __call__(self, number: int, to_broker: bool, data: bytes) -> bytes:
        """Give on whole frames alone."""
        with self._lock:
            rest = self._rest.pop((number, to_broker), None)
            hello = 8 if rest is None else 0
            data = (rest or b"") + data
            end = hello
            while len(data) >= end + 9:
                n = 9 + int.from_bytes(data[end + 1 : end + 9], "big")
                if len(data) < end + n:
                    break
                self._left -= 1
                if self._left < 0 and not self.done:
                    self.done = True
                    raise Cut(data[:end])
                if to_broker:
                    self.sent.append(data[end : end + n])
                end += n
            self._rest[number, to_broker] = data[end:]
            return data[:end]


class Withhold:
    """Keeps back for a while what the broker says after a request with these bytes in it."""

    def __init__(self, marker: bytes, seconds: float) -> None:
        self._marker = marker
        self._seconds = seconds
        self.seen = threading.Event()

    def __call__(self, _number: int, to_broker: bool, data: bytes) -> bytes:
        if to_broker and self._marker in data:
            self.seen.set()
        elif not to_broker and self.seen.is_set() and self._seconds:
            seconds, self._seconds = self._seconds, 0.0
            time.sleep(seconds)
        return data
