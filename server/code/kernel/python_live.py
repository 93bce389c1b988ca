# SPDX-License-Identifier: Apache-2.0
# Continues python.py: processes that are forked from an interpreter and wait until they are needed (server/code/image.h).
#
#   interpreter or waiting process --`fork` with a socket--> waiting process: `forked BYTES COUNT`, then its pid
#                                                              `fork` with a socket: forks another one
#                                                              four descriptors (0 to 2 and a link): it serves
#
# The guest must be the parent of a waiting process, to move it into a cgroup of its own. clone(2) with CLONE_PARENT makes it
# that at once. Where this cannot be, another process forks it and ends, which copies the page tables twice and takes twice as
# long.
#
# What the memory of a process does not hold is refused: `no WHY` on the socket. Each waiting process opens the files of its
# parent again, so that it has positions of its own. Zygotes and waiting processes are non-dumpable (PR_SET_DUMPABLE) from
# their fork on: other processes of the sandbox, which have the same uid, can kill them, but not open their memory.

HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}  # null, zero, full, random, urandom
OWN = {0, 1, 2, 3}
PR_SET_DUMPABLE = 4
CLONE_PARENT = 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}


class Impossible(Exception):
    """What keeps this process from being forked with all of its state."""


def protect(on):
    """Where python has ctypes."""
    try:
        import ctypes
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0 if on else 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def threads():
    """A pool of threads of a library may end them when the process forks, as OpenBLAS does: one fork shows it."""
    if threading.active_count() > 1:
        names = ", ".join(t.name for t in threading.enumerate() if t is not threading.current_thread())
        raise Impossible(f"it has threads ({names[:200]}), and a fork has only one")
    if len(os.listdir("/proc/self/task")) == 1:
        return
    child = os.fork()
    if child == 0:
        os._exit(0)
    reap(child)
    n = len(os.listdir("/proc/self/task"))
    if n > 1:
        raise Impossible(f"a library has {n - 1} threads, and a fork has only one")


def children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    raise Impossible("it has child processes, which a fork does not have")


def timers():
    for name, which in (("alarm", signal.ITIMER_REAL), ("virtual", signal.ITIMER_VIRTUAL), ("profiling", signal.ITIMER_PROF)):
        if signal.getitimer(which) != (0.0, 0.0):
            raise Impossible(f"its {name} timer runs, and a fork has none")


def tasks():
    if K.loop is not None and not K.loop.is_closed():
        import asyncio
        n = len(asyncio.all_tasks(K.loop))
        if n > 0:
            raise Impossible(f"{n} tasks of its event loop wait, and a fork has another loop")


def shared_memory():
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            words = line.split(None, 5)
            if words[1][1:2] == b"w" and words[1][3:4] == b"s":
                name = os.fsdecode(words[5].strip()) if len(words) > 5 else "without a name"
                raise Impossible(f"it shares memory ({name[:200]}), which a fork would not have for itself")


def what_is(fd):
    name = os.readlink(f"/proc/self/fd/{fd}")
    return {"socket": "a connection or another socket", "pipe": "a pipe"}.get(name.split(":")[0], name[:200])


def is_locked(fd):
    with open(f"/proc/self/fdinfo/{fd}") as info:
        return any(line.startswith("lock:") for line in info)


def open_files(own):
    """What opens them again: descriptor, flags, position. `own`: descriptors of this program."""
    import fcntl
    import stat
    files = []
    for fd in sorted(open_descriptors() - own):
        found = os.fstat(fd)
        if stat.S_ISCHR(found.st_mode) and (os.major(found.st_rdev), os.minor(found.st_rdev)) in HARMLESS:
            continue
        named = found.st_nlink > 0 and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
        if not named:
            what = "a file without a name" if stat.S_ISREG(found.st_mode) else what_is(fd)
            raise Impossible(f"descriptor {fd} is {what}, which a fork would share")
        if is_locked(fd):
            raise Impossible(f"descriptor {fd} holds a lock, which a fork does not have")
        flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        files.append((fd, flags, 0 if stat.S_ISDIR(found.st_mode) else os.lseek(fd, 0, os.SEEK_CUR)))
    return files


def open_again(files):
    for fd, flags, position in files:
        inheritable = os.get_inheritable(fd)
        try:
            new = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError as error:
            raise Impossible(f"descriptor {fd} cannot be opened again: {error.strerror}") from None
        os.lseek(new, position, os.SEEK_SET)
        os.dup2(new, fd, inheritable=inheritable)
        os.close(new)


def private_bytes():
    with open("/proc/self/statm") as statm:
        words = statm.read().split()
    return max(0, int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")


def keep_random():
    """random gets another seed when a process forks. Returns what undoes that."""
    if "random" not in sys.modules:
        return lambda: None
    random = sys.modules["random"]
    state = random.getstate()
    return lambda: random.setstate(state)


def leave_parent(fd, files):
    """In the new process: lets go of what belongs to its parent; `fd` is its socket now."""
    os.dup2(fd, 3, inheritable=False)
    os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    for to in range(3):
        os.dup2(nothing, to)
    os.close(nothing)
    close_loop()
    open_again(files)


def say_no(fd, why):
    try:
        os.write(fd, b"no " + encoded(str(why), ERROR_NAME_MAX * 2))
    except OSError:
        pass


def grow_up(fd, files, own_bytes, middle):
    """The new process, until the guest is its parent and it leads a session and a process group of its own."""
    try:
        leave_parent(fd, files)
        os.write(3, f"forked {own_bytes} {K.count}".encode())
        os.setsid()
        while os.getppid() == middle:  # it is about to end
            os.sched_yield()
        K.pid = os.getpid()
        os.write(3, str(K.pid).encode())
    except BaseException as why:
        say_no(3, why)
        os._exit(0)


def sibling():
    """Forks a process whose parent is that of this one: its pid, and 0 in the new process. None: not here.

    libc does not know of this fork, so its handlers (pthread_atfork) do not run. Without other threads there is no lock for them
    to take, and what python does when it forks is done here. libc's own note of the thread's id stays that of the parent, which
    nothing but the owners of its mutexes compares.
    """
    try:
        import ctypes
        number = SYS_CLONE[os.uname().machine]
        lib = ctypes.PyDLL(None, use_errno=True)
        before, after, after_child = lib.PyOS_BeforeFork, lib.PyOS_AfterFork_Parent, lib.PyOS_AfterFork_Child
    except (ImportError, OSError, AttributeError, KeyError):
        return None
    if len(os.listdir("/proc/self/task")) != 1:
        return None
    before()
    pid = lib.syscall(number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        after_child()
        return 0
    after()
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def fork_away(fd, files, own_bytes):
    """True in the new process, whose parent is the guest."""
    pid = sibling()
    if pid is None:
        return fork_twice(fd, files, own_bytes)
    if pid == 0:
        grow_up(fd, files, own_bytes, 0)
    return pid == 0


def fork_twice(fd, files, own_bytes):
    """True in the new process, which has no parent here."""
    child = os.fork()
    if child != 0:
        reap(child)
        return False
    middle = os.getpid()
    try:
        if os.fork() != 0:
            os._exit(0)
    except BaseException as why:
        say_no(fd, f"fork: {why}")
        os._exit(0)
    grow_up(fd, files, own_bytes, middle)
    return True


def reap(child):
    try:
        os.waitpid(child, 0)
    except ChildProcessError:  # this process ignores SIGCHLD
        pass


def branch(fd, files=(), own_bytes=0):
    """Forks. True in the new process, whose descriptor 3 is `fd` now; it is to call wait_for_use(). Closes `fd` in this one."""
    flush_streams()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGCHLD))
    new = False
    protect(True)
    try:
        new = fork_away(fd, files, own_bytes)
    except OSError as error:
        say_no(fd, f"fork: {error.strerror}")
    finally:
        if not new:
            os.close(fd)
            protect(K.protected)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return new


def fork_live(fd):
    """branch() with all state of this process; or says on `fd` why that cannot be."""
    try:
        for check in (threads, children, timers, tasks, shared_memory):
            check()
        files = open_files(OWN | {fd} | K.loop_fds)
        own_bytes = private_bytes()
        set_random = keep_random()
    except Exception as why:  # what the cells have replaced may raise anything
        say_no(fd, why if isinstance(why, Impossible) else f"{type(why).__name__}: {why}")
        os.close(fd)
        return False
    if not branch(fd, files, own_bytes):
        return False
    set_random()
    return True


def wait_for_use():
    """In a new process: until the broker gives it the descriptors of an interpreter. It may have to fork others before."""
    K.protected = True
    broker = _socket.socket(fileno=3)
    while True:
        data, passed, _, _ = broker.recvmsg(16, FDS_SPACE)
        fds = fds_of(passed)
        if data == b"fork" and len(fds) == 1:
            fork_live(fds[0])  # the child goes on here, with another socket at descriptor 3
            continue
        if len(fds) != 4:
            os._exit(0)
        for to, fd in enumerate(fds):
            os.dup2(fd, to, inheritable=to < 3)
            os.close(fd)
        broker.detach()
        K.protected = False
        protect(False)
        return
