# SPDX-License-Identifier: Apache-2.0
"""While the broker is away: who waits for it, for how long, and what is said when it stays away."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

import pytest

from peer import Conversation, Peer, answer, once
from stockade import Client, aio, errors, methods
from stockade.address import parse
from stockade.v1 import sandbox_service_pb2

if TYPE_CHECKING:
    from pathlib import Path


def greeted_and_gone(folder: Path, use: Callable[[], object]) -> None:
    """Let somebody make one call, and let the broker go away after it."""
    with Peer(folder, once) as peer:
        use()
    peer.path.unlink()


@pytest.mark.parametrize("side", ["threads", "asyncio"])
def test_a_broker_that_was_there_is_waited_for_by_every_call(tmp_path: Path, side: str) -> None:
    started: list[Peer] = []

    def comes_back() -> None:
        call.wait()
        time.sleep(0.3)
        started.append(Peer(tmp_path, everything))

    def everything(c: Conversation) -> None:
        c.greet()
        for _ in range(8):
            answer(c)

    def threads(address: str, call: threading.Event) -> None:
        client = Client(address)
        greeted_and_gone(tmp_path, client.info)
        got: list[str] = []
        callers = [
            threading.Thread(target=lambda: got.append(client.info().version)) for _ in range(8)
        ]
        for caller in callers:
            caller.start()
        call.set()
        for caller in callers:
            caller.join()
        assert got == ["1.2.3"] * 8
        client.close()

    async def tasks(address: str, call: threading.Event) -> None:
        async with aio.Client(address) as client:
            with Peer(tmp_path, once) as peer:
                await client.info()
            peer.path.unlink()
            while client._link is None or client._link.core.usable:
                await asyncio.sleep(0.01)
            calls = [asyncio.ensure_future(client.info()) for _ in range(8)]
            call.set()
            assert [(await info).version for info in calls] == ["1.2.3"] * 8

    call = threading.Event()
    address = f"ipc://{tmp_path}/peer.sock"
    back = threading.Thread(target=comes_back)
    back.start()
    if side == "threads":
        threads(address, call)
    else:
        asyncio.run(tasks(address, call))
    back.join()
    with started[0]:
        assert started[0].connections == 1


def test_a_broker_that_stays_away_is_waited_for_as_long_as_the_client_was_told(
    tmp_path: Path,
) -> None:
    with Client(f"ipc://{tmp_path}/peer.sock", retry_for=0.3) as client:
        greeted_and_gone(tmp_path, client.info)
        begin = time.monotonic()
        with pytest.raises(errors.BrokerUnreachable, match="No such file"):
            client.info()
        assert 0.05 < time.monotonic() - begin < 10


@pytest.mark.parametrize("retry_for", [0, 0.3])
def test_a_call_that_was_sent_before_the_broker_went_away_may_have_been_executed(
    tmp_path: Path, retry_for: float
) -> None:
    peers: list[Peer] = []

    def dies(c: Conversation) -> None:
        c.greet().call()
        peers[0].path.unlink()

    request = sandbox_service_pb2.SandboxServiceCreateRequest()
    with Peer(tmp_path, dies) as peer, Client(peer.address, retry_for=retry_for) as client:
        peers.append(peer)
        with pytest.raises(errors.ConnectionLost, match="may have been executed") as raised:
            client.call(methods.CREATE, request)
    assert raised.value.maybe_executed


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}", "ipc://{}"])
def test_the_address_of_a_unix_socket_has_three_forms(tmp_path: Path, form: str) -> None:
    with Peer(tmp_path, once) as peer, Client(form.format(peer.path)) as client:
        assert client.info().version == "1.2.3"


def test_an_address_that_is_wrong_is_told_with_the_forms_that_there_are() -> None:
    for text in ("unix:relative", "unix:", "unix://host/path", "unix:/x\0y"):
        with pytest.raises(errors.AddressError, match="absolute path"):
            parse(text)
    with pytest.raises(errors.AddressError, match="unix:/path"):
        parse("http://x")


def test_a_client_says_where_it_belongs() -> None:
    client: Any = Client("unix:/nowhere")
    assert repr(client) == "<Client unix:/nowhere>"
    client.close()
    assert repr(client) == "<Client unix:/nowhere closed>"
