# SPDX-License-Identifier: Apache-2.0
"""The protocol without I/O: what the broker may not send is refused, what it may is understood."""

from __future__ import annotations

import copy
import pickle
import struct
from typing import Callable

import pytest

from peer import ID_BIT, data, end, goaway, message
from stockade import errors, wire
from stockade.v1 import wire_pb2
from stockade.wire import Core

PATH = "/stockade.v1.SystemService/Info"


def greeted() -> Core:
    core = Core(ipc=True, now=0)
    core.sent(len(core.output))
    core.feed(wire.HELLO_REP, 0)
    return core


def frames(core: Core) -> list[tuple[int, wire_pb2.Frame]]:
    """What the core wants to send, taken apart."""
    found, out = [], bytes(core.output)
    core.sent(len(out))
    while out:
        assert out[0] == 1
        n, call_id = struct.unpack(">QI", out[1:13])
        found.append((call_id, wire_pb2.Frame.FromString(out[13 : 9 + n])))
        out = out[9 + n :]
    return found


def stream(core: Core) -> wire.Call:
    return core.open(PATH, b"", streaming=True)


def unary(core: Core) -> wire.Call:
    return core.open(PATH, b"", streaming=False)


def refused(core: Core, bytes_: bytes, why: str) -> None:
    with pytest.raises(errors.ProtocolError, match=why):
        core.feed(bytes_, 0)
    assert not core.usable
    with pytest.raises(errors.ProtocolError):
        core.feed(b"", 0)


# Bytes that are refused.


@pytest.mark.parametrize(
    "hello",
    [b"HTTP/1.1", b"\0SP\0\0\x30\0\0", b"\0SP\1\0\x31\0\0", b"\0SP\0\0\x31\0\1", b"\xff" * 8],
)
def test_a_peer_with_another_hello_is_refused(hello: bytes) -> None:
    refused(Core(ipc=True, now=0), hello, "not a Stockade broker")


@pytest.mark.parametrize("n", [0, 3, wire.FRAME_BYTES_MAX + 1, 1 << 40, 0xFFFFFFFFFFFFFFE0])
def test_a_length_that_lies_is_refused_before_memory_is_set_aside(n: int) -> None:
    refused(greeted(), b"\1" + struct.pack(">Q", n), "says that it is")


def test_an_ipc_message_without_its_mark_is_refused() -> None:
    refused(greeted(), b"\0" + struct.pack(">QI", 4, ID_BIT), "mark")


def test_a_message_without_a_call_id_is_refused() -> None:
    refused(greeted(), message(7, b""), "without a call id")


@pytest.mark.parametrize(
    "body",
    [b"\x08", b"\x0a\x7f", b"\x0f", b"\x80" * 11, b"\x12\x02\xc3\x28", b"\x22\x02\x08\x80"],
)
def test_a_frame_that_is_no_protobuf_is_refused(body: bytes) -> None:
    refused(greeted(), message(ID_BIT, body), "not a protobuf")


def test_a_frame_of_very_many_fields_is_refused() -> None:
    refused(greeted(), message(ID_BIT, b"\x42\x00" * 1_000_000), "more than 64 fields")


def test_an_end_with_a_huge_status_is_refused() -> None:
    core = greeted()
    call = unary(core)
    refused(core, end(call.id, code=13, text="x" * 100_000), "a status of")


def test_data_for_a_unary_call_is_refused() -> None:
    core = greeted()
    refused(core, data(unary(core).id), "for a unary call")


def test_data_without_credit_is_refused() -> None:
    core = greeted()
    call = stream(core)
    core.feed(data(call.id) * wire.CREDIT, 0)
    refused(core, data(call.id), "without credit")


def test_data_of_more_than_64_kib_is_refused() -> None:
    core = greeted()
    refused(core, data(stream(core).id, b"x" * (wire.DATA_BYTES_MAX + 1)), "DATA frame of 65537")


@pytest.mark.parametrize("make", [data, end])
def test_a_frame_for_a_call_that_is_not_open_is_refused(make: Callable[[int], bytes]) -> None:
    core = greeted()
    unary(core)
    refused(core, make(ID_BIT + 99), "99, which is not open")


def test_a_second_end_is_refused() -> None:
    core = greeted()
    call = unary(core)
    core.feed(end(call.id), 0)
    refused(core, end(call.id), "not open")


def test_who_waits_for_a_call_that_ended_before_the_peer_broke_the_protocol_is_told() -> None:
    core = greeted()
    call, open_ = unary(core), unary(core)
    refused(core, end(call.id, b"answer") + end(call.id), "not open")
    assert core.lost("the peer broke the protocol") == [call, open_]
    assert call.payload == b"answer"
    assert call.error is None
    assert isinstance(open_.error, errors.ProtocolError)
    assert core.lost("again") == []


def test_a_long_ping_is_refused() -> None:
    ping = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING, payload=b"123456789")
    refused(greeted(), message(ID_BIT, ping), "sent a PING of 9 bytes; at most 8 are allowed")


PING = message(ID_BIT, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING, payload=b"12345678"))


def test_more_than_16_pings_in_5_s_are_refused() -> None:
    core = greeted()
    core.feed(PING * 16, 100)
    core.feed(PING * 16, 105)
    core.feed(b"", 109.9)
    assert len(frames(core)) == 32
    with pytest.raises(errors.ProtocolError, match="the broker sent more than 16 PINGs in 5 s"):
        core.feed(PING, 109.9)


def test_pings_whose_answers_nobody_takes_are_refused() -> None:
    core = greeted()
    now = 0
    while len(core.output) <= wire.OUTPUT_BYTES_MAX:
        core.feed(PING, now)
        now += 1
    with pytest.raises(errors.ProtocolError, match="does not read the answers"):
        core.feed(PING, now)


@pytest.mark.parametrize("kind", ["CALL", "CANCEL", "WINDOW"])
def test_frames_that_only_a_client_sends_are_refused(kind: str) -> None:
    frame = wire_pb2.Frame(kind=f"FRAME_KIND_{kind}")
    refused(greeted(), message(ID_BIT, frame), f"sent {kind}, which only a client sends")


def test_frames_of_an_unknown_kind_do_not_replace_the_answer_to_a_ping() -> None:
    core = greeted()
    unknown = message(ID_BIT + 5, b"\x08\x63")  # kind 99
    core.feed(unknown, 19)
    assert core.keep_alive(19, 20)
    assert not core.output
    core.feed(unknown, 20)
    assert core.keep_alive(20, 20)
    assert [frame.kind for _, frame in frames(core)] == [wire_pb2.FRAME_KIND_PING]
    core.feed(unknown, 39)
    assert core.keep_alive(39, 20)
    core.feed(unknown, 40)
    assert not core.keep_alive(40, 20)


def test_an_answered_ping_keeps_the_connection() -> None:
    core = greeted()
    assert core.keep_alive(20, 20)
    core.feed(message(ID_BIT, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PONG)), 39)
    assert core.keep_alive(40, 20)
    assert core.silent(40) == 1


# Requests that are refused before they are sent.


def test_a_request_larger_than_a_frame_is_refused_here() -> None:
    core = greeted()
    with pytest.raises(errors.InvalidArgument, match="larger than"):
        core.open(PATH, b"x" * wire.FRAME_BYTES_MAX, streaming=False)
    assert core.idle
    assert not core.output


def test_metadata_of_more_than_8_kib_is_refused_here() -> None:
    with pytest.raises(errors.InvalidArgument, match="metadata"):
        greeted().open(PATH, b"", streaming=False, metadata=[("k", "v" * 4096)] * 3)


def test_there_is_room_for_128_streams_and_1024_calls() -> None:
    core = greeted()
    for _ in range(wire.STREAMS_MAX):
        assert core.has_room(streaming=True)
        stream(core)
    assert not core.has_room(streaming=True)
    while core.has_room(streaming=False):
        unary(core)
    assert len(frames(core)) == wire.CALLS_MAX


# What is understood.


def test_the_first_bytes_are_the_hello_of_a_req_socket() -> None:
    assert bytes(Core(ipc=False, now=0).output) == bytes.fromhex("0053500000300000")


def test_a_call_has_these_bytes_on_ipc_and_on_tcp() -> None:
    for ipc, mark in ((True, "01"), (False, "")):
        core = Core(ipc=ipc, now=0)
        core.sent(8)
        core.open("/s/m", b"\x0a\x01a", streaming=False, timeout=1.5)
        body = "8000000108011204" + b"/s/m".hex() + "1a030a0161" + "28e0c65b"
        assert core.output.hex() == mark + f"{len(body) // 2:016x}" + body


def test_an_answer_is_understood_byte_by_byte() -> None:
    core = Core(ipc=True, now=0)
    call = unary(core)
    changed = []
    for byte in wire.HELLO_REP + end(call.id, b"answer"):
        changed += core.feed(bytes([byte]), 0)
    assert changed == [call]
    assert call.done
    assert call.error is None
    assert call.payload == b"answer"
    assert core.idle


def test_an_unknown_kind_is_ignored() -> None:
    core = greeted()
    frame = wire_pb2.Frame()
    frame.ParseFromString(b"\x08\x63")
    assert core.feed(message(ID_BIT + 5, frame), 0) == []
    assert core.usable


def test_credit_comes_back_half_a_window_at_a_time() -> None:
    core = greeted()
    call = stream(core)
    assert frames(core)[0][1].credit == wire.CREDIT
    core.feed(data(call.id) * wire.CREDIT, 0)
    for _ in range(wire.CREDIT // 2 - 1):
        core.taken(call)
    assert frames(core) == []
    core.taken(call)
    ((call_id, frame),) = frames(core)
    assert (call_id, frame.kind, frame.credit) == (call.id, wire_pb2.FRAME_KIND_WINDOW, 16)
    core.feed(data(call.id) * 16, 0)
    refused(core, data(call.id), "without credit")


def test_an_abandoned_call_sends_cancel_once_and_drops_what_comes_until_end() -> None:
    core = greeted()
    call = stream(core)
    core.feed(data(call.id), 0)
    core.abandon(call)
    core.abandon(call)
    kinds = [frame.kind for _, frame in frames(core)]
    assert kinds == [wire_pb2.FRAME_KIND_CALL, wire_pb2.FRAME_KIND_CANCEL]
    core.feed(data(call.id) * (wire.CREDIT - 1), 0)
    assert not call.messages
    core.feed(end(call.id, code=1, text="cancelled"), 0)
    assert core.idle


def test_a_call_that_is_left_sends_nothing_and_ends_by_itself() -> None:
    core = greeted()
    call = stream(core)
    frames(core)
    core.feed(data(call.id), 0)
    core.leave(call)
    core.feed(data(call.id) + end(call.id), 0)
    assert not call.messages
    assert frames(core) == []
    assert core.idle


def test_a_ping_is_answered_with_its_payload() -> None:
    core = greeted()
    core.feed(message(ID_BIT + 3, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING, payload=b"abc")), 0)
    ((call_id, frame),) = frames(core)
    assert (call_id, frame.kind, frame.payload) == (ID_BIT + 3, wire_pb2.FRAME_KIND_PONG, b"abc")


def test_goaway_fails_the_calls_after_its_id_and_says_that_they_were_not_executed() -> None:
    core = greeted()
    first, second = unary(core), unary(core)
    frames(core)
    assert core.feed(goaway(first.id), 0) == [second]
    assert isinstance(second.error, errors.ConnectionLost)
    assert not second.error.maybe_executed
    assert not core.usable
    assert not first.done
    core.feed(end(second.id), 0)  # how the broker refuses what came after its GOAWAY
    core.feed(end(first.id, b"late"), 0)
    assert first.payload == b"late"
    with pytest.raises(errors.ProtocolError, match="which is not open"):
        core.feed(end(first.id), 0)


def test_a_lost_connection_tells_which_calls_may_have_been_executed() -> None:
    core = greeted()
    sent = unary(core)
    core.sent(len(core.output))
    partly = unary(core)
    core.sent(1)
    written_now = unary(core)
    core.offer(len(core.output))
    unsent = unary(core)
    core.lost("gone")
    assert [
        call.error.maybe_executed
        for call in (sent, partly, written_now, unsent)
        if isinstance(call.error, errors.ConnectionLost)
    ] == [True, True, True, False]


def test_a_status_becomes_the_exception_of_its_code_with_the_rule_that_said_no() -> None:
    status = wire_pb2.Status(code=8, message="too many sandboxes")
    for detail in (
        wire_pb2.ErrorInfo(reason="QUOTA", domain="stockade", metadata={"allowed": "4"}),
        wire_pb2.RetryInfo(retry_delay_ms=250),
        wire_pb2.QuotaFailure(
            violations=[wire_pb2.QuotaFailure.Violation(subject="uid:7", description="sandboxes 4")]
        ),
    ):
        status.details.add().Pack(detail)
    status.details.add(type_url="type.googleapis.com/stockade.v1.BadRequest", value=b"\xff")
    error = errors.from_status(status, PATH)
    assert isinstance(error, errors.ResourceExhausted)
    assert (error.reason, error.info, error.retry_after) == ("QUOTA", {"allowed": "4"}, 0.25)
    assert error.quotas == (("uid:7", "sandboxes 4"),)
    assert str(error) == (
        "RESOURCE_EXHAUSTED: too many sandboxes uid:7: sandboxes 4 [QUOTA, allowed=4] "
        "(try again in 0.25 s)"
    )


def test_a_refusal_says_the_rule_what_is_allowed_and_how_to_ask() -> None:
    status = wire_pb2.Status(code=7, message="the policy refuses it")
    facts = {"rule": "base/no-push", "allowed": "commands other than git", "hint": "ask"}
    status.details.add().Pack(wire_pb2.ErrorInfo(reason="POLICY_DENIED", metadata=facts))
    error = errors.from_status(status, PATH)
    assert (error.rule, error.allowed, error.hint) == tuple(facts.values())
    assert (errors.NotFound("x").rule, errors.NotFound("x").allowed) == (None, None)
    assert str(error) == (
        "PERMISSION_DENIED: the policy refuses it "
        "[POLICY_DENIED, allowed=commands other than git, hint=ask, rule=base/no-push]"
    )
    assert repr(error) == (
        "PermissionDenied('the policy refuses it', reason='POLICY_DENIED', "
        "allowed='commands other than git', hint='ask', rule='base/no-push')"
    )


def test_a_retry_delay_of_49_days_is_shortened_to_an_hour() -> None:
    status = wire_pb2.Status(code=8, message="full")
    status.details.add().Pack(wire_pb2.RetryInfo(retry_delay_ms=4294967295))
    error = errors.from_status(status, PATH)
    assert error.retry_after == 3600
    assert str(error) == "RESOURCE_EXHAUSTED: full (try again in 3600 s or later)"


def test_every_code_has_an_exception_and_an_unknown_one_becomes_the_base() -> None:
    for code in errors.Code:
        if code:
            error = errors.from_status(wire_pb2.Status(code=code), PATH)
            assert error.code is code
    assert type(errors.from_status(wire_pb2.Status(code=99), PATH)) is errors.CallError


def test_every_exception_survives_a_pickle_and_a_copy() -> None:
    kinds = [e for e in vars(errors).values() if isinstance(e, type)]
    calls = [e for e in kinds if issubclass(e, errors.CallError) and e is not errors.ConnectionLost]
    assert len(calls) > 16
    made = [cls("no", reason="RULE", info={"limit": "pids", "hint": "ask"}) for cls in calls]
    for error in (*made, errors.ConnectionLost("gone", method="/x", maybe_executed=False)):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error)
            assert (str(again), vars(again)) == (str(error), vars(error))
    assert (made[0].subject, made[0].hint) == ("pids", "ask")
