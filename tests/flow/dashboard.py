#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: who may read and act, what other web pages cannot do, and its bounds. flow.dashboard_page has the page."""

import contextlib
import json
import os
import signal
import socket

from api import connect
from broker import Broker
from dashboard_process import Dashboard, make_key
from exporter_process import as_nobody
from runner import check, run_cases, time_passes, until
from slowness import scaled

SUBSCRIBE = {"events": {"method": "TelemetryService/Subscribe", "request": {"tenant": "*"}}}
READ = ("system.read", "telemetry.read", "anomaly.read", "tenants.read", "metrics.read")


# ---- refusals


def a_wrong_configuration_is_refused(b):
    path = f"{b.folder}/wrong.yaml"
    for text, said in (("listen: 9478", "must be HOST:PORT"), ("hosts: a.example", "must be a list"), ("hosts: ['a b']", "must be a name"),
                       ("hosts: ['a.example/x']", "must be a name"), (f"hosts: ['{'a' * 300}']", "too many"), ("streams: 0", "must be from 1"),
                       ("streams: 65", "to 64"), ("open: 1", "true or false"), ("token: x", "no such key")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"dashboard:\n  {text}\n")
        r = as_nobody("--check-config", "--config", path)
        check(r.returncode == 78 and said in r.stderr.decode(), f"{text!r}: {r}")


def by_default_there_is_none(b):
    with open(f"{b.folder}/none.yaml", "w", encoding="utf-8") as f:
        f.write("prometheus: {listen: '127.0.0.1:0'}\n")
    r = as_nobody("--check-config", "--config", f"{b.folder}/none.yaml")
    check(r.returncode == 0, f"{r}")
    from exporter_process import Exporter
    with Exporter(b) as x:
        check("dashboard" not in x.log(), x.log())


def another_name_is_refused(b):
    """DNS rebinding: the name of an attacker points at this address."""
    with Dashboard(b) as x:
        for host in ("evil.example", f"evil.example:{x.page}", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2", "[::2]", "a@127.0.0.1",
                     "127.0.0.1:99999", ""):
            for path, body in (("/", None), ("/api/about", None), ("/api/call/SystemService/Info", {})):
                check(x.ask(path, body, headers={"Host": host})[0] in (400, 421), f"{host} {path}: {x.ask(path, body, headers={'Host': host})}")
        for host in (f"127.0.0.1:{x.page}", "localhost", f"LOCALHOST:{x.page}", "[::1]:80"):
            check(x.ask("/", headers={"Host": host})[0] == 200, host)


def a_page_of_another_server_is_refused(b):
    """CSRF: a browser says where a request comes from."""
    with Dashboard(b) as x:
        here = f"127.0.0.1:{x.page}"
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"http://127.0.0.1:{x.page + 1}"}, {"Origin": f"http://localhost:{x.page}"},
                        {"Origin": f"ftp://{here}"}, {"Origin": here}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
                        {"Origin": f"http://{here}", "Sec-Fetch-Site": "cross-site"}):
            status, got, text = x.ask("/api/call/SystemService/Info", {}, headers=headers)
            check(status == 403 and "Access-Control-Allow-Origin" not in got, f"{headers}: {status} {text}")
            check(x.ask("/api/watch", SUBSCRIBE, headers=headers)[0] == 403, f"{headers}")
        for kind in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data"):
            check(x.ask("/api/call/SystemService/Info", {}, headers={"Content-Type": kind})[0] == 415, f"{kind}: which a form can send")
        check(x.ask("/api/call/SystemService/Info", {}, method="OPTIONS", headers={"Origin": "http://evil.example"})[0] == 405, "no preflight is answered")
        check(x.ask("/api/call/SystemService/Info", {}, headers={"Origin": f"http://{here}", "Sec-Fetch-Site": "same-origin"})[0] == 200, "its own may")
        check(x.ask("/api/call/SystemService/Info", {}, headers={"Content-Type": "application/json; charset=utf-8"})[0] == 200, "with a character set")


def without_a_credential_nothing_is_read(b):
    with Dashboard(b, is_open=False) as x:
        check(json.loads(x.ask("/api/about")[2])["open"] is False, "and the page knows")
        for path, body in (("/api/call/SystemService/Info", {}), ("/api/call/TelemetryService/ListUsage", {"tenant": "*"}), ("/api/watch", SUBSCRIBE)):
            status, _, text = x.ask(path, body)
            check(status == 401 and json.loads(text)["code"] == "UNAUTHENTICATED", f"{path}: {status} {text}")
        key = make_key(b, *READ)
        check(x.ask(f"/api/call/SystemService/Info?token={key}&authorization=Bearer+{key}", {})[0] == 401, "not in the address")
        for wrong in (key[:-1], "x", "a b", "é".encode().decode("latin-1"), "x" * 9000):
            check(x.call("SystemService/Info", key=wrong)[0] == 401, wrong[:40])
        check(x.ask("/api/call/SystemService/Info", {}, headers={"Authorization": f"Basic {key}"})[0] == 401, "another scheme")
        status, usage = x.call("TelemetryService/ListUsage", {"tenant": "*"}, key=key)
        check(status == 200 and "usage" in usage, f"{status} {usage}")
        check(key not in x.log() and key not in b.log(), "no log has the credential")


def an_open_dashboard_reads_and_does_not_act(b):
    c = connect(b)
    box = c.unary("/stockade.v1.SandboxService/Create", {"name": "mine"}).sandbox
    with Dashboard(b) as x:
        check(x.call("TelemetryService/ListUsage", {"tenant": "*"})[0] == 200, "it reads")
        for method, request in (("SandboxService/Pause", {"id": box.id}), ("SandboxService/Delete", {"id": box.id}), ("SandboxService/Get", {"id": box.id}),
                                ("ProcessService/List", {}), ("ApprovalService/List", {}), ("ApprovalService/Approve", {"id": "x"})):
            status, answer = x.call(method, request)
            check(status == 401 and "credential" in answer["text"], f"{method}: {status} {answer}")
        for method in ("ProcessService/Attach", "ApprovalService/Watch"):
            check(x.ask("/api/watch", {"a": {"method": method, "request": {}}})[0] == 401, method)
            check(x.ask("/api/watch", {"events": SUBSCRIBE["events"], "a": {"method": method, "request": {}}})[0] == 401, f"{method} beside one that reads")
    c.unary("/stockade.v1.SandboxService/Delete", {"id": box.id})
    c.close()


def methods_outside_of_its_table_do_not_exist(b):
    key = make_key(b, *READ)
    with Dashboard(b) as x:
        for method in ("ProcessService/Run", "SandboxService/Create", "KeyService/Create", "AdminService/Backup", "TelemetryService/Subscribe", "", "/", "..",
                       "stockade.v1.SystemService/Info", "SystemService/Info/", "SystemService/info"):
            status, answer = x.call(method, {}, key=key)
            check(status == 501 and answer["code"] == "UNIMPLEMENTED", f"{method}: {status} {answer}")
        for path, method, body, wanted in (("/api/call/SystemService/Info", "GET", None, 405), ("/api/watch", "GET", None, 405), ("/api/nothing", "POST", {}, 404),
                                           ("/nothing.js", "GET", None, 404), ("/../app.js", "GET", None, 404), ("/", "POST", {}, 404), ("/app.js", "DELETE", None, 405),
                                           ("/api/about", "PUT", {}, 405)):
            check(x.ask(path, body, method=method)[0] == wanted, f"{method} {path}: {x.ask(path, body, method=method)[0]}")


def what_is_no_request_is_refused_with_the_field(b):
    with Dashboard(b) as x:
        for body, said in ((b"{", "JSON"), (b"[]", "object"), (b'{"tenant": 1}', "tenant"), (b'{"page_size": "1"}', "page_size"), (b'{"page_size": -1}', "page_size"),
                           (b'{"page_size": 4294967296}', "page_size"), (b'{"nothing": 1}', "nothing"), (b'{"tenant": "a", "tenant": "b"}', "duplicate"),
                           (b'{"tenant": "' + b"a" * 40 + b'"}', "tenant"), (b"[" * 3000, "JSON"), (b'{"tenant": "\xff"}', "JSON"), (b'{"tenant": "a\\u0000b"}', "JSON")):
            status, _, text = x.ask("/api/call/TelemetryService/ListUsage", body)
            check(status == 400 and said in text, f"{body[:40]}: {status} {text}")
        for body, said in (({}, "1 to 4"), ({str(i): SUBSCRIBE["events"] for i in range(5)}, "1 to 4"), ({"A": SUBSCRIBE["events"]}, "small letters"),
                           ({"end": SUBSCRIBE["events"]}, "small letters"), ({"a\nb": SUBSCRIBE["events"]}, "small letters"), ({"a": 1}, "method"),
                           ({"a": {"method": "SystemService/Info"}}, "method"), ({"a": {"method": "TelemetryService/Subscribe", "request": {"x": 1}}}, "x"),
                           ({"a": {"method": "TelemetryService/Subscribe", "request": {"kinds": ["no_kind"]}}}, "kinds")):
            status, _, text = x.ask("/api/watch", body)
            check(status == 400 and said in text, f"{body}: {status} {text}")
        check(x.ask("/api/call/SystemService/Info", b" " * 70000)[0] == 413, "a large body")
        s = socket.create_connection(("127.0.0.1", x.page), scaled(30))
        s.sendall(b"POST /api/call/SystemService/Info HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                s.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
            s.sendall(b"0\r\n\r\n")
        check(b" 413 " in s.recv(4096).split(b"\r\n")[0], "and one that does not say so before")
        s.close()
        check(x.call("SystemService/Info")[0] == 200, "it still answers")


# ---- what it does


def the_page_and_its_policy_are_served(b):
    with Dashboard(b) as x:
        status, headers, text = x.ask("/")
        policy = headers["Content-Security-Policy"]
        check(status == 200 and headers["Content-Type"].startswith("text/html") and "<main" in text, text[:200])
        for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
            check(part in policy, policy)
        check("unsafe" not in policy and "http" not in policy and "*" not in policy, policy)
        for header, value in (("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY"), ("Cache-Control", "no-store")):
            check(headers[header] == value, header)
        folder = os.path.join(os.environ.get("STOCKADE_SOURCE", ""), "client/exporter/dashboard")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ["index.html", "app.js"]:
            status, headers, text = x.ask(f"/{name}")
            kind = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}[name.rsplit(".", 1)[1]]
            check(status == 200 and headers["Content-Type"].startswith(kind) and "Content-Security-Policy" in headers, f"{name}: {headers}")
            check("https://" not in text and ("http://" not in text.replace("http://www.w3.org/2000/svg", "")), f"{name} loads nothing from elsewhere")
            check(not any(word in text for word in (".innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=")), name)


def a_call_has_the_rights_of_its_credential_alone(b):
    c = connect(b)
    one = make_key(b, "sandbox.read", "sandbox.write", "telemetry.read", tenant="one")
    two = make_key(b, "sandbox.read", "sandbox.write", "telemetry.read", tenant="two")
    reader = make_key(b, "sandbox.read", tenant="one")
    with Dashboard(b) as x:
        box = c.unary("/stockade.v1.SandboxService/Create", {"name": "of-one"}, {"authorization": f"Bearer {one}"}).sandbox
        check(x.call("SandboxService/Pause", {"id": box.id}, two)[0] == 404, "another tenant's does not exist")
        status, answer = x.call("SandboxService/Pause", {"id": box.id}, reader)
        check(status == 403 and "sandbox.write" in answer["text"] + answer["hint"], f"{answer}")
        check(x.call("TelemetryService/ListUsage", {"tenant": "*"}, one)[0] == 403, "nor all tenants")
        own = [u["name"] for u in x.call("TelemetryService/ListUsage", {}, one)[1]["usage"]]
        check(own == ["of-one"], f"{own}")
        check(x.call("SandboxService/Pause", {"id": box.id}, one)[1]["sandbox"]["state"] == "paused", "its owner may")
        check(x.call("SandboxService/Pause", {"id": box.id}, one)[0] == 409, "and is told when it makes no sense")
        check(x.call("SandboxService/Resume", {"id": box.id}, one)[1]["sandbox"]["state"] == "running", "resume")
        check(x.call("SandboxService/Delete", {"id": box.id}, one)[0] == 200, "delete")
        check(x.call("SandboxService/Get", {"id": box.id}, one)[0] == 404, "gone")
        with x.watch({"events": {"method": "TelemetryService/Subscribe", "request": {"tenant": "*"}}}, two) as w:
            name, end = w.next()
            check(name == "end" and end["name"] == "events" and end["code"] == "PERMISSION_DENIED" and w.next() is None, f"{name} {end}")
    c.close()


def events_come_as_they_happen(b):
    c = connect(b)
    with Dashboard(b) as x, x.watch({"events": {**SUBSCRIBE["events"], "request": {"tenant": "*", "kinds": ["job_started", "job_ended"]}}}) as w:
        check(w.status == 200 and w.response.getheader("Content-Type").startswith("text/event-stream"), f"{w.status}")
        check(w.next()[1]["events"] == [], "the first has only the number")
        check(x.value("stockade_exporter_dashboard_streams") == 1, "it is counted")
        job = c.run("exit 3")
        name, message = w.until(lambda name, m: any(e["kind"] == "job_ended" for e in m["events"]))
        ended = [e for e in message["events"] if e["kind"] == "job_ended"][0]
        check(name == "events" and ended["process_id"] == job.id and ended["job"]["exit_code"] == 3, f"{ended}")
        w.connection.close()
        w.response.close()
        until(lambda: x.value("stockade_exporter_dashboard_streams") == 0, "a client that has gone is noticed")
    c.close()


def the_output_of_a_job_is_followed(b):
    c = connect(b)
    key = make_key(b, "sandbox.read", "sandbox.write", "process.run", "process.read", tenant="one")
    me = {"authorization": f"Bearer {key}"}
    with Dashboard(b) as x:
        box = c.unary("/stockade.v1.SandboxService/Create", {}, me).sandbox
        job = c.start(box.id, "echo '<b>1</b>'; read line; echo 2 >&2", metadata=me, stdin_open=True)
        with x.watch({"output": {"method": "ProcessService/Attach", "request": {"process_id": job.id}}}, key) as w:
            _, m = w.until(lambda name, m: "output" in m.get("event", {}))
            check(bytes.fromhex(m["event"]["output"]["data"]) == b"<b>1</b>\n" and m["event"]["output"]["stream"] == "stdout", f"{m}")
            c.unary("/stockade.v1.ProcessService/Input", {"process_id": job.id, "data": b"x\n"}, me)
            _, m = w.until(lambda name, m: m.get("event", {}).get("output", {}).get("stream") == "stderr")
            check(w.until(lambda name, _: name == "end")[1]["code"] == "OK", "it ends well")
        c.unary("/stockade.v1.SandboxService/Delete", {"id": box.id}, me)
    c.close()


def a_broker_that_restarts_ends_the_streams_and_is_found_again(b):
    with Dashboard(b) as x:
        with x.watch(SUBSCRIBE) as w:
            w.next()
            b.stop()
            name, end = w.until(lambda name, _: name == "end")
            check(end["code"] == "UNAVAILABLE" and w.next() is None, f"{name} {end}")
        status, answer = x.call("SystemService/Info")
        check(status == 503 and answer["code"] == "UNAVAILABLE", f"{status} {answer}")
        check(x.ask("/")[0] == 200, "the page is there")
        b.start()
        until(lambda: x.call("SystemService/Info")[0] == 200, "it answers again")
        with x.watch(SUBSCRIBE) as w:
            check(w.next()[0] == "events", "and so do the streams")


# ---- bounds


def streams_have_a_bound(b):
    with Dashboard(b, streams=2) as x:
        with x.watch(SUBSCRIBE) as one, x.watch(SUBSCRIBE) as two:
            check(one.next() and two.next(), "two are open")
            status, _, text = x.ask("/api/watch", SUBSCRIBE)
            check(status == 429 and "dashboard.streams" in text, f"{status} {text}")
            check(x.call("SystemService/Info")[0] == 200, "calls are answered meanwhile")
        until(lambda: x.value("stockade_exporter_dashboard_streams") == 0, "they are closed")
        with x.watch(SUBSCRIBE) as three:
            check(three.next(), "and there is room again")


def a_page_that_reads_nothing_is_cut_and_slows_nobody(b):
    c = connect(b)
    body = json.dumps(SUBSCRIBE).encode()
    request = (b"POST /api/watch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
    with Dashboard(b, timeout_ms=1500) as x:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", x.page))
        deaf.sendall(request)
        with x.watch({"events": {**SUBSCRIBE["events"], "request": {"tenant": "*", "kinds": ["job_ended"]}}}) as w:
            w.next()
            until(lambda: x.value("stockade_exporter_dashboard_streams") == 2, "both are open")
            jobs = 0
            while x.value("stockade_exporter_dashboard_cut_total") == 0 and jobs < 400:
                job = c.run("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do /bin/true $i; done")
                jobs += 1
                w.until(lambda name, m: any(e["process_id"] == job.id for e in m["events"]))  # noqa: B023
            check(x.value("stockade_exporter_dashboard_cut_total") >= 1, f"cut, after {jobs} jobs")
            check(x.value("stockade_exporter_dashboard_streams") == 1, "the other one stays")
        with open(f"/proc/{x.process.pid}/statm", encoding="ascii") as f:
            check(int(f.read().split()[1]) * 4096 < 300 << 20, "its memory is bounded")
        deaf.close()
    c.close()


def calls_to_a_broker_that_hangs_are_bounded(b):
    with Dashboard(b) as x:
        check(x.call("SystemService/Info")[0] == 200, "it answers")
        b.process.send_signal(signal.SIGSTOP)
        waiting = []
        try:
            for i in range(14):
                s = socket.create_connection(("127.0.0.1", x.page), scaled(30), (f"127.0.0.{2 + i % 3}", 0))
                s.sendall(b"POST /api/call/SystemService/Info HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
                waiting.append(s)
            time_passes("they wait at the broker", 0.2)
            check(x.ask("/")[0] == 200, "the page is served meanwhile")
            waiting.pop().close()
        finally:
            b.process.send_signal(signal.SIGCONT)
        for s in waiting:
            check(b" 200 " in s.recv(100), "they are answered")
            s.close()


def an_exporter_that_ends_ends_its_streams(b):
    with Dashboard(b) as x:
        w = x.watch(SUBSCRIBE)
        w.next()
        x.process.send_signal(signal.SIGTERM)
        rest = []
        with contextlib.suppress(OSError):
            while (event := w.next()) is not None:
                rest.append(event)
        check(x.process.wait(scaled(20)) == 0, f"{rest}")
        w.connection.close()


def the_figures_for_prometheus_count_it(b):
    with Dashboard(b) as x:
        x.call("SystemService/Info")
        x.ask("/nothing")
        for name, least in (("calls_total", 1), ("refused_total", 1), ("cut_total", 0), ("streams", 0)):
            check(x.value(f"stockade_exporter_dashboard_{name}") >= least, name)


BROKER_CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\naccess: {failures_per_minute: 100000}\n"
with Broker(config=BROKER_CONFIG) as BROKER:
    CODE = run_cases([
        a_wrong_configuration_is_refused, by_default_there_is_none, another_name_is_refused, a_page_of_another_server_is_refused,
        without_a_credential_nothing_is_read, an_open_dashboard_reads_and_does_not_act, methods_outside_of_its_table_do_not_exist,
        what_is_no_request_is_refused_with_the_field, the_page_and_its_policy_are_served, a_call_has_the_rights_of_its_credential_alone,
        events_come_as_they_happen, the_output_of_a_job_is_followed, a_broker_that_restarts_ends_the_streams_and_is_found_again, streams_have_a_bound,
        a_page_that_reads_nothing_is_cut_and_slows_nobody, calls_to_a_broker_that_hangs_are_bounded, an_exporter_that_ends_ends_its_streams,
        the_figures_for_prometheus_count_it,
    ], call=lambda case: case(BROKER))
raise SystemExit(CODE)
