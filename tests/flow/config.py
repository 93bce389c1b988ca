#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The configuration file: which one is read, what is said about it, and what becomes of it when it is read again."""

import os
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
anomalies: {rules: {unnamed-exec: {severity: critical}}}
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
    expect(r, 64, b"", b"/etc/stockade/stockaded.yaml:1:9: colour")
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
    r, name = checked(BEFORE + "socket: {group: no-such-group}\nstate_dir: /etc/passwd\n")
    expect(r, EX_CONFIG)
    for what in ("problem  users: socket.group: there is no group no-such-group", "problem  state_dir: no folder",
                 "problem  template lost: /no/such/folder: No such file or directory",
                 "problem  template file: /etc/passwd: Not a directory", "the configuration has problems"):
        check(what in r.stdout.decode(), r.stdout)


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
    refused = "reload-refused: nothing has changed: "
    for config, why in ((AFTER + "colour: blue\n", "colour: there is no such key"),
                        (AFTER + "ids: {slots: 2047}\n", "ids.slots: a change of this key requires a restart"),
                        (AFTER + "rpc: {calls: 700}\n", "rpc.calls: a change of this key requires a restart"),
                        (AFTER.replace("memory: 128M", "memory: 8G"), "limits_max.memory: more than the broker was"),
                        (AFTER + "  - {name: new, anomalies: {learn: 3}}\n  - {name: new}\n", 'a second template with the name'),
                        (AFTER.replace("timeout: 300ms", "timeout: 2d"), "timeout is 172800000, above its maximum")):
        hangup(b, config, refused)
        check(why in b.log()[-900:], f"{why!r}: {b.log()[-900:]}")
        expect(b.cli("run", "--", "sh", "-c", "sleep 0.5; echo $WHICH"), 0, b"before\n")


def a_hangup_brings_limits_quotas_templates_and_rules(b):
    expect(b.cli("create", "--name", "old"), 0)
    expect(b.cli("run", "--memory", "256M", "--", "true"), 0)
    hangup(b, AFTER, f"reloaded: {b.folder}/stockaded.yaml: templates, limits, quotas and rules")
    expect(b.cli("run", "--", "sleep", "60"), 124, b"", b"limit timeout of 300.0 ms")
    expect(b.cli("run", "--memory", "256M", "--", "true"), 77, b"", b"--memory: 256M requested")
    expect(b.cli("run", "--", "sh", "-c", "echo $WHICH"), 0, b"after\n")
    expect(b.cli("create", "--name", "second"), 0)
    expect(b.cli("create"), 75, b"", b"sandboxes_per_caller")
    rules = {r["name"]: r for r in b.json("anomalies", "--rules")[1]}
    check(rules["unnamed-exec"]["severity"] == "critical", rules["unnamed-exec"])
    until(lambda: b.json("info")[1]["templates"][0]["pool_ready"] == 2, "the pool is filled up")
    expect(b.cli("exec", "old", "--", "sh", "-c", "sleep 0.5; echo $WHICH"), 0, b"after\n")
    expect(b.cli("rm", "old", "second"), 0)


TESTS = [the_file_of_the_package_is_read_where_none_is_named, a_check_says_the_file_and_looks_at_paths_users_and_the_kernel,
         a_template_without_its_folder_is_disabled_and_says_why, what_is_wrong_or_takes_a_restart_changes_nothing,
         a_hangup_brings_limits_quotas_templates_and_rules]


def main():
    with Broker(config=BEFORE) as b:
        os.chmod(f"{b.folder}/stockaded.yaml", 0o644)
        status = run_cases(TESTS, lambda case: case(b))
    sys.exit(status)


if __name__ == "__main__":
    main()
