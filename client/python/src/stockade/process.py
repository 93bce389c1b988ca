# SPDX-License-Identifier: Apache-2.0
"""A process in a sandbox, for programs with threads."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Optional

from stockade.both import now
from stockade.errors import CallError, FailedPrecondition, NotFound
from stockade.jobs import Job
from stockade.scoped import Scoped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stockade.calls import Caller, Stream
    from stockade.events import Collector, Event
    from stockade.limits import Seconds
    from stockade.requests import Data, Feed
    from stockade.result import Result


class Process(Job, Scoped):
    """A process that runs in a sandbox.

    Iterate over it to read its output as it arrives (``Output``, ``Gap``); the iteration ends when
    the process ends. Read from one thread at a time; all other methods may be called from any
    thread. Used as a context manager, it is killed at the end of the block if it still runs.
    """

    def __init__(
        self, client: Caller, stream: Stream[Any], collector: Collector, *, resumable: bool
    ) -> None:
        super().__init__(client, stream, collector, resumable=resumable)
        self._feeder: Optional[_Feeder] = None

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = now(self._next(None, handed=True))
        if event is None:
            raise StopIteration
        return event

    def wait(self, timeout: Optional[Seconds] = None) -> Result:
        """Read to the end and return the result.

        After ``timeout`` seconds ``DeadlineExceeded`` (a ``TimeoutError``) is raised; the process
        continues, and you can call ``wait`` again.
        """
        return now(self._wait(timeout))

    def send_stdin(self, data: Data) -> None:
        """Write to its stdin or terminal. Waits while the queue is full (256 KiB).

        Raises ``FailedPrecondition`` if stdin is closed or the process has ended.
        """
        now(self._send_stdin(data))

    def close_stdin(self) -> None:
        """Close its stdin after the bytes that were sent. On a terminal: send end-of-file (^D)."""
        now(self._close_stdin())

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the main process, or with ``group`` to its process group.

        Raises ``FailedPrecondition`` or ``NotFound`` if the process has ended.
        """
        now(self._signal(number, group=group))

    def kill(self) -> None:
        """Kill it and its process group with SIGKILL. Does nothing if it has ended already."""
        now(self._kill())

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal. Raises ``FailedPrecondition`` if it has no terminal."""
        now(self._resize(rows, columns))

    def _exit(self, error: Optional[BaseException]) -> None:
        now(self._abort())

    def _feed(self, feed: Feed) -> None:
        if feed.more is not None and self.result is None:
            self._feeder = _Feeder(self, feed)

    def _check_fed(self) -> None:
        # It may still wait for its source: then it is left alone.
        if self._feeder is not None and self._feeder.error is not None:
            raise self._feeder.error


class _Feeder:
    """A thread that feeds a job's stdin while the caller reads its output."""

    def __init__(self, process: Process, feed: Feed) -> None:
        self._process = process
        self._pieces = feed
        self.error: Optional[BaseException] = None
        threading.Thread(target=self._run, name="stockade-stdin", daemon=True).start()

    def _run(self) -> None:
        try:
            for piece in self._pieces.pieces():
                now(self._process._input(piece))
            self._process.close_stdin()
        except (FailedPrecondition, NotFound):  # it does not read any more, as with a broken pipe
            pass
        except BaseException as e:
            self.error = e
            with contextlib.suppress(CallError):
                self._process.kill()
