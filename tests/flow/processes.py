#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes over the wire: streams that break and are continued, input, signals, deadlines, keys."""

import time

import sp
from api import CANCELLED, NOT_FOUND, PRECONDITION, PROCESS, SANDBOX, SIGNALED, SYSTEM, connect, main
from broker import Broker
from runner import check, time_passes, until
from sp import DEADLINE, EXHAUSTED, EXISTS, INVALID

CONFIG = """
pool: 2
templates: [{name: default}, {name: unpooled, pool: 0}]
keep_finished: 4s
quotas: {jobs_per_sandbox: 8}
"""


def create(c, **fields):
    return c.unary(SANDBOX + "Create", fields).sandbox.id


def delete(c, id_):
    c.unary(SANDBOX + "Delete", {"id": id_})


def processes(c):
    return c.unary(SYSTEM + "Info", {}).processes


def fails(c, method, fields, code, *words):
    failed = c.fails(PROCESS + method, fields)
    check(failed.code == code, f"{method}: {failed.code} {failed.message}, not {code}")
    for word in words:
        check(word in f"{failed.message} {failed.details}", f"{method}: {word!r} is not in {failed.message!r}")
    return failed


def commands_out_of_bounds_are_refused(b, c):
    for command, word in (({}, "args"), ({"args": ["a"] * 1025}, "args"), ({"args": ["x" * 98305]}, "args"),
                          ({"args": ["a"], "workdir": "relative"}, "workdir"),
                          ({"args": ["a"], "env": [{"name": "A=B", "value": "x"}]}, "env"),
                          ({"args": ["a"], "env": [{"name": "", "value": "x"}]}, "env"),
                          ({"args": ["a"], "stdin": b"x" * 1048577}, "stdin"),
                          ({"args": ["a\0b"]}, "args"),
                          ({"args": ["a"], "terminal": {"rows": 4097, "columns": 1}}, "terminal"),
                          ({"args": ["a"], "env": [{"name": f"E{i}", "value": "v" * 60000} for i in range(3)]}, "at most")):
        fails(c, "Run", {"command": command}, INVALID, word)
    fails(c, "Run", {}, INVALID, "command")


def limits_of_a_start_are_its_own_and_at_most_the_sandboxs(b, c):
    box = create(c, limits={"wall_ms": 5000})
    fails(c, "Start", {"sandbox_id": box, "command": {"args": ["true"]}, "limits": {"wall_ms": 5001}}, INVALID,
          "5.001s", "5s")
    for field, value in (("memory_bytes", 64 << 20), ("cpu_millis", 100), ("cpu_weight", 10), ("pids", 5),
                         ("disk_bytes", 1 << 20), ("inodes", 100)):
        fails(c, "Start", {"sandbox_id": box, "command": {"args": ["true"]}, "limits": {field: value}}, INVALID, field)
    delete(c, box)


def what_is_not_there_is_not_found(b, c):
    nobody = "0" * 32
    fails(c, "Start", {"sandbox_id": nobody, "command": {"args": ["true"]}}, NOT_FOUND)
    for method, fields in (("Attach", {}), ("Input", {}), ("CloseInput", {}), ("Signal", {"signal": 15}),
                           ("Resize", {"size": {"rows": 1, "columns": 1}}), ("Wait", {})):
        fails(c, method, {"process_id": nobody, **fields}, NOT_FOUND, nobody)
    fails(c, "List", {"sandbox_id": nobody}, NOT_FOUND)


def a_started_process_outlives_its_connection_and_is_found_from_an_offset(b, c):
    box = create(c)
    other = connect(b)
    job = other.start(box, "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done; exit 5")
    other.reset()
    again = c.finish(c.attach(job.id))
    check(again.output == b"".join(b"line %d\n" % i for i in range(1, 7)) and not again.gaps, again.output)
    check(again.result.exit_code == 5 and again.sandbox == box, str(again.result)[:200])
    part = c.finish(c.attach(job.id, offset=7))
    check(part.output == again.output[7:] and part.first == 7, part.output)
    failed = c.fails(PROCESS + "Attach", {"process_id": job.id, "offset": 43})
    check(failed.code == 11 and "43" in failed.message, f"{failed.code} {failed.message}")
    delete(c, box)


def a_finished_process_is_attachable_for_its_time_and_no_longer(b, c):
    box = create(c)
    begun = time.monotonic()
    job = c.finish(c.start(box, "echo kept"))
    delete(c, box)  # it outlives its sandbox as well
    check(c.finish(c.attach(job.id)).output == b"kept\n", "right after")
    check(c.wait(job.id).exit_code == 0, "Wait as well")

    def forgotten():
        try:
            check(c.finish(c.attach(job.id)).output == b"kept\n", "as long as it is there")
        except sp.Failed as failed:
            check(failed.code == NOT_FOUND, str(failed))
            return True
        return False

    until(forgotten, "it is forgotten")
    check(time.monotonic() - begun > 4, "not before its 4 s are over")
    fails(c, "Wait", {"process_id": job.id}, NOT_FOUND)


def without_a_reader_the_last_mebibyte_is_kept_and_the_gap_is_reported(b, c):
    box = create(c)
    job = c.start(box, "while [ ! -e /tmp/go ]; do sleep 0.02; done; head -c 3145728 /dev/zero; echo end")
    c.send(job.call, sp.Frame(kind=sp.CANCEL))
    c.finish(c.start(box, "touch /tmp/go"))
    c.wait(job.id)
    late = c.finish(c.attach(job.id))
    total = 3145728 + 4
    check(len(late.gaps) == 1 and late.gaps[0].offset == 0 and not late.gaps[0].limit, str(late.gaps))
    check(late.gaps[0].bytes + len(late.output) == total and late.output.endswith(b"\0end\n"), "nothing else is missing")
    check(len(late.output) >= (1 << 20) - 65536, f"{len(late.output)} bytes are kept")
    delete(c, box)


def input_is_queued_to_256_KiB_and_refused_beyond_whole(b, c):
    box = create(c)
    job = c.start(box, "while [ ! -e /tmp/go ]; do sleep 0.02; done; wc -c", stdin_open=True)
    taken = 0
    while True:
        try:
            c.unary(PROCESS + "Input", {"process_id": job.id, "data": b"x" * 65535 + b"\n"})
            taken += 65536
        except sp.Failed as failed:
            check(failed.code == EXHAUSTED and failed.reason == "INPUT_QUEUE_FULL", failed.message)
            break
    check(4 * 65536 <= taken <= 8 * 65536, f"{taken} bytes were taken")
    c.unary(PROCESS + "CloseInput", {"process_id": job.id})
    c.unary(PROCESS + "CloseInput", {"process_id": job.id})  # once more is nothing
    fails(c, "Input", {"process_id": job.id, "data": b"x"}, PRECONDITION, "closed")
    c.finish(c.start(box, "touch /tmp/go"))
    c.finish(job)
    check(int(job.output) == taken, f"{job.output} of {taken}")
    fails(c, "Input", {"process_id": job.id, "data": b"x"}, PRECONDITION)
    fails(c, "Signal", {"process_id": job.id, "signal": 15}, PRECONDITION)
    delete(c, box)


def stdin_that_was_not_kept_open_ends_behind_its_bytes(b, c):
    done = c.finish(c.stream("Run", {"command": {"args": ["wc", "-c"], "stdin": b"z" * 1048576}}))
    check(done.output.strip() == b"1048576", done.output)


def signals_reach_the_process_or_its_group(b, c):
    box = create(c)
    for number in (0, 65):
        fails(c, "Signal", {"process_id": "0" * 32, "signal": number}, INVALID, "signal")
    job = c.start(box, "trap 'echo got it; exit 3' USR1; echo up; while :; do sleep 0.05; done")
    c.until(job, lambda: job.output == b"up\n")
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 10})
    c.finish(job)
    check(job.output == b"up\ngot it\n" and job.result.exit_code == 3, job.output)
    line = "trap : TERM; sh -c 'trap \"echo child; exit\" TERM; echo up; while :; do sleep 0.05; done' & wait; wait; wait"
    job = c.start(box, line)
    c.until(job, lambda: b"up" in job.output)
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 15})  # the main process ignores it
    time_passes("a child that got the signal would say so", 0.3)
    other = connect(b)
    seen = other.attach(job.id)
    other.until(seen, lambda: b"up" in seen.output)
    check(b"child" not in seen.output, "only the main one got it")
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 15, "group": True})
    c.finish(job)
    check(b"child" in job.output, job.output)
    job = c.start(box, "sleep 60")
    c.unary(PROCESS + "Signal", {"process_id": job.id, "signal": 9})
    result = c.finish(job).result
    check(result.outcome == SIGNALED and result.signal == 9, str(result)[:100])
    delete(c, box)


def a_terminal_is_resized_and_others_have_none(b, c):
    box = create(c)
    job = c.start(box, "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.05; done",
                  terminal={"rows": 11, "columns": 22}, stdin_open=True)
    c.until(job, lambda: b"11 22" in job.output)
    c.unary(PROCESS + "Resize", {"process_id": job.id, "size": {"rows": 33, "columns": 44}})
    c.finish(job)
    check(b"33 44" in job.output, job.output)
    job = c.start(box, "sleep 60")
    fails(c, "Resize", {"process_id": job.id, "size": {"rows": 3, "columns": 4}}, PRECONDITION, "terminal")
    delete(c, box)


def wait_ends_with_the_process_or_with_its_deadline(b, c):
    box = create(c)
    job = c.start(box, "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 9")
    begun = time.monotonic()
    failed = c.fails(PROCESS + "Wait", {"process_id": job.id}, timeout_us=200000)
    took = time.monotonic() - begun
    check(failed.code == DEADLINE and took > 0.19, f"{failed.code} after {took} s")
    c.finish(c.start(box, "touch /tmp/go"))
    check(c.wait(job.id).exit_code == 9, "the process went on")
    delete(c, box)


def a_run_ends_when_its_caller_goes_away_or_gives_up(b, c):
    for end in (lambda o, job: o.reset(), lambda o, job: o.close(),
                lambda o, job: o.send(job.call, sp.Frame(kind=sp.CANCEL))):
        other = connect(b)
        job = other.begin_run("trap '' TERM INT HUP; echo up; sleep 60")
        other.until(job, lambda: b"up" in job.output)
        check(processes(c) == 1, "it runs")
        end(other, job)
        until(lambda: processes(c) == 0, "it is gone long before its minute is over")
    until(lambda: c.unary(SYSTEM + "Info", {}).sandboxes_own == 0, "its sandbox has gone")


def runs_given_up_while_they_wait_leave_no_sandbox(b, c):
    """Nor a ready one: sandboxes that were being made for them are removed."""
    fields = {"template": "unpooled", "command": c.shell("sleep 60")}
    ids = [c.new_id() for _ in range(8)]
    c.socket.sendall(b"".join(c.pack(i, c.call_frame(PROCESS + "Run", fields)) + c.pack(i, sp.Frame(kind=sp.CANCEL))
                              for i in ids))
    for id_ in ids:
        frame = c.recv(id_)
        check(frame.kind == sp.END and frame.status.code == 1, f"{frame}")
    def rests():
        info = c.unary(SYSTEM + "Info", {})
        return info.sandboxes == 2 and [t.pool_ready for t in info.templates] == [2, 0]

    until(rests, "only the pool's two are left, and are ready")  # one may still be made for an earlier case


def a_cancelled_call_gets_one_end_with_code_1(b, c):
    job = c.begin_run("sleep 60")
    c.until(job, lambda: job.id)
    c.send(job.call, sp.Frame(kind=sp.CANCEL))
    frame = c.recv(job.call)
    check(frame.kind == sp.END and frame.status.code == sp.CANCELLED, str(frame))


def the_deadline_of_a_run_ends_it(b, c):
    begun = time.monotonic()
    job = c.stream("Run", {"command": {"args": ["sleep", "60"]}}, timeout_us=300000)
    try:
        c.finish(job)
    except sp.Failed as failed:
        check(failed.code == DEADLINE, str(failed))
    took = time.monotonic() - begun
    check(0.29 < took < 30, f"{took} s")
    until(lambda: processes(c) == 0, "nothing runs")


def a_key_makes_one_sandbox_and_one_process_however_often_it_is_sent(b, c):
    key = {"idempotency-key": "create-1"}
    first = c.unary(SANDBOX + "Create", {}, metadata=key).sandbox.id
    other = connect(b)
    check(other.unary(SANDBOX + "Create", {}, metadata=key).sandbox.id == first, "another connection gets the same one")
    failed = other.fails(SANDBOX + "Create", {"name": "x"}, metadata=key)
    check(failed.code == INVALID, f"the same key with another request: {failed.code} {failed.message}")
    key = {"idempotency-key": "start-1"}
    job = c.start(first, "echo ran >> /tmp/log; sleep 0.3", metadata=key)
    failed = other.fails(PROCESS + "Start", {"sandbox_id": first, "command": c.shell("echo ran >> /tmp/log; sleep 0.3"),
                                             "limits": {}}, metadata=key)
    check(failed.code == EXISTS and job.id in str(failed.details["ErrorInfo"].metadata), f"{failed} {failed.details}")
    c.finish(job)
    check(c.finish(c.start(first, "wc -l < /tmp/log")).output.strip() == b"1", "it ran once")
    delete(c, first)


def jobs_of_a_sandbox_are_counted_and_a_full_one_says_so(b, c):
    box = create(c)
    jobs = [c.start(box, "sleep 60") for _ in range(8)]
    failed = fails(c, "Start", {"sandbox_id": box, "command": {"args": ["true"]}}, EXHAUSTED, "8")
    check("QuotaFailure" in failed.details and failed.reason, f"it names the quota: {failed.details}")
    page = c.unary(PROCESS + "List", {"sandbox_id": box, "page_size": 5})
    rest = c.unary(PROCESS + "List", {"sandbox_id": box, "page_token": page.next_page_token})
    check([p.id for p in [*page.processes, *rest.processes]] == [j.id for j in jobs], "pages, oldest first")
    check(page.processes[0].args == ["/bin/sh", "-c", "sleep 60"] and page.processes[0].pid > 1, str(page.processes[0]))
    check(c.unary(SANDBOX + "Get", {"id": box}).sandbox.processes == 8, "the sandbox counts them")
    delete(c, box)
    for job in jobs:
        check(c.finish(job).result.outcome == CANCELLED, "deleted with it")


def two_readers_see_the_same(b, c):
    box = create(c)
    job = c.start(box, "for i in $(seq 200); do echo $i; echo err $i >&2; done; sleep 0.2; echo end")
    other = connect(b)
    seen = other.attach(job.id)
    c.finish(job)
    other.finish(seen)
    check(job.output == seen.output and len(job.output) > 1000, "byte for byte")
    delete(c, box)


TESTS = [commands_out_of_bounds_are_refused, limits_of_a_start_are_its_own_and_at_most_the_sandboxs,
         what_is_not_there_is_not_found, a_started_process_outlives_its_connection_and_is_found_from_an_offset,
         a_finished_process_is_attachable_for_its_time_and_no_longer,
         without_a_reader_the_last_mebibyte_is_kept_and_the_gap_is_reported,
         input_is_queued_to_256_KiB_and_refused_beyond_whole, stdin_that_was_not_kept_open_ends_behind_its_bytes,
         signals_reach_the_process_or_its_group, a_terminal_is_resized_and_others_have_none,
         wait_ends_with_the_process_or_with_its_deadline, a_run_ends_when_its_caller_goes_away_or_gives_up,
         runs_given_up_while_they_wait_leave_no_sandbox, a_cancelled_call_gets_one_end_with_code_1, the_deadline_of_a_run_ends_it,
         a_key_makes_one_sandbox_and_one_process_however_often_it_is_sent,
         jobs_of_a_sandbox_are_counted_and_a_full_one_says_so, two_readers_see_the_same]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
