# SPDX-License-Identifier: Apache-2.0
"""Suspicious behaviour in sandboxes: findings, acknowledgements and silences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import findings_of as shared
from stockade.both import each, now
from stockade.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stockade.findings_of import Finding, Silence
    from stockade.limits import Seconds


class Findings:
    """Suspicious behaviour in the caller's sandboxes; who has handled it; and silences.

    >>> for found in Findings.list():                                           # doctest: +SKIP
    ...     Findings.acknowledge(found.sequence, "a test")                      # doctest: +SKIP
    >>> Findings.silence("mass-rename", "2h", "a codemod")                      # doctest: +SKIP
    """

    @classmethod
    def list(
        cls,
        *,
        sandbox: str = "",
        rule: str = "",
        after: int = 0,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> Iterator[Finding]:
        """Iterate over the findings that the broker keeps, oldest first.

        ``sandbox``  only of this sandbox, by id
        ``rule``     only of this rule
        ``after``    only those after this number
        ``tenant``   another tenant, or ``"*"`` for all, which needs an operator
        """
        return each(shared.findings(chosen(client), sandbox, rule, after, tenant))

    @classmethod
    def acknowledge(
        cls,
        sequence: int,
        reason: str = "",
        *,
        instance: str = "",
        withdraw: bool = False,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> None:
        """Note that a person has handled a finding. It is kept with a copy of the finding.

        ``sequence``  the finding's number, ``Finding.sequence``
        ``reason``    why
        ``instance``  the run of the broker that numbered it; empty: the current one
        ``withdraw``  take the caller's acknowledgement back instead
        ``tenant``    another tenant, or ``"*"`` for all, which needs an operator

        Raises ``NotFound``.
        """
        now(shared.acknowledge(chosen(client), sequence, reason, instance, withdraw, tenant))

    @classmethod
    def acknowledged(
        cls, *, tenant: str = "", client: Optional[Client] = None
    ) -> Iterator[Finding]:
        """Iterate over the acknowledged findings, also of earlier runs of the broker.

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        return each(shared.acknowledged(chosen(client), tenant))

    @classmethod
    def silence(
        cls,
        rule: str,
        ttl: Seconds,
        reason: str,
        *,
        sandbox: str = "",
        template: str = "",
        comm: str = "",
        suppress_response: bool = False,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> Silence:
        """Raise no alert for findings of a rule for a while.

        They are kept, counted and published as before, and the response follows all the same. Of a
        rule that the tenant did not write, the host's alerts remain, too.

        ``ttl``                how long, such as ``"2h"``, up to 30 days
        ``reason``             why
        ``sandbox``            only of this sandbox, by id
        ``template``           only of this template
        ``comm``               only about processes with this name
        ``suppress_response``  do not throttle, pause or kill, either
        ``tenant``             another tenant, or ``"*"`` for all, which needs an operator

        Raises ``InvalidArgument`` (no such rule), ``PermissionDenied`` (the response of a rule of
        the host) and ``ResourceExhausted``.
        """
        about = (sandbox, template, comm)
        return now(
            shared.silence(chosen(client), rule, ttl, reason, about, suppress_response, tenant)
        )

    @classmethod
    def silences(cls, *, tenant: str = "", client: Optional[Client] = None) -> Iterator[Silence]:
        """Iterate over the silences in force, oldest first.

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        return each(shared.silences(chosen(client), tenant))

    @classmethod
    def unsilence(
        cls, silence_id: str, *, tenant: str = "", client: Optional[Client] = None
    ) -> None:
        """End a silence. Raises ``NotFound`` and ``PermissionDenied`` (the host made it).

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        now(shared.unsilence(chosen(client), silence_id, tenant))
