# SPDX-License-Identifier: Apache-2.0
"""Ports that lead into a sandbox: what is refused here, and a broker that lies."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

import stockade
from peer import Conversation, Peer, data, end
from stockade import Client, Network, Sandbox
from stockade.tunnel import listen
from stockade.v1 import sandbox_service_pb2, wire_pb2

if TYPE_CHECKING:
    from pathlib import Path

    from stockade import StockadeError

SANDBOX = "cd" * 16


def told(c: Conversation, *inbound: int) -> Conversation:
    """Answer Create and Get with a sandbox that lets in at these ports."""
    call_id, _ = c.call()
    response = sandbox_service_pb2.SandboxServiceGetResponse()
    response.sandbox.id = SANDBOX
    response.sandbox.network.CopyFrom(Network("none", inbound=inbound).to_message())
    c.send(end(call_id, response.SerializeToString()))
    return c


def piece(call_id: int, connection: str = "", content: bytes = b"") -> bytes:
    response = sandbox_service_pb2.SandboxServiceForwardResponse(
        connection_id=connection, data=content
    )
    return data(call_id, response.SerializeToString())


def ends(port: int) -> bytes:
    """What somebody gets who connects."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        return sock.recv(100)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_a_host_that_others_reach_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"host|address"):
        listen(host, 0)


def test_a_local_port_that_is_taken_is_refused() -> None:
    with listen("localhost", 0) as sock, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", sock.getsockname()[1])


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused_before_anything_is_asked(tmp_path: Path, port: int) -> None:
    with Peer(tmp_path, lambda c: told(c.greet())) as peer, Client(peer.address) as client:
        sandbox = Sandbox.create(client=client)
        with pytest.raises(ValueError, match="port"):
            sandbox.forward(port)


def test_a_port_that_the_policy_lacks_is_refused_in_the_brokers_words(tmp_path: Path) -> None:
    def refuse(c: Conversation) -> None:
        told(told(c.greet(), 80), 80)
        call_id, _ = c.call()
        c.send(end(call_id, code=7, text="does not allow connections to port 81"))

    with Peer(tmp_path, refuse) as peer, Client(peer.address) as client:
        sandbox = Sandbox.create(client=client)
        with pytest.raises(stockade.PermissionDenied, match="to port 81"):
            sandbox.forward(81)


@pytest.mark.parametrize("first", [b"", b"hello"])
def test_a_connection_without_an_id_is_refused_and_told(tmp_path: Path, first: bytes) -> None:
    errors: list[StockadeError] = []

    def lie(c: Conversation) -> None:
        told(told(c.greet(), 80), 80)
        call_id, _ = c.call()
        c.send(piece(call_id, content=first) if first else end(call_id))

    with Peer(tmp_path, lie) as peer, Client(peer.address) as client:
        sandbox = Sandbox.create(client=client)
        with sandbox.forward(80, on_error=errors.append) as forward:
            assert ends(forward.port) == b""
    assert [type(e) for e in errors] == [stockade.ProtocolError]


def test_bytes_wait_while_the_brokers_queue_is_full(tmp_path: Path) -> None:
    got: list[bytes] = []

    def busy(c: Conversation) -> None:
        told(told(c.greet(), 80), 80)
        stream, _ = c.call()
        c.send(piece(stream, "ab" * 16))
        for answer in (8, 0):  # RESOURCE_EXHAUSTED, and then it is taken
            call_id, frame = c.call()
            request = sandbox_service_pb2.SandboxServiceForwardInputRequest
            got.append(request.FromString(frame.payload).data)
            c.send(end(call_id, code=answer))
        c.send(piece(stream, content=b"thanks"), end(stream))
        c.until(wire_pb2.FRAME_KIND_CALL)

    with Peer(tmp_path, busy) as peer, Client(peer.address) as client:
        sandbox = Sandbox.create(client=client)
        with sandbox.forward(80) as forward:
            address = (forward.host, forward.port)
            with socket.create_connection(address, timeout=10) as sock:
                sock.sendall(b"please")
                assert sock.recv(100) == b"thanks"
    assert got == [b"please", b"please"]


def test_closing_ends_what_is_open_and_what_would_come(tmp_path: Path) -> None:
    def silent(c: Conversation) -> None:
        told(told(c.greet(), 80), 80)
        stream, _ = c.call()
        c.send(piece(stream, "ab" * 16))
        cancelled, _ = c.until(wire_pb2.FRAME_KIND_CANCEL)
        assert cancelled == stream
        c.send(end(stream, code=1))

    with Peer(tmp_path, silent) as peer, Client(peer.address) as client:
        sandbox = Sandbox.create(client=client)
        forward = sandbox.forward(80)
        with socket.create_connection(("127.0.0.1", forward.port), timeout=10) as sock:
            sock.sendall(b"")
            while not forward._open or not next(iter(forward._open))._tunnel._id:
                pass
            forward.close()
            assert sock.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            ends(forward.port)
        forward.close()  # again: nothing happens
