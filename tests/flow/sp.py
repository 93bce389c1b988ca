# SPDX-License-Identifier: Apache-2.0
"""Shared by the rpc_*.py tests: the wire without a client library, and a server with only the RPC layer.

    with Server(handshake_ms=500) as s:
        c = Client(s.ipc)
        assert c.unary("Echo", {"data": b"x"}).data == b"x"

Messages come from the descriptor set that the build made, so there is no generated code here.
"""

import contextlib
import os
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time

from ca import Certificates
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from slowness import Popen, scaled
from runner import check, until

BUILD = os.environ["STOCKADE_BUILD"]
REQ_HELLO = b"\0SP\0\0\x30\0\0"
REP_HELLO = b"\0SP\0\0\x31\0\0"
CALL, DATA, END, CANCEL, WINDOW, PING, PONG, GOAWAY = range(1, 9)
OK, CANCELLED, INVALID, DEADLINE, EXISTS, EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE = 0, 1, 3, 4, 6, 8, 12, 14

_pool = descriptor_pool.DescriptorPool()


def load(path):
    """Adds the messages of a descriptor set in the build folder."""
    with open(os.path.join(BUILD, path), "rb") as f:
        for file in descriptor_pb2.FileDescriptorSet.FromString(f.read()).file:
            _pool.Add(file)


load("tests/echo/gen/echo_set.bin")
_factory = message_factory.MessageFactory(_pool)


def message(name):
    return _factory.GetPrototype(_pool.FindMessageTypeByName(name))


Frame = message("stockade.v1.Frame")
ErrorInfo = message("stockade.v1.ErrorInfo")


def sanitized():
    """Whether the server has AddressSanitizer or ThreadSanitizer, which keep what was freed."""
    with open(os.path.join(BUILD, "tests/echo/echo-server"), "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class Failed(Exception):
    def __init__(self, status):
        super().__init__(f"{status.code} {status.message}")
        self.code = status.code
        self.message = status.message
        self.details = {}
        for any_ in status.details:
            name = any_.type_url.rsplit("/", 1)[1]
            self.details[name.rsplit(".", 1)[1]] = message(name).FromString(any_.value)

    @property
    def reason(self):
        return self.details["ErrorInfo"].reason if "ErrorInfo" in self.details else ""


class Closed(Exception):
    pass


class Tls:
    """The certificates of echo-servers and their clients, once Tls.use() was called: then each server's tcp is tls+tcp."""

    files = context = None

    @classmethod
    def use(cls):
        cls.files = Certificates("rpc-tls")
        cls.files.authority("ca")
        cls.files.certificate("server", "DNS:localhost,IP:127.0.0.1")
        cls.files.certificate("client", "DNS:client")
        cls.context = ssl.create_default_context(cafile=cls.files.path("ca.pem"))
        cls.context.load_cert_chain(cls.files.path("client.pem"), cls.files.path("client.key"))

    @classmethod
    def arguments(cls):
        files = (("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem"))
        return [f"{name}={cls.files.path(file)}" for name, file in files] if cls.files else []


class Server:
    def __init__(self, prefix=(), env=None, **limits):
        self.prefix = list(prefix)  # of the command
        self.env = dict(os.environ, **(env or {}))
        self.limits = limits
        self.ws = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stockade-rpc-")
        self.ipc = f"ipc://{self.folder.name}/s"
        args = self.prefix + [os.path.join(BUILD, "tests/echo/echo-server")]
        args += [f"{k}={v}" for k, v in self.limits.items()]
        args += Tls.arguments()
        args += [self.ipc, "tls+tcp://127.0.0.1:0" if Tls.files else "tcp://127.0.0.1:0"] + (["ws://127.0.0.1:0/rpc"] if "websocket" in self.limits else [])
        self.process = Popen(args, stdout=subprocess.PIPE, text=True, env=self.env)
        self.pid = self.process.pid
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "ready":
                break
            if words[1].startswith(("tcp://", "tls+tcp://")):
                self.tcp = words[1]
            if words[1].startswith("ws://"):
                self.ws = words[1]
        else:
            raise RuntimeError("echo-server did not start")
        return self

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    def __exit__(self, kind, *rest):
        alive = self.process.poll() is None
        code = self.stop() if alive else self.process.returncode
        self.folder.cleanup()
        if kind is None:
            check(code == 0, f"echo-server ended with {code}")

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_kib(self):
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * 4

    def settle(self, what, wanted, seconds=30):
        """Waits until what() is at most wanted."""
        with contextlib.suppress(AssertionError):
            until(lambda: what() <= wanted, "it settles", seconds)
        return what()


def connect(address, timeout=60):
    s = dial(address, timeout)
    return Tls.context.wrap_socket(s, server_hostname="localhost") if address.startswith("tls+tcp://") else s


@contextlib.contextmanager
def as_user(uid):
    """What the kernel tells the broker about a caller is decided when it connects."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def dial(address, timeout=60):
    """A socket; over tls+tcp before the handshake."""
    if address.startswith("ipc://"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(scaled(timeout))
        end = time.monotonic() + scaled(timeout)
        while time.monotonic() < end:
            try:
                s.connect(address[6:])
                return s
            except BlockingIOError:  # the backlog is full
                time.sleep(0.002)
        raise TimeoutError(address)
    host, port = address.split("://")[1].rsplit(":", 1)
    s = socket.create_connection((host, int(port)), scaled(timeout))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_exactly(s, n):
    parts = b""
    while len(parts) < n:
        try:
            part = s.recv(n - len(parts))
        except (ConnectionResetError, ssl.SSLEOFError):
            raise Closed() from None
        if not part:
            raise Closed()
        parts += part
    return parts


class Client:
    """One connection; not for threads."""

    def __init__(self, address, timeout=60, hello=True, socket_=None):
        self.ipc = address.startswith("ipc://")
        self.socket = socket_ or connect(address, timeout)
        self.next_id = 0x80000001
        self.others = {}  # frames of other calls, by id
        if hello:
            self.socket.sendall(REQ_HELLO)
            check(read_exactly(self.socket, 8) == REP_HELLO, "the server says REP")

    def close(self):
        self.socket.close()

    def reset(self):
        """Ends a tcp connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def pack(self, id_, body):
        if not isinstance(body, bytes):
            body = body.SerializeToString()
        return (b"\1" if self.ipc else b"") + struct.pack(">QI", len(body) + 4, id_) + body

    def send(self, id_, body):
        self.socket.sendall(self.pack(id_, body))

    def recv_any(self):
        header = read_exactly(self.socket, 9 if self.ipc else 8)
        length = struct.unpack(">Q", header[-8:])[0]
        check(4 <= length <= 4 << 20 and (not self.ipc or header[0] == 1), "a header of the server is sound")
        body = read_exactly(self.socket, length)
        return struct.unpack(">I", body[:4])[0], Frame.FromString(body[4:])

    def recv(self, id_):
        """The next frame of one call; those of others are kept for them."""
        if self.others.get(id_):
            return self.others[id_].pop(0)
        while True:
            got, frame = self.recv_any()
            if got == id_ and frame.kind != GOAWAY:
                return frame
            self.others.setdefault("goaway" if frame.kind == GOAWAY else got, []).append(frame)

    def new_id(self):
        self.next_id += 1
        return self.next_id

    def call_frame(self, method, fields=None, metadata=None, **frame):
        path = method if method.startswith("/") else f"/stockade.test.EchoService/{method}"
        payload = fields
        if not isinstance(fields, bytes):
            service, name = path[1:].split("/")
            input_type = _pool.FindServiceByName(service).FindMethodByName(name).input_type
            payload = _factory.GetPrototype(input_type)(**(fields or {})).SerializeToString()
        f = Frame(kind=CALL, method=path, payload=payload, **frame)
        for key, value in (metadata or {}).items():
            f.metadata.add(key=key, value=value)
        return f

    def begin(self, method, fields=None, metadata=None, **frame):
        id_ = self.new_id()
        self.send(id_, self.call_frame(method, fields, metadata, **frame))
        return id_

    def end(self, method, id_):
        """Waits for END of a unary call."""
        frame = self.recv(id_)
        check(frame.kind == END, f"{method}: END, not kind {frame.kind}")
        if frame.status.code:
            raise Failed(frame.status)
        path = method if method.startswith("/") else f"/stockade.test.EchoService/{method}"
        service, name = path[1:].split("/")
        output_type = _pool.FindServiceByName(service).FindMethodByName(name).output_type
        return _factory.GetPrototype(output_type).FromString(frame.payload)

    def unary(self, method, fields=None, metadata=None, **frame):
        return self.end(method, self.begin(method, fields, metadata, **frame))

    def fails(self, method, fields=None, metadata=None, **frame):
        try:
            self.unary(method, fields, metadata, **frame)
        except Failed as failed:
            return failed
        raise AssertionError(f"{method} did not fail")

    def goaway(self):
        """Waits for GOAWAY; its Failed."""
        while not self.others.get("goaway"):
            id_, frame = self.recv_any()
            self.others.setdefault("goaway" if frame.kind == GOAWAY else id_, []).append(frame)
        return Failed(self.others["goaway"].pop(0).status)

    def is_closed(self, seconds=30):
        """True when the server has closed it; data that still arrives is discarded."""
        self.socket.settimeout(scaled(seconds))
        try:
            while self.socket.recv(1 << 20):
                pass
            return True
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            return True
        except TimeoutError:
            return False
