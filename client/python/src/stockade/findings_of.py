# SPDX-License-Identifier: Apache-2.0
"""Findings, acknowledgements and silences, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stockade import methods
from stockade.fields import made
from stockade.limits import lifetime_ms
from stockade.requests import moment
from stockade.v1 import anomaly_service_pb2, record_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator

    from stockade.calls import Caller
    from stockade.limits import Seconds

FindingSeverity = Literal["info", "notice", "warning", "critical"]
FINDING_SEVERITIES: dict[int, FindingSeverity] = {
    record_pb2.SEVERITY_INFO: "info",
    record_pb2.SEVERITY_NOTICE: "notice",
    record_pb2.SEVERITY_WARNING: "warning",
    record_pb2.SEVERITY_CRITICAL: "critical",
}


@dataclass(frozen=True)
class Acknowledgement:
    """A person has handled a finding."""

    #: Who, such as ``uid:1000`` or ``team/key:1f0c...``.
    by: str
    #: An operator of the host did, and not the tenant.
    by_host: bool
    #: When, in UTC.
    time: datetime.datetime
    #: Why, as given.
    reason: str


@dataclass(frozen=True)
class Finding:
    """Suspicious behaviour in a sandbox."""

    #: Its number, and the run of the broker that numbered it.
    sequence: int
    instance: str
    #: When, in UTC.
    time: datetime.datetime
    #: The rule that found it.
    rule: str
    severity: FindingSeverity
    #: One sentence with the figures.
    text: str
    score: float
    threshold: float
    #: ``log``, ``alert``, ``throttle``, ``pause``, ``kill`` or ``deny-network``.
    response: str
    #: Where; the process is empty if it is about the sandbox as a whole.
    sandbox_id: str
    process_id: str
    template: str
    #: The silence that applied; empty: none.
    silence_id: str
    #: Because of it, no alert was raised.
    silenced: bool
    #: Who has handled it.
    acknowledgements: tuple[Acknowledgement, ...]
    #: The message, with what else is known.
    message: record_pb2.Finding


@dataclass(frozen=True)
class Silence:
    """No alert is raised for findings of a rule for a while."""

    id: str
    #: Whose sandboxes; ``*``: of all tenants.
    tenant: str
    rule: str
    #: If they are not empty: only of this sandbox, template, and name of a process.
    sandbox_id: str
    template: str
    comm: str
    #: Why, as given.
    reason: str
    #: Who made it; ``by_host``: an operator of the host.
    created_by: str
    by_host: bool
    #: When it was made, and when it ends, in UTC.
    created: datetime.datetime
    expires: datetime.datetime
    #: The response is suppressed as well.
    suppress_response: bool
    #: Findings that it applied to since the broker started.
    findings: int


def finding(m: record_pb2.Finding) -> Finding:
    """Return a finding."""
    return Finding(
        sequence=m.sequence,
        instance=m.instance,
        time=moment(m.time),
        rule=m.rule,
        severity=FINDING_SEVERITIES.get(m.severity, "info"),
        text=m.text,
        score=m.score,
        threshold=m.threshold,
        response=m.response,
        sandbox_id=m.sandbox_id,
        process_id=m.process_id,
        template=m.template,
        silence_id=m.silence_id,
        silenced=m.silenced,
        acknowledgements=tuple(
            Acknowledgement(a.by, a.by_host, moment(a.time), a.reason) for a in m.acknowledgements
        ),
        message=m,
    )


def _silence(m: anomaly_service_pb2.Silence) -> Silence:
    return Silence(
        id=m.id,
        tenant=m.tenant,
        rule=m.rule,
        sandbox_id=m.sandbox_id,
        template=m.template,
        comm=m.comm,
        reason=m.reason,
        created_by=m.created_by,
        by_host=m.by_host,
        created=moment(m.create_time),
        expires=moment(m.expire_time),
        suppress_response=m.suppress_response,
        findings=m.findings,
    )


async def findings(
    client: Caller, sandbox: str, rule: str, after: int, tenant: str
) -> AsyncIterator[Finding]:
    """Yield the findings that are kept."""
    request = made(
        anomaly_service_pb2.ListFindingsRequest,
        sandbox_id=sandbox,
        rule=rule,
        after_sequence=after,
        tenant=tenant,
    )
    more = True
    while more:
        page = await client._call(methods.LIST_FINDINGS, request)
        for message in page.findings:
            yield finding(message)
        request.after_sequence, request.instance = page.last_sequence, page.instance
        more = page.more


async def acknowledge(
    client: Caller, sequence: int, reason: str, instance: str, withdraw: bool, tenant: str
) -> None:
    """Note that a person has handled a finding, or take that back."""
    request = made(
        anomaly_service_pb2.AcknowledgeFindingRequest,
        sequence=sequence,
        instance=instance,
        reason=reason,
        withdraw=withdraw,
        tenant=tenant,
    )
    await client._call(methods.ACKNOWLEDGE_FINDING, request)


async def acknowledged(client: Caller, tenant: str) -> AsyncIterator[Finding]:
    """Yield the acknowledged findings."""
    request = made(anomaly_service_pb2.ListAcknowledgedRequest, tenant=tenant)
    async for page in client._pages(methods.LIST_ACKNOWLEDGED, request):
        for message in page.findings:
            yield finding(message)


async def silence(
    client: Caller,
    rule: str,
    ttl: Seconds,
    reason: str,
    about: tuple[str, str, str],
    suppress_response: bool,
    tenant: str,
) -> Silence:
    """Make a silence."""
    sandbox, template, comm = about
    request = made(
        anomaly_service_pb2.CreateSilenceRequest,
        rule=rule,
        sandbox_id=sandbox,
        template=template,
        comm=comm,
        reason=reason,
        ttl_ms=lifetime_ms(ttl),
        suppress_response=suppress_response,
        tenant=tenant,
    )
    return _silence((await client._call(methods.CREATE_SILENCE, request)).silence)


async def silences(client: Caller, tenant: str) -> AsyncIterator[Silence]:
    """Yield the silences in force."""
    request = made(anomaly_service_pb2.ListSilencesRequest, tenant=tenant)
    async for page in client._pages(methods.LIST_SILENCES, request):
        for message in page.silences:
            yield _silence(message)


async def unsilence(client: Caller, silence_id: str, tenant: str) -> None:
    """End a silence."""
    request = made(anomaly_service_pb2.DeleteSilenceRequest, silence_id=silence_id, tenant=tenant)
    await client._call(methods.DELETE_SILENCE, request)
