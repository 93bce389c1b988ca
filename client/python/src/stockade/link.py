# SPDX-License-Identifier: Apache-2.0
"""One connection for programs with threads, and the thread that reads from it.

caller's thread   opens a call in the core, writes, waits on the call's condition
reader thread     reads, feeds the core, wakes the callers of what changed; keeps alive

``open`` and ``wait`` are coroutines by name only: they block (``both``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from stockade.errors import (
    BrokerUnreachable,
    DeadlineExceeded,
    ProtocolError,
    StockadeError,
)
from stockade.tls import rejected, unreachable
from stockade.wire import Call, Core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stockade.address import Address
    from stockade.attempts import Attempts
    from stockade.methods import Method

# Seconds without a frame after which a PING is sent; after the same time again, the connection
# counts as lost.
KEEPALIVE = 20.0
_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024


class Link:
    """One connection and its reader thread.

    The core is guarded by ``lock``; whoever writes holds ``_send_lock``, taken before ``lock``. The
    reader never waits for either side to take bytes: while it waited, the broker could not get rid
    of what it has for us.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        try:
            self._sock = address.connect(timeout)
        except OSError as e:
            raise unreachable(address.text, e) from e
        self.core = Core(ipc=address.ipc, now=time.monotonic())
        self.lock = threading.Lock()
        self.abandoned: deque[Call] = deque()  # by a garbage collector that could not take the lock
        self._room = threading.Condition(self.lock)
        self._send_lock = threading.Lock()
        try:
            self._greet(address, timeout)
        except BaseException:
            self._sock.close()
            raise
        self._sock.settimeout(KEEPALIVE)
        threading.Thread(target=self._read, name="stockade-reader", daemon=True).start()

    def _greet(self, address: Address, timeout: float) -> None:
        end = time.monotonic() + timeout
        try:
            self._sock.sendall(self.core.output)
            self.core.sent(len(self.core.output))
            while not self.core.greeted:
                self._sock.settimeout(max(0.001, end - time.monotonic()))
                data = self._sock.recv(_READ_BYTES)
                if not data:
                    raise rejected(address.text)
                self.core.feed(data, time.monotonic())
        except StockadeError:
            raise
        except socket.timeout:
            raise BrokerUnreachable(f"{address.text}: no answer within {timeout:g} s") from None
        except OSError as e:
            raise BrokerUnreachable(f"greet {address.text}: {e.strerror or e}") from e

    # Callers' threads.

    async def open(
        self,
        method: Method[Any, Any],
        payload: bytes,
        attempts: Attempts,
        metadata: Iterable[tuple[str, str]],
    ) -> Call:
        """Open a call as soon as the connection has room for one more, and write it."""
        with self.lock:
            self._wait_for_room(method, attempts.deadline)
            left = None if attempts.deadline is None else attempts.deadline - time.monotonic()
            call = self.core.open(
                method.path,
                payload,
                streaming=method.streaming,
                timeout=left,
                metadata=[*metadata, *attempts.metadata()],
            )
            call.waiter = threading.Condition(self.lock)
        try:
            self.flush()
        except BaseException:
            self.abandon(call)
            raise
        return call

    def _wait_for_room(self, method: Method[Any, Any], deadline: Optional[float]) -> None:
        while True:
            self.core.check_usable(method.path)
            if self.core.has_room(streaming=method.streaming):
                return
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded("wait for room on the connection", method=method.path)
            self._room.wait(left)

    async def wait(self, call: Call, until: Optional[float]) -> Optional[bytes]:
        """Wait for a call's next message. None: it ended with OK; its error is raised otherwise."""
        waiter = call.waiter
        assert isinstance(waiter, threading.Condition)
        with self.lock:
            while not call.messages and not call.done:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineExceeded("no answer in time", method=call.method)
                waiter.wait(left)
            message = self.core.take(call)
        self.flush()
        return message

    def abandon(self, call: Call) -> None:
        """Cancel a call, from a caller's thread."""
        with self.lock:
            self.core.abandon(call)
        with contextlib.suppress(StockadeError):
            self.flush()

    def collected(self, call: Call) -> None:
        """Cancel a call, from a destructor: this thread may hold the locks.

        Where it cannot have them at once, whoever has them does it.
        """
        self.abandoned.append(call)
        if not self.lock.acquire(blocking=False):
            return
        try:
            while self.abandoned:
                self.core.abandon(self.abandoned.popleft())
            if self._send_lock.acquire(blocking=False):
                try:
                    self._write_now()
                finally:
                    self._send_lock.release()
        except OSError:  # the reader sees it, too
            pass
        finally:
            self.lock.release()

    def leave(self, call: Call) -> None:
        """Ignore the rest of the call, except its END."""
        with self.lock:
            self.core.leave(call)

    def spoilt(self, error: ProtocolError) -> None:
        """End a connection whose broker breaks the protocol."""
        with self.lock:
            self.core.dead = error
        self.lost(str(error))

    def flush(self) -> None:
        """Write the queued bytes. A failure ends the connection, and every call on it."""
        self._sweep()
        while self.core.output:
            with self._send_lock:
                self._drain()

    def _sweep(self) -> None:
        while self.abandoned:
            call = self.abandoned.popleft()
            with self.lock:
                self.core.abandon(call)

    def _drain(self) -> None:
        while True:
            with self.lock:
                if self.core.dead is not None:
                    self.core.output.clear()
                chunk = self.core.offer(_WRITE_BYTES)
            if not chunk:
                return
            try:
                n = self._sock.send(chunk)
            except OSError as e:
                with self.lock:
                    self.core.sent(0)
                self.lost(f"write to the broker: {e.strerror or e}")
                return
            with self.lock:
                self.core.sent(n)

    # The reader's thread.

    def _read(self) -> None:
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        why = "the broker closed the connection"
        try:
            while True:
                try:
                    n = self._sock.recv_into(buffer)
                except socket.timeout:
                    n = -1
                if n == 0:
                    break
                if n > 0 and not self._feed(view[:n]):
                    why = self.core.goaway or why
                    break
                if not self._keep_alive():
                    why = f"the broker has not responded for {2 * KEEPALIVE:g} s"
                    break
        except ProtocolError as e:
            why = str(e)
        except OSError as e:
            why = f"read from the broker: {e.strerror or e}"
        self.lost(why)
        with self._send_lock:
            self._sock.close()

    def _feed(self, data: memoryview) -> bool:
        with self.lock:
            changed = self.core.feed(data, time.monotonic())
            for call in changed:
                assert isinstance(call.waiter, threading.Condition)
                call.waiter.notify()
            if changed or self.core.goaway:
                self._room.notify_all()
            going = self.core.goaway is None or not self.core.idle
        self._flush_now()
        return going

    def _keep_alive(self) -> bool:
        now = time.monotonic()
        if self.core.silent(now) < KEEPALIVE:
            return True
        with self.lock:
            alive = self.core.keep_alive(now, KEEPALIVE)
        self._flush_now()
        return alive

    def _flush_now(self) -> None:
        """Write what the socket takes at once.

        A caller that is writing takes the rest along: it looks again.
        """
        self._sweep()
        if not self.core.output or not self._send_lock.acquire(blocking=False):
            return
        try:
            with self.lock:
                self._write_now()
        finally:
            self._send_lock.release()

    def _write_now(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.core.sent(os.write(self._sock.fileno(), self.core.offer(_WRITE_BYTES)))

    def lost(self, why: str) -> None:
        """End the connection: every open call fails. Any thread may call it, also twice."""
        with self.lock:
            for call in self.core.lost(why):
                assert isinstance(call.waiter, threading.Condition)
                call.waiter.notify_all()
            self._room.notify_all()
        self.shut()

    def shut(self) -> None:
        """Let the reader see the end of the connection. Takes no lock: a destructor may call it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Drop the connection in a forked child: it is the parent's, and so are its calls."""
        self._sock.close()
        self.lock = threading.Lock()  # their holders are not in this process
        self._room = threading.Condition(self.lock)
        self._send_lock = threading.Lock()
        self.core.lost("the program forked, and the connection stayed with the parent")
