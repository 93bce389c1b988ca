# SPDX-License-Identifier: Apache-2.0
# Continues python.py: an interpreter from which those of contexts are forked (server/code/zygote.h).
#
# Descriptor 3 is a socket to the broker, with packets: `warm MODULES` and `fork` with a socket for the child (python_live.py).

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


def reseed():
    for module, function in SEEDS:
        if module in sys.modules:
            getattr(sys.modules[module], function)()


def zygote_main():
    K.protected = True
    protect(True)
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
        elif word == "fork" and fds and branch(fds[0]):
            broker.detach()
            reseed()
            wait_for_use()
            return serve()


if "zygote" in globals():
    zygote_main()
else:
    begin()
