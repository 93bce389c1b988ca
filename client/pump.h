// SPDX-License-Identifier: Apache-2.0
// The connection of a handle, for calls.c: delivers incoming frames to their calls, sends frames, and lets a thread
// that waits for its call serve the others. Call everything here with the handle's lock held.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "stockade.h"
#include "stockade/v1/wire.pb-c.h"

// A message that arrived and was not yet fetched.
struct message {
    struct message *next;
    uint8_t *bytes;
    size_t n;
};

struct call {
    struct stockade *s;
    struct call *next;
    uint32_t id;
    bool stream;
    bool done, cancelled;
    int rc; // when done: 0 or the negative errno of `error`
    struct stockade_error error;
    uint32_t credit; // DATA frames that the broker may still send
    uint32_t taken;  // messages fetched since the last credit
    struct message *first, *last;
    uint64_t deadline_ns; // end of the wait; 0: none
};

#define NS_PER_MS 1000000ull

// Ends the call: with a failure, or (NULL) successfully.
void pump_finish(struct call *c, const struct err *why);

// Connects, if necessary, for a new call.
int pump_connect(struct stockade *s, struct err *e);
uint32_t pump_new_id(struct stockade *s);

// Sends a frame. Frames that arrived before the connection broke are still delivered.
int pump_send(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e);
void pump_send_kind(struct stockade *s, uint32_t id, Stockade__V1__FrameKind kind, uint32_t credit);

// Waits until something may have changed, or until_ns (0: no timeout). Releases the lock meanwhile.
void pump_wait(struct stockade *s, uint64_t until_ns);

// Wakes the thread that polls.
void pump_wake(struct stockade *s);
