# SPDX-License-Identifier: Apache-2.0
"""Network policies as arguments."""

import pytest

from stockade import Network
from stockade.requests import network_policy


@pytest.mark.parametrize(
    "text",
    ["", ":80", "a:0", "a:65536", "a:9-8", "a:", "a:x", "[::1", "[::1]80", "[]:80", "a:80-"],
)
def test_what_is_no_destination_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Network.allowlist(text).to_message()


def test_what_is_no_mode_or_port_is_refused() -> None:
    for mode in ("all", ""):
        with pytest.raises(ValueError, match="one of off"):
            network_policy(mode)
    for port in (0, 65536, "http", "9-8"):
        with pytest.raises(ValueError, match="is not a port"):
            Network(inbound=(port,)).to_message()


def test_destinations_become_rules() -> None:
    message = Network.allowlist(
        "example.com",
        "*.example.com:443/tcp",
        "192.0.2.0/24:80-90",
        "[2001:db8::/32]:53/udp",
        "::1",
    ).to_message()
    rules = [(r.domain, r.cidr, [(p.first, p.last) for p in r.ports]) for r in message.outbound]
    assert rules == [
        ("example.com", "", []),
        ("*.example.com", "", [(443, 443)]),
        ("", "192.0.2.0/24", [(80, 90)]),
        ("", "2001:db8::/32", [(53, 53)]),
        ("", "::1", []),
    ]
    assert [r.protocol for r in message.outbound] == [0, 1, 0, 2, 0]


def test_a_policy_comes_back_as_it_was_said() -> None:
    said = Network(
        "open",
        ("10.0.0.0/8:80-90/tcp", "[fd00::/8]:443"),
        (8080, "9000-9010"),
        egress_bytes=1000,
        egress_rate=2000,
        dns_queries=60,
    )
    assert Network.from_message(said.to_message()) == said
    assert Network.from_message(Network.none().to_message()).mode == "none"
