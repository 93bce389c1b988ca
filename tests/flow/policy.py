#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policies through the real binaries: what is refused, what is allowed, reloads that are whole or nothing, limits and rates."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

from broker import Broker, binary
from runner import check, run_cases
from slowness import scaled

CONFIG = """
pool: 2
policy_files: [%s]
templates:
  - {name: default, limits: {memory: 64M}}
  - {name: wide, pool: 0, network_max: {mode: allowlist, outbound: [192.0.2.0/24]}}
"""
BASE = """
layers:
  - name: base
    rules:
      - id: no-push
        match: {methods: ["ProcessService/*"], commands: ["git push ...", "/usr/bin/git push ..."]}
        verdict: deny
        reason: a person pushes
        tests:
          - {call: {command: [git, push, origin]}, expect: deny, rule: base/no-push}
          - {call: {command: [git, log]}, expect: allow}
      - id: no-secrets
        match: {methods: ["FileService/*"], paths: [/etc/shadow, "*/.ssh/*"]}
        verdict: deny
      - id: big
        match: {limits_above: {memory: 512M}}
        verdict: deny
      - {id: there, match: {destinations: [192.0.2.0/24]}, verdict: deny}
      - {id: people, match: {commands: [deploy]}, verdict: ask, ask: {approvers: ["uid:0"]}}
  - name: small
    tenants: [small]
    rules:
      - {id: memory, match: {methods: [ProcessService/Run, SandboxService/Create]}, verdict: limit, limit: {limits: {memory: 32M, output: 1K}}}
  - name: slow
    tenants: [slow]
    rules:
      - {id: rate, match: {methods: [SystemService/*, ProcessService/Run]}, verdict: limit, limit: {rate: {calls: 2, period: 1h, of: credential}}}
  - name: closed
    tenants: [closed]
    otherwise: deny
    reason: only git
    rules:
      - {id: git, match: {methods: [ProcessService/Run], commands: ["git ...", "true"]}, verdict: allow}
"""


def stockade(b, *args, token=None):
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = b.address
    if token is not None:
        env["STOCKADE_TOKEN"] = token
    return subprocess.run([binary("stockade"), *args], env=env, capture_output=True, text=True, check=False, timeout=scaled(60))


def refused(r, code, *words):
    check(r.returncode == code and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def allowed(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


def run(b, *args, **more):
    return stockade(b, "run", "--", *args, **more)


def key(b, tenant):
    return json.loads(allowed(stockade(b, "key", "create", "-o", "json", "--tenant", tenant)))["secret"]


def write(b, text, name="base.yaml"):
    with open(f"{b.policies}/{name}.new", "w", encoding="utf-8", errors="surrogateescape") as f:
        f.write(text)
    os.rename(f"{b.policies}/{name}.new", f"{b.policies}/{name}")


def reload(b, text, word):
    """Writes a policy; gives the line of the log about it."""
    write(b, text)
    line = b.reload()
    check(word in line, line)
    return line


def a_rule_refuses_and_says_what_is_allowed(b):
    refused(run(b, "git", "push", "x"), 77, "a person pushes", "base/no-push", "allowed: commands other than git push")
    refused(run(b, "git", "push", "x"), 77, "hint: for more, ask this host's administrator to change base/no-push")
    e = json.loads(stockade(b, "run", "-o", "json", "--", "git", "push", "x").stdout)["error"]
    check((e["code"], e["reason"], e["rule"], e["subject"]) == ("PERMISSION_DENIED", "POLICY_DENIED", "base/no-push", "command.args")
          and e["allowed"].startswith("commands other than git push") and e["hint"], e)
    refused(run(b, "deploy"), 75, "is pending", "rule: base/", "allowed: this call, when 1 of these have approved it:")
    token = allowed(stockade(b, "token", "mint", "--tenant", "slow", "--ttl", "1h", "--methods", "SystemService/*")).strip()
    refused(run(b, "true", token=token), 77, "rule: token/methods", "allowed: methods: SystemService/*", "ask its maker")
    refused(stockade(b, "admin", "backup", "x", token=key(b, "slow")), 77, "rule: rights/admin.write", "allowed: calls that need one of:")
    refused(stockade(b, "run", "--memory", "513M", "--", "true"), 77, "base/big", "memory up to 512M")
    refused(stockade(b, "run", "--template", "wide", "--allow", "192.0.2.7:443", "--", "true"), 77, "base/there")
    allowed(run(b, "true"))
    allowed(stockade(b, "run", "--memory", "512M", "--", "true"))


def rules_hold_for_every_way_into_a_sandbox(b):
    box = allowed(stockade(b, "create")).strip()
    refused(stockade(b, "exec", box, "--", "git", "push"), 77, "base/no-push")
    refused(stockade(b, "fs", "cat", box, "/work/../etc/./shadow"), 77, "base/no-secrets")
    refused(stockade(b, "fs", "write", box, ".ssh/key"), 77, "base/no-secrets")
    allowed(stockade(b, "exec", box, "--", "true"))
    allowed(stockade(b, "rm", box))


def a_limit_lowers_what_the_call_leaves_open(b):
    token = key(b, "small")
    refused(stockade(b, "run", "--memory", "64M", "--", "true", token=token), 77, "small/memory", "memory up to 32M")
    r = stockade(b, "run", "-o", "json", "--", "head", "-c", "5000", "/dev/zero", token=token)
    hit = json.loads(r.stdout)["limit_hit"]
    check((hit["name"], hit["value"]) == ("output_bytes", 1024), r)


def a_rate_is_of_a_credential_and_of_the_tokens_that_are_narrowed_from_it(b):
    one, other = key(b, "slow"), key(b, "slow")
    allowed(run(b, "true", token=one))
    allowed(run(b, "true", token=one))
    refused(run(b, "true", token=one), 75, "slow/rate", "too many calls", "2 calls in 1h")
    allowed(run(b, "true", token=other))
    token = allowed(stockade(b, "token", "mint", "--tenant", "slow")).strip()
    allowed(run(b, "true", token=token))
    allowed(run(b, "true", token=token))
    narrow = allowed(stockade(b, "token", "attenuate", token, "--ttl", "1h")).strip()
    refused(run(b, "true", token=narrow), 75, "slow/rate")
    allowed(stockade(b, "info", token=one))  # no policy applies to SystemService


def a_closed_tenant_does_what_it_may_and_no_more(b):
    token = key(b, "closed")
    refused(run(b, "sh", "-c", "true", token=token), 77, "only git", "rule closed")
    refused(stockade(b, "create", token=token), 77, "only git")
    refused(stockade(b, "ls", token=token), 77, "only git")
    refused(stockade(b, "code", "-c", "1", token=token), 77, "only git")
    allowed(run(b, "true", token=token))
    # Its token cannot say what the policy does not.
    narrow = allowed(stockade(b, "token", "mint", "--tenant", "closed")).strip()
    refused(run(b, "ls", token=narrow), 77, "only git")


def a_bad_file_changes_nothing_and_says_why(b):
    for text, why in (
        ("layers: [{name: base, otherwise: deni}]", "base.yaml:1:34: otherwise: must be allow, deny, ask or limit"),
        ("layers:\n  - name: x\n  - name: x\n", "base.yaml:3:11: name: x is a layer"),
        ("layers: [\udcff]", "base.yaml: not UTF-8"),
        ("x" * (1024 * 1024 + 1), "at most 1048576 bytes"),
        ("layers: [{name: a, rules: [" + "{id: r, verdict: deny}," * 100 + "]}]", "id of an earlier rule"),
        ("layers: [{name: a, rules: [" + "{id: r, verdict: deny}," * 30000 + "]}]", "too many values"),
        (BASE.replace("expect: deny, rule", "expect: allow, rule"), "test 1 fails"),
        (BASE.replace("uid:0", "*"), "approvers"),
        (BASE[: len(BASE) // 2], "base.yaml"),
    ):
        line = reload(b, text, "reload-refused")
        check(why in line, f"{why}: {line}")
        refused(run(b, "git", "push"), 77, "base/no-push")
    reload(b, BASE, " reloaded")
    refused(run(b, "git", "push"), 77, "base/no-push")


def a_reload_under_load_is_whole_or_nothing(b):
    """Two policies in turns: each call is decided by one of them."""
    other = BASE.replace("a person pushes", "a robot pushes")
    loop = 'n=0; while [ $n -lt 60 ]; do n=$((n+1)); "$1" run -- git push 2>&1; "$1" run -- true || echo broken; done'
    load = [subprocess.Popen(["sh", "-c", loop, "sh", binary("stockade")], env={**os.environ, "STOCKADE_ADDRESS": b.address}, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for i in range(10):
        reload(b, BASE if i % 2 else other, " reloaded")
    for p in load:
        out = p.communicate(timeout=scaled(60))[0]
        lines = [line for line in out.splitlines() if "refuses" in line]
        check(len(lines) == 60 and all("a person pushes" in line or "a robot pushes" in line for line in lines), out[-500:])
        check("broken" not in out, out[-500:])


def every_verdict_is_counted(b):
    text = allowed(stockade(b, "metrics", "--prometheus"))
    for verdict in ("allow", "limit", "ask", "deny"):
        check(f'stockade_policy_decisions_total{{verdict="{verdict}"}}' in text, verdict)


def main():
    folder = tempfile.mkdtemp(prefix="stockade-policy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o700)  # the broker itself cannot read it
    for name, text in (("base.yaml", BASE), ("ignored.txt", "no policy")):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            f.write(text)
    with Broker(config=CONFIG % folder) as b:
        b.policies = folder
        status = run_cases([a_rule_refuses_and_says_what_is_allowed, rules_hold_for_every_way_into_a_sandbox,
                            a_limit_lowers_what_the_call_leaves_open,
                            a_rate_is_of_a_credential_and_of_the_tokens_that_are_narrowed_from_it,
                            a_closed_tenant_does_what_it_may_and_no_more, a_bad_file_changes_nothing_and_says_why,
                            a_reload_under_load_is_whole_or_nothing, every_verdict_is_counted], lambda case: case(b))
    sys.exit(status)


main()
