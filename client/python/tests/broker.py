# SPDX-License-Identifier: Apache-2.0
"""A broker of one's own for a test: the real binaries, private sockets, state and cgroup."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stockade

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self


def build() -> Path | None:
    """The build folder with all three binaries, or None."""
    named = os.environ.get("STOCKADE_BUILD")
    if not named:
        return None
    server = Path(named) / "server"
    names = ("stockaded", "stockade-spawner", "stockade-guest")
    return Path(named) if all((server / name).exists() for name in names) else None


def why_not() -> str:
    """Why no broker can be started here; empty: one can."""
    if build() is None:
        return "STOCKADE_BUILD names no build with stockaded, stockade-spawner and stockade-guest"
    return "" if os.geteuid() == 0 else "needs root"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# For a configuration, where no test depends on the BPF programs: loading them is most of a start.
NO_BPF = "bpf: {enabled: false}\n"


class Broker:
    """Started with ``with``; ``restart`` gives another broker at the same addresses."""

    count = 0

    def __init__(self, *, feed: bool = False, policy: str = "", config: str = "") -> None:
        folder = build()
        assert folder is not None
        Broker.count += 1
        self._binary = folder / "server" / "stockaded"
        self.folder = Path(tempfile.mkdtemp(prefix="stockade-python-"))
        self.folder.chmod(0o755)
        self.ipc = f"ipc://{self.folder}/run/stockade.sock"
        self.tcp = f"tcp://127.0.0.1:{free_port()}"
        self.feed = f"ipc://{self.folder}/run/feed.sock"
        self._config = ["--config", f"{self.folder}/stockaded.yaml"]
        text = "rpc: {anonymous: true}\n"  # as tenant tcp
        if feed:
            text += f"telemetry: {{feed: '{self.feed}'}}\n"
        if policy:
            (self.folder / "policy.yaml").write_text(policy)
            text += f"policy_files: ['{self.folder}/policy.yaml']\n"
        (self.folder / "stockaded.yaml").write_text(text + config)
        self._cgroup = f"/stockade-python-{os.getpid()}-{Broker.count}"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what a killed one left behind may take a moment to be gone."""
        until = time.monotonic() + 30
        while not self._start(until):
            time.sleep(0.1)

    def _start(self, until: float) -> bool:
        listen = [word for address in (self.ipc, self.tcp) for word in ("--listen", address)]
        state = ["--state-dir", f"{self.folder}/state", "--cgroup", self._cgroup]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *self._config, *listen, *state],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while True:
            try:
                with stockade.Client(self.ipc, retry_for=0) as client:
                    client.info()
            except stockade.Unavailable:
                if time.monotonic() > until:
                    raise RuntimeError(f"stockaded does not answer:\n{self.log()}") from None
                if self._process.poll() is not None:
                    return False
                time.sleep(0.02)
            else:
                return True

    def stop(self) -> None:
        """End it in order. A second signal would not wait for running jobs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise
            self._process = None

    def drain(self) -> None:
        """Let it end when its jobs have ended, and do not wait for that."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            if kind is not None:
                print(self.log()[-4000:])
            shutil.rmtree(self.folder, ignore_errors=True)


def running(*, policy: str = "", config: str = "") -> Iterator[Broker]:
    """For a fixture: a broker until its tests are over. Skips them where none can start."""
    why = why_not()
    if why:
        pytest.skip(why)
    with Broker(policy=policy, config=config) as started:
        yield started
