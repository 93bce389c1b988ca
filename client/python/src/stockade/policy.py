# SPDX-License-Identifier: Apache-2.0
"""Policies about calls: what they decide, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import policies_of as shared
from stockade.both import now
from stockade.client import Client, chosen
from stockade.policies_of import PlannedCall

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

    from stockade.policies_of import DestinationSet, PolicyDecision, PolicyInfo


class Policy:
    """The policy of the broker, as far as it is about the caller.

    >>> Policy.explain("git", "push").verdict                               # doctest: +SKIP
    'deny'
    """

    @staticmethod
    def explain(
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
        """Return what would be decided about a call, which rule decides, and why.

        The call is not made, nothing is counted, and nobody is asked.

        ``args``          the command
        ``method``        such as ``"FileService/Read"``
        ``request``       the request that the call would send; instead of all that describes it
        ``template``      of the sandbox
        ``language``      of code
        ``paths``         that the call names
        ``destinations``  what jobs may reach after the call, such as ``"@pypi"``
        ``labels``        of the sandbox
        ``limits``        in force, such as ``{"memory": "1G"}``
        ``calls_before``  this one, for rates and histories
        ``time``          when; None: now
        ``simulate``      the call is simulated
        ``tenant``        as whom: another tenant, for operators
        ``credential``    ``"peer"``, ``"key"``, ``"token"``, ``"certificate"``, ``"jwt"``,
                          ``"none"``

        Raises ``NotFound``: there is no such method.
        """
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
        return now(shared.explain(chosen(client), call, tenant, credential))

    @staticmethod
    def show(
        *, tenant: str = "", template: str = "", client: Optional[Client] = None
    ) -> PolicyInfo:
        """Return the layers and rules that apply to the caller.

        ``tenant``    of another tenant, or ``"*"`` for all, for operators
        ``template``  only what may apply to sandboxes of this template
        """
        return now(shared.show(chosen(client), tenant, template))

    @staticmethod
    def sets(*, client: Optional[Client] = None) -> dict[str, DestinationSet]:
        """Return the named sets of destinations, such as ``@pypi``, by their names."""
        return now(shared.sets(chosen(client)))
