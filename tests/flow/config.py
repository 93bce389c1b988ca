#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The configuration file: which one is read, the messages about it, and the effect of reading it again."""

import os
import re
import socket
import subprocess
import sys
import tempfile

from broker import Broker, binary
from cli import expect
from runner import Skipped, check, run_cases, until

EX_CONFIG = 78
BEFORE = """
limits_default: {timeout: 5}
quotas: {sandboxes_per_caller: 4}
templates:
  - {name: default, pool: 1, env: {WHICH: before}}
  - {name: lost, paths: [/usr/share, /no/such/folder]}
  - {name: file, paths: [/etc/passwd]}
"""
AFTER = """
limits_default: {timeout: 300ms, memory: 100M}
limits_max: {memory: 128M}
quotas: {sandboxes_per_caller: 2}
anomalies: {rules: {unnamed-exec: {severity: info}}}
templates:
  - {name: file, paths: [/etc/passwd]}
  - {name: default, pool: 2, env: {WHICH: after}, network: {mode: none}}
  - {name: lost, paths: [/usr/share, /no/such/folder]}
"""


def checked(config, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(config)
        f.flush()
        argv = [binary("stockaded"), "--check-config", "--config", f.name, *more]
        r = subprocess.run(argv, capture_output=True, check=False, timeout=60)
        return r, f.name


def the_file_of_the_package_is_read_where_none_is_named(_):
    inside = ('mount -t tmpfs none /etc && mkdir /etc/stockade && echo "$1" > /etc/stockade/stockaded.yaml && '
              'shift && exec "$@"')
    # A mount namespace of its own: the host's /etc stays as it is.
    unshared = ["unshare", "-m", "sh", "-c", inside, "sh"]
    if subprocess.run([*unshared, "", "true"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no mount namespace here")
    r = subprocess.run([*unshared, "pool: 3", binary("stockaded"), "--check-config"], capture_output=True, check=False)
    expect(r, 0)
    check(b"configuration: /etc/stockade/stockaded.yaml\n" in r.stdout, r.stdout)
    r = subprocess.run([*unshared, "colour: blue", binary("stockaded"), "--check-config"], capture_output=True, check=False)
    expect(r, EX_CONFIG, b"", b"/etc/stockade/stockaded.yaml:1:9: colour")
    r = subprocess.run([*unshared, "colour: blue", "sh", "-c", 'rm /etc/stockade/stockaded.yaml; exec "$0" --check-config',
                        binary("stockaded")], capture_output=True, check=False)
    expect(r, 0)
    check(b"none, since there is no /etc/stockade/stockaded.yaml" in r.stdout, r.stdout)


def a_check_says_the_file_and_looks_at_paths_users_and_the_kernel(_):
    r, name = checked("pool: 1\n")
    expect(r, 0)
    for what in (f"configuration: {name}", "kernel: Linux 6.", "users: the broker is uid", "template default: 0 paths",
                 "the configuration is fine"):
        check(what in r.stdout.decode(), r.stdout)
    r, _ = checked("templates: [{name: default, paths: [/opt]}]\n")
    check("template default: 1 path\n" in expect(r, 0).stdout.decode(), r.stdout)
    r, name = checked(BEFORE + "state_dir: /etc/passwd\n")
    expect(r, EX_CONFIG)
    check("problem  folders: state_dir: open /etc/passwd: Not a directory" in r.stdout.decode(), r.stdout)
    r, name = checked(BEFORE + "socket: {group: no-such-group}\n")
    expect(r, EX_CONFIG)
    for what in ("problem  users: socket.group: there is no group no-such-group", 
                 "problem  template lost: /no/such/folder: No such file or directory",
                 "problem  template file: /etc/passwd: Not a directory", "the configuration has problems"):
        check(what in r.stdout.decode(), r.stdout)


def tree(folder):
    return sorted((path, os.lstat(path).st_uid, os.lstat(path).st_mode) for top, folders, files in os.walk(folder)
                  for path in (os.path.join(top, name) for name in folders + files))


def what_a_start_refuses_is_a_problem_of_the_check(_):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("foreign", "theirs", "shared", "full", "run", "profiles"):
            os.mkdir(f"{folder}/{name}")
        for name in ("foreign/file", "full/file", "run/file"):
            with open(f"{folder}/{name}", "w", encoding="utf-8"):
                pass
        os.chmod(f"{folder}/shared", 0o1777)
        os.chown(f"{folder}/theirs", 12345, 12345)
        broker = int(re.search(rb"the broker is uid (\d+)", checked("pool: 1\n")[0].stdout)[1])
        os.chown(f"{folder}/run", broker, broker)
        before = tree(folder)
        for flags, why in ((["--state-dir", f"{folder}/foreign"],
                            f"state_dir: {folder}/foreign is not a state folder of stockaded, and it is not empty: it contains file"),
                           (["--state-dir", "/"], "state_dir: / is not a state folder"),
                           (["--state-dir", f"{folder}/theirs"], f"state_dir: {folder}/theirs belongs to uid 12345"),
                           (["--state-dir", f"{folder}/shared/x"], ""),
                           (["--listen", f"ipc://{folder}/shared/s"], f"{folder}/shared is writable by others"),
                           (["--listen", f"ipc://{folder}/full/s"], f"the folder {folder}/full belongs to root and is not empty"),
                           (["--listen", f"ipc://{folder}/run/file"], "run/file: the file exists and is not a socket"),
                           (["--listen", f"ipc://{folder}/full/file/s"], f"open {folder}/full/file: Not a directory")):
            flags = ["--state-dir", f"{folder}/new", "--listen", f"ipc://{folder}/new-run/s", "--cgroup", "/stockade-test-none", *flags]
            argv = [binary("stockaded"), *flags]
            r = subprocess.run([*argv, "--check-config"], capture_output=True, check=False, timeout=60)
            check(tree(folder) == before, f"{flags}: the check changes nothing")
            if not why:
                expect(r, 0)
                continue
            check(r.returncode == EX_CONFIG and why in r.stdout.decode(), f"{flags}: {r}")
            started = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
            check(started.returncode == 69 and why in started.stderr.decode(), f"{flags}: {started}")
            check(tree(folder) == before, f"{flags}: the start changes nothing that it refuses")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{folder}/run/s")
            other.listen(9)
            before = tree(folder)
            argv = [binary("stockaded"), "--state-dir", f"{folder}/new", "--listen", f"ipc://{folder}/new-run/s",
                    "--listen", f"ipc://{folder}/run/s", "--cgroup", "/stockade-test-none"]
            expect(subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60), 69, b"",
                   b"another process listens there")
            check(tree(folder) == before, "a start that finds another process at its address leaves nothing behind")


def a_start_that_fails_late_leaves_no_folders(b):
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        os.chmod(folder, 0o755)
        tcp = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for flags, config, why in ((["--listen", tcp], "pool: 1\n", b"the address is in use"),
                                   ([], f"telemetry: {{feed: '{tcp}'}}\n", b"open the feed: listen on "),
                                   (["--cgroup", b.cgroup], "pool: 1\n", b"start the spawner")):
            with open(f"{folder}/config", "w", encoding="utf-8") as f:
                f.write(config)
            before = tree(folder)
            argv = [binary("stockaded"), "--config", f"{folder}/config", "--state-dir", f"{folder}/new",
                    "--listen", f"ipc://{folder}/new-run/s", "--cgroup", "/stockade-test-none", *flags]
            expect(subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60), 69, b"", why)
            check(tree(folder) == before, f"{flags} {config}: {set(tree(folder)) ^ set(before)}")


def output_that_cannot_be_written_is_an_error(_):
    for flag in ("--version", "--help", "--check-config"):
        for to in (">/dev/full", ">&-"):
            r = subprocess.run(["sh", "-c", f'exec "$0" {flag} {to}', binary("stockaded")], capture_output=True, check=False, timeout=60)
            expect(r, 74, b"", b"stockaded: cannot write to stdout: ")


def a_folder_of_an_earlier_start_and_a_new_file_system_may_have_the_state(_):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("profiles", "templates", "lost+found"):
            os.mkdir(f"{folder}/{name}")
            if name != "lost+found":
                expect(subprocess.run([binary("stockaded"), "--check-config", "--state-dir", folder + "/"], capture_output=True,
                                      check=False, timeout=60), 0)
        for name in ("profiles", "templates"):
            os.rmdir(f"{folder}/{name}")
        expect(subprocess.run([binary("stockaded"), "--check-config", "--state-dir", folder], capture_output=True, check=False,
                              timeout=60), 0)


def a_file_that_is_wrong_is_78_and_a_wrong_option_64(_):
    for config, why in (("ids: {base: 2147000000}\n", ":1:13: ids.base is 2147000000"),
                        ("cgroup: /a/b\n", ":1:9: cgroup: must be / and one name"),
                        ("quotas: {sandboxes: 2049}\n", ":1:21: quotas.sandboxes is 2049, above ids.slots of 2048"),
                        ("limits_default:\n  memory: 8G\n", ":2:11: limits_default.memory is 8G, above limits_max.memory of 4G"),
                        ("ttl: {default: 2d, max: 1d}\n", ":1:16: ttl.default is 2d, above ttl.max of 1d")):
        r, name = checked(config)
        expect(r, EX_CONFIG, b"", f"stockaded: {name}{why}".encode())
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write(config)
            f.flush()
            expect(subprocess.run([binary("stockaded"), "--config", f.name], capture_output=True, check=False, timeout=60), EX_CONFIG)
    expect(checked("pool: 1\n", "--config", "/no/such/file")[0], EX_CONFIG, b"", b"open /no/such/file")
    for flags, why in ((("--cgroup", "/a/b"), b"--cgroup: must be / and one name"), (("--state-dir", "x"), b"--state-dir: must be"),
                       (("--listen", "tcp://127.0.0.1:80"), b"may use ports from")):
        expect(checked("pool: 1\n", *flags)[0], 64, b"", why)


def a_template_without_its_folder_is_disabled_and_says_why(b):
    for name, why in (("lost", b"/no/such/folder: No such file or directory"), ("file", b"/etc/passwd: Not a directory")):
        told = b"the template " + name.encode() + b" is disabled: " + why
        expect(b.cli("run", "--template", name, "--", "true"), 125, b"", told)
        expect(b.cli("create", "--template", name), 1, b"", told)
        check(b"template " + name.encode() in b.cli("info").stdout and why in b.cli("info").stdout, b.cli("info").stdout)
    check("feature: template lost: no: disabled: /no/such/folder" in b.log(), b.log())
    expect(b.cli("run", "--", "sh", "-c", "echo $WHICH"), 0, b"before\n")


def hangup(b, config, said):
    new = b.reload(config)
    check(said in new, new[-600:])


def what_is_wrong_or_takes_a_restart_changes_nothing(b):
    refused = "reload-refused: the old configuration stays: "
    for config, why in ((AFTER + "colour: blue\n", "colour: there is no such key"),
                        (AFTER + "ids: {slots: 2047}\n", "ids.slots: a change of this key requires a restart"),
                        (AFTER + "rpc: {calls: 700}\n", "rpc.calls: a change of this key requires a restart"),
                        (AFTER.replace("memory: 128M", "memory: 8G"), "limits_max.memory: more than the broker was"),
                        (AFTER + "  - {name: new, anomalies: {learn: 3}}\n  - {name: new}\n", 'a second template with the name'),
                        (AFTER.replace("timeout: 300ms", "timeout: 2d"), "limits_default.timeout is 2d, above limits_max.timeout of 1d")):
        hangup(b, config, refused)
        check(why in b.log()[-900:], f"{why!r}: {b.log()[-900:]}")
        expect(b.cli("run", "--", "sh", "-c", "sleep 0.5; echo $WHICH"), 0, b"before\n")


def with_room(b, *line):
    """The sandbox of an earlier run counts towards the quota until it is gone."""
    def tried():
        r = b.cli(*line)
        return r if r.returncode != 75 else None
    return until(tried, "the sandbox of the run before is gone, there is room")


def a_hangup_brings_limits_quotas_templates_and_rules(b):
    expect(b.cli("create", "--name", "old"), 0)
    expect(b.cli("run", "--memory", "256M", "--", "true"), 0)
    hangup(b, AFTER, f"reloaded: {b.folder}/stockaded.yaml: changed: limits_default.memory, limits_default.timeout, "
                     "limits_max.memory, anomalies.rules.unnamed-exec, quotas.sandboxes_per_caller; templates default, lost, file\n")
    check("template: default: env, limits.memory, limits.timeout, limits_max.memory" in b.log()[-900:], b.log()[-900:])
    hangup(b, AFTER, f"reloaded: {b.folder}/stockaded.yaml: nothing has changed\n")
    expect(with_room(b, "run", "--", "sleep", "60"), 124, b"", b"limit timeout of 300.0 ms")
    expect(b.cli("run", "--memory", "256M", "--", "true"), 77, b"", b"--memory: 256M requested")
    expect(with_room(b, "run", "--", "sh", "-c", "echo $WHICH"), 0, b"after\n")
    expect(with_room(b, "create", "--name", "second"), 0)
    expect(b.cli("create"), 75, b"", b"sandboxes_per_caller")
    rules = {r["name"]: r for r in b.json("anomalies", "--rules")[1]}
    check(rules["unnamed-exec"]["severity"] == "info", rules["unnamed-exec"])
    until(lambda: b.json("info")[1]["templates"][0]["pool_ready"] == 2, "the pool is filled up")
    expect(b.cli("exec", "old", "--", "sh", "-c", "sleep 0.5; echo $WHICH"), 0, b"after\n")
    expect(b.cli("rm", "old", "second"), 0)


TESTS = [a_start_that_fails_late_leaves_no_folders, output_that_cannot_be_written_is_an_error, the_file_of_the_package_is_read_where_none_is_named, a_check_says_the_file_and_looks_at_paths_users_and_the_kernel,
         what_a_start_refuses_is_a_problem_of_the_check, a_file_that_is_wrong_is_78_and_a_wrong_option_64,
         a_folder_of_an_earlier_start_and_a_new_file_system_may_have_the_state,
         a_template_without_its_folder_is_disabled_and_says_why, what_is_wrong_or_takes_a_restart_changes_nothing,
         a_hangup_brings_limits_quotas_templates_and_rules]


def main():
    with Broker(config=BEFORE) as b:
        os.chmod(f"{b.folder}/stockaded.yaml", 0o644)
        status = run_cases(TESTS, lambda case: case(b))
    sys.exit(status)


if __name__ == "__main__":
    main()
