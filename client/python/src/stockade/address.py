# SPDX-License-Identifier: Apache-2.0
"""Where the broker is: ``ipc:///path`` or ``unix:/path``, ``tcp://host:port``, ``tls+tcp://host:port``."""

from __future__ import annotations

import os
import socket
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union
from urllib.parse import urlsplit

from stockade import tls as secure
from stockade.errors import AddressError, StockadeError
from stockade.fields import is_a
from stockade.requests import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "ipc:///run/stockade/stockade.sock"
_UNIX = ("ipc://", "unix://", "unix:")  # three ways to write the same
QUEUE_DELAY = 0.01  # seconds until the next attempt at a unix socket whose queue is full


@dataclass(frozen=True)
class Address:
    """A parsed address. ``ipc`` also chooses the framing: one byte more before each message."""

    text: str
    ipc: bool
    path: str = ""
    host: str = ""
    port: int = 0
    tls: Optional[secure.TLS] = None

    def target(self) -> Union[str, tuple[str, int]]:
        """Return what ``socket.connect`` takes."""
        return self.path if self.ipc else (self.host, self.port)

    def connect(self, timeout: float) -> socket.socket:
        """Connect within `timeout` seconds.

        ``OSError`` when that fails. The caller closes the socket.
        """
        if not self.ipc:
            sock = socket.create_connection((self.host, self.port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock if self.tls is None else secure.connect(sock, self.host, self.tls)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        until = time.monotonic() + timeout
        try:
            sock.settimeout(timeout)
            while True:
                try:
                    sock.connect(self.path)
                except BlockingIOError:  # so many connect at once that no more may wait
                    if time.monotonic() > until:
                        raise
                    time.sleep(QUEUE_DELAY)
                else:
                    return sock
        except BaseException:
            sock.close()
            raise


def parse(text: str | None, tls: secure.TLS | None = None) -> Address:
    """Parse an address, with the settings of TLS if it is of that kind.

    None stands for the variable ``STOCKADE_ADDRESS``, then for the broker's own default.

    Raises ``AddressError`` for anything but a unix socket, tcp and TLS.
    """
    if text is not None and not isinstance(text, str):
        raise AddressError(f"{text!r}: an address is text, as in {DEFAULT}")
    if text == "":
        raise AddressError(f"an address must not be empty; it is text, as in {DEFAULT}")
    text = text or os.environ.get("STOCKADE_ADDRESS") or DEFAULT
    scheme = next((known for known in _UNIX if text.startswith(known)), None)
    if scheme is not None:
        path = text[len(scheme) :]
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > 107:
            raise AddressError(
                f"{text!r}: needs an absolute path of at most 107 bytes, as in {DEFAULT}"
            )
        return Address(text, ipc=True, path=path)
    if text.startswith(("tcp://", "tls+tcp://")):
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as e:
            raise AddressError(f"{text!r}: {e}") from None
        if not host or not port or parts.path or parts.query or parts.username is not None:
            raise AddressError(f"{text!r}: needs a host and a port, as in tcp://127.0.0.1:7410")
        if text.startswith("tcp://"):
            return Address(text, ipc=False, host=host, port=port)
        settings = (tls or secure.TLS()).or_environment()
        settings.context()  # what is wrong with it is said now
        return Address(text, ipc=False, host=host, port=port, tls=settings)
    raise AddressError(
        f"{text!r}: not of the form ipc:///path, unix:/path, tcp://host:port or tls+tcp://host:port"
    )


_TOKEN_BYTES_MAX = 8 * 1024


def token_in(path: str | os.PathLike[str]) -> str:
    """Return the token in the first line of a file. ``StockadeError``: it cannot be read."""
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StockadeError(f"read the token in {name}: it is no regular file")
            data = os.read(fd, _TOKEN_BYTES_MAX)
        finally:
            os.close(fd)
    except OSError as e:
        raise StockadeError(f"read the token in {name}: {e.strerror or e}") from e
    line = data.split(b"\n", 1)[0].rstrip(b"\r")
    if not line:
        raise StockadeError(f"read the token in {name}: it is empty")
    token = line.decode("ascii", "replace")
    if not token.isascii() or not token.isprintable():
        raise StockadeError(f"read the token in {name}: it has characters that no token has")
    return token


def metadata(
    token: str | None, more: Mapping[str, str] | None, *, own: bool = True
) -> list[tuple[str, str]]:
    """Return the metadata that every call carries.

    A token of None stands for the variable ``STOCKADE_TOKEN``; ``own=False``: for none.
    """
    if token is not None and not is_a(str, "token", token):
        raise ValueError("token: must not be empty; None stands for the variable STOCKADE_TOKEN")
    token = token or (os.environ.get("STOCKADE_TOKEN") if own else None)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ValueError("token: it has characters that no token has")
    pairs = [(key.lower(), value) for key, value in texts("metadata", more).items()]
    if token:
        pairs.append(("authorization", f"Bearer {token}"))
    return pairs
