// SPDX-License-Identifier: Apache-2.0
// The streams of ProcessService: Run, Start and Attach. Each is a follower of a job; they differ in how they begin, and
// in what happens when the caller disconnects: the job of Run is cancelled, the others continue.
//
// Flow control: an event is taken from the job only after call_send() has accepted it. Without credit nothing is taken,
// the job's ring fills up, and finally the job waits at its pipe.
#include "process_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/plural.h"
#include "server/sandbox/command.h"
#include "server/config/config.h"
#include "server/sandbox/job.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/telemetry/telemetry.h"
#include "convert.h"
#include "server/sandbox/job_message.h"
#include "simulated.h"
#include "transacted.h"

enum { COMMAND_ARENA_MAX = 512 * 1024 };

struct stream {
    struct server *s;
    struct call *call;
    const ProtobufCMessageDescriptor *response;
    const Stockade__V1__RunRequest *run; // Run: borrowed from the call
    struct pool_request *request;        // Run: waits for its sandbox
    const Stockade__V1__StartRequest *start;
    struct sandbox_spec spec; // Run: while it waits for the tracepoint
    struct telemetry_waiter waiter;
    bool counts; // the record needs system calls counted
    bool wants;  // holds the tracepoint until the job does
    struct limits limits;
    struct job_follower follower;
    bool blocked; // no credit: on_writable will be called
    struct transacted transacted;
    struct simulated simulated;
};

static void
stream_free(struct stream *st)
{
    job_unfollow(&st->follower);
    transacted_drop(&st->transacted);
    simulated_drop(&st->simulated);
    if (st->wants) {
        telemetry_unwait(&st->waiter);
        telemetry_unwant(st->s->telemetry);
    }
    sandbox_spec_clear(&st->spec);
    free(st);
}

static void
stream_fail(struct stream *st, const struct err *e)
{
    call_fail(st->call, e);
    stream_free(st);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct stream *st = cookie;
    struct job *j = st->follower.job;
    if (st->request != NULL)
        pool_cancel(st->request);
    if (st->run != NULL && j != NULL)
        job_cancel(j, why == CALL_DEADLINE ? "the deadline of the call has expired"
                                           : "the caller cancelled it");
    stream_free(st);
}

// Run, Start and Attach respond with messages of one field: the event.
static int
send_event(struct stream *st, Stockade__V1__ProcessEvent *ev, bool last)
{
    Stockade__V1__RunResponse m;
    _Static_assert(sizeof m == sizeof(Stockade__V1__StartResponse) &&
                       sizeof m == sizeof(Stockade__V1__AttachResponse),
                   "they are filled in the same way");
    st->response->message_init((ProtobufCMessage *)&m);
    m.event = ev;
    return (last ? call_end_with : call_send)(st->call, &m.base);
}

static int
send_started(struct stream *st)
{
    Stockade__V1__ProcessEvent ev = STOCKADE__V1__PROCESS_EVENT__INIT;
    Stockade__V1__ProcessEvent__Started started = STOCKADE__V1__PROCESS_EVENT__STARTED__INIT;
    struct job_view v;
    job_view(st->follower.job, &v);
    started.process_id = v.id;
    started.sandbox_id = v.sandbox_id;
    started.pid = v.pid;
    ev.event_case = STOCKADE__V1__PROCESS_EVENT__EVENT_STARTED;
    ev.started = &started;
    return send_event(st, &ev, false);
}

static int
send_output(struct stream *st, const struct output_chunk *c)
{
    Stockade__V1__ProcessEvent ev = STOCKADE__V1__PROCESS_EVENT__INIT;
    Stockade__V1__ProcessEvent__Output output = STOCKADE__V1__PROCESS_EVENT__OUTPUT__INIT;
    Stockade__V1__ProcessEvent__Gap gap = STOCKADE__V1__PROCESS_EVENT__GAP__INIT;
    if (c->kind == OUTPUT_DATA) {
        output.stream = (Stockade__V1__Stream)c->stream;
        output.data = (ProtobufCBinaryData){.len = c->n, .data = (uint8_t *)(uintptr_t)c->data};
        output.offset = c->offset;
        ev.event_case = STOCKADE__V1__PROCESS_EVENT__EVENT_OUTPUT;
        ev.output = &output;
    } else {
        gap.offset = c->offset;
        gap.bytes = c->missing;
        gap.limit = c->kind == OUTPUT_LIMIT;
        ev.event_case = STOCKADE__V1__PROCESS_EVENT__EVENT_GAP;
        ev.gap = &gap;
    }
    return send_event(st, &ev, false);
}

static int
send_ended(struct stream *st)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__ProcessEvent ev = STOCKADE__V1__PROCESS_EVENT__INIT;
    Stockade__V1__ProcessEvent__Exited exited = STOCKADE__V1__PROCESS_EVENT__EXITED__INIT;
    struct job_view v;
    job_view(st->follower.job, &v);
    exited.result = a != NULL ? job_message_result(a, v.result) : NULL;
    if (exited.result != NULL && st->transacted.t != NULL)
        exited.transaction = transacted_outcome(a, &st->transacted);
    if (exited.result != NULL && simulated_is_on(&st->simulated))
        exited.simulation = simulated_outcome(a, &st->simulated);
    if (exited.result == NULL || (st->transacted.t != NULL && exited.transaction == NULL) ||
        (simulated_is_on(&st->simulated) && exited.simulation == NULL))
        return -ENOMEM;
    ev.event_case = STOCKADE__V1__PROCESS_EVENT__EVENT_EXITED;
    ev.exited = &exited;
    return send_event(st, &ev, true);
}

// A policy refuses the call, so nothing runs. Frees the stream, unless there is no credit yet.
static void
send_refusal(struct stream *st)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct job_result none = {.outcome = OUTCOME_REFUSED};
    Stockade__V1__ProcessEvent ev = STOCKADE__V1__PROCESS_EVENT__INIT;
    Stockade__V1__ProcessEvent__Exited exited = STOCKADE__V1__PROCESS_EVENT__EXITED__INIT;
    struct err e;
    const struct call_refusal *why = call_refusal(st->call);
    (void)snprintf(none.reason, sizeof none.reason, "simulated: the policy %s (rule %s): %s",
                   why->would_ask ? "would ask people" : "refuses it", why->rule, why->reason);
    exited.result = a != NULL ? job_message_result(a, &none) : NULL;
    exited.simulation = a != NULL ? simulated_refused(a, st->call) : NULL;
    ev.event_case = STOCKADE__V1__PROCESS_EVENT__EVENT_EXITED;
    ev.exited = &exited;
    const bool whole = exited.result != NULL && exited.simulation != NULL;
    int r = whole ? send_event(st, &ev, true) : -ENOMEM;
    if (r == -EAGAIN)
        return;
    if (r == 0) {
        stream_free(st);
        return;
    }
    (void)err_sys(&e, r, "send what the policy says");
    stream_fail(st, &e);
}

static int
send_one(struct stream *st, const struct job_event *ev)
{
    if (ev->kind == JOB_STARTED)
        return send_started(st);
    return ev->kind == JOB_OUTPUT ? send_output(st, &ev->chunk) : send_ended(st);
}

// Sends available events, as far as credit permits. The stream was freed if the last one was the end.
static void
pump(void *cookie)
{
    struct stream *st = cookie;
    while (!st->blocked) {
        struct job_event ev = job_next(&st->follower);
        if (ev.kind == JOB_NOTHING)
            return;
        if (ev.kind == JOB_ENDED && st->transacted.t != NULL &&
            !transacted_wait(&st->transacted, pump))
            return; // the last message says what became of it
        if (ev.kind == JOB_ENDED && simulated_is_on(&st->simulated) &&
            !simulated_wait(&st->simulated))
            return;
        int r = send_one(st, &ev);
        if (r == -EAGAIN) {
            st->blocked = true;
        } else if (r < 0) {
            struct err e;
            struct job_view v;
            job_view(st->follower.job, &v);
            (void)err_sys(&e, r, "send the output of process %s", v.id);
            stream_fail(st, &e);
            return;
        } else if (ev.kind == JOB_ENDED) {
            stream_free(st);
            return;
        } else {
            job_taken(&st->follower, &ev);
        }
    }
}

static void
on_writable(void *cookie)
{
    struct stream *st = cookie;
    st->blocked = false;
    if (st->follower.job != NULL)
        pump(st);
    else if (call_refusal(st->call) != NULL)
        send_refusal(st);
}

static void on_simulated(void *cookie, struct sandbox *inside, const struct err *failed);

static struct stream *
stream_new(struct server *s, struct call *c, const ProtobufCMessageDescriptor *response)
{
    struct stream *st = calloc(1, sizeof *st);
    if (st == NULL) {
        convert_no_memory(c);
        return NULL;
    }
    *st = (struct stream){.s = s, .call = c, .response = response};
    st->simulated.on_ready = on_simulated;
    st->simulated.on_end = pump;
    st->simulated.cookie = st;
    st->follower.wake = pump;
    st->follower.cookie = st;
    call_watch(c, on_cancel, on_writable, st);
    return st;
}

// Starts the job and follows it.
static int
begin(struct stream *st, struct sandbox *sb, const Stockade__V1__Command *command, bool one_shot,
      uint64_t sandbox_ns, struct err *e)
{
    struct arena *auto_arena a = arena_new(COMMAND_ARENA_MAX);
    struct job_spec spec;
    struct job *j = NULL;
    if (a == NULL)
        return err_sys(e, ENOMEM, "start a process");
    int r = command_read(command, &sb->spec, &sb->spec.limits, a, &spec, e);
    if (r < 0)
        return r;
    spec.limits = st->limits;
    spec.one_shot = one_shot && !simulated_is_on(&st->simulated); // else it ends its sandbox
    spec.unkept = simulated_is_on(&st->simulated);
    spec.count_syscalls = st->counts;
    spec.arrived_ns = call_arrived_ns(st->call);
    spec.sandbox_ns = sandbox_ns;
    spec.traceparent = call_metadata(st->call, "traceparent");
    r = job_start(sb, &spec, &j, e);
    if (r < 0)
        return r;
    struct job_view v;
    job_view(j, &v);
    simulated_process(&st->simulated, v.id);
    call_note(st->call, "process_id", v.id); // for a caller whose connection breaks right now
    job_follow(j, &st->follower, 0, one_shot || st->start->foreground);
    return 0;
}

static void
on_sandbox(void *cookie, struct sandbox *sb, const struct err *failed)
{
    struct stream *st = cookie;
    if (failed != NULL) {
        stream_fail(st, failed);
        return;
    }
    struct err e;
    if (begin(st, sb, st->run->command, true, uv_hrtime(), &e) == 0)
        return;
    sandbox_destroy(sb, &e, NULL);
    stream_fail(st, &e);
}

static int
read_run(struct server *s, const char *tenant, const Stockade__V1__RunRequest *m,
         struct sandbox_spec *spec, struct err *e)
{
    int r = convert_spec(s, tenant, m->template_, m->limits, m->network, spec, e);
    (void)snprintf(spec->name, sizeof spec->name, "%s", m->name);
    if (r == 0)
        r = convert_mounts(s, tenant, m->n_volumes, m->volumes, spec, e);
    if (r == 0)
        r = convert_labels_begin(spec, m->n_metadata, e);
    for (size_t i = 0; r == 0 && i < m->n_metadata; i++)
        convert_label(spec, m->metadata[i]->key, m->metadata[i]->value);
    if (r < 0)
        sandbox_spec_clear(spec);
    return r;
}

static void
acquire(void *cookie)
{
    struct stream *st = cookie;
    struct err e;
    struct sandbox_spec spec = st->spec;
    st->spec = (struct sandbox_spec){0};
    const char *tenant = call_tenant(st->call);
    const bool simulates = simulated_is_on(&st->simulated);
    // it was removed in the meantime
    if (spec.image != NULL ? spec.template->removed
                           : config_template(st->s->config, st->run->template_) != spec.template) {
        (void)convert_no_template(st->run->template_, &e);
        sandbox_spec_clear(&spec);
        stream_fail(st, &e);
        return;
    }
    int r = simulates ? simulated_fresh(&st->simulated, tenant, &spec, &e)
                      : pool_acquire(st->s->pool, tenant, &spec, on_sandbox, st, &st->request, &e);
    if (r == 0)
        return;
    sandbox_spec_clear(&spec);
    stream_fail(st, &e);
}

// Continues when system calls are watched, if they should be. by_default: the template has them counted.
static void
when_watched(struct stream *st, bool asked, bool by_default, void (*begin_it)(void *cookie))
{
    struct err e;
    if (asked && telemetry_check_syscalls(st->s->telemetry, &e) < 0) {
        stream_fail(st, &e);
        return;
    }
    st->counts = asked;
    st->wants = telemetry_watches(st->s->telemetry, asked || by_default);
    if (st->wants) {
        st->waiter.done = begin_it;
        st->waiter.cookie = st;
        telemetry_want(st->s->telemetry);
        if (!telemetry_wait(st->s->telemetry, &st->waiter))
            return;
    }
    begin_it(st);
}

void
process_run(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RunRequest *m = (const Stockade__V1__RunRequest *)req;
    const struct simulated_fields fields = {m->mode, m->n_answers, m->answers};
    struct sandbox_spec spec = {0};
    struct err e;
    const struct tenant *t = tenant_find(s->tenants, call_tenant(c));
    if (tenant_check_jobs(t, uv_hrtime(), &e) < 0 ||
        read_run(s, call_tenant(c), m, &spec, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct stream *st = stream_new(s, c, &stockade__v1__run_response__descriptor);
    if (st == NULL) {
        sandbox_spec_clear(&spec);
        return;
    }
    st->run = m;
    st->limits = spec.limits;
    st->spec = spec;
    if (simulated_read(&st->simulated, s, &fields, &e) < 0)
        stream_fail(st, &e);
    else if (call_refusal(c) != NULL)
        send_refusal(st);
    else
        when_watched(st, m->count_syscalls, spec.template->count_syscalls, acquire);
}

static int
read_limits(struct stream *st, const struct sandbox *sb, struct err *e)
{
    const struct limits_of_box box = {
        .own = &sb->spec.limits, .asked = &sb->spec.asked, .most = &sb->spec.template->limits_max};
    struct limits asked;
    limits_from_message(st->start->limits, &asked);
    return limits_resolve_job(&box, &asked, !st->start->foreground, &st->limits, e);
}

static int
start_in(struct stream *st, struct sandbox *sb, struct err *e)
{
    int r = read_limits(st, sb, e);
    return r < 0 ? r : begin(st, sb, st->start->command, false, call_arrived_ns(st->call), e);
}

static void
on_transaction(void *cookie, struct sandbox *inside, const struct err *failed)
{
    struct stream *st = cookie;
    struct err e;
    assert(failed != NULL || inside != NULL);
    if (failed != NULL) {
        stream_fail(st, failed);
    } else if (start_in(st, inside, &e) < 0) {
        transacted_fail(&st->transacted);
        stream_fail(st, &e);
    } else {
        call_note(st->call, "transaction_id", st->transacted.t->id);
        transaction_follow(st->transacted.t, st->follower.job);
    }
}

// The sandbox of a simulation, for Run and Start.
static void
on_simulated(void *cookie, struct sandbox *inside, const struct err *failed)
{
    struct stream *st = cookie;
    struct err e;
    if (failed != NULL)
        stream_fail(st, failed);
    else if ((st->run != NULL ? begin(st, inside, st->run->command, true, uv_hrtime(), &e)
                              : start_in(st, inside, &e)) < 0)
        stream_fail(st, &e);
}

static int
check_start(const Stockade__V1__StartRequest *m, struct err *e)
{
    if (m->mode == STOCKADE__V1__JOB_MODE__JOB_MODE_UNSPECIFIED)
        return 0;
    if (m->transaction != STOCKADE__V1__TRANSACTION_POLICY__TRANSACTION_POLICY_UNSPECIFIED)
        return err_field(e, "transaction", "a simulation changes nothing that could be committed");
    if (!m->foreground)
        return err_field(e, "foreground", "a simulation ends with its call: wait for it");
    return 0;
}

static void
start_it(void *cookie)
{
    struct stream *st = cookie;
    const Stockade__V1__StartRequest *m = st->start;
    struct err e;
    struct sandbox *sb = sandbox_find(st->s->sandboxes, call_tenant(st->call), m->sandbox_id, &e);
    st->transacted.on_ready = on_transaction;
    st->transacted.cookie = st;
    if (sb == NULL) {
        stream_fail(st, &e);
        return;
    }
    int r = simulated_is_on(&st->simulated) ? simulated_fork(&st->simulated, sb, &e)
            : m->transaction == STOCKADE__V1__TRANSACTION_POLICY__TRANSACTION_POLICY_UNSPECIFIED
                ? start_in(st, sb, &e)
                : transacted_begin(&st->transacted, st->s, sb, m->transaction, &e);
    if (r < 0)
        stream_fail(st, &e);
}

void
process_start(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__StartRequest *m = (const Stockade__V1__StartRequest *)req;
    const struct simulated_fields fields = {m->mode, m->n_answers, m->answers};
    struct stream *st = stream_new(s, c, &stockade__v1__start_response__descriptor);
    struct err e;
    if (st == NULL)
        return;
    st->start = m;
    if (check_start(m, &e) < 0 || simulated_read(&st->simulated, s, &fields, &e) < 0) {
        stream_fail(st, &e);
        return;
    }
    if (call_refusal(c) != NULL) {
        send_refusal(st);
        return;
    }
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    bool by_default = sb != NULL && sb->spec.template->count_syscalls;
    when_watched(st, m->count_syscalls, by_default, start_it);
}

void
process_attach(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__AttachRequest *m = (const Stockade__V1__AttachRequest *)req;
    struct job_view v;
    struct err e;
    struct job *j = job_find(s->jobs, call_tenant(c), m->process_id, &e);
    if (j != NULL)
        job_view(j, &v);
    if (j != NULL && m->offset > v.output_bytes) {
        (void)err_set(&e, ERR_OUT_OF_RANGE, "offset %llu is beyond the end of the output, %llu %s",
                      (unsigned long long)m->offset, (unsigned long long)v.output_bytes,
                      plural(v.output_bytes, "byte", "bytes"));
        j = NULL;
    }
    if (j == NULL) {
        call_fail(c, &e);
        return;
    }
    struct stream *st = stream_new(s, c, &stockade__v1__attach_response__descriptor);
    if (st == NULL)
        return;
    job_follow(j, &st->follower, m->offset, false);
    pump(st);
}
