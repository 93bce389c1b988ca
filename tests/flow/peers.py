# SPDX-License-Identifier: Apache-2.0
"""A private network for a test: this process in a namespace, and a peer behind a link in another.

    with Peers() as p:               # from now on this process, and the broker it starts, live in the namespace
        ...                          # p.public, p.private, p.public6 echo what they get on TCP and UDP ports 80 and 81
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PORTS = (80, 81)


def unshare_network():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def echo():
    """Answers "ADDRESS PORT BYTES" on every address, for ever."""
    waiting = {}
    for port in PORTS:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_INET6, kind)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("::", port))
            if kind == socket.SOCK_STREAM:
                s.listen(64)
            waiting[s] = kind if kind == socket.SOCK_DGRAM else "listen"
    while True:
        for s in select.select(list(waiting), [], [])[0]:
            with contextlib.suppress(OSError):
                if waiting[s] == "listen":
                    waiting[s.accept()[0]] = "stream"
                elif waiting[s] == "stream":
                    data = s.recv(65536)
                    if data:
                        s.sendall(data)
                    else:
                        del waiting[s]
                        s.close()
                else:
                    data, sender = s.recvfrom(65536)
                    s.sendto(data, sender)
                continue
            waiting.pop(s, None)
            s.close()


class Peers:
    public, private, public6 = "93.184.216.34", "10.77.0.1", "2606:2800:220::1"

    def __enter__(self):
        unshare_network()
        ip("link", "set", "lo", "up")
        ready, told = os.pipe()
        go, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                unshare_network()
                os.write(told, b"x")
                os.read(go, 1)
                self.configure("peer", (self.public, self.private), self.public6)
                os.write(told, b"x")
                echo()
            finally:
                os._exit(1)
        os.read(ready, 1)
        ip("link", "add", "host", "type", "veth", "peer", "name", "peer", "netns", str(self.pid))
        self.configure("host", ("93.184.216.1", "10.77.0.2"), "2606:2800:220::2")
        os.write(said, b"x")
        os.read(ready, 1)
        return self

    @staticmethod
    def configure(link, v4, v6):
        ip("link", "set", "lo", "up")
        for address in v4:
            ip("addr", "add", f"{address}/24", "dev", link)
        ip("addr", "add", f"{v6}/64", "dev", link, "nodad")
        ip("link", "set", link, "up")

    def server(self, serve):
        """A process in the peer's namespace that runs serve(go, out) on two pipes."""
        return Server(self, serve)

    def __exit__(self, *why):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Server:
    """Numbers from it, one hear() each, and go_on() that lets its os.read(go, 1) return."""

    def __init__(self, peers, serve):
        self.told, told = os.pipe()
        go, self.said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                with open(f"/proc/{peers.pid}/ns/net", encoding="ascii") as f:
                    ctypes.CDLL(None).setns(f.fileno(), CLONE_NEWNET)
                serve(go, lambda n: os.write(told, n.to_bytes(8, "big")))
            finally:
                os._exit(1)
        os.close(told)

    def hear(self):
        return int.from_bytes(os.read(self.told, 8), "big")

    def go_on(self):
        os.write(self.said, b"x")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.told)
        os.close(self.said)
