// SPDX-License-Identifier: Apache-2.0
// Where the output of a job goes: to our own stdout and stderr, or into memory for `-o json`.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_options.h"

enum { SINK_CAPTURE_BYTES_MAX = 64 * 1024 * 1024 }; // of each stream

struct capture {
    char *bytes;
    size_t n, max;
    uint64_t cut; // what did not fit
};

struct sink {
    bool capturing;
    struct capture streams[2]; // stdout, stderr
    bool broken;               // our stdout or stderr takes no more
    int why;                   // errno of that; 0: it was told
    uint64_t gap_bytes;        // output that is gone
    bool limit;                // because of the limit output_bytes
};

void sink_free(struct sink *k);

// True: stdout is a pipe or a terminal that nobody reads any more.
bool sink_is_gone(void);

// Handlers for struct stockade_handlers: 0 to go on, 1 when nobody reads any more.
int sink_output(struct sink *k, int stream, const void *bytes, size_t n);
int sink_gap(struct sink *k, uint64_t n, bool limit);

// It takes no more, for this errno; 0: that was told.
void sink_lost(struct sink *k, int why);

// The exit code where the sink is broken: as SIGPIPE has it where a reader went away, which knows; any other reason is told,
// and `otherwise` returned.
int sink_broken(const struct sink *k, const struct command *c, int otherwise);
