# SPDX-License-Identifier: Apache-2.0
"""From keyword arguments to the messages of the protocol: shared by both clients."""

from __future__ import annotations

import datetime
import inspect
import operator
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union

from stockade.fields import is_a, made, optional, utf8
from stockade.limits import Limits, Seconds, lifetime_ms, named
from stockade.network import Network
from stockade.result import Result
from stockade.v1 import (
    process_service_pb2,
    sandbox_service_pb2,
    snapshot_service_pb2,
    template_service_pb2,
    volume_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from google.protobuf.timestamp_pb2 import Timestamp

T = TypeVar("T")

#: Bytes, or text that becomes UTF-8.
Data = Union[bytes, bytearray, memoryview, str]
#: Input for a job's stdin: bytes, text, a file, or an iterable of pieces.
Stdin = Union[Data, Iterable[Data]]
#: The same for asyncio.
AsyncStdin = Union[Stdin, AsyncIterable[Data]]

STDIN_BYTES_MAX = 1024 * 1024  # in the request itself; the rest is sent as input
INPUT_BYTES_MAX = 64 * 1024  # of one input

_STATES = {
    sandbox_service_pb2.SANDBOX_STATE_RUNNING: "running",
    sandbox_service_pb2.SANDBOX_STATE_PAUSED: "paused",
    sandbox_service_pb2.SANDBOX_STATE_DELETING: "deleting",
    sandbox_service_pb2.SANDBOX_STATE_ASLEEP: "asleep",
}


@dataclass(frozen=True)
class SleepInfo:
    """When a sandbox fell asleep, and what it lost with its processes."""

    #: When it fell asleep; its files were those of this time.
    asleep: datetime.datetime
    #: When it woke up; None: it is asleep.
    awake: Optional[datetime.datetime]
    #: Nobody used it for ``sleep_after``; otherwise ``sleep`` was called.
    idle: bool
    #: It was lost while it was awake, with its broker or host: what it wrote since is lost.
    fell_back: bool
    #: Bytes of its files on the broker's disk.
    size: int
    #: Jobs that ended.
    processes_ended: int
    #: Contexts that ended, with their variables.
    contexts_ended: int
    #: Operations on files, such as transfers and watches, that ended.
    operations_ended: int
    #: Connections to its ports that were closed.
    connections_closed: int


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox, as the broker describes it."""

    #: An opaque text of at most 48 characters.
    id: str
    #: The template that it was created from.
    template: str
    #: Its name, or empty.
    name: str
    #: ``"running"``, ``"paused"``, ``"asleep"``, ``"deleting"`` or ``"unknown"``.
    state: str
    #: Limits in force; every limit is set.
    limits: Limits
    #: ``"off"``, ``"none"``, ``"allowlist"``, ``"open"`` or ``"unknown"``.
    network: str
    #: The network policy in force.
    policy: Network
    #: Labels that the caller chose.
    metadata: Mapping[str, str]
    #: Time of its creation.
    created: datetime.datetime
    #: Time at which the broker deletes it.
    expires: datetime.datetime
    #: Number of jobs that run in it.
    processes: int
    #: What is mounted in it: paths, and names of volumes or host folders (``:ro``: read-only).
    volumes: Mapping[str, str]
    #: It falls asleep when nobody used it for so many seconds; 0: not by itself.
    sleep_after: float
    #: The last time that it fell asleep; None: it never did.
    last_sleep: Optional[SleepInfo]


@dataclass(frozen=True)
class ProcessInfo:
    """A process, as the broker describes it: a running one, or one that ended recently."""

    #: An opaque text of at most 48 characters; ``Sandbox.attach`` takes it.
    id: str
    #: The sandbox that it runs in.
    sandbox_id: str
    #: Its pid inside the sandbox.
    pid: int
    #: Its first 16 arguments, each truncated to 256 bytes.
    args: tuple[str, ...]
    #: When it started.
    started: datetime.datetime
    #: Its result, if it has ended.
    result: Optional[Result]
    #: Bytes of output so far.
    output: int
    #: True if it has a terminal.
    terminal: bool


@dataclass(frozen=True)
class SnapshotInfo:
    """A state of the files of a sandbox."""

    #: Unique among the snapshots of its sandbox.
    name: str
    #: The sandbox.
    sandbox_id: str
    #: Time of its creation.
    created: datetime.datetime
    #: Bytes that were written since the snapshot below it.
    size: int
    #: All bytes that it holds, also what other snapshots share with it.
    total_size: int
    #: The files of now go on from it.
    current: bool
    #: What a snapshot does not hold, in words.
    not_included: tuple[str, ...]
    #: By ``snapshot``: operations on files, such as transfers and watches, that were cut off.
    operations_ended: int = 0
    #: The id of the kept snapshot; empty: it ends with its sandbox.
    kept_id: str = ""
    #: Of a kept one: the template of its sandbox.
    template: str = ""
    #: Jobs ran when it was made, so its own files are a copy of this size; 0: nothing was copied.
    copied_bytes: int = 0
    #: Seconds for which the sandbox was frozen for the copy.
    frozen: float = 0.0
    #: A kept one whose data key was forgotten, so nobody can read it; it can be deleted.
    unreadable: bool = False


@dataclass(frozen=True)
class TemplateInfo:
    """A kind of sandbox: one of the host, or one that was made from the files of a sandbox."""

    #: Unique among the templates of the host and of the caller.
    name: str
    #: The host's: the configuration lists it. Then what follows ``root_writable`` is empty.
    of_host: bool
    #: The template of the host that its sandboxes have limits, network and user of.
    host_template: str
    #: Jobs are root inside.
    user_root: bool
    #: They may change /usr.
    root_writable: bool
    #: The template of the sandbox that it was made from.
    made_on: str
    #: That sandbox.
    sandbox_id: str
    #: Time of its creation.
    created: datetime.datetime
    #: Bytes that it holds besides the files of the host.
    size: int
    #: Environment of jobs, where it differs from that of ``host_template``.
    env: dict[str, str]
    #: Working directory of jobs; "": that of ``host_template``.
    workdir: str
    #: Digest of its files, in hex: equal ones mean equal files.
    digest: str
    #: Who made it, such as ``uid:1000``.
    principal: str
    #: Its data key was forgotten, so nobody can use it; it can be deleted.
    unreadable: bool = False
    #: Who loaded it from an archive, which then says what ``made_on`` and ``principal`` are; "": it
    #: was made here.
    loaded_by: str = ""


@dataclass(frozen=True)
class VolumeInfo:
    """A volume, as the broker describes it."""

    #: Unique among the caller's volumes.
    name: str
    #: Bytes that its files may have.
    size: int
    #: Files and folders that it may have.
    inodes: int
    #: Time of its creation.
    created: datetime.datetime
    #: Number of sandboxes that have it now.
    sandboxes: int
    #: Bytes of its files and folders; None: not known (``Volume.list`` knows it if the volume was
    #: in use since the broker started).
    used: Optional[int]
    #: Number of files and folders; None: not known.
    used_inodes: Optional[int]


def moment(stamp: Timestamp) -> datetime.datetime:
    """Return a time of a message."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return epoch + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return epoch


def _sleep_info(message: sandbox_service_pb2.Sleep) -> SleepInfo:
    return SleepInfo(
        asleep=moment(message.sleep_time),
        awake=moment(message.wake_time) if message.HasField("wake_time") else None,
        idle=message.idle,
        fell_back=message.fell_back,
        size=message.bytes,
        processes_ended=message.processes_ended,
        contexts_ended=message.contexts_ended,
        operations_ended=message.operations_ended,
        connections_closed=message.connections_closed,
    )


def sandbox_info(message: sandbox_service_pb2.Sandbox) -> SandboxInfo:
    """Return what a message says about a sandbox."""
    return SandboxInfo(
        id=message.id,
        template=message.template,
        name=message.name,
        state=_STATES.get(message.state, "unknown"),
        limits=Limits.from_message(message.limits),
        network=Network.from_message(message.network).mode,
        policy=Network.from_message(message.network),
        metadata=dict(message.metadata),
        created=moment(message.create_time),
        expires=moment(message.expire_time),
        processes=message.processes,
        volumes={m.path: m.volume + (":ro" if m.read_only else "") for m in message.volumes},
        sleep_after=message.sleep_after_ms / 1000,
        last_sleep=_sleep_info(message.last_sleep) if message.HasField("last_sleep") else None,
    )


def snapshot_info(message: snapshot_service_pb2.Snapshot) -> SnapshotInfo:
    """Return what a message says about a snapshot."""
    return SnapshotInfo(
        name=message.name,
        sandbox_id=message.sandbox_id,
        created=moment(message.create_time),
        size=message.bytes,
        total_size=message.total_bytes,
        current=message.current,
        not_included=tuple(message.not_included),
        operations_ended=message.operations_ended,
        kept_id=message.kept_id,
        template=message.template,
        copied_bytes=message.copied_bytes,
        frozen=message.frozen_us / 1e6,
        unreadable=message.unreadable,
    )


def template_info(message: template_service_pb2.SandboxTemplate) -> TemplateInfo:
    """Return what a message says about a template."""
    return TemplateInfo(
        name=message.name,
        of_host=message.of_host,
        host_template=message.host_template,
        user_root=message.user_root,
        root_writable=message.root_writable,
        made_on=message.made_on,
        sandbox_id=message.sandbox_id,
        created=moment(message.create_time),
        size=message.bytes,
        env={v.name: v.value for v in message.env},
        workdir=message.workdir,
        digest=message.digest,
        principal=message.principal,
        unreadable=message.unreadable,
        loaded_by=message.loaded_by,
    )


def volume_info(message: volume_service_pb2.Volume) -> VolumeInfo:
    """Return what a message says about a volume."""
    return VolumeInfo(
        name=message.name,
        size=message.bytes,
        inodes=message.inodes,
        created=moment(message.create_time),
        sandboxes=message.sandboxes,
        used=message.use.bytes if message.HasField("use") else None,
        used_inodes=message.use.inodes if message.HasField("use") else None,
    )


def process_info(message: process_service_pb2.Process) -> ProcessInfo:
    """Return what a message says about a process."""
    return ProcessInfo(
        id=message.id,
        sandbox_id=message.sandbox_id,
        pid=message.pid,
        args=tuple(message.args),
        started=moment(message.start_time),
        result=Result.from_message(message.result) if message.HasField("result") else None,
        output=message.output_bytes,
        terminal=message.terminal,
    )


def network_policy(
    network: Union[Network, str, None],
) -> Optional[sandbox_service_pb2.NetworkPolicy]:
    """Return a policy as a message; of a mode by its name. ``ValueError``: there is none such."""
    if network is None:
        return None
    if isinstance(network, str):
        network = Network(network or "?")
    return is_a(Network, "network", network).to_message()


def texts(what: str, values: Optional[Mapping[str, str]]) -> dict[str, str]:
    """Return names and their values, which have to be text. ``TypeError`` names what is none."""
    pairs = {} if values is None else dict(is_a(Mapping, what, values))  # type: ignore[type-abstract]
    for name, value in pairs.items():
        utf8(f"a name in {what}", is_a(str, f"a name in {what}", name))
        utf8(f"{what}[{name!r}]", is_a(str, f"{what}[{name!r}]", value))
    return pairs


def mounts(volumes: Optional[Mapping[str, str]]) -> list[sandbox_service_pb2.VolumeMount]:
    """Return what to mount, from paths to names or host folders; ``name:ro`` is read-only."""
    found = []
    for path, volume in texts("volumes", volumes).items():
        name, _, mode = volume.partition(":")
        if mode not in ("", "ro", "rw"):
            raise ValueError(f"volumes[{path!r}]={volume!r}: expected a name, or name:ro")
        found.append(
            sandbox_service_pb2.VolumeMount(volume=name, path=path, read_only=mode == "ro")
        )
    return found


def create_request(
    *,
    template: Optional[str],
    limits: Optional[Limits],
    network: Union[Network, str, None],
    metadata: Optional[Mapping[str, str]],
    ttl: Optional[Seconds],
    name: Optional[str],
    volumes: Optional[Mapping[str, str]],
    snapshot: Optional[str] = None,
    sleep_after: Optional[Seconds] = None,
) -> sandbox_service_pb2.SandboxServiceCreateRequest:
    """Return the request for a new sandbox."""
    return made(
        sandbox_service_pb2.SandboxServiceCreateRequest,
        template=optional("template", template),
        limits=limits_message(limits),
        network=network_policy(network),
        metadata=texts("metadata", metadata),
        ttl_ms=lifetime_ms(ttl),
        name=optional("name", name),
        volumes=mounts(volumes),
        snapshot=optional("snapshot", snapshot),
        sleep_after_ms=lifetime_ms(sleep_after, "sleep_after"),
    )


class Feed:
    """What goes to stdin: what the request carries, and pieces of at most 64 KiB for the rest.

    ``TypeError`` for what gives neither bytes nor text.
    """

    def __init__(self, stdin: Optional[AsyncStdin]) -> None:
        self.inline = b""
        self.more: Union[Iterator[Data], AsyncIterable[Data], None] = None
        if isinstance(stdin, (bytes, bytearray, memoryview, str)):
            data = as_bytes(stdin)
            self.inline = data[:STDIN_BYTES_MAX]
            if len(data) > STDIN_BYTES_MAX:
                self.more = iter((data[STDIN_BYTES_MAX:],))
        elif stdin is not None:
            read = getattr(stdin, "read", None)  # a file, or a stream: its blocks, not its lines
            if inspect.iscoroutinefunction(read):
                self.more = _blocks_to_come(read)
            elif isinstance(stdin, AsyncIterable):
                self.more = stdin
            else:
                self.more = _blocks(read) if callable(read) else _each(stdin)

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest, from a source that is no asynchronous one."""
        if isinstance(self.more, AsyncIterable):
            raise TypeError("stdin: an asynchronous source is for stockade.aio")
        for piece in self.more or ():
            yield from cut(piece)


def _each(stdin: Iterable[Data]) -> Iterator[Data]:
    try:
        return iter(stdin)
    except TypeError:
        raise TypeError(
            f"stdin={stdin!r}: expected bytes, text, a file or an iterable of these"
        ) from None


def _blocks(read: Callable[[int], Optional[Data]]) -> Iterator[Data]:
    while data := read(INPUT_BYTES_MAX):
        yield data
    if data is None:
        raise BlockingIOError("stdin: the file must be in blocking mode")


async def _blocks_to_come(read: Callable[[int], Awaitable[Data]]) -> AsyncIterator[Data]:
    while data := await read(INPUT_BYTES_MAX):
        yield data


def as_bytes(data: Data) -> bytes:
    """Return text as UTF-8, and bytes as they are. ``TypeError`` for anything else."""
    if isinstance(data, str):
        return utf8("stdin", data)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"stdin={data!r}: expected bytes or text")


def cut(data: Data) -> Iterator[bytes]:
    """Yield pieces that one input may carry."""
    whole = as_bytes(data)
    for start in range(0, len(whole), INPUT_BYTES_MAX):
        yield whole[start : start + INPUT_BYTES_MAX]


def command(
    args: tuple[str, ...],
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Data = b"",
    stdin_open: bool = False,
    terminal: Optional[tuple[int, int]] = None,
) -> process_service_pb2.Command:
    """Return what to execute. ``TypeError`` or ``ValueError`` for arguments that are no text."""
    if not args:
        raise ValueError("args: a command needs a program")
    given: tuple[object, ...] = args
    for i, arg in enumerate(given):
        if not isinstance(arg, str):
            more = "; write run(*args)" if isinstance(arg, (list, tuple)) else ""
            raise TypeError(f"args[{i}]={arg!r}: expected text{more}")
        utf8(f"args[{i}]", arg)
    message = made(
        process_service_pb2.Command,
        args=args,
        workdir=optional("cwd", cwd),
        stdin=as_bytes(stdin),
        stdin_open=stdin_open,
    )
    for name, value in texts("env", env).items():
        message.env.add(name=name, value=value)
    if terminal is not None:
        try:
            rows, columns = terminal
        except (TypeError, ValueError):
            raise TypeError(f"terminal={terminal!r}: expected (rows, columns)") from None
        message.terminal.CopyFrom(terminal_size(rows, columns))
    return message


def fed_command(
    args: tuple[str, ...],
    *,
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
    stdin: Optional[AsyncStdin],
    terminal: Optional[tuple[int, int]],
) -> tuple[Feed, process_service_pb2.Command]:
    """Return what to execute, and what is to be fed to its stdin."""
    feed = Feed(stdin)
    what = command(
        args,
        env=env,
        cwd=cwd,
        stdin=feed.inline,
        stdin_open=feed.more is not None,
        terminal=terminal,
    )
    return feed, what


def start_request(
    sandbox_id: str,
    what: process_service_pb2.Command,
    limits: Optional[Limits],
    timeout: Optional[Seconds],
    *,
    foreground: bool = False,
) -> process_service_pb2.StartRequest:
    """Return the request for a job in a sandbox that is there; `foreground`: it is waited for."""
    return made(
        process_service_pb2.StartRequest,
        sandbox_id=sandbox_id,
        command=what,
        limits=job_limits(limits, timeout),
        foreground=foreground,
    )


def run_request(
    what: process_service_pb2.Command,
    *,
    template: Optional[str],
    limits: Optional[Limits],
    timeout: Optional[Seconds],
    network: Union[Network, str, None],
    metadata: Optional[Mapping[str, str]],
    volumes: Optional[Mapping[str, str]],
) -> process_service_pb2.RunRequest:
    """Return the request for a job in a sandbox of its own."""
    return made(
        process_service_pb2.RunRequest,
        command=what,
        template=optional("template", template),
        limits=job_limits(limits, timeout),
        network=network_policy(network),
        metadata=texts("metadata", metadata),
        volumes=mounts(volumes),
    )


def terminal_size(rows: int, columns: int) -> process_service_pb2.TerminalSize:
    """Return the size of a terminal. ``TypeError`` or ``ValueError`` names what is wrong."""
    size = process_service_pb2.TerminalSize()
    for name, value in (("rows", rows), ("columns", columns)):
        try:
            setattr(size, name, named(name, operator.index, value))
        except ValueError:
            raise ValueError(f"{name}={value!r}: not a whole number of 32 bits") from None
    return size


def job_limits(limits: Optional[Limits], timeout: Optional[Seconds]) -> Any:
    """Return the limits of a job as a message, or None: `timeout` is its wall-clock limit."""
    if timeout is not None:
        limits = replace(is_a(Limits, "limits", limits or Limits()), timeout=timeout)
    return limits_message(limits)


def limits_message(limits: Optional[Limits]) -> Any:
    """Return limits as a message, or None."""
    return None if limits is None else is_a(Limits, "limits", limits).to_message()
