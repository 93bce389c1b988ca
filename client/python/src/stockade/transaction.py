# SPDX-License-Identifier: Apache-2.0
"""Transactions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Optional

from stockade.both import each, now
from stockade.changing import Changing
from stockade.errors import CallError
from stockade.scoped import Scoped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stockade.changing import TransactionInfo
    from stockade.filing import Change
    from stockade.sandbox import Sandbox


class Transaction(Changing, Scoped):
    """Changes to the files of a sandbox that take effect together, or not at all.

    Used as a context manager, it is committed at the end of the block, and discarded if the block
    raises.

    >>> with sbx.transaction() as tx:                                              # doctest: +SKIP
    ...     tx.sandbox.run("sh", "-c", "make install", check=True)
    """

    def _exit(self, error: Optional[BaseException]) -> None:
        if self.info.state != "open":
            return
        if error is None:
            self.commit()
            return
        with contextlib.suppress(CallError):  # the failure of the block says more
            self.discard()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in which its jobs run, with the files as they were at the begin."""
        return self._sandbox

    def __init__(self, client: Any, info: TransactionInfo, sandbox: Sandbox) -> None:
        super().__init__(client, info)
        self._sandbox = sandbox

    def refresh(self) -> TransactionInfo:
        """Ask the broker about it again."""
        return now(self._refresh())

    def changes(self) -> Iterator[Change]:
        """Iterate over the files that it has changed so far, sorted by path."""
        return each(self._changes())

    def commit(self, *, stop: bool = False) -> TransactionInfo:
        """Give its changes to its sandbox, and end it.

        ``stop``  cancel the jobs that run in either sandbox first; otherwise there must be none

        Raises ``Aborted`` if both sides changed a path (``refresh().conflicts`` has them; it stays
        open), ``FailedPrecondition``, ``ResourceExhausted`` (the files do not fit).
        """
        return now(self._commit(stop))

    def discard(self) -> TransactionInfo:
        """Drop its changes, and end it. Raises ``FailedPrecondition`` if it was committed."""
        return now(self._discard())
