# SPDX-License-Identifier: Apache-2.0
"""Code that threads and asyncio share: with threads a coroutine never suspends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stockade.both import each, now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def test_a_coroutine_that_waits_for_an_event_loop_is_our_own_mistake() -> None:
    cleaned = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    with pytest.raises(AssertionError):
        now(waits())
    assert cleaned == [True]


def test_what_it_raises_comes_out_as_it_is() -> None:
    async def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        now(fails())


def test_iteration_ends_gives_up_and_fails_as_a_generator_does() -> None:
    closed = []

    async def numbers(fail_at: int) -> AsyncIterator[int]:
        try:
            for i in range(3):
                if i == fail_at:
                    raise ValueError("no more")
                yield i
        finally:
            closed.append(fail_at)

    assert list(each(numbers(9))) == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        list(each(numbers(1)))
    some = each(numbers(8))
    assert next(some) == 0
    some.close()
    del some
    assert sorted(closed) == [1, 8, 9]
