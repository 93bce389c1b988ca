# SPDX-License-Identifier: Apache-2.0
"""Approvals: calls that wait until an approver has agreed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import approvals_of as shared
from stockade.both import each, now
from stockade.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

    from stockade.approvals_of import ApprovalInfo, ApprovalState
    from stockade.limits import Seconds


class Approval:
    """A call that waits until an approver has agreed.

    A call that needs one raises ``ApprovalPending``; ``approval`` lets it wait. Its approvers watch
    and answer:

    >>> for info in Approval.watch():                                           # doctest: +SKIP
    ...     if info.state == "pending" and info.subject == "deploy --staging":
    ...         Approval.connect(info.id).approve(comment="fine")
    """

    def __init__(self, client: Client, info: ApprovalInfo) -> None:
        self._client = client
        #: The last state that the broker sent; ``refresh`` requests it again.
        self.info = info

    def __repr__(self) -> str:
        return f"<Approval {self.id} {self.info.state}>"

    @property
    def id(self) -> str:
        """It names the approval."""
        return self.info.id

    @classmethod
    def create(
        cls,
        method: str,
        request: Union[Message, bytes],
        *,
        reason: str = "",
        timeout: Optional[Seconds] = None,
        approvers: Sequence[str] = (),
        needed: int = 1,
        client: Optional[Client] = None,
    ) -> Approval:
        """Ask for the approval of a call before it is made.

        ``method``     such as ``"ProcessService/Run"``
        ``request``    the request that the call will send
        ``reason``     why, for the approvers
        ``timeout``    how long it may stay pending, at most 7 days; None: 10 minutes
        ``approvers``  who may answer: tenants such as ``"team"`` or ``"uid:0"``, or principals;
                       none: all of the caller's tenant with the right, and operators
        ``needed``     how many of them must agree

        Returns the pending one of the same call, if there is one. Raises ``ResourceExhausted``: too
        many are pending.
        """
        client = chosen(client)
        info = now(shared.create(client, method, request, reason, timeout, approvers, needed))
        return cls(client, info)

    @classmethod
    def connect(cls, id: str, *, client: Optional[Client] = None) -> Approval:  # noqa: A002
        """Find an approval, with its request. ``NotFound``: the caller may see none such."""
        client = chosen(client)
        return cls(client, now(shared.get(client, id)))

    @classmethod
    def list(
        cls,
        *,
        state: Optional[ApprovalState] = None,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> Iterator[ApprovalInfo]:
        """Iterate over approvals, oldest first, without their requests.

        ``state``   only these, such as ``"pending"``
        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator; empty: those of the
                    caller's own, and those that name the caller as an approver
        """
        return each(shared.approvals(chosen(client), state, tenant))

    @classmethod
    def watch(
        cls,
        id: str = "",  # noqa: A002
        *,
        tenant: str = "",
        after_revision: int = 0,
        client: Optional[Client] = None,
    ) -> Iterator[ApprovalInfo]:
        """Iterate over approvals as they change: first the pending ones, then each change.

        ``id``              only this one: the iteration ends when it is not pending any more
        ``tenant``          see ``list``
        ``after_revision``  go on after this ``ApprovalInfo.revision``

        It continues when the broker is restarted, and misses no approval.
        """
        return each(shared.watch(chosen(client), id, tenant, after_revision))

    def refresh(self) -> ApprovalInfo:
        """Request its state again."""
        self.info = now(shared.get(self._client, self.id))
        return self.info

    def approve(
        self,
        *,
        pattern: Optional[str] = None,
        ttl: Optional[Seconds] = None,
        comment: str = "",
    ) -> ApprovalInfo:
        """Agree to the call that ``info`` shows.

        ``pattern``  permit command lines like this one, in which ``*`` stands for any text; None:
                     the same call
        ``ttl``      permit it for so long, as often as it is made, such as ``"1h"``; None: once, or
                     8 hours with ``pattern``
        ``comment``  why

        The result is still pending if further approvers are needed. Raises ``PermissionDenied``
        (the caller is the requester, or no approver), ``FailedPrecondition`` (it is not pending any
        more), ``AlreadyExists`` (the caller has agreed before).
        """
        self.info = now(shared.approve(self._client, self.info, pattern, ttl, comment))
        return self.info

    def deny(self, comment: str = "") -> ApprovalInfo:
        """Refuse, for all approvers. Raises the errors of ``approve``.

        ``comment``  why; the requester sees it
        """
        self.info = now(shared.deny(self._client, self.id, comment))
        return self.info

    def cancel(self) -> ApprovalInfo:
        """Withdraw it, or what it still permits.

        ``PermissionDenied``: the caller is neither its requester nor an operator.
        """
        self.info = now(shared.cancel(self._client, self.id))
        return self.info
