// SPDX-License-Identifier: Apache-2.0
// The methods of stockade.v1.CodeService about live state: translation between their messages and server/code/live.h.
#include "live.h"

#include <stddef.h>
#include <stdlib.h>

#include "convert.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/code/context.h"
#include "server/code/live.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/code_service.pb-c.h"

// Until the operation is done.
struct pending {
    struct call *call;
    struct live_op *op;
    enum live_kind kind;
};

static Stockade__V1__Checkpoint *
to_message(struct arena *a, const struct checkpoint *p)
{
    struct checkpoint_view v;
    Stockade__V1__Checkpoint *m = wire_make(a, &stockade__v1__checkpoint__descriptor);
    if (m == NULL)
        return NULL;
    checkpoint_view(p, &v);
    m->name = v.name;
    m->sandbox_id = v.sandbox_id;
    m->context_id = v.context_id;
    m->language = v.language;
    m->execution_count = v.count;
    m->memory_bytes = v.bytes;
    m->lost = v.lost;
    m->create_time =
        wire_make_time(a, v.created_ms / 1000, (int32_t)(v.created_ms % 1000) * 1000000);
    return m->create_time != NULL ? m : NULL;
}

static void
reply_checkpoint(struct call *c, const struct checkpoint *p)
{
    Stockade__V1__CheckpointContextResponse answer =
        STOCKADE__V1__CHECKPOINT_CONTEXT_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer.checkpoint = a != NULL ? to_message(a, p) : NULL;
    if (answer.checkpoint != NULL)
        call_reply(c, &answer.base);
    else
        convert_no_memory(c);
}

// Both responses have the same form: one context.
static void
reply_context(struct call *call, enum live_kind kind, const struct context *c)
{
    Stockade__V1__RestoreContextResponse restored = STOCKADE__V1__RESTORE_CONTEXT_RESPONSE__INIT;
    Stockade__V1__ForkContextResponse forked = STOCKADE__V1__FORK_CONTEXT_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__CodeContext *m = a != NULL ? code_context_message(a, c) : NULL;
    restored.context = forked.context = m;
    if (m != NULL)
        call_reply(call, kind == LIVE_RESTORE ? &restored.base : &forked.base);
    else
        convert_no_memory(call);
}

static void
on_done(void *cookie, const struct checkpoint *made, const struct context *c, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else if (p->kind == LIVE_CHECKPOINT)
        reply_checkpoint(p->call, made);
    else
        reply_context(p->call, p->kind, c);
    free(p);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    live_forget(p->op);
    free(p);
}

static void
begin(struct server *s, struct call *c, enum live_kind kind, const char *id, const char *checkpoint)
{
    struct err e;
    struct context *found = context_find(s->contexts, call_tenant(c), id, &e);
    struct pending *p = found != NULL ? calloc(1, sizeof *p) : NULL;
    if (found == NULL) {
        call_fail(c, &e);
        return;
    }
    if (p == NULL) {
        convert_no_memory(c);
        return;
    }
    *p = (struct pending){.call = c, .kind = kind};
    if (live_begin(kind, found, checkpoint, on_done, p, &p->op, &e) < 0) {
        call_fail(c, &e);
        free(p);
    } else {
        call_watch(c, on_cancel, NULL, p);
    }
}

void
live_checkpoint_context(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__CheckpointContextRequest *m =
        (const Stockade__V1__CheckpointContextRequest *)req;
    begin(s, c, LIVE_CHECKPOINT, m->context_id, m->name);
}

void
live_restore_context(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RestoreContextRequest *m = (const Stockade__V1__RestoreContextRequest *)req;
    begin(s, c, LIVE_RESTORE, m->context_id, m->checkpoint);
}

void
live_fork_context(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ForkContextRequest *m = (const Stockade__V1__ForkContextRequest *)req;
    begin(s, c, LIVE_FORK, m->context_id, m->checkpoint);
}

struct page_of_checkpoints {
    struct arena *arena;
    Stockade__V1__Checkpoint *list[CHECKPOINTS_OF_SANDBOX];
    size_t n;
    bool full;
};

static void
add(void *cookie, const struct checkpoint *checkpoint)
{
    struct page_of_checkpoints *p = cookie;
    if (p->n == CHECKPOINTS_OF_SANDBOX)
        return;
    p->list[p->n] = to_message(p->arena, checkpoint);
    p->full |= p->list[p->n] == NULL;
    p->n++;
}

void
live_list_checkpoints(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListCheckpointsRequest *m =
        (const Stockade__V1__ListCheckpointsRequest *)req;
    Stockade__V1__ListCheckpointsResponse answer = STOCKADE__V1__LIST_CHECKPOINTS_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct page_of_checkpoints p = {.arena = a};
    struct err e;
    const struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    if (a != NULL)
        live_each(s->contexts, sb, add, &p);
    if (a == NULL || p.full) {
        convert_no_memory(c);
        return;
    }
    answer.checkpoints = p.list;
    answer.n_checkpoints = p.n;
    call_reply(c, &answer.base);
}

void
live_delete_checkpoint(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__DeleteCheckpointRequest *m =
        (const Stockade__V1__DeleteCheckpointRequest *)req;
    const Stockade__V1__DeleteCheckpointResponse answer =
        STOCKADE__V1__DELETE_CHECKPOINT_RESPONSE__INIT;
    struct err e;
    const struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    if (sb == NULL || live_delete(s->contexts, sb, m->name, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, &answer.base);
}
