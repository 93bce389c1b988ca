#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The mode `off` of the network: no sockets but unix ones, from the creation of a sandbox to its end; neither wider nor
narrower than what was requested."""

import json
import sys

from broker import Broker
from runner import check, run_cases

TRY = r"""
import errno, os, socket
for family in range(0, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind, 0).close()
            print("made", family)
        except OSError as e:
            print("refused", family, errno.errorcode[e.errno])
"""
UNIX = r"""
import os, socket, threading
for address in ("/tmp/s", "\0abstract"):
    listener = socket.socket(socket.AF_UNIX); listener.bind(address); listener.listen()
    threading.Thread(target=lambda: listener.accept()[0].sendall(b"hello")).start()
    client = socket.socket(socket.AF_UNIX); client.connect(address)
    print(client.recv(5).decode())
a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(4).decode())
"""
# The family is an int: what the kernel ignores of the register must not matter. 41 and 2: x86_64's socket, AF_INET.
HIGH = r"""
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
for family in (2, 2 | 1 << 32, 10 | 1 << 40, 16):
    r = libc.syscall(ctypes.c_long(number), ctypes.c_ulong(family), ctypes.c_long(1), ctypes.c_long(0))
    print(r, ctypes.get_errno())
"""


def python(b, *options, script):
    return b.cli("run", *options, "--", "/usr/bin/python3", "-c", script)


def what_contradicts_it_is_refused(b):
    for options, word in ((["--network", "off", "--allow", "192.0.2.1:80"], b"mode of the network is off"),
                          (["--network", "off", "--allow-inbound", "80"], b"mode of the network is off"),
                          (["--network", "of"], b"one of off, none, allowlist, open")):
        r = b.cli("run", *options, "--", "true")
        check(r.returncode == 125 and word in r.stderr, f"{options}: {r}")
    for mode in ("none", "allowlist", "open"):
        r = b.cli("run", "--template", "shut", "--network", mode, "--", "true")
        check(r.returncode == 77 and f"{mode} requested, at most off allowed".encode() in r.stderr, f"wider than the template: {r}")
    r = b.cli("run", "--template", "shut", "--allow", "192.0.2.1:80", "--", "true")
    check(r.returncode == 77, f"wider by a rule: {r}")


def no_socket_but_a_unix_one_is_made(b):
    for options in (["--network", "off"], ["--template", "shut"], ["--template", "shut", "--network", "off"]):
        r = python(b, *options, script=TRY)
        lines = r.stdout.decode().split("\n")
        made = {int(line.split()[1]) for line in lines if line.startswith("made")}
        check(r.returncode == 0 and made == {1}, f"{options}: families {made} {r.stderr}")
        others = {line.split()[2] for line in lines if line.startswith("refused") and line.split()[1] != "1"}
        check(others == {"EPERM"}, f"{options}: all others with EPERM: {others}")


def high_bits_of_the_family_do_not_matter(b):
    r = python(b, "--network", "off", script=HIGH)
    check(r.stdout.decode().split("\n")[:4] == ["-1 1"] * 4, r)


def unix_sockets_work(b):
    r = python(b, "--network", "off", script=UNIX)
    check(r.stdout == b"hello\nhello\npair\n", r)


def the_other_modes_are_as_before(b):
    for mode in ("none", "allowlist"):
        r = python(b, "--network", mode, script="import socket; socket.socket(); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)")
        check(r.returncode == 0, f"{mode} has not become narrower: {r}")


def a_kept_sandbox_stays_off_and_another_does_not_become_it(b):
    for mode, other in (("off", "none"), ("off", "open"), ("none", "off"), ("allowlist", "off")):
        check(b.cli("create", "--name", "box", "--network", mode).returncode == 0, mode)
        r = b.cli("network", "--network", other, "box")
        check(r.returncode == 1 and b"created with the mode off, and keeps it" in r.stderr, f"{mode} to {other}: {r}")
        r = b.cli("exec", "box", "--", "/usr/bin/python3", "-c", "import socket; socket.socket()")
        check((r.returncode == 1 and b"PermissionError" in r.stderr) == (mode == "off"), f"still {mode}: {r}")
        check(b.json("get", "box")[1]["network"] == mode, "and says so")
        check(b.cli("network", "--network", mode, "box").returncode == 0, "the same mode is no change")
        check(b.cli("rm", "box").returncode == 0, "rm")


def a_batch_has_it(b):
    line = json.dumps(["/usr/bin/python3", "-c", "import socket; socket.socket()"]).encode() + b"\n"
    r = b.cli("batch", "--network", "off", "-", input=line * 3)
    check(r.returncode == 1 and [json.loads(x)["exit_code"] for x in r.stdout.splitlines()] == [1, 1, 1], r)


def a_refusal_is_in_the_record(b):
    r = b.cli("run", "--network", "off", "--syscalls", "--", "/usr/bin/python3", "-c", "import socket; socket.socket()")
    record = b.json("inspect")[1]
    check(r.returncode == 1 and "socket" in json.dumps(record), record)


with Broker(config="pool: 2\ntemplates:\n  - {name: default}\n  - {name: shut, network: {mode: off}, network_max: {mode: off}}\n") as BROKER:
    CODE = run_cases([
        what_contradicts_it_is_refused,
        no_socket_but_a_unix_one_is_made,
        high_bits_of_the_family_do_not_matter,
        unix_sockets_work,
        the_other_modes_are_as_before,
        a_kept_sandbox_stays_off_and_another_does_not_become_it,
        a_batch_has_it,
        a_refusal_is_in_the_record,
    ], call=lambda case: case(BROKER))
sys.exit(CODE)
