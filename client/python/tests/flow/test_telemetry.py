# SPDX-License-Identifier: Apache-2.0
"""Events and records, from a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import stockade
from broker import Broker
from proxy import Proxy
from stockade import aio, errors, telemetry
from stockade.v1 import telemetry_service_pb2

if TYPE_CHECKING:
    from pathlib import Path

CONNECT = """
import socket
try:
    socket.create_connection(('192.0.2.1', 443), 2)
except OSError:
    pass
"""


def test_a_result_has_the_record_of_its_job(client: stockade.Client) -> None:
    result = stockade.run("python3", "-c", CONNECT, client=client)
    assert result.record is not None
    assert result.record.completeness.start_time.seconds > 0
    last = client.record()
    assert last.record == result.record
    assert client.record(last.process.id[:8]).process.id == last.process.id
    if not result.record.completeness.hooks:
        pytest.skip("no BPF programs on this host")
    assert [d.destination for d in result.record.denials] == ["192.0.2.1:443"]


def test_events_are_iterated_and_end_with_the_context(client: stockade.Client) -> None:
    with client.events(kinds=["job-ended"]) as events:
        stockade.run("true", client=client)
        event = next(events)
    assert event.job.exit_code == 0
    assert event.sandbox_id
    kept = list(client.events(from_sequence=1, kept_only=True))
    assert event.sequence in [e.sequence for e in kept]


def test_a_follower_outlives_a_connection_and_says_nothing_of_it(
    broker: Broker, tmp_path: Path
) -> None:
    gaps: list[telemetry_service_pb2.Gap] = []
    with (
        Proxy(tmp_path, broker.ipc, lambda _number, _to_broker, data: data) as proxy,
        stockade.Client(proxy.address) as through,
        stockade.Client(broker.ipc) as beside,
        through.events(kinds=["job-ended"], on_gap=gaps.append) as events,
    ):
        seen = []
        for _ in range(3):
            stockade.run("true", client=beside)
            seen.append(next(events).sequence)
            stockade.run("true", client=beside)
            proxy.cut()
            seen.append(next(events).sequence)
    assert seen == sorted(set(seen))
    assert not gaps


def test_a_follower_outlives_the_broker_and_says_what_it_missed() -> None:
    gaps: list[telemetry_service_pb2.Gap] = []
    with Broker() as first, stockade.Client(first.ipc, retry_for=60) as client:
        with client.events(kinds=["job-ended"], on_gap=gaps.append) as events:
            stockade.run("true", client=client)
            before = next(events)
            first.stop()
            first.start()
            stockade.run("true", client=client)
            after = next(events)
        assert after.instance != before.instance
        assert [(g.reason, g.to_sequence) for g in gaps] == [("restarted", 0)]
        with client.events(
            from_sequence=before.sequence, instance=before.instance, kept_only=True
        ) as kept:
            assert next(kept).sequence == 1


def test_a_cursor_goes_on_behind_what_it_has_seen() -> None:
    lost = errors.Unavailable("gone")
    cursor = telemetry.Cursor(telemetry.request(kinds=["exec"]), reconnect=True)
    with pytest.raises(errors.Unavailable):
        cursor.after(lost)  # it was never there
    response = telemetry_service_pb2.SubscribeResponse(last_sequence=41, instance="aa")
    cursor.feed(response)
    assert (cursor.request.from_sequence, cursor.request.instance) == (42, "aa")
    response.events.add(sequence=50)
    cursor.feed(response)
    assert cursor.request.from_sequence == 51
    delays = [cursor.after(lost) for _ in range(8)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.05, 1.0)
    response = telemetry_service_pb2.SubscribeResponse(instance="bb")
    response.gap.from_sequence, response.gap.reason = 51, "restarted"
    cursor.feed(response)
    assert (cursor.request.from_sequence, cursor.request.instance) == (1, "bb")
    assert list(cursor.request.kinds) == [16]
    never = telemetry.Cursor(telemetry.request(), reconnect=False)
    never.feed(response)
    with pytest.raises(errors.Unavailable):
        never.after(lost)


def test_a_kind_that_is_none_is_a_value_error(client: stockade.Client) -> None:
    with pytest.raises(ValueError, match="EVENT_KIND_DENID"):
        client.events(kinds=["denid"])


def test_events_come_with_asyncio_too(broker: Broker) -> None:
    async def main() -> int:
        async with (
            aio.Client(broker.ipc) as client,
            await client.events(kinds=["job-ended"], severity="info") as events,
        ):
            await aio.run("true", client=client)
            async for event in events:
                return int(event.job.exit_code)
        return -1

    assert asyncio.run(main()) == 0


def test_what_sandboxes_use_is_iterated(client: stockade.Client) -> None:
    with stockade.Sandbox.create(client=client) as one, stockade.Sandbox.create(client=client):
        one.run("true")
        everyone = [usage.sandbox_id for usage in client.usage()]
        assert one.id in everyone
        assert len(everyone) >= 2
        (usage,) = client.usage(one.id)
        assert (usage.sandbox_id, usage.paused) == (one.id, False)
        assert usage.memory_limit_bytes > 0
    assert not list(client.usage("0" * 32))


def test_what_sandboxes_use_and_what_the_broker_is_are_told_to_asyncio(broker: Broker) -> None:
    async def ask() -> None:
        async with aio.Client(broker.ipc) as client:
            async with await aio.Sandbox.create(client=client) as one:
                assert [u.sandbox_id async for u in client.usage(one.id)] == [one.id]
            assert (await aio.info(client=client)).version == (await client.info()).version

    asyncio.run(ask())


def test_the_broker_is_asked_about_itself_without_a_client_of_ones_own(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_ADDRESS", broker.ipc.replace("ipc://", "unix:"))
    assert stockade.info().version == stockade.__version__


def test_a_failed_job_tells_its_command_and_the_end_of_its_stderr(client: stockade.Client) -> None:
    with pytest.raises(stockade.JobError, match=r"^sh -c 'echo why >&2; exit 3': .* 3\nwhy$") as no:
        stockade.run("sh", "-c", "echo why >&2; exit 3", client=client, check=True)
    assert repr(no.value.result).endswith(f"id={no.value.result.process_id}>")
    assert len(no.value.result.process_id) == 32
