# SPDX-License-Identifier: Apache-2.0
"""System calls in another process, as if it had been taken over: root stops it and has it make them."""

import ctypes
import os
import signal

ATTACH, DETACH, GETREGS, SETREGS, STEP, POKE = 16, 17, 12, 13, 9, 5
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
