# SPDX-License-Identifier: Apache-2.0
"""Volumes: folders with a quota that outlive sandboxes, with asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import volumes_of as shared
from stockade.aio.client import Client, chosen
from stockade.aio.files import Files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.limits import Size
    from stockade.requests import VolumeInfo


class Volume:
    """A folder with a quota, to be mounted in sandboxes; it stays until it is deleted."""

    def __init__(self, client: Client, info: VolumeInfo) -> None:
        self._client = client
        #: The last state that the broker sent; ``refresh`` requests it again.
        self.info = info

    def __repr__(self) -> str:
        return f"<Volume {self.name!r}>"

    @property
    def name(self) -> str:
        """Its name, unique among the caller's volumes."""
        return self.info.name

    @classmethod
    async def create(
        cls,
        name: str,
        *,
        size: Optional[Size] = None,
        inodes: Optional[int] = None,
        client: Optional[Client] = None,
    ) -> Volume:
        """Make a volume, which is empty: see ``stockade.Volume.create``."""
        client = chosen(client)
        return cls(client, await shared.create(client, name, size, inodes))

    @classmethod
    async def connect(cls, name: str, *, client: Optional[Client] = None) -> Volume:
        """Find an existing volume. ``NotFound``: there is none, or it is another caller's."""
        client = chosen(client)
        return cls(client, await shared.get(client, name))

    @classmethod
    def list(cls, *, client: Optional[Client] = None) -> AsyncIterator[VolumeInfo]:
        """Iterate over the caller's volumes, oldest first."""
        return shared.volumes(chosen(client))

    @property
    def files(self) -> Files:
        """Its files, without a sandbox of yours: see ``stockade.Volume.files``."""
        return Files(self._client, f"volume:{self.name}")

    async def refresh(self) -> VolumeInfo:
        """Request its state again."""
        self.info = await shared.get(self._client, self.name)
        return self.info

    async def delete(self, *, force: bool = False) -> None:
        """Remove it with all that it holds: see ``stockade.Volume.delete``."""
        await shared.delete(self._client, self.name, force)
