// SPDX-License-Identifier: Apache-2.0
// One system call of a recording, as the recorder's program writes it and the files keep it.
#pragma once

#include <linux/types.h>

struct recorded {
    __u64 sandbox; // id of the sandbox's cgroup
    __u64 exe; // inode of what its process executes; the highest bit: a file of the sandbox's own
    __u32 thread;
    __u16 number;
    __u8 error; // enum watch_error
    __u8 zero;
};
