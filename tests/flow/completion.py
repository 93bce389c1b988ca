#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The completion scripts in their shells: a line is typed on a terminal, TAB is pressed, and the command that the
shell would run is read. A missing shell is reported and skipped."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time

import sp
from broker import Broker, binary, skip
from cli import check, expect
from slowness import scaled

sp.load("proto/gen/descriptor_set.bin")

# How each is started, and told to show what it would have run. They find the command by its name, as people do.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "PS1='ready''> '; stockade() { printf '<%s>' \"$@\"; echo; }; source <(command stockade completion bash)\n"),
    "zsh": (["zsh", "-f", "-i"],
            "PS1='ready''> '; autoload -Uz compinit; compinit -u -D; stockade() { printf '<%s>' \"$@\"; echo; }; "
            "source <(command stockade completion zsh)\n"),
    "fish": (["fish", "--no-config", "-i"],
             "function fish_prompt; echo 'ready''> '; end; function stockade; printf '<%s>' $argv; echo; end; "
             "command stockade completion fish | source\n"),
}
LINES = (
    ("doc", "<doctor>"),
    ("run --mem", "<run><--memory>"),
    ("run --network al", "<run><--network><allowlist>"),
    ("run --network=al", "<run><--network=allowlist>"),
    ("run -e 'A=b c' --bil", "<run><-e><A=b c><--bill>"),
    ("run --template def", "<run><--template><default>"),
    ("--address {address} exec my-b", "<--address><{address}><exec><my-box>"),
    ("logs ", "<logs><{process}>"),
    ("run -- ./a-prog", "<run><--><./a-program>"),
    ("exec -it my-box ./a-prog", "<exec><-it><my-box><./a-program>"),
    ("exec my-box cat a-f", "<exec><my-box><cat><a-file>"),
    ("run --policy a-f", "<run><--policy><a-file>"),
    ("run --policy=a-f", "<run><--policy=a-file>"),
    ("--token-file a-f", "<--token-file><a-file>"),
    ("key revoke ", "<key><revoke><{key}>"),
    ("approvals approve ", "<approvals><approve><{approval}>"),
    ("run --approval ", "<run><--approval><{approval}>"),
    ("policy learn ", "<policy><learn><{process}>"),
    ("rules disable my", "<rules><disable><my-rule>"),
    ("rules rm ", "<rules><rm><my-rules>"),
    ("audit proof ", "<audit><proof><{process}>"),
    ("token mint --sandboxes my", "<token><mint><--sandboxes><my-box>"),
)


class Shell:
    def __init__(self, b, name):
        argv, init = SHELLS[name]
        self.fd, other = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        env = dict(os.environ, HOME=b.folder, TERM="dumb" if name == "fish" else "vt100", LC_ALL="C.UTF-8",
                   PATH=os.path.dirname(binary("stockade")) + ":" + os.environ["PATH"], STOCKADE_ADDRESS=b.address)
        self.process = subprocess.Popen(argv, stdin=other, stdout=other, stderr=other, env=env, cwd=b.folder,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other)
        self.text = ""
        self.type(init)
        self.until("ready> ")

    def type(self, what):
        os.write(self.fd, what.encode())

    def until(self, pattern):
        end = time.monotonic() + scaled(30)
        while not re.search(pattern, self.text):
            check(time.monotonic() < end, f"no {pattern!r} in {self.text!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")

    def complete(self, line):
        """The command that the shell runs for a line that ends with TAB. The terminal keeps Enter until the shell has
        completed."""
        self.text = ""
        self.type(f"stockade {line}\t\n")
        self.until("<[^<>\x1b\n]*>\r*\n")
        return re.findall("(?:<[^<>\x1b\n]*>)+", self.text)[-1]

    def close(self):
        os.close(self.fd)
        self.process.kill()
        self.process.wait()


def main():
    failed = 0
    shells = [name for name in SHELLS if shutil.which(name)]
    if not shells:
        skip("none of " + ", ".join(SHELLS))
    with Broker() as b:
        expect(b.cli("create", "--name", "my-box"), 0)
        process = expect(b.cli("exec", "-d", "my-box", "sleep", "600"), 0).stdout.decode().strip()
        for name in ("a-program", "a-file"):
            with open(os.path.join(b.folder, name), "w", encoding="utf-8") as f:
                os.fchmod(f.fileno(), 0o755 if name == "a-program" else 0o644)
        rules = os.path.join(b.folder, "my-rules.yaml")
        with open(rules, "w", encoding="utf-8") as f:
            f.write("rules: [{id: my-rule, severity: notice, response: log, match: {kinds: [exec]}, message: m}]\n")
        expect(b.cli("rules", "set", rules), 0)
        expect(b.cli("key", "create", "--label", "of mine"), 0)
        keys = json.loads(expect(b.cli("key", "ls", "-o", "json"), 0).stdout)
        with contextlib.closing(sp.Client(b.address)) as c:
            run = sp.message("stockade.v1.RunRequest")(command={"args": ["true"]}).SerializeToString()
            approval = c.unary("/stockade.v1.ApprovalService/Create", {"method": "ProcessService/Run", "request": run}).approval.id
        places = {"address": b.address, "process": process[:12], "key": keys[0]["id"], "approval": approval}
        for name in SHELLS:
            if name not in shells:
                print(f"skipped: {name} is not installed", flush=True)
                continue
            begun = time.monotonic()
            shell = Shell(b, name)
            try:
                for line, wanted in LINES:
                    got = shell.complete(line.format(**places))
                    check(got == wanted.format(**places), f"{line!r}: {got}, not {wanted}")
                print(f"ok   {name} completes commands, options, values, names, programs and files "
                      f"({time.monotonic() - begun:.1f} s)", flush=True)
            except (AssertionError, OSError) as why:
                failed += 1
                print(f"FAIL {name}: {why}", flush=True)
            shell.close()
        b.cli("rm", "--all")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
