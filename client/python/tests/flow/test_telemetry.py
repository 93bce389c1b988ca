"""Events and records, from a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import aio

if TYPE_CHECKING:
    from broker import Broker

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
