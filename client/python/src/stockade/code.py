# SPDX-License-Identifier: Apache-2.0
"""Cells of code and the contexts that they run in, for threads and asyncio alike (``both``)."""

from __future__ import annotations

import contextlib
import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from stockade import methods, requests
from stockade.errors import NotFound, ProtocolError
from stockade.fields import is_a, made, optional, wrong
from stockade.limits import Seconds, lifetime_ms
from stockade.live import fork_context, make_checkpoint, restore_context
from stockade.result import Bill, LimitHit
from stockade.simulating import Simulation, simulation
from stockade.v1 import code_service_pb2, process_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.calls import Caller, Stream
    from stockade.limits import Limits
    from stockade.live import Checkpoint
    from stockade.network import Network

#: Called with text as a cell writes it.
TextCallback = Callable[[str], object]
RESULT_BYTES_MAX = 64 * 1024 * 1024  # of all results of one cell


class CodeStatus(enum.Enum):
    """How a cell ended."""

    #: A status of a newer broker that this package does not know.
    UNKNOWN = 0
    #: It reached its end.
    OK = 1
    #: It raised an error: see ``Execution.error``.
    ERROR = 2
    #: It was interrupted; the context keeps its variables.
    INTERRUPTED = 3
    #: Its interpreter ended: see ``Execution.reason``. The context has lost its variables.
    CRASHED = 4
    #: It exceeded its timeout.
    TIMEOUT = 5
    #: Its context was restarted or deleted, or its sandbox was.
    CANCELLED = 6


@dataclass(frozen=True)
class CodeResult:
    """A result: the value of the last expression, or something that the cell displayed."""

    #: Its forms by MIME type, such as ``text/plain``, ``text/html`` or ``image/png``.
    forms: Mapping[str, bytes] = field(default_factory=dict)
    #: The value of the last expression.
    main: bool = False

    def _text(self, mime: str) -> Optional[str]:
        data = self.forms.get(mime)
        return None if data is None else data.decode("utf-8", "replace")

    def _json(self, mime: str) -> Any:
        data = self.forms.get(mime)
        try:
            return None if data is None else json.loads(data)
        except ValueError:
            return None

    @property
    def text(self) -> Optional[str]:
        """As text, or None."""
        return self._text("text/plain")

    @property
    def html(self) -> Optional[str]:
        """As HTML, or None. It was made by the code of the cell: do not trust it."""
        return self._text("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """As Markdown, or None."""
        return self._text("text/markdown")

    @property
    def svg(self) -> Optional[str]:
        """As SVG, or None."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> Optional[bytes]:
        """As a PNG picture, or None."""
        return self.forms.get("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """As a JPEG picture, or None."""
        return self.forms.get("image/jpeg")

    @property
    def pdf(self) -> Optional[bytes]:
        """As PDF, or None."""
        return self.forms.get("application/pdf")

    @property
    def latex(self) -> Optional[str]:
        """As LaTeX, or None."""
        return self._text("text/latex")

    @property
    def json(self) -> Any:
        """The JSON form, decoded, or None."""
        return self._json("application/json")

    @property
    def chart(self) -> Any:
        """The data of a figure, decoded, or None."""
        return self._json("e2b/chart")

    @property
    def data(self) -> Any:
        """The columns of a table, decoded, or None."""
        return self._json("e2b/data")


@dataclass(frozen=True)
class CodeFailure:
    """An error that a cell did not handle."""

    #: Its kind, such as ``ZeroDivisionError``; of bash ``ExitStatus``.
    name: str
    #: Its text.
    value: str
    #: Where it happened.
    traceback: str


@dataclass(frozen=True)
class Execution:
    """What a cell did."""

    #: How it ended.
    status: CodeStatus
    #: What it wrote to stdout.
    stdout: str = ""
    #: What it wrote to stderr.
    stderr: str = ""
    #: Its results, in order.
    results: tuple[CodeResult, ...] = ()
    #: The error that ended it, or None.
    error: Optional[CodeFailure] = None
    #: Number of cells that the interpreter has run with this one; None: unknown.
    execution_count: Optional[int] = None
    #: One sentence, if it crashed, timed out or was cancelled.
    reason: str = ""
    #: The variables of the context are lost.
    lost: bool = False
    #: The resources that the cell used.
    bill: Bill = field(default_factory=Bill)
    #: The limit that ended the interpreter, or None.
    limit_hit: Optional[LimitHit] = None
    #: Where it ran.
    context_id: str = ""
    #: The sandbox of the context.
    sandbox_id: str = ""
    #: Of a cell with ``simulate``: what it would have changed and sent.
    simulation: Optional[Simulation] = None

    @property
    def ok(self) -> bool:
        """It reached its end without an error."""
        return self.status is CodeStatus.OK

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression as text, or None."""
        return next((r.text for r in self.results if r.main), None)


@dataclass(frozen=True)
class ContextInfo:
    """A context, as the broker describes it."""

    #: An opaque text of at most 48 characters.
    id: str
    #: The sandbox that it belongs to.
    sandbox_id: str
    #: ``python``, ``bash`` or ``javascript``.
    language: str
    #: The folder in which its interpreter starts.
    cwd: str
    #: ``starting``, ``idle``, ``busy``, ``down`` (it has no interpreter) or ``unknown``.
    state: str
    #: Number of cells that its interpreter has run.
    execution_count: int
    #: Cells that wait for it.
    waiting: int
    #: Cells without a context use it.
    default: bool
    #: Its interpreter, for ``Sandbox.attach``; empty: it has none.
    process_id: str


STATES = {1: "starting", 2: "idle", 3: "busy", 4: "down"}


def context_info(message: code_service_pb2.CodeContext) -> ContextInfo:
    """Convert a message."""
    return ContextInfo(
        id=message.id,
        sandbox_id=message.sandbox_id,
        language=message.language,
        cwd=message.workdir,
        state=STATES.get(message.state, "unknown"),
        execution_count=message.execution_count,
        waiting=message.waiting,
        default=message.default,
        process_id=message.process_id,
    )


def environment(
    env: Optional[Mapping[str, str]],
) -> list[process_service_pb2.EnvironmentVariable]:
    """Convert variables."""
    return [
        made(process_service_pb2.EnvironmentVariable, name=name, value=value)
        for name, value in requests.texts("env", env).items()
    ]


class Collector:
    """Folds the events of one cell into an ``Execution``."""

    def __init__(
        self,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        on_result: Optional[Callable[[CodeResult], object]] = None,
    ) -> None:
        self._callbacks = {1: on_stdout, 2: on_stderr}
        self._on_result = on_result
        self._output = {1: bytearray(), 2: bytearray()}
        self._results: list[CodeResult] = []
        self._forms: dict[str, bytearray] = {}
        self._bytes = 0
        self._error: Optional[CodeFailure] = None
        self._begin = code_service_pb2.CodeBegin()
        self.execution: Optional[Execution] = None

    def feed(self, event: code_service_pb2.CodeEvent) -> None:
        """Take one event."""
        which = event.WhichOneof("event")
        if which == "begin":
            self._begin = event.begin
        elif which == "output":
            self._take_output(event.output)
        elif which == "result":
            self._part(event.result)
        elif which == "error":
            e = event.error
            self._error = CodeFailure(e.name, e.value, e.traceback)
        elif which == "end":
            self.execution = self._finish(event.end)

    def _take_output(self, output: code_service_pb2.CodeOutput) -> None:
        stream = 2 if output.stream == process_service_pb2.STREAM_STDERR else 1
        self._output[stream] += output.data
        callback = self._callbacks[stream]
        if callback is not None:
            callback(output.data.decode("utf-8", "replace"))

    def _part(self, part: code_service_pb2.CodeResultPart) -> None:
        self._bytes += len(part.data)
        if self._bytes > RESULT_BYTES_MAX:
            raise ProtocolError(f"the results of the cell exceed {RESULT_BYTES_MAX} bytes")
        self._forms.setdefault(part.mime_type, bytearray()).extend(part.data)
        if not part.last:
            return
        result = CodeResult({mime: bytes(data) for mime, data in self._forms.items()}, part.main)
        self._forms = {}
        self._results.append(result)
        if self._on_result is not None:
            self._on_result(result)

    def _finish(self, end: code_service_pb2.CodeEnd) -> Execution:
        known = end.status in CodeStatus._value2member_map_
        hit = LimitHit.from_message(end.limit_hit) if end.HasField("limit_hit") else None
        return Execution(
            status=CodeStatus(end.status) if known else CodeStatus.UNKNOWN,
            stdout=self._output[1].decode("utf-8", "replace"),
            stderr=self._output[2].decode("utf-8", "replace"),
            results=tuple(self._results),
            error=self._error,
            execution_count=end.execution_count or None,
            reason=end.reason,
            lost=end.lost,
            bill=Bill.from_message(end.bill),
            limit_hit=hit,
            context_id=self._begin.context_id,
            sandbox_id=self._begin.sandbox_id,
            simulation=simulation(end.simulation) if end.HasField("simulation") else None,
        )


async def execute(
    client: Caller, request: code_service_pb2.RunCodeRequest, collector: Collector
) -> Execution:
    """Run a cell to its end. If that is interrupted, the cell is, too."""
    stream: Stream[Any] = await client._stream(methods.RUN_CODE, request)
    try:
        while collector.execution is None:
            message = await stream._get(None)
            if message is None:
                raise ProtocolError("the broker ended the stream without an end")
            collector.feed(message.event)
    except BaseException:
        stream.cancel()
        raise
    stream._leave()
    return collector.execution


def fresh_request(
    code: str,
    language: str,
    *,
    timeout: Optional[Seconds],
    template: Optional[str],
    limits: Optional[Limits],
    network: Union[Network, str, None],
    env: Optional[Mapping[str, str]],
    volumes: Optional[Mapping[str, str]],
) -> code_service_pb2.RunCodeRequest:
    """Make the request for a cell in a fresh sandbox."""
    return made(
        code_service_pb2.RunCodeRequest,
        code=code,
        language=language,
        timeout_ms=lifetime_ms(timeout, "timeout"),
        template=optional("template", template),
        limits=requests.limits_message(limits),
        network=requests.network_policy(network),
        env=environment(env),
        volumes=requests.mounts(volumes),
    )


async def create_context(
    client: Caller,
    sandbox_id: str,
    language: str,
    cwd: Optional[str],
    env: Optional[Mapping[str, str]],
) -> ContextInfo:
    """Make a context."""
    request = made(
        code_service_pb2.CreateContextRequest,
        sandbox_id=sandbox_id,
        language=language,
        workdir=optional("cwd", cwd),
        env=environment(env),
    )
    return context_info((await client._call(methods.CREATE_CONTEXT, request)).context)


async def list_contexts(client: Caller, sandbox_id: str) -> list[ContextInfo]:
    """List the contexts of a sandbox."""
    request = made(code_service_pb2.ListContextsRequest, sandbox_id=sandbox_id)
    answer = await client._call(methods.LIST_CONTEXTS, request)
    return [context_info(message) for message in answer.contexts]


class Cells:
    """A context: an interpreter in a sandbox that keeps its variables."""

    def __init__(self, client: Caller, info: ContextInfo) -> None:
        self._client = client
        #: The last state that the broker sent.
        self.info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.language}>"

    @property
    def id(self) -> str:
        """An opaque text of at most 48 characters."""
        return self.info.id

    async def _run(self, code: str, timeout: Optional[Seconds], collector: Collector) -> Execution:
        request = made(
            code_service_pb2.RunCodeRequest,
            code=code,
            context_id=self.id,
            timeout_ms=lifetime_ms(timeout, "timeout"),
        )
        return await execute(self._client, request, collector)

    async def _restart(self) -> None:
        request = made(code_service_pb2.RestartContextRequest, context_id=self.id)
        await self._client._call(methods.RESTART_CONTEXT, request)

    async def _interrupt(self) -> None:
        request = made(code_service_pb2.InterruptContextRequest, context_id=self.id)
        await self._client._call(methods.INTERRUPT_CONTEXT, request)

    async def _checkpoint(self, name: Optional[str]) -> Checkpoint:
        return await make_checkpoint(self._client, self.id, name)

    async def _restore(self, checkpoint: Union[Checkpoint, str]) -> None:
        self.info = context_info(await restore_context(self._client, self.id, checkpoint))

    async def _fork(self, checkpoint: Union[Checkpoint, str, None]) -> ContextInfo:
        return context_info(await fork_context(self._client, self.id, checkpoint))

    async def _delete(self) -> None:
        request = made(code_service_pb2.DeleteContextRequest, context_id=self.id)
        with contextlib.suppress(NotFound):
            await self._client._call(methods.DELETE_CONTEXT, request)


def _id_of(context: Union[Cells, ContextInfo, str]) -> str:
    if not isinstance(context, (Cells, ContextInfo, str)):
        raise wrong("context", context, "a Context or its id")
    return optional("context", context if isinstance(context, str) else context.id)


def sandbox_request(
    sandbox_id: str,
    code: str,
    *,
    language: str,
    context: Union[Cells, str, None],
    timeout: Optional[Seconds],
) -> code_service_pb2.RunCodeRequest:
    """Make the request for a cell in a sandbox."""
    request = made(
        code_service_pb2.RunCodeRequest, code=code, timeout_ms=lifetime_ms(timeout, "timeout")
    )
    if context is not None:
        if language:
            raise ValueError(f"language={language!r}: context has one already; omit one of the two")
        request.context_id = _id_of(context)
    else:
        request.sandbox_id = sandbox_id
        request.language = is_a(str, "language", language)
    return request
