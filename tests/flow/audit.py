#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The audit log, through the real binaries: what is in it, what is found when it was changed, a full disk, and kill -9."""

import contextlib
import glob
import json
import os
import shutil
import stat
import sys
import threading

from broker import Broker
from runner import check, run_cases, until

# Without BPF programs, which no record of these cases depends on: loading them is most of a start, and there are six.
CONFIG = """
bpf: {enabled: false}
audit: {checkpoint_records: 8, checkpoint_interval: 100ms}
"""


def folder(b):
    return f"{b.state}/audit"


def files(b):
    return sorted(glob.glob(f"{folder(b)}/audit-*.log"))


def records(b, *paths):
    r = b.cli("audit", "export", *(paths or [folder(b)]))
    check(r.returncode == 0, r.stderr)
    return [json.loads(line) for line in r.stdout.splitlines()]


def verified(b, *paths, key=None):
    code, found = b.json("audit", "verify", "--public-key", key or f"{folder(b)}/audit.pub", *(paths or [folder(b)]))
    check((code == 0) == found["whole"], f"{code} {found}")
    return found


def calls(b, method, **fields):
    return [m["call"] for m in records(b) if "call" in m and m["call"]["method"].endswith(method)
            and all(m["call"].get(k) == v for k, v in fields.items())]


def comes(b, method, **fields):
    """The end of a call is written within 20 ms, and nobody waits for it."""
    found = []

    def there():
        found[:] = calls(b, method, **fields)
        return found
    until(there, lambda: f"{method} {fields} is in the log: {records(b)[-5:]}", 10)
    return found[-1]


def only_the_broker_may_read_it(b):
    check(stat.S_IMODE(os.stat(folder(b)).st_mode) & 0o007 == 0, "the folder is closed")
    for path in [*files(b), f"{folder(b)}/audit.key"]:
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, path)
    r = b.cli("audit", "verify", folder(b))
    check(r.returncode == 2 and b"--public-key" in r.stderr, r.stderr)
    r = b.cli("audit", "export")
    check(r.returncode == 2 and b"FILE" in r.stderr, r.stderr)


def a_refused_call_is_in_it_with_who_and_why(b):
    r = b.stranger("admin", "backup", "/tmp/never")
    check(r.returncode != 0, r.stderr)
    m = comes(b, "AdminService/Backup", phase="refused")
    check((m["tenant"], m["uid"], m["code"], m["reason"], m["rule"])
          == ("uid:54321", 54321, 7, "SCOPE_MISSING", "admin.write"), m)


def a_credential_that_fails_is_in_it_and_its_text_is_not(b):
    secret = "stk_" + "0123456789" * 4
    r = b.cli("ls", env=dict(os.environ, STOCKADE_TOKEN=secret))
    check(r.returncode != 0, r.stderr)
    m = comes(b, "SandboxService/List", phase="refused", code=16)
    check(m["reason"].startswith("KEY") or m["reason"].startswith("CREDENTIAL"), m)
    check(secret.encode() not in b"".join(open(f, "rb").read() for f in files(b)), "the key is not in the log")


def a_key_that_is_made_is_in_it_with_its_id(b):
    code, key = b.json("key", "create", "--ttl", "1h")
    check(code == 0, key)
    m = comes(b, "KeyService/Create", phase="ended", code=0)
    check({"name": "id", "value": key["id"]} in m["objects"], m)
    began = comes(b, "KeyService/Create", phase="began")
    check(began["call"] == m["call"] and len(began["request"]) == 64, began)
    code, listed = b.json("key", "ls")
    r = b.cli("ls", env=dict(os.environ, STOCKADE_TOKEN=key["secret"]))
    check(r.returncode == 0, r.stderr)
    m = comes(b, "SandboxService/List", phase="ended", proof="key")
    check(len(m["credential"]) == 32, m)
    check(key["secret"].encode() not in b"".join(open(f, "rb").read() for f in files(b)), "the key is not in the log")
    check(code == 0 and listed, listed)


def a_job_is_in_it_with_the_digest_of_its_record(b):
    code, result = b.json("run", "sh", "-c", "exit 3")
    check(code == 3, result)
    process = result["process_id"]
    found = []

    def there():
        found[:] = [m["job"] for m in records(b) if m.get("job", {}).get("process_id") == process]
        return found
    until(there, "the job is in the log", 10)
    check(found[0]["exit_code"] == 3 and len(found[0]["record"]) == 64, found)
    check("complete" in found[0] and "missing" in found[0], found)
    return process


def a_job_can_be_proved_alone(b):
    process = a_job_is_in_it_with_the_digest_of_its_record(b)
    until(lambda: b.cli("audit", "proof", process, folder(b)).returncode == 0, "a checkpoint covers it", 10)
    proof = f"{b.folder}/proof"
    with open(proof, "wb") as f:
        f.write(b.cli("audit", "proof", process, folder(b)).stdout)
    r = b.cli("audit", "verify", "--public-key", f"{folder(b)}/audit.pub", "--proof", proof)
    check(r.returncode == 0 and json.loads(r.stdout)["record"]["job"]["process_id"] == process, r.stderr)
    with open(proof, "r+b") as f:
        f.seek(60)
        old = f.read(1)
        f.seek(60)
        f.write(b"B" if old == b"A" else b"A")
    r = b.cli("audit", "verify", "--public-key", f"{folder(b)}/audit.pub", "--proof", proof)
    check(r.returncode != 0, r.stdout)
    r = b.cli("audit", "proof", "0" * 32, folder(b))
    check(r.returncode != 0 and b"no record of" in r.stderr, r.stderr)


def a_file_that_enters_and_leaves_is_in_it(b):
    code, box = b.json("create", "--name", "files")
    check(code == 0, box)
    check(b.cli("fs", "write", "files", "/home/agent/secret-plan", input=b"contents-of-the-file").returncode == 0, "written")
    check(b.cli("fs", "cat", "files", "/home/agent/secret-plan").stdout == b"contents-of-the-file", "read")
    for method, phase in (("FileService/OpenWrite", "began"), ("FileService/Read", "began")):
        all_of_it = json.dumps(comes(b, method, phase=phase))
        check("contents-of" not in all_of_it, all_of_it)
        check("/home/agent/secret-plan" in all_of_it, all_of_it)
    check(b.cli("rm", "files").returncode == 0, "removed")


def a_change_of_the_configuration_is_in_it(b):
    b.reload(CONFIG + "quotas: {queue: 77}\n")
    b.reload(CONFIG + "quotas: {queue: many}\n")
    kinds = lambda: [m["change"] for m in records(b) if "change" in m]  # noqa: E731
    until(lambda: len(kinds()) >= 2, "both are in the log", 10)
    first, second = kinds()[-2:]
    check(first["kind"] == "configuration" and "quotas.queue" in first["text"] and len(first["digest"]) == 64, first)
    check(second["kind"] == "configuration-refused" and "queue" in second["text"], second)
    b.reload(CONFIG)


def a_changed_copy_is_found_with_the_public_key_alone(b):
    copy = f"{b.folder}/copy"
    shutil.copytree(folder(b), copy)
    os.remove(f"{copy}/audit.key")
    check(verified(b, copy)["whole"], "it is whole")
    path = sorted(glob.glob(f"{copy}/audit-*.log"))[0]
    with open(path, "r+b") as f:
        f.seek(300)
        old = f.read(1)
        f.seek(300)
        f.write(bytes([old[0] ^ 1]))
    found = verified(b, copy)
    check(not found["whole"] and found["problems"][0]["kind"] == "changed", found)
    r = b.cli("audit", "verify", "--public-key", f"{copy}/audit.pub", copy)
    check(r.returncode == 1 and b"changed: audit-" in r.stdout and b"NOT WHOLE" in r.stdout, r.stdout)
    shutil.rmtree(copy)


def another_key_does_not_verify_it(b):
    found = verified(b, key="ab" * 32)
    check(not found["whole"] and {p["kind"] for p in found["problems"]} == {"foreign"}, found)


def a_full_disk_refuses_changes_and_nothing_else(b):
    """The log of this broker is on a file system of its own, in its own mount namespace."""
    small = f"/proc/{b.process.pid}/root{b.folder}/small"
    there = f"{small}/log"
    shown = b.json("audit", "verify", "--public-key", f"{there}/audit.pub", there)
    check(shown[0] == 0, shown)
    running = b.popen("run", "--interactive", "sh", "-c", "read x; echo went-on $x", stdin=-1, stdout=-1, stderr=-1)
    until(lambda: b.cli("ps", "-q").stdout != b"", "the job runs", 30)
    with contextlib.suppress(OSError), open(f"{small}/all-the-rest", "wb", buffering=0) as f:
        while f.write(bytes(4096)):
            pass
    refused = []

    def refuses():
        refused[:] = [b.cli("create")]
        return refused[0].returncode != 0
    until(refuses, "a change is refused", 10)
    check(b"audit log cannot be written" in refused[0].stderr, refused[0].stderr)
    check(b.cli("ls").returncode == 0, "reading goes on")
    out, err = running.communicate(b"yes\n", timeout=60)
    check(running.returncode == 0 and out == b"went-on yes\n", f"{running.returncode} {out} {err}")
    os.remove(f"{small}/all-the-rest")
    until(lambda: b.cli("create", "--name", "after").returncode == 0, "it recovers by itself", 20)
    check(b.cli("rm", "after").returncode == 0, "removed")
    until(lambda: b"AUDIT_FULL" in b.cli("audit", "grep", "SandboxService/Create", there).stdout, "the refusals are in the log", 10)
    shown = b.json("audit", "verify", "--public-key", f"{there}/audit.pub", there)
    check(shown[0] == 0 and shown[1]["whole"], shown)


def a_disk_that_loses_what_was_written_makes_no_false_promise(b):
    """The log of this broker is on a file system whose device has no room: write(2) succeeds, and fdatasync(2) fails once."""
    root = f"/proc/{b.process.pid}/root{b.folder}"
    there = f"{root}/disk/log"
    check(b.cli("create", "--name", "before").returncode == 0, "the disk works")
    with contextlib.suppress(OSError), open(f"{root}/store/all-the-rest", "wb", buffering=0) as f:
        while f.write(bytes(4096)):
            pass
    refused = []

    def refuses():
        refused[:] = [b.cli("create")]
        return refused[0].returncode != 0
    until(refuses, "a change is refused", 30)
    for _ in range(3):
        r = b.cli("create")
        check(r.returncode != 0 and b"audit log cannot be written" in r.stderr, r.stderr)
    os.remove(f"{root}/store/all-the-rest")
    until(lambda: b.cli("create", "--name", "after").returncode == 0, "it recovers by itself", 30)
    drop = b"3"
    with open("/proc/sys/vm/drop_caches", "wb") as f:
        f.write(drop)
    shown = b.json("audit", "verify", "--public-key", f"{there}/audit.pub", there)
    check(shown[0] == 0 and shown[1]["whole"], shown)
    changes = [m["change"] for m in records(b, there) if "change" in m]
    check([c for c in changes if c["kind"] == "disk-failed"], changes)


def kill_9_while_it_writes_leaves_a_log_that_goes_on(b):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            b.cli("create")
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for _ in range(2):
        code, box = b.json("create")
        check(code == 0, box)
        if not threads[0].is_alive() and not stop.is_set():
            for t in threads:
                t.start()
        b.kill()
        b.start()
        check(box["id"] in json.dumps(records(b)) or calls(b, "SandboxService/Create", phase="began"), "its beginning is there")
    stop.set()
    for t in threads:
        t.join()
    found = verified(b)
    check(found["whole"] and found["kills"] >= 2, found)


def a_record_can_be_shown_and_found(b):
    r = b.cli("audit", "show", "1", folder(b))
    check(r.returncode == 0 and json.loads(r.stdout)["start"]["sync"] == "interval", r.stdout)
    r = b.cli("audit", "show", "99999999", folder(b))
    check(r.returncode != 0 and b"no record 99999999" in r.stderr, r.stderr)
    r = b.cli("audit", "grep", "KeyService/Create", folder(b))
    check(r.returncode == 0 and all(b"KeyService/Create" in line for line in r.stdout.splitlines()), r.stdout)
    check(b.cli("audit", "grep", "never-in-it", folder(b)).returncode == 1, "nothing is found")


def keys_of(b, *action):
    code, keys = b.json("admin", "audit-key", *action)
    check(code == 0 and [k["signs"] for k in keys] == [False] * (len(keys) - 1) + [True], f"{code} {keys}")
    check(all(k["key"].startswith(k["id"]) and len(k["key"]) == 64 for k in keys), keys)
    return [k["key"] for k in keys]


def the_key_changes_for_operators_only(b):
    before = keys_of(b)
    r = b.stranger("admin", "audit-key", "rotate")
    check(r.returncode != 0 and b"admin.write" in r.stderr, r.stderr)
    for words in (("spin",), ("export",), ("rotate", "now")):
        r = b.cli("admin", "audit-key", *words)
        check(r.returncode == 2 and b"show, rotate, or export FILE" in r.stderr, r.stderr)
    check(keys_of(b, "show") == before, "nothing changed")


def the_first_key_vouches_for_those_after_it(b):
    first = keys_of(b)[-1]
    second = keys_of(b, "rotate")[-1]
    check(b.cli("create").returncode == 0, "a record between them")
    keys = keys_of(b, "rotate")
    check(keys[-3:] == [first, second, keys[-1]] and len({*keys}) == len(keys), keys)
    code, result = b.json("run", "true")
    check(code == 0, result)
    proof = f"{b.folder}/proof"
    until(lambda: b.cli("inspect", "--proof", result["process_id"]).returncode == 0, "it is signed", 20)
    with open(proof, "wb") as f:
        f.write(b.cli("inspect", "--proof", result["process_id"]).stdout)
    found = verified(b, key=first)
    check(found["whole"] and found["rekeyed"] == 2 and found["key"] == keys[-1], found)
    found = verified(b, key=keys[-1])
    check(not found["whole"] and {p["kind"] for p in found["problems"]} == {"foreign"}, found)
    names = [m["change"]["name"] for m in records(b) if m.get("change", {}).get("kind") == "audit-key"]
    check(names == [second[:16], keys[-1][:16]], names)
    exported = f"{b.folder}/keys"
    check(b.cli("admin", "audit-key", "export", exported).returncode == 0, "exported")
    with open(exported, encoding="ascii") as mine, open(f"{folder(b)}/audit.pub", encoding="ascii") as f:
        check(mine.read() == f.read(), "the same as audit.pub")
    check(b.cli("admin", "audit-key", "export", exported).returncode != 0, "a file that is there stays")
    r = b.cli("audit", "verify", "--public-key", exported, "--proof", proof)
    check(r.returncode == 0, r.stderr)
    os.remove(exported)
    for one in (first, second, keys[-1]):  # each is enough, with the changes that the proof carries
        r = b.cli("audit", "verify", "--public-key", one, "--proof", proof)
        check(r.returncode == 0 and json.loads(r.stdout)["record"]["job"]["process_id"] == result["process_id"], r.stderr)
    r = b.cli("audit", "verify", "--public-key", "1" * 64, "--proof", proof)
    check(r.returncode != 0 and b"another key" in r.stderr, r.stderr)
    offline = f"{b.folder}/offline"
    with open(offline, "wb") as f:
        f.write(b.cli("audit", "proof", result["process_id"], folder(b)).stdout)
    check(b.cli("audit", "verify", "--public-key", first, "--proof", offline).returncode == 0, "of the files alone, too")
    with open(f"{folder(b)}/audit.pub.chain", "rb") as f:
        chain = f.read()
    b.stop()
    os.remove(f"{folder(b)}/audit.pub.chain")  # as if it had been killed before it was written
    b.start()
    with open(f"{folder(b)}/audit.pub.chain", "rb") as f:
        found = f.read()
    check(chain.endswith(found) and found, "the last change is written again")


def a_change_that_was_interrupted_is_ended_or_forgotten(b):
    key, following = f"{folder(b)}/audit.key", f"{folder(b)}/audit.key.next"
    with open(key, "rb") as f:
        old = f.read()
    keys = keys_of(b, "rotate")
    check(not os.path.exists(following), "it became the key")
    b.stop()
    os.rename(key, following)  # as if it had been killed before that
    shutil.copyfile(following, key)
    with open(key, "wb") as f:
        f.write(old)
    os.chown(key, os.stat(following).st_uid, os.stat(following).st_gid)
    b.start()
    check(keys_of(b) == keys and not os.path.exists(following), "the change was ended")
    b.stop()
    shutil.copyfile(key, following)
    with open(following, "w", encoding="ascii") as f:
        f.write("1" * 64 + "\n")  # a key that the log does not name
    os.chown(following, os.stat(key).st_uid, os.stat(key).st_gid)
    b.start()
    check(keys_of(b) == keys and not os.path.exists(following), "the change was forgotten")
    found = verified(b)
    check(found["whole"] and found["key"] == keys[-1], found)


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases([only_the_broker_may_read_it,
                            a_refused_call_is_in_it_with_who_and_why,
                            a_credential_that_fails_is_in_it_and_its_text_is_not,
                            a_key_that_is_made_is_in_it_with_its_id,
                            a_job_can_be_proved_alone,
                            a_file_that_enters_and_leaves_is_in_it,
                            a_change_of_the_configuration_is_in_it,
                            a_record_can_be_shown_and_found,
                            a_changed_copy_is_found_with_the_public_key_alone,
                            another_key_does_not_verify_it,
                            the_key_changes_for_operators_only,
                            the_first_key_vouches_for_those_after_it,
                            a_change_that_was_interrupted_is_ended_or_forgotten,
                            kill_9_while_it_writes_leaves_a_log_that_goes_on], lambda case: case(b))
    small = Broker(name="-small", config="", prefix=[])
    small.write_config(f"audit: {{folder: {small.folder}/small/log}}\n")
    mount = 'mkdir "$0" && mount -t tmpfs -o size=256k,mode=0755 none "$0" && exec "$@"'
    small.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, f"{small.folder}/small"]
    with small as b:
        status |= run_cases([a_full_disk_refuses_changes_and_nothing_else], lambda case: case(b))
    full = Broker(name="-full", config="", prefix=[])
    full.write_config(f"audit: {{folder: {full.folder}/disk/log, sync: always}}\n")
    mount = """cd "$0" && mkdir store disk && mount -t tmpfs -o size=2m,mode=0755 none store && truncate -s 32M store/image &&
        mkfs.ext2 -q store/image && mount -o loop store/image disk && exec "$@" """
    full.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, full.folder]
    with full as b:
        status |= run_cases([a_disk_that_loses_what_was_written_makes_no_false_promise], lambda case: case(b))
    sys.exit(status)


main()
