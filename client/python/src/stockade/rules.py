# SPDX-License-Identifier: Apache-2.0
"""Detection rules of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from stockade import rules_of as shared
from stockade.both import now
from stockade.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stockade.rules_of import RuleFile, RuleFinding, RuleInfo, RuleList, RuleText


class Rules:
    """Detection rules of the caller, for its own sandboxes: stockade-rules(5).

    >>> rule = {"id": "nc", "severity": "warning", "message": "{arguments}", "match": {
    ...     "kinds": ["exec"], "all": [{"executable": {"suffix": ["/nc"]}}]}}
    >>> Rules.set("mine", {"rules": [rule]})                                    # doctest: +SKIP
    """

    @classmethod
    def set(
        cls, name: str, text: RuleText, *, client: Optional[Client] = None
    ) -> tuple[RuleInfo, ...]:
        """Create or replace a file of rules; return its rules.

        ``name``  of the file: lower-case letters, digits, dots, hyphens and underscores
        ``text``  YAML or JSON with the keys of stockade-rules(5), or the same as a dict

        Raises ``InvalidArgument`` (with file, line and column; nothing has changed),
        ``AlreadyExists`` (the host has a rule of this id) and ``ResourceExhausted``.
        """
        return now(shared.put(chosen(client), name, text))

    @classmethod
    def get(cls, name: str, *, tenant: str = "", client: Optional[Client] = None) -> RuleFile:
        """Return a file with its text. Raises ``NotFound``.

        ``tenant``  another tenant, which needs an operator
        """
        return now(shared.get(chosen(client), name, tenant))

    @classmethod
    def list(
        cls, *, host: bool = False, tenant: str = "", client: Optional[Client] = None
    ) -> RuleList:
        """Return all files, without their texts, and all rules with what they have found.

        ``host``    also the rules of the host, with its tripwires
        ``tenant``  another tenant, which needs an operator
        """
        return now(shared.listed(chosen(client), host, tenant))

    @classmethod
    def delete(cls, name: str, *, tenant: str = "", client: Optional[Client] = None) -> None:
        """Remove a file with its rules. Raises ``NotFound``.

        ``tenant``  another tenant, which needs an operator
        """
        now(shared.delete(chosen(client), name, tenant))

    @classmethod
    def enable(cls, rule: str, *, tenant: str = "", client: Optional[Client] = None) -> RuleInfo:
        """Switch a rule on, by its id. Raises ``NotFound`` and ``FailedPrecondition``.

        ``tenant``  another tenant, which needs an operator
        """
        return now(shared.enable(chosen(client), rule, tenant))

    @classmethod
    def disable(cls, rule: str, *, tenant: str = "", client: Optional[Client] = None) -> RuleInfo:
        """Switch a rule off, by its id. Raises ``NotFound`` and ``FailedPrecondition``.

        ``tenant``  another tenant, which needs an operator
        """
        return now(shared.disable(chosen(client), rule, tenant))

    @classmethod
    def check(
        cls, name: str, text: RuleText, *, client: Optional[Client] = None
    ) -> tuple[RuleInfo, ...]:
        """Read a file as ``set`` would, and run the tests of its rules; nothing changes."""
        return now(shared.check(chosen(client), name, text))

    @classmethod
    def test(
        cls,
        events: Sequence[Mapping[str, Any]],
        text: RuleText = "",
        *,
        client: Optional[Client] = None,
    ) -> tuple[RuleFinding, ...]:
        """Compare events with rules; no response follows, and no finding is kept.

        ``events``  such as ``{"kind": "exec", "executable": "/usr/bin/nc", "times": 3}``
        ``text``    the rules; empty: the caller's, as they are
        """
        return now(shared.test(chosen(client), events, text))
