# SPDX-License-Identifier: Apache-2.0
"""Suspicious behaviour in sandboxes, with asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import findings_of as shared
from stockade.aio.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.findings_of import Finding, Silence
    from stockade.limits import Seconds


class Findings:
    """Suspicious behaviour in the caller's sandboxes: see ``stockade.Findings``."""

    @classmethod
    def list(
        cls,
        *,
        sandbox: str = "",
        rule: str = "",
        after: int = 0,
        tenant: str = "",
        client: Optional[Client] = None,
    ) -> AsyncIterator[Finding]:
        """Iterate over the findings that the broker keeps, oldest first.

        ``sandbox``  only of this sandbox, by id
        ``rule``     only of this rule
        ``after``    only those after this number
        ``tenant``   another tenant, or ``"*"`` for all, which needs an operator
        """
        return shared.findings(chosen(client), sandbox, rule, after, tenant)

    @classmethod
    async def acknowledge(
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
        await shared.acknowledge(chosen(client), sequence, reason, instance, withdraw, tenant)

    @classmethod
    def acknowledged(
        cls, *, tenant: str = "", client: Optional[Client] = None
    ) -> AsyncIterator[Finding]:
        """Iterate over the acknowledged findings, also of earlier runs of the broker.

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        return shared.acknowledged(chosen(client), tenant)

    @classmethod
    async def silence(
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
        return await shared.silence(
            chosen(client), rule, ttl, reason, about, suppress_response, tenant
        )

    @classmethod
    def silences(
        cls, *, tenant: str = "", client: Optional[Client] = None
    ) -> AsyncIterator[Silence]:
        """Iterate over the silences in force, oldest first.

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        return shared.silences(chosen(client), tenant)

    @classmethod
    async def unsilence(
        cls, silence_id: str, *, tenant: str = "", client: Optional[Client] = None
    ) -> None:
        """End a silence. Raises ``NotFound`` and ``PermissionDenied`` (the host made it).

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        await shared.unsilence(chosen(client), silence_id, tenant)
