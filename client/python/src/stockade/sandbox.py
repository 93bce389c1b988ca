# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and one-shot jobs, for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import methods, requests
from stockade.both import each, now
from stockade.boxes import Box, ask, one_shot, sandboxes
from stockade.client import Client, chosen
from stockade.errors import CallError
from stockade.events import KEEP_BYTES, Collector, LineCallback
from stockade.forward import Forward
from stockade.process import Process
from stockade.requests import Data, Feed, ProcessInfo, SandboxInfo, Stdin
from stockade.tunnel import ForwardError, listen
from stockade.v1 import sandbox_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from stockade.limits import Limits, Seconds, Size
    from stockade.network import Network
    from stockade.result import Result


class Sandbox(Box):
    r"""A sandbox that the caller keeps. As a context manager it is deleted at the end of the block.

    >>> with Sandbox.create(ttl=300) as sbx:                                    # doctest: +SKIP
    ...     result = sbx.run("python3", "-c", "print(6 * 7)")
    >>> result.stdout, result.exit_code                                             # doctest: +SKIP
    ('42\n', 0)
    """

    @classmethod
    def create(
        cls,
        template: Optional[str] = None,
        *,
        ttl: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        network: Union[Network, str, None] = None,
        metadata: Optional[Mapping[str, str]] = None,
        name: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> Sandbox:
        """Make a sandbox.

        ``template``  its name; None: ``default``
        ``ttl``       seconds, or ``"10m"``, until the broker deletes it by itself; None: the
                      broker's own (300)
        ``limits``    what it may use; None: the template's
        ``network``   a ``Network``, or ``"none"`` or ``"open"``; None: the template's
        ``metadata``  labels: at most 32, keys of 64 and values of 256 bytes
        ``name``      unique among the caller's own sandboxes
        ``client``    None: the one of ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

        Raises ``InvalidArgument`` (a limit above the template's maximum), ``ResourceExhausted``
        (too many sandboxes), ``AlreadyExists`` (the name), ``FailedPrecondition`` (a network mode
        that the host cannot enforce).
        """
        client = chosen(client)
        request = requests.create_request(
            template=template,
            limits=limits,
            network=network,
            metadata=metadata,
            ttl=ttl,
            name=name,
        )
        return cls(client, now(ask(client, methods.CREATE, request)))

    @classmethod
    def connect(cls, id_or_name: str, *, client: Optional[Client] = None) -> Sandbox:
        """Find a sandbox that was made before.

        ``NotFound``: there is none, or it is somebody else's.
        """
        client = chosen(client)
        request = sandbox_service_pb2.SandboxServiceGetRequest(id=id_or_name)
        return cls(client, now(ask(client, methods.GET, request)))

    @classmethod
    def list(
        cls,
        *,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[Client] = None,
    ) -> Iterator[SandboxInfo]:
        """Iterate over the caller's sandboxes, oldest first; with all labels of ``metadata``."""
        return each(sandboxes(chosen(client), metadata))

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
        keep: Size = KEEP_BYTES,
        check: bool = False,
    ) -> Result:
        """Run a command and wait for its end.

        ``env``        added to, or replacing, the template's environment
        ``cwd``        absolute folder; None: the template's
        ``stdin``      bytes, text, a file, or an iterable of either; None: the command sees
                       end-of-file
        ``timeout``    seconds of wall-clock time, or ``"1.5m"``, after which the broker ends it:
                       ``Result.timed_out``; None: the template's
        ``limits``     further limits of this job: ``cpu_time``, ``files``, ``file_size``,
                       ``output``
        ``terminal``   (rows, columns): give it a terminal; stdout and stderr are then one stream
        ``on_stdout``  called with each line of stdout as text, without its line end, as it comes
        ``on_stderr``  the same for stderr
        ``keep``       bytes, or ``"1M"``, of stdout and of stderr that the result keeps; the rest
                       is only counted
        ``check``      raise ``JobError`` unless it exits with code 0 and no output was cut

        When waiting is interrupted (Ctrl-C, an exception in a callback) the command is killed.
        Raises ``NotFound`` when the sandbox is gone, ``FailedPrecondition`` when it is paused.
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
        request = requests.start_request(self.id, command, limits, timeout, foreground=True)
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        process = now(self._start(Process, request, collector, foreground=True))
        return now(process._to_end(feed, check=check))

    def start(
        self,
        *args: str,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        stdin: Data = b"",
        stdin_open: bool = False,
        timeout: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        terminal: Optional[tuple[int, int]] = None,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: Size = KEEP_BYTES,
    ) -> Process:
        """Start a command and return at once.

        It goes on when this program goes away: ``attach`` finds it again. It lives as long as its
        sandbox unless ``timeout`` or ``limits``, or those of ``create``, say otherwise.

        ``stdin`` is written first (at most 1 MiB); with ``stdin_open`` more can be sent, else it is
        closed then. A terminal's input is always open. The callbacks are called while somebody
        reads (``wait``, or an iteration). The other arguments are those of ``run``.
        """
        command = requests.command(
            args,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdin_open=stdin_open or terminal is not None,
            terminal=terminal,
        )
        request = requests.start_request(self.id, command, limits, timeout)
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        return now(self._start(Process, request, collector))

    def attach(
        self,
        process_id: str,
        *,
        offset: int = 0,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: Size = KEEP_BYTES,
    ) -> Process:
        """Find a process again, and read its output from ``offset`` on.

        The broker keeps the last 1 MiB that nobody read, and a process for 30 s after its end.
        ``NotFound`` otherwise.
        """
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        return now(self._attach(Process, process_id, offset, collector))

    def forward(
        self,
        port: int,
        local_port: int = 0,
        host: str = "127.0.0.1",
        *,
        on_error: Optional[ForwardError] = None,
    ) -> Forward:
        """Listen on this machine's loopback, and carry each connection to a port of the sandbox.

        ``port``        of the sandbox; its policy's ``inbound`` has to name it
        ``local_port``  0: one that is free: ``Forward.port`` says which
        ``host``        another address of the loopback, such as ``::1``
        ``on_error``    called with the ``StockadeError`` of each connection that fails, such as
                        when nobody listens in the sandbox; whoever connected sees only the end

        Raises ``PermissionDenied`` (the policy lets nobody in at that port), ``ValueError`` (no
        port, or no address of the loopback), ``OSError`` (the local port is taken).
        """
        now(self._check_port(port))
        return Forward(self._client, self.id, port, listen(host, local_port), on_error)

    def processes(self) -> Iterator[ProcessInfo]:
        """Iterate over its processes: those that run, and those that ``attach`` still finds."""
        return each(self._processes())

    def refresh(self) -> SandboxInfo:
        """Ask the broker for its present state. ``NotFound``: it is gone."""
        return now(self._refresh())

    def update(
        self,
        *,
        ttl: Optional[Seconds] = None,
        metadata: Optional[Mapping[str, str]] = None,
        network: Union[Network, str, None] = None,
    ) -> SandboxInfo:
        """Change it.

        ``ttl``       let it live for so many seconds, or ``"10m"``, from now
        ``metadata``  labels to set (empty: remove one)
        ``network``   another policy, whole; it holds at once, and cuts connections that it forbids
        """
        return now(self._update(ttl, metadata, network))

    def pause(self) -> SandboxInfo:
        """Freeze every process in it. Wall-clock limits stand still."""
        return now(self._pause())

    def resume(self) -> SandboxInfo:
        """Let a paused sandbox go on."""
        return now(self._resume())

    def delete(self) -> None:
        """End every job in it and remove it. Nothing happens when it is gone already."""
        now(self._delete())


def start(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Data = b"",
    stdin_open: bool = False,
    timeout: Optional[Seconds] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    metadata: Optional[Mapping[str, str]] = None,
    terminal: Optional[tuple[int, int]] = None,
    on_stdout: Optional[LineCallback] = None,
    on_stderr: Optional[LineCallback] = None,
    keep: Size = KEEP_BYTES,
    deadline: Optional[Seconds] = None,
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
    request = requests.run_request(
        command,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        metadata=metadata,
    )
    collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
    return now(one_shot(chosen(client), Process, request, collector, deadline))


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
    keep: Size = KEEP_BYTES,
    check: bool = False,
    deadline: Optional[Seconds] = None,
    client: Optional[Client] = None,
) -> Result:
    r"""Run a command in a fresh sandbox that is destroyed after it, and wait for its end.

    ``template``   its name; None: ``default``
    ``env``        added to, or replacing, the template's environment
    ``cwd``        absolute folder; None: the template's
    ``stdin``      bytes, text, a file, or an iterable of either; None: the command sees end-of-file
    ``timeout``    seconds of wall-clock time, or ``"1.5m"``, after which the broker ends it:
                   ``Result.timed_out``; None: the template's
    ``limits``     what it may use; None: the template's
    ``network``    a ``Network``, or ``"none"`` or ``"open"``; None: the template's
    ``metadata``   labels of the sandbox while it lives
    ``terminal``   (rows, columns): give it a terminal; stdout and stderr are then one stream
    ``on_stdout``  called with each line of stdout as text, without its line end, as it comes
    ``on_stderr``  the same for stderr
    ``keep``       bytes, or ``"1M"``, of stdout and of stderr that the result keeps; the rest is
                   only counted
    ``check``      raise ``JobError`` unless it exits with code 0 and no output was cut
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
    request = requests.run_request(
        command,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        metadata=metadata,
    )
    collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
    process = now(one_shot(chosen(client), Process, request, collector, deadline))
    return now(process._to_end(feed, check=check))
