#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs can install packages and commit, at the first try and without network."""

import io
import os
import shutil
import zipfile

from broker import Broker, skip
from runner import check, run_cases

NAME = "stockade_try-1.0-py3-none-any.whl"
RECORD = "stockade_try/__init__.py,,\nstockade_try-1.0.dist-info/METADATA,,\nstockade_try-1.0.dist-info/WHEEL,,\n" \
         "stockade_try-1.0.dist-info/entry_points.txt,,\nstockade_try-1.0.dist-info/RECORD,,\n"


def wheel():
    """A package with one command, stockade-try."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("stockade_try/__init__.py", "def main():\n    print('installed')\n")
        z.writestr("stockade_try-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: stockade-try\nVersion: 1.0\n")
        z.writestr("stockade_try-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("stockade_try-1.0.dist-info/entry_points.txt", "[console_scripts]\nstockade-try = stockade_try:main\n")
        z.writestr("stockade_try-1.0.dist-info/RECORD", RECORD)
    return out.getvalue()


def script(b, text, stdin=b""):
    r = b.cli("run", "-i", "--", "sh", "-ec", text, input=stdin)
    check(r.returncode == 0, f"{text}: {r.returncode} {r.stdout.decode()} {r.stderr.decode()}")
    return r.stdout.decode() + r.stderr.decode()


def pip_installs_into_the_home_of_the_job(b):
    if not os.path.exists("/usr/lib/python3/dist-packages/pip"):
        return print("skipped: no pip on this machine")
    said = script(b, f"cat >{NAME}; pip install --no-index ./{NAME}; stockade-try; "
                     "python3 -c 'import stockade_try; print(stockade_try.__file__)'", wheel())
    check("installed\n" in said and "/home/agent/.local/lib/" in said, said)
    check("WARNING" not in said and "error" not in said, said)
    return None


def pip_installs_into_an_environment(b):
    if not os.path.exists("/usr/lib/python3/dist-packages/pip") or not shutil.which("python3", path="/usr/bin"):
        return print("skipped: no pip on this machine")
    said = script(b, "cat >" + NAME + "; python3 -m venv --without-pip v; "
                     f"pip --python v/bin/python install --no-index ./{NAME}; v/bin/stockade-try; . v/bin/activate; stockade-try", wheel())
    check(said.count("installed\n") == 2, said)
    return None


def git_knows_who_commits(b):
    if not shutil.which("git", path="/usr/bin"):
        return print("skipped: no git on this machine")
    said = script(b, "git init -q r; cd r; echo a >a; git add a; git commit -qm m; git log --format='%an <%ae>'; "
                     "git config --global user.name me; git commit -q --allow-empty -m n; git log -1 --format=%an")
    check("agent <agent@sandbox>\n" in said and said.endswith("me\n"), said)
    return None


TESTS = [pip_installs_into_the_home_of_the_job, pip_installs_into_an_environment, git_knows_who_commits]

if __name__ == "__main__":
    if not os.path.exists("/usr/bin/python3"):
        skip("no python3 in /usr/bin")
    with Broker() as broker:
        raise SystemExit(run_cases(TESTS, lambda test: test(broker), lambda: broker.cli("rm", "--all")))
