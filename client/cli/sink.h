// SPDX-License-Identifier: Apache-2.0
// The receiver of a job's output: stdout and stderr of this command, or memory for `-o json`.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

enum { SINK_CAPTURE_BYTES_MAX = 64 * 1024 * 1024 }; // of each stream

struct capture {
    char *bytes;
    size_t n, max;
    uint64_t cut; // bytes that did not fit
};

struct sink {
    bool capturing;
    struct capture streams[2]; // stdout, stderr
    bool broken;               // stdout or stderr of this command is broken
    int why;                   // its errno; 0: it was reported
    uint64_t gap_bytes;        // missing output
    bool limit;                // because of the limit output_bytes
};

void sink_free(struct sink *k);

// True: stdout is a pipe or a terminal that the reader has closed.
bool sink_is_gone(void);

// Handlers for struct stockade_handlers: return 0 to continue, 1 if the reader has closed the output.
int sink_output(struct sink *k, int stream, const void *bytes, size_t n);
int sink_gap(struct sink *k, uint64_t n, bool limit);

// Marks it as broken with this errno; 0: the failure was reported.
void sink_lost(struct sink *k, int why);

// The exit code for a broken sink: that of SIGPIPE if the reader has closed it; any other failure is reported, and
// `otherwise` is returned.
int sink_broken(const struct sink *k, const struct command *c, int otherwise);
