# SPDX-License-Identifier: Apache-2.0
"""Policies: what would be decided about a call, and what a denied one says."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING

import pytest

import broker as brokers
import stockade
from stockade import aio
from stockade.v1 import file_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = """
layers:
  - name: base
    rules:
      - {id: push, match: {commands: ["git push ..."]}, verdict: deny, reason: a person pushes}
      - id: people
        match: {commands: [deploy]}
        verdict: ask
        ask: {approvers: ["uid:0"], timeout: 1h}
      - {id: shadow, match: {paths: [/etc/shadow]}, verdict: deny}
      - id: night
        match: {commands: [sleep], times: {from: "22:00", until: "06:00"}}
        verdict: deny
      - id: memory
        match: {methods: [ProcessService/Run], languages: [python]}
        verdict: limit
        limit: {limits: {memory: 64M}}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[brokers.Broker]:
    yield from brokers.running(policy=POLICY)


def test_a_call_is_explained_as_it_would_be_decided(client: stockade.Client) -> None:
    denied = stockade.Policy.explain("git", "push", "x", client=client)
    assert (denied.verdict, denied.rule, denied.reason) == ("deny", "base/push", "a person pushes")
    assert denied.allowed.startswith("commands other than git push")
    last = denied.steps[-1]
    assert (last.kind, last.layer, last.rule, last.line) == ("host", "base", "push", 5)
    assert stockade.Policy.explain("git", "log", client=client).verdict == "allow"
    asked = stockade.Policy.explain("deploy", client=client)
    assert [(q.rule, q.approvers, q.need, q.timeout) for q in asked.questions] == [
        ("base/people", ("uid:0",), 1, 3600.0)
    ]
    limited = stockade.Policy.explain(
        "x", language="python", limits={"memory": "8M"}, client=client
    )
    assert (limited.verdict, limited.limits) == ("limit", {"memory": "64M"})
    late = datetime.datetime(2026, 11, 23, 23, 0, tzinfo=datetime.timezone.utc)
    assert stockade.Policy.explain("sleep", time=late, client=client).rule == "base/night"
    request = file_service_pb2.FileServiceReadRequest(sandbox_id="none", path=b"/etc/shadow")
    read = stockade.Policy.explain(method="FileService/Read", request=request, client=client)
    assert read.rule == "base/shadow"
    with pytest.raises(stockade.NotFound):
        stockade.Policy.explain("x", method="FileService/None", client=client)


def test_the_error_of_a_denied_call_says_what_is_allowed(client: stockade.Client) -> None:
    with pytest.raises(stockade.PermissionDenied) as denied:
        stockade.run("git", "push", client=client)
    text = str(denied.value)
    assert "a person pushes" in text
    assert "base/push" in text
    assert "commands other than git push" in text
    assert denied.value.rule == "base/push"
    assert (denied.value.allowed or "").startswith("commands other than git push")
    assert "change base/push" in (denied.value.hint or "")
    assert "rule='base/push'" in repr(denied.value)


def test_the_policy_and_its_sets_are_shown(client: stockade.Client) -> None:
    shown = stockade.Policy.show(client=client)
    assert [(layer.kind, layer.name, layer.otherwise) for layer in shown.layers] == [
        ("host", "base", "allow")
    ]
    assert [rule.id for rule in shown.layers[0].rules][:2] == ["push", "people"]
    assert len(shown.digest) == 32
    assert "pypi.org:443/tcp" in stockade.Policy.sets(client=client)["pypi"].destinations


def test_a_block_narrows_its_own_calls(client: stockade.Client) -> None:
    with stockade.narrowed({"otherwise": "deny", "reason": "not in this block"}):
        with pytest.raises(stockade.PermissionDenied) as denied:
            stockade.run("true", client=client)
        assert stockade.Policy.explain("true", client=client).steps[-1].kind == "request"
    assert "not in this block" in str(denied.value)
    assert stockade.run("true", client=client).ok
    with pytest.raises(ValueError, match="4096"), stockade.narrowed("#" * 5000):
        pass
    with stockade.narrowed("{rules: 1}"), pytest.raises(stockade.InvalidArgument):
        stockade.run("true", client=client)


def test_it_is_the_same_with_asyncio(broker: brokers.Broker) -> None:
    async def ask() -> tuple[str, int, bool]:
        async with aio.Client(broker.ipc) as client:
            decision = await aio.Policy.explain("git", "push", client=client)
            shown = await aio.Policy.show(client=client)
            return (
                decision.verdict,
                len(shown.layers),
                "npm" in await aio.Policy.sets(client=client),
            )

    assert asyncio.run(ask()) == ("deny", 1, True)


RULE = {
    "id": "nc",
    "severity": "warning",
    "tags": ["T1571"],
    "message": "{arguments}",
    "match": {"kinds": ["exec"], "all": [{"executable": {"suffix": ["/nc"]}}]},
}


def test_detection_rules_are_kept_tried_and_switched_off(client: stockade.Client) -> None:
    with pytest.raises(stockade.InvalidArgument, match="mine:1:9: "):
        stockade.Rules.set("mine", "rules: [{id: nc}]", client=client)
    with pytest.raises(stockade.FailedPrecondition, match="of the host"):
        stockade.Rules.disable("fork-storm", client=client)
    with pytest.raises(ValueError, match="no kind of events"):
        stockade.Rules.test([{"kind": "nothing"}], client=client)
    assert stockade.Rules.list(client=client).rules == ()
    (rule,) = stockade.Rules.set("mine", {"rules": [RULE]}, client=client)
    assert (rule.id, rule.origin, rule.enabled, rule.tags) == ("nc", "tenant", True, ("T1571",))
    events = [{"kind": "exec", "executable": "/bin/nc", "arguments": "nc -l"}, {"kind": "exit"}]
    (found,) = stockade.Rules.test(events, client=client)
    assert (found.event, found.rule, found.text) == (1, "nc", "nc -l")
    assert not stockade.Rules.disable("nc", client=client).enabled
    assert stockade.Rules.get("mine", client=client).disabled == ("nc",)
    assert stockade.Rules.enable("nc", client=client).enabled
    assert stockade.Rules.check("mine", "rules: []", client=client) == ()
    every = stockade.Rules.list(host=True, client=client).rules
    assert "tripwire" in {r.origin for r in every}
    stockade.Rules.delete("mine", client=client)


def test_detection_rules_are_the_same_with_asyncio(broker: brokers.Broker) -> None:
    async def ask() -> tuple[str, ...]:
        async with aio.Client(broker.ipc) as client:
            await aio.Rules.set("mine", {"rules": [RULE]}, client=client)
            try:
                events = [{"kind": "exec", "executable": "/bin/nc"}]
                return tuple(f.rule for f in await aio.Rules.test(events, client=client))
            finally:
                await aio.Rules.delete("mine", client=client)

    assert asyncio.run(ask()) == ("nc",)


def test_findings_are_acknowledged_and_silenced(client: stockade.Client) -> None:
    findings = stockade.Findings
    with pytest.raises(stockade.InvalidArgument, match="there is no rule nothing"):
        findings.silence("nothing", "1h", "a test", client=client)
    with pytest.raises(stockade.NotFound):
        findings.acknowledge(999999, client=client)
    with pytest.raises(stockade.NotFound):
        findings.unsilence("0123456789abcdef", client=client)
    made = findings.silence("sensitive-path", "1h", "a test", comm="cat", client=client)
    assert [s.id for s in findings.silences(client=client)] == [made.id]
    assert (made.rule, made.comm, made.by_host) == ("sensitive-path", "cat", True)
    stockade.run("cat", "/etc/shadow", client=client)
    found = [f for f in findings.list(rule="sensitive-path", client=client) if f.silenced][-1]
    assert found.silence_id == made.id
    findings.unsilence(made.id, client=client)
    findings.acknowledge(found.sequence, "handled", client=client)
    (kept,) = findings.acknowledged(client=client)
    assert (kept.sequence, kept.acknowledgements[0].reason) == (found.sequence, "handled")
    findings.acknowledge(found.sequence, withdraw=True, client=client)


def test_findings_are_the_same_with_asyncio(broker: brokers.Broker) -> None:
    async def ask() -> tuple[str, ...]:
        async with aio.Client(broker.ipc) as client:
            made = await aio.Findings.silence("fork-storm", "1h", "a test", client=client)
            rules = [s.rule async for s in aio.Findings.silences(client=client)]
            await aio.Findings.unsilence(made.id, client=client)
            rules += [f.rule async for f in aio.Findings.acknowledged(client=client)]
            rules += [f.rule async for f in aio.Findings.list(rule="fork-storm", client=client)]
            return tuple(rules)

    assert asyncio.run(ask()) == ("fork-storm",)
