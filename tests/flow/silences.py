#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Findings that are acknowledged and silenced, by two tenants and the host: refusals, effects, bounds, kill -9, the audit log."""

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile

import sp
from api import connect
from broker import Broker
from dashboard_process import make_key
from runner import check, run_cases, time_passes, until

SERVICE = "/stockade.v1.AnomalyService/"
STRANGER = "uid:54321"
CONFIG = """
socket: {mode: 0666}
pool: 2
rules_files: [%s]
templates:
  - {name: default}
  - {name: other}
"""
RULE = """
  - id: %s
    severity: warning
    response: %s
    match: {kinds: [exec], all: [{arguments: {glob: ["*%s*"]}}]}
    message: "{arguments}"
"""
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)
os.chmod(FOLDER, 0o755)
PATH = FOLDER + "/r.yaml"
ON = {}


def anomalies(b, *args, by=None, code=0, says=""):
    """Runs `stockade anomalies`, as the broker's own account or as another tenant."""
    r = (by or b.cli)("anomalies", *args)
    text = (r.stdout + r.stderr).decode()
    check(r.returncode == code, f"anomalies {args}: {r.returncode} {text}")
    check(says in text, f"anomalies {args}: {says!r} is not in {text}")
    return r.stdout.decode()


def listed(b, *args, by=None):
    return [json.loads(line) for line in anomalies(b, "-o", "json", *args, by=by).splitlines()]


def create(b, *args, by=None):
    r = (by or b.cli)("create", *args)
    check(r.returncode == 0, r.stderr)
    return r.stdout.decode().strip()


def find(b, box, rule, by=None, word=None, most=20):
    """Does what the rule finds, in a sandbox; its newest finding."""
    before = {f["sequence"] for f in listed(b, "--sandbox", box, "--rule", rule, by=by)}
    (by or b.cli)("exec", "-n", box, "--", "/bin/sh", "-c", f"/usr/bin/true {word or rule}; sleep 0.2")
    new = until(lambda: [f for f in listed(b, "--sandbox", box, "--rule", rule, by=by) if f["sequence"] not in before], f"{rule} in {box}", most)
    return new[0]


def alerts(b, found):
    """The lines about a finding in the broker's log, unless they are of level info."""
    what = f"{found['severity']} {found['rule']} in sandbox {found['sandbox_id']}"
    lines = [line for line in b.log().splitlines() if what in line]
    check(lines, f"the log has {what}")
    return [line for line in lines if "<6>" not in line and " info " not in line]


def silence(b, *args, by=None):
    return anomalies(b, "silence", *args, by=by).strip()


def counted(b, name, rule):
    code, all_ = b.json("metrics", name)
    check(code == 0, all_)
    return sum(s["value"] for m in all_ for s in m["samples"] if rule in s["labels"].values()) if isinstance(all_, list) else all_


def wrong_requests_change_nothing(b):
    box = create(b)
    found = find(b, box, "alert-it")
    number = str(found["sequence"])
    for args, code, says in ((["ack"], 2, "needs the number of a finding"), (["ack", "x"], 2, "named by its number"), (["ack", "0"], 2, "named by its number"),
                             (["ack", "-1"], 2, ""), (["ack", "99999999999999999999"], 2, "named by its number"), (["ack", "999999"], 1, "there is no finding 999999"),
                             (["unack", number], 1, "was not acknowledged"), (["ack", number, "--for", "1h"], 2, "ack does not take --for"),
                             (["ack", number, "--reason", "x" * 257], 2, "--reason"), (["nothing"], 2, "there is no such action"),
                             (["silence", "alert-it"], 2, "needs --for and --reason"), (["silence", "alert-it", "--for", "1h"], 2, "needs --for and --reason"),
                             (["silence", "alert-it", "--for", "31d", "--reason", "x"], 2, "from 1s to 30d"), (["silence", "alert-it", "--for", "1ms", "--reason", "x"], 2, "from 1s to 30d"),
                             (["silence", "nothing", "--for", "1h", "--reason", "x"], 1, "anomalies: rule: there is no rule nothing"),
                             (["silence", "alert-it", "--for", "1h", "--reason", ""], 2, "--reason"),
                             (["silence", "a", "b", "--for", "1h", "--reason", "x"], 2, "unexpected"), (["silences", "x"], 2, "unexpected"),
                             (["silence", "alert-it", "--for", "1h", "--reason", "x", "--sandbox", "nothing"], 1, "nothing"),
                             (["unsilence", "0123456789abcdef"], 1, "there is no silence"), (["unsilence", "zz"], 1, "silence_id"),
                             (["--reason", "x"], 2, "need an action"), (["ls", "x"], 2, "unexpected"), (["ls", "--comm", "x"], 2, "need an action")):
        anomalies(b, *args, code=code, says=says)
    anomalies(b, "ack", number, code=1, says="there is no finding", by=b.stranger)
    for args in (["ack", number, "--tenant", "*"], ["silences", "--tenant", "*"], ["silence", "alert-it", "--for", "1h", "--reason", "x", "--tenant", "uid:0"]):
        anomalies(b, *args, code=77, says="may see only its own", by=b.stranger)
    check(listed(b, "silences", "--tenant", "*") == [] and listed(b, "acknowledged", "--tenant", "*") == [], "there are none")
    b.cli("rm", box)


def findings_are_acknowledged(b):
    box = create(b)
    found = find(b, box, "alert-it")
    number = str(found["sequence"])
    check("acknowledgements" not in found or found["acknowledgements"] == [], found)
    anomalies(b, "ack", number, "--reason", "a \x1b[31mtest")
    anomalies(b, "ack", f"{found['instance']}-{number}", "--reason", "a \x1b[31mtest again")
    now = listed(b, "--sandbox", box)[0]
    (a,) = now["acknowledgements"]
    check(a["by"] == "uid:0" and a["by_host"] and a["reason"] == "a \x1b[31mtest again" and a["time"], a)
    check("acknowledged" in anomalies(b, "--sandbox", box) and f"#{number}" in anomalies(b, "--sandbox", box), "the list says so")
    text = anomalies(b, "acknowledged")
    check(f"{found['instance']}-{number}" in text and "\x1b" not in text and "test again" in text, text)
    check([f["sequence"] for f in listed(b, "acknowledged")] == [found["sequence"]] and listed(b, "acknowledged", by=b.stranger) == [], "of the tenant only")
    anomalies(b, "unack", number)
    check(not listed(b, "--sandbox", box)[0].get("acknowledgements") and listed(b, "acknowledged") == [], "it was taken back")
    b.cli("rm", box)


def a_tenant_and_the_host_acknowledge_side_by_side(b):
    box = create(b, by=b.stranger)
    found = find(b, box, "alert-it", by=b.stranger)
    number = str(found["sequence"])
    anomalies(b, "ack", number, "--reason", "mine", by=b.stranger)
    (a,) = listed(b, "--tenant", STRANGER)[-1]["acknowledgements"]
    check(not a["by_host"] and a["by"] == STRANGER, "the host sees that only the tenant did")
    anomalies(b, "ack", number, "--reason", "host", "--tenant", STRANGER)
    both = listed(b, "--sandbox", box, by=b.stranger)[0]["acknowledgements"]
    check([(x["by_host"], x["reason"]) for x in both] == [(False, "mine"), (True, "host")], both)
    anomalies(b, "unack", number, by=b.stranger)
    check([x["by_host"] for x in listed(b, "--sandbox", box, by=b.stranger)[0]["acknowledgements"]] == [True], "that of the host stays")
    anomalies(b, "unack", number, code=1, says="was not acknowledged", by=b.stranger)
    b.stranger("rm", box)


def a_silence_ends_alerts_and_not_responses(b):
    box, elsewhere = create(b), create(b, "--template", "other")
    check(alerts(b, find(b, box, "alert-it")), "an alert before")
    by_comm = silence(b, "alert-it", "--for", "1h", "--reason", "no process of this name", "--comm", "nothing")
    check(not find(b, create(b), "alert-it")["silenced"], "another process")
    id_ = silence(b, "alert-it", "--for", "1h", "--reason", "a <b>test</b>", "--template", "default")
    before = counted(b, "stockade_findings_total", "written")
    box = create(b)
    found = find(b, box, "alert-it")
    check(found["silenced"] and found["silence_id"] == id_ and found["response"] == "log" and not alerts(b, found), f"{found} {alerts(b, found)}")
    check(counted(b, "stockade_findings_total", "written") == before + 1 and counted(b, "stockade_findings_silenced_total", "written") == 1, "it is counted")
    check("silenced" in anomalies(b, "--sandbox", box), "the list says so")
    other = find(b, elsewhere, "alert-it")
    check(not other["silenced"] and alerts(b, other), "another template")
    # The response of a silenced finding follows.
    for more, gone in (([], True), (["--suppress-response"], False)):
        one = silence(b, "kill-it", "--for", "1h", "--reason", "x", *more)
        victim = create(b)
        found = find(b, victim, "kill-it")
        check(found["silenced"] and found["response"] == ("kill" if gone else "log") and not alerts(b, found), found)
        if gone:
            until(lambda v=victim: b.cli("get", v).returncode != 0, "it was killed")
        else:
            time_passes("a kill would have come", 1)
            check(b.cli("get", victim).returncode == 0, "it lives")
        anomalies(b, "unsilence", one)
    text = anomalies(b, "silences")
    check(id_ in text and by_comm in text and "default" in text and "uid:0" in text, text)
    anomalies(b, "unsilence", id_, by_comm)
    again = find(b, create(b), "alert-it")
    check(not again["silenced"] and again["silence_id"] == "" and alerts(b, again), "alerts are back")


def a_tenant_hides_nothing_from_the_host(b):
    anomalies(b, "silence", "kill-it", "--for", "1h", "--reason", "x", "--suppress-response", code=77, says="responds all the same", by=b.stranger)
    id_ = silence(b, "kill-it", "--for", "1h", "--reason", "hide me", by=b.stranger)
    check(listed(b, "silences") == [] and [s["id"] for s in listed(b, "silences", "--tenant", "*")] == [id_], "it is the tenant's")
    box = create(b, by=b.stranger)
    found = find(b, box, "kill-it", by=b.stranger)
    check(found["silence_id"] == id_ and not found["silenced"] and found["response"] == "kill" and alerts(b, found), found)
    until(lambda: b.stranger("get", box).returncode != 0, "it was killed")
    box = create(b)
    found = find(b, box, "kill-it")
    check(found["silence_id"] == "", "not of another tenant")
    # Of a rule of its own it may.
    with open(FOLDER + "/own", "w", encoding="utf-8") as f:
        f.write("rules:" + RULE % ("own-rule", "pause", "own-word"))
    os.chmod(FOLDER + "/own", 0o644)
    check(b.stranger("rules", "set", FOLDER + "/own").returncode == 0, "a rule of its own")
    one = silence(b, "own-rule", "--for", "1h", "--reason", "x", "--suppress-response", by=b.stranger)
    box = create(b, by=b.stranger)
    found = find(b, box, "own-rule", word="own-word", by=b.stranger)
    check(found["silenced"] and found["silence_id"] == one and found["response"] == "log" and found["tenant_rule"], found)
    b.stranger("rm", box)
    # And it cannot end what the host has silenced for it.
    host = silence(b, "alert-it", "--for", "1h", "--reason", "x", "--tenant", STRANGER)
    anomalies(b, "unsilence", host, code=77, says="was made by the host", by=b.stranger)
    everywhere = silence(b, "alert-it", "--for", "1h", "--reason", "x", "--tenant", "*")
    anomalies(b, "unsilence", everywhere, code=1, says="there is no silence", by=b.stranger)
    anomalies(b, "unsilence", everywhere, host, id_, one, "--tenant", "*")
    check(listed(b, "silences", "--tenant", "*") == [], "all have ended")


def a_silence_expires(b):
    silence(b, "alert-it", "--for", "2s", "--reason", "soon over")
    box = create(b)
    check(find(b, box, "alert-it")["silenced"], "in force")
    until(lambda: listed(b, "silences") == [], "it has expired", 10)
    found = find(b, create(b), "alert-it")
    check(not found["silenced"] and alerts(b, found), "alerts are back")


def both_are_bounded(b):
    with contextlib.closing(connect(b)) as c:
        key = {"authorization": f"Bearer {ON['key']}"}
        wanted = {"rule": "alert-it", "reason": "x" * 256, "ttl_ms": 3600000}
        ids = [c.unary(SERVICE + "CreateSilence", wanted, key).silence.id for _ in range(64)]
        failed = c.fails(SERVICE + "CreateSilence", wanted, key)
        check(failed.code == 8 and "SILENCES_OF_TENANT" in str(failed.details), failed)
        page = c.unary(SERVICE + "ListSilences", {"page_size": 50}, key)
        rest = c.unary(SERVICE + "ListSilences", {"page_size": 50, "page_token": page.next_page_token}, key)
        check([s.id for s in (*page.silences, *rest.silences)] == ids and not rest.next_page_token, "pages")
        for id_ in ids:
            c.unary(SERVICE + "DeleteSilence", {"silence_id": id_}, key)
        calls, made = [c.begin(SERVICE + "CreateSilence", wanted, metadata=key) for _ in range(100)], []
        for call in calls:
            with contextlib.suppress(sp.Failed):
                made.append(c.end(SERVICE + "CreateSilence", call))
        check(0 < len(made) <= 64 and len(c.unary(SERVICE + "ListSilences", {"page_size": 1000}, key).silences) == len(made), f"at once: {len(made)}")
        for m in made:
            c.unary(SERVICE + "DeleteSilence", {"silence_id": m.silence.id}, key)
        failed = c.fails(SERVICE + "CreateSilence", {**wanted, "rule": "x'; drop table silence; --"}, key)
        check(failed.code == 3, failed)
        reader = {"authorization": f"Bearer {ON['reader']}"}
        for method, request in (("CreateSilence", wanted), ("AcknowledgeFinding", {"sequence": 1}), ("DeleteSilence", {"silence_id": "00"})):
            failed = c.fails(SERVICE + method, request, reader)
            check(failed.code == 7 and "anomaly.write" in str(failed), failed)
        check(not c.unary(SERVICE + "ListSilences", {}, reader).silences, "it may read")


def a_limited_token_silences_what_it_may_see(b):
    box = create(b)
    with contextlib.closing(connect(b)) as c:
        for caveat, fits in ((["--templates", "default"], {"template": "default"}), (["--sandboxes", box], {"sandbox_id": box})):
            r = b.cli("token", "mint", "--scopes", "anomaly.write,anomaly.read", *caveat)
            check(r.returncode == 0, r.stderr)
            token = {"authorization": f"Bearer {r.stdout.decode().strip()}"}
            wanted = {"rule": "alert-it", "reason": "x", "ttl_ms": 3600000}
            for request in (wanted, {**wanted, "template": "other"}, {**wanted, "sandbox_id": "0" * 32}):
                failed = c.fails(SERVICE + "CreateSilence", request, token)
                check(failed.code == 7, f"{caveat} {request}: {failed}")
            check(c.fails(SERVICE + "AcknowledgeFinding", {"sequence": 1}, token).code == 7, f"{caveat}: findings of other sandboxes")
            check(c.unary(SERVICE + "CreateSilence", {**wanted, **fits}, token).silence.id, caveat)
    b.cli("rm", box)


def both_outlast_the_broker(b):
    box = create(b, by=b.stranger)
    found = find(b, box, "alert-it", by=b.stranger)
    anomalies(b, "ack", str(found["sequence"]), "--reason", "theirs", by=b.stranger)
    anomalies(b, "ack", str(found["sequence"]), "--reason", "ours", "--tenant", "*")
    id_ = silence(b, "alert-it", "--for", "1h", "--reason", "long", "--tenant", "*")
    def both():
        silences = [{**s, "findings": 0} for s in listed(b, "silences", "--tenant", "*")]
        return silences, listed(b, "acknowledged", "--tenant", "*")

    before = both()
    b.kill()
    b.start()
    after = both()
    check(before == after and len(after[1]) == 2, f"{before} {after}")
    mine = listed(b, "acknowledged", by=b.stranger)
    check([f["acknowledgements"][0]["reason"] for f in mine] == ["theirs", "ours"] and mine[0]["text"] == found["text"], mine)
    again = find(b, create(b), "alert-it")
    check(again["silenced"] and again["silence_id"] == id_ and not alerts(b, again), again)
    anomalies(b, "ack", f"{found['instance']}-{found['sequence']}", code=1, says="of this run of the broker")
    anomalies(b, "unack", f"{found['instance']}-{found['sequence']}", "--tenant", "*")
    check([f["acknowledgements"][0]["reason"] for f in listed(b, "acknowledged", "--tenant", "*")] == ["theirs"], "one is left")
    anomalies(b, "unsilence", id_, "--tenant", "*")
    text = b.cli("audit", "export", f"{b.state}/audit").stdout.decode()
    for method in ("CreateSilence", "DeleteSilence", "AcknowledgeFinding"):
        check(f"AnomalyService/{method}" in text, f"{method} is in the audit log")


def main():
    with open(PATH, "w", encoding="utf-8") as f:
        f.write("rules:" + RULE % ("alert-it", "alert", "alert-it") + RULE % ("kill-it", "kill", "kill-it"))
    os.chmod(PATH, 0o644)
    with Broker(config=CONFIG % PATH) as b:
        ON.update(key=make_key(b, "anomaly.read", "anomaly.write", tenant="team"), reader=make_key(b, "anomaly.read", "telemetry.read", tenant="team"))
        def fresh():
            """One case leaves nothing to the next."""
            for s in listed(b, "silences", "--tenant", "*"):
                anomalies(b, "unsilence", s["id"], "--tenant", "*")
            for f in listed(b, "acknowledged", "--tenant", "*"):
                by = b.cli if f["acknowledgements"][0]["by_host"] else b.stranger
                anomalies(b, "unack", f"{f['instance']}-{f['sequence']}", *(["--tenant", "*"] if by == b.cli else []), by=by)

        return run_cases([wrong_requests_change_nothing, findings_are_acknowledged, a_tenant_and_the_host_acknowledge_side_by_side,
                          a_silence_ends_alerts_and_not_responses, a_tenant_hides_nothing_from_the_host, a_silence_expires, both_are_bounded, a_limited_token_silences_what_it_may_see,
                          both_outlast_the_broker], call=lambda case: (case(b), fresh()), cleanup=fresh)


if __name__ == "__main__":
    sys.exit(main())
