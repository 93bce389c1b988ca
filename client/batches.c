// SPDX-License-Identifier: Apache-2.0
// Batches (stockade_batch.h): a stream of results, and unary calls that add jobs and confirm results.
//
//   next() --AddToBatch, as many as the window has room for--> broker --RunBatch--> on_result()
//
// The library keeps no job: it calls next() again for one that was sent and not accepted. A lost stream begins again after the last
// result that the program has.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/process_service.pb-c.h"

#define SERVICE "/stockade.v1.ProcessService/"

enum {
    RECONNECT_MS = 60 * 1000, // a host that starts again, too; the broker keeps a batch as long
    RETRY_MS = 200,
    IDLE_MS = 1000,
    ADD_JOBS_MAX = 512,      // of one call; the broker accepts 1,024
    ADD_BYTES_MAX = 1 << 20, // a call ends with the job that exceeds this
    RESULT_ARENA_BYTES = 4 << 20,
    JOBS_TAG = 3 << 3 | 2, // AddToBatchRequest.jobs
    VARINT_MAX = 10,
};

struct bytes {
    uint8_t *bytes; // owned
    size_t n, room;
};

struct batch {
    struct stockade *s;
    const struct stockade_batch_options *o;
    const struct stockade_batch_handlers *h;
    char key[33]; // if the program gave none
    struct bytes output[2], jobs;
    uint64_t accepted, received, confirmed; // jobs; results by sequence
    uint64_t total;                         // jobs, once next() has said so
    uint32_t window;
    bool begun, lost, ended, failed, all, said_last;
    bool stopped; // the broker takes no more jobs; `why` says why, if it failed not otherwise
    uint64_t call, add_call; // in progress; 0: none
    uint64_t sent_end;       // of the add in progress: number behind its jobs
    bool sent_last;
    uint64_t lost_ms;
    struct stockade_error why; // failed
};

static uint64_t
now_ms(void)
{
    return (uint64_t)(now_ns(CLOCK_MONOTONIC) / 1000000);
}

static void
fail(struct batch *b, const struct stockade_error *why)
{
    if (!b->failed)
        b->why = *why;
    b->failed = true;
}

static void
fail_err(struct batch *b, const struct err *e)
{
    struct stockade_error why;
    (void)error_from_err(&why, e);
    fail(b, &why);
}

static void
cancelled(struct batch *b)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    fail_err(b, &e);
}

static bool
make_room(struct batch *b, struct bytes *to, size_t n)
{
    struct err e;
    if (to->room - to->n >= n)
        return true;
    const size_t room = (to->n + n) * 2;
    uint8_t *more = realloc(to->bytes, room);
    if (more == NULL) {
        (void)err_sys(&e, ENOMEM, "run a batch");
        fail_err(b, &e);
        return false;
    }
    to->bytes = more;
    to->room = room;
    return true;
}

// ---- results

static void
keep_output(struct batch *b, const Stockade__V1__RunBatchResponse__Output *m)
{
    struct bytes *to = &b->output[m->stream == STOCKADE__V1__STREAM__STREAM_STDERR];
    if (m->data.len == 0 || !make_room(b, to, m->data.len))
        return;
    memcpy(to->bytes + to->n, m->data.data, m->data.len);
    to->n += m->data.len;
}

static void
on_finished(struct batch *b, struct arena *a, const Stockade__V1__RunBatchResponse__Finished *m)
{
    struct stockade_result result = {0};
    struct stockade_error e;
    if (m->sequence <= b->received)
        return;
    if (!result_from(&result, a, m->result)) {
        (void)invoke_too_large(&e);
        fail(b, &e);
        return;
    }
    const struct stockade_batch_result r = {
        .number = m->number,
        .key = m->key,
        .process_id = m->process_id,
        .result = &result,
        .output = {{b->output[0].bytes, b->output[0].n}, {b->output[1].bytes, b->output[1].n}},
        .missing_bytes = result.bill.output_cut_bytes.value + m->lost_bytes,
    };
    b->received = m->sequence;
    if (b->h->on_result != NULL && b->h->on_result(b->h->cookie, &r) != 0)
        cancelled(b);
    b->output[0].n = b->output[1].n = 0;
}

static void
on_begun(struct batch *b, const Stockade__V1__RunBatchResponse__Begun *m)
{
    b->begun = true;
    b->lost = false;
    b->lost_ms = 0;
    b->window = m->window;
    b->accepted = m->accepted;
    b->confirmed = b->received;
    b->said_last = m->last;
    b->output[0].n = b->output[1].n = 0;
}

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct batch *b = cookie;
    struct arena *auto_arena a = arena_new(RESULT_ARENA_BYTES);
    ProtobufCMessage *base = NULL;
    struct stockade_error e;
    int r = invoke_unpack(&stockade__v1__run_batch_response__descriptor, bytes, n, a, &base, &e);
    if (r < 0) {
        fail(b, &e);
        return 1;
    }
    const Stockade__V1__RunBatchResponse *m = (const Stockade__V1__RunBatchResponse *)base;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it was unpacked
    if (m->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_BEGUN)
        on_begun(b, m->begun);
    else if (m->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_OUTPUT)
        keep_output(b, m->output);
    else if (m->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_FINISHED)
        on_finished(b, a, m->finished);
    else if (m->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_ENDED)
        b->ended = true;
    return b->failed;
}

// ---- the stream

// After a restart the broker does not know the batch any more.
static void
say_unknown(struct batch *b, const struct stockade_error *e)
{
    struct stockade_error lost = *e;
    (void)snprintf(
        lost.text, sizeof lost.text,
        "the broker does not know the batch any more: %llu %s no "
        "result, and it is unknown whether %s executed",
        (unsigned long long)(b->accepted - b->received),
        plural(b->accepted - b->received, "job that it accepted has", "jobs that it accepted have"),
        plural(b->accepted - b->received, "it was", "they were"));
    fail(b, &lost);
}

static void
on_stream_end(void *cookie, const struct stockade_end *end)
{
    struct batch *b = cookie;
    const struct stockade_error *e = end->error;
    const uint64_t now = now_ms();
    b->call = 0;
    if (b->ended || b->failed)
        return;
    if (e == NULL ||
        (e->code == STOCKADE_NOT_FOUND && b->begun && b->said_last && b->received == b->accepted)) {
        b->ended = true; // only the end was lost
    } else if (e->code == STOCKADE_NOT_FOUND && b->begun) {
        say_unknown(b, e);
    } else if (e->code != STOCKADE_UNAVAILABLE || !b->begun ||
               (b->lost_ms != 0 && now - b->lost_ms > RECONNECT_MS)) {
        fail(b, e);
    } else {
        b->lost = true;
        b->lost_ms = b->lost_ms != 0 ? b->lost_ms : now;
    }
}

static int
begin(struct batch *b, const char *method, const struct bytes *body,
      int (*each)(void *cookie, const void *bytes, size_t n),
      void (*on_end)(void *cookie, const struct stockade_end *end), uint64_t *call,
      struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async async = STOCKADE_ASYNC_INIT;
    r.method = method;
    r.body = (struct stockade_bytes){body->bytes, body->n};
    r.on_message = each;
    r.cookie = async.cookie = b;
    async.on_end = on_end;
    return stockade_begin(b->s, &r, &async, call, e);
}

static int
fill(const struct batch *b, Stockade__V1__RunBatchRequest *m, struct arena *a, struct err *e)
{
    const struct stockade_batch_options *o = b->o;
    m->key = o->key != NULL ? o->key : b->key;
    m->resume = b->begun || o->resume;
    m->received = b->received;
    if (m->resume)
        return 0;
    if (o->template_name != NULL)
        m->template_ = o->template_name;
    m->reset = o->reset_files ? STOCKADE__V1__BATCH_RESET__BATCH_RESET_FILES
                              : STOCKADE__V1__BATCH_RESET__BATCH_RESET_SANDBOX;
    if (o->warm != NULL)
        m->warm = o->warm;
    m->parallel = o->parallel;
    m->window = o->window;
    m->deadline_ms = o->deadline_ms;
    int r = request_limits(&m->limits, a, &o->limits, e);
    if (r == 0)
        r = request_network(&m->network, a, o->network, o->policy, e);
    return r < 0 ? r : request_mounts(&m->volumes, &m->n_volumes, a, o->mounts, o->mounts_n, e);
}

static void
follow(struct batch *b)
{
    Stockade__V1__RunBatchRequest m = STOCKADE__V1__RUN_BATCH_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    struct bytes body = {0};
    struct stockade_error e;
    struct err bad;
    b->lost = false;
    int r = a == NULL ? err_sys(&bad, ENOMEM, "run a batch") : fill(b, &m, a, &bad);
    if (r < 0) {
        fail_err(b, &bad);
        return;
    }
    r = invoke_pack(&m.base, &body.bytes, &body.n, &e);
    if (r == 0)
        r = begin(b, SERVICE "RunBatch", &body, on_message, on_stream_end, &b->call, &e);
    free(body.bytes);
    if (r < 0 && e.code == STOCKADE_UNAVAILABLE && b->begun &&
        now_ms() - b->lost_ms <= RECONNECT_MS)
        b->lost = true;
    else if (r < 0)
        fail(b, &e);
}

// ---- jobs

static size_t
put_varint(uint8_t *to, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    return n;
}

// One more of AddToBatchRequest.jobs, packed.
static bool
append(struct batch *b, const struct stockade_batch_job *job)
{
    Stockade__V1__BatchJob m = STOCKADE__V1__BATCH_JOB__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    struct err e;
    if (job->key != NULL)
        m.key = job->key;
    int r = a == NULL ? err_sys(&e, ENOMEM, "run a batch")
                      : request_command(&m.command, a, &job->command, &e);
    if (r == 0)
        r = request_limits(&m.limits, a, &job->limits, &e);
    if (r < 0) {
        fail_err(b, &e);
        return false;
    }
    const size_t n = stockade__v1__batch_job__get_packed_size(&m);
    if (!make_room(b, &b->jobs, n + 1 + VARINT_MAX))
        return false;
    b->jobs.bytes[b->jobs.n++] = JOBS_TAG;
    b->jobs.n += put_varint(b->jobs.bytes + b->jobs.n, n);
    b->jobs.n += stockade__v1__batch_job__pack(&m, b->jobs.bytes + b->jobs.n);
    return true;
}

// Collects jobs from the first that was not accepted. Returns their number.
static uint64_t
collect(struct batch *b)
{
    const uint64_t open = b->accepted - b->received;
    const uint64_t room = open < b->window ? b->window - open : 0;
    uint64_t n = 0;
    while (n < room && n < ADD_JOBS_MAX && b->jobs.n < ADD_BYTES_MAX && !b->failed &&
           (!b->all || b->accepted + n < b->total)) {
        struct stockade_batch_job job = {0};
        const int r = b->h->next(b->h->cookie, b->accepted + n, &job);
        if (r < 0) {
            cancelled(b);
        } else if (r == STOCKADE_BATCH_LATER) {
            break;
        } else if (r == STOCKADE_BATCH_NO_MORE) {
            b->all = true;
            b->total = b->accepted + n;
        } else if (append(b, &job)) {
            n++;
        }
    }
    return n;
}

// Of a lost connection the stream knows more. Results of jobs that were accepted still come where no more are taken.
static void
on_refused(struct batch *b, const struct stockade_error *e)
{
    const bool drains = e->code == STOCKADE_UNAVAILABLE && strcmp(e->reason, "DRAINING") == 0;
    const bool unknown = e->code == STOCKADE_NOT_FOUND;
    if (unknown && b->stopped)
        return;
    if (e->code == STOCKADE_DEADLINE_EXCEEDED || unknown || drains) {
        b->stopped = true;
        b->why = *e;
        if (unknown) // it has just ended, or the broker was restarted: the stream knows which
            b->why =
                (struct stockade_error){.code = STOCKADE_DEADLINE_EXCEEDED,
                                        .text = "the batch ended before all jobs were accepted"};
    } else if (e->code != STOCKADE_UNAVAILABLE && !b->lost && b->call != 0) {
        fail(b, e);
    }
}

static void
on_added(void *cookie, const struct stockade_end *end)
{
    struct batch *b = cookie;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    ProtobufCMessage *m = NULL;
    struct stockade_error e;
    b->add_call = 0;
    if (b->failed) // the stream was cancelled before, so the batch may be gone: why it failed stays
        return;
    if (end->error != NULL) {
        on_refused(b, end->error);
        return;
    }
    int r = invoke_unpack(&stockade__v1__add_to_batch_response__descriptor, end->response.bytes,
                          end->response.n, a, &m, &e);
    if (r < 0) {
        fail(b, &e);
        return;
    }
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it was unpacked
    const uint64_t accepted = ((const Stockade__V1__AddToBatchResponse *)m)->accepted;
    b->accepted = accepted > b->accepted ? accepted : b->accepted;
    b->said_last = b->said_last || (b->sent_last && accepted == b->sent_end);
}

// Sends jobs and confirms results, where that is worth a call.
static void
add(struct batch *b)
{
    Stockade__V1__AddToBatchRequest m = STOCKADE__V1__ADD_TO_BATCH_REQUEST__INIT;
    struct stockade_error e;
    if (!b->begun || b->call == 0 || b->add_call != 0 || b->failed)
        return;
    b->jobs.n = 0;
    const uint64_t n = b->said_last || b->stopped ? 0 : collect(b);
    const uint64_t unconfirmed = b->received - b->confirmed;
    const bool last = b->all && !b->said_last && !b->stopped && b->accepted + n == b->total;
    const bool idle = b->accepted == b->received && unconfirmed > 0;
    if (b->failed || (n == 0 && !last && !idle && unconfirmed <= b->window / 4))
        return;
    m.key = b->o->key != NULL ? b->o->key : b->key;
    m.first = b->accepted;
    m.last = last;
    m.received = b->received;
    // fields of a message may come in any order
    const size_t rest = stockade__v1__add_to_batch_request__get_packed_size(&m);
    if (!make_room(b, &b->jobs, rest))
        return;
    b->jobs.n += stockade__v1__add_to_batch_request__pack(&m, b->jobs.bytes + b->jobs.n);
    b->sent_end = b->accepted + n;
    b->sent_last = last;
    if (begin(b, SERVICE "AddToBatch", &b->jobs, NULL, on_added, &b->add_call, &e) == 0)
        b->confirmed = b->received; // otherwise the stream ends, too
    else
        b->add_call = 0;
}

// ---- the call

static void
wait_for_more(struct batch *b, int fd)
{
    struct stockade_error e;
    const struct stockade_batch_state state = {b->accepted, b->received, b->said_last, b->lost};
    const int ms = b->lost ? RETRY_MS : IDLE_MS;
    const bool waits = b->o->wait != NULL;
    if (waits && b->o->wait(b->h->cookie, &state, fd, ms) != 0)
        cancelled(b);
    else if (stockade_pump(b->s, waits ? 0 : ms, &e) < 0)
        fail(b, &e);
    if (b->lost)
        (void)poll(NULL, 0, RETRY_MS);
}

static void
work(struct batch *b)
{
    struct stockade_error e;
    const int fd = stockade_fd(b->s, &e);
    if (fd < 0) {
        fail(b, &e);
        return;
    }
    follow(b);
    while (!b->failed && !b->ended) {
        if (b->lost)
            follow(b);
        add(b);
        if (!b->failed)
            wait_for_more(b, fd);
    }
}

// Both calls use the batch.
static void
end_calls(struct batch *b)
{
    struct stockade_error e;
    while (b->call != 0 || b->add_call != 0) {
        if (b->call != 0)
            (void)stockade_cancel(b->s, b->call, &e);
        if (b->add_call != 0 && b->call == 0)
            (void)stockade_cancel(b->s, b->add_call, &e);
        if (stockade_pump(b->s, RETRY_MS, &e) < 0)
            break;
    }
}

static int
make_key(struct batch *b, struct err *e)
{
    uint8_t random[16];
    if (b->o->key == NULL && b->o->resume)
        return err_field(e, "key", "the key that the batch began with");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_sys(e, errno, "choose a key");
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(b->key + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int
stockade_batch(struct stockade *s, const struct stockade_batch_options *given,
               const struct stockade_batch_handlers *h, struct stockade_error *error)
{
    struct err e;
    struct stockade_batch_options o = STOCKADE_BATCH_OPTIONS_INIT;
    struct batch b = {.s = s, .o = &o, .h = h};
    int r = request_options(&o, sizeof o, given, &e);
    if (r == 0 && (h == NULL || h->next == NULL))
        r = err_field(&e, "handlers", "next is required");
    if (r == 0)
        r = make_key(&b, &e);
    if (r < 0)
        return error_from_err(error, &e);
    work(&b);
    end_calls(&b);
    b.failed = b.failed || b.stopped;
    for (int i = 0; i < 2; i++)
        free(b.output[i].bytes);
    free(b.jobs.bytes);
    if (!b.failed)
        return 0;
    if (error != NULL)
        *error = b.why;
    return error_errno(b.why.code);
}
