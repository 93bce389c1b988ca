# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once, for threads and asyncio alike (``both``).

The jobs go to the broker as far as its window permits: jobs that it accepted and whose results this
program has not confirmed. A result is confirmed when the program asks for the one after it. After a
lost connection the batch goes on where it was; no job is executed twice.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from stockade import methods, requests
from stockade.errors import (
    CallError,
    ConnectionLost,
    DeadlineExceeded,
    NotFound,
    ProtocolError,
    Unavailable,
)
from stockade.fields import made, optional, wrong
from stockade.limits import lifetime_ms
from stockade.result import Result
from stockade.v1 import process_service_pb2

if TYPE_CHECKING:
    from stockade.calls import Caller, Stream
    from stockade.limits import Limits, Seconds
    from stockade.network import Network
    from stockade.requests import Data

_ADD_JOBS_MAX = 256  # in one request
_ADD_BYTES_MAX = 2 * 1024 * 1024


@dataclass(frozen=True)
class BatchJob:
    """One job of a batch."""

    #: Program and arguments.
    args: tuple[str, ...]
    #: Any text; it comes back with the result.
    key: str = ""
    #: Environment variables.
    env: Optional[Mapping[str, str]] = None
    #: Working directory.
    cwd: Optional[str] = None
    #: Its whole stdin, at most 1 MiB.
    stdin: Data = field(default=b"", repr=False)
    #: Limits; those that are not set come from the batch.
    limits: Optional[Limits] = None
    #: Wall-clock limit.
    timeout: Optional[Seconds] = None

    def to_message(self) -> process_service_pb2.BatchJob:
        """Return it as a message. ``TypeError`` or ``ValueError`` names what is wrong."""
        given: object = self.args
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise wrong("args", given, "a tuple or list of text")
        stdin = requests.as_bytes(self.stdin)
        if len(stdin) > requests.STDIN_BYTES_MAX:
            raise ValueError(f"stdin: {len(stdin)} bytes; at most 1 MiB in a batch")
        return made(
            process_service_pb2.BatchJob,
            key=self.key,
            command=requests.command(tuple(self.args), env=self.env, cwd=self.cwd, stdin=stdin),
            limits=requests.job_limits(self.limits, self.timeout),
        )


@dataclass(frozen=True)
class BatchResult:
    """The end of one job of a batch."""

    #: Position of the job in the batch, from 0.
    number: int
    #: ``BatchJob.key``.
    key: str
    #: How it ended, with its output.
    result: Result


#: Jobs of a batch: each a ``BatchJob``, or its arguments.
BatchSource = Union[Iterable[Union[BatchJob, Iterable[str]]], AsyncIterable[Any]]


RESETS: dict[str, process_service_pb2.BatchReset] = {
    "sandbox": process_service_pb2.BATCH_RESET_SANDBOX,
    "files": process_service_pb2.BATCH_RESET_FILES,
}


def run_batch_request(
    *,
    key: Optional[str],
    template: Optional[str],
    limits: Optional[Limits],
    timeout: Optional[Seconds],
    network: Union[Network, str, None],
    reset: str,
    warm: Optional[str],
    parallel: int,
    window: int,
    deadline: Optional[Seconds],
    volumes: Optional[Mapping[str, str]],
) -> process_service_pb2.RunBatchRequest:
    """Return the request for a new batch."""
    if reset not in RESETS:
        raise ValueError(f"reset: one of {', '.join(RESETS)}, not {reset!r}")
    return made(
        process_service_pb2.RunBatchRequest,
        key=optional("key", key) or secrets.token_hex(16),
        template=optional("template", template),
        limits=requests.job_limits(limits, timeout),
        network=requests.network_policy(network),
        reset=RESETS[reset],
        warm=optional("warm", warm),
        parallel=parallel,
        window=window,
        deadline_ms=lifetime_ms(deadline, "deadline"),
        volumes=requests.mounts(volumes),
    )


class Jobs:
    """A batch that runs: what both kinds of iterators share."""

    def __init__(
        self, client: Caller, jobs: BatchSource, request: process_service_pb2.RunBatchRequest
    ) -> None:
        self._client = client
        self._request = request
        if isinstance(jobs, (str, bytes)) or not isinstance(jobs, (Iterable, AsyncIterable)):
            raise wrong("jobs", jobs, "an iterable of BatchJob objects or of lists of text")
        self._source: Union[Iterator[Any], AsyncIterator[Any], None] = (
            jobs.__aiter__() if isinstance(jobs, AsyncIterable) else iter(jobs)
        )
        self._stream: Optional[Stream[Any]] = None
        self._window = 0
        self._pending: deque[process_service_pb2.BatchJob] = deque()  # read, not accepted
        self._running: dict[int, str] = {}  # accepted, without a result: number and key
        self._accepted = 0
        self._received = 0  # results that the program was given, but for the last one
        self._given = 0
        self._confirmed = 0
        self._said_last = False
        self._stopped: Optional[CallError] = None  # why the broker takes no more jobs
        self._out = {"stdout": bytearray(), "stderr": bytearray()}
        self._over = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key} {self._given} of {self._accepted} results>"

    @property
    def key(self) -> str:
        """The key of the batch, unique among those of the caller."""
        return self._request.key

    @property
    def unfinished(self) -> Mapping[int, str]:
        """Jobs that the broker accepted and whose result did not come yet: number and key.

        After ``ConnectionLost`` it is unknown whether they were executed.
        """
        return dict(self._running)

    async def _pull(self) -> None:
        """Read jobs, as many as one request carries and the window has room for."""
        room = self._window - (self._accepted - self._received)
        size = sum(job.ByteSize() for job in self._pending)
        while (
            self._source is not None
            and len(self._pending) < min(room, _ADD_JOBS_MAX)
            and size < _ADD_BYTES_MAX
        ):
            try:
                if isinstance(self._source, AsyncIterator):
                    job = await self._source.__anext__()
                else:
                    job = next(self._source)
            except (StopIteration, StopAsyncIteration):
                self._source = None
                return
            if not isinstance(job, BatchJob):
                job = BatchJob(args=job)
            self._pending.append(job.to_message())
            size += self._pending[-1].ByteSize()

    async def _add(self) -> None:
        """Send jobs, and confirm results, where that is worth a request."""
        outstanding = self._accepted - self._received
        unconfirmed = self._received - self._confirmed
        few = max(1, self._window // 4)
        takes = self._stopped is None and self._window - outstanding >= few
        if takes:
            await self._pull()
        jobs = list(self._pending) if takes else []
        last = self._source is None and self._stopped is None and len(jobs) == len(self._pending)
        ends = last and not self._said_last
        confirms = unconfirmed >= few or (unconfirmed and not outstanding)
        if not (jobs or ends or confirms):
            return
        request = made(
            process_service_pb2.AddToBatchRequest,
            key=self.key,
            first=self._accepted,
            jobs=jobs,
            last=last,
            received=self._received,
        )
        try:
            response = await self._client._call(methods.ADD_TO_BATCH, request)
        except (DeadlineExceeded, Unavailable) as e:
            if isinstance(e, ConnectionLost) or self._stopped is not None or not jobs:
                raise
            self._stopped = e
            return
        except NotFound:  # it has just ended, or the broker was restarted: the stream knows which
            if self._stopped is None:
                self._stopped = DeadlineExceeded("the batch ended before all jobs were accepted")
            return
        self._confirmed = self._received
        self._said_last |= last and response.accepted == self._accepted + len(jobs)
        while self._accepted < response.accepted:
            self._running[self._accepted] = self._pending.popleft().key
            self._accepted += 1

    async def _open(self, *, resume: bool) -> None:
        request = self._request
        if resume:
            request = made(
                process_service_pb2.RunBatchRequest, key=self.key, resume=True, received=self._given
            )
        self._stream = await self._client._stream(methods.RUN_BATCH, request, resume=resume)
        message = await self._stream._get(None)
        if message is None or message.WhichOneof("event") != "begun":
            raise ProtocolError("the broker did not begin the batch with the message for that")
        self._window = message.begun.window
        self._said_last |= message.begun.last

    async def _again(self, lost: ConnectionLost) -> None:
        """Follow the batch over another connection."""
        for kept in self._out.values():
            kept.clear()
        try:
            await self._open(resume=True)
        except NotFound as e:
            if not self._running and self._said_last and not self._pending:
                self._over = True  # all results came; only its end was lost
                return
            raise lost from e

    def _has_ended(self) -> bool:
        return self._over

    async def _next(self) -> Optional[BatchResult]:
        if self._has_ended():
            return None
        self._received = self._given
        try:
            if self._stream is None:
                await self._open(resume=False)
            while not self._has_ended():
                result = await self._step()
                if result is not None:
                    return result
        except BaseException:
            self._close()
            raise
        if self._stopped is not None:
            raise self._stopped
        return None

    async def _step(self) -> Optional[BatchResult]:
        assert self._stream is not None
        try:
            await self._add()
            message = await self._stream._get(None)
        except ConnectionLost as lost:
            await self._again(lost)
            return None
        if message is None:
            raise ProtocolError("the broker ended the batch without the message for that")
        which = message.WhichOneof("event")
        if which == "output":
            error = message.output.stream == process_service_pb2.STREAM_STDERR
            self._out["stderr" if error else "stdout"] += message.output.data
        elif which == "finished":
            return self._finished(message.finished)
        elif which == "ended":
            self._over = True
            self._stream._leave()
        return None

    def _finished(self, message: process_service_pb2.RunBatchResponse.Finished) -> BatchResult:
        if message.sequence != self._given + 1:
            raise ProtocolError(f"result {message.sequence} came after result {self._given}")
        self._given += 1
        self._running.pop(message.number, None)
        cut = message.result.bill.output_cut_bytes.value
        result = Result.from_message(
            message.result,
            stdout=bytes(self._out["stdout"]),
            stderr=bytes(self._out["stderr"]),
            missing=message.lost_bytes + cut,
            process_id=message.process_id,
        )
        for kept in self._out.values():
            kept.clear()
        return BatchResult(message.number, message.key, result)

    def _close(self) -> None:
        """Cancel what is left of it."""
        self._over = True
        if self._stream is not None:
            self._stream.cancel()
