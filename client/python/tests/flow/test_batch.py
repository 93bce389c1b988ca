# SPDX-License-Identifier: Apache-2.0
"""Batches against a real broker."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import stockade
from proxy import Proxy
from stockade import BatchJob, Client, Limits, Outcome, aio, batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from broker import Broker


# Refusals.


def test_a_wrong_job_is_refused_with_its_name(client: Client) -> None:
    with pytest.raises(stockade.InvalidArgument, match="memory_bytes"):
        list(batch([BatchJob(("true",), limits=Limits(memory="512G"))], client=client))
    with pytest.raises(TypeError, match="args"):
        list(batch(["true"], client=client))
    with pytest.raises(ValueError, match="args"):
        list(batch([()], client=client))
    with pytest.raises(stockade.InvalidArgument, match="warm"):
        list(batch([("true",)], warm="python", client=client))
    with pytest.raises(ValueError, match="stdin"):
        list(batch([BatchJob(("cat",), stdin=b"x" * (1 << 20) + b"x")], client=client))


def test_a_key_that_is_in_use_is_refused(client: Client) -> None:
    with batch([("true",), ("sleep", "60")], key="mine", parallel=2, client=client) as first:
        assert next(first).number == 0
        with pytest.raises(stockade.AlreadyExists, match="mine"):
            next(batch([("true",)], key="mine", client=client))


# What works.


def test_each_job_has_one_result_with_its_output(client: Client) -> None:
    jobs = [
        BatchJob(("sh", "-c", f"cat; echo e{i} >&2; exit {i % 2}"), key=f"k{i}", stdin=f"in {i}")
        for i in range(30)
    ]
    got = {done.number: done for done in batch(jobs, parallel=3, window=7, client=client)}
    assert sorted(got) == list(range(30))
    for i, done in got.items():
        assert done.key == f"k{i}"
        assert (done.result.stdout, done.result.stderr) == (f"in {i}", f"e{i}\n")
        assert (done.result.outcome, done.result.exit_code) == (Outcome.EXITED, i % 2)
        assert done.result.process_id
    assert list(batch([], client=client)) == []
    snippets = [("python3", "-c", f"print({i})") for i in range(4)]
    warm = batch(snippets, reset="files", warm="python", network="off", client=client)
    assert {d.number: d.result.stdout for d in warm} == {i: f"{i}\n" for i in range(4)}


def test_a_timeout_is_of_each_job_and_a_deadline_of_all(client: Client) -> None:
    (done,) = batch([("sleep", "60")], timeout=0.2, client=client)
    assert done.result.timed_out

    def endless() -> Iterator[tuple[str, ...]]:
        while True:
            yield ("sleep", "60")

    outcomes: set[Outcome] = set()
    with pytest.raises(stockade.DeadlineExceeded):
        outcomes.update(
            done.result.outcome for done in batch(endless(), deadline=0.4, window=4, client=client)
        )
    assert outcomes <= {Outcome.CANCELLED}


def test_leaving_it_cancels_what_is_left(client: Client) -> None:
    with batch([("true",), *[("sleep", "60")] * 5], parallel=2, client=client) as results:
        assert next(results).number == 0
    while client.info().processes:
        time.sleep(0.02)
    assert list(results) == []


def test_a_lost_connection_is_made_again(broker: Broker, tmp_path: Path) -> None:
    with Proxy(tmp_path, broker.ipc, lambda *given: given[2]) as cut, Client(cut.address) as client:
        numbers = []
        for done in batch([("echo", str(i)) for i in range(40)], window=10, client=client):
            assert done.result.stdout == f"{done.number}\n"
            numbers.append(done.number)
            if len(numbers) in (5, 20):
                cut.cut()
        assert sorted(numbers) == list(range(40))


def test_a_broker_that_was_killed_has_lost_it(own_broker: Broker) -> None:
    with Client(own_broker.ipc) as client:
        results = batch([("true",), ("sleep", "60")], parallel=2, client=client)
        assert next(results).number == 0
        own_broker.kill()
        own_broker.start()
        with pytest.raises(stockade.ConnectionLost):
            next(results)
        assert results.unfinished == {1: ""}


def test_what_a_broker_that_stops_has_accepted_has_a_result(own_broker: Broker) -> None:
    with Client(own_broker.ipc) as own:
        jobs = [("sh", "-c", "exec sleep 0.3")] * 300
        with batch(jobs, parallel=1, window=64, client=own) as results:
            done = [next(results)]
            own_broker.drain()
            with pytest.raises(stockade.Unavailable, match="the broker is shutting down"):
                done += iter(lambda: next(results), None)
            assert len(results.unfinished) == 0
    cancelled = [r for r in done if r.result.reason == "the broker is stopping"]
    assert len(done) >= 64
    assert cancelled
    own_broker.stop()
    own_broker.start()


def test_asyncio_has_the_same(broker: Broker) -> None:
    async def jobs() -> AsyncIterator[tuple[str, ...]]:
        for i in range(20):
            await asyncio.sleep(0)
            yield ("echo", str(i))

    async def main() -> None:
        async with aio.Client(broker.ipc) as client:
            got = {d.number: d.result.stdout async for d in aio.batch(jobs(), client=client)}
            assert got == {i: f"{i}\n" for i in range(20)}
            async with aio.batch([("true",), ("sleep", "60")], client=client) as results:
                assert (await results.__anext__()).number == 0

    asyncio.run(main())
