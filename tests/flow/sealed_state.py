#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Encryption at rest of the broker's own state: what tenants say, and what they were answered, is nowhere in the state directory in clear,
but where SECURITY.md says so; and a forgotten data key takes it away."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import sp
from broker import NO_BPF, Broker, binary
from runner import check, run_cases, until
from slowness import scaled

sp.load("proto/gen/descriptor_set.bin")
CONFIG = """
socket: {mode: 0666}
pool: 1
audit: {enabled: true}
templates:
  - {name: default, limits: {disk: 64M}}
  - {name: learnt, anomalies: {learn: 1000}}
"""
MARK = "Xyzzyplugh"
SHOWN = "Plughxyzzy"
# What is readable by design: the word, the folders of the state directory that have it, and what SECURITY.md says of it.
READABLE = [
    (f"{SHOWN}-kept", {"audit", "store"}, "names of kept snapshots"),
    (f"{SHOWN}-path", {"audit"}, "the audit log, because others must be able to check it"),
    (f"{SHOWN}-in-a-volume", {"disks"}, "volumes, because they are mounted from the disk as they are"),
    (f"{SHOWN}-name-in-a-volume", {"disks"}, "volumes, because they are mounted from the disk as they are"),
    (f"{SHOWN}-volume", {"audit", "volumes"}, "names of kept snapshots, templates, volumes and files of rules"),
    ("/usr/bin/chmod", {"profiles"}, "learnt profiles (executables, destinations and paths of templates, which belong to the host"),
]
RULES = f"""
rules:
  - id: own
    severity: info
    response: log
    match: {{kinds: [exec], all: [{{arguments: {{glob: ["*{MARK}-rule*"]}}}}]}}
    message: "{MARK}-message {{arguments}}"
"""
TENANTS = ("team", "else")
KEYS = {}
SCOPES = "approval.read,approval.write,process.run,process.read,sandbox.read,sandbox.write,file.read,file.write,rule.read,rule.write,volume.write,anomaly.read,anomaly.write"


def stockade(b, *args, who=None, **more):
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = b.address
    if who is not None:
        env["STOCKADE_TOKEN"] = KEYS[who]
    return subprocess.run([binary("stockade"), *args], env=env, capture_output=True, text=True, check=False, timeout=scaled(60), **more)


def ok(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


def call(b, method, fields, who, key=None):
    metadata = {"authorization": f"Bearer {KEYS[who]}"}
    if key is not None:
        metadata["idempotency-key"] = key
    c = sp.Client(b.address, timeout=scaled(60))
    try:
        return c.unary(method, fields, metadata)
    finally:
        c.close()


def create(b, who):
    """The labels that the answer has; the same answer for the same key."""
    fields = {"metadata": {"note": f"{MARK}-answer"}}
    return str(call(b, "/stockade.v1.SandboxService/Create", fields, who, key=f"{MARK}-key").sandbox)


def files_with(b, word=MARK):
    r = subprocess.run(["grep", "-rlaF", word, b.state], capture_output=True, check=False)
    # A volume on a file system with project quotas is a folder: its names are names there, and nothing that grep reads.
    named = [os.path.join(top, name) for top, folders, files in os.walk(b.state) for name in folders + files if word in name]
    return sorted(os.path.relpath(p, b.state) for p in r.stdout.decode().split() + named)


def configure(b, key, bpf=False):
    """With `bpf` where executions are to be found and learnt; what is read from the state needs no programs."""
    b.write_config(CONFIG + ("" if bpf else NO_BPF) + (f"encryption: {{key_file: {key}}}\n" if key else ""))


def again(b, key):
    b.stop()
    configure(b, key)
    b.start()


def listed(b, who, *what):
    return [json.loads(line) for line in ok(stockade(b, "anomalies", "-o", "json", *what, who=who)).splitlines()]


def silence_and_acknowledge(b, who, name):
    """Something that its own rule found, by the tenant and by the host; the silences are about the next ones."""
    ok(stockade(b, "exec", "-n", name, "--", "/bin/sh", "-c", f"/bin/echo '{MARK}-rule '; sleep 0.2", who=who))
    found = until(lambda: [f for f in listed(b, who) if f["rule"] == "own"], f"a finding of {who}")[0]
    number = f"{found['instance']}-{found['sequence']}"
    check(f"{MARK}-rule" in str(found), found)
    ok(stockade(b, "anomalies", "ack", number, "--reason", f"{MARK}-acknowledged", who=who))
    ok(stockade(b, "anomalies", "ack", number, "--reason", f"{MARK}-by-the-host", "--tenant", who))
    ok(stockade(b, "anomalies", "silence", "own", "--for", "1h", "--reason", f"{MARK}-silence", "--comm", f"{MARK}-comm", who=who))


def keep_what_is_readable(b, who):
    """In a volume, and in the profile of a template. What the job says meanwhile is not."""
    ok(stockade(b, "volume", "create", f"{SHOWN}-volume", "--size", "4M", who=who))
    script = f"echo {SHOWN}-in-a-volume > /data/{SHOWN}-name-in-a-volume; sync; echo {MARK}-output"
    ok(stockade(b, "run", "-v", f"{SHOWN}-volume:/data", "--", "sh", "-c", script, who=who))
    script = f"cp /bin/true {MARK}-tool; /usr/bin/chmod 0755 {MARK}-tool; echo {MARK}-content > {MARK}-file; ./{MARK}-tool {MARK}-argument"
    ok(stockade(b, "run", "--template", "learnt", "--", "sh", "-c", script, who=who))


def say_all(b, who):
    """One of everything with content, through the API."""
    name = f"{who}-sandbox"
    ok(stockade(b, "create", "--name", name, who=who))
    ok(stockade(b, "exec", name, "--", "sh", "-c", f"echo {MARK}-output; echo {MARK}-file > f", who=who))
    create(b, who)
    asked = sp.message("stockade.v1.RunRequest")(command={"args": ["echo", f"{MARK}-argument"]}).SerializeToString()
    answer = call(b, "/stockade.v1.ApprovalService/Create",
                  {"method": "ProcessService/Run", "request": asked, "reason": f"{MARK}-reason"}, who)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(RULES)
        f.flush()
        ok(stockade(b, "rules", "set", "--name", "own", f.name, who=who))
    silence_and_acknowledge(b, who, name)
    ok(stockade(b, "key", "create", "--tenant", who, "--scopes", "process.read", "--label", f"{MARK}-label"))
    ok(stockade(b, "snapshot", "create", "--keep", name, f"{SHOWN}-kept", who=who))
    ok(stockade(b, "exec", name, "--", "true", who=who))
    keep_what_is_readable(b, who)
    ok(stockade(b, "fs", "write", name, f"{SHOWN}-path", who=who, input=f"{MARK}-written"))
    return answer.approval.id


def read_all(b, who):
    """Says which of it can be read: its words, or a reason."""
    try:
        found = {"answer": create(b, who)}
    except sp.Failed as failed:
        found = {"answer": f"{failed.reason} {failed}"}
    found["approval"] = ok(stockade(b, "approvals", "show", "-o", "json", b.approval[who], who=who))
    found["rules"] = str(call(b, "/stockade.v1.RulesService/Get", {"name": "own"}, who))
    found["silences"] = str(listed(b, who, "silences"))
    found["acknowledged"] = str(listed(b, who, "acknowledged"))
    labels = json.loads(ok(stockade(b, "key", "ls", "--tenant", who, "-o", "json")))
    found["label"] = " ".join(k.get("label", "") for k in labels)
    return found


def is_readable(b, who):
    found = read_all(b, who)
    check(all(MARK in text for text in found.values()), f"{who}: {found}")


def without_a_key_it_is_there(b):
    b.approval = {who: say_all(b, who) for who in TENANTS}
    for who in TENANTS:
        is_readable(b, who)
    b.stop()
    found = files_with(b)
    check("state/stockade.db" in found, f"the words would be found: {found}")
    configure(b, None)
    b.start()


def switched_on_everything_is_sealed_and_can_be_read(b):
    again(b, b.key)
    for who in TENANTS:
        is_readable(b, who)
    check("sealed" in b.log() and "of the database" in b.log(), "and the log says so")
    b.stop()
    found = [p for p in files_with(b) if p.startswith("state/")]
    check(not found, f"in clear: {found}")
    b.start()


def what_is_new_is_nowhere_but_where_it_is_documented(b):
    b.stop()
    shutil.rmtree(b.state)
    configure(b, b.key, bpf=True)
    b.start()
    make_keys(b)
    b.approval = {who: say_all(b, who) for who in TENANTS}
    ok(stockade(b, "profiles", "freeze", "learnt"))  # and keep it
    for who in TENANTS:
        is_readable(b, who)
    check(files_with(b) == [], f"in clear while it runs: {files_with(b)}")
    b.kill()
    check(files_with(b) == [], f"in clear after a kill: {files_with(b)}")
    b.start()
    for who in TENANTS:
        is_readable(b, who)
    b.stop()
    check(files_with(b) == [], f"in clear: {files_with(b)}")
    check(files_with(b, f"{SHOWN}-output") == [], "a word that nobody said")
    with open(os.path.join(os.path.dirname(__file__), "../../SECURITY.md"), encoding="utf-8") as f:
        documented = " ".join(f.read().split())
    for word, folders, why in READABLE:
        shown = {p.split("/")[0] for p in files_with(b, word)}
        check(shown == folders, f"{word}: {shown}")
        check(why in documented, f"SECURITY.md does not say: {why}")
    elsewhere = {p.split("/")[0] for p in files_with(b, SHOWN)} - set().union(*(folders for _, folders, _ in READABLE))
    check(not elsewhere, f"and nowhere else: {elsewhere}")
    configure(b, b.key)
    b.start()


def a_backup_is_sealed_and_a_rotation_keeps_all_of_it(b):
    copy = f"{b.folder}/copy.db"
    ok(stockade(b, "admin", "backup", copy))
    with open(copy, "rb") as f:
        check(MARK.encode() not in f.read(), "in clear in the backup")
    fresh = key_file(b, "fresh")
    ok(stockade(b, "admin", "encryption", "rotate", "--new-key", fresh))
    b.key = fresh
    again(b, b.key)
    for who in TENANTS:
        is_readable(b, who)


def a_master_key_is_not_taken_from_a_network(b):
    """Nor with the rights of an operator."""
    secret = ok(stockade(b, "key", "create", "--scopes", "admin.write")).strip()
    address = "tcp://127.0.0.1:" + re.findall(r"tcp://127\.0\.0\.1:([1-9][0-9]*)", b.log())[-1]
    c = sp.Client(address, timeout=scaled(60))
    try:
        failed = c.fails("/stockade.v1.AdminService/RotateMasterKey", {"key": os.urandom(32)}, {"authorization": f"Bearer {secret}"})
    finally:
        c.close()
    check(failed.code == 7 and failed.reason == "LOCAL_ONLY", f"{failed} {failed.reason}")


def a_forgotten_tenant_is_told_so_and_the_other_one_is_not_affected(b):
    ok(stockade(b, "admin", "encryption", "forget", "team", "--yes"))
    for restarted in (False, True):
        if restarted:
            b.kill()
            b.start()
        found = read_all(b, "team")
        check(all(MARK not in text.replace(f"{MARK}-key", "") for text in found.values()), f"still there: {found}")
        check("KEY_FORGOTTEN" in found["answer"] and "data key that was forgotten" in found["answer"], found)
        check("CANCELLED" in found["approval"] and "its data key was forgotten" in found["approval"], found)
        check("its data key was forgotten" in found["rules"], found)
        check(found["silences"] == "[]" and found["acknowledged"] == "[]", f"they went with the key: {found}")
        is_readable(b, "else")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(RULES)
        f.flush()
        ok(stockade(b, "rules", "set", "--name", "own", f.name, who="team"))
    check(MARK in read_all(b, "team")["rules"], "it can be set again")
    b.stop()
    check(files_with(b) == [], f"in clear: {files_with(b)}")
    b.start()


def switched_off_it_refuses_to_start_until_all_keys_are_forgotten(b):
    b.stop()
    configure(b, None)
    before = len(b.log())
    try:
        b.start()
        raise AssertionError("it starts without the key")
    except RuntimeError:
        b.process = None
    check("there are encrypted objects, and no master key is configured" in b.log()[before:], b.log()[before:])
    configure(b, b.key)
    b.start()
    keys = json.loads(ok(stockade(b, "admin", "encryption", "status", "-o", "json")))["keys"]
    for tenant in {k["tenant"] for k in keys if "forgotten_ms" not in k}:
        ok(stockade(b, "admin", "encryption", "forget", tenant, "--yes"))
    again(b, None)
    check("its data key was forgotten" in read_all(b, "else")["rules"], "it says why")


def key_file(b, name):
    path = f"{b.folder}/{name}"
    with open(path, "wb", opener=lambda p, flags: os.open(p, flags, 0o400)) as f:
        f.write(os.urandom(32))
    return path


def make_keys(b):
    for who in TENANTS:
        KEYS[who] = ok(stockade(b, "key", "create", "--tenant", who, "--scopes", SCOPES)).strip()


CASES = [without_a_key_it_is_there, switched_on_everything_is_sealed_and_can_be_read, what_is_new_is_nowhere_but_where_it_is_documented,
         a_backup_is_sealed_and_a_rotation_keeps_all_of_it, a_master_key_is_not_taken_from_a_network,
         a_forgotten_tenant_is_told_so_and_the_other_one_is_not_affected, switched_off_it_refuses_to_start_until_all_keys_are_forgotten]


def main():
    b = Broker("--listen", "tcp://127.0.0.1:0", config=CONFIG)
    b.key = key_file(b, "key")
    with b:
        make_keys(b)
        return run_cases(CASES, lambda case: case(b))


if __name__ == "__main__":
    sys.exit(main())
