# SPDX-License-Identifier: Apache-2.0
"""What a process did, in order, and how the pieces become a ``Result``."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from typing import Callable, Optional, Union

from stockade.changing import outcome
from stockade.errors import ProtocolError
from stockade.limits import Size, named, size_bytes
from stockade.result import Result
from stockade.simulating import simulation
from stockade.v1 import process_service_pb2

#: Bytes of stdout and of stderr that a ``Result`` keeps when the caller says nothing else.
KEEP_BYTES = 64 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024  # a longer line is passed on in pieces


@dataclass(frozen=True)
class Output:
    """A piece of output."""

    #: ``"stdout"`` (also for the output of a terminal) or ``"stderr"``.
    stream: str
    #: The bytes, at most 64 KiB. They may end in the middle of a line or a character.
    data: bytes
    #: Offset of the first byte, counted from the start over stdout and stderr together.
    offset: int

    @property
    def text(self) -> str:
        """The bytes as text; invalid UTF-8 is replaced by U+FFFD."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Gap:
    """Missing output: it was not read in time, or a limit cut it."""

    #: Offset of the first missing byte.
    offset: int
    #: Number of missing bytes.
    length: int
    #: The output limit cut it, and cuts all further output.
    limit: bool


#: An item of the iteration over a ``Process``.
Event = Union[Output, Gap]
#: Called with each line of output as text, without its line end.
LineCallback = Callable[[str], object]


class Lines:
    """Turns pieces of output into lines of text for a callback, without their line ends."""

    def __init__(self, callback: LineCallback) -> None:
        self._callback = callback
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Add bytes; `final`: pass on an incomplete line, too."""
        lines = (self._rest + self._decoder.decode(data, final)).split("\n")
        self._rest = lines.pop()
        for line in lines:
            self._callback(line.removesuffix("\r"))
        if self._rest and (final or len(self._rest) > LINE_BYTES_MAX):
            rest, self._rest = self._rest, ""
            self._callback(rest)


class Collector:
    """Folds the events of one process into its identity, its output and its result."""

    def __init__(
        self,
        *,
        on_stdout: Optional[LineCallback] = None,
        on_stderr: Optional[LineCallback] = None,
        keep: Size = KEEP_BYTES,
    ) -> None:
        self._lines = {
            "stdout": on_stdout and Lines(on_stdout),
            "stderr": on_stderr and Lines(on_stderr),
        }
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._keep = named("keep", size_bytes, keep)
        self._over = 0  # beyond what is kept
        self._unseen = 0  # of those, bytes that no reader has received, but may request
        self._gone = 0
        self._cut = 0  # by the limit, as reported by gaps
        self.args: tuple[str, ...] = ()  # where this program started it
        self.process_id = ""
        self.sandbox_id = ""
        self.pid = 0
        self.offset = 0  # of the next byte that is expected
        self.result: Optional[Result] = None

    def feed(
        self, message: process_service_pb2.ProcessEvent, *, handed: bool = False
    ) -> Optional[Event]:
        """Process one event. Returns it if it is for the caller: output and gaps.

        ``handed``  the program gets what is returned

        Raises ``ProtocolError`` for an order that makes no sense.
        """
        which = message.WhichOneof("event")
        if self.result is not None:
            raise ProtocolError("the broker sent an event of a process that has ended")
        if which == "started":
            self._started(message.started)
            return None
        if which is not None and not self.process_id and which != "exited":
            raise ProtocolError("the broker sent output of a process before it started")
        if which == "output":
            return self._output(message.output, handed=handed)
        if which == "gap":
            return self._gap(message.gap)
        if which == "exited":
            self._exited(message.exited)
        return None

    def _started(self, started: process_service_pb2.ProcessEvent.Started) -> None:
        if self.process_id and started.process_id != self.process_id:
            raise ProtocolError("the broker sent an event of another process")
        self.process_id = started.process_id
        self.sandbox_id = started.sandbox_id
        self.pid = started.pid

    def _output(
        self, output: process_service_pb2.ProcessEvent.Output, *, handed: bool
    ) -> Optional[Event]:
        stream = "stderr" if output.stream == process_service_pb2.STREAM_STDERR else "stdout"
        skip = self.offset - output.offset  # seen before the connection was lost
        data = output.data[skip:] if skip > 0 else output.data
        if not data:
            return None
        event = Output(stream, data, output.offset + max(skip, 0))
        self.offset = event.offset + len(data)
        kept = self._kept[stream]
        room = max(0, self._keep - len(kept))
        kept += data[:room]
        over = len(data) - min(room, len(data))
        self._over += over
        lines = self._lines[stream]
        if not (handed or lines or self._keep == 0):
            self._unseen += over
        if lines:
            lines.feed(data)
        return event

    def _gap(self, gap: process_service_pb2.ProcessEvent.Gap) -> Event:
        self.offset = max(self.offset, gap.offset + gap.bytes)
        if gap.limit:
            self._cut += gap.bytes
        else:
            self._gone += gap.bytes
        return Gap(gap.offset, gap.bytes, gap.limit)

    def _exited(self, exited: process_service_pb2.ProcessEvent.Exited) -> None:
        for lines in self._lines.values():
            if lines:
                lines.feed(b"", final=True)
        bill = exited.result.bill  # it knows all that was cut; the gap came with the first of it
        gone = self._gone + max(self._cut, bill.output_cut_bytes.value)
        self.result = Result.from_message(
            exited.result,
            stdout=bytes(self._kept["stdout"]),
            stderr=bytes(self._kept["stderr"]),
            missing=gone + self._over,
            cut=gone + self._unseen,
            args=self.args,
            process_id=self.process_id,
            sandbox_id=self.sandbox_id,
        )
        if exited.HasField("transaction"):
            self.result = replace(self.result, transaction=outcome(exited.transaction))
        if exited.HasField("simulation"):
            self.result = replace(self.result, simulation=simulation(exited.simulation))

    def finish(self) -> Result:
        """Return the result once the stream has ended. ``ProtocolError`` when there was none."""
        if self.result is None:
            raise ProtocolError("the broker ended the stream without a result")
        return self.result
