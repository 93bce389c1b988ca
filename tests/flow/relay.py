#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A relay that hangs: it is killed and another one is started, no call waits for it, and none of its queued data
leaves."""

import fcntl
import os
import signal
import socket
import struct
import termios
import time

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, CONFIG, PRELUDE, policy, python
from slowness import scaled
from peers import Peers
from runner import check, until

PUBLIC = Peers.public
SINK_PORT = 82


def relay_pid(b):
    """None while there is none."""
    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return f.read().split()

    def name(pid):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                return f.read()
        except OSError:
            return ""
    found = [p for s in children(b.process.pid) for p in children(s) if name(p) == "stockade-relay\n"]
    return int(found[0]) if found else None


def stop_relay(b):
    pid = relay_pid(b)
    os.kill(pid, signal.SIGSTOP)
    return pid, time.monotonic()


def wait_for_another(b, pid, since):
    until(lambda: relay_pid(b) not in (None, pid), "another relay")
    print(f"     another relay after {time.monotonic() - since:.2f} s", flush=True)


HOLD = PRELUDE + f"""
s = socket.create_connection(("{PUBLIC}", 80), timeout={scaled(60)})
s.sendall(b"a")
s.recv(1)
print("held", flush=True)
try:
    s.recv(1)
    print("EOF")
except Exception as e:
    print(word(e))
"""


def a_relay_that_hangs_is_replaced_and_delays_no_call(b, c):
    goes, stays = [c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 1))}).sandbox.id for _ in range(2)]
    p = b.popen("exec", stays, "--", "python3", "-c", HOLD, stdout=-1)
    check(p.stdout.readline() == b"held\n", "a connection is open")
    check(python(b, goes, f"try_tcp('{PUBLIC}', 80)") == ["ok"], "before")
    pid, since = stop_relay(b)
    check(b.cli("rm", goes).returncode == 0, "rm comes back")
    check(p.communicate(timeout=scaled(60))[0] == b"ECONNRESET\n", "who was connected is told, by a reset")
    wait_for_another(b, pid, since)
    until(lambda: python(b, stays, f"try_tcp('{PUBLIC}', 80)") == ["ok"], "it serves", 60)
    check("the relay does not respond and is killed" in b.log(), b.log())
    b.cli("rm", stays)


def sink(go, told):
    """Has a small buffer, and reads nothing until it gets an order."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind((PUBLIC, SINK_PORT))
    server.listen()
    told(0)
    peer = server.accept()[0]
    os.read(go, 1)
    told(struct.unpack("i", fcntl.ioctl(peer, termios.FIONREAD, bytes(4)))[0])
    os.read(go, 1)
    got = 0
    try:
        while piece := peer.recv(65536):
            got += len(piece)
    except ConnectionResetError:
        pass
    told(got)


FILL = PRELUDE + f"""
import select
s = socket.create_connection(("{PUBLIC}", {SINK_PORT}), timeout=30)
s.setblocking(False)
n = 0
while select.select([], [s], [], 1)[1]:
    n += s.send(bytes(65536))
print(n, flush=True)
time.sleep(1000)
"""


def what_was_queued_before_a_narrowing_does_not_leave_after_it(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, SINK_PORT, 1))}).sandbox.id
    server = peers.server(sink)
    server.hear()
    p = b.popen("exec", box, "--", "python3", "-c", FILL, stdout=-1)
    sent = int(p.stdout.readline())
    server.go_on()
    had = server.hear()
    check(sent > had + 100000, f"{sent} bytes are on their way, {had} have arrived")
    pid, since = stop_relay(b)
    c.unary(SANDBOX + "Update", {"id": box, "network": policy(ALLOWLIST, (PUBLIC, 80, 1))})
    wait_for_another(b, pid, since)
    server.go_on()
    got = server.hear()
    server.end()
    check(got <= had, f"{got} bytes arrived, of which {had} were there before")
    b.cli("rm", box)
    p.wait()
    p.stdout.close()


TESTS = [a_relay_that_hangs_is_replaced_and_delays_no_call, what_was_queued_before_a_narrowing_does_not_leave_after_it]

if __name__ == "__main__":
    with Peers() as peers:
        main(Broker(config=CONFIG), TESTS)
