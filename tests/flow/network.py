#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Network policies from outside: what a sandbox reaches, what is refused, and the effect of a change on open
connections."""

import contextlib
import os
import signal
import socket

import sp
from api import PRECONDITION, SANDBOX, connect, main
from broker import Broker
from peers import Peers
from runner import check, until

INVALID, DENIED, EXHAUSTED, UNAVAILABLE = 3, 7, 8, 14
CONFIG = """
pool: 2
templates:
  - name: default
    network_max: {mode: open, outbound: [10.77.0.0/24], inbound: [8000-8010]}
  - name: narrow
    network: {mode: allowlist, outbound: ["93.184.216.0/24:80/tcp"], egress_bytes_max: 1M}
"""
NONE, ALLOWLIST, OPEN = 1, 2, 3
TELEMETRY = "/stockade.v1.TelemetryService/"
PUBLIC, PRIVATE, PUBLIC6 = Peers.public, Peers.private, Peers.public6

# What the jobs run. try_tcp and try_udp print what became of it, in one word.
PRELUDE = """
import errno, socket, sys, time
def word(e):
    return errno.errorcode.get(e.errno, str(e)) if isinstance(e, OSError) and e.errno else type(e).__name__
def address(host, port):
    return socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port)
def try_tcp(host, port, family=None):
    f, a = address(host, port)
    s = socket.socket(family or f, socket.SOCK_STREAM)
    s.settimeout(20)
    try:
        s.connect(a)
        s.sendall(b"hi")
        print("ok" if s.recv(9) == b"hi" and s.getpeername()[:2] == a else s.getpeername())
    except Exception as e:
        print(word(e))
def try_udp(host, port, connected, family=None):
    f, a = address(host, port)
    s = socket.socket(family or f, socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        if connected:
            s.connect(a)
            s.send(b"hi")
        else:
            s.sendto(b"hi", a)
        data, sender = s.recvfrom(9)
        print("ok" if data == b"hi" and sender[:2] == a else sender)
    except Exception as e:
        print(word(e))
"""


def python(b, box, code):
    r = b.cli("exec", box, "--", "python3", "-c", PRELUDE + code)
    check(r.returncode == 0, r.stderr.decode())
    return r.stdout.decode().split()


def refused(c, method, fields, code, field):
    failed = c.fails(SANDBOX + method, fields)
    check(failed.code == code, f"{fields}: {failed.code} {failed.message}")
    check(field in failed.message, f"{field} is not in {failed.message}")


def policy(mode, *outbound, **more):
    """Rules as (cidr, first port, protocol)."""
    rules = [{"cidr": cidr, "ports": [{"first": port}], "protocol": protocol} for cidr, port, protocol in outbound]
    return {"mode": mode, "outbound": rules, **more}


EVERYWHERE = f"""
for host in ("{PUBLIC}", "{PRIVATE}", "{PUBLIC6}", "::ffff:{PUBLIC}"):
    try_tcp(host, 80)
    try_udp(host, 80, True)
    try_udp(host, 80, False)
"""


def what_would_widen_is_refused_with_its_field(b, c):
    refused(c, "Create", {"network": policy(ALLOWLIST, ("10.78.0.0/24", 80, 0))}, PRECONDITION, "network.outbound[0]")
    refused(c, "Create", {"template": "narrow", "network": {"mode": OPEN}}, PRECONDITION, "network.mode")
    refused(c, "Create", {"network": policy(ALLOWLIST, ("10.77.0.1/24", 80, 0))}, INVALID, "network.outbound[0].cidr")
    refused(c, "Create", {"network": {"mode": NONE, "inbound": [{"first": 7999}]}}, PRECONDITION, "network.inbound[0]")
    refused(c, "Create", {"network": {"mode": 7}}, INVALID, "network.mode")


def without_a_policy_nothing_gets_out(b, c):
    box = b.cli("create").stdout.decode().strip()
    check(python(b, box, EVERYWHERE) == ["EPERM"] * 12, "mode none")
    b.cli("rm", box)


def an_allowlist_lets_out_what_it_names(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 1), (PUBLIC6, 80, 2))}).sandbox
    got = python(b, box.id, EVERYWHERE)
    want = ["ok", "EPERM", "EPERM"] + ["EPERM"] * 3 + ["EPERM", "ok", "ok"] + ["ok", "EPERM", "EPERM"]
    check(got == want, got)
    got = python(b, box.id, f"try_tcp('{PUBLIC}', 81)\ntry_udp('{PUBLIC6}', 81, False)\n")
    check(got == ["EPERM", "EPERM"], got)
    b.cli("rm", box.id)


def open_is_everything_public_and_what_a_rule_names(b, c):
    box = c.unary(SANDBOX + "Create", {"network": {"mode": OPEN}}).sandbox
    check(box.network.mode == OPEN and len(box.network.outbound) == 1, "the template's rule comes with its mode")
    got = python(b, box.id, EVERYWHERE)
    check(got == ["ok"] * 12, got)
    c.unary(SANDBOX + "Update", {"id": box.id, "network": policy(OPEN, ("10.77.0.9", 80, 0))})
    got = python(b, box.id, EVERYWHERE)
    check(got == ["ok"] * 3 + ["EPERM"] * 3 + ["ok"] * 6, got)
    b.cli("rm", box.id)


def loopback_is_the_sandboxs_own_in_every_mode(b, c):
    server = """
import threading
s = socket.create_server(("127.0.0.1", 0))
def serve():
    c, _ = s.accept(); c.sendall(c.recv(9)); c.close()
threading.Thread(target=serve, daemon=True).start()
try_tcp("127.0.0.1", s.getsockname()[1])
for host in ("127.128.0.0", "127.128.0.1", "127.0.0.1"):
    try_tcp(host, 15)
    try_udp(host, 15, False)
try: socket.create_server(("127.0.0.1", 15))
except OSError as e: print(word(e))
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("93.184.216.34", 9999))
except OSError as e: print(word(e))
"""
    for mode in (NONE, ALLOWLIST, OPEN):
        box = c.unary(SANDBOX + "Create", {"network": {"mode": mode}}).sandbox
        got = python(b, box.id, server)
        check(got == ["ok"] + ["EPERM"] * 8, got)
        b.cli("rm", box.id)


def a_change_holds_at_once_and_cuts_what_it_forbids(b, c):
    rules = [(PUBLIC, 80, 1), (PUBLIC6, 80, 1)]
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, *rules)}).sandbox
    held = f"""
def held(host):
    s = socket.create_connection((host, 80), timeout=30)
    s.sendall(b"a")
    s.recv(1)
    return s
a, b = held("{PUBLIC}"), held("{PUBLIC6}")
print("held", flush=True)
sys.stdin.readline()
for s in (a, b):
    try:
        s.sendall(b"b")
        print("ok" if s.recv(1) == b"b" else "EOF")
    except Exception as e:
        print(word(e))
try_tcp("{PUBLIC}", 80)
"""
    p = b.popen("exec", box.id, "--", "python3", "-c", PRELUDE + held, stdin=-1, stdout=-1)
    check(p.stdout.readline() == b"held\n", "both are connected")
    c.unary(SANDBOX + "Update", {"id": box.id, "network": policy(ALLOWLIST, rules[1])})
    got = p.communicate(b"\n", timeout=60)[0].decode().split()
    check(got[0] in ("ECONNRESET", "EPIPE") and got[1:] == ["ok", "EPERM"], got)
    b.cli("rm", box.id)


def a_connection_in_full_flow_is_cut_as_well(b, c):
    """Packets that the kernel dropped before the reset leave a gap, which must not stop the reset."""
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 1))}).sandbox
    pump = f"""
import threading
flowing = threading.Barrier(5)
ends = []
def pump():
    s = socket.create_connection(("{PUBLIC}", 80), timeout=60)
    try:
        for n in range(1000000000):
            s.sendall(b"x" * 20000)
            s.recv(65536)
            if n == 20:
                flowing.wait()
    except Exception as e:
        ends.append(word(e))
threads = [threading.Thread(target=pump) for _ in range(4)]
for t in threads: t.start()
flowing.wait()
print("flowing", flush=True)
for t in threads: t.join()
print(*ends)
"""
    p = b.popen("exec", box.id, "--", "python3", "-c", PRELUDE + pump, stdout=-1)
    check(p.stdout.readline() == b"flowing\n", "all flow")
    c.unary(SANDBOX + "Update", {"id": box.id, "network": policy(ALLOWLIST, (PUBLIC6, 80, 1))})
    got = p.communicate(timeout=100)[0].decode().split()
    check(len(got) == 4 and set(got) <= {"ECONNRESET", "EPIPE"}, got)
    b.cli("rm", box.id)


def a_template_that_says_what_it_gives_gives_no_more(b, c):
    box = c.unary(SANDBOX + "Create", {"template": "narrow"}).sandbox
    check(box.network.mode == ALLOWLIST and box.network.egress_bytes_max == 1 << 20, str(box.network))
    check(box.network.outbound[0].cidr == "93.184.216.0/24", str(box.network))
    got = python(b, box.id, f"try_tcp('{PUBLIC}', 80)\ntry_tcp('{PUBLIC6}', 80)\ntry_tcp('{PUBLIC}', 81)\n")
    check(got == ["ok", "EPERM", "EPERM"], got)
    b.cli("rm", box.id)


def beyond_the_egress_quota_connections_are_cut_and_refused(b, c):
    box = c.unary(SANDBOX + "Create", {"template": "narrow", "network": {"egress_bytes_max": 100000}}).sandbox
    code = f"""
s = socket.create_connection(("{PUBLIC}", 80), timeout=30)
sent = 0
try:
    while sent < 1000000:
        s.sendall(b"x" * 10000)
        s.recv(65536)
        sent += 10000
except OSError as e:
    print(word(e))
print(sent <= 200000)
try_tcp("{PUBLIC}", 80)
"""
    got = python(b, box.id, code)
    check(got[0] in ("ECONNRESET", "EPIPE") and got[1] == "True", got)
    check(got[2] in ("EPERM", "ECONNRESET"), got)
    b.cli("rm", box.id)


def relay_pid(b):
    with open(f"/proc/{b.process.pid}/task/{b.process.pid}/children", encoding="ascii") as f:
        spawner = f.read().split()[0]
    with open(f"/proc/{spawner}/task/{spawner}/children", encoding="ascii") as f:
        children = f.read().split()
    relay = [p for p in children if open(f"/proc/{p}/comm", encoding="ascii").read() == "stockade-relay\n"]
    check(len(relay) == 1, f"{children}")
    return int(relay[0])


def signal_relay(b, number):
    os.kill(relay_pid(b), number)


def kill_relay(b):
    signal_relay(b, signal.SIGKILL)


def a_change_for_which_the_relay_has_no_room_changes_nothing(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 0))}).sandbox
    many = [(f"93.184.217.{i}", 80, 0) for i in range(255)]
    stopped = relay_pid(b)
    signal_relay(b, signal.SIGSTOP)
    try:
        failed = None
        for i in range(2000):
            last = (PUBLIC6, 80, 0) if i % 2 else (PUBLIC, 80, 0)
            try:
                c.unary(SANDBOX + "Update", {"id": box.id, "network": policy(ALLOWLIST, *many, last)})
            except sp.Failed as why:
                failed = why
                break
        full = failed is not None and failed.code == EXHAUSTED and "the relay does not read" in failed.message
        killed = failed is not None and failed.code == UNAVAILABLE  # on a slow machine that comes first
        if failed is None and relay_pid(b) != stopped:  # on a slower one it was replaced between two changes
            return
        check(full or killed, str(failed))
        refused_last, kept = (PUBLIC6, PUBLIC) if i % 2 else (PUBLIC, PUBLIC6)
        rules = c.unary(SANDBOX + "Get", {"id": box.id}).sandbox.network.outbound
        check(rules[255].cidr.split("/")[0] == kept, f"{rules[255].cidr}, not {kept}")
        code = "s = socket.socket(address(host, 80)[0], socket.SOCK_DGRAM)\ntry: print(s.sendto(b'x', (host, 80)))\n" \
               "except OSError as e: print(word(e))\n"
        got = [python(b, box.id, f"host = '{host}'\n{code}")[0] for host in (kept, refused_last)]
        check(got == ["1", "EPERM"], f"what the kernel lets out is the same: {got}")
    finally:
        with contextlib.suppress(AssertionError, ProcessLookupError):  # it may be killed by now
            signal_relay(b, signal.SIGCONT)

    def updated():
        with contextlib.suppress(sp.Failed):
            c.unary(SANDBOX + "Update", {"id": box.id, "network": policy(ALLOWLIST, (PUBLIC6, 80, 1))})
            return True
    until(updated, "a relay that takes it")
    until(lambda: python(b, box.id, f"try_tcp('{PUBLIC6}', 80)") == ["ok"], "the relay has read all of it")
    check(python(b, box.id, f"try_tcp('{PUBLIC}', 80)") == ["EPERM"], "the last one holds")
    b.cli("rm", box.id)


def a_relay_that_ends_is_started_again(b, c):
    box = c.unary(SANDBOX + "Create", {"network": policy(ALLOWLIST, (PUBLIC, 80, 1))}).sandbox
    check(python(b, box.id, f"try_tcp('{PUBLIC}', 80)") == ["ok"], "before")
    kill_relay(b)
    until(lambda: python(b, box.id, f"try_tcp('{PUBLIC}', 80)") == ["ok"], "another relay", 60)
    b.cli("rm", box.id)


SEND = f"""
def sent(n):
    done = 0
    try:
        s = socket.create_connection(("{PUBLIC}", 80), timeout=30)
        while done < n:
            s.sendall(b"x" * 1000)
            left = 1000
            while left:
                piece = s.recv(left)
                if not piece:
                    return done
                left -= len(piece)
            done += 1000
    except OSError:
        pass
    return done
def ask():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(30)
    s.sendto(b"\\0\\1\\1\\0\\0\\1" + bytes(6) + b"\\4nono\\4test\\0\\0\\1\\0\\1", ("9.9.9.9", 53))
    s.recv(99)
"""


def what_was_used_of_a_quota_is_used_under_the_next_relay_too(b, c):
    of_rule = {"cidr": PUBLIC, "ports": [{"first": 80}], "bytes_max": 200000}
    boxes = [c.unary(SANDBOX + "Create", {"network": network}).sandbox.id for network in (
        policy(ALLOWLIST, (PUBLIC, 80, 1), egress_bytes_max=100000), {"mode": ALLOWLIST, "outbound": [of_rule]})]

    def queries(box):
        return c.unary(TELEMETRY + "ListUsage", {"sandbox_id": box}).usage[0].network.queries

    for box in boxes:
        check(python(b, box, SEND + "print(sent(60000))\nask()") == ["60000"], "within the quota")
        until(lambda box=box: queries(box) == 1, "the sums that hold the query hold the bytes")
    kill_relay(b)
    for box in boxes:
        until(lambda box=box: python(b, box, SEND + "print(sent(1000))") == ["1000"], "another relay", 60)
        got = int(python(b, box, SEND + "ask()\nprint(sent(60000))")[0])
        check(30000 <= got <= 39000, f"{got} of the 39,000 bytes that were left")
        check(python(b, box, f"try_tcp('{PUBLIC}', 80)")[0] in ("EPERM", "ECONNRESET"), "nothing is left")
        until(lambda box=box: queries(box) == 2, "queries go on as well")
        b.cli("rm", box)


class Forward:
    """A connection into a sandbox: the stream, and calls for the other way."""

    def __init__(self, c, box, port):
        self.c, self.data, self.status = c, b"", None
        self.call = c.begin(SANDBOX + "Forward", {"id": box, "port": port}, credit=1000)
        self.id = ""
        self.until(lambda: self.id or self.status)

    def until(self, condition):
        while not condition():
            frame = self.c.recv(self.call)
            if frame.kind == sp.END:
                self.status = frame.status
                return
            m = sp.message("stockade.v1.SandboxServiceForwardResponse").FromString(frame.payload)
            self.id = self.id or m.connection_id
            self.data += m.data

    def write(self, data):
        return self.c.unary(SANDBOX + "ForwardInput", {"connection_id": self.id, "data": data})


SERVER = """
import socket
s = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536):
        c.sendall(data.upper())
    c.sendall(b"bye")
    c.close()
"""


def a_port_is_reached_through_the_broker_where_inbound_has_it(b, c):
    box = c.unary(SANDBOX + "Create", {"network": {"mode": NONE, "inbound": [{"first": 8000}, {"first": 8010}]}}).sandbox
    refused_by = Forward(c, box.id, 8001).status
    check(refused_by.code == DENIED and "8001" in refused_by.message, str(refused_by))
    silent = Forward(c, box.id, 8010).status
    check(silent.code == PRECONDITION and "nothing listens" in silent.message, str(silent))
    p = b.popen("exec", box.id, "--", "python3", "-c", SERVER, stdout=-1)
    check(p.stdout.readline() == b"listening\n", "the server")
    f = Forward(c, box.id, 8000)
    other = connect(b)
    check(other.fails(SANDBOX + "ForwardInput", {"connection_id": "0" * 32}).code == 5, "a connection that never was")
    for piece in (b"hello ", b"x" * 65536):
        f.write(piece)
    f.until(lambda: len(f.data) == 65542)
    check(f.data == b"HELLO " + b"X" * 65536, "all of it comes back")
    c.unary(SANDBOX + "ForwardClose", {"connection_id": f.id})
    f.until(lambda: f.status)
    check(f.data.endswith(b"bye") and f.status.code == 0, str(f.status))
    check(c.fails(SANDBOX + "ForwardInput", {"connection_id": f.id}).code == 5, "it is over")
    f = Forward(c, box.id, 8000)
    c.unary(SANDBOX + "Update", {"id": box.id, "network": {"mode": NONE, "inbound": [{"first": 8010}]}})
    f.until(lambda: f.status)
    check(f.status.code == DENIED, "a policy that lacks the port cuts it")
    b.cli("rm", box.id)
    p.kill()
    p.wait()
    p.stdout.close()


def a_port_of_this_machine_leads_into_a_sandbox(b, c):
    none = b.cli("forward", "nobody", "0:8000")
    check(none.returncode != 0 and b"there is no sandbox nobody" in none.stderr, none.stderr)
    box = b.cli("create").stdout.decode().strip()
    shut = b.cli("forward", box, "0:8000")
    check(shut.returncode != 0 and b"does not allow connections to port 8000" in shut.stderr and b"--allow-inbound" in shut.stderr, shut.stderr)
    b.cli("rm", box)
    box = b.cli("create", "--allow-inbound", "8000").stdout.decode().strip()
    server = b.popen("exec", box, "--", "python3", "-c", SERVER, stdout=-1)
    check(server.stdout.readline() == b"listening\n", "the server")
    with b.popen("forward", box, "0:8000", stdout=-1) as forward:
        port = int(forward.stdout.readline().split(b":")[1])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
                s.sendall(b"q" * 300000)
                s.shutdown(socket.SHUT_WR)
                got = b""
                while piece := s.recv(65536):
                    got += piece
                check(got == b"Q" * 300000 + b"bye", f"{len(got)} bytes")
        forward.send_signal(signal.SIGINT)
    b.cli("rm", box)
    server.wait()
    server.stdout.close()


TESTS = [what_would_widen_is_refused_with_its_field, without_a_policy_nothing_gets_out,
         an_allowlist_lets_out_what_it_names, open_is_everything_public_and_what_a_rule_names,
         loopback_is_the_sandboxs_own_in_every_mode, a_change_holds_at_once_and_cuts_what_it_forbids,
         a_connection_in_full_flow_is_cut_as_well,
         a_template_that_says_what_it_gives_gives_no_more, beyond_the_egress_quota_connections_are_cut_and_refused,
         a_port_is_reached_through_the_broker_where_inbound_has_it,
         a_port_of_this_machine_leads_into_a_sandbox, a_relay_that_ends_is_started_again,
         a_change_for_which_the_relay_has_no_room_changes_nothing,
         what_was_used_of_a_quota_is_used_under_the_next_relay_too]

if __name__ == "__main__":
    with Peers():
        main(Broker(config=CONFIG), TESTS)
