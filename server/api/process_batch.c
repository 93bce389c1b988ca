// SPDX-License-Identifier: Apache-2.0
// ProcessService.RunBatch and AddToBatch: translation between their messages and server/batch/batch.h.
//
// Flow control: an event is taken from the batch only after call_send() has accepted it. Results that the caller does not
// confirm fill the window, and then no job is accepted any more.
#include "process_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/language.h"
#include "server/base/server.h"
#include "server/sandbox/image.h"
#include "server/batch/batch.h"
#include "server/code/language.h"
#include "server/policy/network.h"
#include "convert.h"
#include "server/sandbox/job_message.h"

enum { ARENA_MAX = 512 * 1024, PER_CPU = 2, PARALLEL_MAX = 256 };

struct stream {
    struct call *call;
    struct batch_follower follower;
    bool begun;   // the first message was sent
    bool blocked; // no credit: on_writable will be called
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct stream *st = cookie;
    if (why == CALL_DISCONNECTED)
        batch_unfollow(&st->follower);
    else
        batch_cancel(&st->follower, why == CALL_DEADLINE ? "the deadline of the call has expired"
                                                         : "the caller cancelled it");
    free(st);
}

static void
on_dropped(void *cookie, const struct err *why)
{
    struct stream *st = cookie;
    call_fail(st->call, why);
    free(st);
}

static int
send_begun(struct stream *st)
{
    Stockade__V1__RunBatchResponse m = STOCKADE__V1__RUN_BATCH_RESPONSE__INIT;
    Stockade__V1__RunBatchResponse__Begun begun = STOCKADE__V1__RUN_BATCH_RESPONSE__BEGUN__INIT;
    struct batch_view v;
    batch_view(st->follower.batch, &v);
    begun.accepted = v.accepted;
    begun.window = v.window;
    begun.parallel = v.parallel;
    begun.last = v.last;
    m.event_case = STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_BEGUN;
    m.begun = &begun;
    return call_send(st->call, &m.base);
}

static int
send_output(struct stream *st, const struct batch_event *ev)
{
    Stockade__V1__RunBatchResponse m = STOCKADE__V1__RUN_BATCH_RESPONSE__INIT;
    Stockade__V1__RunBatchResponse__Output output = STOCKADE__V1__RUN_BATCH_RESPONSE__OUTPUT__INIT;
    const struct output_chunk *c = &ev->chunk;
    output.number = ev->number;
    output.stream = (Stockade__V1__Stream)c->stream;
    output.data = (ProtobufCBinaryData){.len = c->n, .data = (uint8_t *)(uintptr_t)c->data};
    m.event_case = STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_OUTPUT;
    m.output = &output;
    return call_send(st->call, &m.base);
}

static int
send_finished(struct stream *st, const struct batch_event *ev)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    Stockade__V1__RunBatchResponse m = STOCKADE__V1__RUN_BATCH_RESPONSE__INIT;
    Stockade__V1__RunBatchResponse__Finished f = STOCKADE__V1__RUN_BATCH_RESPONSE__FINISHED__INIT;
    f.result = a != NULL ? job_message_result(a, ev->result) : NULL;
    if (f.result == NULL)
        return -ENOMEM;
    f.result->record = NULL; // it may be larger than a message; GetRecord has it
    f.number = ev->number;
    f.sequence = ev->sequence;
    f.key = ev->job_key;
    f.process_id = ev->process_id;
    f.lost_bytes = ev->lost_bytes;
    m.event_case = STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_FINISHED;
    m.finished = &f;
    return call_send(st->call, &m.base);
}

static int
send_ended(struct stream *st, const struct batch_event *ev)
{
    Stockade__V1__RunBatchResponse m = STOCKADE__V1__RUN_BATCH_RESPONSE__INIT;
    Stockade__V1__RunBatchResponse__Ended ended = STOCKADE__V1__RUN_BATCH_RESPONSE__ENDED__INIT;
    ended.jobs = ev->sequence;
    m.event_case = STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_ENDED;
    m.ended = &ended;
    return call_end_with(st->call, &m.base);
}

static int
send_one(struct stream *st, const struct batch_event *ev)
{
    if (ev->kind == BATCH_OUTPUT)
        return send_output(st, ev);
    return ev->kind == BATCH_FINISHED ? send_finished(st, ev) : send_ended(st, ev);
}

// Sends available events, as far as credit permits. The stream was freed if the last one was the end.
static void
pump(void *cookie)
{
    struct stream *st = cookie;
    if (!st->begun && !st->blocked) {
        st->begun = send_begun(st) == 0;
        st->blocked = !st->begun;
    }
    while (!st->blocked) {
        struct batch_event ev = batch_next(&st->follower);
        if (ev.kind == BATCH_NOTHING)
            return;
        int r = send_one(st, &ev);
        if (r == -EAGAIN) {
            st->blocked = true;
        } else if (r < 0) {
            struct err e;
            (void)err_sys(&e, r, "send a result of the batch");
            batch_unfollow(&st->follower);
            call_fail(st->call, &e);
            free(st);
            return;
        } else {
            batch_taken(&st->follower, &ev);
            if (ev.kind != BATCH_ENDED)
                continue;
            free(st);
            return;
        }
    }
}

static void
on_writable(void *cookie)
{
    struct stream *st = cookie;
    st->blocked = false;
    pump(st);
}

static uint32_t
usual_parallel(void)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const long n = PER_CPU * (cpus > 0 ? cpus : 1);
    return n < PARALLEL_MAX ? (uint32_t)n : PARALLEL_MAX;
}

// What connections leave outside of the sandbox, and in the relay, cannot be cleaned.
static int
check_reset(const Stockade__V1__RunBatchRequest *m, const struct sandbox_spec *box, struct err *e)
{
    const struct network *n = box->network;
    if (m->reset != STOCKADE__V1__BATCH_RESET__BATCH_RESET_FILES)
        return 0;
    if (box->template->user_root)
        return err_field(e, "reset",
                         "the jobs of template %s are root inside, so they change more "
                         "than their own files: only BATCH_RESET_SANDBOX is possible",
                         box->template->name);
    if (box->image != NULL)
        return err_field(e, "reset",
                         "%s was made from a sandbox, whose files a reset would lose: only "
                         "BATCH_RESET_SANDBOX is possible",
                         box->image->name);
    if (n == NULL || (!network_leads_out(n) && n->inbound_n == 0))
        return 0;
    return err_field(e, "reset",
                     "BATCH_RESET_FILES needs the network mode none or off, without inbound ports: "
                     "connections would outlive a job; the mode of this batch is %s",
                     network_mode_name[n->mode]);
}

// Which jobs may be forked from an interpreter of their sandbox, which is there only if that stays.
static int
check_warm(const Stockade__V1__RunBatchRequest *m, struct err *e)
{
    const char *name = language_name(m->warm);
    if (m->warm[0] == '\0')
        return 0;
    if (name == NULL || strcmp(name, language_of_snippets()->name) != 0)
        return err_field(e, "warm", "must be python: no other interpreter can be forked");
    if (m->reset != STOCKADE__V1__BATCH_RESET__BATCH_RESET_FILES)
        return err_field(e, "warm",
                         "needs BATCH_RESET_FILES: a fresh sandbox has no interpreter yet");
    return 0;
}

static int
open_new(struct server *s, struct call *c, const Stockade__V1__RunBatchRequest *m,
         struct batch **out, struct err *e)
{
    struct batch_spec spec = {0};
    if (m->received != 0)
        return err_field(e, "received", "only a batch that is resumed has results");
    int r = convert_spec(s, call_tenant(c), m->template_, m->limits, m->network, &spec.box, e);
    if (r == 0 && spec.box.asked.v[LIMIT_OUTPUT_BYTES] > BATCH_OUTPUT_MAX)
        r = err_field(e, "limits.output_bytes", "at most %d bytes in a batch", BATCH_OUTPUT_MAX);
    if (r == 0)
        r = check_reset(m, &spec.box, e);
    if (r == 0)
        r = check_warm(m, e);
    if (r == 0)
        r = convert_mounts(s, call_tenant(c), m->n_volumes, m->volumes, &spec.box, e);
    (void)snprintf(spec.key, sizeof spec.key, "%s", m->key);
    spec.recycles = m->reset == STOCKADE__V1__BATCH_RESET__BATCH_RESET_FILES;
    spec.warm = m->warm[0] != '\0';
    spec.parallel = m->parallel != 0 ? m->parallel : usual_parallel();
    spec.window = m->window != 0 ? m->window : BATCH_WINDOW_USUAL;
    spec.deadline_ms = m->deadline_ms;
    spec.keep_ms = m->keep_ms != 0 ? m->keep_ms : BATCH_KEEP_USUAL_MS;
    if (r == 0)
        r = batch_open(s->batches, call_tenant(c), &spec, out, e);
    sandbox_spec_clear(&spec.box);
    return r;
}

void
process_run_batch(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RunBatchRequest *m = (const Stockade__V1__RunBatchRequest *)req;
    struct batch *b = NULL;
    struct err e;
    struct stream *st = calloc(1, sizeof *st);
    if (st == NULL) {
        convert_no_memory(c);
        return;
    }
    *st = (struct stream){.call = c};
    st->follower = (struct batch_follower){.wake = pump, .dropped = on_dropped, .cookie = st};
    int r = 0;
    if (m->resume)
        r = (b = batch_find(s->batches, call_tenant(c), m->key, &e)) != NULL ? 0 : -ENOENT;
    else
        r = open_new(s, c, m, &b, &e);
    if (r == 0)
        r = batch_follow(b, &st->follower, m->received, &e);
    if (r < 0) {
        call_fail(c, &e);
        free(st);
        return;
    }
    call_watch(c, on_cancel, on_writable, st);
}

void
process_add_to_batch(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__AddToBatchRequest *m = (const Stockade__V1__AddToBatchRequest *)req;
    Stockade__V1__AddToBatchResponse answer = STOCKADE__V1__ADD_TO_BATCH_RESPONSE__INIT;
    struct batch_view v;
    struct err e;
    struct batch *b = batch_find(s->batches, call_tenant(c), m->key, &e);
    int r = b != NULL ? 0 : -ENOENT;
    if (r == 0)
        r = batch_received(b, m->received, &e);
    if (r == 0)
        r = batch_add(b, m->first, m->jobs, m->n_jobs, m->last, &e);
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    batch_view(b, &v);
    answer.accepted = v.accepted;
    call_reply(c, &answer.base);
}
