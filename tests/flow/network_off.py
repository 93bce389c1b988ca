#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The mode `off` of the network: no sockets but unix ones, from the creation of a sandbox to its end; neither wider nor
narrower than what was requested."""

import json
import subprocess
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


# What a job can see of its network namespace, and what it leaves: names, a daemon, and sockets that only messages hold.
LOOK = r"""
import ctypes, glob, hashlib, json, os, socket
net = {}
for path in sorted(glob.glob("/proc/net/*") + glob.glob("/proc/net/*/*") + glob.glob("/proc/sys/net/**", recursive=True)):
    if path in ("/proc/net/softnet_stat", "/proc/net/stat/rt_cache", "/proc/net/protocols"): # counters of the whole host
        continue
    try:
        lines = open(path, "rb").readlines() if os.path.isfile(path) else []
        if path == "/proc/net/netlink": # the kernel's own sockets, without their addresses and inodes
            lines = [b" ".join(line.split()[1:9]) for line in lines]
        if path == "/proc/net/sockstat": # the first of each line is its own; the others are sums of the whole host
            lines = [b" ".join(line.split()[:3]) for line in lines]
        net[path] = hashlib.sha256(b"".join(lines)).hexdigest()
    except OSError as e:
        net[path] = e.errno
def reaches(kind):
    try:
        socket.socket(socket.AF_UNIX, kind).connect("\0neighbour")
        return True
    except OSError as e:
        return False
print(json.dumps({"net": net, "unix": open("/proc/net/unix").read().count("\n") - 1, "namespace": os.readlink("/proc/self/ns/net"),
                  "reaches": reaches(socket.SOCK_STREAM) or reaches(socket.SOCK_DGRAM)}))
"""
LEAVE = r"""
import os, socket, time
keep = []
for i in range(100):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("\0left%d" % i)
    socket.send_fds(a, [b"x"], [a.fileno(), b.fileno(), s.fileno()])
if os.fork() == 0:
    os.setsid()
    s = socket.socket(socket.AF_UNIX); s.bind("\0neighbour"); s.listen()
    d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind("\0neighbour-d")
    os.close(1); os.close(2)
    time.sleep(100)
time.sleep(0.05)
"""
# Leaves counters, an ended connection and a flow label in its namespace, where it may.
USE_INET = r"""
import socket
s = socket.socket(socket.AF_INET6); s.bind(("::1", 0)); s.listen()
c = socket.create_connection(s.getsockname()[:2]); c.sendall(b"x"); c.close()
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


def look(b, *options):
    r = python(b, *options, script=LOOK)
    check(r.returncode == 0, r)
    return json.loads(r.stdout)


def nothing_of_an_earlier_sandbox_is_found(b):
    fresh = look(b, "--network", "off")
    check(fresh["unix"] == 0 and not fresh["reaches"], fresh["unix"])
    for _ in range(6):
        r = python(b, "--network", "off", script=LEAVE)
        check(r.returncode == 0, r)
        again = look(b, "--network", "off")
        different = {k for k in fresh["net"] if again["net"].get(k) != fresh["net"][k]}
        check(again["unix"] == 0 and not again["reaches"] and not different, f"differs: {different}")


def nothing_of_one_with_sockets_is_found(b):
    fresh = look(b, "--network", "off")
    for mode in ("none", "off"):
        r = python(b, "--network", "none", script=USE_INET)
        check(r.returncode == 0, r)
        again = look(b, "--network", mode)
        different = {k for k in fresh["net"] if again["net"].get(k) != fresh["net"][k]}
        check(not different, f"{mode}: differs: {different}")


def two_at_a_time_see_nothing_of_each_other(b):
    listen = ("import socket, sys, time\ns = socket.socket(socket.AF_UNIX); s.bind('\\0neighbour'); s.listen()\n"
              "d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); d.bind('\\0neighbour-d')\nprint('ready', flush=True)\ntime.sleep(100)")
    for name in ("one", "two"):
        check(b.cli("create", "--name", name, "--network", "off").returncode == 0, name)
    with b.popen("exec", "one", "--", "/usr/bin/python3", "-c", listen, stdout=subprocess.PIPE) as p:
        check(p.stdout.readline() == b"ready\n", "it listens")
        seen = {}
        for name in ("one", "two"):
            r = b.cli("exec", name, "--", "/usr/bin/python3", "-c", LOOK)
            seen[name] = json.loads(r.stdout)
        p.kill()
    check(seen["one"]["reaches"] and seen["one"]["unix"] > 0, "the test can see a neighbour in the same sandbox")
    check(not seen["two"]["reaches"] and seen["two"]["unix"] == 0, "and not in another one")
    check(seen["one"]["namespace"] != seen["two"]["namespace"], seen)
    # the same name can be used in both
    r = b.cli("exec", "two", "--", "/usr/bin/python3", "-c", "import socket; socket.socket(socket.AF_UNIX).bind('\\0neighbour')")
    check(r.returncode == 0, r)
    for name in ("one", "two"):
        check(b.cli("rm", name).returncode == 0, name)


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
        nothing_of_an_earlier_sandbox_is_found,
        nothing_of_one_with_sockets_is_found,
        two_at_a_time_see_nothing_of_each_other,
        a_batch_has_it,
        a_refusal_is_in_the_record,
    ], call=lambda case: case(BROKER))
sys.exit(CODE)
