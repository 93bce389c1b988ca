#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Key sets of issuers that are fetched from a URL: a server that is slow, huge, wrong, down or somewhere else, and keys that change.
What tokens must be is tested in jwt.py."""

import contextlib
import errno
import http.server
import json
import os
import platform
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from broker import Broker, binary
from ca import Certificates
from inject import Taken
from jose import Signer, key_set
from runner import Skipped, check, run_cases, time_passes, until
from slowness import scaled
from sp import REQ_HELLO

PORT = 20000 + os.getpid() % 10000
ADDRESS = f"tcp://127.0.0.1:{PORT}"
FILES = Certificates("jwks")
# x86-64
SYS = {"openat": 257, "kill": 62, "socket": 41, "socketpair": 53, "setuid": 105, "unshare": 272, "mount": 165, "setns": 308, "memfd_create": 319, "mmap": 9,
       "perf_event_open": 298, "io_uring_setup": 425, "keyctl": 250, "userfaultfd": 323, "prlimit64": 302, "process_vm_readv": 310}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 (the name that http.server calls)
        self.server.asked += 1
        with contextlib.suppress(OSError):
            self.server.answer(self)

    def log_message(self, *_):
        pass


class Issuer(http.server.ThreadingHTTPServer):
    """Answers with what `answer` does; over TLS if it has a certificate."""

    daemon_threads = True

    def __init__(self, name, port=0, certificate="server"):
        super().__init__(("127.0.0.1", port), Handler)
        self.key = Signer("ES256", f"{name}-1", f"https://{name}.example")
        self.name, self.asked, self.answer, self.certificate = name, 0, self.keys, certificate
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(FILES.path(f"{certificate}.pem"), FILES.path(f"{certificate}.key"))
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

    def url(self, host="localhost"):
        return f"http{'s' if self.certificate else ''}://{host}:{self.server_address[1]}/keys"

    def down(self):
        self.shutdown()
        self.server_close()

    def again(self):
        """The same issuer, after it was down."""
        new = Issuer(self.name, self.server_address[1], self.certificate)
        new.key = self.key
        return new

    # ---- answers

    def keys(self, to):
        self.bytes(to, key_set(self.key).encode())

    @staticmethod
    def bytes(to, body):
        to.send_response(200)
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    def drips(self, to):
        to.send_response(200)
        to.end_headers()
        for _ in range(600):
            to.wfile.write(b" ")
            time_passes("a slow server", 0.1)

    def huge(self, to):
        to.send_response(200)
        to.end_headers()
        for _ in range(1000):
            to.wfile.write(b" " * 65536)

    def redirects(self, to):
        to.send_response(302)
        to.send_header("Location", self.url())
        to.end_headers()


def section(name, url, more=""):
    return f"""
  - issuer: https://{name}.example
    audience: stockade
    jwks_url: {url}
    algorithms: [ES256]
    {more}
    grants: [{{claims: {{sub: "repo:acme/*"}}, tenant: {name}}}]
"""


def config(issuers, more=""):
    own = f"jwks_private: true\n    jwks_ca_file: {FILES.path('ca.pem')}"
    return "issuers:" + "".join([
        section("good", issuers["good"].url(), f"{own}\n    jwks_timeout: 1s\n    {more}"),
        section("plain", issuers["plain"].url("127.0.0.1"), "jwks_private: true"),
        section("untrusted", issuers["untrusted"].url(), "jwks_private: true"),
        section("misnamed", issuers["misnamed"].url(), own),
        section("twin", issuers["good"].url(), own),
        section("private", issuers["good"].url("127.0.0.1") + "?private"),
    ])


def exchange(signer, **claims):
    env = {**os.environ, "STOCKADE_ADDRESS": ADDRESS, "STOCKADE_TOKEN": signer.sign(**claims)}
    return subprocess.run([binary("stockade"), "token", "exchange", "-o", "json"], env=env, capture_output=True, text=True, check=False,
                          timeout=scaled(60))


def accepted(signer):
    return exchange(signer).returncode == 0


def refused(r, *words):
    check(r.returncode != 0 and all(w in r.stdout + r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def trouble(b, *words):
    """What the broker says of the issuers, if all the words are in it."""
    lines = [line for line in b.json("info")[1]["degraded"] if line.startswith("issuer-keys")]
    return lines if lines and all(w in lines[0] for w in words) else None


def says(b, *words):
    return until(lambda: trouble(b, *words), lambda: f"{words}: {trouble(b)}")


# ---- cases


def urls_that_nobody_should_trust_are_refused(b, issuers):
    url = issuers["good"].url()
    base = section("good", url)
    for text, why in (
        (base.replace(url, "http://example.org/keys"), "http:// is for loopback only"),
        (base.replace(url, "file:///etc/passwd"), "must be https://"),
        (base.replace(url, "https://user:secret@example.org/keys"), "without a user"),
        (base.replace(url, "https://example.org/" + "x" * 600), "at most 511 bytes"),
        (base.replace(f"jwks_url: {url}", ""), "either jwks_file or jwks_url"),
        (base.replace(f"jwks_url: {url}", f"jwks_url: {url}\n    jwks_file: /etc/keys"), "either jwks_file or jwks_url"),
        (base.replace(f"jwks_url: {url}", "jwks_file: /etc/keys\n    jwks_private: true"), "settings of jwks_url"),
        (base.replace(f"jwks_url: {url}", f"jwks_url: {url}\n    jwks_refresh: 2h\n    jwks_keep: 1h"), "less than jwks_refresh"),
        (base.replace(f"jwks_url: {url}", f"jwks_url: {url}\n    jwks_timeout: 31s"), "jwks_timeout"),
    ):
        said = b.reload("issuers:" + text)
        check("reload-refused" in said and why in said, f"{why}: {said}")


def servers_that_cannot_be_trusted_are_not_asked_for_keys(b, issuers):
    said = says(b, "certificate", "not public")
    for name, words in (("untrusted", "certificate"), ("misnamed", "name"), ("private", "not public")):
        signer = Signer("ES256", f"{name}-1", f"https://{name}.example")
        until(lambda signer=signer: "being fetched" not in exchange(signer).stderr, "no fetch is under way")
        refused(exchange(signer), f"the keys of the issuer https://{name}.example are not known", words)
    check("its tokens are refused" in said[0], said)
    check(issuers["untrusted"].asked == 0 and issuers["misnamed"].asked == 0, "the request was never sent")
    r = b.cli("doctor")
    check(b"issuer-keys" in r.stdout, r.stdout.decode())
    rows = {s["labels"]["result"]: s["value"] for row in b.json("metrics", "stockade_issuer_key_fetches_total")[1] for s in row["samples"]}
    check(rows["failed"] >= 3 and rows["ok"] >= 2, rows)


def keys_come_from_https_and_from_http_on_loopback(b, issuers):
    twin = Signer("ES256", "good-1", "https://twin.example")
    twin.key = issuers["good"].key.key
    until(lambda: accepted(twin), "another issuer with the same keys")
    check(json.loads(exchange(twin).stdout)["tenant"] == "twin", "is another tenant")
    for name in ("good", "plain"):
        until(lambda name=name: accepted(issuers[name].key), f"{name}: {b.log()[-2000:]}")
        check(json.loads(exchange(issuers[name].key).stdout)["tenant"] == name, name)


def a_new_key_is_fetched_when_it_is_used_and_once_a_minute_at_most(b, issuers):
    good = issuers["good"]
    good.key, old, before = Signer("ES256", "good-2", good.key.issuer), good.key, good.asked
    refused(exchange(good.key), "no key of a known issuer", "try again in some seconds")
    until(lambda: accepted(good.key), "the new key is known")
    check(good.asked == before + 1, f"{good.asked - before} requests")
    refused(exchange(old), "no key of a known issuer")
    good.key = Signer("ES256", "good-3", good.key.issuer)
    for i in range(10):
        refused(exchange(Signer("ES256", f"unknown-{i}", good.key.issuer)), "no key of a known issuer")
    check(good.asked == before + 1, "within a minute it is not asked again")


def what_is_no_key_set_changes_nothing_and_is_told(b, issuers):
    good = issuers["good"]
    b.reload(config(issuers, "jwks_refresh: 1s"))
    until(lambda: accepted(good.key), "it is fetched at the new interval")
    for answer, words in (
        (good.huge, "larger than 256 KiB"),
        (good.drips, "timed out"),
        (good.redirects, "HTTP 302, a redirect"),
        (lambda to: to.send_error(500), "HTTP 500"),
        (lambda to: good.bytes(to, b"<html>"), "not JSON"),
        (lambda to: good.bytes(to, b'{"keys": []}'), "is for RS256"),
        (lambda to: good.bytes(to, b"\0" * 200000), "not JSON"),
    ):
        good.answer = answer
        said = says(b, words)
        check("ago are in use" in said[0], said)
        check(accepted(good.key), f"{words}: the keys before are used")
        good.answer = good.keys
        until(lambda words=words: not trouble(b, words), f"{words}: it is over", 60)


def the_fetcher_has_no_rights(b, issuers):
    good = issuers["good"]
    good.answer = good.drips

    def fetcher():
        return next((pid for pid, name in b.processes().items() if name == "stockade-fetche"), None)

    def status():
        with contextlib.suppress(OSError, TypeError), open(f"/proc/{fetcher()}/status", encoding="utf-8") as f:
            rows = dict(line.rstrip("\n").split(":\t", 1) for line in f)
            return rows if rows["Seccomp"] == "2" else None
        return None

    rows = until(status, "one works")
    check(all(int(i) >= 65536 for i in rows["Uid"].split() + rows["Gid"].split()), rows)
    check(rows["Groups"].strip() == "" and rows["NoNewPrivs"] == "1", rows)
    check(all(int(rows[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), rows)
    good.answer = good.keys
    until(lambda: fetcher() is None, "it ends")


def one_that_was_taken_over_reaches_nothing(b, issuers):
    """The system calls of an intruder, made in a fetcher that works."""
    if platform.machine() != "x86_64":
        raise Skipped("the registers are those of x86-64")
    good = issuers["good"]
    good.answer = good.drips

    def working():
        with contextlib.suppress(OSError, StopIteration):
            pid = next(pid for pid, name in b.processes().items() if name == "stockade-fetche")
            with open(f"/proc/{pid}/wchan", encoding="ascii") as f, open(f"/proc/{pid}/status", encoding="utf-8") as status:
                return pid if "poll" in f.read() and "Seccomp:\t2" in status.read() else None
        return None

    def denied(what, got, *errors):
        check(got is not None and -got in errors, f"{what}: {got}")

    taken = Taken(until(working, "one waits for its server"))
    broker = b.process.pid
    try:
        for path in ("/etc/shadow", f"{b.state}/state/stockade.db", f"{b.folder}/stockaded.yaml.new"):
            denied(path, taken.call(SYS["openat"], -100, taken.text(path), os.O_RDWR), errno.EACCES, errno.ENOENT)
        denied("a new file", taken.call(SYS["openat"], -100, taken.text(f"{b.folder}/new"), os.O_WRONLY | os.O_CREAT, 0o600), errno.EACCES)
        for pid in (broker, os.getpid(), 1):
            denied(f"kill {pid}", taken.call(SYS["kill"], pid, signal.SIGTERM), errno.EPERM)
        for family, kind, why in ((socket.AF_PACKET, socket.SOCK_DGRAM, errno.EAFNOSUPPORT), (socket.AF_VSOCK, socket.SOCK_STREAM, errno.EAFNOSUPPORT),
                                  (socket.AF_INET, socket.SOCK_RAW, errno.EPERM), (socket.AF_INET6, socket.SOCK_RAW, errno.EPERM)):
            denied(f"socket {family} {kind}", taken.call(SYS["socket"], family, kind, 0), why)
        denied("a unix socket", taken.call(SYS["socket"], socket.AF_UNIX, socket.SOCK_STREAM, 0), errno.EAFNOSUPPORT)
        denied("a pair of datagrams", taken.call(SYS["socketpair"], socket.AF_UNIX, socket.SOCK_DGRAM, 0, taken.text("")), errno.EPERM)
        check(taken.call(SYS["socketpair"], socket.AF_UNIX, socket.SOCK_STREAM, 0, taken.text("")) == 0, "libcurl needs a pair of streams")
        for name in ("setuid", "unshare", "mount", "setns", "memfd_create", "perf_event_open", "io_uring_setup", "keyctl", "userfaultfd"):
            denied(name, taken.call(SYS[name], 0, 0, 0, 0, 0), errno.EPERM)
        denied("code that can be written", taken.call(SYS["mmap"], 0, 4096, 7, 0x22, -1, 0), errno.EPERM)
        check(taken.call(SYS["prlimit64"], 0, 7, 0, 0) == 0, "what is not refused works: these are its own calls")
        check(taken.call(SYS["process_vm_readv"], broker, 0, 0, 0, 0, 0) is None, "reading another process ends it")
    except BaseException:
        with contextlib.suppress(OSError):
            taken.let_go()
        raise
    good.answer = good.keys
    good.key = Signer("ES256", "good-8", good.key.issuer)
    until(lambda: accepted(good.key), "the next one fetches", 60)


def the_broker_refuses_the_accounts_of_its_helpers_and_of_jobs(b, _):
    """Also where anybody may connect; the id after the ranges is anybody's."""
    base, after = 0x70000000, 0x70000000 + 2049 * 65536
    os.chmod(b.address.removeprefix("ipc://"), 0o666)

    def greeted(uid):
        """How many bytes the broker greets this account with."""
        os.seteuid(uid)
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(scaled(30))
                s.connect(b.address.removeprefix("ipc://"))
                os.seteuid(0)
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    s.sendall(REQ_HELLO)
                    return len(s.recv(8))
                return 0
        finally:
            os.seteuid(0)

    def refused_n():
        rows = [s for row in b.json("metrics", "stockade_rpc_connections_refused_total")[1] for s in row["samples"]]
        return sum(s["value"] for s in rows if s["labels"]["reason"] == "helper")

    before = refused_n()
    helpers = [base + 1, base + 2, base + 65535, base + 65536, after - 1]
    for uid in helpers:
        got = greeted(uid)
        check(got == 0, f"{uid}: {got}")
    check(refused_n() == before + len(helpers), refused_n())
    for uid in (54321, after):
        got = greeted(uid)
        check(got == 8, f"{uid}: {got}")
    check("helper-refused" in b.log() and f"uid:{base + 2} (pid" in b.log(), b.log()[-2000:])


def one_that_hangs_is_killed_and_keeps_nobody_else_out(b, issuers):
    """What a fetcher can do that was taken over: it does not end, and its alarm does not matter."""
    good = issuers["good"]
    good.answer = good.drips
    stopped = until(lambda: next((pid for pid, name in b.processes().items() if name == "stockade-fetche"), None), "one works")
    os.kill(stopped, signal.SIGSTOP)
    good.answer = good.keys
    good.key = Signer("ES256", "good-9", good.key.issuer)
    says(b, "ended before it was done")
    check(not os.path.exists(f"/proc/{stopped}"), "it was killed")
    until(lambda: accepted(good.key), "the next one fetches")


def keys_of_a_server_that_is_down_are_used_and_then_refused(b, issuers):
    good = issuers["good"]
    good.down()
    b.reload(config(issuers, "jwks_refresh: 1s\n    jwks_keep: 6s"))
    check(accepted(good.key), "the keys of before")
    until(lambda: not accepted(good.key), "they are too old", 60)
    refused(exchange(good.key), "the keys of the issuer https://good.example are not known", "connect")
    check("its tokens are refused" in says(b, "issuer-keys")[0], "and it is told")
    check(accepted(issuers["plain"].key), "other issuers go on")
    issuers["good"] = good.again()
    until(lambda: accepted(good.key), "it is there again", 60)


CASES = [
    servers_that_cannot_be_trusted_are_not_asked_for_keys,
    keys_come_from_https_and_from_http_on_loopback,
    a_new_key_is_fetched_when_it_is_used_and_once_a_minute_at_most,
    what_is_no_key_set_changes_nothing_and_is_told,
    the_fetcher_has_no_rights, one_that_was_taken_over_reaches_nothing,
    the_broker_refuses_the_accounts_of_its_helpers_and_of_jobs,
    one_that_hangs_is_killed_and_keeps_nobody_else_out,
    keys_of_a_server_that_is_down_are_used_and_then_refused,
    urls_that_nobody_should_trust_are_refused,
]


def main():
    FILES.authority("ca")
    FILES.authority("others")
    FILES.certificate("server", "DNS:localhost,IP:127.0.0.1")
    FILES.certificate("others-server", "DNS:localhost", of="others")
    FILES.certificate("misnamed", "DNS:elsewhere.example")
    issuers = {"good": Issuer("good"), "plain": Issuer("plain", certificate=None),
               "untrusted": Issuer("untrusted", certificate="others-server"), "misnamed": Issuer("misnamed", certificate="misnamed")}
    with Broker("--listen", ADDRESS, config=config(issuers)) as b:
        return run_cases(CASES, lambda case: case(b, issuers))


if __name__ == "__main__":
    sys.exit(main())
