# SPDX-License-Identifier: Apache-2.0
"""TLS 1.3 on the way to a broker: addresses of the form ``tls+tcp://host:port``."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import select
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from stockade.errors import AddressError, BrokerUnreachable, StockadeError, Unauthenticated

if TYPE_CHECKING:
    import ssl  # where it is needed only: its import takes longer than that of this package

_BYTES = 256 * 1024
_PIN = "sha256//"


@dataclass(frozen=True)
class TLS:
    """How the broker proves who it is, and how this program does. Files are PEM.

    What is not given comes from the variables ``STOCKADE_CA_FILE``, ``STOCKADE_PIN``,
    ``STOCKADE_SERVER_NAME``, ``STOCKADE_CERTIFICATE_FILE`` and ``STOCKADE_KEY_FILE``.

    `ca_file`: who signs the broker's certificate; without it, whom the system trusts. `pin`:
    ``sha256//`` and the base64 of the SHA-256 of the public key of the broker's certificate, as for
    curl's ``--pinnedpubkey``; without a `ca_file` nothing else is checked.
    `server_name`: the name in that certificate, where it is not the address's host.
    `certificate_file` and `key_file`: this program's own certificate.
    """

    ca_file: Optional[str] = None
    pin: Optional[str] = None
    server_name: Optional[str] = None
    certificate_file: Optional[str] = None
    key_file: Optional[str] = None

    def or_environment(self) -> TLS:
        """Return the settings with the variables for what is not given."""
        return TLS(
            self.ca_file or os.environ.get("STOCKADE_CA_FILE"),
            self.pin or os.environ.get("STOCKADE_PIN"),
            self.server_name or os.environ.get("STOCKADE_SERVER_NAME"),
            self.certificate_file or os.environ.get("STOCKADE_CERTIFICATE_FILE"),
            self.key_file or os.environ.get("STOCKADE_KEY_FILE"),
        )

    def context(self) -> ssl.SSLContext:
        """Return what ``ssl`` needs. ``AddressError``: a file that cannot be used, or a bad pin."""
        import ssl  # noqa: PLC0415 - see above

        self._digest()
        if (self.certificate_file is None) != (self.key_file is None):
            raise AddressError("TLS: certificate_file and key_file are given together")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if self.pin is not None and self.ca_file is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        path = self.ca_file
        try:
            if path is not None:
                context.load_verify_locations(path)
            else:
                context.load_default_certs()
            path = self.certificate_file
            if path is not None:
                context.load_cert_chain(path, self.key_file)
        except (OSError, ssl.SSLError) as e:
            raise AddressError(f"TLS: {path}: {e.strerror or e}") from None
        return context

    def check(self, certificate: Optional[bytes]) -> None:
        """Compare the broker's certificate (DER) with the pin. ``Unauthenticated``: another key."""
        wanted = self._digest()
        if wanted is None:
            return
        key = _public_key(certificate) if certificate else b""
        if not hmac.compare_digest(hashlib.sha256(key).digest(), wanted):
            raise Unauthenticated("the broker's certificate has another key than the pin")

    def _digest(self) -> Optional[bytes]:
        if self.pin is None:
            return None
        with contextlib.suppress(binascii.Error, ValueError):
            digest = base64.b64decode(self.pin[len(_PIN) :], validate=True)
            if self.pin.startswith(_PIN) and len(digest) == 32:
                return digest
        raise AddressError("TLS: a pin is sha256// and 44 characters of base64")


# Reasons of an SSLError where the peer has closed the connection, or has answered without TLS.
_NO_TLS = ("UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG")


def rejected(address: str) -> BrokerUnreachable:
    """Return the error for a peer that has closed the connection without a word."""
    tls = "speak TLS there (tls+tcp://), " if address.startswith("tcp://") else ""
    return BrokerUnreachable(
        f"{address}: closed the connection before the first byte",
        reason="CONNECTION_REJECTED",
        info={"hint": f"it may {tls}be stopping, or have too many connections open"},
    )


def unreachable(address: str, e: OSError) -> StockadeError:
    """Return the error for a connection that was not made, or not with the peer that was meant."""
    why = getattr(e, "verify_message", None)  # an SSLCertVerificationError
    if why is not None:
        return Unauthenticated(
            f"the broker's certificate is refused: {why}",
            reason="TLS_BROKER_UNKNOWN",
            info={
                "subject": "address",
                "hint": "give the CA file of the broker (TLS(ca_file=...), STOCKADE_CA_FILE), and "
                "the name that its certificate has in the address",
            },
        )
    reason = getattr(e, "reason", None)  # an SSLError
    if address.startswith("tls+") and (isinstance(e, ConnectionResetError) or reason in _NO_TLS):
        return BrokerUnreachable(
            f"connect to {address}: the TLS handshake did not begin",
            reason="CONNECTION_REJECTED",
            info={
                "hint": "it may speak no TLS there (tcp://), be stopping, or have too many "
                "connections open"
            },
        )
    if isinstance(reason, str):
        return Unauthenticated(f"the TLS handshake failed: {reason}")
    return BrokerUnreachable(f"connect to {address}: {e.strerror or e}")


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the DER element at `at` begins and ends (X.690, 8.1)."""
    length = der[at + 1]
    start = at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start], "big")
    return start, start + length


def _public_key(certificate: bytes) -> bytes:
    """Return the subjectPublicKeyInfo of a certificate (RFC 5280, 4.1)."""
    outer, _ = _element(certificate, 0)
    at, _ = _element(certificate, outer)
    # a version, which is [0] where there is one, then serial number, algorithm, issuer, validity
    # and subject stand before it
    for _ in range(6 if certificate[at] == 0xA0 else 5):
        _, at = _element(certificate, at)
    return certificate[at : _element(certificate, at)[1]]


def connect(sock: socket.socket, host: str, tls: TLS) -> socket.socket:
    """Make TLS on a connected socket, and return a socket for the plain bytes.

    One thread carries the bytes between the two: OpenSSL lets one thread at a time use a
    connection, and a ``Link`` reads on one and writes on others. The time limit of `sock` holds
    for the handshake. Takes over `sock`.
    """
    context = tls.context()
    try:
        secure = context.wrap_socket(sock, server_hostname=tls.server_name or host)
    except BaseException:
        sock.close()
        raise
    try:
        tls.check(secure.getpeercert(binary_form=True))
        near, far = socket.socketpair()
    except BaseException:
        secure.close()
        raise
    secure.setblocking(False)
    far.setblocking(False)
    threading.Thread(target=_carry, args=(secure, far), name="stockade-tls", daemon=True).start()
    return near


def _carry(secure: ssl.SSLSocket, near: socket.socket) -> None:
    """Carry bytes until either side ends."""
    with secure, near, contextlib.suppress(OSError):
        _Carrier(secure, near).run()


class _Carrier:
    """The bytes under way in both directions, at most one piece each."""

    def __init__(self, secure: ssl.SSLSocket, near: socket.socket) -> None:
        self._secure = secure
        self._near = near
        self._out = b""  # to the broker
        self._in = b""  # from it
        self._ended = False  # by the broker
        self._reads_to_write = self._writes_to_read = False

    def run(self) -> None:
        while not self._ended or self._in:
            self._wait()
            if not self._in and not self._ended:
                self._receive()
            if self._in:
                self._pass_on()
            if not self._out and not self._take():
                return
            if self._out:
                self._send()

    def _wait(self) -> None:
        if self._secure.pending() and not self._in:
            return
        poll = select.poll()
        wanted = 0 if self._in or self._ended else select.POLLIN
        if self._reads_to_write or (self._out and not self._writes_to_read):
            wanted |= select.POLLOUT
        if self._out and self._writes_to_read:
            wanted |= select.POLLIN
        if wanted:
            poll.register(self._secure, wanted)
        poll.register(
            self._near,
            (0 if self._out else select.POLLIN) | (select.POLLOUT if self._in else 0),
        )
        poll.poll()

    def _receive(self) -> None:
        import ssl  # noqa: PLC0415 - see above

        self._reads_to_write = False
        try:
            self._in = self._secure.recv(_BYTES)
            self._ended = not self._in
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._reads_to_write = True

    def _pass_on(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._in = self._in[self._near.send(self._in) :]

    def _take(self) -> bool:
        try:
            self._out = self._near.recv(_BYTES)
        except BlockingIOError:
            return True
        return bool(self._out)

    def _send(self) -> None:
        import ssl  # noqa: PLC0415 - see above

        self._writes_to_read = False
        try:
            self._out = self._out[self._secure.send(self._out) :]
        except ssl.SSLWantReadError:
            self._writes_to_read = True
        except ssl.SSLWantWriteError:
            pass
