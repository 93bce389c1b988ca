#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Approvals through the real binaries: who may answer one, what each answer permits, and what a restart keeps."""

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import sp
from broker import Broker, binary
from runner import check, run_cases, until
from slowness import Popen, scaled

sp.load("proto/gen/descriptor_set.bin")
SERVICE = "/stockade.v1.ApprovalService/"
CONFIG = """
access: {failures_per_minute: 100000}
policy_files: [%s]
templates:
  - {name: default, pool: 0}
"""
POLICY = """
layers:
  - name: base
    rules:
      - {id: one, match: {commands: ["echo deploy* ...", "echo ship* ..."]}, verdict: ask, reason: it changes production, ask: {approvers: [team]}}
      - {id: two, match: {commands: ["echo both"]}, verdict: ask, ask: {approvers: [team], need: 2}}
      - {id: soon, match: {commands: ["echo soon"]}, verdict: ask, ask: {approvers: [team], timeout: 1s}}
  - name: more
    rules:
      - {id: security, match: {commands: ["echo deploy-safely"]}, verdict: ask, ask: {approvers: [security]}}
"""
KEYS = {}


def stockade(b, *args, who=None):
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = b.address
    if who is not None:
        env["STOCKADE_TOKEN"] = KEYS[who]
    return subprocess.run([binary("stockade"), *args], env=env, capture_output=True, text=True, check=False, timeout=scaled(60))


def refused(r, *words):
    check(r.returncode != 0 and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def allowed(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


def approvals(b, *args, who=None):
    return stockade(b, "approvals", *args, who=who)


def show(b, id_, who=None):
    return json.loads(allowed(approvals(b, "show", "-o", "json", id_, who=who)))


def bearer(who):
    return {"authorization": f"Bearer {KEYS[who]}"} if who else {}


class Client(sp.Client):
    def __init__(self, b):
        super().__init__(b.address, timeout=scaled(60))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_request(*args):
    return sp.message("stockade.v1.RunRequest")(command={"args": list(args)}).SerializeToString()


def ask(b, *args, who="agent", **fields):
    """An approval for a run of this command; its id."""
    with Client(b) as c:
        fields.setdefault("method", "ProcessService/Run")
        fields.setdefault("request", run_request(*args))
        return c.unary(SERVICE + "Create", fields, bearer(who)).approval.id


def only_operators_make_approvers(b):
    refused(stockade(b, "key", "create", "--scopes", "approval.answer", who="maker"), "approval.answer")
    refused(stockade(b, "token", "mint", "--scopes", "approval.answer", who="maker"), "approval.answer")
    id_ = ask(b, "true")
    refused(approvals(b, "approve", id_, who="agent"), "approval.answer")
    refused(approvals(b, "deny", id_, who="other"), "approval.answer")


def a_wait_beyond_the_longest_is_a_wrong_command_line(b):
    r = stockade(b, "ls", "--wait-approval", "601s")
    check(r.returncode == 2 and "--wait-approval is at most 10m" in r.stderr, f"{r.returncode} {r.stderr}")


def a_requester_cannot_answer_its_own(b):
    id_ = ask(b, "true", who="approver")
    refused(approvals(b, "approve", id_, who="approver"), "is the requester")
    refused(approvals(b, "deny", id_, who="approver"), "is the requester")
    mine = ask(b, "true", who=None)  # of root
    refused(approvals(b, "approve", mine), "is the requester")
    check("APPROVED" in allowed(approvals(b, "approve", id_, who="second")), "somebody else can")


def another_tenant_sees_no_approval_and_gets_the_same_answer_as_for_none(b):
    id_ = ask(b, "true", "hidden")
    missing = ("0" if id_[0] != "0" else "1") + id_[1:]
    for action in ("show", "approve", "deny", "cancel", "watch"):
        answers = []
        for name in (id_, missing):
            r = approvals(b, action, name, who="stranger")
            answers.append((r.returncode, r.stderr.replace(name, "ID")))
        check(answers[0] == answers[1] and answers[0][0] != 0, f"{action}: {answers}")
    check(id_ not in allowed(approvals(b, "ls", who="stranger")), "nor in the list")
    check(id_ in allowed(approvals(b, "ls", who="agent")), "its own tenant sees it")
    check(id_ not in allowed(approvals(b, "ls")) and id_ in allowed(approvals(b, "ls", "--tenant", "*")), "and operators, if they ask")


def what_is_no_call_is_refused(b):
    with Client(b) as c:
        for fields, field in (({"method": "ProcessService/Nothing"}, "method"), ({"method": "ProcessService/Run", "request": b"\xff\xff"}, ""),
                              ({"method": "ProcessService/Run", "request": b""}, "command"),
                              ({"method": "ProcessService/Run", "request": run_request("true"), "needed": 17}, "needed"),
                              ({"method": "ProcessService/Run", "request": run_request("true"), "timeout_ms": 1}, "timeout_ms"),
                              ({"method": "ProcessService/Run", "request": run_request("true"), "approvers": ["*"]}, "approvers")):
            failed = c.fails(SERVICE + "Create", fields, bearer("agent"))
            check(failed.code == sp.INVALID and field in str(failed), f"{fields}: {failed}")
        approved = SERVICE + "Approve"
        id_ = ask(b, "true", "grants")
        for grant in ({"reach": 3}, {"reach": 1, "pattern": "x"}, {"reach": 7}, {"ttl_ms": 5}):
            failed = c.fails(approved, {"id": id_, "grant": grant}, bearer("approver"))
            check(failed.code == sp.INVALID, f"{grant}: {failed}")
        failed = c.fails(approved, {"id": id_, "digest": b"0" * 32}, bearer("approver"))
        check(failed.reason == "APPROVAL_MISMATCH", f"{failed}")
        asked = {"method": "SandboxService/Create", "request": b""}
        other = c.unary(SERVICE + "Create", asked, bearer("agent")).approval.id
        failed = c.fails(approved, {"id": other, "grant": {"reach": 3, "pattern": "*"}}, bearer("approver"))
        check(failed.code == sp.INVALID and "command line" in str(failed), f"{failed}")


def an_approver_sees_the_whole_request_and_no_control_characters(b):
    text = "a\x1b[2J\nb"
    with Client(b) as c:
        request = sp.message("stockade.v1.RunRequest")(command={"args": ["sh", "-c", text], "workdir": "/tmp",
                                                                "env": [{"name": "PATH", "value": "/evil"}]})
        asked = {"method": "ProcessService/Run", "request": request.SerializeToString(), "reason": "to deploy"}
        id_ = c.unary(SERVICE + "Create", asked, bearer("agent")).approval.id
    shown = allowed(approvals(b, "show", id_, who="approver"))
    check("\x1b" not in shown and "/evil" in shown and "/tmp" in shown and "to deploy" in shown, shown)
    check("\x1b" not in allowed(approvals(b, "ls", who="approver")), "nor in the list")
    j = show(b, id_, who="approver")
    check(j["subject"] == "sh -c $'a\\x1b[2J\\x0ab'" and len(j["digest"]) == 64 and re.fullmatch("team/key:[0-9a-f]{32}", j["requester"]), j)


def answers_are_kept_with_their_comments(b):
    id_ = ask(b, "true", "twice", needed=2)
    check(ask(b, "true", "twice", needed=2) == id_, "the same call is pending once")
    allowed(approvals(b, "approve", id_, "--comment", "fine", who="approver"))
    refused(approvals(b, "approve", id_, who="approver"), "has answered")
    check(show(b, id_)["state"] == "PENDING", "one of two")
    allowed(approvals(b, "approve", id_, "--for", "1h", who="second"))
    j = show(b, id_)
    check(j["state"] == "APPROVED" and j["grant"]["reach"] == "ONCE", f"the narrowest counts: {j}")
    check([v["comment"] for v in j["votes"]] == ["fine", ""], j["votes"])
    refused(approvals(b, "deny", id_, who="second"), "not pending")
    denied = ask(b, "true", "never")
    allowed(approvals(b, "deny", denied, "--comment", "not today", who="second"))
    check(show(b, denied)["votes"][0]["comment"] == "not today", "it says why")
    allowed(approvals(b, "cancel", ask(b, "true", "withdrawn"), who="agent"))
    refused(approvals(b, "cancel", ask(b, "true", "not mine"), who="approver"), "is not the requester")


def approvers_of_another_tenant_can_be_named(b):
    id_ = ask(b, "true", "elsewhere", approvers=["security"])
    check(id_ in allowed(approvals(b, "ls", who="security")), "it sees that it is asked")
    refused(approvals(b, "approve", id_, who="approver"), "not an approver")
    allowed(approvals(b, "approve", id_, "--pattern", "true else*", who="security"))
    check(show(b, id_)["grant"]["pattern"] == "true else*", "with its pattern")


def without_an_answer_it_expires(b):
    with Client(b) as c:
        id_ = ask(b, "true", "slow", timeout_ms=1000)
        watch = c.begin(SERVICE + "Watch", {"id": id_}, bearer("agent"))
        states = []
        while (frame := c.recv(watch)).kind == sp.DATA:
            states.append(sp.message("stockade.v1.ApprovalServiceWatchResponse").FromString(frame.payload).approval.state)
        check(states == [1, 4] and frame.status.code == 0, f"pending, expired, end: {states}")
    refused(approvals(b, "approve", id_, who="approver"), "not pending")


def a_watcher_gets_each_change_once_and_goes_on_after_a_restart(b):
    env = dict(os.environ, STOCKADE_ADDRESS=b.address, STOCKADE_TOKEN=KEYS["approver"])
    path = f"{b.folder}/watched"
    with open(path, "w", encoding="utf-8") as out:
        watcher = Popen([binary("stockade"), "approvals", "watch", "-o", "json"], stdout=out, stderr=subprocess.DEVNULL, env=env)

    def seen(id_):
        with open(path, encoding="utf-8") as f:
            return [j["state"] for j in map(json.loads, f) if j["id"] == id_]

    try:
        id_ = ask(b, "true", "watched")
        until(lambda: seen(id_) == ["PENDING"], "it is reported", scaled(30))
        b.kill()
        b.start()
        check(show(b, id_)["state"] == "PENDING", "kill -9 loses none")
        allowed(approvals(b, "approve", id_, who="second"))
        until(lambda: seen(id_) == ["PENDING", "APPROVED"], lambda: f"and the answer: {seen(id_)}", scaled(30))
        b.kill()
        b.start()
        check(show(b, id_)["state"] == "APPROVED", "an answer is on the disk when it was given")
    finally:
        watcher.terminate()
        watcher.wait()


def run(b, *args, who="agent"):
    return stockade(b, "run", "--", *args, who=who)


def pending_of(r):
    """The id in the refusal of a call."""
    refused(r, "is pending")
    check(r.returncode == 75, f"it may succeed later: {r.returncode}")
    return re.search("approval ([0-9a-f]{32}) is pending", r.stderr).group(1)


def begin_run(c, *args, wait=None, id_=None, who="agent"):
    metadata = bearer(who)
    if wait is not None:
        metadata["approval-wait"] = str(wait)
    if id_ is not None:
        metadata["approval"] = id_
    return c.begin("/stockade.v1.ProcessService/Run", {"command": {"args": list(args)}}, metadata)


def end_of(c, stream):
    """The status of a run, and whether it has run."""
    frames = []
    while not frames or frames[-1].kind != sp.END:
        frames.append(c.recv(stream))
    return sp.Failed(frames[-1].status), len(frames) > 1


def pending_for(b, text):
    """The id of the approval for this command, as soon as there is one."""
    found = []

    def looks():
        all_ = json.loads(allowed(approvals(b, "ls", "-o", "json", who="approver")))
        found[:] = [j["id"] for j in all_ if j["subject"] == text]
        return bool(found)

    until(looks, f"an approval for {text}", scaled(30))
    return found[0]


def a_rule_asks_and_after_the_answer_the_call_runs_once(b):
    id_ = pending_of(run(b, "echo", "deploy"))
    j = show(b, id_, who="approver")
    check(j["rule"] == "base/one" and j["reason"] == "it changes production" and j["subject"] == "echo deploy", j)
    check(pending_of(run(b, "echo", "deploy")) == id_, "it is asked once")
    refused(approvals(b, "approve", id_, who="agent"), "approval.answer")
    allowed(approvals(b, "approve", id_, who="approver"))
    check(pending_of(run(b, "echo", "deploy", "more")) != id_, "another command needs another one")
    check(allowed(run(b, "echo", "deploy")) == "deploy\n", "it runs")
    check(pending_of(run(b, "echo", "deploy")) != id_, "once")
    with Client(b) as c:
        for args, reason in ((["echo", "deploy"], "APPROVAL_USED"), (["echo", "deploy", "x"], "APPROVAL_MISMATCH")):
            failed, ran = end_of(c, begin_run(c, *args, id_=id_))
            check(failed.reason == reason and not ran, f"{args}: {failed} {failed.reason}")
        failed, ran = end_of(c, begin_run(c, "echo", "deploy", id_=id_, who="stranger"))
        check(failed.code == 5 and not ran, f"another tenant: {failed}")
        failed, ran = end_of(c, begin_run(c, "echo", "deploy", wait="soon"))
        check(failed.code == sp.INVALID and not ran, f"{failed}")


def a_pattern_permits_what_matches_it(b):
    id_ = pending_of(run(b, "echo", "ship-1"))
    for wrong in ("echo ship-?", "echo ship", "*ship-2"):  # '?' is no wildcard
        r = approvals(b, "approve", id_, "--pattern", wrong, who="approver")
        refused(r, "--pattern: does not match the command line of this call: echo ship-1")
        check(r.returncode == 2, f"a wrong value of an option: {r.returncode}")
    check(not show(b, id_).get("votes"), "and nobody has answered")
    pending_of(run(b, "echo", "ship-1"))
    id_ = pending_of(run(b, "echo", "ship-2"))
    allowed(approvals(b, "approve", id_, "--pattern", "echo ship-*", "--for", "1h", who="approver"))
    for n in (2, 3, 3):
        allowed(run(b, "echo", f"ship-{n}"))
    pending_of(run(b, "echo", "ship", "-4"))


def a_call_waits_for_the_answer(b):
    with Client(b) as c:
        stream = begin_run(c, "echo", "both", wait=600000)
        id_ = pending_for(b, "echo both")
        allowed(approvals(b, "approve", id_, who="approver"))
        allowed(approvals(b, "approve", id_, who="second"))
        failed, ran = end_of(c, stream)
        check(failed.code == 0 and ran, f"it runs: {failed}")
        stream = begin_run(c, "echo", "both", wait=600000)
        allowed(approvals(b, "deny", pending_for(b, "echo both"), "--comment", "too late", who="second"))
        failed, ran = end_of(c, stream)
        check(failed.reason == "APPROVAL_DENIED" and "too late" in failed.message and not ran, f"{failed}")
        failed, ran = end_of(c, begin_run(c, "echo", "soon", wait=600000))
        check(failed.reason == "APPROVAL_EXPIRED" and not ran, f"nobody answers: {failed}")
        failed, ran = end_of(c, begin_run(c, "echo", "deploy-later", wait=100))
        check(failed.reason == "APPROVAL_PENDING" and not ran, f"it waits no longer than it wants: {failed}")


def a_credential_that_was_revoked_meanwhile_runs_nothing(b):
    """Approvers see a request, and not what became of its requester."""
    rights = ("--tenant", "team", "--scopes", "process.run")
    for kind, make in (("key", ("key", "create")), ("token", ("token", "mint"))):
        KEYS["leaver"] = allowed(stockade(b, *make, *rights)).strip()
        with Client(b) as c:
            stream = begin_run(c, "echo", f"deploy-of-a-{kind}", wait=600000, who="leaver")
            id_ = pending_for(b, f"echo deploy-of-a-{kind}")
            ends = KEYS["leaver"]
            if kind == "key":
                listed = json.loads(allowed(stockade(b, "key", "ls", "--tenant", "team", "-o", "json")))
                ends = next(k["id"] for k in listed if ends.startswith(k["hint"]))
            allowed(stockade(b, kind, "revoke", ends))
            allowed(approvals(b, "approve", id_, who="approver"))
            failed, ran = end_of(c, stream)
            check(failed.reason == "CREDENTIAL_REVOKED" and not ran, f"{kind}: {failed} {failed.reason}")


def calls_that_come_at_once_get_one_approval(b):
    clients = [Client(b) for _ in range(20)]
    calls = [c.begin("/stockade.v1.ProcessService/Run", run_request("echo", "deploy-at-once"), bearer("agent"), credit=1000) for c in clients]
    ids = set()
    for c, call in zip(clients, calls):
        failed = sp.Failed(c.recv(call).status)
        check(failed.reason == "APPROVAL_PENDING", failed)
        ids.add(failed.details["ErrorInfo"].metadata["subject"])
        c.close()
    check(len(ids) == 1, ids)
    allowed(approvals(b, "deny", ids.pop(), who="approver"))
    for i in range(10):  # callers that go away while theirs is written leave no memory, which the end of the broker shows
        with Client(b) as c:
            c.begin("/stockade.v1.ProcessService/Run", run_request("echo", "deploy-and-gone", str(i)), bearer("agent"), credit=1000)


def a_rule_that_a_reload_adds_meanwhile_asks_as_well(b):
    with Client(b) as c:
        stream = begin_run(c, "echo", "deploy-twice", wait=600000)
        first = pending_for(b, "echo deploy-twice")
        more = POLICY + "      - {id: late, match: {commands: [\"echo deploy-twice\"]}, verdict: ask, ask: {approvers: [security]}}\n"
        write_policy(b, more)
        allowed(approvals(b, "approve", first, who="approver"))
        until(lambda: len(waiting_for(b, "echo deploy-twice", "security")) == 1, "the new rule asks", scaled(30))
        second = waiting_for(b, "echo deploy-twice", "security")[0]
        check(second != first and show(b, second)["rule"] == "more/late", show(b, second))
        allowed(approvals(b, "approve", second, who="security"))
        failed, ran = end_of(c, stream)
        check(failed.code == 0 and ran, f"it runs: {failed}")
        stream = begin_run(c, "echo", "deploy-twice", wait=600000)  # both rules ask from the start
        until(lambda: len(waiting_for(b, "echo deploy-twice", "approver")) == 1, "the first asks", scaled(30))
        write_policy(b, POLICY.replace("verdict: ask, reason: it changes production, ask: {approvers: [team]}", "verdict: deny"))
        allowed(approvals(b, "approve", waiting_for(b, "echo deploy-twice", "approver")[0], who="approver"))
        until(lambda: len(waiting_for(b, "echo deploy-twice", "security")) == 1, "the second asks", scaled(30))
        allowed(approvals(b, "approve", waiting_for(b, "echo deploy-twice", "security")[0], who="security"))
        failed, ran = end_of(c, stream)
        check(failed.reason == "POLICY_DENIED" and not ran, f"what is denied meanwhile stays denied: {failed}")
    write_policy(b, POLICY)
    with Client(b) as c:  # two questions from the start, and nothing changes
        stream = begin_run(c, "echo", "deploy-safely", wait=600000)
        allowed(approvals(b, "approve", pending_for(b, "echo deploy-safely"), who="approver"))
        until(lambda: len(waiting_for(b, "echo deploy-safely", "security")) == 1, "the second asks", scaled(30))
        allowed(approvals(b, "approve", waiting_for(b, "echo deploy-safely", "security")[0], who="security"))
        failed, ran = end_of(c, stream)
        check(failed.code == 0 and ran, f"it runs: {failed}")


def write_policy(b, text):
    with open(f"{b.policies}/base.yaml.new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(f"{b.policies}/base.yaml.new", f"{b.policies}/base.yaml")
    check(" reloaded" in b.reload(), "it is in force")


def waiting_for(b, text, who):
    return [j["id"] for j in json.loads(allowed(approvals(b, "ls", "-o", "json", who=who))) if j["subject"] == text]


def the_command_waits_or_names_an_approval(b):
    env = dict(os.environ, STOCKADE_ADDRESS=b.address, STOCKADE_TOKEN=KEYS["agent"])
    refused(stockade(b, "run", "--approval", "0" * 65, "echo", "deploy-option", who="agent"), "approval")
    refused(stockade(b, "run", "--approval", "0" * 32, "echo", "deploy-option", who="agent"))
    waiting = Popen([binary("stockade"), "run", "--wait-approval", "60s", "echo", "deploy-waits"], env=env, stdout=subprocess.PIPE, text=True)
    id_ = pending_for(b, "echo deploy-waits")
    check(waiting.poll() is None, "it waits")
    allowed(approvals(b, "approve", id_, who="approver"))
    check(waiting.communicate(timeout=scaled(60))[0] == "deploy-waits\n" and waiting.returncode == 0, "and runs")
    id_ = pending_of(run(b, "echo", "deploy-named"))
    allowed(approvals(b, "approve", id_, who="approver"))
    check(allowed(stockade(b, "run", "--approval", id_, "echo", "deploy-named", who="agent")) == "deploy-named\n", "it runs")
    refused(stockade(b, "run", "--approval", id_, "echo", "deploy-named", who="agent"), "used")


def two_layers_need_two_approvals_and_use_none_before_they_have_both(b):
    first = pending_of(run(b, "echo", "deploy-safely"))
    allowed(approvals(b, "approve", first, who="approver"))
    second = pending_of(run(b, "echo", "deploy-safely"))
    check(second != first and show(b, second)["approvers"] == ["security"], "the other rule")
    check(show(b, first)["uses"] == 0, "the first stays")
    allowed(approvals(b, "approve", second, who="security"))
    allowed(run(b, "echo", "deploy-safely"))
    check(show(b, first)["uses"] == 1 and show(b, second)["uses"] == 1, "both are used")


def a_restart_while_one_waits_loses_nothing_and_a_shutdown_does_not_wait(b):
    with Client(b) as c:
        begin_run(c, "echo", "deploy-now", wait=600000)
        id_ = pending_for(b, "echo deploy-now")
        b.kill()
    b.start()
    with Client(b) as c:
        stream = begin_run(c, "echo", "deploy-now", wait=600000, id_=id_)
        stockade(b, "info")  # the call has arrived before it
        b.process.terminate()
        failed, ran = end_of(c, stream)
        check(failed.code == sp.UNAVAILABLE and not ran, f"{failed}")
        check(b.stop() == 0, "it ends in time")
    b.start()
    allowed(approvals(b, "approve", id_, who="approver"))
    with Client(b) as c:
        failed, ran = end_of(c, begin_run(c, "echo", "deploy-now", id_=id_))
        check(failed.code == 0 and ran, f"it goes on: {failed}")


def they_are_counted(b):
    text = allowed(stockade(b, "metrics", "--prometheus"))
    pending = len(json.loads(allowed(approvals(b, "ls", "--tenant", "*", "-o", "json"))))
    check(f"\nstockade_approvals_pending {pending}\n" in text, f"{pending}: {text[:300]}")
    allowed(approvals(b, "deny", ask(b, "true", "counted"), who="approver"))
    text = allowed(stockade(b, "metrics", "--prometheus"))
    check('\nstockade_approvals_answered_total{outcome="denied"} 1\n' in text, "by outcome")
    check("\nstockade_approval_wait_seconds_count 1\n" in text, "and their time")


def completion_offers_what_is_pending(b):
    id_ = ask(b, "true", "complete", who=None)
    check("approve\t" in allowed(stockade(b, "completion", "words", "--", "approvals", "a")), "the actions")
    check(id_ in allowed(stockade(b, "completion", "words", "--", "approvals", "approve", "")), "and what is pending")


def main():
    folder = tempfile.mkdtemp(prefix="stockade-policy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(f"{folder}/base.yaml", "w", encoding="utf-8") as f:
        f.write(POLICY)
    with Broker(config=CONFIG % folder) as b:
        b.policies = folder
        rights = "approval.read,approval.write,approval.answer,process.run"
        for who, tenant, scopes in (("agent", "team", "approval.read,approval.write,process.run,process.read,sandbox.write"), ("other", "team", "approval.read"),
                                    ("approver", "team", rights), ("second", "team", rights), ("security", "security", rights),
                                    ("stranger", "else", rights), ("maker", "team", rights + ",key.write")):
            KEYS[who] = allowed(stockade(b, "key", "create", "--tenant", tenant, "--scopes", scopes)).strip()
        return run_cases([
            only_operators_make_approvers,
            a_wait_beyond_the_longest_is_a_wrong_command_line, a_requester_cannot_answer_its_own,
            another_tenant_sees_no_approval_and_gets_the_same_answer_as_for_none,
            what_is_no_call_is_refused,
            an_approver_sees_the_whole_request_and_no_control_characters,
            answers_are_kept_with_their_comments,
            approvers_of_another_tenant_can_be_named,
            without_an_answer_it_expires,
            a_rule_asks_and_after_the_answer_the_call_runs_once,
            a_pattern_permits_what_matches_it,
            a_call_waits_for_the_answer,
            a_credential_that_was_revoked_meanwhile_runs_nothing,
            calls_that_come_at_once_get_one_approval,
            a_rule_that_a_reload_adds_meanwhile_asks_as_well,
            the_command_waits_or_names_an_approval,
            two_layers_need_two_approvals_and_use_none_before_they_have_both,
            a_restart_while_one_waits_loses_nothing_and_a_shutdown_does_not_wait,
            a_watcher_gets_each_change_once_and_goes_on_after_a_restart,
            they_are_counted,
            completion_offers_what_is_pending,
        ], lambda case: case(b))


sys.exit(main())
