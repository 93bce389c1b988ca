// SPDX-License-Identifier: Apache-2.0
// A call in progress, as the parts of the library share it: plain data, protected by the handle's lock.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stockade.h"

#define NS_PER_MS 1000000ull

// A message that arrived and was not yet passed on.
struct message {
    struct message *next;
    size_t n;
    uint8_t bytes[];
};

struct call_sink;

struct call {
    struct stockade *s;
    uint64_t id;              // number of the connection, id on the wire
    struct call *bucket_next; // in the set
    size_t heap_at;           // the same: see call_set.c
    uint64_t deadline_ns;     // when we stop waiting; 0: never
    struct call *ready_next;
    const struct call_sink *sink;
    void *cookie; // of the sink
    struct message *first, *last;
    struct stockade_error *error; // owned; NULL: out of memory
    int rc;                       // once done: 0 or why it failed, with `error`
    uint32_t window;              // the credit that it began with
    uint32_t credit;              // DATA frames that the broker may still send
    uint32_t taken;               // passed on since credit was given
    bool stream;
    bool pumped;    // stockade_pump() passes its messages on; otherwise a thread waits for it
    bool ready;     // in the list of those
    bool held;      // ... but not now
    bool muted;     // no more messages are passed on
    bool cancelled; // CANCEL was sent
    bool done;
};

static inline uint32_t
call_wire_id(const struct call *c)
{
    return (uint32_t)c->id;
}
