// SPDX-License-Identifier: Apache-2.0
// What the two files of the websocket transport share: an operation of nng's, and the engine. See transport_ws.c.
#pragma once

#include <nng/nng.h>

#include "transport_engine.h"

// One asynchronous operation: at most one is in progress at a time.
struct ws_op {
    struct ws_engine *engine;
    nng_aio *aio; // NULL: never submitted, put on the list by ourselves
    void (*done)(struct ws_op *op);
    bool busy;
    struct ws_op *next; // in the engine's list
};

struct ws_engine {
    struct transport
        base; // ends when nothing is left that could still put an operation on the list
    uv_async_t async;
    uv_mutex_t lock; // over the list
    struct ws_op *first, **last;
};

#define WS_HOLDER(op_ptr, type, member)                                                            \
    ((struct type *)(void *)((char *)(op_ptr)-offsetof(struct type, member)))

// Any thread: puts an operation on the engine's list, to be handled on the loop's.
void ws_op_push(struct ws_op *op);
int ws_op_init(struct ws_op *op, struct ws_engine *t, void (*done)(struct ws_op *));
void ws_op_free(struct ws_op *op); // NULL in it is fine

// ---- transport_ws_stream.c

// Takes nng's stream over, also on failure. NULL without memory.
struct transport_stream *ws_stream_new(struct ws_engine *t, nng_stream *stream);
void ws_stream_start(struct transport_stream *s, void *cookie);
void ws_stream_read(struct transport_stream *s, void *buf, size_t n);
void ws_stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n);
void ws_stream_close(struct transport_stream *s);
