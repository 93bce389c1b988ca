// SPDX-License-Identifier: Apache-2.0
// One connection: the SP handshake, frames in, frames out, and the calls that are open on it. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"

// Registers the reasons of METRIC_REFUSED.
void conn_name_refusals(void);

// Takes ownership of the stream: makes a connection that waits for the peer's hello, or closes the stream if there are
// too many.
void conn_accept(struct rpc *r, const struct transport_ops *ops, struct transport_stream *s,
                 const struct transport_peer *peer);

// The transport's events.
void conn_on_read(void *conn, size_t n);
void conn_on_written(void *conn, size_t n);
void conn_on_closed(void *conn);

// Closes the connection in the next turn of the loop, and cancels its calls then.
void conn_close(struct conn *c);

// Sends GOAWAY: calls up to the last one are answered, new ones are refused.
void conn_go_away(struct conn *c, const struct err *why);

// Queues a frame, which is sent together with the next one. Discarded if the connection is closing.
void conn_queue(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame);

// Starts to write the queued bytes, unless a write is in progress or more bytes are about to be queued.
void conn_flush(struct conn *c);

// Sends a frame, or one that is already packed.
void conn_send(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame);
void conn_send_packed(struct conn *c, uint32_t id, const uint8_t *frame, size_t n);

// True while so many bytes are queued that streams must wait; call_room() is called when there is room again.
bool conn_is_full(const struct conn *c);
void conn_wait_for_room(struct conn *c, struct call *call);

// The table of open calls.
struct call *conn_find(const struct conn *c, uint32_t id);
void conn_add(struct conn *c, struct call *call);
void conn_remove(struct conn *c, struct call *call); // also from the list of waiting calls
void conn_count_stream(struct conn *c, struct call *call);

struct rpc *conn_rpc(const struct conn *c);
const struct principal *conn_principal(const struct conn *c);
struct tenant *conn_tenant(const struct conn *c);
bool conn_is_local(const struct conn *c); // over a unix socket
uint32_t conn_calls(const struct conn *c);
uint32_t conn_streams(const struct conn *c);
struct conn *conn_next(const struct conn *c); // in the list of all connections

// ---- conn_turn.c

// Requests of the connection are those of this tenant from now on.
void conn_pays(struct conn *c, struct tenant *t);
// Whether a stream must wait because its tenant has used more than its share of the broker; call_room() is called later.
bool conn_has_turn(struct conn *c);

// The peer broke the protocol: sends GOAWAY with the reason, then closes the connection.
void conn_fail(struct conn *c, enum err_code code, const char *reason, const char *text);

// False: the last PING was less than 5 s ago. A call that returns true counts as a PING.
bool conn_may_ping(struct conn *c);

// ---- frames.c

// Handles one SP message (id and frame, n >= 4 bytes).
void frame_handle(struct conn *c, const uint8_t *body, size_t n, uint64_t arrived_ns);
