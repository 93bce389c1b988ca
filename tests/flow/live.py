#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Live state: checkpoints of contexts, restores and forks, and what cannot be carried."""

from api import EXISTS, NOT_FOUND, PRECONDITION, SANDBOX, connect, main
from broker import Broker
from interpreter import CANCELLED, CODE, CRASHED, DOWN, IDLE, OK, Cell, box, context, contexts, is_ok, run
from runner import Skipped, check, until
from sp import EXHAUSTED, INVALID

CONFIG = """
pool: 2
limits_default: {pids: 64}
templates: [{name: default}, {name: warm, pool: 1, warm: {python: []}}]
"""


def checkpoint(c, ctx, name=""):
    return c.unary(CODE + "CheckpointContext", {"context_id": ctx, "name": name}).checkpoint


def checkpoints(c, sandbox):
    return c.unary(CODE + "ListCheckpoints", {"sandbox_id": sandbox}).checkpoints


def restore(c, ctx, name):
    return c.unary(CODE + "RestoreContext", {"context_id": ctx, "checkpoint": name}).context


def fork(c, ctx, name=""):
    return c.unary(CODE + "ForkContext", {"context_id": ctx, "checkpoint": name}).context


def delete(c, sandbox, name):
    c.unary(CODE + "DeleteCheckpoint", {"sandbox_id": sandbox, "name": name})


def gone(c, sandbox):
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def ready(c, sandbox, code="x = 1", **fields):
    """A context that has run a cell."""
    ctx = context(c, sandbox, **fields).id
    is_ok(run(c, code, context_id=ctx))
    return ctx


def refuse(c, method, fields, code):
    failed = c.fails(CODE + method, fields)
    check(failed.code == code, f"{method} {fields}: {failed}")
    return failed


def cannot(c, ctx, *words):
    failed = refuse(c, "CheckpointContext", {"context_id": ctx}, PRECONDITION)
    check(all(word in failed.message for word in words) and failed.reason == "LIVE_STATE", f"{failed.message} has {words}")
    return failed


def hint(failed):
    return str(failed.details)


def unknown_names_are_refused(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox)
    refuse(c, "CheckpointContext", {"context_id": "0" * 32}, NOT_FOUND)
    refuse(c, "CheckpointContext", {"context_id": ctx, "name": "a b"}, INVALID)
    refuse(c, "CheckpointContext", {"context_id": ctx, "name": "x" * 65}, INVALID)
    refuse(c, "RestoreContext", {"context_id": ctx, "checkpoint": "none"}, NOT_FOUND)
    for name in ("a/b", "-a"):
        failed = refuse(c, "CheckpointContext", {"context_id": ctx, "name": name}, INVALID)
        check(f"'{name}' must consist of letters" in failed.message, failed.message)
    refuse(c, "RestoreContext", {"context_id": ctx}, INVALID)
    refuse(c, "ForkContext", {"context_id": ctx, "checkpoint": "none"}, NOT_FOUND)
    refuse(c, "DeleteCheckpoint", {"sandbox_id": sandbox, "name": "none"}, NOT_FOUND)
    checkpoint(c, ctx, "one")
    refuse(c, "CheckpointContext", {"context_id": ctx, "name": "one"}, EXISTS)
    gone(c, sandbox)


def memory_does_not_go_to_another_sandbox(b, c):
    sandbox, other = box(c), box(c)
    checkpoint(c, ready(c, sandbox), "one")
    there = ready(c, other)
    status = refuse(c, "RestoreContext", {"context_id": there, "checkpoint": "one"}, NOT_FOUND)
    check("another sandbox" not in status.message and other in status.message, status.message)
    for one in (sandbox, other):
        gone(c, one)


def other_languages_say_that_they_cannot(b, c):
    sandbox = box(c)
    ctx = context(c, sandbox, language="bash").id
    is_ok(run(c, "x=1", context_id=ctx))
    check("snapshots" in hint(cannot(c, ctx, "bash")), "and what to use instead")
    gone(c, sandbox)


def a_context_that_runs_or_has_no_interpreter_is_refused(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox)
    cell = Cell(c, {"code": "print('go', flush=True)\nimport time; time.sleep(60)", "context_id": ctx})
    cell.until(lambda: cell.text)
    cannot(c, ctx, "runs a cell")
    c.unary(CODE + "InterruptContext", {"context_id": ctx})
    cell.finish()
    run(c, "import os; os._exit(1)", context_id=ctx)
    until(lambda: contexts(c, sandbox)[0].state == DOWN, "it has ended")
    cannot(c, ctx, "no interpreter")
    gone(c, sandbox)


OBSTACLES = {
    "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True, name='mine').start()": ("threads", "mine"),
    "import subprocess\np = subprocess.Popen(['sleep', '99'])": ("child processes",),
    "import socket\ns = socket.socketpair()": ("descriptor", "connection"),
    "import os\np = os.pipe()": ("descriptor", "pipe"),
    "import os, select\np = select.epoll()": ("descriptor", "eventpoll"),
    "import tempfile\nt = tempfile.TemporaryFile()": ("without a name",),
    "import mmap\nm = mmap.mmap(-1, 4096)": ("shares memory",),
    "import signal\nsignal.setitimer(signal.ITIMER_REAL, 99)": ("timer",),
    "import fcntl\nf = open('/tmp/f', 'w'); fcntl.flock(f, fcntl.LOCK_EX)": ("lock",),
    "import asyncio\nawait asyncio.sleep(0)\nt = asyncio.ensure_future(asyncio.sleep(99))\nawait asyncio.sleep(0)": ("tasks",),
}


def what_a_fork_cannot_carry_is_refused(b, c):
    sandbox = box(c)
    for code, words in OBSTACLES.items():
        ctx = ready(c, sandbox, f"x = 7\n{code}")
        cannot(c, ctx, *words)
        refuse(c, "ForkContext", {"context_id": ctx}, PRECONDITION)
        check(run(c, "x", context_id=ctx).main == ["7"], "the context goes on")
        c.unary(CODE + "DeleteContext", {"context_id": ctx})
    check(len(checkpoints(c, sandbox)) == 0, "none was made")
    gone(c, sandbox)


def the_number_and_the_memory_are_bounded(b, c):
    sandbox = box(c, limits={"memory_bytes": 256 << 20})
    ctx = ready(c, sandbox)
    for _ in range(8):
        checkpoint(c, ctx)
    refuse(c, "CheckpointContext", {"context_id": ctx}, EXHAUSTED)
    check([p.name for p in checkpoints(c, sandbox)] == [f"checkpoint-{n}" for n in range(1, 9)], "oldest first")
    for n in range(1, 9):
        delete(c, sandbox, f"checkpoint-{n}")
    is_ok(run(c, "big = b'x' * (150 << 20)", context_id=ctx))
    check("memory_bytes" in hint(refuse(c, "CheckpointContext", {"context_id": ctx}, EXHAUSTED)), "the limit is named")
    refuse(c, "ForkContext", {"context_id": ctx}, EXHAUSTED)
    is_ok(run(c, "del big", context_id=ctx))
    check(checkpoint(c, ctx).name == "checkpoint-1", "there is room again")
    gone(c, sandbox)


def no_process_more_than_allowed(b, c):
    sandbox = box(c, limits={"pids": 12})
    ctx, refusals = ready(c, sandbox), 0
    for _ in range(8):
        call = c.begin(CODE + "CheckpointContext", {"context_id": ctx})
        status = c.recv(call).status
        refusals += status.code == PRECONDITION and "fork" in status.message
    check(refusals == 0 or run(c, "x", context_id=ctx).main == ["1"], "the context goes on")
    gone(c, sandbox)


def variables_come_back(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "import os, random, collections\nrandom.seed(5)\nx = collections.Counter('aab')\nos.chdir('/tmp')\n"
                            "os.environ['E'] = 'v'\nf = open('/tmp/lines', 'w+'); f.write('one\\ntwo\\n'); f.flush(); f.seek(0); f.readline()")
    p = checkpoint(c, ctx, "before")
    check((p.name, p.context_id, p.language, p.execution_count, p.lost) == ("before", ctx, "python", 1, ""), f"{p}")
    check(1 << 20 < p.memory_bytes < 256 << 20, f"{p.memory_bytes}")
    look = "(x['a'], os.getcwd(), os.environ['E'], f.readline(), random.random())"
    first = run(c, look, context_id=ctx)
    is_ok(first)
    is_ok(run(c, "x.clear(); os.chdir('/'); f.close(); del os.environ['E']; random.seed(6)", context_id=ctx))
    for _ in range(3):
        back = restore(c, ctx, "before")
        check((back.id, back.state, back.execution_count) == (ctx, IDLE, 1), f"{back}")
        again = run(c, look, context_id=ctx)
        check(again.main == first.main and not again.begin.fresh and again.end.execution_count == 2, f"{again.main} {first.main}")
    check(len(checkpoints(c, sandbox)) == 1, "it stays")
    gone(c, sandbox)


def a_restored_context_has_its_own_process(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "import os\npid = os.getpid()")
    checkpoint(c, ctx, "one")
    restore(c, ctx, "one")
    cell = run(c, "print(os.getpid() != pid, os.getpgid(0) == os.getpid(), open('/proc/self/cgroup').read().strip()[-20:],"
                  "sorted(map(int, os.listdir('/proc/self/fd')))[-1])\nos.system('echo child'); import sys; sys.stderr.write('e')", context_id=ctx)
    is_ok(cell)
    words = cell.text.split()
    check(words[:2] == ["True", "True"] and "job-" in cell.text and int(words[-2]) <= 6, cell.text)
    check("child" in words and cell.output[2] == b"e", f"its output is its own: {cell.output}")
    slow = Cell(c, {"code": "print('go', flush=True)\nwhile True: pass", "context_id": ctx})
    slow.until(lambda: slow.text)
    c.unary(CODE + "InterruptContext", {"context_id": ctx})
    check(slow.finish().end.status != OK and run(c, "pid > 0", context_id=ctx).main == ["True"], "it can be interrupted")
    gone(c, sandbox)


def forks_go_their_own_ways(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "x = [0]", workdir="/tmp", env=[{"name": "N", "value": "1"}])
    forks = [fork(c, ctx) for _ in range(4)]
    check(len({f.id for f in forks} | {ctx}) == 5 and all(f.workdir == "/tmp" for f in forks), "each is a context")
    for i, f in enumerate(forks):
        check(run(c, f"x.append({i})\nx", context_id=f.id).main == [f"[0, {i}]"], "with the variables")
    check(run(c, "x", context_id=ctx).main == ["[0]"], "the first one has its own")
    checkpoint(c, forks[3].id, "three")
    c.unary(CODE + "DeleteContext", {"context_id": forks[3].id})
    check(run(c, "x", context_id=fork(c, ctx, "three").id).main == ["[0, 3]"], "a checkpoint outlives its context")
    c.unary(CODE + "RestartContext", {"context_id": forks[0].id})
    cell = run(c, "import os\n(os.getcwd(), os.environ['N'], 'x' in globals())", context_id=forks[0].id)
    check(cell.main == ["('/tmp', '1', False)"], f"a fork that is restarted begins like the first: {cell.main}")
    gone(c, sandbox)


def a_restore_cancels_the_running_cell_and_waiting_ones_go_on(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "x = 'kept'")
    checkpoint(c, ctx, "one")
    running = Cell(c, {"code": "x = 'lost'\nprint('go', flush=True)\nimport time; time.sleep(60)", "context_id": ctx})
    running.until(lambda: running.text)
    waiting = Cell(connect(b), {"code": "x", "context_id": ctx})
    until(lambda: contexts(c, sandbox)[0].waiting == 1, "it waits")
    restore(c, ctx, "one")
    check(running.finish().end.status == CANCELLED and "restored" in running.end.reason, running.end.reason)
    check(waiting.finish().main == ["'kept'"], "with the state of the checkpoint")
    gone(c, sandbox)


def a_dead_context_comes_back(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "x = 5")
    checkpoint(c, ctx, "one")
    check(run(c, "import os; os._exit(9)", context_id=ctx).end.status == CRASHED, "it crashes")
    restore(c, ctx, "one")
    check(run(c, "x", context_id=ctx).main == ["5"], "its variables are back")
    gone(c, sandbox)


def what_follows_a_checkpoint_at_once_does_not_harm_it(b, c):
    for method in ("RestartContext", "DeleteContext"):
        sandbox = box(c)
        ctx, keeper = ready(c, sandbox, "x = 5"), ready(c, sandbox)
        for n in range(3):
            checkpoint(c, ctx, f"n{n}")
        c.unary(CODE + method, {"context_id": ctx})
        for n in range(3):
            check(run(c, "x", context_id=fork(c, keeper, f"n{n}").id).main == ["5"], f"{method} after it")
        gone(c, sandbox)


def a_crash_in_the_next_cell_does_not_harm_it(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "x = 5")
    for n in range(4):
        checkpoint(c, ctx, f"n{n}")
        check(run(c, "import os; os._exit(9)", context_id=ctx).end.status == CRASHED, "it crashes")
        restore(c, ctx, f"n{n}")
        check(run(c, "x", context_id=ctx).main == ["5"], "it is back")
    gone(c, sandbox)


def what_needs_a_checkpoint_waits_until_it_is_made_or_is_not(b, c):
    """All requests of a turn are there before the first operation has ended."""
    sandbox = box(c)
    one, two = ready(c, sandbox), ready(c, sandbox)

    def at_once(*calls):
        ids = [c.new_id() for _ in calls]
        c.socket.sendall(b"".join(c.pack(id_, c.call_frame(CODE + method, fields)) for id_, (method, fields) in zip(ids, calls)))
        return [c.recv(id_).status.code for id_ in ids]

    codes = at_once(("CheckpointContext", {"context_id": one, "name": "a"}), ("CheckpointContext", {"context_id": one, "name": "b"}),
                    ("RestoreContext", {"context_id": two, "checkpoint": "b"}))
    check(codes == [0, 0, 0], f"the last one waits: {codes}")
    codes = at_once(("CheckpointContext", {"context_id": one, "name": "c"}), ("CheckpointContext", {"context_id": one, "name": "d"}),
                    ("RestoreContext", {"context_id": two, "checkpoint": "d"}), ("ForkContext", {"context_id": two, "checkpoint": "d"}),
                    ("DeleteContext", {"context_id": one}))
    check(codes[1:4] == [NOT_FOUND] * 3, f"it was not made, because its context was deleted: {codes}")
    is_ok(run(c, "1", context_id=two))
    gone(c, sandbox)


def a_killed_checkpoint_says_so(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "import os, signal\nme = os.getpid()")
    checkpoint(c, ctx, "one")
    kill = "for p in range(2, 400):\n    if p != me:\n        try: os.kill(p, 9)\n        except OSError: pass"
    is_ok(run(c, kill, context_id=ctx))
    until(lambda: checkpoints(c, sandbox)[0].lost, "it is lost")
    check("signal 9" in checkpoints(c, sandbox)[0].lost, checkpoints(c, sandbox)[0].lost)
    refuse(c, "RestoreContext", {"context_id": ctx, "checkpoint": "one"}, PRECONDITION)
    check(run(c, "me == os.getpid()", context_id=ctx).main == ["True"], "the context has kept its own")
    delete(c, sandbox, "one")
    check(len(checkpoints(c, sandbox)) == 0, "it can be deleted")
    gone(c, sandbox)


def a_snapshot_ends_checkpoints_and_says_so(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox)
    checkpoint(c, ctx, "one")
    c.unary(CODE + "DeleteContext", {"context_id": ctx})
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": sandbox, "name": "files", "stop": True})
    until(lambda: checkpoints(c, sandbox)[0].lost, "it is lost")
    gone(c, sandbox)


def an_interpreter_that_lies_harms_itself_alone(b, c):
    """Its cells replace what the kernel program calls: a fork of it is refused with that reason, and no call can be repeated as it is."""
    sandbox = box(c)
    child = "import os\nos.register_at_fork(after_in_child=lambda: setattr(os, 'write', lambda fd, data: os.writev(fd, [%s])))"
    for code in ("import os\nos.fork = lambda: 1", "import os\ndef f(): raise MemoryError\nos.fork = f",
                 "import os\nos.listdir = None", child % "b'forked 1 1 1'", child % "b'x' * 600", child % "b'forked 1 1'",
                 "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))"):
        ctx = ready(c, sandbox, f"x = 1\n{code}")
        call = c.begin(CODE + "CheckpointContext", {"context_id": ctx})
        status = c.recv(call).status
        check(status.code != 0 or checkpoints(c, sandbox), f"{code}: {status}")
        check(status.code in (0, PRECONDITION), f"{code}: {status}")
        c.unary(CODE + "DeleteContext", {"context_id": ctx})
        for p in checkpoints(c, sandbox):
            delete(c, sandbox, p.name)
    second = "data if data.startswith(b'forked') else %s"
    for code in (child % (second % "b'1'"), child % (second % "b'77777'"), child % (second % "os._exit(3)"), child % "os._exit(3)"):
        ctx = ready(c, sandbox, code)
        status = refuse(c, "ForkContext", {"context_id": ctx}, PRECONDITION)
        check(status.reason == "LIVE_STATE" and "restart the context" in hint(status), f"{code}: {status}")
        c.unary(CODE + "DeleteContext", {"context_id": ctx})
    ctx = ready(c, sandbox)
    checkpoint(c, ctx, "one")
    check(run(c, "x", context_id=fork(c, ctx, "one").id).main == ["1"], "the next one is as usual")
    gone(c, sandbox)


def a_warm_sandbox_has_it_too(b, c):
    until(lambda: next(t for t in c.unary("/stockade.v1.SystemService/Info", {}).templates if t.name == "warm").pool_warm, "warm")
    sandbox = box(c, template="warm")
    ctx = ready(c, sandbox, "x = 3")
    checkpoint(c, ctx, "one")
    is_ok(run(c, "x = 4", context_id=ctx))
    check(run(c, "x", context_id=fork(c, ctx).id).main == ["4"], "forked")
    restore(c, ctx, "one")
    check(run(c, "x", context_id=ctx).main == ["3"], "restored")
    gone(c, sandbox)


def an_event_loop_that_rests_is_no_obstacle(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "import asyncio\nasync def f(): return 4\nx = await f()")
    checkpoint(c, ctx, "one")
    check(run(c, "x + await f()", context_id=ctx).main == ["8"], "the first goes on with its loop")
    restore(c, ctx, "one")
    check(run(c, "x + await f()", context_id=ctx).main == ["8"], "the other has a new one")
    gone(c, sandbox)


def tables_and_pictures_come_back(b, c):
    """Their libraries have threads of their own, which end when the process forks."""
    sandbox = box(c)
    cell = run(c, "import numpy, pandas", sandbox_id=sandbox)
    if cell.end.status != OK:
        raise Skipped(f"no pandas: {cell.error}")
    ctx = ready(c, sandbox, "import numpy as n, pandas as p\na = n.ones((900, 900))\na = a @ a\nt = p.DataFrame({'x': [1, 2]})\nn.random.seed(4)")
    checkpoint(c, ctx, "one")
    look = "(float((a @ a)[0, 0]), int(t['x'].sum()), float(n.random.random()))"
    first = run(c, look, context_id=ctx)
    is_ok(first)
    is_ok(run(c, "del a, t", context_id=ctx))
    restore(c, ctx, "one")
    again = run(c, look, context_id=ctx)
    check(again.main == first.main and first.main[0].startswith("(729000000.0, 3"), f"{first.main} {again.main} {again.error}")
    gone(c, sandbox)


def nothing_is_left_of_many(b, c):
    sandbox = box(c)
    ctx = ready(c, sandbox, "x = 0")
    for n in range(40):
        checkpoint(c, ctx, "p")
        restore(c, ctx, "p")
        check(run(c, "x += 1\nx", context_id=ctx).main == [str(n + 1)], "each goes on from the one before")
        delete(c, sandbox, "p")
    count = "ls /proc | grep -c '^[0-9]'"
    until(lambda: int(run(c, count, sandbox_id=sandbox, language="bash").text) <= 6, "no process is left")
    gone(c, sandbox)
    rows = {line.split()[0]: line.split()[-1] for line in b.cli("metrics", "--all").stdout.decode().splitlines() if line.split()}
    until(lambda: rows["stockade_checkpoints"] == "0", "and none is counted")


def a_sandbox_that_goes_takes_all_along(b, c):
    for _ in range(5):
        sandbox = box(c)
        ctx = ready(c, sandbox)
        checkpoint(c, ctx)
        calls = [c.begin(CODE + "CheckpointContext", {"context_id": ctx}), c.begin(CODE + "ForkContext", {"context_id": ctx}),
                 c.begin(CODE + "RestoreContext", {"context_id": ctx, "checkpoint": "checkpoint-1"})]
        gone(c, sandbox)
        for call in calls:
            c.recv(call)
    sandbox = box(c)
    check(run(c, "1", context_id=ready(c, sandbox)).main == ["1"], "the broker goes on")
    gone(c, sandbox)


def another_caller_sees_none_of_it(b, c):
    sandbox = box(c, name="mine")
    ctx = ready(c, sandbox)
    checkpoint(c, ctx, "one")
    for line in (["create", sandbox, "--context", ctx], ["ls", sandbox], ["ls", "mine"], ["restore", sandbox, "one", "--context", ctx],
                 ["fork", sandbox, "--context", ctx], ["rm", sandbox, "one"]):
        r = b.stranger("checkpoint", *line)
        check(r.returncode != 0 and b"there is no" in r.stderr, f"{line}: {r.stderr}")
    gone(c, sandbox)


def the_command_does_all_of_it(b, c):
    sandbox = box(c, name="notebook")

    def said(*line, code=0):
        r = b.cli(*line)
        check(r.returncode == code, f"{line}: {r.returncode} {r.stderr.decode()}")
        return (r.stdout if code == 0 else r.stderr).decode()

    check("has run no python" in said("checkpoint", "create", "notebook", code=1), "nothing to keep")
    check("actions are" in said("checkpoint", "keep", "notebook", code=2), "an unknown action")
    check("needs a SANDBOX and a NAME" in said("checkpoint", "restore", "notebook", code=2), "a name is missing")
    check("--context needs" in said("checkpoint", "ls", "notebook", "--context", "x", code=2), "an option that does not belong")
    said("code", "--sandbox", "notebook", "-c", "x = 'first'")
    check(said("checkpoint", "create", "notebook", "before") == "before\n", "it prints the name")
    said("code", "--sandbox", "notebook", "-c", "x = 'second'")
    ctx = said("checkpoint", "fork", "notebook").strip()
    old = said("checkpoint", "fork", "notebook", "before").strip()
    check(said("code", "--context", ctx, "-c", "x") == "'second'\n" and said("code", "--context", old, "-c", "x") == "'first'\n", "two forks")
    said("checkpoint", "restore", "notebook", "before")
    check(said("code", "--sandbox", "notebook", "-c", "x") == "'first'\n", "restored")
    check(said("checkpoint", "ls", "notebook").splitlines()[1].startswith("before "), "listed")
    check("no checkpoint other" in said("checkpoint", "rm", "notebook", "other", code=1), "an unknown one")
    said("checkpoint", "rm", "notebook", "before")
    check(said("checkpoint", "ls", "notebook", "-o", "json").strip() == "[]", "and gone")
    gone(c, sandbox)


if __name__ == "__main__":
    main(Broker(config=CONFIG), [
        unknown_names_are_refused,
        another_caller_sees_none_of_it,
        memory_does_not_go_to_another_sandbox,
        other_languages_say_that_they_cannot,
        a_context_that_runs_or_has_no_interpreter_is_refused,
        what_a_fork_cannot_carry_is_refused,
        the_number_and_the_memory_are_bounded,
        no_process_more_than_allowed,
        variables_come_back,
        a_restored_context_has_its_own_process,
        forks_go_their_own_ways,
        a_restore_cancels_the_running_cell_and_waiting_ones_go_on,
        a_dead_context_comes_back,
        what_follows_a_checkpoint_at_once_does_not_harm_it,
        a_crash_in_the_next_cell_does_not_harm_it,
        what_needs_a_checkpoint_waits_until_it_is_made_or_is_not,
        a_killed_checkpoint_says_so,
        a_snapshot_ends_checkpoints_and_says_so,
        an_interpreter_that_lies_harms_itself_alone,
        a_warm_sandbox_has_it_too,
        an_event_loop_that_rests_is_no_obstacle,
        tables_and_pictures_come_back,
        nothing_is_left_of_many,
        a_sandbox_that_goes_takes_all_along,
        the_command_does_all_of_it,
    ])
