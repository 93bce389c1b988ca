#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The webhook of approvals: a receiver that is down, slow, refuses or redirects approves nothing, and misses nothing."""

import base64
import hashlib
import hmac
import json
import re
import shutil
import sys
import tempfile
import threading
import time

from broker import Broker
from exporter_process import Exporter, folder_of, key_in
from exporter_receiver import Receiver
from runner import check, run_cases, until
from slowness import Popen

SINK = "approvals"
SECRET = b"whatever the receiver knows"
POLICY = """
layers:
  - name: base
    rules:
      - {id: people, match: {commands: ["echo deploy* ..."]}, verdict: ask, reason: production, ask: {approvers: ["uid:0"]}}
      - {id: soon, match: {commands: ["echo soon"]}, verdict: ask, ask: {approvers: ["uid:0"], timeout: 1s}}
"""


class Hook(Exporter):
    def __init__(self, broker, name, url, more=""):
        self.folder = folder_of(broker, name)
        key = key_in(self.folder, SECRET)
        super().__init__(broker, more=f"state: {self.folder}\napprovals: {{secret_file: {key}, http: {{url: '{url}'{more}}}}}\n")


def ask(b, *words):
    """A stranger's call that needs an approval: the id of that."""
    r = b.stranger("run", "echo", *words)
    found = re.search(rb"approval ([0-9a-f]{32}) is pending", r.stderr)
    check(r.returncode != 0 and found, f"{r.stdout} {r.stderr}")
    return found[1].decode()


def events(r):
    return [json.loads(body) for body in r.bodies()]


def of(r, approval):
    return [e["type"].rsplit(".", 1)[1] for e in events(r) if e["subject"] == approval]


def without_a_key_it_does_not_start(b):
    x = Hook(b, "keyless", "http://127.0.0.1:1/")
    with open(x.path, encoding="utf-8") as f:
        text = f.read()
    with open(x.path, "w", encoding="utf-8") as f:
        f.write(text.replace(f"secret_file: {x.folder}/key, ", ""))
    try:
        with x:
            check(False, "it started")
    except AssertionError as e:
        check("secret_file" in str(e), e)


def each_change_is_one_signed_event(b):
    with Receiver() as r, Hook(b, "fine", r.url("/hook")):
        id_ = ask(b, "deploy", 'x"; \x1b[31m</script>')
        until(lambda: of(r, id_) == ["pending"], lambda: f"{events(r)}")
        check(b.cli("approvals", "deny", id_).returncode == 0, "denied")
        until(lambda: of(r, id_) == ["pending", "denied"], lambda: f"{events(r)}")
        for (path, headers, body), e in zip(r.got, events(r)):
            check(path == "/hook" and headers["Content-Type"].startswith("application/cloudevents+json"), headers)
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            mac = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
            check(headers["webhook-signature"] == f"v1,{mac}", headers)
            check(abs(int(headers["webhook-timestamp"]) - time.time()) < 600, headers)
            check(headers["webhook-id"] == e["id"] and e["specversion"] == "1.0" and e["source"], e)
            check(body.isascii() and b"\x1b" not in body, body)
        one = [e for e in events(r) if e["subject"] == id_][0]["data"]
        check("</script>" in one["untrusted"]["subject"] and one["method"] == "ProcessService/Run" and one["rule"], one)


def a_receiver_that_is_down_slow_or_refuses_gets_it_later_and_approves_nothing(b):
    with Receiver() as r:
        port = r.port
    with Hook(b, "away", f"http://127.0.0.1:{port}/", more=", timeout: 500ms") as x:
        id_, late = ask(b, "deploy-away"), ask(b, "soon")
        until(lambda: x.of_sink("retries_total", SINK) > 0, "it is tried again")
        until(lambda: b.json("approvals", "show", late)[1]["state"] == "EXPIRED", "nobody answers: expired", 20)
        check(b.stranger("run", "echo", "soon").returncode != 0, "and not allowed")
        with Receiver(port=port) as r:
            r.answers = [(500, {}, b""), (503, {"Retry-After": "1"}, b""), (429, {}, b"")]
            until(lambda: "pending" in of(r, id_) and of(r, late)[-1:] == ["expired"], lambda: f"{events(r)}", 60)
            check(len(r.refused) == 3, "500, 503 and 429 are tried again")
            ids = [h["webhook-id"] for _, h, _ in r.refused]
            check(set(ids) == {r.got[0][1]["webhook-id"]}, "with the same id")
            r.stall = threading.Event()
            slow = ask(b, "deploy-slow")
            before = x.of_sink("retries_total", SINK)
            until(lambda: x.of_sink("retries_total", SINK) > before, "one that hangs is given up, and tried again", 30)
            r.stall.set()
            until(lambda: "pending" in of(r, slow), "and gets it", 60)
        check(b.json("approvals", "show", id_)[1]["state"] == "PENDING", "still nobody has agreed")


def a_redirect_is_not_followed(b):
    with Receiver() as r, Receiver() as other:
        r.answers = [(307, {"Location": other.url("/")}, b"")]
        with Hook(b, "redirect", r.url("/")) as x:
            ask(b, "deploy-elsewhere")
            until(lambda: x.of_sink("refused_total", SINK) > 0, "it is refused")
        check(not other.got and not other.refused, "nothing went elsewhere")


def nothing_is_missing_after_kill_and_restart(b):
    with Receiver() as r:
        with Hook(b, "killed", r.url("/")) as x:
            first = ask(b, "deploy-first")
            until(lambda: of(r, first) == ["pending"], "the first comes")
            x.process.kill()
            x.process.wait()
            x.process = Popen(["true"])  # which ends in good order in its place
            x.process.wait()
        second = ask(b, "deploy-second")
        check(b.cli("approvals", "deny", first).returncode == 0, "denied meanwhile")
        with Hook(b, "killed", r.url("/")):
            until(lambda: "denied" in of(r, first) and of(r, second) == ["pending"], lambda: f"{events(r)}", 30)


def main():
    folder = tempfile.mkdtemp(prefix="stockade-hook-")
    with open(f"{folder}/policy.yaml", "w", encoding="utf-8") as f:
        f.write(POLICY)
    config = f"socket: {{mode: 0666}}\nmetrics: {{reader: nobody}}\npolicy_files: [{folder}/policy.yaml]\n"
    with Broker(config=config) as b:
        code = run_cases([without_a_key_it_does_not_start, each_change_is_one_signed_event,
                          a_receiver_that_is_down_slow_or_refuses_gets_it_later_and_approves_nothing,
                          a_redirect_is_not_followed, nothing_is_missing_after_kill_and_restart], lambda case: case(b))
    shutil.rmtree(folder)
    sys.exit(code)


main()
