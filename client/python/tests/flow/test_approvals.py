# SPDX-License-Identifier: Apache-2.0
"""Approvals: an agent of the tenant tcp asks, and root answers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import broker as brokers
import stockade
from stockade import aio
from stockade.v1 import process_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = """
layers:
  - name: base
    rules:
      - id: people
        match: {commands: ["echo deploy* ...", "echo wait ..."]}
        verdict: ask
        reason: it changes production
        ask: {approvers: ["uid:0"]}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[brokers.Broker]:
    yield from brokers.running(policy=POLICY, config=brokers.NO_BPF)


def echo(client: stockade.Client, *words: str) -> str:
    return stockade.run("echo", *words, client=client).stdout


def asked(client: stockade.Client, *words: str) -> str:
    """Run a command that needs an approval; the id of that."""
    with pytest.raises(stockade.ApprovalPending) as pending:
        echo(client, *words)
    assert pending.value.reason == "APPROVAL_PENDING"
    assert pending.value.code == stockade.Code.FAILED_PRECONDITION
    return pending.value.approval


def run_request(*args: str) -> process_service_pb2.RunRequest:
    return process_service_pb2.RunRequest(command=process_service_pb2.Command(args=args))


def answer(client: stockade.Client, subject: str, *, agree: bool) -> threading.Thread:
    """Answer the approval of this command as soon as there is one."""

    def watches() -> None:
        for info in stockade.Approval.watch(client=client):
            if info.state == "pending" and info.subject == subject:
                found = stockade.Approval.connect(info.id, client=client)
                if agree:
                    found.approve()
                else:
                    found.deny("not today")
                return

    thread = threading.Thread(target=watches)
    thread.start()
    return thread


def test_what_is_wrong_is_refused(agent: stockade.Client, root: stockade.Client) -> None:
    with pytest.raises(stockade.NotFound):
        stockade.Approval.connect("0" * 32, client=agent)
    with pytest.raises(stockade.InvalidArgument):
        stockade.Approval.create("ProcessService/Nothing", b"", client=agent)
    with pytest.raises(TypeError, match="approvers"):
        stockade.Approval.create("ProcessService/Run", b"", approvers="root", client=agent)
    with pytest.raises(ValueError, match="state"):
        next(stockade.Approval.list(state="open", client=agent))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait"), stockade.approval(wait=-1):
        pass
    with (
        pytest.raises(stockade.InvalidArgument, match="approval-wait"),
        stockade.approval(wait="1h"),
    ):
        echo(agent, "deploy")
    asked(agent, "deploy", "mine")
    own = stockade.Approval.create("ProcessService/Run", run_request("true"), client=root)
    with pytest.raises(stockade.PermissionDenied) as refused:
        own.approve()
    assert refused.value.reason == "APPROVAL_OWN"
    assert own.cancel().state == "cancelled"
    with pytest.raises(stockade.FailedPrecondition) as ended:
        own.cancel()
    assert ended.value.reason == "APPROVAL_ENDED"


def test_an_answer_permits_the_call_once(agent: stockade.Client, root: stockade.Client) -> None:
    id_ = asked(agent, "deploy", "once")
    assert asked(agent, "deploy", "once") == id_
    pending = stockade.Approval.connect(id_, client=root)
    info = pending.info
    assert (info.subject, info.rule, info.approvers) == (
        "echo deploy once",
        "base/people",
        ("uid:0",),
    )
    assert process_service_pb2.RunRequest.FromString(info.request).command.args[2] == "once"
    assert id_ in [i.id for i in stockade.Approval.list(state="pending", client=root)]
    with stockade.approval(id_), pytest.raises(stockade.ApprovalPending):
        echo(agent, "deploy", "once")
    done = pending.approve(comment="fine")
    assert (done.state, done.reach, done.votes[0].comment) == ("approved", "once", "fine")
    with stockade.approval(id_):
        assert echo(agent, "needs", "none") == "needs none\n"
        with pytest.raises(stockade.PermissionDenied) as other:
            echo(agent, "deploy", "other")
        assert other.value.reason == "APPROVAL_MISMATCH"
        assert echo(agent, "deploy", "once") == "deploy once\n"
        with pytest.raises(stockade.PermissionDenied) as used:
            echo(agent, "deploy", "once")
        assert used.value.reason == "APPROVAL_USED"
    assert pending.refresh().uses == 1
    assert asked(agent, "deploy", "once") != id_


def test_a_pattern_permits_what_matches_it(agent: stockade.Client, root: stockade.Client) -> None:
    pending = stockade.Approval.connect(asked(agent, "deploy-1"), client=root)
    done = pending.approve(pattern="echo deploy-*", ttl="1h")
    assert (done.reach, done.pattern) == ("pattern", "echo deploy-*")
    assert [echo(agent, f"deploy-{n}") for n in (1, 2)] == ["deploy-1\n", "deploy-2\n"]


def test_a_call_waits_for_the_answer(agent: stockade.Client, root: stockade.Client) -> None:
    with stockade.approval(wait="5m"):
        thread = answer(root, "echo wait run", agree=True)
        assert echo(agent, "wait", "run") == "wait run\n"
        thread.join()
        thread = answer(root, "echo wait denied", agree=False)
        with pytest.raises(stockade.PermissionDenied, match="not today") as denied:
            echo(agent, "wait", "denied")
        thread.join()
        assert denied.value.reason == "APPROVAL_DENIED"
        with stockade.Sandbox.create(client=agent) as sandbox:
            thread = answer(root, "echo wait exec", agree=True)
            assert sandbox.run("echo", "wait", "exec").stdout == "wait exec\n"
            thread.join()
    with stockade.approval(wait="50ms"):
        asked(agent, "wait", "long")


def test_a_watch_of_one_ends_with_it(agent: stockade.Client, root: stockade.Client) -> None:
    pending = stockade.Approval.create(
        "ProcessService/Run", run_request("true"), reason="why not", timeout="1h", client=agent
    )
    assert pending.info.reason == "why not"
    states = []
    for info in stockade.Approval.watch(pending.id, client=agent):
        states.append(info.state)
        if info.state == "pending":
            stockade.Approval.connect(pending.id, client=root).deny()
    assert states == ["pending", "denied"]


def test_the_same_with_asyncio(broker: brokers.Broker) -> None:
    async def answers(client: aio.Client) -> None:
        async for info in aio.Approval.watch(client=client):
            if info.state == "pending" and info.subject == "echo wait together":
                await (await aio.Approval.connect(info.id, client=client)).approve(comment="go")
                return

    async def main() -> None:
        async with aio.Client(broker.tcp) as agent, aio.Client(broker.ipc) as root:
            answering = asyncio.create_task(answers(root))
            with aio.approval(wait="5m"):
                done = await aio.run("echo", "wait", "together", client=agent)
            assert done.stdout == "wait together\n"
            await answering
            with pytest.raises(stockade.ApprovalPending) as pending:
                await aio.run("echo", "wait", "together", client=agent)
            approval = await aio.Approval.connect(pending.value.approval, client=root)
            assert (await approval.deny("no")).votes[0].comment == "no"
            assert (await approval.refresh()).state == "denied"
            listed = [i.id async for i in aio.Approval.list(state="denied", client=root)]
            assert approval.id in listed
            own = await aio.Approval.create("ProcessService/Run", run_request("true"), client=agent)
            assert (await own.cancel()).state == "cancelled"

    asyncio.run(main())


def test_a_watch_goes_on_after_a_restart(own_broker: brokers.Broker) -> None:
    with stockade.Client(own_broker.ipc, retry_for=60) as client:
        first = stockade.Approval.create("ProcessService/Run", run_request("true"), client=client)
        watch = stockade.Approval.watch(client=client)
        assert next(watch).id == first.id
        own_broker.kill()
        own_broker.start()
        second = stockade.Approval.create("ProcessService/Run", run_request("id"), client=client)
        assert next(watch).id == second.id
