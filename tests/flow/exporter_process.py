# SPDX-License-Identifier: Apache-2.0
"""stockade-exporter as a process of a test, with the rights of nobody."""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess

from broker import BUILD, INSTALLED, skip
from runner import check, until
from slowness import Popen, scaled

NOBODY = 65534
CONFIG = "broker: {address}\nprometheus: {{listen: '127.0.0.1:0', connections: 16, timeout: {timeout}ms}}\n"


def program():
    found = shutil.which("stockade-exporter") or "/usr/sbin/stockade-exporter"
    if not INSTALLED:
        found = os.path.join(BUILD, "client", "stockade-exporter")
    if not os.path.exists(found):
        skip(f"stockade-exporter is not built ({found})")
    return found


def as_nobody(*argv, **options):
    return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program(), *argv],
                          capture_output=True, timeout=scaled(60), check=False, **options)


def folder_of(broker, name):
    """A folder for the exporter of one case."""
    folder = f"{broker.folder}/{name}"
    os.makedirs(folder, exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)
    return folder


def key_in(folder, secret):
    """A file with a key that the exporter may read."""
    key = f"{folder}/key"
    with open(key, "wb") as f:
        f.write(secret + b"\n")
    os.chmod(key, 0o600)
    os.chown(key, NOBODY, NOBODY)
    return key


class Exporter:
    """The process, as nobody, in front of a broker."""

    def __init__(self, broker, timeout_ms=10000, more=""):
        self.path, self.log_path = f"{broker.folder}/exporter.yaml", f"{broker.folder}/exporter.log"
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(address=broker.address, timeout=int(scaled(timeout_ms))) + more)
        self.stdout = None  # the log's, unless it is set
        self.prefix = []  # of its command

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = Popen([*self.prefix, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program(),
                                  "--config", self.path], stdin=subprocess.DEVNULL, stdout=self.stdout or log, stderr=log)
        until(lambda: "listening on" in self.log() or self.process.poll() is not None, self.log)
        check(self.process.poll() is None, self.log())
        self.port = int(re.search(r"listening on http://127.0.0.1:(\d+)/", self.log())[1])
        return self

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(scaled(30))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        check(code == 0 and "Sanitizer" not in self.log(), f"{code}: {self.log()}")

    def get(self, path="/metrics", method="GET", headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=scaled(30))
        try:
            c.request(method, path, headers=headers or {})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode()
        finally:
            c.close()

    def of_sink(self, name, sink):
        """A metric of one sink, such as "sent_total"."""
        return self.value(f'stockade_exporter_{name}{{sink="{sink}"}}')

    def value(self, name):
        m = re.search(rf"^{re.escape(name)} (\S+)$", self.get()[2], re.M)
        return float(m[1]) if m else None

    def client(self, source="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.port), scaled(30), (source, 0))
