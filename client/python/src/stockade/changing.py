# SPDX-License-Identifier: Apache-2.0
"""Transactions, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional

from stockade import methods, requests
from stockade.fields import made
from stockade.filing import change, path_text
from stockade.limits import Seconds, lifetime_ms
from stockade.v1 import snapshot_service_pb2, transaction_service_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator

    from stockade.calls import Caller
    from stockade.filing import Change
    from stockade.methods import Method

TransactionPolicy = Literal["ask", "on-success"]

_STATES: dict[int, Literal["open", "committed", "discarded"]] = {
    1: "open",
    2: "committed",
    3: "discarded",
}
_POLICIES: dict[Optional[str], int] = {None: 0, "ask": 1, "on-success": 2}


@dataclass(frozen=True)
class TransactionInfo:
    """A transaction, as the broker describes it."""

    #: An opaque text; also the id of the sandbox in which its jobs run.
    id: str
    #: The sandbox whose files it changes.
    sandbox_id: str
    #: Time of its begin.
    created: datetime.datetime
    #: Where it is.
    state: Literal["open", "committed", "discarded", "unknown"]
    #: Why the last commit was refused; empty: it was not.
    refused: str = ""
    #: Paths that the last commit found changed on both sides, at most 100. Empty in lists.
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TransactionOutcome:
    """What a job with ``transaction`` changed, and what became of that."""

    #: The transaction after the job.
    info: TransactionInfo
    #: The first files that it changed, at most 100, sorted by path.
    changes: tuple[Change, ...]
    #: There are more than these.
    more: bool
    #: Why the changes are not known; empty: they are.
    unknown: str = ""


def policy_number(policy: Optional[TransactionPolicy]) -> Any:
    """Return a policy as the broker takes it."""
    if policy not in _POLICIES:
        raise ValueError(f"transaction={policy!r}: expected 'ask', 'on-success' or None")
    return _POLICIES[policy]


def transaction_info(message: transaction_service_pb2.Transaction) -> TransactionInfo:
    """Return what a message says about a transaction."""
    return TransactionInfo(
        id=message.id,
        sandbox_id=message.sandbox_id,
        created=requests.moment(message.create_time),
        state=_STATES.get(message.state, "unknown"),
        refused=message.refused,
        conflicts=tuple(path_text(path) for path in message.conflicts),
    )


def outcome(message: transaction_service_pb2.TransactionOutcome) -> TransactionOutcome:
    """Return what the last message of a job says about its transaction."""
    return TransactionOutcome(
        info=transaction_info(message.transaction),
        changes=tuple(change(one) for one in message.changes),
        more=message.more,
        unknown=message.unknown,
    )


async def begin(
    client: Caller, sandbox_id: str, stop: bool, ttl: Optional[Seconds]
) -> TransactionInfo:
    """Begin a transaction."""
    request = made(
        transaction_service_pb2.TransactionServiceBeginRequest,
        sandbox=sandbox_id,
        stop=stop,
        ttl_ms=lifetime_ms(ttl),
    )
    response = await client._call(methods.BEGIN_TRANSACTION, request)
    return transaction_info(response.transaction)


async def transactions(client: Caller, sandbox_id: str) -> AsyncIterator[TransactionInfo]:
    """Yield the transactions of a sandbox."""
    request = made(transaction_service_pb2.TransactionServiceListRequest, sandbox=sandbox_id)
    async for page in client._pages(methods.LIST_TRANSACTIONS, request):
        for message in page.transactions:
            yield transaction_info(message)


class Changing:
    """A transaction, for threads and asyncio alike."""

    def __init__(self, client: Any, info: TransactionInfo) -> None:
        self._client = client
        #: The last answer of the broker about it.
        self.info = info

    @property
    def id(self) -> str:
        """An opaque text; also the id of ``sandbox``."""
        return self.info.id

    async def _ask(self, method: Method[Any, Any], request: Any) -> TransactionInfo:
        response = await self._client._call(method, request)
        self.info = transaction_info(response.transaction)
        return self.info

    async def _refresh(self) -> TransactionInfo:
        request = made(transaction_service_pb2.TransactionServiceGetRequest, id=self.id)
        return await self._ask(methods.GET_TRANSACTION, request)

    async def _changes(self) -> AsyncIterator[Change]:
        request = made(
            snapshot_service_pb2.SnapshotServiceDiffRequest,
            sandbox_id=self.id,
            first="begin",
            page_size=1000,
        )
        async for page in self._client._pages(methods.DIFF_SNAPSHOTS, request):
            for message in page.changes:
                yield change(message)

    async def _commit(self, stop: bool) -> TransactionInfo:
        request = made(
            transaction_service_pb2.TransactionServiceCommitRequest, id=self.id, stop=stop
        )
        return await self._ask(methods.COMMIT_TRANSACTION, request)

    async def _discard(self) -> TransactionInfo:
        request = made(transaction_service_pb2.TransactionServiceDiscardRequest, id=self.id)
        return await self._ask(methods.DISCARD_TRANSACTION, request)
