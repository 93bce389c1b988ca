#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command's messages if a job fails because of Stockade, or does nothing: limits, refusals, terminals."""

import os
import subprocess
import sys

from broker import Broker, hybrid
from cli import Terminal, expect
from runner import check, run_cases

CONFIG = """
ttl: {max: 1h}
telemetry: {syscalls: "off"}
templates:
  - {name: narrow, pool: 0, network: {mode: allowlist, outbound: [192.0.2.0/24]}}
"""
FILL = "head -c 2M /dev/zero > /tmp/a"
CHILD = "python3 -c 'x = bytearray(200 << 20)'; exit 3"


def one_line(r, what):
    lines = [line for line in r.stderr.decode().splitlines() if line.startswith("stockade ")]
    check(len(lines) == 1 and what in lines[0], f"{what!r}: {r.stderr!r}")


def limits_that_do_not_end_a_job_leave_one_line(b):
    r = expect(b.cli("run", "--disk", "1M", "--", "sh", "-c", FILL), 1)
    one_line(r, "stockade run: it reached the limit disk of 1.0 MiB (--disk raises it)")
    if hybrid():  # with v2 alone the kernel kills the whole job (memory.oom.group)
        r = expect(b.cli("run", "--memory", "64M", "--", "sh", "-c", CHILD), 3)
        one_line(r, "it reached the limit memory of 64.0 MiB (--memory raises it)")
        r = expect(b.cli("run", "--disk", "1M", "--memory", "64M", "--", "sh", "-c", f"{FILL}; {CHILD}"), 3)
        one_line(r, "--memory raises it), and disk of 1.0 MiB (--disk raises it)")
    else:
        r = expect(b.cli("run", "--memory", "64M", "--", "sh", "-c", CHILD), 137)
        one_line(r, "ended by the limit memory of 64.0 MiB; --memory raises it")
    r = b.cli("run", "--bill", "--disk", "1M", "--", "sh", "-c", FILL)
    check(b"it reached" not in r.stderr and b"limit hit    disk of 1.0 MiB" in r.stderr, r.stderr)
    r = expect(b.cli("run", "--disk", "3M", "--memory", "256M", "--", "sh", "-c", FILL), 0)
    check(r.stderr == b"", r.stderr)


def a_limit_of_the_sandbox_is_raised_where_it_can_be(b):
    expect(b.cli("create", "--name", "tight", "--disk", "1M", "--memory", "64M"), 0)
    r = expect(b.cli("exec", "tight", "--", "sh", "-c", FILL), 1)
    one_line(r, "stockade exec: it reached the limit disk of 1.0 MiB ('stockade create --disk' sets it)")
    r = expect(b.cli("exec", "tight", "--", "python3", "-c", "x = bytearray(200 << 20)"), 137)
    one_line(r, "ended by the limit memory of 64.0 MiB; 'stockade create --memory' sets it")
    r = expect(b.cli("exec", "--timeout", "200ms", "tight", "--", "sleep", "60"), 124)
    one_line(r, "; --timeout raises it")


def what_policy_refuses_is_77_in_every_command(b):
    narrow = ("--template", "narrow", "--allow", "198.51.100.1:443")
    expect(b.cli("create", "--name", "refuses", "--template", "narrow"), 0)
    for args in (("run", "--memory", "900G", "--", "true"), ("create", "--memory", "900G"), ("create", "--ttl", "2h"),
                 ("update", "--ttl", "2h", "refuses"), ("run", *narrow, "--", "true"), ("create", *narrow),
                 ("run", "--template", "narrow", "--network", "open", "--", "true"),
                 ("network", "--allow", "198.51.100.1:443", "refuses"), ("forward", "refuses", "0:80"),
                 ("exec", "--timeout", "2d", "refuses", "--", "true"), ("run", "--syscalls", "--", "true"),
                 ("exec", "--syscalls", "refuses", "--", "true")):
        expect(b.cli(*args), 77, b"")


def a_terminal_is_not_made_of_a_file(b):
    expect(b.cli("create", "--name", "screen"), 0)
    for command in (("run", "-it"), ("exec", "-it", "screen")):
        for stdin in (subprocess.DEVNULL, subprocess.PIPE):
            kw = {"input": b"exit 3\n"} if stdin == subprocess.PIPE else {"stdin": stdin}
            r = expect(b.cli(*command, "bash", **kw), 125, b"", b"-it needs a terminal, but stdin is not")
            check(b"omit -t to send stdin unchanged; omit -i to give the job a terminal" in r.stderr, r.stderr)
    expect(b.cli("exec", "-i", "screen", "bash", input=b"exit 3\n"), 3)  # as the hint says
    expect(b.cli("exec", "-t", "screen", "tty", stdin=subprocess.DEVNULL), 0, b"/dev/pts/0\r\n")


def a_shell_without_input_hints_at_it(b):
    expect(b.cli("create", "--name", "shell"), 0)
    for command, hint in ((("run", "bash"), b"hint: stockade run -it bash\r\n"),
                          (("exec", "shell", "/bin/sh"), b"hint: stockade exec -it shell /bin/sh\r\n")):
        t = Terminal(b, *command)
        t.expect(b"gets no input from this terminal")
        t.expect(hint)
        check(t.wait() == 0, t.process.returncode)
        os.close(t.fd)
        argv = hint.decode().split()[2:]
        t = Terminal(b, *argv)
        t.type(b"exit 7\n")
        check(t.wait() == 7, f"{argv}: {t.process.returncode}")
        os.close(t.fd)
    t = Terminal(b, "run", "-n", "bash")
    check(t.wait() == 0 and b"hint" not in t.text, t.text)
    os.close(t.fd)
    check(b.cli("run", "bash", input=b"echo on\n").stderr == b"", "a pipe is read")


TESTS = [limits_that_do_not_end_a_job_leave_one_line, a_limit_of_the_sandbox_is_raised_where_it_can_be,
         what_policy_refuses_is_77_in_every_command, a_terminal_is_not_made_of_a_file, a_shell_without_input_hints_at_it]


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases(TESTS, lambda case: case(b), lambda: b.cli("rm", "--all"))
    sys.exit(status)


if __name__ == "__main__":
    main()
