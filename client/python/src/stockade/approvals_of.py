# SPDX-License-Identifier: Apache-2.0
"""Approvals, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional, Union

from stockade import methods
from stockade.fields import made
from stockade.limits import Seconds, lifetime_ms
from stockade.requests import moment
from stockade.v1 import approval_service_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Sequence

    from google.protobuf.message import Message

    from stockade.calls import Caller

ApprovalState = Literal["pending", "approved", "denied", "expired", "cancelled", "unknown"]
ApprovalReach = Literal["once", "session", "pattern", "unknown"]

_STATES: dict[int, ApprovalState] = {
    1: "pending",
    2: "approved",
    3: "denied",
    4: "expired",
    5: "cancelled",
}
_REACHES: dict[int, ApprovalReach] = {0: "once", 1: "once", 2: "session", 3: "pattern"}


@dataclass(frozen=True)
class ApprovalVote:
    """An answer of one approver."""

    #: The principal, such as ``team/key:1f0c...``.
    approver: str
    #: Whether it agreed.
    agreed: bool
    #: Why, in its own words.
    comment: str
    #: When, in UTC.
    time: datetime.datetime


@dataclass(frozen=True)
class ApprovalInfo:
    """An approval, as the broker describes it."""

    #: Names it.
    id: str
    #: Tenant of the call.
    tenant: str
    #: Principal of the call, such as ``team/key:1f0c...``.
    requester: str
    #: The method, such as ``ProcessService/Run``.
    method: str
    #: What the call is about, such as its command line. The requester wrote it.
    subject: str
    #: The request, packed. Empty in lists, and if it is larger than 16 KiB.
    request: bytes
    #: Its size in bytes.
    request_size: int
    #: BLAKE2b-256 of the method and the request.
    digest: bytes
    #: The rule that asks; empty: the requester asked by itself.
    rule: str
    #: Why it asks.
    reason: str
    #: Who may answer, tenants or principals; none: all of its tenant with the right, and operators.
    approvers: tuple[str, ...]
    #: How many of them must agree.
    needed: int
    #: Where it is.
    state: ApprovalState
    #: Time of its creation, in UTC.
    created: datetime.datetime
    #: Pending: it is denied if nobody has answered until then.
    expires: datetime.datetime
    #: The answers so far.
    votes: tuple[ApprovalVote, ...]
    #: Approved: the call once, as often as it is made, or calls like ``pattern``.
    reach: Optional[ApprovalReach]
    #: Approved: command lines that are permitted; empty: that of this call.
    pattern: str
    #: Approved: until when it may be used.
    valid_until: Optional[datetime.datetime]
    #: How often it was used.
    uses: int
    #: When it ended; None: it is pending.
    ended: Optional[datetime.datetime]
    #: Increases with each change of any approval: for ``Approval.watch``.
    revision: int


def approval_info(message: approval_service_pb2.Approval) -> ApprovalInfo:
    """Return what a message says about an approval."""
    granted = message.HasField("grant")
    return ApprovalInfo(
        id=message.id,
        tenant=message.tenant,
        requester=message.requester,
        method=message.method,
        subject=message.subject,
        request=message.request,
        request_size=message.request_bytes,
        digest=message.digest,
        rule=message.rule,
        reason=message.reason,
        approvers=tuple(message.approvers),
        needed=message.needed,
        state=_STATES.get(message.state, "unknown"),
        created=moment(message.create_time),
        expires=moment(message.expire_time),
        votes=tuple(
            ApprovalVote(v.approver, v.agreed, v.comment, moment(v.time)) for v in message.votes
        ),
        reach=_REACHES.get(message.grant.reach, "unknown") if granted else None,
        pattern=message.grant.pattern,
        valid_until=moment(message.valid_until) if message.HasField("valid_until") else None,
        uses=message.uses,
        ended=moment(message.end_time) if message.HasField("end_time") else None,
        revision=message.revision,
    )


async def create(
    client: Caller,
    method: str,
    request: Union[Message, bytes],
    reason: str,
    timeout: Optional[Seconds],
    approvers: Sequence[str],
    needed: int,
) -> ApprovalInfo:
    """Ask for the approval of a call."""
    if isinstance(approvers, str):
        raise TypeError(f"approvers={approvers!r}: expected a list of names")
    asked = made(
        approval_service_pb2.ApprovalServiceCreateRequest,
        method=method,
        request=request if isinstance(request, bytes) else request.SerializeToString(),
        reason=reason,
        timeout_ms=lifetime_ms(timeout, "timeout"),
        approvers=approvers,
        needed=needed,
    )
    return approval_info((await client._call(methods.CREATE_APPROVAL, asked)).approval)


async def get(client: Caller, id_: str) -> ApprovalInfo:
    """Return one approval."""
    request = made(approval_service_pb2.ApprovalServiceGetRequest, id=id_)
    return approval_info((await client._call(methods.GET_APPROVAL, request)).approval)


async def approvals(
    client: Caller, state: Optional[ApprovalState], tenant: str
) -> AsyncIterator[ApprovalInfo]:
    """Yield approvals."""
    if state is not None and state not in _STATES.values():
        raise ValueError(f"state={state!r}: not one of {', '.join(_STATES.values())}")
    request = made(
        approval_service_pb2.ApprovalServiceListRequest,
        tenant=tenant,
        state=f"APPROVAL_STATE_{(state or 'unspecified').upper()}",
    )
    async for page in client._pages(methods.LIST_APPROVALS, request):
        for message in page.approvals:
            yield approval_info(message)


async def approve(
    client: Caller,
    info: ApprovalInfo,
    pattern: Optional[str],
    ttl: Optional[Seconds],
    comment: str,
) -> ApprovalInfo:
    """Agree."""
    request = made(
        approval_service_pb2.ApproveRequest, id=info.id, comment=comment, digest=info.digest
    )
    if pattern is not None or ttl is not None:
        request.grant.reach = (
            approval_service_pb2.APPROVAL_REACH_SESSION
            if pattern is None
            else approval_service_pb2.APPROVAL_REACH_PATTERN
        )
        request.grant.pattern = pattern or ""
        request.grant.ttl_ms = lifetime_ms(ttl)
    return approval_info((await client._call(methods.APPROVE, request)).approval)


async def deny(client: Caller, id_: str, comment: str) -> ApprovalInfo:
    """Refuse."""
    request = made(approval_service_pb2.DenyRequest, id=id_, comment=comment)
    return approval_info((await client._call(methods.DENY, request)).approval)


async def cancel(client: Caller, id_: str) -> ApprovalInfo:
    """Withdraw it."""
    request = made(approval_service_pb2.ApprovalServiceCancelRequest, id=id_)
    return approval_info((await client._call(methods.CANCEL_APPROVAL, request)).approval)


async def watch(
    client: Caller, id_: str, tenant: str, after_revision: int
) -> AsyncIterator[ApprovalInfo]:
    """Yield approvals as they change, across restarts of the broker."""
    request = made(
        approval_service_pb2.ApprovalServiceWatchRequest,
        id=id_,
        tenant=tenant,
        after_revision=after_revision,
    )
    seen = -1
    async for message in client._watch(methods.WATCH_APPROVALS, request):
        if message.approval.revision != seen:
            seen = request.after_revision = message.approval.revision
            yield approval_info(message.approval)
