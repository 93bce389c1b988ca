// SPDX-License-Identifier: Apache-2.0
// Starts one of our programs: fork, duplicate the descriptors, exec. A failure in the child is reported through a pipe
// that exec closes.
//
// The program gets an empty environment, no blocked signals, stderr, and the named descriptors, nothing else.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/err.h"

enum { PROGRAM_FDS_MAX = 8 };

struct program_start {
    const char *path; // of the program
    const char *name; // its argv[0]
    // `from` is borrowed and becomes `to` in the child. Each `to` is below PROGRAM_FDS_MAX and not stderr.
    struct {
        int from, to;
    } fds[PROGRAM_FDS_MAX];
    size_t fds_n;
    // Called in the child, may be NULL: `before` the descriptors are duplicated; `last` before exec, when the program is
    // open. False: failed, see errno. They must not allocate, lock or log.
    bool (*before)(void *cookie);
    bool (*last)(void *cookie);
    void *cookie;
};

// Returns 0 when the program runs, with its process in *pid (the caller must wait for it). On failure nothing of it
// is left, and *e says "start PATH: ...".
int program_start(const struct program_start *s, pid_t *pid, struct err *e);

// Waits for its end, and ignores its status.
void program_wait(pid_t pid);
