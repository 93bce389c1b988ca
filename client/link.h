// SPDX-License-Identifier: Apache-2.0
// One connection to a broker: connect, the SP hello, frames out and in. It never blocks after link_open().
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

enum { LINK_QUEUE_BYTES_MAX = 16 * 1024 * 1024 }; // queued bytes; beyond: -EAGAIN

// Connects and exchanges the hello until deadline_ns (CLOCK_MONOTONIC). UNAVAILABLE: nothing listens, with a hint;
// PERMISSION_DENIED: the mode of the socket; FAILED_PRECONDITION: the peer is not a broker. Free it with link_close().
int link_open(struct link **out, const struct address *a, uint64_t deadline_ns, struct err *e);
void link_close(struct link *l);

// For poll(2): the socket, and whether bytes wait to be sent.
int link_fd(const struct link *l);
bool link_wants_write(const struct link *l);

// Queues a frame and sends as much as the socket accepts. -EAGAIN (nothing was queued): the queue is full.
int link_send(struct link *l, uint32_t id, const ProtobufCMessage *frame, struct err *e);

// Sends queued bytes, as many as the socket accepts.
int link_flush(struct link *l, struct err *e);

// Reads available bytes (a bounded amount; the rest stays readable) and passes on each whole frame; the frame is
// borrowed until on_frame returns. Fails if the connection has ended (UNAVAILABLE) or the bytes are not a frame
// (DATA_LOSS).
int link_receive(struct link *l,
                 int (*on_frame)(void *cookie, uint32_t id, const struct Stockade__V1__Frame *f,
                                 struct err *e),
                 void *cookie, struct err *e);

// CLOCK_MONOTONIC in nanoseconds.
uint64_t link_now_ns(void);
