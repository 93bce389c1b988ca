#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Names from inside a sandbox: the relay's answers to a resolver, wget and a TLS library, and their destinations."""

import contextlib
import json
import os
import signal
import socket
import struct

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, OPEN, PRELUDE, python
from peers import Peers
from runner import check, until

DNS_PORT = 5300
CONFIG = f"""
pool: 2
network: {{dns: ["127.0.0.1:{DNS_PORT}"]}}
templates:
  - name: default
    network_max: {{mode: open}}
"""
# What the name server says: IPv4 addresses of each name. Everything else is NXDOMAIN.
ZONE = {
    "web.test": [Peers.public],
    "other.test": [Peers.public],
    "deep.web.test": [Peers.public],
    "private.test": [Peers.private],
    "deb.debian.org": [Peers.public],
    "metadata.test": ["169.254.169.254"],
    "loopback.test": ["127.0.0.1"],
}

LOOK = """
def look(name, family=socket.AF_INET):
    try:
        print(socket.getaddrinfo(name, 80, family, socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror as e:
        print("EAI", e.errno)
def by_name(name, port):
    try:
        s = socket.create_connection((name, port), 20)
        s.sendall(b"hi")
        print("ok" if s.recv(9) == b"hi" else "wrong")
    except Exception as e:
        print(word(e))
def ask_tcp(name):
    q = b"\\x12\\x34\\x01\\x00\\x00\\x01" + bytes(6)
    for label in name.split("."):
        q += bytes([len(label)]) + label.encode()
    q += b"\\x00\\x00\\x01\\x00\\x01"
    s = socket.create_connection(("9.9.9.9", 53), 20)
    s.sendall(len(q).to_bytes(2, "big") + q)
    print("rcode", s.recv(4096)[5] & 15)
"""


class NameServer:
    """A process that answers A queries from ZONE, and counts its queries in a pipe."""

    def __enter__(self):
        self.asked, told = os.pipe()
        os.set_blocking(self.asked, False)
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("127.0.0.1", DNS_PORT))
        self.pid = os.fork()
        if self.pid == 0:
            while True:
                query, sender = s.recvfrom(4096)
                os.write(told, b"q")
                with contextlib.suppress(Exception):
                    s.sendto(self.answer(query), sender)
        s.close()
        return self

    @staticmethod
    def answer(query):
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = int.from_bytes(query[at + 1:at + 3], "big")
        addresses = ZONE.get(".".join(labels).lower())
        found = addresses or []
        body = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 30, 4) + socket.inet_aton(a) for a in found if kind == 1)
        flags = 0x8180 if addresses else 0x8183
        return query[:2] + struct.pack(">HHHHH", flags, 1, len(body) // 16, 0, 0) + query[12:at + 5] + body

    def queries(self):
        """How many came since the last look."""
        n = 0
        with contextlib.suppress(BlockingIOError):
            n = len(os.read(self.asked, 65536))
        return n

    def __exit__(self, *why):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def names(mode, *domains, **more):
    rules = [{"domain": d, "ports": [{"first": 80}], "protocol": 1} for d in domains]
    return {"mode": mode, "outbound": rules, **more}


def look(b, box, code):
    return python(b, box, LOOK + code)


def a_name_that_no_rule_holds_does_not_exist_and_is_not_asked_for(b, c):
    box = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "web.test")}).sandbox
    server.queries()
    got = look(b, box.id, "for n in ('other.test', 'deep.web.test', 'secret.exfil.test', 'test'): look(n)\n"
                          "ask_tcp('secret.exfil.test')\n")
    check(got == ["EAI", "-2"] * 4 + ["rcode", "3"], got)
    check(server.queries() == 0, "nothing was forwarded")
    b.cli("rm", box.id)


def an_allowed_name_leads_to_its_host_at_its_ports_alone(b, c):
    box = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "web.test", "*.web.test")}).sandbox
    got = look(b, box.id, "look('web.test'); look('WEB.test'); by_name('web.test', 80); by_name('deep.web.test', 80)\n"
                          f"by_name('web.test', 81); try_tcp('{Peers.public}', 80); ask_tcp('web.test')\n")
    check(got[0] == got[1] and got[0].startswith("198.18."), got)
    check(got[2:4] == ["ok", "ok"], got)
    check(got[4] in ("EPERM", "ECONNRESET", "PermissionError"), got)
    check(got[5:] == ["EPERM", "rcode", "0"], got)
    b.cli("rm", box.id)


def names_of_private_places_do_not_resolve_in_any_mode(b, c):
    for network in (names(ALLOWLIST, "*.test"), {"mode": OPEN}):
        box = c.unary(SANDBOX + "Create", {"network": network}).sandbox
        got = look(b, box.id, "for n in ('private.test', 'metadata.test', 'loopback.test'): look(n)\nby_name('web.test', 80)\n")
        check(got == ["EAI", "-2"] * 3 + ["ok"], got)
        b.cli("rm", box.id)


def a_synthetic_address_belongs_to_one_sandbox(b, c):
    one = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "web.test")}).sandbox
    two = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "other.test")}).sandbox
    address = look(b, one.id, "look('web.test')")[0]
    check(look(b, one.id, f"try_tcp('{address}', 80)") == ["ok"], "its own")
    check(look(b, two.id, f"try_tcp('{address}', 80)") == ["EPERM"], "another's")
    b.cli("rm", one.id, two.id)


def a_tunnel_of_names_meets_the_query_rate(b, c):
    policy = names(ALLOWLIST, "*.web.test", queries_per_minute=20)
    box = c.unary(SANDBOX + "Create", {"network": policy}).sandbox
    server.queries()
    look(b, box.id, "for i in range(60): ask_tcp(f'data{i}.web.test')\n")
    check(0 < server.queries() <= 40, "A and AAAA of twenty")
    b.cli("rm", box.id)


def reports_of_the_relay_name_the_process_that_connected(b, c):
    box = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "web.test")}).sandbox.id
    other = b.popen("exec", box, "--", "sh", "-c", "echo ready; read x", stdin=-1, stdout=-1)
    check(other.stdout.readline() == b"ready\n", "another job runs all the time")
    code = PRELUDE + LOOK + "by_name('evil.test', 80); by_name('web.test', 80); sys.stdin.read()"
    asks = b.popen("exec", box, "--", "python3", "-c", code, stdin=-1, stdout=-1)
    wanted = {"denied", "lookup", "flow", "flow_ended"}

    def told():
        lines = b.cli("events", "-o", "json", "--sandbox", box).stdout.splitlines()
        return [json.loads(line) for line in lines]

    until(lambda: wanted <= {e["kind"] for e in told()}, "all of them")
    ours = {e["process_id"] for e in told() if e["kind"] == "exec" and e["comm"] == "python3"}
    for e in told():
        if e["kind"] in wanted:
            check(e["pid"] > 0 and e["comm"] == "python3" and {e["process_id"]} == ours, str(e))
    for p in (asks, other):
        p.communicate(b"\n", timeout=60)
    b.cli("rm", box)


def counted(b, name):
    """The values of a metric by its label."""
    code, found = b.json("metrics", name)
    check(code == 0 and len(found) == 1, str(found))
    return {next(iter(s["labels"].values())): s["value"] for s in found[0]["samples"]}


def what_the_relay_does_is_counted(b, c):
    """DNS answers by result, connections, and payload: exact, because nobody else uses the network."""
    box = c.unary(SANDBOX + "Create", {"network": names(ALLOWLIST, "web.test", "none.test")}).sandbox
    answers, dials, payload = "dns_answers_total", "relay_connections_total", "relay_bytes_total"
    before = {name: counted(b, name) for name in (answers, dials, payload)}

    def moved(name):
        return {label: value - before[name][label] for label, value in counted(b, name).items()}

    got = look(b, box.id, "ask_tcp('web.test'); ask_tcp('none.test'); ask_tcp('none.test'); ask_tcp('other.test')\n")
    check(got == ["rcode", "0", "rcode", "3", "rcode", "3", "rcode", "3"], got)
    until(lambda: moved(answers) == {"found": 1, "none": 2, "refused": 1, "failed": 0}, lambda: str(moved(answers)))
    address = look(b, box.id, "look('web.test')")[0]
    check(look(b, box.id, f"try_tcp('{address}', 80)") == ["ok"], "a connection")
    until(lambda: moved(dials)["opened"] == 1 and moved(payload)["out"] > 0 and moved(payload)["in"] > 0,
          lambda: f"{moved(dials)} {moved(payload)}")
    check(moved(dials)["failed"] == moved(dials)["refused"] == 0, str(moved(dials)))
    b.cli("rm", box.id)


TESTS = [a_name_that_no_rule_holds_does_not_exist_and_is_not_asked_for,
         an_allowed_name_leads_to_its_host_at_its_ports_alone, names_of_private_places_do_not_resolve_in_any_mode,
         a_synthetic_address_belongs_to_one_sandbox, a_tunnel_of_names_meets_the_query_rate,
         reports_of_the_relay_name_the_process_that_connected, what_the_relay_does_is_counted]

if __name__ == "__main__":
    with Peers(), NameServer() as server:
        main(Broker(config=CONFIG), TESTS)
