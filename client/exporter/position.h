// SPDX-License-Identifier: Apache-2.0
// The last event that a sink has taken, in a small file, so that the next start of the exporter continues behind it. It is
// written after the event was stored: after kill -9 the last event may come twice, and none is missing. Not synced. Loop
// thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum { POSITION_PATH_MAX = 320, POSITION_INSTANCE = 17 };

struct position {
    int fd;
    char instance[POSITION_INSTANCE]; // the run of the broker; "": no event was taken yet
    uint64_t sequence;
};

// Opens the file and reads it; creates it, 0600. FAILED_PRECONDITION: it is no regular file.
int position_open(struct position *p, const char *path, struct err *e);
void position_close(struct position *p);

// Notes an event. A negative errno: the file could not be written, but *p has the event.
int position_note(struct position *p, const char *instance, uint64_t sequence);

// Whether the event was taken before.
bool position_has(const struct position *p, const char *instance, uint64_t sequence);

// Opens a regular file of ours, 0600, with these flags and O_CREAT. *owned*: close(2). For files beside it.
int position_open_file(const char *path, int flags, struct err *e);
