# SPDX-License-Identifier: Apache-2.0
"""Style, types, and what the package consists of."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import aio, methods
from stockade.v1 import (
    access_service_pb2,
    anomaly_service_pb2,
    approval_service_pb2,
    audit_service_pb2,
    code_service_pb2,
    file_service_pb2,
    policy_service_pb2,
    process_service_pb2,
    rules_service_pb2,
    sandbox_service_pb2,
    snapshot_service_pb2,
    system_service_pb2,
    telemetry_service_pb2,
    template_service_pb2,
    transaction_service_pb2,
    volume_service_pb2,
)

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent.parent
WRITTEN = [
    path
    for path in (HERE, HERE / "../../tests/interop", HERE / "../../deploy/examples/python")
    if path.exists()
]


def tool(*args: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *args], cwd=HERE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(done.stdout + done.stderr, pytrace=False)  # what it found, and nothing around


def modules() -> list[ModuleType]:
    names = [m.name for m in pkgutil.walk_packages(stockade.__path__, "stockade.")]
    return [importlib.import_module(name) for name in names if not name.endswith("_pb2")]


def test_ruff_has_nothing_to_say() -> None:
    pytest.importorskip("ruff")
    tool("ruff", "check", "--no-cache", "--output-format=concise", *WRITTEN)
    tool("ruff", "format", "--no-cache", "--check", *WRITTEN)


def test_mypy_has_nothing_to_say_in_strict_mode() -> None:
    pytest.importorskip("mypy")
    tool("mypy", "--explicit-package-bases", "-p", "stockade")
    tool("mypy", "--explicit-package-bases", "tests", *WRITTEN[1:])


def test_the_examples_in_the_docstrings_are_true() -> None:
    tried = 0
    for module in modules():
        result = doctest.testmod(module)
        assert result.failed == 0
        tried += result.attempted
    assert tried > 3


def test_every_method_of_the_api_has_its_row() -> None:
    rows = {m.path for m in vars(methods).values() if isinstance(m, methods.Method)}
    modules = (
        access_service_pb2,
        approval_service_pb2,
        audit_service_pb2,
        file_service_pb2,
        code_service_pb2,
        sandbox_service_pb2,
        snapshot_service_pb2,
        policy_service_pb2,
        process_service_pb2,
        rules_service_pb2,
        system_service_pb2,
        telemetry_service_pb2,
        template_service_pb2,
        transaction_service_pb2,
        volume_service_pb2,
    )
    for module in modules:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                assert path in rows
                rows.remove(path)
    # Rules of the host and profiles are matters of operators: the command has them.
    for method in anomaly_service_pb2.DESCRIPTOR.services_by_name["AnomalyService"].methods:
        path = f"/stockade.v1.AnomalyService/{method.name}"
        assert (path in rows) != (method.name == "ListRules" or "Profile" in method.name)
        rows.discard(path)
    assert not rows


def test_a_method_has_the_rules_that_its_proto_file_gives_it() -> None:
    assert (methods.RUN.streaming, methods.RUN.idempotent, methods.RUN.deadline) == (
        True,
        False,
        None,
    )
    assert (methods.INPUT.streaming, methods.INPUT.keyed, methods.INPUT.deadline) == (
        False,
        True,
        60.0,
    )
    assert methods.GET.idempotent
    assert not methods.GET.keyed


def test_both_clients_have_the_same_names() -> None:
    classes = ("Client", "Sandbox", "Process", "MessageStream", "Forward")
    for cls in (*classes, "ApiKeys", "Approval", "AuditLog", "Policy", "Tokens"):
        names = [
            {name for name in dir(getattr(side, cls)) if not name.startswith("_")}
            for side in (stockade, aio)
        ]
        assert names[0] == names[1]
    for function in ("run", "start"):
        parameters = [inspect.signature(getattr(side, function)) for side in (stockade, aio)]
        assert list(parameters[0].parameters) == list(parameters[1].parameters)


def test_every_public_name_is_documented() -> None:
    for name in stockade.__all__:
        thing = getattr(stockade, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
            for member, value in inspect.getmembers(thing, inspect.isfunction):
                if not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"


def test_the_reference_is_what_the_docstrings_say() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "tools" / "reference.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (HERE / "REFERENCE.md").read_text()
    for name in set(stockade.__all__) - {"Code", "Event"}:
        assert f"`{name}`" in done.stdout or f"# {name}\n" in done.stdout, name
