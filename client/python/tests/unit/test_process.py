# SPDX-License-Identifier: Apache-2.0
"""Processes and results: nonsense is refused, gaps are counted, output goes on after a break."""

from __future__ import annotations

import datetime
import io
import math
import os
from typing import TYPE_CHECKING, Any

import pytest

from peer import INFO, Conversation, Peer, answer, data, end, message
from stockade import (
    Client,
    ConnectionLost,
    FailedPrecondition,
    Gap,
    JobError,
    LimitHit,
    Limits,
    Network,
    Outcome,
    Output,
    ProtocolError,
    Sandbox,
    run,
    start,
)
from stockade.events import Collector, Lines
from stockade.limits import size_bytes, to_ms
from stockade.requests import Feed, command, cut
from stockade.v1 import limits_pb2, process_service_pb2, sandbox_service_pb2, wire_pb2

if TYPE_CHECKING:
    from pathlib import Path

Event = process_service_pb2.ProcessEvent
PROCESS = "ab" * 16
SANDBOX = "cd" * 16
STARTED = Event(started=Event.Started(process_id=PROCESS, sandbox_id=SANDBOX, pid=2))


def output(text: bytes, offset: int, stream: int = 1) -> process_service_pb2.ProcessEvent:
    event = Event()
    event.output.data = text
    event.output.offset = offset
    event.output.stream = stream  # type: ignore[assignment]
    return event


def exited(code: int = 0) -> process_service_pb2.ProcessEvent:
    result = limits_pb2.Result(outcome=limits_pb2.OUTCOME_EXITED, exit_code=code)
    return Event(exited=Event.Exited(result=result))


def events(call_id: int, *sequence: process_service_pb2.ProcessEvent) -> bytes:
    """DATA frames of Run, Start or Attach, whose responses look the same."""
    return b"".join(
        data(call_id, process_service_pb2.RunResponse(event=event).SerializeToString())
        for event in sequence
    )


def created(c: Conversation) -> Conversation:
    response = sandbox_service_pb2.SandboxServiceCreateResponse()
    response.sandbox.id = SANDBOX
    call_id, _ = c.greet().call()
    c.send(end(call_id, response.SerializeToString()))
    return c


# Refusals.


@pytest.mark.parametrize(
    "sequence",
    [
        [output(b"x", 0)],
        [STARTED, exited(), output(b"x", 0)],
        [STARTED, exited(), exited()],
        [STARTED, Event(started=Event.Started(process_id="00" * 16))],
    ],
)
def test_events_in_an_order_that_makes_no_sense_are_refused(
    sequence: list[process_service_pb2.ProcessEvent],
) -> None:
    collector = Collector()
    *before, last = sequence
    for event in before:
        collector.feed(event)
    with pytest.raises(ProtocolError):
        collector.feed(last)


@pytest.mark.parametrize("sequence", [[], [STARTED], [STARTED, output(b"x", 0)]])
def test_a_stream_that_ends_well_without_a_result_is_refused(
    tmp_path: Path, sequence: list[process_service_pb2.ProcessEvent]
) -> None:
    def lie(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(events(call_id, *sequence), end(call_id))

    with (
        Peer(tmp_path, lie) as peer,
        Client(peer.address) as client,
        pytest.raises(ProtocolError, match="without a"),
    ):
        run("true", client=client)


@pytest.mark.parametrize("size", ["", "M", "-1M", "1X", "1e3", -1])
def test_a_size_that_is_none_is_refused(size: str | int) -> None:
    with pytest.raises(ValueError, match="size"):
        size_bytes(size)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", 0),
        ("memory", 6.4e7),
        ("memory", "9" * 400),
        ("cpus", "2"),
        ("cpus", math.inf),
        ("timeout", -1),
        ("timeout", "5 min"),
        ("timeout", math.nan),
        ("pids", 1 << 40),
        ("pids", 1.5),
    ],
)
def test_limits_that_make_no_sense_are_refused_here_by_name(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{name}="):
        Limits(**{name: value}).to_message()


@pytest.mark.parametrize(
    "asked",
    [
        {"env": {"A": None}},
        {"env": {"A": 5}},
        {"cwd": 5},
        {"template": 5},
        {"metadata": {"a": 1}},
        {"limits": {"memory": "64M"}},
        {"network": ["none"]},
        {"network": Network("allowlist", allow="example.com")},  # type: ignore[arg-type]
        {"network": Network("none", inbound=8000)},  # type: ignore[arg-type]
        {"stdin": 5},
        {"keep": "much"},
        {"deadline": math.inf},
        {"client": object()},
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_before_anything_is_sent(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        run("true", **{"client": Client(f"ipc://{tmp_path}/none"), **asked})


@pytest.mark.parametrize("timeout", [0, -1, math.inf])
def test_a_sandbox_that_lives_for_no_time_is_refused_here(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match=r"duration|ttl=0"):
        Sandbox.create(ttl=timeout, client=Client(f"ipc://{tmp_path}/none"))


def test_a_command_without_a_program_or_with_bytes_is_refused_here() -> None:
    with pytest.raises(ValueError, match="program"):
        command(())
    with pytest.raises(TypeError, match="text"):
        command((b"true",))  # type: ignore[arg-type]


def test_a_job_whose_connection_broke_raises_and_is_not_run_again(tmp_path: Path) -> None:
    def drop(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(events(call_id, STARTED, output(b"half", 0)))

    with Peer(tmp_path, drop, drop) as peer, Client(peer.address) as client:
        with pytest.raises(ConnectionLost) as raised:
            run("true", client=client)
        assert raised.value.maybe_executed
        assert peer.connections == 1


def test_a_callback_that_raises_cancels_the_job(tmp_path: Path) -> None:
    def watch(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(events(call_id, STARTED, output(b"line\n", 0)))
        assert c.until(wire_pb2.FRAME_KIND_CANCEL)[0] == call_id

    def callback(_line: str) -> None:
        raise KeyError

    with Peer(tmp_path, watch) as peer, Client(peer.address) as client, pytest.raises(KeyError):
        run("true", on_stdout=callback, client=client)


# What works.


def test_a_process_in_a_sandbox_is_attached_again_where_its_output_broke_off(
    tmp_path: Path,
) -> None:
    asked = []

    def first(c: Conversation) -> None:
        call_id, _ = created(c).call()
        c.send(events(call_id, STARTED, output(b"one ", 0), output(b"two ", 4)))

    def second(c: Conversation) -> None:
        call_id, frame = c.greet().call()
        asked.append(process_service_pb2.AttachRequest.FromString(frame.payload))
        c.send(
            events(call_id, STARTED, output(b"two three", 4), exited()),
            end(call_id),
        )

    with Peer(tmp_path, first, second) as peer, Client(peer.address) as client:
        process = Sandbox.create(client=client).start("true")
        assert process.wait().stdout == "one two three"
    assert asked == [process_service_pb2.AttachRequest(process_id=PROCESS, offset=8)]


def test_a_start_whose_answer_was_lost_finds_the_process_that_it_started(tmp_path: Path) -> None:
    keys = []

    def first(c: Conversation) -> None:
        keys.append(created(c).call()[1].metadata[0].value)

    def second(c: Conversation) -> None:
        answer(c.greet(), INFO.SerializeToString())
        call_id, frame = c.call()
        keys.append(frame.metadata[0].value)
        no = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_END)
        no.status.code = 6
        info = wire_pb2.ErrorInfo(reason="ALREADY_EXECUTED", metadata={"process_id": PROCESS})
        no.status.details.add().Pack(info)
        c.send(message(call_id, no))
        call_id, frame = c.call()
        assert frame.method.endswith("/Attach")
        c.send(events(call_id, STARTED, exited(3)), end(call_id))

    with Peer(tmp_path, first, second) as peer, Client(peer.address) as client:
        process = Sandbox.create(client=client).start("true")
        assert process.wait().exit_code == 3
    assert keys[0] == keys[1]


def test_gaps_are_events_and_are_counted_as_missing() -> None:
    collector = Collector(keep=4)
    collector.feed(STARTED)
    assert collector.feed(output(b"abcdef", 0)) == Output("stdout", b"abcdef", 0)
    assert collector.feed(output(b"oops", 6, 2)) == Output("stderr", b"oops", 6)
    gap = Event(gap=Event.Gap(offset=10, bytes=90, limit=True))
    assert collector.feed(gap) == Gap(10, 90, limit=True)
    collector.feed(exited(3))
    result = collector.finish()
    assert (result.stdout, result.stderr, result.output_missing) == ("abcd", "oops", 92)
    assert (result.exit_code, result.ok, result.output_cut) == (3, False, 92)
    assert collector.offset == 100
    with pytest.raises(JobError, match="exited with code 3"):
        result.check()


def missing(collector: Collector, *, handed: bool = False) -> tuple[int, int]:
    collector.feed(STARTED)
    collector.feed(output(b"abcdef", 0), handed=handed)
    collector.feed(output(b"oops", 6, 2), handed=handed)
    collector.feed(exited(0))
    result = collector.finish()
    assert result.ok is (result.output_cut == 0)
    return result.output_missing, result.output_cut


def test_output_that_nobody_was_given_is_cut() -> None:
    assert missing(Collector(keep=6)) == (0, 0)
    assert missing(Collector(keep=3)) == (4, 4)
    assert missing(Collector(keep=3), handed=True) == (4, 0)
    assert missing(Collector(keep=3, on_stdout=print)) == (4, 1)
    assert missing(Collector(keep=3, on_stdout=print, on_stderr=print)) == (4, 0)
    assert missing(Collector(keep=0)) == (10, 0)  # nothing is wanted


def test_lines_are_handed_over_whole_across_pieces_and_characters() -> None:
    seen: list[str] = []
    lines = Lines(seen.append)
    for byte in "höher\r\nweiter\n\nRest".encode():
        lines.feed(bytes([byte]))
    assert seen == ["höher", "weiter", ""]
    lines.feed(b"", final=True)
    assert seen[-1] == "Rest"
    lines.feed(b"x" * 70_000)
    assert len(seen[-1]) == 70_000


def test_a_result_tells_the_limit_that_was_hit_and_the_bill() -> None:
    message = limits_pb2.Result(
        outcome=limits_pb2.OUTCOME_LIMIT,
        signal=9,
        limit_hit=limits_pb2.LimitHit(name="wall_ms", value=1000),
    )
    for field, value in (("cpu_user_ns", 2_000_000_000), ("cpu_system_ns", 500_000_000)):
        figure = getattr(message.bill, field)
        figure.value = value
        figure.source = limits_pb2.FIGURE_SOURCE_CGROUP
        figure.scope = limits_pb2.FIGURE_SCOPE_JOB
    message.bill.memory_peak_bytes.value = 7  # without a source it is not known
    message.bill.unknown.append("memory_peak_bytes: no memory controller")
    collector = Collector()
    collector.feed(STARTED)
    collector.feed(Event(exited=Event.Exited(result=message)))
    result = collector.finish()
    assert result.outcome is Outcome.LIMIT
    assert result.timed_out
    assert result.exit_code is None
    assert result.limit_hit == LimitHit("wall_ms", 1000)
    assert result.bill.cpu_time == 2.5
    assert result.bill.memory_peak is None
    assert str(result) == "limit by SIGKILL, limit wall_ms=1000"


def test_sizes_and_spans_are_understood() -> None:
    assert size_bytes("256M") == size_bytes("256 MiB") == size_bytes("0.25g") == 1 << 28
    assert size_bytes("12") == size_bytes(12) == 12
    assert to_ms(0.0001) == 1
    assert to_ms(datetime.timedelta(seconds=2)) == 2000
    message = Limits(memory="64M", cpus=1.5, timeout=2, output="1K").to_message()
    assert (message.memory_bytes, message.cpu_millis, message.wall_ms) == (1 << 26, 1500, 2000)
    assert Limits.from_message(message) == Limits(
        memory=1 << 26, cpus=1.5, timeout=2.0, output=1024
    )


def test_more_stdin_than_a_request_carries_is_cut_into_pieces() -> None:
    feed = Feed(b"x" * (1024 * 1024 + 70_000))
    assert len(feed.inline) == 1024 * 1024
    assert [len(piece) for piece in feed.pieces()] == [65_536, 4_464]
    assert Feed("ü").inline == "ü".encode()
    assert Feed(None).more is None
    assert list(cut(b"")) == []


def test_stdin_may_be_text_in_pieces_or_a_file_of_text() -> None:
    assert list(Feed(["one", b"two", bytearray(b"three")]).pieces()) == [b"one", b"two", b"three"]
    assert list(Feed(io.StringIO("ü\n")).pieces()) == ["ü\n".encode()]
    assert list(Feed(io.StringIO()).pieces()) == []
    with pytest.raises(TypeError, match="bytes or text"):
        list(Feed([1]).pieces())  # type: ignore[list-item]


def test_a_file_that_does_not_wait_is_refused_as_stdin() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with (
        open(read, "rb", buffering=0) as file,  # noqa: PTH123 - a descriptor
        open(write, "wb"),  # noqa: PTH123
        pytest.raises(BlockingIOError),
    ):
        list(Feed(file).pieces())


def test_a_process_that_was_detached_says_so(tmp_path: Path) -> None:
    def serve(c: Conversation) -> None:
        call_id, _ = c.greet().call()
        c.send(events(call_id, STARTED))
        c.until(wire_pb2.FRAME_KIND_CANCEL)

    with Peer(tmp_path, serve) as peer, Client(peer.address) as client:
        process = start("true", client=client)
        process.detach()
        with pytest.raises(FailedPrecondition, match="detached"):
            process.wait()


def test_an_open_file_is_sent_by_blocks(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\n" * 50_000)
    with path.open("rb") as file:
        assert [len(piece) for piece in Feed(file).pieces()] == [65_536, 34_464]
