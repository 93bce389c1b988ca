#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: running jobs may continue for `drain`, then they are cancelled; the broker reports that to its clients and
exits with 0."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time

import sp
from broker import NO_BPF, Broker
from interpreter import CANCELLED, CODE, Cell, box
from slowness import LONG_DRAIN as LONG
from slowness import scaled
from runner import check, deliver, run_cases, time_passes, until

sp.load("proto/gen/descriptor_set.bin")
CONFIG = "drain: {drain}\nkeep_finished: 5s\n"


def draining(seconds, more=NO_BPF):
    return Broker(config=CONFIG.format(drain=f"{seconds:.0f}s") + more)


def running(b, *args, **kw):
    """A client of a job that has printed "up"."""
    p = b.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    check(p.stdout.readline() == b"up\n", "it runs")
    return p


def ended(b, seconds=40):
    code = b.process.wait(seconds)
    b.process = None
    check(not b.cgroups(), f"left over: {b.cgroups()}")
    return code


def terminate(b, number=signal.SIGTERM):
    deliver(b.process, number)
    return time.monotonic()


# ---- refusals


def while_it_drains_new_jobs_are_refused_with_the_reason():
    with draining(LONG) as b:
        check(b.cli("create", "--name", "kept").returncode == 0, "create")
        c = sp.Client(b.address)
        p = running(b, "run", "--", "sh", "-c", "echo up; sleep 1000; exit 0")
        terminate(b)
        check(c.goaway().reason == "DRAINING", "an open connection gets GOAWAY")
        f = c.fails("/stockade.v1.SandboxService/Create", {})
        check(f.code == sp.UNAVAILABLE and f.reason == "DRAINING", f"a new call: {f}")
        for args in (("run", "--", "true"), ("create",), ("exec", "kept", "--", "true")):
            r = b.cli(*args, timeout=20)
            check(r.returncode == 75, f"{args} on a new connection: {r.returncode} {r.stderr!r}")
            left = re.search(rb"hint: its jobs have (\d+)(s|m) left to end; try again when it was started again", r.stderr)
            check(b"try again in" not in r.stderr, f"one advice: {r.stderr!r}")
            check(left and 1 <= int(left[1]) <= LONG + 1, f"how long it still takes: {r.stderr!r}")
        sleeper = next(pid for pid, name in b.processes().items() if name == "sleep")
        os.kill(sleeper, signal.SIGKILL)  # as if its time were over
        check(p.wait(20) == 0, "what ran has ended by itself")
        check(ended(b) == 0, "exit code")


# ---- what runs


def a_job_that_ends_in_time_is_answered_whole():
    with draining(LONG) as b:
        p = running(b, "run", "--", "sh", "-c", "echo up; sleep 1; echo down; exit 7")
        began = terminate(b)
        out, err = p.communicate(timeout=30)
        check(p.returncode == 7 and out == b"down\n", f"{p.returncode} {out!r} {err!r}")
        check(ended(b) == 0, "exit code")
        check(time.monotonic() - began < LONG / 2, "it ends when the last job has, not when the time is over")


def while_it_drains_running_jobs_get_input_signals_and_waits():
    """Input, the end of input, signals, waiting, health: also on a connection that is new."""
    with draining(LONG) as b:
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        p = b.popen("run", "-i", "--", "sh", "-c", "echo up; exec cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        check(p.stdout.readline() == b"up\n", "it runs")
        trap = "trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.1; done"
        exec_ = running(b, "exec", "box", "--", "sh", "-c", trap)
        other = next(j["id"] for j in b.json("ps")[1] if "trap" in str(j))
        c = sp.Client(b.address)
        terminate(b)
        check(c.goaway().reason == "DRAINING", "it drains")
        status = c.unary("/stockade.v1.HealthService/Check", {})
        check(status.status == 2 and "shutting down" in status.reason, f"health: {status}")
        p.stdin.write(b"a line that comes late\n")
        p.stdin.flush()
        check(p.stdout.readline() == b"a line that comes late\n", "input")
        sp.Client(b.address).unary("/stockade.v1.ProcessService/Signal", {"process_id": other, "signal": 15})
        check(exec_.communicate(timeout=20)[0] == b"caught\n" and exec_.returncode == 3, "a signal")
        p.stdin.close()
        check(p.wait(20) == 0, "the end of input ends it")
        check(ended(b) == 0, "exit code")


def a_run_that_does_not_end_in_time_is_cancelled():
    with draining(1) as b:
        p = running(b, "run", "--", "sh", "-c", "trap '' TERM INT HUP; echo up; while :; do sleep 1; done")
        began = terminate(b)
        _, err = p.communicate(timeout=30)
        took = time.monotonic() - began
        check(p.returncode == 75 and b"cancelled: the broker is stopping" in err, f"{p.returncode} {err!r}")
        check(1.0 <= took < scaled(30), f"it had its second: {took:.2f} s")
        check(ended(b) == 0, "exit code")


def a_detached_job_gets_its_time_and_is_then_cancelled():
    with draining(2) as b:
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        check(b.cli("exec", "-d", "box", "--", "sleep", "100").returncode == 0, "exec -d")
        processes = b.json("ps")[1]
        check(len(processes) == 1, f"one runs: {processes}")
        c = sp.Client(b.address, timeout=30)
        method = "/stockade.v1.ProcessService/Wait"
        waits = c.begin(method, {"process_id": processes[0]["id"]})
        c.unary("/stockade.v1.HealthService/Check", {})  # the broker has read what was sent before
        began = terminate(b)
        result = c.end(method, waits).result
        check(result.outcome == 7 and result.reason == "the broker is stopping", f"who waits for it hears why: {result}")
        check(c.others["goaway"], "and was told before that the broker drains")
        check(ended(b) == 0, "exit code")
        took = time.monotonic() - began
        check(2.0 <= took < scaled(30), f"it had its two seconds: {took:.2f} s")


def without_jobs_it_ends_at_once():
    with draining(LONG) as b:
        check(b.cli("create").returncode == 0, "a sandbox without a job is nothing to wait for")
        began = terminate(b)
        check(ended(b) == 0, "exit code")
        check(time.monotonic() - began < LONG / 2, "at once")
        check(re.search(rf"drain: .* have ({LONG}s|{LONG // 60}m) to end", b.log()), b.log()[-500:])


def followers_see_the_shutdown_and_do_not_delay_it():
    with draining(LONG, more="") as b:  # events come from the programs
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        events = b.popen("events", "-f", "-o", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        found = b.popen("anomalies", "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            until(lambda: b.cli("run", "--", "true") and select.select([events.stdout], [], [], 0.5)[0], "it follows", 30)
            first = json.loads(events.stdout.readline())
            p = running(b, "exec", "box", "--", "sh", "-c", "echo up; sleep 1000")
            began = terminate(b)
            time_passes("the drain goes on", 0.5)
            check(b.process.poll() is None and events.poll() is None, "it waits for the job")
            sleeper = next(pid for pid, name in b.processes().items() if name == "sleep")
            os.kill(sleeper, signal.SIGKILL)
            p.communicate(timeout=20)
            check(ended(b) == 0, "exit code")
            check(time.monotonic() - began < LONG / 2, "neither of them delays the end")
        finally:
            time_passes("the last lines are read", 0.5)
            events.kill()
            found.kill()
        out, err = events.communicate(timeout=20)
        kinds = [json.loads(line)["kind"] for line in out.splitlines()]
        check({"job_ended", "sandbox_deleted"} <= set(kinds), f"after {first['kind']}: {kinds}")
        check(b"stockade events: the connection to the broker is lost: " in err and b"; trying again\n" in err, err)
        err = found.communicate(timeout=20)[1]
        check(b"stockade anomalies: the connection to the broker is lost: " in err, err)


def an_interpreter_without_a_cell_does_not_delay_the_end():
    with draining(LONG) as b:
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        check(b.cli("code", "--sandbox", "box", "-c", "x = 1").returncode == 0, "a cell")
        c = sp.Client(b.address)
        check(c.unary("/stockade.v1.SystemService/Info", {}).processes == 1, "its interpreter runs on")
        began = terminate(b)
        check(ended(b) == 0, "exit code")
        check(time.monotonic() - began < LONG / 2, "the broker does not wait for it")


def streams_and_cells_that_are_cut_off_say_why():
    with draining(1) as b:
        c = sp.Client(b.address)
        name = box(c)
        runs = Cell(c, {"sandbox_id": name, "code": "import time; print('up', flush=True); time.sleep(1000)"})
        runs.until(lambda: runs.text == "up\n")
        waits = Cell(c, {"sandbox_id": name, "code": "1"})
        c.unary(CODE + "ListContexts", {"sandbox_id": name})  # the broker has read what was sent before
        files = "/stockade.v1.FileService/"
        streams = {method: c.begin(method, fields, credit=100) for method, fields in (
            (files + "Watch", {"sandbox_id": name, "path": b"/tmp"}), (files + "OpenWrite", {"sandbox_id": name, "path": b"/tmp/a"}),
            ("/stockade.v1.HealthService/Watch", {}), ("/stockade.v1.ApprovalService/Watch", {}),
            ("/stockade.v1.AuditService/Watch", {}), ("/stockade.v1.TelemetryService/Subscribe", {}))}
        for method in (files + "Watch", files + "OpenWrite"):
            check(c.recv(streams[method]).kind == sp.DATA, f"{method} has begun")
        terminate(b)
        for cell in (runs, waits):
            cell.finish()
            check(cell.end.status == CANCELLED and cell.end.reason.endswith("the broker is stopping"), cell.end)
        for method, call in streams.items():
            frame = c.recv(call)
            while frame.kind == sp.DATA:
                frame = c.recv(call)
            f = sp.Failed(frame.status)
            check(f.code == sp.UNAVAILABLE and f.reason == "STOPPING", f"{method}: {f} {f.details}")
            hint = f.details["ErrorInfo"].metadata["hint"]
            check(hint == "try again when the broker was started again", f"{method}: {hint}")
        check(ended(b) == 0, "exit code")


def a_second_signal_stops_it_at_once(second=signal.SIGTERM):
    with draining(LONG) as b:
        p = running(b, "run", "--", "sh", "-c", "echo up; sleep 1000")
        began = terminate(b)
        time_passes("the drain goes on", 0.5)
        check(b.process.poll() is None and p.poll() is None, "the first waits")
        terminate(b, second)
        check(ended(b) == 0, "exit code")
        check(time.monotonic() - began < LONG / 2, "the second does not")
        check(p.wait(20) == 75, f"its client hears that it may try again: {p.returncode} {p.stderr.read()!r}")


def each_command_that_waits_for_a_job_ends_with_75():
    """Whatever the job does: it runs, it is paused, or it waits for a sandbox."""
    with Broker(config=CONFIG.format(drain="1s") + "pool: 0\nquotas: {sandboxes: 3}\n") as b:
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        commands = [running(b, "exec", "box", "--", "sh", "-c", "echo up; sleep 1000"),
                    running(b, "run", "--", "sh", "-c", "echo up; sleep 1000"),
                    running(b, "run", "--", "sh", "-c", "echo up; sleep 1000")]
        check(b.cli("pause", "box").returncode == 0, "pause")
        waits = b.popen("run", "--", "true", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: "stockade_pool_queue_length 1\n" in b.cli("metrics", "--prometheus").stdout.decode(), "the last one waits for a sandbox")
        terminate(b)
        for p in [*commands, waits]:
            _, err = p.communicate(timeout=30)
            check(p.returncode == 75 and b"the broker is " in err, f"{p.args[-3:]}: {p.returncode} {err!r}")
        check(ended(b) == 0, "exit code")


def what_works_on_a_sandbox_and_is_cut_off_ends_with_75_too():
    """A cell, a transfer and a watch: nobody has cancelled them, and the next broker takes them."""
    with draining(1) as b:
        check(b.cli("create", "--name", "box").returncode == 0, "create")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        cell = running(b, "code", "--sandbox", "box", "-c", "print('up', flush=True)\nimport time\ntime.sleep(1000)")
        watch = b.popen("fs", "watch", "box", ".", **pipes)
        check(b"watching 1 folder\n" in watch.stderr.readline(), "it watches")
        copy = b.popen("cp", "-", "box:big", stdin=subprocess.PIPE, **pipes)
        copy.stdin.write(bytes(2 << 20))  # more than the pipe holds: the transfer has begun
        copy.stdin.flush()
        terminate(b)
        for p in (cell, watch, copy):
            err = p.stderr.read()
            check(p.wait(30) == 75 and b"the broker is " in err, f"{p.args[-3:]}: {p.returncode} {err!r}")
        check(ended(b) == 0, "exit code")


def control_c_is_a_signal_like_the_other():
    a_second_signal_stops_it_at_once(signal.SIGINT)


# ---- other ends


def a_broker_whose_spawner_dies_ends_with_70():
    with draining(LONG) as b:
        spawner = b.spawner()
        os.kill(spawner, signal.SIGKILL)
        until(lambda: b.process.poll() is not None, "it ends")
        check(b.process.returncode == 70, b.process.returncode)
        b.process = None


def fails_with(code, *flags):
    b = Broker(*flags)
    try:
        b.start()
    except RuntimeError as why:
        check(f"exited {code}" in str(why), why)
    else:
        raise AssertionError(f"it starts with {flags}")
    finally:
        if b.process.poll() is None:
            b.stop()


def what_it_cannot_start_with_is_64_or_69():
    fails_with(64, "--no-such-flag")
    fails_with(64, "--listen", "ws://127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fails_with(69, "--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}")


sys.exit(run_cases([
    while_it_drains_new_jobs_are_refused_with_the_reason,
    what_it_cannot_start_with_is_64_or_69,
    a_job_that_ends_in_time_is_answered_whole,
    while_it_drains_running_jobs_get_input_signals_and_waits,
    a_run_that_does_not_end_in_time_is_cancelled,
    a_detached_job_gets_its_time_and_is_then_cancelled,
    without_jobs_it_ends_at_once,
    followers_see_the_shutdown_and_do_not_delay_it,
    an_interpreter_without_a_cell_does_not_delay_the_end,
    streams_and_cells_that_are_cut_off_say_why,
    a_second_signal_stops_it_at_once,
    each_command_that_waits_for_a_job_ends_with_75,
    what_works_on_a_sandbox_and_is_cut_off_ends_with_75_too,
    control_c_is_a_signal_like_the_other,
    a_broker_whose_spawner_dies_ends_with_70,
]))
