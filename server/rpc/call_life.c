// SPDX-License-Identifier: Apache-2.0
// See call.h for the functions of handlers, and calls.h for the life of a call.
//
// A call ends in one of three ways, each of which sends END exactly once: the handler ends it; it is cancelled (CANCEL,
// deadline, a closed connection, an error of the caller); or it is refused before it has begun.
#include "call.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/container_of.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "audited.h"
#include "conn.h"
#include "idempotency.h"
#include "status.h"
#include "stockade/v1/simulation.pb-c.h"

enum { DATA_HEAD_BYTES = 16 }; // of a DATA frame, besides its payload

// ---- END

// Packs END and sends it to the caller and to all calls with the same key. False: it is sent, and the call freed, when it is stored.
static bool
send_end(struct call *c, Stockade__V1__Frame *end, int32_t code)
{
    end->kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    c->code = code;
    if (c->key == NULL || c->follows) {
        if (c->conn != NULL)
            conn_send(c->conn, c->id, end);
        return true;
    }
    size_t n = stockade__v1__frame__get_packed_size(end);
    uint8_t *packed = malloc(n);
    if (packed == NULL) {
        if (c->conn != NULL)
            conn_send(c->conn, c->id, end);
        (void)keys_end(c, NULL, 0, code);
        return true;
    }
    (void)stockade__v1__frame__pack(end, packed);
    const bool now = keys_end(c, packed, n, code);
    if (now && c->conn != NULL)
        conn_send_packed(c->conn, c->id, packed, n);
    free(packed);
    return now;
}

// Memory for the error in an END. Without memory the END has only the code: an END without a status would mean success.
struct failure {
    Stockade__V1__Frame end;
    Stockade__V1__Status bare;
    struct arena *arena;
};

static void
failure_make(struct failure *f, struct rpc *r, const struct err *e, const char *tenant)
{
    stockade__v1__frame__init(&f->end);
    stockade__v1__status__init(&f->bare);
    f->end.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    f->arena = rpc_arena(r);
    f->end.status = f->arena != NULL ? status_of(e, tenant, NULL, 0, f->arena) : NULL;
    f->bare.code = (uint32_t)e->code;
    if (f->end.status == NULL)
        f->end.status = &f->bare;
}

static void
failure_done(const struct failure *f, struct rpc *r)
{
    if (f->arena != NULL)
        rpc_arena_back(r, f->arena);
}

// `code` is the result of the call for others with the same key.
static bool
send_failure(struct call *c, const struct err *e, enum err_code code)
{
    struct failure f;
    audited_failure(c, e);
    failure_make(&f, c->rpc, e, c->principal.tenant);
    const bool now = send_end(c, &f.end, (int32_t)code);
    failure_done(&f, c->rpc);
    return now;
}

void
call_refuse(struct conn *conn, uint32_t id, const struct err *e)
{
    struct failure f;
    failure_make(&f, conn_rpc(conn), e, conn_principal(conn)->tenant);
    metrics_add_by(METRIC_CALLS, 0, (uint32_t)e->code, 1);
    conn_send(conn, id, &f.end);
    failure_done(&f, conn_rpc(conn));
}

// ---- start and end

static void
leave_conn(struct call *c)
{
    if (c->conn != NULL)
        conn_remove(c->conn, c);
    c->conn = NULL;
}

static void
leave_detached(struct call *c)
{
    if (c->detached_link == NULL)
        return;
    *c->detached_link = c->detached_next;
    if (c->detached_next != NULL)
        c->detached_next->detached_link = c->detached_link;
    c->detached_link = NULL;
}

// Continues without a connection, so that its result can be kept for other calls with the same key.
static void
detach(struct call *c)
{
    leave_conn(c);
    c->detached_next = c->rpc->detached;
    c->detached_link = &c->rpc->detached;
    if (c->detached_next != NULL)
        c->detached_next->detached_link = &c->detached_next;
    c->rpc->detached = c;
}

static void
count(const struct call *c)
{
    uint32_t method = c->method != NULL ? c->method->number : 0;
    metrics_add_by(METRIC_CALLS, method, (uint32_t)c->code, 1);
    metrics_observe(METRIC_CALL_TIME, method, uv_hrtime() - c->arrived_ns);
    metrics_move(METRIC_CALLS_OPEN, 0, -1);
    if (c->stream)
        metrics_move(METRIC_STREAMS_OPEN, 0, -1);
}

static void
call_free(struct call *c)
{
    struct rpc *r = c->rpc;
    assert(c->key == NULL);
    count(c);
    audited_end(c);
    r->stats.open_streams -= c->stream;
    leave_conn(c);
    leave_detached(c);
    timers_clear(r->timers, &c->timer);
    tenant_give_bytes(c->tenant, c->held_bytes);
    tenant_release(c->tenant, LEDGER_CALLS, 1);
    tenant_drop(c->tenant);
    rpc_arena_back(r, c->arena);
    r->stats.open_calls--;
    r->stats.watching_calls -= c->watches;
    free(c);
    rpc_call_gone(r);
}

// Sends END to the caller, calls the handler's on_cancel, and frees the call. Its key becomes free again, because the
// call was not completed.
static void
give_up(struct call *c, const struct err *e, enum call_cancel why)
{
    void (*on_cancel)(void *, enum call_cancel) = c->on_cancel;
    void *cookie = c->cookie;
    if (c->follows)
        keys_unfollow(c);
    c->given_up = true;
    (void)send_failure(c, e, why == CALL_DEADLINE ? ERR_DEADLINE_EXCEEDED : ERR_CANCELLED);
    call_free(c);
    if (on_cancel != NULL)
        on_cancel(cookie, why);
}

// The caller does not need the result any more; other callers with the same key may.
void
call_abort(struct call *c, const struct err *e)
{
    bool others_wait = c->key != NULL && !c->follows && keys_has_followers(c);
    if (c->ended && !c->rpc->closing)
        return; // it will be answered
    if (!others_wait || c->conn == NULL) {
        give_up(c, e, CALL_CANCELLED);
        return;
    }
    struct key *key = c->key;
    c->key = NULL; // END for this caller only
    (void)send_failure(c, e, ERR_CANCELLED);
    c->key = key;
    detach(c);
}

static const struct {
    enum err_code code;
    const char *text;
} cancellations[] = {
    [CALL_CANCELLED] = {ERR_CANCELLED, "cancelled by the caller"},
    [CALL_DISCONNECTED] = {ERR_CANCELLED, "the caller has disconnected"},
    [CALL_DEADLINE] = {ERR_DEADLINE_EXCEEDED, "the deadline of the call has expired"},
};

void
call_cancel(struct call *c, enum call_cancel why)
{
    struct err e;
    bool keep =
        c->key != NULL && !c->follows && !c->stream && why == CALL_DISCONNECTED && !c->rpc->closing;
    (void)err_set(&e, cancellations[why].code, "%s: %s", c->frame->method, cancellations[why].text);
    if (keep || (c->ended && !c->rpc->closing && why == CALL_DISCONNECTED))
        detach(c);
    else if (c->ended && !c->rpc->closing)
        return;
    else if (why == CALL_CANCELLED)
        call_abort(c, &e);
    else
        give_up(c, &e, why);
}

static void
on_deadline(struct timer *t)
{
    call_cancel(container_of(t, struct call, timer), CALL_DEADLINE);
}

// Charges a call and its bytes to the tenant; 0: it may begin.
static int
charge(struct tenant *t, const struct rpc_limits *l, uint64_t bytes, struct err *e)
{
    int r = tenant_charge(t, LEDGER_CALLS, 1, l->calls_per_uid_max, e);
    if (r == -EDQUOT) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s of %s %s open",
                      (unsigned)l->calls_per_uid_max, plural(l->calls_per_uid_max, "call", "calls"),
                      t->name, plural(l->calls_per_uid_max, "is", "are"));
        err_detail(e, "CALLS_PER_UID", t->name, "wait for one of them to end");
        err_rule(e, "rpc.calls_per_uid", "as many calls as are open");
    }
    if (r < 0)
        return r;
    r = tenant_charge(t, LEDGER_BYTES, bytes, l->bytes_per_uid_max, e);
    if (r == -EDQUOT) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "open requests of %s use too much memory",
                      t->name);
        err_detail(e, "BYTES_PER_UID", t->name, "wait for one of them to end");
        err_rule(e, "rpc.bytes_per_uid", "smaller requests");
    }
    if (r < 0)
        tenant_release(t, LEDGER_CALLS, 1);
    return r;
}

int
call_become(struct call *c, const struct principal *who, struct err *e)
{
    if (strcmp(who->tenant, c->tenant->name) != 0) {
        struct tenant *t = tenant_hold(c->rpc->tenants, who->tenant);
        if (t == NULL)
            return err_sys(e, ENOMEM, "start a call of %s", who->tenant);
        int r = charge(t, &c->rpc->limits, c->held_bytes, e);
        if (r < 0) {
            tenant_drop(t);
            return r;
        }
        tenant_give_bytes(c->tenant, c->held_bytes);
        tenant_release(c->tenant, LEDGER_CALLS, 1);
        tenant_drop(c->tenant);
        c->tenant = t;
    }
    c->principal = *who;
    return 0;
}

static int
take_room(const struct conn *conn, uint64_t bytes, struct err *e)
{
    const struct rpc *r = conn_rpc(conn);
    if (conn_calls(conn) < r->limits.calls_max)
        return charge(conn_tenant(conn), &r->limits, bytes, e);
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s open on this connection",
                  (unsigned)r->limits.calls_max,
                  plural(r->limits.calls_max, "call is", "calls are"));
    err_detail(e, "CALLS_PER_CONNECTION", NULL, "wait for one of them to end");
    return -EDQUOT;
}

// Sends END for a call that was not begun.
static void
refuse(struct conn *conn, uint32_t id, const struct err *e, struct arena *arena)
{
    rpc_arena_back(conn_rpc(conn), arena);
    call_refuse(conn, id, e);
}

struct call *
call_begin(struct conn *conn, uint32_t id, struct arena *arena, const Stockade__V1__Frame *frame,
           uint64_t arrived_ns)
{
    struct rpc *r = conn_rpc(conn);
    struct err e;
    uint64_t bytes = arena_used(arena);
    if (take_room(conn, bytes, &e) < 0) {
        refuse(conn, id, &e, arena);
        return NULL;
    }
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        tenant_give_bytes(conn_tenant(conn), bytes);
        tenant_release(conn_tenant(conn), LEDGER_CALLS, 1);
        (void)err_sys(&e, ENOMEM, "start a call");
        refuse(conn, id, &e, arena);
        return NULL;
    }
    *c = (struct call){.rpc = r, .conn = conn, .id = id};
    c->principal = *conn_principal(conn);
    // cannot fail: the connection holds the tenant
    c->tenant = tenant_hold(r->tenants, c->principal.tenant);
    c->arena = arena;
    c->frame = frame;
    c->held_bytes = bytes;
    c->arrived_ns = arrived_ns;
    c->credit = frame->credit != 0 ? frame->credit : WIRE_CREDIT_DEFAULT;
    c->timer.fire = on_deadline;
    r->stats.open_calls++;
    metrics_move(METRIC_CALLS_OPEN, 0, 1);
    conn_add(conn, c);
    dispatch_call(r->dispatch, c);
    return c;
}

// ---- what handlers call

const char *
call_method_path(const struct call *c)
{
    return c->method->rules->path;
}

void *
call_alloc(struct call *c, size_t bytes)
{
    return arena_alloc(c->arena, bytes);
}

bool
call_message_simulates(const ProtobufCMessage *request)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "mode");
    if (f == NULL || f->descriptor != &stockade__v1__job_mode__descriptor)
        return false;
    const void *at = (const char *)request + f->offset;
    return *(const Stockade__V1__JobMode *)at != STOCKADE__V1__JOB_MODE__JOB_MODE_UNSPECIFIED;
}

bool
call_simulates(const struct call *c)
{
    return c->request != NULL && call_message_simulates(c->request);
}

bool
call_set_refusal(struct call *c, const struct call_refusal *why)
{
    struct call_refusal *copy = arena_alloc(c->arena, sizeof *copy);
    if (copy == NULL)
        return false;
    *copy = (struct call_refusal){
        .method = arena_copy(c->arena, why->method, strlen(why->method)),
        .rule = arena_copy(c->arena, why->rule, strlen(why->rule)),
        .reason = arena_copy(c->arena, why->reason, strlen(why->reason)),
        .would_ask = why->would_ask,
    };
    c->refusal = copy;
    return copy->method != NULL && copy->rule != NULL && copy->reason != NULL;
}

const struct call_refusal *
call_refusal(const struct call *c)
{
    return c->refusal;
}

const struct principal *
call_principal(const struct call *c)
{
    return &c->principal;
}

bool
call_is_local(const struct call *c)
{
    return c->conn != NULL && conn_is_local(c->conn);
}

const char *
call_tenant(const struct call *c)
{
    return c->principal.tenant;
}

const char *
call_whose(const struct call *c)
{
    return c->whose;
}

uint64_t
call_arrived_ns(const struct call *c)
{
    return c->arrived_ns;
}

const char *
call_metadata(const struct call *c, const char *key)
{
    for (size_t i = 0; i < c->frame->n_metadata; i++)
        if (strcmp(c->frame->metadata[i]->key, key) == 0)
            return c->frame->metadata[i]->value;
    return NULL;
}

void
call_watch(struct call *c, void (*on_cancel)(void *cookie, enum call_cancel why),
           void (*on_writable)(void *cookie), void *cookie)
{
    c->on_cancel = on_cancel;
    c->on_writable = on_writable;
    c->cookie = cookie;
}

void
call_only_watches(struct call *c)
{
    assert(!c->watches);
    c->watches = true;
    c->rpc->stats.watching_calls++;
    rpc_call_gone(c->rpc); // a shutdown may wait for this call alone
}

void
call_add_credit(struct call *c, uint32_t credit)
{
    c->credit = credit > UINT32_MAX - c->credit ? UINT32_MAX : c->credit + credit;
    if (c->wants_credit && c->credit > 0) {
        c->wants_credit = false;
        call_room(c);
    }
}

void
call_room(struct call *c)
{
    if (c->on_writable != NULL)
        c->on_writable(c->cookie);
}

// more: another message or the end follows.
static int
send_message(struct call *c, const ProtobufCMessage *m, bool more)
{
    assert(c->stream && m->descriptor == c->method->served->output);
    size_t n = protobuf_c_message_get_packed_size(m);
    if (n > WIRE_DATA_BYTES_MAX)
        return -EMSGSIZE;
    if (c->conn == NULL)
        return -EAGAIN;
    if (c->credit == 0) {
        c->wants_credit = true;
        conn_flush(c->conn); // of what it would have followed
        return -EAGAIN;
    }
    if (conn_is_full(c->conn) || (!c->watches && !conn_has_turn(c->conn))) {
        conn_wait_for_room(c->conn, c);
        conn_flush(c->conn);
        return -EAGAIN;
    }
    uint8_t *packed = rpc_scratch(c->rpc, n);
    assert(packed != NULL); // rpc_new() has allocated enough
    Stockade__V1__Frame data = STOCKADE__V1__FRAME__INIT;
    data.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA;
    data.payload = (ProtobufCBinaryData){protobuf_c_message_pack(m, packed), packed};
    c->credit--;
    c->sent_data = true;
    (more ? conn_queue : conn_send)(c->conn, c->id, &data);
    return 0;
}

int
call_send(struct call *c, const ProtobufCMessage *m)
{
    return send_message(c, m, false);
}

int
call_send_more(struct call *c, const ProtobufCMessage *m)
{
    return send_message(c, m, true);
}

void
call_flush(struct call *c)
{
    if (c->conn != NULL)
        conn_flush(c->conn);
}

int
call_end_with(struct call *c, const ProtobufCMessage *m)
{
    int r = send_message(c, m, true);
    if (r == 0)
        call_end(c);
    return r;
}

void
call_reply(struct call *c, const ProtobufCMessage *m)
{
    assert(!c->stream && m->descriptor == c->method->served->output);
    Stockade__V1__Frame end = STOCKADE__V1__FRAME__INIT;
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed =
        n <= WIRE_FRAME_BYTES_MAX - 4 - DATA_HEAD_BYTES ? rpc_scratch(c->rpc, n) : NULL;
    if (packed == NULL) {
        struct err e;
        (void)err_set(&e, ERR_RESOURCE_EXHAUSTED, "%s: the response of %zu bytes is too large",
                      c->frame->method, n);
        call_fail(c, &e);
        return;
    }
    end.payload = (ProtobufCBinaryData){protobuf_c_message_pack(m, packed), packed};
    audited_response(c, m);
    if (send_end(c, &end, ERR_OK))
        call_free(c);
}

void
call_end(struct call *c)
{
    assert(c->stream);
    Stockade__V1__Frame end = STOCKADE__V1__FRAME__INIT;
    if (send_end(c, &end, ERR_OK))
        call_free(c);
}

void
call_fail(struct call *c, const struct err *e)
{
    if (send_failure(c, e, (enum err_code)e->code))
        call_free(c);
}

void
call_end_packed(struct call *c, const uint8_t *frame, size_t n, int32_t code)
{
    c->code = code;
    if (c->conn != NULL)
        conn_send_packed(c->conn, c->id, frame, n);
    call_free(c);
}

void
call_note(struct call *c, const char *key, const char *value)
{
    if (c->key != NULL)
        keys_note(c, key, value);
}
