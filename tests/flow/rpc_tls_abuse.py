#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What rpc_abuse.py does to sockets, over TLS; and what only TLS makes possible. STOCKADE_ABUSIVE_CONNECTIONS is how many there
are in turn, 200 if it is not set; a quarter of them are open at a time."""

import contextlib
import os
import random
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

import libssl
import rpc_abuse
import sp
from runner import check, run_cases, time_passes, until
from slowness import Popen, scaled
from sp import Client, Server, Tls

SANITIZED = sp.sanitized()
CONNECTIONS = int(os.environ.get("STOCKADE_ABUSIVE_CONNECTIONS", "200"))
FLOODERS = 6  # addresses: each may have 32 handshakes at a time, of 256


def client_hello():
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        Tls.context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def record(kind, length, data):
    return struct.pack(">BHH", kind, 0x0303, length) + data


# ---- what one abusive connection does


def before_the_handshake(address, data, answer=False, reset=False):
    with sp.dial(address) as s, contextlib.suppress(OSError):
        s.sendall(data)
        if answer:
            s.recv(65536)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def after_the_handshake(address, data):
    c = Client(address)
    with socket.socket(fileno=os.dup(c.socket.fileno())) as raw:
        raw.sendall(data)
    c.close()


ABUSES = [
    lambda a: sp.dial(a).close(),
    lambda a: before_the_handshake(a, (hello := client_hello())[: random.randrange(1, len(hello))]),
    lambda a: before_the_handshake(a, client_hello(), reset=True),
    lambda a: before_the_handshake(a, client_hello(), answer=True),
    lambda a: before_the_handshake(a, client_hello(), answer=True, reset=True),
    lambda a: before_the_handshake(a, client_hello() + os.urandom(100)),
    lambda a: before_the_handshake(a, sp.REQ_HELLO + b"\0" * 100),
    lambda a: before_the_handshake(a, b"GET / HTTP/1.1\r\n\r\n"),
    lambda a: before_the_handshake(a, record(22, 0xFFFF, b"x" * 70000)),
    lambda a: before_the_handshake(a, record(22, 0x4000, b"\1\xff\xff\xff" + b"x" * 16380) * 4),  # a message of 16 MiB
    lambda a: before_the_handshake(a, record(22, 0, b"") * 1000),
    lambda a: after_the_handshake(a, record(23, 0xFFFF, os.urandom(5000))),
    lambda a: after_the_handshake(a, record(23, 64, os.urandom(64))),
    lambda a: after_the_handshake(a, record(23, 0x4000, os.urandom(1000))),
    lambda a: after_the_handshake(a, record(21, 2, b"\2\x28")),
    lambda a: after_the_handshake(a, client_hello()),
]


# ---- the tests


def no_attack_on_tls_leaves_anything_behind():
    with Server(keepalive_idle_ms=0) as s:
        watcher = Client(s.ipc)
        for abuse in ABUSES * 2:
            abuse(s.tcp)
        until(lambda: watcher.unary("Stats").connections == 1, "all have gone")
        fds, rss = s.settle(s.fds, 0, 0.5), s.rss_kib()
        began = time.monotonic()
        for i in range(CONNECTIONS):
            ABUSES[i % len(ABUSES)](s.tcp)
        took = time.monotonic() - began
        left = s.settle(s.fds, fds)
        grown = s.rss_kib() - rss
        print(f"   {CONNECTIONS} connections in {took:.1f} s; descriptors {fds} -> {left}; memory +{grown} KiB")
        check(left <= fds, f"descriptors: {fds} before, {left} after")
        check(SANITIZED or grown < 16384, f"memory: {grown} KiB")
        check(watcher.unary("Stats").connections == 1, "all have gone")
        check(Client(s.tcp).unary("Echo", {"data": b"x"}).data == b"x", "others are served")


def records_that_are_too_long_or_forged_close_the_connection():
    with Server() as s:
        watcher = Client(s.ipc)
        errors = watcher.unary("Stats").protocol_errors
        forged = [record(23, length, os.urandom(min(length, 5000))) for length in (0xFFFF, 0x4000 + 257, 64, 17, 1)]
        forged += [client_hello(), sp.REQ_HELLO, record(22, 5, b"\x18\0\0\1\1"), record(99, 3, b"xxx")]
        for data in forged:
            c = Client(s.tcp)
            with socket.socket(fileno=os.dup(c.socket.fileno())) as raw:
                raw.sendall(data)
            try:
                check(c.is_closed(), data[:5])
            except ssl.SSLError as why:
                check("ALERT" in str(why), why)
            c.close()
        until(lambda: watcher.unary("Stats").protocol_errors == errors + len(forged), "each is counted")


def address_of(s):
    return s.tcp.split("://")[1].rsplit(":", 1)


def peer(s, **more):
    host, port = address_of(s)
    return libssl.Peer(host, int(port), Tls.files.path("client.pem"), Tls.files.path("client.key"), **more)


def packet(client, method, fields, **frame):
    body = client.call_frame(method, fields, **frame).SerializeToString()
    return struct.pack(">QI", len(body) + 4, 0x80000001) + body


def keys_that_are_renewed_without_end_close_the_connection():
    """Each costs the server a key and an answer."""
    with Server() as s:
        watcher = Client(s.ipc)
        rss, errors = s.rss_kib(), watcher.unary("Stats").protocol_errors
        p = peer(s)
        updates = 0
        while updates < 200000 and p.update_keys():
            updates += 1
        check(updates < 200000, f"{updates} updates and it is still there")
        until(lambda: watcher.unary("Stats").protocol_errors == errors + 1, "it is counted")
        grown = s.rss_kib() - rss
        check(SANITIZED or grown < 2048, f"memory: {grown} KiB")
        p.close()
        p = peer(s)
        p.write(sp.REQ_HELLO)
        check(p.read(8) == sp.REP_HELLO, "greeting")
        for _ in range(100):
            check(p.update_keys(), "a few are nothing bad")
        p.write(packet(watcher, "Echo", {"data": b"x"}))
        check(len(p.read(8)) == 8, "and the connection goes on")
        p.close()


def answers_of_tls_that_nobody_reads_are_bounded():
    """A stream fills what the kernel holds for a connection, and the server goes on reading. One byte of plain text between
    the updates, so that these are not without end."""
    with Server(queue_bytes_pause=32 << 20, queue_bytes_kill=64 << 20) as s:
        watcher = Client(s.ipc)
        rss = s.rss_kib()
        p = peer(s, room=4096)
        p.write(sp.REQ_HELLO + packet(watcher, "Count", {"count": 200, "bytes": 60000}, credit=2**32 - 1))
        time_passes("every buffer between is full", 0.3)
        p.write(struct.pack(">QI", 100000, 0x80000002))
        rounds = 0
        while rounds < 2000 and p.write(b"x") == 1 and all(p.update_keys() for _ in range(50)):
            rounds += 1
        # All of them may lie in the buffers of the kernel when the server has little of the processors.
        until(lambda: watcher.unary("Stats").connections == 1, f"it is closed, of {rounds * 50} updates")
        grown = s.rss_kib() - rss
        check(SANITIZED or grown < 16384, f"memory: {grown} KiB")
        check(watcher.unary("Stats").protocol_errors >= 1, "and counted")
        p.close()


def renegotiation_is_refused():
    with Server(old_tls=1) as s:
        watcher = Client(s.ipc)
        p = peer(s, old=True)
        p.write(sp.REQ_HELLO)
        check(p.read(8) == sp.REP_HELLO, "TLS 1.2 is permitted here")
        check(not p.renegotiate(), "but not to begin again")
        p.close()
        until(lambda: watcher.unary("Stats").connections == 1, "it is closed")


def half_handshakes_end_by_the_deadline_and_others_are_served():
    with Server(handshake_ms=1500) as s:
        watcher, old = Client(s.ipc), Client(s.tcp)
        before = s.fds()
        kept = []
        for i in range(300):
            kept.append(sp.dial(s.tcp))
            with contextlib.suppress(OSError):
                kept[-1].sendall(client_hello()[: (0, 3, 50, 1000)[i % 4]])
        check(old.unary("Echo", {"data": b"x"}).data == b"x", "who is connected is served")
        check(watcher.unary("Echo", {"data": b"x"}).data == b"x", "and on other sockets")

        def new_one():
            with contextlib.suppress(OSError, sp.Closed):
                c = Client(s.tcp)
                return c.unary("Echo", {"data": b"x"}).data == b"x"
            return False

        until(new_one, "after the deadline this address may connect again")
        for c in kept:
            c.settimeout(scaled(30))
            with contextlib.suppress(ConnectionResetError):
                while c.recv(4096):
                    pass
            c.close()
        check(s.settle(s.fds, before) <= before, "descriptors")


def half_handshakes_of_many_addresses_leave_room_for_new_ones():
    with Server(handshake_ms=120000) as s, contextlib.ExitStack() as open_ones:
        host, port = address_of(s)

        def half(address):
            c = open_ones.enter_context(socket.create_connection((host, int(port)), scaled(30), (address, 0)))
            c.sendall(client_hello()[:50])
            return c

        kept = [half(f"127.0.1.{1 + i // 32}") for i in range(256)]
        check(Client(s.tcp).unary("Echo", {"data": b"x"}).data == b"x", "an address that has none gets in")
        closed = select.select(kept, [], [], 0)[0]
        check(closed == [kept[31]], f"one that came last of its address has gone: {[kept.index(c) for c in closed]}")
        with contextlib.suppress(ConnectionResetError):
            check(half("127.0.1.8").recv(1) == b"", "an address has 32 at most")


FLOOD = """
import socket, sys, time
host, port, hello = "127.0.0." + sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
n, end = 0, time.monotonic() + 60
while time.monotonic() < end:
    s = socket.socket()
    s.bind((host, 0))
    try:
        s.connect(("127.0.0.1", port))
        s.sendall(hello)
        s.recv(4096)  # the server has signed
        if n == 0:
            print("begun", flush=True)
        n += 1
    except OSError:
        pass
    s.close()
"""


def a_flood_of_handshakes_slows_nobody_down_who_is_connected():
    """From several addresses, without a pause, each until the server has signed."""
    with Server() as s:
        old = Client(s.tcp)
        hello, port = client_hello().hex(), address_of(s)[1]
        alone = rpc_abuse.latencies(old, 300)
        flood = [Popen([sys.executable, "-c", FLOOD, str(10 + i), port, hello], stdout=subprocess.PIPE)
                 for i in range(FLOODERS)]
        try:
            for p in flood:
                check(p.stdout.readline() == b"begun\n", "the server signs for them")
            beside = sorted(rpc_abuse.latencies(old, 500 if SANITIZED else 3000))
            newcomers = []
            for _ in range(20):
                began = time.monotonic()
                Client(s.tcp).unary("Echo", {"data": b"x"})
                newcomers.append((time.monotonic() - began) * 1000)
        finally:
            for p in flood:
                p.send_signal(signal.SIGKILL)
                p.wait()
        median, p99 = beside[len(beside) // 2], beside[len(beside) * 99 // 100]
        print(f"   echo alone {sorted(alone)[150]:.3f} ms, beside {FLOODERS} that shake hands without end {median:.3f} ms (p99 {p99:.1f}); "
              f"a new connection and its first answer {sorted(newcomers)[10]:.1f} ms")
        check(median < scaled(100 if SANITIZED else 20), f"median {median} ms")


ONLY_IPC = (rpc_abuse.descriptors_of_a_peer_do_not_make_the_server_wait, rpc_abuse.nesting_and_floods_of_fields_are_refused,
            rpc_abuse.a_peer_that_lets_too_much_wait_for_it_is_closed)

if __name__ == "__main__":
    Tls.use()
    rpc_abuse.IN_TURN, rpc_abuse.AT_A_TIME, rpc_abuse.WELL_BEHAVED = CONNECTIONS, CONNECTIONS // 4, min(CONNECTIONS, 1000)
    sys.exit(run_cases([
        records_that_are_too_long_or_forged_close_the_connection, keys_that_are_renewed_without_end_close_the_connection,
        answers_of_tls_that_nobody_reads_are_bounded, renegotiation_is_refused,
        half_handshakes_end_by_the_deadline_and_others_are_served, half_handshakes_of_many_addresses_leave_room_for_new_ones,
        a_flood_of_handshakes_slows_nobody_down_who_is_connected,
        no_attack_on_tls_leaves_anything_behind,
        *(case for case in rpc_abuse.CASES if case not in ONLY_IPC)]))
