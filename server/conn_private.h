// SPDX-License-Identifier: Apache-2.0
// What the files of a connection share: conn.c its life, conn_read.c and conn_write.c its bytes, conn_calls.c its calls.
#pragma once

#include "conn.h"
#include "outbox.h"

#define NS_PER_MS UINT64_C(1000000)

enum conn_state { CONN_HELLO, CONN_OPEN, CONN_LEAVING, CONN_CLOSING };

struct conn {
    struct rpc *rpc;
    const struct transport_ops *ops; // of the stream
    struct transport_stream *stream;
    struct caller caller;
    struct tenant *tenant; // held
    struct conn *prev, *next;
    enum conn_state state;
    struct timer timer; // handshake, then idle, then leaving
    struct timer stall;
    uint64_t active_ns, ping_ns;
    uint64_t moved_ns; // when the write in progress began
    uint32_t last_id;
    bool reading, writing, processing, paused;
    uint8_t *rx;
    size_t rx_size, rx_n, rx_need; // need: of the frame that is coming in
    unsigned rx_small;
    uint64_t rx_arrived_ns;
    struct outbox tx;
    struct call *waiting_first, *waiting_last; // for room in the queue
    struct call *buckets[CALL_BUCKETS];
    uint32_t calls, streams;
};

// ---- conn.c

// The first 8 bytes: answers them, or closes.
void conn_greet(struct conn *c, const uint8_t *hello);

// ---- conn_read.c

// A first buffer. False: no memory.
bool conn_rx_init(struct conn *c);
void conn_rx_free(struct conn *c);

// Reads on, or handles what has been read already and reads on.
void conn_read(struct conn *c);
void conn_process(struct conn *c);

// ---- conn_write.c

// Room for n bytes at the end of the queue. NULL: the peer does not read what it asked for, and is closed.
uint8_t *conn_reserve(struct conn *c, size_t n);

// Starts to write what is queued, unless a write is in progress or more is about to be queued.
void conn_flush(struct conn *c);

// The timer of a write that the peer does not take.
void conn_on_stall(struct timer *t);

// ---- conn_calls.c

// Those that wait for room in the queue are told in turn, until it is full again.
void conn_tell_waiting(struct conn *c);
