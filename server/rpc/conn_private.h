// SPDX-License-Identifier: Apache-2.0
// A connection, as shared by conn.c (its life), conn_read.c and conn_write.c (its bytes), conn_calls.c (its calls) and conn_turn.c (when it
// may go on).
#pragma once

#include "conn.h"
#include "outbox.h"

#define NS_PER_MS UINT64_C(1000000)

enum conn_state { CONN_HELLO, CONN_OPEN, CONN_LEAVING, CONN_CLOSING };

struct conn {
    struct rpc *rpc;
    const struct transport_ops *ops; // of the stream
    struct transport_stream *stream;
    bool local; // ipc, whose frames have another header
    struct principal principal;
    struct tenant *tenant; // held
    struct tenant *payer;  // held: the tenant of its last call
    struct list turn;      // in the payer's `held`
    struct conn *prev, *next;
    enum conn_state state;
    struct timer timer; // handshake, then idle, then leaving
    struct timer stall;
    uint64_t active_ns, ping_ns;
    uint64_t moved_ns; // start of the write in progress
    uint32_t last_id;
    bool reading, writing, processing, paused;
    uint8_t *rx;
    size_t rx_size, rx_n, rx_need; // need: size of the current frame
    unsigned rx_small;
    uint64_t rx_arrived_ns;
    struct outbox tx;
    struct call *waiting_first, *waiting_last; // for room in the queue
    struct call *buckets[CALL_BUCKETS];
    uint32_t calls, streams;
    uint32_t early_reads; // before it was known whose it is
};

// ---- conn.c

// Handles the first 8 bytes: answers them, or closes the connection.
void conn_greet(struct conn *c, const uint8_t *hello);

// ---- conn_read.c

// Allocates the first buffer. False: out of memory.
bool conn_rx_init(struct conn *c);
void conn_rx_free(struct conn *c);

// conn_read continues to read; conn_process handles the bytes that were read, and continues to read.
void conn_read(struct conn *c);
void conn_process(struct conn *c);

// ---- conn_write.c

// Reserves n bytes at the end of the queue. NULL: the peer does not read, and is closed.
uint8_t *conn_reserve(struct conn *c, size_t n);

// Called when the peer accepts none of a write for too long.
void conn_on_stall(struct timer *t);

// ---- conn_calls.c

// Calls waiting calls in turn, until the queue is full again.
void conn_wake_waiting(struct conn *c);

// ---- conn_turn.c

// Bytes of its payer have arrived.
void conn_seen(struct conn *c, uint64_t now_ns);
// True: its payer has used more than its share of the broker, and the connection waits; conn_process() continues when it may go on.
bool conn_must_wait(struct conn *c);
// Leaves the payer and its list, at the end of the connection.
void conn_turn_drop(struct conn *c);

// Between these two what the loop does is for this connection's payer, who is charged; conn_meter_lap() charges what was done so far. False:
// something around it is measured already.
bool conn_meter_begin(struct conn *c);
void conn_meter_lap(struct conn *c);
void conn_meter_end(struct conn *c);
