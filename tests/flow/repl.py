#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stockade repl`: cells at a prompt, on a pseudo-terminal and through a pipe."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from broker import Broker, binary
from runner import check, run_cases, until

CONFIG = """
pool: 2
templates: [{name: default, warm: {python: []}}]
"""
LONG_S = 30


class Prompt:
    """A repl on a terminal of 80 columns, and what it has written."""

    def __init__(self, b, *flags, env=None, home=None):
        self.home = home or tempfile.mkdtemp()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            keep = {k: v for k, v in os.environ.items() if not k.startswith(("KITTY", "TERM_PROGRAM", "XDG"))}
            os.chdir(self.home)
            os.execve(binary("stockade"), ["stockade", "--address", b.address, "repl", *flags],
                      {**keep, "TERM": "xterm", "HOME": self.home, "LC_ALL": "C.UTF-8", **(env or {})})
        self.data = b""
        self.seen = 0

    def wait(self, text, since=None):
        """Until this text was written after the last one that was waited for."""
        pattern = re.compile(text if isinstance(text, bytes) else text.encode())
        end = time.monotonic() + LONG_S
        while True:
            found = pattern.search(self.data, self.seen if since is None else since)
            if found:
                self.seen = found.end()
                return found
            if time.monotonic() > end:
                raise AssertionError(f"no {text!r} in {self.data[-300:]!r}")
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:
                    data = b""
                if not data:
                    raise AssertionError(f"it ended before {text!r}: {self.data[-2000:]!r}")
                self.data += data

    def type(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def line(self, text):
        """Types a line when the prompt is there."""
        self.type(text + "\r")
        self.wait(re.escape(text[-8:]) + r"\x1b\[K\r\x1b\[[0-9]+C\r\n")

    def cell(self, text, answer):
        self.line(text)
        self.wait(answer)
        self.wait(">>> ")

    def end(self, key=b"\x04"):
        self.type(key)
        status = self.reap()
        shutil.rmtree(self.home, ignore_errors=True)
        return status

    def reap(self):
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.data += os.read(self.fd, 65536)
                except OSError:
                    pass
        raise AssertionError(f"it does not end: {self.data[-1000:]!r}")


def begin(b, *flags, **kw):
    p = Prompt(b, *flags, **kw)
    p.wait(">>> ")
    return p


def sandboxes(b):
    return b.json("ls")[1]


def wrong_flags_are_refused(b):
    r = b.cli("repl", "--sandbox", "a", "--context", "b")
    check(r.returncode == 2 and b"exclude" in r.stderr, r)
    check(b.cli("repl", "--sandbox", "nobody").returncode not in (0, 2), "a sandbox that is not there")
    check(b.cli("repl", "--language", "cobol").returncode != 0, "a language that is not there")
    check(b.cli("repl", "extra").returncode == 2, "an operand")


def variables_stay_and_the_sandbox_goes(b):
    p = begin(b)
    p.cell("x = 41", "")
    p.cell("x + 1", r"42\r\n")
    p.cell("print('a', end='')", "a")
    check(len(sandboxes(b)) == 1, "it has one sandbox")
    check(p.end() == 0, "^D ends it")
    until(lambda: not sandboxes(b), "its sandbox is removed")


def a_block_goes_on_until_an_empty_line(b):
    p = begin(b)
    for line in ("for i in range(3):", "    print(i * 11)"):
        p.line(line)
        p.wait(r"\.\.\. ")
    p.type("\r")
    p.wait("0\r\n11\r\n22\r\n")
    p.wait(">>> ")
    p.line("sum([")
    p.wait(r"\.\.\. ")
    p.cell("1, 2])", "3\r\n")
    p.line('"""one')
    p.wait(r"\.\.\. ")
    p.cell('two"""', "one\\\\ntwo")
    check(p.end() == 0, "the end")


def errors_are_shown_and_the_next_cell_runs(b):
    p = begin(b)
    p.cell("1/0", "ZeroDivisionError: division by zero")
    p.cell("import os; os._exit(3)", "variables are lost")
    p.cell("7", "7\r\n")
    check(p.end() == 0, "the end")


def an_interrupt_ends_the_cell_and_keeps_the_variables(b):
    p = begin(b)
    p.cell("y = 5", "")
    p.line("import time; print('go'); time.sleep(50)")
    p.wait("go\r\n")
    p.type("\x03")
    p.wait("KeyboardInterrupt")
    p.wait(">>> ")
    p.cell("y", "5\r\n")
    p.type("dropped\x03")
    p.wait(r"\^C")
    p.wait(">>> ")
    p.cell("y + 1", "6\r\n")
    check(p.end() == 0, "the end")


def keys_edit_the_line(b):
    p = begin(b)
    p.type("12345\x1b[D\x1b[D\x7f")  # left, left, backspace: 1245
    p.type("\x01(\x05)\r")
    p.wait(r"\n1245\r\n")
    p.wait(">>> ")
    p.type("'gr\u00fcn\u4e16\u754c'\x1b[D\x1b[D\x7f\r")  # the last character but one is wide
    p.wait("'gr\u00fcn\u754c'\r\n|'gr\u00fcn\u4e16'\r\n".encode())
    p.wait(">>> ")
    p.type("9 + 1 garbage here\x17\x17\x15" + "8 * 8" + "\x0b\r")
    p.wait("64\r\n")
    p.wait(">>> ")
    p.type(b"\xff\xfe1\xc3+ 1\x1b[999;999;99999999999Z\r")
    p.wait(">>> ")
    p.cell("'" + "x" * 300 + "'[:3]", "'xxx'\r\n")
    check(p.end() == 0, "the end")


def the_history_stays_and_is_private(b):
    home = tempfile.mkdtemp()
    p = begin(b, home=home)
    p.cell("first = 1", "")
    p.cell("first + 100", "101\r\n")
    p.type("\x1b[A\x1b[A\x1b[B\r")
    p.wait("101\r\n")
    p.wait(">>> ")
    p.type("\x04")
    check(p.reap() == 0, "the end")
    path = f"{home}/.local/state/stockade/history"
    with open(path, encoding="utf-8") as f:
        check(f.read().splitlines() == ["first = 1", "first + 100"], "each once")
    check(os.stat(path).st_mode & 0o777 == 0o600, "for its owner alone")
    with open(path, "ab") as f:
        f.write(b"\xff\xfe not utf-8\n1 +\\n2\n" + b"z" * 100000 + b"\n")
    p = begin(b, home=home)
    p.type("\x1b[A")
    p.wait("2")
    p.type("\x1b[A\r")
    p.wait("NameError")
    p.wait(">>> ")
    check(p.end() == 0, "the end")


def pictures_are_saved_or_shown(b):
    png = ("import base64\nclass P:\n    def _repr_png_(self):\n        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
           "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\n").splitlines()
    for env, expected in (({}, rb"picture-1\.png"), ({"KITTY_WINDOW_ID": "1"}, rb"\x1b_Gf=100,a=T,m=0;iVBOR"),
                          ({"TERM_PROGRAM": "iTerm.app"}, rb"\x1b\]1337;File=inline=1")):
        p = begin(b, env=env)
        for line in png:
            p.line(line)
            p.wait(r"\.\.\. |>>> ")
        p.type("\r")
        p.wait(">>> ")
        p.line("P()")
        p.wait(expected)
        p.wait(">>> ")
        check(os.path.exists(f"{p.home}/picture-1.png") == (not env), "a file where it cannot be shown")
        check(p.end() == 0, "the end")


def a_sandbox_of_the_caller_stays(b):
    check(b.cli("create", "--name", "desk").returncode == 0, "create")
    p = begin(b, "--sandbox", "desk", "--language", "bash")
    p.cell("a=5", "")
    p.line("for i in 1 2; do")
    p.wait(r"\.\.\. ")
    p.cell("echo $((a + i)); done", "6\r\n7\r\n")
    check(p.end() == 0, "the end")
    until(lambda: not [x for x in b.json("ps", "desk")[1] if not x.get("result")], "its context is removed")
    check(b.cli("rm", "desk").returncode == 0, "the sandbox is still there")


def a_signal_ends_it_and_removes_the_sandbox(b):
    for number in (signal.SIGTERM, signal.SIGHUP):
        p = begin(b)
        p.line("import time; print('go'); time.sleep(50)")
        p.wait("go\r\n")
        os.kill(p.pid, number)
        check(p.reap() == 128 + number, "it says by which signal it ended")
        until(lambda: not sandboxes(b), "its sandbox is removed")


def cells_come_through_a_pipe(b):
    text = "x = 2\nfor i in range(2):\n    print(i)\n\nx * 21\n"
    r = b.cli("repl", input=text.encode())
    check((r.returncode, r.stdout) == (0, b"0\n1\n42\n"), r)
    r = b.cli("repl", input=b"1\n1/0\n")
    check(r.returncode == 1 and b"ZeroDivisionError" in r.stderr, r)
    r = b.cli("repl", "--timeout", "300ms", input=b"while True: pass\n\n")
    check(r.returncode == 124 and b"stockade repl: it exceeded --timeout\n" in r.stderr, r)
    r = b.cli("repl", input=b"print(3)\nif True:\n  print(4)")
    check(r.stdout == b"3\n4\n", "the end of the file ends a block")
    until(lambda: not sandboxes(b), "nothing is left")


def json_is_an_object_for_each_cell(b):
    r = b.cli("repl", "-o", "json", input=b"x = 2\nprint(3)\n1/0\nx\n")
    got = [json.loads(line) for line in r.stdout.splitlines()]
    check([c["status"] for c in got] == ["OK", "OK", "ERROR", "OK"] and not r.returncode and not r.stderr, r)
    check([c["stdout"] for c in got] == ["", "3\n", "", ""] and got[2]["error"]["name"] == "ZeroDivisionError", got)
    check(not got[3]["error"] and [len(c["results"]) for c in got] == [0, 0, 0, 1], got)


def output_that_cannot_be_written_ends_it(b):
    for cells in (b"7\n8\n", b"print(7)\n8\n"):
        with open("/dev/full", "wb") as full:
            r = subprocess.run([binary("stockade"), "--address", b.address, "repl"], input=cells, stdout=full, stderr=subprocess.PIPE,
                               check=False)
        check(r.returncode == 125 and r.stderr == b"stockade repl: cannot write the output: No space left on device\n", r)


def a_picture_that_cannot_be_saved_is_a_failure(b):
    cell = b"class P:\n    def _repr_png_(self):\n        open('/tmp/ran', 'w')\n        return b'png'\n\nP()\n"
    with tempfile.TemporaryDirectory() as box, tempfile.NamedTemporaryFile() as file:
        for folder, why in ((box + "/none", b"No such file or directory"), (file.name, b"Not a directory")):
            r = b.cli("code", "--pictures", folder, "-", input=cell)
            check(r.returncode == 125 and b"--pictures" in r.stderr and why in r.stderr, r)
            check(b.cli("repl", "--pictures", folder, input=cell).returncode == 2, "a wrong command line")
        r = b.cli("code", "--pictures", box, "-", input=cell)
        check(r.returncode == 0 and r.stdout.decode() == f"{box}/picture-1.png\n", r)


TESTS = [wrong_flags_are_refused, variables_stay_and_the_sandbox_goes, a_block_goes_on_until_an_empty_line,
         errors_are_shown_and_the_next_cell_runs, an_interrupt_ends_the_cell_and_keeps_the_variables, keys_edit_the_line,
         the_history_stays_and_is_private, pictures_are_saved_or_shown, a_sandbox_of_the_caller_stays,
         a_signal_ends_it_and_removes_the_sandbox, cells_come_through_a_pipe, json_is_an_object_for_each_cell,
         output_that_cannot_be_written_ends_it, a_picture_that_cannot_be_saved_is_a_failure]

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        result = run_cases(TESTS, lambda case: case(broker))
    sys.exit(result)
