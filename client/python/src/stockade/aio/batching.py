# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade.aio.client import chosen
from stockade.batches import BatchResult, BatchSource, Jobs, run_batch_request
from stockade.scoped import AsyncScoped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from stockade.aio.client import Client
    from stockade.limits import Limits, Seconds
    from stockade.network import Network


class Batch(Jobs, AsyncScoped):
    """The results of many jobs: ``stockade.Batch``, with ``async for`` and ``async with``."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BatchResult:
        result = await self._next()
        if result is None:
            raise StopAsyncIteration
        return result

    async def close(self) -> None:
        """Cancel the jobs that are left. Does nothing after the last result."""
        if not self._over:
            self._close()

    async def _exit(self, error: Optional[BaseException]) -> None:
        await self.close()


def batch(
    jobs: BatchSource,
    *,
    template: Optional[str] = None,
    limits: Optional[Limits] = None,
    timeout: Optional[Seconds] = None,
    network: Union[Network, str, None] = None,
    reset: str = "sandbox",
    warm: Optional[str] = None,
    parallel: int = 0,
    window: int = 0,
    deadline: Optional[Seconds] = None,
    volumes: Optional[Mapping[str, str]] = None,
    key: Optional[str] = None,
    client: Optional[Client] = None,
) -> Batch:
    """Run many jobs and iterate over their results: see ``stockade.batch``.

    ``jobs`` may be an asynchronous iterable as well.
    """
    request = run_batch_request(
        key=key,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        reset=reset,
        warm=warm,
        parallel=parallel,
        window=window,
        deadline=deadline,
        volumes=volumes,
    )
    return Batch(chosen(client), jobs, request)
