// SPDX-License-Identifier: Apache-2.0
// See code_stream.h. The stream is the sink of a cell: without credit it takes no event, and the interpreter waits. Only END
// is always taken, and kept until it can be sent, because the cell does not exist after it.
#include "code_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/server.h"
#include "server/code/context.h"
#include "server/config/config.h"
#include "server/sandbox/job.h"
#include "server/sandbox/job_message.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/code_service.pb-c.h"
#include "convert.h"
#include "simulated.h"
#include "transacted.h"

enum { ONE_SHOT_MS = 60 * 1000, REASON_MAX = 600 };

struct stream {
    struct server *s;
    struct call *call;
    const Stockade__V1__RunCodeRequest *request; // borrowed from the call
    struct pool_request *waits;                  // for its sandbox
    char sandbox_id[ID_TEXT_MAX + 1];            // of a fresh one; "": the caller keeps it
    char *tenant;                                // owned: the call is gone before the sandbox
    struct code_run *run;
    bool over; // END was taken: `end` is to be sent
    struct code_end end;
    char reason[REASON_MAX];
    struct transacted transacted;
    struct simulated simulated;
};

static void
stream_free(struct stream *st)
{
    transacted_drop(&st->transacted);
    simulated_drop(&st->simulated);
    free(st->tenant);
    free(st);
}

// Ends the sandbox that was made for this cell.
static void
destroy(struct stream *st, enum err_code code, const char *why)
{
    struct err e, found;
    if (st->sandbox_id[0] == '\0')
        return;
    struct sandbox *sb = sandbox_find(st->s->sandboxes, st->tenant, st->sandbox_id, &found);
    st->sandbox_id[0] = '\0';
    (void)err_set(&e, code, "%s", why);
    if (sb != NULL)
        sandbox_destroy(sb, &e, NULL);
}

static void
abandon(struct stream *st, const char *why)
{
    if (st->waits != NULL)
        pool_cancel(st->waits);
    if (st->run != NULL)
        code_run_abandon(st->run);
    st->run = NULL;
    destroy(st, ERR_CANCELLED, why);
}

static void
stream_fail(struct stream *st, const struct err *e)
{
    transacted_fail(&st->transacted);
    abandon(st, "its cell could not be run");
    call_fail(st->call, e);
    stream_free(st);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct stream *st = cookie;
    if (st->request->transaction ==
            STOCKADE__V1__TRANSACTION_POLICY__TRANSACTION_POLICY_ON_SUCCESS &&
        !st->over)
        transacted_fail(&st->transacted);
    abandon(st, why == CALL_DEADLINE ? "the deadline of the call has expired"
                                     : "the caller cancelled it");
    stream_free(st);
}

typedef int send_fn(struct call *c, const ProtobufCMessage *m);

static int
send_message(struct stream *st, Stockade__V1__CodeEvent *ev, send_fn *send)
{
    Stockade__V1__RunCodeResponse m = STOCKADE__V1__RUN_CODE_RESPONSE__INIT;
    m.event = ev;
    return send(st->call, &m.base);
}

static int
send_event(struct stream *st, const struct code_event *e, Stockade__V1__CodeEvent *ev)
{
    return send_message(st, ev, e->more ? call_send_more : call_send);
}

// The interpreter, whose record says what it was refused.
static void
note_process(struct stream *st, const char *context_id)
{
    struct context_view v;
    struct err ignored;
    const struct context *c =
        context_find(st->s->contexts, call_tenant(st->call), context_id, &ignored);
    if (c == NULL)
        return;
    context_view(c, &v);
    simulated_process(&st->simulated, v.process_id);
}

static int
send_begin(struct stream *st, const struct code_event *e)
{
    const struct code_begin *b = &e->begin;
    Stockade__V1__CodeEvent ev = STOCKADE__V1__CODE_EVENT__INIT;
    Stockade__V1__CodeBegin begin = STOCKADE__V1__CODE_BEGIN__INIT;
    if (simulated_is_on(&st->simulated))
        note_process(st, b->context_id);
    begin.context_id = b->context_id;
    begin.sandbox_id = b->sandbox_id;
    begin.fresh = b->fresh;
    ev.event_case = STOCKADE__V1__CODE_EVENT__EVENT_BEGIN;
    ev.begin = &begin;
    return send_event(st, e, &ev);
}

static ProtobufCBinaryData
bytes_of(const struct code_event *e)
{
    union { // packing only reads
        const uint8_t *from;
        uint8_t *to;
    } data = {.from = e->bytes};
    return (ProtobufCBinaryData){.len = e->n, .data = data.to};
}

static int
send_output(struct stream *st, const struct code_event *e)
{
    Stockade__V1__CodeEvent ev = STOCKADE__V1__CODE_EVENT__INIT;
    Stockade__V1__CodeOutput output = STOCKADE__V1__CODE_OUTPUT__INIT;
    output.stream = (Stockade__V1__Stream)e->stream;
    output.data = bytes_of(e);
    ev.event_case = STOCKADE__V1__CODE_EVENT__EVENT_OUTPUT;
    ev.output = &output;
    return send_event(st, e, &ev);
}

static int
send_result(struct stream *st, const struct code_event *e)
{
    Stockade__V1__CodeEvent ev = STOCKADE__V1__CODE_EVENT__INIT;
    Stockade__V1__CodeResultPart part = STOCKADE__V1__CODE_RESULT_PART__INIT;
    part.mime_type = e->result->mime;
    part.data = bytes_of(e);
    part.main = e->result->main;
    part.more = e->result->more;
    part.last = e->result->last;
    ev.event_case = STOCKADE__V1__CODE_EVENT__EVENT_RESULT;
    ev.result = &part;
    return send_event(st, e, &ev);
}

static int
send_failure(struct stream *st, const struct code_event *e)
{
    Stockade__V1__CodeEvent ev = STOCKADE__V1__CODE_EVENT__INIT;
    Stockade__V1__CodeError error = STOCKADE__V1__CODE_ERROR__INIT;
    error.name = e->failure.name;
    error.value = e->failure.value;
    error.traceback = e->failure.traceback;
    ev.event_case = STOCKADE__V1__CODE_EVENT__EVENT_ERROR;
    ev.error = &error;
    return send_event(st, e, &ev);
}

static int
send_end(struct stream *st)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct job_result as_job = {.bill = st->end.bill, .hits = st->end.hits};
    Stockade__V1__Result *r = a != NULL ? job_message_result(a, &as_job) : NULL;
    Stockade__V1__CodeEvent ev = STOCKADE__V1__CODE_EVENT__INIT;
    Stockade__V1__CodeEnd end = STOCKADE__V1__CODE_END__INIT;
    if (r != NULL && st->transacted.t != NULL)
        end.transaction = transacted_outcome(a, &st->transacted);
    if (r != NULL && simulated_is_on(&st->simulated))
        end.simulation = call_refusal(st->call) != NULL ? simulated_refused(a, st->call)
                                                        : simulated_outcome(a, &st->simulated);
    if (r == NULL || (st->transacted.t != NULL && end.transaction == NULL) ||
        (simulated_is_on(&st->simulated) && end.simulation == NULL))
        return -ENOMEM;
    end.status = (Stockade__V1__CodeStatus)st->end.status;
    end.execution_count = st->end.count;
    end.reason = st->reason;
    end.lost = st->end.lost;
    end.bill = r->bill;
    end.limit_hit = r->limit_hit;
    ev.event_case = STOCKADE__V1__CODE_EVENT__EVENT_END;
    ev.end = &end;
    return send_message(st, &ev, call_end_with);
}

static void end_now(void *cookie);

static bool
end_must_wait(struct stream *st)
{
    if (st->transacted.t != NULL && !transacted_wait(&st->transacted, end_now))
        return true;
    return simulated_is_on(&st->simulated) && call_refusal(st->call) == NULL &&
           !simulated_wait(&st->simulated);
}

// Sends END if there is credit, and if its transaction is settled. Frees the stream then.
static void
end_now(void *cookie)
{
    struct stream *st = cookie;
    struct err e;
    if (end_must_wait(st)) {
        call_flush(st->call);
        return;
    }
    int r = send_end(st);
    if (r == -EAGAIN)
        return;
    if (r < 0) {
        (void)err_sys(&e, -r, "send the end of a cell");
        stream_fail(st, &e);
    } else {
        stream_free(st);
    }
}

static void
on_end(struct stream *st, const struct code_end *end)
{
    st->run = NULL;
    st->over = true;
    st->end = *end;
    st->end.reason = NULL;
    size_t n = strnlen(end->reason, REASON_MAX - 1);
    memcpy(st->reason, end->reason, n);
    st->reason[n] = '\0';
    destroy(st, ERR_CANCELLED, "its only cell has ended");
    if (st->transacted.t != NULL)
        transaction_settle(st->transacted.t, end->status == CODE_OK, TRANSACTION_STOP_INSIDE);
    end_now(st);
}

static int
on_event(void *cookie, const struct code_event *e)
{
    struct stream *st = cookie;
    switch (e->kind) {
    case CODE_BEGIN:
        return send_begin(st, e);
    case CODE_OUTPUT:
        return send_output(st, e);
    case CODE_RESULT:
        return send_result(st, e);
    case CODE_FAILURE:
        return send_failure(st, e);
    case CODE_END:
        on_end(st, e->end);
        return 0;
    }
    return 0;
}

static void
on_writable(void *cookie)
{
    struct stream *st = cookie;
    if (st->over)
        end_now(st);
    else if (st->run != NULL)
        code_run_go_on(st->run);
}

static void
run_in(struct stream *st, struct context *c)
{
    const struct code_sink sink = {on_event, st};
    const Stockade__V1__RunCodeRequest *m = st->request;
    const bool fresh = m->sandbox_id[0] == '\0' && m->context_id[0] == '\0';
    const uint64_t usual = fresh ? ONE_SHOT_MS : 0;
    struct err e;
    if (context_run(c, m->code, m->timeout_ms != 0 ? m->timeout_ms : usual,
                    call_arrived_ns(st->call), &sink, &st->run, &e) < 0)
        stream_fail(st, &e);
}

static void
on_sandbox(void *cookie, struct sandbox *sb, const struct err *failed)
{
    struct stream *st = cookie;
    struct context *c = NULL;
    struct err e;
    if (failed != NULL) {
        stream_fail(st, failed);
        return;
    }
    if (!simulated_is_on(&st->simulated)) // else it ends its sandbox
        memcpy(st->sandbox_id, sb->id.id, sizeof st->sandbox_id);
    const Stockade__V1__RunCodeRequest *m = st->request;
    const struct context_spec spec = {.language = m->language,
                                      .workdir = "",
                                      .env = m->env,
                                      .env_n = m->n_env,
                                      .is_default = true,
                                      .one_shot = true};
    if (context_create(st->s->contexts, sb, &spec, &c, &e) < 0)
        stream_fail(st, &e);
    else
        run_in(st, c);
}

static void
on_transaction(void *cookie, struct sandbox *inside, const struct err *failed)
{
    struct stream *st = cookie;
    struct context *c = NULL;
    struct err e;
    if (failed != NULL)
        stream_fail(st, failed);
    else if (context_default(st->s->contexts, inside, st->request->language, &c, &e) < 0)
        stream_fail(st, &e);
    else
        run_in(st, c);
}

// The sandbox of a simulation.
static void
on_simulated(void *cookie, struct sandbox *inside, const struct err *failed)
{
    const struct stream *st = cookie;
    if (st->request->sandbox_id[0] != '\0')
        on_transaction(cookie, inside, failed);
    else
        on_sandbox(cookie, inside, failed);
}

// A policy refuses the call, so nothing runs.
static void
refuse(struct stream *st)
{
    const struct call_refusal *why = call_refusal(st->call);
    st->over = true;
    st->end = (struct code_end){.status = CODE_CANCELLED};
    (void)snprintf(st->reason, sizeof st->reason, "simulated: the policy %s (rule %s): %s",
                   why->would_ask ? "would ask people" : "refuses it", why->rule, why->reason);
    end_now(st);
}

static int
check_one_shot(const Stockade__V1__RunCodeRequest *m, struct err *e)
{
    struct limits asked;
    limits_from_message(m->limits, &asked);
    if (asked.v[LIMIT_WALL_MS] != 0)
        return err_field(e, "limits.wall_ms", "use timeout_ms");
    if (asked.v[LIMIT_OUTPUT_BYTES] != 0)
        return err_field(e, "limits.output_bytes", "the output of a cell has no limit");
    return 0;
}

static void
run_alone(struct stream *st)
{
    const Stockade__V1__RunCodeRequest *m = st->request;
    struct sandbox_spec spec = {0};
    struct err e;
    int r = check_one_shot(m, &e);
    if (r == 0)
        r = convert_spec(st->s, call_tenant(st->call), m->template_, m->limits, m->network, &spec,
                         &e);
    if (r == 0)
        r = convert_mounts(st->s, call_tenant(st->call), m->n_volumes, m->volumes, &spec, &e);
    if (r == 0 && simulated_is_on(&st->simulated))
        r = simulated_fresh(&st->simulated, call_tenant(st->call), &spec, &e);
    else if (r == 0)
        r = pool_acquire(st->s->pool, call_tenant(st->call), &spec, on_sandbox, st, &st->waits, &e);
    if (r < 0) {
        sandbox_spec_clear(&spec);
        stream_fail(st, &e);
    }
}

static struct stream *
stream_new(struct server *s, struct call *c, const Stockade__V1__RunCodeRequest *m)
{
    struct stream *st = calloc(1, sizeof *st);
    if (st == NULL)
        return NULL;
    *st = (struct stream){.s = s, .call = c, .request = m, .tenant = strdup(call_tenant(c))};
    if (st->tenant != NULL)
        return st;
    stream_free(st);
    return NULL;
}

static int
check_fields(const Stockade__V1__RunCodeRequest *m, struct err *e)
{
    bool in_context = m->context_id[0] != '\0', in_sandbox = m->sandbox_id[0] != '\0';
    if (in_context && (in_sandbox || m->language[0] != '\0'))
        return err_field(e, "context_id", "a context has its sandbox and language already");
    if (m->mode != 0 && in_context) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION,
                    "a simulation runs in a fork, and the variables of a context cannot go there");
        err_detail(e, "LIVE_STATE", "context_id",
                   "name the sandbox instead: the cell gets a new context in the fork");
        return r;
    }
    if (m->mode != 0 && m->transaction != 0)
        return err_field(e, "transaction", "a simulation changes nothing that could be committed");
    if (m->transaction != 0 && !in_sandbox)
        return err_field(e, "transaction", "needs sandbox_id: contexts are no part of one");
    bool fresh = m->template_[0] != '\0' || m->limits != NULL || m->network != NULL ||
                 m->n_env > 0 || m->n_volumes > 0;
    if ((in_context || in_sandbox) && fresh)
        return err_field(e, in_context ? "context_id" : "sandbox_id",
                         "template, limits, network, env and volumes are those of a fresh sandbox");
    return 0;
}

// found: its context; sb: its sandbox, which it may need a transaction or a fork of. Both NULL: it gets a fresh one.
static void
begin(struct stream *st, struct context *found, struct sandbox *sb)
{
    const Stockade__V1__RunCodeRequest *m = st->request;
    const struct simulated_fields fields = {m->mode, m->n_answers, m->answers};
    struct err e;
    int r = simulated_read(&st->simulated, st->s, &fields, &e);
    const bool simulates = simulated_is_on(&st->simulated);
    if (r == 0 && simulates && call_refusal(st->call) != NULL)
        refuse(st);
    else if (r == 0 && simulates && sb != NULL)
        r = simulated_fork(&st->simulated, sb, &e);
    else if (r == 0 && m->transaction != 0)
        r = transacted_begin(&st->transacted, st->s, sb, m->transaction, &e);
    else if (r == 0 && found != NULL)
        run_in(st, found);
    else if (r == 0)
        run_alone(st);
    if (r < 0)
        stream_fail(st, &e);
}

void
code_run_stream(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RunCodeRequest *m = (const Stockade__V1__RunCodeRequest *)req;
    struct context *found = NULL;
    struct sandbox *sb = NULL;
    struct err e;
    int r = check_fields(m, &e);
    if (r == 0 && m->context_id[0] != '\0') {
        found = context_find(s->contexts, call_tenant(c), m->context_id, &e);
        r = found != NULL ? 0 : -ENOENT;
    } else if (r == 0 && m->sandbox_id[0] != '\0') {
        sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
        r = sb == NULL ? -ENOENT
            : m->transaction != 0 || m->mode != 0
                ? 0
                : context_default(s->contexts, sb, m->language, &found, &e);
    }
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    struct stream *st = stream_new(s, c, m);
    if (st == NULL) {
        convert_no_memory(c);
        return;
    }
    call_watch(c, on_cancel, on_writable, st);
    st->transacted.on_ready = on_transaction;
    st->transacted.cookie = st;
    st->simulated.on_ready = on_simulated;
    st->simulated.on_end = end_now;
    st->simulated.cookie = st;
    begin(st, found, sb);
}
