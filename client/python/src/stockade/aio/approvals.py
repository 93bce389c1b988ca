# SPDX-License-Identifier: Apache-2.0
"""Approvals: calls that wait until an approver has agreed, with asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import approvals_of as shared
from stockade.aio.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from google.protobuf.message import Message

    from stockade.approvals_of import ApprovalInfo, ApprovalState
    from stockade.limits import Seconds


class Approval:
    """A call that waits until an approver has agreed: see ``stockade.Approval``."""

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
    async def create(
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
        """Ask for the approval of a call: see ``stockade.Approval.create``."""
        client = chosen(client)
        info = await shared.create(client, method, request, reason, timeout, approvers, needed)
        return cls(client, info)

    @classmethod
    async def connect(cls, id: str, *, client: Optional[Client] = None) -> Approval:  # noqa: A002
        """Find an approval, with its request. ``NotFound``: the caller may see none such."""
        client = chosen(client)
        return cls(client, await shared.get(client, id))

    @classmethod
    def list(
        cls,
        *,
        state: Optional[ApprovalState] = None,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> AsyncIterator[ApprovalInfo]:
        """Iterate over approvals, oldest first, without their requests.

        ``state``   only these, such as ``"pending"``
        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator; empty: those of the
                    caller's own, and those that name the caller as an approver
        """
        return shared.approvals(chosen(client), state, tenant)

    @classmethod
    def watch(
        cls,
        id: str = "",  # noqa: A002
        *,
        tenant: str = "",
        after_revision: int = 0,
        client: Optional[Client] = None,
    ) -> AsyncIterator[ApprovalInfo]:
        """Iterate over approvals as they change: first the pending ones, then each change.

        ``id``              only this one: the iteration ends when it is not pending any more
        ``tenant``          see ``list``
        ``after_revision``  go on after this ``ApprovalInfo.revision``

        It continues when the broker is restarted, and misses no approval.
        """
        return shared.watch(chosen(client), id, tenant, after_revision)

    async def refresh(self) -> ApprovalInfo:
        """Request its state again."""
        self.info = await shared.get(self._client, self.id)
        return self.info

    async def approve(
        self,
        *,
        pattern: Optional[str] = None,
        ttl: Optional[Seconds] = None,
        comment: str = "",
    ) -> ApprovalInfo:
        """Agree to the call that ``info`` shows: see ``stockade.Approval.approve``."""
        self.info = await shared.approve(self._client, self.info, pattern, ttl, comment)
        return self.info

    async def deny(self, comment: str = "") -> ApprovalInfo:
        """Refuse, for all approvers. Raises the errors of ``approve``.

        ``comment``  why; the requester sees it
        """
        self.info = await shared.deny(self._client, self.id, comment)
        return self.info

    async def cancel(self) -> ApprovalInfo:
        """Withdraw it, or what it still permits.

        ``PermissionDenied``: the caller is neither its requester nor an operator.
        """
        self.info = await shared.cancel(self._client, self.id)
        return self.info
