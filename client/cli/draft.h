// SPDX-License-Identifier: Apache-2.0
// A file of this machine that gets its name when all of it is there. A command that fails, is interrupted or is killed replaces nothing.
// It leaves nothing either, but for one case: a file system without files that have no name (open(2), O_TMPFILE; NFS is one), and
// SIGKILL. There the draft has a name from the start, which ends in .stockade-PID.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct draft {
    int fd;             // for the caller to write to; -1: none
    const char *target; // borrowed
    char *beside;       // a name in the same folder
    bool has_name;      // it is at `beside`
};

// Makes an empty file (0600) in the folder of the target. Returns 0 or a negative errno. Once it has returned 0: draft_end().
int draft_begin(struct draft *d, const char *target);

// Gives it the name, over a file that is there. `durable`: it is on the disk first. Returns 0 or a negative errno.
int draft_keep(struct draft *d, bool durable);

// Closes it, and removes one that was not kept.
void draft_end(struct draft *d);
