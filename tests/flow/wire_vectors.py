#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""proto/WIRE.md is correct: a broker sends each block of bytes in it."""

import atexit
import os
import re
import shutil
import sys
import tempfile

import api
import sp
from broker import Broker
from runner import check, run_cases

TEXT = os.path.join(os.environ["STOCKADE_SOURCE"], "proto/WIRE.md")


def blocks():
    """(transport, line number, [(direction, bytes)]) of each vector, neighbours of one direction joined."""
    found = []
    with open(TEXT, encoding="utf-8") as f:
        lines = f.read().split("\n")
    for start, line in enumerate(lines):
        if not line.startswith("```vector "):
            continue
        steps = []
        for step in lines[start + 1:lines.index("```", start)]:
            direction = step[0]
            data = bytes.fromhex(re.sub(r"\(.*", "", step[1:])) if direction in "<>" else b""
            if steps and steps[-1][0] == direction:
                steps[-1] = (direction, steps[-1][1] + data)
            else:
                steps.append((direction, data))
        found.append((line.split()[1], start + 1, steps))
    return found


def play(address, steps):
    s = sp.connect(address)
    for direction, data in steps:
        if direction == ">":
            s.sendall(data)
        elif direction == "<":
            s.settimeout(sp.scaled(10))
            got = sp.read_exactly(s, len(data))
            check(got == data, f"the broker says\n{got.hex(' ')}\nand not\n{data.hex(' ')}")
        else:
            try:
                rest = sp.read_exactly(s, 1)
            except sp.Closed:
                rest = b""
            check(rest == b"", f"the connection is closed, not followed by {rest.hex()}")
    s.close()


def every_block_is_what_the_broker_says(addresses):
    found = blocks()
    check(len(found) >= 10, f"WIRE.md has {len(found)} vectors")
    check({t for t, _, _ in found} == set(addresses), "each transport has one")
    for transport, line, steps in found:
        try:
            play(addresses[transport], steps)
        except (AssertionError, sp.Closed, TimeoutError) as why:
            raise AssertionError(f"WIRE.md:{line}: {why!r}") from why


def a_message_of_the_feed_is_a_line_and_an_event(addresses):
    api.connect(addresses["ipc"])  # learns the schema
    feed = sp.connect(addresses["feed"])
    feed.sendall(b"\0SP\0\0\x21\0\0")
    check(sp.read_exactly(feed, 8) == b"\0SP\0\0\x20\0\0", "the feed says PUB")
    client = api.connect(addresses["ipc"])
    box = client.run("true").sandbox
    while True:
        header = sp.read_exactly(feed, 9)
        check(header[0] == 1, "the feed's messages have the header of ipc")
        body = sp.read_exactly(feed, int.from_bytes(header[1:], "big"))
        topic, event = body.split(b"\n", 1)
        kind, severity, sandbox = topic.decode("ascii").split("/")
        check(kind and severity, f"a line has kind and severity: {topic!r}")
        parsed = sp.message("stockade.v1.Event").FromString(event)
        check(parsed.sandbox_id == sandbox, "the line names the event's sandbox")
        if sandbox == box:
            break


def main():
    folder = tempfile.mkdtemp(prefix="stockade-feed-")
    os.chmod(folder, 0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    feed = f"ipc://{folder}/run/feed.sock"
    with Broker("--listen", "tcp://127.0.0.1:0", config=f"telemetry: {{feed: '{feed}'}}\nrpc: {{anonymous: true}}\n") as b:
        port = re.search(r"tcp://127\.0\.0\.1:([1-9][0-9]*)", b.log()).group(1)
        addresses = {"ipc": b.address, "tcp": f"tcp://127.0.0.1:{port}", "feed": feed}
        status = run_cases([every_block_is_what_the_broker_says, a_message_of_the_feed_is_a_line_and_an_event],
                           lambda test: test(addresses))
    sys.exit(status)


main()
