#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tls+tcp: who may call, what a stranger gets, certificates that are renewed, and peers that mean harm."""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys

from broker import Broker, binary, descriptors, rss_kib, sanitized
from ca import Certificates
from runner import check, run_cases, time_passes, until
from slowness import scaled

PORT = 20000 + os.getpid() % 10000
ADDRESS = f"tls+tcp://127.0.0.1:{PORT}"
HELLO, ANSWER = b"\0SP\0\0\x30\0\0", b"\0SP\0\0\x31\0\0"
FILES = Certificates("tls")
FOLDER = FILES.folder
CONFIG = f"""
rpc: {{handshake: 2s}}
tls:
  certificate: {FOLDER}/server.pem
  key: {FOLDER}/server.key
  client_ca: {FOLDER}/ca.pem
  clients:
    - {{name: "URI:spiffe://example/ci", tenant: ci}}
    - {{name: "DNS:build.example", tenant: build, scopes: [sandbox.read, system.read]}}
"""


# ---- certificates


def says(*words):
    r = subprocess.run([binary("stockaded"), *words], capture_output=True, text=True, check=False)
    return r.stdout + r.stderr


def for_the_broker():
    """The key belongs to the broker's account."""
    os.chown(f"{FOLDER}/server.key", int(re.search(r"the broker is uid (\d+)", says("--check-config"))[1]), -1)


def make_all():
    FILES.authority("ca")
    FILES.authority("others")
    FILES.certificate("server", "DNS:localhost,IP:127.0.0.1")
    FILES.certificate("ci", "URI:spiffe://example/ci")
    FILES.certificate("build", "DNS:build.example")
    FILES.certificate("nobody", "DNS:nobody.example")
    FILES.certificate("forged", "URI:spiffe://example/ci", of="others")
    FILES.certificate("old", "URI:spiffe://example/ci", days=0)


# ---- peers


def env(who=None, **more):
    own = {"STOCKADE_CERTIFICATE_FILE": f"{FOLDER}/{who}.pem", "STOCKADE_KEY_FILE": f"{FOLDER}/{who}.key"} if who else {}
    return {"STOCKADE_ADDRESS": ADDRESS, "STOCKADE_CA_FILE": f"{FOLDER}/ca.pem", **own, **more}


def run(variables, *words):
    return subprocess.run([binary("stockade"), *words], env={**os.environ, **variables}, capture_output=True, check=False,
                          timeout=scaled(120))


def command(*words, who="ci", **more):
    return run(env(who, **more), *words)


def connected(who=None, lowest=ssl.TLSVersion.TLSv1_3, highest=ssl.TLSVersion.TLSv1_3):
    context = ssl.create_default_context(cafile=f"{FOLDER}/ca.pem")
    context.minimum_version, context.maximum_version = lowest, highest
    if who:
        context.load_cert_chain(f"{FOLDER}/{who}.pem", f"{FOLDER}/{who}.key")
    return context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), 20), server_hostname="localhost")


def greeted(s):
    s.sendall(HELLO)
    check(s.recv(8) == ANSWER, "the broker greets")
    return s


def counted(b, name):
    rows = b.json("metrics", name)[1]
    return sum(sample["value"] for row in rows for sample in row["samples"])


# ---- who may call


def what_the_configuration_gets_wrong_is_refused(b):
    def refusal(text):
        with open(f"{FOLDER}/wrong.yaml", "w", encoding="utf-8") as f:
            f.write(text)
        return says("--check-config", "--config", f"{FOLDER}/wrong.yaml")

    both = f"tls:\n  certificate: {FOLDER}/server.pem\n  key: {FOLDER}/server.key\n"
    for text, words in (
        (f"listen: [{ADDRESS}]\n", "needs a certificate and its key"),
        (f"tls:\n  certificate: {FOLDER}/server.pem\n", "certificate and key are set together"),
        ("tls: {}\nlisten: [tls+tcp://0.0.0.0:0]\n", "needs a certificate"),
        (both + "  clients: [{name: 'ci', tenant: ci}]\n", "subjectAltName with its kind"),
        (both + "  clients: [{name: 'DNS:ci'}]\n", "needs a name and a tenant"),
        (both + "  clients: [{name: 'DNS:ci', tenant: ci, scopes: [everything]}]\n", "no such scope"),
        (both + "  clients: [{name: 'DNS:a', tenant: a}, {name: 'DNS:a', tenant: b}]\n", "in the list twice"),
        (both + "  version: 1.1\n", "must be 1.3 or 1.2"),
        ("listen: [wss://127.0.0.1:0]\n", "address"),
    ):
        said = refusal(text)
        check(words in said, f"{words}: {said}")


def a_stranger_gets_the_greeting_and_nothing_else(b):
    for who in (None, "nobody"):
        with greeted(connected(who)):
            pass
        r = command("run", "--", "true", who=who)
        check(r.returncode == 77 and b"need a credential" in r.stderr, r.stderr)
        check(b"--token-file" in r.stderr, r.stderr)


def a_key_is_enough_without_a_certificate(b):
    key = b.cli("key", "create", "--tenant", "by-key").stdout.decode().strip()
    check(key.startswith("stk_"), key)
    r = command("run", "--", "echo", "hello", who=None, STOCKADE_TOKEN=key)
    check((r.returncode, r.stdout) == (0, b"hello\n"), r.stderr)
    made = command("create", "--name", "by-key", "--ttl", "60s", who=None, STOCKADE_TOKEN=key)
    check(made.returncode == 0 and json.loads(command("ls", "-o", "json").stdout) == [], "it is another tenant's")
    check(command("rm", "by-key", who=None, STOCKADE_TOKEN=key).returncode == 0, "rm")
    r = command("run", "--", "true", STOCKADE_TOKEN=key[:-1] + ("0" if key[-1] != "0" else "1"))
    check(r.returncode == 77 and r.stdout == b"", "a wrong key is refused although the certificate would do")


def a_certificate_that_is_not_genuine_ends_the_handshake(b):
    for who in ("forged", "old"):
        r = command("run", "--", "true", who=who)
        check(r.returncode == 77 and b"the broker ends the TLS handshake" in r.stderr, r.stderr)


def an_older_tls_and_other_protocols_are_refused(b):
    failures = counted(b, "stockade_tls_handshake_failures_total")
    with contextlib.suppress(ssl.SSLError), connected("ci", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2):
        check(False, "TLS 1.2 is refused")
    for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", HELLO + b"\0" * 100, os.urandom(500), b"\x16\x03\x01\xff\xff" + b"x" * 70000):
        with socket.create_connection(("127.0.0.1", PORT), 20) as s, contextlib.suppress(OSError):
            s.sendall(bytes_)
            while s.recv(4096):
                pass
    until(lambda: counted(b, "stockade_tls_handshake_failures_total") >= failures + 5, "each of them is counted")
    check("a handshake failed" in b.log(), "and logged")


def a_failed_handshake_is_an_event_and_one_address_cannot_hide_others(b):
    def events():
        return b.json("events", "--from", "1", "--kind", "handshake_refused")[1]

    def fail(source):
        with socket.create_connection(("127.0.0.1", PORT), 20, source_address=(source, 0)) as s, contextlib.suppress(OSError):
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while s.recv(4096):
                pass

    failures = counted(b, "stockade_tls_handshake_failures_total")
    for _ in range(25):
        fail("127.0.0.3")
    for _ in range(2):
        fail("127.0.0.4")
    until(lambda: counted(b, "stockade_tls_handshake_failures_total") >= failures + 27, "each is counted")
    until(lambda: any(e["credential"]["address"] == "127.0.0.4" for e in events()), events)
    found = [e for e in events() if e["credential"]["address"] in ("127.0.0.3", "127.0.0.4")]
    busy = [e["credential"] for e in found if e["credential"]["address"] == "127.0.0.3"]
    check(10 <= len(busy) <= 12, f"{len(busy)} events of one address")  # 10 at once, one more each 6 s
    check(busy[9].get("limited") and not busy[0].get("limited"), busy)
    for e in found:
        c = e["credential"]
        check((e["tenant"], c["transport"], c["reason"]) == ("uid:0", "tls", "TLS_HANDSHAKE") and c["text"] and "GET" not in c["text"], e)
    left_out = sum(e["credential"].get("left_out", 0) for e in found if e["credential"]["address"] == "127.0.0.4")
    check(left_out >= 25 - len(busy), f"{left_out} were left out")
    r = command("events", "--from", "1", "--kind", "handshake_refused")
    check(b"127.0.0.3" not in r.stdout, "other tenants do not see who calls")


def a_listed_certificate_is_its_tenant(b):
    r = command("run", "--", "sh", "-c", "head -c 9000000 /dev/zero; id -u >&2")
    check(r.returncode == 0 and len(r.stdout) == 9000000, f"{r.returncode} {len(r.stdout)} {r.stderr}")
    made = command("create", "--name", "of-ci", "--ttl", "60s")
    check(made.returncode == 0, made.stderr)
    listed = json.loads(command("ls", "-o", "json").stdout)
    check([s["name"] for s in listed] == ["of-ci"], f"{listed}")
    check(json.loads(command("ls", "-o", "json", who="build").stdout) == [], "another tenant sees nothing of it")
    r = command("rm", "of-ci", who="build")
    check(r.returncode == 77 and b"sandbox.write" in r.stderr, r.stderr)
    check(command("rm", "of-ci").returncode == 0, "its owner may")


def an_address_without_tls_says_so(b):
    r = command("info", STOCKADE_ADDRESS=ADDRESS.replace("tls+", ""))
    check(r.returncode == 75 and b"it may speak TLS there (tls+tcp://)" in r.stderr, r.stderr)


def the_broker_must_prove_who_it_is(b):
    r = command("info", STOCKADE_CA_FILE=f"{FOLDER}/others.pem")
    check(r.returncode == 77 and b"the broker's certificate is refused" in r.stderr, r.stderr)
    for name, key in (("STOCKADE_CA_FILE", "ca_file"), ("STOCKADE_KEY_FILE", "key_file"), ("STOCKADE_CERTIFICATE_FILE", "certificate_file")):
        r = command("info", **{name: f"{FOLDER}/absent.pem"})
        check(r.returncode != 0 and f"{key}: {FOLDER}/absent.pem: No such file or directory".encode() in r.stderr, r.stderr)
    r = command("info", STOCKADE_SERVER_NAME="elsewhere.example")
    check(r.returncode == 77 and b"hostname mismatch" in r.stderr, r.stderr)
    public = FILES.openssl("x509", "-in", "server.pem", "-pubkey", "-noout")
    der = FILES.openssl("pkey", "-pubin", "-outform", "der", feed=public)
    pin = FILES.openssl("base64", "-A", feed=FILES.openssl("dgst", "-sha256", "-binary", feed=der)).decode()
    no_ca = {k: v for k, v in env("ci", STOCKADE_PIN=f"sha256//{pin}").items() if k != "STOCKADE_CA_FILE"}
    check(run(no_ca, "run", "--", "true").returncode == 0, "a pin alone is proof enough")
    r = run({**no_ca, "STOCKADE_PIN": "sha256//" + "A" * 43 + "="}, "run", "--", "true")
    check(r.returncode == 77 and b"another key than the pin" in r.stderr, r.stderr)
    r = run({**no_ca, "STOCKADE_PIN": pin}, "run", "--", "true")
    check(r.returncode == 125 and b"sha256//" in r.stderr, r.stderr)


def certificates_are_renewed_without_a_restart(b):
    def serial():
        with connected("ci") as s:
            return s.getpeercert()["serialNumber"]

    before = serial()
    with greeted(connected("ci")) as open_before:
        FILES.certificate("server", "DNS:localhost,IP:127.0.0.1")
        for_the_broker()
        b.reload()
        check(serial() != before, "new connections see the new certificate")
        open_before.sendall(b"\0" * 7)  # a part of a header: the connection is still there
        open_before.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            check(open_before.recv(1) != b"", "an open connection keeps its own")
    now = serial()
    shutil.copy(f"{FOLDER}/server.key", f"{FOLDER}/good.key")
    with open(f"{FOLDER}/server.key", "w", encoding="utf-8") as f:
        f.write("no key\n")
    b.reload(whole=False)
    check("the old configuration stays" in b.log() and "tls.key" in b.log(), b.log()[-500:])
    check(serial() == now and command("run", "--", "true").returncode == 0, "a key that is none changes nothing")
    shutil.copy(f"{FOLDER}/good.key", f"{FOLDER}/server.key")
    os.chmod(f"{FOLDER}/server.key", 0o644)
    b.reload(whole=False)
    check("every account may open it" in b.log(), "nor does one that everybody may read")
    os.chmod(f"{FOLDER}/server.key", 0o600)
    b.reload()


# ---- peers that mean harm


def settled(b, before):
    pid = b.process.pid
    until(lambda: descriptors(pid) <= before + 4, lambda: f"{descriptors(pid)} descriptors, {before} before")


def half_handshakes_end_in_time_and_hold_back_nobody(b):
    before = descriptors(b.process.pid)
    failures = counted(b, "stockade_tls_handshake_failures_total")
    start = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32)  # of a ClientHello
    idle = []
    try:
        for _ in range(400):
            s = socket.create_connection(("127.0.0.1", PORT), 20)
            with contextlib.suppress(OSError):
                s.send(start)
            idle.append(s)
        until(lambda: counted(b, "stockade_tls_handshake_failures_total") >= failures + 368, "one address has 32 at a time")
        check(b.cli("run", "--", "true").returncode == 0, "others are served meanwhile")
        until(lambda: command("run", "--", "true").returncode == 0, "this address too, when they are over")
    finally:
        for s in idle:
            s.close()
    settled(b, before)


def thousands_of_connections_leave_nothing(b):
    pid = b.process.pid
    command("info")
    before, kib = descriptors(pid), rss_kib(pid)
    context = ssl.create_default_context(cafile=f"{FOLDER}/ca.pem")
    context.load_cert_chain(f"{FOLDER}/ci.pem", f"{FOLDER}/ci.key")
    for i in range(2000):
        s = socket.create_connection(("127.0.0.1", PORT), 20)
        if i % 4 == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        with contextlib.suppress(OSError):
            if i % 4 == 1:
                s.sendall(os.urandom(64))
            elif i % 2 == 0:
                s = context.wrap_socket(s, server_hostname="localhost")
                s.sendall(HELLO[: i % 9])
        s.close()
    settled(b, before)
    grown = rss_kib(pid) - kib
    check(grown < (320 if sanitized() else 40) * 1024, f"{grown} KiB more after 2,000 connections")


def a_peer_that_renews_keys_without_end_is_closed(b):
    """Neither Python nor FILES.openssl(1) sends many: s_client's command K does one each."""
    before = descriptors(b.process.pid)
    r = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{PORT}", "-CAfile", "ca.pem", "-quiet", "-no_ign_eof"],
                       cwd=FOLDER, input=b"K\n" * 200, capture_output=True, timeout=60, check=False)
    check(b.cli("run", "--", "true").returncode == 0, r.stderr.decode())
    settled(b, before)


def a_reader_that_stops_is_closed_and_its_memory_given_back(b):
    """The job's output waits in the broker, bounded, until the connection is closed."""
    pid, kib = b.process.pid, rss_kib(b.process.pid)
    slow = subprocess.Popen([binary("stockade"), "run", "--output", "400M", "--", "head", "-c", "300000000", "/dev/zero"],
                            env={**os.environ, **env("ci")}, stdout=subprocess.PIPE)
    try:
        slow.stdout.read(1)
        time_passes("the output piles up", 1)
        check(rss_kib(pid) - kib < 100 * 1024, f"{rss_kib(pid) - kib} KiB for a reader that stops")
        check(command("run", "--", "true").returncode == 0, "others are served")
    finally:
        slow.kill()
        slow.wait()


CASES = [what_the_configuration_gets_wrong_is_refused, a_stranger_gets_the_greeting_and_nothing_else,
         a_key_is_enough_without_a_certificate,
         a_certificate_that_is_not_genuine_ends_the_handshake, an_older_tls_and_other_protocols_are_refused,
         a_failed_handshake_is_an_event_and_one_address_cannot_hide_others,
         a_listed_certificate_is_its_tenant, an_address_without_tls_says_so, the_broker_must_prove_who_it_is, certificates_are_renewed_without_a_restart,
         half_handshakes_end_in_time_and_hold_back_nobody, thousands_of_connections_leave_nothing,
         a_peer_that_renews_keys_without_end_is_closed, a_reader_that_stops_is_closed_and_its_memory_given_back]


def main():
    make_all()
    for_the_broker()
    with Broker("--listen", ADDRESS, config=CONFIG) as b:
        status = run_cases(CASES, lambda case: case(b))
    sys.exit(status)


if __name__ == "__main__":
    main()
