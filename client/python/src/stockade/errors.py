# SPDX-License-Identifier: Apache-2.0
"""Exceptions.

``StockadeError`` is the base class of all. A call that the broker refused or could not finish
raises the ``CallError`` of its status code, which names the rule or limit that refused the call. A
lost connection raises ``ConnectionLost``, and bytes that break the protocol raise
``ProtocolError``. A job that fails raises nothing: its ``Result`` says how it ended. Only
``check=True`` (or ``Result.check()``) raises ``JobError`` for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Optional

from google.protobuf.message import DecodeError, Message

from stockade.v1 import wire_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.result import Result


class Code(enum.IntEnum):
    """How a call ended: the numbers of google.rpc.Code."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StockadeError(Exception):
    """Base of every exception of this package."""


class ProtocolError(StockadeError):
    """The peer sent bytes that break the protocol. The connection was closed."""


class AddressError(StockadeError, ValueError):
    """An address that is not of the form ``ipc:///path``, ``unix:/path``, ``tcp://host:port``."""


class JobError(StockadeError):
    """A job failed, or its output was cut, and the call had ``check=True``."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        #: The job's ``Result``: outcome, exit code, limit, output, bill.
        self.result = result
        #: The command, empty where another program started it.
        self.command = result.args
        #: The end of what it wrote to stderr: its last 20 lines, of at most 2,000 characters.
        self.stderr = _tail(result.stderr_bytes)

    def __str__(self) -> str:
        from stockade.result import shortened  # noqa: PLC0415 - result needs this module

        command = f"{shortened(self.command)}: " if self.command else ""
        end = f"\n{self.stderr}" if self.stderr else ""
        return f"{command}{self.result}{end}"


def _tail(data: bytes) -> str:
    text = data[-4 * _TAIL_CHARS :].decode("utf-8", "replace")[-_TAIL_CHARS:].rstrip()
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


_TAIL_LINES, _TAIL_CHARS = 20, 2000
#: Seconds: a longer delay that a broker sends is shortened to this one.
RETRY_AFTER_MAX = 3600.0


class CallError(StockadeError):
    """A call ended with a status other than OK. Each code has its own subclass."""

    #: The status code.
    code: Code = Code.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        method: str = "",
        reason: str = "",
        info: Mapping[str, str] | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        quotas: tuple[tuple[str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        #: One sentence of the broker: what was attempted and what failed, the outermost operation
        #: first.
        self.message = message
        #: Path of the method, such as ``/stockade.v1.ProcessService/Run``.
        self.method = method
        #: The rule that refused the call, in UPPER_SNAKE_CASE, such as ``LIMIT_ABOVE_MAXIMUM``; or
        #: empty.
        self.reason = reason
        #: Details of the rule: names and values, and how to request more.
        self.info = dict(info or {})
        #: Wrong fields of the request: pairs of path and reason.
        self.fields = fields
        #: Exhausted quotas: pairs of owner, and quota with its value.
        self.quotas = quotas
        #: Seconds to wait before a retry, if the broker sent a time; at most 3600.
        self.retry_after = retry_after

    @property
    def subject(self) -> Optional[str]:
        """The rule, limit, field or quota that refused the call, or None."""
        named = [self.info[key] for key in ("subject", "rule", "limit") if key in self.info]
        named += [name for name, _ in (*self.fields, *self.quotas)]
        return named[0] if named else None

    @property
    def hint(self) -> Optional[str]:
        """How to fix the request or to request more, or None."""
        return self.info.get("hint")

    @property
    def rule(self) -> Optional[str]:
        """What refused the call: ``LAYER/ID`` of a policy's rule, a caveat, right, limit or quota.

        None if nothing of these did.
        """
        return self.info.get("rule")

    @property
    def allowed(self) -> Optional[str]:
        """Which calls would be allowed instead, in words, or None."""
        return self.info.get("allowed")

    def __repr__(self) -> str:
        facts = {"reason": self.reason, **dict(sorted(self.info.items()))}
        said = "".join(f", {key}={value!r}" for key, value in facts.items() if value)
        return f"{type(self).__name__}({self.message!r}{said})"

    def __str__(self) -> str:
        parts = [f"{self.code.name}: {self.message}"]
        known = self.message
        parts += [f"{path}: {what}" for path, what in self.fields if what not in known]
        parts += [f"{whose}: {what}" for whose, what in self.quotas if what not in known]
        if self.reason:
            told = "".join(f", {key}={value}" for key, value in sorted(self.info.items()))
            parts.append(f"[{self.reason}{told}]")
        if self.retry_after is not None:
            later = " or later" if self.retry_after >= RETRY_AFTER_MAX else ""
            parts.append(f"(try again in {self.retry_after:g} s{later})")
        return " ".join(parts)


class Cancelled(CallError):
    """The caller or the broker cancelled the call."""

    code = Code.CANCELLED


class InvalidArgument(CallError, ValueError):
    """A field of the request is out of its bounds: ``fields`` names it."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceeded(CallError, TimeoutError):
    """The deadline of the call has passed. The broker has undone or ended the work of the call."""

    code = Code.DEADLINE_EXCEEDED


class NotFound(CallError, LookupError):
    """The sandbox, process or template does not exist, or belongs to another caller."""

    code = Code.NOT_FOUND


class AlreadyExists(CallError):
    """Another sandbox of the same caller has the name."""

    code = Code.ALREADY_EXISTS


class PermissionDenied(CallError, PermissionError):
    """The caller does not have the right for this method, or a policy refused the request."""

    code = Code.PERMISSION_DENIED


class ResourceExhausted(CallError):
    """A quota or a queue is full: ``quotas`` names it."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(CallError):
    """Not possible in the present state: a paused sandbox, a closed stdin, a job that ended."""

    code = Code.FAILED_PRECONDITION


class ApprovalPending(FailedPrecondition):
    """The call needs an approval that nobody has answered yet (reason ``APPROVAL_PENDING``).

    Make the same call again after the answer, or use ``approval`` to wait for it.
    """

    @property
    def approval(self) -> str:
        """The id of the approval, for ``Approval.connect`` and ``approval``."""
        return self.subject or ""


class Aborted(CallError):
    """The call conflicted with another one, such as one that deleted its sandbox."""

    code = Code.ABORTED


class OutOfRange(CallError):
    """A position is beyond the end."""

    code = Code.OUT_OF_RANGE


class Unimplemented(CallError, NotImplementedError):
    """The broker has no such method."""

    code = Code.UNIMPLEMENTED


class InternalError(CallError):
    """The broker failed; the message names the operation."""

    code = Code.INTERNAL


class Unavailable(CallError, ConnectionError):
    """The broker cannot be reached, or accepts no new calls. The call was not executed."""

    code = Code.UNAVAILABLE


class BrokerUnreachable(Unavailable):
    """The connection to the broker failed: nothing was sent."""


class ConnectionLost(Unavailable):
    """The connection broke during the call.

    ``maybe_executed`` is True when the request may have reached the broker. This package sends such
    a request again only if that is known to be safe. ``reason`` is ``CONNECTION_LOST``.
    """

    def __init__(self, message: str, *, method: str = "", maybe_executed: bool = True) -> None:
        info = {"hint": "see what it did before you call it again"} if maybe_executed else None
        super().__init__(message, method=method, reason="CONNECTION_LOST", info=info)
        #: The request may have been executed.
        self.maybe_executed = maybe_executed

    def __str__(self) -> str:
        note = "it may have been executed" if self.maybe_executed else "it was not executed"
        return f"{super().__str__()} ({note})"


class DataLoss(CallError):
    """Data that should be there is lost or damaged."""

    code = Code.DATA_LOSS


class Unauthenticated(CallError):
    """The token is missing, wrong, or no longer valid."""

    code = Code.UNAUTHENTICATED


_BY_CODE: dict[int, type[CallError]] = {
    int(cls.code): cls
    for cls in (
        Cancelled,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        InternalError,
        Unavailable,
        DataLoss,
        Unauthenticated,
    )
}


_BY_REASON: dict[str, type[CallError]] = {"APPROVAL_PENDING": ApprovalPending}


def _class_of(code: int, reason: str) -> type[CallError]:
    cls = _BY_CODE.get(code, CallError)
    special = _BY_REASON.get(reason, cls)
    return special if issubclass(special, cls) else cls


def _details(status: wire_pb2.Status) -> dict[str, Message]:
    """Unpack the details that we know; others, and broken ones, are passed over."""
    found: dict[str, Message] = {}
    for packed in status.details:
        name = packed.type_url.rpartition("/")[2].rpartition(".")[2]
        cls = {
            "ErrorInfo": wire_pb2.ErrorInfo,
            "BadRequest": wire_pb2.BadRequest,
            "RetryInfo": wire_pb2.RetryInfo,
            "QuotaFailure": wire_pb2.QuotaFailure,
        }.get(name)
        if cls is not None:
            message = cls()
            try:
                message.ParseFromString(packed.value)
            except (DecodeError, ValueError):
                continue
            found[name] = message
    return found


def from_status(status: wire_pb2.Status, method: str) -> CallError:
    """Make the exception of a status that is not OK.

    A code that does not exist becomes ``CallError`` itself.
    """
    details = _details(status)
    info = details.get("ErrorInfo", wire_pb2.ErrorInfo())
    bad = details.get("BadRequest", wire_pb2.BadRequest())
    quota = details.get("QuotaFailure", wire_pb2.QuotaFailure())
    retry = details.get("RetryInfo")
    assert isinstance(info, wire_pb2.ErrorInfo)
    assert isinstance(bad, wire_pb2.BadRequest)
    assert isinstance(quota, wire_pb2.QuotaFailure)
    after = None
    if isinstance(retry, wire_pb2.RetryInfo):
        after = min(retry.retry_delay_ms / 1000, RETRY_AFTER_MAX)
    return _class_of(status.code, info.reason)(
        status.message or "the broker gave no reason",
        method=method,
        reason=info.reason,
        info=info.metadata,
        fields=tuple((v.field, v.description) for v in bad.field_violations),
        quotas=tuple((v.subject, v.description) for v in quota.violations),
        retry_after=after,
    )
