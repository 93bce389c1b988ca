"""From keyword arguments to the messages of the protocol: shared by both clients."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, Union

from stockade.limits import Limits, Seconds, to_ms
from stockade.network import Network
from stockade.result import Result
from stockade.v1 import process_service_pb2, sandbox_service_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

#: What goes to a job's stdin: bytes, text (as UTF-8), or pieces of bytes.
Stdin = Union[bytes, str, Iterable[bytes]]
#: The same for asyncio.
AsyncStdin = Union[Stdin, AsyncIterable[bytes]]

STDIN_BYTES_MAX = 1024 * 1024  # in the request itself; the rest is sent as input
INPUT_BYTES_MAX = 64 * 1024  # of one input

_STATES = {
    sandbox_service_pb2.SANDBOX_STATE_RUNNING: "running",
    sandbox_service_pb2.SANDBOX_STATE_PAUSED: "paused",
    sandbox_service_pb2.SANDBOX_STATE_DELETING: "deleting",
}


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the broker tells it."""

    #: 32 lower-case hex digits.
    id: str
    #: The template that it was made from.
    template: str
    #: The name that the caller gave, or empty.
    name: str
    #: ``"running"``, ``"paused"``, ``"deleting"`` or ``"unknown"``.
    state: str
    #: Limits in force, every one filled.
    limits: Limits
    #: ``"none"``, ``"allowlist"``, ``"open"`` or ``"unknown"``.
    network: str
    #: The network policy in force.
    policy: Network
    #: The caller's own labels.
    metadata: Mapping[str, str]
    #: When it was made.
    created: datetime.datetime
    #: When it will be deleted.
    expires: datetime.datetime
    #: Jobs that run in it.
    processes: int


@dataclass(frozen=True)
class ProcessInfo:
    """A process as the broker tells it: one that runs, or one that ended a short while ago."""

    #: 32 lower-case hex digits; ``Sandbox.attach`` takes it.
    id: str
    #: The sandbox that it runs in.
    sandbox_id: str
    #: Its process id inside the sandbox.
    pid: int
    #: Its arguments, cut after 16 of them and 256 bytes each.
    args: tuple[str, ...]
    #: When it started.
    started: datetime.datetime
    #: There when it is over.
    result: Optional[Result]
    #: Bytes of output so far.
    output: int
    #: It has a terminal.
    terminal: bool


def _time(stamp: Timestamp) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return epoch + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return epoch


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
        created=_time(message.create_time),
        expires=_time(message.expire_time),
        processes=message.processes,
    )


def process_info(message: process_service_pb2.Process) -> ProcessInfo:
    """Return what a message says about a process."""
    return ProcessInfo(
        id=message.id,
        sandbox_id=message.sandbox_id,
        pid=message.pid,
        args=tuple(message.args),
        started=_time(message.start_time),
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
    return (network if isinstance(network, Network) else Network(network or "?")).to_message()


def create_request(
    *,
    template: Optional[str],
    limits: Optional[Limits],
    network: Union[Network, str, None],
    metadata: Optional[Mapping[str, str]],
    timeout: Optional[Seconds],
    name: Optional[str],
) -> sandbox_service_pb2.SandboxServiceCreateRequest:
    """Return the request for a new sandbox."""
    return sandbox_service_pb2.SandboxServiceCreateRequest(
        template=template or "",
        limits=limits.to_message() if limits else None,
        network=network_policy(network),
        metadata=metadata,
        ttl_ms=to_ms(timeout) if timeout is not None else 0,
        name=name or "",
    )


class Feed:
    """What goes to stdin: what the request carries, and pieces of at most 64 KiB for the rest."""

    def __init__(self, stdin: Optional[AsyncStdin]) -> None:
        self.inline = b""
        self.more: Union[Iterable[bytes], AsyncIterable[bytes], None] = None
        if isinstance(stdin, str):
            stdin = stdin.encode()
        if isinstance(stdin, (bytes, bytearray, memoryview)):
            data = bytes(stdin)
            self.inline = data[:STDIN_BYTES_MAX]
            if len(data) > STDIN_BYTES_MAX:
                self.more = (data[STDIN_BYTES_MAX:],)
        elif stdin is not None:
            read = getattr(stdin, "read", None)  # an open file: its blocks, not its lines
            self.more = iter(lambda: read(INPUT_BYTES_MAX), b"") if callable(read) else stdin

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest, from a source that is no asynchronous one."""
        assert not isinstance(self.more, AsyncIterable)
        for piece in self.more or ():
            yield from cut(piece)


def cut(data: bytes) -> Iterator[bytes]:
    """Yield pieces that one input may carry."""
    for start in range(0, len(data), INPUT_BYTES_MAX):
        yield bytes(data[start : start + INPUT_BYTES_MAX])


def command(
    args: tuple[str, ...],
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: bytes = b"",
    stdin_open: bool = False,
    terminal: Optional[tuple[int, int]] = None,
) -> process_service_pb2.Command:
    """Return what to execute. ``TypeError`` or ``ValueError`` for arguments that are no text."""
    if not args:
        raise ValueError("a command needs a program")
    for arg in args:
        if not isinstance(arg, str):
            raise TypeError(f"{arg!r}: arguments are text")
    message = process_service_pb2.Command(
        args=args, workdir=cwd or "", stdin=stdin, stdin_open=stdin_open
    )
    for name, value in (env or {}).items():
        message.env.add(name=name, value=value)
    if terminal is not None:
        message.terminal.CopyFrom(terminal_size(*terminal))
    return message


def start_request(
    sandbox_id: str,
    what: process_service_pb2.Command,
    limits: Optional[Limits],
    timeout: Optional[Seconds],
) -> process_service_pb2.StartRequest:
    """Return the request for a job in a sandbox that is there."""
    return process_service_pb2.StartRequest(
        sandbox_id=sandbox_id, command=what, limits=job_limits(limits, timeout)
    )


def run_request(
    what: process_service_pb2.Command,
    *,
    template: Optional[str],
    limits: Optional[Limits],
    timeout: Optional[Seconds],
    network: Union[Network, str, None],
    metadata: Optional[Mapping[str, str]],
) -> process_service_pb2.RunRequest:
    """Return the request for a job in a sandbox of its own."""
    return process_service_pb2.RunRequest(
        command=what,
        template=template or "",
        limits=job_limits(limits, timeout),
        network=network_policy(network),
        metadata=metadata,
    )


def terminal_size(rows: int, columns: int) -> process_service_pb2.TerminalSize:
    """Return the size of a terminal."""
    return process_service_pb2.TerminalSize(rows=rows, columns=columns)


def job_limits(limits: Optional[Limits], timeout: Optional[Seconds]) -> Any:
    """Return the limits of a job as a message, or None: `timeout` is its wall-clock limit."""
    if timeout is not None:
        limits = replace(limits or Limits(), wall_time=timeout)
    return limits.to_message() if limits else None
