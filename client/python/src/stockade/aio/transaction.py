# SPDX-License-Identifier: Apache-2.0
"""Transactions for asyncio."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Optional

from stockade.changing import Changing
from stockade.errors import CallError
from stockade.scoped import AsyncScoped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.aio.sandbox import Sandbox
    from stockade.changing import TransactionInfo
    from stockade.filing import Change


class Transaction(Changing, AsyncScoped):
    """Changes to the files of a sandbox that take effect together, or not at all.

    Used as a context manager, it is committed at the end of the block, and discarded if the block
    raises.

    >>> async with await sbx.transaction() as tx:                                  # doctest: +SKIP
    ...     await tx.sandbox.run("sh", "-c", "make install", check=True)
    """

    async def _exit(self, error: Optional[BaseException]) -> None:
        if self.info.state != "open":
            return
        if error is None:
            await self.commit()
            return
        with contextlib.suppress(CallError):  # the failure of the block says more
            await self.discard()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in which its jobs run, with the files as they were at the begin."""
        return self._sandbox

    def __init__(self, client: Any, info: TransactionInfo, sandbox: Sandbox) -> None:
        super().__init__(client, info)
        self._sandbox = sandbox

    async def refresh(self) -> TransactionInfo:
        """Ask the broker about it again."""
        return await self._refresh()

    def changes(self) -> AsyncIterator[Change]:
        """Iterate over the files that it has changed so far, sorted by path."""
        return self._changes()

    async def commit(self, *, stop: bool = False) -> TransactionInfo:
        """Give its changes to its sandbox, and end it.

        ``stop``  cancel the jobs that run in either sandbox first; otherwise there must be none

        Raises ``Aborted`` if both sides changed a path (``refresh().conflicts`` has them; it stays
        open), ``FailedPrecondition``, ``ResourceExhausted`` (the files do not fit).
        """
        return await self._commit(stop)

    async def discard(self) -> TransactionInfo:
        """Drop its changes, and end it. Raises ``FailedPrecondition`` if it was committed."""
        return await self._discard()
