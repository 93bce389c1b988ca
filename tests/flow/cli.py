#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command from end to end, with a private broker: what users and scripts see of a job."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

from broker import BUILD, INSTALLED, Broker, binary
from slowness import scaled
from runner import check, deliver, run_cases, time_passes, until


def expect(r, code, out=None, err=None):
    check(r.returncode == code, f"exit code {r.returncode}, not {code}: {r.args}\n{r.stdout!r}\n{r.stderr!r}")
    if out is not None:
        check(r.stdout == out, f"stdout {r.stdout[:300]!r}, not {out[:300]!r}")
    if err is not None:
        check(err in r.stderr, f"stderr {r.stderr[:500]!r} without {err!r}")
    return r


# ---- without a broker


def without_a_broker_the_error_says_how_to_start_one(b):
    r = subprocess.run([binary("stockade"), "--address", "ipc:///nonexistent/s", "run", "--", "true"],
                       capture_output=True, check=False)
    expect(r, 75, b"", b"is stockaded running at ipc:///nonexistent/s?")
    expect(subprocess.run([binary("stockade"), "ls"], capture_output=True, check=False,
                          env=dict(os.environ, STOCKADE_ADDRESS="nonsense")), 1, b"", b"'nonsense' is none of")


def a_wrong_command_line_gets_the_nearest_word(b):
    expect(b.cli("rnu"), 2, b"", b"did you mean 'stockade run'?")
    expect(b.cli("run", "--memry", "1M", "true"), 125, b"", b"did you mean --memory?")
    expect(b.cli("ls", "--lable", "a=b"), 2, b"", b"did you mean --label?")
    expect(b.cli("run"), 125, b"", b"COMMAND is missing")
    expect(b.cli("exec", "box"), 125, b"", b"COMMAND is missing")
    expect(b.cli("-o", "yaml", "ls"), 2, b"", b"usage: stockade [OPTION]")
    expect(b.cli("rm"), 2, b"", b"no sandbox was named")
    expect(b.cli("completion", "tcsh"), 2, b"", b"bash, zsh, fish")


def the_library_exports_what_its_header_declares(b):
    if INSTALLED:
        return
    text = ""
    for name in ("stockade.h", "stockade_anomalies.h", "stockade_code.h", "stockade_poll.h", "stockade_simulation.h",
                 "stockade_batch.h", "stockade_snapshots.h", "stockade_templates.h", "stockade_telemetry.h", "stockade_transactions.h", "stockade_volumes.h"):
        with open(os.path.join(os.environ["STOCKADE_SOURCE"], "client", name), encoding="utf-8") as f:
            text += re.sub("//.*", "", f.read())
    declared = set(re.findall(r"STOCKADE_API[^;]*?\b(stockade_[a-z_]+)\s*\(", text))
    out = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, "client/libstockade.so.0")],
                         capture_output=True, check=True, text=True).stdout
    names = {line.split()[2].split("@")[0] for line in out.splitlines()} - {"STOCKADE_0"}
    names = {n for n in names if not n.startswith(("__asan", "__ubsan", "__odr_asan", "__sanitizer", "__tsan"))}
    check(len(declared) > 20 and names == declared, f"differ: {names ^ declared}")


# ---- refusals


def a_value_above_the_maximum_names_the_option(b):
    r = expect(b.cli("run", "--memory", "900G", "--", "true"), 77, b"")
    check(b"stockade run: --memory: 900G requested" in r.stderr, r.stderr)
    for args, option in ((("-e", "A B=1"), b"--env"), (("-l", "a=b", "-l", "a=c"), b"--label"), (("--name", "a b"), b"--name"),
                         (("--egress-rate", "1"), b"--egress-rate")):
        expect(b.cli("run", *args, "--", "true"), 125, b"", b"stockade run: " + option + b": ")
    expect(b.cli("run", "--allow", "127.0.0.1:99", "--", "true"), 77, b"", b"--allow: no rule")
    expect(b.cli("run", "-w", "relative", "--", "true"), 125, b"", b"'relative' is not an absolute path")
    expect(b.cli("run", "--memory", "99999999999999999999G", "--", "true"), 125, b"", b"--memory: '99999999999999999999G' is too large")
    expect(b.cli("run", "--memory", "0", "--", "true"), 125, b"", b"--memory: '0' is not a size above 0")
    expect(b.cli("create", "--name", ""), 2, b"", b"--name must not be empty")
    expect(b.cli("run", "--network", "none", "--allow", "192.0.2.1:80", "--", "true"), 125, b"",
           b"destinations are given, but the mode of the network is none")
    expect(b.cli("run", "--template", "no-such", "--", "true"), 125, b"", b"hint: 'stockade template ls' lists them")
    expect(b.cli("get", "no-such"), 1, b"", b"no-such")
    for args in (("fs", "cat", "no-such", "x"), ("cp", "/etc/hostname", "no-such:x"), ("fork", "no-such"), ("template", "create", "t", "--from", "no-such")):
        expect(b.cli(*args), 1, b"", b"hint: 'stockade ls' lists your sandboxes")
    r = expect(b.cli("create", "--snapshot", "no-such"), 1, b"", b"hint: 'stockade snapshot ls' lists them")
    check(b"--name" not in r.stderr, r.stderr)
    code, said = b.json("get", "no-such")
    check(code == 1 and said["error"]["reason"] == "SANDBOX_UNKNOWN", said)
    for wrong in ("10.0.0.0/99:1", "a.b:99999"):  # the broker finds the first, the command the second
        expect(b.cli("create", "--allow", wrong), 2, b"", b"stockade create: --allow: ")
    expect(b.cli("run", "--pids", "99999999999", "--", "true"), 77, b"", b"--pids: 99999999999 requested")
    expect(b.cli("exec", "no-such", "true"), 125, b"", b"hint: 'stockade ls' lists your sandboxes")
    expect(b.cli("logs", "0123456789abcdef0123456789abcdef"), 1, b"")
    expect(b.cli("logs", "xyz"), 1, b"", b"first 6 digits")


def a_program_that_cannot_run_is_127_or_126(b):
    expect(b.cli("run", "--", "no-such-program"), 127, b"", b"could not be executed")
    expect(b.cli("run", "--", "echo hi"), 127, b"", b"sh -c '...'")
    expect(b.cli("run", "--", "/etc/passwd"), 126, b"", b"could not be executed")


def a_limit_that_ends_a_job_is_named(b):
    expect(b.cli("run", "--timeout", "500ms", "--", "sleep", "60"), 124, b"", b"--timeout raises it")
    expect(b.cli("run", "--cpu-time", "300ms", "--", "sh", "-c", "while :; do :; done"), 124, b"",
           b"--cpu-time raises it")
    expect(b.cli("run", "--memory", "64M", "--", "python3", "-c", "x = bytearray(200 << 20)"), 137, b"",
           b"--memory raises it")


def output_beyond_its_limit_is_cut_and_counted(b):
    r = b.cli("run", "--output", "1K", "--", "head", "-c", "100000", "/dev/zero")
    expect(r, 74, b"\0" * 1024, b"98976 bytes of output were cut")


# ---- a job's own stdin, stdout, stderr and exit code


def exit_codes_and_streams_pass_through(b):
    r = expect(b.cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"), 7, b"out\n")
    check(r.stderr == b"err\n", r.stderr)
    expect(b.cli("run", "--", "sh", "-c", "kill -TERM $$"), 143, b"")
    expect(b.cli("run", "python3", "-c", "print(6 * 7)"), 0, b"42\n")


def options_reach_the_job(b):
    env = dict(os.environ, STOCKADE_FLOW="from here")
    r = b.cli("run", "-e", "A=b=c", "-e", "STOCKADE_FLOW", "-e", "NOT_SET_HERE", "-w", "/tmp", "--", "sh", "-c",
              'echo "$A|$STOCKADE_FLOW|${NOT_SET_HERE-unset}|$PWD"; ulimit -n', env=env)
    expect(r, 0)
    check(r.stdout.startswith(b"b=c|from here|unset|/tmp\n"), r.stdout)
    expect(b.cli("run", "--files", "77", "--", "sh", "-c", "ulimit -n"), 0, b"77\n")


def stdin_comes_from_files_pipes_and_nothing(b):
    data = os.urandom(3_000_000)
    path = os.path.join(b.folder, "input")
    with open(path, "wb") as f:
        f.write(data)
    with open(path, "rb") as f:
        expect(b.cli("run", "--", "cat", stdin=f), 0, data)
    expect(b.cli("run", "--", "cat", input=data), 0, data)
    expect(b.cli("run", "--", "cat", stdin=subprocess.DEVNULL), 0, b"")
    expect(b.cli("run", "-n", "--", "cat", input=b"not sent"), 0, b"")
    with open(path, "rb") as f:  # from where the file stands
        f.seek(2_999_000)
        os.lseek(f.fileno(), 2_999_000, os.SEEK_SET)
        expect(b.cli("run", "--", "cat", stdin=f), 0, data[2_999_000:])


def a_slow_reader_of_stdin_is_waited_for(b):
    p = b.popen("run", "--", "sh", "-c", "sleep 1; cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    data = b"x" * 2_000_000
    out, _ = p.communicate(data, timeout=60)
    check(p.returncode == 0 and out == data, f"{p.returncode} {len(out)}")


def stdin_that_is_not_read_does_not_delay_the_job(b):
    p = b.popen("run", "--", "true", stdin=subprocess.PIPE)
    check(p.wait(30) == 0, "true")
    p.stdin.close()


def much_output_comes_through_whole(b):
    r = b.cli("run", "--", "sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x")
    expect(r, 0)
    check(len(r.stdout) == 50_000_000 and r.stdout.count(b"x") == 50_000_000, len(r.stdout))


def _idle(b):
    until(lambda: b.cli("ps", "-q").stdout == b"", "nothing runs any more")


def a_closed_pipe_ends_the_job_as_sigpipe_would(b):
    p = b.popen("run", "--", "yes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.read(4) == b"y\ny\n", "yes")
    p.stdout.close()
    check(p.wait(30) == 141 and p.stderr.read() == b"", p.returncode)
    _idle(b)
    expect(b.cli("create", "--name", "piped"), 0)
    expect(b.cli("exec", "piped", "--", "sh", "-c", "mkdir d && yes | head -c 4000000 >d/big"), 0)
    for args in (("cp", "piped:d/big", "-"), ("cp", "piped:d", "-"), ("fs", "cat", "piped", "d/big"),
                 ("code", "--sandbox", "piped", "-c", "print('y\\n' * 2000000)")):
        p = b.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(p.stdout.read(1) != b"", args)
        p.stdout.close()
        check(p.wait(30) == 141 and p.stderr.read() == b"", f"{args}: {p.returncode}")
    expect(b.cli("rm", "piped"), 0)


# ---- signals


def output_that_cannot_be_written_is_no_success(b):
    with open("/dev/full", "wb") as full:
        for args, code in ((["run", "--", "echo", "hi"], 125), (["run", "-o", "json", "--", "echo", "hi"], 125), (["ls"], 1),
                           (["info"], 1), (["ls", "-o", "json"], 1), (["--help"], 1), (["run", "--help"], 1), (["--version"], 1)):
            expect(b.cli(*args, stdout=full, stderr=subprocess.PIPE, capture_output=False), code, err=b"cannot write the output")
        for command in (["true"], ["false"]):
            r = b.cli("run", "--bill", "--", *command, stdout=subprocess.PIPE, stderr=full, capture_output=False)
            expect(r, 125, b"")  # the bill is lost


def closed_descriptors_are_not_taken_for_the_jobs(b):
    """A socket to the broker must not become the job's input or output."""
    def without(*fds):
        return lambda: [os.close(fd) for fd in fds]
    r = b.cli("run", "--timeout", "20s", "--", "sh", "-c", "cat; echo end", preexec_fn=without(0))
    expect(r, 0, b"end\n")
    r = b.cli("run", "--", "sh", "-c", "echo out; echo err >&2", preexec_fn=without(0, 2))
    expect(r, 125)  # its stderr is lost, and nothing can say so
    expect(b.cli("run", "--", "echo", "out", preexec_fn=without(0, 2)), 0, b"out\n")
    expect(b.cli("run", "--", "echo", "out", preexec_fn=without(1)), 125, err=b"cannot write the output")
    expect(b.cli("run", "--", "true", preexec_fn=without(0, 1, 2)), 0)


def _started(b, *words):
    _idle(b)  # a job of the case before
    p = b.popen(*words, stderr=subprocess.PIPE)
    until(lambda: b.cli("ps", "-q").stdout != b"", "it runs")
    return p


def the_first_signal_is_the_jobs_and_the_second_ends_it(b):
    p = _started(b, "run", "--", "sleep", "60")
    p.send_signal(signal.SIGINT)
    check(p.wait(20) == 130, p.returncode)
    p = b.popen("run", "--", "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done",
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.readline() == b"up\n", "it listens")
    p.send_signal(signal.SIGTERM)
    check(p.wait(20) == 5, p.returncode)
    p = b.popen("run", "--", "sh", "-c", "trap '' INT; echo up; while :; do sleep 0.05; done",
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.readline() == b"up\n", "it listens")
    deliver(p, signal.SIGINT)
    time_passes("it would end", 0.3)
    check(p.poll() is None, "it ignores one")
    p.send_signal(signal.SIGINT)
    check(p.wait(20) == 130, p.returncode)
    _idle(b)


def a_client_that_dies_takes_its_run_with_it(b):
    p = _started(b, "run", "--", "sleep", "60")
    p.kill()
    p.wait()
    until(lambda: b.cli("ps", "-q").stdout == b"", "the run is cancelled")


# ---- json and the bill


def json_has_result_bill_and_output(b):
    code, o = b.json("run", "--", "sh", "-c", "echo out; echo err >&2; printf '\\377' >&2; exit 3")
    check(code == 3 and o["outcome"] == "EXITED" and o["exit_code"] == 3, o)
    check(o["stdout"] == "out\n" and o["stderr_base64"] == "ZXJyCv8=", o)
    bill = o["bill"]
    check(bill["wall_us"] > 0 and bill["output_bytes"] == 9 and bill["sources"]["wall_us"] == "broker/job", bill)
    check(bill["memory_peak_bytes"] > 0 and bill["setup_us"] > 0, bill)
    code, o = b.json("run", "--timeout", "300ms", "--", "sleep", "9")
    check(code == 124 and o["outcome"] == "LIMIT" and o["limit_hit"]["name"] == "wall_ms", o)
    check(o["limit_hit"]["value"] == 300, o)
    code, o = b.json("run", "--memory", "900G", "--", "true")
    check(code == 77 and o["error"]["code"] == "INVALID_ARGUMENT", o)


def the_bill_is_printed_on_stderr(b):
    r = expect(b.cli("run", "--bill", "--", "python3", "-c", "print(6 * 7)"), 0, b"42\n", b"bill: exited with 0")
    for word in (b"wall time", b"cpu time", b"memory peak", b"page faults", b"switches", b"output"):
        check(word in r.stderr, r.stderr)


# ---- sandboxes that stay


def a_sandbox_keeps_its_files_until_it_is_removed(b):
    id_ = expect(b.cli("create", "--name", "box", "--memory", "128M", "--label", "team=x", "--ttl", "10m"),
                 0).stdout.decode().strip()
    check(len(id_) == 32, id_)
    expect(b.cli("create", "--name", "box"), 1, b"", b"box")
    for args in (["get", "bxo"], ["exec", "bxo", "true"], ["pause", "bx"], ["ps", "boxx"], ["network", "bax"], ["forward", "bo", "80"]):
        expect(b.cli(*args), 125 if args[0] == "exec" else 1, b"", b"did you mean 'box'?")
    expect(b.cli("forward", "box", "80"), 77, b"", b"option: --allow-inbound")
    expect(b.cli("forward", "box", "http"), 2, b"", b"'http' is not PORT")
    expect(b.cli("exec", "box", "--", "sh", "-c", "echo kept > f; exit 3"), 3, b"")
    expect(b.cli("exec", id_[:8], "cat", "f"), 0, b"kept\n")
    expect(b.cli("exec", "box", "--", "cat", input=b"in"), 0, b"in")
    code, o = b.json("get", "box")
    check(code == 0 and o["id"] == id_ and o["limits"]["memory_bytes"] == 128 << 20, o)
    check(o["labels"] == {"team": "x"} and o["state"] == "RUNNING", o)
    table = b.cli("ls").stdout.decode()
    check(id_[:12] in table and "team=x" in table and "128.0 MiB" in table, table)
    check(b.cli("ls", "-q", "--label", "team=y").stdout == b"", "another label")
    check(b.cli("ls", "-q", "--label", "team=x").stdout.decode().strip() == id_, "its label")
    expect(b.cli("pause", "box"), 0, b"box\n")
    check(b.json("get", "box")[1]["state"] == "PAUSED", "paused")
    expect(b.cli("exec", "box", "true"), 125, b"", b"paused")
    expect(b.cli("resume", "box"), 0, b"box\n")
    expect(b.cli("rm", "no-such", "box"), 1, b"box\n", b"no-such")
    expect(b.cli("create"), 0)
    expect(b.cli("create"), 0)
    check(len(b.cli("rm", "--all").stdout.splitlines()) == 2, "both")
    check(b.cli("ls", "-q").stdout == b"", "nothing is left")


def a_detached_process_continues_and_its_output_is_kept(b):
    expect(b.cli("create", "--name", "box"), 0)
    line = "echo 1; while [ ! -e go ]; do sleep 0.02; done; for i in 2 3 4; do echo $i; done; exit 6"
    r = expect(b.cli("exec", "-d", "box", "sh", "-c", line), 0)
    id_ = r.stdout.decode().strip()
    check("running" in b.cli("ps", "box").stdout.decode(), "it runs")
    until(lambda: expect(b.cli("logs", id_[:8]), 0).stdout == b"1\n", "what it said so far")
    expect(b.cli("exec", "box", "touch", "go"), 0)
    expect(b.cli("logs", "-f", id_), 0, b"1\n2\n3\n4\n")
    expect(b.cli("logs", "--since", "4", id_), 0, b"3\n4\n")
    lines = [json.loads(x) for x in b.cli("logs", "-o", "json", id_).stdout.splitlines()]
    check("".join(x["data"] for x in lines) == "1\n2\n3\n4\n" and lines[0]["offset"] == 0, lines)
    code, o = b.json("ps", "box")
    check(code == 0 and o[0]["result"]["exit_code"] == 6, o)
    follows = b.popen("logs", "-f", expect(b.cli("exec", "-d", "box", "sh", "-c", "echo 1; sleep 1000"), 0).stdout.decode().strip(),
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(follows.stdout.readline() == b"1\n", "it follows")
    expect(b.cli("rm", "box"), 0)
    follows.wait(20)
    check(b"stockade logs: the process has ended: cancelled: " in (said := follows.stderr.read()), said)
    expect(b.cli("exec", "-d", "-i", "box", "cat"), 125, b"", b"-d and -i exclude each other")


def names_of_others_cannot_drive_the_terminal(b):
    expect(b.cli("create", "--label", "x=\x1b[2J\u202egnp"), 0)
    out = b.cli("ls").stdout
    check(b"\x1b" not in out and b"x=?[2J?gnp" in out, out)
    printed = "\x1b[2J\u009b2J\u202egnp é"
    for args in (["ls"], ["run", "--", "printf", "%s", printed], ["ps"], ["events"]):
        out = b.cli(args[0], "-o", "json", *args[1:]).stdout
        check(out and all(32 <= byte < 127 or byte == 10 for byte in out), f"{args[0]}: {out}")
    check(b.json("run", "--", "printf", "%s", printed)[1]["stdout"] == printed, "and it is the same when it is read")
    expect(b.cli("rm", "--all"), 0)


# ---- a terminal


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, b, *args):
        self.fd, other = pty.openpty()
        self.size(33, 101)
        self.before = termios.tcgetattr(self.fd)
        self.process = subprocess.Popen(b.command(*args), stdin=other, stdout=other, stderr=other, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other)
        self.text = b""

    def size(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, what, seconds=20):
        begun = time.monotonic()
        while what not in self.text:
            check(time.monotonic() < begun + scaled(seconds), f"no {what!r} in {self.text!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    time.sleep(0.05)
        self.text = self.text.split(what, 1)[1]

    def type(self, what):
        os.write(self.fd, what)

    def wait(self):
        end = time.monotonic() + scaled(20)
        while self.process.poll() is None:
            check(time.monotonic() < end, f"it goes on: {self.text!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    time.sleep(0.05)
        return self.process.returncode


def a_follower_ends_when_its_reader_has_closed_the_output(b):
    check(b.cli("create", "--name", "quiet").returncode == 0, "create")
    job = b.cli("exec", "-d", "quiet", "--", "sleep", "1000").stdout.decode().strip()
    for args in (["events", "-f", "--sandbox", "quiet"], ["logs", "-f", job]):
        reader, writer = os.pipe()
        master, slave = pty.openpty()
        for ours, theirs in ((reader, writer), (master, slave)):
            p = b.popen(*args, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL)
            os.close(theirs)
            os.close(ours)
            check(p.wait(20) != 0, f"{args} ends although nothing happens")
    b.cli("rm", "quiet")


def under_nohup_a_hangup_is_not_the_jobs(b):
    p = b.popen("run", "--", "sh", "-c", "echo runs; read x; echo $x", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    check(p.stdout.readline() == b"runs\n", "it runs")
    p.send_signal(signal.SIGHUP)
    out, _ = p.communicate(b"on\n", timeout=20)
    check(out == b"on\n" and p.returncode == 0, f"{out} {p.returncode}")


def a_terminal_resizes_takes_ctrl_c_and_is_given_back(b):
    t = Terminal(b, "run", "-it", "--", "bash", "--norc")
    t.type(b"stty size; PS1='r''eady '\n")
    t.expect(b"33 101")
    t.expect(b"ready ")
    check(not termios.tcgetattr(t.fd)[3] & termios.ICANON, "raw while it runs")
    t.size(20, 55)
    t.type(b"until [ \"$(stty size)\" = '20 55' ]; do sleep 0.02; done; sh -c 'echo small\"\"er; exec sleep 60'\n")
    t.expect(b"smaller")  # said by the child, so the terminal is its own: bash does not bear a ^C while it still forks
    t.type(b"\x03")
    t.expect(b"ready ")
    t.type(b"echo code=$?\n")
    t.expect(b"code=130")
    t.type(b"exit 9\n")
    check(t.wait() == 9, t.process.returncode)
    check(termios.tcgetattr(t.fd)[3] == t.before[3], "as it was")
    os.close(t.fd)


def ctrl_c_without_a_terminal_of_its_own_reaches_the_job(b):
    t = Terminal(b, "run", "--", "sh", "-c", "echo go; exec sleep 60")
    t.expect(b"go")
    t.type(b"\x03")
    check(t.wait() == 130, t.process.returncode)
    os.close(t.fd)


def a_broker_that_dies_leaves_the_terminal_usable(b):
    with Broker(name="-dies") as other:
        t = Terminal(other, "run", "-it", "--", "bash", "--norc")
        t.type(b"echo he''re\n")
        t.expect(b"here")
        other.kill()
        check(t.wait() == 75, t.process.returncode)
        check(termios.tcgetattr(t.fd)[3] == t.before[3], "as it was")
        os.close(t.fd)


# ---- what describes the command itself


def doctor_version_and_info_say_what_they_should(b):
    code, o = b.json("doctor")
    check(code in (0, 1) and o["sound"] == (code == 0), o)
    names = {c["check"] for c in o["checks"]}
    check({"kernel", "cgroups", "BTF", "user namespaces", "seccomp", "host ids", "broker"} <= names, names)
    check(all(c["fix"] for c in o["checks"] if c["verdict"] == "problem"), o)
    missing = {f["name"] for f in b.json("info")[1]["features"] if not f["available"]}
    told = {c["found"].split(":")[0]: c["verdict"] for c in o["checks"] if c["check"] == "broker says"}
    check(set(told) == missing and set(told.values()) <= {"note", "warning"}, f"{told} of {missing}")
    text = b.cli("doctor").stdout
    check(all(x < 128 for x in text) and b"\x1b" not in text, text)
    code, o = b.json("version")
    check(code == 0 and o["client"] == o["broker"], o)
    code, o = b.json("info")
    check(code == 0 and o["templates"] and o["tiers"] == ["process"], o)
    check(b"TEMPLATE" in b.cli("info").stdout, "a table")


def the_manual_names_everything_and_has_no_mistake(b):
    if INSTALLED:
        return
    source = os.environ["STOCKADE_SOURCE"]
    pages = {}
    for name in ("stockade.1", "stockaded.8", "stockaded.yaml.5", "stockade-policy.5", "stockade-rules.5", "libstockade.3", "stockade-exporter.8"):
        path = os.path.join(source, "deploy/man", name)
        if shutil.which("groff"):
            r = subprocess.run(["groff", "-mandoc", "-ww", "-Tutf8", "-z", path], capture_output=True, check=True)
            check(r.stderr == b"", r.stderr)
        with open(path, encoding="utf-8") as f:
            pages[name] = f.read()
    for line in b.cli("help").stdout.decode().split("commands:")[1].split("'stockade COMMAND")[0].splitlines():
        if not line.startswith("  "):
            continue
        command = line.split()[0]
        check(f".It Cm {command}" in pages["stockade.1"], command)
        for option in re.findall("--([a-z-]+) ", b.cli(command, "--help").stdout.decode().split("options:")[1]):
            check(re.search(rf"^\.It .*Fl -{option}\b", pages["stockade.1"], re.M), f"{command} --{option}")
    for option in re.findall("--([a-z-]+)", subprocess.run([binary("stockaded"), "--help"], capture_output=True,
                                                           check=True, text=True).stdout.split("--config", 1)[1]):
        check(f".It Fl -{option}" in pages["stockaded.8"], option)
    with open(os.path.join(source, "deploy/stockaded.yaml"), encoding="utf-8") as f:
        parent = ""
        for line in f:
            m = re.match(r"#( *)(?:- )?([a-z_]+):(?!//)(.*)", line)
            if not m or re.match("# [^ ]", line):  # prose has one space, keys none or more
                continue
            indent, key, rest = m.groups()
            if not indent and "-" not in line.split(key)[0]:
                parent = key
            name = f"{parent}.{key}" if indent and parent not in ("templates", "limits_default", "limits_max") else key
            if not indent and not rest.strip() and name in ("anomalies", "telemetry", "socket", "log", "ids", "quotas", "rpc", "tls", "ttl"):
                continue
            in_man = re.escape(name).replace(r"\.", r"(?:\[\])?\.")  # of a list: "issuers[].issuer"
            check(re.search(rf"Cm (?:[a-z_]+ , )*{in_man}\b", pages["stockaded.yaml.5"]), name)
    for name in ("stockade.h", "stockade_anomalies.h", "stockade_code.h", "stockade_poll.h", "stockade_simulation.h",
                 "stockade_batch.h", "stockade_snapshots.h", "stockade_templates.h", "stockade_telemetry.h", "stockade_transactions.h", "stockade_volumes.h"):
        with open(os.path.join(source, "client", name), encoding="utf-8") as f:
            for function in re.findall(r"STOCKADE_API[^;]*?\b(stockade_[a-z_]+)\s*\(", re.sub("//.*", "", f.read())):
                check(f".Fn {function}" in pages["libstockade.3"], function)


TESTS = [value for name, value in list(globals().items())
         if not name.startswith("_") and callable(value) and getattr(value, "__code__", None) and value.__code__.co_varnames[:1] == ("b",)
         and value.__code__.co_argcount == 1 and value.__module__ == "__main__"]


def main():
    with Broker() as b:
        status = run_cases(TESTS, lambda case: case(b), lambda: b.cli("rm", "--all"))
    sys.exit(status)


if __name__ == "__main__":
    main()
