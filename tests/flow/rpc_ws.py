#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Calls over websockets, with an nng that can be trusted with them: none older than 1.6, and Debian 12 has 1.5.2. So a
newer one is built, once on a machine, from the sources that a Rust crate brings along; without cargo this is skipped.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

import rpc_abuse
import sp
from runner import check, run_cases, until
from slowness import scaled
from sp import Client, Server

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "stockade", "nng-1.11.0")
KEY = "x3JJHMbDL1EzLkh9GBhXDw=="
# Protocols of nng that neither the broker nor a caller has.
UNUSED = [f"PROTO_{name}" for name in ("BUS0", "PAIR0", "PAIR1", "PUSH0", "PULL0", "RESPONDENT0", "SURVEYOR0")]
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


# ---- a newer nng


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def sources():
    """Where cargo has put nng's sources."""
    if not shutil.which("cargo") or not shutil.which("cmake"):
        skip("no nng of 1.6 or later: that needs cargo and cmake")
    r = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], capture_output=True, text=True,
                       check=False, cwd=os.path.join(HERE, "../interop/nng"))
    if r.returncode != 0:
        skip(f"no nng of 1.6 or later: its sources cannot be fetched: {r.stderr.strip().splitlines()[-1]}")
    package = next(p for p in json.loads(r.stdout)["packages"] if p["name"] == "nng-sys")
    return os.path.join(os.path.dirname(package["manifest_path"]), "nng")


def newer_nng():
    """The folder of a library of nng 1.11."""
    if not os.path.exists(f"{CACHE}/libnng.so.1"):
        where, build = sources(), f"{CACHE}.{os.getpid()}"
        os.makedirs(build)
        without = [f"-DNNG_{part}=OFF" for part in ("TESTS", "TOOLS", "ENABLE_STATS", "ENABLE_COMPAT", *UNUSED)]
        for argv in (["cmake", "-G", "Ninja", "-DBUILD_SHARED_LIBS=ON", *without, "-DCMAKE_C_FLAGS=-O1", where],
                     ["cmake", "--build", ".", "-j", "2"]):
            subprocess.run(argv, cwd=build, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(CACHE, ignore_errors=True)
        os.rename(build, CACHE)
    return CACHE


def server(**limits):
    return Server(env={"LD_LIBRARY_PATH": newer_nng()}, websocket=1, **limits)


# ---- the client's side of a websocket (RFC 6455)


def shake_hands(address, *headers, protocol="rep.sp.nanomsg.org"):
    """The socket, and the status of the server's answer."""
    host, path = re.match(r"ws://([^/]+)(/.*)", address).groups()
    s = socket.create_connection((host.split(":")[0], int(host.split(":")[1])), 60)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
             f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}", *headers]
    s.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sp.read_exactly(s, 1)
    status = int(head.split()[1])
    if status == 101:
        accept = base64.b64encode(hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        check(accept in head and b"rep.sp.nanomsg.org" in head, head)
    return s, status


def frame(body, opcode=BINARY, last=True):
    mask = b"\0\0\0\0"
    n = len(body)
    size = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xFE, n) if n < 65536 else struct.pack(">BQ", 0xFF, n)
    return bytes([opcode | (0x80 if last else 0)]) + size + mask + body


class WebSocket:
    """As a stream of SP over tcp, which is what sp.Client speaks."""

    def __init__(self, address):
        self.socket, status = shake_hands(address)
        check(status == 101, f"status {status}")
        self.buffer = sp.REP_HELLO

    def sendall(self, data):
        while data and data != sp.REQ_HELLO:
            n = struct.unpack(">Q", data[:8])[0]
            self.socket.sendall(frame(data[8:8 + n]))
            data = data[8 + n:]

    def message(self):
        """The next message, of as many frames as it has."""
        whole = b""
        while True:
            first, size = sp.read_exactly(self.socket, 2)
            check(size < 128, "a server does not mask")
            if size >= 126:
                size = int.from_bytes(sp.read_exactly(self.socket, 2 if size == 126 else 8), "big")
            part = sp.read_exactly(self.socket, size)
            if first & 15 == CLOSE:
                raise sp.Closed()
            if first & 15 in (0, BINARY):
                whole += part
                if first & 0x80:
                    return whole

    def recv(self, n):
        if not self.buffer:
            try:
                body = self.message()
            except sp.Closed:
                return b""
            self.buffer = struct.pack(">Q", len(body)) + body
        part, self.buffer = self.buffer[:n], self.buffer[n:]
        return part

    def settimeout(self, seconds):
        self.socket.settimeout(seconds)

    def close(self):
        self.socket.close()


class WsClient(Client):
    def __init__(self, address):
        super().__init__(address, hello=False, socket_=WebSocket(address))
        check(sp.read_exactly(self.socket, 8) == sp.REP_HELLO, "hello")


# ---- the tests


def what_is_no_websocket_of_ours_is_refused():
    with server() as s:
        _, status = shake_hands(s.ws, protocol="pub.sp.nanomsg.org")
        check(status >= 400, f"another protocol: {status}")
        check(shake_hands(s.ws.replace("/rpc", "/other"))[1] == 404, "another path")
        page, status = shake_hands(s.ws, "Origin: https://example.org")
        check(status != 101 or page.recv(1) in (b"", bytes([0x80 | CLOSE])), "a page in a browser")
        c = WsClient(s.ws)
        c.socket.socket.sendall(frame(b"text", TEXT))
        check(c.is_closed(), "text")
        c = WsClient(s.ws)
        c.socket.socket.sendall(frame(b"abc"))
        check(c.goaway().reason == "FRAME_INVALID" and c.is_closed(), "no id")
        c = WsClient(s.ws)
        c.socket.socket.sendall(b"\x82\xff" + struct.pack(">Q", (4 << 20) + 1) + b"\0\0\0\0")
        check(c.is_closed(), "more than 4 MiB")
        check(WsClient(s.ws).unary("Echo", {"data": b"x"}).data == b"x", "it lives")


def calls_and_streams_are_answered_as_over_a_socket():
    with server() as s:
        c = WsClient(s.ws)
        stream = c.begin("Count", {"count": 40, "bytes": 1000}, credit=1)
        check(c.unary("Echo", {"data": b"beside"}).data == b"beside", "beside a stream")
        c.send(stream, sp.Frame(kind=sp.WINDOW, credit=100))
        kinds = []
        while sp.END not in kinds:
            kinds.append(c.recv(stream).kind)
        check(kinds == [sp.DATA] * 40 + [sp.END], kinds)
        data = os.urandom(3_900_000)
        check(c.unary("Echo", {"data": data}).data == data, "almost 4 MiB")
        check(c.fails("Nothing", b"").code == sp.UNIMPLEMENTED, "an unknown method")
        ids = [c.begin("Echo", {"data": b"%d" % i}) for i in range(1000)]
        for i, id_ in enumerate(ids):
            check(c.end("Echo", id_).data == b"%d" % i, i)
        parts = c.call_frame("Echo", {"data": b"in parts"}).SerializeToString()
        c.socket.socket.sendall(frame(b"\x80\0\0\x77" + parts[:5], last=False) + frame(b"", PING) + frame(parts[5:], 0))
        check(c.end("Echo", 0x80000077).data == b"in parts", "a message in two frames")
        stats = Client(s.ipc).unary("Stats")
        check(stats.connections == 2 and stats.protocol_errors == 0, stats)


def a_stock_req_socket_makes_unary_calls():
    program = os.path.join(os.environ["STOCKADE_BUILD"], "tests", "req-ws")
    subprocess.run(["cc", "-O1", "-o", program, os.path.join(HERE, "../interop/req.c"), "-lnng"], check=True)
    with server() as s:
        request = Client(s.ipc).call_frame("Echo", {"data": b"stock"}).SerializeToString()
        r = subprocess.run([program, s.ws], input=request, capture_output=True, check=False, timeout=60,
                           env=dict(os.environ, LD_LIBRARY_PATH=newer_nng()))
        check(r.returncode == 0, r.stderr)
        check(b"stock" in sp.Frame.FromString(r.stdout).payload, r.stdout)


def slow_and_gone_peers_leave_nothing_behind():
    with server(queue_bytes_pause=100000, queue_bytes_kill=2000000) as s:
        watcher = Client(s.ipc)
        WsClient(s.ws).unary("Echo", {})
        until(lambda: watcher.unary("Stats").connections == 1, "the first has gone")
        before = s.fds()
        for i in range(200):
            if i % 4 == 0:
                sp.connect(s.ws.replace("ws://", "tcp://").replace("/rpc", "")).close()
                continue
            c = WsClient(s.ws)
            if i % 4 == 1:
                c.begin("Change", {"delay_ms": 60000})
            elif i % 4 == 2:
                c.begin("Count", {"count": 10**9, "bytes": 60000}, credit=2**32 - 1)
            else:
                c.socket.socket.sendall(frame(b"x" * 1000)[:500])
            c.close()
        until(lambda: watcher.unary("Stats").connections == 1, "all have gone")
        check(s.settle(s.fds, before) <= before, f"descriptors: {before} before, {s.fds()} after")
        stats = watcher.unary("Stats")
        check(stats.open_calls == 1 and stats.open_streams == 0, stats)
        c = WsClient(s.ws)
        c.begin("Echo", {"data": b"x" * 3000000})
        check(c.is_closed(), "one that lets too much wait for it is closed")


def those_that_leave_while_they_wait_for_their_turn_are_noticed():
    """Of some, a message has been read ahead."""
    with server(shared_cpu=1) as s:
        watcher = Client(s.ipc)
        watcher.unary("Echo", {})
        kept = [WsClient(s.ws) for _ in range(20)]
        for c in kept:
            c.unary("Echo", {})
        first = rpc_abuse.above_its_share(WsClient(s.ws))
        for i, c in enumerate(kept):
            call = c.call_frame("Change", {"data": b"x" * 100})
            for _ in range(1 + i % 2 * 100):
                c.send(c.new_id(), call)
            watcher.unary("Echo", {})
        for c in kept:
            c.close()
        until(lambda: watcher.unary("Stats").connections == 2, "all have gone but one that waits")
        print(f"   {watcher.unary('Stats').changes} calls of 1020 of those that had left were executed")
        first.close()
        until(lambda: watcher.unary("Stats").connections == 1, "and that one, when it leaves")


def many(s, n, attack):
    """Runs an attack on n connections, which stay open until they all exist."""
    return [attack(s) for _ in range(n)]


def raw(s, data):
    """A connection that sends this and reads nothing."""
    host, port = re.match(r"ws://([^/:]+):(\d+)", s.ws).groups()
    c = socket.create_connection((host, int(port)), 60)
    c.setblocking(False)
    try:
        c.send(data)
    except (BlockingIOError, ConnectionError):
        pass
    return c


def shaken(s, data):
    """A websocket on which this is sent after its handshake."""
    c, status = shake_hands(s.ws)
    check(status == 101, status)
    c.setblocking(False)
    try:
        c.send(data)
    except (BlockingIOError, ConnectionError):
        pass
    return c


BODY = b"\x80\0\0\1" + b"\x08\1"
FLOODS = {
    "half a request": lambda s: raw(s, b"GET /rpc HTTP/1.1\r\nHost: x\r\nUpgra"),
    "a line without end": lambda s: raw(s, b"GET /" + b"a" * 1000000),
    "headers without end": lambda s: raw(s, b"GET /rpc HTTP/1.1\r\n" + b"x: y\r\n" * 100000),
    "a body of 2^63 bytes": lambda s: raw(s, b"POST /rpc HTTP/1.1\r\nContent-Length: 9223372036854775807\r\n\r\n" + b"x" * 60000),
    "no masks": lambda s: shaken(s, (bytes([0x82, len(BODY)]) + BODY) * 1000),
    "half a frame": lambda s: shaken(s, frame(b"x" * 1000)[:500]),
    "a length of 2^63": lambda s: shaken(s, b"\x82\xff" + b"\xff" * 8 + b"x" * 1000),
    "a length of 4 GiB": lambda s: shaken(s, b"\x82\xff\0\0\0\1\0\0\0\0" + b"\0" * 4 + b"x" * 1000),
    "a fragment without a begin": lambda s: shaken(s, frame(b"x" * 10, 0)),
    "fragments without end": lambda s: shaken(s, frame(b"x", BINARY, False) + frame(b"", 0, False) * 50000),
    "two begins": lambda s: shaken(s, frame(b"x", BINARY, False) * 1000),
    "a long PING": lambda s: shaken(s, frame(b"x" * 126, PING)),
    "a fragmented PING": lambda s: shaken(s, frame(b"x", PING, False) + frame(b"x", 0)),
    "PINGs whose answers nobody reads": lambda s: shaken(s, frame(b"x" * 125, PING) * 4000),
    "PONGs that nobody asked for": lambda s: shaken(s, frame(b"x" * 125, PONG) * 4000),
    "reserved bits and opcodes": lambda s: shaken(s, frame(b"x", BINARY | 0x70) + frame(b"x", 7) + frame(b"x", 15)),
    "text": lambda s: shaken(s, frame(b"hello", TEXT) * 1000),
    "CLOSE and more": lambda s: shaken(s, frame(b"", CLOSE) + frame(BODY) * 1000),
}


def floods_of_every_kind_are_survived_beside_other_callers():
    """200 connections at once of each kind. Callers of other sockets are answered at once and those of new websockets in the
    end (nng reads the requests for all of them in its own threads); afterwards nothing is left."""
    with server(keepalive_idle_ms=0) as s:
        watcher, ws = Client(s.ipc), WsClient(s.ws)
        ws.unary("Echo", {})
        for attack in FLOODS.values():
            for c in many(s, 20, attack):
                c.close()
        until(lambda: watcher.unary("Stats").connections <= 2, "all have gone")
        before, rss = s.fds(), s.rss_kib()
        for name, attack in FLOODS.items():
            kept = many(s, 200, attack)
            began = time.monotonic()
            check(watcher.unary("Echo", {"data": b"x"}).data == b"x", name)
            other = time.monotonic() - began
            check(other < scaled(2), f"{name}: callers of other sockets wait for {other:.1f} s")
            check(WsClient(s.ws).unary("Echo", {"data": b"y"}).data == b"y", name)
            print(f"   {name}: {other * 1000:.0f} ms, over a new websocket {time.monotonic() - began:.2f} s")
            for c in kept:
                c.close()
        until(lambda: watcher.unary("Stats").connections <= 2, "all have gone")
        check(s.settle(s.fds, before) <= before, f"descriptors: {before} before, {s.fds()} after")
        print(f"   memory: {rss} KiB before, {s.rss_kib()} KiB after")
        check(sp.sanitized() or s.rss_kib() < rss + 65536, f"memory: {rss} KiB before, {s.rss_kib()} KiB after")


def a_drain_says_goaway_and_answers_what_is_open():
    with server() as s:
        c = WsClient(s.ws)
        id_ = c.begin("Change", {"delay_ms": 500, "data": b"kept"})
        c.unary("Echo", {})
        s.process.terminate()
        check(c.goaway().reason == "DRAINING", "GOAWAY")
        check(c.end("Change", id_).data == b"kept", "answered")
        check(s.process.wait(30) == 0, "and the server ends")


with open(os.path.join(os.environ["STOCKADE_BUILD"], "CMakeCache.txt"), encoding="utf-8") as cache:
    if "STOCKADE_NNG:BOOL=OFF" in cache.read():
        skip("this build has no nng (STOCKADE_NNG)")
newer_nng()
sys.exit(run_cases([what_is_no_websocket_of_ours_is_refused, calls_and_streams_are_answered_as_over_a_socket,
        a_stock_req_socket_makes_unary_calls, slow_and_gone_peers_leave_nothing_behind,
        those_that_leave_while_they_wait_for_their_turn_are_noticed,
        floods_of_every_kind_are_survived_beside_other_callers, a_drain_says_goaway_and_answers_what_is_open]))
