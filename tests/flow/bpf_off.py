#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A broker without BPF programs, as on a kernel that has none: it starts, reports what is missing, and refuses
requests that need it."""

from api import PRECONDITION, PROCESS, SANDBOX, SYSTEM, main
from broker import Broker
from runner import check

CONFIG = "pool: 1\nbpf: {enabled: false}\n"
NONE, ALLOWLIST, OPEN = 1, 2, 3
ABSENT = ("bpf-net", "bpf-unix", "bpf-watch", "bpf-syscalls", "relay")


def modes_with_a_way_out_are_refused_and_say_why(b, c):
    for mode in (ALLOWLIST, OPEN):
        network = {"mode": mode, "outbound": [{"cidr": "93.184.216.0/24"}] if mode == ALLOWLIST else []}
        failed = c.fails(SANDBOX + "Create", {"network": network})
        check(failed.code == PRECONDITION and failed.reason == "NETWORK_MODE_NOT_ENFORCED", f"{failed.code} {failed.message}")
        check("not loaded" in failed.message, failed.message)
        failed = c.fails(PROCESS + "Run", {"command": {"args": ["true"]}, "network": network})
        check(failed.reason == "NETWORK_MODE_NOT_ENFORCED", f"{failed.code} {failed.message}")


def info_says_what_is_missing_and_what_that_means(b, c):
    info = c.unary(SYSTEM + "Info")
    features = {f.name: f for f in info.features}
    for name in ABSENT:
        check(not features[name].available and "disabled" in features[name].detail, f"{name}: {features[name].detail}")
        check(any(name in text for text in info.degraded), f"{name} is not in {list(info.degraded)}")
    check("refused" in features["bpf-net"].detail, features["bpf-net"].detail)


def sandboxes_run_and_have_their_own_loopback_alone(b, c):
    box = c.unary(SANDBOX + "Create", {"network": {"mode": NONE}}).sandbox
    code = ("import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('lo')\n"
            "try: socket.create_connection(('192.0.2.1', 80), 5)\n"
            "except OSError as e: print(e.errno)")
    r = b.cli("exec", box.id, "--", "python3", "-c", code)
    check(r.returncode == 0 and r.stdout.split() == [b"lo", b"101"], f"{r.stdout} {r.stderr}")  # ENETUNREACH
    b.cli("rm", box.id)


TESTS = [modes_with_a_way_out_are_refused_and_say_why, info_says_what_is_missing_and_what_that_means,
         sandboxes_run_and_have_their_own_loopback_alone]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
