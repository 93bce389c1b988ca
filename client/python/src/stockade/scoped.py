# SPDX-License-Identifier: Apache-2.0
"""What a ``with`` statement ends: the one place that knows ``__enter__`` and ``__exit__``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Scoped:
    """For ``with``. ``_exit`` gets the exception that ended the block, or None."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._exit(error)

    def _exit(self, error: Optional[BaseException]) -> None:
        raise NotImplementedError


class AsyncScoped:
    """For ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self._exit(error)

    async def _exit(self, error: Optional[BaseException]) -> None:
        raise NotImplementedError
