# SPDX-License-Identifier: Apache-2.0
"""Detection rules of the caller, for threads and asyncio alike (``both``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

from stockade import methods
from stockade.fields import made
from stockade.requests import moment
from stockade.v1 import detection_pb2, record_pb2, rules_service_pb2, telemetry_service_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from stockade.calls import Caller

RuleOrigin = Literal["tenant", "host", "tripwire"]
RuleSeverity = Literal["info", "notice", "warning", "critical"]
#: YAML or JSON with the keys of stockade-rules(5), or the same as a dict.
RuleText = Union[str, "Mapping[str, object]"]


@dataclass(frozen=True)
class RuleFile:
    """A file of rules that the broker keeps."""

    #: Unique among the tenant's files.
    name: str
    #: Its text; empty in lists.
    text: str
    #: When it was created, in UTC.
    created: datetime.datetime
    #: When its text was last replaced, in UTC.
    updated: datetime.datetime
    #: Rules that were switched off, by id.
    disabled: tuple[str, ...]
    #: Why its rules are not in force; empty: they are.
    error: str


@dataclass(frozen=True)
class RuleInfo:
    """A detection rule, and what it has found."""

    #: Its name.
    id: str
    #: Who wrote it.
    origin: RuleOrigin
    #: It finds something.
    enabled: bool
    #: What it finds and why that matters.
    description: str
    #: Of its findings.
    severity: RuleSeverity
    #: ``log``, ``alert``, ``throttle``, ``pause``, ``kill`` or ``deny-network``.
    response: str
    #: A snapshot of the sandbox is taken before the response.
    snapshot_first: bool
    #: The rule as it counts, in YAML, without its tests.
    definition: str
    #: The score at which it is a finding.
    threshold: int
    #: The time over which it counts.
    window_ms: int
    #: Techniques of MITRE ATT&CK, and other words.
    tags: tuple[str, ...]
    #: Its file and line; of rules of the host only for operators.
    file: str
    line: int
    #: The number of its tests.
    tests: int
    #: Events that it was compared with, and that matched; and its findings.
    compared: int
    matched: int
    findings: int
    #: The message, with what else is known.
    message: rules_service_pb2.RuleState


@dataclass(frozen=True)
class RuleList:
    """The rules of a tenant."""

    files: tuple[RuleFile, ...]
    rules: tuple[RuleInfo, ...]
    #: Events that were not compared, because comparing took too long.
    skipped: int


@dataclass(frozen=True)
class RuleFinding:
    """A finding that there would have been."""

    #: The event, from 1; with ``times`` each one counts.
    event: int
    #: The id of the rule.
    rule: str
    severity: RuleSeverity
    response: str
    #: Its sentence.
    text: str
    score: float
    threshold: float


_SEVERITIES: dict[int, RuleSeverity] = {
    record_pb2.SEVERITY_INFO: "info",
    record_pb2.SEVERITY_NOTICE: "notice",
    record_pb2.SEVERITY_WARNING: "warning",
    record_pb2.SEVERITY_CRITICAL: "critical",
}
_ORIGINS: dict[int, RuleOrigin] = {
    rules_service_pb2.RULE_ORIGIN_TENANT: "tenant",
    rules_service_pb2.RULE_ORIGIN_HOST: "host",
    rules_service_pb2.RULE_ORIGIN_TRIPWIRE: "tripwire",
}


def _text(what: str, text: RuleText) -> str:
    if isinstance(text, str):
        return text
    if not hasattr(text, "keys"):
        raise TypeError(f"{what}={text!r}: expected YAML, or a dict with rules")
    return json.dumps(text, ensure_ascii=False)


def _rule(m: rules_service_pb2.RuleState) -> RuleInfo:
    return RuleInfo(
        id=m.id,
        origin=_ORIGINS.get(m.origin, "host"),
        enabled=m.enabled,
        description=m.description,
        severity=_SEVERITIES.get(m.severity, "info"),
        response=m.response,
        snapshot_first=m.snapshot_first,
        definition=m.definition,
        threshold=m.threshold,
        window_ms=m.window_ms,
        tags=tuple(m.tags),
        file=m.file,
        line=m.line,
        tests=m.tests,
        compared=m.compared,
        matched=m.matched,
        findings=m.findings,
        message=m,
    )


def _rules(messages: Sequence[rules_service_pb2.RuleState]) -> tuple[RuleInfo, ...]:
    return tuple(_rule(m) for m in messages)


def _file(m: rules_service_pb2.RuleFile) -> RuleFile:
    return RuleFile(
        name=m.name,
        text=m.text,
        created=moment(m.create_time),
        updated=moment(m.update_time),
        disabled=tuple(m.disabled),
        error=m.error,
    )


def _event(fields: Mapping[str, Any]) -> detection_pb2.DetectionEvent:
    named = dict(fields)
    kind = named.pop("kind", "")
    try:
        number: Any = telemetry_service_pb2.EventKind.Value(f"EVENT_KIND_{str(kind).upper()}")
    except ValueError:
        raise ValueError(f"kind={kind!r}: no kind of events, such as 'exec'") from None
    try:
        return detection_pb2.DetectionEvent(kind=number, **named)
    except (TypeError, ValueError) as why:
        raise ValueError(f"events: {why}") from None


async def put(client: Caller, name: str, text: RuleText) -> tuple[RuleInfo, ...]:
    """Create or replace a file."""
    request = made(rules_service_pb2.RulesServiceSetRequest, name=name, text=_text("text", text))
    return _rules((await client._call(methods.SET_RULES, request)).rules)


async def get(client: Caller, name: str, tenant: str) -> RuleFile:
    """Return a file."""
    request = made(rules_service_pb2.RulesServiceGetRequest, name=name, tenant=tenant)
    return _file((await client._call(methods.GET_RULES, request)).file)


async def listed(client: Caller, host: bool, tenant: str) -> RuleList:
    """Return all files and rules."""
    request = made(rules_service_pb2.RulesServiceListRequest, host=host, tenant=tenant)
    answer = await client._call(methods.LIST_RULES, request)
    files = tuple(_file(m) for m in answer.files)
    return RuleList(files, _rules(answer.rules), answer.skipped)


async def delete(client: Caller, name: str, tenant: str) -> None:
    """Remove a file."""
    request = made(rules_service_pb2.RulesServiceDeleteRequest, name=name, tenant=tenant)
    await client._call(methods.DELETE_RULES, request)


async def enable(client: Caller, rule: str, tenant: str) -> RuleInfo:
    """Switch a rule on."""
    request = made(rules_service_pb2.RulesServiceEnableRequest, rule=rule, tenant=tenant)
    return _rule((await client._call(methods.ENABLE_RULE, request)).rule)


async def disable(client: Caller, rule: str, tenant: str) -> RuleInfo:
    """Switch a rule off."""
    request = made(rules_service_pb2.RulesServiceDisableRequest, rule=rule, tenant=tenant)
    return _rule((await client._call(methods.DISABLE_RULE, request)).rule)


async def check(client: Caller, name: str, text: RuleText) -> tuple[RuleInfo, ...]:
    """Read a file, and change nothing."""
    request = made(rules_service_pb2.RulesServiceCheckRequest, name=name, text=_text("text", text))
    return _rules((await client._call(methods.CHECK_RULES, request)).rules)


async def test(
    client: Caller, events: Sequence[Mapping[str, Any]], text: RuleText
) -> tuple[RuleFinding, ...]:
    """Compare events with rules."""
    request = made(
        rules_service_pb2.RulesServiceTestRequest,
        text=_text("text", text),
        events=[_event(e) for e in events],
    )
    answer = await client._call(methods.TEST_RULES, request)
    return tuple(
        RuleFinding(
            f.event,
            f.rule,
            _SEVERITIES.get(f.severity, "info"),
            f.response,
            f.text,
            f.score,
            f.threshold,
        )
        for f in answer.findings
    )
