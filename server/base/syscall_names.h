// SPDX-License-Identifier: Apache-2.0
// Names of the native architecture's system calls.
#pragma once

#include <stdint.h>

// The name of a system call, such as "openat" for 257 on x86_64, or "syscall_N" if it has none. The text is valid for
// ever. Numbers from WATCH_SYSCALLS (bpf/watch.h) on share one name.
const char *syscall_name(uint32_t number);

// The number of a system call; negative: this architecture does not have it.
int syscall_number(const char *name);
