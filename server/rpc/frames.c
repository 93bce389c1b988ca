// SPDX-License-Identifier: Apache-2.0
// Frames from a peer, one function per kind. conn.c has split the bytes into SP messages. A frame that cannot be
// decoded is an error of the call that it names; only an error without a call closes the connection.
#include "conn.h"

#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "server/base/metrics.h"

enum { PING_BYTES_MAX = 8, ID_BYTES = 4 };

struct incoming {
    struct conn *conn;
    uint32_t id;
    struct arena *arena; // of the frame; NULL: a call owns it now
    const Stockade__V1__Frame *frame;
    uint64_t arrived_ns;
};

// Sends END for a call that was not begun.
static void
refuse_call(struct conn *c, uint32_t id, const struct err *e)
{
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    call_refuse(c, id, e);
}

static bool
is_same_metadata(const Stockade__V1__Frame *a, const Stockade__V1__Frame *b)
{
    if (a->n_metadata != b->n_metadata)
        return false;
    for (size_t i = 0; i < a->n_metadata; i++)
        if (strcmp(a->metadata[i]->key, b->metadata[i]->key) != 0 ||
            strcmp(a->metadata[i]->value, b->metadata[i]->value) != 0)
            return false;
    return true;
}

static bool
is_same_call(const Stockade__V1__Frame *a, const Stockade__V1__Frame *b)
{
    return strcmp(a->method, b->method) == 0 && a->timeout_us == b->timeout_us &&
           a->credit == b->credit && a->end_stream == b->end_stream &&
           a->payload.len == b->payload.len &&
           (a->payload.len == 0 || memcmp(a->payload.data, b->payload.data, a->payload.len) == 0) &&
           is_same_metadata(a, b);
}

static void
on_call(struct incoming *in)
{
    struct conn *c = in->conn;
    struct call *open = conn_find(c, in->id);
    struct err e;
    if (open == NULL && in->frame->end_stream) {
        (void)err_field(&e, "end_stream", "no method accepts a stream from the client");
        refuse_call(c, in->id, &e);
        return;
    }
    if (open == NULL) {
        struct arena *arena = in->arena;
        in->arena = NULL;
        (void)call_begin(c, in->id, arena, in->frame, in->arrived_ns);
        return;
    }
    // a stock REQ socket repeats a request when the response takes long: the END of the open call answers it
    if (is_same_call(open->frame, in->frame))
        return;
    (void)err_set(&e, ERR_INVALID_ARGUMENT, "a CALL has the id of an open call");
    err_detail(&e, "ID_IN_USE", NULL, NULL);
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    call_abort(open, &e);
}

static void
on_data(struct incoming *in)
{
    struct call *call = conn_find(in->conn, in->id);
    struct err e;
    if (call == NULL)
        return; // it has ended in the meantime
    (void)err_set(&e, ERR_INVALID_ARGUMENT, "no method accepts a stream from the client");
    err_detail(&e, "DATA_FROM_CLIENT", NULL, NULL);
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    call_abort(call, &e);
}

static void
on_cancel(struct incoming *in)
{
    struct call *call = conn_find(in->conn, in->id);
    if (call != NULL)
        call_cancel(call, CALL_CANCELLED);
}

static void
on_window(struct incoming *in)
{
    struct call *call = conn_find(in->conn, in->id);
    if (call != NULL)
        call_add_credit(call, in->frame->credit);
}

static void
on_ping(struct incoming *in)
{
    struct conn *c = in->conn;
    Stockade__V1__Frame pong = STOCKADE__V1__FRAME__INIT;
    if (!conn_may_ping(c)) {
        conn_fail(c, ERR_RESOURCE_EXHAUSTED, "TOO_MANY_PINGS",
                  "too_many_pings: at most one PING per 5 s is permitted");
        return;
    }
    if (in->frame->payload.len > PING_BYTES_MAX) {
        conn_fail(c, ERR_INVALID_ARGUMENT, "PING_TOO_LARGE", "a PING has at most 8 bytes");
        return;
    }
    pong.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG;
    pong.payload = in->frame->payload;
    conn_send(c, in->id, &pong);
}

// By kind. Other kinds (END, PONG and GOAWAY from a client, and kinds of later versions) are ignored.
static void (*const on_frame[])(struct incoming *in) = {
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL] = on_call,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA] = on_data,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL] = on_cancel,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW] = on_window,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING] = on_ping,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY] = NULL,
};

// A frame that cannot be decoded ends the call that it names, whether it is open or new.
static void
refuse_frame(struct conn *c, uint32_t id, const struct err *e)
{
    struct call *open = conn_find(c, id);
    if (open == NULL) {
        refuse_call(c, id, e);
        return;
    }
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    call_abort(open, e);
}

void
frame_handle(struct conn *c, const uint8_t *body, size_t n, uint64_t arrived_ns)
{
    uint32_t id = 0;
    ProtobufCMessage *m = NULL;
    struct err e;
    for (unsigned i = 0; i < ID_BYTES; i++)
        id = id << 8 | body[i];
    if ((id & WIRE_ID_REQUEST) == 0) {
        conn_fail(c, ERR_INVALID_ARGUMENT, "ID_INVALID", "an id has its top bit set");
        return;
    }
    struct incoming in = {c, id, rpc_arena(conn_rpc(c)), NULL, arrived_ns};
    if (in.arena == NULL) {
        conn_close(c);
        return;
    }
    if (wire_unpack(&stockade__v1__frame__descriptor, body + ID_BYTES, n - ID_BYTES, in.arena, &m,
                    &e) != 0) {
        refuse_frame(c, id, &e);
    } else {
        in.frame = (const Stockade__V1__Frame *)m;
        unsigned kind = (unsigned)in.frame->kind;
        if (kind < sizeof on_frame / sizeof on_frame[0] && on_frame[kind] != NULL)
            on_frame[kind](&in);
    }
    if (in.arena != NULL)
        rpc_arena_back(conn_rpc(c), in.arena);
}
