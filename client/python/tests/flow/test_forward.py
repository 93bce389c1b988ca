# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine that lead into real sandboxes, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import Client, Network, Sandbox, aio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker import Broker
    from stockade import StockadeError

# Answers in capitals, and says "bye" when the other side says no more.
SERVER = """
import socket, threading
s = socket.create_server(("127.0.0.1", 8000))
def serve(c):
    while (got := c.recv(65536)):
        c.sendall(got.upper())
    c.sendall(b"bye")
    c.close()
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
MANY = 300_000  # more than the broker's queue


@pytest.fixture
def server(client: Client) -> Iterator[Sandbox]:
    policy = Network("none", inbound=(8000, 8010))
    with Sandbox.create(ttl=120, network=policy, client=client) as sandbox:
        job = sandbox.start("python3", "-c", SERVER)
        assert next(job).text.startswith("listening")  # type: ignore[union-attr]
        yield sandbox


def test_a_port_without_a_rule_is_refused_with_the_rule_named(sandbox: Sandbox) -> None:
    with pytest.raises(stockade.PermissionDenied, match="connections to port 8000") as refused:
        sandbox.forward(8000)
    assert refused.value.reason == "PORT_NOT_ALLOWED"
    assert "network.inbound" in str(refused.value)


def test_a_connection_where_nobody_listens_is_told(server: Sandbox) -> None:
    errors: list[StockadeError] = []
    with (
        server.forward(8010, on_error=errors.append) as forward,
        socket.create_connection((forward.host, forward.port), timeout=60) as sock,
    ):
        assert sock.recv(1) == b""
    assert [type(e) for e in errors] == [stockade.FailedPrecondition]


def test_connections_carry_bytes_both_ways_and_their_ends(server: Sandbox) -> None:
    with server.forward(8000) as forward:
        socks = [socket.create_connection(("127.0.0.1", forward.port), timeout=60) for _ in "abc"]
        for sock in socks:
            with closing(sock):
                sock.sendall(b"q" * MANY)
                sock.shutdown(socket.SHUT_WR)
                got = bytearray()
                while piece := sock.recv(65536):
                    got += piece
                assert bytes(got) == b"Q" * MANY + b"bye"


def test_a_policy_that_changes_cuts_what_is_open(server: Sandbox) -> None:
    errors: list[StockadeError] = []
    with (
        server.forward(8000, on_error=errors.append) as forward,
        socket.create_connection(("127.0.0.1", forward.port), timeout=60) as sock,
    ):
        sock.sendall(b"x")
        assert sock.recv(1) == b"X"
        server.update(network="none")
        assert sock.recv(1) == b""
        assert [type(e) for e in errors] == [stockade.PermissionDenied]


def test_asyncio_does_the_same(broker: Broker) -> None:
    async def echo(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"q" * MANY)
        writer.write_eof()
        got = await reader.read()
        writer.close()
        return got

    async def main() -> None:
        errors: list[StockadeError] = []
        policy = Network("none", inbound=(8000, 8010))
        async with (
            aio.Client(broker.ipc) as client,
            await aio.Sandbox.create(ttl=120, network=policy, client=client) as sandbox,
        ):
            with pytest.raises(stockade.PermissionDenied, match="connections to port 81"):
                await sandbox.forward(81)
            with pytest.raises(ValueError, match="loopback"):
                await sandbox.forward(8000, host="0.0.0.0")
            job = await sandbox.start("python3", "-c", SERVER)
            await job.__anext__()
            async with await sandbox.forward(8010, on_error=errors.append) as silent:
                reader, writer = await asyncio.open_connection("127.0.0.1", silent.port)
                assert await reader.read() == b""
                writer.close()
            assert [type(e) for e in errors] == [stockade.FailedPrecondition]
            async with await sandbox.forward(8000) as forward:
                got = await asyncio.gather(*(echo(forward.port) for _ in range(3)))
                assert got == [b"Q" * MANY + b"bye"] * 3
                reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"X"
            assert await reader.read() == b""  # closed with the forward
            writer.close()

    async def outer() -> None:
        await asyncio.wait_for(main(), 100)
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    asyncio.run(outer())
