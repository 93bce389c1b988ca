#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs over the wire: what is refused, what would have changed and been sent, and that nothing of it happens or stays."""

import atexit
import functools
import json
import os
import re
import shutil
import signal
import tempfile

from api import CANCELLED, NOT_FOUND, PRECONDITION, PROCESS, SANDBOX, SYSTEM, connect, main
from broker import Broker, descriptors
from interpreter import CODE, Cell, run
from names import DNS_PORT, NameServer, counted
from network import ALLOWLIST, NONE, PRELUDE
from peers import Peers
from relay import relay_pid
from runner import Skipped, check, until
from snapshots import SNAPSHOT, new, sh
from sp import INVALID, Failed

SIMULATE = 1
ADDED, CHANGED, REMOVED = 1, 2, 3
REFUSED = 4
PUBLIC = Peers.public
CONFIG = f"""
socket: {{mode: 0666}}
pool: 4
network: {{dns: ["127.0.0.1:{DNS_PORT}"]}}
quotas: {{sandboxes_per_caller: 24}}
policy_files: [%s]
templates:
  - name: default
    limits: {{disk: 16M, inodes: 2000, memory: 128M}}
    network_max: {{mode: open}}
"""
POLICY = """
layers:
  - name: base
    rules:
      - {id: no-push, match: {commands: ["git push ..."]}, verdict: deny, reason: a person pushes}
      - id: try
        match: {commands: ["touch asked"], mode: simulate}
        verdict: allow
        tests: [{call: {command: [touch, asked], mode: simulate}, expect: allow}, {call: {command: [touch, asked]}, expect: ask, rule: base/people}]
      - {id: people, match: {commands: ["deploy ...", "touch asked"]}, verdict: ask, reason: ask first, ask: {approvers: ["uid:0"]}}
      - {id: once, match: {commands: [id], mode: execute}, verdict: deny, reason: only tried}
      - {id: no-bash, match: {languages: [bash]}, verdict: deny, reason: python only}
"""
TO_PEER = {"mode": ALLOWLIST, "outbound": [{"cidr": PUBLIC, "ports": [{"first": 80}]},
                                           {"domain": "web.test", "ports": [{"first": 80}]}]}
BY_NAME = """
def by_name(name, port, text=b"hi"):
    try:
        s = socket.create_connection((name, port), 20)
        s.sendall(text)
        got = b""
        while piece := s.recv(99):
            got += piece
        print(got.decode() or "end")
    except Exception as e:
        print(word(e))
"""


def begin(c, line, box="", **more):
    fields = {"command": c.shell(line), "mode": SIMULATE, **more}
    if box:
        return c.stream("Start", {"sandbox_id": box, "foreground": True, **fields})
    return c.stream("Run", fields)


def simulate(c, line, box="", **more):
    job = c.finish(begin(c, line, box, **more))
    check(job.exited.HasField("simulation"), f"{line}: {job.exited}")
    return job


def python(c, code, box="", **more):
    command = {"args": ["python3", "-c", PRELUDE + BY_NAME + code]}
    job = simulate(c, "", box, command=command, **more)
    return job, job.output.decode().split()


def changes(job):
    return [(ch.kind, ch.path.decode(errors="backslashreplace")) for ch in job.exited.simulation.changes]


def boxes(c):
    return {s.id for s in c.unary(SANDBOX + "List", {}).sandboxes}


def nothing_is_left(c, n):
    until(lambda: c.unary(SYSTEM + "Info", {}).sandboxes_own == n, f"{n} sandboxes in all")


def no(c, call, code, *words):
    try:
        call()
    except Failed as failed:
        text = f"{failed.message} {failed.details}"
        check(failed.code == code, f"{failed.code} {text}, not {code}")
        check(all(word in text for word in words), f"{words} are not in {text!r}")
        return
    raise AssertionError(f"{words}: was not refused")


# ---- what is refused


def what_cannot_be_simulated_is_refused(b, c):
    box = new(c)
    no(c, lambda: simulate(c, "true", box, transaction=1), INVALID, "transaction")
    no(c, lambda: simulate(c, "true", box, foreground=False), INVALID, "foreground")
    no(c, lambda: c.run("true", answers=[{"destination": "a.test:80"}]), INVALID, "answers", "JOB_MODE_SIMULATE")
    no(c, lambda: c.run("true", mode=2), INVALID, "mode")
    for to, why in (("@pypi", "set"), ("a b", "answers[1].destination"), ("a.test:0", "answers[1].destination")):
        no(c, lambda to=to: simulate(c, "true", answers=[{"destination": "a.test:80"}, {"destination": to}]), INVALID, why)
    no(c, lambda: simulate(c, "true", answers=[{"destination": "a.test:53/udp", "reply": b"x" * 1201}]), INVALID, "1200")
    no(c, lambda: simulate(c, "true", answers=[{"destination": "a.test:80", "reply": b"x" * 2049}]), INVALID, "reply")
    no(c, lambda: simulate(c, "true", answers=[{"destination": "a.test:80"}] * 17), INVALID, "answers")
    no(c, lambda: simulate(c, "true", "nobox"), NOT_FOUND)
    context = c.unary(CODE + "CreateContext", {"sandbox_id": box}).context.id
    no(c, lambda: run(c, "1", context_id=context, mode=SIMULATE), PRECONDITION, "LIVE_STATE")
    no(c, lambda: run(c, "1", sandbox_id=box, transaction=1, mode=SIMULATE), INVALID, "transaction")
    c.unary(SANDBOX + "Pause", {"id": box})
    no(c, lambda: simulate(c, "true", box), PRECONDITION, "paused")
    c.unary(SANDBOX + "Resume", {"id": box})
    check(boxes(c) == {box}, "nothing was made")
    nothing_is_left(c, 1)


def what_a_policy_refuses_is_said_and_not_executed(b, c):
    for args, rule, asks in ((["git", "push", "x"], "base/no-push", False), (["deploy", "now"], "base/people", True)):
        for box in ("", new(c)):
            job = simulate(c, "", box, command={"args": args})
            out = job.exited.simulation
            check(job.result.outcome == REFUSED and rule in job.result.reason and not job.id, f"{job.result}")
            check(not out.executed and out.refused_total == 1 and not out.changes, f"{out}")
            one = out.refused[0]
            check((one.operation, one.rule, one.would_ask) == ("call", rule, asks), f"{one}")
            failed = c.fails(PROCESS + "Run", {"command": {"args": args}})
            check(failed.code == (9 if asks else 7), f"the real call: {failed.code} {failed.message}")
    cell = run(c, "echo x", language="bash", mode=SIMULATE)
    out = cell.end.simulation
    check(not out.executed and out.refused[0].rule == "base/no-bash" and not cell.begin and not cell.text, f"{cell.end}")


def a_rule_allows_what_is_asked_about_to_be_simulated(b, c):
    for box in ("", new(c)):
        for args, denied in ((["touch", "asked"], 9), (["id"], 7)):
            job = simulate(c, "", box, command={"args": args})
            out = job.exited.simulation
            check(out.executed and out.refused_total == 0 and changes(job) == ([(ADDED, "/home/agent/asked")] if denied == 9 else []), f"{out}")
            failed = c.fails(PROCESS + "Run", {"command": {"args": args}})
            check(failed.code == denied, f"the real call: {failed.code} {failed.message}")
    check(failed.details["ErrorInfo"].metadata["allowed"] == "commands other than id; or the same, simulated", f"{failed.details}")
    for words, code, verdict in ((("--simulate", "--", "touch", "asked"), 0, "allow by try"), (("--", "touch", "asked"), 75, "ask by base/people"),
                                 (("--simulate", "--path", "/x", "--", "id"), 0, "allow"), (("--credential", "jwt", "--", "id"), 77, "deny by base/once")):
        r = b.cli("policy", "explain", *words)
        check(r.returncode == code and verdict in r.stdout.decode(), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


# ---- what it says


def a_fresh_sandbox_says_what_changed_and_goes(b, c):
    job = simulate(c, "echo hello > new; mkdir d; ln -s new d/l; chmod 600 new; exit 3")
    out = job.exited.simulation
    check(job.result.exit_code == 3 and out.executed and not out.unknown and not out.more, f"{job.exited}")
    got = {ch.path.decode(): ch for ch in out.changes}
    check(set(got) == {"/home/agent/new", "/home/agent/d", "/home/agent/d/l"}, f"{set(got)}")
    new_file = got["/home/agent/new"]
    check(new_file.kind == ADDED and new_file.after.size == 6 and new_file.after.mode & 0o777 == 0o600, f"{new_file}")
    check(job.result.bill.wall_us.value > 0, "a bill")
    check(job.sandbox not in boxes(c), "when the answer comes, its sandbox is gone")
    check(c.fails(SANDBOX + "Get", {"id": job.sandbox}).code == NOT_FOUND, "and cannot be found")
    check(c.fails(PROCESS + "Wait", {"process_id": job.id}).code == NOT_FOUND, "nor its process")
    nothing_is_left(c, 0)


def a_fork_of_a_sandbox_is_simulated_and_the_sandbox_stays(b, c):
    box = new(c)
    sh(c, box, "echo one > a; echo two > b; mkdir keep")
    job = simulate(c, "cat a; echo x >> a; rm b; echo n > keep/n; ls /home/agent", box)
    check(job.output.startswith(b"one"), f"it has the files: {job.output}")
    check(changes(job) == [(CHANGED, "/home/agent/a"), (REMOVED, "/home/agent/b"), (ADDED, "/home/agent/keep/n")], f"{changes(job)}")
    check(sh(c, box, "cat a b; ls keep") == "one\ntwo\n", "the sandbox is as it was")
    check(not c.unary(SNAPSHOT + "List", {"sandbox": box}).snapshots and boxes(c) == {box}, "no snapshot, no sandbox")
    nothing_is_left(c, 1)


def jobs_of_the_sandbox_go_on_meanwhile(b, c):
    box = new(c)
    held = c.start(box, "echo x > live; echo x; while sleep 0.05; do echo y; done")
    c.until(held, lambda: b"x" in held.output)
    other = connect(b)
    job = simulate(other, "cat live; rm live", box)
    check(job.output == b"x\n" and changes(job) == [(REMOVED, "/home/agent/live")], f"{job.output} {changes(job)}")
    seen = len(held.output)
    c.until(held, lambda: len(held.output) > seen)
    check(sh(other, box, "cat live") == "x\n", "as it was")


def a_cell_gets_a_new_context_in_a_fork(b, c):
    box = new(c)
    check(run(c, "v = 41; open('f', 'w').write('x')", sandbox_id=box).end.status == 1, "a variable")
    cell = run(c, "print('v' in globals(), open('f').read()); open('g', 'w').write('y')", sandbox_id=box, mode=SIMULATE)
    check(cell.begin.fresh and cell.begin.sandbox_id != box and cell.text == "False x\n", f"{cell.begin} {cell.text}")
    out = cell.end.simulation
    check(out.executed and [ch.path for ch in out.changes] == [b"/home/agent/g"], f"{out}")
    check(run(c, "print(v + 1)", sandbox_id=box).text == "42\n" and "g" not in sh(c, box, "ls").split(), "the context stays")
    cell = run(c, "open('h', 'w').write('y'); 1 / 0", mode=SIMULATE)
    check(cell.error.name == "ZeroDivisionError" and [ch.path for ch in cell.end.simulation.changes] == [b"/home/agent/h"],
          f"{cell.error} {cell.end}")
    until(lambda: boxes(c) == {box}, "one")


def volumes_are_read_only(b, c):
    try:
        c.unary("/stockade.v1.VolumeService/Create", {"name": "v", "bytes": 8 << 20, "inodes": 500})
    except Failed as failed:
        if "NO_DISKS" in f"{failed.details}":
            raise Skipped(failed.message) from failed
        raise
    mount = [{"volume": "v", "path": "/mnt"}]
    box = new(c, volumes=mount)
    sh(c, box, "echo kept > /mnt/f")
    for how in ({"box": box}, {"volumes": mount}):
        job = simulate(c, "cat /mnt/f; echo bad > /mnt/f; rm /mnt/f; echo bad > /mnt/g; ls /mnt", **how)
        check(job.output.count(b"kept") == 1 and job.output.count(b"Read-only") >= 2, f"{how}: {job.output}")
        check(any("volumes" in note for note in job.exited.simulation.not_included), "it says so")
    check(sh(c, box, "cat /mnt/f; ls /mnt") == "kept\nf\n", "nothing was written")
    b.cli("rm", "--all")


# ---- the network


def asked(b):
    try:
        return len(os.read(b.name_server.asked, 4096))
    except BlockingIOError:
        return 0


def nothing_leaves_and_what_would_is_listed(b, c):
    asked(b)
    opened = counted(b, "relay_connections_total")
    job, words = python(c, f"try_tcp('{PUBLIC}', 80); by_name('web.test', 80, b'GET / HTTP/1.0'); try_tcp('{PUBLIC}', 81)\n"
                           f"by_name('other.test', 80)\n"
                           f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hi', ('{PUBLIC}', 80))", network=TO_PEER)
    out = job.exited.simulation
    check(words[0] == words[1] == "ECONNRESET" and words[2] == "EPERM" and words[4] == "-2]", f"{words}")
    sent = {(s.protocol, s.destination): s for s in out.sent}
    check(set(sent) == {("tcp", f"{PUBLIC}:80"), ("dns", "web.test"), ("tcp", "web.test:80"), ("udp", f"{PUBLIC}:80")}, f"{out}")
    first = sent["tcp", f"{PUBLIC}:80"]
    check((first.data, first.out_bytes, first.in_bytes, first.rule) == (b"hi", 2, 0, 1), f"{first}")
    check(sent["tcp", "web.test:80"].data == b"GET / HTTP/1.0" and sent["tcp", "web.test:80"].rule == 2, f"{out.sent}")
    check(out.sent_total == 4 and not out.sent_lost, f"{out.sent_total}")
    refused = {(r.operation, r.destination, r.reason) for r in out.refused}
    check(("connect", f"{PUBLIC}:81", "no-rule") in refused and ("dns", "other.test", "name") in refused, f"{refused}")
    check(not job.result.record.reached and asked(b) == 0, "no connection, no query")
    check(counted(b, "relay_connections_total")["opened"] == opened["opened"], "the relay opened none")


def answers_of_the_request_are_what_destinations_say(b, c):
    asked(b)
    answers = [{"destination": "web.test:80", "reply": b"one"}, {"destination": "*.test:80", "reply": b"two"},
               {"destination": f"{PUBLIC}:80/udp", "reply": b"hi"}, {"destination": f"{PUBLIC}:80/tcp", "reply": b"hi"}]
    box = new(c, network=TO_PEER)
    job, words = python(c, f"by_name('web.test', 80); try_udp('{PUBLIC}', 80, True); try_udp('{PUBLIC}', 80, False)\n"
                           f"try_tcp('{PUBLIC}', 80); by_name('web.test', 80, b'')", box, answers=answers)
    check(words == ["one", "ok", "ok", "ok", "one"], f"{words}")
    sent = [(s.protocol, s.in_bytes) for s in job.exited.simulation.sent if s.protocol != "dns"]
    check(sorted(sent) == [("tcp", 2), ("tcp", 3), ("tcp", 3), ("udp", 2), ("udp", 2)], f"{sent}")
    check(asked(b) == 0, "no query")
    got = c.finish(c.stream("Start", {"sandbox_id": box, "foreground": True, "command": {
        "args": ["python3", "-c", PRELUDE + f"try_tcp('{PUBLIC}', 80)"]}}))
    check(got.output == b"ok\n", f"the sandbox itself is connected: {got.output}")


def a_change_of_the_policy_does_not_make_it_real(b, c):
    code = PRELUDE + f"try_tcp('{PUBLIC}', 80); print(flush=True); sys.stdin.readline(); try_tcp('{PUBLIC}', 80)"
    command = {"args": ["python3", "-c", code], "stdin_open": True}
    job = begin(c, "", command=command, network={"mode": NONE})
    c.until(job, lambda: b"EPERM" in job.output)
    other = connect(b)
    other.unary(SANDBOX + "Update", {"id": job.sandbox, "network": TO_PEER})
    other.unary(PROCESS + "Input", {"process_id": job.id, "data": b"\n"})
    c.finish(job)
    check(job.output.split() == [b"EPERM", b"ECONNRESET"], f"{job.output}")
    check([s.destination for s in job.exited.simulation.sent] == [f"{PUBLIC}:80"], f"{job.exited.simulation}")


def another_relay_does_not_make_it_real(b, c):
    code = PRELUDE + f"""
def attempt():
    while True:
        try:
            s = socket.create_connection(("{PUBLIC}", 80))
            s.sendall(b"hi")
            return print(s.recv(9))
        except ConnectionRefusedError:  # its listeners are being opened again
            time.sleep(0.01)
        except OSError as e:
            return print(word(e), flush=True)
attempt()
sys.stdin.readline()
attempt()
"""
    job = begin(c, "", command={"args": ["python3", "-c", code], "stdin_open": True}, network=TO_PEER)
    c.until(job, lambda: job.output)
    first = relay_pid(b)
    os.kill(first, signal.SIGKILL)
    until(lambda: relay_pid(b) not in (None, first), "another relay")
    connect(b).unary(PROCESS + "Input", {"process_id": job.id, "data": b"\n"})
    c.finish(job)
    check(job.output.split() == [b"ECONNRESET"] * 2, f"{job.output}")
    out = job.exited.simulation
    check(out.sent_lost and f"{PUBLIC}:80" in [s.destination for s in out.sent], f"{out}")


def lists_are_bounded_and_totals_count_all(b, c):
    code = f"for i in range(100): s = socket.create_connection(('{PUBLIC}', 80)); s.sendall(b'x' * 5000); s.close()"
    job, _ = python(c, code, network=TO_PEER)
    out = job.exited.simulation
    check(out.sent_total == 100 and 8 <= len(out.sent) <= 64, f"{out.sent_total} {len(out.sent)}")
    check(all(len(s.data) == 256 and s.out_bytes >= 256 for s in out.sent), "the first bytes")
    job = simulate(c, "i=0; while [ $i -lt 300 ]; do echo $i > file-$i; i=$((i + 1)); done")
    out = job.exited.simulation
    check(out.more and 20 < len(out.changes) <= 100, f"{len(out.changes)}")


# ---- the command


def the_command_says_what_it_would_do(b, c):
    reply = f"{b.folder}/reply"
    with open(reply, "wb") as f:
        f.write(b"HTTP/1.0 200 OK\r\n\r\n")
    for words, why in ((("run", "--answer", f"a.test:80={reply}", "--", "true"), b"--simulate"),
                       (("run", "--simulate", "--answer", "a.test:80=/none", "--", "true"), b"/none"),
                       (("run", "--simulate", "--answer", "a.test:80", "--", "true"), b"--answer"),
                       (("exec", "--simulate", "-d", "box", "true"), b"exclude"),
                       (("exec", "--simulate", "--transaction", "ask", "box", "true"), b"exclude")):
        r = b.cli(*words)
        check(r.returncode in (2, 125) and why in r.stderr, f"{words}: {r.returncode} {r.stderr}")
    connect_to = f"import socket; s = socket.create_connection(('{PUBLIC}', 80)); s.sendall(b'GET /'); print(s.recv(99).decode())"
    r = b.cli("run", "--simulate", "--allow", f"{PUBLIC}:80", "--answer", f"{PUBLIC}:80={reply}", "--", "python3", "-c",
              f"open('f', 'w').write('x'); {connect_to}")
    check(r.returncode == 0 and b"200 OK" in r.stdout, f"{r.returncode} {r.stdout} {r.stderr}")
    lines = r.stderr.decode().splitlines()
    check(any(re.match(r"\+ 06[0-9]{2} 1 +/home/agent/f$", line) for line in lines), f"{lines}")
    check(f"> tcp  {PUBLIC}:80" in r.stderr.decode() and "GET /" in r.stderr.decode(), f"{lines}")
    check(lines[-1] == "stockade run: simulated: nothing of this has happened", f"{lines}")
    r = b.cli("run", "--simulate", "--", "git", "push")
    check(r.returncode == 77 and b"base/no-push" in r.stderr and b"not executed" in r.stderr, f"{r.returncode} {r.stderr}")
    box = new(c, name="agent")
    code, found = b.json("exec", "--simulate", "agent", "sh", "-c", "echo x > f; exit 7")
    check(code == 7 and [ch["path"] for ch in found["simulation"]["changes"]] == ["/home/agent/f"], f"{code} {found}")
    code, found = b.json("code", "--simulate", "--sandbox", "agent", "-c", "open('g', 'w').write('y')")
    check(code == 0 and found["simulation"]["executed"] and found["simulation"]["changes"][0]["kind"] == "ADDED", f"{code} {found}")
    check(sh(c, box, "ls") == "", "nothing of it")


def the_audit_log_says_that_it_was_a_simulation(b, c):
    simulate(c, "true")
    simulate(c, "", command={"args": ["git", "push"]})
    c.run("true")

    def found(body):
        lines = [json.loads(line) for line in b.cli("audit", "export", f"{b.state}/audit").stdout.splitlines()]
        return [line[body].get("simulated", False) for line in lines if body in line and (
            body == "job" or (line[body]["method"].endswith("/Run") and line[body]["phase"] == "ended"))]

    until(lambda: found("job")[-2:] == [True, False], lambda: f"{found('job')}", 10)
    until(lambda: found("call")[-3:] == [True, True, False], lambda: f"{found('call')}", 10)


# ---- nothing is left


def a_killed_client_leaves_nothing(b, c):
    """Also with an idempotency key, with which other calls outlive their connection."""
    box = new(c)
    for where in ("", box):
        other = connect(b)
        fields = {"command": c.shell("echo x; exec sleep 1000"), "mode": SIMULATE}
        more = {"sandbox_id": where, "foreground": True} if where else {}
        job = other.stream("Start" if where else "Run", {**fields, **more}, metadata={"idempotency-key": "same"})
        other.until(job, lambda job=job: b"x" in job.output)
        other.close()
        until(lambda: boxes(c) == {box}, "its sandbox ends")
    nothing_is_left(c, 1)
    other = connect(b)
    cell = Cell(other, {"code": "print(1)\nwhile True: pass", "sandbox_id": box, "mode": SIMULATE})
    cell.until(lambda: cell.text)
    other.close()
    nothing_is_left(c, 1)


def one_that_is_deleted_ends_with_its_call(b, c):
    job = begin(c, "echo x; exec sleep 1000")
    c.until(job, lambda: b"x" in job.output)
    connect(b).unary(SANDBOX + "Delete", {"id": job.sandbox})
    c.finish(job)
    check(job.result.outcome == CANCELLED and "deleted" in job.exited.simulation.unknown, f"{job.exited}")


def it_belongs_to_its_caller(b, c):
    job = begin(c, "echo x; exec sleep 1000")
    c.until(job, lambda: b"x" in job.output)
    for words in (("ls",), ("ps",)):
        check(job.sandbox.encode() not in b.stranger(*words).stdout, f"{words}")
    check(b.stranger("rm", job.sandbox).returncode != 0, "not found")
    no(c, lambda: connect(b).unary(SNAPSHOT + "Create", {"sandbox": job.sandbox, "copy": True, "keep": True}), PRECONDITION,
       "simulated")
    connect(b).unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
    c.finish(job)


def pool_is_full(c):
    until(lambda: all(t.pool_ready == t.pool_size for t in c.unary(SYSTEM + "Info", {}).templates), "the pool is full")


def total(b, name):
    return next(m["samples"][0]["value"] for m in b.json("metrics", name)[1] if m["name"] == name)


def held(b):
    """Cgroups, mounts and descriptors of the broker's processes."""
    with open(f"/proc/{b.process.pid}/mountinfo", encoding="utf-8") as f:
        return len(b.cgroups()), len(f.readlines()), descriptors(b.process.pid)


def fifty_leave_nothing(b, c):
    box = new(c)
    sh(c, box, "echo x > f")
    clients = [connect(b) for _ in range(5)]

    def ten_rounds(rounds):
        for _ in range(rounds):
            jobs = [begin(other, "rm f; echo y > g", box if i % 2 else "") for i, other in enumerate(clients)]
            for other, job in zip(clients, jobs, strict=True):
                check(other.finish(job).exited.simulation.executed, "it ran")
        nothing_is_left(c, 1)

    ten_rounds(1)
    pool_is_full(c)
    before, begun = held(b), total(b, "stockade_simulations_begun_total")
    ten_rounds(10)
    pool_is_full(c)
    until(lambda: all(now <= was for now, was in zip(held(b), before, strict=True)), lambda: f"{held(b)}, {before}")
    check(boxes(c) == {box} and sh(c, box, "cat f; ls") == "x\nf\n", "one, as it was")
    check(total(b, "stockade_simulations_begun_total") == begun + 50 and total(b, "stockade_simulations") == 0, "counted")
    for other in clients:
        other.close()


def alone(test):
    """No sandbox of an earlier test is left, not even one that is being removed."""
    @functools.wraps(test)
    def run_alone(b, c):
        b.cli("rm", "--all")
        nothing_is_left(c, 0)
        test(b, c)
    return run_alone


TESTS = [what_cannot_be_simulated_is_refused, what_a_policy_refuses_is_said_and_not_executed, a_rule_allows_what_is_asked_about_to_be_simulated,
         a_fresh_sandbox_says_what_changed_and_goes, a_fork_of_a_sandbox_is_simulated_and_the_sandbox_stays,
         jobs_of_the_sandbox_go_on_meanwhile, a_cell_gets_a_new_context_in_a_fork, volumes_are_read_only,
         nothing_leaves_and_what_would_is_listed, answers_of_the_request_are_what_destinations_say,
         a_change_of_the_policy_does_not_make_it_real, another_relay_does_not_make_it_real, lists_are_bounded_and_totals_count_all,
         the_command_says_what_it_would_do, the_audit_log_says_that_it_was_a_simulation, a_killed_client_leaves_nothing, one_that_is_deleted_ends_with_its_call, it_belongs_to_its_caller, fifty_leave_nothing]

if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="stockade-policy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(f"{folder}/policy.yaml", "w", encoding="utf-8") as f:
        f.write(POLICY)
    with Peers(), NameServer() as server:
        broker = Broker(config=CONFIG % f"{folder}/policy.yaml")
        broker.name_server = server
        main(broker, [alone(test) for test in TESTS])
