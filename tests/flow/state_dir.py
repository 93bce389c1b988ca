#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The state directory: folders that root refuses, with the reason, before anything is made in them; and one that is
removed."""

import os
import shutil
import subprocess
import sys
import tempfile

import sp
from broker import NO_BPF, Broker, binary
from slowness import run
from runner import Skipped, check, run_cases, until

sp.load("proto/gen/descriptor_set.bin")


def refused(folder, state, *words):
    r = run([binary("stockaded"), "--state-dir", state, "--listen", f"ipc://{folder}/run/s", "--cgroup", "/stockade-test-none"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(r.returncode == 69, f"{state}: {r.returncode} {r.stderr}")
    for word in words:
        check(word in r.stderr, f"{word!r} is not in {r.stderr!r}")


def what_others_could_replace_is_refused_before_anything_is_made_in_it():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/real")
        os.symlink(f"{folder}/real", f"{folder}/link")
        os.lchown(f"{folder}/link", 12345, 12345)
        refused(folder, f"{folder}/link/below/state", f"{folder}/link is a symbolic link")
        check(os.listdir(f"{folder}/real") == [], "nothing was made through it")

        os.mkdir(f"{folder}/open")
        os.chmod(f"{folder}/open", 0o777)
        refused(folder, f"{folder}/open", f"{folder}/open is writable by others", "0777", "chmod go-w")
        refused(folder, f"{folder}/open/below", f"{folder}/open is writable by others")
        check(os.listdir(f"{folder}/open") == [], "nothing was made in it")

        os.mkdir(f"{folder}/theirs")
        os.chown(f"{folder}/theirs", 12345, 12345)
        refused(folder, f"{folder}/theirs", "belongs to uid 12345", "chown -R 0:0 it")
        refused(folder, f"{folder}/theirs/below", f"{folder}/theirs belongs to uid 12345")
        check(os.listdir(f"{folder}/theirs") == [], "nothing was made in it")

        os.makedirs(f"{folder}/state/profiles")
        os.chown(f"{folder}/state/profiles", 12345, 12345)  # by an account that an earlier install had
        refused(folder, f"{folder}/state", "profiles belongs to uid 12345", "broker's account", "chown -R ", "earlier install")


def a_full_disk_is_reported_in_words_with_the_path():
    with tempfile.TemporaryDirectory() as folder:
        script = f"mount -t tmpfs -o size=16k,mode=755 none {folder} && mkdir {folder}/state && " \
                 f"{{ head -c 64k /dev/zero >{folder}/fill; exec {binary('stockaded')} --state-dir {folder}/state " \
                 f"--listen ipc:///tmp/stockade-test-none/s --cgroup /stockade-test-full-{os.getpid()}; }}"
        r = run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if "mount" in r.stderr and "stockaded" not in r.stderr and r.returncode != 69:
            raise Skipped(f"no mount in a namespace of its own: {r.stderr}")
        check(r.returncode == 69 and "No space left on device" in r.stderr and f"{folder}/state" in r.stderr, r.stderr)


def a_folder_that_is_deleted_while_the_broker_runs_is_reported_by_health():
    with Broker(config=NO_BPF + "pool: 1\n") as b:
        c = sp.Client(b.address)
        health = lambda: c.unary("/stockade.v1.HealthService/Check", {})  # noqa: E731
        check(health().status == 1, "at first all is well")
        shutil.rmtree(b.state)
        until(lambda: health().status == 2, "health says that it is not")
        check(b.state in health().reason and "removed" in health().reason, health().reason)


def skeletons_of_roots_begin_in_other_parts_of_the_disk():
    with Broker(config=NO_BPF + "pool: 1\n") as b:
        kind = run(["stat", "-f", "-c", "%T", b.state], capture_output=True, text=True).stdout.strip()
        if kind != "ext2/ext3":
            raise Skipped(f"{kind} is not ext4")
        r = run(["lsattr", "-d", f"{b.state}/templates"], capture_output=True, text=True)
        check(r.returncode == 0 and "T" in r.stdout.split()[0], r)


sys.exit(run_cases([
    what_others_could_replace_is_refused_before_anything_is_made_in_it,
    a_full_disk_is_reported_in_words_with_the_path,
    a_folder_that_is_deleted_while_the_broker_runs_is_reported_by_health,
    skeletons_of_roots_begin_in_other_parts_of_the_disk,
]))
