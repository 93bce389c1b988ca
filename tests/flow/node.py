#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A broker with a node name: all its ids begin with it, every method and command takes them, and those of another node are
refused with the name of that node."""

from api import NOT_FOUND, PROCESS, SANDBOX, main
from broker import Broker
from runner import check, until
from sp import INVALID

NODE = "n0123456789abcd"  # as long as one may be
ELSEWHERE = "other-" + 32 * "a"
CONFIG = f"""
node: {NODE}
pool: 1
templates:
  - name: default
"""


def is_ours(id_):
    return id_.startswith(NODE + "-") and len(id_) == 48


def an_id_of_another_node_is_not_found_and_says_why(b, c):
    for id_, words in ((ELSEWHERE, "belongs to node other"), (32 * "a", "belongs to a broker without a node name")):
        for method in ("Get", "Delete", "Pause"):
            failed = c.fails(SANDBOX + method, {"id": id_})
            check(failed.code == NOT_FOUND and words in failed.message and f"this broker is node {NODE}" in failed.message,
                  f"{method}: {failed.message}")
            check(failed.reason == "OTHER_NODE", failed.reason)
        failed = c.fails(PROCESS + "Wait", {"process_id": id_})
        check(failed.code == NOT_FOUND and words in failed.message, failed.message)
        r = b.cli("exec", id_, "true")
        check(r.returncode == 125 and words.encode() in r.stderr, r.stderr)
    failed = c.fails(SANDBOX + "Get", {"id": NODE + "-" + 32 * "a"})
    check(failed.code == NOT_FOUND and failed.message.startswith("there is no sandbox"), failed.message)
    failed = c.fails(PROCESS + "Wait", {"process_id": "UPPER-" + 32 * "a"})
    check(failed.code == INVALID, failed.message)


def ids_begin_with_the_node_and_are_found_by_it_or_by_their_digits(b, c):
    box = c.unary(SANDBOX + "Create", {"name": "one"}).sandbox.id
    check(is_ours(box), box)
    digits = box.split("-")[1]
    check(c.unary(SANDBOX + "Get", {"id": box}).sandbox.name == "one", "by its id")
    for typed in (box, box[:22], digits[:8]):
        r = b.cli("exec", typed, "--", "echo", "hello")
        check(r.stdout == b"hello\n", f"{typed}: {r.stderr}")
    listed = b.cli("ls").stdout.decode()
    check(digits[:12] in listed and NODE not in listed, listed)
    check(box in b.cli("ls", "--no-trunc").stdout.decode(), "whole ids")
    job = c.start(box, "echo written")
    check(is_ours(job.id), job.id)
    for typed in (job.id, job.id[:22], job.id.split("-")[1][:8]):
        until(lambda: b.cli("logs", typed).stdout == b"written\n", f"the output of {typed}")
    c.unary(SANDBOX + "Delete", {"id": box})


def records_and_events_carry_the_whole_ids(b, c):
    r = b.cli("run", "--", "true")
    check(r.returncode == 0, r.stderr)
    shown = b.cli("inspect").stdout.decode()
    check(NODE + "-" in shown, shown)
    job = shown[shown.index(NODE + "-"):][:48]
    check(is_ours(job.split()[0]), job)
    check(b.cli("inspect", job).returncode == 0, "a record by its id")
    check(b.cli("inspect", job.split("-")[1][:8]).returncode == 0, "a record by the first digits")
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    b.cli("exec", box, "true")
    until(lambda: box in b.cli("events", "-o", "json", "--sandbox", box).stdout.decode(), "its events name it")
    lines = b.cli("events", "--sandbox", box).stdout.decode()
    check(box.split("-")[1][:12] in lines and NODE not in lines, lines)
    check(b.cli("anomalies", "--sandbox", box).returncode == 0, "findings by the id")
    c.unary(SANDBOX + "Delete", {"id": box})


def another_node_name_needs_a_restart(b, c):
    said = b.reload(CONFIG.replace(NODE, "n2"))
    check("reload-refused" in said and "node" in said, said)
    said = b.reload(CONFIG.replace(NODE, "No"))
    check("lower-case letters and digits" in said, said)


TESTS = [an_id_of_another_node_is_not_found_and_says_why, ids_begin_with_the_node_and_are_found_by_it_or_by_their_digits,
         records_and_events_carry_the_whole_ids, another_node_name_needs_a_restart]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
