# SPDX-License-Identifier: Apache-2.0
"""When a call may be sent again: the rules, without I/O and without a clock.

While the broker is away a client that was connected before tries to connect for ``retry_for``
seconds, whichever call finds it gone; a client that never was connected fails at once.

A job must never run twice because a connection broke. So after a failure a call goes out again only
when

  it never reached the broker  no byte of it was written, GOAWAY says that it was not taken, or the
                               broker refused it and said when to ask again
  it is idempotent             the method's own rule in the .proto file
  it has an idempotency key    unary calls and Start do; and the broker that answers now is the one
                               that got it the first time: it has been up for longer than the call
                               has been on its way. After a restart the caller decides: the broker
                               still has the key, and executes nothing twice
"""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Any, Optional

from stockade import methods
from stockade.errors import (
    BrokerUnreachable,
    ConnectionLost,
    ResourceExhausted,
    StockadeError,
    Unavailable,
)

if TYPE_CHECKING:
    from stockade.methods import Method

GRACE = 2.0  # seconds
_DELAY_FIRST, _DELAY_MOST = 0.05, 1.0


class Attempts:
    """The attempts of one call. Times are those of one monotonic clock, in seconds."""

    def __init__(
        self,
        method: Method[Any, Any],
        *,
        now: float,
        timeout: Optional[float] = None,
        retry_for: float = 0.0,
        key: Optional[str] = None,
        connected: bool = False,
    ) -> None:
        self._method = method
        self._retry_until = now + retry_for
        #: There was a connection before: wait for the broker to come back.
        self.lost = connected
        self._given_up = False
        self._failures = 0
        self.begin = now
        #: The failure after which it may have been executed: it goes out again only to the same
        #: broker.
        self.doubt: Optional[ConnectionLost] = None
        self._own_key = key is None and method.keyed
        if timeout is None:
            timeout = method.deadline
        self.deadline = None if timeout is None else now + timeout
        self.key = secrets.token_hex(16) if self._own_key else key

    @property
    def patience(self) -> Optional[float]:
        """When to stop waiting: the broker's own DEADLINE_EXCEEDED may arrive a little late."""
        return None if self.deadline is None else self.deadline + GRACE

    def metadata(self) -> list[tuple[str, str]]:
        """Return the metadata of this attempt."""
        return [("idempotency-key", self.key)] if self.key else []

    def after(self, error: StockadeError, now: float) -> float:
        """Return the seconds to wait before the next attempt, or raise the error: there is none."""
        delay = None if self._given_up else self._decide(error)
        end = self._retry_until if self.deadline is None else min(self._retry_until, self.deadline)
        if delay is None or now + delay > end:
            if self.doubt is not None and isinstance(error, Unavailable):
                raise self.doubt from error  # an earlier attempt may have been executed
            raise error
        return delay

    def same_broker(self, uptime: float, now: float) -> bool:
        """Return whether a broker that is up for `uptime` seconds got the first attempt."""
        return uptime > now - self.begin

    def give_up(self) -> StockadeError:
        """Return the failure to raise when another broker answers than the first time."""
        assert self.doubt is not None
        self._given_up = True
        return self.doubt

    def _decide(self, error: StockadeError) -> Optional[float]:
        if isinstance(
            error, BrokerUnreachable
        ):  # while a broker restarts; otherwise it is reported immediately
            return self._backoff() if self.lost else None
        if isinstance(error, ConnectionLost):
            return self._after_loss(error)
        if (
            isinstance(error, ResourceExhausted)
            and error.reason == "IDEMPOTENCY_KEYS"
            and self._own_key
            and self.doubt is None
        ):
            self.key = None  # the broker keeps no more of them: without one it is sent once
            return 0.0
        if isinstance(error, (ResourceExhausted, Unavailable)) and error.retry_after is not None:
            if error.reason == "DRAINING" and self._method is methods.ADD_TO_BATCH:
                return None  # the batch ends with this broker, and its results come meanwhile
            if self.key and self._own_key and self.doubt is None:
                self.key = secrets.token_hex(16)  # nothing was executed: it is a new request
            return max(error.retry_after, self._backoff())
        return None

    def _after_loss(self, error: ConnectionLost) -> Optional[float]:
        self.lost = True
        if error.maybe_executed and not self._method.idempotent:
            if not self.key:
                return None
            self.doubt = error
        return self._backoff()

    def _backoff(self) -> float:
        delay = min(_DELAY_MOST, _DELAY_FIRST * 2.0**self._failures) if self._failures else 0.0
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, guards nothing
