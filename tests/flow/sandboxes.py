#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes over the wire: refusals, names, pages, labels, time to live, owners."""

import os
import subprocess
import time

import sp
from api import NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from runner import check, time_passes, until
from sp import EXHAUSTED, EXISTS, INVALID

CONFIG = """
socket: {mode: 0666}
pool: 2
quotas: {sandboxes_per_caller: 20}
bpf: {enabled: false}
limits_max: {memory: 1G, output: 1G}
templates:
  - name: default
  - name: narrow
    hostname: narrow-host
    workdir: /tmp
    env: {EDITOR: vi}
    limits: {memory: 64M, pids: 16}
    limits_max: {memory: 128M}
    pool: 0
"""
NARROW = """
pool: 2
bpf: {enabled: false}
quotas: {sandboxes_per_caller: 1, memory_per_caller: 200M}
limits_default: {memory: 64M}
limits_max: {memory: 200M}
templates:
  - name: default
"""
PAUSED, RUNNING = 2, 1


def no(c, method, fields, code, *words):
    failed = c.fails(SANDBOX + method, fields)
    text = f"{failed.message} {failed.details}"
    check(failed.code == code, f"{method} {fields}: {failed.code} {text}, not {code}")
    for word in words:
        check(word in text, f"{method} {fields}: {word!r} is not in {text!r}")
    return failed


def create(c, **fields):
    return c.unary(SANDBOX + "Create", fields).sandbox


def delete(c, *ids):
    for id_ in ids:
        c.unary(SANDBOX + "Delete", {"id": id_})


def what_is_above_a_maximum_is_refused_with_both_values(b, c):
    failed = no(c, "Create", {"limits": {"memory_bytes": 2 << 30}}, INVALID, "2G", "1G", "limits.memory_bytes")
    check(failed.reason == "LIMIT_ABOVE_MAXIMUM", failed.reason)
    no(c, "Create", {"template": "narrow", "limits": {"memory_bytes": 256 << 20}}, INVALID, "256M", "128M")
    for field, value, shown in (
        ("cpu_millis", 64001, "64.001"), ("cpu_weight", 1001, "1001"), ("cpu_time_ms", 86400001, "86400.001s"),
        ("wall_ms", 86400001, "86400.001s"), ("pids", 4097, "4097"), ("files", 65537, "65537"),
        ("file_size_bytes", (4 << 30) + 1, "4294967297"), ("disk_bytes", (4 << 30) + 1, "4294967297"),
        ("inodes", 1000001, "1000001"), ("output_bytes", (1 << 30) + 1, "1073741825")):
        failed = no(c, "Create", {"limits": {field: value}}, INVALID, shown, f"limits.{field}")
        check(failed.reason == "LIMIT_ABOVE_MAXIMUM", f"{field}: {failed.reason}")


def fields_out_of_bounds_are_named(b, c):
    for fields, word in (({"limits": {"memory_bytes": 4096}}, "memory_bytes"), ({"limits": {"files": 7}}, "files"),
                         ({"limits": {"disk_bytes": 1}}, "disk_bytes"), ({"limits": {"inodes": 63}}, "inodes"),
                         ({"ttl_ms": 99}, "ttl_ms"), ({"ttl_ms": 31 * 86400000}, "ttl_ms"),
                         ({"template": "UPPER"}, "template"), ({"name": "-x"}, "name"), ({"name": "x" * 65}, "name"),
                         ({"metadata": {"k" * 65: "v"}}, "metadata"), ({"metadata": {"k": "v" * 257}}, "metadata"),
                         ({"metadata": {str(i): "v" for i in range(33)}}, "metadata")):
        failed = no(c, "Create", fields, INVALID, word)
        check("BadRequest" in failed.details, f"{fields}: BadRequest names the field")
    no(c, "Get", {"id": ""}, INVALID, "id")
    no(c, "Get", {"id": "a\0b"}, INVALID, "id")
    no(c, "List", {"page_size": 1001}, INVALID, "page_size")


def a_network_that_cannot_be_enforced_is_refused(b, c):
    for mode in (2, 3):
        no(c, "Create", {"network": {"mode": mode}}, PRECONDITION, "network")
    no(c, "Create", {"network": {"mode": 9}}, INVALID, "network")
    delete(c, create(c, network={"mode": 1}).id)


def what_is_not_there_is_not_found(b, c):
    no(c, "Create", {"template": "none"}, NOT_FOUND, "none")
    for method in ("Get", "Update", "Delete", "Pause", "Resume"):
        no(c, method, {"id": "f" * 32}, NOT_FOUND, "f" * 32)


def a_template_gives_its_own_limits_host_name_and_environment(b, c):
    box = create(c, template="narrow", name="nar")
    check(box.template == "narrow" and box.limits.memory_bytes == 64 << 20 and box.limits.pids == 16, str(box.limits))
    for field in box.limits.DESCRIPTOR.fields:
        check(getattr(box.limits, field.name) > 0, f"{field.name} is filled")
    r = b.cli("exec", "nar", "--", "sh", "-c", "hostname; pwd; echo $EDITOR")
    check(r.stdout == b"narrow-host\n/tmp\nvi\n", r.stdout)
    delete(c, box.id)


def names_are_unique_among_ones_own(b, c):
    box = create(c, name="one")
    failed = no(c, "Create", {"name": "one"}, EXISTS, "one")
    check(failed.reason == "NAME_TAKEN", failed.reason)
    check(c.unary(SANDBOX + "Get", {"id": "one"}).sandbox.id == box.id, "a name finds its sandbox")
    check(len(box.id) == 32 and set(box.id) <= set("0123456789abcdef"), box.id)
    delete(c, "one")
    no(c, "Get", {"id": "one"}, NOT_FOUND)
    delete(c, create(c, name="one").id)


def lists_come_in_pages_oldest_first_and_by_label(b, c):
    ids = [create(c, metadata={"n": str(i), "odd": str(i % 2)}).id for i in range(7)]
    got, token, pages = [], "", 0
    while True:
        page = c.unary(SANDBOX + "List", {"page_size": 3, "page_token": token})
        check(len(page.sandboxes) <= 3, "pages are no longer than asked")
        got += [s.id for s in page.sandboxes]
        pages += 1
        token = page.next_page_token
        if not token:
            break
    check(got == ids and pages == 3, f"{pages} pages: {got}")
    odd = c.unary(SANDBOX + "List", {"metadata": {"odd": "1"}})
    check([s.id for s in odd.sandboxes] == ids[1::2] and not odd.next_page_token, "by one label")
    both = c.unary(SANDBOX + "List", {"metadata": {"odd": "1", "n": "3"}, "page_size": 1})
    check([s.id for s in both.sandboxes] == [ids[3]] and not both.next_page_token, "by two labels")
    first = c.unary(SANDBOX + "List", {"page_size": 2})
    delete(c, ids[1], ids[2])  # what a page ended with may be gone when the next one is asked for
    rest = c.unary(SANDBOX + "List", {"page_size": 100, "page_token": first.next_page_token})
    check([s.id for s in rest.sandboxes] == ids[3:], "a page goes on behind what was deleted")
    delete(c, ids[0], *ids[3:])


def labels_change_one_by_one_and_those_that_go_make_room(b, c):
    box = create(c, metadata={"a": "1", "b": "2"})
    after = c.unary(SANDBOX + "Update", {"id": box.id, "metadata": {"b": "", "c": "3"}}).sandbox
    check(dict(after.metadata) == {"a": "1", "c": "3"}, str(after.metadata))
    check(after.expire_time == box.expire_time, "the time to live stands")
    no(c, "Update", {"id": box.id, "metadata": {f"k{i}": "v" for i in range(32)}}, INVALID, "32")
    after = c.unary(SANDBOX + "Get", {"id": box.id}).sandbox
    check(dict(after.metadata) == {"a": "1", "c": "3"}, f"a refused update changes nothing: {after.metadata}")
    c.unary(SANDBOX + "Update", {"id": box.id, "metadata": {"a": "", "c": ""}})
    c.unary(SANDBOX + "Update", {"id": box.id, "metadata": {f"k{i:02}": "v" for i in range(32)}})
    update = sp.message("stockade.v1.SandboxServiceUpdateRequest")
    comes, goes = update(id=box.id, metadata={"y": "v"}), update(metadata={"k00": ""})
    c.unary(SANDBOX + "Update", comes.SerializeToString() + goes.SerializeToString())  # as they stand on the wire
    comes, goes = update(id=box.id, metadata={"z": "v"}), update(metadata={"k01": ""})
    c.unary(SANDBOX + "Update", goes.SerializeToString() + comes.SerializeToString())
    after = c.unary(SANDBOX + "Get", {"id": box.id}).sandbox
    check(len(after.metadata) == 32 and {"y", "z"} <= set(after.metadata), f"one for another: {after.metadata}")
    delete(c, box.id)


def time_to_live_ends_a_sandbox_and_can_be_put_off(b, c):
    soon, later = create(c, ttl_ms=3000).id, create(c, ttl_ms=3000).id
    made = time.monotonic()
    job = c.start(soon, "sleep 60")
    put_off = c.unary(SANDBOX + "Update", {"id": later, "ttl_ms": 60000}).sandbox
    left = put_off.expire_time.ToDatetime().timestamp() - put_off.create_time.ToDatetime().timestamp()
    check(59 < left < 62, f"{left} s")
    result = c.finish(job).result
    check(result.outcome == 7 and "time to live" in result.reason, str(result)[:300])
    until(lambda: soon not in [s.id for s in c.unary(SANDBOX + "List", {}).sandboxes], "it has gone")
    no(c, "Get", {"id": soon}, NOT_FOUND)
    until(lambda: time.monotonic() > made + 3, "the other's first time is over too")
    c.unary(SANDBOX + "Get", {"id": later})
    delete(c, later)


def a_pause_holds_wall_limits_and_jobs(b, c):
    box = create(c).id
    no(c, "Resume", {"id": box}, PRECONDITION, "not paused")
    job = c.start(box, "while [ ! -e /tmp/go ]; do echo x; sleep 0.05; done", {"wall_ms": 4000})
    c.until(job, lambda: b"x\n" in job.output)
    check(c.unary(SANDBOX + "Pause", {"id": box}).sandbox.state == PAUSED, "paused")
    no(c, "Pause", {"id": box}, PRECONDITION, "paused")
    check(c.fails("/stockade.v1.ProcessService/Start", {"sandbox_id": box, "command": {"args": ["true"]}}).code
          == PRECONDITION, "no job starts in a paused sandbox")
    time_passes("longer than it may run", 4.1)
    check(c.unary(SANDBOX + "Resume", {"id": box}).sandbox.state == RUNNING, "running")
    c.finish(c.start(box, "touch /tmp/go"))
    c.finish(job)
    check(job.result.outcome == 1, f"the pause is not its wall time: {job.result}")
    wall = job.result.bill.wall_us.value / 1e6
    check(wall < 4, f"{wall} s in the bill")
    delete(c, box)


def a_paused_sandbox_can_be_deleted(b, c):
    box = create(c).id
    job = c.start(box, "sleep 60")
    c.unary(SANDBOX + "Pause", {"id": box})
    delete(c, box)
    check(c.finish(job).result.outcome == 7, "its job is cancelled")


def a_change_with_a_key_is_answered_again_and_not_made_again(b, c):
    box = create(c).id
    other = connect(b)
    for method, key in (("Pause", "p"), ("Resume", "r"), ("Pause", "p2"), ("Delete", "d")):
        first = c.unary(SANDBOX + method, {"id": box}, {"idempotency-key": key})
        again = other.unary(SANDBOX + method, {"id": box}, {"idempotency-key": key})
        check(first == again, f"{method} again: {again}")
    no(c, "Delete", {"id": box}, NOT_FOUND)
    failed = c.fails(SANDBOX + "Delete", {"id": "another"}, {"idempotency-key": "d"})
    check(failed.reason == "IDEMPOTENCY_KEY_REUSED", f"{failed} {failed.details}")


def what_is_read_is_read_anew_whatever_its_key(b, c):
    box = create(c).id
    for labels in ({}, {"a": "b"}):
        c.unary(SANDBOX + "Update", {"id": box, "metadata": labels})
        got = c.unary(SANDBOX + "Get", {"id": box}, {"idempotency-key": "g"}).sandbox
        check(dict(got.metadata) == labels, f"{got.metadata}")
    delete(c, box)


def a_quota_is_named(b, c):
    boxes = [create(c).id for _ in range(20)]
    failed = no(c, "Create", {}, EXHAUSTED, "20")
    check(failed.reason == "QUOTA_SANDBOXES" and "QuotaFailure" in failed.details, str(failed.details))
    delete(c, *boxes)
    delete(c, create(c).id)


def one_that_is_being_removed_does_not_count(_, __):
    """Run after run at a quota of one; also when more are being removed than that. The quota of those that live holds all the while."""
    with Broker(config=NARROW, name="-narrow") as b:
        for turn in range(30):
            r = b.cli("run", "true")
            check(r.returncode == 0, f"turn {turn}: {r}")
        script = "python3 -c 'b = bytes(b\"x\" * (40 << 20)); open(\"/tmp/big\", \"wb\").write(b); print(len(b))'"
        for turn in range(6):  # the limits of two are more than the caller may have
            r = b.cli("run", "--memory", "160M", "--disk", "64M", "sh", "-c", script)
            check(r.returncode == 0 and r.stdout == b"41943040\n", f"turn {turn}: {r}")
        c = connect(b)
        box = create(c).id
        check(no(c, "Create", {}, EXHAUSTED, "has 1 sandboxes").reason == "QUOTA_SANDBOXES", "one that lives counts")
        quota = next(q for q in c.unary("/stockade.v1.SystemService/Info", {}).quotas if q.name == "sandboxes")
        check((quota.used, quota.limit) == (1, 1), f"{quota}")
        delete(c, box)
        check(b.cli("run", "true").returncode == 0, "and no more when it is removed")


def sandboxes_of_another_user_are_not_found(b, c):
    box = create(c, name="secret").id
    job = c.start(box, "sleep 60")
    other = b.stranger
    for args in (("rm", box), ("rm", "secret"), ("pause", box), ("exec", box, "--", "true"), ("logs", job.id)):
        r = other(*args)
        check(r.returncode != 0 and b"there is no" in r.stderr, f"{args}: {r.returncode} {r.stderr!r}")
    check(box.encode() not in other("ls").stdout, "it is not in the other's list")
    check(job.id.encode() not in other("ps").stdout, "its process neither")
    r = other("create", "--name", "secret")  # the name is free for somebody else
    check(r.returncode == 0, r.stderr)
    check(other("rm", "secret").returncode == 0, "and it is the other's own that goes")
    check(c.unary(SANDBOX + "Get", {"id": "secret"}).sandbox.processes == 1, "this one runs on")
    delete(c, box)


def delete_answers_when_nothing_is_left(b, c):
    box = create(c).id
    c.start(box, "sleep 60 & sleep 60 & setsid sleep 60 & wait")
    delete(c, box)
    check(not any(box in path for path in b.cgroups()), "no cgroup is left")
    found = subprocess.run(["grep", "-l", box, *[f"/proc/{p}/cgroup" for p in os.listdir("/proc") if p.isdigit()]],
                           capture_output=True, check=False)
    check(not found.stdout, f"no process is left: {found.stdout!r}")


def a_create_whose_caller_has_gone_leaves_nothing_beyond_its_time_to_live(b, c):
    for _ in range(20):
        gone = connect(b)
        gone.begin(SANDBOX + "Create", {"template": "narrow", "ttl_ms": 500})
        gone.close()
    last = create(c, template="narrow").id  # behind all of them in the queue
    until(lambda: [s.id for s in c.unary(SANDBOX + "List", {}).sandboxes] == [last], "theirs are gone")
    delete(c, last)


TESTS = [what_is_above_a_maximum_is_refused_with_both_values, fields_out_of_bounds_are_named,
         a_network_that_cannot_be_enforced_is_refused, what_is_not_there_is_not_found,
         a_template_gives_its_own_limits_host_name_and_environment, names_are_unique_among_ones_own,
         lists_come_in_pages_oldest_first_and_by_label, labels_change_one_by_one_and_those_that_go_make_room,
         time_to_live_ends_a_sandbox_and_can_be_put_off, a_pause_holds_wall_limits_and_jobs,
         a_paused_sandbox_can_be_deleted, a_change_with_a_key_is_answered_again_and_not_made_again,
         what_is_read_is_read_anew_whatever_its_key, a_quota_is_named, one_that_is_being_removed_does_not_count, sandboxes_of_another_user_are_not_found,
         delete_answers_when_nothing_is_left, a_create_whose_caller_has_gone_leaves_nothing_beyond_its_time_to_live]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
