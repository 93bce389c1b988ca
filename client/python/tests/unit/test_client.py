# SPDX-License-Identifier: Apache-2.0
"""The client with threads against a peer that lies, breaks off, or drains."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from peer import INFO, Conversation, Peer, answer, data, end, goaway, http, message, once
from stockade import Client, aio, default_client, errors, methods, wire
from stockade.files import Files
from stockade.v1 import (
    file_service_pb2,
    process_service_pb2,
    sandbox_service_pb2,
    system_service_pb2,
    wire_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREATED = sandbox_service_pb2.SandboxServiceCreateResponse(
    sandbox=sandbox_service_pb2.Sandbox(id="ab" * 16)
)


def test_no_broker_at_the_address_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(errors.BrokerUnreachable, match=r"connect to ipc://.*No such file"):
        Client(f"ipc://{tmp_path}/none").info()


@pytest.mark.parametrize("side", ["threads", "asyncio"])
def test_a_socket_whose_queue_is_full_is_waited_for(tmp_path: Path, side: str) -> None:
    path = f"{tmp_path}/full.sock"
    waiting: list[socket.socket] = []

    def serve() -> None:
        time.sleep(0.1)
        for _ in waiting:
            listener.accept()[0].close()
        conversation = Conversation(listener.accept()[0])
        once(conversation)
        conversation.close()

    async def info() -> str:
        async with aio.Client(f"ipc://{path}") as client:
            return (await client.info()).version

    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.setblocking(False)
                sock.connect(path)
                waiting.append(sock)
        server = threading.Thread(target=serve)
        server.start()
        if side == "asyncio":
            assert asyncio.run(info()) == "1.2.3"
        else:
            with Client(f"ipc://{path}") as client:
                assert client.info().version == "1.2.3"
        server.join()


def test_an_address_of_another_scheme_is_refused() -> None:
    for text in ("http://x", "ipc://relative", "tcp://host", "tcp://h:1/p", "ipc:///" + "x" * 200):
        with pytest.raises(errors.AddressError):
            Client(text)


def test_a_peer_that_never_greets_is_given_up(tmp_path: Path) -> None:
    with Peer(tmp_path, lambda c: c.read(9)) as peer:
        client = Client(peer.address, connect_timeout=0.2)
        with pytest.raises(errors.BrokerUnreachable, match="no answer"):
            client.info()


def test_a_peer_of_another_protocol_is_told_as_such(tmp_path: Path) -> None:
    with (
        Peer(tmp_path, http) as peer,
        pytest.raises(errors.ProtocolError, match="not a Stockade broker"),
    ):
        Client(peer.address).info()


def test_an_answer_that_is_no_message_is_a_protocol_error_and_closes_the_connection(
    tmp_path: Path,
) -> None:
    def lie(c: Conversation) -> None:
        answer(c.greet(), b"\xff\xff")
        assert c.sock.recv(1) == b""

    with Peer(tmp_path, lie, once) as peer, Client(peer.address) as client:
        with pytest.raises(errors.ProtocolError, match=r"is not a stockade.v1.InfoResponse"):
            client.info()
        assert client.info().version == "1.2.3"


def test_an_oversize_frame_fails_every_call_of_the_connection(tmp_path: Path) -> None:
    def lie(c: Conversation) -> None:
        c.greet().call()
        c.send(b"\1" + (wire.FRAME_BYTES_MAX + 1).to_bytes(8, "big"))
        assert c.sock.recv(1) == b""

    with (
        Peer(tmp_path, lie) as peer,
        Client(peer.address) as client,
        pytest.raises(errors.ProtocolError, match="4194305 bytes long"),
    ):
        client.info()


def test_half_a_frame_is_waited_for_and_then_put_together(tmp_path: Path) -> None:
    def dribble(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        for byte in end(call_id, INFO.SerializeToString()):
            c.send(bytes([byte]))
            time.sleep(0.001)

    with Peer(tmp_path, dribble) as peer, Client(peer.address) as client:
        assert client.info().version == "1.2.3"


def test_half_a_frame_and_then_silence_ends_with_the_deadline(tmp_path: Path) -> None:
    def stall(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(end(call_id, INFO.SerializeToString())[:-1])
        assert c.until(wire_pb2.FRAME_KIND_CANCEL)[0] == call_id

    with Peer(tmp_path, stall) as peer, Client(peer.address) as client:
        begin = time.monotonic()
        with pytest.raises(errors.DeadlineExceeded):
            client.call(methods.INFO, system_service_pb2.InfoRequest(), timeout=0.1)
        assert time.monotonic() - begin < 4


def test_an_idempotent_call_is_sent_again_when_the_connection_breaks(tmp_path: Path) -> None:
    with Peer(tmp_path, lambda c: c.greet().call(), once) as peer, Client(peer.address) as client:
        assert client.info().version == "1.2.3"
        assert peer.connections == 2


def test_a_call_with_a_key_is_sent_again_only_to_the_same_broker(tmp_path: Path) -> None:
    keys = []

    def drop(c: Conversation) -> None:
        _, frame = c.greet().call()
        keys.append({m.key: m.value for m in frame.metadata}["idempotency-key"])

    def same(c: Conversation) -> None:
        assert answer(c.greet()).method == methods.INFO.path
        frame = answer(c, CREATED.SerializeToString())
        keys.append({m.key: m.value for m in frame.metadata}["idempotency-key"])

    with Peer(tmp_path, drop, same) as peer, Client(peer.address) as client:
        request = sandbox_service_pb2.SandboxServiceCreateRequest()
        assert client.call(methods.CREATE, request) == CREATED
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32


def test_a_transfer_that_has_begun_may_have_been_executed(tmp_path: Path) -> None:
    gone = threading.Event()

    def begins(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        begun = file_service_pb2.FileServiceOpenWriteResponse(transfer_id="t")
        peer.away()
        c.send(data(call_id, begun.SerializeToString()))
        c.close()
        gone.set()

    def contents() -> Iterator[bytes]:
        assert gone.wait(10)
        yield b"x"

    with Peer(tmp_path, begins) as peer, Client(peer.address) as client:
        with pytest.raises(errors.ConnectionLost) as raised:
            Files(client, "box").write("a", contents())
        assert raised.value.maybe_executed


def test_a_call_with_a_key_is_not_sent_to_a_broker_that_was_restarted(tmp_path: Path) -> None:
    seen = []

    def restarted(c: Conversation) -> None:
        young = system_service_pb2.InfoResponse(uptime_ms=0)
        seen.append(answer(c.greet(), young.SerializeToString()).method)
        seen.append(c.call()[1].method)

    with (
        Peer(tmp_path, lambda c: c.greet().call(), restarted) as peer,
        Client(peer.address) as client,
    ):
        with pytest.raises(errors.ConnectionLost) as raised:
            client.call(methods.CREATE, sandbox_service_pb2.SandboxServiceCreateRequest())
        assert raised.value.maybe_executed
        assert "it may have been executed" in str(raised.value)
        assert raised.value.reason == "CONNECTION_LOST"
        assert raised.value.hint == "see what it did before you call it again"
        client.close()
    assert seen == [methods.INFO.path]


def test_a_job_is_never_sent_again_when_the_connection_breaks(tmp_path: Path) -> None:
    with Peer(tmp_path, lambda c: c.greet().call(), once) as peer, Client(peer.address) as client:
        with pytest.raises(errors.ConnectionLost) as raised:
            client.stream(methods.RUN, process_service_pb2.RunRequest())
        assert raised.value.maybe_executed
        assert peer.connections == 1
        client.info()


def test_a_job_that_goaway_says_was_not_taken_goes_to_the_next_connection(tmp_path: Path) -> None:
    def drain(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(goaway(call_id - 1))
        c.frame()

    def run(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(data(call_id), end(call_id))

    with Peer(tmp_path, drain, run) as peer, Client(peer.address) as client:
        assert len(list(client.stream(methods.RUN, process_service_pb2.RunRequest()))) == 1
        assert peer.connections == 2


def test_a_call_before_goaway_is_still_answered_and_the_next_goes_elsewhere(tmp_path: Path) -> None:
    def drain(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(goaway(call_id))
        c.send(end(call_id, INFO.SerializeToString()))
        assert c.sock.recv(1) == b""

    with Peer(tmp_path, drain, once) as peer, Client(peer.address) as client:
        client.info()
        client.info()
        assert peer.connections == 2


def test_a_refusal_that_says_when_to_ask_again_is_asked_again_with_a_new_key(
    tmp_path: Path,
) -> None:
    keys = []

    def busy(c: Conversation) -> None:
        call_id, frame = c.greet().call()
        keys.append(frame.metadata[0].value)
        no = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_END)
        no.status.code = errors.Code.RESOURCE_EXHAUSTED
        no.status.details.add().Pack(wire_pb2.RetryInfo(retry_delay_ms=100))
        c.send(message(call_id, no))
        keys.append(answer(c, CREATED.SerializeToString()).metadata[0].value)

    with Peer(tmp_path, busy) as peer, Client(peer.address) as client:
        begin = time.monotonic()
        client.call(methods.CREATE, sandbox_service_pb2.SandboxServiceCreateRequest())
        assert time.monotonic() - begin >= 0.1
    assert keys[0] != keys[1]


def test_token_and_metadata_go_with_every_call(tmp_path: Path) -> None:
    seen = {}

    def look(c: Conversation) -> None:
        seen.update({m.key: m.value for m in answer(c.greet()).metadata})

    with (
        Peer(tmp_path, look) as peer,
        Client(peer.address, token="secret", metadata={"Traceparent": "00-1-2-00"}) as client,
    ):
        client.info()
    assert seen == {"authorization": "Bearer secret", "traceparent": "00-1-2-00"}


def test_a_reader_that_does_not_read_gets_no_more_than_its_credit(tmp_path: Path) -> None:
    def flood(c: Conversation) -> None:
        call_id, frame = c.greet().call()
        c.send(data(call_id, b"\0") * frame.credit)
        c.sock.settimeout(0.3)
        with pytest.raises(socket.timeout):
            c.frame()
        c.sock.settimeout(10)
        window = c.until(wire_pb2.FRAME_KIND_WINDOW)[1]
        c.send(data(call_id, b"\0") * window.credit, end(call_id))

    with Peer(tmp_path, flood) as peer, Client(peer.address) as client:
        stream = client.stream(methods.HEALTH_WATCH, system_service_pb2.HealthServiceWatchRequest())
        time.sleep(0.6)
        with pytest.raises(errors.ProtocolError):  # a NUL is no message
            next(stream)


def test_a_stream_that_is_dropped_is_cancelled(tmp_path: Path) -> None:
    cancelled = threading.Event()

    def watch(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(data(call_id))
        assert c.until(wire_pb2.FRAME_KIND_CANCEL)[0] == call_id
        cancelled.set()

    with Peer(tmp_path, watch) as peer, Client(peer.address) as client:
        client.stream(methods.HEALTH_WATCH, system_service_pb2.HealthServiceWatchRequest())
        gc.collect()
        assert cancelled.wait(60)  # by itself: nothing else is called


def test_many_threads_share_one_connection_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    def echo(c: Conversation) -> None:
        c.greet()
        while True:
            call_id, frame = c.call()
            asked = system_service_pb2.HealthServiceCheckRequest.FromString(frame.payload)
            version = system_service_pb2.InfoResponse(version=asked.service)
            c.send(end(call_id, version.SerializeToString()))

    method = methods.Method(
        "/x/Echo",
        system_service_pb2.HealthServiceCheckRequest,
        system_service_pb2.InfoResponse,
        streaming=False,
        idempotent=True,
        deadline=10.0,
        keyed=False,
    )
    wrong: list[str] = []

    def ask(client: Client, thread: int) -> None:
        for i in range(50):
            text = f"{thread}.{i}"
            request = system_service_pb2.HealthServiceCheckRequest(service=text)
            if client.call(method, request).version != text:
                wrong.append(text)

    with Peer(tmp_path, echo) as peer, Client(peer.address) as client:
        threads = [threading.Thread(target=ask, args=(client, i)) for i in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert peer.connections == 1


def test_more_than_128_streams_wait_for_room(tmp_path: Path) -> None:
    most = 0

    def serve(c: Conversation) -> None:
        nonlocal most
        c.greet()
        waiting = [c.call()[0] for _ in range(wire.STREAMS_MAX)]
        c.sock.settimeout(0.3)
        with pytest.raises(socket.timeout):
            c.frame()
        c.sock.settimeout(10)
        most = len(waiting)
        c.send(*(end(call_id) for call_id in waiting))
        for _ in range(72):
            c.send(end(c.call()[0]))

    done = []

    def ask(client: Client) -> None:
        done.append(list(client.stream(methods.RUN, process_service_pb2.RunRequest())))

    with Peer(tmp_path, serve) as peer, Client(peer.address) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == wire.STREAMS_MAX
    assert len(done) == 200


def test_a_silent_broker_is_pinged_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.link.KEEPALIVE", 0.1)
    pings = []

    def silent(c: Conversation) -> None:
        c.greet().call()
        while True:
            pings.append(c.until(wire_pb2.FRAME_KIND_PING))

    with (
        Peer(tmp_path, silent) as peer,
        Client(peer.address, retry_for=0) as client,
        pytest.raises(errors.ConnectionLost, match=r"has not responded for 0\.2 s"),
    ):
        client.info()
    assert len(pings) == 1


def test_frames_of_an_unknown_kind_do_not_keep_a_call_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.link.KEEPALIVE", 0.2)

    def unknown(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        while True:
            c.send(message(call_id, b"\x08\x63"))  # kind 99
            time.sleep(0.02)

    with (
        Peer(tmp_path, unknown) as peer,
        Client(peer.address, retry_for=0) as client,
        pytest.raises(errors.ConnectionLost, match=r"has not responded for 0\.4 s"),
    ):
        client.info()


def test_a_ping_of_the_broker_is_answered(tmp_path: Path) -> None:
    def ping(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(message(call_id, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING, payload=b"x")))
        assert c.until(wire_pb2.FRAME_KIND_PONG)[1].payload == b"x"
        c.send(end(call_id, INFO.SerializeToString()))

    with Peer(tmp_path, ping) as peer, Client(peer.address) as client:
        client.info()


def test_a_closed_client_makes_no_more_calls(tmp_path: Path) -> None:
    with Peer(tmp_path, once) as peer:
        client = Client(peer.address)
        client.info()
        client.close()
        with pytest.raises(errors.Cancelled):
            client.info()


def test_a_forked_child_makes_a_connection_of_its_own(tmp_path: Path) -> None:
    with Peer(tmp_path, lambda c: [answer(c.greet()), answer(c)], once) as peer:
        client = Client(peer.address)
        client.info()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if client.info().version == "1.2.3" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        client.info()
        assert peer.connections == 2
        client.close()


def test_a_forked_child_does_not_wait_for_what_its_parent_reads(tmp_path: Path) -> None:
    def watch(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(data(call_id))
        c.until(wire_pb2.FRAME_KIND_CANCEL)

    with Peer(tmp_path, watch) as peer, Client(peer.address, retry_for=0) as client:
        stream = client.stream(methods.HEALTH_WATCH, system_service_pb2.HealthServiceWatchRequest())
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                next(stream)
                next(stream)
            except errors.ConnectionLost:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        next(stream)
        stream.cancel()


def test_threads_and_connections_are_gone_when_a_client_is_collected(tmp_path: Path) -> None:
    def wait(c: Conversation) -> None:
        answer(c.greet())
        assert c.sock.recv(1) == b""

    before = threading.active_count()
    with Peer(tmp_path, wait) as peer:
        Client(peer.address).info()
        gc.collect()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_address_and_token_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def look(c: Conversation) -> None:
        seen.update({m.key: m.value for m in answer(c.greet()).metadata})

    with Peer(tmp_path, look) as peer:
        monkeypatch.setenv("STOCKADE_ADDRESS", peer.address)
        monkeypatch.setenv("STOCKADE_TOKEN", "from the environment")
        client = default_client()
        assert default_client() is client
        client.info()
        client.close()
    assert seen["authorization"] == "Bearer from the environment"


def test_a_shared_client_that_was_closed_is_not_given_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STOCKADE_ADDRESS", "ipc:///closed")
    with default_client() as client:
        assert default_client() is client
    assert default_client() is not client


def test_connections_that_were_lost_are_not_kept(tmp_path: Path) -> None:
    with Peer(tmp_path, *[once] * 20) as peer, Client(peer.address) as client:
        links = weakref.WeakSet[object]()
        for _ in range(20):
            client.info()
            links.add(client._link)
            time.sleep(0.01)
        assert peer.connections > 1
        gc.collect()
        assert len(links) <= 2
