# SPDX-License-Identifier: Apache-2.0
"""The approval that calls name or wait for: metadata of all calls in a block of code."""

from __future__ import annotations

import contextlib
import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Optional, Union

from stockade.limits import Seconds, named, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_BYTES = 4096

_metadata: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("stockade_approval", default=())


_policies: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("stockade_policy", default=())


def approval_metadata() -> tuple[tuple[str, str], ...]:
    """Return what the current block adds to a call's metadata."""
    return (*_metadata.get(), *_policies.get())


@contextlib.contextmanager
def narrowed(policy: Union[str, Mapping[str, object]]) -> Iterator[None]:
    """Allow no more than a policy does, for all calls of a block.

    ``policy``  the keys ``otherwise``, ``reason`` and ``rules`` of stockade-policy(5), as YAML or
                as a dictionary; at most 4,096 bytes

    It narrows what the broker's policies allow, and widens nothing. Like ``approval`` it applies to
    the thread or task of the block. An inner block replaces the policy of the outer one.

    >>> rule = {"id": "push", "verdict": "deny", "match": {"commands": ["git push ..."]}}
    >>> with stockade.narrowed({"rules": [rule]}):                              # doctest: +SKIP
    ...     sandbox.run("git", "push")
    """
    text = policy if isinstance(policy, str) else json.dumps(policy, ensure_ascii=False)
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"policy: larger than {MOST_BYTES} bytes")
    before = _policies.set((("policy", text),))
    try:
        yield
    finally:
        _policies.reset(before)


@contextlib.contextmanager
def approval(id: Optional[str] = None, *, wait: Optional[Seconds] = None) -> Iterator[None]:  # noqa: A002
    """Make the calls of a block with an approval, or let them wait until it is answered.

    ``id``    id of the approval to use: ``ApprovalPending.approval``, or ``Approval.id``; None: the
              broker finds the one of the call
    ``wait``  seconds, or ``"10m"``, for which the broker keeps a call open that needs an approval;
              at most 10 minutes; None: such a call raises ``ApprovalPending`` at once

    It applies to the thread or task of the block, and to tasks that are made in it. With asyncio it
    is ``with``, too. A call that needs no approval is made as ever.

    A waiting call raises ``ApprovalPending`` if nobody has answered in time, and
    ``PermissionDenied`` with the reason ``APPROVAL_DENIED``, ``APPROVAL_EXPIRED`` or
    ``APPROVAL_CANCELLED``. With ``id`` the reason is ``APPROVAL_USED`` if it was used before, and
    ``APPROVAL_MISMATCH`` if it belongs to another call.

    >>> with stockade.approval(wait="10m"):                                     # doctest: +SKIP
    ...     sandbox.run("deploy", "--production")
    """
    pairs = []
    if id is not None:
        pairs.append(("approval", id))
    if wait is not None:
        pairs.append(("approval-wait", str(named("wait", to_ms, wait))))
    before = _metadata.set(tuple(pairs))
    try:
        yield
    finally:
        _metadata.reset(before)
