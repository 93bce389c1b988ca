// SPDX-License-Identifier: Apache-2.0
// clone3 for children that run on their sleeping parent's memory and stack: CLONE_VM | CLONE_VFORK and no stack of their
// own. Nothing is copied, neither now nor, as writes come to it, later; what a plain clone and its exec take for that is
// about 0.15 ms here. The rules:
//
//   the child leaves by exec or _exit, through a noreturn function that is called right behind
//   what it writes is written for the parent, too; descriptors, ids, limits, signals are its own
//   the parent goes on when the child has left, or is dead
#pragma once

#include <linux/sched.h>
#include <sys/syscall.h>

// Inline assembler, so that the child does not return through a function that the parent returns through later, as it
// would with syscall(2)'s wrapper. Returns the kernel's result: 0 in the child, a negative errno on failure.
static inline __attribute__((always_inline)) long
clone_here(const struct clone_args *a)
{
#if defined(__x86_64__)
    long r = SYS_clone3;
    __asm__ volatile("syscall" : "+a"(r) : "D"(a), "S"(sizeof *a) : "rcx", "r11", "memory");
    return r;
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = (long)a;
    register long x1 __asm__("x1") = sizeof *a;
    register long x8 __asm__("x8") = SYS_clone3;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x8) : "memory", "cc");
    return x0;
#else
#error "clone3 is not written for this architecture"
#endif
}
