#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All outputs at once: Prometheus, and receivers of OTLP, OCSF and CloudEvents beside one broker under load; each is killed and started
again, and so is the exporter. What has arrived in the end is what the broker has counted, or the difference is what the counters of
losses say."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import sp
from api import connect
from broker import Broker, skip
from exporter_judges import messages, ocsf_judge
from exporter_process import NOBODY, Exporter
from exporter_receiver import Collector, Receiver
from runner import Skipped, check, run_cases, until
from slowness import Popen, scaled

AWAY_S = 0.7  # each is away, while jobs run
SINKS = ("ocsf-http", "otlp-logs", "cloudevents")
WORK = ("exit 0", "cat /etc/shadow; exit 3", "/bin/true; /bin/true")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus:
    """Debian's, with a store that outlives it."""

    def __init__(self, folder, target):
        self.folder, self.port = f"{folder}/prometheus", free_port()
        os.makedirs(self.folder)
        with open(f"{self.folder}/prometheus.yml", "w", encoding="utf-8") as f:
            f.write("global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
                    f"scrape_configs: [{{job_name: stockade, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n")

    def start(self):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = Popen([shutil.which("prometheus"), f"--config.file={self.folder}/prometheus.yml", "--log.level=warn",
                                  f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address=127.0.0.1:{self.port}"],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def value(self, query, at=None):
        """Of an expression with one result; None: there is none, or Prometheus is not ready."""
        form = {"query": query} if at is None else {"query": query, "time": at}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode(form)}", timeout=scaled(10)) as r:
                found = json.load(r)["data"]["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None


class Everything(Exporter):
    """The exporter with all sinks, on a port that outlives it."""

    def __init__(self, broker, ocsf, otlp, cloudevents):
        self.folder = f"{broker.folder}/exporter"
        os.makedirs(self.folder)
        os.chown(self.folder, NOBODY, NOBODY)
        super().__init__(broker, more=f"state: {self.folder}\nocsf: {{http: {{url: '{ocsf}'}}}}\notlp: {{http: {{url: '{otlp}'}}, interval: 1s}}\n"
                         f"cloudevents: {{kinds: [job_ended, finding], http: {{url: '{cloudevents}'}}}}\nfalco: {{file: {self.folder}/falco}}\n")
        self.port = free_port()
        with open(self.path, encoding="utf-8") as f:
            text = f.read().replace("127.0.0.1:0", f"127.0.0.1:{self.port}")
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)

    def lost(self):
        """Events that some sink never got since this start, by the exporter's own counters."""
        names = ("sink_missed_total", "queue_dropped_total", "refused_total", "queue_damaged_total")
        return {s: sum(self.of_sink(name, s) for name in names) for s in SINKS}


class Load:
    """Two clients that run jobs until they are told to end."""

    def __init__(self, broker):
        self.end, self.ids, self.failed = threading.Event(), [], []
        self.threads = [threading.Thread(target=self.work, args=(broker, i)) for i in range(2)]

    def work(self, broker, i):
        try:
            c = connect(broker)
            while not self.end.is_set():
                self.ids.append(c.run(WORK[len(self.ids) % len(WORK)]).id)
                time.sleep(0.02)
            c.close()
        except (OSError, AssertionError, sp.Failed) as why:
            self.failed.append(why)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        for t in self.threads:
            t.join()


# ---- What has arrived, each event once: its number, and whether it is the end of a job or a finding


def of_ocsf(r):
    lines = [json.loads(line) for body in r.bodies() for line in body.splitlines()]
    return {e["metadata"]["uid"]: e["unmapped"]["kind"] for e in lines if "unmapped" in e}, [e for e in lines if "unmapped" not in e]


def otlp_records(r):
    return [record for body in r.bodies("/v1/logs") for resource in LOGS.FromString(body).resource_logs
            for scope in resource.scope_logs for record in scope.log_records]


def kind_of(record):
    return record.event_name.removeprefix("stockade.").upper()


def of_otlp(r):
    found, gaps = {}, []
    for record in otlp_records(r):
        uid = [a.value.string_value for a in record.attributes if a.key == "log.record.uid"]
        if uid:
            found[uid[0]] = kind_of(record)
        else:
            gaps.append(record)
    return found, gaps


def of_cloudevents(r):
    all_ = [json.loads(body) for body in r.bodies()]
    return {e["id"]: e["data"]["kind"] for e in all_ if "kind" in e["data"]}, [e for e in all_ if "kind" not in e["data"]]


def falco_lines(x):
    with open(f"{x.folder}/falco", encoding="ascii") as f:
        return f.readlines()


def of_falco(x):
    fields = [json.loads(line)["output_fields"] for line in falco_lines(x)]
    return {f"{e['stockade.instance']}-{e['stockade.event']}": "FINDING" for e in fields if "stockade.event" in e}


def count(found, kind):
    return sum(k == kind for k in found.values())


def counted(b):
    """What the broker says: ends of jobs, and findings."""
    text = b.cli("metrics", "--prometheus").stdout.decode()
    return [sum(float(n) for n in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))
            for name in ("stockade_jobs_ended_total", "stockade_findings_total")]


def kinds(found):
    return [count(found, k) for k in ("JOB_ENDED", "FINDING")]


def text_of(r):
    return [line for body in r.bodies() for line in body.decode().splitlines()]


def of_jobs(ocsf, otlp, ce):
    """By sink: the kind of each event that has arrived, and its text, which has the job's id."""
    return {"ocsf-http": lambda: [(e["unmapped"]["kind"], str(e)) for body in ocsf.bodies() for e in map(json.loads, body.splitlines()) if "unmapped" in e],
            "otlp-logs": lambda: [(kind_of(record), str(record)) for record in otlp_records(otlp)],
            "cloudevents": lambda: [(e["data"]["kind"], str(e)) for e in map(json.loads, ce.bodies()) if "kind" in e["data"]]}


def markers_arrive(c, jobs):
    """In every sink: a finding, and the end of a later job. Events keep their order, so nothing of before is under way. The first job."""
    found, ended = c.run("cat /etc/shadow").id, c.run("exit 0").id
    for sink, events in jobs.items():
        until(lambda events=events: all(any(kind == want and id_ in text for kind, text in events())
                                        for want, id_ in (("FINDING", found), ("JOB_ENDED", ended))), f"{sink}: the markers arrive", 60)
    return found


def quiet(b, x, outputs):
    """The time, what the broker has counted and what has arrived, if nothing is under way."""
    at, base = time.time(), counted(b)
    before = {s: kinds(f()[0]) for s, f in outputs.items()}
    waits = any(x.of_sink("queue_records", s) for s in SINKS)
    return None if waits or base != counted(b) else (at, base, before)


def metric_of_otlp(r, name):
    """The last value that was exported."""
    value = 0
    for body in r.bodies("/v1/metrics"):
        for resource in METRICS.FromString(body).resource_metrics:
            for m in (m for scope in resource.scope_metrics for m in scope.metrics if m.name == name):
                value = sum(p.as_double or p.as_int for p in m.sum.data_points)
    return value


def restart_each(x, prometheus, receivers, load):
    def jobs_run(what):
        before = len(load.ids)
        until(lambda: load.failed or len(load.ids) > before + 3, f"jobs run while {what} is away")
        time.sleep(scaled(AWAY_S))

    for r in receivers:
        r.__exit__()
        jobs_run("a receiver")
        r.__enter__()
    prometheus.kill()
    jobs_run("Prometheus")
    prometheus.start()
    x.process.send_signal(signal.SIGKILL)
    x.process.wait()
    jobs_run("the exporter")
    Exporter.__enter__(x)
    receivers[0].answers = [(400, {}, b"")]  # a batch is lost, which the exporter counts
    jobs_run("nobody")


def otlp_receiver(b):
    """OpenTelemetry's collector stands before it, where there is one."""
    program = os.environ.get("STOCKADE_COLLECTOR")
    return Collector(b.folder, program) if program else Receiver()


def what_arrives_is_what_the_broker_has_counted(b):
    c = connect(b)
    with Receiver() as ocsf, otlp_receiver(b) as otlp, Receiver() as ce, Everything(b, ocsf.url("/"), otlp.url(), ce.url("/")) as x:
        prometheus = Prometheus(b.folder, x.port)
        prometheus.start()
        try:
            outputs = {"ocsf-http": lambda: of_ocsf(ocsf), "otlp-logs": lambda: of_otlp(otlp), "cloudevents": lambda: of_cloudevents(ce)}
            until(lambda: c.run("cat /etc/shadow").id and all(count(f()[0], "FINDING") for f in outputs.values()) and of_falco(x), "events arrive")
            marker = markers_arrive(c, of_jobs(ocsf, otlp, ce))
            until(lambda: any(marker in line for line in falco_lines(x)), "the marker's alert arrives")
            until(lambda: prometheus.value("sum(stockade_jobs_ended_total)") == counted(b)[0], "Prometheus has as many jobs", 60)
            at, base, before = until(lambda: quiet(b, x, outputs), "nothing is under way")
            alerts = len(of_falco(x))
            with Load(b) as load:
                restart_each(x, prometheus, (ocsf, otlp, ce), load)
            check(not load.failed and len(load.ids) > 20, f"{load.failed} {len(load.ids)}")
            jobs, findings = [now - then for now, then in zip(counted(b), base)]
            check(jobs == len(load.ids) and findings > 5, f"the broker has counted {jobs} of {len(load.ids)}, and {findings} findings")

            last = c.run("exit 0").id  # behind everything
            until(lambda: any(last in line and '"JOB_ENDED"' in line for line in text_of(ocsf)), "its end arrives", 60)
            lost = x.lost()
            check(lost["ocsf-http"] > 0 == lost["otlp-logs"] == lost["cloudevents"], f"{lost}")
            for sink, f in outputs.items():
                def missing(sink=sink, f=f):
                    """Ends of jobs, and findings, that the broker has counted since, and that are not here."""
                    return [now - then - (here - had) for now, then, here, had in zip(counted(b), base, kinds(f()[0]), before[sink])]

                if lost[sink] == 0:
                    until(lambda missing=missing: missing() == [0, 0], lambda missing=missing, sink=sink: f"{sink}: {missing()} are missing")
                found, gaps = f()
                numbers = sorted(int(uid.rsplit("-", 1)[1]) for uid in found)
                holes = numbers[-1] - numbers[0] + 1 - len(numbers)
                print(f"{sink}: {len(found)} events, {missing()} missing, {lost[sink]} lost", flush=True)
                # What has all kinds has all numbers; cloudevents has two kinds. An event that was refused may have arrived before, in a
                # request whose answer was lost.
                refused = [json.loads(line)["metadata"]["uid"]
                           for _, _, body in (ocsf.refused if sink == "ocsf-http" else []) for line in body.splitlines()]
                check(len(refused) == lost[sink], f"{sink}: {len(refused)} were refused, {lost[sink]} are counted")
                check(sink == "cloudevents" or holes == len(set(refused) - set(found)), f"{sink}: {holes} are missing of {refused}")
                check(not gaps and sum(missing()) <= lost[sink], f"{sink}: {missing()} of {lost[sink]}, {gaps}")
            check(x.of_sink("sink_missed_total", "falco-file") > 0 or len(of_falco(x)) - alerts == counted(b)[1] - base[1], "as many alerts")

            total = counted(b)[0]
            until(lambda: prometheus.value("sum(stockade_jobs_ended_total)") == total, "Prometheus has as many", 60)
            check(prometheus.value("sum(stockade_jobs_ended_total)", at) == base[0], "and what it had before it was killed")
            check(prometheus.value("count(resets(stockade_jobs_ended_total[10m]) > 0)") is None, "counters never went back")
            until(lambda: metric_of_otlp(otlp, "stockade_jobs_ended") == total, lambda: f"{metric_of_otlp(otlp, 'stockade_jobs_ended')} {total}")
            each_line_is_valid(ocsf)
        finally:
            prometheus.kill()
            c.close()


class OnSmallDisk(Everything):
    """Its folder is a disk of 512 KiB, which only it sees."""

    def __init__(self, *args):
        super().__init__(*args)
        self.prefix = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=512k,mode=0700,uid={NOBODY},gid={NOBODY} none "$0" && exec "$@"', self.folder]

    def free(self):
        s = os.statvfs(f"/proc/{self.process.pid}/root{self.folder}")
        return s.f_bavail * s.f_frsize


def a_full_disk_loses_nothing_that_is_not_counted(b):
    """All receivers are away until the disk that the queues share is full, and for a while after."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        raise Skipped("no mount namespace here")
    shutil.rmtree(f"{b.folder}/exporter", ignore_errors=True)
    c = connect(b)
    with Receiver() as ocsf, Receiver() as otlp, Receiver() as ce, OnSmallDisk(b, ocsf.url("/"), otlp.url(), ce.url("/")) as x:
        outputs = {"ocsf-http": lambda: of_ocsf(ocsf), "otlp-logs": lambda: of_otlp(otlp), "cloudevents": lambda: of_cloudevents(ce)}
        until(lambda: c.run("cat /etc/shadow").id and all(count(f()[0], "FINDING") for f in outputs.values()), "events arrive")
        markers_arrive(c, of_jobs(ocsf, otlp, ce))
        _, base, before = until(lambda: quiet(b, x, outputs), "nothing is under way")
        for r in (ocsf, otlp, ce):
            r.__exit__()
        ids = []

        def is_full():
            ids.extend(c.run(WORK[len(ids) % len(WORK)]).id for _ in range(6))
            return x.free() < 4096 and sum(x.of_sink("sink_failures_total", s) for s in SINKS) > 0

        until(is_full, lambda: f"the disk is full: {x.free()} bytes are left", 60)
        ids.extend(c.run(WORK[i % len(WORK)]).id for i in range(12))
        check(counted(b)[0] - base[0] == len(ids) and x.value("stockade_exporter_broker_up") == 1, "the broker and /metrics go on")
        for r in (ocsf, otlp, ce):
            r.__enter__()
        last = c.run("exit 0").id
        until(lambda: any(last in line and '"JOB_ENDED"' in line for line in text_of(ocsf)), "its end arrives", 60)
        until(lambda: not any(x.of_sink("queue_records", s) or x.of_sink("sink_behind", s) for s in SINKS), "the queues are empty", 60)
        lost = x.lost()
        for sink, f in outputs.items():
            def missing(sink=sink, f=f):
                return [now - then - (here - had) for now, then, here, had in zip(counted(b), base, kinds(f()[0]), before[sink])]

            until(lambda missing=missing, sink=sink: 0 <= sum(missing()) <= lost[sink], lambda missing=missing, sink=sink: f"{sink}: {missing()} are missing, {lost[sink]} counted")
            print(f"{sink}: full disk, {len(f()[0])} events, {missing()} missing, {lost[sink]} lost", flush=True)
    c.close()


def each_line_is_valid(r):
    try:
        complaints = ocsf_judge()
    except Skipped as why:
        print(f"skipped: OCSF: {why}")
        return
    for body in r.bodies():
        for line in body.splitlines():
            check(not complaints(json.loads(line)), f"{complaints(json.loads(line))}")


if not shutil.which("prometheus"):
    skip("prometheus is not installed")
with Broker(config="socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n") as BROKER:
    try:
        LOGS, _, METRICS = messages(BROKER.folder)
    except Skipped as WHY:
        skip(str(WHY))
    CODE = run_cases([what_arrives_is_what_the_broker_has_counted, a_full_disk_loses_nothing_that_is_not_counted], call=lambda case: case(BROKER))
raise SystemExit(CODE)
