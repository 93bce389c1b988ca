#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Encryption at rest: nothing of a job's files is on the disk in clear, all of it comes back, and what was changed, swapped or
written with another key is refused."""

import contextlib
import glob
import os
import shutil
import sqlite3
import subprocess
import sys

from broker import Broker, binary
from cli import expect
from kept import box, keep, kept, refused, sh
from runner import check, run_cases, until

CONFIG = """
socket: {mode: 0666}
pool: 1
bpf: {enabled: false}
limits_max: {disk: 256M, memory: 512M}
templates:
  - {name: default, limits: {disk: 128M, memory: 256M}}
"""
WORD = "Xyzzy-Plugh"  # what a job writes: nothing else on the host has it


def sealed(b):
    return sorted(glob.glob(f"{b.state}/layers/*/sealed"))


def in_clear(b, word):
    """Files of the state directory in which a word is, also in their names. The audit log is readable on purpose."""
    r = subprocess.run(["grep", "-rlaF", "--exclude-dir=audit", word, b.state], capture_output=True, check=False)
    names = [path for folder, folders, files in os.walk(b.state) for path in folders + files if word in path]
    return r.stdout.decode().split() + names


def key_file(b, name):
    path = f"{b.folder}/{name}"
    with open(path, "wb", opener=lambda p, flags: os.open(p, flags, 0o400)) as f:
        f.write(os.urandom(32))
    return path


def configure(b, key):
    b.write_config(CONFIG + (f"encryption: {{key_file: {key}}}\n" if key else ""))


def again(b, key):
    b.stop()
    configure(b, key)
    b.start()


def does_not_start(b, key, *words):
    """With this key."""
    b.stop()
    configure(b, key)
    before = len(b.log())
    try:
        b.start()
    except RuntimeError:
        b.process = None
    else:
        raise AssertionError(f"it starts with {key}")
    for word in words:
        check(word in b.log()[before:], f"{word} is not in {b.log()[before:]}")


def a_key_that_is_missing_short_or_readable_ends_the_start(b):
    bad = f"{b.folder}/bad"
    does_not_start(b, bad, "does not exist", "head -c 32 /dev/urandom")
    for size, mode, owner, word in ((31, 0o400, 0, "is not a file of 32 bytes"), (33, 0o400, 0, "is not a file of 32 bytes"),
                                    (32, 0o440, 0, "can be read by others"), (32, 0o400, 1, "does not belong to root")):
        with open(bad, "wb") as f:
            f.write(os.urandom(size))
        os.chmod(bad, mode)
        os.chown(bad, owner, 0)
        does_not_start(b, bad, word)
        os.unlink(bad)
    os.symlink(b.key, bad)
    does_not_start(b, bad, "is a symbolic link")
    os.unlink(bad)
    with open(bad, "wb", opener=lambda p, flags: os.open(p, flags, 0o400)) as f:
        f.write(bytes(32))
    does_not_start(b, bad, "has nothing but zeros")
    configure(b, b.key)
    b.start()


def what_was_kept_before_stays_readable_and_what_is_new_is_not_in_clear(b):
    again(b, None)
    one = box(b)
    sh(b, one, f"echo {WORD}-early > early")
    keep(b, one, "early")
    check(in_clear(b, f"{WORD}-early"), "it is on the disk without a key")
    again(b, b.key)
    two = box(b, "--snapshot", "early")
    check(sh(b, two, "cat early") == f"{WORD}-early\n", "and stays readable")
    sh(b, two, f"rm early; mkdir {WORD}-folder; echo {WORD}-new > {WORD}-folder/new; ln -s {WORD}-target link")
    keep(b, two, "new")
    expect(b.cli("snapshot", "rm", "early"), 0)
    expect(b.cli("rm", two), 0)
    until(lambda: not in_clear(b, WORD), lambda: f"nothing is in clear: {in_clear(b, WORD)}")
    check(len(sealed(b)) == 2, f"the earlier layer was encrypted as well: {sealed(b)}")
    three = box(b, "--snapshot", "new")
    check(sh(b, three, f"ls; cat {WORD}-folder/new; readlink link") ==
          f"{WORD}-folder\nlink\n{WORD}-new\n{WORD}-target\n", "and it comes back")
    expect(b.cli("rm", three), 0)
    expect(b.cli("snapshot", "rm", "new"), 0)
    until(lambda: not os.listdir(f"{b.state}/layers"), "no layer is left")


def files_of_all_kinds_come_back_after_a_restart(b):
    one = box(b)
    make = ("mkdir -m 0710 d d/e; echo hard > h1; ln h1 h2; ln h1 d/h3; mkfifo -m 0640 p; ln -s ../x l; truncate -s 100000000 hole; "
            "printf end | dd of=hole bs=1 seek=99990000 conv=notrunc status=none; head -c 3000001 /dev/urandom > big; chmod 4755 big; "
            "touch -d '2001-02-03 04:05:06.789' d/e; : > empty; for i in $(seq 20); do echo $i > d/f$i; done; "
            "echo gone > gone")
    look = ("find . | sort | xargs stat -c '%n %a %U %s %h %y' | grep -v '^[.] '; sha256sum big h2 hole d/f19; readlink l; "
            "du -k hole | cut -f1; test ! -e gone && echo no gone")
    sh(b, one, make)
    keep(b, one, "first")
    sh(b, one, "rm gone; rm -r d/e; mkdir d/e; echo opaque > d/e/o; mv d/f1 d/f2")
    keep(b, one, "second")
    wanted = sh(b, one, look)
    check(len(sealed(b)) == 2, sealed(b))
    keep(b, one, "third")  # of the same layers: nothing is written again
    check(len(sealed(b)) == 2, "the same files have the same digest")
    b.kill()
    b.start()
    two = box(b, "--snapshot", "second")
    check(sh(b, two, look) == wanted, f"{sh(b, two, look)}\nwanted {wanted}")
    expect(b.cli("snapshot", "restore", two, "first"), 0)
    check(sh(b, two, "cat gone d/f1") == "gone\n1\n", "and the first")


def two_tenants_have_keys_of_their_own(b):
    one = box(b)
    sh(b, one, f"echo same-{WORD} > same")
    keep(b, one, "same")
    before = set(sealed(b))
    check(b.stranger("create", "--snapshot", "same").returncode != 0, "it is not theirs")
    theirs = b.stranger("create").stdout.decode().strip()
    expect(b.stranger("exec", theirs, "--", "sh", "-c", f"echo same-{WORD} > same"), 0)
    expect(b.stranger("snapshot", "create", "--keep", theirs, "same"), 0)
    new = set(sealed(b)) - before
    check(len(new) == 1, f"another layer: {new}")
    b.theirs, = new
    b.ours = next(path for path in before if same_record(b, path))
    with open(b.ours, "rb") as f, open(b.theirs, "rb") as g:
        check(f.read(16) == g.read(16) and f.read(16) != g.read(16), "their heads name different keys")
    expect(b.stranger("rm", theirs), 0)
    expect(b.cli("rm", one), 0)


def same_record(b, path):
    """Whether the record of the snapshot `same` has the layer."""
    digest = bytes.fromhex(path.split("/")[-2])
    with open(f"{b.state}/store/{kept(b)['same']['kept_id']}.record", "rb") as f:
        return digest in f.read()


def what_is_changed_cut_or_swapped_is_refused(b):
    with open(b.ours, "rb") as f:
        whole = f.read()
    shutil.copy(b.theirs, f"{b.folder}/theirs")
    with open(f"{b.folder}/theirs", "rb") as f:
        swapped = f.read()
    flipped = whole[:300] + bytes([whole[300] ^ 1]) + whole[301:]
    newer = whole[:8] + b"\x02" + whole[9:]
    other = sorted(path for path in sealed(b) if path not in (b.ours, b.theirs))[0]
    with open(other, "rb") as f:
        own = f.read()  # of another layer of the same tenant
    for name, bytes_of in (("flipped", flipped), ("cut", whole[:-1]), ("longer", whole + b"x"), ("swapped", swapped), ("own", own), ("empty", b"")):
        with open(b.ours, "wb") as f:
            f.write(bytes_of)
        b.stop()
        b.start()
        refused(b.cli("create", "--snapshot", "same"), b"is damaged")
        print(f"{name}: refused", flush=True)
    with open(b.ours, "wb") as f:
        f.write(newer)
    b.stop()
    b.start()
    refused(b.cli("create", "--snapshot", "same"), b"start a newer broker")
    with open(b.ours, "wb") as f:
        f.write(whole)
    box(b, "--snapshot", "same")
    check(b.json("ls")[1], "it is usable again")
    with open(b.ours, "wb") as f:  # after its first use in this run
        f.write(flipped)
    refused(b.cli("create", "--snapshot", "same"), b"is damaged")
    with open(b.ours, "wb") as f:
        f.write(whole)


def another_key_or_none_ends_the_start(b):
    does_not_start(b, key_file(b, "other"), "the master key is not the one", "after a rotation that is the new one")
    does_not_start(b, None, "there are encrypted objects, and no master key is configured")
    configure(b, b.key)
    b.start()
    check("same" in kept(b), kept(b))


def encryption(b):
    code, found = b.json("admin", "encryption", "status")
    check(code == 0, found)
    return found


def what_operators_may_not_do_is_refused(b):
    short = f"{b.folder}/short"
    with open(short, "wb") as f:
        f.write(b"short")
    for words in (("status",), ("rotate", "--new-key", key_file(b, "strangers")), ("forget", "uid:0", "--yes")):
        r = b.stranger("admin", "encryption", *words)
        check(r.returncode != 0 and (b"admin.write" in r.stderr or b"Permission denied" in r.stderr), r)
    refused(b.cli("admin", "encryption", "burn"), b"the actions of encryption are")
    refused(b.cli("admin", "encryption", "rotate"), b"needs --new-key FILE")
    refused(b.cli("admin", "encryption", "rotate", "--new-key", short), b"is not a file of 32 bytes")
    refused(b.cli("admin", "encryption", "rotate", "--new-key", b.key), b"is the key that is in use")
    refused(b.cli("admin", "encryption", "forget", "uid:0"), b"confirm with --yes")
    refused(b.cli("admin", "encryption", "forget", "nobody", "--yes"), b"nobody has no data key")
    check("same" in kept(b) and encryption(b)["unreadable_records"] == 0, encryption(b))


def templates_and_sleeping_sandboxes_are_not_in_clear(b):
    one = box(b)
    sh(b, one, f"echo {WORD}-template > t")
    expect(b.cli("template", "create", "mine", "--from", one), 0)
    expect(b.cli("exec", one, "--", "sh", "-c", f"echo {WORD}-asleep > s; : {WORD}-command"), 0)
    expect(b.cli("sleep", one), 0)
    check(in_clear(b, WORD) == [], in_clear(b, WORD))
    two = box(b, "--template", "mine")
    check(sh(b, two, "cat t") == f"{WORD}-template\n", "the template")
    expect(b.cli("rm", two), 0)
    b.kill()
    b.start()
    check(sh(b, one, "cat s t") == f"{WORD}-asleep\n{WORD}-template\n", "it wakes up")
    expect(b.cli("sleep", one), 0)
    b.sleeper = one


def a_rotation_rewrites_no_data_and_a_kill_leaves_one_master_key(b):
    before = {path: os.stat(path).st_mtime_ns for path in sealed(b)}
    new = key_file(b, "second")
    r = expect(b.cli("admin", "encryption", "rotate", "--new-key", new), 0)
    check(b"before the next start" in r.stderr, r)
    b.kill()  # when it was reported, it is so
    does_not_start(b, b.key, "the master key is not the one")
    b.key = new
    configure(b, b.key)
    b.start()
    check({path: os.stat(path).st_mtime_ns for path in sealed(b)} == before, "the files of layers are as they were")
    two = box(b, "--snapshot", "same")
    check(sh(b, two, "cat same") == f"same-{WORD}\n", "and can be read")
    expect(b.cli("rm", two), 0)
    third = key_file(b, "third")
    rotating = b.popen("admin", "encryption", "rotate", "--new-key", third, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    b.kill()
    rotating.wait()
    for key in (b.key, third):
        configure(b, key)
        try:
            b.start()
        except RuntimeError:
            b.process = None
            continue
        b.key = key
        break
    two = box(b, "--snapshot", "same")
    expect(b.cli("rm", two), 0)


def a_backup_has_no_key_in_clear(b):
    path = f"{b.folder}/backup"
    expect(b.cli("admin", "backup", path), 0)
    with open(path, "rb") as f, open(b.key, "rb") as key:
        check(key.read() not in f.read(), "the master key is not in it")


def a_forgotten_key_makes_its_tenants_files_unreadable_and_no_others(b):
    wrapped = database(b, "SELECT wrapped FROM data_key WHERE tenant = 'uid:0'")[0]
    shown = box(b, "--snapshot", "same")
    expect(b.cli("admin", "encryption", "forget", "uid:0", "--yes"), 0)
    refused(b.cli("admin", "encryption", "forget", "uid:0", "--yes"), b"has no data key")
    check(sh(b, shown, "cat same") == f"same-{WORD}\n", "a sandbox that shows the files keeps them")
    refused(b.cli("create", "--snapshot", "same"), b"its data key was forgotten")
    keep(b, shown, "anew")  # with a new key, so all of it is written again
    expect(b.cli("rm", shown), 0)
    for restarted in (False, True):
        if restarted:
            b.kill()
            b.start()
        found = kept(b)
        check(found["same"]["unreadable"] and not found["anew"].get("unreadable", False), found)
        code, templates = b.json("template", "ls")
        check(code == 0 and next(t for t in templates if t["name"] == "mine")["unreadable"], templates)
        refused(b.cli("create", "--snapshot", "same"), b"its data key was forgotten")
        refused(b.cli("create", "--template", "mine"), b"its data key was forgotten")
        two = box(b, "--snapshot", "anew")
        check(sh(b, two, "cat same") == f"same-{WORD}\n", "anew")
        expect(b.cli("rm", two), 0)
    check(b.sleeper not in [s["id"] for s in b.json("ls")[1]], "the sandbox that was asleep is removed")
    theirs = b.stranger("create", "--snapshot", "same").stdout.decode().strip()
    expect(b.stranger("exec", theirs, "--", "cat", "same"), 0)
    expect(b.stranger("rm", theirs), 0)
    for path in glob.glob(f"{b.state}/state/*"):
        with open(path, "rb") as f:
            check(wrapped not in f.read(), f"{path} has the wrapped key")
    now = encryption(b)
    check(now["enabled"] and now["source"] == f"key_file {b.key}", now)
    check(sorted((k["tenant"], "forgotten_ms" in k) for k in now["keys"]) ==
          [("uid:0", False), ("uid:0", True), ("uid:54321", False)], now)
    check(now["unreadable_records"] > 0 and now["plain_layers"] == 0, now)
    for name, p in kept(b).items():
        if p.get("unreadable"):
            expect(b.cli("snapshot", "rm", name), 0)
    expect(b.cli("template", "rm", "mine"), 0)
    check(encryption(b)["unreadable_records"] == 0, encryption(b))
    r = expect(b.cli("audit", "grep", "DataKey", f"{b.state}/audit", "-o", "json"), 0)
    check(b"ForgetDataKey" in r.stdout and b"uid:0" in r.stdout, r.stdout[-2000:])


def where_it_is_required_nothing_is_written_in_clear(b):
    made = b.cli("volume", "create", "clear")
    if made.returncode == 0:
        expect(b.cli("run", "--volume", "clear:/data", "--", "sh", "-c", "echo x > /data/F"), 0)
    key = b.key
    b.stop()
    b.write_config(CONFIG + f"encryption: {{key_file: {key}, required: true}}\n")
    b.start()
    refused(b.cli("volume", "create", "new"), b"requires encryption")
    if made.returncode == 0:
        refused(b.cli("run", "--volume", "clear:/data", "true"), b"mount it read-only")
        r = expect(b.cli("run", "--volume", "clear:/data:ro", "cat", "/data/F"), 0)
        check(r.stdout == b"x\n", r)
        expect(b.cli("volume", "rm", "clear"), 0)
    disk = CONFIG.replace("{name: default,", "{name: default, storage: disk,")
    path = f"{b.folder}/clear.yaml"
    for config, word in ((disk + f"encryption: {{key_file: {key}, required: true}}\n", b"storage: disk"), (CONFIG + "encryption: {required: true}\n", b"has no key")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(config)
        r = subprocess.run([binary("stockaded"), "--check-config", "--config", path], capture_output=True, check=False)
        check(r.returncode == 78 and word in r.stdout + r.stderr, r)
    again(b, key)


def database(b, query):
    """The first row. The broker has the database open alone, so this is of a copy."""
    copy = f"{b.folder}/copy.db"
    expect(b.cli("admin", "backup", copy), 0)
    with contextlib.closing(sqlite3.connect(copy)) as db:
        return db.execute(query).fetchone()


CASES = [a_key_that_is_missing_short_or_readable_ends_the_start,
         what_was_kept_before_stays_readable_and_what_is_new_is_not_in_clear, files_of_all_kinds_come_back_after_a_restart,
         two_tenants_have_keys_of_their_own, what_is_changed_cut_or_swapped_is_refused,
         another_key_or_none_ends_the_start, what_operators_may_not_do_is_refused, templates_and_sleeping_sandboxes_are_not_in_clear,
         a_rotation_rewrites_no_data_and_a_kill_leaves_one_master_key, a_backup_has_no_key_in_clear,
         where_it_is_required_nothing_is_written_in_clear, a_forgotten_key_makes_its_tenants_files_unreadable_and_no_others]


def main():
    b = Broker(config=CONFIG)
    b.key = key_file(b, "key")
    configure(b, None)
    with b:
        return run_cases(CASES, lambda case: case(b))


if __name__ == "__main__":
    sys.exit(main())
