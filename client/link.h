// SPDX-License-Identifier: Apache-2.0
// One connection to a broker: connect, the SP hello, frames out and in. It never blocks, except to resolve the name of a
// TCP host (dial.h). Frames that are sent while it connects are queued.
//
// Not thread-safe: pump.c holds the handle's lock around every function here, and releases it only to poll(2).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"
#include "address.h"

struct Stockade__V1__Frame;
struct link;

enum {
    LINK_QUEUE_BYTES_MAX = 16 * 1024 * 1024, // queued bytes; beyond: -EAGAIN
    LINK_URGENT_BYTES_MAX = 1024 * 1024,     // further ones, for frames of calls that were begun
};

// Begins to connect; the address is borrowed as long as the link. The connection and the hello must be made until
// deadline_ns (CLOCK_MONOTONIC). Fails at once or in link_work(), UNAVAILABLE: nothing listens, with a hint;
// PERMISSION_DENIED: the mode of the socket; FAILED_PRECONDITION: the peer is not a broker. Free it with link_close().
int link_open(struct link **out, const struct address *a, uint64_t deadline_ns, struct err *e);
void link_close(struct link *l);

// For poll(2): the descriptor (-1: there is only the time to wait for), the events, and when to call link_work() in any
// case; 0: never.
int link_fd(const struct link *l);
short link_events(const struct link *l);
uint64_t link_due_ns(const struct link *l);

// The number of the socket behind the descriptor, of those that this link has made.
unsigned link_socket_number(const struct link *l);

// Queues a frame and sends as much as the socket accepts. -EAGAIN (nothing was queued): the queue is full; urgent frames
// have a reserve.
int link_send(struct link *l, uint32_t id, const ProtobufCMessage *frame, bool urgent,
              struct err *e);

// Goes on connecting; then sends queued bytes, as many as the socket accepts, reads available bytes (a bounded amount;
// the rest stays readable) and passes on each whole frame; the frame is borrowed until on_frame returns. Returns the
// number of frames. Fails if it cannot connect, the connection has ended (UNAVAILABLE) or the bytes are not a frame
// (DATA_LOSS).
int link_work(struct link *l,
              int (*on_frame)(void *cookie, uint32_t id, const struct Stockade__V1__Frame *f,
                              struct err *e),
              void *cookie, struct err *e);

// CLOCK_MONOTONIC in nanoseconds.
uint64_t link_now_ns(void);
