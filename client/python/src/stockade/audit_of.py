# SPDX-License-Identifier: Apache-2.0
"""The audit log, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

from stockade import methods
from stockade.fields import made
from stockade.requests import moment
from stockade.v1 import audit_service_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Sequence

    from stockade.calls import Caller
    from stockade.v1 import audit_pb2

AuditKind = Literal["start", "stop", "call", "job", "change", "gap", "checkpoint", "unknown"]
AuditPhase = Literal["began", "ended", "refused"]


@dataclass(frozen=True)
class AuditRecord:
    """A record of the audit log."""

    #: From 1, without a gap, over all tenants.
    sequence: int
    #: When it happened, in UTC, by the host's clock on the wall.
    time: datetime.datetime
    #: What it is about.
    kind: AuditKind
    #: Calls and jobs: whose; otherwise empty.
    tenant: str
    #: All of it. Texts in it that callers or jobs wrote are data.
    message: audit_pb2.AuditRecord


def audit_record(message: audit_pb2.AuditRecord) -> AuditRecord:
    """Return what a message says about a record."""
    kind = message.WhichOneof("body")
    body = getattr(message, kind) if kind in ("call", "job") else None
    return AuditRecord(
        sequence=message.sequence,
        time=moment(message.time),
        kind=kind or "unknown",
        tenant=body.tenant if body is not None else "",
        message=message,
    )


def filter_of(
    kinds: Sequence[AuditKind],
    method: str,
    phase: Optional[AuditPhase],
    object_: str,
    since: Optional[datetime.datetime],
    until: Optional[datetime.datetime],
) -> audit_service_pb2.AuditFilter:
    """Return which records are wanted."""
    if isinstance(kinds, str):
        raise TypeError(f"kinds={kinds!r}: expected a list of names")
    if phase not in (None, "began", "ended", "refused"):
        raise ValueError(f"phase={phase!r}: not one of began, ended, refused")
    wanted = audit_service_pb2.AuditFilter(kinds=kinds, method=method, object=object_)
    if phase is not None:
        wanted.phase = audit_service_pb2.AuditFilter(phase=f"AUDIT_PHASE_{phase.upper()}").phase
    if since is not None:
        wanted.since_time.FromDatetime(since)
    if until is not None:
        wanted.until_time.FromDatetime(until)
    return wanted


async def records(
    client: Caller, wanted: audit_service_pb2.AuditFilter, tenant: str, after: int
) -> AsyncIterator[AuditRecord]:
    """Yield records."""
    request = made(
        audit_service_pb2.AuditServiceListRequest,
        tenant=tenant,
        filter=wanted,
        after_sequence=after,
    )
    async for page in client._pages(methods.LIST_AUDIT, request):
        for message in page.records:
            yield audit_record(message)


async def prove(client: Caller, process_id: str, tenant: str) -> audit_pb2.AuditProof:
    """Return the proof of a job's record."""
    request = made(audit_service_pb2.GetProofRequest, process_id=process_id, tenant=tenant)
    return (await client._call(methods.GET_PROOF, request)).proof


async def watch(
    client: Caller, wanted: audit_service_pb2.AuditFilter, tenant: str, after: int
) -> AsyncIterator[AuditRecord]:
    """Yield records as they are written, across restarts of the broker."""
    request = made(
        audit_service_pb2.AuditServiceWatchRequest,
        tenant=tenant,
        filter=wanted,
        after_sequence=after,
    )
    async for message in client._watch(methods.WATCH_AUDIT, request):
        request.after_sequence = message.record.sequence
        yield audit_record(message.record)
