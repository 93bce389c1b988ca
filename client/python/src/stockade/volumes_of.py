# SPDX-License-Identifier: Apache-2.0
"""Volumes, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import methods, requests
from stockade.fields import made, positive
from stockade.limits import Size, named, size_bytes
from stockade.v1 import volume_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.calls import Caller
    from stockade.requests import VolumeInfo


def _bytes(size: Optional[Size]) -> Optional[int]:
    if size is None:
        return 0
    return positive("size", named("size", size_bytes, size))


async def create(
    client: Caller, name: str, size: Optional[Size], inodes: Optional[int]
) -> VolumeInfo:
    """Make a volume."""
    request = made(
        volume_service_pb2.VolumeServiceCreateRequest,
        as_={"bytes": "size"},
        name=name,
        bytes=_bytes(size),
        inodes=positive("inodes", inodes),
    )
    return requests.volume_info((await client._call(methods.CREATE_VOLUME, request)).volume)


async def get(client: Caller, name: str) -> VolumeInfo:
    """Return one volume."""
    request = made(volume_service_pb2.VolumeServiceGetRequest, name=name)
    return requests.volume_info((await client._call(methods.GET_VOLUME, request)).volume)


async def volumes(client: Caller) -> AsyncIterator[VolumeInfo]:
    """Yield the caller's volumes."""
    request = volume_service_pb2.VolumeServiceListRequest()
    async for page in client._pages(methods.LIST_VOLUMES, request):
        for message in page.volumes:
            yield requests.volume_info(message)


async def delete(client: Caller, name: str, force: bool) -> None:
    """Remove a volume."""
    request = made(volume_service_pb2.VolumeServiceDeleteRequest, name=name, force=force)
    await client._call(methods.DELETE_VOLUME, request)
