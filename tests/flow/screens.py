#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Live output: `top` on a terminal, drawn as the terminal would, and the followers of events and findings."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time

from broker import Broker
from cli import Terminal, expect
from slowness import scaled
from runner import check, run_cases, until

MEMFD = "import os\nfd = os.memfd_create('x')\nos.write(fd, open('/bin/true', 'rb').read())\nos.execve(fd, ['x'], {})\n"
SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|([^\x1b\r\n]+)")


class Screen(Terminal):
    """The contents of the terminal; an unexpected sequence is an error."""

    def __init__(self, b, *args, size=(24, 80)):
        self.rows, self.columns = size
        self.own, self.cursor_shown, self.y = False, True, 0
        self.lines, self.bright = {}, set()
        super().__init__(b, *args)
        self.resize(*size)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.size(rows, columns)

    def draw(self):
        """Handles the received data, only whole sequences."""
        if select.select([self.fd], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # it has ended
                self.text += os.read(self.fd, 65536)
        text = self.text.decode()
        end = text.rfind("\x1b[J") + 3 if "\x1b[J" in text else 0
        end = max(end, text.rfind("\x1b[?1049l") + 8 if "\x1b[?1049l" in text else 0)
        for m in SEQUENCE.finditer(text[:end]):
            self.obey(m.group(1), m.group(2), m.group(3), m.group(0))
        self.text = text[end:].encode()
        return self

    def obey(self, parameter, command, plain, whole):
        modes = {"?1049h": ("own", True), "?1049l": ("own", False), "?25h": ("cursor_shown", True), "?25l": ("cursor_shown", False)}
        if plain is not None:
            self.lines[self.y] = self.lines.get(self.y, "") + plain
        elif whole == "\n":
            self.y += 1
        elif command == "H":
            self.y, self.lines = 0, {}
        elif command == "m" and parameter == "1":
            self.bright = {self.y}
        elif command in ("h", "l"):
            name, value = modes[parameter + command]
            setattr(self, name, value)
        else:
            check(whole == "\r" or (command in ("J", "K") and parameter == "") or parameter + command == "0m", repr(whole))

    def shows(self, what, seconds=20):
        end = time.monotonic() + scaled(seconds)
        while not any(re.search(what, line) for line in self.draw().lines.values()):
            check(self.process.poll() is None, f"it has ended: {self.process.returncode} {self.lines} {self.text}")
            check(time.monotonic() < end, f"no {what!r} on {self.lines}")
        return self

    def fits(self):
        """Whether the last drawing fits: the cursor did not leave the terminal at the bottom, nor a line on the
        right."""
        until(lambda: self.draw().y < self.rows and all(len(line) <= self.columns for line in self.lines.values()),
              f"{self.rows} rows and {self.columns} columns")

    def given_back(self, code):
        got = self.wait()
        self.draw()
        check(got == code, f"exit code {got}, not {code}: {self.text}")
        check(not self.own and self.cursor_shown, "the screen and the cursor are back")
        check(termios.tcgetattr(self.fd) == self.before, "and the terminal's modes")
        os.close(self.fd)


def has_programs(b):
    return "bpf-watch: no" not in b.log() and "bpf-syscalls: no" not in b.log()


# ---- refusals and ends

def top_of_a_sandbox_that_is_not_there_says_so_and_leaves_the_terminal_alone(b):
    t = Screen(b, "top", "--sandbox", "nobody")
    t.expect(b"no sandbox")
    check(t.wait() != 0 and b"\x1b" not in t.text, t.text)
    check(termios.tcgetattr(t.fd) == t.before, "as it was")
    os.close(t.fd)


def whatever_ends_top_gives_the_terminal_back(b):
    for end in (b"q", b"Q", b"\x03", signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        t = Screen(b, "top", "--interval", "50ms").shows("sandboxes, ")
        check(t.own and not t.cursor_shown and not termios.tcgetattr(t.fd)[3] & termios.ECHO, "it has a screen of its own")
        t.type(b"x \x1b[A\xff")  # other keys do nothing
        t.shows("sandboxes, ")
        if isinstance(end, bytes):
            t.type(end)
        else:
            t.process.send_signal(end)
        t.given_back(0)


def a_terminal_that_goes_away_ends_top(b):
    t = Screen(b, "top", "--interval", "50ms").shows("sandboxes, ")
    os.close(t.fd)
    until(lambda: t.process.poll() is not None, "it ends")


def top_into_a_pipe_or_without_a_keyboard_prints_one_table(b):
    r = expect(b.cli("top"), 0)
    check(b"\x1b" not in r.stdout and b"ALERTS" in r.stdout, r.stdout)


def a_screen_ends_as_with_sigpipe_without_a_reader_and_reports_a_failed_write(b):
    expect(b.cli("create", "--name", "said"), 0)
    job = expect(b.cli("exec", "-d", "said", "sh", "-c", "while echo line; do sleep 0.02; done"), 0).stdout.decode().strip()
    for args in (["logs", "-f", job], ["logs", "-f", "-o", "json", job], ["events", "--from", "1", "-f"], ["events", "-o", "json"],
                 ["top", "-o", "json", "--interval", "50ms"]):
        nobody, pipe = os.pipe()
        os.close(nobody)
        r = expect(b.cli(*args, stdout=pipe, stderr=subprocess.PIPE, capture_output=False), 141)
        os.close(pipe)
        check(r.stderr == b"", f"{args}: {r.stderr}")
    with open("/dev/full", "wb") as full:
        for args in (["logs", "-f", job], ["logs", "-o", "json", job], ["events"], ["events", "-o", "json"], ["top", "--once"],
                     ["top", "-o", "json"], ["inspect", job]):
            expect(b.cli(*args, stdout=full, stderr=subprocess.PIPE, capture_output=False), 1, err=b"cannot write the output: No space")


# ---- the table

def top_shows_who_is_busy_first_and_follows_changes(b):
    names = ("idle", "a-name-that-is-so-long-that-nothing-else-would-fit-beside-it")
    for name in names:
        expect(b.cli("create", "--name", name), 0)
    t = Screen(b, "top", "--interval", "100ms", size=(24, 120)).shows("^[0-9a-f]{12}  idle ")
    busy = b.popen("exec", names[1], "--", "/usr/bin/python3", "-c", "b = bytearray(32 << 20)\nwhile True: pass")
    try:
        until(lambda: (found := [line for line in t.draw().lines.values() if "a-name" in line])
              and float(found[0].split()[2]) > 1 and "MiB" in found[0], "its CPU time and its memory show")
        until(lambda: [i for i, line in t.draw().lines.items() if "a-name" in line] == [3], "the busy one is the first")
        check(t.bright == {2} and t.lines[2].split()[:3] == ["SANDBOX", "NAME", "CPU%"], f"the head is bright: {t.lines}")
        ends = {len(line) for i, line in t.lines.items() if i >= 2 and line}
        check(len(ends) == 1, f"figures end below each other: {t.lines}")
        expect(b.cli("create", "--name", "new"), 0)
        t.shows("  new ")
        expect(b.cli("pause", "idle"), 0)
        t.shows("\\(paused\\) idle")
        expect(b.cli("rm", "idle"), 0)
        until(lambda: t.draw().lines and not any("idle" in line for line in t.lines.values()), "who is gone is gone")
    finally:
        busy.kill()
        busy.wait()
    t.type(b"q")
    t.given_back(0)


def narrow_and_low_terminals_lose_columns_and_rows_and_nothing_else(b):
    for i in range(6):
        expect(b.cli("create", "--name", f"a-name-of-some-length-{i}"), 0)
    t = Screen(b, "top", "--interval", "100ms", size=(24, 120)).shows("a-name-of-some-length-5 ")
    for columns, there, not_there in ((80, "ALERTS", None), (60, "MEMORY", "IN/s"), (40, "CPU%", "PIDS"), (24, "SANDBOX", "MEMORY")):
        t.resize(24, columns)
        until(lambda x=there, y=not_there: (head := t.draw().lines.get(2, "").split()) and x in head and y not in head,
              f"{columns} columns")
        t.fits()
        check(sum("a-name-" in line for line in t.lines.values()) == 6, f"all of them, by their names: {t.lines}")
    t.resize(8, 80)
    t.shows("and 3 more, less busy")
    for rows, columns in ((24, 1), (1, 80), (1, 1), (2, 2), (3, 40), (4096, 4096)):
        t.resize(rows, columns)
        t.fits()
        check(t.process.poll() is None, f"{rows} x {columns}: {t.process.returncode}")
    t.resize(24, 120)
    t.shows("a-name-of-some-length-5 ")
    t.type(b"q")
    t.given_back(0)


# ---- what follows

def events_and_findings_are_followed_by_a_sandboxs_name(b):
    if not has_programs(b):
        return
    expect(b.cli("create", "--name", "watched"), 0)
    events = Terminal(b, "events", "-f", "--from", "1", "--sandbox", "watched")
    findings = Terminal(b, "anomalies", "--follow", "--sandbox", "watched")
    b.cli("exec", "watched", "--", "/usr/bin/python3", "-c", MEMFD)
    findings.expect(b"unnamed-exec")
    findings.expect(b", a file without a name (alert) [T1620] #")
    events.expect(b'args="/usr/bin/python3 -c import os fd = ')  # one line
    events.expect(b"finding ")
    events.expect(b" rule=unnamed-exec ")
    events.expect(b"job_ended")
    events.expect(b" cpu=")
    for t in (events, findings):
        t.type(b"\x03")
        check(t.wait() in (130, -signal.SIGINT), t.process.returncode)
        check(b"\x1b" not in t.text, t.text)
        os.close(t.fd)
    for args in (("events", "--sandbox", "watched"), ("anomalies", "--sandbox", "watched")):
        lines = expect(b.cli(*args, "-o", "json"), 0).stdout
        check(all(json.loads(line)["sandbox_id"] for line in lines.splitlines()), lines)
        expect(b.cli(args[0], "--sandbox", "nobody"), 1, err=b"no sandbox")


def a_record_says_when_and_by_what_it_was_seen(b):
    expect(b.cli("run", "--", "true"), 0)
    text = expect(b.cli("inspect"), 0).stdout
    check(re.search(rb"\nrecord      (not )?complete, from \d\d:\d\d:\d\d\.\d{3} to \d\d:\d\d:\d\d\.\d{3}\n", text), text)
    if has_programs(b):
        check(re.search(rb"\nseen by     [a-z, ]*egress", text), text)


TESTS = (top_of_a_sandbox_that_is_not_there_says_so_and_leaves_the_terminal_alone, whatever_ends_top_gives_the_terminal_back,
         a_terminal_that_goes_away_ends_top, top_into_a_pipe_or_without_a_keyboard_prints_one_table,
         a_screen_ends_as_with_sigpipe_without_a_reader_and_reports_a_failed_write,
         top_shows_who_is_busy_first_and_follows_changes, narrow_and_low_terminals_lose_columns_and_rows_and_nothing_else,
         events_and_findings_are_followed_by_a_sandboxs_name, a_record_says_when_and_by_what_it_was_seen)


def run_one(b, case):
    try:
        case(b)
    finally:
        b.cli("rm", "--all")


def main():
    with Broker() as b:
        status = run_cases(TESTS, lambda case: run_one(b, case))
    sys.exit(status)


if __name__ == "__main__":
    main()
