#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Followers survive a restart of the broker and get what they missed; events, findings and records have one form in
JSON."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading

import sp
from api import connect
from broker import Broker
from slowness import scaled
from runner import check, run_cases, until

SUBSCRIBE = "/stockade.v1.TelemetryService/Subscribe"
SHADOW = "import time\ntry: open('/etc/shadow')\nexcept OSError: time.sleep(0.2)"


class Follower:
    """A command with -f, whose lines are read as they come."""

    def __init__(self, b, *args):
        self.process = b.popen(*args, "-f", "-o", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = queue.Queue()
        self.seen = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def until(self, condition, what):
        while not self.seen or not condition(self.seen[-1]):
            try:
                self.seen.append(self.lines.get(timeout=scaled(20)))
            except queue.Empty:
                raise AssertionError(f"{what} does not come: {self.seen[-3:]}, {self.process.poll()}") from None
        return self.seen[-1]

    def end(self):
        self.process.kill()
        self.process.communicate()


def ends(e):
    return e.get("kind") == "job_ended"


def work(b):
    """A job with an event and a finding."""
    r = b.cli("run", "-n", "--", "/usr/bin/python3", "-c", SHADOW)
    check(r.returncode == 0, r.stderr)


def followers_continue_after_a_restart_and_report_what_they_missed(b):
    events, found = Follower(b, "events"), Follower(b, "anomalies")
    try:
        work(b)
        until(lambda: work(b) or not events.lines.empty(), "it follows")
        first = events.until(ends, "the end of a job")
        one = found.until(lambda f: f.get("rule") == "sensitive-path", "a finding")
        check(len(first["instance"]) == 16 and first["instance"] == one["instance"], f"{first} {one}")
        b.stop()
        b.start()
        work(b)  # before they have come back, as far as they have not
        gap = events.until(lambda e: "gap" in e, "what was missed")["gap"]
        check(gap["reason"] == "restarted" and gap["to_sequence"] == 0 and gap["count"] == 0, gap)
        check(gap["from_sequence"] > first["sequence"], f"behind what it had: {gap} {first}")
        again = events.until(lambda e: ends(e) and e["instance"] != first["instance"], "the job of the next life")
        check(again["sequence"] < gap["from_sequence"], f"numbers begin anew: {again}")
        lost = found.until(lambda f: "gap" in f, "what was missed")["gap"]
        check(lost["reason"] == "restarted", lost)
        check(found.until(lambda f: f.get("rule") == "sensitive-path", "a finding")["instance"] == again["instance"], "of it")
        check([e["sequence"] for e in events.seen if e.get("instance") == again["instance"]][0] == 1, "from the first one on")
    finally:
        events.end()
        found.end()


class Proxy:
    """A socket in front of the broker's, whose connections can be broken while both ends live."""

    def __init__(self, b):
        self.target, self.path = b.address[len("ipc://"):], f"{b.folder}/proxy.sock"
        self.listener, self.open, self.accepted = socket.socket(socket.AF_UNIX), [], 0
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self.target)
                self.open += [near, far]
                self.accepted += 1
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)

    def cut(self):
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.open = []


def a_connection_that_breaks_loses_nothing(b):
    """The broker stays: the follower comes back to it, and there is no gap."""
    c, proxy = connect(b), Proxy(b)
    follower = Follower(b, "events", "--address", f"ipc://{proxy.path}", "--kind", "job_ended")
    try:
        until(lambda: c.run("true") and not follower.lines.empty(), "it follows")
        jobs = []
        for _ in range(3):
            before = proxy.accepted
            proxy.cut()
            jobs += [c.run("true").id for _ in range(3)]
            until(lambda n=before: proxy.accepted > n, "it comes back")
        follower.until(lambda e: e["process_id"] == jobs[-1], "the last of them")
        check(not any("gap" in e for e in follower.seen), follower.seen)
        got = [e["process_id"] for e in follower.seen]
        check(got[got.index(jobs[0]):] == jobs, "each once, and in order")
    finally:
        follower.end()


def a_follower_reports_that_the_broker_hangs(b):
    """After 12 s: a PING after 6 s of silence, and 6 s for its answer."""
    c, follower = connect(b), Follower(b, "events", "--kind", "job_ended")
    try:
        until(lambda: c.run("true") and not follower.lines.empty(), "it follows")
        os.kill(b.process.pid, signal.SIGSTOP)
        try:
            lost = follower.process.stderr.readline()
        finally:
            os.kill(b.process.pid, signal.SIGCONT)
        check(lost == b"stockade events: the connection to the broker is lost: the broker has not responded for 12s; "
                      b"trying again\n", lost)
        again = follower.process.stderr.readline()
        check(again == b"stockade events: connected to the broker again\n", again)
        last = c.run("true").id
        follower.until(lambda e: e["process_id"] == last, "what happens then")
        check(not any("gap" in e for e in follower.seen), follower.seen)
    finally:
        follower.end()


def a_number_of_an_earlier_run_of_the_broker_is_recognized(b):
    c = connect(b)
    c.run("true")
    for fields, code in (({"from_sequence": 1 << 40}, 11), ({"from_sequence": 5, "instance": "xyz"}, 3)):
        try:
            call = c.begin(SUBSCRIBE, fields, credit=10)
            frame = c.recv(call)
            check(frame.kind == sp.END and frame.status.code == code, f"{fields}: {frame}")
        except sp.Failed as why:
            check(why.code == code, f"{fields}: {why}")


def events_findings_and_records_have_one_form(b):
    """Names of the schema, enums in lower case: the same with and without -f, in an event and beside it."""
    work(b)
    code, job = b.json("inspect")
    record = job["record"]
    code, found = b.json("anomalies", "--rule", "sensitive-path")
    code, events = b.json("events", "--from", "1")
    schema = {m: {f.name for f in sp.message(f"stockade.v1.{m}").DESCRIPTOR.fields} for m in
              ("Event", "Finding", "Record", "Completeness", "Execution", "SyscallCount", "Denial")}
    kinds = {v.name[len("EVENT_KIND_"):].lower() for v in sp.message("stockade.v1.Event").DESCRIPTOR.fields_by_name["kind"].enum_type.values}
    for e in events:
        check(set(e) <= schema["Event"] and e["kind"] in kinds and e["severity"] in ("info", "notice", "warning", "critical"), e)
    of_record = record["findings"][0]
    mine = next(f for f in found if f["sequence"] == of_record["sequence"])
    told = next(e["finding"] for e in events if "finding" in e and e["finding"]["sequence"] == of_record["sequence"])
    for f in (of_record, mine, told):
        check(set(f) <= schema["Finding"] and f["rule"] == "sensitive-path" and f["severity"] == "warning", f)
        check(f["text"] == mine["text"] and f["score"] == mine["score"], f)
    check(set(record) <= schema["Record"] and set(record["completeness"]) <= schema["Completeness"], record)
    check(all(set(x) <= schema["SyscallCount"] for x in record["by_number"]), record["by_number"])
    executed = next(e["execution"] for e in events if e["kind"] == "exec")
    check(set(executed) <= schema["Execution"] and set(record["executed"][0]) <= schema["Execution"], executed)
    ended = next(e["job"] for e in events if ends(e))
    check(ended["outcome"] == "exited" and ended["exit_code"] == 0, ended)
    follower = Follower(b, "events", "--from", "1")
    try:
        follower.until(lambda e: e["sequence"] >= events[-1]["sequence"], "all of them")
        check(follower.seen[:len(events)] == events, "the same with -f")
    finally:
        follower.end()
    result = b.json("run", "--", "true")[1]
    check(set(result["record"]) <= schema["Record"], result)


CASES = [a_number_of_an_earlier_run_of_the_broker_is_recognized, events_findings_and_records_have_one_form,
         a_connection_that_breaks_loses_nothing, a_follower_reports_that_the_broker_hangs, followers_continue_after_a_restart_and_report_what_they_missed]

if __name__ == "__main__":
    with Broker() as broker:
        status = run_cases(CASES, lambda case: case(broker))
    raise SystemExit(status)
