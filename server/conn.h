// SPDX-License-Identifier: Apache-2.0
// One connection: the SP handshake, frames in, frames out, and the calls that are open on it. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"

// Takes the stream over: a connection that waits for the peer's hello, or the stream is closed because somebody holds
// too many already.
void conn_accept(struct rpc *r, const struct transport_ops *ops, struct transport_stream *s,
                 const struct transport_peer *peer);

// The transport's events.
void conn_on_read(void *conn, size_t n);
void conn_on_written(void *conn, size_t n);
void conn_on_closed(void *conn);

// Closes it at the next turn of the loop; its calls are cancelled then.
void conn_close(struct conn *c);

// Says GOAWAY: calls up to the last one are answered, new ones are refused.
void conn_go_away(struct conn *c, const struct err *why);

// Queues a frame, which goes with the next one that is sent. A connection that is closing swallows it.
void conn_queue(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame);

// Sends a frame, or one that is packed already.
void conn_send(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame);
void conn_send_packed(struct conn *c, uint32_t id, const uint8_t *frame, size_t n);

// True while so much is queued that streams must wait; the call is told (call_room) when there is room again.
bool conn_is_full(const struct conn *c);
void conn_wait_for_room(struct conn *c, struct call *call);

// The table of open calls.
struct call *conn_find(const struct conn *c, uint32_t id);
void conn_add(struct conn *c, struct call *call);
void conn_remove(struct conn *c, struct call *call); // also from the list of those that wait
void conn_count_stream(struct conn *c, struct call *call);

struct rpc *conn_rpc(const struct conn *c);
const struct caller *conn_caller(const struct conn *c);
struct tenant *conn_tenant(const struct conn *c);
uint32_t conn_calls(const struct conn *c);
uint32_t conn_streams(const struct conn *c);
struct conn *conn_next(const struct conn *c); // of all of the layer's

// The peer broke the protocol: GOAWAY says how, then the connection is closed.
void conn_fail(struct conn *c, enum err_code code, const char *reason, const char *text);

// False: the last PING was less than 5 s ago. True counts as one.
bool conn_may_ping(struct conn *c);

// ---- frames.c

// Does what one SP message (id and frame, n >= 4 bytes) asks for.
void frame_handle(struct conn *c, const uint8_t *body, size_t n, uint64_t arrived_ns);
