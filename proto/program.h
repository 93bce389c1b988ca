// SPDX-License-Identifier: Apache-2.0
// Starts one of our programs: fork, descriptors in their places, exec. What fails in the child is reported through a pipe
// that exec closes.
//
// The program gets no environment, no signal that is blocked, stderr, and the descriptors that are named; nothing else.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/err.h"

enum { PROGRAM_FDS_MAX = 8 };

struct program_start {
    const char *path; // of the program
    const char *name; // its argv[0]
    // `from` is borrowed and becomes `to`. Each `to` is below PROGRAM_FDS_MAX, and none is stderr.
    struct {
        int from, to;
    } fds[PROGRAM_FDS_MAX];
    size_t fds_n;
    // In the child, may be NULL: before its descriptors are placed, and last before exec, when the program is open. False:
    // errno says what failed. They may not allocate, lock or log.
    bool (*before)(void *cookie);
    bool (*last)(void *cookie);
    void *cookie;
};

// Returns when the program runs, and *pid is its process (to be waited for), or when it does not: then nothing of it is
// left, and *e says "start PATH: ...".
int program_start(const struct program_start *s, pid_t *pid, struct err *e);

// Waits for its end, whatever its status.
void program_wait(pid_t pid);
