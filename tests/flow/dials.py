#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Allowed destinations that cannot be reached: the job gets a reset, and its record has the reason."""

import json

from api import SANDBOX, main
from broker import Broker
from network import ALLOWLIST, CONFIG, PRELUDE, policy
from peers import Peers
from runner import check

PUBLIC, NOBODY = Peers.public, "93.184.216.99"


def run(b, box, code):
    r = b.cli("exec", "-o", "json", box, "--", "python3", "-c", PRELUDE + code)
    check(r.returncode == 0, r.stderr.decode())
    out = json.loads(r.stdout)
    return out["stdout"].split(), out["record"]


def a_dial_that_fails_is_a_reset_and_stands_in_the_record(b, c):
    network = {"mode": ALLOWLIST, "outbound": [{"cidr": "93.184.216.0/24"}]}
    box = c.unary(SANDBOX + "Create", {"network": network}).sandbox.id
    got, record = run(b, box, f"""
for host in ("{PUBLIC}", "{NOBODY}"):
    try:
        s = socket.create_connection((host, 9), 30)
        s.recv(1)
    except OSError as e:
        print(word(e))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("{PUBLIC}", 9))
s.send(b"x")
time.sleep(0.3)
""")
    check(got == ["ECONNRESET"] * 2, got)
    why = {(d["destination"], d["protocol"]): (d["operation"], d["reason"]) for d in record["denials"]}
    check(why.get((f"{PUBLIC}:9", "tcp")) == ("dial", "connection-refused"), str(why))
    check(why.get((f"{NOBODY}:9", "tcp")) == ("dial", "host-unreachable"), str(why))
    check(why.get((f"{PUBLIC}:9", "udp")) == ("dial", "connection-refused"), str(why))
    ends = [json.loads(line) for line in b.cli("events", "-o", "json", "--sandbox", box).stdout.splitlines()]
    check(any(e["kind"] == "flow_ended" and "host-unreachable" in json.dumps(e) for e in ends), "the event says so too")
    b.cli("rm", box)


def a_query_is_no_destination(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 1))}).sandbox.id
    got, record = run(b, box, f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3):
    s.sendto(bytes((0, 1, 1, 0, 0, 1)) + bytes(6) + bytes((4,)) + b"nono" + bytes((4,)) + b"test" + bytes((0, 0, 1, 0, 1)), ("9.9.9.9", 53))
    s.recv(99)
try_tcp("{PUBLIC}", 80)
""")
    check(got == ["ok"], got)
    check(record["network"]["connects_allowed"] == 1, f"{record['network']}")
    b.cli("rm", box)


TESTS = [a_dial_that_fails_is_a_reset_and_stands_in_the_record, a_query_is_no_destination]

if __name__ == "__main__":
    with Peers():
        main(Broker(config=CONFIG), TESTS)
