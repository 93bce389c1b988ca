# SPDX-License-Identifier: Apache-2.0
"""stockade-exporter with its dashboard, and requests to it."""

import http.client
import json
import re

from broker import binary
from exporter_process import Exporter
from runner import check, until
from slowness import run, scaled

MORE = "dashboard: {{listen: '127.0.0.1:{port}', open: {open}, streams: {streams}, connections: 32, timeout: {timeout}ms}}\n"


def make_key(b, *scopes, tenant=None):
    """An API key, made by root."""
    argv = [binary("stockade"), "--address", b.address, "key", "create", "--scopes", ",".join(scopes)]
    r = run(argv + (["--tenant", tenant] if tenant else []), capture_output=True, text=True)
    check(r.returncode == 0, f"{r.stderr}")
    return r.stdout.strip()


class Dashboard(Exporter):
    def __init__(self, broker, is_open=True, streams=8, timeout_ms=10000, port=0):
        mine = MORE.format(port=port, open="true" if is_open else "false", streams=streams, timeout=int(scaled(timeout_ms)))
        super().__init__(broker, timeout_ms, mine)

    def __enter__(self):
        super().__enter__()
        until(lambda: "dashboard on" in self.log(), self.log)
        self.page = int(re.search(r"dashboard on http://127.0.0.1:(\d+)/", self.log())[1])
        self.url = f"http://127.0.0.1:{self.page}"
        return self

    def ask(self, path, body=None, key=None, method=None, headers=None):
        """(status, headers, text) of one request; a body is sent as JSON, unless it is bytes."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        sent.update(headers or {})
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.page, timeout=scaled(30))
        try:
            c.request(method or ("GET" if body is None else "POST"), path, data, {k: v for k, v in sent.items() if v is not None})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode()
        finally:
            c.close()

    def call(self, method, request=None, key=None, headers=None):
        """(status, response) of one call."""
        status, _, text = self.ask(f"/api/call/{method}", request or {}, key, headers=headers)
        return status, json.loads(text)

    def watch(self, streams, key=None):
        return Watch(self, streams, key)


class Watch:
    """The events of one /api/watch."""

    def __init__(self, dashboard, streams, key=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", dashboard.page, timeout=scaled(30))
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self.connection.request("POST", "/api/watch", json.dumps(streams), headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def next(self):
        """The next (name, message), without beats; None at the end."""
        name = None
        while line := self.response.readline():
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                return name, json.loads(line[6:])
        return None

    def until(self, condition):
        while (event := self.next()) is not None:
            if condition(*event):
                return event
        raise AssertionError("the stream ended before")
