# SPDX-License-Identifier: Apache-2.0
"""The audit log through the broker: the tenant tcp sees its own records, root all."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING

import pytest

import broker as brokers
import stockade
from stockade import aio

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[brokers.Broker]:
    yield from brokers.running(config=brokers.NO_BPF)


def test_wrong_arguments_are_refused(agent: stockade.Client) -> None:
    with pytest.raises(TypeError, match="list of names"):
        list(stockade.AuditLog.records(kinds="call", client=agent))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not one of"):
        list(stockade.AuditLog.records(phase="over", client=agent))  # type: ignore[arg-type]
    with pytest.raises(stockade.InvalidArgument, match="no kind"):
        list(stockade.AuditLog.records(kinds=["joke"], client=agent))  # type: ignore[list-item]
    with pytest.raises(stockade.PermissionDenied):
        list(stockade.AuditLog.records(tenant="*", client=agent))
    with pytest.raises(stockade.NotFound):
        stockade.AuditLog.prove("0" * 32, client=agent)


def test_a_tenant_sees_its_own_records(root: stockade.Client, agent: stockade.Client) -> None:
    begun = datetime.datetime.now(datetime.timezone.utc)
    stockade.run("true", client=root)
    stockade.run("true", client=agent)
    watched = stockade.AuditLog.watch(after_sequence=1, kinds=["job"], client=agent)
    job = next(iter(watched))
    assert job.kind == "job"
    assert job.tenant == "tcp"
    own = list(stockade.AuditLog.records(client=agent))
    assert {record.tenant for record in own} == {"tcp"}
    numbers = [record.sequence for record in own]
    assert numbers == sorted(numbers)
    runs = list(stockade.AuditLog.records(method="ProcessService/Run", since=begun, client=agent))
    assert {record.message.call.method for record in runs} == {"/stockade.v1.ProcessService/Run"}
    assert list(stockade.AuditLog.records(until=begun, phase="began", client=agent)) == []
    everything = {r.kind for r in stockade.AuditLog.records(tenant="*", client=root)}
    assert {"start", "call", "job"} <= everything


def test_a_job_is_proved(agent: stockade.Client) -> None:
    stockade.run("true", client=agent)
    job = next(iter(stockade.AuditLog.watch(after_sequence=1, kinds=["job"], client=agent)))
    proof = stockade.AuditLog.prove(job.message.job.process_id, client=agent)
    assert proof.record == job.message.SerializeToString(deterministic=True)
    assert len(proof.checkpoint.signature) == 64


def test_it_is_the_same_with_asyncio(broker: brokers.Broker) -> None:
    async def count() -> int:
        async with aio.Client(broker.ipc) as client:
            return len([r async for r in aio.AuditLog.records(tenant="*", client=client)])

    assert asyncio.run(count()) > 0
