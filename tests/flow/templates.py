#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates made from work: sandboxes begin with the files of another one, and nobody sees what another one writes."""

import glob
import hashlib
import os
import random
import subprocess
import threading

from api import NOT_FOUND, SANDBOX, connect
from broker import Broker
from cli import expect
from runner import check, run_cases, until
from slowness import scaled

CONFIG = """
quotas: {sandboxes_per_caller: 100, kept_bytes_per_caller: 64M}
pool: 2
templates:
  - name: default
  - {name: builder, user: root, root: writable, env: {A: host, B: host}}
"""
FULL = """
pool: 0
quotas: {sandboxes: 2}
templates: [{name: default}, {name: builder, user: root, root: writable}]
"""
TEMPLATE = "/stockade.v1.TemplateService/"
ABORTED = 10


def sh(b, script, *flags, box=None, fails=False):
    r = b.cli("exec", box, "--", "sh", "-c", script) if box else b.cli("run", *flags, "--", "sh", "-c", script)
    check(fails or r.returncode == 0, f"{script}: {r.returncode} {r.stdout.decode()} {r.stderr.decode()}")
    return (r.stdout + r.stderr).decode()


def box(b, name, *flags, script=None):
    b.cli("rm", name)
    r = b.cli("create", "--name", name, *flags)
    check(r.returncode == 0, r)
    if script:
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


def records(b):
    return set(glob.glob(f"{b.state}/store/*.record"))


def one_is_replaced_as_a_whole_or_not_at_all(b):
    """Sandboxes keep their files. What a crash has left of the old one goes at the next start."""
    box(b, "work", script="echo old >A")
    expect(b.cli("snapshot", "create", "--keep", "work", "k"), 0)  # so the layer of the old template stays
    before = records(b)
    make(b, "t", "work", "--replace")
    box(b, "of-old", "--template", "t")
    record, = records(b) - before
    with open(record, "rb") as f:
        old = f.read()
    sh(b, "echo new >A", box="work")
    box(b, "big", script="head -c 70000000 /dev/urandom >big")
    for name, source, words in (("default", "work", b"the host has a template"), ("t", "big", b"quotas.kept_bytes_per_caller")):
        r = b.cli("template", "create", name, "--from", source, "--replace")
        check(r.returncode != 0 and words in r.stderr, r)
        check(sh(b, "cat A", "--template", "t") == "old\n", "it is as it was")
    make(b, "t", "work", "--replace")
    check(sh(b, "cat A", "--template", "t") == "new\n" and sh(b, "cat A", box="of-old") == "old\n", "the new files for new ones")
    until(lambda: not os.path.exists(record), "the old record goes")
    b.stop()
    with open(record, "wb") as f:
        f.write(old)
    os.chmod(record, 0o600)
    os.chown(record, *(os.stat(f"{b.state}/store").st_uid,) * 2)
    b.start()
    check([t["name"] for t in b.json("template", "ls")[1]] == ["default", "builder", "t"], b.json("template", "ls"))
    check(sh(b, "cat A", "--template", "t") == "new\n", "the new one has taken its place")
    until(lambda: not os.path.exists(record), "the old record goes")
    expect(b.cli("snapshot", "rm", "k"), 0)


def a_create_that_waits_while_its_template_is_replaced_gets_the_new_one(_):
    with Broker(config=FULL, name="-replaced") as b:
        box(b, "work", script="echo old >A")
        make(b, "t", "work", "--env", "V=old")
        box(b, "other", "--template", "builder")  # there is room for no third one
        c = connect(b)

        def waits_while(what):
            sandbox = c.begin(SANDBOX + "Create", {"name": "late", "template": "t"})
            what()
            expect(b.cli("rm", "other"), 0)
            return c.recv(sandbox).status

        def replace(source):
            c.unary(TEMPLATE + "Create", {"name": "t", "sandbox": source, "replace": True, "env": [{"name": "V", "value": "new"}]})

        sh(b, "echo new >A", box="work")
        check(waits_while(lambda: replace("work")).code == 0, "it is made")
        check(sh(b, "cat A; echo $V", box="late") == "new\nnew\n", "all of it is of the new one")
        expect(b.cli("rm", "late"), 0)
        box(b, "other", "--template", "builder")
        status = waits_while(lambda: replace("other"))
        check(status.code == ABORTED and "builder of the host meanwhile" in status.message, f"its sandbox is of another kind: {status}")
        box(b, "other", "--template", "builder")
        make(b, "t", "work", "--replace")
        status = waits_while(lambda: c.unary(TEMPLATE + "Delete", {"name": "t"}))
        check(status.code == NOT_FOUND, f"it was deleted: {status}")


def many_replace_one_at_the_same_time(b):
    for i in range(6):
        box(b, f"work{i}", script=f"echo {i} >A; echo {i} >B")
    made = [b.popen("template", "create", "t", "--from", f"work{i}", "--replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(6)]
    for p in made:
        _, why = p.communicate(timeout=scaled(60))
        check(p.returncode == 0, why)
    one, two = sh(b, "cat A B", "--template", "t").split()
    check(one == two and [t["name"] for t in b.json("template", "ls")[1]] == ["default", "builder", "t"], f"{one} {two}")
    until(lambda: len(records(b)) == 1, "one record is left")
    expect(b.cli("template", "rm", "t"), 0)
    check(b.cli("template", "show", "t").returncode != 0, "none is left")


def its_environment_and_folder_are_those_of_jobs(b):
    # Where the ids of /usr cannot be mapped, root inside does not own its folders.
    file = "/srv/x" if ": /usr: " in b.feature("idmapped-mounts")["detail"] else "/usr/bin/x"
    box(b, "work", "--template", "builder", script=f"mkdir /srv/app; echo x >{file}")
    make(b, "app", "work", "--env", "B=made", "--env", "C=made", "--workdir", "/srv/app")
    check(sh(b, f"echo $A $B $C; pwd; id -u; cat {file}", "--template", "app") == "host made made\n/srv/app\n0\nx\n", "theirs")
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
    for i in range(3):
        make(b, f"t{i}", "work", "--replace")
    r = b.cli("template", "create", "more", "--from", "work")
    check(b"the maximum for one caller" in r.stderr, r)
    check(len(b.json("template", "ls")[1]) == 66, "listed")
    for i in range(made):
        check(b.cli("template", "rm", f"t{i}").returncode == 0, "deleted")
    b.cli("rm", "--all")
    until(lambda: b.json("info")[1]["sandboxes"] <= 4, "their sandboxes go", 30)


def again(b, how):
    b.without_bpf()
    how()
    b.start()


def layers(b):
    return os.listdir(f"{b.state}/layers")


def they_outlast_sandbox_broker_and_host(b):
    box(b, "work", script="echo 1 >A")
    make(b, "first", "work", "--env", "B=made", "--workdir", "/home/agent/..")
    _, before = b.json("template", "show", "first")
    again(b, b.stop)
    _, after = b.json("template", "show", "first")
    check(after == before and len(after["digest"]) == 64, f"{before} {after}")
    check(sh(b, "cat agent/A; echo $B", "--template", "first") == "1\nmade\n", "its files, environment and folder")
    box(b, "next", "--template", "first", script="echo 2 >agent/B")
    make(b, "second", "next")
    again(b, b.kill)
    check(b.cli("template", "rm", "first").returncode == 0, "the one below is deleted")
    check(sh(b, "cat agent/A agent/B; echo $B", "--template", "second") == "1\n2\nmade\n", "both layers")
    again(b, b.kill)
    check([t["name"] for t in b.json("template", "ls")[1] if not t["of_host"]] == ["second"], "what was deleted stays so")
    check(b.json("template", "show", "second")[1]["digest"] != before["digest"], "other files, other digest")
    check(b.cli("template", "rm", "second").returncode == 0, "deleted")
    until(lambda: not layers(b), lambda: f"no layer is left: {layers(b)}")


def what_jobs_did_is_written_down_by_the_broker(b):
    box(b, "work")
    b.cli("exec", "work", "--", "sh", "-c", "echo \"1\" >A\nexit 3")
    check(b.cli("snapshot", "create", "work", "s").returncode == 0, "a snapshot")
    sh(b, "echo lost >L", box="work")
    check(b.cli("snapshot", "restore", "work", "s").returncode == 0, "restored")
    sh(b, "echo 2 >B", box="work")
    make(b, "first", "work")
    again(b, b.stop)
    box(b, "next", "--template", "first")
    b.cli("exec", "next", "--", "touch", "", "C")
    b.cli("exec", "--timeout", "100ms", "next", "--", "sleep", "9")
    make(b, "second", "next")
    _, t = b.json("template", "show", "second")
    steps = [(s["command"], s["outcome"], s["exit_code"], s["destinations"]) for s in t["steps"]]
    check(steps == [('sh -c "echo \\"1\\" >A\\nexit 3"', "EXITED", 3, []), ('sh -c "echo 2 >B"', "EXITED", 0, []),
                    ('touch "" C', "EXITED", 1, []), ("sleep 9", "LIMIT", 0, [])], steps)
    check(len({s["digest"] for s in t["steps"]}) == 3 and t["principal"] == "uid:0" and t["steps_omitted"] == 0, t)
    said = b.cli("template", "show", "second").stdout.decode()
    check("made by       uid:0\n" in said and 'step          touch "" C\n  ended       exit code 1\n' in said, said)
    check(b.json("template", "ls")[1][-1]["steps"] == [], "not in lists")
    for i in range(120):
        b.cli("exec", "next", "--", "sh", "-c", f"echo {i} >>D", "x" * 250)
    make(b, "third", "next")
    _, t = b.json("template", "show", "third")
    check(t["steps_omitted"] > 20 and len(t["steps"]) > 40 and len(t["steps"]) + t["steps_omitted"] == 124,
          f"{len(t['steps'])} and {t['steps_omitted']}")


def kept_snapshots_remember_it_too(b):
    box(b, "work", script="echo 1 >A")
    check(b.cli("snapshot", "create", "--keep", "work", "k").returncode == 0, "kept")
    again(b, b.stop)
    check(b.cli("create", "--snapshot", "k", "--name", "next").returncode == 0, "a sandbox of it")
    make(b, "t", "next")
    check([s["command"] for s in b.json("template", "show", "t")[1]["steps"]] == ['sh -c "echo 1 >A"'], "known")
    b.cli("snapshot", "rm", "k")


def damaged_and_newer_ones_are_refused_and_stay(b):
    box(b, "work", script="echo good >A")
    make(b, "good", "work")
    box(b, "work", script="echo damaged >damaged")
    make(b, "damaged", "work")
    box(b, "work", script="echo newer >N")
    make(b, "newer", "work")
    b.stop()
    path, = glob.glob(f"{b.state}/layers/*/s/home/agent/damaged")
    with open(path, "r+b") as f:
        f.write(b"D")
    for path in glob.glob(f"{b.state}/store/*.record"):
        with open(path, "r+b") as f:
            record = bytearray(f.read())
            if b"newer\0" not in record:
                continue
            at = len(record) - 32 - int.from_bytes(record[324:328], "little")
            check(record[at:at + 2] == b"\x08\x01", record[at:at + 8])
            record[at + 1] = 2
            record[-32:] = hashlib.blake2b(record[:-32], digest_size=32).digest()
            f.seek(0)
            f.write(record)
    b.start()
    r = b.cli("run", "--template", "damaged", "--", "true")
    check(r.returncode not in (0, 70) and b"is damaged" in r.stderr, r)
    check(sh(b, "cat A", "--template", "good") == "good\n", "the other one can be used")
    r = b.cli("template", "show", "newer")
    check(b"there is no template newer" in r.stderr, r)
    check("template newer of uid:0 is not used, and stays on the disk: newer is of version 2" in b.log(), b.log()[-2000:])
    box(b, "work")
    r = b.cli("template", "create", "newer", "--from", "work")
    check(r.returncode != 0 and b"newer already" in r.stderr, r)
    until(lambda: b.json("ls")[1][1:] == [], "no sandbox is left of what failed")
    b.stop()
    for path in glob.glob(f"{b.state}/store/*.record"):
        with open(path, "rb") as f:
            if b"newer\0" in f.read():
                os.unlink(path)
    b.start()


def the_quota_of_kept_bytes_holds(b):
    clear(b)
    box(b, "work", script="head -c 40000000 /dev/urandom >big")
    make(b, "t", "work")
    sh(b, "echo 1 >A", box="work")
    make(b, "more", "work")  # shares the large layer
    box(b, "work", script="head -c 40000000 /dev/urandom >big")
    r = b.cli("template", "create", "other", "--from", "work")
    check(r.returncode != 0 and b"quotas.kept_bytes_per_caller" in r.stderr, r)
    check(b.json("template", "ls")[1][-1]["name"] == "more", "nothing is left of it")
    until(lambda: len(layers(b)) == 2, lambda: f"two layers: {layers(b)}")


def a_kill_in_the_middle_leaves_all_or_nothing(b):
    rng = random.Random(2)
    for turn in range(4):
        box(b, "work", script=f"echo {turn} >A; head -c {rng.choice([0, 8 << 20])} /dev/urandom >big")
        command = b.popen("template", "create", f"k{turn}", "--from", "work", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        timer = threading.Timer(rng.uniform(0, 0.2), b.process.kill)
        timer.start()
        out, _ = command.communicate(timeout=120)
        timer.join()
        b.process.wait()
        b.start()
        names = [t["name"] for t in b.json("template", "ls")[1]]
        check(f"k{turn}" in names or command.returncode != 0 or not out, f"{turn}: it was reported, and is not there")
        if f"k{turn}" in names:
            check(sh(b, "cat A", "--template", f"k{turn}") == f"{turn}\n", f"k{turn}")
            b.cli("template", "rm", f"k{turn}")
        until(lambda: not [n for n in layers(b) if "-" in n], lambda: f"nothing half is left: {layers(b)}")


# Those with a network come first: after its first start again the broker has no BPF programs.
TESTS = [what_is_wrong_is_refused_and_says_so, a_template_while_jobs_run_needs_stop, sandboxes_begin_with_its_files_and_share_no_change,
         a_snapshot_becomes_one_and_one_is_made_on_another, its_environment_and_folder_are_those_of_jobs, batches_and_cells_take_it,
         it_is_the_callers_alone, a_create_that_waits_while_its_template_is_replaced_gets_the_new_one, many_replace_one_at_the_same_time, many_are_refused_and_nothing_is_left_of_those_that_were_made,
         one_is_replaced_as_a_whole_or_not_at_all, they_outlast_sandbox_broker_and_host, what_jobs_did_is_written_down_by_the_broker, kept_snapshots_remember_it_too,
         damaged_and_newer_ones_are_refused_and_stay, the_quota_of_kept_bytes_holds, a_kill_in_the_middle_leaves_all_or_nothing]

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        raise SystemExit(run_cases(TESTS, lambda test: (clear(broker), test(broker))))
