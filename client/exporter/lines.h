// SPDX-License-Identifier: Apache-2.0
// A file of lines for events: appended to, rotated by size, readable by its owner alone. Not synced: a power failure may take
// the last seconds. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { LINES_PATH_MAX = 256 };

struct lines {
    char path[LINES_PATH_MAX];
    uint64_t size_max; // bytes of one file
    uint32_t keep;     // rotated files: PATH.1 is the newest
    int fd;
    uint64_t size;
    bool torn;        // half a line follows `size`
    uint64_t written; // lines
    uint64_t failed;  // writes of a line
};

// Opens the file, or creates it, 0600. FAILED_PRECONDITION: it is no regular file.
int lines_open(struct lines *l, struct err *e);
void lines_close(struct lines *l);

// Appends one line, whole or not at all. A negative errno: it could not be written.
int lines_write(struct lines *l, const char *line);
