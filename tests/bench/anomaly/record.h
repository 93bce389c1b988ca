// SPDX-License-Identifier: Apache-2.0
// One system call of a recording, as written by the recorder's program and stored in the files.
#pragma once

#include <linux/types.h>

struct recorded {
    __u64 sandbox; // id of the sandbox's cgroup
    __u64 exe;     // inode of its process's executable; the highest bit: a file of the sandbox
    __u32 thread;
    __u16 number;
    __u8 error; // enum watch_error
    __u8 zero;
};
