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

CONFIG = names.CONFIG.replace("{mode: open}", "{mode: open, outbound: [10.77.0.0/24]}") + """\
  - name: narrow
    network_max: {mode: allowlist, outbound: ["@debian"]}
"""
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
    (["--allow", "other.test"], "by_name('deb.debian.org', 80)", "deb.debian.org"),
    (["--allow", "deb.debian.org:443"], "by_name('deb.debian.org', 80)", "deb.debian.org:80"),
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


def a_hint_names_the_set_that_covers_a_name(b, _):
    look = "by_name('deb.debian.org', 80)"
    found = about(denials(b, ["--allow", "@pypi"], look), "deb.debian.org")
    check([d["hint"] for d in found] == ["--allow @debian"], f"{found}")
    r = b.cli("run", "--allow", "@debian", "--", "python3", "-c", PRELUDE + names.LOOK + look)
    check(r.stdout == b"ok\n", f"{r}")


def a_set_is_narrowed_and_counted_as_its_rules(b, _):
    r = b.cli("run", "--allow", "@nope", "--", "true")
    check(r.returncode == 125 and b"@nope: there is no such set; known are @pypi, @npm" in r.stderr, f"{r}")
    r = b.cli("run", "--allow", "@pypi:80", "--", "true")
    check(r.returncode == 125 and b"a set has its own ports" in r.stderr, f"{r}")
    many = [word for _ in range(60) for word in ("--allow", "@github")]
    r = b.cli("run", *many, "--", "true")
    check(r.returncode == 125 and b"more than 256 rules" in r.stderr, f"{r}")
    r = b.cli("run", "--template", "narrow", "--allow", "@pypi", "--", "true")
    check(r.returncode != 0 and b"no rule of the template allows pypi.org at port 443" in r.stderr, f"{r}")
    check(b.cli("create", "--name", "sets", "--template", "narrow", "--allow", "@debian").returncode == 0, "create")
    shown = json.loads(b.cli("network", "-o", "json", "sets").stdout)["outbound"]
    table = json.loads(b.cli("policy", "-o", "json", "sets", "debian").stdout)["sets"][0]["destinations"]
    check(shown == table and len(table) == 4, f"{shown} {table}")
    check(b.cli("rm", "sets").returncode == 0, "rm")


TESTS = [a_set_is_narrowed_and_counted_as_its_rules, a_hint_names_the_set_that_covers_a_name, each_hint_helps,
         each_hint_for_a_sandbox_helps, a_hint_never_names_a_forbidden_option]

if __name__ == "__main__":
    with Peers(), names.NameServer():
        main(Broker(config=CONFIG), TESTS)
