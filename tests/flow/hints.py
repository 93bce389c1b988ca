#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The hints of a record are executed: with these options the same is not refused again."""

import json
import re

import names
from api import main
from broker import Broker
from network import PRELUDE
from peers import Peers
from runner import check

CONFIG = names.CONFIG.replace("{mode: open}", "{mode: open, outbound: [10.77.0.0/24]}")
PUBLIC, PUBLIC6, PRIVATE = Peers.public, Peers.public6, Peers.private
SEND = f"""
s = socket.create_connection(("{PUBLIC}", 80), 20)
try:
    for _ in range(30):
        s.sendall(b"x" * 100)
        s.recv(100)
except OSError:
    pass
"""
LOOK_UP = "for n in 'abcd': look(n + '.web.test')\n"
# Options, what runs, and what is refused of it.
OFFERS = [
    ([], f"try_tcp('{PUBLIC}', 80)", f"{PUBLIC}:80"),
    ([], f"try_udp('{PUBLIC6}', 80, False)", f"[{PUBLIC6}]:80"),
    (["--allow", f"{PUBLIC}:80"], f"try_tcp('{PUBLIC}', 81)", f"{PUBLIC}:81"),
    (["--network", "open", "--allow", "10.77.0.9:80"], f"try_tcp('{PRIVATE}', 80)", f"{PRIVATE}:80"),
    (["--allow", "other.test"], "by_name('web.test', 80)", "web.test"),
    (["--allow", "web.test:80"], "by_name('web.test', 81)", "web.test:81"),
    (["--allow", "private.test"], "by_name('private.test', 80)", "private.test"),
    (["--allow", f"{PUBLIC}:80", "--egress-bytes", "2000"], SEND, f"{PUBLIC}:80"),
    (["--allow", f"{PUBLIC}:80", "--ingress-bytes", "2000"], SEND, f"{PUBLIC}:80"),
    (["--allow", "*.web.test", "--dns-queries", "3"], LOOK_UP, "d.web.test"),
]
# What no option helps with.
NONE = [
    (["--allow", "web.test"], "try_tcp('198.18.0.77', 443)", "198.18.0.77:443"),
    (["--allow", "web.test"], "try_tcp('127.128.0.3', 15)", "127.128.0.3:15"),
    (["--allow", "web.test"], "try_tcp('169.254.169.254', 80)", "169.254.169.254:80"),
    (["--network", "open"], "try_tcp('169.254.169.254', 80)", "169.254.169.254:80"),
    (["--network", "open"], "try_tcp('10.78.0.1', 80)", "10.78.0.1:80"),
    (["--allow", "metadata.test"], "by_name('metadata.test', 80)", "metadata.test"),
]


def denials(b, options, code):
    r = b.cli("run", "-o", "json", *options, "--", "python3", "-c", PRELUDE + names.LOOK + code)
    check(r.returncode == 0, r.stderr.decode())
    return json.loads(r.stdout)["record"]["denials"]


def about(found, destination):
    return [d for d in found if destination in (None, d["destination"])]


def with_hint(options, hint):
    """An option that is given once is replaced."""
    words = hint.split()
    kept = list(options)
    for option in words[::2]:
        if option != "--allow" and option in kept:
            at = kept.index(option)
            del kept[at:at + 2]
    return kept + words


def each_hint_helps(b, _):
    for options, code, destination in OFFERS:
        found = about(denials(b, options, code), destination)
        check(len(found) == 1, f"{options} {destination}: {found}")
        hint, reason = found[0]["hint"], found[0]["reason"]
        check(hint.startswith("--"), f"{found}")
        again = about(denials(b, with_hint(options, hint), code), destination)
        check(reason not in [d["reason"] for d in again], f"{options} with {hint}: {again}")


def each_hint_for_a_sandbox_helps(b, _):
    """The command replaces the whole policy: what was allowed for the same destination stays allowed."""
    code = PRELUDE + names.LOOK + "by_name('private.test', 80)"
    check(b.cli("create", "--name", "kept", "--allow", "private.test").returncode == 0, "create")
    refused = b.cli("exec", "--bill", "kept", "--", "python3", "-c", code).stderr.decode()
    command = re.search(r"to allow it: stockade (network \S+ (?:--allow \S+ ?)+)\(replaces the whole policy\)", refused)
    check(command, refused)
    check(b.cli(*command[1].split()).returncode == 0, command[1])
    r = b.cli("exec", "--bill", "kept", "--", "python3", "-c", code)
    check(r.returncode == 0 and b"  denied " not in r.stderr, f"after {command[1]}: {r.stderr.decode()}")
    check(b.cli("rm", "kept").returncode == 0, "rm")


def a_hint_never_names_a_forbidden_option(b, _):
    for options, code, destination in NONE:
        found = about(denials(b, options, code), destination)
        check(found, f"{options}: nothing was refused")
        check("--" not in found[0]["hint"], f"{found}")


TESTS = [each_hint_helps, each_hint_for_a_sandbox_helps, a_hint_never_names_a_forbidden_option]

if __name__ == "__main__":
    with Peers(), names.NameServer():
        main(Broker(config=CONFIG), TESTS)
