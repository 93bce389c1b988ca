# SPDX-License-Identifier: Apache-2.0
"""Writes REFERENCE.md to stdout: every public name of the package with what its docstring says."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import stockade
from stockade import aio, batches, code, errors, events, limits, network, requests, tokens

if TYPE_CHECKING:
    from types import ModuleType

GROUPS = (
    (
        "Running",
        (
            "run",
            "start",
            "Sandbox",
            "Process",
            "Output",
            "Gap",
            "Forward",
            "Files",
            "Watch",
            "Transaction",
            "Volume",
        ),
    ),
    ("Approvals", ("Approval", "ApprovalInfo", "ApprovalVote", "approval")),
    (
        "Keys and tokens",
        ("ApiKeys", "KeyInfo", "NewKey", "Tokens", "NewToken", "SigningKey", "SigningKeys"),
    ),
    ("Audit log", ("AuditLog", "AuditRecord")),
    (
        "Policies",
        (
            "Policy",
            "narrowed",
            "PolicyDecision",
            "PolicyStep",
            "PolicyQuestion",
            "PolicyInfo",
            "PolicyLayerInfo",
            "PolicyRuleInfo",
            "DestinationSet",
        ),
    ),
    ("Findings", ("Findings", "Finding", "Acknowledgement", "Silence")),
    ("Detection rules", ("Rules", "RuleInfo", "RuleFile", "RuleList", "RuleFinding")),
    ("Many jobs", ("batch", "Batch", "BatchJob", "BatchResult")),
    (
        "Cells of code",
        (
            "run_code",
            "Context",
            "Execution",
            "CodeResult",
            "CodeFailure",
            "CodeStatus",
            "ContextInfo",
            "Checkpoint",
        ),
    ),
    (
        "What comes back",
        (
            "Result",
            "Outcome",
            "LimitHit",
            "Bill",
            "Figure",
            "Source",
            "Scope",
            "Simulation",
            "SimulatedConnection",
            "SimulatedRefusal",
            "Simulate",
        ),
    ),
    ("What may be used", ("Limits", "Network")),
    (
        "What there is",
        (
            "SandboxInfo",
            "SleepInfo",
            "SnapshotInfo",
            "TransactionInfo",
            "TransactionOutcome",
            "TransactionPolicy",
            "TemplateInfo",
            "VolumeInfo",
            "ProcessInfo",
            "FileInfo",
            "FileEvent",
            "Change",
        ),
    ),
    (
        "Connection",
        ("Client", "default_client", "info", "MessageStream", "EventStream", "Schema", "Stub"),
    ),
)


def signature(thing: object) -> str:
    """Return the arguments as text, without the annotations' module names."""
    text = str(inspect.signature(thing))  # type: ignore[arg-type]
    text = text.replace("b''", 'b""')
    text = re.sub(r"(stockade\.\w+|typing|collections\.abc|datetime)\.", "", text).replace("'", "")
    text = re.sub(r"\((self|cls)(, )?", "(", text)
    return (
        text
        if len(text) <= 100
        else "(\n    " + ",\n    ".join(split(text)) + ",\n)" + result(text)
    )


def result(text: str) -> str:
    """Return the part after the closing parenthesis."""
    return text[text.rindex(")") + 1 :] if ") ->" in text else ""


def split(text: str) -> list[str]:
    """Return the arguments of a signature one by one."""
    parts, depth, start = [], 0, 1
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if (c == "," and depth == 1) or (c == ")" and depth == 0):
            parts.append(text[start:i].strip())
            start = i + 1
        if c == ")" and depth == 0:
            break
    return [part for part in parts if part]


def prose(doc: str | None) -> str:
    """Return a docstring as markdown: lists of arguments as such, examples as code."""
    lines, out, code = inspect.cleandoc(doc or "").split("\n"), [], False
    for line in lines:
        example = line.startswith(">>>") or (code and line != "")
        if example and not code:
            out.append("```python")
        if code and not example:
            out.append("```")
        code = example
        text = re.sub(r"\s+# doctest: \+SKIP", "", line)
        if not code:
            text = re.sub(r"^(``\w+``)\s{2,}(?=\S)", r"- \1: ", text)
            text = re.sub(r"^ {5,}(?=\S)", "  ", text).replace("``", "`")
        out.append(text)
    return "\n".join(out + ["```"] * code)


def fields(cls: type | ModuleType) -> list[tuple[str, str]]:
    """Return names and comments (``#:``) of a class's fields, enum members and attributes."""
    found: list[tuple[str, str]] = []
    comment: list[str] = []
    for line in inspect.getsource(cls).split("\n"):
        text = line.strip()
        name = re.match(r"(?:self\.)?([a-z_A-Z]+)\b\s*(?::|=)", text)
        if text.startswith("#:"):
            comment.append(text[2:].strip())
        elif comment and name:
            found.append((name[1], " ".join(comment).replace("``", "`")))
            comment = []
        else:
            comment = []
    return found


def own(cls: type) -> list[type]:
    """Return a class of this package and those that it is made of, these first."""
    inner = issubclass(cls, BaseException)
    made_of = [] if inner else [c for c in cls.__mro__[1:] if c.__module__.startswith("stockade.")]
    return [*reversed(made_of), cls]


def members(cls: type) -> dict[str, object]:
    """Return what a class has, and then what it inherits within this package."""
    found: dict[str, object] = {}
    for part in reversed(own(cls)):
        found.update({name: value for name, value in vars(part).items() if name not in found})
    return found


def show_class(cls: type, name: str) -> None:
    """Print a class: what it is, its fields, its properties and methods."""
    made = not issubclass(cls, enum.Enum) and not issubclass(cls, BaseException)
    heading = f"{name}{signature(cls)}" if made and name in {"Client", "Limits"} else name
    print(f"### {name}\n")
    if heading != name:
        print(f"```python\n{heading}\n```\n")
    print(prose(cls.__doc__) + "\n")
    for part in own(cls):
        for field, comment in fields(part):
            print(f"- `{field}`: {comment}")
    properties = [(n, v) for n, v in members(cls).items() if isinstance(v, property)]
    for field, value in properties:
        if not field.startswith("_"):
            summary = " ".join(inspect.cleandoc(value.__doc__ or "").split())
            print(f"- `{field}`: {summary.replace('``', '`')}")
    print()
    for method in members(cls):
        value = inspect.getattr_static(cls, method)
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if inspect.isfunction(function) and not method.startswith("_"):
            print(f"#### {name}.{method}\n\n```python\n{method}{signature(function)}\n```\n")
            print(prose(function.__doc__) + "\n")


def show_types() -> None:
    """Print what arguments may be."""
    print("## Types of arguments\n")
    for module in (limits, requests, events, code, network, batches):
        for name, comment in fields(module):
            if name in vars(module) and name in stockade.__all__:
                print(f"- `{name}`: {comment}")
    print()


def show_errors() -> None:
    """Print the exceptions as a table."""
    print("## Errors\n\n" + prose(errors.__doc__) + "\n")
    print("| exception | is also | when |\n|---|---|---|")
    for name in stockade.__all__:
        cls = getattr(stockade, name)
        if inspect.isclass(cls) and issubclass(cls, Exception):
            parents = ", ".join(f"`{p.__name__}`" for p in cls.__bases__)
            print(f"| `{name}` | {parents} | {' '.join(prose(cls.__doc__).split())} |")
    print("\nEvery `CallError` carries:\n")
    for field, comment in fields(stockade.CallError):
        print(f"- `{field}`: {comment}")
    for field in ("subject", "hint"):
        print(f"- `{field}`: {getattr(stockade.CallError, field).__doc__}")


def show_tokens() -> None:
    """Print what capability tokens need, which is a module of its own."""
    print("## Capability tokens\n\n" + prose(tokens.__doc__) + "\n")
    for thing in (tokens.attenuate, tokens.seal, tokens.inspect, tokens.verify):
        name = thing.__name__
        print(f"### tokens.{name}\n\n```python\n{name}{signature(thing)}\n```\n")
        print(prose(thing.__doc__) + "\n")
    for kind in (tokens.Tool, tokens.TokenInfo, tokens.TokenError):
        show_class(kind, f"tokens.{kind.__name__}")


def main() -> None:
    """Print everything."""
    print(
        "# Reference\n\nMade from the docstrings by `tools/reference.py`. Times are in seconds and"
    )
    print("sizes in bytes wherever nothing else is said.\n")
    print(prose(stockade.__doc__) + "\n")
    for title, names in GROUPS:
        print(f"## {title}\n")
        for name in names:
            thing = getattr(stockade, name)
            if inspect.isclass(thing):
                show_class(thing, name)
            else:
                print(f"### {name}\n\n```python\n{name}{signature(thing)}\n```\n")
                print(prose(thing.__doc__) + "\n")
    show_types()
    show_tokens()
    show_errors()
    print("\n## asyncio\n\n" + prose(aio.__doc__))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    main()
