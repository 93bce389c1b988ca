#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host itself and its private neighbours, from a sandbox with wider rules, and from a compromised relay: a
process of the test in the relay's cgroup, which connects to destinations without a rule."""

import contextlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, OPEN, PRELUDE, policy
from slowness import scaled
from peers import Peers, ip
from relay import relay_pid
from runner import check

PUBLIC, PRIVATE, PUBLIC6 = Peers.public, Peers.private, Peers.public6
OWN_PUBLIC, OWN_PRIVATE, OWN6 = "93.184.216.1", "10.77.0.2", "2606:2800:220::2"
METADATA = "169.254.169.254"
PORT = 80
CONFIG = """
network: {dns: ["10.77.0.1:81"]}
templates:
  - name: default
    network_max: {mode: open, outbound: ["10.0.0.0/8", "127.0.0.1:80", host, "169.254.0.0/16"]}
"""
ROOTS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")


def serve():
    """A service of the host, on every address, for as long as the test runs: answers what it gets, over TCP and UDP."""
    def stream(s):
        while True:
            with s.accept()[0] as c:
                c.sendall(c.recv(99))

    def datagrams(s):
        while True:
            s.sendto(*s.recvfrom(99))

    for kind, answer in ((socket.SOCK_STREAM, stream), (socket.SOCK_DGRAM, datagrams)):
        s = socket.socket(socket.AF_INET6, kind)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", PORT))
        if kind == socket.SOCK_STREAM:
            s.listen(64)
        threading.Thread(target=answer, args=(s,), daemon=True).start()


def reaches(b, box, *hosts):
    code = "".join(f"try_tcp('{h}', {PORT})\ntry_udp('{h}', {PORT}, True)\n" for h in hosts)
    r = b.cli("exec", box, "--", "python3", "-c", PRELUDE + code)
    check(r.returncode == 0, r.stderr.decode())
    return r.stdout.decode().split()


def of_rules(b, c, mode, rules, *hosts):
    box = c.unary(SANDBOX + "Create", {"network": policy(mode, *((cidr, PORT, 0) for cidr in rules))}).sandbox.id
    try:
        return reaches(b, box, *hosts)
    finally:
        b.cli("rm", box)


def a_rule_that_is_not_about_the_host_does_not_reach_it(b, c):
    around = ("93.0.0.0/8", "93.184.216.0/24", "93.184.216.0/31", "10.0.0.0/8", "10.77.0.2/31", "2606:2800:220::/64")
    for mode in (ALLOWLIST, OPEN):
        got = of_rules(b, c, mode, around, OWN_PUBLIC, OWN_PRIVATE, OWN6, "64:ff9b::5db8:d801", "2002:5db8:d801::1")
        check(set(got) == {"EPERM"}, f"{mode}: {got}")
        check(of_rules(b, c, mode, around, PUBLIC, PRIVATE, PUBLIC6) == ["ok"] * 6, "others in there are reached")
    got = of_rules(b, c, ALLOWLIST, ("93.184.216.1/32", "10.77.0.2"), OWN_PUBLIC, OWN_PRIVATE, OWN6)
    check(got == ["ok"] * 4 + ["EPERM"] * 2, f"by the whole address: {got}")
    got = of_rules(b, c, ALLOWLIST, ("host",), OWN_PUBLIC, OWN_PRIVATE, OWN6, PUBLIC)
    check(got == ["ok"] * 6 + ["EPERM"] * 2, f"by the word: {got}")


def addresses_that_the_host_gets_later_are_its_own(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, ("93.184.0.0/16", PORT, 0))}).sandbox.id
    try:
        ip("addr", "add", "93.184.99.1/32", "dev", "host")
        got = reaches(b, box, "93.184.99.1")
        check(got[0] != "ok" and got[1] != "ok", f"new: {got}")
    finally:
        ip("addr", "del", "93.184.99.1/32", "dev", "host")
        b.cli("rm", box)


def metadata_is_not_lent_by_a_rule_around_it(b, c):
    failed = c.fails(SANDBOX + "Create", {"network": policy(ALLOWLIST, (METADATA, PORT, 1))})
    check("network.outbound[0]" in failed.message, failed.message)
    got = of_rules(b, c, ALLOWLIST, ("169.254.0.0/16",), METADATA)
    check(set(got) == {"EPERM"}, str(got))


# ---- A relay that was taken over

def relay_cgroup(b):
    with open(f"/proc/{relay_pid(b)}/cgroup", encoding="ascii") as f:
        path = next(line[3:].strip() for line in f if line.startswith("0::"))
    found = next(r + path for r in ROOTS if os.path.exists(f"{r}{path}/cgroup.procs"))
    with open(found + "/cgroup.procs", encoding="ascii") as f:
        check(f.read().split() == [str(relay_pid(b))], "nobody else is in there")
    return found


def dial(kind, to, connected):
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    with socket.socket(family, kind) as s:
        s.settimeout(scaled(0.5))
        try:
            if connected:
                s.connect((to, PORT))
                s.send(b"taken over")
            else:
                s.sendto(b"taken over", (to, PORT))
            return s.recv(99) == b"taken over"
        except OSError:
            return False


def misbehave(b, hosts):
    """Which of these a process in the relay's cgroup has an answer from."""
    end, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open(relay_cgroup(b) + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write("0")
            ways = {f"{name}/{to}": (kind, to, connected) for to in hosts for name, kind, connected in (
                ("tcp", socket.SOCK_STREAM, True), ("udp", socket.SOCK_DGRAM, True), ("sendto", socket.SOCK_DGRAM, False))}
            with ThreadPoolExecutor(len(ways)) as pool:
                reached = pool.map(lambda way: dial(*way), ways.values())
            got = [way for way, there in zip(ways, reached, strict=True) if there]
            for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW),
                                 (socket.AF_INET6, socket.SOCK_RAW)):
                with contextlib.suppress(OSError):
                    socket.socket(family, kind, socket.IPPROTO_UDP).close()
                    got.append(f"raw {family}" if family != socket.AF_PACKET else "")
            os.write(ours, "\n".join(filter(None, got)).encode())
        finally:
            os._exit(0)
    os.close(ours)
    with os.fdopen(end) as f:
        got = f.read().split("\n")
    os.waitpid(pid, 0)
    return set(filter(None, got))


def both(*hosts):
    return {f"{kind}/{to}" for to in hosts for kind in ("tcp", "udp", "sendto")}


FORBIDDEN = ("127.0.0.1", "127.0.0.9", "::1", OWN_PUBLIC, OWN_PRIVATE, OWN6, PRIVATE, METADATA, "169.254.7.7", "10.77.0.9",
             "::ffff:10.77.0.1", "::ffff:127.0.0.1", "100.100.100.200", "fd00:ec2::254")


def a_relay_that_was_taken_over_reaches_what_live_rules_name_and_no_more(b, c):
    ip("addr", "add", f"{METADATA}/32", "dev", "lo")
    try:
        check(dial(socket.SOCK_STREAM, METADATA, True) and dial(socket.SOCK_DGRAM, "::1", True), "all is there")
        got = misbehave(b, (*FORBIDDEN, PUBLIC))
        check(got == both(PUBLIC), f"without a rule: {got}")
        box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, ("10.77.0.0/24", PORT, 0), ("127.0.0.1", PORT, 1))})
        got = misbehave(b, (*FORBIDDEN, PUBLIC6))
        named = both(PRIVATE, f"::ffff:{PRIVATE}", PUBLIC6) | {"tcp/127.0.0.1", "tcp/::ffff:127.0.0.1"}
        check(got == named, f"with rules: {got ^ named}")
        c.unary(SANDBOX + "Update", {"id": box.sandbox.id, "network": policy(ALLOWLIST, ("host", PORT, 2))})
        got = misbehave(b, FORBIDDEN)
        own = {f"{kind}/{to}" for to in (OWN_PUBLIC, OWN_PRIVATE, OWN6) for kind in ("udp", "sendto")}
        check(got == own, f"with \"host\": {got ^ own}")
        b.cli("rm", box.sandbox.id)
        got = misbehave(b, FORBIDDEN)
        check(got == set(), f"its rules went with the sandbox: {got}")
    finally:
        ip("addr", "del", f"{METADATA}/32", "dev", "lo")


TESTS = [a_rule_that_is_not_about_the_host_does_not_reach_it, addresses_that_the_host_gets_later_are_its_own,
         metadata_is_not_lent_by_a_rule_around_it, a_relay_that_was_taken_over_reaches_what_live_rules_name_and_no_more]

if __name__ == "__main__":
    with Peers():
        serve()
        main(Broker(config=CONFIG), TESTS)
