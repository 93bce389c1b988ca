# SPDX-License-Identifier: Apache-2.0
"""The audit log of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import audit_of as shared
from stockade.both import each, now
from stockade.client import Client, chosen

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator, Sequence

    from stockade.audit_of import AuditKind, AuditPhase, AuditRecord
    from stockade.v1 import audit_pb2


class AuditLog:
    """The audit log of the broker: the caller's own calls and jobs.

    >>> for record in AuditLog.records(kinds=["call"], phase="refused"):        # doctest: +SKIP
    ...     print(record.time, record.message.call.method, record.message.call.reason)
    """

    @classmethod
    def records(
        cls,
        *,
        kinds: Sequence[AuditKind] = (),
        method: str = "",
        phase: Optional[AuditPhase] = None,
        object: str = "",  # noqa: A002
        since: Optional[datetime.datetime] = None,
        until: Optional[datetime.datetime] = None,
        after_sequence: int = 0,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> Iterator[AuditRecord]:
        """Iterate over records, oldest first: those that fit all arguments.

        ``kinds``           such as ``["call", "job"]``; none: all but checkpoints
        ``method``          calls of this method, such as ``"SandboxService/Create"``, or service
        ``phase``           calls of this phase
        ``object``          calls with an object of this value, such as a sandbox's id, and jobs
                            with this id or sandbox
        ``since, until``    from this time on, and before this one
        ``after_sequence``  those after this ``AuditRecord.sequence``
        ``tenant``          another tenant, or ``"*"`` for all, which needs an operator
        """
        wanted = shared.filter_of(kinds, method, phase, object, since, until)
        return each(shared.records(chosen(client), wanted, tenant, after_sequence))

    @classmethod
    def watch(
        cls,
        *,
        kinds: Sequence[AuditKind] = (),
        method: str = "",
        phase: Optional[AuditPhase] = None,
        object: str = "",  # noqa: A002
        after_sequence: int = 0,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> Iterator[AuditRecord]:
        """Iterate over records as they are written: see ``records`` for the arguments.

        ``after_sequence``  go on after this ``AuditRecord.sequence``; 0: only new ones

        It continues when the broker is restarted, and misses no record.
        """
        wanted = shared.filter_of(kinds, method, phase, object, None, None)
        return each(shared.watch(chosen(client), wanted, tenant, after_sequence))

    @classmethod
    def prove(
        cls, process_id: str, *, tenant: str = "", client: Optional[Client] = None
    ) -> audit_pb2.AuditProof:
        """Return a job's record with all that is needed to check it by the public key alone.

        It waits for the next checkpoint if none covers the record yet. Raises ``NotFound``.
        """
        return now(shared.prove(chosen(client), process_id, tenant))
