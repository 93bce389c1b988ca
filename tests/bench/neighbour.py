#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One sandbox against another: round trips of a neighbour while idle, beside a UDP flood, and beside 16 downloads.

    STOCKADE_BUILD=build/release tests/bench/neighbour.py      prints p50, p90, p99 in ms, and connects that failed
"""

import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from api import SANDBOX, connect  # noqa: E402
from broker import Broker  # noqa: E402
from network import ALLOWLIST, CONFIG, policy  # noqa: E402
from peers import Peers  # noqa: E402

PUBLIC, SOURCE, DRAIN = Peers.public, 82, 83
ROUNDS = 600
ASK = f"""
import socket, time
times, failed = [], 0
s = socket.create_connection(("{PUBLIC}", 80), 20)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range({ROUNDS}):
    t = time.perf_counter()
    s.sendall(b"x")
    s.recv(1)
    times.append((time.perf_counter() - t) * 1000)
    time.sleep(0.001)
for _ in range(100):
    try:
        c = socket.create_connection(("{PUBLIC}", 80), 20)
        c.sendall(b"x")
        c.recv(1)
        c.close()
    except OSError:
        failed += 1
times.sort()
print(*(f"{{times[int(len(times) * p)]:.2f}}" for p in (0.5, 0.9, 0.99)), failed)
"""
FLOOD = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("{PUBLIC}", {DRAIN}))
while True:
    s.send(bytes(1000))
"""
DOWNLOADS = f"""
import socket, threading
def pull():
    s = socket.create_connection(("{PUBLIC}", {SOURCE}), 20)
    while s.recv(1 << 18):
        pass
for _ in range(16):
    threading.Thread(target=pull).start()
"""
DIALS = f"""
import socket
while True:
    try:
        socket.create_connection(("{PUBLIC}", 81), 20).close()
    except OSError:
        pass
"""


def source(_, told):
    server = socket.create_server((PUBLIC, SOURCE), backlog=64)
    drain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    drain.bind((PUBLIC, DRAIN))  # what comes fills its buffer and is dropped
    told(0)

    def push(s):
        try:
            while True:
                s.sendall(bytes(1 << 18))
        except OSError:
            s.close()
    while True:
        threading.Thread(target=push, args=(server.accept()[0],), daemon=True).start()


def main():
    with Peers() as peers, Broker(config=CONFIG) as b:
        c = connect(b)
        server = peers.server(source)
        server.hear()
        greedy, honest = (c.unary(SANDBOX + "Create", {
            "ttl_ms": 600000, "network": policy(ALLOWLIST, (PUBLIC, 80, 0), (PUBLIC, 81, 0), (PUBLIC, SOURCE, 1), (PUBLIC, DRAIN, 2))}).sandbox.id for _ in range(2))
        for name, code in (("idle", None), ("UDP flood", FLOOD), ("16 downloads", DOWNLOADS), ("dials", DIALS)):
            p = b.popen("exec", "--timeout", "100s", greedy, "--", "python3", "-c", code, stderr=subprocess.DEVNULL) if code else None
            r = b.cli("exec", "--timeout", "100s", honest, "--", "python3", "-c", ASK)
            print(f"{name:14}", r.stdout.decode().strip() or r.stderr.decode(), flush=True)
            if p:
                p.kill()
                p.wait()
                b.cli("exec", greedy, "--", "sh", "-c", "kill -9 -1")
        server.end()


if __name__ == "__main__":
    main()
