#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Attempts to reach destinations that a policy forbids, from inside real sandboxes; what arrives is checked from
outside. One job per mode runs all of techniques.h and network.c, and reports the result and the duration of each
call.
"""

import contextlib
import os
import secrets
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
import peers  # noqa: E402
from broker import BUILD, Broker, skip  # noqa: E402
from names import DNS_PORT, ZONE, NameServer  # noqa: E402
from slowness import scaled  # noqa: E402
from runner import time_passes  # noqa: E402

PROGRAM = os.path.join(BUILD, "tests", "escape-job")
START = 'cat >/tmp/e && chmod 755 /tmp/e'
EVIL4, EVIL6 = "93.184.216.66", "2606:2800:221::66"
ALLOWED4, ALLOWED6, PRIVATE = peers.Peers.public, peers.Peers.public6, peers.Peers.private
CONFIG = f"""
pool: 2
network: {{dns: ["127.0.0.1:{DNS_PORT}"]}}
templates:
  - name: default
    network_max: {{mode: open}}
"""
ALLOW = ("--allow", f"{ALLOWED4}:80", "--allow", f"[{ALLOWED6}]:80")
# Errors of a refusal: by the programs, by the filter, by a kernel without that family, or because nothing listens.
REFUSED = {"EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOSYS"}
# Errors that are not a refusal: a wrong address family, or a missing feature.
OTHERWISE = {"tcp4_on_v6_socket": {"EINVAL", "EPERM"}, "open_tun": {"ENOENT", "EPERM"}, "inherited_sockets": {"EBADF"},
             "abstract_socket_of_the_host": {"ECONNREFUSED"}, "path_socket_of_the_host": {"ENOENT"},
             "udp6_sendto_unspec_family": {"EDESTADDRREQ"}, "segment_route_by_control_message": {"EINVAL"},
             "source_by_control_message": {"EINVAL"}, "network_of_another": {"ENOENT"}}
SOL_PACKET, PACKET_STATISTICS, ETH_P_ALL, SO_RCVBUFFORCE = 263, 6, 3, 33
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Peers(peers.Peers):
    """The peer also has the forbidden addresses, and responds there, too."""

    @staticmethod
    def configure(link, v4, v6):
        peers.Peers.configure(link, (*v4, EVIL4) if link == "peer" else v4, v6)
        if link == "peer":
            peers.ip("addr", "add", f"{EVIL6}/128", "dev", link, "nodad")
        else:
            peers.ip("route", "add", f"{EVIL6}/128", "dev", link)


class Names(NameServer):
    """rebind.test is the allowed peer in the first answer, and a private address afterwards."""

    asked_before = False

    def answer(self, query):
        if b"\6rebind\4test\0\0\1" in query:
            ZONE["rebind.test"] = [PRIVATE if self.asked_before else ALLOWED4]
            self.asked_before = True
        reply = NameServer.answer(query)
        return reply.replace(struct.pack(">HHHI", 0xC00C, 1, 1, 30), struct.pack(">HHHI", 0xC00C, 1, 1, 0))


class Wire:
    """Every packet of this namespace, in both directions: which forbidden addresses are in a header."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
        self.socket.setblocking(False)

    def forbidden(self):
        """Since the last look."""
        seen = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                data, where = self.socket.recvfrom(65536)
                head = {ETH_P_IP: data[12:60], ETH_P_IPV6: data[8:104]}.get(where[1], data)
                seen |= {a for a in (EVIL4, EVIL6, PRIVATE)
                         if socket.inet_pton(socket.AF_INET6 if ":" in a else socket.AF_INET, a) in head}
        dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        expect(dropped == 0, f"{dropped} packets were not seen")
        return seen


class Host:
    """Sockets of the host that a job must not reach."""

    def __init__(self, folder):
        self.abstract, self.path = f"stockade-{secrets.token_hex(8)}", f"{folder}/host.sock"
        self.sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        for s, name in zip(self.sockets, (f"\0{self.abstract}", self.path), strict=True):
            s.bind(name)
            s.listen()
            s.setblocking(False)
        os.chmod(self.path, 0o777)

    def visited(self):
        for s in self.sockets:
            with contextlib.suppress(BlockingIOError):
                return s.accept() is not None
        return False


@contextlib.contextmanager
def sandbox(b, *policy):
    """With the program in it."""
    r = b.cli("create", *policy)
    expect(r.returncode == 0, r.stderr.decode())
    box = r.stdout.decode().strip()
    try:
        with open(PROGRAM, "rb") as program:
            r = b.cli("exec", box, "--", "/bin/sh", "-c", START, stdin=program)
        expect(r.returncode == 0, r.stderr.decode())
        yield box
    finally:
        b.cli("rm", box)


def said(b, box, *words):
    """The lines of a job."""
    r = b.cli("exec", box, "--", "/tmp/e", "network", *words)
    expect(r.returncode == 0, f"{words}: {r.returncode} {r.stdout.decode()} {r.stderr.decode()}")
    return r.stdout.decode().splitlines()


@contextlib.contextmanager
def in_two_steps(b, box, *words):
    p = b.popen("exec", box, "--", "/tmp/e", "network", *words, stdin=-1, stdout=-1, text=True)
    try:
        yield p
    finally:
        p.kill()
        p.communicate()


def matrix(b, host, *policy):
    """name -> its result; and the results of allowed destinations."""
    with sandbox(b, *policy) as box:
        lines = [x.split() for x in said(b, box, "matrix", EVIL4, EVIL6, ALLOWED4, ALLOWED6, host.abstract, host.path)]
    allowed = [word for name, word, _ in lines if name.startswith("allowed")]
    return [(name, word, int(ms)) for name, word, ms in lines if not name.startswith("allowed")], allowed


def all_are_refused_at_once(results, mode):
    wrong = [f"{name}: {word} after {ms} ms" for name, word, ms in results
             if word not in OTHERWISE.get((mode, name), OTHERWISE.get(name, REFUSED)) or ms > scaled(1000)]
    expect(len(results) >= 98, f"{len(results)} techniques")
    expect(not wrong, f"mode {mode}: " + "; ".join(wrong))


def in_mode_none_each_is_refused_at_once_and_nothing_arrives(b, host, wire):
    results, allowed = matrix(b, host, "--network", "none")
    expect(not wire.forbidden() and not host.visited(), "something arrived")
    expect(allowed == ["EPERM"] * 4, str(allowed))
    all_are_refused_at_once(results, "none")


def in_mode_allowlist_each_is_refused_at_once_and_nothing_else_arrives(b, host, wire):
    results, allowed = matrix(b, host, *ALLOW)
    expect(not wire.forbidden() and not host.visited(), "something arrived")
    expect(allowed == ["ok"] * 4, str(allowed))
    all_are_refused_at_once(results, "allowlist")


def what_is_connected_is_cut_when_another_policy_forbids_it(b, host, wire):
    with sandbox(b, *ALLOW) as box, in_two_steps(b, box, "held", ALLOWED4, ALLOWED6) as p:
        got = [p.stdout.readline().strip() for _ in range(5)]
        expect(got == ["ok"] * 4 + ["held"], str(got))
        r = b.cli("network", "--allow", f"[{ALLOWED6}]:80", box)
        expect(r.returncode == 0, r.stderr.decode())
        lines = [x.split() for x in p.communicate("\n", timeout=scaled(60))[0].splitlines()]
        words = [word for word, _ in lines]
        expect(words[0] in ("ECONNRESET", "EPIPE", "EPERM") and words[2] == "EPERM" and words[4] == "EPERM", str(lines))
        expect(words[1] == words[3] == "ok", f"what is still allowed goes on: {lines}")
        expect(max(int(lines[n][1]) for n in (0, 2)) <= scaled(1000), str(lines))


def nobody_outside_reaches_what_listens_without_bind(b, host, wire):
    with sandbox(b, *ALLOW) as box, in_two_steps(b, box, "listen") as p:
        own, port = (p.stdout.readline().strip() for _ in range(2))
        expect(own == "own", f"its own loopback: {own}")
        for address in ("127.0.0.1", "93.184.216.1", "10.77.0.2", f"127.128.0.{secrets.randbelow(250)}"):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, int(port)), 5):
                raise AssertionError(f"{address}:{port} answers")
        # a connection through the broker that the policy does not permit
        with b.popen("forward", box, f"0:{port}", stdout=-1, stderr=-1, text=True) as forward:
            local = forward.stdout.readline().strip().rsplit(":", 1)[-1]
            if local.isdigit():
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(local)), 5) as s:
                    expect(s.recv(1) == b"", "nothing comes back")
            forward.kill()
        got = p.communicate("\n", timeout=scaled(60))[0].strip()
        expect(got == "EAGAIN", got)


def names_are_asked_of_nobody_else_over_udp_or_tcp(b, host, wire):
    with sandbox(b, "--allow", "web.test:80") as box:
        names.queries()
        for kind, server in (("tcp", EVIL4), ("tcp", "9.9.9.9"), ("udp", EVIL4)):
            got = said(b, box, "ask", kind, server, "1", "%.exfil.test")
            expect(got == ["code-3"], f"{kind} {server}: {got}")
        expect(names.queries() == 0 and not wire.forbidden(), "nothing went out")
        got = said(b, box, "ask", "tcp", EVIL4, "1", "web.test")
        expect(got == ["code-0", "ok"] and names.queries() > 0, f"what is allowed: {got}")
        expect(not wire.forbidden(), "not there")
    with sandbox(b, "--network", "none") as box:
        for kind in ("tcp", "udp"):
            got = said(b, box, "ask", kind, EVIL4, "1", "%.exfil.test")
            expect(got == ["EPERM"], f"mode none, {kind}: {got}")


def a_tunnel_of_random_names_below_an_allowed_suffix_meets_a_rate(b, host, wire):
    with sandbox(b, "--allow", "*.web.test:80", "--dns-queries", "20") as box:
        names.queries()
        got = said(b, box, "ask", "udp", "9.9.9.9", "100", "%.web.test")
        asked = names.queries()
        expect(0 < asked <= 60, f"{asked} queries for 100 names at 20 a minute")
        expect(len([x for x in got if x == "code-3"]) <= 30, str(got))


def an_answer_that_turns_to_a_private_place_leads_nowhere(b, host, wire):
    with sandbox(b, "--allow", "rebind.test:80") as box:
        names.queries()
        wire.forbidden()
        got = said(b, box, "ask", "udp", "9.9.9.9", "1", "rebind.test")
        expect(got == ["code-0", "ok"], f"the first answer: {got}")
        before = names.queries()
        time_passes("what is known is not asked for again within a second", 1.1)
        got = said(b, box, "ask", "udp", "9.9.9.9", "1", "rebind.test")
        expect(before > 0 and names.queries() > 0, "it was asked again")
        expect(got[-1] != "ok" and not wire.forbidden(), f"the second answer: {got}")


def where_everything_public_is_open_the_techniques_do_arrive(b, host, wire):
    results, allowed = matrix(b, host, "--network", "open")
    expect(wire.forbidden() >= {EVIL4, EVIL6}, "the wire is looked at")
    arrived = {name for name, word, _ in results if word == "0"}
    expect(arrived >= {"tcp4", "tcp6", "tcp_mapped", "udp4_sendto", "udp6_connected", "passed_socket"}, str(arrived))
    expect(allowed == ["ok"] * 4, str(allowed))
    expect(not host.visited(), "a socket of the host")


# The last one does what must not happen in the others.
TESTS = [in_mode_none_each_is_refused_at_once_and_nothing_arrives,
         in_mode_allowlist_each_is_refused_at_once_and_nothing_else_arrives,
         what_is_connected_is_cut_when_another_policy_forbids_it, nobody_outside_reaches_what_listens_without_bind,
         names_are_asked_of_nobody_else_over_udp_or_tcp, a_tunnel_of_random_names_below_an_allowed_suffix_meets_a_rate,
         an_answer_that_turns_to_a_private_place_leads_nowhere, where_everything_public_is_open_the_techniques_do_arrive]


def main():
    failed = 0
    with Broker(config=CONFIG) as b:
        features = {f["name"]: f for f in b.json("info")[1]["features"]}
        for need in ("bpf-net", "relay"):
            if not features[need]["available"]:
                skip(f"{need}: {features[need]['detail']}")
        host = Host(b.folder)
        wire = Wire()
        for test in TESTS:
            if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
                continue
            begun = time.monotonic()
            try:
                test(b, host, wire)
                expect(test is TESTS[-1] or not wire.forbidden(), "something arrived")
                print(f"ok   {test.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
            except (AssertionError, OSError) as why:
                failed += 1
                print(f"FAIL {test.__name__}: {type(why).__name__} {why}", flush=True)
        expect(b.process.poll() is None, "the broker lives")
    return 1 if failed else 0


if __name__ == "__main__":
    if not os.path.exists(PROGRAM):
        skip(f"{PROGRAM} is not built")
    with Peers(), Names() as names:
        sys.exit(main())
