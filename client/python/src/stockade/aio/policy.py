# SPDX-License-Identifier: Apache-2.0
"""Policies about calls, with asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import policies_of as shared
from stockade.aio.client import Client, chosen
from stockade.policies_of import PlannedCall

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

    from stockade.policies_of import DestinationSet, PolicyDecision, PolicyInfo


class Policy:
    """The policy of the broker: see ``stockade.Policy``."""

    @staticmethod
    async def explain(
        *args: str,
        method: str = "ProcessService/Run",
        request: Union[Message, bytes, None] = None,
        template: str = "",
        language: str = "",
        paths: Sequence[str] = (),
        destinations: Sequence[str] = (),
        labels: Optional[Mapping[str, str]] = None,
        limits: Optional[Mapping[str, str]] = None,
        calls_before: int = 0,
        time: Optional[datetime.datetime] = None,
        simulate: bool = False,
        tenant: str = "",
        credential: str = "",
        client: Optional[Client] = None,
    ) -> PolicyDecision:
        """Return what would be decided about a call: see ``stockade.Policy.explain``."""
        call = PlannedCall(
            args,
            method,
            request,
            template,
            language,
            paths,
            destinations,
            labels or {},
            limits or {},
            calls_before,
            time,
            simulate,
        )
        return await shared.explain(chosen(client), call, tenant, credential)

    @staticmethod
    async def show(
        *, tenant: str = "", template: str = "", client: Optional[Client] = None
    ) -> PolicyInfo:
        """Return the layers and rules that apply to the caller."""
        return await shared.show(chosen(client), tenant, template)

    @staticmethod
    async def sets(*, client: Optional[Client] = None) -> dict[str, DestinationSet]:
        """Return the named sets of destinations, by their names."""
        return await shared.sets(chosen(client))
