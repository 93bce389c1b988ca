#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A narrower policy is in force when the call that requested it returns, even with data in transit: packets that
leave the host are counted at its link."""

import ctypes
import os
import signal
import socket

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, CONFIG, policy
from peers import CLONE_NEWNET, Peers
from runner import check, time_passes, until

PUBLIC = Peers.public
PORT, UPLOADS = 82, 16
TIMES = int(os.environ.get("STOCKADE_NARROWINGS", "1"))  # of each kind
MOST = 64 << 10  # resets, and what was in the link's own queue
UPLOAD = f"""
import socket, threading
def upload(s):
    try:
        while True:
            s.sendall(bytes(65536))
    except OSError:
        print("cut", flush=True)
for s in [socket.create_connection(("{PUBLIC}", {PORT})) for _ in range({UPLOADS})]:
    threading.Thread(target=upload, args=[s]).start()
print("up", flush=True)
"""


def drain(peer):
    """A process in the peer's namespace that takes all that comes. Its id."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        with open(f"/proc/{peer}/ns/net", "rb") as f:
            ctypes.CDLL(None).setns(f.fileno(), CLONE_NEWNET)
        listener = socket.create_server(("", PORT), backlog=64)
        os.write(told, b"x")
        while True:
            s = listener.accept()[0]
            if os.fork() == 0:
                try:
                    while s.recv(1 << 20):
                        pass
                finally:
                    os._exit(0)
            s.close()
    os.read(ready, 1)
    return pid


def sent():
    """Bytes that left over the link to the peer."""
    with open("/proc/self/net/dev", encoding="ascii") as f:
        return next(int(line.split()[9]) for line in f if line.strip().startswith("host:"))


def nothing_leaves_once_a_narrowing_has_come_back(b, c):
    for narrow in (policy(ALLOWLIST, (PUBLIC, 80, 1)), policy(ALLOWLIST, ("10.77.0.0/24", 80, 1)), {"mode": 1}) * TIMES:
        box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, PORT, 1))}).sandbox.id
        p = b.popen("exec", box, "--", "python3", "-c", UPLOAD, stdout=-1)
        check(p.stdout.readline() == b"up\n", "uploads have begun")
        before = sent()
        until(lambda before=before: sent() > before + (16 << 20), "uploads under way")
        c.unary(SANDBOX + "Update", {"id": box, "network": narrow})
        then = sent()
        time_passes("what is still on its way would leave", 0.1)
        check(sent() - then <= MOST, f"{sent() - then} bytes left after the call had come back")
        out = p.communicate()[0]
        check(out == b"cut\n" * UPLOADS, f"all are cut: {out}")
        b.cli("rm", box)


TESTS = [nothing_leaves_once_a_narrowing_has_come_back]

if __name__ == "__main__":
    with Peers() as peers:
        drain_pid = drain(peers.pid)
        try:
            main(Broker(config=CONFIG), TESTS)
        finally:
            os.kill(drain_pid, signal.SIGKILL)
