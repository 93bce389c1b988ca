#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The two witnesses of a job's traffic, kernel and relay: they agree about honest traffic of every kind, and a relay that lies is found
out. The relay is programs/lying_relay.c; queries_per_minute of the policy selects its lie."""

import os

from replaced import BUILD, build_without

FOLDER = build_without("stockade-relay")
os.link(f"{BUILD}/tests/flow-lying_relay", f"{FOLDER}/server/stockade-relay")

import json  # noqa: E402
import socket  # noqa: E402
from types import SimpleNamespace  # noqa: E402

from api import main  # noqa: E402
from broker import Broker  # noqa: E402 (it reads STOCKADE_BUILD)
from network import OPEN, PRELUDE  # noqa: E402
from peers import Peers  # noqa: E402
from relay import relay_pid  # noqa: E402
from runner import check, until  # noqa: E402

PUBLIC = Peers.public
CONFIG = """
templates:
  - name: default
    pool: 2
    network_max: {mode: open, outbound: ["93.184.216.34/32"]}
"""
YES, NO, UNKNOWN = 1, 2, 3
HONEST = 600
LESS_OUT, LESS_IN, LESS_DATAGRAMS, ONE_HIDDEN, ALL_UNREPORTED, INVENTED, SILENT, ALWAYS_WAITING, NEVER_DECIDED = range(601, 610)
RULE = "witness-mismatch"

ONE = f"try_tcp('{PUBLIC}', 80)\n"
DATAGRAM = f"try_udp('{PUBLIC}', 80, True)\n"
OPENED = f"s = socket.create_connection(('{PUBLIC}', 80))\n"
# Sends and gets back n bytes.
BOTH_WAYS = """
import threading
def through(s, n):
    t = threading.Thread(target=s.sendall, args=(bytes(n),))
    t.start()
    while n:
        n -= len(s.recv(65536))
    t.join()
"""


LATE = "the relay did not report its counters at the end of the job"  # within 100 ms (server/sandbox/job.h)


def in_time(again):
    """The witnesses of a job whose relay reported in time, and what came with them: on a busy host the report comes after the
    record. `again` runs the job."""
    def reported():
        got, w = again()
        return got if w.reason != LATE else None

    return until(reported, "the relay reports in time", 60)


def job(c, code, queries=HONEST, limits=None, late=False):
    """The record of a job whose relay tells this lie. `late`: its report may come after the record."""
    def run():
        begun = c.stream("Run", {"command": {"args": ["python3", "-c", PRELUDE + code]}, "limits": limits or {},
                                 "network": {"mode": OPEN, "queries_per_minute": queries}})
        record = c.finish(begun).result.record
        return record, record.witnesses

    return run()[0] if late else in_time(run)


def says(record, agreement, what):
    w = record.witnesses
    check(w.agreement == agreement, f"{what}: {w}")
    found = [f for f in record.findings if f.rule == RULE]
    check(bool(found) == (agreement == NO), f"{what}: {found}")
    check(bool(w.reason) == (agreement != YES), f"{what}: {w.reason}")
    for f in found:
        check(w.reason in f.text, f.text)
    return w


def lies_are_found_out(b, c):
    for what, lie, code, reason in (
            ("less sent", LESS_OUT, ONE, "fewer bytes than the job sent"),
            ("less received", LESS_IN, ONE, "fewer bytes than the job received"),
            ("fewer datagrams", LESS_DATAGRAMS, DATAGRAM, "fewer bytes than the job sent"),
            ("a hidden connection", ONE_HIDDEN, ONE, "fewer"),
            ("a hidden connection that is open", ONE_HIDDEN, OPENED + "s.sendall(b'x' * 100)\ns.recv(100)\nimport os\nos._exit(0)\n", "fewer"),
            ("an empty hidden connection", ONE_HIDDEN, OPENED, "fewer connections"),
            ("no reports", ALL_UNREPORTED, ONE, "did not report every connection"),
            ("invented", INVENTED, ONE, "connections that the job did not make")):
        w = says(job(c, code, lie), NO, what)
        check(reason in w.reason, f"{what}: {w.reason}")


def a_relay_that_is_silent_or_never_done_is_unknown(b, c):
    w = says(job(c, ONE, SILENT, late=True), UNKNOWN, "silent")
    check("did not report" in w.reason, w.reason)
    w = says(job(c, ONE, ALWAYS_WAITING), UNKNOWN, "never done")
    check("more waited" in w.reason, w.reason)
    w = says(job(c, ONE, NEVER_DECIDED), UNKNOWN, "never decided")
    check("still being made" in w.reason, w.reason)


def honest_traffic_agrees(b, c):
    for what, code in (
            ("nothing", "pass\n"),
            ("one connection", ONE),
            ("a datagram", DATAGRAM),
            ("unconnected datagrams", f"for i in range(20): try_udp('{PUBLIC}', 80, False)\n"),
            ("upload and download", BOTH_WAYS + OPENED + "through(s, 8 << 20)\n"),
            ("a half-close", OPENED + "s.sendall(b'x' * 5000)\ns.shutdown(socket.SHUT_WR)\nwhile s.recv(65536): pass\n"),
            ("nothing read", OPENED + "s.sendall(b'x' * 200000)\n"),
            ("a reset", OPENED + "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))\n"
                                 "s.sendall(b'x' * 300000)\ns.close()\n"),
            ("a refused port", f"try_tcp('{PUBLIC}', 9)\n"),
            ("urgent bytes", OPENED + "s.sendall(b'abc')\ns.send(b'!', socket.MSG_OOB)\ns.sendall(b'def')\ntime.sleep(0.05)\n"),
            ("names", "try:\n socket.getaddrinfo('no.such.example', 80)\nexcept OSError: pass\n" + ONE),
            ("200 short connections", f"for i in range(200):\n s = socket.create_connection(('{PUBLIC}', 80))\n"
                                      " s.sendall(b'hi')\n s.recv(9)\n s.close()\n"),
            ("open ones left behind", f"all = [socket.create_connection(('{PUBLIC}', 80)) for i in range(50)]\n"
                                      "for s in all: s.sendall(b'x' * 1000)\n")):
        record = job(c, code)
        w = record.witnesses
        check(w.agreement == YES or (w.agreement == UNKNOWN and what in ("a reset", "open ones left behind")), f"{what}: {w}")
        check(not record.findings, f"{what}: {record.findings}")


def a_killed_download_does_not_disagree(b, c):
    code = BOTH_WAYS + "import os\nos.fork()\n" + OPENED + "while True: through(s, 1 << 20)\n"
    for _ in range(2):
        record = job(c, code, limits={"wall_ms": 700}, late=True)
        check(record.witnesses.agreement in (YES, UNKNOWN) and record.witnesses.kernel.tcp_sent_bytes > 0, str(record.witnesses))
        check(RULE not in [f.rule for f in record.findings], str(record.findings))


def a_flood_of_datagrams_does_not_disagree(b, c):
    code = (f"s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('{PUBLIC}', 80))\n"
            "for i in range(30000): s.send(bytes(1000))\n")
    record = job(c, code, late=True)
    check(record.witnesses.agreement in (YES, UNKNOWN), str(record.witnesses))
    check(RULE not in [f.rule for f in record.findings], str(record.findings))


def more_connections_than_the_relay_takes_do_not_disagree(b, c):
    code = (f"import errno\ndone = 0\nwhile done < 6000:\n s = socket.socket()\n s.setblocking(False)\n"
            f" try: s.connect(('{PUBLIC}', 80))\n except BlockingIOError: pass\n except OSError as e:\n"
            "  if e.errno not in (errno.EADDRNOTAVAIL, errno.EPERM, errno.ENOBUFS): raise\n s.close()\n done += 1\n")
    record = job(c, code, late=True)
    check(record.witnesses.agreement in (YES, UNKNOWN) and record.witnesses.kernel.connections > 1000, str(record.witnesses))
    check(RULE not in [f.rule for f in record.findings], str(record.findings))


def jobs_of_one_sandbox_share_the_witnesses(b, c):
    box = c.unary("/stockade.v1.SandboxService/Create", {"network": {"mode": OPEN}}).sandbox.id
    code = PRELUDE + ONE
    made = 0

    def another():
        nonlocal made
        r = b.cli("exec", box, "--", "python3", "-c", code)
        check(r.returncode == 0 and r.stdout == b"ok\n", r.stderr)
        made += 1
        shown = json.loads(b.cli("inspect", "-o", "json").stdout)["record"]["witnesses"]
        return shown, SimpleNamespace(reason=shown.get("reason"))

    for _ in range(3):
        shown = in_time(another)
        check(shown["agreement"] == "yes" and shown["kernel"]["connections"] == made == shown["relay"]["connections"], str(shown))
    text = b.cli("inspect").stdout.decode()
    check("kernel and relay agree" in text, text)
    b.cli("rm", box)


def without_a_way_out_there_are_none(b, c):
    r = c.run("true").result.record
    check(not r.HasField("witnesses"), str(r.witnesses))


def a_relay_that_ended_leaves_it_unknown(b, c):
    box = c.unary("/stockade.v1.SandboxService/Create", {"network": {"mode": OPEN}}).sandbox.id
    check(b.cli("exec", box, "--", "python3", "-c", PRELUDE + ONE).stdout == b"ok\n", "reaches the peer")
    os.kill(relay_pid(b), 9)
    again = f"for i in range(100):\n try:\n  socket.create_connection(('{PUBLIC}', 80), 1).sendall(b'hi')\n  break\n except OSError: time.sleep(0.1)\n"
    check(b.cli("exec", box, "--", "python3", "-c", PRELUDE + again).returncode == 0, "reaches it again")
    shown = json.loads(b.cli("inspect", "-o", "json").stdout)["record"]["witnesses"]
    check(shown["agreement"] == "unknown" and "started again" in shown["reason"], str(shown))
    b.cli("rm", box)


TESTS = [lies_are_found_out, a_relay_that_is_silent_or_never_done_is_unknown, honest_traffic_agrees,
         a_killed_download_does_not_disagree, a_flood_of_datagrams_does_not_disagree,
         more_connections_than_the_relay_takes_do_not_disagree, jobs_of_one_sandbox_share_the_witnesses,
         without_a_way_out_there_are_none, a_relay_that_ended_leaves_it_unknown]

if __name__ == "__main__":
    with Peers():
        main(Broker(config=CONFIG), TESTS)
