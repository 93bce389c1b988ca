# SPDX-License-Identifier: Apache-2.0
# Continues python.py: an interpreter from which those of contexts are forked (server/code/zygote.h).
#
# Descriptor 3 is a socket to the broker, with packets: `warm MODULES` and `fork` with a socket for the child. The child sends
# its pid there, and gets one packet with descriptors 0 to 2 and its link. Nothing that is open here stays open in it.

DRY_RUN = ("print(0)", "x = 1\nx", "1/0", "import sys\nsys.stdout.flush()") * 2
SEEDS = (("random", "seed"), ("numpy.random", "seed"), ("torch", "seed"))


def warm_up(modules):
    """Imports them and runs a cell of each kind, so that the first real one finds everything in memory. Returns what failed."""
    failed = []
    for name in modules:
        try:
            if name == "IPython":
                open_shell()
            __import__(name)
        except BaseException as error:
            failed.append(f"import {name}: {type(error).__name__}: {error}")
    dry_run()
    close_loop()
    for name in ("x", "sys", "_", "__", "___"):
        NS.pop(name, None)
    NS["Out"].clear()
    linecache.clearcache()
    gc.collect()
    gc.freeze()
    return "; ".join(failed)


def dry_run():
    real = globals()["write_all"]
    globals()["write_all"] = lambda fd, data: None
    try:
        for text in DRY_RUN:
            run_cell(text)
            flush_streams()
    finally:
        globals()["write_all"] = real


def close_loop():
    """Its descriptors are not for several processes."""
    if K.loop is None:
        return
    import asyncio
    K.loop.close()
    K.loop = None
    asyncio.set_event_loop(None)


def branch():
    """Forks. True in the child, which has no parent here, and leads a session and a process group of its own."""
    flush_streams()
    middle = os.fork()
    if middle != 0:
        os.waitpid(middle, 0)
        return False
    middle = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    while os.getppid() == middle:
        os.sched_yield()
    K.pid = os.getpid()
    for module, function in SEEDS:
        if module in sys.modules:
            getattr(sys.modules[module], function)()
    return True


def become(fd):
    """The child: waits until the broker needs it, and serves."""
    os.dup2(fd, 3, inheritable=False)
    os.close(fd)
    broker = _socket.socket(fileno=3)
    broker.send(str(K.pid).encode())
    data, passed, _, _ = broker.recvmsg(16, FDS_SPACE)
    fds = fds_of(passed)
    if len(fds) != 4:
        os._exit(0)
    for to, fd in enumerate(fds):
        os.dup2(fd, to, inheritable=to < 3)
        os.close(fd)
    broker.detach()
    serve()


def zygote_main():
    prepare()
    broker = _socket.socket(fileno=3)
    while True:
        data, passed, _, _ = broker.recvmsg(4096, FDS_SPACE)
        if not data:
            os._exit(0)
        word, *rest = data.decode().split()
        fds = fds_of(passed)
        if word == "warm":
            broker.send(b"warm " + encoded(warm_up(rest), ERROR_VALUE_MAX))
        elif word == "fork" and fds:
            if branch():
                broker.detach()
                return become(fds[0])
            os.close(fds[0])


if "zygote" in globals():
    zygote_main()
else:
    begin()
