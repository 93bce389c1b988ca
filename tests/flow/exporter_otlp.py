#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""OTLP: logs, traces and metrics as a collector reads them, the caller's trace, partial success, TLS with certificates of both
sides, and the environment variables of OpenTelemetry. The messages are decoded with the package opentelemetry-proto where it is
installed, otherwise with what protoc makes of the .proto files of the exporter."""

import os
import re
import shutil
import ssl
import subprocess

from api import with_client
from broker import Broker
from exporter_judges import messages
from exporter_process import NOBODY, Exporter, as_nobody, folder_of
from exporter_receiver import Receiver
from runner import check, run_cases, until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARTS = ["queue", "set up", "exec", "collect"]


class Otlp(Exporter):
    def __init__(self, broker, name, url, more="", http=""):
        self.folder = folder_of(broker, name)
        http = f"http: {{url: '{url}', queue: 1M{http}}}, " if url else ""
        super().__init__(broker, more=f"state: {self.folder}\notlp: {{{http}interval: 1s{more}}}\n")

    def __enter__(self):
        super().__enter__()
        until(lambda: self.value("stockade_exporter_broker_up") == 1, "it reads")
        return self


def records(r):
    """Every log record, and the resource of its request."""
    return [(record, resource.resource) for body in r.bodies("/v1/logs") for resource in LOGS.FromString(body).resource_logs
            for scope in resource.scope_logs for record in scope.log_records]


def spans(r, path="/v1/traces"):
    return [span for body in r.bodies(path) for resource in TRACES.FromString(body).resource_spans
            for scope in resource.scope_spans for span in scope.spans]


def metrics(r):
    return [m for body in r.bodies("/v1/metrics") for resource in METRICS.FromString(body).resource_metrics
            for scope in resource.scope_metrics for m in scope.metrics]


def attributes(of):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}


def ended(r):
    return {attributes(record)["stockade.process.id"] for record, _ in records(r) if record.event_name == "stockade.job_ended"}


def subscribed(c, r):
    until(lambda: c.run("exit 0").id and ended(r), "events arrive")


# ---- refusals


def wrong_variables_are_refused_by_name_and_not_by_value(b, c):
    path = f"{b.folder}/empty.yaml"
    with open(path, "w", encoding="utf-8") as f:
        f.write("prometheus: {listen: ''}\n")
    for name, value, said in (("ENDPOINT", "hunter2:4318", "must be a URL"), ("ENDPOINT", "http://u:hunter2@x/", "user or a password"),
                              ("HEADERS", "hunter2", "key=value"), ("HEADERS", "a=%zzhunter2", "percent"), ("TIMEOUT", "hunter2", "milliseconds"),
                              ("LOGS_TIMEOUT", "-1", "milliseconds"), ("COMPRESSION", "hunter2", "gzip or none"),
                              ("PROTOCOL", "grpc", "http/protobuf"), ("METRICS_PROTOCOL", "http/json", "http/protobuf")):
        name = f"OTEL_EXPORTER_OTLP_{name}"
        r = as_nobody("--check-config", "--config", path, env={**os.environ, name: value})
        check(r.returncode == 78 and said in r.stderr.decode() and name in r.stderr.decode() and b"hunter2" not in r.stderr, f"{name}: {r}")
    r = as_nobody("--check-config", "--config", path, env={**os.environ, "OTEL_LOGS_EXPORTER": "console"})
    check(r.returncode == 78 and b"OTEL_LOGS_EXPORTER: must be otlp or none" in r.stderr, str(r))
    check(as_nobody("--check-config", "--config", path, env={**os.environ, "OTEL_LOGS_EXPORTER": "none"}).returncode == 0, "none")


# ---- the three signals


def each_event_is_a_record_with_its_name_and_its_trace(b, c):
    with Receiver() as r, Otlp(b, "logs", r.url(), ", service: blue") as x:
        subscribed(c, r)
        job = c.run("cat /etc/shadow; exit 3")
        until(lambda: job.id in ended(r), "its end arrives")
        ours = [(record, attributes(record)) for record, _ in records(r) if attributes(record).get("stockade.process.id") == job.id]
        names = {record.event_name for record, _ in ours}
        check(names >= {"stockade.job_started", "stockade.job_ended", "stockade.exec", "stockade.sensitive_open", "stockade.finding"}, str(names))
        for record, of in ours:
            check(record.trace_id.hex() in (job.id, "") and len(record.span_id) in (8, 0), f"{record}")
            check(of["stockade.tenant"] == "uid:0" and of["stockade.template"] == "default" and record.time_unix_nano > 0, str(of))
        end = dict((record.event_name, of) for record, of in ours)["stockade.job_ended"]
        check(end["process.exit.code"] == 3 and end["stockade.outcome"] == "EXITED", str(end))
        path = dict((record.event_name, of) for record, of in ours)["stockade.sensitive_open"]
        check(path["file.path"] == "/etc/shadow", str(path))
        finding = next(record for record, _ in ours if record.event_name == "stockade.finding")
        check(finding.severity_number >= 13 and finding.body.string_value, str(finding))
        resource = attributes(records(r)[0][1])
        check(resource["service.name"] == "blue" and "host.name" in resource, str(resource))
        uids = [attributes(record)["log.record.uid"] for record, _ in records(r)]
        check(len(uids) == len(set(uids)) == x.of_sink("sent_total", "otlp-logs"), "each once, and as many as were counted")


def a_run_is_five_spans_with_its_bill(b, c):
    with Receiver() as r, Otlp(b, "traces", r.url()):
        subscribed(c, r)
        job = c.run("sleep 0.05; exit 0")
        mine = until(lambda: [s for s in spans(r) if s.trace_id.hex() == job.id], "its trace arrives")
        root, parts = mine[0], mine[1:]
        check(root.name == "run" and root.kind == 2 and not root.parent_span_id and [s.name for s in parts] == PARTS, str(mine))
        check(all(s.parent_span_id == root.span_id for s in parts) and len({s.span_id for s in mine}) == 5, "one tree")
        at = root.start_time_unix_nano
        for s in parts:
            check(s.start_time_unix_nano == at <= s.end_time_unix_nano, f"{s.name} begins where the one before it ended")
            at = s.end_time_unix_nano
        check(at == root.end_time_unix_nano, "and the last one ends the run")
        of, bill = attributes(root), job.result.bill
        check(of["stockade.bill.cpu_user_ns"] == bill.cpu_user_ns.value and of["stockade.bill.queue_us"] == bill.queue_us.value, f"{of} {bill}")
        check(of["process.exit.code"] == 0 and root.status.code == 0, str(root))
        lasts = (parts[2].end_time_unix_nano - parts[2].start_time_unix_nano) / 1e3
        check(abs(lasts - bill.wall_us.value) <= 1, f"{lasts} {bill.wall_us.value}")


def the_trace_of_the_caller_is_its_parent(b, c):
    run = ["run", "--", "/bin/true"]
    with Receiver() as r, Otlp(b, "parent", r.url()) as x:
        subscribed(c, r)
        for trace, recorded in ((f"00-{TRACE}-{SPAN}-01", True), (f"00-{TRACE[::-1]}-{SPAN}-00", False)):
            check(b.cli(*run, env={**os.environ, "TRACEPARENT": trace}).returncode == 0, "it runs")
        for wrong in ("hunter2", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-x", f"ff-{TRACE}-{SPAN}-01"):
            check(b.cli(*run, env={**os.environ, "TRACEPARENT": wrong}).returncode == 0, f"{wrong} is ignored")
        job = c.finish(c.stream("Run", {"command": c.shell("exit 0")}, metadata={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}))
        until(lambda: any(s.trace_id.hex() == "1" * 32 for s in spans(r)), "the last one arrives")
        found = [s for s in spans(r) if s.trace_id.hex() == TRACE]
        check(len(found) == 5 and found[0].parent_span_id.hex() == SPAN, str(found))
        check(not [s for s in spans(r) if s.trace_id.hex() == TRACE[::-1]], "what its caller does not record is left out")
        until(lambda: job.id in ended(r), "its events arrive")
        mine = [record for record, _ in records(r) if attributes(record).get("stockade.process.id") == job.id]
        # what the kernel reports before the guest has said that the job runs has no trace yet
        check({record.trace_id.hex() for record in mine} <= {"1" * 32, ""} and mine[-1].trace_id, f"events are in the trace of the caller: {mine}")
        exposed = x.get(headers={"Accept": "application/openmetrics-text"})[2]
        check(f'trace_id="{"1" * 32}"' in exposed, "and so is the exemplar")


def metrics_are_those_of_the_broker(b, c):
    with Receiver() as r, Otlp(b, "metrics", r.url(), ", logs: false, traces: false") as x:
        c.run("exit 0")
        until(lambda: {"stockade_jobs_started", "stockade_exporter_sent"} <= {m.name for m in metrics(r)}, "they arrive")
        shown = b.cli("metrics", "--prometheus").stdout.decode()
        started = int(re.search(r"^stockade_jobs_started_total (\d+)$", shown, re.M)[1])
        until(lambda: [m for m in metrics(r) if m.name == "stockade_jobs_started" and m.sum.data_points[0].as_double == started],
              "the same number")
        by_name = {m.name: m for m in metrics(r)}
        jobs = by_name["stockade_jobs_started"].sum
        check(jobs.is_monotonic and jobs.aggregation_temporality == 2 and jobs.data_points[0].start_time_unix_nano > 0, str(jobs))
        time = by_name["stockade_job_duration_seconds"]
        point = time.histogram.data_points[0]
        check(time.unit == "s" and len(point.bucket_counts) == len(point.explicit_bounds) + 1 and sum(point.bucket_counts) == point.count > 0,
              str(time))
        check(by_name["stockade_exporter_broker_up"].gauge.data_points[0].as_double == 1, "and the exporter's own")
        check(not r.bodies("/v1/logs") and not r.bodies("/v1/traces"), "and nothing else")
        check(x.of_sink("sent_total", "otlp-metrics") >= 2, "they are counted")


def what_a_receiver_rejects_is_counted(b, c):
    """Partial success: 2 records of the first request, with a reason."""
    reason = b"two are \x1bwrong"
    inner = b"\x08\x02\x12" + bytes([len(reason)]) + reason
    with Receiver() as r, Otlp(b, "partial", r.url(), ", traces: false, metrics: false") as x:
        r.answers = [(200, {}, b"\x0a" + bytes([len(inner)]) + inner), (200, {}, b"\xff" * 100), (200, {}, b"x" * 100000)]
        subscribed(c, r)
        until(lambda: c.run("exit 0") and len(r.got) > 3 and x.of_sink("queue_records", "otlp-logs") == 0, "more arrive")
        check(x.of_sink("refused_total", "otlp-logs") == 2, "two were refused")
        check("the receiver accepted a part only: two are ?wrong" in x.log(), x.log())
        check(x.of_sink("retries_total", "otlp-logs") == 0, "and not sent again")


# ---- connections


def certificates(folder):
    """A CA, and certificates of 127.0.0.1 and of the exporter."""
    def openssl(*argv):
        subprocess.run(["openssl", *argv], check=True, capture_output=True, cwd=folder)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=ca", "-days", "2")
    for name, more in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")
        with open(f"{folder}/{name}.ext", "w", encoding="utf-8") as f:
            f.write(more)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", "2", "-extfile", f"{name}.ext")
    for f in os.listdir(folder):
        shutil.chown(f"{folder}/{f}", NOBODY)


def both_sides_show_a_certificate(b, c):
    folder = f"{b.folder}/tls"
    os.makedirs(folder)
    os.chmod(folder, 0o755)
    certificates(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{folder}/server.pem", f"{folder}/server.key")
    tls.load_verify_locations(f"{folder}/ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    own = f", certificate_file: {folder}/client.pem, key_file: {folder}/client.key"
    with Receiver(tls=tls) as r:
        for name, http in (("no-ca", own), ("no-certificate", f", ca_file: {folder}/ca.pem")):
            with Otlp(b, name, r.url(), http=http) as x:
                until(lambda: c.run("exit 0") and x.of_sink("retries_total", "otlp-logs") > 0, "it is refused")
                check(not r.got, "nothing arrives")
        with Otlp(b, "mutual", r.url(), http=f", ca_file: {folder}/ca.pem{own}, compression: gzip") as x:
            subscribed(c, r)
            until(lambda: x.of_sink("receiver_up", "otlp-logs") == 1, "it is accepted")


def the_environment_is_enough(b, c):
    with Receiver() as r, Receiver() as other:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": r.url("/base/"), "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hunter2,x-a=b",
                     "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": other.url("/own"),
                     "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-a=c", "OTEL_METRICS_EXPORTER": "none",
                     "OTEL_SERVICE_NAME": "green", "OTEL_RESOURCE_ATTRIBUTES": "service.name=no,deployment.environment.name=a%2Cb"}
        os.environ.update(variables)
        try:
            with Otlp(b, "environment", "") as x:
                until(lambda: c.run("exit 0") and r.bodies("/base/v1/logs") and other.bodies("/own"), "both arrive")
                check("hunter2" not in x.log() and x.of_sink("sent_total", "otlp-metrics") is None, x.log())
        finally:
            for name in variables:
                del os.environ[name]
        _, headers, body = r.got[0]
        check(headers["Authorization"] == "Bearer hunter2" and headers["x-a"] == "b" and headers["Content-Encoding"] == "gzip" and
              headers["Content-Type"] == "application/x-protobuf", str(headers))
        check(other.got[0][1]["x-a"] == "c" and "Authorization" not in other.got[0][1], str(other.got[0][1]))
        resource = attributes(LOGS.FromString(body).resource_logs[0].resource)
        check(resource["service.name"] == "green" and resource["deployment.environment.name"] == "a,b", str(resource))


CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n"
with Broker(config=CONFIG) as BROKER:
    LOGS, TRACES, METRICS = messages(BROKER.folder)
    CODE = run_cases([
        wrong_variables_are_refused_by_name_and_not_by_value, each_event_is_a_record_with_its_name_and_its_trace,
        a_run_is_five_spans_with_its_bill, the_trace_of_the_caller_is_its_parent, metrics_are_those_of_the_broker,
        what_a_receiver_rejects_is_counted, both_sides_show_a_certificate, the_environment_is_enough,
    ], call=with_client(BROKER))
raise SystemExit(CODE)
