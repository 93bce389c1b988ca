#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Detection rules that the kernel decides or counts, and what `rules show` says about who decides: paths, destinations, system calls."""

import json
import pathlib
import sys

from api import connect
from broker import Broker
from rules import CONFIG, PATH, RULES_SERVICE, create, findings, offline, run, write
from runner import Skipped, check, run_cases, until

EXAMPLES = str(pathlib.Path(__file__).parents[2] / "deploy" / "rules" / "examples.yaml")
MARKED = """
rules:
  - id: marked-file
    severity: info
    match: {kinds: [sensitive_open], all: [{path: {exact: [/home/agent/marked], prefix: [/home/agent/data/]}}]}
    aggregate: {once_for: [path]}
    message: "{operation} of {path}"
"""


def the_kernel_reports_the_paths_that_a_rule_names(b):
    write(MARKED.replace("/agent/marked", "/../marked"))
    check("the path /home/../marked of a rule must not have" in b.reload(), "a path that no file has")
    write(MARKED.replace("/home/agent/marked", ", ".join(f"/m/{i}" for i in range(64))))
    check("more than 64 paths" in b.reload(), "the kernel's table has a bound")
    write(MARKED)
    b.reload()
    shown = b.json("rules", "show", "marked-file")[1]
    check(shown["decided_by"] == "kernel" and shown["kernel_paths"] == 2, shown)
    box = create(b)
    run(b, box, "cd /home/agent; mkdir data; echo > marked; echo > data/x; echo > other; cat marked > /dev/null; sleep 0.2")
    until(lambda: len(findings(b, "--sandbox", box)) >= 2, "both paths")
    check({f["text"] for f in findings(b, "--sandbox", box)} == {"open of /home/agent/marked", "open of /home/agent/data/x"}, findings(b, "--sandbox", box))
    run(b, box, "cd /home/agent/data; mkdir .ssh; cat .ssh/id_rsa; sleep 0.2")
    until(lambda: findings(b, "--sandbox", box, "--rule", "credential-use"), "a rule about a folder hides no tripwire")
    write("rules: []")
    b.reload()
    b.cli("rm", box)
    box = create(b)
    run(b, box, "cd /home/agent; echo > marked; sleep 0.3")
    check(b.cli("events", "--sandbox", box, "--kind", "sensitive_open").stdout == b"", "it is not reported any more")
    b.cli("rm", box)


NETWORK = """
rules:
  - id: to-a-port
    severity: notice
    match: {kinds: [connect], all: [{address: {within: [192.0.2.4/30]}, port: {exact: [4444]}}]}
    message: "connected to {destination}"
  - id: no-such-call
    severity: notice
    match: {kinds: [io_uring], all: [{call: {exact: [getpid]}}]}
    message: "{call}"
  - id: spread
    severity: notice
    match: {kinds: [connect]}
    aggregate: {function: distinct, of: destination, threshold: 30, window: 1h}
    message: "{count} destinations"
"""
# As many connections as it takes to lose events, and one more in the middle.
CONNECTIONS = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(40000):
    s.connect(("192.0.2.7", 4444) if i == 30000 else ("192.0.2.1", 5000))
"""


def the_examples_pass_their_tests_and_say_who_decides(b):
    r = offline("check", EXAMPLES)
    check(r.returncode == 0 and r.stderr == "" and "4 rules, 8 tests passed" in r.stdout, r)
    for rule, who in (("database-network", "kernel"), ("locked-memory", "kernel"), ("model-weights", "kernel"), ("many-compilers", "broker")):
        check(f"decided by   {who}: " in offline("show", rule, EXAMPLES).stdout, f"{rule} without a broker")
    with open(EXAMPLES, encoding="utf-8") as f:
        write(f.read())
    b.reload()
    shown = {rule: b.json("rules", "show", rule)[1]["decided_by"] for rule in ("database-network", "locked-memory", "model-weights", "many-compilers")}
    check(shown == {"database-network": "kernel", "locked-memory": "kernel", "model-weights": "kernel", "many-compilers": "broker"}, shown)


def a_rule_says_who_decides_it(b):
    write(NETWORK)
    r = offline("check", PATH)
    check(r.returncode == 0 and f"{PATH}:7: warning: no-such-call: no program reports the system calls" in r.stderr, r)
    check("decided by   nobody: no program reports" in offline("show", "no-such-call", PATH).stdout, "without a broker")
    b.reload()
    shown = b.json("rules", "show", "no-such-call")[1]
    check(shown["decided_by"] == "nobody" and "it finds nothing" in shown["decided_why"], shown)
    shown = b.json("rules", "show", "to-a-port")[1]
    check(shown["decided_by"] == "kernel" and "no loss of events hides one" in shown["decided_why"] and shown["kernel_destinations"] == 1, shown)
    text = b.cli("rules", "show", "to-a-port").stdout
    check(b"decided by   kernel: its programs find the" in text and b"the kernel finds and counts 1 for this rule" in text, text)
    shown = offline("show", "to-a-port", PATH).stdout
    check("decided by   kernel" in shown and "the kernel finds and counts 1 for this rule" in shown, "without a broker")
    write(NETWORK.replace("{kinds: [connect], all: ", "{kinds: [connect], not: "))
    b.reload()
    shown = b.json("rules", "show", "to-a-port")[1]
    check(shown["decided_by"] == "broker" and "all events of these kinds are reported" in shown["decided_why"], shown)
    check("those that leave the sandbox, but not to port 53" in shown["decided_why"], shown)


def a_flood_of_connections_hides_no_destination(b):
    write(NETWORK)
    b.reload()
    r = b.cli("create", "--template", "wide", "--allow", "192.0.2.0/24:1-65535/udp")
    if r.returncode != 0:
        raise Skipped(f"no network for sandboxes: {r.stderr}")
    box = r.stdout.decode().strip()
    r = b.cli("exec", "-n", box, "--", "python3", "-c", CONNECTIONS)
    check(r.returncode == 0, r)
    until(lambda: findings(b, "--sandbox", box, "--rule", "to-a-port"), "the first connection to it needs no budget")
    lost = until(lambda: findings(b, "--sandbox", box, "--rule", "rules-events-lost"), "the others were lost, and the rule says so")
    check(len(lost) == 1 and "events of class network were lost, so rules about them (2) may have" in lost[0]["text"], lost)
    check(lost[0]["text"].endswith(": to-a-port, spread"), lost)
    check(lost[0]["severity"].lower().endswith("info"), lost)
    spread = b.json("rules", "show", "spread")[1]
    check(spread["incomplete"] and int(spread["missed"]) > 1000, f"its count of the window is incomplete, and it says so: {spread}")
    shown = b.cli("rules", "show", "spread").stdout
    check(b", 0 counts given up" in shown and b"incomplete   its counts of this window may be too low" in shown, shown)
    check(any(line.startswith(b"spread  ") and b"incomplete" in line for line in b.cli("rules", "ls", "--host").stdout.splitlines()), "also in the list")
    counted = b.json("rules", "show", "to-a-port")[1]
    check(not counted.get("incomplete") and int(counted.get("missed", 0)) == 0, f"the kernel's counter stands for what was lost: {counted}")
    metrics = b.cli("metrics", "--prometheus", "rule_events_lost").stdout.decode().splitlines()
    check([float(line.split()[1]) >= int(spread["missed"]) for line in metrics if not line.startswith("#")] == [True], f"the metric has them: {metrics}")
    b.cli("rm", box)


HIDDEN = """
rules:
  - {id: v4, severity: notice, message: "to {destination}", match: {kinds: [connect], all: [{address: {within: [192.0.2.7]}, port: {exact: [4444]}}]}}
  - {id: v6, severity: notice, message: "to {destination}", match: {kinds: [connect], all: [{address: {within: ["2001:db8:1::/48"]}, protocol: {exact: [udp]}}]}}
  - {id: refused, severity: notice, message: "to {destination}", match: {kinds: [denied], all: [{address: {within: [198.51.100.0/24]}}]}}
  - {id: many, severity: notice, message: "{count} to {destination}", aggregate: {threshold: 3000}, match: {kinds: [connect], all: [{port: {min: 30, max: 40}}]}}
  - {id: by-program, severity: notice, message: "to {destination}", match: {kinds: [connect], all: [{port: {exact: [31]}, comm: {exact: [other]}}]}}
"""
# 8,192 other destinations, which the kernel's memory of first ones cannot hold, and then the ones that rules are about.
HIDING = """
import socket
s, six = (socket.socket(f, socket.SOCK_DGRAM) for f in (socket.AF_INET, socket.AF_INET6))
def refused(port):
    try:
        s.connect(("198.51.100.9", port))
    except PermissionError:
        return
    raise SystemExit("it was allowed")
for i in range(8192):
    s.connect(("192.0.2.1", 5000 + i))
for i in range(2048):
    try:
        s.connect(("203.0.113.1", 5000 + i))
    except PermissionError:
        pass
s.connect(("192.0.2.7", 4444))
six.connect(("2001:db8:1::5", 4444))
refused(4444)
for i in range(4000):
    s.connect(("192.0.2.1", 31))
"""


def no_loss_of_events_hides_a_destination(b):
    write(HIDDEN)
    b.reload()
    shown = {r: b.json("rules", "show", r)[1] for r in ("v4", "many", "by-program")}
    check([shown[r]["decided_by"] for r in shown] == ["kernel", "broker", "broker"], shown)
    check("lost events included" in shown["many"]["decided_why"] and "compares the rest" in shown["by-program"]["decided_why"], shown)
    r = b.cli("create", "--template", "wide", "--allow", "192.0.2.0/24:1-65535/udp", "--allow", "[2001:db8::/32]:1-65535/udp")
    if r.returncode != 0:
        raise Skipped(f"no network for sandboxes: {r.stderr}")
    box = r.stdout.decode().strip()
    r = b.cli("exec", "-n", box, "--", "python3", "-c", HIDING)
    check(r.returncode == 0, r)
    for rule, text in (("v4", "to 192.0.2.7:4444"), ("v6", "to [2001:db8:1::5]:4444"), ("refused", "to 198.51.100.9:4444")):
        mine = until(lambda rule=rule: findings(b, "--sandbox", box, "--rule", rule), f"{rule} is found")
        check([f["text"] for f in mine] == [text], mine)
    # 4,000 connections within a second have far fewer events: the kernel's counter is behind them.
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "many"), "all are counted")
    check(len(mine) == 1 and 3000 <= mine[0]["score"] <= 4000 and " to port 30-40 (counted by the kernel; events lost: " in mine[0]["text"], mine)
    check(not findings(b, "--sandbox", box, "--rule", "by-program"), "another program")
    lost = until(lambda: [f for f in findings(b, "--sandbox", box, "--rule", "rules-events-lost") if "ruled-network" in f["text"]], "it says so")
    check("by-program" in lost[0]["text"], lost)
    write("rules: []")
    b.reload()
    r = b.cli("exec", "-n", box, "--", "python3", "-c", HIDING)
    check(r.returncode == 0 and [f["rule"] for f in findings(b, "--sandbox", box)].count("v4") == 1, "the rules are gone")
    write(HIDDEN)
    b.reload()
    run(b, box, "sleep 0.4")
    check(len(findings(b, "--sandbox", box, "--rule", "many")) == 1, "connections before the rule do not count")
    b.cli("rm", box)


ASKED = """
rules:
  - {id: priority, severity: notice, message: "{comm} {call}", match: {kinds: [dangerous_call], all: [{call: {exact: [getpriority]}}]}}
  - {id: many, severity: notice, message: "{count} {call}", aggregate: {threshold: 2000}, match: {kinds: [dangerous_call], all: [{call: {exact: [getpriority, sysinfo]}}]}}
  - {id: no-such, severity: notice, message: "{call}", match: {kinds: [dangerous_call], all: [{call: {exact: [getpriorities]}}]}}
  - {id: any-call, severity: notice, message: "{call}", match: {kinds: [dangerous_call]}}
"""
ASKING = "import os\nfor i in range(3000): os.getpriority(os.PRIO_PROCESS, 0)\n"


def a_rule_asks_for_a_call_that_nobody_watches(b):
    write(ASKED)
    check("no system call getpriorities" in b.reload(), "the log says so")
    shown = b.json("rules", "show", "priority")[1]
    check(shown["decided_by"] == "kernel" and shown["kernel_calls"] == 1 and "because the rule names it" in shown["decided_why"], shown)
    shown = b.json("rules", "show", "no-such")[1]
    check(shown["decided_by"] == "nobody" and "this host has no system call" in shown["decided_why"], shown)
    box = create(b)
    r = b.cli("exec", "-n", box, "--", "python3", "-c", ASKING)
    check(r.returncode == 0, r)
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "priority"), "the call")
    check(mine[0]["text"] == "python3 getpriority" and mine[0]["process_id"] != "", mine)
    mine = until(lambda: findings(b, "--sandbox", box, "--rule", "many"), "all are counted")
    check(len(mine) == 1 and 2000 <= mine[0]["score"] <= 3100 and "counted by the kernel" in mine[0]["text"], mine)
    others = {f["rule"] for f in findings(b, "--sandbox", box)} - {"priority", "many", "rules-events-lost"}
    check(not others, f"it is no dangerous call, which other rules and tripwires are about: {others}")
    events = json.loads(b.cli("events", "--sandbox", box, "--kind", "dangerous_call", "-o", "json").stdout.splitlines()[0])
    check(events["call"]["ruled"] and events["severity"] == "info", events)
    write("rules: []")
    b.reload()
    new = create(b)
    r = b.cli("exec", "-n", new, "--", "python3", "-c", ASKING)
    check(r.returncode == 0 and b.cli("events", "--sandbox", new, "--kind", "dangerous_call").stdout == b"", "it is not reported any more")
    b.cli("rm", box, new)


def more_than_the_kernel_holds_is_left_to_the_broker(b):
    rule = "  - {id: %s-%d, severity: info, message: m, match: {kinds: [%s], all: [{%s}]}}\n"
    calls = ("alarm brk capget dup eventfd2 fchdir fdatasync flock fsync getcpu getegid geteuid getgid getgroups getitimer getpgid "
             "getppid getpriority getrandom getresgid getresuid getrusage getsid gettid getuid lseek madvise mincore mlock msync "
             "nanosleep pause pipe2 poll").split()
    write("rules:\n" + "".join(rule % ("to", i, "connect", f"address: {{within: [192.0.2.{i}]}}") for i in range(65)) +
          "".join(rule % ("call", i, "dangerous_call", f"call: {{exact: [{c}]}}") for i, c in enumerate(calls)))
    check(f"warning: call-{len(calls) - 1}: the kernel has no room" in offline("check", PATH).stderr, offline("check", PATH))
    b.reload()
    for name, by in (("to-63", "kernel"), ("to-64", "broker"), ("call-31", "kernel"), (f"call-{len(calls) - 1}", "nobody")):
        shown = b.json("rules", "show", name)[1]
        check(shown["decided_by"] == by, shown)
        check(by == "kernel" or "are full" in shown["decided_why"] or "no room" in shown["decided_why"], shown)
    write("rules: []")
    b.reload()


CALLS = """
rules:
  - {id: looks, severity: info, message: m, match: {kinds: [sensitive_open], all: [{path: {exact: [/home/agent/marked]}}]}}
  - {id: programs, severity: info, message: m, match: {kinds: [exec, sensitive_open], all: [{comm: {exact: [x]}}]}}
"""


def a_rule_says_that_system_calls_are_not_watched(watching):
    watching.stop()  # the next one has its ids
    write(CALLS)
    with Broker(config=CONFIG % PATH + "anomalies: {syscalls: false}\n") as b:
        shown = b.json("rules", "show", "looks")[1]
        check("system calls are not watched (anomalies.syscalls, telemetry.syscalls)" in shown["decided_why"], shown)
        shown = b.json("rules", "show", "programs")[1]
        check("of some of these kinds" in shown["decided_why"], shown)
        c = connect(b)
        text = CALLS.replace("id: ", "id: own-")
        for method, request in (("Set", {"name": "own", "text": text}), ("Get", {"name": "own"})):
            rules = c.unary(RULES_SERVICE + method, request).rules
            why = next(r.decided_why for r in rules if r.id == "own-looks")
            check("system calls are not watched" in why, f"{method} says the same: {why}")


if __name__ == "__main__":
    write("rules: []")
    with Broker(config=CONFIG % PATH) as broker:
        sys.exit(run_cases([the_kernel_reports_the_paths_that_a_rule_names, the_examples_pass_their_tests_and_say_who_decides,
                            a_rule_says_who_decides_it,
                            a_flood_of_connections_hides_no_destination, no_loss_of_events_hides_a_destination,
                            a_rule_asks_for_a_call_that_nobody_watches, more_than_the_kernel_holds_is_left_to_the_broker,
                            a_rule_says_that_system_calls_are_not_watched], lambda case: case(broker)))
