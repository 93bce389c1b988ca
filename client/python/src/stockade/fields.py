# SPDX-License-Identifier: Apache-2.0
"""Arguments as fields of a message. What is of another type is refused with the argument's name.

Messages of protobuf take None as "not set" and bytes as text, and their errors name no field.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")
T = TypeVar("T")

_SHOWN_MAX = 120  # characters of a value in an error
_NO_NAMES: Mapping[str, str] = {}
_WORDS = {
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "True or False",
    FieldDescriptor.TYPE_UINT32: "a whole number from 0 to 4294967295",
    FieldDescriptor.TYPE_UINT64: "a whole number from 0 to 18446744073709551615",
    FieldDescriptor.TYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.TYPE_INT64: "a whole number of 64 bits",
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def plural(n: int, one: str) -> str:
    """Return the word for so many: with an s, unless it is one."""
    return one if n == 1 else f"{one}s"


def wrong(what: str, value: object, expected: str) -> TypeError:
    """Return the error for an argument of another type."""
    hint = "; an await is missing" if inspect.isawaitable(value) else ""
    if inspect.iscoroutine(value):
        value.close()  # which is not to be warned of, too
    return TypeError(f"{what}={_short(value)}: expected {expected}{hint}")


def is_a(kind: type[T], what: str, value: T) -> T:
    """Return an argument, or raise the ``TypeError`` that names it."""
    if not isinstance(value, kind):
        raise wrong(what, value, kind.__name__)
    return value


def optional(what: str, value: Optional[str]) -> str:
    """Return a text that need not be given. ``ValueError``: it is given, and empty."""
    if value is None:
        return ""
    if not is_a(str, what, value):
        raise ValueError(f"{what}='': must not be empty; omit it for the default")
    return value


def utf8(what: str, text: str) -> bytes:
    """Return text in UTF-8. ``ValueError``: it has surrogates, which are no characters."""
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        found = text[e.start]
        raise ValueError(f"{what}: {found!r} at {e.start} is a surrogate, no character") from None


def positive(what: str, value: Optional[int]) -> int:
    """Return a number that need not be given, for which 0 stands in a message."""
    if value is None:
        return 0
    if is_a(int, what, value) < 1:
        raise ValueError(f"{what}={value!r}: must be more than 0; omit it for the default")
    return value


def _refused(field: Any, what: str, value: object) -> Exception:
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, str):
        try:
            utf8(what, value)
        except ValueError as e:
            return e
    expected = _WORDS.get(field.type, "another type")
    if expected.startswith("a whole number") and type(value) is int:
        return ValueError(f"{what}={_short(value)}: expected {expected}")
    return wrong(what, value, expected)


def _check(field: Any, what: str, value: object) -> None:
    bytes_as_text = field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes)
    none_as_unset = value is None and field.message_type is None
    number_as_flag = field.type == FieldDescriptor.TYPE_BOOL and not isinstance(value, bool)
    if bytes_as_text or none_as_unset or number_as_flag:
        raise wrong(what, value, _WORDS.get(field.type, "a value"))


def made(kind: type[M], /, as_: Mapping[str, str] = _NO_NAMES, **fields: Any) -> M:
    """Return a message of these fields.

    ``as_``  names of arguments that are not those of their fields

    Raises ``TypeError`` or ``ValueError``, which names the argument.
    """
    known = kind.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        _check(known[name], as_.get(name, name), value)
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError):
                raise _refused(known[name], as_.get(name, name), value) from None
        raise
