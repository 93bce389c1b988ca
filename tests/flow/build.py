#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stockade template build: steps become layers that the next build begins with; what is wrong names file and line; an
interrupted build leaves no sandbox."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from datetime import datetime, timedelta

from broker import Broker
from cli import Terminal
from root_inside import needs_the_ids_of_usr, reachable
from runner import Skipped, check, run_cases, until
from slowness import scaled

CONFIG = """
quotas: {kept_bytes_per_caller: 256M}
limits_max: {disk: 1G, memory: 1536M}
pool: 2
templates:
  - name: default
  - {name: small, limits: {file_size: 4M}}
  - name: builder
    user: root
    root: writable
    paths: [/var/lib/dpkg]
    limits: {inodes: 200000, timeout: 5m, cpu_time: 5m, pids: 512, file_size: 1G}
    network_max: {mode: open, outbound: [203.0.113.0/24, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16]}
"""
BOX = tempfile.TemporaryDirectory()


def write(name, text):
    path = os.path.join(BOX.name, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def build(b, path, *flags):
    """The exit code, the object of -o json, and stderr."""
    r = b.cli("template", "build", "-o", "json", path, *flags)
    return r.returncode, json.loads(r.stdout) if r.stdout else None, r.stderr.decode()


def cached(made):
    return [s["cached"] for s in made["steps"]]


def no_sandbox(b):
    until(lambda: b.json("ls")[1] == [], lambda: f"no sandbox is left: {b.json('ls')[1]}")


def clear(b):
    b.cli("rm", "--all")
    for t in b.json("template", "ls")[1]:
        if not t["of_host"]:
            b.cli("template", "rm", t["name"])
    for s in b.json("snapshot", "ls")[1]:
        b.cli("snapshot", "rm", s["name"])


def what_is_wrong_names_file_line_and_column(b):
    for text, words in (("", "it is empty"), ("steps: []\n", "there are no steps"), ("- a\n", "1:1: must be a mapping"),
                        ("frox: default\n", "1:7: frox: there is no such key; did you mean from?"),
                        ("steps:\n  - {run: a, run: b}\n", "2:14: run: a duplicate key"),
                        ("steps: 3\n", "1:8: steps: must be a list"), ("steps: [{run: [a]}]\n", "must be a text"),
                        ("env: [a]\nsteps: [{run: a}]\n", "must be a mapping of names and texts"),
                        ("env: {B: b, A=C: c}\nsteps: [{run: a}]\n", "wrong.yaml:1:18: name: 'A=C' must consist of letters"),
                        ("steps:\n" + 20000 * "  - run: a\n", "wrong.yaml:42:5: there are more than 40 steps"),
                        ("steps:\n  - {run: a}\n  - {}\n", "3:5: a step has either run or copy"),
                        ("steps:\n  - run: a\n    copy: {from: a, to: b}\n", "2:5: a step has either run or copy"),
                        ("steps:\n  - copy: {from: a}\n", "2:5: copy needs from and to"),
                        ("steps:\n  - copy: {from: a, to: b}\n    timeout: 3s\n", "network and timeout are for run"),
                        ("steps: [{run: a, timeout: never}]\n", "must be a time"),
                        ("limits: {memory: much}\nsteps: [{run: a}]\n", "must be a size"),
                        ("workdir: x\nsteps: [{run: a}]\n", "workdir"), ("user: nobody\nsteps: [{run: a}]\n", "user"),
                        ("from: &a default\nsteps: [{run: a}]\n", "anchors are not allowed"),
                        ("steps: [{run: a, network: {allow: x}}]\n", "must be a list"),
                        ("from: nobody\nsteps: [{run: a}]\n", "wrong.yaml:1:7: from: there is no template nobody"),
                        ("user: root\nsteps: [{run: a}]\n", "wrong.yaml:1:7: user: jobs of template default are agent, not root"),
                        ("steps:\n  - copy: {from: missing, to: x}\n", "2: step 1:"),
                        ("steps:\n  - {run: a, network: {allow: [a b]}}\n", "wrong.yaml:2: step 1: network.outbound[0].domain: 'a b' must be a name"),
                        ("limits: {memory: 100T}\nsteps: [{run: b}]\n", "wrong.yaml:1:9: limits: limits.memory_bytes: 100T is above"),
                        ("steps: [{run: a}]\n" + "#" * (1 << 20), "larger than 1024 KiB")):
        code, made, said = build(b, write("wrong.yaml", text))
        check(code not in (0, 70) and words in said and (made is None or "error" in made), f"{text[:80]!r}: {code} {said}")
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        with open(os.path.join(BOX.name, "wide.yaml"), "w", encoding=encoding) as f:
            f.write("steps: [{run: a}]\n")
        code, _, said = build(b, f.name)
        check(code != 0 and re.search("wide.yaml:1:[12]: must be UTF-8", said), f"{encoding}: {said}")
    code, _, said = build(b, "/nowhere/x.yaml")
    check(code != 0 and "No such file" in said, said)
    r = b.cli("template", "ls", "--no-cache")
    check(b"need the action build" in r.stderr, r)
    no_sandbox(b)


def a_name_that_cannot_be_is_refused_before_the_steps(b):
    path = write("steps.yaml", "steps:\n  - run: echo 1\n")
    for name, words in (("A b", "must consist of"), ("default", "the host has a template with this name"), ("x" * 65, "at most 64")):
        code, _, said = build(b, path, "--name", name)
        check(code in (1, 2) and words in said and "--name" in said, f"{code} {said}")
    check(not b.json("snapshot", "ls")[1], "no step has run")
    no_sandbox(b)


def steps_run_once_and_are_kept(b):
    os.makedirs(os.path.join(BOX.name, "data/sub"), exist_ok=True)
    write("data/sub/a", "A\n")
    path = write("app.yaml", """
from: default
env: {COLOUR: blue}
workdir: /home/agent
steps:
  - copy: {from: data, to: data}
  - run: |
      cat data/sub/a >made
      echo $COLOUR >>made; pwd >>made
  - run: echo 2 >two; rm data/sub/a
ready: test -e two; echo 3 >three
""")
    code, made, said = build(b, path)
    check(code == 0 and made["name"] == "app" and cached(made) == [False] * 3, f"{made} {said}")
    check([s["line"] for s in made["steps"]] == [6, 7, 10], made)
    r = b.cli("run", "--template", "app", "--", "sh", "-c", "cat made two; ls data/sub three; echo $COLOUR; pwd")
    check(r.stdout == b"A\nblue\n/home/agent\n2\ndata/sub:\nblue\n/home/agent\n", r)
    digest = made["digest"]
    code, made, _ = build(b, path)
    check(code == 0 and cached(made) == [True] * 3 and made["digest"] == digest, made)
    b.kill()
    b.start()
    write("app.yaml", open(path, encoding="utf-8").read().replace("echo 2", "echo 4"))
    code, made, _ = build(b, path)
    check(cached(made) == [True, True, False] and made["digest"] != digest, made)
    os.utime(os.path.join(BOX.name, "data/sub/a"), (1, 1))
    code, made, _ = build(b, path)
    check(cached(made) == [True] * 3, "another time is no other file")
    write("data/sub/a", "B\n")
    code, made, _ = build(b, path)
    check(cached(made) == [False] * 3, made)
    check(b.cli("run", "--template", "app", "--", "head", "-1", "made").stdout == b"B\n", "the new file")
    code, made, _ = build(b, path, "--no-cache", "--name", "other")
    check(code == 0 and cached(made) == [False] * 3 and made["name"] == "other", made)
    no_sandbox(b)


def the_broker_says_what_was_done_also_for_kept_steps(b):
    path = write("work.yaml", "steps:\n  - run: echo 1 >one\n  - run: echo 2 >two\n")
    build(b, path)
    code, made, _ = build(b, path)
    check(code == 0 and cached(made) == [True, True], made)
    _, t = b.json("template", "show", "work")
    check([s["command"] for s in t["steps"]] == ['sh -ec "echo 1 >one"', 'sh -ec "echo 2 >two"'], t)
    path = write("next.yaml", "from: work\nenv: {A: b}\nsteps:\n  - run: echo 3 >three\n")
    code, made, _ = build(b, path)
    code, made, _ = build(b, path)
    _, t = b.json("template", "show", "next")
    check(code == 0 and cached(made) == [True] and len(t["steps"]) == 3 and t["made_on"] == "work", t)


def a_failing_step_shows_its_output_and_line_and_keeps_the_template(b):
    path = write("app.yaml", "steps:\n  - run: echo 1 >one\n")
    check(build(b, path)[0] == 0, "the first one")
    write("app.yaml", "steps:\n  - run: echo 1 >one\n  - run: |\n      echo told\n      echo why >&2\n      false\n      echo never\n")
    code, made, said = build(b, path)
    check(code == 1 and made["error"]["output"] == "told\nwhy\n" and made["error"]["where"].endswith("app.yaml:3: step 2"), f"{made} {said}")
    check([s["cached"] for s in made["steps"]] == [True], made)
    r = b.cli("template", "build", path)
    check(r.returncode == 1 and b"told\nwhy\nstockade template: " in r.stderr and b"app.yaml:3: step 2: it exited with 1" in r.stderr, r)
    check(b"[1/2] run echo 1 >one: kept\n[2/2] run echo told\n" in r.stderr, r)
    check(b.cli("run", "--template", "app", "--", "cat", "one").stdout == b"1\n", "the template is as it was")
    write("app.yaml", "steps:\n  - copy: {from: app.yaml, to: absent/app.yaml}\n")
    code, made, said = build(b, path)  # one object
    check(code == 1 and made["error"]["reason"] == "STEP_FAILED" and "app.yaml:2: step 1: copy failed: enter " in made["error"]["text"], f"{made} {said}")
    check(said.count("absent") == 1, f"it is reported once: {said}")
    write("app.yaml", "steps:\n  - {run: sleep 60, timeout: 300ms}\n")
    code, made, said = build(b, path)
    check(code == 1 and "it reached the limit timeout" in said, said)
    write("app.yaml", "limits: {disk: 20M}\nsteps:\n  - run: head -c 30000000 /dev/zero >big\n")
    code, made, said = build(b, path)
    check(code == 1 and "it exited with 1, and reached the limit disk" in said, said)
    write("app.yaml", "steps:\n  - run: echo 1 >one\nready: test -e two\n")
    code, made, said = build(b, path)
    check(code == 1 and "app.yaml: ready: it exited with 1" in said, said)
    check(b.cli("run", "--template", "app", "--", "cat", "one").stdout == b"1\n", "also then")
    no_sandbox(b)


def a_step_cannot_control_the_terminal(b):
    """Of a failed step with -q as well; a pipe gets the bytes as they are."""
    path = write("app.yaml", r"""steps: [{run: "printf '\\033]0;title\\007 \\033[2J\\033[1A \\302\\233 caf\\303\\251\\tx\\n'; false"}]""")
    for flags in ((), ("-q",)):
        t = Terminal(b, "template", "build", *flags, path)
        t.expect(b"?]0;title? ?[2J?[1A ? caf\xc3\xa9\tx\r\n")
        check(t.wait() == 1 and b"\x1b" not in t.text, t.text)
    r = b.cli("template", "build", path)
    check(b"\x1b]0;title\a \x1b[2J\x1b[1A \xc2\x9b caf\xc3\xa9\tx\n" in r.stderr, r)


def root_inside_changes_usr(b):
    needs_the_ids_of_usr(b)
    path = write("tool.yaml", "from: builder\nuser: root\nsteps:\n  - run: echo 'echo tool' >/usr/bin/tool; chmod 755 /usr/bin/tool\n"
                              "ready: tool\n")
    code, made, said = build(b, path)
    check(code == 0, said)
    check(b.cli("run", "--template", "tool", "--", "tool").stdout == b"tool\n", "a program in /usr/bin")


def a_full_quota_ends_the_build_or_only_its_memory(b):
    path = write("big.yaml", "limits: {disk: 200M}\nsteps:\n  - run: head -c 150000000 /dev/urandom >big\n  - run: head -c 40000000 /dev/urandom >more\n")
    code, made, said = build(b, path)
    check(code == 0, said)
    path = write("big2.yaml", "limits: {disk: 200M}\nsteps:\n  - run: head -c 150000001 /dev/urandom >big\n")
    code, made, said = build(b, path)
    check(code != 0 and "not kept for other builds" in said and "quotas.kept_bytes_per_caller" in said, said)
    code, made, said = build(b, path, "--name", "big", "--no-cache")
    check(code != 0 and "quotas.kept_bytes_per_caller" in said, said)
    check(b.cli("run", "--template", "big", "--", "stat", "-c", "%s", "big", "more").stdout == b"150000000\n40000000\n", "it is as it was")
    no_sandbox(b)


def builds_at_the_same_time_share_their_steps(b):
    """Each has run the first step when the others keep it."""
    path = write("same.yaml", "steps:\n  - run: cat /proc/sys/kernel/random/uuid >one; sleep 0.5\n  - run: cat one >two\n")
    other = write("other.yaml", "steps:\n  - run: cat /proc/sys/kernel/random/uuid >one; sleep 0.5\n  - run: cat one one >two\n")
    builds = [b.popen("template", "build", "-o", "json", p, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for p in (path, path, path, other)]
    digests = []
    for p in builds:
        said, why = p.communicate(timeout=scaled(60))
        check(p.returncode == 0 and why == b"", why)
        digests.append(json.loads(said)["digest"])
    check(len(set(digests[:3])) == 1, digests)
    one, two = (b.cli("run", "--template", name, "--", "cat", "one").stdout for name in ("same", "other"))
    check(one == two != b"", f"{one} {two}")
    check(cached(build(b, path)[1]) == cached(build(b, other)[1]) == [True, True], "all steps are kept")
    no_sandbox(b)


def a_step_is_kept_for_the_files_that_were_copied(b):
    """A file that is another one each time it is read stands for a folder that somebody works in meanwhile."""
    path = write("changes.yaml", "steps:\n  - copy: {from: /proc/sys/kernel/random/uuid, to: id}\n  - run: cat id\n")
    for _ in range(2):
        code, made, said = build(b, path)
        check(code == 0 and cached(made) == [False, False], f"{code} {said} {made}")
        check("not kept for other builds: the files changed while they were copied" in said, said)


def a_file_that_is_longer_than_its_size_is_copied_and_not_kept(b):
    """Its size is 0, and its contents are the same each time; only the begin of them is looked at before."""
    with open("/proc/kallsyms", "rb") as f:
        if len(f.read(1 << 18)) < 1 << 18:
            raise Skipped("no long file of /proc here")
    path = write("long.yaml", "steps:\n  - copy: {from: /proc/kallsyms, to: long}\n")
    for _ in range(2):
        code, made, said = build(b, path)
        check(code == 0 and cached(made) == [False] and "not kept for other builds: the files changed" in said, f"{code} {said} {made}")


def what_a_step_is_made_of_is_not_confused(b):
    """The value of a variable is no address of the network policy."""
    one, other = "203.0.113.1:443", "203.0.113.2:443"
    code, _, said = build(b, write("one.yaml", f"from: builder\nsteps: [{{run: 'true', network: {{allow: ['{one}', '{other}']}}}}]\n"))
    check(code == 0, said)
    code, _, said = build(b, write("other.yaml", f"from: builder\nenv: {{'true': '{one}'}}\nsteps: [{{run: '{other}'}}]\n"))
    check(code != 0 and "exited with 127" in said, said)


def a_huge_file_does_not_hold_an_interrupt_up(b):
    path = write("huge.yaml", "steps:\n  - copy: {from: huge, to: huge}\n")
    huge = os.path.realpath(write("huge", ""))
    os.truncate(huge, 1 << 40)
    p = b.popen("template", "build", "-q", path)
    folder = f"/proc/{p.pid}/fd"
    until(lambda: any(os.path.exists(f) and os.path.samefile(f, huge) for f in (f"{folder}/{n}" for n in os.listdir(folder))), "it reads")
    p.send_signal(signal.SIGINT)
    try:
        check(p.wait(timeout=60) == 130, p.returncode)
    finally:
        p.kill()
        os.unlink(huge)


def a_file_without_an_end_does_not_hold_a_build_up(b):
    """Its size is 0, and it has 256 GiB to read, like a file that grows as fast as it is read."""
    path = write("endless.yaml", "from: small\nsteps:\n  - copy: {from: /proc/self/pagemap, to: endless}\n")
    code, _, said = build(b, path)
    check(code == 1 and "File too large" in said, f"{code} {said}")
    no_sandbox(b)


def an_interrupted_build_leaves_no_sandbox(b):
    path = write("slow.yaml", "steps:\n  - run: echo 1 >one\n  - run: sleep 60\n")
    for which, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        p = b.popen("template", "build", "-q", path)
        until(lambda: any("sleep" in x["args"][-1] for s in b.json("ls")[1] for x in b.json("ps", s["id"])[1]), "the step runs")
        p.send_signal(which)
        check(p.wait(timeout=30) == code, p.returncode)
        until(lambda: b.json("ls")[1] == [], "its sandbox goes")


def its_sandbox_lives_as_long_as_a_step_may_take(b):
    """And not much longer, should the command be killed."""
    for timeout, hours in (("3h", 3), ("2m", 0)):
        p = b.popen("template", "build", "-q", write("slow.yaml", f"steps: [{{run: sleep 60, timeout: {timeout}}}]\n"))
        until(lambda: any("sleep" in x["args"][-1] for s in b.json("ls")[1] for x in b.json("ps", s["id"])[1]), "the step runs")
        made, ends = (datetime.fromisoformat(b.json("ls")[1][0][key].replace("Z", "+00:00")) for key in ("create_time", "expire_time"))
        p.send_signal(signal.SIGINT)
        check(p.wait(timeout=scaled(30)) == 130, p.returncode)
        check(timedelta(hours=hours) < ends - made < timedelta(hours=hours, minutes=30), f"{timeout}: {ends - made}")
        no_sandbox(b)


def an_interrupted_copy_says_nothing_else(b):
    """It copies 256 GiB."""
    p = b.popen("template", "build", "-q", write("endless.yaml", "steps:\n  - copy: {from: /proc/self/pagemap, to: endless}\n"), stderr=subprocess.PIPE)

    def copies():  # it reads the file twice, and the first time there is no sandbox yet
        fds = [f"/proc/{p.pid}/fd/{n}" for n in os.listdir(f"/proc/{p.pid}/fd")]
        return b.json("ls")[1] and any(os.path.lexists(fd) and os.readlink(fd).endswith("/pagemap") for fd in fds)
    until(copies, "it copies")
    p.send_signal(signal.SIGINT)
    _, said = p.communicate(timeout=scaled(30))
    check(p.returncode == 130 and said == b"", f"{p.returncode} {said}")
    no_sandbox(b)


def a_killed_broker_loses_no_kept_step(b):
    path = write("slow.yaml", "steps:\n  - run: echo 1 >one\n  - run: sleep 2; echo 2 >two\n")
    timer = threading.Timer(1.0, b.process.kill)
    began = time.monotonic()
    timer.start()
    code, made, said = build(b, path)
    timer.join()
    check(code != 0 and time.monotonic() - began < 60, f"{code} {said}")
    b.process.wait()
    b.start()
    code, made, said = build(b, path)
    check(code == 0 and cached(made)[1] is False, said)


def pruned_steps_are_run_again_and_templates_keep_their_files(b):
    path = write("prune.yaml", "steps:\n  - run: echo 1 >one\n  - run: echo 2 >two\n")
    check(build(b, path)[0] == 0, "built")
    sandbox = b.cli("create").stdout.decode().strip()
    for name in ("build-mine", "build-" + "0" * 47, "build-" + "0" * 47 + "g"):
        check(b.cli("snapshot", "create", "--keep", sandbox, name).returncode == 0, name)
    for line, words in ((("prune", "x"), b"argument"), (("ls", "--older-than", "1h"), b"--older-than needs the action prune"),
                        (("prune", "--older-than", "soon"), b"--older-than")):
        r = b.cli("template", *line)
        check(r.returncode != 0 and words in r.stderr, f"{line}: {r.stderr}")
    check(b.json("template", "prune", "--older-than", "1h") == (0, []), "they are younger")
    code, gone = b.json("template", "prune")
    check(code == 0 and len(gone) == 2 and all(len(name) == 54 for name in gone), gone)
    check(sorted(s["name"] for s in b.json("snapshot", "ls")[1]) == sorted(("build-mine", "build-" + "0" * 47, "build-" + "0" * 47 + "g")), "others stay")
    r = b.cli("run", "--template", "prune", "--", "cat", "one", "two")
    check(r.stdout == b"1\n2\n", r)
    check(cached(build(b, path)[1]) == [False, False], "they run again")
    r = b.cli("template", "prune")
    check(r.stdout.startswith(b"2 kept steps deleted, with files of "), r)


def a_package_is_installed_once_and_a_hundred_jobs_start_with_it(b):
    flags = reachable(("deb.debian.org", 80))
    if flags is None or not os.path.exists("/var/lib/dpkg/status"):
        raise Skipped("no registry of packages here")
    allow = ", ".join(f"'{f}'" for f in flags[1::2])
    path = write("jq.yaml", f"""
from: builder
limits: {{memory: 1536M, disk: 700M}}
steps:
  - run: apt-get update </dev/null; apt-get remove -y jq </dev/null
    network: {{allow: [{allow}]}}
  - run: apt-get install -y jq </dev/null
    network: {{allow: [{allow}]}}
    timeout: 4m
ready: jq --version
""")
    code, made, said = build(b, path)
    check(code == 0, said)
    _, t = b.json("template", "show", "jq")
    check([s["command"][:20] for s in t["steps"]] == ['sh -ec "apt-get upda', 'sh -ec "apt-get inst'], t)
    for step in t["steps"]:
        check("deb.debian.org:80" in step["destinations"] and step["connections"] > 0, step)
    check(t["network"] == "none" and "deb.debian.org:80" in b.cli("template", "show", "jq").stdout.decode(), t)
    lines = b"".join(b'{"args": ["jq", "-n", "%d+1"]}\n' % i for i in range(100))
    began = time.monotonic()
    r = b.cli("batch", "--template", "jq", "-", input=lines, timeout=120)
    print(f"100 jobs of the template: {time.monotonic() - began:.2f} s", flush=True)
    check(r.returncode == 0 and sorted(int(json.loads(x)["stdout"]) for x in r.stdout.splitlines()) == list(range(1, 101)), r)
    code, made, _ = build(b, path)
    check(cached(made) == [True, True], made)


TESTS = [what_is_wrong_names_file_line_and_column, steps_run_once_and_are_kept, the_broker_says_what_was_done_also_for_kept_steps,
         a_failing_step_shows_its_output_and_line_and_keeps_the_template, a_name_that_cannot_be_is_refused_before_the_steps, a_step_cannot_control_the_terminal, root_inside_changes_usr,
         a_step_is_kept_for_the_files_that_were_copied,
         a_file_that_is_longer_than_its_size_is_copied_and_not_kept, what_a_step_is_made_of_is_not_confused,
         a_huge_file_does_not_hold_an_interrupt_up, a_file_without_an_end_does_not_hold_a_build_up, a_full_quota_ends_the_build_or_only_its_memory,
         builds_at_the_same_time_share_their_steps, an_interrupted_build_leaves_no_sandbox,
         its_sandbox_lives_as_long_as_a_step_may_take, an_interrupted_copy_says_nothing_else, pruned_steps_are_run_again_and_templates_keep_their_files,
         a_package_is_installed_once_and_a_hundred_jobs_start_with_it, a_killed_broker_loses_no_kept_step]

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        broker.needs("forks")
        raise SystemExit(run_cases(TESTS, lambda test: (clear(broker), test(broker))))
