#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: templates are added, removed and changed while the broker runs; only root may be able to read the file; a
file with an error changes nothing; and many reloads leave nothing behind."""

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading

from broker import Broker, sanitized, v2_root
from cli import expect
from slowness import SLOWNESS
from runner import check, run_cases, time_passes, until

FOLDER = tempfile.mkdtemp(prefix="stockade-test-", dir="/var/tmp")  # below /tmp a sandbox has its own
os.chmod(FOLDER, 0o755)
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
BEFORE = """
pool: 2
templates:
  - {name: default, env: {WHICH: before}}
  - {name: tools, hostname: first, paths: [@/one]}
"""


def mounts(b):
    """Of the spawner's own namespace, which each sandbox's birth copies."""
    with open(f"/proc/{b.spawner()}/mountinfo", encoding="utf-8") as f:
        return len(f.readlines())


def skeletons(b):
    return sorted(os.listdir(f"{b.state}/templates"))


def sandboxes(b):
    return {name for name in os.listdir(v2_root() + b.cgroup) if len(name) == 32}


def at(b, config):
    return config.replace("@", FOLDER)


def show(b, template, *more):
    return b.cli("run", *more, "--template", template, "--", "sh", "-c", f"hostname; cat {FOLDER}/*/file; echo $WHICH")


def templates_come_change_and_go(b):
    expect(show(b, "tools"), 0, b"first\none\n\n")
    expect(show(b, "new"), 125, b"", b"no template new")
    more = at(b, BEFORE + "  - {name: new, hostname: late, paths: [@/two], env: {WHICH: new}}\n")
    new = b.reload(more)
    check("template: new: added" in new and "tools" not in new, new)
    expect(show(b, "new"), 0, b"late\ntwo\nnew\n")
    new = b.reload(more.replace("/one]", "/one, " + FOLDER + "/two]").replace("hostname: first", "hostname: second"))
    check("template: tools: hostname, paths" in new and " new: " not in new, new)
    expect(show(b, "tools"), 0, b"second\none\ntwo\n\n")
    new = b.reload(at(b, BEFORE))
    check("template: tools: hostname, paths" in new and "template: new: removed" in new, new)
    expect(show(b, "new"), 125, b"", b"no template new")
    expect(show(b, "tools"), 0, b"first\none\n\n")
    names = [t["name"] for t in b.json("info")[1]["templates"]]
    check(names == ["default", "tools"], names)


def folders_that_jobs_write_to_are_of_one_layer(b):
    """Where they are of two, overlayfs gives 1 link, and keeps uncharged lists of names (tests/escape/uncharged.c)."""
    r = b.cli("run", "--template", "tools", "--", "stat", "-c", "%h", "/tmp", "/home/agent", "/var/tmp", FOLDER)
    expect(r, 0, b"2\n2\n3\n3\n")
    expect(b.cli("run", "--template", "tools", "--", "touch", f"{FOLDER}/one/new"), 1, b"", b"Read-only file system")


def a_sandbox_keeps_its_root(b):
    box = b.cli("create", "--template", "tools").stdout.decode().strip()
    b.reload(at(b, BEFORE).replace("@/one", "x").replace("hostname: first", "hostname: second").replace("/one]", "/two]"))
    expect(b.cli("exec", box, "--", "sh", "-c", f"hostname; cat {FOLDER}/*/file"), 0, b"first\none\n")
    expect(show(b, "tools"), 0, b"second\ntwo\n\n")
    new = b.reload("pool: 2\n")
    check("template: tools: removed" in new, new)
    expect(b.cli("exec", box, "--", "cat", f"{FOLDER}/one/file"), 0, b"one\n")
    b.reload(at(b, BEFORE))  # the template comes back while a sandbox of the old one is there
    expect(show(b, "tools"), 0, b"first\none\n\n")
    expect(b.cli("exec", box, "--", "hostname"), 0, b"first\n")
    expect(b.cli("rm", box), 0)


def ready_sandboxes_of_a_changed_template_are_replaced(b):
    until(lambda: all(t["pool_ready"] == 2 for t in b.json("info")[1]["templates"]), "the pools are full")
    before = sandboxes(b)
    b.reload(at(b, BEFORE).replace("hostname: first", "hostname: other"))
    until(lambda: all(t["pool_ready"] == 2 for t in b.json("info")[1]["templates"]), "the pools are full again")
    until(lambda: len(sandboxes(b)) == 4, "the old ones are gone")
    check(len(before & sandboxes(b)) == 2, f"those of the other template stay: {before}, {sandboxes(b)}")
    expect(show(b, "tools"), 0, b"other\none\n\n")
    b.reload(at(b, BEFORE))


def a_lower_pool_keeps_fewer_and_a_higher_one_more(b):
    for pool in (6, 1, 2):
        b.reload(at(b, BEFORE).replace("pool: 2", f"pool: {pool}"))
        until(lambda n=pool: all(t["pool_ready"] == n for t in b.json("info")[1]["templates"]), f"{pool} are ready")
        until(lambda n=pool: len(sandboxes(b)) == 2 * n, "and no more are there")


def a_bad_file_changes_nothing(b):
    before = at(b, BEFORE)
    for config, why in ((before + "colour: blue\n", "colour: there is no such key"), ("templates: [\n", ":2:1:"),
                        (before + "  - {name: new, paths: [@/two]}\nids: {slots: 2040}\n", "requires a restart"),
                        (before + "  - {name: through, paths: [/bin]}\n", "passes through a link"),
                        (before + "limits_max: {memory: 900G}\n", "requires a restart")):
        held = mounts(b)
        new = b.reload(at(b, config))
        check("reload-refused: the old configuration stays: " in new and why in new, f"{why!r}: {new}")
        until(lambda n=held: mounts(b) <= n, "no root is left of it")
        expect(show(b, "new"), 125, b"", b"no template new")
        expect(show(b, "tools"), 0, b"first\none\n\n")
    os.chmod(f"{b.folder}/stockaded.yaml", 0o666)
    check("must be writable only by its owner" in b.reload(before), "it could be anybody's")
    os.chmod(f"{b.folder}/stockaded.yaml", 0o644)
    os.rename(f"{b.folder}/stockaded.yaml", f"{b.folder}/away")
    check("No such file" in b.reload(), "it is not there")
    os.rename(f"{b.folder}/away", f"{b.folder}/stockaded.yaml")


def a_file_and_folders_of_roots_alone_are_read(b):
    os.makedirs(f"{FOLDER}/closed/inner")
    os.chmod(f"{FOLDER}/closed", 0o700)
    with open(f"{FOLDER}/closed/inner/file", "w", encoding="utf-8") as f:
        f.write("closed\n")
    os.chmod(f"{b.folder}/stockaded.yaml", 0o600)
    new = b.reload(at(b, BEFORE + "  - {name: closed, paths: [@/closed/inner]}\n"))
    check("template: closed: added" in new, new)
    expect(b.cli("run", "--template", "closed", "--", "cat", f"{FOLDER}/closed/inner/file"), 0, b"closed\n")
    b.reload(at(b, BEFORE))
    os.chmod(f"{b.folder}/stockaded.yaml", 0o644)


def another_folder_of_the_same_name_and_one_that_comes_are_seen(b):
    lost = at(b, BEFORE + "  - {name: lost, paths: [@/lost]}\n")
    new = b.reload(lost)
    check("feature: template lost: no: disabled: " in new, new)
    expect(b.cli("run", "--template", "lost", "--", "true"), 125, b"", b"is disabled")
    shown = b.cli("info").stdout.decode()
    check(any(line.split()[:3] == ["lost", "process", "disabled"] for line in shown.splitlines()), shown)
    check(f"lost is disabled: {FOLDER}/lost: No such file or directory" in shown, shown)
    disabled = {t["name"]: t["disabled"] for t in b.json("info")[1]["templates"]}
    check("No such file" in disabled["lost"] and disabled["default"] == "", disabled)
    os.mkdir(f"{FOLDER}/lost")
    check("template: lost: " in b.reload() and "no longer disabled" in b.log(), b.log()[-500:])
    expect(b.cli("run", "--template", "lost", "--", "ls", f"{FOLDER}/lost"), 0, b"")
    os.rename(f"{FOLDER}/lost", f"{FOLDER}/older")
    os.mkdir(f"{FOLDER}/lost")
    with open(f"{FOLDER}/lost/fresh", "w", encoding="utf-8"):
        pass
    check("template: lost: another folder at one of its paths" in b.reload(), b.log()[-500:])
    expect(b.cli("run", "--template", "lost", "--", "ls", f"{FOLDER}/lost"), 0, b"fresh\n")
    os.rename(f"{FOLDER}/lost", f"{FOLDER}/gone")
    check("template: lost: disabled" in b.reload(), b.log()[-500:])
    expect(b.cli("run", "--template", "lost", "--", "true"), 125, b"", b"is disabled")
    b.reload(at(b, BEFORE))


def runs_continue_during_a_reload(b):
    stop = threading.Event()
    results = []

    def work(i):
        while not stop.is_set():
            r = b.cli("run", "--template", ("default", "tools")[i % 2], "--", "sh", "-c", "echo fine")
            results.append((r.returncode, r.stdout, r.stderr))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(max(4, int(50 / SLOWNESS)))]
    for t in threads:
        t.start()
    for i in range(10):
        b.reload(at(b, BEFORE).replace("hostname: first", f"hostname: round{i}").replace("/one]", ("/one]", "/two]")[i % 2]))
        time_passes("runs begin between two readings", 0.1)
    stop.set()
    for t in threads:
        t.join()
    wrong = [r for r in results if r[:2] != (0, b"fine\n")]
    check(len(results) >= len(threads) and not wrong, f"{len(wrong)} of {len(results)}: {wrong[:3]}")
    b.reload(at(b, BEFORE))


def many_times_leave_nothing(b):
    """1,000 times; fewer where sanitizers make each slow."""
    b.rests()
    before, held, kept = b.rests(), mounts(b), len(skeletons(b))
    configs = [at(b, BEFORE) + "quotas: {queue: 100}\n",
               at(b, BEFORE).replace("hostname: first", "hostname: other") + "  - {name: new, paths: [@/two]}\n".replace("@", FOLDER)]
    for i in range(250 if sanitized() else 1000):
        said = b.reload(None if i % 50 else configs[i // 50 % 2], whole=False)
        check(" reloaded: " in said, said)
    b.reload(at(b, BEFORE))
    after = b.rests()
    check(mounts(b) <= held, f"{mounts(b)} mounts and not {held}")
    check(len(skeletons(b)) <= kept + 2, f"{skeletons(b)}")
    for what in ("cgroups", "namespaces", "processes"):
        check(after[what] <= before[what], f"{what}: {before[what]} before, {after[what]} after")
    for name, n in before["fds"].items():
        check(after["fds"][name] <= n, f"{name}: {n} descriptors before, {after['fds'][name]} after")


def a_second_hangup_is_not_lost(b):
    configs = [at(b, BEFORE).replace("before", f"round{i}") for i in range(20)]
    for config in configs:
        b.write_config(config)
        b.process.send_signal(signal.SIGHUP)
    last = b"round19\n"
    until(lambda: b.cli("run", "--", "sh", "-c", "echo $WHICH").stdout == last, "what was written last holds")
    b.reload(at(b, BEFORE))


def without_the_reader_nothing_changes(b):
    """It is stopped, and ends by its own alarm or by the broker's; here it is killed."""
    held, spawner = mounts(b), b.spawner()
    killed = []

    def kill():
        """It lives for some milliseconds, so only the spawner's children are looked through."""
        with open(f"/proc/{spawner}/task/{spawner}/children", encoding="ascii") as f:
            children = f.read().split()
        for pid in children:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                if f.read() == "stockade-reader\n":
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(pid)

    for _ in range(50):
        lines = len(b.log())
        b.process.send_signal(signal.SIGHUP)
        while " reload" not in b.log()[lines:]:
            kill()
        if killed and "the reader ended before it was done" in b.log()[lines:]:
            break
    check(killed, "it was there")
    check("the reader ended before it was done" in b.log(), b.log()[-500:])
    until(lambda: mounts(b) <= held, "no root is left")
    check(" reloaded: " in b.reload(), "and the next one is read")


TESTS = [templates_come_change_and_go, folders_that_jobs_write_to_are_of_one_layer, a_sandbox_keeps_its_root,
         ready_sandboxes_of_a_changed_template_are_replaced,
         a_lower_pool_keeps_fewer_and_a_higher_one_more, a_bad_file_changes_nothing, a_file_and_folders_of_roots_alone_are_read,
         another_folder_of_the_same_name_and_one_that_comes_are_seen, runs_continue_during_a_reload,
         a_second_hangup_is_not_lost, without_the_reader_nothing_changes, many_times_leave_nothing]


def main():
    for name in ("one", "two"):
        os.makedirs(f"{FOLDER}/{name}")
        with open(f"{FOLDER}/{name}/file", "w", encoding="utf-8") as f:
            f.write(f"{name}\n")
    with Broker(config=BEFORE.replace("@", FOLDER)) as b:
        status = run_cases(TESTS, lambda case: case(b))
    sys.exit(status)


if __name__ == "__main__":
    main()
