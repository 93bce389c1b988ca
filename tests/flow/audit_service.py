#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AuditService: what a tenant sees of the log, what an operator sees, following it, and a job's proof."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import sp
from api import SYSTEM, connect
from broker import Broker
from runner import check, run_cases, until

LIST, WATCH = "/stockade.v1.AuditService/List", "/stockade.v1.AuditService/Watch"
CONFIG = """
audit: {checkpoint_records: 8, checkpoint_interval: 300ms, rotate: 64K}
"""


def lines(r):
    check(r.returncode == 0, r.stderr)
    return [json.loads(line) for line in r.stdout.splitlines()]


def tail(b, *argv, stranger=False):
    return lines((b.stranger if stranger else b.cli)("audit", "tail", *argv))


def tenant_of(m):
    return m.get("call", m.get("job", {})).get("tenant")


def wrong_requests_are_refused(b):
    for argv, words in ((("audit", "tail", "--tenant", "*"), b"only its own"),
                        (("audit", "tail", "--tenant", "uid:0"), b"only its own"),
                        (("audit", "tail", "FILE"), b"no files"),
                        (("audit", "export", "--follow", "x"), b"need the action tail"),
                        (("inspect", "--proof", "0" * 32), b"")):
        r = b.stranger(*argv)
        check(r.returncode != 0 and words in r.stderr, f"{argv} {r.stderr}")


def client(b, uid):
    with sp.as_user(uid):
        return connect(b)


def times_that_no_record_can_have_are_refused(b):
    """In nanoseconds they would be others, and so would the answer."""
    c = connect(b)
    for wrong in ({"seconds": 1 << 62}, {"seconds": 9223372036}, {"seconds": -1}, {"nanos": 1 << 30}, {"nanos": -1}):
        for field in ("since_time", "until_time"):
            for method, want in ((LIST, {"filter": {field: wrong}}), (WATCH, {"filter": {field: wrong}})):
                failed = c.fails(method, want)
                check(failed.code == sp.INVALID and f"filter.{field}" in f"{failed.message} {failed.details}", f"{wrong}: {failed}")
    check(len(c.unary(LIST, {"filter": {"since_time": {"seconds": 9223372035, "nanos": 999999999}}}).records) == 0, "none is of that time")
    c.close()


def one_tenant_leaves_room_for_other_readers(b):
    check(b.stranger("ls").returncode == 0, "others may connect")
    one = client(b, 54321)
    kept = [one.begin(WATCH, {}) for _ in range(17)]
    frame = one.recv(kept[-1])
    check(frame.kind == sp.END and frame.status.code == sp.EXHAUSTED and "AUDIT_READERS" in f"{sp.Failed(frame.status).details}", f"{frame}")
    check(one.fails(LIST, {}).code == sp.EXHAUSTED, "nor may it list")
    tail(b, "--tenant", "*")
    other = client(b, 54322)
    other.unary(LIST, {})
    one.send(kept[0], sp.Frame(kind=sp.CANCEL))
    while one.recv(kept[0]).kind != sp.END:  # after its records
        pass
    one.unary(LIST, {})
    others = [client(b, 54330 + i) for i in range(3)]
    held = 0
    for c in others:
        for _ in range(16):
            call = c.begin(WATCH, {})
            held += 1
        c.unary(SYSTEM + "Info", {})  # all of this connection have begun
    check(others[-1].recv(call).status.code == sp.EXHAUSTED, f"{held} of others and 15: the rest is for operators")
    tail(b, "--tenant", "*")
    for c in (one, other, *others):
        c.close()
    until(lambda: b.stranger("audit", "tail").returncode == 0, "all have gone", 10)


def a_tenant_sees_its_own_records_alone(b):
    check(b.cli("create", "--name", "secret-of-root").returncode == 0, "created")
    check(b.cli("rm", "secret-of-root").returncode == 0, "removed")
    check(b.stranger("create", "--name", "of-a-stranger").returncode == 0, "created")
    check(b.stranger("rm", "of-a-stranger").returncode == 0, "removed")
    until(lambda: "of-a-stranger" in json.dumps(tail(b, stranger=True)), "its own are there", 10)
    seen = tail(b, stranger=True)
    check({tenant_of(m) for m in seen} == {"uid:54321"}, seen)
    check("secret-of-root" not in json.dumps(seen), "and no others")


def an_operator_sees_all_and_what_belongs_to_nobody(b):
    b.reload(CONFIG + "quotas: {queue: 70}\n")
    until(lambda: any("change" in m for m in tail(b, "--tenant", "*")), "the change is there", 10)
    seen = tail(b, "--tenant", "*")
    check(all(m["sequence"] for m in seen) and sorted(m["sequence"] for m in seen) == [m["sequence"] for m in seen], seen)
    check(not any("checkpoint" in m for m in seen), "no checkpoints")
    check(all("change" not in m for m in tail(b)), "root's own records are its calls and jobs")


@contextlib.contextmanager
def busy(b):
    """Calls that fill the log."""
    stop = threading.Event()

    def call():
        while not stop.is_set():
            b.cli("ls")
    threads = [threading.Thread(target=call) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in threads:
            t.join()


def a_follower_gets_each_record_once_also_over_files_and_a_restart(b):
    f = b.popen("audit", "tail", "--follow", "--tenant", "*", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    got = []

    def read():
        got.extend(json.loads(line) for line in f.stdout)
    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: got, "the last records come", 20)
    with busy(b):
        until(lambda: len(got) > 300, lambda: f"300 records come: {len(got)}", 120)
    b.stop()
    b.start()
    until(lambda: any("start" in m for m in got), "it goes on after a restart", 30)
    check(b.cli("create", "--name", "after-the-restart").returncode == 0, "created")
    until(lambda: "after-the-restart" in json.dumps(got[-20:]), "and sees what is new", 20)
    f.send_signal(signal.SIGINT)
    f.wait(30)
    thread.join()
    numbers = [m["sequence"] for m in got]
    check(numbers == sorted(set(numbers)), "each once, in order")
    there = [m["sequence"] for m in lines(b.cli("audit", "export", f"{b.state}/audit")) if "checkpoint" not in m]
    check(numbers == [n for n in there if numbers[0] <= n <= numbers[-1]], "and none is missing")
    check(b.cli("rm", "after-the-restart").returncode == 0, "removed")


def a_job_is_proved_by_the_broker_and_checked_without_it(b):
    r = b.stranger("run", "-o", "json", "sh", "-c", "exit 3")
    process = json.loads(r.stdout)["process_id"]
    proofs = []

    def there():
        proofs[:] = [b.stranger("inspect", "--proof", process)]
        return proofs[0].returncode == 0
    until(there, lambda: f"the proof comes: {proofs[0].stderr}", 20)
    path = f"{b.folder}/proof"
    with open(path, "wb") as f:
        f.write(proofs[0].stdout)
    key = f"{b.state}/audit/audit.pub"
    r = b.cli("audit", "verify", "--public-key", key, "--proof", path)
    check(r.returncode == 0, r.stderr)
    shown = json.loads(r.stdout)
    check(shown["record"]["job"]["process_id"] == process and shown["record"]["job"]["exit_code"] == 3, shown)
    check(shown["job"]["process"]["process_id" if "process_id" in shown["job"]["process"] else "id"] == process, shown)
    r = b.cli("audit", "verify", "--public-key", "ab" * 32, "--proof", path)
    check(r.returncode != 0, "another key refuses it")
    r = b.cli("run", "-o", "json", "true")
    other = json.loads(r.stdout)["process_id"]
    r = b.stranger("inspect", "--proof", other)
    check(r.returncode != 0, "the job of another tenant is not there")
    return process


def an_old_job_is_found_in_an_older_file(b):
    process = a_job_is_proved_by_the_broker_and_checked_without_it(b)
    files = len(os.listdir(f"{b.state}/audit"))
    with busy(b):
        until(lambda: len(os.listdir(f"{b.state}/audit")) >= files + 2, "two files more", 120)
    r = b.stranger("inspect", "--proof", process)
    check(r.returncode == 0, r.stderr)


def main():
    with Broker(config=CONFIG) as b:
        sys.exit(run_cases([wrong_requests_are_refused,
                            times_that_no_record_can_have_are_refused,
                            one_tenant_leaves_room_for_other_readers,
                            a_tenant_sees_its_own_records_alone,
                            an_operator_sees_all_and_what_belongs_to_nobody,
                            a_job_is_proved_by_the_broker_and_checked_without_it,
                            an_old_job_is_found_in_an_older_file,
                            a_follower_gets_each_record_once_also_over_files_and_a_restart], lambda case: case(b)))


main()
