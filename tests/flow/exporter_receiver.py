# SPDX-License-Identifier: Apache-2.0
"""A receiver over HTTP for stockade-exporter, which a test can make slow, deaf, or refuse."""

import gzip
import http.server
import os
import socket
import subprocess
import threading

from slowness import Popen


class Receiver:
    """Keeps each request that it accepts: (path, headers, body)."""

    def __init__(self, port=0, tls=None):
        self.got, self.refused, self.lock = [], [], threading.Lock()
        self.answers = []  # for the next requests: (status, headers, body); then 200
        self.stall = None  # an Event that each answer waits for
        self.port, self.tls, self.server = port, tls, None

    def __enter__(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                if len(body) < size:  # the connection has broken
                    self.close_connection = True
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.stall is not None:
                    receiver.stall.wait()
                with receiver.lock:
                    status, headers, answer = receiver.answers.pop(0) if receiver.answers else (200, {}, b"")
                    (receiver.got if status < 300 else receiver.refused).append((self.path, self.headers, body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, block_on_close = True, False

            def handle_error(self, *_):
                """The exporter was killed, or gives up."""

            def get_request(self):
                connection, address = super().get_request()
                connection.settimeout(60)
                with receiver.lock:
                    receiver.open.append(connection)
                return connection, address

        self.open = []
        self.server = Server(("127.0.0.1", self.port), Handler)
        if self.tls is not None:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        """As a process that ends: its connections break."""
        self.server.shutdown()
        self.server.server_close()
        for connection in self.open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def url(self, path=""):
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}{path}"

    def bodies(self, path=None):
        with self.lock:
            return [body for where, _, body in self.got if path in (None, where)]


COLLECTOR = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}
exporters: {{otlp_http: {{endpoint: '{to}', sending_queue: {{enabled: false}}, retry_on_failure: {{enabled: false}}}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines: {{{pipelines}}}
"""


class Collector(Receiver):
    """OpenTelemetry's own, in front of a receiver (tests/compat/collector). It answers when the receiver has."""

    def __init__(self, folder, program):
        super().__init__()
        self.folder, self.program = f"{folder}/collector", program
        self.behind = Receiver().__enter__()
        self.got = self.behind.got
        os.makedirs(self.folder)
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        with open(f"{self.folder}/collector.yaml", "w", encoding="utf-8") as f:
            pipelines = ", ".join(f"{what}: {{receivers: [otlp], exporters: [otlp_http]}}" for what in ("logs", "traces", "metrics"))
            f.write(COLLECTOR.format(port=self.port, to=self.behind.url(), pipelines=pipelines))

    def __enter__(self):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = Popen([self.program, f"--config=file:{self.folder}/collector.yaml"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
