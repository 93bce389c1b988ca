#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The queues on disk: a receiver that is away, slow or refuses, kill -9 of the exporter, a full queue and a full disk. What
arrives is compared with what the exporter counted."""

import json
import os
import shutil
import subprocess
import threading

from api import with_client
from broker import Broker
from exporter_process import NOBODY, Exporter, as_nobody, folder_of
from exporter_receiver import Receiver
from runner import check, run_cases, until

SINK = "ocsf-http"


class Queued(Exporter):
    """An exporter with a receiver, and a folder of its own for each case."""

    def __init__(self, broker, name, url, more="", queue="1M", config=""):
        self.folder = folder_of(broker, name)
        super().__init__(broker, more=f"state: {self.folder}\nocsf: {{http: {{url: '{url}', queue: {queue}{more}}}}}\n" + config)

    def __enter__(self):
        super().__enter__()
        until(lambda: self.value("stockade_exporter_broker_up") == 1, "it reads")
        return self

    def counted(self):
        names = ("sink_events_total", "sent_total", "refused_total", "queue_dropped_total", "queue_records")
        return [int(self.of_sink(name, SINK)) for name in names]


def events(receiver):
    return [json.loads(line) for body in receiver.bodies() for line in body.splitlines()]


def ended(receiver):
    return {e["unmapped"]["process_id"] for e in events(receiver) if e["class_uid"] != 0 and e["unmapped"]["kind"] == "JOB_ENDED"}


def subscribed(c, x):
    """An event is taken: from here on none is missed."""
    until(lambda: c.run("exit 0").id and x.of_sink("sink_events_total", SINK) > 0, "events are taken")


def balanced(x):
    taken, sent, refused, dropped, waiting = x.counted()
    return taken == sent + refused + dropped + waiting


# ---- refusals


def wrong_settings_are_refused_with_their_place(b, c):
    path, secret = f"{b.folder}/wrong.yaml", f"{b.folder}/secret"
    for text, said in (("ocsf: {http: {url: collector:4318}}", "1:20: url: must be a URL"),
                       ("ocsf: {http: {url: 'ftp://x/'}}", "url: must be a URL"),
                       ("ocsf: {http: {url: 'http://u:hunter2@x/'}}", "url: must not have a user or a password"),
                       ("ocsf:\n  http:\n    queue: 1K\n", "3:12: queue: must be from"),
                       ("ocsf: {http: {compression: zstd}}", "compression:"),
                       ("ocsf: {http: {timeout: 1ms}}", "timeout:"), ("state: here", "state: must be an absolute path"),
                       ("ocsf: {http: {headers: 1}}", "headers: there is no such key")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        r = as_nobody("--check-config", "--config", path)
        check(r.returncode == 78 and said in r.stderr.decode() and b"hunter2" not in r.stderr, f"{text!r}: {r}")
    for text, mode, said in (("Authorization: hunter2", 0o644, "others may read"), ("hunter2", 0o640, "secret:1: must be"),
                             ("A: b\n\nX y: hunter2", 0o640, "secret:3: must be"), ("A: \x01hunter2", 0o640, "secret:1: must be"),
                             ("\n", 0o640, "empty"), ("A: b\n" * 40, 0o640, "too many")):
        with open(secret, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(secret, mode)
        shutil.chown(secret, NOBODY)
        try:
            with Queued(b, "secrets", "http://127.0.0.1:1/", f", headers_file: {secret}"):
                raise AssertionError("it started")
        except AssertionError as why:
            check(said in str(why) and "hunter2" not in str(why), f"{text!r}: {why}")


# ---- delivery


def events_arrive_with_the_configured_headers(b, c):
    secret = f"{b.folder}/headers.txt"
    with open(secret, "w", encoding="utf-8") as f:
        f.write("# of the receiver\nAuthorization: Bearer hunter2\nX-Scope: blue\n")
    os.chmod(secret, 0o640)
    shutil.chown(secret, NOBODY)
    with Receiver() as r, Queued(b, "headers", r.url("/events?x=1"), f", headers_file: {secret}, compression: gzip") as x:
        subscribed(c, x)
        job = c.run("exit 0")
        until(lambda: job.id in ended(r), "its end arrives")
        path, headers, _ = r.got[0]
        check(path == "/events?x=1" and headers["Content-Type"] == "application/x-ndjson" and headers["Content-Encoding"] == "gzip" and
              headers["Authorization"] == "Bearer hunter2" and headers["X-Scope"] == "blue", str(headers))
        until(lambda: x.of_sink("queue_records", SINK) == 0 and balanced(x), lambda: x.counted())
        uids = [e["metadata"]["uid"] for e in events(r)]
        check(len(uids) == len(set(uids)) == x.counted()[1], "each once, and as many as were counted")
        check("hunter2" not in x.log(), x.log())


def a_receiver_that_is_away_costs_nothing(b, c):
    """And so does kill -9 of the exporter meanwhile."""
    with Receiver() as r:
        port = r.port
    with Queued(b, "away", f"http://127.0.0.1:{port}/") as x:
        subscribed(c, x)
        ids = {c.run("exit 0").id for _ in range(10)}
        until(lambda: x.of_sink("retries_total", SINK) > 0 and x.of_sink("queue_records", SINK) > 10, "it is tried")
        check(x.of_sink("queue_age_seconds", SINK) > 0 and x.of_sink("queue_bytes", SINK) > 1000, "the queue has an age")
        check(x.of_sink("receiver_up", SINK) == 0, "it is away")
        check(x.log().count("will try again") == 1, x.log())
        x.process.kill()
        x.process.wait()
        ids |= {c.run("exit 0").id for _ in range(5)}
        Exporter.__enter__(x)
        with Receiver(port=port) as r:
            until(lambda: ids <= ended(r), "all arrive")
            until(lambda: x.of_sink("queue_records", SINK) == 0 and x.of_sink("receiver_up", SINK) == 1, "the queue is empty")
            check(not [e for e in events(r) if e["class_uid"] == 0], "and no gap")


def statuses_are_tried_again_or_given_up(b, c):
    with Receiver() as r:
        r.answers = [(503, {"Retry-After": "1"}, b""), (429, {}, b"no"), (500, {}, b""), (413, {}, b"too large"), (400, {}, b"\x1b[31mno")]
        with Queued(b, "statuses", r.url("/")) as x:
            subscribed(c, x)
            job = c.run("exit 0")
            until(lambda: x.of_sink("refused_total", SINK) > 0, "400 is given up")
            job = c.run("exit 0")
            until(lambda: job.id in ended(r), "what comes later arrives")
            until(lambda: x.of_sink("queue_records", SINK) == 0 and balanced(x), lambda: x.counted())
            check(len(r.refused) == 5 and x.of_sink("retries_total", SINK) == 4, "four were tried again")
            lost = len(r.refused[4][2].splitlines())
            check(x.of_sink("refused_total", SINK) == lost <= len(r.refused[3][2].splitlines()) / 2 + 1, "half a batch after 413")
            check(len({e["metadata"]["uid"] for e in events(r)}) == x.of_sink("sent_total", SINK), "the others arrived")
            check("\x1b" not in x.log() and "HTTP status 400" in x.log(), x.log())


def redirects_are_not_followed(b, c):
    with Receiver() as other, Receiver() as r:
        r.answers = [(307, {"Location": other.url("/")}, b"")]
        with Queued(b, "redirect", r.url("/")) as x:
            subscribed(c, x)
            until(lambda: x.of_sink("refused_total", SINK) > 0, "it is refused")
        check(not other.got and not other.refused, "nothing went elsewhere")


def a_full_queue_drops_the_oldest_and_counts_it(b, c):
    with Receiver() as r:
        r.stall = threading.Event()
        with Queued(b, "small", r.url("/")) as x:
            subscribed(c, x)
            until(lambda: c.run("for i in $(seq 40); do /bin/true; done") and x.of_sink("queue_dropped_total", SINK) > 0, "drops", 120)
            check(sum(os.path.getsize(f"{x.folder}/{SINK}/{f}") for f in os.listdir(f"{x.folder}/{SINK}")) < 1100000, "its bound")
            job = c.run("exit 0")
            r.stall.set()
            until(lambda: job.id in ended(r), "the newest arrive")
            until(lambda: x.of_sink("queue_records", SINK) == 0 and balanced(x), lambda: x.counted())
            check(len({e["metadata"]["uid"] for e in events(r)}) == x.counted()[1], "as many as were counted")


def a_slow_receiver_delays_no_other_sink(b, c):
    with Receiver() as r:
        r.stall = threading.Event()
        with Queued(b, "slow", r.url("/"), config="") as x:
            path = f"{x.folder}/beside.jsonl"
            with open(x.path, encoding="utf-8") as f:
                text = f.read().replace("ocsf: {", f"ocsf: {{file: {path}, ")
        with open(x.path, "w", encoding="utf-8") as f:
            f.write(text)
        with x:
            subscribed(c, x)
            jobs = {c.run("exit 0").id for _ in range(5)}
            until(lambda: all(job in open(path, encoding="ascii").read() for job in jobs), "the file has them")
            check(not r.got and x.of_sink("queue_records", SINK) > 0, "while the receiver has nothing")
            r.stall.set()
            until(lambda: jobs <= ended(r), "and it has them later")


def a_full_disk_delays_one_sink_and_loses_nothing(b, c):
    """RLIMIT_FSIZE stands for it: segments cannot grow, but another sink writes on."""
    with Receiver() as r:
        r.stall = threading.Event()
        with Queued(b, "full", r.url("/")) as x:
            subscribed(c, x)
            segment = f"{x.folder}/{SINK}/0000000000000001.q"
            size = os.path.getsize(segment) + 3000
            limit = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "prlimit", f"--pid={x.process.pid}"]
            subprocess.run([*limit, f"--fsize={size}:unlimited"], check=True)
            ids = {c.run("exit 0").id for _ in range(5)}
            until(lambda: x.of_sink("sink_failures_total", SINK) > 0 and x.of_sink("sink_behind", SINK) == 1, "a failure is counted")
            subprocess.run([*limit, "--fsize=unlimited:unlimited"], check=True)
            r.stall.set()
            until(lambda: ids <= ended(r), "all arrive")
            until(lambda: x.of_sink("queue_records", SINK) == 0 and balanced(x), lambda: x.counted())
            check(x.of_sink("sink_behind", SINK) == 0 and x.of_sink("sink_missed_total", SINK) == 0, "and none is missing")
            uids = [e["metadata"]["uid"] for e in events(r)]
            check(len(uids) == len(set(uids)), "each once")


def two_exporters_do_not_share_a_queue(b, c):
    with Queued(b, "shared", "http://127.0.0.1:1/"):
        try:
            with Queued(b, "shared", "http://127.0.0.1:1/"):
                raise AssertionError("it started")
        except AssertionError as why:
            check("another process uses this queue" in str(why), str(why))


def lines_on_stdout_wait_for_their_reader(b, c):
    """stdout is a pipe that nobody reads for a while; /metrics answers all the same."""
    folder = f"{b.folder}/out"
    os.makedirs(folder)
    os.chown(folder, NOBODY, NOBODY)
    x = Exporter(b, more=f"state: {folder}\nocsf: {{stdout: true}}\n")
    x.stdout = subprocess.PIPE
    with x:
        until(lambda: c.run("exit 0").id and x.of_sink("sink_events_total", "ocsf-stdout") > 0, "events are taken")
        until(lambda: c.run("for i in $(seq 40); do /bin/true; done") and x.of_sink("sink_behind", "ocsf-stdout") == 1, "the pipe is full")
        job, found = c.run("exit 0"), []
        check(x.of_sink("sink_missed_total", "ocsf-stdout") == 0, "nothing is missing")

        def read():
            for line in x.process.stdout:
                found.append(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: any(e["unmapped"].get("process_id") == job.id and e["unmapped"]["kind"] == "JOB_ENDED" for e in list(found)), "all come")
    reader.join()
    x.process.stdout.close()
    uids = [e["metadata"]["uid"] for e in found]
    check(len(uids) == len(set(uids)), "each once")


CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n"
with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        wrong_settings_are_refused_with_their_place, redirects_are_not_followed, two_exporters_do_not_share_a_queue,
        events_arrive_with_the_configured_headers, a_receiver_that_is_away_costs_nothing, statuses_are_tried_again_or_given_up,
        a_full_queue_drops_the_oldest_and_counts_it, a_slow_receiver_delays_no_other_sink,
        a_full_disk_delays_one_sink_and_loses_nothing, lines_on_stdout_wait_for_their_reader,
    ], call=with_client(BROKER))
raise SystemExit(CODE)
