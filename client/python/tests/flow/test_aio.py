# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio against a real broker."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Any

import pytest

import stockade
from proxy import Proxy, Withhold
from stockade import Limits, aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from broker import Broker

HUNDRED_MB = 100_000_000
COUNT = "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"
COUNTED = "".join(f"line {i}\n" for i in range(20))


def run(broker: Broker, main: Callable[[aio.Client], Coroutine[Any, Any, None]]) -> None:
    """Run it with a client, and see that nothing was left behind in the event loop."""

    async def outer() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        async with aio.Client(broker.ipc) as client:
            await asyncio.wait_for(main(client), 60)
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        assert not complaints

    asyncio.run(outer())


async def settles(client: aio.Client, jobs: int = 0) -> None:
    until = time.monotonic() + 60
    while (await client.info()).processes != jobs and time.monotonic() < until:
        await asyncio.sleep(0.02)
    assert (await client.info()).processes == jobs


def test_refusals_name_the_rule(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(stockade.InvalidArgument, match="memory_bytes"):
            await aio.run("true", limits=Limits(memory="512G"), client=client)
        with pytest.raises(stockade.NotFound):
            await aio.Sandbox.connect("00" * 16, client=client)

    run(broker, main)


def test_output_exit_code_and_bill_come_back(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        result = await aio.run("sh", "-c", "cat; exit 7", stdin="in", client=client)
        assert (result.stdout, result.exit_code) == ("in", 7)
        assert result.bill.cpu_time is not None

    run(broker, main)


def test_a_hundred_megabytes_arrive_whole(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        digest, length = hashlib.sha256(), 0
        job = await aio.start(
            "sh",
            "-c",
            f"yes stockade | head -c {HUNDRED_MB}",
            limits=Limits(output="128M"),
            keep=0,
            client=client,
        )
        async for event in job:
            assert isinstance(event, stockade.Output)
            digest.update(event.data)
            length += len(event.data)
        line = b"stockade\n"
        expected = hashlib.sha256((line * (HUNDRED_MB // len(line) + 1))[:HUNDRED_MB])
        assert length == HUNDRED_MB
        assert digest.digest() == expected.digest()

    run(broker, main)


def test_a_hundred_jobs_at_once_on_one_connection_get_their_own_answers(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        results = await asyncio.gather(
            *(aio.run("echo", str(i), client=client) for i in range(100))
        )
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(100)]

    run(broker, main)


def test_a_cancelled_task_ends_its_job(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        await settles(client)
        task = asyncio.create_task(aio.run("sleep", "60", client=client))
        await settles(client, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settles(client)
        async with await aio.Sandbox.create(client=client) as sandbox:
            task = asyncio.create_task(sandbox.run("sleep", "60"))
            await settles(client, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settles(client)

    run(broker, main)


def test_a_run_that_is_cancelled_before_its_first_word_is_ended(
    broker: Broker, tmp_path: Path
) -> None:
    async def main(direct: aio.Client) -> None:
        async with await aio.Sandbox.create(client=direct) as made:
            withhold = Withhold(b"/Start", 1.0)
            with Proxy(tmp_path, broker.ipc, withhold) as proxy:
                async with aio.Client(proxy.address) as client:
                    sandbox = await aio.Sandbox.connect(made.id, client=client)
                    task = asyncio.create_task(sandbox.run("sleep", "60"))
                    assert await asyncio.to_thread(withhold.seen.wait, 60)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
            (process,) = [p async for p in made.processes()]
            assert (await (await made.attach(process.id)).wait(timeout=60)).signal == 9

    run(broker, main)


def test_the_deadline_of_a_call_ends_the_job(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(stockade.DeadlineExceeded):
            await aio.run("sleep", "60", deadline=0.5, client=client)
        await settles(client)

    run(broker, main)


def test_stdin_from_an_asynchronous_source_is_sent_while_output_is_read(broker: Broker) -> None:
    async def lines() -> AsyncIterator[bytes]:
        for i in range(5):
            await asyncio.sleep(0.01)
            yield b"%d\n" % i

    async def main(client: aio.Client) -> None:
        seen: list[str] = []
        await aio.run("cat", stdin=lines(), on_stdout=seen.append, client=client)
        assert seen == ["0", "1", "2", "3", "4"]
        big = bytes(range(256)) * 12_000
        assert (await aio.run("cat", stdin=big, client=client)).stdout_bytes == big
        reader = asyncio.StreamReader()
        reader.feed_data(b"x" * 200_000)  # a line that is longer than it would give as one
        reader.feed_eof()
        assert (await aio.run("wc", "-c", stdin=reader, client=client)).stdout == "200000\n"

    run(broker, main)


def test_a_source_of_stdin_that_fails_or_never_ends_leaves_nothing_behind(broker: Broker) -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b"begin"
        raise KeyError("source")

    async def never_ends() -> AsyncIterator[bytes]:
        yield b"begin"
        await asyncio.sleep(3600)

    async def main(client: aio.Client) -> None:
        with pytest.raises(KeyError, match="source"):
            await aio.run("cat", stdin=fails(), client=client)
        assert (await aio.run("head", "-c1", stdin=never_ends(), client=client)).stdout == "b"
        await settles(client)

    run(broker, main)


def test_processes_and_sandboxes_can_be_handled(broker: Broker) -> None:
    async def main(client: aio.Client) -> None:
        async with await aio.Sandbox.create(metadata={"aio": "1"}, client=client) as sandbox:
            assert [s.id async for s in aio.Sandbox.list(metadata={"aio": "1"}, client=client)] == [
                sandbox.id
            ]
            async with await sandbox.start("sh", terminal=(24, 80)) as shell:
                await shell.resize(50, 132)
                await shell.send_stdin("stty size; exit 4\n")
                result = await shell.wait(timeout=60)
            assert "50 132" in result.stdout
            process = await sandbox.start("sort", stdin=b"b\n", stdin_open=True)
            await process.send_stdin("a\n")
            with pytest.raises(TimeoutError):
                await process.wait(timeout=0.1)
            assert [p.id async for p in sandbox.processes() if p.result is None] == [process.id]
            await process.close_stdin()
            assert (await process.wait()).stdout == "a\nb\n"
            sleeper = await sandbox.start("sleep", "60")
            await sleeper.kill()
            assert (await sleeper.wait()).signal == 9
            assert (await sandbox.pause()).state == "paused"
            assert (await sandbox.resume()).state == "running"
            assert (await sandbox.snapshot("s")).current
            await sandbox.restore("s", stop=True)
            assert [s.name async for s in sandbox.snapshots()] == ["s"]
            assert (await sandbox.get_snapshot("s")).name == "s"
            assert [c async for c in sandbox.diff("s")] == []
            (forked,) = await sandbox.fork(snapshot="s", stop=True, ttl=60)
            await forked.delete()
            await sandbox.delete_snapshot("s")
            assert (await sandbox.update(ttl=500)).id == sandbox.id
            assert (await sandbox.refresh()).state == "running"
        schema = await client.schema()
        system = schema.service("stockade.v1.SystemService", client)
        assert (await system.Info()).version
        assert await client.serving()

    run(broker, main)


def test_output_goes_on_where_a_connection_broke_without_loss_or_repetition(
    broker: Broker, tmp_path: Path
) -> None:
    async def main(direct: aio.Client) -> None:
        with Proxy(tmp_path, broker.ipc, lambda _number, _to_broker, data: data) as proxy:
            async with (
                aio.Client(proxy.address) as client,
                await aio.Sandbox.create(client=client) as sandbox,
            ):
                process = await sandbox.start("sh", "-c", COUNT)
                seen = 0
                async for _ in process:
                    if seen % 5 == 0:  # with the first piece, however many there are
                        proxy.cut()
                    seen += 1
                assert (await process.wait()).stdout == COUNTED
                assert proxy.connections >= 2
        await settles(direct)

    run(broker, main)


def test_after_a_restart_the_client_works_on_and_an_open_job_is_not_run_again(
    own_broker: Broker,
) -> None:
    async def main(client: aio.Client) -> None:
        job = await aio.start("sleep", "60", client=client)
        own_broker.kill()
        await asyncio.get_running_loop().run_in_executor(None, own_broker.start)
        with pytest.raises(stockade.ConnectionLost) as raised:
            await job.wait()
        assert raised.value.maybe_executed
        assert (await client.info()).processes == 0
        assert (await aio.run("echo", "again", client=client)).stdout == "again\n"

    run(own_broker, main)
