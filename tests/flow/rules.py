#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Detection rules through the real binaries: wrong files, reloads that are whole or nothing, findings, each response, dry runs."""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import sp
from api import connect
from broker import Broker, binary
from runner import Skipped, check, run_cases, until
from slowness import scaled

RULES_SERVICE = "/stockade.v1.RulesService/"
CONFIG = """
socket: {mode: 0666}
pool: 2
rules_files: [%s]
templates:
  - {name: default}
  - {name: wide, pool: 0, network_max: {mode: allowlist, outbound: [192.0.2.0/24, "2001:db8::/32"]}}
"""
RULES = """
rules:
  - id: marked-1
    severity: notice
    tags: [T1059]
    match: {kinds: [exec], all: [{executable: {exact: [/usr/bin/true]}}]}
    aggregate: {threshold: 3, window: 1m}
    message: "{count} times {executable} in {template}"
    tests:
      - {name: three, events: [{kind: exec, executable: /usr/bin/true, times: 3}], findings: [{event: 3}]}
  - id: flood
    severity: info
    response: log
    match: {kinds: [exec], all: [{arguments: {prefix: ["/usr/bin/printf "]}}]}
    aggregate: {threshold: 100, by: arguments}
    message: "never"
  - id: kill-it
    severity: critical
    response: kill
    match: {kinds: [exec], all: [{arguments: {glob: ["*kill-me*"]}}]}
    message: "it asked for it"
  - id: pause-it
    severity: warning
    response: pause
    match: {kinds: [exec], all: [{arguments: {glob: ["*pause-me*"]}}]}
    message: "it asked for it"
  - id: throttle-it
    severity: warning
    response: throttle
    match: {kinds: [exec], all: [{arguments: {glob: ["*throttle-me*"]}}]}
    message: "it asked for it"
  - id: deny-it
    severity: warning
    response: deny_network
    match: {kinds: [exec], all: [{arguments: {glob: ["*deny-me*"]}}]}
    message: "it asked for it"
  - id: order
    severity: warning
    aggregate:
      function: sequence
      window: 1m
      steps:
        - {kinds: [exec], all: [{executable: {exact: [/usr/bin/id]}}]}
        - {kinds: [exec], all: [{executable: {exact: [/usr/bin/uname]}}]}
    message: "{executable} after id"
"""
OWN = """
rules:
  - id: %s
    severity: notice
    response: %s
    tags: [T1059.004, mine]
    match: {kinds: [exec], all: [{arguments: {glob: ["*%s*"]}}]}
    message: "{executable} of {tenant}: {arguments}"
"""
LATER = """
rules:
  - {id: later, severity: info, message: "{executable}", match: {kinds: [exec], all: [{executable: {exact: [/usr/bin/env]}}]}}
"""

FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)
os.chmod(FOLDER, 0o755)
PATH = FOLDER + "/r.yaml"


def write(text, path=PATH):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o644)


def offline(*args):
    return subprocess.run([binary("stockade"), "rules", *args], capture_output=True, text=True, check=False, timeout=scaled(60))


def findings(b, *args):
    code, all_ = b.json("anomalies", *args)
    check(code == 0, f"anomalies: {code} {all_}")
    return all_


def create(b, *args):
    r = b.cli("create", *args)
    check(r.returncode == 0, r.stderr)
    return r.stdout.decode().strip()


def run(b, box, script):
    return b.cli("exec", "-n", box, "--", "/bin/sh", "-c", script)


def box_of(b, box):
    code, one = b.json("get", box)
    check(code == 0, one)
    return one


NEVER = "rules:\n  - {id: never, severity: info, message: m, match: {kinds: [exec], all: [{path: {exact: [/a]}}]}}\n"


def wrong_files_say_where(b):
    bad = FOLDER + "/bad"
    for text, says in (("rules: [{id: r}]", ":1:9: "), ("rules: {}", "must be a list"), ("rulez: []", "did you mean rules?"),
                       (RULES.replace("times: 3}", "times: 2}"), "finding 1 of 1 did not come"),
                       ("rules:\n  - {id: r, severity: info, message: '{x}', match: {kinds: [exec]}}", ":2:"), ("\t", ":1:"),
                       (NEVER, ":2:81: path: rule never: its kinds of events have no field path, so this never matches; these have it: file_transfer, sensitive_open"),
                       ("&a [*a]", ":1:"), ("\0", "bad"), ("{" * 100, "bad"), ("- " * 50000, "bad")):
        write(text, bad)
        for action in (("check", bad), ("ls", bad), ("show", "r", bad), ("test", bad)):
            r = offline(*action)
            check(r.returncode == 1 and says in r.stderr and r.stdout == "", f"{text[:60]!r} {action}: {r.returncode} {r.stderr}")
    os.remove(bad)
    check("No such file" in offline("check", bad).stderr, "it is not there")
    check(offline("check").returncode == 2 and offline("mend", PATH).returncode == 2, "the line is wrong")
    check("no rule nothing" in offline("show", "nothing", PATH).stderr, "there is no such rule")


def files_are_checked_and_shown_without_a_broker(b):
    check("7 rules, 1 test passed" in offline("check", FOLDER).stdout, offline("check", FOLDER).stdout)
    all_ = json.loads(offline("ls", "-o", "json", PATH).stdout)
    check([r["id"] for r in all_][:2] == ["marked-1", "flood"] and all_[0]["tags"] == ["T1059"], all_)
    shown = offline("show", "marked-1", PATH).stdout
    check("threshold    3 within 1m" in shown and "decided by   broker" in shown and "comparisons" in shown, shown)
    check("passed  marked-1: three" in offline("test", PATH).stdout, offline("test", PATH).stdout)


def a_rule_finds_and_finds_again_in_each_job(b):
    box = create(b)
    for _ in range(2):
        run(b, box, "/usr/bin/true; /usr/bin/true; /usr/bin/true; /usr/bin/true; sleep 0.2")
    mine = until(lambda: len(all_ := findings(b, "--sandbox", box, "--rule", "marked-1")) > 1 and all_, "two findings")
    check(len(mine) == 2 and mine[0]["text"] == "3 times /usr/bin/true in default", mine)
    check(mine[0]["process_id"] != mine[1]["process_id"] != "" and mine[0]["score"] == 3, mine)
    text = b.cli("metrics", "--prometheus").stdout.decode()
    check('stockade_findings_total{rule="written"}' in text, "they are counted")
    check(float(text.split("\nstockade_rule_comparisons_total ")[1].split()[0]) >= 8, "so is the work")
    b.cli("rm", box)


def a_sequence_needs_its_order(b):
    box = create(b)
    run(b, box, "/usr/bin/uname; /usr/bin/id; sleep 0.2")
    run(b, box, "/usr/bin/id; /usr/bin/uname; sleep 0.2")
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "order"), "the second job")
    check(len(mine) == 1 and mine[0]["text"] == "/usr/bin/uname after id", mine)
    b.cli("rm", box)


def a_flood_of_keys_is_a_finding(b):
    box = create(b)
    run(b, box, "for i in $(seq 200); do /usr/bin/printf $i; done; sleep 0.2")
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "flood"), "too many keys")
    check(len(mine) == 1 and "too many" in mine[0]["text"] and mine[0]["response"] == "log", mine)
    b.cli("rm", box)


def each_response_follows(b):
    box = create(b)
    cpu = box_of(b, box)["limits"]["cpu_millis"]
    run(b, box, "/usr/bin/true throttle-me; sleep 0.2")
    until(lambda: box_of(b, box)["limits"]["cpu_millis"] < cpu, "it is throttled")
    b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "/usr/bin/true pause-me; sleep 100")
    until(lambda: box_of(b, box)["state"] == "PAUSED", "it is paused")
    b.cli("rm", box)
    box = create(b)
    b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "/usr/bin/true kill-me; sleep 100")
    until(lambda: b.cli("get", box).returncode != 0, "it is removed")
    check("kill-it" in b.log(), "the log says why")


FIRST = """
rules:
  - {id: first-kill, severity: critical, response: kill, snapshot_first: true, message: m, match: {kinds: [exec], all: [{arguments: {glob: ["*keep-me*"]}}]}}
  - {id: first-pause, severity: warning, response: pause, snapshot_first: true, message: m, match: {kinds: [exec], all: [{arguments: {glob: ["*rest-me*"]}}]}}
"""
# The shell's own arguments must not match, or the response comes before there is evidence.
FILLING = "m=me; /usr/bin/true keep-$m; for i in $(seq 1000000); do echo $i > f$((i % 50)); done"


def said(b, rule, box):
    return [f["text"] for f in findings(b, "--rule", rule, "--sandbox", box)]


def a_snapshot_comes_before_the_response(b):
    with open(FOLDER + "/first.yaml", "w", encoding="utf-8") as f:
        f.write(FIRST)
    own(b, "set", FOLDER + "/first.yaml")
    check(b.json("rules", "show", "first-kill")[1]["snapshot_first"], "it is shown")
    box = create(b)
    b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "echo there > evidence; m=me; /usr/bin/true rest-$m; sleep 100")
    until(lambda: box_of(b, box)["state"] == "PAUSED", f"it is paused: {b.log()[-2000:]}")
    check(any(t.startswith("snapshot finding-") and t.endswith("was taken before the response, pause") for t in said(b, "first-pause", box)),
          said(b, "first-pause", box))
    check(len(b.json("snapshot", "ls", box)[1]) == 1, "the sandbox has it")
    b.cli("rm", box)
    box = create(b)
    b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "echo there > evidence; " + FILLING)  # it goes on writing
    until(lambda: b.cli("get", box).returncode != 0, "it is removed")
    text = next(t for t in said(b, "first-kill", box) if t != "m")
    check("was taken, and kept, before the response, kill" in text, text)
    name = text.split()[1]
    new = create(b, "--snapshot", name)
    r = b.cli("exec", "-n", new, "--", "cat", "evidence")
    check(r.stdout == b"there\n", r)
    box = create(b)  # a snapshot of the tenant's rule does not delay a response of the host's
    b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "/usr/bin/true kill-me keep-me; sleep 100")
    until(lambda: b.cli("get", box).returncode != 0, "it is removed")
    # the shell and the program match, and are two findings if the shell is killed late
    check(f"kill sandbox {box}: rule kill-it" in b.log() and set(said(b, "first-kill", box)) == {"m"}, said(b, "first-kill", box))
    # A tenant keeps eight: the response follows all the same.
    for i in range(8):
        box = create(b)
        b.popen("exec", "-n", box, "--", "/bin/sh", "-c", "/usr/bin/true keep-me; sleep 100")
        until(lambda: b.cli("get", box).returncode != 0, "it is removed")
    check(any("no snapshot was taken before the response, kill: the tenant keeps eight" in t for t in said(b, "first-kill", box)), said(b, "first-kill", box))
    for m in b.json("snapshot", "ls")[1]:
        b.cli("snapshot", "rm", m["kept_id"])
    own(b, "rm", "first")


def a_network_can_be_denied(b):
    r = b.cli("create", "--template", "wide", "--allow", "192.0.2.1:80")
    if r.returncode != 0:
        raise Skipped(f"no network for sandboxes: {r.stderr}")
    box = r.stdout.decode().strip()
    check(b.json("network", box)[1]["mode"] != "none", "it has a network")
    run(b, box, "/usr/bin/true deny-me; sleep 0.2")
    until(lambda: b.json("network", box)[1]["mode"] == "none", "it has none")
    b.cli("rm", box)


def own(b, *args, by=None, code=0, says=""):
    """Runs `stockade rules`, as the broker's own account or as another tenant."""
    r = (by or b.cli)("rules", *args)
    check(r.returncode == code, f"rules {args}: {r.returncode} {r.stdout} {r.stderr}")
    text = (r.stdout + r.stderr).decode()
    check(says in text, f"rules {args}: {says!r} is not in {text}")
    return r.stdout.decode()


def set_own(b, name, text, **more):
    write(text, FOLDER + "/own")
    try:
        return own(b, "set", "--name", name, FOLDER + "/own", **more)
    finally:
        os.remove(FOLDER + "/own")


def wrong_rules_of_a_tenant_change_nothing(b):
    set_own(b, "mine", OWN % ("mine", "log", "look-here"))
    for text, says in (("rules: [{id: r}]", "mine:1:9: "), ("\t", "mine:1:"), (OWN % ("flood", "log", "x"), "flood is a rule of the host"),
                       (OWN % ("fork-storm", "log", "x"), "is a rule of the host"), (OWN % ("rules-over-budget", "log", "x"), "of the host"), (OWN % ("rules-events-lost", "log", "x"), "of the host"),
                       ("rules: [{id: fork-storm, tripwire: true, severity: info}]", "only the host may change a tripwire"),
                       (OWN % ("x", "log", "x") * 2, "duplicate"), (NEVER, "mine:2:81: path: rule never: its kinds of events have no field path"), ("rules:\n" + "".join(
                           f"  - {{id: r{i}, severity: info, message: m, match: {{kinds: [exec]}}}}\n" for i in range(33)), "mine:34:5: more than 32 rules"),
                       ("rules:\n  - {id: r, severity: info, message: m, match: {kinds: [exec], all: [{arguments: {glob: [" +
                        ", ".join(["'*a*b*'"] * 64) + "]}}]}}\n" * 1, "")):
        set_own(b, "mine" if says else "cost", text, code=1 if says else 0, says=says)
        check("look-here" in own(b, "get", "mine"), "the file is as it was")
    own(b, "rm", "cost")
    set_own(b, "other", OWN % ("mine", "log", "x"), code=1, says="mine is the id of a rule at mine:3 already")
    set_own(b, "A", "rules: []", code=2, says="lower-case")
    write("x" * 40000, FOLDER + "/own")
    own(b, "set", FOLDER + "/own", code=1, says="text: 32769 bytes")
    os.remove(FOLDER + "/own")
    for name in ("fork-storm", "flood"):
        own(b, "disable", name, code=1, says="of the host, which a tenant cannot change")
    own(b, "enable", "nothing", code=1, says="there is no rule nothing")
    own(b, "rm", "nothing", code=1, says="there is no file of rules nothing")
    own(b, "get", "nothing", code=1, says="there is no file of rules nothing")
    own(b, "set", code=2, says="needs a FILE")
    own(b, "rm", "mine")


def a_tenant_has_rules_of_its_own(b):
    set_own(b, "mine", OWN % ("mine", "log", "look-here"))
    check(" own " in own(b, "ls") and "fork-storm" not in own(b, "ls"), own(b, "ls"))
    check("fork-storm" in own(b, "ls", "--host") and "kill-it" in own(b, "ls", "--host"), own(b, "ls", "--host"))
    box = create(b)
    run(b, box, "/usr/bin/true look-here; sleep 0.2")
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "mine"), "a finding")
    check(mine[0]["tags"] == ["T1059.004", "mine"] and mine[0]["tenant_rule"] and "look-here" in mine[0]["text"], mine)
    check("findings 1" in own(b, "show", "mine"), own(b, "show", "mine"))
    own(b, "disable", "mine", says="mine is off")
    run(b, box, "/usr/bin/true look-here; sleep 0.2")
    check(len(findings(b, "--sandbox", box, "--rule", "mine")) == 1, "it is off")
    set_own(b, "mine", OWN % ("mine", "log", "look-here"), says=" off ")
    own(b, "enable", "mine", says="mine is on")
    run(b, box, "/usr/bin/true look-here; sleep 0.2")
    until(lambda: len(findings(b, "--sandbox", box, "--rule", "mine")) == 2, "it is on")
    b.cli("rm", box)


def rules_of_a_tenant_are_for_its_sandboxes_only(b):
    set_own(b, "theirs", OWN % ("theirs", "kill", "look-here"), by=b.stranger)
    try:
        check("theirs" not in own(b, "ls"), "another tenant does not see them")
        own(b, "get", "theirs", code=1, says="there is no file")
        own(b, "disable", "mine", code=1, says="there is no rule mine\n  hint", by=b.stranger)  # rules has no option --rule
        own(b, "ls", "--tenant", f"uid:{os.getuid()}", code=77, says="may see only its own", by=b.stranger)
        box = create(b)
        run(b, box, "/usr/bin/true look-here; sleep 0.2")
        until(lambda: findings(b, "--sandbox", box, "--rule", "mine"), "a finding of the own rule")
        check(box_of(b, box)["state"] == "RUNNING" and len(findings(b, "--sandbox", box)) == 1, "no other rule sees it")
        b.cli("rm", box)
    finally:
        own(b, "rm", "theirs", by=b.stranger)


def a_call_compares_given_events(b):
    with contextlib.closing(connect(b)) as c:
        events = [{"kind": 13, "executable": "/bin/x", "arguments": "x look-here", "times": 3}, {"kind": 13, "arguments": "x"}]
        events[0]["kind"] = events[1]["kind"] = sp.message("stockade.v1.Event").DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_name["EVENT_KIND_EXEC"].number
        answer = c.unary(RULES_SERVICE + "Test", {"events": events})
        check(answer.events == 4 and [f.event for f in answer.findings] == [1] and answer.findings[0].rule == "mine", answer)
        answer = c.unary(RULES_SERVICE + "Test", {"text": OWN % ("new", "kill", "x"), "events": events})
        check([f.rule for f in answer.findings] == ["new"] and answer.findings[0].response == "kill", answer)
        many = [{**events[0], "times": 10000, "arguments": "a" * 2000}] * 64
        failed = c.fails(RULES_SERVICE + "Test", {"events": many})
        check(failed.code == 8 and "RULE_TEST_WORK" in str(failed.details), failed)
        checked = c.unary(RULES_SERVICE + "Check", {"name": "mine", "text": OWN % ("new", "log", "x")})
        check([r.id for r in checked.rules] == ["new"] and "new" not in own(b, "ls"), checked)
        failed = c.fails(RULES_SERVICE + "Check", {"name": "mine", "text": "rules: [{id: new}]"})
        check(failed.code == 3 and "mine:1:9: " in failed.message, failed)


def rules_of_tenants_outlast_the_broker(b):
    own(b, "disable", "mine")
    before = own(b, "get", "mine")
    b.kill()
    b.start()
    check(own(b, "get", "mine") == before and " off " in own(b, "ls"), own(b, "ls"))
    own(b, "rm", "mine")
    check("mine" not in own(b, "ls"), "it is gone")


def a_dry_run_finds_what_happened(b):
    write(LATER.replace("later", "dry"), FOLDER + "/dry")
    box = create(b)
    run(b, box, "/usr/bin/env true; sleep 0.2")
    code, out = b.json("rules", "test", "--kept", FOLDER + "/dry")
    check(code == 0 and any(f["sandbox_id"] == box and f["text"] == "/usr/bin/env" for f in out["findings"]), out)
    check(not findings(b, "--sandbox", box), "nothing happened")
    check(out["rules"][0]["matched"] >= 1 and out["events"] > 10, out)
    b.cli("rm", box)
    os.remove(FOLDER + "/dry")


def a_reload_is_whole_or_nothing(b):
    box = create(b)
    write(LATER + "  - {id: broken}\n")
    new = b.reload()
    check("reload-refused: the old configuration stays: " in new and f"{PATH}:4:5: " in new, new)
    run(b, box, "/usr/bin/id; /usr/bin/uname; /usr/bin/env true; sleep 0.2")
    until(lambda: findings(b, "--sandbox", box, "--rule", "order"), "the old rules are in force")
    write(LATER)
    check("rules" in b.reload(), "it says what changed")
    run(b, box, "/usr/bin/id; /usr/bin/uname; /usr/bin/env true; sleep 0.2")
    until(lambda: findings(b, "--sandbox", box, "--rule", "later"), "the new rules are in force")
    check(len(findings(b, "--sandbox", box)) == 2, findings(b, "--sandbox", box))
    write(LATER.replace("severity: info,", "severity: info, disabled: true,"))
    b.reload()
    run(b, box, "/usr/bin/env true; sleep 0.2")
    check(len(findings(b, "--sandbox", box)) == 2, "a disabled rule finds nothing")
    b.cli("rm", box)


def a_tripwire_is_tuned_and_switched_off(b):
    def severities():
        box = create(b)
        run(b, box, "cat /etc/shadow; sleep 0.2")
        try:
            until(lambda: findings(b, "--sandbox", box), "a finding", 2)
        except AssertionError:
            pass
        mine = findings(b, "--sandbox", box, "--rule", "sensitive-path")
        b.cli("rm", box)
        return [f["severity"] for f in mine]

    write("rules: []")
    b.reload()
    if severities() != ["warning"]:
        raise Skipped("the programs for telemetry cannot be loaded here")
    write("rules: [{id: sensitive-path, tripwire: true, severity: critical}]")
    check("anomalies.rules.sensitive-path" in b.reload(), "it says what changed")
    check(severities() == ["critical"], "its severity is another one")
    write("rules: [{id: sensitive-path, tripwire: true, severity: critical, disabled: true}]")
    b.reload()
    check(severities() == [], "it is switched off")
    write("rules: [{id: sensitive-path, tripwire: true, severity: warning, exceptions: [{reason: a test, match: {path: {suffix: [/shadow]}}}]}]")
    b.reload()
    check(severities() == [], "a known case is no finding")
    code, shown = b.json("rules", "show", "sensitive-path")
    check(code == 0 and "suffix: [/shadow]" in shown["definition"] and "own_tool" in shown["definition"], f"added: {shown}")
    write("rules: [{id: sensitive-path, tripwire: true, severity: warning, match: {kinds: [sensitive_open], all: [{path: {exact: [/etc/gshadow]}}]},"
          " message: '{operation} of {path} in {window}: {event}'}]")
    b.reload()
    check(severities() == [], "another condition")
    box = create(b)
    run(b, box, "cat /etc/gshadow; sleep 0.2")
    until(lambda: findings(b, "--sandbox", box, "--rule", "sensitive-path"), "the new condition")
    text = findings(b, "--sandbox", box, "--rule", "sensitive-path")[0]["text"]
    check(text == 'open of /etc/gshadow in 60 s: an open of "/etc/gshadow" failed: ENOENT', text)
    b.cli("rm", box)
    write("rules: [{id: mining, tripwire: true, severity: critical, match: {kinds: [exec]}}]")
    check("keeps its built-in condition" in b.reload(), "what the broker decides itself stays")
    r = offline("check", PATH)
    check(r.returncode != 0 and "keeps its built-in condition" in r.stderr, r)
    write("rules: [{id: nothing, tripwire: true, severity: critical}]")
    r = offline("check", PATH)
    check(r.returncode != 0 and "there is no tripwire nothing" in r.stderr, r)
    check("there is no tripwire nothing" in b.reload(), "there is no such tripwire")
    write("rules: []")
    b.reload()
    check(severities() == ["warning"], "it is as before")


def the_broker_does_not_start_with_wrong_rules(b):
    write("rules: [{id: broken}]")
    b.stop()
    r = subprocess.run([binary("stockaded"), "--config", f"{b.folder}/stockaded.yaml", "--check-config"], capture_output=True, text=True, check=False)
    check(r.returncode != 0 and f"{PATH}:1:9: " in r.stdout + r.stderr, r)


if __name__ == "__main__":
    write(RULES)
    with Broker(config=CONFIG % PATH) as broker:
        sys.exit(run_cases([wrong_files_say_where, files_are_checked_and_shown_without_a_broker,
                            a_rule_finds_and_finds_again_in_each_job, a_sequence_needs_its_order, a_flood_of_keys_is_a_finding,
                            each_response_follows, a_snapshot_comes_before_the_response, a_network_can_be_denied,
                            wrong_rules_of_a_tenant_change_nothing, a_tenant_has_rules_of_its_own,
                            rules_of_a_tenant_are_for_its_sandboxes_only, a_call_compares_given_events,
                            a_dry_run_finds_what_happened, rules_of_tenants_outlast_the_broker,
                            a_reload_is_whole_or_nothing, a_tripwire_is_tuned_and_switched_off,
                            the_broker_does_not_start_with_wrong_rules], lambda case: case(broker)))
