# SPDX-License-Identifier: Apache-2.0
"""Volumes: folders with a quota that outlive sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from stockade import volumes_of as shared
from stockade.both import each, now
from stockade.client import Client, chosen
from stockade.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stockade.limits import Size
    from stockade.requests import VolumeInfo


class Volume:
    """A folder with a quota, to be mounted in sandboxes; it stays until it is deleted.

    >>> volume = Volume.create("data", size="10G")                                  # doctest: +SKIP
    >>> stockade.run("touch", "/data/hello", volumes={"/data": "data"}).exit_code   # doctest: +SKIP
    0
    """

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
    def create(
        cls,
        name: str,
        *,
        size: Optional[Size] = None,
        inodes: Optional[int] = None,
        client: Optional[Client] = None,
    ) -> Volume:
        """Make a volume, which is empty.

        ``size``    bytes of its files, or ``"10G"``; None: 1 GiB
        ``inodes``  files and folders; None: one for every 16 KiB

        Raises ``AlreadyExists``, ``ResourceExhausted`` (a quota, or the host's disk),
        ``FailedPrecondition`` (the host cannot enforce quotas).
        """
        client = chosen(client)
        return cls(client, now(shared.create(client, name, size, inodes)))

    @classmethod
    def connect(cls, name: str, *, client: Optional[Client] = None) -> Volume:
        """Find an existing volume. ``NotFound``: there is none, or it is another caller's."""
        client = chosen(client)
        return cls(client, now(shared.get(client, name)))

    @classmethod
    def list(cls, *, client: Optional[Client] = None) -> Iterator[VolumeInfo]:
        """Iterate over the caller's volumes, oldest first."""
        return each(shared.volumes(chosen(client)))

    @property
    def files(self) -> Files:
        """Its files, without a sandbox of yours: read, write, list and change them.

        The root of the volume is ``/``. The broker makes a sandbox for the operations, which
        counts towards your quota and ends about a minute after the last one.
        """
        return Files(self._client, f"volume:{self.name}")

    def refresh(self) -> VolumeInfo:
        """Request its state again."""
        self.info = now(shared.get(self._client, self.name))
        return self.info

    def delete(self, *, force: bool = False) -> None:
        """Remove it with all that it holds. ``FailedPrecondition``: a sandbox has it.

        ``force``  delete the sandboxes that have it, too
        """
        now(shared.delete(self._client, self.name, force))
