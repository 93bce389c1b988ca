// SPDX-License-Identifier: Apache-2.0
// What the native architecture's system calls are called.
#pragma once

#include <stdint.h>

// "openat" for 257 on x86_64. A number without a name: "syscall_N", in a buffer of its own that lives for ever. Numbers
// from WATCH_SYSCALLS (bpf/watch.h) on share the last one's.
const char *syscall_name(uint32_t number);
