#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON Web Tokens of an issuer, exchanged for capability tokens through the real binaries, over tcp, where nothing else identifies
the caller. Which tokens are valid is tested in unit/jwt.c."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from broker import Broker, binary
from jose import Signer, key_set
from runner import check, run_cases, until
from slowness import scaled

ISSUER = "https://ci.example.org"
PORT = 20000 + os.getpid() % 10000
ADDRESS = f"tcp://127.0.0.1:{PORT}"
FOLDER = tempfile.mkdtemp(prefix="stockade-jwt-")
RIGHTS = "[sandbox.read, sandbox.write, process.run, process.read, system.read]"
CONFIG = f"""
access: {{failures_per_minute: 6}}
issuers:
  - issuer: {ISSUER}
    audience: stockade
    jwks_file: {FOLDER}/keys
    algorithms: [RS256, ES256, EdDSA]
    token_ttl: 10m
    grants:
      - {{claims: {{sub: "repo:acme/*"}}, tenant: ci, scopes: {RIGHTS}}}
"""


def publish(*signers):
    """As an issuer's fetcher does: a new file in place of the old one."""
    with open(f"{FOLDER}/next", "w", encoding="utf-8") as f:
        f.write(key_set(*signers))
    os.rename(f"{FOLDER}/next", f"{FOLDER}/keys")


def stockade(*args, token=None, address=ADDRESS):
    env = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    env["STOCKADE_ADDRESS"] = address
    if token is not None:
        env["STOCKADE_TOKEN"] = token
    return subprocess.run([binary("stockade"), *args], env=env, capture_output=True, text=True, check=False, timeout=scaled(60))


def refused(r, *words):
    check(r.returncode != 0 and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stdout} {r.stderr}")


def allowed(r):
    check(r.returncode == 0, f"{r.args}: {r.returncode} {r.stdout} {r.stderr}")
    return r.stdout


KEYS = {a: Signer(a, a.lower(), ISSUER) for a in ("RS256", "ES256", "EdDSA")}


def exchange(signer, *args, **claims):
    return stockade("token", "exchange", *args, token=signer.sign(**claims))


# ---- cases


def a_token_of_the_issuer_is_good_for_the_exchange_alone(b):
    jwt = KEYS["ES256"].sign()
    refused(stockade("ps", token=jwt), "does not have the right")
    refused(stockade("run", "true", token=jwt), "does not have the right")
    refused(stockade("token", "mint", token=jwt), "does not have the right")
    refused(stockade("key", "create", token=jwt), "does not have the right")
    refused(stockade("token", "exchange", address=b.address), "no JSON Web Token")


def what_it_gets_is_the_granted_tenant_with_the_granted_rights(b):
    for signer in KEYS.values():
        before = time.time()
        got = json.loads(allowed(exchange(signer, "-o", "json")))
        check(got["tenant"] == "ci" and "process.run" in got["scopes"], str(got))
        check("key.write" not in got["scopes"] and "admin.write" not in got["scopes"], str(got))
        check(allowed(stockade("run", "echo", "it runs", token=got["token"])) == "it runs\n", "a job")
        refused(stockade("key", "create", token=got["token"]), "key.write")
        said = json.loads(allowed(stockade("token", "inspect", got["token"])))
        expires = [c["expires_time"] for c in said["blocks"][0]["caveats"] if "expires_time" in c]
        check(len(expires) == 1 or "expires" in json.dumps(said), f"{said} {before}")
    check("token-exchanged: repo:acme/app is ci" in b.log(), b.log())


def it_can_ask_for_less_and_not_for_more(b):
    got = json.loads(allowed(exchange(KEYS["EdDSA"], "-o", "json", "--scopes", "system.read", "--ttl", "1m")))
    check(got["scopes"] == ["system.read"], str(got))
    refused(stockade("run", "true", token=got["token"]), "right")
    refused(exchange(KEYS["EdDSA"], "--scopes", "key.write"), "key.write")
    refused(exchange(KEYS["EdDSA"], "--scopes", "no.such"), "no right")
    narrow = allowed(exchange(KEYS["EdDSA"], "--tool", "echo *")).strip()
    check(allowed(stockade("run", "echo", "a", token=narrow)) == "a\n", "the tool")
    refused(stockade("run", "true", token=narrow), "token")


def wrong_ones_are_refused_with_the_reason(b):
    stranger = Signer("ES256", "es256", ISSUER)
    for r, *words in [
        (exchange(stranger), "signature is wrong"),
        (exchange(Signer("ES256", "unknown", ISSUER)), "no key of a known issuer"),
        (exchange(KEYS["ES256"], aud="others"), "another audience"),
        (exchange(KEYS["ES256"], iss="https://evil.example"), "another issuer"),
        (exchange(KEYS["ES256"], exp=time.time() - 3600), "expired"),
    ]:
        refused(r, *words)
    refused(exchange(KEYS["ES256"], sub="repo:evil/acme/app"), "no grant")


def a_flood_of_wrong_ones_is_stopped_and_right_ones_wait_too(b):
    stranger = Signer("ES256", "es256", ISSUER)
    for _ in range(10):
        last = exchange(stranger)
    refused(last, "too many credentials")
    refused(exchange(KEYS["ES256"]), "too many credentials")
    until(lambda: exchange(KEYS["ES256"]).returncode == 0, "a right one is accepted again", 30)


def replaced_keys_count_at_once_and_a_broken_file_changes_nothing(b):
    until(lambda: exchange(KEYS["ES256"]).returncode == 0, "the failures of before are forgotten", 30)
    new = Signer("ES256", "next", ISSUER)
    publish(new)
    allowed(exchange(new))
    refused(exchange(KEYS["ES256"]), "no key of a known issuer")
    with open(f"{FOLDER}/keys", "w", encoding="utf-8") as f:
        f.write("{")
    until(lambda: exchange(new).returncode == 0, "the keys before stay", 30)
    check("issuer-keys" in b.log(), "it is in the log")
    publish(*KEYS.values())
    until(lambda: exchange(KEYS["ES256"]).returncode == 0, "and back", 30)


def a_configuration_that_cannot_hold_is_refused(b):
    rows = [
        ("algorithms: [RS256, ES256, EdDSA]", "algorithms: [HS256]", "must be RS256, ES256 or EdDSA"),
        ("algorithms: [RS256, ES256, EdDSA]", "algorithms: [none]", "must be RS256, ES256 or EdDSA"),
        ('claims: {sub: "repo:acme/*"}, ', "", "needs a tenant, and claims"),
        ("    audience: stockade\n", "", "needs issuer, audience"),
        (RIGHTS, "[process.run, approval.answer]", "only operators give the right approval.answer"),
        (f"jwks_file: {FOLDER}/keys", f"jwks_file: {FOLDER}/nothing", "No such file"),
        ("tenant: ci", "tenant: tcp", "not tcp"),
        ("token_ttl: 10m", "token_ttl: 2d", "token_ttl"),
    ]
    for old, new, why in rows:
        check(CONFIG.count(old) == 1, old)
        said = b.reload(CONFIG.replace(old, new))
        check("reload-refused" in said and why in said, f"{why}: {said}")
    check("reloaded" in b.reload(CONFIG), "the first one again")
    allowed(exchange(KEYS["ES256"]))


CASES = [
    a_token_of_the_issuer_is_good_for_the_exchange_alone,
    what_it_gets_is_the_granted_tenant_with_the_granted_rights,
    it_can_ask_for_less_and_not_for_more,
    wrong_ones_are_refused_with_the_reason,
    a_flood_of_wrong_ones_is_stopped_and_right_ones_wait_too,
    replaced_keys_count_at_once_and_a_broken_file_changes_nothing,
    a_configuration_that_cannot_hold_is_refused,
]


def main():
    os.chmod(FOLDER, 0o755)
    publish(*KEYS.values())
    try:
        with Broker("--listen", ADDRESS, config=CONFIG) as b:
            return run_cases(CASES, lambda case: case(b))
    finally:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
