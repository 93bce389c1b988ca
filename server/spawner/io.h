// SPDX-License-Identifier: Apache-2.0
// Small helpers around system calls that several files of the spawner need.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    // 0..15: descriptors that a child passes to exec; the spawner keeps them occupied
    FD_CHILD_MAX = 16,
    FD_KEEP_MIN = 1024 // descriptors kept as long as a sandbox exists; children need not copy them
};

// Writes a string to a file below a directory, in one write(2). Any thread; async-signal-safe except on failure.
int io_write_at(int dir_fd, const char *path, const char *text, struct err *e);

// The same for an unsigned number.
int io_write_u64_at(int dir_fd, const char *path, uint64_t n, struct err *e);

// Reads a small file into text, terminated by NUL. Returns the length, or a negative errno.
long io_read_at(int dir_fd, const char *path, char *text, size_t n);

// CLOCK_MONOTONIC.
uint64_t io_now_ns(void);

// Moves an owned descriptor to a number from FD_KEEP_MIN on (or leaves it if none is free). Returns the new one.
int io_keep_fd(int fd);

// Closes *fd unless it is -1, and sets it to -1.
void io_close(int *fd);
