# SPDX-License-Identifier: Apache-2.0
# The kernel program of python: it keeps one namespace and runs cells in it. server/code/kernel.h has the protocol.
#
# The broker starts a small loader (code/language.c), which reads this text from the link and executes it, or executes it with
# `zygote` set: python_zygote.py. Cells run in __main__; this program has a namespace of its own. The rest of it is in
# python_display.py, python_charts.py, python_live.py and python_zygote.py, which follow this part in the same text.
#
#   run --> compile --> body, then the value of the last expression --> result frames
#             |  top-level await: run by one event loop that lives as long as the kernel
#             |  %magic, !command, name?: IPython, imported when a cell first needs it
#           SIGINT raises KeyboardInterrupt inside the cell, and is ignored outside of cells
import _socket
import ast
import builtins
import gc
import io
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import types

READ_MAX = 64 * 1024  # bytes of one read of the link
FDS_SPACE = 64  # for four descriptors
FRAME_MAX = 40 * 1024  # bytes of one frame's payload
TEXT_MAX = 1024 * 1024  # bytes of text/plain; the rest is cut
LINE_MAX = 8 * 1024  # bytes of a line that has not ended yet
ERROR_NAME_MAX, ERROR_VALUE_MAX, ERROR_TRACE_MAX = 200, 8000, 30000


class Kernel:
    pid = os.getpid()
    run = 0  # number of the running cell; 0: none
    cell = False  # user code is running: SIGINT raises
    sending = False  # a frame is being sent: SIGINT waits
    pending = False
    count = 0
    lock = threading.RLock()
    loop = None
    loop_fds = frozenset()
    flags = 0
    shell = None
    protected = False  # its memory is not for other processes


K = Kernel
MAIN = types.ModuleType("__main__")
NS = MAIN.__dict__


def on_interrupt(number, frame):
    if not K.cell or os.getpid() != K.pid:
        return
    if K.sending:
        K.pending = True
    else:
        raise KeyboardInterrupt


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def send(kind, payload=b"", *words):
    """Sends one frame of the running cell. A signal never cuts it."""
    if os.getpid() != K.pid:  # a child of fork(2): the link belongs to its parent
        return
    head = " ".join([kind, str(K.run), str(len(payload)), *words]) + "\n"
    before = K.sending
    K.sending = True
    try:
        with K.lock:
            write_all(3, head.encode() + bytes(payload))
    finally:
        K.sending = before
    if K.pending and not before:
        K.pending = False
        if K.cell:
            raise KeyboardInterrupt


def encoded(text, most):
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data
    return data[:most].decode("utf-8", "ignore").encode() + b" ..."


class Stream(io.TextIOBase):
    """sys.stdout and sys.stderr: whole lines become frames at once, the rest when it is flushed or the cell ends."""

    def __init__(self, name, fd):
        super().__init__()
        self.name = name
        self.fd = fd
        self.kept = []
        self.kept_n = 0
        self.buffer = Raw(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with K.lock:
            self.kept.append(text)
            self.kept_n += len(text)
            if self.kept_n > LINE_MAX or "\n" in text or "\r" in text:
                self.flush()
        return len(text)

    def flush(self):
        with K.lock:
            if not self.kept:
                return
            data = "".join(self.kept).encode("utf-8", "replace")
            self.kept.clear()
            self.kept_n = 0
            self.put(data)

    def put(self, data):
        if os.getpid() != K.pid:
            write_all(self.fd, data)
            return
        for at in range(0, len(data), FRAME_MAX):
            send(self.name, data[at:at + FRAME_MAX])


class Raw(io.RawIOBase):
    """sys.stdout.buffer"""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    def writable(self):
        return True

    def write(self, data):
        data = bytes(data)
        with K.lock:
            self.stream.flush()
            self.stream.put(data)
        return len(data)


def flush_streams():
    for stream in (OUT, ERR):
        stream.flush()


# ---- cells


def strip_trace(tb):
    """The part of a traceback that belongs to the cell."""
    first = tb
    while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
        tb = tb.tb_next
    return tb if tb is not None else None if first is None else first.tb_next


def without_kernel(told):
    """Without the frames of this program, such as that of its signal handler."""
    chain, seen = [told], 0
    while chain and seen < 100:
        one = chain.pop()
        if one is not None:
            seen += 1
            one.stack[:] = [frame for frame in one.stack if frame.filename != "<kernel>"]
            chain += [one.__cause__, one.__context__]
    return told


def send_error(name, value, trace):
    send("error", b"\0".join(encoded(text, most).replace(b"\0", b"?") for text, most in (
        (name, ERROR_NAME_MAX), (value, ERROR_VALUE_MAX), (trace, ERROR_TRACE_MAX))))


def report(error):
    kind = type(error)
    try:
        value = str(error)
    except Exception:
        value = f"<{kind.__name__} object>"
    try:
        lines = without_kernel(traceback.TracebackException(kind, error, strip_trace(error.__traceback__))).format()
    except Exception as second:
        lines = [f"{kind.__name__}: {value}\n(the traceback cannot be shown: {type(second).__name__})"]
    flush_streams()
    send_error(kind.__name__, value, "".join(lines))


def open_loop():
    """Waits with poll(2), which has no state in the kernel that a fork would share."""
    import asyncio
    import selectors
    before = open_descriptors()
    K.loop = asyncio.SelectorEventLoop(selectors.PollSelector())
    K.loop_fds = open_descriptors() - before
    asyncio.set_event_loop(K.loop)


def close_loop():
    if K.loop is None:
        return
    import asyncio
    K.loop.close()
    K.loop, K.loop_fds = None, frozenset()
    asyncio.set_event_loop(None)


def open_descriptors():
    return {int(fd) for fd in os.listdir("/proc/self/fd") if is_open(int(fd))}  # not the one of the list


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def wait_for(coroutine):
    if K.loop is None or K.loop.is_closed():
        open_loop()
    task = K.loop.create_task(coroutine)
    try:
        return K.loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        K.cell = False
        try:
            K.loop.run_until_complete(task)
        except BaseException:
            pass
        raise


def evaluate(code):
    value = eval(code, NS)
    if code.co_flags & 0x80:  # CO_COROUTINE: it contains await
        value = wait_for(value)
    return value


FUTURES = 0
for name in __import__("__future__").all_feature_names:
    FUTURES |= getattr(__import__("__future__"), name).compiler_flag


def compiled(tree, name, mode):
    code = compile(tree, name, mode, K.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    K.flags |= code.co_flags & FUTURES
    return code


def keep_last(value):
    if hasattr(builtins, "_"):  # gettext's
        return
    NS["___"], NS["__"], NS["_"] = NS.get("__"), NS.get("_"), value
    NS["Out"][K.count] = value


def one_call(text, name):
    """The code of a cell that is a single call: the way through a tree would take twice the time. None: it is not."""
    if not text.endswith(")") or not text[0].isidentifier() or "\n" in text or ";" in text or "\\" in text:
        return None  # with a backslash, python might warn twice
    try:
        return compiled(text, name, "eval")
    except SyntaxError:  # a statement, or it is wrong
        return None


def execute(text):
    name = f"<cell {K.count}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    text = transformed(text)
    body, last = None, one_call(text, name)
    if last is None:
        body, last = parts(text, name)
    if body is not None:
        evaluate(body)
    if last is None:
        return
    value = evaluate(last)
    if value is not None:
        keep_last(value)
        flush_streams()
        show(value, main=True)


def parts(text, name):
    """The code of a cell: of all but a value at its end, and of that."""
    tree = compile(text, name, "exec", K.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    body = compiled(tree, name, "exec") if tree.body else None
    return body, compiled(last, name, "eval") if last is not None else None


def run_cell(text):
    """Runs one cell. Returns ok, error or interrupted."""
    status = "ok"
    K.pending = False
    try:
        try:
            K.cell = True
            execute(text)
            show_figures()
        finally:
            K.cell = False
    except KeyboardInterrupt as error:
        status = "interrupted"
        report(error)
    except BaseException as error:  # SystemExit too: it ends the cell, not the kernel
        status = "error"
        report(error)
    if os.getpid() != K.pid:  # a child of fork(2) that came back from its cell
        flush_streams()
        os._exit(0)
    return status


# ---- IPython


def wants_shell(text):
    if K.shell is not None:
        return False
    if "get_ipython" in text or "IPython" in text:
        return True
    for line in text.splitlines():
        word = line.strip()
        if word.startswith(("%", "!", "?")) or word.endswith("?") or "= !" in word or "= %" in word or "=!" in word:
            return True
    return False


def transformed(text):
    """The cell as python. With IPython: magics and commands become calls."""
    if wants_shell(text):
        open_shell()
    if not K.shell:
        return text
    return K.shell.transform_cell(text)


def open_shell():
    K.shell = False
    try:
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    except ImportError:
        return

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **rest):
            flush_streams()
            send_bundle(data, main=False)

        def clear_output(self, wait=False):
            pass

    class Shell(InteractiveShell):
        def init_syntax_highlighting(self):
            pass

        def init_virtualenv(self):
            pass

        def system(self, command):
            self.user_ns["_exit_code"] = run_command(self.var_expand(command, depth=1))

        def enable_gui(self, gui=None):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.display_pub_class = Publisher
    config.InteractiveShell.display_page = True
    hooks = sys.displayhook, sys.excepthook, sys.stdout, sys.stderr
    K.shell = Shell.instance(config=config, user_module=MAIN)
    K.shell.display_pub = Publisher(parent=K.shell)
    sys.displayhook, sys.excepthook, sys.stdout, sys.stderr = hooks
    NS["get_ipython"] = K.shell.get_ipython
    NS["display"] = display


def run_command(command):
    """!command: its output is the cell's."""
    import selectors
    import subprocess
    flush_streams()
    child = subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             executable="/bin/bash" if os.path.exists("/bin/bash") else None)
    try:
        with selectors.DefaultSelector() as ready:
            for pipe, stream in ((child.stdout, OUT), (child.stderr, ERR)):
                ready.register(pipe, selectors.EVENT_READ, stream)
            while ready.get_map():
                for key, _ in ready.select():
                    data = os.read(key.fd, FRAME_MAX)
                    if data:
                        key.data.put(data)
                    else:
                        ready.unregister(key.fileobj)
        return child.wait()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        child.stdout.close()
        child.stderr.close()


# ---- the link


class Link:
    """Reads the frames at descriptor 3, and the descriptors that came with them."""

    def __init__(self):
        self.socket = _socket.socket(fileno=3)
        self.data = b""
        self.fds = []

    def more(self):
        data, passed, _, _ = self.socket.recvmsg(READ_MAX, FDS_SPACE)
        if not data:
            os._exit(0)
        self.fds += fds_of(passed)
        self.data += data

    def frame(self):
        """kind, number, payload"""
        while b"\n" not in self.data:
            self.more()
        head, _, rest = self.data.partition(b"\n")
        kind, number, size = head.split()[:3]
        size = int(size)
        if len(rest) < size:
            parts, n = [rest], len(rest)
            self.data = b""
            while n < size:
                self.more()
                parts.append(self.data)
                n += len(self.data)
                self.data = b""
            rest = b"".join(parts)
        self.data = rest[size:]
        return kind.decode(), int(number), rest[:size]


def fds_of(passed):
    fds = []
    for level, kind, data in passed:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += [int.from_bytes(data[at:at + 4], sys.byteorder) for at in range(0, len(data) - 3, 4)]
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds


def set_up(payload):
    """The folder and the environment of the context, of which a zygote knows nothing."""
    folder, *env = payload.split(b"\0")
    os.environb.clear()
    for pair in env:
        name, _, value = pair.partition(b"=")
        os.environb[name] = value
    os.environ.setdefault("MPLBACKEND", "module://stockade_figures")
    if b"TZ" in os.environb:
        time.tzset()
    try:
        os.chdir(folder)
    except OSError as error:
        send("failed", f"enter {os.fsdecode(folder)}: {error.strerror}".encode("utf-8", "replace")[:FRAME_MAX])
        os._exit(127)


def serve():
    link = Link()
    while True:
        kind, number, payload = link.frame()
        if kind == "setup":
            set_up(payload)
        elif kind == "fork":
            if fork_live(link.fds.pop()):
                link.socket.detach()
                wait_for_use()
                link = Link()
        elif kind == "run":
            K.run = number
            K.count += 1
            status = run_cell(payload.decode("utf-8", "replace"))
            flush_streams()
            send("done", b"", str(K.count), status)
            payload = None


def prepare():
    sys.modules["__main__"] = MAIN
    os.set_inheritable(3, False)
    NS.update(__builtins__=builtins, display=display, Out={}, In=[])
    signal.signal(signal.SIGINT, on_interrupt)
    sys.stdin = open(os.devnull)
    sys.stdout, sys.stderr = OUT, ERR
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "module://stockade_figures")


def begin():
    prepare()
    send("ready", b"", "1")
    serve()


OUT = Stream("stdout", 1)
ERR = Stream("stderr", 2)
