# SPDX-License-Identifier: Apache-2.0
"""The result of a job: its output, how it ended, and the resources that it used."""

from __future__ import annotations

import enum
import shlex
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from stockade.errors import JobError
from stockade.fields import plural
from stockade.v1 import limits_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.changing import TransactionOutcome
    from stockade.simulating import Simulation
    from stockade.v1 import record_pb2


class Outcome(enum.Enum):
    """How a job ended."""

    #: An outcome of a newer broker that this package does not know.
    UNKNOWN = 0
    #: The main process exited: see ``exit_code``.
    EXITED = 1
    #: A signal of the job itself or of the caller ended it: see ``signal``.
    SIGNALED = 2
    #: A limit ended it: see ``limit_hit``.
    LIMIT = 3
    #: A policy refused to start it: see ``reason``.
    REFUSED = 4
    #: Stockade failed: see ``reason``. The job may have run partly.
    FAILED = 5
    #: The program could not be executed: see ``reason``; ``exit_code`` is 126 or 127, as in a
    #: shell.
    NOT_EXECUTED = 6
    #: The caller cancelled it, or its sandbox was deleted.
    CANCELLED = 7


class Source(enum.Enum):
    """The source of a figure."""

    #: The kernel's cgroup files.
    CGROUP = 1
    #: wait4(2) for the main process and the descendants that it waited for.
    RUSAGE = 2
    #: The broker's own clock or counters.
    BROKER = 3


class Scope(enum.Enum):
    """What a figure covers."""

    #: This job alone, including all processes that it started.
    JOB = 1
    #: All jobs of the sandbox since its creation, because the host's cgroups do not separate them.
    SANDBOX = 2


@dataclass(frozen=True)
class Figure:
    """One measured figure, in the unit of the protocol."""

    value: int
    source: Source
    scope: Optional[Scope]


@dataclass(frozen=True)
class Bill:
    """The resources that a job used.

    A figure that the host cannot provide is None, and ``unknown`` has the reason.
    """

    #: Every known figure by its name in the protocol (``cpu_user_ns``), with its source and scope.
    figures: Mapping[str, Figure] = field(default_factory=dict)
    #: One line per figure that this host cannot provide, such as ``io_read_bytes: no io
    #: controller``.
    unknown: tuple[str, ...] = ()

    def _value(self, name: str) -> Optional[int]:
        figure = self.figures.get(name)
        return None if figure is None else figure.value

    def _seconds(self, name: str, unit: float) -> Optional[float]:
        value = self._value(name)
        return None if value is None else value * unit

    @property
    def wall_time(self) -> Optional[float]:
        """Time from the start of the main process to its end, in seconds."""
        return self._seconds("wall_us", 1e-6)

    @property
    def queue_time(self) -> Optional[float]:
        """Time from the arrival of the request until a sandbox was available, in seconds."""
        return self._seconds("queue_us", 1e-6)

    @property
    def setup_time(self) -> Optional[float]:
        """Time from then until the main process started, in seconds."""
        return self._seconds("setup_us", 1e-6)

    @property
    def cpu_user(self) -> Optional[float]:
        """CPU time in user mode, in seconds."""
        return self._seconds("cpu_user_ns", 1e-9)

    @property
    def cpu_system(self) -> Optional[float]:
        """CPU time in the kernel, in seconds."""
        return self._seconds("cpu_system_ns", 1e-9)

    @property
    def cpu_time(self) -> Optional[float]:
        """CPU time, user and system together, in seconds."""
        user, system = self.cpu_user, self.cpu_system
        return None if user is None or system is None else user + system

    @property
    def memory_peak(self) -> Optional[int]:
        """Peak memory, in bytes."""
        return self._value("memory_peak_bytes")

    @property
    def faults_minor(self) -> Optional[int]:
        """Page faults served without I/O."""
        return self._value("faults_minor")

    @property
    def faults_major(self) -> Optional[int]:
        """Page faults that needed I/O."""
        return self._value("faults_major")

    @property
    def io_read(self) -> Optional[int]:
        """Bytes read from block devices."""
        return self._value("io_read_bytes")

    @property
    def io_write(self) -> Optional[int]:
        """Bytes written to block devices."""
        return self._value("io_write_bytes")

    @property
    def io_read_ops(self) -> Optional[int]:
        """Reads from block devices."""
        return self._value("io_read_ops")

    @property
    def io_write_ops(self) -> Optional[int]:
        """Writes to block devices."""
        return self._value("io_write_ops")

    @property
    def pids_peak(self) -> Optional[int]:
        """Peak number of processes and threads."""
        return self._value("pids_peak")

    @property
    def switches_voluntary(self) -> Optional[int]:
        """Voluntary context switches: a task waited."""
        return self._value("switches_voluntary")

    @property
    def switches_involuntary(self) -> Optional[int]:
        """Involuntary context switches: a task was preempted."""
        return self._value("switches_involuntary")

    @property
    def throttled_time(self) -> Optional[float]:
        """Time that it waited because of its CPU quota, in seconds."""
        return self._seconds("throttled_ns", 1e-9)

    @property
    def output(self) -> Optional[int]:
        """Number of bytes that it wrote to stdout and stderr."""
        return self._value("output_bytes")

    @property
    def output_cut(self) -> Optional[int]:
        """The number of these bytes that the output limit discarded."""
        return self._value("output_cut_bytes")

    @classmethod
    def from_message(cls, message: limits_pb2.Bill) -> Bill:
        """Return the bill in a message."""
        figures = {}
        for descriptor, figure in message.ListFields():
            if isinstance(figure, limits_pb2.Figure) and figure.source in _SOURCES:
                scope = _SCOPES.get(figure.scope)
                figures[descriptor.name] = Figure(figure.value, _SOURCES[figure.source], scope)
        return cls(figures, tuple(message.unknown))


_SOURCES: dict[int, Source] = {source.value: source for source in Source}
_SCOPES: dict[int, Scope] = {scope.value: scope for scope in Scope}


@dataclass(frozen=True)
class LimitHit:
    """A limit that was reached.

    Not every limit ends the job: output is discarded, fork fails with EAGAIN, a write fails with
    ENOSPC.
    """

    #: The limit's name in the protocol, such as ``memory_bytes``.
    name: str
    #: Its value, in the unit at the end of its name.
    value: int
    #: The amount beyond the value, in the same unit, or the number of refusals if ``count`` is
    #: True.
    over: int = 0
    #: ``over`` counts refusals.
    count: bool = False

    def __str__(self) -> str:
        denied = f", denied {self.over} {plural(self.over, 'time')}" if self.count else ""
        return f"{self.name}={self.value}{denied}"

    @classmethod
    def from_message(cls, message: limits_pb2.LimitHit) -> LimitHit:
        """Return the limit in a message."""
        return cls(message.name, message.value, message.over, message.count)


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a job."""

    #: How it ended.
    outcome: Outcome
    #: 0 to 255 if it exited or could not be executed (126, 127); otherwise None.
    exit_code: Optional[int] = None
    #: Number of the signal that ended it, or None.
    signal: Optional[int] = None
    #: One sentence if it did not simply exit.
    reason: str = ""
    #: What it used.
    bill: Bill = field(default_factory=Bill)
    #: The limit that ended it, or the first that was reached.
    limit_hit: Optional[LimitHit] = None
    #: Further limits that were reached.
    limits_also_hit: tuple[LimitHit, ...] = ()
    #: The kernel's record: network, refusals, executed programs, findings, and what the record does
    #: not cover; None if the broker sent none.
    record: Optional[record_pb2.Record] = field(default=None, repr=False, compare=False)
    #: Its stdout (with a terminal: all of its output), as far as it was kept.
    stdout_bytes: bytes = field(default=b"", repr=False)
    #: Its stderr, as far as it was kept.
    stderr_bytes: bytes = field(default=b"", repr=False)
    #: Number of bytes of output that are missing above: cut by a limit, lost because they were not
    #: read in time, or not kept here.
    output_missing: int = 0
    #: The number of these bytes that were cut: the program did not receive them, and did not
    #: decline them with ``keep=0``. A job with cut output does not count as a success.
    output_cut: int = 0
    #: The command, if this program started it; empty after ``attach``, and in a list.
    args: tuple[str, ...] = ()
    #: Id of the process, an opaque text of at most 48 characters; empty if it never started, and in
    #: a list.
    process_id: str = ""
    #: Id of the sandbox that it ran in; empty in the same cases.
    sandbox_id: str = ""
    #: Of a job with ``transaction``: what it changed, and what became of that.
    transaction: Optional[TransactionOutcome] = None
    #: Of a job with ``simulate``: what it would have changed and sent.
    simulation: Optional[Simulation] = None

    @property
    def stdout(self) -> str:
        """``stdout_bytes`` as text; invalid UTF-8 is replaced by U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """``stderr_bytes`` as text; invalid UTF-8 is replaced by U+FFFD."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """True if it exited with code 0 and no output was cut."""
        return self.outcome is Outcome.EXITED and self.exit_code == 0 and self.output_cut == 0

    @property
    def timed_out(self) -> bool:
        """True if its wall-clock limit (``timeout=`` of ``run``) ended it."""
        hit = self.limit_hit
        return self.outcome is Outcome.LIMIT and hit is not None and hit.name == "wall_ms"

    def check(self) -> Result:
        """Return the result itself if it is ``ok``, else raise ``JobError``."""
        if not self.ok:
            raise JobError(self)
        return self

    def __repr__(self) -> str:
        """Return how it ended, the begin of its output, and its id, in a line or two."""
        parts = [str(self), f"stdout={_begin(self.stdout_bytes)}"]
        if self.stderr_bytes:
            parts.append(f"stderr={_end(self.stderr_bytes)}")
        if self.process_id:
            parts.append(f"id={self.process_id}")
        return f"<Result {', '.join(parts)}>"

    def __str__(self) -> str:
        how = self.outcome.name.lower().replace("_", " ")
        if self.exit_code is not None:
            how += f" with code {self.exit_code}"
        if self.signal is not None:
            how += f" by {_signal_name(self.signal)}"
        if self.limit_hit is not None:
            how += f", limit {self.limit_hit}"
        if self.output_cut:
            verb = "was" if self.output_cut == 1 else "were"
            how += f", {self.output_cut} {plural(self.output_cut, 'byte')} of output {verb} cut"
        how += f": {self.reason}" if self.reason else ""
        if self.exit_code == 127 and len(self.args) == 1 and " " in self.args[0]:
            how += ' (one string per argument: run("echo", "hi"), or run("sh", "-c", "echo hi"))'
        return how

    @classmethod
    def from_message(
        cls,
        message: limits_pb2.Result,
        *,
        stdout: bytes = b"",
        stderr: bytes = b"",
        missing: int = 0,
        cut: int = 0,
        args: tuple[str, ...] = (),
        process_id: str = "",
        sandbox_id: str = "",
    ) -> Result:
        """Return the result in a message, with the output that was collected."""
        outcome = Outcome(message.outcome) if message.outcome in _OUTCOMES else Outcome.UNKNOWN
        has_code = outcome in {Outcome.EXITED, Outcome.NOT_EXECUTED}
        return cls(
            outcome=outcome,
            exit_code=message.exit_code if has_code else None,
            signal=message.signal or None,
            reason=message.reason,
            bill=Bill.from_message(message.bill),
            limit_hit=LimitHit.from_message(message.limit_hit)
            if message.HasField("limit_hit")
            else None,
            limits_also_hit=tuple(LimitHit.from_message(hit) for hit in message.limits_also_hit),
            record=message.record if message.HasField("record") else None,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            output_missing=missing,
            output_cut=max(cut, message.bill.output_cut_bytes.value),
            args=args,
            process_id=process_id,
            sandbox_id=sandbox_id,
        )


def shortened(args: tuple[str, ...]) -> str:
    """Return a command as a shell would take it, cut after 200 characters."""
    command = shlex.join(args)
    return command if len(command) <= _COMMAND_CHARS else command[:_COMMAND_CHARS] + "..."


def _begin(data: bytes) -> str:
    text = data[: 4 * _SHOWN_CHARS].decode("utf-8", "replace")[:_SHOWN_CHARS]
    return repr(text) + ("..." if len(text.encode()) < len(data) else "")


def _end(data: bytes) -> str:
    text = data[-4 * _SHOWN_CHARS :].decode("utf-8", "replace")[-_SHOWN_CHARS:]
    return ("..." if len(text.encode()) < len(data) else "") + repr(text)


_COMMAND_CHARS = 200
_SHOWN_CHARS = 100  # of each stream, in a repr
_OUTCOMES = {outcome.value for outcome in Outcome}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
