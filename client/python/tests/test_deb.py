# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of the clients: what they hold, and that what is unpacked works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy" / "client-packages"
NEEDED = "import setuptools, google.protobuf, sys; sys.exit(sys.prefix != '/usr')"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages; a file stands for the npm package, which is made elsewhere."""
    for command in (["/usr/bin/python3", "-c", NEEDED], ["dpkg-deb", "--help"], ["protoc", "-h"]):
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip(f"needs {' '.join(command)}")
    folder = tmp_path_factory.mktemp("packages")
    tarball = folder / "npm.tgz"
    tarball.write_bytes(b"npm")
    subprocess.run([SCRIPT, folder / "out", tarball], check=True, capture_output=True)
    return folder / "out"


def unpacked(packages: Path, name: str, to: Path) -> Path:
    (package,) = packages.glob(f"{name}_*_all.deb")
    subprocess.run(["dpkg-deb", "-x", package, to], check=True)
    return to


def test_the_python_package_is_imported_by_the_python_of_the_system(
    packages: Path, tmp_path: Path
) -> None:
    tree = unpacked(packages, "python3-stockade", tmp_path)
    path = tree / "usr/lib/python3/dist-packages"
    script = "import stockade; print(stockade.__file__, stockade.Limits(pids=7).to_message())"
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "-c", script],
        env={"PYTHONPATH": str(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{path}/stockade/__init__.py pids: 7"


def test_the_npm_package_and_the_examples_are_installed(packages: Path, tmp_path: Path) -> None:
    tree = unpacked(packages, "stockade-clients", tmp_path)
    (tarball,) = (tree / "usr/share/stockade/node").iterdir()
    assert tarball.read_bytes() == b"npm"
    examples = tree / "usr/share/doc/stockade-clients/examples"
    of = SCRIPT.parent / "examples"
    wanted = {path.relative_to(of) for path in of.rglob("*.*") if path.suffix in {".py", ".mjs"}}
    found = {path.relative_to(examples) for path in examples.rglob("*") if path.is_file()}
    assert found == wanted
    assert len(found) > 4


def test_packages_say_what_they_need_and_under_which_licence(
    packages: Path, tmp_path: Path
) -> None:
    (package,) = packages.glob("python3-stockade_*.deb")
    field = ["dpkg-deb", "-f", str(package), "Depends"]
    depends = subprocess.run(field, capture_output=True, text=True, check=True).stdout
    assert "python3-protobuf" in depends
    for name in ("python3-stockade", "stockade-clients"):
        tree = unpacked(packages, name, tmp_path / name)
        assert "Apache-2.0" in (tree / f"usr/share/doc/{name}/copyright").read_text()
