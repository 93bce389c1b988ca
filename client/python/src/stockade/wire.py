# SPDX-License-Identifier: Apache-2.0
"""The protocol without I/O: bytes in, bytes out, and the calls of one connection between them.

Both clients, with threads and with asyncio, drive one ``Core`` per connection. They hand in what
they read (``feed``), write out what stands in ``output``, and wake whoever waits for a call that
changed. Nothing in here blocks, locks or reads a clock: the drivers pass the time, in seconds.

  connection   our hello, their hello, then SP messages: [01] u64 length | u32 id, bit 31 set |
  Frame call         open() -> CALL ... DATA* ... END, and exactly one END; abandon() -> CANCEL, END
  still comes credit       a stream may send as many DATA frames as we have credited; taken() gives
  back what was consumed

The broker's bytes are not trusted. Whatever it may not send raises ``ProtocolError`` before memory
is set aside for it, and from then on the connection is dead.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Callable

from google.protobuf.message import DecodeError

from stockade.errors import CallError, ConnectionLost, InvalidArgument, ProtocolError, from_status
from stockade.v1 import wire_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAME_BYTES_MAX = 4 * 1024 * 1024  # body of one SP message
DATA_BYTES_MAX = 64 * 1024  # payload of one DATA frame
METADATA_BYTES_MAX = 8 * 1024  # keys and values of one call
METADATA_ITEMS_MAX = 32
STATUS_BYTES_MAX = 64 * 1024  # of one END or GOAWAY
FIELDS_MAX = 64  # of one frame, on the wire
OUTPUT_BYTES_MAX = 1024 * 1024  # that may wait when a PING comes
PING_BYTES_MAX = 8
PINGS_ANSWERED_MAX = 16  # PINGs of the broker ...
PINGS_ANSWERED = 5.0  # ... in these seconds; the C and Node clients have the same limit
CALLS_MAX = 1024
STREAMS_MAX = 128
CREDIT = 32
ID_BIT = 0x80000000
ID_LAST = 0xFFFFFFFF
HELLO_REQ = b"\0SP\0\0\x30\0\0"
HELLO_REP = b"\0SP\0\0\x31\0\0"

_LENGTH = struct.Struct(">Q")
_ID = struct.Struct(">I")


class Call:
    """One call of a connection, from CALL to END."""

    __slots__ = (
        "abandoned",
        "begin",
        "credit",
        "done",
        "eaten",
        "error",
        "id",
        "messages",
        "method",
        "payload",
        "streaming",
        "waiter",
    )

    def __init__(self, call_id: int, method: str, *, streaming: bool, begin: int) -> None:
        self.id = call_id
        self.method = method
        self.streaming = streaming
        self.begin = begin  # offset of its CALL in the bytes that the connection sends
        self.credit = CREDIT if streaming else 0  # DATA frames that the broker may still send
        self.eaten = 0  # DATA frames consumed and not yet credited again
        self.messages: deque[bytes] = deque()
        self.payload = b""
        self.done = False
        self.abandoned = False
        self.error: CallError | ProtocolError | None = None
        self.waiter: object = None  # belongs to the driver

    def end(self, error: CallError | ProtocolError | None) -> None:
        """Mark it as ended."""
        self.done = True
        self.error = error


class Core:
    """The state of one connection to a broker.

    ``output``  bytes to be written; the driver removes them with ``sent``
    ``greeted`` the broker's hello has come
    ``goaway``  None, or why the broker takes no new calls on this connection
    ``dead``    None, or why the connection is of no use any more
    """

    def __init__(self, *, ipc: bool, now: float) -> None:
        self._ipc = ipc
        self._now = now
        self._heard = now  # the last frame of a known kind
        self._pinged = now  # our last PING
        self._pings = 0  # of the broker, since ...
        self._pings_since = now
        self._header = 9 if ipc else 8
        self._input = bytearray()
        self._calls: dict[int, Call] = {}
        self._streams = 0
        self._next_id = ID_BIT + 1
        self._given = len(HELLO_REQ)  # bytes added to output so far
        self._written = 0  # bytes removed from it so far
        self._offered = 0  # the same, with those that are being written
        self._changed: list[Call] = []
        self.output = bytearray(HELLO_REQ)
        self.greeted = False
        self.goaway: str | None = None
        self._begun_last: int | None = None  # what the broker's GOAWAY said
        self.dead: CallError | ProtocolError | None = None
        self.pongs = 0

    # Calls.

    def has_room(self, *, streaming: bool) -> bool:
        """Return whether the limits of the connection permit one more call."""
        if streaming and self._streams >= STREAMS_MAX:
            return False
        return len(self._calls) < CALLS_MAX

    def check_usable(self, method: str) -> None:
        """Raise ``ConnectionLost`` when no new calls may be opened."""
        if not self.usable:
            why = self.goaway or str(self.dead)
            raise ConnectionLost(why, method=method, maybe_executed=False)

    def take(self, call: Call) -> bytes | None:
        """Take the next message. None: the call ended with OK; its error is raised otherwise."""
        if call.messages:
            message = call.messages.popleft()
            self.taken(call)
            return message
        if call.error is not None:
            raise call.error
        return None

    @property
    def usable(self) -> bool:
        """New calls may be opened."""
        return self.dead is None and self.goaway is None

    @property
    def idle(self) -> bool:
        """No call is open."""
        return not self._calls

    def open(
        self,
        method: str,
        payload: bytes,
        *,
        streaming: bool,
        timeout: float | None = None,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> Call:
        """Open a call and add its frame to ``output``. `timeout` is in seconds.

        Raises ``InvalidArgument`` when the request or its metadata is too large for the protocol.
        """
        assert self.usable
        assert self.has_room(streaming=streaming)
        frame = wire_pb2.Frame(
            kind=wire_pb2.FRAME_KIND_CALL,
            method=method,
            payload=payload,
            timeout_us=max(1, int(timeout * 1e6)) if timeout is not None else 0,
            credit=CREDIT if streaming else 0,
        )
        _add_metadata(frame, metadata)
        call = Call(self._next_id, method, streaming=streaming, begin=self._given)
        self._put(call.id, frame)
        self._calls[call.id] = call
        self._streams += streaming
        self._next_id += 1
        if self._next_id > ID_LAST:
            self.goaway = "all call ids of the connection are used"
        return call

    def abandon(self, call: Call) -> None:
        """Cancel a call.

        CANCEL. It keeps its place until the broker's END; what comes until then is dropped.
        """
        if call.done or call.abandoned:
            return
        call.abandoned = True
        call.eaten += len(call.messages)
        call.messages.clear()
        if self.dead is None:
            self._put(call.id, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_CANCEL))

    def leave(self, call: Call) -> None:
        """Ignore a call from now on, except its END."""
        call.abandoned = True
        call.messages.clear()

    def taken(self, call: Call) -> None:
        """One message was consumed: credit the broker again, half a window at a time."""
        call.eaten += 1
        if call.eaten * 2 >= CREDIT and not call.done and not call.abandoned and self.dead is None:
            frame = wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_WINDOW, credit=call.eaten)
            self._put(call.id, frame)
            call.credit += call.eaten
            call.eaten = 0

    def silent(self, now: float) -> float:
        """Return the seconds since the last frame, or since the PING that followed it.

        Frames of an unknown kind do not count.
        """
        return now - max(self._heard, self._pinged)

    def keep_alive(self, now: float, interval: float) -> bool:
        """Send a PING after `interval` seconds without a frame. False: it was not answered."""
        if self.silent(now) < interval:
            return True
        if self._pinged > self._heard:
            return False
        self._pinged = now
        self._put(ID_BIT, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PING))
        return True

    # Bytes.

    def offer(self, most: int) -> bytes:
        """Return what to write next; until the driver calls ``sent`` the broker may have it."""
        chunk = bytes(self.output[:most])
        self._offered = self._written + len(chunk)
        return chunk

    def sent(self, n: int) -> None:
        """`n` bytes of ``output`` were written; 0 when writing failed."""
        del self.output[:n]
        self._written += n
        self._offered = self._written

    def feed(self, data: bytes | bytearray | memoryview, now: float) -> list[Call]:
        """Take bytes from the broker. Returns the calls that have a new message or have ended.

        Raises ``ProtocolError``; the connection is dead then, and the driver has to call ``lost``.
        """
        if isinstance(self.dead, ProtocolError):
            raise self.dead
        self._input += data
        self._now = now
        position = 0
        try:
            while True:
                n = self._step(position)
                if n == 0:
                    break
                position += n
        except ProtocolError as e:
            self.dead = e
            raise
        del self._input[:position]
        changed, self._changed = self._changed, []
        return changed

    def lost(self, why: str) -> list[Call]:
        """The connection is gone: every open call fails.

        Returns these calls, and those that changed just before the broker broke the protocol.
        """
        if self.dead is None:
            self.dead = ConnectionLost(why, maybe_executed=False)
        for call in list(self._calls.values()):
            if isinstance(self.dead, ProtocolError):
                self._end(call, self.dead)
            else:
                reached = self._offered > call.begin
                self._end(call, ConnectionLost(why, method=call.method, maybe_executed=reached))
        calls, self._changed = self._changed, []
        return calls

    def _put(self, call_id: int, frame: wire_pb2.Frame) -> None:
        body = frame.SerializeToString()
        n = len(body) + _ID.size
        if n > FRAME_BYTES_MAX:
            raise InvalidArgument(
                f"a request of {n} bytes is larger than the {FRAME_BYTES_MAX} of a frame",
                method=frame.method,
            )
        before = len(self.output)
        if self._ipc:
            self.output += b"\1"
        self.output += _LENGTH.pack(n) + _ID.pack(call_id) + body
        self._given += len(self.output) - before

    def _step(self, position: int) -> int:
        """Handle what stands at `position`.

        Returns its length, or 0 when it is not all there yet.
        """
        have = len(self._input) - position
        if not self.greeted:
            if have < len(HELLO_REP):
                return 0
            if self._input[position : position + 8] != HELLO_REP:
                raise ProtocolError("the peer is not a Stockade broker: its first bytes are wrong")
            self.greeted = True
            return len(HELLO_REP)
        if have < self._header:
            return 0
        if self._ipc and self._input[position] != 1:
            raise ProtocolError("a message does not begin with the mark of the ipc transport")
        (n,) = _LENGTH.unpack_from(self._input, position + self._header - _LENGTH.size)
        if not _ID.size <= n <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a message says that it is {n} bytes long")
        if have < self._header + n:
            return 0
        start = position + self._header
        (call_id,) = _ID.unpack_from(self._input, start)
        if not call_id & ID_BIT:
            raise ProtocolError("a message without a call id")
        self._frame(call_id, bytes(memoryview(self._input)[start + _ID.size : start + n]))
        return int(self._header + n)

    def _frame(self, call_id: int, body: bytes) -> None:
        _check_shape(body)
        frame = wire_pb2.Frame()
        try:
            frame.ParseFromString(body)
        except (DecodeError, ValueError):
            raise ProtocolError("a frame that is not a protobuf message") from None
        handler = _HANDLERS.get(frame.kind)
        if handler is not None:  # an unknown kind is ignored: a newer broker may have more
            self._heard = self._now
            handler(self, call_id, frame)

    def _call(self, call_id: int) -> Call:
        call = self._calls.get(call_id)
        if call is None:
            raise ProtocolError(f"a frame for call {call_id & ~ID_BIT}, which is not open")
        return call

    def _on_data(self, call_id: int, frame: wire_pb2.Frame) -> None:
        call = self._call(call_id)
        if call.credit == 0:
            kind = "without credit" if call.streaming else "for a unary call"
            raise ProtocolError(f"{call.method}: a DATA frame {kind}")
        if len(frame.payload) > DATA_BYTES_MAX:
            raise ProtocolError(f"{call.method}: a DATA frame of {len(frame.payload)} bytes")
        call.credit -= 1
        if not call.abandoned:
            call.messages.append(frame.payload)
            self._changed.append(call)

    def _on_end(self, call_id: int, frame: wire_pb2.Frame) -> None:
        if call_id not in self._calls and self._crossed(call_id):
            return
        call = self._call(call_id)
        call.payload = frame.payload
        self._end(call, from_status(frame.status, call.method) if frame.status.code else None)

    def _crossed(self, call_id: int) -> bool:
        """Return whether the call was sent before the GOAWAY arrived.

        The broker refuses it with an END of its own, and it has been ended here before.
        """
        return self._begun_last is not None and self._begun_last < call_id < self._next_id

    def _on_ping(self, call_id: int, frame: wire_pb2.Frame) -> None:
        if len(frame.payload) > PING_BYTES_MAX:
            raise ProtocolError(
                f"the broker sent a PING of {len(frame.payload)} bytes; "
                f"at most {PING_BYTES_MAX} are allowed"
            )
        if self._now - self._pings_since >= PINGS_ANSWERED:
            self._pings_since, self._pings = self._now, 0
        self._pings += 1
        if self._pings > PINGS_ANSWERED_MAX:
            raise ProtocolError(
                f"the broker sent more than {PINGS_ANSWERED_MAX} PINGs in {PINGS_ANSWERED:g} s"
            )
        if len(self.output) > OUTPUT_BYTES_MAX:
            raise ProtocolError("the broker sends PINGs and does not read the answers")
        self._put(call_id, wire_pb2.Frame(kind=wire_pb2.FRAME_KIND_PONG, payload=frame.payload))

    def _on_pong(self, _call_id: int, _frame: wire_pb2.Frame) -> None:
        self.pongs += 1

    def _on_clients_own(self, _call_id: int, frame: wire_pb2.Frame) -> None:
        kind = wire_pb2.FrameKind.Name(frame.kind).replace("FRAME_KIND_", "")
        raise ProtocolError(f"the broker sent {kind}, which only a client sends")

    def _on_goaway(self, call_id: int, frame: wire_pb2.Frame) -> None:
        self.goaway = frame.status.message or "the broker takes no new calls on this connection"
        self._begun_last = min(call_id, self._begun_last or call_id)
        for call in [c for c in self._calls.values() if c.id > call_id]:
            why = ConnectionLost(self.goaway, method=call.method, maybe_executed=False)
            self._end(call, why)

    def _end(self, call: Call, error: CallError | ProtocolError | None) -> None:
        del self._calls[call.id]
        self._streams -= call.streaming
        call.end(error)
        self._changed.append(call)


_HANDLERS: dict[int, Callable[[Core, int, wire_pb2.Frame], None]] = {
    int(wire_pb2.FRAME_KIND_CALL): Core._on_clients_own,
    int(wire_pb2.FRAME_KIND_CANCEL): Core._on_clients_own,
    int(wire_pb2.FRAME_KIND_WINDOW): Core._on_clients_own,
    int(wire_pb2.FRAME_KIND_DATA): Core._on_data,
    int(wire_pb2.FRAME_KIND_END): Core._on_end,
    int(wire_pb2.FRAME_KIND_PING): Core._on_ping,
    int(wire_pb2.FRAME_KIND_PONG): Core._on_pong,
    int(wire_pb2.FRAME_KIND_GOAWAY): Core._on_goaway,
}


def _add_metadata(frame: wire_pb2.Frame, metadata: Iterable[tuple[str, str]]) -> None:
    total = 0
    for key, value in metadata:
        total += len(key.encode()) + len(value.encode())
        frame.metadata.add(key=key, value=value)
    if total > METADATA_BYTES_MAX or len(frame.metadata) > METADATA_ITEMS_MAX:
        raise InvalidArgument(
            f"metadata of {total} bytes in {len(frame.metadata)} pairs; "
            f"at most {METADATA_BYTES_MAX} in {METADATA_ITEMS_MAX}",
            method=frame.method,
        )


def _check_shape(body: bytes) -> None:
    """Walk over a frame's own fields before it is unpacked.

    Millions of empty sub-messages fit into 4 MiB, and each would become an object: so the number of
    fields and the size of the status are bounded first.
    """
    position, fields = 0, 0
    while position < len(body):
        key, position = _varint(body, position)
        fields += 1
        if fields > FIELDS_MAX:
            raise ProtocolError(f"a frame of more than {FIELDS_MAX} fields")
        kind = key & 7
        if kind == 0:
            _, position = _varint(body, position)
        elif kind == 2:
            n, position = _varint(body, position)
            if key >> 3 == wire_pb2.Frame.STATUS_FIELD_NUMBER and n > STATUS_BYTES_MAX:
                raise ProtocolError(f"a status of {n} bytes")
            position += n
        elif kind in {1, 5}:
            position += 8 if kind == 1 else 4
        else:
            raise ProtocolError("a frame that is not a protobuf message")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in body[position : position + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            return value, position
    raise ProtocolError("a frame that is not a protobuf message")
