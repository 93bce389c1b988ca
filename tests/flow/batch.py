#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches: refusals, windows both ways, at most one execution, resume, cancel, deadline, jobs that hang or write without end,
readers that stop, a broker that is killed or stopped, and another tenant beside one."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time

import sp
from broker import NO_BPF, Broker
from slowness import LONG_DRAIN, scaled
from runner import check, run_cases, time_passes, until

sp.load("proto/gen/descriptor_set.bin")
RUN_BATCH, ADD = "/stockade.v1.ProcessService/RunBatch", "/stockade.v1.ProcessService/AddToBatch"
RUN = "/stockade.v1.ProcessService/Run"
INVALID, NOT_FOUND, EXISTS, ABORTED, OUT_OF_RANGE = 3, 5, 6, 10, 11
EXITED, LIMIT, REFUSED, CANCELLED, NOT_EXECUTED = 1, 3, 4, 7, 6
OTHER = 65532


class Batch:
    """One stream of RunBatch, on a connection of its own."""

    def __init__(self, b, key, credit=1000, **fields):
        self.key, self.out, self.results, self.ended = key, {}, [], None
        self.c = sp.Client(b.address, timeout=scaled(60))
        self.id = self.c.begin(RUN_BATCH, {"key": key, **fields}, credit=credit)

    def next(self):
        """One event; a Failed is raised."""
        frame = self.c.recv(self.id)
        if frame.kind == sp.END:
            if frame.HasField("status") and frame.status.code:
                raise sp.Failed(frame.status)
            return None
        event = sp.message("stockade.v1.RunBatchResponse").FromString(frame.payload)
        if event.HasField("output"):
            at = self.out.setdefault(event.output.number, {1: b"", 2: b""})
            at[event.output.stream] += event.output.data
        elif event.HasField("finished"):
            self.results.append(event.finished)
        elif event.HasField("ended"):
            self.ended = event.ended
        return event

    def begun(self):
        event = self.next()
        check(event is not None and event.HasField("begun"), f"the first message is begun: {event}")
        return event.begun

    def add(self, *jobs, first=0, last=False, received=0):
        made = [job if isinstance(job, dict) else {"command": {"args": job}} for job in jobs]
        return self.c.unary(ADD, {"key": self.key, "first": first, "jobs": made, "last": last, "received": received}).accepted

    def add_fails(self, *jobs, first=0, **fields):
        made = [job if isinstance(job, dict) else {"command": {"args": job}} for job in jobs]
        return self.c.fails(ADD, {"key": self.key, "first": first, "jobs": made, **fields})

    def until(self, n):
        while len(self.results) < n:
            check(self.next() is not None, f"{len(self.results)} of {n} results")
        return self.results

    def end(self, first, n):
        """Confirms all and reads the end."""
        self.add(first=first, last=True, received=n)
        while self.ended is None:
            check(self.next() is not None, "the end has a message")
        check(self.next() is None, "END follows")
        return self.ended.jobs

    def close(self):
        self.c.close()



def what_is_wrong_is_refused_and_nothing_begins(b):
    c = sp.Client(b.address)
    for fields in ({"key": ""}, {"key": "x y"}, {"key": "k", "parallel": 257}, {"key": "k", "window": 4097},
                   {"key": "k", "received": 1}, {"key": "k", "limits": {"output_bytes": 2 << 20}}):
        id_ = c.begin(RUN_BATCH, fields)
        frame = c.recv(id_)
        check(frame.kind == sp.END and frame.status.code == INVALID, f"{fields}: {frame}")
    for fields, code in (({"key": "k", "template": "none-such"}, NOT_FOUND), ({"key": "k", "resume": True}, NOT_FOUND)):
        frame = c.recv(c.begin(RUN_BATCH, fields))
        check(frame.kind == sp.END and frame.status.code == code, f"{fields}: {frame}")
    check(c.fails(ADD, {"key": "k"}).code == NOT_FOUND, "there is none to add to")
    batch = Batch(b, "k")
    check(batch.begun().accepted == 0, "it begins empty")
    again = Batch(b, "k")
    try:
        again.next()
        check(False, "a second one with this key")
    except sp.Failed as failed:
        check(failed.code == EXISTS and failed.reason == "BATCH_EXISTS", failed)
    for job, word in (({"command": {"args": []}}, "args"), ({"command": {"args": ["cat"], "stdin_open": True}}, "stdin_open"),
                      ({"command": {"args": ["cat"], "terminal": {"rows": 1}}}, "terminal"),
                      ({"command": {"args": ["true"]}, "limits": {"memory_bytes": 1 << 40}}, "memory_bytes")):
        failed = batch.add_fails(["true"], job)
        check(failed.code == INVALID and word in str(failed), f"{job}: {failed}")
    check(batch.add_fails(["true"], first=1).code == OUT_OF_RANGE, "a job is missing")
    check(batch.add_fails(received=1).code == OUT_OF_RANGE, "a result that does not exist is confirmed")
    check(batch.add() == 0, "none of these was accepted")
    strange = b.stranger("batch", "--key", "k", "--resume", "/dev/null")
    check(strange.returncode == 1 and b"no batch with the key k" in strange.stderr, strange)
    check(batch.end(0, 0) == 0, "an empty batch ends")
    check(batch.c.fails(ADD, {"key": "k"}).code == NOT_FOUND, "and is forgotten")
    for x in (batch, again):
        x.close()


def wrong_lines_are_refused_before_a_job_is_executed(b):
    path = f"{b.folder}/jobs"
    for line, word in (("nonsense", "not JSON"), ('{"args": []}', "args"), ('{"args": ["a"], "what": 1}', "what"),
                       ('{"key": "k"}', "args"), ('["a", 1]', "text"), ('{"args": ["a"], "limits": {"wall": 1}}', "wall"),
                       ('{"args": ["a"], "limits": {"wall_ms": -1}}', "wall_ms"), ('{"args": ["a"], "stdin_base64": "!"}', "base64"),
                       ('"a"', "a list"), ('["a\\u0000b"]', "NUL")):
        with open(path, "w", encoding="utf-8") as f:
            f.write('["echo", "first"]\n\n' + line + "\n")
        r = b.cli("batch", path)
        check(r.returncode == 2 and not r.stdout and b"line 3: " in r.stderr and word.encode() in r.stderr, f"{line}: {r}")
    for args, word in ((["batch"], "FILE is missing"), (["batch", "/none/such"], "No such file"),
                       (["batch", "--resume", path], "--resume needs --key"),
                       (["batch", "--parallel", "500", "/dev/null"], "above the maximum of 256")):
        r = b.cli(*args)
        check(r.returncode in (2, 77) and word.encode() in r.stderr, f"{args}: {r}")
    r = b.cli("batch", "-", input=b'["echo", "first"]\nnonsense\n')
    check(r.returncode == 2 and b"line 2" in r.stderr, f"from a pipe: {r}")


def the_command_prints_a_line_for_each_job(b):
    lines = [json.dumps(["sh", "-c", f"echo out {i}; echo err {i} >&2; exit {i % 3}"]) for i in range(12)]
    lines.append(json.dumps({"args": ["sh", "-c", "cat; pwd; echo $A"], "stdin": "héllo\n", "key": "k", "env": {"A": "b"},
                             "workdir": "/tmp"}))
    lines.append(json.dumps({"args": ["cat"], "stdin_base64": base64.b64encode(b"\xff\x00x").decode()}))
    lines.append(json.dumps({"args": ["sleep", "60"], "limits": {"wall_ms": 200}}))
    lines.append(json.dumps(["no-such-program"]))
    r = b.cli("batch", "-p", "3", "-", input=("\n".join(lines)).encode())
    check(r.returncode == 1 and not r.stderr, f"some exited with another code than 0: {r}")
    got = {d["number"]: d for d in map(json.loads, r.stdout.splitlines())}
    check(sorted(got) == list(range(16)), f"one line each: {sorted(got)}")
    for i in range(12):
        d = got[i]
        check((d["stdout"], d["stderr"], d["exit_code"], d["outcome"]) == (f"out {i}\n", f"err {i}\n", i % 3, "EXITED"), d)
        check(d["bill"]["wall_us"] > 0 and d["process_id"], d)
    check(got[12]["stdout"] == "héllo\n/tmp\nb\n" and got[12]["key"] == "k", got[12])
    check(base64.b64decode(got[13]["stdout_base64"]) == b"\xff\x00x", got[13])
    check(got[14]["outcome"] == "LIMIT" and got[14]["limit_hit"]["name"] == "wall_ms", got[14])
    check(got[15]["outcome"] == "NOT_EXECUTED" and got[15]["exit_code"] == 127, got[15])
    r = b.cli("batch", "-", input=b'["true"]\n')
    check(r.returncode == 0, f"all exited with 0: {r}")


def a_slow_pipe_gets_each_result_when_it_is_there(b):
    p = b.popen("batch", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for i in range(3):
        p.stdin.write(json.dumps(["echo", str(i)]).encode() + b"\n")
        p.stdin.flush()
        check(json.loads(p.stdout.readline())["stdout"] == f"{i}\n", "before the next job is sent")
    p.stdin.close()
    check(p.wait(30) == 0, "and it ends with its input")


def every_job_gets_a_fresh_sandbox(b):
    lines = [json.dumps(["sh", "-c", "ls -A /tmp /dev/shm ~; echo x >/tmp/x; echo x >~/y; echo x >/dev/shm/z"])] * 8
    r = b.cli("batch", "-p", "2", "-", input="\n".join(lines).encode())
    shown = {json.loads(line)["stdout"] for line in r.stdout.splitlines()}
    check(r.returncode == 0 and len(shown) == 1, f"each finds the same: {shown}")


def the_window_bounds_jobs_until_results_are_confirmed(b):
    batch = Batch(b, "window", window=4)
    check(batch.begun().window == 4, "the window is as requested")
    check(batch.add(*[["true"]] * 10) == 4, "four are accepted")
    batch.until(4)
    check(batch.add(*[["true"]] * 6, first=4) == 4, "none, until a result is confirmed")
    check(batch.add(*[["true"]] * 6, first=4, received=3) == 7, "three more")
    check(batch.add(*[["true"]] * 6, first=4, received=3) == 7, "the same call again adds nothing")
    batch.until(7)
    check(sorted(r.number for r in batch.results) == list(range(7)), "each ran once")
    check([r.sequence for r in batch.results] == list(range(1, 8)), "results are counted")
    check(batch.add(first=7, last=True, received=6) == 7, "the last one")
    check(batch.add_fails(["true"], first=7).code == INVALID, "no job follows the last one")
    check(batch.end(7, 7) == 7, "and it ends")
    batch.close()


def a_lost_connection_is_resumed_and_no_job_runs_twice(b):
    """The job writes its own random number: an execution more would show as another number or another result."""
    batch = Batch(b, "lost", parallel=2)
    batch.begun()
    batch.add(*[["sh", "-c", "sleep 0.0$((RANDOM % 10)); cat /proc/sys/kernel/random/uuid"]] * 40)
    batch.until(5)
    first = {r.number: batch.out[r.number][1] for r in batch.results}
    batch.close()
    time_passes("jobs go on without a connection", 0.3)
    again = Batch(b, "lost", resume=True, received=3)
    begun = again.begun()
    check(begun.accepted == 40 and not begun.last, begun)
    check(again.add(*[["true"]] * 40) == 40, "jobs that it has are skipped")
    again.until(37)
    check([r.sequence for r in again.results] == list(range(4, 41)), "from the first that was not received")
    texts = {r.number: again.out[r.number][1] for r in again.results}
    check(all(texts[n] == first[n] for n in first if n in texts), "what is sent again is the same execution")
    texts.update(first)
    check(sorted(texts) == list(range(40)) and len(set(texts.values())) == 40, "each job ran once")
    check(again.end(40, 40) == 40, "and it ends")
    again.close()


def a_second_follower_takes_over(b):
    batch = Batch(b, "two")
    batch.begun()
    batch.add(["sleep", "0.3"])
    again = Batch(b, "two", resume=True)
    again.begun()
    try:
        while batch.next() is not None:
            pass
        check(False, "the first call ends with ABORTED")
    except sp.Failed as failed:
        check(failed.code == ABORTED and failed.reason == "BATCH_RESUMED", failed)
    again.until(1)
    check(again.end(1, 1) == 1, "the second gets the result")
    for x in (batch, again):
        x.close()


def the_command_goes_on_after_its_connection_broke(b):
    """Through a proxy that cuts the connection in the middle, twice."""
    import proxy_unix  # noqa: PLC0415 - beside this file
    with proxy_unix.Proxy(b.address[6:], f"{b.folder}/proxy.sock", cut_after=[3000, 9000]) as p:
        lines = "\n".join(json.dumps(["echo", str(i)]) for i in range(60)).encode()
        r = subprocess.run([b.command()[0], "--address", f"ipc://{p.path}", "batch", "-"], input=lines, capture_output=True,
                           timeout=scaled(60), check=False)
        check(p.cuts == 2, f"it was cut {p.cuts} times")
        got = [json.loads(line) for line in r.stdout.splitlines()]
        check(r.returncode == 0 and sorted(d["number"] for d in got) == list(range(60)), f"{r.returncode} {r.stderr} {len(got)}")
        check(all(d["stdout"] == f"{d['number']}\n" for d in got), "each has its own output")


def a_killed_command_is_continued_with_its_key(b):
    path = f"{b.folder}/long"
    with open(path, "w", encoding="utf-8") as f:
        for i in range(60):
            f.write(json.dumps(["sh", "-c", f"sleep 0.05; echo {i}"]) + "\n")
    p = b.popen("batch", "--key", "mine", "-p", "2", path, stdout=subprocess.PIPE)
    got = [json.loads(p.stdout.readline()) for _ in range(5)]
    p.kill()
    got += [json.loads(line) for line in p.stdout.read().splitlines() if line.endswith(b"}")]
    p.wait(30)
    r = b.cli("batch", "--key", "mine", "--resume", path)
    got += [json.loads(line) for line in r.stdout.splitlines()]
    check(r.returncode == 0, r.stderr)
    ids = {}
    for d in got:
        check(ids.setdefault(d["number"], d["process_id"]) == d["process_id"], f"job {d['number']} ran twice")
        check(d["stdout"] == f"{d['number']}\n", d)
    check(sorted(ids) == list(range(60)), f"all have a result: {len(ids)}")


def cancel_ends_running_and_waiting_jobs(b):
    before = b.rests()
    batch = Batch(b, "cancel", parallel=2)
    batch.begun()
    batch.add(*[["sleep", "1000"]] * 20)
    until(lambda: b.json("info")[1]["processes"] == 2, "two run")
    batch.c.send(batch.id, sp.Frame(kind=sp.CANCEL))
    try:
        while batch.next() is not None:
            pass
        check(False, "it ends with CANCELLED")
    except sp.Failed as failed:
        check(failed.code == sp.CANCELLED, failed)
    until(lambda: b.json("info")[1]["processes"] == 0, "none runs")
    check(batch.c.fails(ADD, {"key": "cancel"}).code == NOT_FOUND, "it is forgotten")
    batch.close()
    p = b.popen("batch", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(b'["sleep", "1000"]\n')
    p.stdin.flush()
    until(lambda: b.json("info")[1]["processes"] == 1, "it runs")
    p.send_signal(signal.SIGINT)
    check(p.wait(30) == 128 + signal.SIGINT, "the exit code says so")
    until(lambda: b.json("info")[1]["processes"] == 0, "and its job ends")
    check(b.settles(before), "nothing is left")


def a_deadline_ends_all_jobs_and_no_more_are_taken(b):
    batch = Batch(b, "deadline", parallel=2, deadline_ms=700)
    batch.begun()
    batch.add(["true"], *[["sleep", "1000"]] * 5)
    batch.until(6)
    kinds = {r.number: (r.result.outcome, bool(r.process_id)) for r in batch.results}
    check(kinds[0][0] == EXITED and [kinds[i][0] for i in range(1, 6)] == [CANCELLED] * 5, kinds)
    check(not kinds[5][1] and "deadline" in batch.results[-1].result.reason, "one was never started")
    check(batch.add_fails(["true"], first=6).code == sp.DEADLINE, "no more jobs")
    batch.add(received=6)
    while batch.ended is None:
        batch.next()
    check(batch.ended.jobs == 6, "it ends")
    batch.close()
    r = b.cli("batch", "--deadline", "500ms", "-p", "1", "-", input=b'["sleep", "9"]\n' * 3)
    got = [json.loads(line) for line in r.stdout.splitlines()]
    check(r.returncode == 1 and [d["outcome"] for d in got] == ["CANCELLED"] * 3, r)


def a_flood_of_output_is_cut_and_a_hanging_job_ends_at_its_limit(b):
    batch = Batch(b, "flood", parallel=4)
    batch.begun()
    batch.add(*[["head", "-c", "30000000", "/dev/zero"]] * 6, {"command": {"args": ["sleep", "1000"]}, "limits": {"wall_ms": 300}},
              {"command": {"args": ["head", "-c", "1000000", "/dev/zero"]}, "limits": {"output_bytes": 1 << 20}})
    batch.until(8)
    for r in batch.results:
        n = len(batch.out.get(r.number, {1: b""})[1])
        if r.number < 6:
            check(n == 65536 and r.result.bill.output_cut_bytes.value == 30000000 - 65536, f"{n}, {r.result.bill.output_cut_bytes}")
            check(r.result.limit_hit.name == "output_bytes" and r.lost_bytes == 0, r.result.limit_hit)
    by = {r.number: r for r in batch.results}
    check(by[6].result.outcome == LIMIT, by[6])
    check(len(batch.out[7][1]) == 1000000 and by[7].result.outcome == EXITED, "a limit of 1 MiB keeps it all")
    check(batch.end(8, 8) == 8, "and it ends")
    batch.close()


def a_client_that_stops_reading_holds_only_its_window(b):
    """Credit for two messages: jobs end, results wait, no more jobs are accepted, and others are served."""
    batch = Batch(b, "unread", credit=2, window=64)
    batch.begun()
    check(batch.add(*[["head", "-c", "60000", "/dev/zero"]] * 100) == 64, "the window")
    until(lambda: b.json("info")[1]["processes"] == 0 and b.json("info")[1]["sandboxes_own"] == 0, "all have ended", 60)
    check(batch.add(["true"], first=64) == 64, "nothing more is accepted")
    check(b.cli("run", "--", "true").returncode == 0, "others are served")
    batch.c.send(batch.id, sp.Frame(kind=sp.WINDOW, credit=1000))
    batch.until(64)
    check(all(len(batch.out[n][1]) == 60000 for n in range(64)), "no byte is lost")
    check(batch.end(64, 64) == 64, "and it ends")
    batch.close()


def an_abandoned_batch_is_forgotten_with_its_jobs(b):
    batch = Batch(b, "kept", keep_ms=300)
    batch.begun()
    batch.add(*[["sleep", "1000"]] * 8)
    until(lambda: b.json("info")[1]["processes"] > 0, "jobs run")
    batch.close()
    until(lambda: b.json("info")[1]["processes"] == 0, "they are cancelled when nobody came")
    c = sp.Client(b.address)
    check(c.fails(ADD, {"key": "kept"}).code == NOT_FOUND, "it is forgotten")
    c.close()


def another_tenants_run_is_not_starved(b):
    """All sandboxes belong to the batch, whose jobs take a while; a run of another tenant comes in turn."""
    os.chmod(b.address[6:], 0o666)
    batch = Batch(b, "greedy", parallel=100, window=1000)
    batch.begun()
    batch.add(*[["sleep", "0.1"]] * 250)
    reader = threading.Thread(target=batch.until, args=(250,))
    reader.start()
    until(lambda: len(batch.results) > 10, "it goes on")
    os.seteuid(OTHER)
    try:
        other = sp.Client(b.address, timeout=scaled(60))
    finally:
        os.seteuid(0)
    took = []
    for _ in range(3):
        done, began = len(batch.results), time.monotonic()
        id_ = other.begin(RUN, {"command": {"args": ["true"]}}, credit=100)
        while other.recv(id_).kind != sp.END:
            pass
        took.append((len(batch.results) - done, time.monotonic() - began))
    check(len(batch.results) < 250, "the batch was still there")
    check(sorted(took)[1][0] <= 40, f"results of the batch during each run: {took}")
    print(f"runs beside the batch: {took}", flush=True)
    reader.join(scaled(60))
    check(batch.end(250, 250) == 250, "the batch ends as well")
    for x in (batch, other):
        x.close()


def a_killed_broker_loses_the_batch_and_the_command_says_so(_):
    with Broker(name="-killed", config=NO_BPF + "pool: 2\n") as b:
        p = b.popen("batch", "-p", "2", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b'["sleep", "1000"]\n["true"]\n')
        p.stdin.flush()
        check(json.loads(p.stdout.readline())["number"] == 1, "one has ended")
        b.kill()
        b.start()
        out, err = p.communicate(timeout=scaled(90))
        check(p.returncode == 1 and not out, f"{p.returncode} {out}")
        check(b"1 job that it accepted has no result" in err, err)


def a_broker_that_stops_ends_what_runs_and_cancels_the_rest(_):
    with Broker(name="-stops", config=f"{NO_BPF}pool: 2\ndrain: {LONG_DRAIN}s\n") as b:
        batch = Batch(b, "stops", parallel=1)
        batch.begun()
        batch.add(["sh", "-c", "sleep 1; echo done"], ["true"], ["true"])
        until(lambda: b.json("info")[1]["processes"] == 1, "one runs")
        b.process.send_signal(signal.SIGTERM)
        batch.until(3)
        by = {r.number: r for r in batch.results}
        check(by[0].result.outcome == EXITED and batch.out[0][1] == b"done\n", by[0])
        check([by[i].result.outcome for i in (1, 2)] == [CANCELLED] * 2 and by[1].result.reason == "the broker is stopping", by[1])
        check(batch.add_fails(["true"], first=3).code == sp.UNAVAILABLE, "no more jobs")
        batch.add(received=3)
        while batch.ended is None:
            batch.next()
        check(b.process.wait(LONG_DRAIN) == 0, "it stops at once")
        batch.close()


def the_command_says_that_the_broker_stopped(_):
    with Broker(name="-stopped", config=f"{NO_BPF}pool: 2\ndrain: {LONG_DRAIN}s\n") as b:
        p = b.popen("batch", "-p", "1", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b'["sleep", "1"]\n["true"]\n')
        p.stdin.close()
        until(lambda: b.json("info")[1]["processes"] == 1, "one runs")
        b.process.send_signal(signal.SIGTERM)
        got = sorted(json.loads(line)["outcome"] for line in p.stdout.read().splitlines())
        check(got == ["CANCELLED", "EXITED"] and p.wait(30) == 75, f"{p.returncode} {got} {p.stderr.read()}")


with Broker(config="pool: 4\nquotas: {sandboxes: 12}\n") as BROKER:
    CODE = run_cases([
        what_is_wrong_is_refused_and_nothing_begins,
        wrong_lines_are_refused_before_a_job_is_executed,
        the_command_prints_a_line_for_each_job,
        a_slow_pipe_gets_each_result_when_it_is_there,
        every_job_gets_a_fresh_sandbox,
        the_window_bounds_jobs_until_results_are_confirmed,
        a_lost_connection_is_resumed_and_no_job_runs_twice,
        a_second_follower_takes_over,
        the_command_goes_on_after_its_connection_broke,
        a_killed_command_is_continued_with_its_key,
        cancel_ends_running_and_waiting_jobs,
        a_deadline_ends_all_jobs_and_no_more_are_taken,
        a_flood_of_output_is_cut_and_a_hanging_job_ends_at_its_limit,
        a_client_that_stops_reading_holds_only_its_window,
        an_abandoned_batch_is_forgotten_with_its_jobs,
        another_tenants_run_is_not_starved,
        a_killed_broker_loses_the_batch_and_the_command_says_so,
        a_broker_that_stops_ends_what_runs_and_cancels_the_rest,
        the_command_says_that_the_broker_stopped,
    ], call=lambda case: case(BROKER))
sys.exit(CODE)
