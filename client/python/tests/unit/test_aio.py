# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio against a peer that lies, breaks off, or drains."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from peer import INFO, Conversation, Peer, answer, data, end, goaway, http, message, once
from stockade import aio, errors, methods, wire
from stockade.tls import rejected, unreachable
from stockade.v1 import process_service_pb2, sandbox_service_pb2, system_service_pb2, wire_pb2

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run it, and see that nothing was left behind in the event loop."""

    async def outer() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        await asyncio.wait_for(main, 30)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        assert not complaints

    asyncio.run(outer())


def test_a_task_that_is_cancelled_while_it_connects_ends_so_at_every_step(tmp_path: Path) -> None:
    async def steps() -> None:
        with Peer(tmp_path, *[once] * 60) as peer:
            for steps in range(60):
                async with aio.Client(peer.address) as client:
                    task = asyncio.create_task(client.info())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    if task.done():
                        assert (task.result(), steps > 4) == (INFO, True)
                        break
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled()

    run(steps())


def test_the_shared_client_of_an_event_loop_is_gone_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def shared() -> weakref.ref[aio.Client]:
        return weakref.ref(aio.default_client())

    monkeypatch.setenv("STOCKADE_ADDRESS", "ipc:///none")
    first = asyncio.run(shared())
    asyncio.run(shared())
    gc.collect()
    assert first() is None


def test_no_broker_at_the_address_is_told_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(errors.BrokerUnreachable, match=r"connect to ipc://.*No such file"):
            await aio.Client(f"ipc://{tmp_path}/none").info()

    run(main())


def test_what_to_do_about_a_peer_that_is_not_the_broker_is_said() -> None:
    assert "speak TLS there (tls+tcp://)" in (rejected("tcp://127.0.0.1:1").hint or "")
    assert "TLS" not in (rejected("tls+tcp://127.0.0.1:1").hint or "TLS")
    plain = unreachable("tls+tcp://127.0.0.1:1", ConnectionResetError())
    assert isinstance(plain, errors.BrokerUnreachable)
    assert "speak no TLS there (tcp://)" in (plain.hint or "")
    reset = unreachable("tcp://127.0.0.1:1", ConnectionResetError())
    assert isinstance(reset, errors.BrokerUnreachable)
    assert reset.hint is None
    why = ssl.SSLCertVerificationError()
    why.verify_message = "self-signed certificate"
    error = unreachable("tls+tcp://127.0.0.1:1", why)
    assert isinstance(error, errors.Unauthenticated)
    assert error.reason == "TLS_BROKER_UNKNOWN"
    assert "STOCKADE_CA_FILE" in (error.hint or "")


@pytest.mark.parametrize(
    ("lie", "error", "why"),
    [
        (lambda c: c.read(9), errors.BrokerUnreachable, "no answer"),
        (lambda c: c.read(8), errors.BrokerUnreachable, "before the first byte"),
        (
            http,
            errors.ProtocolError,
            "not a Stockade broker",
        ),
        (lambda c: answer(c.greet(), b"\xff"), errors.ProtocolError, "InfoResponse"),
        (
            lambda c: [c.greet().call(), c.send(b"\1" + b"\xff" * 8), c.frame()],
            errors.ProtocolError,
            "bytes long",
        ),
    ],
)
def test_bytes_that_the_broker_may_not_send_are_told_as_such(
    tmp_path: Path, lie: Any, error: type[Exception], why: str
) -> None:
    async def main() -> None:
        async with aio.Client(peer.address, connect_timeout=2, retry_for=0) as client:
            with pytest.raises(error, match=why):
                await client.info()

    with Peer(tmp_path, lie) as peer:
        run(main())


def test_half_a_frame_and_then_silence_ends_with_the_deadline(tmp_path: Path) -> None:
    def stall(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(end(call_id, INFO.SerializeToString())[:-1])
        assert c.until(wire_pb2.FRAME_KIND_CANCEL)[0] == call_id

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            with pytest.raises(errors.DeadlineExceeded):
                await client.call(methods.INFO, system_service_pb2.InfoRequest(), timeout=0.1)

    with Peer(tmp_path, stall) as peer:
        run(main())


def test_a_call_with_a_key_is_not_sent_to_a_broker_that_was_restarted(tmp_path: Path) -> None:
    seen = []

    def restarted(c: Conversation) -> None:
        young = system_service_pb2.InfoResponse(uptime_ms=0)
        seen.append(answer(c.greet(), young.SerializeToString()).method)
        seen.append(c.call()[1].method)

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            request = sandbox_service_pb2.SandboxServiceCreateRequest()
            with pytest.raises(errors.ConnectionLost) as raised:
                await client.call(methods.CREATE, request)
            assert raised.value.maybe_executed

    with Peer(tmp_path, lambda c: c.greet().call(), restarted) as peer:
        run(main())
    assert seen == [methods.INFO.path]


def test_a_job_is_never_sent_again_when_the_connection_breaks(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.Client(peer.address) as client:
            with pytest.raises(errors.ConnectionLost) as raised:
                await client.stream(methods.RUN, process_service_pb2.RunRequest())
            assert raised.value.maybe_executed
            assert peer.connections == 1
            await client.info()

    with Peer(tmp_path, lambda c: c.greet().call(), once) as peer:
        run(main())


def test_a_job_that_goaway_says_was_not_taken_goes_to_the_next_connection(tmp_path: Path) -> None:
    def drain(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(goaway(call_id - 1))
        c.frame()

    def job(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(data(call_id), end(call_id))

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            stream = await client.stream(methods.RUN, process_service_pb2.RunRequest())
            assert [m async for m in stream] == [process_service_pb2.RunResponse()]

    with Peer(tmp_path, drain, job) as peer:
        run(main())


def test_a_cancelled_task_cancels_its_call(tmp_path: Path) -> None:
    def wait(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        assert c.until(wire_pb2.FRAME_KIND_CANCEL)[0] == call_id

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.info(), 0.1)
            await asyncio.sleep(0.1)

    with Peer(tmp_path, wait) as peer:
        run(main())


def test_200_streams_at_once_wait_for_room_on_one_connection(tmp_path: Path) -> None:
    def serve(c: Conversation) -> None:
        c.greet()
        waiting = [c.call()[0] for _ in range(wire.STREAMS_MAX)]
        c.send(*(end(call_id) for call_id in waiting))
        for _ in range(72):
            c.send(end(c.call()[0]))

    async def ask(client: aio.Client) -> None:
        stream = await client.stream(methods.RUN, process_service_pb2.RunRequest())
        assert [m async for m in stream] == []

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            await asyncio.gather(*(ask(client) for _ in range(200)))

    with Peer(tmp_path, serve) as peer:
        run(main())
        assert peer.connections == 1


def test_a_flood_of_pings_ends_the_connection(tmp_path: Path) -> None:
    def flood(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        ping = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING, payload=b"12345678")
        while True:
            c.send(message(call_id, ping) * 10_000)

    async def main() -> None:
        async with aio.Client(peer.address) as client:
            with pytest.raises(errors.ProtocolError, match="more than 16 PINGs in 5 s"):
                await client.info()

    with Peer(tmp_path, flood) as peer:
        run(main())


def test_a_silent_broker_is_pinged_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.aio.link.KEEPALIVE", 0.1)
    pings = []

    def silent(c: Conversation) -> None:
        c.greet().call()
        while True:
            pings.append(c.until(wire_pb2.FRAME_KIND_PING))

    async def main() -> None:
        async with aio.Client(peer.address, retry_for=0) as client:
            begin = time.monotonic()
            with pytest.raises(errors.ConnectionLost, match=r"has not responded for 0\.2 s"):
                await client.info()
            assert time.monotonic() - begin < 5

    with Peer(tmp_path, silent) as peer:
        run(main())
    assert len(pings) == 1
