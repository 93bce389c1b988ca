// SPDX-License-Identifier: Apache-2.0
// A folder of this machine as an archive on a pipe, packed or unpacked by a thread of its own (proto/tar.h, proto/zst.h).
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/tar.h"

struct archive {
    int folder; // borrowed
    bool pack;  // or unpack
    bool compressed;
    uint64_t ratio_max; // of what is unpacked (zst_reader_new)
    // The rest is the archive's own; the results are there when the thread was joined.
    int pipe; // the thread's end
    pthread_t thread;
    struct tar_counts counts;
    int rc;
    struct err error;
};

// Starts the thread. Returns the caller's end of the pipe (owned by the caller), or -1 with errno. Closing that end makes the
// thread end.
int archive_begin(struct archive *a);
// Waits for the thread. Returns rc: 0, or negative with `error`.
int archive_join(struct archive *a);
