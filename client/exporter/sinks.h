// SPDX-License-Identifier: Apache-2.0
// Where events go: each sink makes bytes of an event and stores them, in a file or in a queue on disk.
//
//   broker --> sinks_event --> sink 1: encode, store, note the position
//                          `-> sink 2: ...
//
// A sink that cannot store (the disk is full, nobody reads its pipe) stays behind and delays no other: it keeps the one event
// that failed and tries it again each 100 ms. When that succeeds, the events behind it are requested from the broker again
// (on_rewind); the sinks that have them skip them by their position. What the broker no longer keeps then is reported to that sink
// as a gap, and counted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "client/stockade.h"
#include "position.h"

enum { SINKS_MAX = 12, SINKS_AGAIN_MS = 100 };

// *owned*. n 0: nothing.
struct sink_bytes {
    char *bytes;
    size_t n;
};

struct sink {
    const char *name;  // in metrics and messages
    uint32_t severity; // at least
    // A negative errno: out of memory.
    int (*encode)(void *cookie, const struct stockade_event *event, struct sink_bytes *out);
    // Events that are missing; count 0: unknown. May be NULL.
    int (*encode_gap)(void *cookie, uint64_t count, const char *reason, struct sink_bytes *out);
    int (*store)(void *cookie, const struct sink_bytes *b, int64_t time_ns);
    void *cookie;
    struct position position; // opened by the owner

    bool behind;
    struct sink_bytes held; // of the event that failed
    char held_instance[POSITION_INSTANCE];
    uint64_t held_sequence;
    int64_t held_ns;
    uint64_t events, gaps, missed, failed;
};

struct sinks {
    struct sink sink[SINKS_MAX];
    size_t n;
    uv_timer_t timer;
    char asked[POSITION_INSTANCE]; // the run of the broker that was requested last
    // Request the events from sinks_position() on.
    void (*on_rewind)(void *cookie);
    void *cookie;
};

// Call it once, before the others.
void sinks_begin(struct sinks *all, uv_loop_t *loop);
void sinks_close(struct sinks *all); // closes the handle, and the positions

void sinks_event(struct sinks *all, const struct stockade_event *event);
// to 0: up to the end of an earlier run of the broker.
void sinks_gap(struct sinks *all, uint64_t to, uint64_t count, const char *reason);

// The first event that some sink needs, and the run of the broker that it belongs to; "": the current one. False: only new ones.
bool sinks_position(struct sinks *all, char instance[POSITION_INSTANCE], uint64_t *next);
