// SPDX-License-Identifier: Apache-2.0
// Lines to stdout, without waiting for its reader. A line is accepted whole; what its reader has not taken yet is kept until
// then, and until that is written the next line is refused. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/err.h"

struct line_stream {
    int fd;
    bool socket;
    char *rest; // owned: of the last line
    size_t rest_n, rest_done;
};

// *s writes to `fd`, which stays open and whose flags, which other processes may share, are not changed.
int line_stream_open(struct line_stream *s, int fd, struct err *e);
void line_stream_close(struct line_stream *s);

// A negative errno: -EAGAIN: its reader is slow.
int line_stream_write(struct line_stream *s, const char *line, size_t n);
