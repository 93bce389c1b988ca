# SPDX-License-Identifier: Apache-2.0
"""How a sandbox reaches the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from stockade.limits import Size, size_bytes
from stockade.v1 import sandbox_service_pb2

_MODES = {
    "off": sandbox_service_pb2.NETWORK_MODE_OFF,
    "none": sandbox_service_pb2.NETWORK_MODE_NONE,
    "allowlist": sandbox_service_pb2.NETWORK_MODE_ALLOWLIST,
    "open": sandbox_service_pb2.NETWORK_MODE_OPEN,
}
_MODE_NAMES = {number: name for name, number in _MODES.items()}
_PROTOCOLS = {
    "tcp": sandbox_service_pb2.NETWORK_PROTOCOL_TCP,
    "udp": sandbox_service_pb2.NETWORK_PROTOCOL_UDP,
}
_PROTOCOL_NAMES = {number: f"/{name}" for name, number in _PROTOCOLS.items()}
PORT_MAX = 65535

#: A port, or a range such as ``"8000-8010"``.
Ports = Union[int, str]


@dataclass(frozen=True)
class Network:
    """A network policy. A request may only narrow its template's policy.

    A destination has the form ``"HOST[:PORT[-PORT]][/tcp|/udp]"``, where HOST is a name
    (``example.com``), all names below a name (``*.example.com``), an address or a range
    (``192.0.2.0/24``,
    ``[2001:db8::/32]:443``). A range allows addresses of a private or other special range only if
    it lies within that range: ``0.0.0.0/0`` allows all public addresses. Only ``host``, or a single
    address, allows the addresses of the broker's host.

    >>> Network.allowlist("example.com:443", "192.0.2.0/24:80/tcp").allow
    ('example.com:443', '192.0.2.0/24:80/tcp')
    """

    #: ``"off"`` (no sockets but unix ones), ``"none"`` (loopback only), ``"allowlist"``,
    #: ``"open"``, or empty: the template's.
    mode: str = ""
    #: Allowed destinations; with ``"open"`` additional ones in special ranges.
    allow: tuple[str, ...] = ()
    #: Ports of the sandbox that the caller may connect to.
    inbound: tuple[Ports, ...] = ()
    #: Maximum number of bytes sent during its lifetime, or text such as ``"1G"``; None: the
    #: template's limit.
    egress_bytes: Optional[Size] = None
    #: Maximum number of bytes received during its lifetime.
    ingress_bytes: Optional[Size] = None
    #: Maximum number of bytes sent per second.
    egress_rate: Optional[Size] = None
    #: Maximum number of bytes received per second.
    ingress_rate: Optional[Size] = None
    #: Maximum number of DNS queries per minute; None: 600.
    dns_queries: Optional[int] = None

    @classmethod
    def none(cls) -> Network:
        """No network access."""
        return cls("none")

    @classmethod
    def allowlist(cls, *allow: str) -> Network:
        """Only these destinations."""
        return cls("allowlist", allow)

    @classmethod
    def open(cls, *allow: str) -> Network:
        """All public addresses, and these destinations in special ranges."""
        return cls("open", allow)

    def lets_in(self, port: int) -> bool:
        """Return whether the caller may connect to a port of the sandbox (``inbound``)."""
        return any(
            r.first <= port <= (r.last or r.first) for r in map(_ports, map(str, self.inbound))
        )

    def to_message(self) -> sandbox_service_pb2.NetworkPolicy:
        """Return the policy as a message of the protocol."""
        if self.mode and self.mode not in _MODES:
            raise ValueError(f"network={self.mode!r}: one of {', '.join(_MODES)}")
        for name in ("allow", "inbound"):
            if not isinstance(getattr(self, name), (tuple, list)):
                raise TypeError(f"{name}={getattr(self, name)!r}: expected a tuple")
        message = sandbox_service_pb2.NetworkPolicy(
            mode=_MODES.get(self.mode),
            egress_bytes_max=size_bytes(self.egress_bytes or 0),
            ingress_bytes_max=size_bytes(self.ingress_bytes or 0),
            egress_rate=size_bytes(self.egress_rate or 0),
            ingress_rate=size_bytes(self.ingress_rate or 0),
            queries_per_minute=self.dns_queries or 0,
        )
        message.outbound.extend(_rule(text) for text in self.allow)
        message.inbound.extend(_ports(str(ports)) for ports in self.inbound)
        return message

    @classmethod
    def from_message(cls, message: sandbox_service_pb2.NetworkPolicy) -> Network:
        """Return the policy in a message."""
        return cls(
            mode=_MODE_NAMES.get(message.mode, "unknown"),
            allow=tuple(text for rule in message.outbound for text in _texts(rule)),
            inbound=tuple(_port_text(ports) for ports in message.inbound),
            egress_bytes=message.egress_bytes_max or None,
            ingress_bytes=message.ingress_bytes_max or None,
            egress_rate=message.egress_rate or None,
            ingress_rate=message.ingress_rate or None,
            dns_queries=message.queries_per_minute or None,
        )


def _ports(text: str) -> sandbox_service_pb2.PortRange:
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit()) or (
        dash and not (last.isascii() and last.isdigit())
    ):
        raise ValueError(f"{text!r} is not a port (1 to {PORT_MAX}, or A-B)")
    a, b = int(first), int(last or first)
    if not 1 <= a <= b <= PORT_MAX:
        raise ValueError(f"{text!r} is not a port (1 to {PORT_MAX}, or A-B)")
    return sandbox_service_pb2.PortRange(first=a, last=b)


def _port_text(ports: sandbox_service_pb2.PortRange) -> Ports:
    if ports.last in (0, ports.first):
        return ports.first
    return f"{ports.first}-{ports.last}"


def _rule(text: str) -> sandbox_service_pb2.NetworkRule:
    host, slash, protocol = text.rpartition("/")
    if not slash or protocol not in _PROTOCOLS:
        host, protocol = text, ""
    ports = ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not a destination")
        colon, ports = rest[:1], rest[1:]
    elif host.count(":") == 1:
        host, colon, ports = host.partition(":")
    else:
        colon = ""
    if not host:
        raise ValueError(f"{text!r} is not a destination")
    address = host == "host" or ":" in host or not set(host) - set("0123456789./")
    return sandbox_service_pb2.NetworkRule(
        cidr=host if address else "",
        domain="" if address else host,
        ports=[_ports(ports)] if colon else [],
        protocol=_PROTOCOLS.get(protocol),
    )


def _texts(rule: sandbox_service_pb2.NetworkRule) -> list[str]:
    """One destination for each range of ports, since that is how one is written."""
    host = rule.domain or rule.cidr
    protocol = _PROTOCOL_NAMES.get(rule.protocol, "")
    texts = []
    for ports in rule.ports or [sandbox_service_pb2.PortRange(first=1, last=PORT_MAX)]:
        if (ports.first, ports.last) == (1, PORT_MAX):
            texts.append(f"{host}{protocol}")
        else:
            shown = f"[{host}]" if ":" in host else host
            texts.append(f"{shown}:{_port_text(ports)}{protocol}")
    return texts
