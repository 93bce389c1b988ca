# SPDX-License-Identifier: Apache-2.0
"""What a sandbox or a job may use."""

from __future__ import annotations

import datetime
import math
import operator
import re
from dataclasses import dataclass, fields
from typing import Any, Callable, Optional, TypeVar, Union

from stockade.v1 import limits_pb2

#: Bytes: a number, or text such as ``"256M"``. K, M, G and T are powers of 1024; ``MB`` and ``MiB``
#: mean the same as ``M``.
Size = Union[int, str]
#: Seconds: a number, a ``datetime.timedelta``, or text: a number with ms, s, m, h or d, such as
#: ``"500ms"`` or ``"1.5h"``.
Seconds = Union[int, float, str, datetime.timedelta]

N = TypeVar("N", int, float)

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size_bytes(size: Size) -> int:
    """Return a size in bytes. ``ValueError`` or ``TypeError`` for anything that is none.

    >>> size_bytes("256M")
    268435456
    >>> size_bytes("1.5 GiB")
    1610612736
    """
    if not isinstance(size, str):
        number = operator.index(size)
        if number < 0:
            raise ValueError(f"{size}: a size cannot be negative")
        return number
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise ValueError(f"{size!r}: not a size such as 4096, '256M' or '1.5G'")
    number = float(found[1]) * 1024 ** _POWER[found[2].upper()]
    if math.isinf(number):
        raise ValueError(f"{size[:32]!r}...: too large")
    return int(number)


def to_seconds(span: Seconds) -> float:
    """Return a span of time in seconds. ``ValueError`` or ``TypeError`` for what is none.

    >>> to_seconds(datetime.timedelta(minutes=1)), to_seconds("1.5m"), to_seconds("5")
    (60.0, 90.0, 5.0)
    """
    if isinstance(span, datetime.timedelta):
        return span.total_seconds()
    if isinstance(span, str):
        found = _TIME.fullmatch(span.strip())
        if found is None:
            raise ValueError(f"{span!r}: not a time such as 5, '5s', '500ms' or '1.5h'")
        return float(found[1]) * _SECONDS[(found[2] or "").lower()]
    given: object = span
    if isinstance(given, bytes):  # float() would take it
        raise TypeError(f"{span!r}: a number of seconds, text such as '5s' or a timedelta")
    number = float(span)
    if not math.isfinite(number):
        raise ValueError(f"{span!r}: not a duration; None means no limit")
    return number


def named(name: str, convert: Callable[[Any], N], value: Any) -> N:
    """Convert an argument; the ``ValueError`` or ``TypeError`` of one that makes no sense names it.

    >>> named("keep", size_bytes, "1K")
    1024
    """
    try:
        return convert(value)
    except TypeError as e:
        raise TypeError(f"{name}={value!r}: {e}") from None
    except (ValueError, OverflowError) as e:
        raise ValueError(f"{name}={value!r}: {e}") from None


def seconds(name: str, span: Seconds) -> float:
    """Return the seconds of an argument, which an error names."""
    return named(name, to_seconds, span)


def to_ms(span: Seconds) -> int:
    """Return a span of time in milliseconds, rounded up: it is never cut to nothing.

    ``ValueError`` when it is negative.
    """
    ms = to_seconds(span) * 1000
    if ms < 0:
        raise ValueError(f"{span!r}: a duration cannot be negative")
    return math.ceil(ms)


def lifetime_ms(span: Optional[Seconds], name: str = "ttl") -> int:
    """Return a sandbox's time to live; 0, which leaves it as it is, stands for None alone."""
    ms = 0 if span is None else named(name, to_ms, span)
    if ms == 0 and span is not None:
        raise ValueError(f"{name}={span!r}: must be more than 0; omit it for the default")
    return ms


@dataclass(frozen=True)
class Limits:
    """Limits of a sandbox and its jobs. A limit that is None comes from the template.

    A value above the template's maximum is refused with ``InvalidArgument``, which names both
    values; the broker never lowers a value silently. A job in a sandbox accepts ``timeout``,
    ``cpu_time``, ``files``, ``file_size`` and ``output``.

    >>> Limits(memory="256M", cpus=0.5, timeout=30).to_message().memory_bytes
    268435456
    """

    #: Memory of the whole sandbox, including its files, which are kept in memory: bytes or
    #: ``"256M"``. 4
    #: MiB to 1 TiB.
    memory: Optional[Size] = None
    #: Hard quota in CPUs, such as 0.5 or 4. 0.01 to 1,024.
    cpus: Optional[float] = None
    #: Share of the CPUs when all of them are busy; 100 is the default. 1 to 10,000.
    cpu_weight: Optional[int] = None
    #: CPU time of one job, user and system together: seconds or ``"500ms"``.
    cpu_time: Optional[Seconds] = None
    #: Wall-clock time of one job: seconds or ``"1.5m"``.
    timeout: Optional[Seconds] = None
    #: Processes and threads of the sandbox.
    pids: Optional[int] = None
    #: Open files per process. 8 to 1,048,576.
    files: Optional[int] = None
    #: Maximum size of a file: bytes or ``"1G"``.
    file_size: Optional[Size] = None
    #: Total size of all files that the sandbox writes or changes: bytes or ``"1G"``. 64 KiB to 1
    #: TiB.
    disk: Optional[Size] = None
    #: Number of files, folders and links that the sandbox creates or changes. 64 to 100,000,000.
    inodes: Optional[int] = None
    #: stdout and stderr of one job together; further output is counted and discarded, with a mark
    #: in the stream. None: no limit, unless the template has one.
    output: Optional[Size] = None

    def to_message(self) -> limits_pb2.Limits:
        """Return the limits as a message of the protocol.

        Raises ``ValueError`` or ``TypeError`` for an invalid value; both name the limit.
        """
        message = limits_pb2.Limits()
        for field, (name, convert) in _FIELDS.items():
            value = getattr(self, field)
            if value is None:
                continue
            number = named(field, convert, value)
            if number <= 0:
                raise ValueError(
                    f"{field}={value!r}: must be more than 0; omit it for the template's value"
                )
            try:
                setattr(message, name, number)
            except ValueError:
                raise ValueError(f"{field}={value!r}: too large") from None
        return message

    @classmethod
    def from_message(cls, message: limits_pb2.Limits) -> Limits:
        """Return the limits in a message; a field that is 0 becomes None."""
        return cls(
            memory=message.memory_bytes or None,
            cpus=message.cpu_millis / 1000 or None,
            cpu_weight=message.cpu_weight or None,
            cpu_time=message.cpu_time_ms / 1000 or None,
            timeout=message.wall_ms / 1000 or None,
            pids=message.pids or None,
            files=message.files or None,
            file_size=message.file_size_bytes or None,
            disk=message.disk_bytes or None,
            inodes=message.inodes or None,
            output=message.output_bytes or None,
        )


_FIELDS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "memory": ("memory_bytes", size_bytes),
    "cpus": ("cpu_millis", lambda cpus: round(cpus * 1000)),
    "cpu_weight": ("cpu_weight", operator.index),
    "cpu_time": ("cpu_time_ms", to_ms),
    "timeout": ("wall_ms", to_ms),
    "pids": ("pids", operator.index),
    "files": ("files", operator.index),
    "file_size": ("file_size_bytes", size_bytes),
    "disk": ("disk_bytes", size_bytes),
    "inodes": ("inodes", operator.index),
    "output": ("output_bytes", size_bytes),
}
assert set(_FIELDS) == {field.name for field in fields(Limits)}
