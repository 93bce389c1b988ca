# SPDX-License-Identifier: Apache-2.0
"""System calls in another process, as if it had been taken over: root stops it and has it make them."""

import ctypes
import fcntl
import os
import select
import signal

ATTACH, DETACH, GETREGS, SETREGS, STEP, POKE = 16, 17, 12, 13, 9, 5
SYSCALL, SEIZE, INTERRUPT, SYSGOOD = 24, 0x4206, 0x4207, 1
READ = 0  # system calls
PIDFD_OPEN, PIDFD_GETFD = 434, 438
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES]


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, pid, address=0, data=0):
    if LIBC.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of {pid}")


class Taken:
    """A process that waits in a system call (x86-64)."""

    def __init__(self, pid):
        self.pid = pid
        ptrace(ATTACH, pid)
        os.waitpid(pid, 0x40000000)  # __WALL
        self.before = Registers()
        ptrace(GETREGS, pid, 0, ctypes.addressof(self.before))

    def text(self, text, at=4096):
        """The address of a text, below its stack."""
        data = text.encode() + bytes(16 - len(text) % 8)
        address = (self.before.rsp - at) & ~7
        for i in range(0, len(data) - 7, 8):
            ptrace(POKE, self.pid, address + i, int.from_bytes(data[i:i + 8], "little"))
        return address

    def call(self, number, *arguments):
        """What it returns; None: that ended the process."""
        now = Registers.from_buffer_copy(self.before)
        now.rip, now.rax, now.orig_rax = self.before.rip - 2, number, 2**64 - 1  # the instruction that it waits in
        for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
            setattr(now, name, value % 2**64)
        ptrace(SETREGS, self.pid, 0, ctypes.addressof(now))
        ptrace(STEP, self.pid)
        _, status = os.waitpid(self.pid, 0x40000000)
        if not os.WIFSTOPPED(status):
            return None
        if os.WSTOPSIG(status) != signal.SIGTRAP:
            raise AssertionError(f"it stopped by signal {os.WSTOPSIG(status)}")
        ptrace(GETREGS, self.pid, 0, ctypes.addressof(now))
        return ctypes.c_longlong(now.rax).value

    def let_go(self):
        ptrace(SETREGS, self.pid, 0, ctypes.addressof(self.before))
        ptrace(DETACH, self.pid)


class Shared:
    """A descriptor of another process."""

    def __init__(self, pid, fd):
        process = LIBC.syscall(PIDFD_OPEN, pid, 0)
        self.fd = LIBC.syscall(PIDFD_GETFD, process, fd, 0)
        os.close(process)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), f"descriptor {fd} of {pid}")

    def take_away(self):
        """Reads what is there, and makes it blocking."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while poll.poll(0):
            os.read(self.fd, 65536)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)

    def close(self):
        os.close(self.fd)


class Traced:
    """A process that stops at system calls (x86-64)."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        ptrace(SEIZE, self.pid, 0, SYSGOOD)
        ptrace(INTERRUPT, self.pid)
        self.wait()
        return self

    def __exit__(self, *_):
        ptrace(DETACH, self.pid)

    def wait(self):
        """The signal that it has stopped for; SIGTRAP | 0x80: a system call begins or ends."""
        _, status = os.waitpid(self.pid, 0x40000000)
        if not os.WIFSTOPPED(status):
            raise AssertionError(f"it has ended: {status:#x}")
        return 0 if status >> 16 else os.WSTOPSIG(status)

    def next(self):
        """The registers at the next begin or end of a system call."""
        pending = 0
        while True:
            ptrace(SYSCALL, self.pid, 0, pending)
            pending = self.wait()
            if pending == signal.SIGTRAP | 0x80:
                now = Registers()
                ptrace(GETREGS, self.pid, 0, ctypes.addressof(now))
                return now

    def stops_at(self, number, argument):
        """Where the system call begins whose first argument is this."""
        while True:
            now = self.next()
            if (now.orig_rax, now.rdi, ctypes.c_longlong(now.rax).value) == (number, argument, -38):  # -ENOSYS: it begins
                return

    def result(self):
        """Of the system call that has begun."""
        return ctypes.c_longlong(self.next().rax).value

    def descriptor(self, fd):
        return Shared(self.pid, fd)
