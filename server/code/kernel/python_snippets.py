# SPDX-License-Identifier: Apache-2.0
# The zygote of a batch: an interpreter that forks a process for each job whose command is `python3 -c CODE ...`
# (server/batch/warm.c). It stays when its sandbox is reset between jobs, so it must be the same for each of them.
#
# Descriptor 3 is a socket to the broker, with packets: `warm MODULES`, answered by `warm WHAT FAILED`, and `fork` with the
# socket of the new process, which sends `forked 0 0` and its pid (server/code/image.h), and waits for four descriptors: 0 to 2 of
# the job, and a file that says what to run.
#
# Jobs have the same uid. It is non-dumpable, so they cannot open its memory or its descriptors. They can signal it, and change its
# limits, priority and processors: it compares all of these before each fork, when no job runs any more, and ends if one differs.
# The broker then starts another one. It has no thread, no child and no shared memory.
import _signal
import _socket
import atexit
import ctypes
import errno
import gc
import io
import os
import resource
import signal
import sys
import time

FDS_SPACE = 64  # for four descriptors
LIMITS_MAX = 16 * 1024  # bytes of all limits: one read
LINKS_OF_ONE_THREAD = 3  # of a folder with one folder
PR_SET_DUMPABLE = 4
CLONE_PARENT = 0x8000
CALLS = {"x86_64": (56, 315, 252, 436, 247), "aarch64": (220, 275, 31, 436, 95)}  # in this order:
CLONE, SCHED_GETATTR, IOPRIO_GET, CLOSE_RANGE, WAITID = CALLS[os.uname().machine]
SCHED_ATTR_BYTES = 128
HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}  # null, zero, full, random, urandom
SEEDS = (("numpy.random", "seed"), ("torch", "seed"))  # `random` gets another seed when a process forks
FAILED_MAX = 8000
REHEARSALS = 20  # more than python waits for until it replaces an instruction by one for the types that it has seen
REHEARSED = b"print(sum(range(100)))"  # to /dev/null
REHEARSAL_FILES = 16
LIB = ctypes.PyDLL(None, use_errno=True)
LIB.syscall.restype = ctypes.c_long
ATTR = ctypes.create_string_buffer(SCHED_ATTR_BYTES)
WAIT_ANY = os.P_ALL, 0, None, os.WEXITED | os.WNOHANG | os.WNOWAIT, None
BEFORE_FORK, AFTER_FORK_CHILD, AFTER_FORK_PARENT = LIB.PyOS_BeforeFork, LIB.PyOS_AfterFork_Child, LIB.PyOS_AfterFork_Parent
for function in BEFORE_FORK, AFTER_FORK_CHILD, AFTER_FORK_PARENT:
    function.restype = None


class Known:
    """What a zygote has, found out before it forks: each object that a process looks at first is in a page that it has to copy."""
    environment = {}
    modules = frozenset()
    last_module = ""
    seeds = []


def state():
    """What another process of the same uid can change, and forks would inherit."""
    if LIB.syscall(SCHED_GETATTR, 0, ATTR, SCHED_ATTR_BYTES, 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_getattr")
    limits = os.open("/proc/self/limits", os.O_RDONLY | os.O_CLOEXEC)  # all of them, by any name
    try:
        return ATTR.raw, os.sched_getaffinity(0), LIB.syscall(IOPRIO_GET, 1, 0), os.read(limits, LIMITS_MAX)
    finally:
        os.close(limits)


def is_alone():
    if LIB.syscall(WAITID, *WAIT_ANY) == 0 or ctypes.get_errno() != errno.ECHILD:
        return False
    return os.stat("/proc/self/task").st_nlink == LINKS_OF_ONE_THREAD


def open_descriptors():
    return {int(fd) for fd in os.listdir("/proc/self/fd")}


def is_harmless(fd):
    try:
        found = os.fstat(fd)
    except OSError:  # that of the list
        return True
    return (found.st_mode & 0o170000) == 0o020000 and (os.major(found.st_rdev), os.minor(found.st_rdev)) in HARMLESS


def shares_memory():
    with open("/proc/self/maps", "rb") as maps:
        return any(line.split(None, 2)[1][1:4:2] == b"ws" for line in maps)


def check():
    """What keeps it from being forked for jobs that must not meet."""
    if not is_alone():
        return "an import has left threads or processes"
    if shares_memory():
        return "an import has left shared memory"
    left = [fd for fd in open_descriptors() - {3} if not is_harmless(fd)]
    return f"an import has left descriptor {left[0]} open" if left else None


def warm_up(modules):
    """Imports them. Returns what failed."""
    failed = []
    for name in modules:
        try:
            __import__(name)
        except BaseException as error:
            failed.append(f"import {name}: {type(error).__name__}: {error}")
    for finder in sys.path_importer_cache.values():  # a job may find other files
        if finder is not None:
            finder.invalidate_caches()
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    open_streams()
    return "; ".join(failed)


def settle():
    """The last step before it forks."""
    Known.environment = dict(os.environb)
    Known.modules = frozenset(sys.modules)
    Known.last_module = next(reversed(sys.modules))
    Known.seeds = [getattr(sys.modules[module], function) for module, function in SEEDS if module in sys.modules]
    gc.collect()
    gc.freeze()
    rehearse()
    gc.collect()
    gc.freeze()


def rehearse_fork():
    """What python does in a forked process, so that the loader has found the functions for it."""
    allocate = LIB.PyThread_tss_alloc
    allocate.restype = ctypes.c_void_p
    key = ctypes.c_void_p(allocate())
    LIB.PyThread_tss_create(key)
    LIB.PyThread_tss_delete(key)
    LIB.PyThread_tss_free(key)


def rehearse():
    """The steps of a job, before there are any: what they look up, and the instructions that python replaces as they run, would
    otherwise be written to pages that each process has to copy. Nothing of it stays that a job could find."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < REHEARSAL_FILES:
        return
    rehearse_fork()
    main = sys.modules["__main__"].__dict__
    kept = dict(main)
    env = [name + b"=" + value for name, value in Known.environment.items()]
    job = b"\0".join([b"0", b"/", b"3", b"python3", b"-c", REHEARSED, *env, b""])
    for _ in range(REHEARSALS):
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        ours.sendmsg([b"job"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, 0)))])
        _, fds = receive(theirs)
        take_descriptors(fds)
        clear(run(become(job)))
        for fd in fds:
            os.close(fd)
        ours.close()
        theirs.close()
        main.update(kept)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def receive(link):
    data, passed, _, _ = link.recvmsg(4096, FDS_SPACE)
    fds = []
    for level, kind, found in passed:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += memoryview(found[:len(found) // 4 * 4]).cast("i")
    return data, fds


def fork_sibling():
    """Forks a process whose parent is the guest (python_live.py says more). 0 in the new process."""
    BEFORE_FORK()
    pid = LIB.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        AFTER_FORK_CHILD()
        return 0
    AFTER_FORK_PARENT()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork")
    return pid


def wait_for_job(fd):
    """The new process, until it is a job. Returns what that is to run."""
    os.dup2(fd, 3)
    os.close(fd)
    os.setsid()
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 3)
    link.send(b"forked 0 0")
    link.send(str(os.getpid()).encode())
    _, fds = receive(link)
    if len(fds) != 4:
        os._exit(0)
    job = take_descriptors(fds)
    link.detach()
    LIB.syscall(CLOSE_RANGE, 3, 0xffffffff, 0)
    return job


def take_descriptors(fds):
    """Those of a job: 0 to 2, and a file that says what it is."""
    job = os.pread(fds[3], os.lseek(fds[3], 0, os.SEEK_END), 0)
    for to in range(3):
        os.dup2(fds[to], to)
    return job


def open_stream(fd, name, like):
    """As python does when it starts with pipes."""
    writes = fd != 0
    plain = writes and like.write_through
    file = open(fd, "wb" if writes else "rb", 0 if plain else -1, closefd=False)
    (file if plain else file.raw).name = name
    text = io.TextIOWrapper(file, like.encoding, like.errors, "\n", not plain and (fd == 2 or file.isatty()), bool(plain))
    text.mode = "w" if writes else "r"
    return text


def open_streams():
    """Those of the jobs, in advance: they ask of a descriptor what it is when they begin, so it is a pipe for that time."""
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        nothing = os.dup(fd)
        ends = os.pipe()
        os.dup2(ends[fd != 0], fd)
        stream = open_stream(fd, f"<{name}>", getattr(sys, f"__{name}__"))
        os.dup2(nothing, fd)
        for end in (nothing, *ends):
            os.close(end)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def set_environment(pairs):
    """Most jobs have that of the zygote."""
    wanted = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        wanted[name] = value
    if wanted != Known.environment:
        for name in [name for name in os.environb if name not in wanted]:
            del os.environb[name]
        for name, value in wanted.items():
            if os.environb.get(name) != value:
                os.environb[name] = value
    if b"TZ" in wanted:
        time.tzset()


def become(job):
    """Environment, folder, arguments, signals and seeds of the job. Returns its code."""
    cpu_seconds, folder, n_args, *rest = job.split(b"\0")
    args, env = rest[:int(n_args)], rest[int(n_args):-1]
    set_environment(env)
    os.chdir(folder)
    if cpu_seconds != b"0":
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))
    words = [os.fsdecode(word) for word in args]
    sys.orig_argv[:] = words
    sys.argv[:] = ["-c", *words[3:]]
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for seed in Known.seeds:
        seed()
    return words[2]


def show(error):
    """As python shows what its program does not catch, without this program's part of the traceback."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != "<string>":
        found = found.tb_next
    error.__traceback__ = found
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, found
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass
    sys.excepthook(type(error), error, found)


def status_of(end):
    """What python exits with after SystemExit."""
    if end is None:
        return 0
    if isinstance(end, int):
        return end & 0xFF if -(1 << 63) <= end < 1 << 63 else 0xFF
    print(end, file=sys.stderr)
    return 1


def run(code):
    """The job's program. Returns what python is to exit with."""
    try:
        exec(compile(code, "<string>", "exec", 0, True), sys.modules["__main__"].__dict__)
    except SystemExit as end:
        return status_of(end.code)
    except KeyboardInterrupt as error:
        show(error)
        return -signal.SIGINT
    except BaseException as error:
        show(error)
        return 1
    return 0


def flush(status):
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            if stream is sys.stdout:
                raise SystemExit(status) from None  # python says that the output is lost


def new_modules():
    """Those that the zygote does not have: behind its last one, unless modules were removed and added again."""
    names = []
    for name in reversed(sys.modules):
        if name == Known.last_module:
            break
        names.append(name)
    if len(names) + len(Known.modules) == len(sys.modules):
        return names
    return [name for name in sys.modules if name not in Known.modules]


def is_public(name):
    return not name.startswith("_")


def finish(status):
    """As python ends: threads, atexit, the objects of the program. But objects of the zygote, most of them, are left alone: to free
    them would copy their pages."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    clear(status)
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def clear(status):
    """Frees the objects of the program."""
    flush(status)
    main = sys.modules["__main__"].__dict__
    names = [name for name in main if name != "__builtins__"]
    for name in sorted(names, key=is_public):  # as in PyModule_Clear()
        main[name] = None
    for name in new_modules():
        del sys.modules[name]
    gc.collect()
    flush(status)


def main():
    code = become(serve())
    LIB.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    finish(run(code))


def serve():
    """Forks. Returns in the new process, with what that is to run."""
    LIB.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    broker = _socket.socket(fileno=3)
    as_begun = None
    while True:
        data, fds = receive(broker)
        if data == b"fork" and len(fds) == 1 and state() == as_begun and is_alone():
            if fork_sibling() == 0:
                broker.detach()
                return wait_for_job(fds[0])
            os.close(fds[0])
            continue
        word, *rest = data.decode().split() or [""]
        if word == "warm":
            failed = warm_up(rest)
            why = check()
            if why is not None:
                os.write(2, why.encode())
                os._exit(4)
            as_begun = state()
            settle()
            broker.send(b"warm " + failed.encode("utf-8", "replace")[:FAILED_MAX])
        else:
            os._exit(0 if not data else 3)


main()
