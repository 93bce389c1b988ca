#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the command does when something around it is wrong: stdin, stdout, addresses, names, sandboxes that end."""

import contextlib
import grp
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from broker import Broker, binary, sanitized
from cli import expect
from runner import check, run_cases, until


def running(b):
    return [p["id"] for p in b.json("ps")[1] if p["result"] is None]


def none_runs(b, what):
    until(lambda: running(b) == [], what)


# ---- stdin and stdout


def stdin_that_cannot_be_read_is_not_the_end_of_input(b):
    expect(b.cli("create", "--name", "box"), 0)
    path = os.path.join(b.folder, "file")
    for command in (["run"], ["run", "-i"], ["exec", "box"], ["exec", "-i", "box"]):
        at = 2 if "-i" in command else 1
        command = [*command[:at], *command[at:], "--", "cat"]
        folder = os.open("/tmp", os.O_RDONLY)
        r = expect(b.cli(*command, stdin=folder), 125, b"", b"cannot read stdin: Is a directory")
        os.close(folder)
        with open(path, "wb") as f:
            expect(b.cli(*command, stdin=f), 125, b"", b"cannot read stdin: it is not open for reading")
        check(b"hint: use -n" in r.stderr, r.stderr)
    code, o = b.json("run", "--", "cat", stdin=os.open("/tmp", os.O_RDONLY))
    check(code == 125 and "cannot read stdin" in o["error"]["text"], o)


def a_device_open_for_writing_only_is_no_input_unless_asked_for(b):
    """nohup(1) leaves such a stdin."""
    with open("/dev/null", "wb") as null:
        expect(b.cli("run", "--", "cat", stdin=null), 0, b"")
        expect(b.cli("run", "-i", "--", "cat", stdin=null), 125, b"", b"cannot read stdin")


def stdin_that_breaks_ends_the_job(b):
    """A connection that is reset while the job runs."""
    expect(b.cli("create", "--name", "box"), 0)
    for command in (["run"], ["exec", "box"]):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        p = b.popen(*command, "--", "sh", "-c", "echo up; exec cat", stdin=theirs.fileno(), stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)
        theirs.close()
        check(p.stdout.readline() == b"up\n", "it runs")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        ours.close()
        _, err = p.communicate(timeout=30)
        check(p.returncode == 125 and b"cannot read stdin: Connection reset by peer" in err, f"{p.returncode} {err!r}")
        none_runs(b, "the job is ended")


def an_id_that_cannot_be_written_is_reported(b):
    with open("/dev/full", "wb") as full:
        kw = {"stdout": full, "stderr": subprocess.PIPE, "capture_output": False}
        for form in ((), ("-o", "json")):
            r = expect(b.cli("create", *form, **kw), 1, err=b"cannot write the output")
            line = re.search(rb"sandbox ([0-9a-f]{32}) exists\n  hint: stockade (rm [0-9a-f]{32}) removes it", r.stderr)
            check(line, r.stderr)
            expect(b.cli(*line[2].decode().split()), 0)  # as the hint says
            check(b.cli("ls", "-q").stdout == b"", "it is removed")
        expect(b.cli("create", "--name", "box"), 0)
        for form in ((), ("-o", "json")):
            r = expect(b.cli("exec", *form, "-d", "box", "sleep", "1000", **kw), 125, err=b"cannot write the output")
            hint = re.search(rb"process [0-9a-f]{32} runs in sandbox box\n  hint: stockade exec box sh -c '(kill [0-9]+)' ends", r.stderr)
            check(hint, r.stderr)
            expect(b.cli("exec", "box", "sh", "-c", hint[1].decode()), 0)
            none_runs(b, "it is ended")


def what_cannot_be_started_is_reported_with_and_without_detach(b):
    expect(b.cli("create", "--name", "box"), 0)
    for args, code in ((("box", "--", "nosuchprog"), 127), (("box", "--", "/tmp"), 126), (("-w", "/nosuch", "box", "true"), 126)):
        waited = expect(b.cli("exec", *args), code, b"", b"could not be executed")
        r = expect(b.cli("exec", "-d", *args), code, b"")
        check(r.stderr == waited.stderr, r.stderr)
        code_json, o = b.json("exec", "-d", *args)
        check(code_json == code and o["outcome"] == "NOT_EXECUTED", o)


def a_reader_that_goes_ends_what_exec_runs(b):
    expect(b.cli("create", "--name", "box"), 0)
    p = b.popen("exec", "box", "yes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.read(4) == b"y\ny\n", "yes")
    p.stdout.close()
    check(p.wait(30) == 141 and p.stderr.read() == b"", p.returncode)
    none_runs(b, "the process is ended")


def the_second_signal_ends_what_exec_runs(b):
    expect(b.cli("create", "--name", "box"), 0)
    p = b.popen("exec", "box", "sh", "-c", "trap 'echo one' TERM; echo up; while :; do sleep 0.05; done", stdout=subprocess.PIPE)
    check(p.stdout.readline() == b"up\n", "it runs")
    p.send_signal(signal.SIGTERM)
    check(p.stdout.readline() == b"one\n", "the first is its own")
    p.send_signal(signal.SIGTERM)
    check(p.wait(30) == 143, p.returncode)
    none_runs(b, "the process is ended")


def too_few_descriptors_are_named(b):
    r = b.cli("run", "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5)))
    expect(r, 125, b"", b"cannot watch stdin and signals: Too many open files\n  hint: raise the limit of open files, 'ulimit -n'")


# ---- addresses


def at(address, *args, **kw):
    return subprocess.run([binary("stockade"), "--address", address, *args], capture_output=True, check=False, **kw)


def what_is_no_socket_is_no_reason_to_wait(b):
    for path, what in (("/tmp", b"is a folder"), ("/etc/passwd", b"is a file")):
        expect(at(f"ipc://{path}", "run", "true"), 125, b"", what + b" and not a socket")
        expect(at(f"unix:{path}", "ls"), 1, b"", what + b" and not a socket")


def a_broker_that_is_away_is_named(b):
    for address in ("ipc:///nonexistent/x", "tcp://127.0.0.1:9"):
        r = expect(at(address, "ls"), 75, b"", b"is stockaded running at " + address.encode())
        check(b"systemctl" not in r.stderr, r.stderr)
    if not os.path.exists("/run/stockade/stockade.sock"):
        r = expect(at("ipc:///run/stockade/stockade.sock", "ls"), 75, b"", b"'sudo systemctl start stockade'")


def whom_the_socket_refuses_learns_its_group(b):
    path = b.address[len("ipc://"):]
    shutil.copy(binary("stockade"), f"{b.folder}/stockade")
    group = next(g for g in grp.getgrall() if g.gr_gid != 0)
    before = os.stat(path)
    for gid, mode, hint in ((group.gr_gid, 0o660, f"sudo usermod -aG {group.gr_name} $USER"), (0, 0o600, "only root may connect")):
        os.chown(path, before.st_uid, gid)
        os.chmod(path, mode)
        r = subprocess.run([f"{b.folder}/stockade", "--address", b.address, "ls"], capture_output=True, check=False, cwd="/",
                           user=54321, group=54321, extra_groups=[])
        expect(r, 77, b"", hint.encode())
    os.chown(path, before.st_uid, before.st_gid)
    os.chmod(path, before.st_mode & 0o7777)


def a_shared_folder_is_not_to_be_closed(_):
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o1777)
    for mode, hint in ((0o1777, b"choose a folder of its own, such as /run/NAME"), (0o777, b"chmod go-w it")):
        os.chmod(folder, mode)
        r = subprocess.run([binary("stockaded"), "--listen", f"ipc://{folder}/s", "--state-dir", folder], capture_output=True,
                           check=False, timeout=60)
        check(r.returncode == 69 and hint in r.stderr, r.stderr)
        check(b"start: start" not in r.stderr, r.stderr)
    if not sanitized():  # its runtime does not start for another account
        r = subprocess.run([shutil.copy(binary("stockaded"), folder)], capture_output=True, check=False, user=54321, group=54321)
        check(b"systemctl start stockade\n" in r.stderr, r.stderr)
    shutil.rmtree(folder)


# ---- sandboxes


def a_forward_ends_with_its_sandbox(b):
    for command in (["rm", "web"], ["update", "--ttl", "100ms", "web"]):
        expect(b.cli("create", "--name", "web", "--allow-inbound", "8000"), 0)
        p = b.popen("forward", "web", "0:8000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        port = int(p.stdout.readline().split(b":")[1])
        expect(b.cli(*command), 0)
        err = p.communicate(timeout=60)[1]
        check(p.returncode == 1 and b"web: the sandbox was removed" in err, f"{p.returncode} {err!r}")
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)
            raise AssertionError("the port is still open")


def a_paused_sandbox_is_resumed_by_the_hint(b):
    expect(b.cli("create", "--name", "box"), 0)
    expect(b.cli("pause", "box"), 0)
    r = expect(b.cli("exec", "box", "true"), 125, b"", b"hint: stockade resume box\n")
    expect(b.cli(*r.stderr.decode().split("hint: stockade ")[1].split()), 0)
    expect(b.cli("exec", "box", "true"), 0)


def what_is_never_there_is_refused(b):
    expect(b.cli("anomalies", "--rule", "nosuch"), 2, b"", b"there is no rule nosuch\n  hint: 'stockade anomalies --rules' lists them\n")
    check(b"witness-mismatch" in expect(b.cli("anomalies", "--rules"), 0).stdout, "which lists all")
    expect(b.cli("anomalies", "--rule", "fork-storm"), 0, b"")
    for args in (("anomalies",), ("events",), ("top", "--once")):
        expect(b.cli(*args, "--tenant", "Bob"), 2, b"", b"'Bob' must be a tenant, such as uid:1000, or * for all")
        expect(b.cli(*args, "--tenant", "uid:4000000000"), 0)
        expect(b.stranger(*args, "--tenant", "uid:0"), 77, b"", b"uid:54321 may see only its own sandboxes")
    expect(b.cli("anomalies", "--rules", "--template", "nosuch"), 1, b"", b"hint: 'stockade template ls' lists them")
    expect(b.cli("profiles", "ls", "nosuch"), 1, b"", b"hint: 'stockade template ls' lists them")


def a_kind_of_event_has_one_spelling(b):
    text = b.cli("events", "--help").stdout.decode()
    kinds = re.sub(r"\s+", " ", text.split("--severity")[0]).split("The kinds are ")[1].strip().split(", ")
    check("job_ended" in kinds and len(kinds) > 20, kinds)
    with open(os.path.join(os.environ["STOCKADE_SOURCE"], "deploy/man/stockade.1"), encoding="utf-8") as f:
        manual = f.read()
    for kind in kinds:
        check(re.search(rf"\b{kind}\b", manual), f"{kind} in the manual")
        expect(b.cli("events", "--kind", kind), 0)
    expect(b.cli("run", "true"), 0)
    for typed in ("job_ended", "job-ended", "JOB_ENDED"):
        lines = expect(b.cli("events", "--kind", typed), 0).stdout.decode().splitlines()
        check(lines and all(" job_ended " in line for line in lines), lines)
    check({e["kind"] for e in b.json("events", "--kind", "job_ended")[1]} == {"job_ended"}, "JSON")
    expect(b.cli("events", "--kind", "nosuch"), 2, b"", b"'stockade events --help' lists the kinds")


def limits_of_a_network_are_shown_as_they_are_typed(b):
    expect(b.cli("create", "--name", "box", "--allow", "example.com", "--egress-bytes", "10M", "--ingress-rate", "64K", "--dns-queries",
                 "100"), 0)
    r = expect(b.cli("network", "box"), 0)
    lines = [line.split() for line in r.stdout.decode().splitlines()]
    check(lines[2:] == [["egress-bytes", "10M"], ["ingress-rate", "64K"], ["dns-queries", "100"]], lines)


# ---- words


def what_is_above_a_maximum_is_refused_in_units(b):
    expect(b.cli("create", "--name", "box"), 0)
    for args, err in ((("create", "--ttl", "60d"), "--ttl: 60d is above the maximum of 30d"),
                      (("update", "--ttl", "60d", "box"), "--ttl: 60d is above the maximum of 30d"),
                      (("run", "--timeout", "90d", "true"), "--timeout: 90d requested, at most 1d allowed"),
                      (("run", "--cpus", "900.5", "true"), "--cpus: 900.5 requested, at most 64 allowed"),
                      (("run", "--disk", "99T", "true"), "--disk: 99T is above the maximum of 1T"),
                      (("run", "--pids", "99999999", "true"), "--pids: 99999999 is above the maximum of 4194304"),
                      (("run", "--dns-queries", "99999", "true"), "--dns-queries: 99999 is above the maximum of 60000")):
        expect(b.cli(*args), 77, b"", err.encode())
    expect(b.cli("create", "--ttl", "1ms"), 2, b"", b"--ttl: 1ms is below the minimum of 100ms")
    expect(b.cli("run", "--memory", "1", "true"), 125, b"", b"--memory: 1 is below the minimum of 4M")


def errors_are_words(b):
    expect(b.cli("create", "--name", "box"), 0)
    expect(b.cli("run", "-w", "/nosuch", "true"), 126, b"", b"option: --workdir")
    expect(b.cli("exec", "-w", "/nosuch", "box", "true"), 126, b"", b"option: --workdir")
    for args in (("--env", "X=1", "true"), ("-i", "cat")):
        expect(b.cli("exec", "box", *args), 125, b"", b"hint: options come before the sandbox")
    expect(b.cli("exec", "box", "--", "-x"), 127, b"")
    expect(b.cli("run", "-e", "NOT_SET_HERE", "true"), 0, b"", b"--env NOT_SET_HERE: this variable is not set here")
    expect(b.cli("run", "/etc"), 126, b"", b"/etc: Is a directory")
    expect(b.cli("run", "/etc/passwd"), 126, b"", b"/etc/passwd: Permission denied")
    expect(b.cli("profiles", "foo"), 2, b"", b"there is no action 'foo'")
    expect(b.cli("profiles", "reset"), 2, b"", b"reset needs a TEMPLATE")
    expect(b.cli("profiles", "reset", "a", "b"), 2, b"", b"unexpected argument 'b'")
    expect(b.cli("profiles", "import", "default", "/etc/passwd"), 1, b"", b"/etc/passwd: this file is not a profile")
    expect(b.cli("run", "--memory", "--", "true"), 125, b"", b"--memory needs a value")
    expect(b.cli("run", "--name", "a b", "true"), 125, b"", b"--name: 'a b' must consist of letters")
    expect(b.cli("run", "--allow", "*", "true"), 125, b"", b"must be a name, such as example.com")
    check(b"refused by" not in b.cli("inspect", "1234567").stderr, "nothing refused it")
    lines = b.cli("ps").stdout.decode().splitlines()
    check(any(re.search(r"  -    +-    +not executed  ", line) for line in lines), lines)


def options_without_an_effect_are_refused(b):
    expect(b.cli("create", "--name", "box"), 0)
    for option in (("--bill",), ("--output-cut", "ok")):
        expect(b.cli("exec", "-d", *option, "box", "sleep", "1000"), 125, b"", f"-d and {option[0]} exclude each other".encode())
    check(running(b) == [], "nothing was started")
    for args in (("ls",), ("export", "default", "/dev/null"), ("freeze", "default"), ("import", "default", "/dev/null")):
        expect(b.cli("profiles", *args, "--learn", "5"), 2, b"", b"--learn needs the action reset")
    expect(b.cli("anomalies", "--template", "default"), 2, b"", b"--template needs --rules")
    for option in (("-f",), ("--sandbox", "box"), ("--rule", "fork-storm"), ("--severity", "info"), ("--tenant", "*")):
        expect(b.cli("anomalies", "--rules", *option), 2, b"", b"--rules and --")


def a_token_of_the_environment_is_named(b):
    env = dict(os.environ, STOCKADE_TOKEN="x")
    expect(b.cli("ls", env=env), 77, b"", b"option: --token-file\n  hint: 'stockade help key' describes keys\n")


def a_number_of_an_event_to_come_has_a_hint(b):
    for args in (("--from", "4000000000"), ("-f", "--from", "4000000000")):
        r = expect(b.cli("events", *args), 1, b"", b"event 4000000000 does not exist")
        check(b"hint: --from 1 shows all events that the broker keeps\n" in r.stderr, r.stderr)
    expect(b.cli("events", "--from", "1"), 0)


def a_wrong_line_is_json_too(b):
    for args, code in ((("run", "-o", "json"), 125), (("-o", "json", "nosuch"), 2), (("ls", "-o", "json", "--foo"), 2),
                       (("run", "--foo", "-o", "json", "true"), 125), (("get", "-o", "json", "nosuch"), 1),
                       (("exec", "-o", "json", "nosuch", "true"), 125)):
        r = expect(b.cli(*args), code)
        o = json.loads(r.stdout)
        check(set(o) == {"error"} and o["error"]["text"].encode() in r.stderr, f"{args}: {o}")
    r = b.cli("rm", "-o", "json", "nosuch")
    check(r.returncode == 1 and json.loads(r.stdout) == [], r.stdout)


TESTS = [value for name, value in list(globals().items())
         if callable(value) and getattr(value, "__code__", None) and value.__code__.co_varnames[:1] in (("b",), ("_",))
         and value.__code__.co_argcount == 1 and value.__module__ == "__main__" and name not in ("running",)]


def call(b, case):
    case(b)
    b.cli("rm", "--all")


def main():
    with Broker() as b:
        status = run_cases(TESTS, lambda case: call(b, case), lambda: b.cli("rm", "--all"))
    sys.exit(status)


if __name__ == "__main__":
    main()
