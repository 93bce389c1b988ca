// SPDX-License-Identifier: Apache-2.0
// See private.h: one job of a batch. It is kept packed until it has its sandbox, because the request that brought it has
// ended by then.
#include "private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/rpc.h"
#include "server/sandbox/command.h"
#include "server/sandbox/image.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/pool.h"
#include "stockade/v1/process_service.pb-c.h"

enum {
    ARENA_MAX = 8 * 1024 * 1024, // of one job, unpacked
    RETRY_MS = 50,               // after a quota refused a sandbox
    UNCLEAN_MAX = 32,            // sandboxes that cannot be reset; then jobs fail
    UNREAD_MAX = 8 * 1024 * 1024,
};

static void on_sandbox(void *cookie, struct sandbox *sb, const struct err *failed);

// ---- memory

static bool
charge(struct batch_job *j, size_t n)
{
    const struct rpc *r = j->batch->all->srv->rpc;
    if (r != NULL && !rpc_tenant_take(r, j->batch->tenant, n)) // NULL in tests
        return false;
    j->charged = r != NULL ? n : 0;
    return true;
}

struct batch_job *
batch_job_new(struct batch *b, const Stockade__V1__BatchJob *m)
{
    struct batch_job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return NULL;
    j->batch = b;
    list_init(&j->node);
    j->packed_n = stockade__v1__batch_job__get_packed_size(m);
    bool whole = charge(j, sizeof *j + j->packed_n);
    if (whole) {
        j->packed = malloc(j->packed_n + 1);
        j->key = strdup(m->key);
        whole = j->packed != NULL && j->key != NULL;
    }
    if (whole) {
        (void)stockade__v1__batch_job__pack(m, j->packed);
        j->arrived_ns = uv_hrtime();
        return j;
    }
    batch_job_free(j);
    return NULL;
}

static void
cancel_request(struct batch_job *j)
{
    pool_cancel(j->request);
    j->batch->acquiring--;
}

static void
ignore(void *cookie)
{
    (void)cookie;
}

void
batch_job_free(struct batch_job *j)
{
    list_remove(&j->node);
    if (j->request != NULL)
        cancel_request(j);
    if (j->follower.job != NULL) {
        j->follower.wake = ignore;
        job_cancel(j->follower.job, "its batch was cancelled");
        job_unfollow(&j->follower);
    }
    tenant_give_bytes(j->batch->tenant, j->charged);
    free(j->own);
    free(j->key);
    free(j->packed);
    free(j);
}

// ---- the end of a job

static void
done(struct batch_job *j)
{
    struct batch *b = j->batch;
    list_remove(&j->node);
    j->sequence = ++b->results;
    b->unread += j->output_bytes;
    list_append(&b->done, &j->node);
    if (b->next == &b->done)
        b->next = &j->node;
    metrics_add(METRIC_BATCH_RESULTS, 1);
    batch_soon(b);
}

static enum outcome
outcome_of(const struct err *e, bool draining)
{
    switch (e->code) {
    case ERR_CANCELLED:
        return OUTCOME_CANCELLED;
    case ERR_UNAVAILABLE:
        return draining ? OUTCOME_CANCELLED : OUTCOME_FAILED;
    case ERR_INVALID_ARGUMENT:
    case ERR_FAILED_PRECONDITION:
    case ERR_NOT_FOUND:
    case ERR_PERMISSION_DENIED:
        return OUTCOME_REFUSED;
    default:
        return OUTCOME_FAILED;
    }
}

// It ended before it was started. If there is no memory for its result, the follower reports a constant one.
static void
end_unstarted(struct batch_job *j, const struct err *e)
{
    const struct bill_input nothing = {.arrived_ns = j->arrived_ns, .sandbox_ns = uv_hrtime()};
    j->own = calloc(1, sizeof *j->own);
    if (j->own != NULL) {
        j->own->outcome = outcome_of(e, j->batch->all->srv->draining);
        (void)snprintf(j->own->reason, sizeof j->own->reason, "%s", e->text);
        bill_compute(&nothing, &j->own->bill);
    }
    done(j);
}

static void
on_wake(void *cookie)
{
    struct batch_job *j = cookie;
    struct job_view v;
    job_view(j->follower.job, &v);
    if (v.result == NULL || j->sequence != 0)
        return;
    j->output_bytes = v.output_bytes - v.result->bill.f[BILL_OUTPUT_CUT_BYTES].value;
    j->batch->running_n--;
    if (j->lane != NULL)
        batch_lane_done(take_ptr(j->lane));
    done(j);
}

void
batch_job_cancel(struct batch_job *j, const char *why)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "%s", why);
    if (j->follower.job != NULL) {
        job_cancel(j->follower.job, why);
        return;
    }
    if (j->request != NULL) {
        cancel_request(j);
        j->batch->running_n--;
    }
    end_unstarted(j, &e);
}

// ---- the start of a job

static void
on_retry(void *cookie)
{
    struct batch *b = cookie;
    loop_timer_stop(&b->retry);
    batch_soon(b);
}

static void
look_again(struct batch *b)
{
    if (loop_timer_start(b->all->srv->loop, &b->retry, RETRY_MS, on_retry, b) < 0)
        batch_soon(b);
}

// It is the next one again.
static void
put_back(struct batch_job *j)
{
    list_remove(&j->node);
    list_append(j->batch->queued.next, &j->node); // before the first one
}

// A quota, or the time to wait for a sandbox: its turn comes again.
static void
try_later(struct batch_job *j)
{
    put_back(j);
    look_again(j->batch);
}

// It could not be started.
static void
not_started(struct batch_job *j, const struct err *e)
{
    j->batch->running_n--;
    if (e->code == ERR_RESOURCE_EXHAUSTED || e->code == ERR_DEADLINE_EXCEEDED)
        try_later(j);
    else
        end_unstarted(j, e);
}

static uint64_t
output_limit(uint64_t asked, uint64_t resolved)
{
    return asked != 0 || (resolved != 0 && resolved <= BATCH_OUTPUT_USUAL) ? resolved
                                                                           : BATCH_OUTPUT_USUAL;
}

// The limits of one job: its own, then those of the batch, then the template's.
static int
resolve(const struct batch *b, const Stockade__V1__BatchJob *m, struct limits *asked,
        struct limits *out, struct err *e)
{
    const struct template *t = b->box.template;
    limits_from_message(m->limits, asked);
    for (int i = 0; i < LIMITS_N; i++)
        if (asked->v[i] == 0)
            asked->v[i] = b->box.asked.v[i];
    int r = limits_resolve(&t->limits, &t->limits_max, b->all->held, asked, out, e);
    if (r < 0)
        return r;
    if (asked->v[LIMIT_OUTPUT_BYTES] > BATCH_OUTPUT_MAX)
        return err_field(e, "limits.output_bytes", "at most %d bytes in a batch", BATCH_OUTPUT_MAX);
    out->v[LIMIT_OUTPUT_BYTES] =
        output_limit(asked->v[LIMIT_OUTPUT_BYTES], out->v[LIMIT_OUTPUT_BYTES]);
    return 0;
}

int
batch_job_limits(const struct batch *b, const Stockade__V1__BatchJob *m, struct limits *out,
                 struct err *e)
{
    struct limits asked;
    return resolve(b, m, &asked, out, e);
}

int
batch_job_check(const struct batch *b, const Stockade__V1__BatchJob *m, struct err *e)
{
    struct limits asked;
    struct limits limits;
    if (m->command->n_args == 0 || m->command->args[0][0] == '\0')
        return err_field(e, "command.args", "no program was given");
    if (m->command->stdin_open)
        return err_field(e, "command.stdin_open", "a job of a batch gets its whole stdin at once");
    if (m->command->terminal != NULL)
        return err_field(e, "command.terminal", "a job of a batch has no terminal");
    return resolve(b, m, &asked, &limits, e);
}

static int
unpack(const struct batch_job *j, struct arena *a, const Stockade__V1__BatchJob **out,
       struct err *e)
{
    ProtobufCMessage *m = NULL;
    if (a == NULL) {
        (void)err_sys(e, ENOMEM, "start a job");
        return -ENOMEM;
    }
    int r = wire_unpack(&stockade__v1__batch_job__descriptor, j->packed, j->packed_n, a, &m, e);
    if (r < 0)
        return r;
    *out = (const Stockade__V1__BatchJob *)m;
    return 0;
}

// What a job is started with. Borrowed.
struct start {
    struct sandbox *sb;
    struct batch_lane *lane; // NULL: none
    const struct limits *limits;
    struct arena *a;
};

static int
start_process(const struct start *with, const Stockade__V1__Command *m, struct job_spec *spec,
              struct job **out, struct err *e)
{
    struct batch_lane *l = with->lane;
    if (l != NULL && batch_warm_fits(l, m, with->limits))
        return batch_warm_start(l, spec, out, e);
    if (l != NULL)
        batch_warm_drop(l);
    return job_start(with->sb, spec, out, e);
}

static int
start_unpacked(struct batch_job *j, const Stockade__V1__BatchJob *m, const struct start *with,
               struct err *e)
{
    struct job_spec spec;
    struct job *started = NULL;
    int r = command_read(m->command, &with->sb->spec, with->limits, with->a, &spec, e);
    if (r < 0)
        return r;
    spec.limits = *with->limits;
    spec.one_shot = !j->batch->recycles;
    spec.unkept = true;
    spec.arrived_ns = j->arrived_ns;
    spec.sandbox_ns = uv_hrtime();
    r = start_process(with, m->command, &spec, &started, e);
    if (r < 0)
        return r;
    j->follower.wake = on_wake;
    j->follower.cookie = j;
    job_follow(started, &j->follower, 0, true);
    free(take_ptr(j->packed));
    return 0;
}

static int
start_in(struct batch_job *j, struct sandbox *sb, struct err *e)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    const Stockade__V1__BatchJob *m = NULL;
    int r = unpack(j, a, &m, e);
    return r != 0 ? r : start_unpacked(j, m, &(struct start){sb, NULL, &sb->spec.limits, a}, e);
}

// The sandbox becomes one of the batch's own, and the job waits until it was reset for the first time.
static void
add_lane(struct batch_job *j, struct sandbox *sb)
{
    struct err e;
    struct batch *b = j->batch;
    const bool hopeless = b->unclean >= UNCLEAN_MAX;
    if (hopeless || !batch_lane_add(b, sb)) {
        if (hopeless) {
            e = b->unclean_why;
            e.code = ERR_UNAVAILABLE; // the job is not tried again
            (void)err_wrap(&e, "new sandboxes could not be reset, the last of them");
        } else {
            (void)err_sys(&e, ENOMEM, "keep a sandbox for a batch");
        }
        sandbox_destroy(sb, &e, NULL);
        not_started(j, &e);
        return;
    }
    b->running_n--;
    put_back(j);
    batch_soon(b);
}

static void
on_sandbox(void *cookie, struct sandbox *sb, const struct err *failed)
{
    struct batch_job *j = cookie;
    struct err e;
    j->batch->acquiring--;
    if (failed != NULL) {
        not_started(j, failed);
        return;
    }
    if (j->batch->recycles) {
        add_lane(j, sb);
        return;
    }
    if (start_in(j, sb, &e) == 0)
        return;
    sandbox_destroy(sb, &e, NULL);
    not_started(j, &e);
}

// The template may have been removed, or changed, since the batch began.
static int
find_template(const struct batch *b, struct err *e)
{
    const struct template *t = b->box.template;
    if (!t->removed && strcmp(t->name, b->template) == 0)
        return 0;
    return err_set(e, ERR_NOT_FOUND, "there is no template %s", b->template);
}

static int
acquire(struct batch_job *j, struct sandbox_spec *spec, struct err *e)
{
    struct batch *b = j->batch;
    spec->network = b->box.network != NULL ? network_ref(b->box.network) : NULL;
    spec->image = image_ref(b->box.image);
    spec->mounts = mounts_ref(b->box.mounts);
    b->acquiring++;
    int r = pool_acquire(b->all->srv->pool, b->tenant->name, spec, on_sandbox, j, &j->request, e);
    if (r == 0)
        return 0;
    b->acquiring--;
    sandbox_spec_clear(spec);
    return r;
}

static int
start_in_lane(struct batch_job *j, struct batch_lane *l, const Stockade__V1__BatchJob *m,
              const struct start *with, struct err *e)
{
    const bool warm = batch_warm_fits(l, m->command, with->limits);
    int r = start_unpacked(j, m, with, e);
    if (r == 0) {
        j->lane = l;
        batch_lane_started(l, with->sb);
        return 0;
    }
    batch_lane_done(l); // it is not as it was given, and will be given up
    if (!warm || e->code == ERR_RESOURCE_EXHAUSTED)
        return r;
    batch_soon(j->batch);
    return -EAGAIN; // the process that waited has ended: again without
}

// -EAGAIN: no sandbox with its limits is free, and there may be no more; or its tenant has begun as many jobs as it may.
static int
start(struct batch_job *j, struct err *e)
{
    struct batch *b = j->batch;
    if (tenant_check_jobs(b->tenant, uv_hrtime(), e) < 0) {
        look_again(b);
        return -EAGAIN;
    }
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    const Stockade__V1__BatchJob *m = NULL;
    struct sandbox_spec spec = {.template = b->box.template};
    struct sandbox *sb = NULL;
    int r = find_template(b, e);
    if (r == 0)
        r = unpack(j, a, &m, e);
    if (r == 0)
        r = resolve(b, m, &spec.asked, &spec.limits, e);
    if (r != 0)
        return r;
    struct batch_lane *l = b->recycles ? batch_lane_take(b, &spec.limits, &sb) : NULL;
    if (l != NULL)
        return start_in_lane(j, l, m, &(struct start){sb, l, &spec.limits, a}, e);
    if (b->recycles && b->lanes_n + b->acquiring >= batch_lanes_max(b))
        return -EAGAIN;
    return acquire(j, &spec, e);
}

static bool
may_start(const struct batch *b)
{
    return !b->waits && (b->retry == NULL || b->lanes_n > 0) && b->running_n < b->parallel &&
           !list_empty(&b->queued) && b->unread < UNREAD_MAX &&
           (!b->recycles || batch_lanes_have_room(b));
}

void
batch_start_jobs(struct batch *b)
{
    batch_lanes_look(b);
    while (may_start(b)) {
        struct batch_job *j = list_entry(b->queued.next, struct batch_job, node);
        struct err e;
        list_remove(&j->node);
        list_append(&b->running, &j->node);
        b->running_n++;
        int r = start(j, &e);
        if (r == -EAGAIN) {
            b->running_n--;
            put_back(j);
            return;
        }
        if (r < 0)
            not_started(j, &e);
    }
}
