# SPDX-License-Identifier: Apache-2.0
"""Stock REQ sockets as peers: nng in C, pynng, mangos in Go, the nng crate in Rust.

Each is a small program that sends one request from stdin and prints the one reply, so what it sends
is made here, with the Python package's messages. The sockets know nothing of our frames: they put
an id before the body, take the first reply with the same id, and send the request again by
themselves when their pipe is dropped. That must not make anything twice.

A language whose toolchain or packages are not there is skipped.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "client/python/tests"))

import broker as brokers
import stockade
from proxy import Proxy
from stockade import Client, Sandbox, methods
from stockade.v1 import (
    process_service_pb2,
    sandbox_service_pb2,
    system_service_pb2,
    telemetry_service_pb2,
    wire_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

HERE = Path(__file__).parent


def build_c(out: Path) -> list[str]:
    subprocess.run(["cc", "-O2", "-o", out / "req-c", HERE / "req.c", "-lnng"], check=True)
    return [str(out / "req-c")]


def build_pynng(_out: Path) -> list[str]:
    pytest.importorskip("pynng")
    return [sys.executable, str(HERE / "req_pynng.py")]


def build_go(out: Path) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("needs go")
    # Quick to compile: all of Go's standard library is on a new machine.
    quick = ["-gcflags=all=-N -l", "-ldflags=-w"]
    command: list[str | Path] = ["go", "build", *quick, "-o", out / "req-go", "."]
    done = subprocess.run(
        command,
        cwd=HERE / "go",
        env=dict(os.environ, CGO_ENABLED="0"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and "proxy" in done.stderr:
        pytest.skip(f"mangos cannot be fetched: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return [str(out / "req-go")]


def build_rust(out: Path) -> list[str]:
    if shutil.which("cargo") is None or shutil.which("cmake") is None:
        pytest.skip("needs cargo and cmake")
    command: list[str | Path] = [
        "cargo",
        "build",
        "--locked",
        "--target-dir",
        out / "rust",
    ]
    done = subprocess.run(command, cwd=HERE / "rust", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the nng crate does not build here: {done.stderr[-300:]}")
    return [str(out / "rust/debug/req")]


BUILDERS = {"c": build_c, "pynng": build_pynng, "go": build_go, "rust": build_rust}


@pytest.fixture(scope="session")
def broker() -> Iterator[brokers.Broker]:
    why = brokers.why_not()
    if why:
        pytest.skip(why)
    with brokers.Broker() as started:
        yield started


@pytest.fixture(scope="session")
def out() -> Path:
    build = brokers.build()
    if build is None:
        pytest.skip(brokers.why_not())
    folder = build / "interop"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", params=list(BUILDERS))
def peer(request: pytest.FixtureRequest, out: Path) -> list[str]:
    return BUILDERS[request.param](out)


def call(
    peer: list[str], address: str, path: str, request: Message, **metadata: str
) -> wire_pb2.Frame:
    """Let the peer send one CALL, and return the frame that it got."""
    frame = wire_pb2.Frame(
        kind=wire_pb2.FRAME_KIND_CALL, method=path, payload=request.SerializeToString()
    )
    for key, value in metadata.items():
        frame.metadata.add(key=key.replace("_", "-"), value=value)
    done = subprocess.run(
        [*peer, address],
        input=frame.SerializeToString(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return wire_pb2.Frame.FromString(done.stdout)


class DropReplies:
    """Drops the first connections when the broker's reply comes: it has executed by then."""

    def __init__(self, times: int) -> None:
        self.times = times
        self._called: set[int] = set()

    def __call__(self, number: int, to_broker: bool, data: bytes) -> bytes | None:
        if to_broker and len(data) > 20:
            self._called.add(number)
        if not to_broker and number <= self.times and number in self._called:
            return None
        return data


def test_a_stock_client_builds(peer: list[str]) -> None:
    assert Path(peer[0]).exists()


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_an_unknown_method_ends_with_its_code(
    broker: brokers.Broker, peer: list[str], transport: str
) -> None:
    request = system_service_pb2.InfoRequest()
    end = call(peer, getattr(broker, transport), "/stockade.v1.SystemService/Nothing", request)
    assert (end.kind, end.status.code) == (wire_pb2.FRAME_KIND_END, 12)


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_unary_call_is_answered(broker: brokers.Broker, peer: list[str], transport: str) -> None:
    end = call(
        peer, getattr(broker, transport), methods.INFO.path, system_service_pb2.InfoRequest()
    )
    assert (end.kind, end.status.code) == (wire_pb2.FRAME_KIND_END, 0)
    assert system_service_pb2.InfoResponse.FromString(end.payload).version


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_create_sent_again_after_dropped_pipes_makes_one_sandbox(
    broker: brokers.Broker, peer: list[str], transport: str, tmp_path: Path
) -> None:
    label = secrets.token_hex(8)
    address = getattr(broker, transport)
    request = sandbox_service_pb2.SandboxServiceCreateRequest(metadata={"label": label})
    with Proxy(tmp_path, address, DropReplies(3)) as proxy:
        end = call(
            peer, proxy.address, methods.CREATE.path, request, idempotency_key=secrets.token_hex(16)
        )
        assert proxy.connections == 4
    assert end.status.code == 0, end.status.message
    made = sandbox_service_pb2.SandboxServiceCreateResponse.FromString(end.payload).sandbox
    with Client(address) as client:
        listed = list(Sandbox.list(metadata={"label": label}, client=client))
        assert [info.id for info in listed] == [made.id]
        Sandbox.connect(made.id, client=client).delete()


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_job_sent_again_after_dropped_pipes_runs_once(
    broker: brokers.Broker, peer: list[str], transport: str, tmp_path: Path
) -> None:
    address = getattr(broker, transport)
    with Client(address) as client, Sandbox.create(client=client) as sandbox:
        request = process_service_pb2.StartRequest(
            sandbox_id=sandbox.id,
            command=process_service_pb2.Command(args=["sh", "-c", "echo x >> count; sleep 30"]),
        )
        with Proxy(tmp_path, address, DropReplies(3)) as proxy:
            end = call(
                peer,
                proxy.address,
                methods.START.path,
                request,
                idempotency_key=secrets.token_hex(16),
            )
            assert proxy.connections == 4
        info = wire_pb2.ErrorInfo()
        assert end.status.code == 6
        assert any(detail.Unpack(info) for detail in end.status.details)
        assert info.reason == "ALREADY_EXECUTED"
        assert sandbox.run("cat", "count").stdout == "x\n"
        (process, *_) = sandbox.processes()
        assert info.metadata["process_id"] == process.id


def test_a_stock_sub_socket_gets_what_it_subscribed_to() -> None:
    pynng = pytest.importorskip("pynng")
    why = brokers.why_not()
    if why:
        pytest.skip(why)
    with brokers.Broker(feed=True) as started, Client(started.ipc) as client:
        with pynng.Sub0(dial=started.feed, recv_timeout=20_000) as socket:
            socket.subscribe("JOB_ENDED/")
            topic, event = b"", telemetry_service_pb2.Event()
            for _ in range(20):  # its pipe may not be there with the first one
                stockade.run("true", client=client)
                try:
                    socket.recv_timeout = 1_000
                    topic, _, packed = socket.recv().partition(b"\n")
                    event.ParseFromString(packed)
                    break
                except pynng.Timeout:
                    continue
        assert topic == f"JOB_ENDED/INFO/{event.sandbox_id}".encode()
        assert event.kind == telemetry_service_pb2.EVENT_KIND_JOB_ENDED
        assert client.record(event.process_id).process.id == event.process_id
