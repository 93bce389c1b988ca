#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is left afterwards: of one sandbox that 20 clients cancel, snapshot, roll back and delete at the same instant; of secrets that a
call carries; and of everything that was in memory when the host restarts."""

import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import threading

import sp
from api import EXISTS, NOT_FOUND, PRECONDITION, connect
from broker import Broker, binary
from runner import check, run_cases, until
from slowness import scaled

CONFIG = """
pool: 0
audit: {sync: always}
"""
SERVICE = "/stockade.v1."
CLIENTS = 20
OK, ABORTED = 0, 10
CANARY = "canary-5f0e3a97c2d14b68"


def at_once(b, calls):
    """Makes calls at the same instant, each on its own connection; the codes, in their order."""
    clients = [connect(b) for _ in calls]
    start = threading.Barrier(len(calls))

    def make(c, method, request):
        start.wait()
        try:
            c.unary(SERVICE + method, request)
            return OK
        except sp.Failed as failed:
            check(failed.message and failed.code not in (2, 13), f"{method}: {failed}")  # UNKNOWN, INTERNAL
            return failed.code

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        codes = list(pool.map(lambda i: make(clients[i], *calls[i]), range(len(calls))))
    for c in clients:
        c.close()
    return codes


def used(b):
    all_ = {q["name"]: q["used"] for q in json.loads(b.cli("info", "-o", "json").stdout)["quotas"]}
    return {name: all_[name] for name in ("sandboxes", "jobs", "cpu_millis", "memory_bytes", "disk_bytes")}


def of_many_deletes_one_wins_and_nothing_is_left(b):
    c = connect(b)
    before = used(b)
    for turn in range(3):
        box = c.unary(SERVICE + "SandboxService/Create", {"name": f"raced-{turn}"}).sandbox.id
        c.unary(SERVICE + "SnapshotService/Create", {"sandbox": box, "name": "first"})
        job = c.start(box, "sleep 1000").id
        kinds = [("ProcessService/Signal", {"process_id": job, "signal": 9}), ("SnapshotService/Create", {"sandbox": box, "name": "second"}),
                 ("SnapshotService/Restore", {"sandbox": box, "name": "first"}), ("SandboxService/Delete", {"id": box})]
        calls = [kinds[i % len(kinds)] for i in range(CLIENTS)]
        codes = at_once(b, calls)
        deletes = [code for (method, _), code in zip(calls, codes) if method == "SandboxService/Delete"]
        check(set(codes) <= {OK, NOT_FOUND, EXISTS, PRECONDITION, ABORTED} and OK in deletes, codes)
        for method in ("SandboxService/Get", "SandboxService/Delete"):
            check(c.fails(SERVICE + method, {"id": box}).code == NOT_FOUND, "it is gone")
        check(c.fails(SERVICE + "SnapshotService/List", {"sandbox": box}).code == NOT_FOUND, "with its snapshots")
    check(json.loads(b.cli("ls", "-o", "json").stdout) == [], "none is left")
    until(lambda: used(b) == before, lambda: f"{used(b)}, {before} before")
    c.close()


def without_a_delete_the_sandbox_stays_whole(b):
    c = connect(b)
    box = c.unary(SERVICE + "SandboxService/Create", {}).sandbox.id
    c.unary(SERVICE + "SnapshotService/Create", {"sandbox": box, "name": "first"})
    job = c.start(box, "sleep 1000").id
    kinds = [("ProcessService/Signal", {"process_id": job, "signal": 9}), ("SnapshotService/Restore", {"sandbox": box, "name": "first"}),
             ("SandboxService/Pause", {"id": box}), ("SandboxService/Resume", {"id": box})]
    calls = [kinds[i % 4] if i % 5 else ("SnapshotService/Create", {"sandbox": box, "name": f"of-{i}"}) for i in range(CLIENTS)]
    codes = at_once(b, calls)
    check(set(codes) <= {OK, NOT_FOUND, EXISTS, PRECONDITION, ABORTED}, codes)
    b.cli("resume", box)
    made = {request["name"] for (method, request), code in zip(calls, codes) if method == "SnapshotService/Create" and code == OK}
    listed = {s.name for s in c.unary(SERVICE + "SnapshotService/List", {"sandbox": box}).snapshots}
    check(listed == made | {"first"}, f"{listed}, but {made} were made")
    until(lambda: b.cli("exec", box, "--", "true").returncode == 0, "it runs commands")
    check(b.cli("rm", box).returncode == 0, "and can be deleted")
    c.close()


def holds(folder, text):
    found = []
    for path in glob.glob(f"{folder}/**", recursive=True):
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as f:
                if text.encode() in f.read():
                    found.append(path)
    return found


def a_secret_of_a_call_is_in_no_error_log_record_event_or_core(b):
    env = dict(os.environ, STOCKADE_ADDRESS=b.address)
    said = []

    def call(*args, token=None):
        more = {"STOCKADE_TOKEN": token} if token else {}
        r = subprocess.run([binary("stockade"), *args], env={**env, **more}, capture_output=True, text=True, check=False, timeout=scaled(60))
        said.append(r.stderr)
        return r

    box = call("create").stdout.strip()
    secret = ("-e", f"API_KEY={CANARY}")
    check(CANARY in call("exec", *secret, box, "--", "sh", "-c", "echo $API_KEY").stdout, "the job itself has it")
    check(call("exec", *secret, box, "--", "no-such-program").returncode == 127, "not found")
    call("exec", *secret, "0" * 32, "--", "true")
    call("exec", *secret, "--workdir", "/nowhere", box, "--", "true")
    call("run", *secret, "--memory", "1000000G", "--", "true")
    call("exec", *secret, box, "--", "sh", "-c", "kill -ABRT $$")
    check("core" not in call("exec", box, "--", "ls", "-A", "/home/agent", "/tmp").stdout, "no core")
    for args in (("ls",), ("run", "--", "true")):
        check(call(*args, token="stk_" + CANARY).returncode == 77, "refused")
    call("code", "--sandbox", box, *secret, "-c", "import os; raise SystemError(1)")
    for args in (("events", "--from", "1", "-o", "json"), ("inspect", "-o", "json"), ("ps", "-o", "json"), ("ls", "-o", "json"), ("audit", "tail", "--tenant", "*"),
                 ("anomalies", "-o", "json")):
        r = call(*args)
        check(CANARY not in r.stdout, f"{args}: {r.stdout[-2000:]}")
    check(not any(CANARY in text for text in said), [text for text in said if CANARY in text])
    call("rm", box)
    check(CANARY not in b.log(), "not in the log")
    check(holds(b.state, CANARY) == [], holds(b.state, CANARY))


def after_a_restart_of_the_host_the_records_are_whole_and_the_rest_is_gone(b):
    """Everything in memory is gone: processes, mounts, cgroups, the runtime folder. What is on the disk stays."""
    key = b.cli("key", "create", "--label", "kept").stdout.decode().strip()
    box = b.cli("create", "--name", "lost").stdout.decode().strip()
    job = b.cli("exec", "-d", box, "--", "sleep", "1000").stdout.decode().strip()
    check(key and job, "made")
    b.kill()
    for path in glob.glob(f"{b.folder}/run/*"):
        os.unlink(path)
    b.start()
    check(json.loads(b.cli("ls", "-o", "json").stdout) == [], "no sandbox is left")
    check(b.cli("exec", box, "--", "true").returncode != 0 and b.cli("inspect", job).returncode != 0, "nor a job")
    check(b.cli("ls", env=dict(os.environ, STOCKADE_TOKEN=key)).returncode == 0, "the key is valid")
    log = f"{b.state}/audit"
    code, found = b.json("audit", "verify", "--public-key", f"{log}/audit.pub", log)
    check(code == 0 and found["whole"], found)
    records = b.cli("audit", "export", log).stdout.decode()
    check('KeyService/Create' in records and box in records, "what happened before is in it")
    check(b.cli("run", "--", "true").returncode == 0, "and it goes on")


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases([of_many_deletes_one_wins_and_nothing_is_left, without_a_delete_the_sandbox_stays_whole,
                            a_secret_of_a_call_is_in_no_error_log_record_event_or_core,
                            after_a_restart_of_the_host_the_records_are_whole_and_the_rest_is_gone], lambda case: case(b))
    sys.exit(status)


main()
