# SPDX-License-Identifier: Apache-2.0
"""Makes stockade/v1/*_pb2.py and *_pb2.pyi from the .proto files when the package is built.

The .proto files stand in proto/ beside this file in an sdist, and in ../../proto in a checkout.
protoc turns them into one descriptor set and into type stubs; the modules only hand the descriptors
to the protobuf runtime. So one wheel fits every runtime from 4.22 on: protoc's own Python output
refuses a runtime that is older than itself.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PUBLIC = (
    "options",
    "wire",
    "record",
    "limits",
    "sandbox_service",
    "process_service",
    "system_service",
    "anomaly_service",
    "telemetry_service",
    "metrics_service",
    "snapshot_service",
    "template_service",
    "transaction_service",
    "simulation",
    "file_service",
    "code_service",
    "volume_service",
    "access_service",
    "approval_service",
    "audit",
    "audit_service",
    "policy",
    "policy_service",
    "detection",
    "rules_service",
    "token",
)

MODULE = """\
# Made from {proto} by setup.py.
from google.protobuf import descriptor_pool
from google.protobuf.internal import builder
{imports}
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    {serialized!r}
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, {module!r}, globals())
"""


def proto_folder() -> Path:
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "stockade" / "v1" / "wire.proto").is_file():
            return folder
    raise SystemExit(
        "the .proto files are neither in proto/ nor in ../../proto: "
        "this folder alone is not enough, install from a whole checkout or from an sdist"
    )


def protoc_command() -> list[str]:
    """Return the protoc of grpcio-tools where that is installed, the one on PATH otherwise."""
    spec = importlib.util.find_spec("grpc_tools")
    if spec is not None and spec.origin is not None:
        include = Path(spec.origin).parent / "_proto"
        return [sys.executable, "-m", "grpc_tools.protoc", f"-I{include}"]
    path = shutil.which("protoc")
    if path is None:
        raise SystemExit("needs grpcio-tools, or protoc on PATH")
    return [path]


def complete_stub(path: Path) -> None:
    """Mend what a strict checker finds in protoc's stubs: bare `Mapping`, stray `ClassVar`, and
    `**kwargs` without a type, which stands for a field whose name is a word of Python (`from`).
    """
    text = re.sub(r"^(\w+): _ClassVar\[(\w+)\]$", r"\1: \2", path.read_text(), flags=re.MULTILINE)
    text = text.replace("**kwargs)", "**kwargs: object)")
    text, n = re.subn(r"(?<!as )\b_Mapping\b(?!\[)", "_Mapping[str, _Any]", text)
    path.write_text("from typing import Any as _Any\n" + text if n else text)


def write_modules(out: Path) -> None:
    """Write the modules and their stubs below `out`, as stockade/v1/NAME_pb2.py[i]."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - a dependency of grpcio-tools

    protos = proto_folder()
    names = [f"stockade/v1/{name}.proto" for name in PUBLIC]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        subprocess.run(
            [
                *protoc_command(),
                f"-I{protos}",
                f"--descriptor_set_out={made}",
                f"--pyi_out={out}",
                *names,
            ],
            check=True,
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    for file in files.file:
        complete_stub(out / file.name.replace(".proto", "_pb2.pyi"))
        module = file.name.removesuffix(".proto").replace("/", ".") + "_pb2"
        imports = "".join(
            f"import {name.removesuffix('.proto').replace('/', '.')}_pb2\n"
            for name in file.dependency
        )
        text = MODULE.format(
            proto=file.name, imports=imports, serialized=file.SerializeToString(), module=module
        )
        (out / file.name.replace(".proto", "_pb2.py")).write_text(text)


class BuildMessages(build_py):
    def run(self) -> None:
        super().run()
        out = HERE / "src" if self.editable_mode else Path(self.build_lib)
        (out / "stockade" / "v1").mkdir(parents=True, exist_ok=True)
        write_modules(out)


class SdistWithProtos(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir) / "proto" / "stockade" / "v1"
        target.mkdir(parents=True, exist_ok=True)
        for name in PUBLIC:
            shutil.copy(proto_folder() / "stockade" / "v1" / f"{name}.proto", target)


setup(license="Apache-2.0", cmdclass={"build_py": BuildMessages, "sdist": SdistWithProtos})
