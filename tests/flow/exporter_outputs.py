#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CloudEvents and Falco's alerts: what they say, their signature, strings of jobs, kinds, and what a receiver that is away, refuses or
redirects misses."""

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import stat
import time

from api import with_client
from broker import Broker
from exporter_process import Exporter, as_nobody, folder_of, key_in
from exporter_receiver import Receiver
from runner import check, run_cases, until

SECRET = b"whatever the receiver knows"
# The job chooses its name, its arguments and the path: escapes of terminals, markup, a line break, and bytes that are no UTF-8.
HOSTILE = r"""cp /bin/cat "$(printf '/tmp/<b>\033[31m\n{x')"; "/tmp/"*x /etc/shadow "$(printf '"</script>\377\342\200\256')"; true"""
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")


class Output(Exporter):
    """An exporter with a folder of its own for each case; {key} in the text is the path of a key, {folder} the folder."""

    def __init__(self, broker, name, text):
        self.folder = folder_of(broker, name)
        key = key_in(self.folder, SECRET)
        text = text.replace("{key}", key).replace("{folder}", self.folder)
        super().__init__(broker, more=f"state: {self.folder}\n{text}\n")

    def __enter__(self):
        super().__enter__()
        until(lambda: self.value("stockade_exporter_broker_up") == 1, "it reads")
        return self

    def balanced(self, sink):
        names = ("sent_total", "refused_total", "queue_dropped_total", "queue_records")
        return self.of_sink("sink_events_total", sink) == sum(self.of_sink(name, sink) for name in names)


def bodies(r):
    return [json.loads(body) for body in r.bodies()]


def finding(c, found):
    """Jobs with a finding, until one of them is found: what found() returns."""
    until(lambda: c.run(HOSTILE).id and found(), "a finding arrives")
    return found()


def plain(raw):
    return all(b == 10 or 32 <= b < 127 for b in raw)


# ---- refusals


def wrong_settings_are_refused_with_their_place(b, c):
    path = f"{b.folder}/wrong.yaml"
    for text, said in (("cloudevents: {kinds: [finding, nothing]}", "1:32: must be an event kind"),
                       ("cloudevents: {kinds: []}", "kinds: must be a list"), ("cloudevents: {kinds: finding}", "kinds: must be a list"),
                       ("cloudevents: {kinds: [unspecified]}", ": must be an event kind"),
                       (f"cloudevents: {{kinds: [{'x' * 500}]}}", ": must be an event kind"),
                       (f"cloudevents: {{kinds: [{', '.join(['sandbox_created'] * 40)}]}}", ": are too many"),
                       ("cloudevents: {http: {url: 'ftp://x/'}}", "url: must be a URL"),
                       ("cloudevents: {secret_file: here}", "secret_file: must be an absolute path"),
                       ("falco: {file: here}", "file: must be an absolute path"), ("falco: {severity: bad}", "severity:"),
                       ("falco: {secret_file: /x}", "secret_file: there is no such key"), ("falco: {size: 1K}", "size: must be from")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        r = as_nobody("--check-config", "--config", path)
        check(r.returncode == 78 and said in r.stderr.decode(), f"{text!r}: {r}")
    with open(path, "w", encoding="utf-8") as f:
        f.write("cloudevents: {kinds: [Finding, job_ended, all], http: {url: 'http://x/'}}\nfalco: {file: /tmp/x, http: {url: 'http://x/'}}\n")
    check(as_nobody("--check-config", "--config", path).returncode == 0, "and right ones are not")


def a_key_that_others_may_read_is_refused(b, c):
    x = Output(b, "key", "cloudevents: {secret_file: {key}, http: {url: 'http://127.0.0.1:1/'}}")
    os.chmod(f"{x.folder}/key", 0o644)
    try:
        with x:
            raise RuntimeError("it started")
    except AssertionError as why:
        check("others may read" in str(why) and SECRET.decode() not in str(why), str(why))


def a_redirect_is_not_followed(b, c):
    with Receiver() as other, Receiver() as r:
        r.answers = [(307, {"Location": other.url("/")}, b"")] * 2
        with Output(b, "redirect", f"cloudevents: {{http: {{url: '{r.url()}'}}}}\nfalco: {{http: {{url: '{r.url()}'}}}}") as x:
            finding(c, lambda: x.of_sink("refused_total", "cloudevents") + x.of_sink("refused_total", "falco-http") >= 2)
        check(not other.got and not other.refused, "nothing went elsewhere")


# ---- CloudEvents


def a_finding_is_a_signed_cloudevent(b, c):
    with Receiver() as r, Output(b, "signed", f"cloudevents: {{secret_file: {{key}}, http: {{url: '{r.url('/hook')}'}}}}") as x:
        finding(c, lambda: any("shadow" in json.dumps(e) for e in bodies(r)))
        for path, headers, body in list(r.got):
            e = json.loads(body)
            check(path == "/hook" and headers["Content-Type"].startswith("application/cloudevents+json"), headers)
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            mac = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
            check(headers["webhook-signature"] == f"v1,{mac}" and headers["webhook-id"] == e["id"], headers)
            check(abs(int(headers["webhook-timestamp"]) - time.time()) < 600, headers)
            check(e["specversion"] == "1.0" and e["source"] == "/stockade/events" and e["type"] == "dev.stockade.event.finding", e)
            check(RFC3339.fullmatch(e["time"]) and e["subject"] == e["data"]["sandbox_id"] and e["datacontenttype"] == "application/json", e)
            data = e["data"]
            check(data["kind"] == "FINDING" and data["severity"] in ("notice", "warning", "critical") and data["rule"] and
                  data["tenant"] == "uid:0" and data["untrusted"]["details"]["rule"] == data["rule"], e)
            check(plain(body), body)
            check("comm" not in data and "text" not in data, "strings of the job are apart")
        ids = [e["id"] for e in bodies(r)]
        check(len(ids) == len(set(ids)), "each once")
        until(lambda: x.of_sink("queue_records", "cloudevents") == 0 and x.balanced("cloudevents"), "and counted")
        check(x.of_sink("sent_total", "cloudevents") == len(r.got), "as many as arrived")


def without_a_key_nothing_is_signed(b, c):
    with Receiver() as r, Output(b, "unsigned", f"cloudevents: {{http: {{url: '{r.url()}'}}}}"):
        finding(c, lambda: bodies(r))
        check("webhook-signature" not in r.got[0][1], r.got[0][1])


def only_the_configured_kinds_are_sent(b, c):
    with Receiver() as r, Receiver() as every:
        with Output(b, "kinds", f"cloudevents: {{kinds: [job_started, JOB_ENDED], http: {{url: '{r.url()}'}}}}"):
            finding(c, lambda: len(bodies(r)) >= 4)
        kinds = {e["data"]["kind"] for e in bodies(r)}
        check(kinds == {"JOB_STARTED", "JOB_ENDED"} and {e["type"] for e in bodies(r)} ==
              {"dev.stockade.event.job_started", "dev.stockade.event.job_ended"}, f"{kinds}")
        with Output(b, "every", f"cloudevents: {{kinds: [all], severity: info, http: {{url: '{every.url()}'}}}}"):
            finding(c, lambda: any(e["data"]["kind"] == "FINDING" for e in bodies(every)))
        check({e["data"]["kind"] for e in bodies(every)} >= {"JOB_STARTED", "EXEC", "SENSITIVE_OPEN", "FINDING"}, "all kinds")
        check(all(plain(body) for body in every.bodies()), "nothing but printable ASCII")
        # The job's own strings arrive as they are, as data.
        paths = [e["data"]["untrusted"]["details"].get("path", "") for e in bodies(every) if e["data"]["kind"] == "EXEC"]
        check(any("\x1b[31m" in p or "<b>" in p for p in paths), f"{set(paths)}")


# ---- Falco


def a_finding_is_an_alert_as_falco_writes_it(b, c):
    text = "falco: {file: {folder}/falco.jsonl, http: {url: '%s'}}"
    with Receiver() as r, Output(b, "falco", text % r.url("/")) as x:
        c.run("exit 0", metadata={"team": "<!channel>"})
        finding(c, lambda: any("shadow" in json.dumps(e) for e in bodies(r)))
        raw = open(f"{x.folder}/falco.jsonl", "rb").read()
        until(lambda: {e["output"] for e in bodies(r)} >= {json.loads(line)["output"] for line in raw.splitlines()}, "as in the file")
        check(plain(raw) and stat.S_IMODE(os.stat(f"{x.folder}/falco.jsonl").st_mode) == 0o600, "lines of ASCII, 0600")
        for path, headers, body in list(r.got):
            e = json.loads(body)
            check(path == "/" and headers["Content-Type"] == "application/json", headers)
            # What falcosidekick wants of an alert.
            check(set(e) == {"hostname", "output", "output_fields", "priority", "rule", "source", "tags", "time"}, e)
            check(RFC3339.fullmatch(e["time"]) and e["priority"] in ("Notice", "Warning", "Critical") and e["hostname"] == socket.gethostname(), e)
            check(e["source"] == "stockade" and e["tags"][0] == "stockade" and e["rule"] == e["output_fields"]["stockade.rule"], e)
            check(e["rule"] != "sensitive-path" or e["tags"] == ["stockade", "T1552.001"], e)
            check(e["output"].isascii() and e["output"].isprintable() and len(e["output"]) < 1024 and
                  re.match(r"\d\d:\d\d:\d\d\.\d{9}: " + e["priority"] + " ", e["output"]), e)
            check(e["output_fields"]["container.id"] and e["output_fields"]["stockade.tenant"] == "uid:0" and
                  e["output_fields"]["proc.pid"] > 0, e)
        until(lambda: all(x.balanced(s) for s in ("falco-http",)) and x.of_sink("queue_records", "falco-http") == 0, "and counted")
        check(x.of_sink("sink_events_total", "falco-file") == len(open(f"{x.folder}/falco.jsonl", "rb").read().splitlines()), "as many lines")


def only_the_configured_severity_is_written(b, c):
    with Output(b, "severity", "falco: {file: {folder}/all}") as x:
        finding(c, lambda: os.path.getsize(f"{x.folder}/all"))
    with Output(b, "severity2", "falco: {file: {folder}/some, severity: critical}") as x:
        ended = x.value("stockade_exporter_events_total")
        c.run(HOSTILE)
        until(lambda: x.value("stockade_exporter_events_total") > ended, "events come")
        some = open(f"{x.folder}/some", encoding="ascii").read().splitlines()
        check(all(json.loads(line)["priority"] == "Critical" for line in some), f"{some}")


# ---- Delivery


def nothing_is_missing_after_kill_9_and_a_receiver_that_was_away(b, c):
    with Receiver() as r:
        port = r.port
    url = f"http://127.0.0.1:{port}"
    text = f"cloudevents: {{kinds: [finding, job_ended], secret_file: {{key}}, http: {{url: '{url}/ce'}}}}\nfalco: {{http: {{url: '{url}/falco'}}}}"
    with Output(b, "away", text) as x:
        until(lambda: c.run(HOSTILE).id and x.of_sink("sink_events_total", "falco-http") > 0, "a finding is taken")
        ids = {c.run("exit 0").id for _ in range(5)}
        until(lambda: x.of_sink("queue_records", "cloudevents") >= 5 and x.of_sink("retries_total", "falco-http") > 0, "they wait")
        x.process.kill()
        x.process.wait()
        ids |= {c.run("exit 0").id for _ in range(5)}
        Exporter.__enter__(x)
        waited = x.of_sink("queue_records", "falco-http")
        with Receiver(port=port) as r:
            r.answers = [(500, {}, b""), (503, {"Retry-After": "1"}, b"")]

            def ended():
                return {e["data"]["process_id"] for e in map(json.loads, r.bodies("/ce")) if e["data"]["kind"] == "JOB_ENDED"}

            until(lambda: ids <= ended(), "all ends of jobs arrive", 60)
            until(lambda: not x.of_sink("queue_records", "falco-http") and not x.of_sink("queue_records", "cloudevents"), "queues", 60)
            check(len(r.bodies("/falco")) >= waited > 0, "the findings that waited too")
            events = [json.loads(body) for body in r.bodies("/ce")]
            check(len(events) - len({e["id"] for e in events}) <= 1, "one at most twice")
            check(all(e["type"] != "dev.stockade.events_missed" for e in events), "and no gap")


def what_is_missing_is_an_event_of_its_own(b, c):
    """A broker that is restarted while the exporter is away."""
    with Receiver() as r:
        text = f"cloudevents: {{http: {{url: '{r.url('/ce')}'}}}}\nfalco: {{http: {{url: '{r.url('/falco')}'}}}}"
        with Output(b, "gap", text):
            finding(c, lambda: r.bodies("/ce") and r.bodies("/falco"))
        b.stop()
        b.start()
        with Output(b, "gap", text):
            until(lambda: any(json.loads(e)["type"] == "dev.stockade.events_missed" for e in r.bodies("/ce")), "CloudEvents say it")
            until(lambda: any("missed" in json.loads(e)["rule"] for e in r.bodies("/falco")), "and Falco's alerts")
        gap = [json.loads(e) for e in r.bodies("/ce") if b"missed" in e][0]
        check(gap["data"]["reason"] and gap["id"].startswith("missed-"), gap)
        alert = [json.loads(e) for e in r.bodies("/falco") if b"internal" in e][0]
        check(alert["priority"] == "Warning" and alert["output"] and RFC3339.fullmatch(alert["time"]), alert)


CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n"
with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        wrong_settings_are_refused_with_their_place, a_key_that_others_may_read_is_refused, a_redirect_is_not_followed,
        a_finding_is_a_signed_cloudevent, without_a_key_nothing_is_signed, only_the_configured_kinds_are_sent,
        a_finding_is_an_alert_as_falco_writes_it, only_the_configured_severity_is_written,
        nothing_is_missing_after_kill_9_and_a_receiver_that_was_away, what_is_missing_is_an_event_of_its_own,
    ], call=with_client(BROKER))
raise SystemExit(CODE)
