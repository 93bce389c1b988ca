// SPDX-License-Identifier: Apache-2.0
// stockade.v1.CodeService: translation between its messages and server/code/context.h. The stream of RunCode: code_stream.c; live state: live.c.
#include "api.h"

#include "server/base/server.h"
#include "server/code/context.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/code_service.pb-c.h"
#include "code_stream.h"
#include "convert.h"
#include "live.h"

Stockade__V1__CodeContext *
code_context_message(struct arena *a, const struct context *c)
{
    struct context_view v;
    Stockade__V1__CodeContext *m = wire_make(a, &stockade__v1__code_context__descriptor);
    if (m == NULL)
        return NULL;
    context_view(c, &v);
    m->id = v.id;
    m->sandbox_id = v.sandbox_id;
    m->language = v.language;
    m->workdir = v.workdir;
    m->state = (Stockade__V1__CodeState)v.state;
    m->execution_count = v.count;
    m->waiting = v.waiting;
    m->default_ = v.is_default;
    m->process_id = v.process_id;
    m->create_time =
        wire_make_time(a, v.created_ms / 1000, (int32_t)(v.created_ms % 1000) * 1000000);
    return m->create_time != NULL ? m : NULL;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__CreateContextRequest *m = (const Stockade__V1__CreateContextRequest *)req;
    Stockade__V1__CreateContextResponse answer = STOCKADE__V1__CREATE_CONTEXT_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct context *made = NULL;
    struct err e;
    if (a == NULL) {
        convert_no_memory(c);
        return;
    }
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    const struct context_spec spec = {
        .language = m->language, .workdir = m->workdir, .env = m->env, .env_n = m->n_env};
    if (sb == NULL || context_create(s->contexts, sb, &spec, &made, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    answer.context = code_context_message(a, made);
    if (answer.context == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &answer.base);
}

struct page_of_contexts {
    struct arena *arena;
    Stockade__V1__CodeContext *list[CONTEXTS_OF_SANDBOX];
    size_t n;
    bool full;
};

static void
add(void *cookie, const struct context *c)
{
    struct page_of_contexts *p = cookie;
    if (p->n == CONTEXTS_OF_SANDBOX)
        return;
    p->list[p->n] = code_context_message(p->arena, c);
    p->full |= p->list[p->n] == NULL;
    p->n++;
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListContextsRequest *m = (const Stockade__V1__ListContextsRequest *)req;
    Stockade__V1__ListContextsResponse answer = STOCKADE__V1__LIST_CONTEXTS_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct page_of_contexts p = {.arena = a};
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    if (a != NULL)
        contexts_each(s->contexts, sb, add, &p);
    if (a == NULL || p.full) {
        convert_no_memory(c);
        return;
    }
    answer.contexts = p.list;
    answer.n_contexts = p.n;
    call_reply(c, &answer.base);
}

// A method on one context, with an empty response.
static void
change(struct server *s, struct call *c, const char *id, void (*fn)(struct context *),
       const ProtobufCMessage *answer)
{
    struct err e;
    struct context *found = context_find(s->contexts, call_tenant(c), id, &e);
    if (found == NULL) {
        call_fail(c, &e);
        return;
    }
    fn(found);
    call_reply(c, answer);
}

static void
restart(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RestartContextResponse answer =
        STOCKADE__V1__RESTART_CONTEXT_RESPONSE__INIT;
    change(s, c, ((const Stockade__V1__RestartContextRequest *)req)->context_id, context_restart,
           &answer.base);
}

static void
interrupt(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__InterruptContextResponse answer =
        STOCKADE__V1__INTERRUPT_CONTEXT_RESPONSE__INIT;
    change(s, c, ((const Stockade__V1__InterruptContextRequest *)req)->context_id,
           context_interrupt, &answer.base);
}

static void
delete_it(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__DeleteContextResponse answer = STOCKADE__V1__DELETE_CONTEXT_RESPONSE__INIT;
    change(s, c, ((const Stockade__V1__DeleteContextRequest *)req)->context_id, context_delete,
           &answer.base);
}

#define METHOD(name, request, response, handler)                                                   \
    {                                                                                              \
        "/stockade.v1.CodeService/" name, &stockade__v1__##request##__descriptor,                  \
            &stockade__v1__##response##__descriptor, handler                                       \
    }

const struct call_method code_methods[] = {
    METHOD("CreateContext", create_context_request, create_context_response, create),
    METHOD("ListContexts", list_contexts_request, list_contexts_response, list),
    METHOD("RestartContext", restart_context_request, restart_context_response, restart),
    METHOD("InterruptContext", interrupt_context_request, interrupt_context_response, interrupt),
    METHOD("DeleteContext", delete_context_request, delete_context_response, delete_it),
    METHOD("CheckpointContext", checkpoint_context_request, checkpoint_context_response,
           live_checkpoint_context),
    METHOD("ListCheckpoints", list_checkpoints_request, list_checkpoints_response,
           live_list_checkpoints),
    METHOD("DeleteCheckpoint", delete_checkpoint_request, delete_checkpoint_response,
           live_delete_checkpoint),
    METHOD("RestoreContext", restore_context_request, restore_context_response,
           live_restore_context),
    METHOD("ForkContext", fork_context_request, fork_context_response, live_fork_context),
    METHOD("RunCode", run_code_request, run_code_response, code_run_stream),
    {0},
};
