// SPDX-License-Identifier: Apache-2.0
// Shared by the two files of the websocket transport: an operation of nng, and the engine. See transport_ws.c.
#pragma once

#include <nng/nng.h>

#include "transport_engine.h"

// One asynchronous operation: at most one is in progress at a time.
struct ws_op {
    struct ws_engine *engine;
    nng_aio *aio; // NULL: never submitted, added to the list by this process
    void (*done)(struct ws_op *op);
    bool busy;
    struct ws_op *next; // in the engine's list
};

struct ws_engine {
    struct transport base; // ends when nothing can add an operation any more
    uv_async_t async;
    uv_mutex_t lock; // protects the list
    struct ws_op *first, **last;
};

// Any thread: adds an operation to the engine's list; the loop thread handles it.
void ws_op_push(struct ws_op *op);
int ws_op_init(struct ws_op *op, struct ws_engine *t, void (*done)(struct ws_op *));
void ws_op_free(struct ws_op *op); // accepts an operation without an aio

// ---- transport_ws_stream.c

// Takes ownership of nng's stream, also on failure. NULL: out of memory.
struct transport_stream *ws_stream_new(struct ws_engine *t, nng_stream *stream);
void ws_stream_start(struct transport_stream *s, void *cookie);
void ws_stream_read(struct transport_stream *s, void *buf, size_t n);
void ws_stream_hold(struct transport_stream *s);
void ws_stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n);
void ws_stream_close(struct transport_stream *s);
