#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile peers, slow readers, and many peers at once: the server is unchanged afterwards, and others are not
affected."""

import os
import random
import resource
import signal
import socket
import ssl
import statistics
import struct
import sys
import time

import sp
from runner import check, run_cases, time_passes, until
from slowness import scaled
from sp import Client, Server

SANITIZED = sp.sanitized()
IN_TURN, AT_A_TIME, WELL_BEHAVED = 20000, 500 if SANITIZED else 5000, 1000  # connections


def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def nested(levels, tag):
    """Messages inside messages, as protobuf-c would recurse into them."""
    parts, length = [], 0
    for _ in range(levels):
        parts.append(tag + varint(length))
        length += len(parts[-1])
    return b"".join(reversed(parts))


# ---- what one abusive connection does. Each is given an address.


def comes_and_goes(address):
    sp.connect(address).close()


def half_a_hello(address):
    c = Client(address, hello=False)
    c.socket.sendall(sp.REQ_HELLO[: random.randrange(1, 8)])
    c.close()


def wrong_hello(address):
    c = Client(address, hello=False)
    c.socket.sendall(random.choice([b"GET / HTTP/1.1\r\n\r\n", b"\0SP\0\0\x10\0\0", b"\xff" * 64]))
    c.close()


def half_a_frame(address):
    c = Client(address)
    data = c.pack(0x80000001, c.call_frame("Echo", {"data": b"x" * 100}))
    c.socket.sendall(data[: random.randrange(1, len(data))])
    c.close()


def pipelined_and_gone(address):
    c = Client(address)
    ids = [c.new_id() for _ in range(5)]
    c.socket.sendall(b"".join(c.pack(i, c.call_frame("Echo", {"data": b"x" * 1000})) for i in ids))
    if c.ipc:
        c.close()
    else:
        c.reset()


def streams_and_gone(address):
    c = Client(address)
    c.begin("Count", {"count": 1000, "bytes": 1000}, credit=1000)
    c.begin("Change", {"delay_ms": 60000})
    if c.ipc:
        c.close()
    else:
        c.reset()


def a_length_that_lies(address):
    c = Client(address)
    head = b"\1" if c.ipc else b""
    length = random.choice([2**64 - 1, 2**64 - 32, 2**63, 1 << 40, (4 << 20) + 1, 3, 0])
    c.socket.sendall(head + struct.pack(">Q", length) + b"x" * 64)
    c.close()


def noise(address):
    c = Client(address)
    c.socket.sendall(c.pack(0x80000001, os.urandom(random.randrange(1, 200))))
    c.close()


ABUSES = [comes_and_goes, half_a_hello, wrong_hello, half_a_frame, pipelined_and_gone, streams_and_gone,
          a_length_that_lies, noise]


def abuse(s, n):
    for i in range(n):
        ABUSES[i % len(ABUSES)]((s.ipc, s.tcp)[i // len(ABUSES) % 2])


# ---- the tests


def half_handshakes_are_reaped_by_the_deadline():
    with Server(handshake_ms=700) as s:
        watcher = Client(s.ipc)
        before = s.fds()
        kept = []
        for i in range(300):
            c = Client((s.ipc, s.tcp)[i % 2], hello=False)
            c.socket.sendall(sp.REQ_HELLO[: i % 8])
            kept.append(c)
        began = time.monotonic()
        check(watcher.unary("Echo", {"data": b"x"}).data == b"x", "others are served")
        check(all(c.is_closed() for c in kept), "all are closed")
        took = time.monotonic() - began
        check(took < 30, f"by the deadline: {took}")
        check(s.settle(s.fds, before) <= before, "their descriptors are given back")
        check(watcher.unary("Stats").handshake_failed >= 300, "and counted")


def a_hello_that_drips_does_not_put_the_deadline_off():
    with Server(handshake_ms=700) as s:
        for address in (s.ipc, s.tcp):
            c = Client(address, hello=False)
            for byte in sp.REQ_HELLO[:-1]:
                time_passes("eight bytes take longer than the limit", 0.15)
                try:
                    c.socket.sendall(bytes([byte]))
                except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                    break
            check(c.is_closed(), "it is closed, although a byte came now and then")
        check(Client(s.ipc).unary("Stats").handshake_failed == 2, "and counted")


def pipelined_requests_and_a_reset_leave_nothing_behind():
    with Server() as s:
        watcher = Client(s.ipc)
        before = s.fds()
        for _ in range(300):
            pipelined_and_gone(s.tcp)
            pipelined_and_gone(s.ipc)
        check(s.settle(s.fds, before) <= before, "descriptors")
        for _ in range(100):
            c = Client(s.tcp)
            c.unary("Echo", {"data": b"well-behaved"})
            c.close()
        check(s.settle(s.fds, before) <= before, "and those of well-behaved clients after it")
        check(watcher.unary("Stats").open_calls == 1, "no call is left")


def lengths_that_lie_close_the_connection_and_cost_no_memory():
    with Server() as s:
        watcher = Client(s.ipc)
        before = s.rss_kib()
        for address in (s.ipc, s.tcp):
            for length in (2**64 - 1, 2**64 - 32, 2**63, 1 << 40, 1 << 32, (4 << 20) + 1, 3, 0):
                c = Client(address)
                c.socket.sendall((b"\1" if c.ipc else b"") + struct.pack(">Q", length))
                check(c.goaway().reason == "FRAME_INVALID" and c.is_closed(), length)
        c = Client(s.ipc)
        c.socket.sendall(b"\2" + struct.pack(">Q", 10))
        check(c.is_closed(), "a header of no kind")
        kept = [Client(s.ipc) for _ in range(200)]
        for c in kept:  # 4 MiB are announced, nothing comes
            c.socket.sendall(b"\1" + struct.pack(">Q", 4 << 20))
        watcher.unary("Echo", {})
        grown = s.rss_kib() - before
        check(SANITIZED or grown < 8 * 1024, f"memory follows what has come, not what was announced: {grown} KiB")


def after_a_lack_of_descriptors_it_continues_when_some_are_free():
    with Server(prefix=["prlimit", "--nofile=40:40"]) as s:
        for address in (s.ipc, s.tcp):
            kept = [sp.dial(address) for _ in range(60)]
            time_passes("the server tries to accept without a descriptor", 0.3)
            for c in kept:
                c.close()
            check(Client(address).unary("Echo", {"data": b"x"}).data == b"x", address)


def nesting_and_floods_of_fields_are_refused():
    with Server() as s:
        c = Client(s.ipc)
        levels = nested(16000, b"\x22")  # Frame.status inside itself
        check(58000 <= len(levels) <= 70000, len(levels))
        for frame in (levels, nested(16000, b"\x1a"), nested(16000, b"\x42"), nested(16000, b"\x0a")):
            id_ = c.new_id()
            c.send(id_, frame)
        check(c.unary("Echo", {"data": b"x"}).data == b"x", "58 KB of nesting")
        for flood, why in ((b"\x42\x00" * 500000, "16384"), (b"\x22\x00" * 500000, "duplicate"),
                           (b"\xf8\x3e\x00" * 350000, "16384"), (b"\x12\x00" * 500000, "16384")):
            id_ = c.new_id()
            c.send(id_, flood)
            frame = c.recv(id_)
            check(frame.kind == sp.END and frame.status.code == sp.INVALID, "a megabyte of small fields")
            check(why in frame.status.message, frame.status.message)
            f = c.fails("Change", flood)
            check(f.code == sp.INVALID, "in a payload as well")
        for id_ in list(c.others):
            check(all(f.status.code == sp.INVALID for f in c.others[id_]), "each is an error of its call")
        grown = s.rss_kib()
        check(SANITIZED or grown < 64 * 1024, f"{grown} KiB")


def twenty_thousand_abusive_connections_leave_the_server_as_it_was():
    n = IN_TURN
    with Server(keepalive_idle_ms=0) as s:
        watcher = Client(s.ipc)
        abuse(s, IN_TURN // 25)  # pools and caches fill
        until(lambda: watcher.unary("Stats").connections == 1, "all have gone")
        fds, rss = s.settle(s.fds, 0, 0.5), s.rss_kib()
        began = time.monotonic()
        abuse(s, n)
        took = time.monotonic() - began
        left = s.settle(s.fds, fds)
        grown = s.rss_kib() - rss
        stats = watcher.unary("Stats")
        print(f"   {n} connections in {took:.1f} s; descriptors {fds} -> {left}; memory +{grown} KiB; "
              f"{stats.protocol_errors} protocol errors, {stats.handshake_failed} bad handshakes")
        check(left <= fds, "descriptors")
        check(SANITIZED or grown < 2048, f"memory: {grown} KiB")
        check(stats.open_calls == 1 and stats.connections == 1 and stats.open_streams == 0, stats)
        check(Client(s.tcp).unary("Echo", {"data": b"x"}).data == b"x", "tcp still accepts")


def latencies(c, n):
    out = []
    for _ in range(n):
        began = time.monotonic()
        c.unary("Echo", {"data": b"x" * 64})
        out.append((time.monotonic() - began) * 1000)
    return out


def slow_readers_do_not_slow_others_down():
    with Server() as s:
        watcher = Client(s.ipc)
        alone = latencies(watcher, 500)
        rss = s.rss_kib()
        kept = []
        for i in range(20):
            c = Client((s.ipc, s.tcp)[i % 2])
            c.begin("Count", {"count": 10**9, "bytes": 60000}, credit=2**32 - 1)
            kept.append(c)
        for i in range(10):
            c = Client((s.ipc, s.tcp)[i % 2])
            c.socket.setblocking(False)
            request = c.pack(0x80000001, c.call_frame("Echo", {"data": b"x" * 100000}))
            try:
                for _ in range(1000):
                    c.socket.send(request)
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            kept.append(c)
        time_passes("every buffer between is full", 0.5)
        beside = latencies(watcher, 1000)
        grown = s.rss_kib() - rss
        median, p99 = statistics.median(beside), sorted(beside)[len(beside) * 99 // 100]
        print(f"   echo alone {statistics.median(alone):.3f} ms, beside 30 slow readers {median:.3f} ms "
              f"(p99 {p99:.3f}); memory +{grown} KiB")
        check(median < (100 if SANITIZED else 20), f"median {median} ms")
        check(SANITIZED or grown < 30 * 2048, f"memory: {grown} KiB")
        check(watcher.unary("Stats").open_streams == 20, "the streams wait")


def a_slow_reader_gets_everything_once_it_reads():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            id_ = c.begin("Count", {"count": 300, "bytes": 60000}, credit=1000)
            time_passes("every buffer between is full", 0.3)
            n = 0
            while c.recv(id_).kind == sp.DATA:
                n += 1
            check(n == 300, n)


def a_peer_that_lets_too_much_wait_for_it_is_closed():
    with Server(queue_bytes_pause=100000, queue_bytes_kill=2000000) as s:
        watcher = Client(s.ipc)
        c = Client(s.ipc)
        c.begin("Echo", {"data": b"x" * 3000000})
        check(c.is_closed(), "closed")
        check(watcher.unary("Stats").slow_readers_closed == 1, "and counted")


def a_reader_that_stalls_is_disconnected_and_one_that_continues_is_not():
    with Server(write_stall_ms=1500) as s:
        watcher = Client(s.ipc)
        before = s.fds()
        kept = [Client(address) for address in (s.ipc, s.tcp)]
        for c in kept:
            for _ in range(4):  # each fills what the kernel holds for a connection
                c.begin("Count", {"count": 10**9, "bytes": 60000}, credit=2**32 - 1)
        slow = Client(s.ipc)
        id_ = slow.begin("Count", {"count": 60, "bytes": 60000}, credit=1000)
        idle = Client(s.ipc)  # nothing is queued for it
        waits = idle.begin("Change", {"delay_ms": 4000})
        began = time.monotonic()
        n = 0
        while slow.recv(id_).kind == sp.DATA:  # a little at a time, for longer than the limit
            n += 1
            time_passes("a slow reader", 0.06)
        check(n == 60 and time.monotonic() - began > 3, "a slow one gets everything")
        until(lambda: watcher.unary("Stats").stalled_closed == 2, "the two are closed, and counted")
        check(all(c.is_closed() for c in kept), "they find it so")
        check(idle.end("Change", waits).executed >= 1, "one that waits for an answer is no stalled one")
        for c in (slow, idle):
            c.close()
        check(s.settle(s.fds, before) <= before, "descriptors are given back")
        check(watcher.unary("Stats").open_streams == 0, "no stream is left")


def lingering(seconds):
    """A TCP connection for whose end a process waits that closes it last, and what it needs."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    sender.setblocking(False)
    try:
        while True:
            sender.send(b"x" * 65536)
    except BlockingIOError:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    return sender, (listener, listener.accept()[0])


def send_away(server, data):
    """Sends such a connection on one that stays. The server stands still meanwhile, so that it has it last, and not the test,
    which would wait then. Refused where the kernel can."""
    sender, others = lingering(600)
    peer = sp.connect(server.ipc)
    os.kill(server.pid, signal.SIGSTOP)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", sender.fileno()))]
    try:
        peer.sendmsg([data], rights)
    except PermissionError:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    sender.close()
    os.kill(server.pid, signal.SIGCONT)
    return peer, others


def descriptors_of_a_peer_do_not_make_the_server_wait():
    """Sent before, with and behind the hello, and with what ends the connection."""
    with Server() as s:
        watcher, kept = Client(s.ipc), []
        before = s.fds()
        for data in (b"\0", sp.REQ_HELLO, sp.REQ_HELLO + b"\1", sp.REQ_HELLO + b"\xff" * 9, b"\xff" * 100000):
            for _ in range(5):
                kept.append(send_away(s, data))
                began = time.monotonic()
                watcher.unary("Echo", {"data": b"x"})
                check(time.monotonic() - began < scaled(2), f"another caller waited for {time.monotonic() - began:.1f} s")
        for peer, _ in kept:
            peer.close()
        check(s.settle(s.fds, before) <= before, "descriptors")


def above_its_share(c):
    """Has its tenant wait for its turn, for as long as others are active: it sends more than a second's share, and stays."""
    call = c.call_frame("Echo", {"data": b"x" * 100})
    ids = [c.new_id() for _ in range(3000)]
    c.socket.sendall(b"".join(c.pack(i, call) for i in ids))
    return c


def those_that_leave_while_they_wait_for_their_turn_give_their_places_back():
    """Four times as many as have a place."""
    for kind, other in (("ipc", "tcp"), ("tcp", "ipc")):
        with Server(shared_cpu=1, connections_per_uid_max=50) as s:
            watcher = Client(getattr(s, other))
            watcher.unary("Echo", {})
            first = above_its_share(Client(getattr(s, kind)))
            for i in range(200):
                watcher.unary("Echo", {})  # nobody is alone
                c = Client(getattr(s, kind))
                c.socket.sendall(b"".join(c.pack(c.new_id(), c.call_frame("Change", {})) for _ in range(1 + i % 2 * 30)))
                if i % 3 == 0 and kind == "tcp":
                    c.reset()
                else:
                    c.close()
            until(lambda w=watcher: w.unary("Stats").connections == 2, "all have gone but one that waits")
            stats = watcher.unary("Stats")
            check(stats.rejected == 0, f"{stats.rejected} found no place")
            print(f"   {kind}: {stats.changes} of {200 * 16} calls of those that had left were executed")
            first.close()
            until(lambda w=watcher: w.unary("Stats").connections == 1, "and that one, when it leaves")


def request(c, n):
    return c.pack(0x80000000 | n, c.call_frame("Echo", {"data": b"x" * 1000}))


def sends(address, hello, data):
    """A connection that sends this, and reads nothing. `data` is given the client."""
    c = Client(address, hello=hello)
    c.socket.setblocking(False)
    try:
        c.socket.send(data(c))
    except (BlockingIOError, ConnectionError, ssl.SSLError):
        pass
    return c


FLOODS = {
    "nothing": lambda a: sends(a, False, lambda c: b"\0"),
    "half a handshake": lambda a: sends(a, False, lambda c: sp.REQ_HELLO[:5]),
    "half a header": lambda a: sends(a, True, lambda c: request(c, 1)[:6]),
    "half a frame": lambda a: sends(a, True, lambda c: request(c, 1)[:500]),
    "a frame of 4 MiB that does not come": lambda a: sends(
        a, True, lambda c: (b"\1" if c.ipc else b"") + struct.pack(">Q", 4 << 20) + b"\x80\0\0\1"),
    "PINGs": lambda a: sends(a, True, lambda c: c.pack(0x80000007, b"\x08\6\x1a\x08xxxxxxxx") * 2000),
    "unknown frames": lambda a: sends(a, True, lambda c: c.pack(0x80000007, b"\x08\x63") * 2000),
    "WINDOWs of nothing": lambda a: sends(a, True, lambda c: c.pack(0x80000007, b"\x08\5\x30\xff\xff\xff\xff\x0f") * 2000),
    "CANCELs of nothing": lambda a: sends(a, True, lambda c: c.pack(0x80000007, b"\x08\4") * 2000),
    "calls whose answers nobody reads": lambda a: sends(a, True, lambda c: b"".join(request(c, n) for n in range(1, 60))),
    "one id for all calls": lambda a: sends(a, True, lambda c: request(c, 1) * 60),
    "metadata": lambda a: sends(a, True, lambda c: c.pack(
        0x80000001, b"\x08\1\x12\4/a/b" + (b"\x42" + varint(204) + b"\x0a\1k\x12" + varint(199) + b"v" * 199) * 400)),
}


def five_thousand_connections_of_each_attack_leave_nothing_behind():
    """All at once. Half are closed with a reset. Callers that were there, and new ones, are answered meanwhile."""
    n = AT_A_TIME
    with Server(keepalive_idle_ms=0, handshake_ms=60000, connections_max=20000, connections_per_uid_max=20000) as s:
        watcher = Client(s.ipc, timeout=60)
        for attack in FLOODS.values():
            for c in [attack((s.ipc, s.tcp)[i % 2]) for i in range(100)]:
                c.close()
        until(lambda: watcher.unary("Stats").connections == 1, "all have gone")
        before, rss = s.settle(s.fds, 0, 0.5), s.rss_kib()
        for name, attack in FLOODS.items():
            kept, worst = [], 0.0
            for i in range(n):
                kept.append(attack((s.ipc, s.tcp)[i % 2]))
                if i % (n // 10) == 0:
                    began = time.monotonic()
                    watcher.unary("Echo", {"data": b"x" * 64})
                    Client(s.tcp).unary("Echo", {"data": b"x"})
                    worst = max(worst, time.monotonic() - began)
            check(worst < scaled(2), f"{name}: others waited for {worst:.2f} s")
            for i, c in enumerate(kept):
                if c.ipc or i % 4 == 1:
                    c.close()
                else:
                    c.reset()
            until(lambda: watcher.unary("Stats").connections == 1, f"{name}: all have gone")
            left = s.settle(s.fds, before)
            print(f"   {name}: others waited for {worst * 1000:.0f} ms at most; memory +{s.rss_kib() - rss} KiB")
            check(left <= before, f"{name}: descriptors: {before} before, {left} after")
        grown = s.rss_kib() - rss
        check(SANITIZED or grown < 32768, f"memory: {grown} KiB")


def a_thousand_clients_at_once_are_all_answered():
    for kind in ("ipc", "tcp"):
        with Server() as s:
            address = getattr(s, kind)
            began = time.monotonic()
            clients = [Client(address, timeout=30) for _ in range(WELL_BEHAVED)]
            connected = time.monotonic() - began
            worst = 0.0
            for round_ in range(5):
                began = time.monotonic()
                ids = [c.begin("Echo", {"data": b"%d" % i}) for i, c in enumerate(clients)]
                for i, c in enumerate(clients):
                    check(c.end("Echo", ids[i]).data == b"%d" % i, i)
                worst = max(worst, time.monotonic() - began)
            print(f"   {kind}: {WELL_BEHAVED} connected in {connected:.2f} s, one round of calls in at most {worst:.2f} s, "
                  f"{s.rss_kib()} KiB")
            check(clients[0].unary("Stats").connections == WELL_BEHAVED, "all of them")
            for c in clients:
                c.close()


CASES = [
    half_handshakes_are_reaped_by_the_deadline,
    a_hello_that_drips_does_not_put_the_deadline_off,
    pipelined_requests_and_a_reset_leave_nothing_behind,
    lengths_that_lie_close_the_connection_and_cost_no_memory,
    after_a_lack_of_descriptors_it_continues_when_some_are_free,
    nesting_and_floods_of_fields_are_refused,
    slow_readers_do_not_slow_others_down,
    a_slow_reader_gets_everything_once_it_reads,
    a_peer_that_lets_too_much_wait_for_it_is_closed,
    a_reader_that_stalls_is_disconnected_and_one_that_continues_is_not,
    descriptors_of_a_peer_do_not_make_the_server_wait,
    those_that_leave_while_they_wait_for_their_turn_give_their_places_back,
    five_thousand_connections_of_each_attack_leave_nothing_behind,
    a_thousand_clients_at_once_are_all_answered,
    twenty_thousand_abusive_connections_leave_the_server_as_it_was,
]


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # login shells have a soft limit of 1,024
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    sys.exit(run_cases(CASES))
