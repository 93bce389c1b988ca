# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for asyncio: the same as ``stockade.sandbox``, with ``await``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Union

from stockade import methods, requests
from stockade.aio.client import Client, chosen
from stockade.aio.context import Context
from stockade.aio.files import Files
from stockade.aio.forward import Forward
from stockade.aio.process import Process
from stockade.aio.transaction import Transaction
from stockade.boxes import Box, ask, delete_kept_snapshot, kept_snapshots, sandboxes
from stockade.changing import begin, policy_number, transactions
from stockade.code import Collector as CodeCollector
from stockade.code import (
    TextCallback,
    create_context,
    execute,
    list_contexts,
    sandbox_request,
)
from stockade.errors import CallError
from stockade.events import KEEP_BYTES, Collector, LineCallback
from stockade.fields import made
from stockade.live import delete_checkpoint, list_checkpoints
from stockade.scoped import AsyncScoped
from stockade.simulating import Simulate, set_simulate
from stockade.tunnel import ForwardError, listen
from stockade.v1 import sandbox_service_pb2

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Mapping

    from stockade.changing import TransactionInfo, TransactionPolicy
    from stockade.code import CodeResult, Execution
    from stockade.filing import Change, FilePath
    from stockade.limits import Limits, Seconds, Size
    from stockade.live import Checkpoint
    from stockade.network import Network
    from stockade.requests import (
        AsyncStdin,
        Data,
        ProcessInfo,
        SandboxInfo,
        SnapshotInfo,
        TemplateInfo,
    )
    from stockade.result import Result


class Sandbox(Box, AsyncScoped):
    r"""A sandbox that you keep. Used as a context manager, it is deleted at the end of the block.

    >>> async with await Sandbox.create(ttl=300) as sbx:                        # doctest: +SKIP
    ...     result = await sbx.run("python3", "-c", "print(6 * 7)")
    >>> result.stdout, result.exit_code                                             # doctest: +SKIP
    ('42\n', 0)
    """

    @property
    def files(self) -> Files:
        """Its files: read, write, list and change them."""
        return Files(self._client, self.id)

    @classmethod
    async def create(
        cls,
        template: Optional[str] = None,
        *,
        ttl: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        network: Union[Network, str, None] = None,
        metadata: Optional[Mapping[str, str]] = None,
        name: Optional[str] = None,
        volumes: Optional[Mapping[str, str]] = None,
        snapshot: Optional[str] = None,
        sleep_after: Optional[Seconds] = None,
        client: Optional[Client] = None,
    ) -> Sandbox:
        """Create a sandbox.

        ``template``  name of the template; None: ``default``
        ``ttl``       time in seconds, or ``"10m"``, after which the broker deletes it; None: the
                      broker's default (300)
        ``limits``    limits; None: the template's
        ``network``   a ``Network``, or ``"none"`` or ``"open"``; None: the template's
        ``metadata``  labels: at most 32, keys of 64 and values of 256 bytes
        ``name``      a name that is unique among the caller's sandboxes
        ``volumes``   volumes to mount, from paths to names: ``{"/a": "mine", "/b": "other:ro"}``;
                      or, as a name, the path of a host folder that the template lists
        ``snapshot``  begin with the files of this kept snapshot: its name or ``kept_id``
        ``sleep_after``  fall asleep when nobody used it for so long; None: as the template says
        ``client``    None: the shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

        Raises ``InvalidArgument`` (a limit above the template's maximum), ``ResourceExhausted``
        (too many sandboxes), ``AlreadyExists`` (the name is in use), ``FailedPrecondition`` (a
        network mode that the host cannot enforce; a snapshot of another template), ``DataLoss``
        (the snapshot is damaged).
        """
        client = chosen(client)
        request = requests.create_request(
            template=template,
            limits=limits,
            network=network,
            metadata=metadata,
            ttl=ttl,
            name=name,
            volumes=volumes,
            snapshot=snapshot,
            sleep_after=sleep_after,
        )
        return cls(client, await ask(client, methods.CREATE, request))

    @classmethod
    async def connect(cls, id_or_name: str, *, client: Optional[Client] = None) -> Sandbox:
        """Find an existing sandbox.

        ``NotFound``: it does not exist, or belongs to another caller.
        """
        client = chosen(client)
        names = {"id": "id_or_name"}
        request = made(sandbox_service_pb2.SandboxServiceGetRequest, names, id=id_or_name)
        return cls(client, await ask(client, methods.GET, request))

    @classmethod
    def list(
        cls,
        *,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[Client] = None,
    ) -> AsyncIterator[SandboxInfo]:
        """Iterate over the caller's sandboxes with these labels, oldest first."""
        return sandboxes(chosen(client), metadata)

    @classmethod
    def kept_snapshots(cls, *, client: Optional[Client] = None) -> AsyncIterator[SnapshotInfo]:
        """Iterate over the caller's kept snapshots, oldest first."""
        return kept_snapshots(chosen(client))

    @classmethod
    async def delete_kept_snapshot(cls, name: str, *, client: Optional[Client] = None) -> None:
        """Delete a kept snapshot: its name or ``kept_id``. Raises ``NotFound``."""
        await delete_kept_snapshot(chosen(client), name)

    async def _exit(self, error: Optional[BaseException]) -> None:
        try:
            await self.delete()
        except CallError:
            if error is None:
                raise

    async def run(
        self,
        *args: str,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        stdin: Optional[AsyncStdin] = None,
        timeout: Optional[Seconds] = None,
        limits: Optional[Limits] = None,
        terminal: Optional[tuple[int, int]] = None,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: Size = KEEP_BYTES,
        check: bool = False,
        transaction: Optional[TransactionPolicy] = None,
        simulate: Simulate = False,
    ) -> Result:
        """Run a command and wait for its end. See ``stockade.Sandbox.run``.

        ``stdin``  may be an asynchronous iterable or stream as well; one that is not is read in the
                   event loop, so it should not have to wait
        """
        feed, command = requests.fed_command(args, env=env, cwd=cwd, stdin=stdin, terminal=terminal)
        request = requests.start_request(self.id, command, limits, timeout, foreground=True)
        request.transaction = policy_number(transaction)
        set_simulate(request, simulate)
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        process = await self._start(Process, request, collector, foreground=True)
        return await process._to_end(feed, check=check)

    async def start(
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
        """Start a command and return immediately.

        It keeps running when this program ends; ``attach`` finds it again. It runs as long as its
        sandbox unless ``timeout`` or ``limits``, here or in ``create``, set a limit.

        ``stdin`` is written first (at most 1 MiB). With ``stdin_open`` you can send more; otherwise
        stdin is then closed. A terminal's input is always open. The callbacks are called while the
        program reads output (``wait``, or an iteration). The other arguments are those of ``run``.
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
        return await self._start(Process, request, collector)

    async def attach(
        self,
        process_id: str,
        *,
        offset: int = 0,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: Size = KEEP_BYTES,
    ) -> Process:
        """Find a process by its id, and read its output from ``offset`` on.

        The broker keeps the last 1 MiB of unread output, and a process for 30 s after its end;
        later it raises ``NotFound``.
        """
        collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
        return await self._attach(Process, process_id, offset, collector)

    async def forward(
        self,
        port: int,
        local_port: int = 0,
        host: str = "127.0.0.1",
        *,
        on_error: Optional[ForwardError] = None,
    ) -> Forward:
        """Forward a port of this machine's loopback interface to the sandbox.

        ``port``        port of the sandbox, which its policy's ``inbound`` must list
        ``local_port``  port of this machine; 0: any free port (see ``Forward.port``)
        ``host``        another loopback address, such as ``::1``
        ``on_error``    called with the ``StockadeError`` of each connection that fails, for example
                        because nothing listens in the sandbox; the local peer sees only that the
                        connection is closed

        Raises ``PermissionDenied`` (the policy does not list the port), ``ValueError`` (not a port,
        or not a loopback address), ``OSError`` (the local port is in use).
        """
        await self._check_port(port)
        listener = listen(host, local_port)
        return await Forward(self._client, self.id, port, listener, on_error)._begin(listener)

    async def run_code(
        self,
        code: str,
        *,
        language: str = "",
        context: Union[Context, str, None] = None,
        timeout: Optional[Seconds] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        on_result: Optional[Callable[[CodeResult], object]] = None,
        simulate: Simulate = False,
    ) -> Execution:
        """Run a cell of code and wait for its end. Variables stay for the next cell.

        ``language``   ``python`` (the default), ``bash`` or ``javascript``
        ``context``    where it runs; None: the sandbox's default context for the language
        ``timeout``    seconds, or ``"1.5m"``, after which the cell is interrupted; None: none
        ``on_stdout``  called with text as it is written
        ``on_stderr``  the same for stderr
        ``on_result``  called with each result as it is complete
        ``simulate``   True or a mapping: run it in a new context of a fork that leaves nothing, as
                       in ``run`` (``Execution.simulation``); not with ``context``

        Code that fails raises nothing here: see ``Execution.error``. If an exception interrupts the
        wait, the cell is interrupted.
        """
        request = sandbox_request(
            self.id, code, language=language, context=context, timeout=timeout
        )
        set_simulate(request, simulate)
        collector = CodeCollector(on_stdout, on_stderr, on_result)
        return await execute(self._client, request, collector)

    async def create_context(
        self,
        language: str = "",
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Context:
        """Create a context: an interpreter of its own, with its own variables.

        ``language``  ``python`` (the default), ``bash`` or ``javascript``
        ``cwd``       the folder in which it starts; None: the template's
        ``env``       variables to add to the template's environment
        """
        info = await create_context(self._client, self.id, language, cwd, env)
        return Context(self._client, info)

    async def checkpoints(self) -> builtins.list[Checkpoint]:
        """Return the checkpoints of its contexts, oldest first."""
        return await list_checkpoints(self._client, self.id)

    async def delete_checkpoint(self, checkpoint: Union[Checkpoint, str]) -> None:
        """Delete a checkpoint and its memory. ``NotFound``: it does not exist."""
        await delete_checkpoint(self._client, self.id, checkpoint)

    async def contexts(self) -> builtins.list[Context]:
        """Return its contexts, oldest first."""
        found = await list_contexts(self._client, self.id)
        return [Context(self._client, info) for info in found]

    def processes(self) -> AsyncIterator[ProcessInfo]:
        """Iterate over its processes: running ones, and ended ones that ``attach`` still finds."""
        return self._processes()

    async def refresh(self) -> SandboxInfo:
        """Request its current state from the broker. ``NotFound``: it does not exist any more."""
        return await self._refresh()

    async def update(
        self,
        *,
        ttl: Optional[Seconds] = None,
        metadata: Optional[Mapping[str, str]] = None,
        network: Union[Network, str, None] = None,
    ) -> SandboxInfo:
        """Change the sandbox.

        ``ttl``       time to live from now on, in seconds or ``"10m"``
        ``metadata``  labels to set (an empty value removes the label)
        ``network``   the new policy, as a whole; connections that it forbids are closed
        """
        return await self._update(ttl, metadata, network)

    async def fork(
        self,
        count: int = 1,
        *,
        snapshot: Optional[str] = None,
        stop: bool = False,
        copy: bool = False,
        copy_max: Optional[Size] = None,
        copy_time: Optional[Seconds] = None,
        ttl: Optional[Seconds] = None,
    ) -> builtins.list[Sandbox]:
        """Make sandboxes that begin with its files. None sees what another one writes.

        ``count``     1 to 100: all are made, or none
        ``snapshot``  begin with the files of this snapshot; None: with those of now
        ``stop``      cancel the jobs that run in it first; without a snapshot there must be none
        ``copy``      jobs may run: see ``snapshot``, also for ``copy_max`` and ``copy_time``
        ``ttl``       time to live of the forks; None: that of this sandbox

        They have the template, limits, labels and network policy of this sandbox. Raises
        ``FailedPrecondition``, ``NotFound``, ``ResourceExhausted``.
        """
        made = await self._fork(count, snapshot, stop, ttl, (copy, copy_max, copy_time))
        return [Sandbox(self._client, info) for info in made]

    async def transaction(
        self, *, stop: bool = False, ttl: Optional[Seconds] = None
    ) -> Transaction:
        """Begin a transaction of its files.

        ``stop``  cancel the jobs that run in it first; otherwise there must be none
        ``ttl``   time until it is discarded, in seconds or ``"10m"``; None: that of this sandbox

        Its jobs run in a sandbox of their own: they see no process and no variable of this one.
        Raises ``FailedPrecondition``, ``ResourceExhausted``.
        """
        info = await begin(self._client, self.id, stop, ttl)
        inside = await ask(
            self._client,
            methods.GET,
            made(sandbox_service_pb2.SandboxServiceGetRequest, id=info.id),
        )
        return Transaction(self._client, info, Sandbox(self._client, inside))

    def transactions(self) -> AsyncIterator[TransactionInfo]:
        """Iterate over its transactions, oldest first: open ones, and the last ended ones."""
        return transactions(self._client, self.id)

    async def snapshot(
        self,
        name: Optional[str] = None,
        *,
        stop: bool = False,
        keep: bool = False,
        copy: bool = False,
        copy_max: Optional[Size] = None,
        copy_time: Optional[Seconds] = None,
    ) -> SnapshotInfo:
        """Keep the state of its files: /home/agent, /tmp, /var/tmp and /dev/shm.

        ``name``       unique among its snapshots; None: the broker chooses one
        ``stop``       cancel the jobs that run in it first; otherwise there must be none
        ``keep``       write it to the broker's disk: it outlasts the sandbox and the broker
        ``copy``       jobs may run: they are frozen, what was written since the last snapshot is
                       copied, and they go on. Without jobs nothing is ever copied
        ``copy_max``   with ``copy``: refuse to copy more bytes; None: 256 MiB
        ``copy_time``  with ``copy``: give up after this time; None: 5 seconds

        Otherwise a snapshot ends with its sandbox. It does not hold what
        ``SnapshotInfo.not_included`` lists. Raises ``FailedPrecondition`` (jobs run, or it is
        paused), ``AlreadyExists``, ``ResourceExhausted`` (too many snapshots; with ``keep``: the
        quota is used up, or the disk is full; with ``copy``: too much to copy, or no room for it in
        the sandbox), ``DeadlineExceeded`` (``copy_time``).
        """
        return await self._snapshot(name, stop, keep, (copy, copy_max, copy_time))

    async def make_template(
        self,
        name: str,
        *,
        snapshot: Optional[str] = None,
        stop: bool = False,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        replace: bool = False,
    ) -> TemplateInfo:
        """Make a template of its files: ``run(..., template=name)`` and others begin with them.

        ``snapshot``  the files of this snapshot; None: those of now
        ``stop``      cancel the jobs that run in it first; without a snapshot there must be none
        ``env``       environment of the jobs of its sandboxes
        ``workdir``   their working directory
        ``replace``   a template of this name is replaced; after a failure it is as it was

        It is on the broker's disk and outlasts this sandbox and the broker, until
        ``Client.delete_template``. Raises ``FailedPrecondition``, ``AlreadyExists``, ``NotFound``,
        ``ResourceExhausted``.
        """
        return await self._make_template(name, snapshot, stop, env, workdir, replace)

    def snapshots(self) -> AsyncIterator[SnapshotInfo]:
        """Iterate over its snapshots, oldest first."""
        return self._snapshots()

    async def get_snapshot(self, name: str) -> SnapshotInfo:
        """Return one of its snapshots. Raises ``NotFound``."""
        return await self._get_snapshot(name)

    def diff(
        self, first: str, second: Optional[str] = None, *, path: Optional[FilePath] = None
    ) -> AsyncIterator[Change]:
        """Iterate over the files that differ between two snapshots, sorted by path.

        ``first``   the name of a snapshot
        ``second``  the name of another one; None: the files of now, and jobs may run
        ``path``    only this file or folder and what it holds: an absolute path

        A program inside the sandbox compares them, with the rights of its jobs. Times alone are no
        difference. Raises ``NotFound``, ``FailedPrecondition`` (it is paused), ``Unavailable``.
        """
        return self._diff(first, second, path)

    async def patch(
        self, path: FilePath, first: str, second: Optional[str] = None
    ) -> Optional[bytes]:
        """Return the difference of one regular file as text, which ``patch(1)`` understands.

        ``path``    its absolute path
        ``first``   the name of a snapshot
        ``second``  the name of another one; None: the files of now

        Empty: there is none. None: the file is no text. Raises ``NotFound``,
        ``FailedPrecondition`` (no regular file), ``ResourceExhausted`` (more than 8 MiB or 200,000
        lines).
        """
        return await self._patch(path, first, second)

    async def restore(self, name: str, *, stop: bool = False) -> None:
        """Roll its files back to a snapshot: what was written since is lost.

        ``name``  of one of its snapshots, or of a kept one of the same template
        ``stop``  cancel the jobs that run in it first; otherwise there must be none

        Snapshots stay, also later ones. Raises ``NotFound``, ``FailedPrecondition``.
        """
        await self._restore(name, stop)

    async def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. The files of the sandbox do not change. Raises ``NotFound``."""
        await self._delete_snapshot(name)

    async def pause(self) -> SandboxInfo:
        """Freeze every process in it. Paused time does not count towards wall-clock limits."""
        return await self._pause()

    async def resume(self) -> SandboxInfo:
        """Resume a paused sandbox."""
        return await self._resume()

    async def sleep(self, *, stop: bool = False) -> SandboxInfo:
        """Put it to sleep: only its files stay, on the broker's disk; the next call wakes it up.

        Jobs that run are cancelled with ``stop``; otherwise there must be none. ``last_sleep`` of
        the result says what ended. Raises ``FailedPrecondition``, ``Aborted`` (another call needed
        it meanwhile), ``ResourceExhausted`` (the quota or the disk is full).
        """
        return await self._sleep(stop)

    async def wake(self) -> SandboxInfo:
        """Wake it up, as every call that needs it does. If that fails, it stays asleep."""
        return await self._wake()

    async def delete(self) -> None:
        """Kill every job in it and remove it. Does nothing if it does not exist any more."""
        await self._delete()
