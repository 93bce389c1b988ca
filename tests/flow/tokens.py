#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Capability tokens through the real binaries: each caveat refuses, and then allows; revocation, uses, keys, and restarts."""

import base64
import json
import os
import subprocess
import sys

import sp
from broker import Broker, binary
from runner import check, run_cases, until
from slowness import scaled

sp.load("proto/gen/descriptor_set.bin")
PROCESS, PERMISSION_DENIED = "/stockade.v1.ProcessService/", 7
CONFIG = """
access: {audience: here, failures_per_minute: 100000}
quotas: {kept_bytes_per_caller: 64M}
limits_max: {disk: 256M, memory: 512M}
templates:
  - {name: default, limits: {memory: 64M}}
  - {name: wide, pool: 0, limits: {memory: 256M}, network: {mode: allowlist, outbound: [192.0.2.0/24]}}
"""


def stockade(b, *args, token=None, address=None, text=None):
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = address or b.address
    if token is not None:
        env["STOCKADE_TOKEN"] = token
    return subprocess.run([binary("stockade"), *args], env=env, capture_output=True, text=True, check=False, timeout=scaled(60), input=text)


def refused(r, *words):
    check(r.returncode != 0 and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def allowed(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


def mint(b, *args):
    return allowed(stockade(b, "token", "mint", "--tenant", "team", *args)).strip()


def narrow(b, token, *args):
    """Without a broker: at an address where none is."""
    return allowed(stockade(b, "token", "attenuate", token, *args, address="ipc:///nonexistent/socket")).strip()


def inspect(b, token):
    return json.loads(allowed(stockade(b, "token", "inspect", token, address="ipc:///nonexistent/socket")))


def a_token_has_at_most_the_rights_of_its_maker(b):
    key = json.loads(allowed(stockade(b, "key", "create", "-o", "json", "--tenant", "team", "--scopes", "key.write,system.read")))["secret"]
    refused(stockade(b, "token", "mint", "--scopes", "process.run", token=key), "process.run")
    refused(stockade(b, "token", "mint", "--tenant", "other", token=key), "team")
    token = allowed(stockade(b, "token", "mint", "--scopes", "system.read", token=key)).strip()
    allowed(stockade(b, "info", token=token))
    refused(stockade(b, "ls", token=token), "sandbox.read")
    refused(stockade(b, "token", "mint", token=mint(b)), "key.write")  # a token makes no other
    refused(stockade(b, "key", "create", token=mint(b)), "key.write")


def a_changed_token_is_refused(b):
    token = narrow(b, mint(b), "--ttl", "1h")
    raw = bytearray(base64.urlsafe_b64decode(token[5:] + "=" * (-len(token[5:]) % 4)))
    for at in range(0, len(raw), 7):
        raw[at] ^= 0x10
        refused(stockade(b, "info", token="stkt_" + base64.urlsafe_b64encode(raw).decode().rstrip("=")), "not valid")
        raw[at] ^= 0x10
    refused(stockade(b, "info", token=token[:-4]), "not valid")
    allowed(stockade(b, "info", token=token))
    allowed(stockade(b, "token", "verify", token))
    refused(stockade(b, "token", "verify", token[:-8] + "AAAAAAAA"), "not valid")


def what_no_call_can_have_is_refused_when_a_token_is_made(b):
    for words, said in [
        (["--methods", "ProcessService/Run,ProcessService/Rum"], "--methods: no method is ProcessService/Rum"),
        (["--methods", "Run"], "--methods: no method is Run; write it as ProcessService/Run"),
        (["--methods", "FileServices/*"], "--methods: no method is FileServices/*"),
        (["--allow", "@pipy"], "--allow: @pipy: there is no such set"),
        (["--allow", "pypi.org:443,"], "--allow"),
        (["--ttl", "1h", "--not-before", "2h"], "--not-before: it would expire before it is valid"),
    ]:
        r = stockade(b, "token", "mint", "--tenant", "team", *words)
        refused(r, said)
        check(r.returncode == 2 and r.stdout == "", f"a wrong value of an option: {r.returncode} {r.stdout}")
    mint(b, "--methods", "*,ProcessService/Run,FileService/*", "--allow", "@pypi", "--allow", "192.0.2.0/24:443", "--ttl", "2h",
         "--not-before", "1h")


def time_and_audience_count(b):
    refused(stockade(b, "info", token=mint(b, "--not-before", "1h")), "not valid yet")
    refused(stockade(b, "token", "verify", mint(b, "--not-before", "1h")), "not valid yet")
    refused(stockade(b, "info", token=narrow(b, mint(b, "--audience", "here"), "--audience", "elsewhere")), "another broker")
    allowed(stockade(b, "info", token=mint(b, "--audience", "there,here")))
    short = mint(b, "--ttl", "1s")
    wider = narrow(b, short, "--ttl", "1h")  # a later expiry of a child has no effect
    until(lambda: "expired" in stockade(b, "info", token=short).stderr, "it expires")
    refused(stockade(b, "info", token=wider), "expired")


def the_doctor_says_what_is_wrong_with_a_credential(b):
    def found(token, *args):
        r = stockade(b, "doctor", "-o", "json", *args, token=token)
        rows = {c["check"]: c for c in json.loads(r.stdout)["checks"]}
        check(rows["broker"]["verdict"] == "ok" or "without a credential" in rows["broker"]["found"], rows["broker"])
        return r.returncode, rows.get("credential")

    check(found(None)[1] is None, "no credential, no row")
    token = mint(b)
    check(found(token)[1]["verdict"] == "ok", "a valid one")
    block = inspect(b, token)["blocks"][0]["block_id"]
    allowed(stockade(b, "token", "revoke", block))
    for bad, words in [
        (token, "revoked"),
        (narrow(b, mint(b), "--audience", "elsewhere"), "another broker"),
        (narrow(b, mint(b), "--ttl", "1ms"), "expired"),
        ("stk_" + "0" * 40, "no such key"),
        ("nonsense", "not one of this broker"),
    ]:
        code, row = found(bad)
        check(code == 1 and row["verdict"] == "problem" and words in row["found"] and row["fix"], f"{words}: {row}")
        check(bad not in json.dumps(row), "the credential itself is not shown")
    less = found(narrow(b, mint(b), "--methods", "ProcessService/Run"))[1]
    check(less["verdict"] == "note" and "other calls" in less["found"], less)
    path = f"{b.folder}/doctor-token"
    check("No such file" in found(None, "--token-file", path)[1]["found"], "no file")
    with open(path, "w", encoding="utf-8") as f:
        f.write(mint(b) + "\n")
    check(found("nonsense", "--token-file", path)[1]["verdict"] == "ok", "the file, not the variable")


def methods_and_rights_only_narrow(b):
    token = mint(b, "--methods", "SystemService/*,SandboxService/List")
    refused(stockade(b, "create", token=token), "SandboxService/Create", "SystemService/*")
    allowed(stockade(b, "ls", token=token))
    child = narrow(b, token, "--methods", "*")  # a wider child
    refused(stockade(b, "create", token=child), "SandboxService/Create")
    reader = narrow(b, mint(b), "--scopes", "sandbox.read")
    refused(stockade(b, "info", token=reader), "system.read")
    allowed(stockade(b, "ls", token=reader))


def a_sandbox_that_is_asleep_is_judged_by_what_it_is(b):
    full = mint(b)
    box = allowed(stockade(b, "create", "--template", "wide", token=full)).strip()
    asleep = ["sleep", box]
    for caveat, line in ((["--templates", "default"], ["code", "--sandbox", box, "-c", "1"]), (["--templates", "default"], ["get", box]),
                         (["--memory", "64M"], ["exec", box, "--", "true"]), (["--network", "none"], ["exec", box, "--", "true"]),
                         (["--sandboxes", "0" * 32], ["wake", box])):
        allowed(stockade(b, *asleep, token=full))
        refused(stockade(b, *line, token=narrow(b, full, *caveat)), "token does not allow")
    allowed(stockade(b, *asleep, token=full))
    for caveat in (["--sandboxes", "0" * 32], ["--templates", "default"], ["--methods", "FileService/*"]):
        refused(stockade(b, "exec", box, "--", "true", token=narrow(b, full, *caveat)), "token does not allow")
        check("asleep" in allowed(stockade(b, "get", box, token=full)).lower(), f"a refused call wakes nothing: {caveat}")
    token = narrow(b, full, "--sandboxes", box, "--templates", "wide", "--memory", "256M")
    for line in (["get", box], asleep, ["exec", box, "--", "true"], asleep, ["wake", box], asleep, ["rm", box]):
        allowed(stockade(b, *line, token=token))


def a_token_for_one_sandbox_sees_no_other(b):
    full = mint(b)
    one, two = (allowed(stockade(b, "create", token=full)).strip() for _ in range(2))
    token = narrow(b, full, "--sandboxes", one)
    for line in (["exec", two, "--", "true"], ["rm", two], ["fs", "ls", two, "/"], ["fork", one], ["create"], ["run", "true"], ["ls"],
                 ["exec", "0" * 32, "--", "true"], ["snapshot", "create", two, "x"], ["snapshot", "ls"]):
        refused(stockade(b, *line, token=token), "sandboxes")
    check("hello" in allowed(stockade(b, "exec", one, "--", "echo", "hello", token=token)), "its own")
    for line in (["fs", "ls", one, "/"], ["snapshot", "create", one, "x"], ["snapshot", "ls", one], ["snapshot", "restore", one, "x"], ["info"]):
        allowed(stockade(b, *line, token=token))
    for box in (one, two):
        allowed(stockade(b, "rm", box, token=full))


def templates_count_for_new_and_for_existing_sandboxes(b):
    full = mint(b)
    box = allowed(stockade(b, "create", token=full)).strip()
    other = narrow(b, full, "--templates", "nothing")
    refused(stockade(b, "create", token=other), "templates")
    refused(stockade(b, "exec", box, "--", "true", token=other), "templates")
    own = narrow(b, full, "--templates", "default,nothing")
    allowed(stockade(b, "exec", box, "--", "true", token=own))
    allowed(stockade(b, "run", "true", token=own))
    allowed(stockade(b, "rm", box, token=own))


def only_the_tools_of_a_token_run(b):
    token = narrow(b, mint(b), "--tool", "echo hello* ...", "--tool", "true")
    refused(stockade(b, "run", "sh", "-c", "id", token=token), "sh with these arguments", "echo, true")
    refused(stockade(b, "run", "echo", "bye", token=token), "echo")
    refused(stockade(b, "run", "true", "x", token=token), "true")
    refused(stockade(b, "run", "--env", "LD_PRELOAD=/x", "true", token=token), "true")
    refused(stockade(b, "code", "-", token=token, text="print(1)"), "tools")
    allowed(stockade(b, "run", "true", token=token))
    check("hello there" in allowed(stockade(b, "run", "echo", "hello", "there", token=token)), "it runs")


def limits_and_network_count_for_what_will_be_in_force(b):
    token = narrow(b, mint(b), "--memory", "128M", "--timeout", "10s")
    refused(stockade(b, "run", "--memory", "256M", "true", token=token), "memory_bytes")
    refused(stockade(b, "run", "--memory", "64M", "true", token=token), "wall_ms", "at most 10000")
    allowed(stockade(b, "run", "--memory", "64M", "--timeout", "5s", "true", token=token))
    full = mint(b)
    box = allowed(stockade(b, "create", "--memory", "256M", token=full)).strip()
    refused(stockade(b, "exec", "--timeout", "5s", box, "--", "true", token=token), "memory_bytes")
    closed = narrow(b, full, "--network", "none")
    r = stockade(b, "run", "--allow", "1.1.1.1:443", "true", token=closed)
    refused(r, "network")
    one = narrow(b, full, "--allow", "1.1.1.0/24:443")
    refused(stockade(b, "run", "--allow", "8.8.8.8:443", "true", token=one), "network")
    refused(stockade(b, "run", "--network", "open", "true", token=one), "network")
    refused(stockade(b, "network", "--allow", "9.9.9.9", box, token=one), "network")
    allowed(stockade(b, "run", "true", token=closed))
    allowed(stockade(b, "run", "--allow", "1.1.1.1:443/tcp", "true", token=one))
    allowed(stockade(b, "rm", box, token=full))


def a_batch_that_is_wider_than_the_token_gets_no_jobs(b):
    full = mint(b)
    client = sp.Client(b.address, timeout=scaled(60))
    limits = {"memory_bytes": 64 << 20, "wall_ms": 5000}

    def begin(key, token=full, **fields):
        fields.setdefault("network", {"mode": 1})
        stream = client.begin(PROCESS + "RunBatch", {"key": key, **fields}, {"authorization": f"Bearer {token}"}, credit=1000)
        check(client.recv(stream).kind != sp.END, f"{key}: it begins")

    def add(key, token, *args, first=0, **job):
        job = {"command": {"args": list(args) or ["true"]}, **job}
        return PROCESS + "AddToBatch", {"key": key, "first": first, "jobs": [job]}, {"authorization": f"Bearer {token}"}

    def denied(caveat, method, *request):
        failed = client.fails(method, *request)
        check(failed.code == PERMISSION_DENIED and failed.reason == "CAVEAT", f"{caveat}: {failed}")
        check(failed.details["ErrorInfo"].metadata["subject"] == caveat, f"{caveat}: {failed.details}")

    begin("wide", limits={"memory_bytes": 256 << 20, "wall_ms": 5000})
    begin("slow", limits={"memory_bytes": 64 << 20})
    begin("out", limits=limits, network={"mode": 2, "outbound": [{"cidr": "1.1.1.1"}]})
    begin("narrow", limits=limits)
    small, closed = narrow(b, full, "--memory", "128M", "--timeout", "10s"), narrow(b, full, "--network", "none")
    for key in ("wide", "slow"):
        denied("limits", *add(key, small))
        denied("limits", PROCESS + "RunBatch", {"key": key, "resume": True}, {"authorization": f"Bearer {small}"})
    denied("limits", *add("nothing", small))  # a batch that is made later may be wide
    denied("limits", *add("narrow", small, limits={"memory_bytes": 256 << 20}))
    denied("limits", *add("narrow", small, limits={"wall_ms": 11000}))
    denied("network", *add("out", closed))
    denied("network", PROCESS + "RunBatch", {"key": "out", "resume": True}, {"authorization": f"Bearer {closed}"})
    denied("network", *add("nothing", closed))
    denied("templates", *add("narrow", narrow(b, full, "--templates", "nothing")))
    denied("sandboxes", *add("narrow", narrow(b, full, "--sandboxes", "box")))
    denied("tools", *add("narrow", narrow(b, full, "--tool", "true"), "id"))
    both = narrow(b, small, "--network", "none", "--templates", "default", "--tool", "true")
    check(client.unary(*add("narrow", both)).accepted == 1, "within all of it")
    check(client.unary(*add("narrow", both, limits={"memory_bytes": 128 << 20, "wall_ms": 10000}, first=1)).accepted == 2, "exactly")
    check(client.unary(*add("out", small)).accepted == 1, "it says nothing about the network")
    client.close()


def a_time_limit_counts_for_what_stays_and_for_cells(b):
    full = mint(b)
    token = narrow(b, full, "--timeout", "10s")
    box = allowed(stockade(b, "create", token=full)).strip()
    start = PROCESS + "Start", {"sandbox_id": box, "command": {"args": ["sleep", "60"]}}
    client = sp.Client(b.address, timeout=scaled(60))
    failed = client.fails(*start, {"authorization": f"Bearer {token}"})  # a process that stays has no time limit
    check(failed.reason == "CAVEAT", f"{failed}")
    client.close()
    refused(stockade(b, "code", "-", token=token, text="print(1)"), "wall_ms")
    refused(stockade(b, "code", "--timeout", "11s", "-", token=token, text="print(1)"), "wall_ms")
    check("ok" in allowed(stockade(b, "code", "--timeout", "9s", "-", token=token, text="print('ok')")), "a cell within it")
    allowed(stockade(b, "exec", "--timeout", "9s", box, "--", "true", token=token))
    allowed(stockade(b, "rm", box, token=full))


def a_sandbox_from_a_snapshot_has_the_template_of_the_snapshot(b):
    full = mint(b)
    box = allowed(stockade(b, "create", "--template", "wide", token=full)).strip()
    kept = allowed(stockade(b, "snapshot", "create", "--keep", box, "saved", token=full))
    create = "/stockade.v1.SandboxService/Create", {"snapshot": "saved"}
    client = sp.Client(b.address, timeout=scaled(60))
    for options in (["--templates", "default"], ["--network", "none"], ["--memory", "128M"]):
        failed = client.fails(*create, {"authorization": f"Bearer {narrow(b, full, *options)}"})
        check(failed.reason == "CAVEAT", f"{options}: {failed} {kept}")
    made = client.unary(*create, {"authorization": f"Bearer {narrow(b, full, '--templates', 'wide')}"}).sandbox.id
    client.close()
    for one in (made, box):
        allowed(stockade(b, "rm", one, token=full))


def a_token_is_used_as_often_as_it_says_also_after_kill_9(b):
    token = mint(b, "--uses", "3", "--ttl", "1h")
    child = narrow(b, token, "--uses", "1", "--ttl", "1h")
    allowed(stockade(b, "info", token=child))
    refused(stockade(b, "info", token=child), "as often")
    allowed(stockade(b, "info", token=token))
    b.without_bpf()
    b.kill()
    b.start()
    refused(stockade(b, "info", token=child), "as often")
    allowed(stockade(b, "info", token=token))
    refused(stockade(b, "info", token=token), "as often")
    refused(stockade(b, "info", token=narrow(b, token, "--uses", "100", "--ttl", "1h")), "as often")
    refused(stockade(b, "token", "mint", "--uses", "3"), "needs an expiry")


def a_revoked_block_ends_all_that_was_made_from_it(b):
    parent = mint(b)
    child, sister = narrow(b, parent, "--ttl", "1h"), narrow(b, parent, "--ttl", "2h")
    allowed(stockade(b, "token", "revoke", child))
    refused(stockade(b, "info", token=child), "revoked")
    refused(stockade(b, "info", token=narrow(b, child, "--ttl", "1m")), "revoked")
    allowed(stockade(b, "info", token=sister))
    stranger = json.loads(allowed(stockade(b, "key", "create", "-o", "json", "--tenant", "other", "--scopes", "key.write")))["secret"]
    block = inspect(b, parent)["blocks"][0]["block_id"]
    allowed(stockade(b, "token", "revoke", block, token=stranger))
    refused(stockade(b, "token", "revoke", parent, token=stranger), "not of other: it is valid as before")
    allowed(stockade(b, "info", token=sister))  # it is not the stranger's
    allowed(stockade(b, "token", "revoke", block))
    b.kill()
    b.start()
    for token in (parent, child, sister):
        refused(stockade(b, "info", token=token), "revoked")


def a_key_that_was_replaced_verifies_until_its_overlap_ends(b):
    old = mint(b)
    refused(stockade(b, "token", "rotate", token=mint(b)), "admin.write")
    allowed(stockade(b, "token", "rotate", "--ttl", "1h"))
    new = mint(b)
    check(inspect(b, old)["key_id"] != inspect(b, new)["key_id"], "another key")
    b.kill()
    b.start()
    for token in (old, new):
        allowed(stockade(b, "info", token=token))
        allowed(stockade(b, "token", "verify", token))
    allowed(stockade(b, "token", "rotate"))
    for token in (old, new)[1:]:
        until(lambda token=token: "not valid" in stockade(b, "info", token=token).stderr, "its key ends")
    allowed(stockade(b, "info", token=old))  # its overlap goes on
    check(len(allowed(stockade(b, "token", "keys")).splitlines()) >= 2, "both are listed")


def a_sealed_token_cannot_be_narrowed(b):
    token = narrow(b, mint(b), "--ttl", "1h", "--seal")
    refused(stockade(b, "token", "attenuate", token, "--ttl", "1m"), "sealed")
    allowed(stockade(b, "info", token=token))
    check(inspect(b, token)["sealed"], "and says so")
    check(allowed(stockade(b, "token", "attenuate", "-", "--ttl", "1m", text=mint(b) + "\n")).startswith("stkt_"), "from stdin")


def main():
    with Broker(config=CONFIG) as b:
        status = run_cases([a_token_has_at_most_the_rights_of_its_maker, a_changed_token_is_refused, time_and_audience_count,
                            the_doctor_says_what_is_wrong_with_a_credential,
                            methods_and_rights_only_narrow, a_token_for_one_sandbox_sees_no_other, a_sandbox_that_is_asleep_is_judged_by_what_it_is,
                            templates_count_for_new_and_for_existing_sandboxes, only_the_tools_of_a_token_run,
                            limits_and_network_count_for_what_will_be_in_force,
                            a_batch_that_is_wider_than_the_token_gets_no_jobs, a_time_limit_counts_for_what_stays_and_for_cells,
                            a_sandbox_from_a_snapshot_has_the_template_of_the_snapshot, a_token_is_used_as_often_as_it_says_also_after_kill_9,
                            a_revoked_block_ends_all_that_was_made_from_it, a_key_that_was_replaced_verifies_until_its_overlap_ends,
                            a_sealed_token_cannot_be_narrowed], lambda case: case(b))
    sys.exit(status)


main()
