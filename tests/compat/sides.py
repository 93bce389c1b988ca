# SPDX-License-Identifier: Apache-2.0
"""The two places where compat runs a command: a sandbox of a broker of its own, and the host as a plain user."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

PLAIN_USER = "nobody"
LIMITS = ("--memory", "4G", "--disk", "2G", "--inodes", "200000", "--pids", "1000",
          "--cpu-time", "30m", "--file-size", "4G")
KEPT = "compat"


def kill_group(pid):
    """What a command left running goes with it, as a sandbox's processes do."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class Sides:
    """Starts a broker; close() stops it and removes everything that was written."""

    def __init__(self, build: pathlib.Path, kept: bool):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "run &" ignores it, and children would, too
        self.kept = kept
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="stockade-compat-")
        os.chmod(self.folder, 0o755)
        self.address = f"ipc://{self.folder}/run/stockade.sock"
        self.log = open(f"{self.folder}/log", "wb")  # noqa: SIM115 (as long as the broker)
        self.broker = subprocess.Popen(
            [build / "server/stockaded", "--listen", self.address, "--state-dir", f"{self.folder}/state",
             "--cgroup", f"/stockade-compat-{os.getpid()}"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self._wait_for_broker()
            if kept and (made := self.cli("create", "--name", KEPT, "--ttl", "12h", *LIMITS)).returncode != 0:
                raise SystemExit(f"no sandbox: {made.stderr}")
        except BaseException:
            self.close()
            raise

    def _wait_for_broker(self):
        until = time.monotonic() + 60
        while self.cli("info").returncode != 0:
            if self.broker.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the broker does not start: {pathlib.Path(self.log.name).read_text()}")
            time.sleep(0.1)

    def cli(self, *args):
        return subprocess.run([self.build / "client/stockade", "--address", self.address, *args], check=False,
                              capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)

    def inside(self, argv, seconds):
        timeout = ("--timeout", f"{seconds}s")
        if not self.kept:
            return self.cli("run", *LIMITS, *timeout, "--", *argv)
        return self.cli("exec", *timeout, KEPT, "--", "/bin/sh", "-c", 'cd "$(mktemp -d)" && exec "$@"', "sh", *argv)

    def outside(self, argv, seconds):
        home = tempfile.mkdtemp(dir=self.folder)
        shutil.chown(home, PLAIN_USER)
        environment = {"HOME": home, "TMPDIR": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        child = subprocess.Popen(argv, cwd=home, env=environment, user=PLAIN_USER, extra_groups=[], text=True,
                                 errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        try:
            stdout, stderr = child.communicate(timeout=seconds)
            return subprocess.CompletedProcess(argv, child.returncode, stdout, stderr)
        except subprocess.TimeoutExpired:
            kill_group(child.pid)
            return subprocess.CompletedProcess(argv, 124, *child.communicate())
        finally:
            kill_group(child.pid)
            shutil.rmtree(home, ignore_errors=True)

    def close(self):
        self.broker.terminate()
        self.broker.wait(60)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
