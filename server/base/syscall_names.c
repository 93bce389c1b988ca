// SPDX-License-Identifier: Apache-2.0
// See syscall_names.h. The names come from libseccomp; each is looked up once.
#include "syscall_names.h"

#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>

#include "bpf/watch.h"

const char *
syscall_name(uint32_t number)
{
    static char names[WATCH_SYSCALLS][32];
    if (number >= WATCH_SYSCALLS)
        number = WATCH_SYSCALLS - 1;
    char *name = names[number];
    if (name[0] != '\0')
        return name;
    char *known = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)number);
    if (known != NULL)
        (void)snprintf(name, sizeof names[number], "%s", known);
    else
        (void)snprintf(name, sizeof names[number], "syscall_%u", number);
    free(known);
    return name;
}

// libseccomp numbers calls of other architectures below zero.
int
syscall_number(const char *name)
{
    return seccomp_syscall_resolve_name_arch(SCMP_ARCH_NATIVE, name);
}
