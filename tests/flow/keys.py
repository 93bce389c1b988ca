#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""API keys and the tenants of accounts, through the real binaries: what is refused, and what a key may do."""

import contextlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import threading

import sp
from broker import Broker, binary
from runner import check, run_cases, until
from slowness import scaled

sp.load("proto/gen/descriptor_set.bin")
# Without BPF programs, which no key depends on: it starts seven times, and to load them is most of a start.
CONFIG = """
bpf: {enabled: false}
principals:
  - {uid: 4001, tenant: team-a}
  - {group: 4100, tenant: team-b, scopes: [system.read, sandbox.read]}
access: {failures_per_minute: 5}
rpc: {idempotency_keys: 200}
"""


def stockade(b, *args, token=None, uid=None, groups=None, address=None, **more):
    """The command with a token, as an account, at an address."""
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = address or b.address
    if token is not None:
        env["STOCKADE_TOKEN"] = token
    who = {"user": uid, "group": uid, "extra_groups": groups or []} if uid is not None else {}
    os.chmod(b.address[len("ipc://"):], 0o666)
    copy = f"{b.folder}/stockade"  # an account may not reach the build folder
    if not os.path.exists(copy):
        shutil.copy(binary("stockade"), copy)
    return subprocess.run([copy, *args], env=env, capture_output=True, text=True, check=False, cwd="/", timeout=scaled(60), **who, **more)


def refused(r, *words):
    check(r.returncode != 0 and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def allowed(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


def make(b, *args, **more):
    return json.loads(allowed(stockade(b, "key", "create", "-o", "json", *args, **more)))


def keys(b, *args, **more):
    return json.loads(allowed(stockade(b, "key", "ls", "-o", "json", *args, **more)))


def tcp(b):
    return "tcp://127.0.0.1:" + re.findall(r"tcp://127\.0\.0\.1:([1-9][0-9]*)", b.log())[-1]


def a_call_over_tcp_needs_a_credential(b):
    refused(stockade(b, "ls", address=tcp(b)), "need a credential", "--token-file")
    refused(stockade(b, "info", address=tcp(b)), "need a credential")
    key = make(b)
    allowed(stockade(b, "info", address=tcp(b), token=key["secret"]))


def what_is_no_credential_is_refused_and_never_ignored(b):
    for text in ("", "x", "stk_", "stk_" + "0" * 40, "e2b_" + "f" * 40, "stk_" + "0" * 39, "stk_" + "G" * 40, "stkt_AAAA", "a" * 4000):
        if text:  # an empty variable is none
            refused(stockade(b, "info", token=text), "stockade info")
    failures = b.log().count("credential-refused")
    check(failures > 0, "each is logged")
    r = stockade(b, "info", token="stk_" + "1" * 40)  # the peer has had five of them
    refused(r, "too many credentials")
    allowed(stockade(b, "info", token=make(b)["secret"]))  # a valid one is accepted nevertheless
    text = allowed(stockade(b, "metrics", "--prometheus"))
    check(int(re.search(r"^stockade_credentials_refused_total (\d+)", text, re.M).group(1)) >= 9, text[:200])


def a_refused_credential_is_an_event_without_its_text(b):
    secret = "stk_" + "7" * 40
    refused(stockade(b, "info", token=secret, address=tcp(b)))
    code, found = b.json("events", "--from", "1", "--kind", "credential_refused")
    check(code == 0 and len(found) >= 2, found)
    text = json.dumps(found)
    check(secret not in text and "7" * 20 not in text and "0" * 40 not in text, text)
    for e in found:
        c = e["credential"]
        check(e["tenant"] == "uid:0" and c["reason"] and c["text"] and not e.get("sandbox_id"), e)
    over = {e["credential"]["transport"]: e["credential"] for e in found}
    check(over["tcp"]["address"] == "127.0.0.1" and over["tcp"]["reason"] == "CREDENTIAL_UNKNOWN", over)
    check(over["ipc"]["address"] == "uid:0", over)
    check(any(e["credential"].get("limited") and e["severity"] == "warning" for e in found), found)
    r = stockade(b, "events", "--from", "1", "-o", "json", uid=4001)
    check(r.returncode == 0 and "credential" not in r.stdout, r.stdout)


def a_key_is_shown_once_and_only_its_hash_is_kept(b):
    key = make(b, "--label", "once", "--form", "e2b")
    check(re.fullmatch(r"e2b_[0-9a-f]{40}", key["secret"]), key)
    listed = [k for k in keys(b) if k["id"] == key["id"]]
    check(len(listed) == 1 and "secret" not in listed[0] and listed[0]["hint"] == key["secret"][:8], listed)
    for name in os.listdir(f"{b.state}/state"):
        with open(f"{b.state}/state/{name}", "rb") as f:
            check(key["secret"].encode() not in f.read() and key["secret"][4:].encode() not in f.read(), name)
    check(key["secret"] not in b.log(), "not in the log")


def a_key_has_its_tenant_and_at_most_the_rights_of_its_maker(b):
    refused(stockade(b, "key", "create", "--scopes", "metrics.read", uid=4001), "metrics.read")
    refused(stockade(b, "key", "create", "--tenant", "team-b", uid=4001), "team-a")
    refused(stockade(b, "key", "create", "--scopes", "no.right"), "no right")
    reader = make(b, "--scopes", "sandbox.read,system.read", uid=4001)
    check(reader["tenant"] == "team-a" and reader["scopes"] == ["sandbox.read", "system.read"], reader)
    refused(stockade(b, "create", token=reader["secret"]), "sandbox.write")
    refused(stockade(b, "key", "create", token=reader["secret"]), "key.write")
    full = make(b, "--tenant", "team-a")  # by root
    box = allowed(stockade(b, "create", token=full["secret"], address=tcp(b))).strip()
    check(box in allowed(stockade(b, "ls", "-o", "json", token=reader["secret"])), "its reader sees it")
    check(box in allowed(stockade(b, "ls", "-o", "json", uid=4001)), "and so does the account of the tenant")
    check(box not in allowed(stockade(b, "ls", "-o", "json")), "and root does not")
    allowed(stockade(b, "exec", box, "--", "true", token=full["secret"]))
    allowed(stockade(b, "rm", box, uid=4001))


def what_is_not_yours_and_what_does_not_exist_get_the_same_answer(b):
    key = make(b, "--tenant", "team-c")["secret"]
    box = allowed(stockade(b, "create", uid=4001)).strip()
    missing = ("0" if box[0] != "0" else "1") + box[1:]
    for line in (["exec", "%", "--", "true"], ["rm", "%"], ["fs", "ls", "%", "/"], ["pause", "%"], ["fork", "%"], ["snapshot", "ls", "%"]):
        answers = []
        for name in (box, missing):
            r = stockade(b, *[name if w == "%" else w for w in line], token=key)
            answers.append((r.returncode, r.stderr.replace(name, "ID")))
        check(answers[0] == answers[1] and answers[0][0] != 0, f"{line}: {answers}")
    theirs = make(b, uid=4001)["id"]
    mine = make(b, "--tenant", "team-c", "--scopes", "key.read,key.write")["secret"]
    a = stockade(b, "key", "revoke", theirs, token=mine)
    z = stockade(b, "key", "revoke", missing, token=mine)
    check(a.returncode != 0 and a.stderr.replace(theirs, "ID") == z.stderr.replace(missing, "ID"), (a.stderr, z.stderr))
    allowed(stockade(b, "rm", box, uid=4001))


def a_group_is_a_tenant_too_and_the_first_row_counts(b):
    r = stockade(b, "create", uid=4002, groups=[4100])
    refused(r, "team-b", "sandbox.write")
    allowed(stockade(b, "ls", uid=4002, groups=[4100]))
    check(make(b, uid=4001, groups=[4100])["tenant"] == "team-a", "4001 has a row of its own")
    check(make(b, uid=4003)["tenant"] == "uid:4003", "without a row a uid is a tenant")


def a_revoked_or_expired_key_is_refused(b):
    key = make(b)
    allowed(stockade(b, "info", token=key["secret"]))
    allowed(stockade(b, "key", "revoke", key["id"]))
    refused(stockade(b, "info", token=key["secret"]), "revoked")
    allowed(stockade(b, "key", "revoke", key["id"]))  # again
    short = make(b, "--ttl", "1s")
    allowed(stockade(b, "info", token=short["secret"]))
    until(lambda: "expired" in stockade(b, "info", token=short["secret"]).stderr, "it expires", 10)
    states = {k["id"]: k for k in keys(b)}
    check(states[key["id"]]["revoke_time"] and states[short["id"]]["expire_time"], states)


def a_token_file_is_read_and_an_empty_or_missing_one_refused(b):
    path = f"{b.state}/token"
    with open(path, "w", encoding="ascii") as f:
        f.write(make(b)["secret"] + "\n")
    allowed(stockade(b, "ls", "--token-file", path, address=tcp(b)))
    refused(stockade(b, "ls", "--token-file", path + "x"), "No such file")
    with open(path, "w", encoding="ascii"):
        pass
    refused(stockade(b, "ls", "--token-file", path), "empty")
    for line in (["run", "--", "true"], ["exec", "box", "--", "true"], ["exec", "-d", "box", "--", "true"], ["code", "-c", "1"]):
        r = stockade(b, line[0], "--token-file", path + "x", *line[1:])
        check(r.returncode == 125 and "No such file" in r.stderr, f"no exit code of the job: {r}")
    error = json.loads(stockade(b, "run", "-o", "json", "--token-file", path, "--", "true").stdout)["error"]
    check("it is empty" in error["text"], f"{error}")


def keys_outlast_kill_9(b):
    key, revoked = make(b), make(b)
    allowed(stockade(b, "key", "revoke", revoked["id"]))
    last = make(b)  # the answer means that it is on the disk
    b.kill()
    b.start()
    for one in (key, last):
        allowed(stockade(b, "info", token=one["secret"], address=tcp(b)))
    refused(stockade(b, "info", token=revoked["secret"]), "revoked")


def a_backup_is_a_database_that_a_broker_can_start_with(b):
    os.mkdir(f"{b.folder}/out")
    os.chmod(f"{b.folder}/out", 0o777)
    refused(stockade(b, "admin", "backup", f"{b.folder}/out/x.db", uid=4001), "admin.write")
    check(os.listdir(f"{b.folder}/out") == [], "nothing is left")
    before = make(b)
    path = f"{b.state}/backup.db"
    allowed(stockade(b, "admin", "backup", path))
    check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "closed to others")
    after = make(b)
    b.kill()
    owner = os.stat(f"{b.state}/state/stockade.db")
    for name in os.listdir(f"{b.state}/state"):
        os.remove(f"{b.state}/state/{name}")
    os.rename(path, f"{b.state}/state/stockade.db")
    os.chown(f"{b.state}/state/stockade.db", owner.st_uid, owner.st_gid)
    b.start()
    allowed(stockade(b, "info", token=before["secret"]))
    refused(stockade(b, "info", token=after["secret"]), "no such key")


def client(b, uid=0):
    os.chmod(b.address[len("ipc://"):], 0o666)
    os.seteuid(uid)  # what SO_PEERCRED says is decided when it connects
    try:
        return sp.Client(b.address, timeout=scaled(60))
    finally:
        os.seteuid(0)


def with_key(text):
    return {"idempotency-key": text}


def a_repeated_call_is_not_executed_again_after_kill_9(b):
    """Create, Run and Delete had been answered; Start was under way."""
    boxes, jobs = "/stockade.v1.SandboxService/", "/stockade.v1.ProcessService/"
    c = client(b)
    made = c.unary(boxes + "Create", {"name": "one"}, with_key("c1")).sandbox
    c.unary(boxes + "Create", {"name": "two"})
    c.unary(boxes + "Delete", {"id": "two"}, with_key("d1"))
    run = {"command": {"args": ["true"]}}
    id_ = c.begin(jobs + "Run", run, with_key("r1"), credit=100)
    while (frame := c.recv(id_)).kind != sp.END:
        pass
    check(not frame.HasField("status") or frame.status.code == 0, frame)
    start = {"sandbox_id": made.id, "command": {"args": ["sleep", "1000"]}}
    c.recv(c.begin(jobs + "Start", start, with_key("s1"), credit=100))
    for _ in range(2):
        b.kill()
        b.start()
        c = client(b)
        f = c.fails(boxes + "Create", {"name": "three"}, with_key("c1"))
        check(f.code == sp.INVALID and f.reason == "IDEMPOTENCY_KEY_REUSED", f)
        check(c.unary(boxes + "Create", {"name": "one"}, with_key("c1")).sandbox == made, "the answer was kept")
        check(len(c.unary(boxes + "List", {}).sandboxes) == 0, "and nothing was made")
        c.unary(boxes + "Delete", {"id": "two"}, with_key("d1"))
        for method, request, key, code, reason in ((jobs + "Run", run, "r1", sp.EXISTS, "ALREADY_EXECUTED"),
                                                   (jobs + "Start", start, "s1", 10, "MAY_HAVE_EXECUTED")):
            frame = c.recv(c.begin(method, request, with_key(key), credit=100))
            f = sp.Failed(frame.status)
            check(frame.kind == sp.END and f.code == code and f.reason == reason, f)
    check(c.fails(boxes + "Delete", {"id": "two"}).code == 5, "without the key it is another call")


def a_flood_of_keys_pushes_out_no_others(b):
    create = "/stockade.v1.KeyService/Create"
    greedy, other = client(b, 4005), client(b, 4002)
    first = other.unary(create, {"label": "first"}, with_key("first")).key.id
    ids, kept, refused_ = [greedy.begin(create, {"label": str(n)}, with_key(str(n))) for n in range(230)], 0, 0
    for id_ in ids:
        try:
            greedy.end(create, id_)
            kept += 1
        except sp.Failed as f:
            check(f.code == sp.EXHAUSTED and f.reason == "IDEMPOTENCY_KEYS", f)
            refused_ += 1
    check(kept == 200 and refused_ == 30, f"{kept} of its keys are kept, {refused_} refused")
    answer = other.unary(create, {"label": "second"}, with_key("second"))
    with open(f"{b.state}/state/stockade.db-wal", "rb") as wal, open(f"{b.state}/state/stockade.db", "rb") as db:
        check(answer.secret.encode() not in wal.read() + db.read(), "no credential is on the disk")
    b.kill()
    b.start()
    greedy, other = client(b, 4005), client(b, 4002)
    check(greedy.fails(create, {"label": "x"}, with_key("x")).reason == "IDEMPOTENCY_KEYS", "its share is still full")
    for label in ("first", "second"):
        f = other.fails(create, {"label": label}, with_key(label))
        check(f.code == sp.EXISTS and f.reason == "ALREADY_EXECUTED", f)
    check({k["id"] for k in keys(b, uid=4002)} == {first, answer.key.id}, "and no more were made")


def kill_9_at_any_moment_leaves_no_call_that_is_executed_twice(b):
    """Keyed calls, four at once, until the broker is killed; then the last ones again."""
    answers, n = {}, 0

    def call(number):
        if number % 2 == 0:  # the key of a pair makes an object that is counted, the sandbox an answer that is kept
            return "/stockade.v1.KeyService/Create", {"label": f"k{number}"}, with_key(f"k{number}")
        return "/stockade.v1.SandboxService/Create", {"name": f"k{number}"}, with_key(f"k{number}")

    for round_ in range(int(os.environ.get("KEY_KILLS", "2"))):
        c, first = client(b, 5000 + round_), n + 1
        threading.Timer(random.uniform(0.02, 0.4), b.process.kill).start()
        with contextlib.suppress(sp.Closed, OSError):
            while n - first < 190:
                ids = {}
                for _ in range(4):
                    n += 1
                    ids[c.begin(*call(n))] = n
                for id_, number in ids.items():
                    answers[number] = c.end(call(number)[0], id_)
            c.recv_any()  # its end
        b.kill()
        b.start()
        c, lost = client(b, 5000 + round_), 0
        for number in range(first, n + 1):
            try:
                again = c.unary(*call(number))
                check(number % 2 == 1 or number not in answers, f"k{number} had been answered with a credential")
                check(answers.setdefault(number, again) == again, f"k{number} is answered as before")
            except sp.Failed as f:
                check(f.reason == "ALREADY_EXECUTED" or (f.reason == "MAY_HAVE_EXECUTED" and number not in answers), f"k{number}: {f}")
                check(number % 2 == 0 or number not in answers, f"k{number} had been answered: {f}")
                lost += f.reason == "MAY_HAVE_EXECUTED"
        check(lost <= 4, f"{lost} were under way")
        labels = [k["label"] for k in keys(b, uid=5000 + round_)]
        check(len(labels) == len(set(labels)), "no key was made twice")
        check({f"k{i}" for i in answers if i >= first and i % 2 == 0} <= set(labels), "and all that were answered are there")


def main():
    with Broker("--listen", "tcp://127.0.0.1:0", config=CONFIG) as b:
        status = run_cases([a_call_over_tcp_needs_a_credential,
                            a_key_is_shown_once_and_only_its_hash_is_kept,
                            a_key_has_its_tenant_and_at_most_the_rights_of_its_maker,
                            what_is_not_yours_and_what_does_not_exist_get_the_same_answer,
                            a_group_is_a_tenant_too_and_the_first_row_counts,
                            a_revoked_or_expired_key_is_refused,
                            a_token_file_is_read_and_an_empty_or_missing_one_refused,
                            a_backup_is_a_database_that_a_broker_can_start_with,
                            a_repeated_call_is_not_executed_again_after_kill_9,
                            a_flood_of_keys_pushes_out_no_others,
                            kill_9_at_any_moment_leaves_no_call_that_is_executed_twice,
                            keys_outlast_kill_9,
                            what_is_no_credential_is_refused_and_never_ignored,
                            a_refused_credential_is_an_event_without_its_text], lambda case: case(b))
    sys.exit(status)


main()
