# SPDX-License-Identifier: Apache-2.0
"""What lets one piece of code serve threads and asyncio.

Everything that both clients do is written once, as coroutines (``calls``, ``jobs``, ``boxes``).
They wait in a few places only: for a connection, a message, a moment. With asyncio those suspend;
with threads they block the thread, so a coroutine never suspends there, and ``now`` runs it to its
end without an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator

T = TypeVar("T")


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose waiting blocks, and return its value."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError("code that is shared waited for an event loop")


async def _next(source: AsyncIterator[T]) -> T:
    return await source.__anext__()


def each(source: AsyncIterator[T]) -> Generator[T, None, None]:
    """Iterate over an asynchronous iterator whose waiting blocks."""
    while True:
        try:
            value = now(_next(source))
        except StopAsyncIteration:
            return
        yield value
