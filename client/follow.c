// SPDX-License-Identifier: Apache-2.0
// See follow.h. Each message carries a ProcessEvent; `exited` is the last and becomes the result.
#include "follow.h"

#include <stddef.h>
#include <stdlib.h>

#include "proto/auto.h"
#include "async.h"
#include "calls.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/process_service.pb-c.h"

// The three responses have the same form, so one function reads them.
#define IS_LIKE_RUN(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__RunResponse) &&                            \
                       offsetof(type, event) == offsetof(Stockade__V1__RunResponse, event),        \
                   "a response with one event")
IS_LIKE_RUN(Stockade__V1__StartResponse);
IS_LIKE_RUN(Stockade__V1__AttachResponse);

// A stream of events in progress.
struct stream {
    const ProtobufCMessageDescriptor *type; // of its messages
    struct stockade_handlers handlers;
    struct stockade_async a;              // of one that was begun
    bool detach;                          // until `started`
    bool cancelled;                       // by a handler, or because it is detached
    bool detached;                        // `started` came
    const struct stockade_result *result; // handed out, once `exited` came
};

static int
deliver_started(struct stream *st, const Stockade__V1__ProcessEvent__Started *m)
{
    const struct stockade_handlers *h = &st->handlers;
    st->detached = st->detach;
    int rc =
        h->on_started != NULL ? h->on_started(h->cookie, m->process_id, m->sandbox_id, m->pid) : 0;
    return st->detach ? 1 : rc;
}

static int
deliver_output(const struct stream *st, const Stockade__V1__ProcessEvent__Output *m)
{
    const struct stockade_handlers *h = &st->handlers;
    int stream =
        m->stream == STOCKADE__V1__STREAM__STREAM_STDERR ? STOCKADE_STDERR : STOCKADE_STDOUT;
    return h->on_output != NULL
               ? h->on_output(h->cookie, stream, m->data.data, m->data.len, m->offset)
               : 0;
}

static int
deliver_gap(const struct stream *st, const Stockade__V1__ProcessEvent__Gap *m)
{
    const struct stockade_handlers *h = &st->handlers;
    return h->on_gap != NULL ? h->on_gap(h->cookie, m->offset, m->bytes, m->limit) : 0;
}

// Handles one event and returns the handler's value; skips unknown events of a newer broker.
static int
deliver(struct stream *st, const Stockade__V1__ProcessEvent *event)
{
    if (event == NULL || st->cancelled)
        return 0;
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_STARTED)
        return deliver_started(st, event->started);
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_OUTPUT)
        return deliver_output(st, event->output);
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_GAP)
        return deliver_gap(st, event->gap);
    return 0;
}

// Keeps the result, with its arena.
static int
keep_result(struct stream *st, struct arena **arena, const Stockade__V1__ProcessEvent__Exited *from,
            struct stockade_error *e)
{
    struct stockade_result *r = hand_out(*arena, sizeof *r);
    struct stockade_outcome_of_transaction *t = NULL;
    if (r == NULL || !result_from(r, *arena, from->result))
        return invoke_too_large(e);
    if (from->transaction != NULL) {
        t = arena_alloc(*arena, sizeof *t);
        if (t == NULL || !outcome_from(t, *arena, from->transaction))
            return invoke_too_large(e);
    }
    if (!simulation_from(&r->simulation, *arena, from->simulation))
        return invoke_too_large(e);
    r->transaction = t;
    stockade_free(st->result);
    st->result = r;
    *arena = NULL; // the result's now
    return 0;
}

static int
take(void *cookie, struct delivery *d, struct stockade_error *e)
{
    struct stream *st = cookie;
    struct arena *a = call_arena(d);
    ProtobufCMessage *m = NULL;
    int rc = invoke_unpack(st->type, d->bytes, d->n, a, &m, e);
    if (rc < 0)
        return rc;
    const Stockade__V1__ProcessEvent *event = ((const Stockade__V1__RunResponse *)m)->event;
    if (event != NULL && event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_EXITED)
        return keep_result(st, d->arena, event->exited, e);
    if (deliver(st, event) != 0)
        st->cancelled = true;
    return st->cancelled;
}

// The end of the stream: 0, with the result, if it has one; or why it failed.
static int
conclude(struct stream *st, int rc, struct stockade_error *error)
{
    if (st->detached) {
        stockade_free(st->result);
        st->result = NULL;
    }
    if (st->result != NULL || st->detached)
        return 0;
    if (rc < 0)
        return rc;
    struct err e;
    if (st->cancelled)
        (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    else
        (void)err_set(&e, ERR_DATA_LOSS, "the broker ended the stream without a result");
    return error_from_err(error, &e);
}

static void
end(void *cookie, uint64_t id, int rc, const struct stockade_error *error)
{
    struct stream *st = cookie;
    struct stockade_error no;
    int concluded = conclude(st, rc, &no);
    async_end(&st->a, id, concluded, rc < 0 ? error : &no, st->result, NULL);
    stockade_free(st->result);
    free(st);
}

static const struct call_sink sink = {.on_message = take, .on_end = end};

// The call of a stream; *request is owned by the caller.
static int
fill(struct stream *st, struct call_spec *spec, struct stockade_call_options *options,
     uint8_t **request, const struct following *f, struct stockade_error *error)
{
    struct err e;
    if (f->options != NULL && request_options(options, sizeof *options, f->options, &e) < 0)
        return error_from_err(error, &e);
    if (f->handlers != NULL)
        st->handlers = *f->handlers;
    st->type = f->type;
    st->detach = f->detach;
    *spec = (struct call_spec){
        .method = f->method, .stream = true, .options = options, .sink = &sink, .cookie = st};
    int rc = invoke_pack(f->request, request, &spec->request_n, error);
    spec->request = *request;
    return rc;
}

int
follow(struct stockade *s, const struct following *f, const struct stockade_result **out,
       struct stockade_error *e)
{
    struct stream st = {0};
    struct call_spec spec;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    uint8_t *auto_free request = NULL;
    int rc = fill(&st, &spec, &options, &request, f, e);
    if (rc < 0)
        return rc;
    rc = conclude(&st, call_do(s, &spec, e), e);
    if (rc == 0 && out != NULL && st.result != NULL)
        *out = st.result;
    else
        stockade_free(st.result);
    return rc;
}

int
follow_begin(struct stockade *s, const struct following *f, const struct stockade_async *a,
             uint64_t *call, struct stockade_error *e)
{
    struct call_spec spec;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    uint8_t *auto_free request = NULL;
    struct stream *auto_free st = calloc(1, sizeof *st);
    if (st == NULL)
        return invoke_too_large(e);
    int rc = async_options(&st->a, a, e);
    if (rc == 0)
        rc = fill(st, &spec, &options, &request, f, e);
    if (rc == 0)
        rc = async_begin(s, &spec, &st->a, call, e);
    if (rc == 0)
        (void)take_ptr(st);
    return rc;
}
