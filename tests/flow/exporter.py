#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""stockade-exporter: what Prometheus reads, hostile HTTP clients, a broker that goes and comes back, and its confinement."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

from api import connect
from broker import INSTALLED, Broker
from exporter_process import NOBODY, Exporter, as_nobody, program
from runner import check, run_cases, time_passes, until
from slowness import scaled

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


# ---- refusals


def a_wrong_configuration_is_refused_with_its_place(b):
    path = f"{b.folder}/wrong.yaml"
    for text, said in (("prometheus: {listen: 9477}", "1:22: listen: must be HOST:PORT"),
                       ("prometheus:\n  port: 1\n", "2:9: port: there is no such key"),
                       ("prometheus: {connections: many}", "connections: must be"),
                       ("prometheus: {connections: 1}", "must be from 2 to"),
                       ("prometheus: {exemplars: 1}", "must be true or false"),
                       ("broker: a\nbroker: b\n", "2:1"),
                       ("broker: /run/x.sock", "must be an address"),
                       ("promethus: {}", "did you mean prometheus?"),
                       ("a: &x 1\nb: *x\n", "anchor"), ("- a\n", "must be a mapping")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        r = as_nobody("--check-config", "--config", path)
        check(r.returncode == 78 and said in r.stderr.decode() and r.stdout == b"", f"{text!r}: {r}")
    os.chmod(path, 0o666)
    check("chmod go-w" in as_nobody("--check-config", "--config", path).stderr.decode(), "writable by others")
    check(as_nobody("--check-config", "--config", "/nonexistent").returncode == 78, "no file")
    with open(f"{b.folder}/good.yaml", "w", encoding="utf-8") as f:
        f.write("prometheus: {listen: '[::1]:9477', exemplars: false}\n")
    check(as_nobody("--check-config", "--config", f"{b.folder}/good.yaml").returncode == 0, "and a good one is accepted")
    check(as_nobody("operand").returncode == 64 and as_nobody("--nothing").returncode == 64, "usage")


def the_shipped_file_has_keys_that_exist(b):
    if INSTALLED:
        return
    with open(os.path.join(os.environ["STOCKADE_SOURCE"], "deploy/exporter.yaml"), encoding="utf-8") as f:
        keys = re.sub(r"^#(?=\S|  )", "", f.read(), flags=re.M)
    path = f"{b.folder}/shipped.yaml"
    with open(path, "w", encoding="utf-8") as f:
        f.write(keys.replace('broker: ""', "broker: ipc:///run/stockade/stockade.sock"))
    r = as_nobody("--check-config", "--config", path)
    check("listen: 127.0.0.1:9477" in keys and "ocsf.jsonl" in keys and r.returncode == 0, f"{r} {keys}")


def it_does_not_run_as_root(b):
    with contextlib.suppress(KeyError):
        import pwd
        pwd.getpwnam("stockade-exporter")
        return print("skipped: there is the account stockade-exporter")
    r = subprocess.run([program(), "--once"], capture_output=True, timeout=scaled(60), check=False)
    check(r.returncode == 69 and b"must not run as root" in r.stderr and b"useradd" in r.stderr, str(r))
    return None


def a_caller_without_the_right_to_read_gets_nothing(b):
    argv = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", program(), "--once", "--config", f"{b.folder}/once.yaml"]
    with open(f"{b.folder}/once.yaml", "w", encoding="utf-8") as f:
        f.write(f"broker: {b.address}\n")
    r = subprocess.run(argv, capture_output=True, timeout=scaled(60), check=False)
    check(r.returncode == 69 and r.stdout == b"" and b"metrics.reader" in r.stderr, str(r))
    check(as_nobody("--once", "--config", f"{b.folder}/once.yaml").returncode == 0, "the reader may")


# ---- what Prometheus reads


def once_prints_what_metrics_shows(b):
    r = as_nobody("--once", "--config", f"{b.folder}/once.yaml")
    check(r.returncode == 0 and r.stderr == b"", str(r)[-500:])
    names = set(re.findall(r"^# TYPE (\S+)", r.stdout.decode(), re.M))
    with Exporter(b) as x:
        check(names == set(re.findall(r"^# TYPE (\S+)", x.get()[2], re.M)), "the same metrics")
    shown = set(re.findall(r"^# TYPE (\S+)", b.cli("metrics", "--prometheus").stdout.decode(), re.M))
    check(names > shown and all(n.startswith("stockade_exporter_") for n in names - shown), str(names - shown))


def the_format_is_what_the_client_accepts(b):
    with Exporter(b) as x:
        for accept, kind in ((None, "text/plain; version=0.0.4"), ("*/*", "text/plain"), (OPENMETRICS, OPENMETRICS),
                             ("application/openmetrics-text", OPENMETRICS), ("application/openmetrics-text;version=0.0.1", "text/plain"),
                             (OPENMETRICS + ";q=0.4,text/plain;version=0.0.4;q=0.5", "text/plain"),
                             ("text/plain;q=0.3, " + OPENMETRICS + ";q=0.7", OPENMETRICS), (";;q=,,\t/", "text/plain"),
                             (OPENMETRICS + ";q=0", "text/plain"), (OPENMETRICS + ";q=9", "text/plain")):
            status, headers, body = x.get(headers={"Accept": accept} if accept else {})
            check(status == 200 and headers["Content-Type"].startswith(kind), f"{accept}: {headers}")
            check(body.endswith("# EOF\n") == (kind == OPENMETRICS), body[-80:])
        status, headers, body = x.get(method="HEAD")
        check(status == 200 and body == "" and int(headers["Content-Length"]) > 1000, "HEAD")
        for path, method, wanted in (("/", "GET", 200), ("/healthz", "GET", 200), ("/x", "GET", 404), ("/metrics/", "GET", 404),
                                     ("/metrics", "POST", 405), ("/metrics", "DELETE", 405)):
            check(x.get(path, method)[0] == wanted, f"{method} {path}")
        check(x.get(method="POST")[1]["Allow"] == "GET, HEAD", "what is allowed")


def promtool_finds_nothing_to_say(b):
    if not shutil.which("promtool"):
        return print("skipped: no promtool")
    with Exporter(b) as x:
        r = subprocess.run(["promtool", "check", "metrics"], input=x.get()[2].encode(), capture_output=True, check=False)
        check(r.returncode == 0, f"{r.stdout.decode()} {r.stderr.decode()}")
    return None


def a_job_is_the_exemplar_of_its_bucket(b):
    c = connect(b)
    with Exporter(b) as x:
        until(lambda: x.value("stockade_exporter_broker_up") == 1, "it reads")
        jobs = {}
        line = r'^stockade_job_duration_seconds_bucket{le="\S+"} \d+ # {trace_id="(\S+)"} (\S+) \d+\.\d+$'

        def exemplar():
            """Of one of the jobs: one that ended before the exporter followed the broker's events is none."""
            job = c.run("exit 0")
            jobs[job.id] = job.result.bill.wall_us.value / 1e6
            found = re.findall(line, x.get(headers={"Accept": OPENMETRICS})[2], re.M)
            return next(((jobs[i], float(value)) for i, value in found if i in jobs), None)

        billed, value = until(exemplar, lambda: x.get(headers={"Accept": OPENMETRICS})[2])
        check(abs(value - billed) < 1e-3, f"{value} {billed}")
        check("trace_id" not in x.get()[2], "the text format has none")
    c.close()


def openmetrics_is_what_its_own_parser_accepts(b):
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
    except ImportError:
        return print("skipped: no python3-prometheus-client")
    with Exporter(b) as x:
        check(len(list(parse(x.get(headers={"Accept": OPENMETRICS})[2]))) > 50, "families")
    return None


# ---- hostile clients


def slow_clients_are_cut_and_others_are_served(b):
    """Silence, a byte at a time, and an answer that nobody reads."""
    with Exporter(b, timeout_ms=1000) as x:
        silent, slow, deaf = x.client("127.0.0.2"), x.client("127.0.0.2"), x.client("127.0.0.2")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 40)

        def trickle():
            with contextlib.suppress(OSError):
                for byte in b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 10000:
                    slow.sendall(bytes([byte]))
                    if x.process.poll() is not None or gone.wait(0.05):
                        return

        gone = threading.Event()
        thread = threading.Thread(target=trickle)
        thread.start()
        check(x.get()[0] == 200, "others are served meanwhile")
        check(silent.recv(1) == b"", "the silent one is disconnected")
        with contextlib.suppress(ConnectionResetError):
            while slow.recv(4096):
                pass
        with contextlib.suppress(ConnectionResetError):
            while deaf.recv(65536):
                pass
        check(x.value("stockade_exporter_http_cut_total") >= 2, "they are counted")
        gone.set()
        thread.join()
        check(x.get()[0] == 200, "and afterwards")
        for s in (silent, slow, deaf):
            s.close()


def huge_and_malformed_requests_are_refused(b):
    with Exporter(b, timeout_ms=2000) as x:
        for request in (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
                        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n", b"\x00\xff\x16\x03\x01" * 50 + b"\r\n\r\n",
                        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 100000,
                        b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n" + b"z" * 100000,
                        b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n"):
            s = x.client()
            got = b""
            with contextlib.suppress(OSError):
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while piece := s.recv(65536):
                    got += piece
            check(b" 200 " not in got.split(b"\r\n")[0], f"{request[:40]}: {got[:100]}")
            s.close()
        check(x.get()[0] == 200, "it still answers")
        with open(f"/proc/{x.process.pid}/statm", encoding="ascii") as f:
            check(int(f.read().split()[1]) * 4096 < 300 << 20, "its memory is bounded")


def a_flood_from_one_address_leaves_room_for_another(b):
    with Exporter(b, timeout_ms=3000) as x:
        flood = []
        for _ in range(200):
            with contextlib.suppress(OSError):
                flood.append(x.client("127.0.0.3"))
        check(x.get()[0] == 200, "another address is served")
        for s in flood:
            s.close()
        until(lambda: x.value("stockade_exporter_http_connections_total") is not None, "and afterwards")
        check(len(os.listdir(f"/proc/{x.process.pid}/fd")) < 60, "its descriptors are bounded")


def many_scrapes_cost_the_broker_a_few_calls(b):
    c = connect(b)
    get = r'^stockade_rpc_calls_total{method="/stockade.v1.MetricsService/Get",code="OK"} (\d+)$'
    with Exporter(b) as x:
        before = int((re.search(get, x.get()[2], re.M) or [0, 0])[1])
        threads = [threading.Thread(target=lambda: [x.get() for _ in range(25)]) for _ in range(4)]
        started = os.times().elapsed
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        most = (os.times().elapsed - started) * 10 + 5
        calls = int(re.search(get, x.get()[2], re.M)[1]) - before
        check(calls <= most, f"{calls} calls for 100 scrapes, at most {most}")
    c.close()


# ---- the broker goes


def without_a_broker_it_still_answers_and_says_so(b):
    with Exporter(b) as x:
        check(x.value("stockade_exporter_broker_up") == 1, "it answers")
        b.stop()
        until(lambda: x.value("stockade_exporter_broker_up") == 0, "the last metrics are not fresh any more")
        status, _, body = x.get()
        check(status == 200 and "stockade_exporter_broker_up 0" in body and "stockade_jobs" not in body, body[:2000])
        b.start()
        until(lambda: x.value("stockade_exporter_broker_up") == 1, "it answers again")
        c = connect(b)
        job = c.run("exit 0")
        until(lambda: job.id in x.get(headers={"Accept": OPENMETRICS})[2], "and so do the events")
        c.close()


def a_broker_that_hangs_delays_a_scrape_by_its_deadline(b):
    with Exporter(b) as x:
        check(x.value("stockade_exporter_broker_up") == 1, "it answers")
        time_passes("the last answer of the broker is not fresh any more", 0.2)
        b.process.send_signal(signal.SIGSTOP)
        try:
            waiting = x.client()
            waiting.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            check(x.get("/healthz")[0] == 200, "another request is served meanwhile")
            gone = x.client()
            gone.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            gone.close()
            got = b""
            while piece := waiting.recv(65536):
                got += piece
            check(b"stockade_exporter_broker_up 0" in got, got[:500])
        finally:
            b.process.send_signal(signal.SIGCONT)
        until(lambda: x.value("stockade_exporter_broker_up") == 1, "it answers again")


# ---- its rights


def it_has_no_rights(b):
    with Exporter(b) as x, open(f"/proc/{x.process.pid}/status", encoding="ascii") as f:
        x.get()  # it serves only after it has given up its rights
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        check(status["Uid"].split() == [str(NOBODY)] * 4, status["Uid"])
        for key in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            check(int(status[key], 16) == 0, f"{key} {status[key]}")
        check(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", str(status))
        check(status["Threads"] == "1", "one thread")


BROKER_CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n"
with Broker(config=BROKER_CONFIG) as BROKER:
    CODE = run_cases([
        a_wrong_configuration_is_refused_with_its_place, the_shipped_file_has_keys_that_exist,
        it_does_not_run_as_root,
        a_caller_without_the_right_to_read_gets_nothing, once_prints_what_metrics_shows,
        the_format_is_what_the_client_accepts, promtool_finds_nothing_to_say, a_job_is_the_exemplar_of_its_bucket,
        openmetrics_is_what_its_own_parser_accepts, slow_clients_are_cut_and_others_are_served,
        huge_and_malformed_requests_are_refused, a_flood_from_one_address_leaves_room_for_another,
        many_scrapes_cost_the_broker_a_few_calls, without_a_broker_it_still_answers_and_says_so,
        a_broker_that_hangs_delays_a_scrape_by_its_deadline, it_has_no_rights,
    ], call=lambda case: case(BROKER))
raise SystemExit(CODE)
