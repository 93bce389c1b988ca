// SPDX-License-Identifier: Apache-2.0
// The connection of a handle, for calls.c and async.c: sends frames, queues incoming ones at their calls, ends calls at
// their deadlines, and waits. Call everything here with the handle's lock held. calls.h has the theory of operation.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "call.h"
#include "stockade.h"
#include "stockade/v1/wire.pb-c.h"

// Ends the call: with a failure, or (NULL) successfully.
void pump_finish(struct call *c, const struct err *why);

// The same, with an error of stockade.h, also if it was done.
void pump_fail(struct call *c, int rc, const struct stockade_error *why);

// Frees its queued messages.
void pump_drop_messages(struct call *c);

// Begins to connect, if necessary, for a new call.
int pump_connect(struct stockade *s, struct err *e);

// An id for a call on this connection, or for a PING.
uint64_t pump_new_id(struct stockade *s);

// Sends a frame. Frames that arrived before the connection broke are still queued at their calls.
int pump_send(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e);

// Sends CANCEL or WINDOW for a call, if its connection is still there.
void pump_send_kind(const struct call *c, Stockade__V1__FrameKind kind, uint32_t credit);

// Does what is ready, without waiting: reads and sends, and looks at the time.
void pump_work(struct stockade *s);

// Waits until something may have changed, or until until_ns (0: no limit), and does the work. Releases the lock meanwhile.
void pump_wait(struct stockade *s, uint64_t until_ns);
