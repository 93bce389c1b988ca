# SPDX-License-Identifier: Apache-2.0
"""A folder like the build's, in which one program of the broker is to be replaced. Import this before broker.py, which then takes
the programs from there."""

import atexit
import os
import shutil
import tempfile

BUILD = os.environ.get("STOCKADE_BUILD", "")


def build_without(name):
    """The folder, whose server/NAME is missing. Names it in STOCKADE_BUILD."""
    folder = tempfile.mkdtemp(prefix="replaced-", dir=f"{BUILD}/tests")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    os.mkdir(f"{folder}/server")
    for entry in os.scandir(f"{BUILD}/server"):
        if entry.name.startswith("stockade") and entry.is_file() and entry.name != name:
            os.link(entry.path, f"{folder}/server/{entry.name}")
        elif entry.name == "kernels":
            os.symlink(entry.path, f"{folder}/server/kernels")
    for shared in ("client", "proto", "tests", "CMakeCache.txt"):
        os.symlink(f"{BUILD}/{shared}", f"{folder}/{shared}")
    os.environ["STOCKADE_BUILD"] = folder
    return folder
