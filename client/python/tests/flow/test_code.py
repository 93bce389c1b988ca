# SPDX-License-Identifier: Apache-2.0
"""Cells of code against a real broker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import Client, CodeStatus, Limits, Sandbox, aio, run_code

if TYPE_CHECKING:
    from broker import Broker


# Refusals.


def test_an_unknown_language_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(stockade.InvalidArgument, match="language"):
        sandbox.run_code("1", language="cobol")
    with pytest.raises(stockade.InvalidArgument, match="language"):
        sandbox.create_context("cobol")


def test_a_context_that_was_deleted_is_not_found(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.delete()
    context.delete()
    with pytest.raises(stockade.NotFound):
        context.run("1")


def test_what_cannot_be_kept_is_refused(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run("import socket; pair = socket.socketpair()")
    with pytest.raises(stockade.FailedPrecondition, match="connection"):
        context.checkpoint()
    with pytest.raises(stockade.NotFound):
        context.restore("none")
    with pytest.raises(stockade.NotFound):
        sandbox.delete_checkpoint("none")


# What works.


def test_a_cell_alone_has_output_results_and_bill(client: Client) -> None:
    done = run_code("print('a')\n6 * 7", client=client, limits=Limits(memory="256M"))
    assert (done.ok, done.stdout, done.text, done.execution_count) == (True, "a\n", "42", 1)
    assert done.bill.wall_time is not None
    assert done.results[0].main


def test_variables_stay_in_a_context(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 41")
    assert sandbox.run_code("x + 1").text == "42"
    context = sandbox.create_context(cwd="/tmp", env={"E": "v"})
    failed = context.run("x")
    assert failed.error is not None
    assert (failed.status, failed.error.name) == (CodeStatus.ERROR, "NameError")
    assert context.run("import os; os.getcwd() + os.environ['E']").text == "'/tmpv'"
    assert [c.info.default for c in sandbox.contexts()] == [True, False]
    context.restart()
    assert context.run("'os' in globals()").text == "False"
    assert sandbox.run_code("echo $((1 + 1))", language="bash").stdout == "2\n"


def test_an_interrupt_keeps_the_variables(sandbox: Sandbox) -> None:
    context = sandbox.create_context()

    def interrupt(_text: str) -> None:
        threading.Timer(0.1, context.interrupt).start()

    done = context.run("x = 1\nprint('go')\nwhile True: pass", on_stdout=interrupt)
    assert done.status is CodeStatus.INTERRUPTED
    assert context.run("x").text == "1"
    assert context.run("while True: pass", timeout=0.2).status is CodeStatus.TIMEOUT


def test_a_crash_is_told(sandbox: Sandbox) -> None:
    done = sandbox.run_code("import os; os._exit(3)")
    assert (done.status, done.lost) == (CodeStatus.CRASHED, True)
    assert "status 3" in done.reason


def test_variables_are_kept_restored_and_forked(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    context.run("x = [1]")
    before = context.checkpoint("before")
    assert (before.name, before.execution_count, before.lost) == ("before", 1, "")
    assert [c.name for c in sandbox.checkpoints()] == ["before"]
    context.run("x.append(2)")
    fork = context.fork()
    assert fork.run("x.append(3); x").text == "[1, 2, 3]"
    context.restore(before)
    assert context.run("x").text == "[1]"
    assert context.fork("before").run("x").text == "[1]"
    sandbox.delete_checkpoint(before)
    assert sandbox.checkpoints() == []


def test_asyncio_has_the_same(broker: Broker) -> None:
    async def all_of_it() -> None:
        async with aio.Client(broker.ipc) as client:
            assert (await aio.run_code("1 + 1", client=client)).text == "2"
            async with await aio.Sandbox.create(client=client) as sbx:
                await sbx.run_code("x = 2")
                context = await sbx.create_context()
                both = await asyncio.gather(sbx.run_code("x"), context.run("3"))
                assert [done.text for done in both] == ["2", "3"]
                await context.run("y = 5")
                kept = await context.checkpoint()
                assert await sbx.checkpoints() == [kept]
                await context.restore(kept)
                assert (await (await context.fork()).run("y")).text == "5"
                await sbx.delete_checkpoint(kept)

    asyncio.run(all_of_it())
