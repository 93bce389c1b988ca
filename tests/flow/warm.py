#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Warm sandboxes: a python that runs already, from which the interpreters of contexts are forked."""

import os
import tempfile

import sp
from api import SANDBOX, SYSTEM, connect, main
from broker import Broker
from interpreter import CODE, CRASHED, OK, box, run
from runner import check, until

CONFIG = """
pool: 2
limits_default: {pids: 64}
templates:
  - {name: default, env: {COLOUR: blue}, warm: {python: [json, random, no_such_module]}}
  - {name: cold}
  - {name: broken, pool: 1, env: {PATH: /nowhere}, warm: {python: []}}
"""
HOW = "print('zygote' in open('/proc/self/cmdline').read())"

OPEN_ALL = """
import os
for process in os.listdir("/proc"):
    if not process.isdigit() or int(process) == os.getpid():
        continue
    try:
        for fd in os.listdir(f"/proc/{process}/fd"):
            try:
                print(os.readlink(f"/proc/self/fd/{os.open(f'/proc/{process}/fd/{fd}', os.O_RDWR)}"))
            except OSError:
                pass
    except OSError:
        pass
"""


def template(c, name="default"):
    return next(t for t in c.unary(SYSTEM + "Info", {}).templates if t.name == name)


def wait_for_warm(c, n=2):
    until(lambda: template(c).pool_warm == n, f"{n} are warm")


def is_warm(c, **fields):
    return run(c, HOW, **fields).text == "True\n"


def new_context(c, sandbox, **fields):
    return c.unary(CODE + "CreateContext", {"sandbox_id": sandbox, **fields}).context


def warm_context(c, sandbox, **fields):
    """A context that is forked from the zygote: until it has forked another one, contexts start without. Waiting processes are
    in no list of the sandbox."""
    def made():
        context = new_context(c, sandbox, **fields)
        if is_warm(c, context_id=context.id):
            return context
        c.unary(CODE + "DeleteContext", {"context_id": context.id})
        return None
    return until(made, "the zygote has forked another one")


def info_says_what_is_warm_and_what_it_costs(b, c):
    wait_for_warm(c)
    t = template(c)
    check(t.pool_ready == 2 and 2 << 20 < t.warm_bytes < 64 << 20, f"{t.warm_bytes} bytes each")
    check("import no_such_module: ModuleNotFoundError" in t.warm_failed, f"what failed is said: {t.warm_failed}")
    check(template(c, "cold").pool_warm == 0 and template(c, "cold").warm_failed == "", "a template without it has none")
    text = b.cli("info").stdout.decode()
    check("default: 2 warm with python" in text and "no_such_module" in text, "and the command shows it")


def an_interpreter_that_is_missing_is_said_everywhere(b, c):
    until(lambda: "execute python3: No such file" in template(c, "broken").warm_failed, "info has the reason")
    check(template(c, "broken").pool_ready == 1, "its sandboxes can be used for other programs")
    for _ in range(10):
        cell = run(c, "1", template="broken")
        check(cell.end.status == CRASHED and "execute python3: No such file" in cell.end.reason, f"and the cell: {cell.end}")


def a_fresh_cell_runs_in_a_fork_of_its_own_sandbox(b, c):
    wait_for_warm(c)
    cell = run(c, "import os, sys, random\nprint(os.getpid(), os.getppid(), 'json' in sys.modules, os.getcwd(), os.environ['COLOUR'],"
                  "sorted(map(int, os.listdir('/proc/self/fd')))[-1], os.getpgid(0) == os.getpid())\n" + HOW)
    check(cell.end.status == OK and cell.begin.fresh, cell.end.reason)
    words = cell.text.split()
    check(int(words[0]) > 2 and words[1:5] == ["1", "True", "/home/agent", "blue"], cell.text)
    check(int(words[5]) <= 5 and words[6:] == ["True", "True"], f"no descriptor of the zygote is left: {cell.text}")
    check(cell.end.bill.cpu_user_ns.value < 1000 * 1000 * 1000, "the imports are not on its bill")


def contexts_of_one_sandbox_have_their_own_seed_pid_and_cgroup(b, c):
    wait_for_warm(c)
    sandbox, seen = box(c), []
    for i in range(3):
        context = warm_context(c, sandbox, workdir="/tmp", env=[{"name": "N", "value": str(i)}])
        seen.append(run(c, "import os, random\nprint(random.random(), os.getpid(), [l for l in open('/proc/self/cgroup')][-1].strip(),"
                           "os.getcwd(), os.environ['N'])\n" + HOW, context_id=context.id).text.split())
    for column in range(3):
        check(len({row[column] for row in seen}) == 3, f"all differ: {seen}")
    check([row[3:] for row in seen] == [["/tmp", str(i), "True"] for i in range(3)], f"{seen}")
    check(all("job-" in row[2] for row in seen), f"each is in the cgroup of its job: {seen}")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def what_takes_effect_at_the_start_gets_a_new_interpreter(b, c):
    for fields in ({"env": [{"name": "PYTHONHASHSEED", "value": "1"}]}, {"limits": {"pids": 32}}, {"template": "cold"},
                   {"network": {"mode": "NETWORK_MODE_OFF"}}):
        wait_for_warm(c)
        check(not is_warm(c, **fields), f"{fields}")
    wait_for_warm(c)
    check(is_warm(c, env=[{"name": "A", "value": "1"}]), "other variables are set in the fork")
    wait_for_warm(c)
    cell = run(c, HOW, limits={"memory_bytes": 8 << 20})
    check(cell.text != "True\n", "less memory than a warm one has used: a sandbox without")


def a_folder_that_is_missing_ends_the_interpreter(b, c):
    wait_for_warm(c)
    sandbox = box(c)
    cell = run(c, "1", context_id=new_context(c, sandbox, workdir="/nowhere").id)
    check(cell.end.status == CRASHED and cell.end.lost and "/nowhere: No such file" in cell.end.reason, cell.end.reason)
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_cell_that_kills_the_zygote_harms_its_own_sandbox_alone(b, c):
    wait_for_warm(c)
    sandbox, other = box(c), box(c)
    kill = ("import os, signal\nfor p in range(2, 400):\n    if p != os.getpid():\n"
            "        try: os.kill(p, signal.SIGKILL)\n        except OSError: pass")
    check(run(c, "x = 5", sandbox_id=sandbox).end.status == OK, "the first context")
    check(run(c, kill, sandbox_id=sandbox).end.status == OK, "it kills all it can")
    check(run(c, "x", sandbox_id=sandbox).main == ["5"], "its own context goes on")
    cell = run(c, HOW, context_id=new_context(c, sandbox).id)
    check(cell.end.status == OK and cell.text == "False\n", "a further one starts as usual")
    check(is_warm(c, sandbox_id=other), "a neighbour still has its own")
    for one in (sandbox, other):
        c.unary(SANDBOX + "Delete", {"id": one})


def a_cell_that_eats_the_memory_ends_and_is_told_why(b, c):
    wait_for_warm(c)
    sandbox = box(c, limits={"memory_bytes": 128 << 20})
    cell = run(c, "x = []\nwhile True: x.append(bytearray(8 << 20))", sandbox_id=sandbox)
    check(cell.end.status == CRASHED and cell.end.lost, f"{cell.end}")
    check("memory" in cell.end.reason or cell.end.limit_hit.limit or "signal 9" in cell.end.reason, cell.end.reason)
    other = run(c, "print(2)")
    check(other.text == "2\n", "a neighbour goes on")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def forged_packets_of_a_fork_harm_its_sandbox_alone(b, c):
    """A cell forks away, closes its link, floods it, and writes what a zygote would say."""
    wait_for_warm(c)
    for code in ("import os\nos.write(3, b'12345')", "import os\nos.close(3)\nimport time; time.sleep(9)",
                 "import os\nif os.fork(): os._exit(0)\nos.setsid()\nos.write(3, b'done 1 0 1 ok\\n')\nimport time; time.sleep(9)",
                 "import os\nos.kill(os.getpid(), 9)", "import os\nwhile True: os.write(3, b'stdout 1 4000\\n' + b'x' * 4000)"):
        cell = run(c, code, timeout_ms=2000)
        check(cell.end.status != 0, f"{code}: {cell.end.status}")
    wait_for_warm(c)
    check(is_warm(c), "the next sandbox is warm again")


def what_happens_is_counted(b, c):
    rows = {tuple(line.split()[:-1]): line.split()[-1] for line in b.cli("metrics").stdout.decode().splitlines() if line.split()}
    check(int(rows["stockade_interpreters_forked_total",]) >= 5, "forks")
    check(int(rows["stockade_interpreters_started_total",]) >= 3, "and starts")
    check(int(rows["stockade_cells_ended_total", "status=ok"]) >= 10, "cells")
    check(int(rows["stockade_cells_ended_total", "status=crashed"]) >= 1, "and how they ended")
    check(any(key[:2] == ("stockade_pool_warm_sandbox_bytes", "template=default") for key in rows), "the price of a warm sandbox")


def a_cell_cannot_reach_the_guest_through_the_zygote(b, c):
    """What the zygote has open is its socket to the broker; a cell that opens it again gets nothing."""
    wait_for_warm(c)
    sandbox = box(c)
    cell = run(c, OPEN_ALL, sandbox_id=sandbox)
    opened = {line for line in cell.text.splitlines() if not line.startswith("pipe:")}
    check(opened <= {"/dev/null"} and cell.end.status == OK, f"sockets cannot be opened again: {opened}")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_snapshot_ends_the_zygote_and_not_the_sandbox(b, c):
    wait_for_warm(c)
    sandbox = box(c)
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": sandbox, "name": "one"})
    cell = run(c, HOW, sandbox_id=sandbox)
    check(cell.end.status == OK and cell.text == "False\n", f"its root is another one now: {cell.end}")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_kept_snapshot_can_replace_the_files_of_a_warm_sandbox(b, c):
    """What its interpreter has written is its first layer, which lies on its own disk and so cannot be unmounted."""
    wait_for_warm(c)
    first = box(c)
    check(b.cli("exec", first, "--", "sh", "-c", "echo kept > A").returncode == 0, "a file")
    check(b.cli("snapshot", "create", "--keep", "--stop", first, "warm-files").returncode == 0, "kept")
    made = b.cli("create", "--snapshot", "warm-files")
    check(made.returncode == 0, made)
    second = made.stdout.decode().strip()
    check(b.cli("exec", second, "--", "cat", "A").stdout == b"kept\n", "its files")
    for sandbox in (first, second):
        c.unary(SANDBOX + "Delete", {"id": sandbox})
    check(b.cli("snapshot", "rm", "warm-files").returncode == 0, "removed")
    check("drop-layer" not in b.log(), b.log()[-2000:])


def a_flood_of_one_shots_is_answered(b, c):
    calls = [c.begin(CODE + "RunCode", {"code": "print(1)"}, credit=100) for _ in range(24)]
    good = 0
    for call in calls:
        while True:
            frame = c.recv(call)
            if frame.kind == sp.END:
                check(frame.status.code == 0, frame.status.message)
                break
            event = sp.message("stockade.v1.RunCodeResponse").FromString(frame.payload).event
            good += event.WhichOneof("event") == "output" and event.output.data == b"1\n"
    check(good == 24, f"{good} of 24 printed")


def a_reload_replaces_them(b, c):
    wait_for_warm(c)
    b.reload(CONFIG.replace("[json, random, no_such_module]", "[json, decimal]"))
    until(lambda: template(c).pool_warm == 2 and template(c).warm_failed == "", "the new list is in force")
    check(run(c, "import sys; print('decimal' in sys.modules)").text == "True\n", "with the new module")
    b.reload(CONFIG + "quotas: {warm_memory: 0}\n")
    until(lambda: template(c).pool_ready == 2, "it is filled")
    sandbox = [box(c) for _ in range(4)]
    until(lambda: template(c).pool_ready == 2 and template(c).pool_warm == 0, "no memory, none is warm")
    for one in sandbox:
        c.unary(SANDBOX + "Delete", {"id": one})


def go(folder, word):
    """What the interpreter waits for: a word in a file that is there already, because a sandbox need not see files that are added later."""
    with open(f"{folder}/go", "w", encoding="utf-8") as f:
        f.write(word)


def twins(folder):
    """What becomes of a request whose name another one takes while an interpreter is warmed up for it. There is room for two sandboxes,
    so no other one is made for the request."""
    config = ("pool: 0\nquotas: {sandboxes: 2}\ntemplates:\n  - {name: default}\n  - {name: cold, pool: 1}\n"
              f"  - {{name: slow, pool: 1, paths: ['{folder}'], env: {{PYTHONPATH: '{folder}'}}, warm: {{python: [slow]}}}}\n")
    with Broker(config=config, name="-slow") as other:
        d = connect(other)
        until(lambda: template(d, "cold").pool_ready == 1 and d.unary(SYSTEM + "Info", {}).sandboxes == 2, "both are made")
        waits = d.begin(SANDBOX + "Create", {"name": "twin", "template": "slow"})
        d.unary(SANDBOX + "Create", {"name": "twin", "template": "cold"})
        go(folder, "yes")
        frame = d.recv(waits)
        check(other.cli("ls").stdout.decode().count("twin") == 1, "the broker goes on")
        check(other.cli("rm", "twin").returncode == 0, "now there is room for the next one of slow, also if cold was first")
        until(lambda: "cannot be forked" in template(d, "slow").warm_failed, "the reason is said")
        go(folder, "")  # not before: the next interpreter would wait for it
    return frame.status.message


def a_request_that_fails_when_the_warm_up_ends_deletes_the_sandbox(b, c):
    """The interpreter cannot be forked. Where this takes seconds, the request is refused before: it tries again."""
    with tempfile.TemporaryDirectory(prefix="stockade-test-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        with open(f"{folder}/slow.py", "w", encoding="utf-8") as f:
            f.write(f"import resource, time\nwhile not open('{folder}/go').read(): time.sleep(0.01)\n"
                    "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n")
        go(folder, "")
        until(lambda: "the name twin already exists" in twins(folder), "it waited for the interpreter")


if __name__ == "__main__":
    main(Broker(config=CONFIG), [
        info_says_what_is_warm_and_what_it_costs,
        an_interpreter_that_is_missing_is_said_everywhere,
        a_fresh_cell_runs_in_a_fork_of_its_own_sandbox,
        contexts_of_one_sandbox_have_their_own_seed_pid_and_cgroup,
        what_takes_effect_at_the_start_gets_a_new_interpreter,
        a_folder_that_is_missing_ends_the_interpreter,
        a_cell_that_kills_the_zygote_harms_its_own_sandbox_alone,
        a_cell_that_eats_the_memory_ends_and_is_told_why,
        forged_packets_of_a_fork_harm_its_sandbox_alone,
        what_happens_is_counted,
        a_cell_cannot_reach_the_guest_through_the_zygote,
        a_snapshot_ends_the_zygote_and_not_the_sandbox,
        a_kept_snapshot_can_replace_the_files_of_a_warm_sandbox,
        a_flood_of_one_shots_is_answered,
        a_reload_replaces_them,
        a_request_that_fails_when_the_warm_up_ends_deletes_the_sandbox,
    ])
