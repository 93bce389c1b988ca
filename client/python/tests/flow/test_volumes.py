# SPDX-License-Identifier: Apache-2.0
"""Volumes, with the broker of ``conftest``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import aio

if TYPE_CHECKING:
    from broker import Broker


@pytest.fixture(autouse=True)
def _disks(client: stockade.Client) -> None:
    try:
        stockade.Volume.create("probe", size="1M", client=client).delete()
    except stockade.FailedPrecondition as e:
        pytest.skip(str(e))


def test_what_is_wrong_is_refused(client: stockade.Client) -> None:
    with pytest.raises(stockade.NotFound):
        stockade.Volume.connect("none", client=client)
    with pytest.raises(stockade.NotFound):
        stockade.run("true", volumes={"/data": "none"}, client=client)
    with pytest.raises(ValueError, match="name:ro"):
        stockade.run("true", volumes={"/data": "none:x"}, client=client)
    with pytest.raises(stockade.InvalidArgument):
        stockade.Volume.create("a/b", client=client)


def test_files_stay_and_are_shared(client: stockade.Client) -> None:
    volume = stockade.Volume.create("data", size="8M", inodes=100, client=client)
    try:
        with pytest.raises(stockade.AlreadyExists):
            stockade.Volume.create("data", client=client)
        assert (volume.info.size, volume.info.inodes) == (8 << 20, 100)
        assert [v.name for v in stockade.Volume.list(client=client)] == ["data"]
        stockade.run("sh", "-c", "echo hi > /data/A", volumes={"/data": "data"}, client=client)
        with stockade.Sandbox.create(volumes={"/m": "data:ro"}, client=client) as sbx:
            assert sbx.info.volumes == {"/m": "data:ro"}
            assert sbx.run("cat", "/m/A").stdout == "hi\n"
            assert sbx.run("touch", "/m/B").exit_code != 0
            assert volume.refresh().sandboxes == 1
            with pytest.raises(stockade.FailedPrecondition) as refused:
                volume.delete()
            assert refused.value.reason == "VOLUME_IN_USE"
        assert volume.files.read_text("/A") == "hi\n"
        cell = stockade.run_code("open('/d/A').read()", volumes={"/d": "data:ro"}, client=client)
        assert cell.text == "'hi\\n'"
        done = stockade.batch([("cat", "/d/A")], volumes={"/d": "data"}, client=client)
        assert [job.result.stdout for job in done] == ["hi\n"]
        with pytest.raises(stockade.PermissionDenied) as listed:
            stockade.run("true", volumes={"/d": "/srv:ro"}, client=client)
        assert (listed.value.reason, listed.value.rule) == ("HOST_MOUNT", "mounts")
        volume.files.write("b/B", b"2" * 3_000_000, parents=True)
        assert volume.files.stat("/b/B").size == 3_000_000
        assert [f.path for f in volume.files.list("/", depth=2)] == ["A", "b", "b/B"]
        with pytest.raises(stockade.NotFound):
            volume.files.stat("/c")
        assert volume.refresh().sandboxes == 1
        assert volume.info.used is not None
        assert volume.info.used >= 3_000_000
        assert volume.info.used_inodes == 3
        stockade.Sandbox.create(volumes={"/m": "data"}, client=client)
    finally:
        volume.delete(force=True)
    assert list(stockade.Volume.list(client=client)) == []


def test_the_same_with_asyncio(broker: Broker) -> None:
    async def main() -> None:
        async with aio.Client(broker.ipc) as client:
            volume = await aio.Volume.create("data", size="8M", client=client)
            try:
                done = await aio.run(
                    "sh", "-c", "echo hi > /data/A", volumes={"/data": "data"}, client=client
                )
                assert done.exit_code == 0
                assert [v.name async for v in aio.Volume.list(client=client)] == ["data"]
                assert (await aio.Volume.connect("data", client=client)).name == "data"
                assert (await volume.refresh()).sandboxes == 0
                await volume.files.write("B", b"2" * 3_000_000)
                assert await volume.files.read("/A") == b"hi\n"
            finally:
                await volume.delete(force=True)

    asyncio.run(main())
