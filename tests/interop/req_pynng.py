# SPDX-License-Identifier: Apache-2.0
"""A stock REQ socket of pynng: one request from stdin, one reply to stdout."""

import sys

import pynng

with pynng.Req0(
    dial=sys.argv[1], recv_timeout=20_000, send_timeout=20_000, reconnect_time_min=20
) as socket:
    socket.send(sys.stdin.buffer.read())
    sys.stdout.buffer.write(socket.recv())
