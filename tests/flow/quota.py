#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Byte quotas from inside a sandbox: payload counts, all of the quota can be used, and connections beyond it are
reset and reported."""

import json
import os
import select
import socket

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, CONFIG, PRELUDE, policy
from peers import Peers
from runner import check, until

PUBLIC, PORT, SINK_PORT = Peers.public, 82, 83
DOWN, MANY = 32 << 20, 16
BYTE_BY_BYTE = 3000


def source(_, told):
    """Sends DOWN bytes after the first byte of a connection; at its end reports how many arrived."""
    server = socket.create_server((PUBLIC, PORT), backlog=64)
    told(0)
    got = {}
    while True:
        for s in select.select([server, *got], [], [])[0]:
            if s is server:
                got[server.accept()[0]] = 0
                continue
            try:
                data = s.recv(65536)
            except ConnectionResetError:
                data = b""
            got[s] += len(data)
            if data[:1] == b"D":
                s.sendall(bytes(DOWN))
            if not data:
                told(got.pop(s))
                s.close()


def sink(go, told):
    """Accepts and reads nothing."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind((PUBLIC, SINK_PORT))
    server.listen(256)
    told(0)
    os.read(go, 1)


def run(b, box, code):
    """What it printed, in words; and its record."""
    code = PRELUDE + f"def dial(port={PORT}): return socket.create_connection(('{PUBLIC}', port), 30)\n" + code
    r = b.cli("exec", "-o", "json", box, "--", "python3", "-c", code)
    out = json.loads(r.stdout)
    check(r.returncode == 0, r.stderr.decode())
    return out["stdout"].split(), out["record"]


def refusals(record):
    return {d["reason"] for d in record["denials"]}


def events(b, box, kind):
    lines = b.cli("events", "-o", "json", "--sandbox", box).stdout.splitlines()
    return [e for e in map(json.loads, lines) if e["kind"] == kind]


def only_payload_counts_and_the_end_of_a_quota_is_a_reset_with_an_event(b, c):
    network = policy(ALLOWLIST, (PUBLIC, PORT, 1), egress_bytes_max=1 + BYTE_BY_BYTE)
    box = c.unary(SANDBOX + "Create", {"network": network}).sandbox.id
    server = peers.server(source)
    server.hear()
    got, record = run(b, box, f"""
s = dial()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.sendall(b"D")
n = 0
while n < {DOWN}:
    n += len(s.recv(1 << 20))
print(n)
for i in range({BYTE_BY_BYTE}):
    s.sendall(b"x")
time.sleep(0.2)
s.sendall(b"!")
try:
    s.recv(1)
except Exception as e:
    print(word(e))
try_tcp("{PUBLIC}", {PORT})
""")
    check(got[:2] == [str(DOWN), "ECONNRESET"] and got[2] in ("ECONNRESET", "EPIPE", "EPERM"), got)
    check(server.hear() == 1 + BYTE_BY_BYTE, "every byte of the quota has arrived")
    check("quota" in refusals(record), f"{record['denials']}")
    check(record["network"]["out_bytes"] >= 1 + BYTE_BY_BYTE, str(record["network"]))
    check(record["network"]["out_bytes"] < 1 + 2 * BYTE_BY_BYTE, "no headers are counted")
    until(lambda: any("quota" in json.dumps(e) for e in events(b, box, "flow_ended")), "the end says why")
    server.end()
    b.cli("rm", box)


def all_of_a_quota_may_leave_over_many_connections(b, c):
    quota = 1 << 20
    network = policy(ALLOWLIST, (PUBLIC, PORT, 1), egress_bytes_max=quota)
    box = c.unary(SANDBOX + "Create", {"network": network}).sandbox.id
    server = peers.server(source)
    server.hear()
    got, _ = run(b, box, f"""
import threading
open_ = [dial() for _ in range({MANY})]
cut = []
def send(s):
    try:
        for _ in range(1100):
            s.sendall(b"x" * 1000)
        s.recv(1)
    except OSError as e:
        cut.append(word(e))
threads = [threading.Thread(target=send, args=(s,)) for s in open_]
for t in threads: t.start()
for t in threads: t.join()
print(*cut)
""")
    check(len(got) == MANY and set(got) <= {"ECONNRESET", "EPIPE"}, got)
    arrived = sum(server.hear() for _ in range(MANY))
    check(arrived == quota, f"{arrived} of {quota} bytes arrived")
    server.end()
    b.cli("rm", box)


def what_the_kernel_drops_beyond_the_quota_is_reset_too(b, c):
    """Datagrams that the relay does not send are counted by the kernel: far beyond the quota it drops all packets."""
    network = policy(ALLOWLIST, (PUBLIC, 80, 2), (PUBLIC, PORT, 1), egress_bytes_max=100000)
    box = c.unary(SANDBOX + "Create", {"network": network}).sandbox.id
    server = peers.server(source)
    server.hear()
    got, record = run(b, box, f"""
s = dial()
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.connect(("{PUBLIC}", 80))
try:
    for _ in range(1000):
        flood.send(bytes(10000))
except OSError as e:
    print(word(e))
try:
    s.recv(1)
except OSError as e:
    print(word(e))
""")
    check(got == ["EPERM", "ECONNRESET"], got)
    check("quota" in refusals(record), f"{record['denials']}")
    server.end()
    b.cli("rm", box)


def connections_that_wait_are_cut_with_the_one_that_ends_the_quota(b, c):
    network = policy(ALLOWLIST, (PUBLIC, PORT, 1), (PUBLIC, SINK_PORT, 1), egress_bytes_max=4 << 20)
    box = c.unary(SANDBOX + "Create", {"network": network}).sandbox.id
    server, sleeper = peers.server(source), peers.server(sink)
    server.hear()
    sleeper.hear()
    got, record = run(b, box, f"""
import select
waits = dial({SINK_PORT})
waits.setblocking(False)
while select.select([], [waits], [], 0.5)[1]:
    waits.send(bytes(4096))
waits.settimeout(30)
s = dial()
for ends in s, waits:
    try:
        while True:
            s.sendall(bytes(65536)) if ends is s else ends.recv(1)
    except OSError as e:
        print(word(e))
""")
    check(got[0] in ("ECONNRESET", "EPIPE") and got[1] == "ECONNRESET", got)
    check("quota" in refusals(record), f"{record['denials']}")
    server.end()
    sleeper.end()
    b.cli("rm", box)


TESTS = [only_payload_counts_and_the_end_of_a_quota_is_a_reset_with_an_event, all_of_a_quota_may_leave_over_many_connections,
         connections_that_wait_are_cut_with_the_one_that_ends_the_quota,
         what_the_kernel_drops_beyond_the_quota_is_reset_too]

if __name__ == "__main__":
    with Peers() as peers:
        main(Broker(config=CONFIG), TESTS)
