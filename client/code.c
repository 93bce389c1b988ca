// SPDX-License-Identifier: Apache-2.0
// Cells and contexts (stockade_code.h).
#include <stddef.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "calls.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/code_service.pb-c.h"

#define SERVICE "/stockade.v1.CodeService/"

// ---- contexts

static bool
context_from(void *out, struct arena *a, const ProtobufCMessage *from)
{
    (void)a;
    static const Stockade__V1__CodeContext nothing = STOCKADE__V1__CODE_CONTEXT__INIT;
    const Stockade__V1__CodeContext *m = (const Stockade__V1__CodeContext *)from;
    struct stockade_context *to = out;
    if (m == NULL)
        m = &nothing;
    *to = (struct stockade_context){
        .id = m->id,
        .sandbox_id = m->sandbox_id,
        .language = m->language,
        .workdir = m->workdir,
        .state = (uint32_t)m->state,
        .execution_count = m->execution_count,
        .waiting = m->waiting,
        .created_ms = time_from(m->create_time),
        .is_default = m->default_,
        .process_id = m->process_id,
    };
    return true;
}

// Three responses have the same form: one context.
#define IS_LIKE_CREATE(type)                                                                       \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__CreateContextResponse) &&                  \
                       offsetof(type, context) ==                                                  \
                           offsetof(Stockade__V1__CreateContextResponse, context),                 \
                   "a response with one context")
IS_LIKE_CREATE(Stockade__V1__RestoreContextResponse);
IS_LIKE_CREATE(Stockade__V1__ForkContextResponse);

static bool
created_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__CodeContext *m =
        ((const Stockade__V1__CreateContextResponse *)from)->context;
    return context_from(to, a, m != NULL ? &m->base : NULL);
}

static bool
contexts_from(void *out, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListContextsResponse *m = (const Stockade__V1__ListContextsResponse *)from;
    struct stockade_contexts *to = out;
    return LIST_FROM(to->items, to->n, a, m->contexts, m->n_contexts, context_from);
}

// The variables of a request: an array of messages.
static int
env_from(Stockade__V1__EnvironmentVariable ***out, size_t *out_n, struct arena *a,
         const struct stockade_pair *from, size_t n, struct err *e)
{
    struct stockade_command as = {.env = from, .env_n = n};
    static const char *const any[] = {"-", NULL}; // a command needs a program
    Stockade__V1__Command *m = NULL;
    as.args = any;
    int r = request_command(&m, a, &as, e);
    if (r < 0)
        return r;
    *out = m->env;
    *out_n = m->n_env;
    return 0;
}

int
stockade_context_create(struct stockade *s, const struct stockade_context_options *given,
                        const struct stockade_context **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_context_options o = STOCKADE_CONTEXT_OPTIONS_INIT;
    Stockade__V1__CreateContextRequest m = STOCKADE__V1__CREATE_CONTEXT_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_options(&o, sizeof o, given, &e) < 0 ||
        env_from(&m.env, &m.n_env, a, o.env, o.env_n, &e) < 0)
        return error_from_err(error, &e);
    if (o.sandbox != NULL)
        m.sandbox_id = o.sandbox;
    if (o.language != NULL)
        m.language = o.language;
    if (o.workdir != NULL)
        m.workdir = o.workdir;
    const struct invocation i = {.method = SERVICE "CreateContext",
                                 .request = &m.base,
                                 .response = &stockade__v1__create_context_response__descriptor,
                                 .options = o.call,
                                 .size = sizeof **out,
                                 .read = created_from};
    return invoke(s, &i, out, error);
}

int
stockade_context_list(struct stockade *s, const char *sandbox, const struct stockade_contexts **out,
                      struct stockade_error *e)
{
    Stockade__V1__ListContextsRequest m = STOCKADE__V1__LIST_CONTEXTS_REQUEST__INIT;
    m.sandbox_id = sandbox;
    const struct invocation i = {.method = SERVICE "ListContexts",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_contexts_response__descriptor,
                                 .size = sizeof **out,
                                 .read = contexts_from};
    return invoke(s, &i, out, e);
}

int
stockade_context_restart(struct stockade *s, const char *context, struct stockade_error *e)
{
    Stockade__V1__RestartContextRequest m = STOCKADE__V1__RESTART_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    return invoke_empty(s, SERVICE "RestartContext", &m.base,
                        &stockade__v1__restart_context_response__descriptor, e);
}

int
stockade_context_interrupt(struct stockade *s, const char *context, struct stockade_error *e)
{
    Stockade__V1__InterruptContextRequest m = STOCKADE__V1__INTERRUPT_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    return invoke_empty(s, SERVICE "InterruptContext", &m.base,
                        &stockade__v1__interrupt_context_response__descriptor, e);
}

int
stockade_context_delete(struct stockade *s, const char *context, struct stockade_error *e)
{
    Stockade__V1__DeleteContextRequest m = STOCKADE__V1__DELETE_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    return invoke_empty(s, SERVICE "DeleteContext", &m.base,
                        &stockade__v1__delete_context_response__descriptor, e);
}

// ---- live state

static bool
checkpoint_from(void *out, struct arena *a, const ProtobufCMessage *from)
{
    (void)a;
    static const Stockade__V1__Checkpoint nothing = STOCKADE__V1__CHECKPOINT__INIT;
    const Stockade__V1__Checkpoint *m =
        from != NULL ? (const Stockade__V1__Checkpoint *)from : &nothing;
    *(struct stockade_checkpoint *)out = (struct stockade_checkpoint){
        .name = m->name,
        .sandbox_id = m->sandbox_id,
        .context_id = m->context_id,
        .language = m->language,
        .execution_count = m->execution_count,
        .memory_bytes = m->memory_bytes,
        .created_ms = time_from(m->create_time),
        .lost = m->lost,
    };
    return true;
}

static bool
kept_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Checkpoint *m =
        ((const Stockade__V1__CheckpointContextResponse *)from)->checkpoint;
    return checkpoint_from(to, a, m != NULL ? &m->base : NULL);
}

static bool
checkpoints_from(void *out, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListCheckpointsResponse *m =
        (const Stockade__V1__ListCheckpointsResponse *)from;
    struct stockade_checkpoints *to = out;
    return LIST_FROM(to->items, to->n, a, m->checkpoints, m->n_checkpoints, checkpoint_from);
}

int
stockade_context_checkpoint(struct stockade *s, const char *context, const char *name,
                            const struct stockade_checkpoint **out, struct stockade_error *e)
{
    Stockade__V1__CheckpointContextRequest m = STOCKADE__V1__CHECKPOINT_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    if (name != NULL)
        m.name = name;
    const struct invocation i = {.method = SERVICE "CheckpointContext",
                                 .request = &m.base,
                                 .response = &stockade__v1__checkpoint_context_response__descriptor,
                                 .size = sizeof **out,
                                 .read = kept_from};
    return invoke(s, &i, out, e);
}

int
stockade_context_restore(struct stockade *s, const char *context, const char *checkpoint,
                         const struct stockade_context **out, struct stockade_error *e)
{
    Stockade__V1__RestoreContextRequest m = STOCKADE__V1__RESTORE_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    m.checkpoint = checkpoint;
    const struct invocation i = {.method = SERVICE "RestoreContext",
                                 .request = &m.base,
                                 .response = &stockade__v1__restore_context_response__descriptor,
                                 .size = sizeof **out,
                                 .read = created_from};
    return invoke(s, &i, out, e);
}

int
stockade_context_fork(struct stockade *s, const char *context, const char *checkpoint,
                      const struct stockade_context **out, struct stockade_error *e)
{
    Stockade__V1__ForkContextRequest m = STOCKADE__V1__FORK_CONTEXT_REQUEST__INIT;
    m.context_id = context;
    if (checkpoint != NULL)
        m.checkpoint = checkpoint;
    const struct invocation i = {.method = SERVICE "ForkContext",
                                 .request = &m.base,
                                 .response = &stockade__v1__fork_context_response__descriptor,
                                 .size = sizeof **out,
                                 .read = created_from};
    return invoke(s, &i, out, e);
}

int
stockade_checkpoint_list(struct stockade *s, const char *sandbox,
                         const struct stockade_checkpoints **out, struct stockade_error *e)
{
    Stockade__V1__ListCheckpointsRequest m = STOCKADE__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    m.sandbox_id = sandbox;
    const struct invocation i = {.method = SERVICE "ListCheckpoints",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_checkpoints_response__descriptor,
                                 .size = sizeof **out,
                                 .read = checkpoints_from};
    return invoke(s, &i, out, e);
}

int
stockade_checkpoint_delete(struct stockade *s, const char *sandbox, const char *name,
                           struct stockade_error *e)
{
    Stockade__V1__DeleteCheckpointRequest m = STOCKADE__V1__DELETE_CHECKPOINT_REQUEST__INIT;
    m.sandbox_id = sandbox;
    m.name = name;
    return invoke_empty(s, SERVICE "DeleteCheckpoint", &m.base,
                        &stockade__v1__delete_checkpoint_response__descriptor, e);
}

// ---- cells

struct stream {
    struct stockade_code_handlers handlers;
    bool cancelled;                      // by a handler
    const struct stockade_code_end *end; // handed out, once it came
};

static int
deliver_part(const struct stockade_code_handlers *h, const Stockade__V1__CodeResultPart *m)
{
    const struct stockade_code_part part = {.mime_type = m->mime_type,
                                            .bytes = m->data.data,
                                            .n = m->data.len,
                                            .main = m->main,
                                            .more = m->more,
                                            .last = m->last};
    return h->on_part != NULL ? h->on_part(h->cookie, &part) : 0;
}

// Handles one event and returns the handler's value; skips unknown events of a newer broker.
static int
deliver(const struct stream *st, const Stockade__V1__CodeEvent *ev)
{
    const struct stockade_code_handlers *h = &st->handlers;
    if (ev == NULL || st->cancelled)
        return 0;
    if (ev->event_case == STOCKADE__V1__CODE_EVENT__EVENT_BEGIN && h->on_begin != NULL)
        return h->on_begin(h->cookie, ev->begin->context_id, ev->begin->sandbox_id,
                           ev->begin->fresh);
    if (ev->event_case == STOCKADE__V1__CODE_EVENT__EVENT_OUTPUT && h->on_output != NULL)
        return h->on_output(h->cookie,
                            ev->output->stream == STOCKADE__V1__STREAM__STREAM_STDERR
                                ? STOCKADE_STDERR
                                : STOCKADE_STDOUT,
                            ev->output->data.data, ev->output->data.len);
    if (ev->event_case == STOCKADE__V1__CODE_EVENT__EVENT_RESULT)
        return deliver_part(h, ev->result);
    if (ev->event_case == STOCKADE__V1__CODE_EVENT__EVENT_ERROR && h->on_error != NULL)
        return h->on_error(h->cookie, ev->error->name, ev->error->value, ev->error->traceback);
    return 0;
}

// Keeps the end, with its arena.
static int
keep_end(struct stream *st, struct arena **arena, const Stockade__V1__CodeEnd *m,
         struct stockade_error *e)
{
    struct stockade_code_end *end = hand_out(*arena, sizeof *end);
    struct stockade_result used = {0};
    Stockade__V1__Result as_result = STOCKADE__V1__RESULT__INIT;
    as_result.bill = m->bill;
    as_result.limit_hit = m->limit_hit;
    if (end == NULL || !result_from(&used, *arena, &as_result))
        return invoke_too_large(e);
    *end = (struct stockade_code_end){.status = (uint32_t)m->status,
                                      .execution_count = m->execution_count,
                                      .reason = m->reason,
                                      .lost = m->lost,
                                      .bill = used.bill,
                                      .limit = used.limits_n > 0 ? &used.limits[0] : NULL};
    if (!simulation_from(&end->simulation, *arena, m->simulation))
        return invoke_too_large(e);
    stockade_free(st->end);
    st->end = end;
    *arena = NULL; // the end's now
    return 0;
}

static int
take(void *cookie, struct delivery *d, struct stockade_error *e)
{
    struct stream *st = cookie;
    struct arena *a = call_arena(d);
    ProtobufCMessage *m = NULL;
    int rc = invoke_unpack(&stockade__v1__run_code_response__descriptor, d->bytes, d->n, a, &m, e);
    if (rc < 0)
        return rc;
    const Stockade__V1__CodeEvent *ev = ((const Stockade__V1__RunCodeResponse *)m)->event;
    if (ev != NULL && ev->event_case == STOCKADE__V1__CODE_EVENT__EVENT_END)
        return keep_end(st, d->arena, ev->end, e);
    if (deliver(st, ev) != 0)
        st->cancelled = true;
    return st->cancelled;
}

static const struct call_sink sink = {.on_message = take};

static int
code_request(Stockade__V1__RunCodeRequest *m, struct arena *a,
             const struct stockade_code_options *o, struct err *e)
{
    const char *const from[] = {o->code, o->context, o->sandbox, o->language, o->template_name};
    const char **const to[] = {&m->code, &m->context_id, &m->sandbox_id, &m->language,
                               &m->template_};
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++)
        if (from[i] != NULL)
            *to[i] = from[i];
    m->timeout_ms = o->timeout_ms;
    int rc = request_limits(&m->limits, a, &o->limits, e);
    if (rc == 0)
        rc = request_network(&m->network, a, o->network, o->policy, e);
    if (o->simulate != NULL)
        m->mode = STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE;
    if (rc == 0 && o->simulate != NULL)
        rc = request_simulate(&m->answers, &m->n_answers, a, o->simulate, e);
    if (rc == 0)
        rc = request_mounts(&m->volumes, &m->n_volumes, a, o->mounts, o->mounts_n, e);
    return rc < 0 ? rc : env_from(&m->env, &m->n_env, a, o->env, o->env_n, e);
}

// The end of the stream: 0, with the end of the cell; or why it failed.
static int
conclude(const struct stream *st, int rc, struct stockade_error *error)
{
    struct err e;
    if (st->end != NULL)
        return 0;
    if (rc < 0)
        return rc;
    if (st->cancelled)
        (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    else
        (void)err_set(&e, ERR_DATA_LOSS, "the broker ended the stream without an end");
    return error_from_err(error, &e);
}

int
stockade_run_code(struct stockade *s, const struct stockade_code_options *given,
                  const struct stockade_code_handlers *h, const struct stockade_code_end **out,
                  struct stockade_error *error)
{
    struct err e;
    struct stockade_code_options o = STOCKADE_CODE_OPTIONS_INIT;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    Stockade__V1__RunCodeRequest m = STOCKADE__V1__RUN_CODE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    uint8_t *auto_free request = NULL;
    struct stream st = {0};
    if (a == NULL)
        return invoke_too_large(error);
    if (request_options(&o, sizeof o, given, &e) < 0 || code_request(&m, a, &o, &e) < 0 ||
        (o.call != NULL && request_options(&options, sizeof options, o.call, &e) < 0))
        return error_from_err(error, &e);
    if (h != NULL)
        st.handlers = *h;
    struct call_spec spec = {.method = SERVICE "RunCode",
                             .stream = true,
                             .options = &options,
                             .sink = &sink,
                             .cookie = &st};
    int rc = invoke_pack(&m.base, &request, &spec.request_n, error);
    spec.request = request;
    if (rc < 0)
        return rc;
    rc = conclude(&st, call_do(s, &spec, error), error);
    if (rc == 0 && out != NULL)
        *out = st.end;
    else
        stockade_free(st.end);
    return rc;
}
