#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile cells: code that attacks the interpreters, the zygote, checkpoints and the broker's sockets to them. Each names the
barrier that holds."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from api import SANDBOX, connect  # noqa: E402
from broker import Broker  # noqa: E402
from interpreter import CODE, OK, box, context, is_ok, run  # noqa: E402
from runner import check, run_cases, until  # noqa: E402
from slowness import scaled  # noqa: E402
from warm import wait_for_warm  # noqa: E402

CONFIG = """
pool: 2
limits_default: {pids: 64}
templates: [{name: default, pool: 2, warm: {python: []}}]
"""

# What the waiting processes of the sandbox are: those that a signal reaches, and the list does not show.
HIDDEN = """
import os
def alive(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
hidden = [p for p in range(2, 400) if alive(p) and not os.path.exists(f'/proc/{p}')]
"""


def warm_box(c):
    wait_for_warm(c)
    return box(c)


def settled(c, sandbox):
    """A context beside which a zygote and a spare wait."""
    ctx = context(c, sandbox).id
    until(lambda: run(c, HIDDEN + "len(hidden)", context_id=ctx).main == ["2"], "zygote and spare wait")
    return ctx


def attack(c, ctx, code):
    """What it reached, one word for each."""
    cell = run(c, HIDDEN + "\nreached = []\n" + code + "\nprint(*reached)", context_id=ctx, timeout_ms=20000)
    is_ok(cell)
    return cell.text.split()


def checkpointed(c):
    sandbox = warm_box(c)
    ctx = settled(c, sandbox)
    c.unary(CODE + "CheckpointContext", {"context_id": ctx, "name": "kept"})
    until(lambda: run(c, HIDDEN + "len(hidden)", context_id=ctx).main == ["3"], "zygote, spare and checkpoint")
    return sandbox, ctx


def the_memory_of_zygote_and_checkpoints(c):
    """PR_SET_DUMPABLE: /proc/PID/mem, maps, environ and fd of a waiting process do not even exist for its siblings."""
    sandbox, ctx = checkpointed(c)
    check(attack(c, ctx, """
for p in hidden:
    for name in ('mem', 'maps', 'environ', 'fd/3', 'task', 'root', 'cwd', 'cgroup'):
        try:
            fd = os.open(f'/proc/{p}/{name}', os.O_RDONLY)
            reached.append(f'{p}/{name}')
        except OSError:
            pass""") == [], "no file of theirs opens")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def tracing_and_copying_from_waiting_processes(c):
    """The system call filter: ptrace(2), process_vm_writev(2), pidfd_getfd(2) are refused; they are non-dumpable, too."""
    sandbox, ctx = checkpointed(c)
    check(attack(c, ctx, """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
numbers = {'attach': (101, 16), 'seize': (101, 0x4206)}
for p in hidden:
    for name, (number, request) in numbers.items():
        if libc.syscall(number, request, p, 0, 0) == 0:
            reached.append(f'{name}:{p}')
    text = ctypes.create_string_buffer(8)
    class vec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('n', ctypes.c_size_t)]
    here, there = vec(ctypes.addressof(text), 8), vec(0x400000, 8)
    for number in (310, 311):
        if libc.syscall(number, p, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0:
            reached.append(f'vm:{p}')
    pidfd = libc.syscall(434, p, 0)
    for fd in range(8):
        if pidfd >= 0 and libc.syscall(438, pidfd, fd, 0) >= 0:
            reached.append(f'fd:{p}:{fd}')""") == [], "none is traced, read or robbed")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_checkpoint_after_all_attacks_is_what_it_was(c):
    """A waiting process takes requests from its own socket alone."""
    sandbox, ctx = checkpointed(c)
    is_ok(run(c, "secret = 'changed'", context_id=ctx))
    attack(c, ctx, """
import signal
for p in hidden:
    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGCONT, signal.SIGWINCH, signal.SIGURG):
        os.kill(p, number)""")
    c.unary(CODE + "RestoreContext", {"context_id": ctx, "checkpoint": "kept"})
    check(run(c, "'secret' in globals()", context_id=ctx).main == ["False"], "its memory is that of its time")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def forged_frames_of_the_protocol(c):
    """The broker: numbers of cells, sizes and words are checked, and an interpreter that breaks the protocol ends."""
    for frame in (b"done 99 0 1 ok\\n", b"stdout 1 99999999\\n", b"ready 0 0 1\\n", b"failed 0 3\\nabc", b"fork 0 0\\n", b"x" * 300,
                  b"result 1 1 m. text/plain\\n", b"setup 0 0\\n", b"stdout 1 18446744073709551616\\n", b"done 1 0 4294967296 ok\\n"):
        sandbox = box(c)
        cell = run(c, f"import os\nos.write(3, b'{frame.decode()}')", sandbox_id=sandbox, timeout_ms=3000)
        check(cell.end.status != 0, f"{frame}")
        check(run(c, "6 * 7").main == ["42"], "others go on")
        c.unary(SANDBOX + "Delete", {"id": sandbox})


def a_descriptor_for_whose_end_the_broker_would_wait(c):
    """A TCP connection with SO_LINGER, sent over the interpreter's link: refused, or the broker's wait for it is interrupted."""
    ctx = context(c, box(c)).id
    run(c, """
import array, os, socket, struct
listener = socket.create_server(('127.0.0.1', 0))
sender = socket.create_connection(listener.getsockname())
accepted, _ = listener.accept()
sender.setblocking(False)
try:
    while True:
        sender.send(b'x' * 65536)
except BlockingIOError:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 600))
try:
    socket.socket(fileno=os.dup(3)).sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [sender.fileno()]))])
    os.close(sender.detach())
except PermissionError:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 0, 0))
""", context_id=ctx, timeout_ms=5000)
    began = time.monotonic()
    is_ok(run(c, "1", context_id=context(c, box(c)).id))
    check(time.monotonic() - began < scaled(20), "another interpreter is served")


def a_bomb_at_fork(c):
    """The limit of processes, and the time that a fork may take: what runs in a fork counts to the sandbox."""
    sandbox = box(c)
    ctx = context(c, sandbox).id
    is_ok(run(c, "import os\ndef bomb():\n    try:\n        while True: os.fork()\n    except OSError: os._exit(0)\n"
                 "armed = [1]\nos.register_at_fork(after_in_child=lambda: armed and (armed.pop(), bomb()))", context_id=ctx))
    c.fails(CODE + "CheckpointContext", {"context_id": ctx})
    check(run(c, "6 * 7").main == ["42"], "a neighbour goes on")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def checkpoints_until_nothing_fits(c):
    """The bound of 8 for a sandbox, and its memory limit."""
    sandbox = box(c, limits={"memory_bytes": 192 << 20})
    ctx = context(c, sandbox).id
    is_ok(run(c, "x = bytearray(b'y' * (16 << 20))", context_id=ctx))
    refused = 0
    for n in range(12):
        call = c.begin(CODE + "CheckpointContext", {"context_id": ctx, "name": f"n{n}"})
        refused += c.recv(call).status.code == 8
        for at in range(0, 16 << 20, 1 << 20):  # now each has memory of its own
            if run(c, f"x[{at}:{at + (1 << 20)}] = bytes([{n}]) * (1 << 20)", context_id=ctx).end.status != OK:
                break
    check(refused >= 4, f"{refused} of 12 refused")
    check(run(c, "6 * 7").main == ["42"], "a neighbour goes on")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


def contexts_of_another_sandbox(c):
    """Its namespaces of processes, and ids that belong to the caller: nothing there has a number or a name here."""
    sandbox, other = warm_box(c), warm_box(c)
    ctx, there = settled(c, sandbox), settled(c, other)
    is_ok(run(c, "x = 'mine'", context_id=there))
    attack(c, ctx, "import signal\nfor p in range(2, 400):\n    if p != os.getpid():\n        try: os.kill(p, signal.SIGKILL)\n        except OSError: pass")
    check(run(c, "x", context_id=there).main == ["'mine'"], "it goes on")
    for one in (sandbox, other):
        c.unary(SANDBOX + "Delete", {"id": one})


def the_guest_and_its_adoption(c):
    """The guest adopts what the broker names: a child of its own, no job yet; other processes of the job stay where they are."""
    sandbox = box(c)
    ctx = context(c, sandbox).id
    cell = run(c, "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time; time.sleep(2)\n    os._exit(0)\n"
                  "print(open('/proc/self/cgroup').read().splitlines()[-1])", context_id=ctx)
    is_ok(cell)
    for pid in (b"1", b"2", b"0", b"4294967295", b"-1"):
        lying = context(c, sandbox).id
        is_ok(run(c, "import os\nreal = os.write\ndef lie(fd, data):\n    return real(fd, %r if bytes(data).isdigit() else data)\n"
                     "os.register_at_fork(after_in_child=lambda: setattr(os, 'write', lie))" % pid, context_id=lying))
        call = c.begin(CODE + "ForkContext", {"context_id": lying})
        check(c.recv(call).status.code != 0, f"{pid} is not adopted")
        c.unary(CODE + "DeleteContext", {"context_id": lying})
    check(run(c, "6 * 7", context_id=ctx).main == ["42"], "the sandbox goes on")
    c.unary(SANDBOX + "Delete", {"id": sandbox})


CASES = [
    the_memory_of_zygote_and_checkpoints,
    tracing_and_copying_from_waiting_processes,
    a_checkpoint_after_all_attacks_is_what_it_was,
    forged_frames_of_the_protocol,
    a_descriptor_for_whose_end_the_broker_would_wait,
    a_bomb_at_fork,
    checkpoints_until_nothing_fits,
    contexts_of_another_sandbox,
    the_guest_and_its_adoption,
]

if __name__ == "__main__":
    with Broker(config=CONFIG) as broker:
        sys.exit(run_cases(CASES, lambda case: case(connect(broker)), lambda: broker.cli("rm", "--all")))
