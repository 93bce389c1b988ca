#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stockade admin cert: what it makes is what a broker and its callers need, and openssl(1) agrees."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile

from broker import Broker, binary
from runner import check, run_cases

PORT = 20000 + os.getpid() % 10000
ADDRESS = f"tls+tcp://localhost:{PORT}"
FOLDER = tempfile.mkdtemp(prefix="stockade-cert-")
MADE = f"{FOLDER}/made"
CONFIG = f"""
tls:
  certificate: {MADE}/server.pem
  key: {MADE}/server.key
  client_ca: {MADE}/ca.pem
  clients:
    - {{name: "URI:spiffe://example.org/ci", tenant: ci}}
"""


def cert(*words):
    return subprocess.run([binary("stockade"), "admin", "cert", *words], capture_output=True, text=True, check=False)


def made(*words):
    r = cert(*words)
    check(r.returncode == 0, f"{words}: {r.returncode} {r.stderr}")
    return r.stdout


def openssl(*words):
    r = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False, cwd=MADE)
    check(r.returncode == 0, f"{words}: {r.stdout} {r.stderr}")
    return r.stdout


def call(*words, **env):
    inherited = {k: v for k, v in os.environ.items() if k != "STOCKADE_TOKEN"}
    return subprocess.run([binary("stockade"), *words], env={**inherited, "STOCKADE_ADDRESS": ADDRESS, "STOCKADE_CA_FILE": f"{MADE}/ca.pem", **env},
                          capture_output=True, text=True, check=False)


def refusals_say_what_is_wrong():
    for words, said in [
        ([FOLDER + "/no/such/folder"], "No such file"),
        ([FOLDER, "--names", "a b"], "no name, address or URI"),
        ([FOLDER, "--names", "x" * 254], "no name, address or URI"),
        ([FOLDER, "--names", ","], "1 to 16 names"),
        ([FOLDER, "--client", "server"], "not a caller's"),
        ([FOLDER, "--client", "spiffe://example.org/.."], "cannot be the name of its files"),
        ([FOLDER, "--client", "spiffe://example.org/"], "cannot be the name of its files"),
        ([FOLDER, "--client", ".hidden"], "cannot be the name of its files"),
        ([FOLDER, "--client", "ci", "--names", "localhost"], "leave out --names"),
        ([], "cert needs a FOLDER"),
    ]:
        r = cert(*words)
        check(r.returncode != 0 and said in r.stderr, f"{words}: {r.returncode} {r.stderr}")


def keys_are_their_owners_and_the_chain_holds():
    text = made(MADE)
    check("tls:" in text and f"{MADE}/server.pem" in text, text)
    check(stat.S_IMODE(os.stat(MADE).st_mode) == 0o700, "the folder")
    for name in ("ca.key", "server.key"):
        check(stat.S_IMODE(os.stat(f"{MADE}/{name}").st_mode) == 0o600, name)
    openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.pem", "server.pem")
    shown = openssl("x509", "-in", "server.pem", "-noout", "-text")
    check("DNS:localhost" in shown and "IP Address:127.0.0.1" in shown and "IP Address:0:0:0:0:0:0:0:1" in shown, shown)
    check(not [name for name in os.listdir(MADE) if name.endswith(".part")], "nothing is left over")


def a_second_one_is_of_the_same_authority():
    with open(f"{MADE}/ca.pem", encoding="utf-8") as f:
        ca = f.read()
    text = made(MADE, "--client", "spiffe://example.org/ci", "--ttl", "1d")
    check('{name: "URI:spiffe://example.org/ci", tenant: ci}' in text, text)
    openssl("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.pem", "ci.pem")
    with open(f"{MADE}/ca.pem", encoding="utf-8") as f:
        check(f.read() == ca, "the authority stays")
    made(MADE, "--client", "spiffe://example.org/ci")  # a new one for the same caller
    r = cert(MADE, "--client", "ci")
    check(r.returncode != 0 and "ci.pem is the certificate of another caller, spiffe://example.org/ci" in r.stderr, f"{r.stderr}")
    openssl("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.pem", "ci.pem")


def a_broker_and_its_callers_use_them():
    broker = subprocess.run([binary("stockaded"), "--check-config"], capture_output=True, text=True, check=False).stdout
    uid = int(broker.split("the broker is uid ")[1].split(",")[0].split()[0])
    key, config = f"{MADE}/server.key", f"{FOLDER}/stockaded.yaml"
    with open(config, "w", encoding="utf-8") as f:
        f.write(CONFIG)

    def found():
        return subprocess.run([binary("stockaded"), "--check-config", "--config", config], capture_output=True, text=True, check=False).stdout
    os.chmod(MADE, 0o700)
    os.chown(MADE, 0, 0)
    text = found()  # the broker's account cannot enter the folder: what the hint says helps
    check(f"problem  tls: tls.certificate: {MADE}/server.pem: Permission denied\n" in text, text)
    said = text.split("the broker's own account may not enter ")[1].split("\n")[0]
    folder, steps = said.split(": ")
    check(folder == MADE, text)
    for step in steps.split(", and "):
        subprocess.run([w for w in step.split() if w != "it"] + [folder], check=True)
    check(stat.S_IMODE(os.stat(MADE).st_mode) & 0o007 == 0, "others cannot enter it")
    os.chown(key, 0, 0)
    text = found()
    check(f"problem  tls: tls.key: {key}: Permission denied\n" in text, text)
    for step in text.split("with its own account: ")[1].split("\n")[0].split(", and "):  # what the hint says
        subprocess.run([w if w != "it" else key for w in step.split()] + ([key] if "it" not in step.split() else []), check=True)
    text = found()
    check(f"ok       tls: {MADE}/server.pem\n" in text, text)
    os.chown(key, uid, 0)
    os.chmod(key, 0o600)
    with Broker("--listen", f"tls+tcp://127.0.0.1:{PORT}", config=CONFIG) as b:
        r = call("run", "echo", "over TLS", STOCKADE_CERTIFICATE_FILE=f"{MADE}/ci.pem", STOCKADE_KEY_FILE=f"{MADE}/ci.key")
        check(r.stdout == "over TLS\n", r.stderr)
        r = call("run", "true")
        check(r.returncode != 0 and "need a credential" in r.stderr, r.stderr)
        key = b.cli("key", "create", "--tenant", "ci").stdout.decode().strip()
        check(call("run", "true", STOCKADE_TOKEN=key).returncode == 0, "with a key")


def a_folder_with_half_an_authority_is_refused():
    half = f"{FOLDER}/half"
    shutil.copytree(MADE, half)
    os.remove(f"{half}/ca.key")
    r = cert(half)
    check(r.returncode != 0 and "ca.pem and ca.key are not" in r.stderr, r.stderr)
    shutil.copy(f"{MADE}/ci.key", f"{half}/ca.key")
    r = cert(half)
    check(r.returncode != 0 and "ca.pem and ca.key are not" in r.stderr, r.stderr)


CASES = [
    refusals_say_what_is_wrong,
    keys_are_their_owners_and_the_chain_holds,
    a_second_one_is_of_the_same_authority,
    a_broker_and_its_callers_use_them,
    a_folder_with_half_an_authority_is_refused,
]


def main():
    os.chmod(FOLDER, 0o755)
    try:
        return run_cases(CASES, lambda case: case())
    finally:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
