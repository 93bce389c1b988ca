# SPDX-License-Identifier: Apache-2.0
"""A sandbox, for threads and asyncio alike (``both``)."""

from __future__ import annotations

import contextlib
import operator
import secrets
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from stockade import methods, requests, tunnel
from stockade.errors import AlreadyExists, NotFound, ResourceExhausted, StockadeError
from stockade.events import Collector
from stockade.fields import is_a, made, optional
from stockade.filing import change, path_bytes
from stockade.jobs import Job
from stockade.limits import Seconds, Size, lifetime_ms, named, size_bytes, to_ms
from stockade.network import PORT_MAX
from stockade.v1 import (
    process_service_pb2,
    sandbox_service_pb2,
    snapshot_service_pb2,
    template_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stockade.calls import Caller, Stream
    from stockade.filing import Change, FilePath
    from stockade.methods import Method
    from stockade.network import Network
    from stockade.requests import ProcessInfo, SandboxInfo, SnapshotInfo, TemplateInfo

J = TypeVar("J", bound=Job)
_END_S = 5.0  # seconds for ending what an interrupted run may have started


async def sandboxes(
    client: Caller, metadata: Optional[Mapping[str, str]]
) -> AsyncIterator[SandboxInfo]:
    """Yield the caller's sandboxes."""
    request = made(
        sandbox_service_pb2.SandboxServiceListRequest, metadata=requests.texts("metadata", metadata)
    )
    async for page in client._pages(methods.LIST, request):
        for message in page.sandboxes:
            yield requests.sandbox_info(message)


# ``copy``, ``copy_max``, ``copy_time`` of a snapshot or a fork.
Copying = tuple[bool, Optional[Size], Optional[Seconds]]


def allow_copy(
    request: Union[
        sandbox_service_pb2.SandboxServiceForkRequest,
        snapshot_service_pb2.SnapshotServiceCreateRequest,
    ],
    copy: bool,
    most: Optional[Size],
    time: Optional[Seconds],
) -> None:
    """Set what may be copied while jobs run."""
    if not copy and (most is not None or time is not None):
        raise ValueError("copy_max and copy_time need copy=True")
    request.copy = is_a(bool, "copy", copy)
    request.copy_bytes_max = 0 if most is None else named("copy_max", size_bytes, most)
    request.copy_ms_max = 0 if time is None else named("copy_time", to_ms, time)


async def kept_snapshots(client: Caller) -> AsyncIterator[SnapshotInfo]:
    """Yield the caller's kept snapshots."""
    request = snapshot_service_pb2.SnapshotServiceListRequest()
    async for page in client._pages(methods.LIST_SNAPSHOTS, request):
        for message in page.snapshots:
            yield requests.snapshot_info(message)


async def delete_kept_snapshot(client: Caller, name: str) -> None:
    """Delete a kept snapshot."""
    request = made(snapshot_service_pb2.SnapshotServiceDeleteRequest, name=name)
    await client._call(methods.DELETE_SNAPSHOT, request)


async def ask(client: Caller, method: Method[Any, Any], request: Any) -> SandboxInfo:
    """Make a call that is answered with a sandbox."""
    return requests.sandbox_info((await client._call(method, request)).sandbox)


async def one_shot(
    client: Caller,
    job: type[J],
    request: process_service_pb2.RunRequest,
    collector: Collector,
    deadline: Optional[Seconds],
) -> J:
    """Start a job in a sandbox of its own."""
    collector.args = tuple(request.command.args)
    stream = await client._stream(methods.RUN, request, timeout=deadline)
    return await job._open(client, stream, collector, resumable=False)


class Box:
    """A sandbox, as the broker knows it by its id."""

    def __init__(self, client: Caller, info: SandboxInfo) -> None:
        self._client = client
        #: The last state that the broker sent; ``refresh`` requests it again.
        self.info = info

    def __repr__(self) -> str:
        name = f" {self.info.name!r}" if self.info.name else ""
        return f"<{type(self).__name__} {self.id}{name} {self.info.state}>"

    @property
    def id(self) -> str:
        """An opaque text of at most 48 characters."""
        return self.info.id

    async def _ask(self, method: Method[Any, Any], request: Any) -> SandboxInfo:
        self.info = await ask(self._client, method, request)
        return self.info

    async def _start(
        self,
        job: type[J],
        request: process_service_pb2.StartRequest,
        collector: Collector,
        *,
        foreground: bool = False,
    ) -> J:
        """Start a job once, whatever happens to the connection."""
        collector.args = tuple(request.command.args)
        if request.mode:  # it ends with its call, so there is nothing to find again
            return await self._start_once(job, request, collector, "")
        key = secrets.token_hex(16)
        try:
            return await self._start_once(job, request, collector, key)
        except ResourceExhausted as e:
            if e.reason != "IDEMPOTENCY_KEYS":  # the broker remembers no more of them
                raise
            return await self._start_once(job, request, collector, "")
        except StockadeError:
            raise
        except BaseException:
            if foreground:  # it may have been started all the same: its key finds it again
                with contextlib.suppress(StockadeError):
                    begun = await self._start_once(job, request, Collector(), key, timeout=_END_S)
                    await begun._abort()
            raise

    async def _start_once(
        self,
        job: type[J],
        request: process_service_pb2.StartRequest,
        collector: Collector,
        key: str,
        timeout: Optional[float] = None,
    ) -> J:
        client = self._client
        stream: Stream[Any]
        try:
            stream = await client._stream(
                methods.START, request, timeout=timeout, idempotency_key=key
            )
        except AlreadyExists as e:  # it had been started when a connection broke
            if e.reason != "ALREADY_EXECUTED" or "process_id" not in e.info:
                raise
            attach = made(process_service_pb2.AttachRequest, process_id=e.info["process_id"])
            stream = await client._stream(methods.ATTACH, attach, timeout=timeout)
        return await job._open(client, stream, collector)

    async def _attach(self, job: type[J], process_id: str, offset: int, collector: Collector) -> J:
        collector.offset = offset
        request = made(process_service_pb2.AttachRequest, process_id=process_id, offset=offset)
        stream = await self._client._stream(methods.ATTACH, request)
        return await job._open(self._client, stream, collector)

    async def _check_port(self, port: int) -> None:
        """Let the broker refuse a port of the sandbox that the policy does not allow."""
        if not 1 <= named("port", operator.index, port) <= PORT_MAX:
            raise ValueError(f"port={port!r}: not a port (1 to {PORT_MAX})")
        if not (await self._refresh()).policy.lets_in(port):
            stream = await self._client._stream(methods.FORWARD, tunnel.request(self.id, port))
            stream.cancel()  # the policy has become another one in between

    async def _processes(self) -> AsyncIterator[ProcessInfo]:
        request = made(process_service_pb2.ProcessServiceListRequest, sandbox_id=self.id)
        async for page in self._client._pages(methods.LIST_PROCESSES, request):
            for message in page.processes:
                yield requests.process_info(message)

    async def _refresh(self) -> SandboxInfo:
        return await self._ask(
            methods.GET, made(sandbox_service_pb2.SandboxServiceGetRequest, id=self.id)
        )

    async def _update(
        self,
        ttl: Optional[Seconds],
        metadata: Optional[Mapping[str, str]],
        network: Union[Network, str, None],
    ) -> SandboxInfo:
        request = made(
            sandbox_service_pb2.SandboxServiceUpdateRequest,
            id=self.id,
            ttl_ms=lifetime_ms(ttl),
            metadata=requests.texts("metadata", metadata),
            network=requests.network_policy(network),
        )
        return await self._ask(methods.UPDATE, request)

    async def _pause(self) -> SandboxInfo:
        return await self._ask(
            methods.PAUSE, made(sandbox_service_pb2.SandboxServicePauseRequest, id=self.id)
        )

    async def _resume(self) -> SandboxInfo:
        return await self._ask(
            methods.RESUME, made(sandbox_service_pb2.SandboxServiceResumeRequest, id=self.id)
        )

    async def _sleep(self, stop: bool) -> SandboxInfo:
        return await self._ask(
            methods.SLEEP,
            made(sandbox_service_pb2.SandboxServiceSleepRequest, id=self.id, stop=stop),
        )

    async def _wake(self) -> SandboxInfo:
        return await self._ask(
            methods.WAKE, made(sandbox_service_pb2.SandboxServiceWakeRequest, id=self.id)
        )

    async def _fork(
        self,
        count: int,
        snapshot: Optional[str],
        stop: bool,
        ttl: Optional[Seconds],
        copy: Copying,
    ) -> list[SandboxInfo]:
        if is_a(int, "count", count) < 1:
            raise ValueError(f"count={count!r}: at least 1 fork")
        request = made(
            sandbox_service_pb2.SandboxServiceForkRequest,
            id=self.id,
            count=count,
            snapshot=optional("snapshot", snapshot),
            stop=stop,
            ttl_ms=lifetime_ms(ttl),
        )
        allow_copy(request, *copy)
        response = await self._client._call(methods.FORK, request)
        return [requests.sandbox_info(message) for message in response.sandboxes]

    async def _snapshot(
        self, name: Optional[str], stop: bool, keep: bool, copy: Copying
    ) -> SnapshotInfo:
        request = made(
            snapshot_service_pb2.SnapshotServiceCreateRequest,
            sandbox=self.id,
            name=optional("name", name),
            stop=stop,
            keep=keep,
        )
        allow_copy(request, *copy)
        response = await self._client._call(methods.CREATE_SNAPSHOT, request)
        return requests.snapshot_info(response.snapshot)

    async def _snapshots(self) -> AsyncIterator[SnapshotInfo]:
        request = made(snapshot_service_pb2.SnapshotServiceListRequest, sandbox=self.id)
        async for page in self._client._pages(methods.LIST_SNAPSHOTS, request):
            for message in page.snapshots:
                yield requests.snapshot_info(message)

    async def _get_snapshot(self, name: str) -> SnapshotInfo:
        request = made(snapshot_service_pb2.SnapshotServiceGetRequest, sandbox=self.id, name=name)
        response = await self._client._call(methods.GET_SNAPSHOT, request)
        return requests.snapshot_info(response.snapshot)

    async def _diff(
        self, first: str, second: Optional[str], path: Optional[FilePath]
    ) -> AsyncIterator[Change]:
        request = made(
            snapshot_service_pb2.SnapshotServiceDiffRequest,
            sandbox_id=self.id,
            first=first,
            second=optional("second", second),
            page_size=1000,
        )
        if path is not None:
            request.path = path_bytes(path)
        async for page in self._client._pages(methods.DIFF_SNAPSHOTS, request):
            for message in page.changes:
                yield change(message)

    async def _patch(self, path: FilePath, first: str, second: Optional[str]) -> Optional[bytes]:
        request = made(
            snapshot_service_pb2.SnapshotServiceDiffFileRequest,
            sandbox_id=self.id,
            first=first,
            second=optional("second", second),
            path=path_bytes(path),
        )
        stream: Stream[Any] = await self._client._stream(methods.DIFF_FILE, request)
        text, binary = bytearray(), False
        try:
            while (message := await stream._get(None)) is not None:
                text += message.data
                binary = binary or message.binary
        finally:
            stream.cancel()
        return None if binary else bytes(text)

    async def _restore(self, name: str, stop: bool) -> None:
        request = made(
            snapshot_service_pb2.SnapshotServiceRestoreRequest,
            sandbox=self.id,
            name=name,
            stop=stop,
        )
        await self._client._call(methods.RESTORE_SNAPSHOT, request)

    async def _delete_snapshot(self, name: str) -> None:
        request = made(
            snapshot_service_pb2.SnapshotServiceDeleteRequest, sandbox=self.id, name=name
        )
        await self._client._call(methods.DELETE_SNAPSHOT, request)

    async def _make_template(
        self,
        name: str,
        snapshot: Optional[str],
        stop: bool,
        env: Optional[Mapping[str, str]],
        workdir: Optional[str],
        replace: bool,
    ) -> TemplateInfo:
        request = made(
            template_service_pb2.TemplateServiceCreateRequest,
            name=name,
            sandbox=self.id,
            snapshot=optional("snapshot", snapshot),
            stop=stop,
            replace=replace,
            workdir=optional("workdir", workdir),
            env=[
                process_service_pb2.EnvironmentVariable(name=key, value=value)
                for key, value in requests.texts("env", env).items()
            ],
        )
        response = await self._client._call(methods.CREATE_TEMPLATE, request)
        return requests.template_info(response.template)

    async def _delete(self) -> None:
        request = made(sandbox_service_pb2.SandboxServiceDeleteRequest, id=self.id)
        with contextlib.suppress(NotFound):
            await self._client._call(methods.DELETE, request)
