"""Sandboxes and one-shot jobs, for programs with threads."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Optional, Union

from stockade import methods, requests
from stockade.client import Client, MessageStream, default_client
from stockade.errors import (
    AlreadyExists,
    CallError,
    NotFound,
    ResourceExhausted,
    StockadeError,
)
from stockade.events import KEEP_BYTES, Collector, LineCallback
from stockade.limits import Limits, Seconds, to_ms
from stockade.process import Process
from stockade.requests import Feed, ProcessInfo, SandboxInfo, Stdin
from stockade.v1 import process_service_pb2, sandbox_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from stockade.network import Network
    from stockade.result import Result

_END_S = 5.0  # seconds for ending what an interrupted run may have started


class Sandbox:
    r"""A sandbox that the caller keeps. As a context manager it is deleted at the end of the block.

    >>> with Sandbox.create(timeout=300) as sbx:                                    # doctest: +SKIP
    ...     result = sbx.run("python3", "-c", "print(6 * 7)")
    >>> result.stdout, result.exit_code                                             # doctest: +SKIP
    ('42\n', 0)
    """

    def __init__(self, client: Client, info: SandboxInfo) -> None:
        self._client = client
        #: What the broker last said about it; ``refresh`` asks again.
        self.info = info

    @classmethod
    def create(
        cls,
        template: Optional[str] = None,
        *,
        timeout: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        network: Union[Network, str, None] = None,
        metadata: Optional[Mapping[str, str]] = None,
        name: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> Sandbox:
        """Make a sandbox.

        ``template``  its name; None: ``default``
        ``timeout``   seconds until the broker deletes it by itself; None: the template's (300)
        ``limits``    what it may use; None: the template's
        ``network``   a ``Network``, or ``"none"`` or ``"open"``; None: the template's
        ``metadata``  labels: at most 32, keys of 64 and values of 256 bytes
        ``name``      unique among the caller's own sandboxes
        ``client``    None: the one of ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

        Raises ``InvalidArgument`` (a limit above the template's maximum), ``ResourceExhausted``
        (too many sandboxes), ``AlreadyExists`` (the name), ``FailedPrecondition`` (a network mode
        that the host cannot enforce).
        """
        client = client or default_client()
        request = requests.create_request(
            template=template,
            limits=limits,
            network=network,
            metadata=metadata,
            timeout=timeout,
            name=name,
        )
        response = client.call(methods.CREATE, request)
        return cls(client, requests.sandbox_info(response.sandbox))

    @classmethod
    def connect(cls, id_or_name: str, *, client: Optional[Client] = None) -> Sandbox:
        """Find a sandbox that was made before.

        ``NotFound``: there is none, or it is somebody else's.
        """
        client = client or default_client()
        request = sandbox_service_pb2.SandboxServiceGetRequest(id=id_or_name)
        return cls(client, requests.sandbox_info(client.call(methods.GET, request).sandbox))

    @classmethod
    def list(
        cls,
        *,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[Client] = None,
    ) -> Iterator[SandboxInfo]:
        """Iterate over the caller's sandboxes, oldest first; with all labels of ``metadata``."""
        client = client or default_client()
        request = sandbox_service_pb2.SandboxServiceListRequest(metadata=metadata)
        while True:
            page = client.call(methods.LIST, request)
            for message in page.sandboxes:
                yield requests.sandbox_info(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    @property
    def id(self) -> str:
        """32 lower-case hex digits."""
        return self.info.id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.delete()
        except CallError:
            if error is None:
                raise

    def run(
        self,
        *args: str,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        stdin: Optional[Stdin] = None,
        timeout: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        terminal: Optional[tuple[int, int]] = None,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: int = KEEP_BYTES,
        check: bool = False,
    ) -> Result:
        """Run a command and wait for its end.

        ``env``        added to, or replacing, the template's environment
        ``cwd``        absolute folder; None: the template's
        ``stdin``      bytes, text, or an iterable of bytes; None: the command sees end-of-file
        ``timeout``    seconds of wall-clock time, after which the broker ends it:
                       ``Result.timed_out``
        ``limits``     further limits of this job: ``cpu_time``, ``files``, ``file_size``,
                       ``output``
        ``terminal``   (rows, columns): give it a terminal; stdout and stderr are then one stream
        ``on_stdout``  called with each line of stdout as text, without its line end, as it comes
        ``on_stderr``  the same for stderr
        ``keep``       bytes of stdout and of stderr that the result keeps; the rest is only counted
        ``check``      raise ``JobError`` unless it exits with code 0

        When waiting is interrupted (Ctrl-C, an exception in a callback) the command is killed.
        Raises ``NotFound`` when the sandbox is gone, ``FailedPrecondition`` when it is paused.
        """
        feed = Feed(stdin)
        process = self._start(
            requests.command(
                args,
                env=env,
                cwd=cwd,
                stdin=feed.inline,
                stdin_open=feed.more is not None,
                terminal=terminal,
            ),
            requests.job_limits(limits, timeout),
            Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep),
            foreground=True,
        )
        return _to_end(process, feed, check=check)

    def start(
        self,
        *args: str,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        stdin: bytes = b"",
        stdin_open: bool = False,
        timeout: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        terminal: Optional[tuple[int, int]] = None,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: int = KEEP_BYTES,
    ) -> Process:
        """Start a command and return at once.

        It goes on when this program goes away: ``attach`` finds it again.

        ``stdin`` is written first (at most 1 MiB); with ``stdin_open`` more can be sent, else it is
        closed then. A terminal's input is always open. The callbacks are called while somebody
        reads (``wait``, or an iteration). The other arguments are those of ``run``.
        """
        return self._start(
            requests.command(
                args,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdin_open=stdin_open or terminal is not None,
                terminal=terminal,
            ),
            requests.job_limits(limits, timeout),
            Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep),
        )

    def _start(
        self,
        command: process_service_pb2.Command,
        limits: Any,
        collector: Collector,
        *,
        foreground: bool = False,
    ) -> Process:
        request = process_service_pb2.StartRequest(
            sandbox_id=self.id, command=command, limits=limits
        )
        key = secrets.token_hex(16)
        try:
            return self._start_once(request, key, collector)
        except ResourceExhausted as e:
            if e.reason != "IDEMPOTENCY_KEYS":  # the broker remembers no more of them
                raise
            return self._start_once(request, "", collector)
        except StockadeError:
            raise
        except BaseException:
            if foreground:  # it may have been started all the same: its key finds it again
                with contextlib.suppress(StockadeError):
                    self._start_once(request, key, Collector(), timeout=_END_S)._abort()
            raise

    def _start_once(
        self,
        request: process_service_pb2.StartRequest,
        key: str,
        collector: Collector,
        timeout: Optional[float] = None,
    ) -> Process:
        stream: MessageStream[Any]
        try:
            stream = self._client.stream(
                methods.START, request, timeout=timeout, idempotency_key=key
            )
        except AlreadyExists as e:  # it had been started when a connection broke
            if e.reason != "ALREADY_EXECUTED" or "process_id" not in e.info:
                raise
            attach = process_service_pb2.AttachRequest(process_id=e.info["process_id"])
            stream = self._client.stream(methods.ATTACH, attach, timeout=timeout)
        return Process(self._client, stream, collector, resumable=True)

    def attach(
        self,
        process_id: str,
        *,
        offset: int = 0,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: int = KEEP_BYTES,
    ) -> Process:
        """Find a process again, and read its output from ``offset`` on.

        The broker keeps the last 1 MiB that nobody read, and a process for 30 s after its end.
        ``NotFound`` otherwise.
        """
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        collector.offset = offset
        request = process_service_pb2.AttachRequest(process_id=process_id, offset=offset)
        stream = self._client.stream(methods.ATTACH, request)
        return Process(self._client, stream, collector, resumable=True)

    def processes(self) -> Iterator[ProcessInfo]:
        """Iterate over its processes: those that run, and those that ``attach`` still finds."""
        request = process_service_pb2.ProcessServiceListRequest(sandbox_id=self.id)
        while True:
            page = self._client.call(methods.LIST_PROCESSES, request)
            for message in page.processes:
                yield requests.process_info(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def refresh(self) -> SandboxInfo:
        """Ask the broker for its present state. ``NotFound``: it is gone."""
        request = sandbox_service_pb2.SandboxServiceGetRequest(id=self.id)
        self.info = requests.sandbox_info(self._client.call(methods.GET, request).sandbox)
        return self.info

    def update(
        self,
        *,
        timeout: Optional[Seconds] = None,
        metadata: Optional[Mapping[str, str]] = None,
        network: Union[Network, str, None] = None,
    ) -> SandboxInfo:
        """Change it.

        ``timeout``   let it live for so many seconds from now
        ``metadata``  labels to set (empty: remove one)
        ``network``   another policy, whole; it holds at once, and cuts connections that it forbids
        """
        request = sandbox_service_pb2.SandboxServiceUpdateRequest(
            id=self.id,
            ttl_ms=to_ms(timeout) if timeout is not None else 0,
            metadata=metadata,
            network=requests.network_policy(network),
        )
        self.info = requests.sandbox_info(self._client.call(methods.UPDATE, request).sandbox)
        return self.info

    def pause(self) -> SandboxInfo:
        """Freeze every process in it. Wall-clock limits stand still."""
        request = sandbox_service_pb2.SandboxServicePauseRequest(id=self.id)
        self.info = requests.sandbox_info(self._client.call(methods.PAUSE, request).sandbox)
        return self.info

    def resume(self) -> SandboxInfo:
        """Let a paused sandbox go on."""
        request = sandbox_service_pb2.SandboxServiceResumeRequest(id=self.id)
        self.info = requests.sandbox_info(self._client.call(methods.RESUME, request).sandbox)
        return self.info

    def delete(self) -> None:
        """End every job in it and remove it. Nothing happens when it is gone already."""
        request = sandbox_service_pb2.SandboxServiceDeleteRequest(id=self.id)
        with contextlib.suppress(NotFound):
            self._client.call(methods.DELETE, request)


def start(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: bytes = b"",
    stdin_open: bool = False,
    timeout: Optional[Seconds] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    metadata: Optional[Mapping[str, str]] = None,
    terminal: Optional[tuple[int, int]] = None,
    on_stdout: Optional[LineCallback] = None,
    on_stderr: Optional[LineCallback] = None,
    keep: int = KEEP_BYTES,
    deadline: Optional[float] = None,
    client: Optional[Client] = None,
) -> Process:
    """Start a command in a fresh sandbox that is destroyed after it.

    Iterate over the ``Process`` for its output. The job ends when the reader goes away. Output
    never outruns the reader: the job waits, as with a pipe. The arguments are those of ``run``.
    """
    command = requests.command(
        args,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdin_open=stdin_open or terminal is not None,
        terminal=terminal,
    )
    return _one_shot(
        client or default_client(),
        process_service_pb2.RunRequest(
            command=command,
            template=template or "",
            limits=requests.job_limits(limits, timeout),
            network=requests.network_policy(network),
            metadata=metadata,
        ),
        Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep),
        deadline,
    )


def run(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Optional[Stdin] = None,
    timeout: Optional[Seconds] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    metadata: Optional[Mapping[str, str]] = None,
    terminal: Optional[tuple[int, int]] = None,
    on_stdout: Optional[LineCallback] = None,
    on_stderr: Optional[LineCallback] = None,
    keep: int = KEEP_BYTES,
    check: bool = False,
    deadline: Optional[float] = None,
    client: Optional[Client] = None,
) -> Result:
    r"""Run a command in a fresh sandbox that is destroyed after it, and wait for its end.

    ``template``   its name; None: ``default``
    ``env``        added to, or replacing, the template's environment
    ``cwd``        absolute folder; None: the template's
    ``stdin``      bytes, text, or an iterable of bytes; None: the command sees end-of-file
    ``timeout``    seconds of wall-clock time, after which the broker ends it: ``Result.timed_out``
    ``limits``     what it may use; None: the template's
    ``network``    a ``Network``, or ``"none"`` or ``"open"``; None: the template's
    ``metadata``   labels that are kept with the record
    ``terminal``   (rows, columns): give it a terminal; stdout and stderr are then one stream
    ``on_stdout``  called with each line of stdout as text, without its line end, as it comes
    ``on_stderr``  the same for stderr
    ``keep``       bytes of stdout and of stderr that the result keeps; the rest is only counted
    ``check``      raise ``JobError`` unless it exits with code 0
    ``deadline``   seconds for the whole call, queue included: ``DeadlineExceeded`` after that, and
                   no result
    ``client``     None: the one of ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

    When waiting is interrupted (Ctrl-C, an exception in a callback) the job is cancelled. Raises
    ``ConnectionLost``  when the connection breaks: the job has been cancelled then, and it is not
    run again.

    >>> run("echo", "hello").stdout                                                 # doctest: +SKIP
    'hello\n'
    """
    feed = Feed(stdin)
    command = requests.command(
        args,
        env=env,
        cwd=cwd,
        stdin=feed.inline,
        stdin_open=feed.more is not None,
        terminal=terminal,
    )
    process = _one_shot(
        client or default_client(),
        process_service_pb2.RunRequest(
            command=command,
            template=template or "",
            limits=requests.job_limits(limits, timeout),
            network=requests.network_policy(network),
            metadata=metadata,
        ),
        Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep),
        deadline,
    )
    return _to_end(process, feed, check=check)


def _one_shot(
    client: Client,
    request: process_service_pb2.RunRequest,
    collector: Collector,
    deadline: Optional[float],
) -> Process:
    stream = client.stream(methods.RUN, request, timeout=deadline)
    return Process(client, stream, collector, resumable=False)


def _to_end(process: Process, feed: Feed, *, check: bool) -> Result:
    try:
        process._feed(feed)
        result = process.wait()
    except BaseException:
        process._abort()
        raise
    return result.check() if check else result
