#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates made from work: sandboxes begin with the files of another one, and nobody sees what another one writes."""

from broker import Broker
from runner import check, run_cases, until

CONFIG = """
quotas: {sandboxes_per_caller: 100}
pool: 2
templates:
  - name: default
  - {name: builder, user: root, root: writable, env: {A: host, B: host}}
"""


def sh(b, script, *flags, box=None, fails=False):
    r = b.cli("exec", box, "--", "sh", "-c", script) if box else b.cli("run", *flags, "--", "sh", "-c", script)
    check(fails or r.returncode == 0, f"{script}: {r.returncode} {r.stdout.decode()} {r.stderr.decode()}")
    return (r.stdout + r.stderr).decode()


def box(b, name, *flags, script="true"):
    b.cli("rm", name)
    r = b.cli("create", "--name", name, *flags)
    check(r.returncode == 0, r)
    sh(b, script, box=name)


def make(b, name, source, *flags):
    r = b.cli("template", "create", name, "--from", source, *flags)
    check(r.returncode == 0 and r.stdout.decode() == name + "\n", r)


def clear(b):
    b.cli("rm", "--all")
    for t in b.json("template", "ls")[1]:
        if not t["of_host"]:
            b.cli("template", "rm", t["name"])


def what_is_wrong_is_refused_and_says_so(b):
    box(b, "work")
    for line, words in ((("template", "create", "t", "--from", "nobody"), "no sandbox"),
                        (("template", "create", "default", "--from", "work"), "the host has a template"),
                        (("template", "create", "T", "--from", "work"), "name"),
                        (("template", "create", "../x", "--from", "work"), "name"),
                        (("template", "create", "t", "--from", "work:none"), "has no snapshot none"),
                        (("template", "create", "t"), "needs --from"),
                        (("template", "create", "t", "--from", "work", "--workdir", "x"), "absolute"),
                        (("template", "show", "t"), "there is no template t"), (("template", "rm", "t"), "there is no template t"),
                        (("template", "rm", "default"), "the host's"), (("template", "mend", "t"), "there is no action"),
                        (("template", "ls", "x"), "unexpected argument"), (("template", "ls", "--stop"), "need the action create"),
                        (("run", "--template", "t", "--", "true"), "there is no template t")):
        r = b.cli(*line)
        check(r.returncode not in (0, 70) and words in r.stderr.decode(), f"{line}: {r}")


def a_template_while_jobs_run_needs_stop(b):
    box(b, "work")
    check(b.cli("exec", "-d", "work", "--", "sleep", "100").returncode == 0, "a job")
    r = b.cli("template", "create", "t", "--from", "work")
    check(r.returncode != 0 and b"run" in r.stderr, r)
    check(b.json("template", "ls")[1][0]["name"] == "default", "none was made")
    make(b, "t", "work", "--stop")
    b.cli("template", "rm", "t")


def sandboxes_begin_with_its_files_and_share_no_change(b):
    box(b, "work", script="echo a >A; mkdir D; echo b >D/b; chmod 700 D; ln -s A L; echo s >/dev/shm/S; echo t >/tmp/T")
    make(b, "t", "work")
    look = "cat A D/b L /dev/shm/S /tmp/T; stat -c '%a %U' D; echo x >A; rm -r D; cat A"
    for _ in range(3):
        check(sh(b, look, "--template", "t") == "a\nb\na\ns\nt\n700 agent\nx\n", "its files")
    check(sh(b, "cat A D/b", box="work") == "a\nb\n", "the sandbox that it was made from")
    b.cli("rm", "work")
    check(sh(b, "cat A", "--template", "t") == "a\n", "after that has gone")
    box(b, "one", "--template", "t", "--memory", "64M", "--network", "open")
    sandboxes = b.json("ls")[1]
    check([(s["template"], s["network"]) for s in sandboxes if s["name"] == "one"] == [("t", "open")], sandboxes)
    check(b.cli("template", "rm", "t").returncode == 0, "deleted")
    check(sh(b, "cat A", box="one") == "a\n", "a sandbox of it keeps its files")
    check(b.cli("run", "--template", "t", "--", "true").returncode != 0, "and no other is made")


def a_snapshot_becomes_one_and_one_is_made_on_another(b):
    box(b, "work", script="echo 1 >A")
    check(b.cli("snapshot", "create", "work", "s").returncode == 0, "a snapshot")
    sh(b, "echo 2 >A", box="work")
    make(b, "first", "work:s")
    check(sh(b, "cat A", "--template", "first") == "1\n", "of the snapshot")
    box(b, "next", "--template", "first", script="echo 3 >B")
    check(b.cli("snapshot", "create", "next", "s").returncode == 0, "a snapshot on a template")
    make(b, "second", "next")
    check(sh(b, "cat A B", "--template", "second") == "1\n3\n", "both")
    _, t = b.json("template", "show", "second")
    check((t["made_on"], t["base"], t["of_host"]) == ("first", "default", False) and t["bytes"] > 0, t)
    b.cli("template", "rm", "first")
    check(sh(b, "cat A B", "--template", "second") == "1\n3\n", "without the one below")
    check(b.cli("fork", "next").returncode == 0, "a fork of a sandbox of a template")
    b.cli("template", "rm", "second")


def its_environment_and_folder_are_those_of_jobs(b):
    box(b, "work", "--template", "builder", script="mkdir /srv/app; echo x >/usr/bin/x")
    make(b, "app", "work", "--env", "B=made", "--env", "C=made", "--workdir", "/srv/app")
    check(sh(b, "echo $A $B $C; pwd; id -u; cat /usr/bin/x", "--template", "app") == "host made made\n/srv/app\n0\nx\n", "theirs")
    box(b, "next", "--template", "app")
    make(b, "more", "next", "--env", "C=more")
    check(sh(b, "echo $A $B $C; pwd", "--template", "more") == "host made more\n/srv/app\n", "and of one on it")
    r = b.cli("run", "--template", "more", "--env", "C=mine", "--workdir", "/", "--", "sh", "-c", "echo $C; pwd")
    check(r.stdout == b"mine\n/\n", r)
    _, t = b.json("template", "show", "more")
    check((t["user"], t["root"], t["workdir"], t["env"]) == ("root", "writable", "/srv/app", {"B": "made", "C": "more"}), t)
    said = b.cli("template", "show", "more").stdout.decode()
    check("made on       app\n" in said and "env           C=more\n" in said and "network       none\n" in said, said)
    for name in ("app", "more"):
        b.cli("template", "rm", name)


def batches_and_cells_take_it(b):
    box(b, "work", script="echo a >A")
    make(b, "t", "work")
    r = b.cli("batch", "--template", "t", "-", input=b'{"args": ["cat", "A"]}\n' * 5)
    check(r.returncode == 0 and r.stdout.count(b"a\\n") == 5, r)
    r = b.cli("batch", "--template", "t", "--reset", "files", "-", input=b'["true"]\n')
    check(r.returncode != 0 and b"was made from a sandbox" in r.stderr, r)
    r = b.cli("code", "--template", "t", "-L", "bash", "-c", "cat A")
    check(r.stdout == b"a\n", r)
    b.cli("template", "rm", "t")


def it_is_the_callers_alone(b):
    box(b, "work")
    make(b, "mine", "work")
    for line in (("template", "show", "mine"), ("template", "rm", "mine"), ("run", "--template", "mine", "--", "true")):
        r = b.stranger(*line)
        check(r.returncode != 0 and b"there is no template mine" in r.stderr, r)
    check(b"mine" not in b.stranger("template", "ls").stdout, "not in another caller's list")
    check(b"mine" in b.cli("template", "ls").stdout, "in the own one")
    b.cli("template", "rm", "mine")


def many_are_refused_and_nothing_is_left_of_those_that_were_made(b):
    box(b, "work")
    made = 0
    while made < 70 and b.cli("template", "create", f"t{made}", "--from", "work").returncode == 0:
        made += 1
    check(made == 64, f"{made} were made")
    r = b.cli("template", "create", "more", "--from", "work")
    check(b"the maximum for one caller" in r.stderr, r)
    check(len(b.json("template", "ls")[1]) == 66, "listed")
    for i in range(made):
        check(b.cli("template", "rm", f"t{i}").returncode == 0, "deleted")
    b.cli("rm", "--all")
    until(lambda: b.json("info")[1]["sandboxes"] <= 4, "their sandboxes go", 30)


TESTS = [what_is_wrong_is_refused_and_says_so, a_template_while_jobs_run_needs_stop, sandboxes_begin_with_its_files_and_share_no_change,
         a_snapshot_becomes_one_and_one_is_made_on_another, its_environment_and_folder_are_those_of_jobs, batches_and_cells_take_it,
         it_is_the_callers_alone, many_are_refused_and_nothing_is_left_of_those_that_were_made]

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        raise SystemExit(run_cases(TESTS, lambda test: test(broker), lambda: clear(broker)))
