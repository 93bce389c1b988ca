#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Transactions over the wire and through the command: refusals, conflicts, policies, hostile names, nothing left over."""

from api import CANCELLED, NOT_FOUND, PRECONDITION, PROCESS, SANDBOX, connect, main
from broker import Broker
from forks import boxes, settled
from interpreter import Cell
from runner import check, time_passes, until
from slowness import SLOWNESS, scaled
from snapshots import SNAPSHOT, make, names, new, restore, sh
from sp import EXHAUSTED, INVALID, Failed

TRANSACTION = "/stockade.v1.TransactionService/"
ABORTED = 10
OPEN, COMMITTED, DISCARDED = 1, 2, 3
ASK, ON_SUCCESS = 1, 2
CODE = "/stockade.v1.CodeService/"
CONFIG = """
socket: {mode: 0666}
pool: 4
bpf: {enabled: false}
quotas: {sandboxes_per_caller: 24}
templates:
  - name: default
    limits: {disk: 16M, inodes: 2000, memory: 128M}
"""


def begin(c, box, **more):
    return c.unary(TRANSACTION + "Begin", {"sandbox": box, **more}).transaction.id


def get(c, tx):
    return c.unary(TRANSACTION + "Get", {"id": tx}).transaction


def commit(c, tx, **more):
    return c.unary(TRANSACTION + "Commit", {"id": tx, **more}).transaction


def discard(c, tx):
    return c.unary(TRANSACTION + "Discard", {"id": tx}).transaction


def listed(c, box=""):
    return [t.id for t in c.unary(TRANSACTION + "List", {"sandbox": box}).transactions]


def alone(b, c):
    """No sandbox of an earlier test is left, not even one that is being removed."""
    b.cli("rm", "--all")
    settled(c, 0)


def no(c, method, fields, code, *words):
    failed = c.fails(TRANSACTION + method, fields)
    text = f"{failed.message} {failed.details}"
    check(failed.code == code, f"{method} {fields}: {failed.code} {text}, not {code}")
    for word in words:
        check(word in text, f"{method} {fields}: {word!r} is not in {text!r}")


def conflict(c, tx, *paths):
    no(c, "Commit", {"id": tx}, ABORTED, "TRANSACTION_CONFLICT")
    got = list(get(c, tx).conflicts)
    check(got == [p if isinstance(p, bytes) else p.encode() for p in paths], f"{got} is not {paths}")


def job(c, box, line, policy, code=0):
    """A process in a transaction, to its end: (outcome of the transaction, output)."""
    j = c.finish(c.stream("Start", {"sandbox_id": box, "command": c.shell(line), "foreground": True, "transaction": policy}))
    check(j.result.exit_code == code, f"{line}: {j.result}")
    return j.exited.transaction, j


def changes(outcome):
    return [(ch.kind, ch.path.decode(errors="backslashreplace")) for ch in outcome.changes]


# ---- what is refused


def what_is_not_there_is_refused(b, c):
    alone(b, c)
    box = new(c)
    for method in ("Get", "Commit", "Discard"):
        no(c, method, {"id": "none"}, NOT_FOUND, "TRANSACTION_UNKNOWN")
        no(c, method, {"id": box}, NOT_FOUND)
        no(c, method, {"id": "../x"}, INVALID)
    no(c, "Begin", {"sandbox": "none"}, NOT_FOUND)
    no(c, "List", {"sandbox": "none"}, NOT_FOUND)
    held = c.start(box, "echo x; sleep 100")
    c.until(held, lambda: b"x" in held.output)
    no(c, "Begin", {"sandbox": box}, PRECONDITION, "JOBS_RUN")
    for method, fields in ((PROCESS + "Start", {"command": c.shell("true"), "foreground": True}), (CODE + "RunCode", {"code": "1"})):
        failed = c.fails(method, {"sandbox_id": box, "transaction": ASK, **fields})
        check(failed.code == PRECONDITION and "JOBS_RUN" in f"{failed.details}", f"{method}: {failed} {failed.details}")
    failed = c.fails(CODE + "RunCode", {"code": "1", "transaction": ASK})
    check(failed.code == INVALID and "transaction" in f"{failed.details}", f"{failed}")
    tx = begin(c, box, stop=True)
    check(c.finish(held).result.outcome == CANCELLED, "it was cancelled")
    r = b.stranger("transaction", "commit", tx)
    check(r.returncode == 1 and b"no transaction" in r.stderr, f"{r.returncode} {r.stderr}")
    check(listed(c) == [tx] == listed(c, box), "one")
    discard(c, tx)
    discard(c, tx)
    no(c, "Commit", {"id": tx}, PRECONDITION, "TRANSACTION_ENDED", "discarded")
    until(lambda: boxes(c) == {box}, "its sandbox goes")


def a_begin_above_the_quota_of_sandboxes_is_refused(b, c):
    """Its fork fails before the request for it returns."""
    alone(b, c)
    box = new(c)
    forks = [s.id for s in c.unary(SANDBOX + "Fork", {"id": box, "count": 23}).sandboxes]
    for _ in range(3):
        no(c, "Begin", {"sandbox": box}, EXHAUSTED, "QUOTA_SANDBOXES")
    try:
        job(c, box, "true", ON_SUCCESS)
        check(False, "a job in a transaction was started")
    except Failed as failed:
        check(failed.code == EXHAUSTED and failed.reason == "QUOTA_SANDBOXES", failed)
    check(listed(c) == [], "none was begun")
    c.unary(SANDBOX + "Delete", {"id": forks[0]})
    discard(c, begin(c, box))
    alone(b, c)


def jobs_on_either_side_refuse_a_commit(b, c):
    box = new(c)
    tx = begin(c, box)
    sh(c, tx, "echo t > T")
    for where in (tx, box):
        held = c.start(where, "echo x; sleep 100")
        c.until(held, lambda: b"x" in held.output)
        no(c, "Commit", {"id": tx}, PRECONDITION, "JOBS_RUN")
        check(get(c, tx).state == OPEN and "run" in get(c, tx).refused, f"{get(c, tx)}")
        if where == tx:
            c.unary(PROCESS + "Signal", {"process_id": held.id, "signal": 9})
            c.finish(held)
    commit(c, tx, stop=True)
    check(c.finish(held).result.outcome == CANCELLED, "it was cancelled")
    check(sh(c, box, "cat T") == "t\n", "committed")


def changes_that_do_not_fit_are_refused(b, c):
    box = new(c)
    one, two = begin(c, box), begin(c, box)
    for tx in (one, two):
        sh(c, tx, f"head -c 10M /dev/urandom > {'A' if tx == one else 'B'}")
    commit(c, one)
    no(c, "Commit", {"id": two}, EXHAUSTED, "DISK_FULL")
    check(sh(c, box, "ls") == "A\n" and sh(c, two, "ls") == "B\n", "both as before")
    sh(c, box, "rm A")
    sh(c, two, "rm B; echo small > B")
    no(c, "Commit", {"id": two}, EXHAUSTED, "DISK_FULL")  # the layers below keep what was removed
    discard(c, two)


# ---- what it does


def a_commit_brings_all_and_a_discard_nothing(b, c):
    alone(b, c)
    box = new(c)
    sh(c, box, "echo a > A; mkdir -p d/e; echo x > d/e/x; echo gone > G; chmod 600 A; ln -s A L; echo s > /dev/shm/S")
    before = sh(c, box, "find . /tmp /dev/shm -printf '%p %m %s %l\n' | sort")
    line = ("echo b >> A; chmod 640 A; rm G; rm -r d; mkdir d; echo new > d/n; ln -sf d L; ln A H; mkfifo F; echo t > /tmp/T; "
            "rm /dev/shm/S; : > $(printf 'n\\377\\n')")
    look = "find . /tmp /dev/shm -printf '%p %y %m %s %l %n\n' | sort; cat A d/n /tmp/T"
    for end in (discard, commit):
        tx = begin(c, box)
        check(names(c, tx) == ["begin"], "a snapshot of its begin")
        sh(c, tx, line)
        check(sh(c, box, "find . /tmp /dev/shm -printf '%p %m %s %l\n' | sort") == before, "not seen before")
        after = sh(c, tx, look)
        diff = c.unary(SNAPSHOT + "Diff", {"sandbox_id": tx, "first": "begin"}).changes
        check(len(diff) == 11, f"{[(ch.kind, ch.path) for ch in diff]}")
        check(end(c, tx).state == (DISCARDED if end is discard else COMMITTED), "its state")
        if end is discard:
            check(sh(c, box, "find . /tmp /dev/shm -printf '%p %m %s %l\n' | sort") == before, "nothing of it")
    check(sh(c, box, look) == after, f"{sh(c, box, look)} is not {after}")
    check(get(c, tx).state == COMMITTED and len(listed(c, box)) == 2, "both are remembered")
    no(c, "Discard", {"id": tx}, PRECONDITION, "TRANSACTION_COMMITTED")
    sh(c, box, "echo more >> A; rm -r d H; rm L F")
    until(lambda: boxes(c) == {box}, "no sandbox is left")


def commits_in_turn_go_together_unless_they_touch_the_same(b, c):
    box = new(c)
    sh(c, box, "mkdir D E; echo 1 > D/a; echo 1 > D/b; echo 1 > E/c; echo 1 > X")
    txs = [begin(c, box) for _ in range(7)]
    sh(c, txs[0], "echo 2 > D/a; echo new > D/n; rm X")
    sh(c, txs[1], "echo 3 > D/b; echo new > E/n")             # other files of the same folder
    sh(c, txs[2], "echo 4 > D/a; echo 5 > D/n")               # the same file, and the same new one
    sh(c, txs[3], "rm -r D; mkdir D; echo only > D/only")     # a folder in which the others wrote
    sh(c, txs[4], "chmod 700 E; echo 6 > E/c")                # a folder in which another one wrote: no conflict
    sh(c, txs[5], "echo 7 > X")                               # removed by another one
    commit(c, txs[0])
    commit(c, txs[1])
    conflict(c, txs[2], "/home/agent/D/a", "/home/agent/D/n")
    conflict(c, txs[3], "/home/agent/D/a", "/home/agent/D/b", "/home/agent/D/n")
    commit(c, txs[4])
    conflict(c, txs[5], "/home/agent/X")
    commit(c, txs[6])  # wrote nothing
    want = "2\n3\nnew\n6\nnew\n700\n"
    got = sh(c, box, "cat D/a D/b D/n E/c E/n; stat -c %a E; cat X 2>/dev/null; true")
    check(got == want, f"{got!r}")
    sh(c, txs[2], "cp $HOME/D/b D/b2; true")
    check(get(c, txs[2]).state == OPEN, "a refused one stays open")
    for tx in (txs[2], txs[3], txs[5]):
        discard(c, tx)


def what_would_be_lost_conflicts(b, c):
    box = new(c)
    sh(c, box, "mkdir D M R; echo 1 > D/a; echo 1 > M/a; echo 1 > R/a")
    replaced, inside, removed = begin(c, box), begin(c, box), begin(c, box)
    sh(c, replaced, "rm -r D; mkdir D")   # the same mode: nothing but D/a is changed
    sh(c, inside, "echo 2 > M/a")         # a copy of M comes with it
    sh(c, removed, "echo 2 > R/a")
    sh(c, box, "echo new > D/new; chmod 711 M; rm -r R")
    conflict(c, replaced, "/home/agent/D/new")
    conflict(c, inside, "/home/agent/M")
    conflict(c, removed, "/home/agent/R", "/home/agent/R/a")
    check(sh(c, box, "ls D; stat -c %a M; ls") == "a\nnew\n711\nD\nM\n", "as before")
    for tx in (replaced, inside, removed):
        discard(c, tx)


def a_folder_that_hides_its_files_conflicts(b, c):
    box = new(c)
    tx = begin(c, box)
    sh(c, tx, "mkdir H; echo h > H/h; chmod 0 H")
    sh(c, box, "echo other > O")
    conflict(c, tx, "/home/agent/H")
    sh(c, tx, "chmod 700 H")
    commit(c, tx)
    check(sh(c, box, "cat H/h O") == "h\nother\n", "then it is committed")


def names_that_are_not_text_conflict_by_their_bytes(b, c):
    box = new(c)
    one, two = begin(c, box), begin(c, box)
    for tx in (one, two):
        sh(c, tx, "echo x > $(printf 'a\\377\\nb'); i=0; while [ $i -lt 300 ]; do : > many$i; i=$((i+1)); done")
    commit(c, one)
    no(c, "Commit", {"id": two}, ABORTED, r"\xff\x0ab")
    got = list(get(c, two).conflicts)
    check(got[0] == b"/home/agent/a\xff\nb" and len(got) == 100, f"{got[:2]} {len(got)}")
    discard(c, two)


def a_rollback_is_a_change_of_the_sandbox(b, c):
    box = new(c)
    sh(c, box, "echo 1 > A")
    make(c, box, "early")
    sh(c, box, "echo 2 > A; echo b > B")
    one, two = begin(c, box), begin(c, box)
    sh(c, one, "echo 3 > A")
    sh(c, two, "echo c > C")
    restore(c, box, "early")
    conflict(c, one, "/home/agent/A")
    commit(c, two)
    check(sh(c, box, "cat A C; ls") == "1\nc\nA\nC\n", "on the files of now")
    discard(c, one)


def snapshots_and_forks_have_what_was_committed(b, c):
    alone(b, c)
    box = new(c)
    tx = begin(c, box)
    sh(c, tx, "echo 1 > A")
    make(c, tx, "inner")
    sh(c, tx, "echo 2 > A; echo b > B")
    nested = begin(c, tx)
    sh(c, nested, "echo 3 > N; chown 1000 N")
    commit(c, nested)
    commit(c, tx)
    until(lambda: boxes(c) == {box}, "the forks go")
    look = "stat -c '%n %U %a' A B N; cat A B N"
    was = sh(c, box, look)
    check(was.endswith("2\nb\n3\n"), was)
    make(c, box, "after")
    sh(c, box, "rm A B; echo 4 > N")
    made = c.unary(SANDBOX + "Fork", {"id": box, "snapshot": "after"}).sandboxes[0].id
    check(sh(c, made, look) == was, "a fork has them")
    restore(c, box, "after")
    check(sh(c, box, look) == was, "and so has the snapshot")


def begin_when_joined(c, box):
    """Before Linux 6.3 a transaction begins with a copy of each layer. On an emulated machine twenty of them take longer than
    a call may, until they are joined in the background."""
    def begun():
        try:
            return begin(c, box)
        except Failed as failed:
            if SLOWNESS == 1 or failed.reason != "COPY_TIME":
                raise
            return None
    return until(begun, "it begins")


def many_commits_leave_no_layers(b, c):
    box = new(c)
    for i in range(30):
        tx = begin_when_joined(c, box)
        sh(c, tx, f"echo {i} > A")
        discard(c, tx)
    for i in range(30):
        tx = begin_when_joined(c, box)
        sh(c, tx, f"echo {i} > A")
        commit(c, tx)
    check(sh(c, box, "cat A") == "29\n", "the last one")
    check(len(listed(c, box)) == 60, "all are remembered")
    for _ in range(10):
        discard(c, begin_when_joined(c, box))
    check(len(listed(c, box)) == 64, "no more than these")


# ---- jobs and cells


def the_policy_decides_at_the_end_of_a_job(b, c):
    alone(b, c)
    box = new(c)
    got, j = job(c, box, "echo a > A; echo out; mkdir d", ASK)
    check(changes(got) == [(1, "/home/agent/A"), (1, "/home/agent/d")] and not got.more, f"{got}")
    check(got.transaction.state == OPEN and got.changes[0].after.size == 2 and got.changes[1].after.mode & 0o777, f"{got}")
    check(j.output == b"out\n" and j.sandbox == got.transaction.id != box, "it ran in the transaction")
    check(sh(c, box, "ls") == "", "nothing yet")
    commit(c, got.transaction.id)
    got, _ = job(c, box, "echo b >> A; rm -r d", ON_SUCCESS)
    check(changes(got) == [(2, "/home/agent/A"), (3, "/home/agent/d")], f"{got}")
    check(got.transaction.state == COMMITTED and sh(c, box, "ls; cat A") == "A\na\nb\n", f"{got}")
    got, _ = job(c, box, "rm A; exit 3", ON_SUCCESS, 3)
    check(changes(got) == [(3, "/home/agent/A")] and got.transaction.state == DISCARDED, f"{got}")
    check(sh(c, box, "cat A") == "a\nb\n", "as before")
    got, _ = job(c, box, "true", ON_SUCCESS)
    check(not got.changes and got.transaction.state == COMMITTED, f"{got}")
    j = c.finish(c.stream("Start", {"sandbox_id": box, "command": {"args": ["/no/such"]}, "transaction": ON_SUCCESS}))
    check(j.exited.transaction.transaction.state == DISCARDED, f"{j.exited}")
    until(lambda: boxes(c) == {box}, "a transaction whose job does not start goes")


def a_policy_is_carried_out_without_its_caller(b, c):
    box = new(c)
    other = connect(b)
    j = other.stream("Start", {"sandbox_id": box, "transaction": ON_SUCCESS,
                               "command": c.shell("echo x; read line; echo $line > A", stdin_open=True)})
    other.until(j, lambda: b"x" in j.output)
    other.close()
    c.unary(PROCESS + "Input", {"process_id": j.id, "data": b"hello\n"})
    until(lambda: get(c, j.sandbox).state == COMMITTED, "it is committed")
    check(sh(c, box, "cat A") == "hello\n", "what it wrote")


def a_job_that_conflicts_says_so(b, c):
    box = new(c)
    j = c.stream("Start", {"sandbox_id": box, "transaction": ON_SUCCESS, "foreground": True,
                           "command": c.shell("echo x; read line; echo mine > A", stdin_open=True)})
    c.until(j, lambda: b"x" in j.output)
    sh(c, box, "echo theirs > A")
    c.unary(PROCESS + "Input", {"process_id": j.id, "data": b"\n"})
    c.finish(j)
    got = get(c, j.sandbox)
    check(got.state == OPEN and list(got.conflicts) == [b"/home/agent/A"] and "A" in got.refused, f"{got}")
    check(sh(c, box, "cat A") == "theirs\n", "as it was")
    discard(c, got.id)


def many_changes_come_in_part(b, c):
    box = new(c)
    got, _ = job(c, box, "i=0; while [ $i -lt 150 ]; do : > $i; i=$((i+1)); done", ASK)
    check(len(got.changes) == 100 and got.more, f"{len(got.changes)} {got.more}")
    deep = "x" * 200
    got, _ = job(c, box, f"d={deep}; i=0; while [ $i -lt 15 ]; do mkdir $d; cd $d; i=$((i+1)); done; for i in a b c d e f g h i j; do : > $i; done", ASK)
    check(0 < len(got.changes) < 25 and got.more, f"{len(got.changes)} {got.more}")


def a_cell_writes_to_a_transaction(b, c):
    box = new(c)

    def cell(code, policy):
        return Cell(c, {"code": code, "sandbox_id": box, "transaction": policy, "language": "bash"}).finish().end.transaction

    got = cell("echo 1 > A", ASK)
    check(changes(got) == [(1, "/home/agent/A")] and got.transaction.state == OPEN, f"{got}")
    no(c, "Commit", {"id": got.transaction.id}, PRECONDITION, "JOBS_RUN")  # its interpreter
    commit(c, got.transaction.id, stop=True)
    got = cell("echo 2 > A", ON_SUCCESS)
    check(got.transaction.state == COMMITTED and sh(c, box, "cat A") == "2\n", f"{got}")
    got = cell("echo 3 > A; false", ON_SUCCESS)
    check(got.transaction.state == DISCARDED and sh(c, box, "cat A") == "2\n", f"{got}")


# ---- ends


def the_end_of_a_sandbox_is_the_end_of_its_transactions(b, c):
    alone(b, c)
    box = new(c)
    one, two = begin(c, box), begin(c, box)
    c.unary(SANDBOX + "Delete", {"id": one})
    until(lambda: get(c, one).state == DISCARDED, "a deleted fork is a discarded transaction")
    c.unary(SANDBOX + "Delete", {"id": box})
    until(lambda: not boxes(c) and not listed(c), "nothing is left")
    no(c, "Get", {"id": two}, NOT_FOUND)
    short = begin(c, new(c), ttl_ms=int(scaled(300)))
    until(lambda: get(c, short).state == DISCARDED, "its time is over")


def metric(c, name):
    name = f"stockade_transaction{name}"
    return sum(s.value + s.count for m in c.unary("/stockade.v1.MetricsService/Get", {"prefix": name}).metrics if m.name == name for s in m.samples)


def the_metrics_count_each_end(b, c):
    alone(b, c)
    until(lambda: metric(c, "s") == 0, lambda: f"{metric(c, 's')} are open")
    kinds = ("s_begun_total", "s_discarded_total", "_commit_failures_total", "_conflicts_total", "_commit_seconds")
    before = [metric(c, kind) for kind in kinds]
    box = new(c)
    txs = [begin(c, box) for _ in range(5)]
    check(metric(c, "s") == 5, f"{metric(c, 's')} are open")
    for tx in txs[:2]:
        sh(c, tx, "echo x > same")
    commit(c, txs[0])
    conflict(c, txs[1], "/home/agent/same")
    conflict(c, txs[1], "/home/agent/same")
    discard(c, txs[1])
    discard(c, txs[1])
    c.unary(SANDBOX + "Delete", {"id": txs[2]})
    until(lambda: metric(c, "s") == 2, lambda: f"{metric(c, 's')} are open")
    c.unary(SANDBOX + "Delete", {"id": box})
    until(lambda: metric(c, "s") == 0, lambda: f"{metric(c, 's')} are open")
    got = [metric(c, kind) - was for kind, was in zip(kinds, before)]
    check(got[0] == 5 and got[2:4] == [2, 2] and got[1] == 4, f"{got}")


def a_shutdown_in_the_middle_of_a_commit_is_in_order(b, c):
    own = Broker(config=CONFIG, name="-t").start()
    for turn in range(12):
        d = connect(own)
        box = new(d)
        sh(d, box, "echo base > A")
        txs = [begin(d, box) for _ in range(2)]
        jobs = []
        for where in (box, *txs):
            jobs.append(d.start(where, "trap '' TERM INT HUP; echo x > B$$; echo y; while :; do sleep 1; done"))
            d.until(jobs[-1], lambda: b"y" in jobs[-1].output)
        for tx in txs:
            d.begin(TRANSACTION + "Commit", {"id": tx, "stop": True})
        d.begin(SNAPSHOT + "Create", {"sandbox": box, "stop": True})
        time_passes("the commits are in different steps", turn * 0.004)
        check(own.stop() == 0, "an orderly end")
        check(not own.cgroups(), f"{own.cgroups()}")
        own.start()
    check(own.stop() == 0, "and at last")


def nothing_is_left_over(b, c):
    before = None
    for turn in range(2):  # after the first one the pool is as after the second
        alone(b, c)
        box = new(c)
        txs = [begin(c, box) for _ in range(3)]
        for i, tx in enumerate(txs):
            sh(c, tx, f"echo {i} > {i}; echo x > same")
        commit(c, txs[0])
        conflict(c, txs[1], "/home/agent/same")
        c.unary(SANDBOX + "Delete", {"id": box})
        settled(c, 0)
        if turn == 0:
            time_passes("the sandboxes of the pool come to rest", 2)
            before = b.host()
    check(b.settles(before), "the host is as it was")


TESTS = [what_is_not_there_is_refused, a_begin_above_the_quota_of_sandboxes_is_refused, jobs_on_either_side_refuse_a_commit, changes_that_do_not_fit_are_refused,
         a_commit_brings_all_and_a_discard_nothing, commits_in_turn_go_together_unless_they_touch_the_same,
         what_would_be_lost_conflicts, a_folder_that_hides_its_files_conflicts,
         names_that_are_not_text_conflict_by_their_bytes, a_rollback_is_a_change_of_the_sandbox,
         snapshots_and_forks_have_what_was_committed, many_commits_leave_no_layers, the_policy_decides_at_the_end_of_a_job,
         a_policy_is_carried_out_without_its_caller, a_job_that_conflicts_says_so, many_changes_come_in_part,
         a_cell_writes_to_a_transaction, the_end_of_a_sandbox_is_the_end_of_its_transactions, the_metrics_count_each_end,
         a_shutdown_in_the_middle_of_a_commit_is_in_order, nothing_is_left_over]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
