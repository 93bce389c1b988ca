#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Events as lines of OCSF: what they say, that each is written at least once, rotation, and a full disk."""

import json
import os
import stat
import subprocess

from api import SANDBOX, connect, with_client
from broker import Broker
from exporter_judges import ocsf_judge
from exporter_process import NOBODY, Exporter, folder_of
from runner import check, run_cases, until

KNOCK = "import socket; socket.socket().connect_ex(('192.0.2.1', 80))"
# What OCSF 1.8.0 wants of every event, and of each class.
REQUIRED = {"time", "severity_id", "type_uid", "category_uid", "class_uid", "activity_id", "metadata"}
OF_CLASS = {0: set(), 1001: {"actor", "device", "file"}, 1007: {"actor", "device", "process"}, 2004: {"finding_info"},
            4001: {"dst_endpoint"}, 4003: {"src_endpoint", "query"}, 6003: {"actor", "api", "src_endpoint"}}


class Events(Exporter):
    """An exporter that writes events; a folder of its own for each case."""

    def __init__(self, broker, name, more=""):
        self.folder = folder_of(broker, name)
        self.file = f"{self.folder}/ocsf.jsonl"
        super().__init__(broker, more=f"ocsf: {{file: {self.file}{more}}}\n")

    def __enter__(self):
        super().__enter__()
        until(lambda: self.value("stockade_exporter_broker_up") == 1, "it reads")
        return self

    def lines(self, path=None):
        with open(path or self.file, encoding="ascii") as f:
            return [json.loads(line) for line in f]

    def of_job(self, job):
        return [e for e in self.lines() if e["class_uid"] != 0 and e["unmapped"].get("process_id") == job.id]

    def ended(self):
        """The jobs whose end is in the file."""
        return {e["unmapped"]["process_id"] for e in self.lines() if e["class_uid"] != 0 and e["unmapped"]["kind"] == "JOB_ENDED"}


def subscribed(b, c, x):
    """An event arrives: from here on none is missed."""
    until(lambda: c.run("exit 0").id and x.ended(), "events arrive")


LABELS = {"gen_ai.request.model": "model-1", "team": "blue"}


def work(c):
    """A job whose events are of every class."""
    return c.run(f'cat /etc/shadow; python3 -c "{KNOCK}"; unshare -r true; ls "$(printf \'a\\nb\\033[31m\\377\')"; exit 3', metadata=LABELS)


def each_event_has_what_its_class_wants(b, c):
    with Events(b, "classes") as x:
        subscribed(b, c, x)
        job = work(c)
        until(lambda: any(e["unmapped"]["kind"] == "JOB_ENDED" for e in x.of_job(job)), "the end of the job")
        ours = x.of_job(job)
        for e in ours:
            check(set(e) >= REQUIRED | OF_CLASS[e["class_uid"]], str(e))
            check(e["type_uid"] == e["class_uid"] * 100 + e["activity_id"] and e["category_uid"] == e["class_uid"] // 1000, str(e))
            check(e["metadata"]["version"] == "1.8.0" and e["metadata"]["tenant_uid"] == "uid:0", str(e))
        kinds = {e["unmapped"]["kind"]: e for e in ours}
        check({e["class_uid"] for e in ours} >= {1001, 1007, 2004, 4001, 6003}, str(sorted(kinds)))
        tags = [{t["name"]: t["value"] for t in e["metadata"].get("tags", [])} for e in ours]
        check(LABELS in tags and all(t in ({}, LABELS) for t in tags), f"labels: {tags}")
        model = kinds["EXEC"].get("ai_model")
        check(model == {"name": "model-1", "ai_provider": "unknown"} and "ai_operation" in kinds["EXEC"]["metadata"]["profiles"], f"{kinds['EXEC']}")
        denied = kinds["DENIED"]
        check(denied["dst_endpoint"] == {"ip": "192.0.2.1", "port": 80} and denied["action_id"] == 2 and
              denied["disposition_id"] == 2 and denied["activity_id"] == 5 and "192.0.2.1:80/tcp" in denied["message"], str(denied))
        check(kinds["SENSITIVE_OPEN"]["file"]["path"] == "/etc/shadow" and kinds["SENSITIVE_OPEN"]["file"]["name"] == "shadow",
              str(kinds["SENSITIVE_OPEN"]))
        check(kinds["FINDING"]["finding_info"]["title"] in ("sensitive-path", "refused-call"), str(kinds["FINDING"]))
        check(any(e["process"].get("cmd_line", "").startswith("cat /etc/shadow") for e in ours if e["class_uid"] == 1007), "arguments")
        raw = open(x.file, "rb").read()
        check(all(b == 10 or 32 <= b < 127 for b in raw), "nothing but printable ASCII")
        uids = [e["metadata"]["uid"] for e in x.lines()]
        check(len(set(uids)) == len(uids), "each once")
        check(stat.S_IMODE(os.stat(x.file).st_mode) == stat.S_IMODE(os.stat(x.file + ".position").st_mode) == 0o600, "0600")


def the_published_schema_has_nothing_to_say(b, c):
    complaints = ocsf_judge()
    with Events(b, "schema") as x:
        subscribed(b, c, x)
        job = work(c)
        until(lambda: any(e["unmapped"]["kind"] == "JOB_ENDED" for e in x.of_job(job)), "the end of the job")
        for e in x.lines():
            check(not complaints(e), f"{complaints(e)} {e}")
        check(complaints({**x.lines()[0], "severity_id": "high"}), "the judge judges")


def only_events_of_the_configured_severity_are_written(b, c):
    with Events(b, "severity", ", severity: warning") as x:
        until(lambda: work(c) and os.path.getsize(x.file) > 0, "a finding arrives")
        check(all(e["severity_id"] >= 3 for e in x.lines()), str(x.lines()[0]))


def nothing_is_missing_after_kill_and_restart(b, c):
    """kill -9 in the middle of work, and work while the exporter is away."""
    ids = set()
    with Events(b, "restart") as x:
        subscribed(b, c, x)
        for i in range(30):
            ids.add(c.run("exit 0").id)
            if i == 15:
                x.process.kill()
                x.process.wait()
        x.__class__.__enter__(x)
        until(lambda: ids <= x.ended(), "the end of each job is in the file")
        check(not [e for e in x.lines() if e["class_uid"] == 0], "and no gap")


def a_broker_that_restarts_is_a_gap_and_no_end(b, c):
    with Events(b, "gap") as x:
        subscribed(b, c, x)
        b.stop()
        b.start()
        again = connect(b)
        job = again.run("exit 0")
        until(lambda: any(e.get("unmapped", {}).get("process_id") == job.id for e in x.lines()), "its events arrive")
        check(any(e["class_uid"] == 0 and "restarted" in e["message"] for e in x.lines()), "the gap is reported")
        again.close()


def files_are_rotated_and_no_line_is_torn(b, c):
    with Events(b, "rotation", ", size: 64K, keep: 2") as x:
        subscribed(b, c, x)
        until(lambda: c.run("for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done") and os.path.exists(x.file + ".2"), "two rotations", 120)
        check(not os.path.exists(x.file + ".3"), "two are kept")
        for path in (x.file, x.file + ".1", x.file + ".2"):
            check(os.path.getsize(path) <= 65536 and stat.S_IMODE(os.stat(path).st_mode) == 0o600 and x.lines(path), path)


def limit_file_size(x, size):
    """As the exporter's account: root may lack CAP_SYS_RESOURCE. False: the file is larger by now."""
    subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                    "prlimit", f"--pid={x.process.pid}", f"--fsize={size}:unlimited"], check=True)
    return size == "unlimited" or os.path.getsize(x.file) <= size


def a_full_disk_delays_events_and_loses_none(b, c):
    """RLIMIT_FSIZE stands for it: writes fail until it is raised."""
    with Events(b, "full") as x:
        subscribed(b, c, x)
        until(lambda: limit_file_size(x, os.path.getsize(x.file) + 700), "a limit above its size")
        ids = {c.run("exit 0").id for _ in range(5)}
        until(lambda: x.of_sink("sink_failures_total", "ocsf-file") > 0, "a failure is counted")
        x.lines()  # no half line
        check(not ids <= x.ended(), "the limit holds")
        limit_file_size(x, "unlimited")
        until(lambda: ids <= x.ended(), "all arrive")
        check(not [e for e in x.lines() if e["class_uid"] == 0], "and no gap")


def a_link_is_not_followed(b, c):
    target = f"{b.folder}/target"
    folder = f"{b.folder}/link"
    os.makedirs(folder)
    os.symlink(target, f"{folder}/ocsf.jsonl")
    try:
        with Events(b, "link"):
            raise AssertionError("it started")
    except AssertionError as why:
        check("Too many levels of symbolic links" in str(why), str(why))
    check(not os.path.exists(target), "nothing was created")


CONFIG = "socket: {mode: 0666}\nmetrics: {reader: nobody}\npool: 2\n"
with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        a_link_is_not_followed, each_event_has_what_its_class_wants, the_published_schema_has_nothing_to_say,
        only_events_of_the_configured_severity_are_written, nothing_is_missing_after_kill_and_restart,
        files_are_rotated_and_no_line_is_torn, a_full_disk_delays_events_and_loses_none,
        a_broker_that_restarts_is_a_gap_and_no_end,
    ], call=with_client(BROKER))
raise SystemExit(CODE)
