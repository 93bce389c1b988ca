# SPDX-License-Identifier: Apache-2.0
"""Policies about calls, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional, Union

from stockade import methods
from stockade.fields import made
from stockade.v1 import policy_pb2, policy_service_pb2, process_service_pb2, simulation_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

    from stockade.calls import Caller

Verdict = Literal["allow", "limit", "ask", "deny", "unknown"]

_VERDICTS: dict[int, Verdict] = {1: "allow", 2: "deny", 3: "ask", 4: "limit"}


@dataclass(frozen=True)
class PolicyStep:
    """What one layer answers about a call."""

    #: ``"rights"``, ``"token"``, ``"host"``, ``"tenant"``, ``"template"`` or ``"request"``.
    kind: str
    #: Name of the layer; empty for rights and token.
    layer: str
    #: The id of its rule; empty: none matches.
    rule: str
    #: What it decides.
    verdict: Verdict
    #: Why.
    reason: str
    #: Where the rule, or the layer, is written.
    file: str
    line: int


@dataclass(frozen=True)
class PolicyQuestion:
    """People that a call would wait for."""

    #: The rule that asks, as LAYER/ID.
    rule: str
    #: Why.
    reason: str
    #: Who may approve.
    approvers: tuple[str, ...]
    #: How many of them must.
    need: int
    #: For how long they are asked, in seconds.
    timeout: float


@dataclass(frozen=True)
class PolicyDecision:
    """What would be decided about a call."""

    #: Of all layers together.
    verdict: Verdict
    #: The rule that decides, as LAYER/ID; empty: none.
    rule: str
    #: Why.
    reason: str
    #: Denied: what would be allowed instead.
    allowed: str
    #: Denied: the field of the request that it is about.
    field: str
    #: Denied because of a rate: seconds until the next call.
    retry_after: Optional[float]
    #: The answers of all layers.
    steps: tuple[PolicyStep, ...]
    #: Asked: all of them are needed.
    questions: tuple[PolicyQuestion, ...]
    #: Limited: the highest limits, such as ``{"memory": "64M"}``.
    limits: dict[str, str]
    #: Of the policy.
    digest: bytes


@dataclass(frozen=True)
class PolicyRuleInfo:
    """A rule of a policy."""

    #: Unique in its layer.
    id: str
    #: What it does with a call that it matches.
    verdict: Verdict
    #: Why.
    reason: str
    #: Where it is written, in the file of its layer.
    line: int
    #: The rule as a message, with what it matches.
    message: policy_pb2.PolicyRule


@dataclass(frozen=True)
class PolicyLayerInfo:
    """A layer of a policy."""

    #: ``"host"``, ``"tenant"`` or ``"template"``.
    kind: str
    #: Its name.
    name: str
    #: The decision about a call that no rule matches.
    otherwise: Verdict
    #: Its rules, in the order in which they are asked.
    rules: tuple[PolicyRuleInfo, ...]
    #: Where it is written.
    file: str
    line: int


@dataclass(frozen=True)
class PolicyInfo:
    """The policy of a caller."""

    #: The layers that apply to its calls, in the order in which they are asked.
    layers: tuple[PolicyLayerInfo, ...]
    #: Of the whole policy.
    digest: bytes
    #: There are more layers than one answer holds.
    cut: bool


@dataclass(frozen=True)
class DestinationSet:
    """A named set of destinations, for ``Network(allow=["@pypi"])``."""

    #: Without ``@``.
    name: str
    #: What it is for.
    about: str
    #: What it stands for, such as ``pypi.org:443/tcp``.
    destinations: tuple[str, ...]


@dataclass(frozen=True)
class PlannedCall:
    """A call that is to be explained."""

    args: tuple[str, ...]
    method: str
    request: Union[Message, bytes, None]
    template: str
    language: str
    paths: Sequence[str]
    destinations: Sequence[str]
    labels: Mapping[str, str]
    limits: Mapping[str, str]
    calls_before: int
    time: Optional[datetime.datetime]
    simulate: bool

    def words(self) -> policy_pb2.PolicyCall:
        """Return it in the words of a policy."""
        for name in ("paths", "destinations"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r}: expected a list")
        return policy_pb2.PolicyCall(
            method=self.method,
            template=self.template,
            command=self.args,
            language=self.language,
            paths=self.paths,
            destinations=self.destinations,
            labels=[f"{key}={value}" for key, value in self.labels.items()],
            limits=policy_pb2.PolicyLimits(**self.limits),
            calls_before=self.calls_before,
            time="" if self.time is None else _zulu(self.time),
            mode="simulate" if self.simulate else "",
        )

    def is_run(self) -> bool:
        """Whether a request of Run says everything."""
        other = (self.language, self.paths, self.destinations, self.labels, self.limits)
        return (
            self.method == "ProcessService/Run"
            and bool(self.args)
            and not any(other)
            and self.calls_before == 0
            and self.time is None
        )


def _zulu(time: datetime.datetime) -> str:
    if time.tzinfo is None:
        raise ValueError(f"time={time!r}: without a time zone")
    return (time - (time.utcoffset() or time - time)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _verdict(value: int) -> Verdict:
    return _VERDICTS.get(value, "unknown")


def _decision(m: policy_service_pb2.ExplainResponse) -> PolicyDecision:
    return PolicyDecision(
        verdict=_verdict(m.verdict),
        rule=m.rule,
        reason=m.reason,
        allowed=m.allowed,
        field=m.field,
        retry_after=m.retry_ms / 1000 if m.retry_ms else None,
        steps=tuple(
            PolicyStep(s.kind, s.layer, s.rule, _verdict(s.verdict), s.reason, s.file, s.line)
            for s in m.steps
        ),
        questions=tuple(
            PolicyQuestion(q.rule, q.reason, tuple(q.approvers), q.need, q.timeout_ms / 1000)
            for q in m.questions
        ),
        limits={f.name: value for f, value in m.limits.ListFields()},
        digest=m.digest,
    )


def _layer(m: policy_service_pb2.PolicyLayerShown) -> PolicyLayerInfo:
    return PolicyLayerInfo(
        kind=m.kind,
        name=m.layer.name,
        otherwise=_verdict(m.layer.otherwise) if m.layer.otherwise else "allow",
        rules=tuple(
            PolicyRuleInfo(r.rule.id, _verdict(r.rule.verdict), r.rule.reason, r.line, r.rule)
            for r in m.rules
        ),
        file=m.file,
        line=m.line,
    )


async def explain(
    client: Caller, call: PlannedCall, tenant: str, credential: str
) -> PolicyDecision:
    """Return what would be decided about a call."""
    request = made(
        policy_service_pb2.ExplainRequest, tenant=tenant, credential=credential, method=call.method
    )
    if call.request is not None:
        given = call.request
        request.request = given if isinstance(given, bytes) else given.SerializeToString()
    elif call.is_run():
        run = made(process_service_pb2.RunRequest, template=call.template)
        run.command.args.extend(call.args)
        if call.simulate:
            run.mode = simulation_pb2.JOB_MODE_SIMULATE
        request.request = run.SerializeToString()
    else:
        request.call.CopyFrom(call.words())
    return _decision(await client._call(methods.EXPLAIN, request))


async def show(client: Caller, tenant: str, template: str) -> PolicyInfo:
    """Return the policy of the caller."""
    request = made(policy_service_pb2.PolicyServiceShowRequest, tenant=tenant, template=template)
    m = await client._call(methods.SHOW_POLICY, request)
    return PolicyInfo(tuple(_layer(one) for one in m.layers), m.digest, m.cut)


async def sets(client: Caller) -> dict[str, DestinationSet]:
    """Return the named sets of destinations."""
    m = await client._call(methods.LIST_SETS, policy_service_pb2.ListSetsRequest())
    return {s.name: DestinationSet(s.name, s.about, tuple(s.destinations)) for s in m.sets}
