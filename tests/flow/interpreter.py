#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CodeService over the wire: cells in contexts, interrupts, crashes, restarts, floods, forged messages."""

import subprocess

import sp
from api import NOT_FOUND, PRECONDITION, PROCESS, SANDBOX, connect, main
from broker import Broker
from runner import Skipped, check, until
from sp import EXHAUSTED, INVALID

CODE = "/stockade.v1.CodeService/"
OK, ERROR, INTERRUPTED, CRASHED, TIMEOUT, CANCELLED = 1, 2, 3, 4, 5, 6
STARTING, IDLE, BUSY, DOWN = 1, 2, 3, 4
STDOUT, STDERR = 1, 2

CONFIG = """
pool: 1
templates: [{name: default}]
"""


class Cell:
    """A cell and what arrived of it so far."""

    def __init__(self, c, fields, credit=1000):
        self.c, self.call = c, c.begin(CODE + "RunCode", fields, credit=credit)
        self.begin = self.error = self.end = None
        self.output, self.results, self.now, self.pieces = {STDOUT: b"", STDERR: b""}, [], {}, []

    def step(self):
        frame = self.c.recv(self.call)
        if frame.kind == sp.END:
            if frame.status.code:
                raise sp.Failed(frame.status)
            raise AssertionError("END without an end")
        event = sp.message("stockade.v1.RunCodeResponse").FromString(frame.payload).event
        kind = event.WhichOneof("event")
        if kind == "begin":
            self.begin = event.begin
        elif kind == "output":
            self.output[event.output.stream] += event.output.data
            self.pieces.append((event.output.stream, event.output.data))
        elif kind == "error":
            self.error = event.error
        elif kind == "result":
            part = event.result
            self.now[part.mime_type] = self.now.get(part.mime_type, b"") + part.data
            if part.last:
                self.results.append((part.main, self.now))
                self.now = {}
        else:
            self.end = event.end
            check(self.c.recv(self.call).kind == sp.END, "the stream ends after `end`")
        return kind

    def until(self, condition):
        while not condition():
            self.step()
        return self

    def finish(self):
        return self.until(lambda: self.end)

    @property
    def text(self):
        return self.output[STDOUT].decode()

    @property
    def main(self):
        return [forms["text/plain"].decode() for main, forms in self.results if main]


def run(c, code, **fields):
    return Cell(c, {"code": code, **fields}).finish()


def box(c, **fields):
    return c.unary(SANDBOX + "Create", fields).sandbox.id


def context(c, sandbox, **fields):
    return c.unary(CODE + "CreateContext", {"sandbox_id": sandbox, **fields}).context


def contexts(c, sandbox):
    return c.unary(CODE + "ListContexts", {"sandbox_id": sandbox}).contexts


def is_ok(cell):
    check(cell.end.status == OK and not cell.error, f"{cell.end.status} {cell.end.reason} {cell.error} {cell.output}")
    return cell


def refused(c, code, *words, method="RunCode", **fields):
    try:
        if method == "RunCode":
            run(c, "1", **fields)
        else:
            c.unary(CODE + method, fields)
    except sp.Failed as failed:
        check(failed.code == code, f"{method} {fields}: {failed.code} {failed.message}, not {code}")
        for word in words:
            check(word in f"{failed.message} {failed.details}", f"{word!r} is not in {failed.message!r}")
        return
    raise AssertionError(f"{method} {fields} was not refused")


def wrong_requests_are_refused(b, c):
    sandbox = box(c)
    known = context(c, sandbox).id
    refused(c, INVALID, "python", language="cobol")
    refused(c, INVALID, "wall_ms", limits={"wall_ms": 5})
    refused(c, INVALID, "context_id", context_id=known, sandbox_id=sandbox)
    refused(c, INVALID, "sandbox_id", sandbox_id=sandbox, template="default")
    refused(c, NOT_FOUND, "context", context_id="0" * 32)
    refused(c, NOT_FOUND, "nobox", sandbox_id="nobox")
    refused(c, INVALID, "workdir", method="CreateContext", sandbox_id=sandbox, workdir="relative")
    for method in ("RestartContext", "InterruptContext", "DeleteContext"):
        refused(c, NOT_FOUND, "context", method=method, context_id="f" * 32)
    c.unary(SANDBOX + "Pause", {"id": sandbox})
    refused(c, PRECONDITION, method="CreateContext", sandbox_id=sandbox)
    c.unary(SANDBOX + "Delete", {"id": sandbox})
    refused(c, NOT_FOUND, "context", context_id=known)


def a_cell_alone_has_output_result_and_bill(b, c):
    cell = is_ok(run(c, "print('hello')\n6 * 7"))
    check((cell.text, cell.main) == ("hello\n", ["42"]), f"{cell.output} {cell.results}")
    check(cell.begin.fresh and cell.end.execution_count == 1, "the first cell of its interpreter")
    check(cell.end.bill.wall_us.value > 0 and cell.end.bill.cpu_user_ns.source, f"{cell.end.bill}")
    until(lambda: not c.unary(SANDBOX + "List").sandboxes, "the sandbox goes with its cell")


def variables_stay_in_a_context_and_contexts_are_apart(b, c):
    sandbox = box(c)
    one, two = context(c, sandbox).id, context(c, sandbox, workdir="/tmp", env=[{"name": "E", "value": "v"}]).id
    is_ok(run(c, "x = 41", context_id=one))
    check(is_ok(run(c, "x + 1", context_id=one)).main == ["42"], "x stays")
    check(run(c, "x", context_id=two).error.name == "NameError", "x is not in the other one")
    check(is_ok(run(c, "import os; print(os.getcwd(), os.environ['E'])", context_id=two)).text == "/tmp v\n", "folder, env")
    is_ok(run(c, "y = 1", sandbox_id=sandbox))
    check(is_ok(run(c, "y", sandbox_id=sandbox)).main == ["1"], "the default context keeps its variables, too")
    found = contexts(c, sandbox)
    check([(x.id == one, x.default) for x in found] == [(True, False), (False, False), (False, True)], f"{found}")
    check([x.execution_count for x in found] == [2, 2, 2] and all(x.state == IDLE for x in found), f"{found}")
    processes = c.unary(PROCESS + "List", {"sandbox_id": sandbox}).processes
    check({x.process_id for x in found} == {p.id for p in processes}, "each is a process of the sandbox")
    c.unary(CODE + "DeleteContext", {"context_id": one})
    check(len(contexts(c, sandbox)) == 2, "one was deleted")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def bash_and_javascript_keep_their_state(b, c):
    sandbox = box(c)
    is_ok(run(c, "cd /tmp; v=5", sandbox_id=sandbox, language="bash"))
    cell = run(c, "pwd; echo $v >&2; seq 3; (exit 4)", sandbox_id=sandbox, language="sh")
    check((cell.text, cell.output[STDERR], cell.end.status) == ("/tmp\n1\n2\n3\n", b"5\n", ERROR), f"{cell.output}")
    check((cell.error.name, cell.error.value) == ("ExitStatus", "4"), f"{cell.error}")
    many = is_ok(run(c, "seq 200000", sandbox_id=sandbox, language="bash"))
    check(len(many.text.splitlines()) == 200000, "all of a long output comes before the end")
    if run(c, "command -v node", sandbox_id=sandbox, language="bash").end.status != OK:
        raise Skipped("node is not in the root")
    is_ok(run(c, "const a = 41", sandbox_id=sandbox, language="js"))
    check(is_ok(run(c, "await Promise.resolve(a + 1)", sandbox_id=sandbox, language="javascript")).main == ["42"], "a stays")
    check(run(c, "throw new TypeError('t')", sandbox_id=sandbox, language="node").error.name == "TypeError", "an error")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def an_interrupt_ends_the_cell_and_keeps_the_variables(b, c):
    sandbox = box(c)
    for language, begin, wait, look in (("python", "x = 7", "import time\nprint('go', flush=True)\ntime.sleep(60)", "print(x)"),
                                        ("bash", "x=7", "echo go; sleep 60; echo never", "echo $x")):
        id_ = context(c, sandbox, language=language).id
        is_ok(run(c, begin, context_id=id_))
        cell = Cell(c, {"code": wait, "context_id": id_})
        cell.until(lambda cell=cell: b"go" in cell.output[STDOUT])
        check([x.state for x in contexts(c, sandbox) if x.id == id_] == [BUSY], "it is busy")
        c.unary(CODE + "InterruptContext", {"context_id": id_})
        cell.finish()
        check(cell.end.status == INTERRUPTED and not cell.end.lost and "never" not in cell.text, f"{cell.end} {cell.output}")
        check(is_ok(run(c, look, context_id=id_)).text == "7\n", "x stays")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_timeout_interrupts_and_kills_what_does_not_stop(b, c):
    sandbox = box(c)
    id_ = context(c, sandbox).id
    is_ok(run(c, "x = 1", context_id=id_))
    cell = run(c, "while True: pass", context_id=id_, timeout_ms=200)
    check(cell.end.status == TIMEOUT and not cell.end.lost, f"{cell.end}")
    check(is_ok(run(c, "x", context_id=id_)).main == ["1"], "x stays")
    cell = run(c, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", context_id=id_, timeout_ms=200)
    check(cell.end.status == TIMEOUT and cell.end.lost, f"{cell.end}")
    cell = run(c, "x", context_id=id_)
    check(cell.error.name == "NameError" and cell.begin.fresh, "a fresh interpreter")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_crash_is_reported_and_the_context_starts_clean(b, c):
    sandbox = box(c, limits={"memory_bytes": 128 << 20})
    id_ = context(c, sandbox).id
    for code, words in (("import os; print('out'); os._exit(3)", "status 3"),
                        ("import os, signal; print('out'); os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
                        ("print('out'); x = bytearray(1 << 30)", "memory"),
                        ("import os; print('out'); os.close(3)", "interpreter")):
        is_ok(run(c, "y = 1", context_id=id_))
        cell = run(c, code, context_id=id_)
        check(cell.text == "out\n", f"{code}: what was printed before arrives: {cell.output}")
        check(cell.end.status in (CRASHED, ERROR), f"{code}: {cell.end}")
        if cell.end.status == ERROR:  # python answered with MemoryError before the kernel had to
            continue
        check(cell.end.lost and words in cell.end.reason, f"{code}: {cell.end.reason}")
        check(run(c, "y", context_id=id_).error.name == "NameError", "a fresh interpreter")
    hog = "import mmap; print('out'); m = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1"
    cell = run(c, hog, context_id=id_)
    check(cell.end.status == CRASHED and cell.end.limit_hit.name == "memory_bytes", f"{cell.end}")
    is_ok(run(c, "1", context_id=id_))
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def cells_wait_in_line_and_too_many_are_refused(b, c):
    sandbox = box(c)
    id_ = context(c, sandbox).id
    first = Cell(c, {"code": "import time; print('go'); time.sleep(60)", "context_id": id_})
    first.until(lambda: b"go" in first.output[STDOUT])
    line = [Cell(c, {"code": f"print({i})", "context_id": id_}) for i in range(16)]
    until(lambda: contexts(c, sandbox)[0].waiting == 16, "they wait")
    refused(c, EXHAUSTED, "wait", context_id=id_)
    c.unary(CODE + "InterruptContext", {"context_id": id_})
    check(first.finish().end.status == INTERRUPTED, "the first one")
    for i, cell in enumerate(line):
        check(is_ok(cell.finish()).text == f"{i}\n", "in their order")
    is_ok(run(c, "kept = 1", context_id=id_))
    c.unary(CODE + "RestartContext", {"context_id": id_})
    check(run(c, "kept", context_id=id_).error.name == "NameError", "a restart of an idle one takes effect at once")
    busy = Cell(c, {"code": "import time; print('go'); time.sleep(60)", "context_id": id_})
    waits = Cell(c, {"code": "print('after')", "context_id": id_})
    busy.until(lambda: b"go" in busy.output[STDOUT])
    c.unary(CODE + "RestartContext", {"context_id": id_})
    check(busy.finish().end.status == CANCELLED, f"{busy.end}")
    check(is_ok(waits.finish()).text == "after\n" and waits.begin.fresh, "the next one runs in a fresh interpreter")
    busy = Cell(c, {"code": "import time; print('go'); time.sleep(60)", "context_id": id_})
    busy.until(lambda: b"go" in busy.output[STDOUT])
    c.unary(SANDBOX + "Delete", {"id": sandbox})
    check(busy.finish().end.status in (CANCELLED, CRASHED) and busy.end.lost, f"{busy.end}")


def a_caller_who_goes_interrupts_its_cell(b, c):
    sandbox = box(c)
    id_ = context(c, sandbox).id
    other = connect(b)
    cell = Cell(other, {"code": "x = 1\nimport time; print('go'); time.sleep(60)", "context_id": id_})
    cell.until(lambda: b"go" in cell.output[STDOUT])
    other.close()
    check(is_ok(run(c, "x", context_id=id_)).main == ["1"], "the context goes on with its variables")
    c.unary(SANDBOX + "Delete", {"id": sandbox})
    other = connect(b)
    cell = Cell(other, {"code": "import time; print('go'); time.sleep(60)"})
    cell.until(lambda: b"go" in cell.output[STDOUT])
    other.close()
    until(lambda: not c.unary(SANDBOX + "List").sandboxes, "the sandbox of the cell goes")


def a_session_survives_the_death_of_its_commands(b, c):
    """Files, variables and a running job, with no program that keeps any connection."""
    sandbox = box(c)

    def killed(*args, until_line):
        p = b.popen(*args, stdout=subprocess.PIPE)
        check(p.stdout.readline() == until_line, "it has begun")
        p.kill()
        p.communicate()

    killed("code", "--sandbox", sandbox, "-c", "x = 41; open('notes', 'w').write('kept'); print('go', flush=True); import time; time.sleep(60)", until_line=b"go\n")
    killed("exec", sandbox, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 0.1; done", until_line=b"line 1\n")
    job = next(p.id for p in c.unary(PROCESS + "List", {"sandbox_id": sandbox}).processes if "sleep 0.1" in str(p))
    r = b.cli("code", "--sandbox", sandbox, "-c", "print(x + 1, open('notes').read())")
    check(r.returncode == 0 and r.stdout == b"42 kept\n", f"{r}")
    r = b.cli("logs", "-f", job)
    check(r.stdout == b"".join(b"line %d\n" % i for i in range(1, 10)), f"from its first line to its last: {r}")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_reader_without_credit_stops_the_interpreter_and_loses_nothing(b, c):
    sandbox = box(c)
    id_ = context(c, sandbox).id
    before = sum(b.host()["rss_kib"].values())
    cell = Cell(c, {"code": "for i in range(60000): print('%0100d' % i)\n'x' * 900000", "context_id": id_}, credit=2)
    cell.until(lambda: cell.pieces)
    import time
    time.sleep(1)
    check(sum(b.host()["rss_kib"].values()) < before + 30000, "the broker keeps no more than a little of it")
    c.send(cell.call, sp.Frame(kind=sp.WINDOW, credit=100000))
    is_ok(cell.finish())
    check(len(cell.text) == 60000 * 101 and len(cell.main[0]) == 900002, f"{len(cell.text)}")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def forged_messages_harm_nobody_else(b, c):
    sandbox = box(c)
    good, bad = context(c, sandbox).id, context(c, sandbox).id
    is_ok(run(c, "x = 1", context_id=good))
    forged = [b"garbage", b"x" * 1000, b"done 99 0 1 ok\n", b"result 1 999999999 m. text/plain\n", b"stdout 1 -5\n",
              b"result 1 3 m. text plain\nabc", b"ready 0 0 1\n", b"error 99999999999999999999999 0\n", b"\n", b"\0\0\0\n"]
    for line in forged:
        cell = run(c, f"import os\nos.write(3, {line!r})\nimport time; time.sleep(20)", context_id=bad, timeout_ms=1500)
        check(cell.end.status == CRASHED and "protocol" in cell.end.reason, f"{line}: {cell.end}")
    cell = run(c, "import os\nos.write(3, b'error 1 9\\n\\xff\\xfe\\x00a\\x00b\\xc3(c')\n", context_id=bad)
    check(cell.error.name == "\ufffd\ufffd" and cell.error.traceback == "b\ufffd(c", f"{cell.error}")
    cell = run(c, "import os\nos.write(3, b'done 12 0 77 ok\\n')\nprint('later')", context_id=bad)
    check(cell.end.execution_count == 77, "it may lie about itself")
    run(c, "1", context_id=bad)
    cell = run(c, "import os\npid = os.getppid()\nimport signal\ntry: os.kill(1, signal.SIGKILL)\nexcept OSError as e: print(e.errno)", context_id=bad)
    check("1" in cell.text, "the guest is out of reach")
    check(is_ok(run(c, "x", context_id=good)).main == ["1"], "the other context is as it was")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


FLOOD = """
import subprocess
floods = [subprocess.Popen(["timeout", "45", "yes", LINE], stdout=LINK) for _ in range(3)]
"""
HEIR = """
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\\0heir")
print("bound", flush=True)
_, (fd,), _, _ = socket.recv_fds(s, 1, 1)
""" + FLOOD.replace("LINK", "fd").replace("LINE", '"stdout 1 2\\nx"') + """
for f in floods:
    f.wait()
print("closed", flush=True)
"""
BEQUEATH = """
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\\0heir")
socket.send_fds(s, [b"x"], [3])
os._exit(7)
"""


def a_flood_of_messages_ends_with_its_interpreter(b, c):
    sandbox = box(c)
    ctx = context(c, sandbox).id
    forge = FLOOD.replace("LINK", "3").replace("LINE", '"done 0 0 1 ok"')
    cell = run(c, forge + "import time; time.sleep(20)", context_id=ctx)
    check(cell.end.status == CRASHED and "ends of earlier cells" in cell.end.reason, f"{cell.end}")
    heir = c.start(sandbox, f"exec python3 -c '{HEIR}'")
    c.until(heir, lambda: b"bound" in heir.output)
    cell = run(c, BEQUEATH, context_id=ctx)
    check(cell.end.status == CRASHED and "status 7" in cell.end.reason, f"{cell.end}")
    c.finish(heir)
    check(b"closed" in heir.output, f"a link that another process has is closed with the interpreter: {heir.output} {heir.result}")
    is_ok(run(c, "1", context_id=ctx))
    c.unary(SANDBOX + "Delete", {"id": sandbox})


if __name__ == "__main__":
    main(Broker(config=CONFIG), [
        wrong_requests_are_refused,
        a_cell_alone_has_output_result_and_bill,
        variables_stay_in_a_context_and_contexts_are_apart,
        bash_and_javascript_keep_their_state,
        an_interrupt_ends_the_cell_and_keeps_the_variables,
        a_timeout_interrupts_and_kills_what_does_not_stop,
        a_crash_is_reported_and_the_context_starts_clean,
        cells_wait_in_line_and_too_many_are_refused,
        a_caller_who_goes_interrupts_its_cell,
        a_session_survives_the_death_of_its_commands,
        a_reader_without_credit_stops_the_interpreter_and_loses_nothing,
        forged_messages_harm_nobody_else,
        a_flood_of_messages_ends_with_its_interpreter,
    ])
