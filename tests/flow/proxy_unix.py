# SPDX-License-Identifier: Apache-2.0
"""A unix socket in front of another one, which cuts connections after a number of bytes from the broker."""

import socket
import threading


class Proxy:
    """cut_after: for each connection in turn, the bytes after which it is cut; further ones are not."""

    def __init__(self, target, path, cut_after=()):
        self.target, self.path, self.cut_after, self.cuts = target, path, list(cut_after), 0
        self.listener = socket.socket(socket.AF_UNIX)

    def __enter__(self):
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.target)
            most = self.cut_after.pop(0) if self.cut_after else None
            threading.Thread(target=self.copy, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self.copy, args=(far, near, most), daemon=True).start()

    def copy(self, source, to, most):
        try:
            while data := source.recv(4096):
                if most is not None:
                    data = data[:most]
                    most -= len(data)
                to.sendall(data)
                if most == 0:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for s in (source, to):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
