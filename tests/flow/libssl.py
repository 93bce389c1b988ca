# SPDX-License-Identifier: Apache-2.0
"""A TLS client that does what Python's ssl does not offer: updates of keys and renegotiation."""

import ctypes
import socket
import struct

KEY_UPDATE_REQUESTED = 1
PEM = 1
SET_MAX_PROTO_VERSION, TLS1_2 = 124, 0x0303


def load():
    lib = ctypes.CDLL("libssl.so.3")
    of_ssl = ctypes.c_void_p
    for name, result, arguments in (
        ("TLS_client_method", of_ssl, []),
        ("SSL_CTX_new", of_ssl, [of_ssl]),
        ("SSL_CTX_free", None, [of_ssl]),
        ("SSL_CTX_ctrl", ctypes.c_long, [of_ssl, ctypes.c_int, ctypes.c_long, of_ssl]),
        ("SSL_CTX_use_certificate_file", ctypes.c_int, [of_ssl, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_CTX_use_PrivateKey_file", ctypes.c_int, [of_ssl, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_new", of_ssl, [of_ssl]),
        ("SSL_free", None, [of_ssl]),
        ("SSL_set_fd", ctypes.c_int, [of_ssl, ctypes.c_int]),
        ("SSL_connect", ctypes.c_int, [of_ssl]),
        ("SSL_do_handshake", ctypes.c_int, [of_ssl]),
        ("SSL_key_update", ctypes.c_int, [of_ssl, ctypes.c_int]),
        ("SSL_renegotiate", ctypes.c_int, [of_ssl]),
        ("SSL_write", ctypes.c_int, [of_ssl, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_read", ctypes.c_int, [of_ssl, ctypes.c_char_p, ctypes.c_int]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


LIB = load()


class Peer:
    """A connection after its handshake. Every operation ends after `seconds` without progress; `room` is what the kernel keeps
    for it of the other side's bytes."""

    def __init__(self, host, port, certificate, key, old=False, seconds=5, room=None):
        self.socket = socket.socket()
        if room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.connect((host, port))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
        self.context = LIB.SSL_CTX_new(LIB.TLS_client_method())
        if old:
            LIB.SSL_CTX_ctrl(self.context, SET_MAX_PROTO_VERSION, TLS1_2, None)
        LIB.SSL_CTX_use_certificate_file(self.context, certificate.encode(), PEM)
        LIB.SSL_CTX_use_PrivateKey_file(self.context, key.encode(), PEM)
        self.ssl = LIB.SSL_new(self.context)
        LIB.SSL_set_fd(self.ssl, self.socket.fileno())
        if LIB.SSL_connect(self.ssl) != 1:
            self.close()
            raise ConnectionError("no handshake")

    def write(self, data):
        return LIB.SSL_write(self.ssl, data, len(data))

    def read(self, n):
        buffer = ctypes.create_string_buffer(n)
        got = LIB.SSL_read(self.ssl, buffer, n)
        return buffer.raw[:max(got, 0)]

    def update_keys(self):
        """False: the other side takes no more."""
        return LIB.SSL_key_update(self.ssl, KEY_UPDATE_REQUESTED) == 1 and LIB.SSL_do_handshake(self.ssl) == 1

    def renegotiate(self):
        """TLS 1.2. True: the other side agreed."""
        return LIB.SSL_renegotiate(self.ssl) == 1 and LIB.SSL_do_handshake(self.ssl) == 1

    def close(self):
        LIB.SSL_free(self.ssl)
        LIB.SSL_CTX_free(self.context)
        self.socket.close()
