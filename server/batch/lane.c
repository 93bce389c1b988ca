// SPDX-License-Identifier: Apache-2.0
// See private.h: the sandboxes of a batch that recycles them.
//
// One is given up, and another one requested, when anything about it is not as it was: other limits (a finding has throttled
// it), a process of the caller's beside the job, memory that the kernel keeps, a fork storm that is held, or simply many jobs.
#include "private.h"

#include <stdlib.h>
#include <string.h>

#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/pool.h"

enum {
    JOBS_MAX = 1000, // of one sandbox: bounds what the kernel counts and caches of them
    UNCLEAN_FULL = 8,
    MEMORY_PART = 4,    // of its limit that may still be charged to it between two jobs
    REST_MS = 5 * 1000, // without a job, then its sandboxes are given up
};

static struct batch_lane *
lane_of(struct list *node)
{
    return list_entry(node, struct batch_lane, node);
}

static struct sandbox *
sandbox_of(const struct batch_lane *l)
{
    struct err ignored;
    const struct batch *b = l->batch;
    struct sandbox *s =
        sandbox_find(b->all->srv->sandboxes, b->tenant->name, l->sandbox_id, &ignored);
    return s != NULL && s->state != SANDBOX_DELETING ? s : NULL;
}

static void
forget(struct batch_lane *l)
{
    list_each(it, &l->batch->running)
    {
        struct batch_job *j = list_entry(it, struct batch_job, node);
        if (j->lane == l)
            j->lane = NULL;
    }
    if (l->state == LANE_RESETTING)
        sandbox_unwait(&l->reset.waiter);
    batch_warm_end(l);
    list_remove(&l->node);
    l->batch->lanes_n--;
    free(l);
}

static void
give_up(struct batch_lane *l)
{
    struct err e;
    struct sandbox *s = sandbox_of(l);
    forget(l);
    (void)err_set(&e, ERR_CANCELLED, "its batch does not need it any more");
    if (s != NULL)
        sandbox_destroy(s, &e, NULL);
}

bool
batch_lane_add(struct batch *b, const struct sandbox *sb)
{
    struct batch_lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        return false;
    l->batch = b;
    l->state = LANE_USED;
    l->begun = sb->jobs_begun;
    limits_to_spawn(&sb->spec.limits, &l->limits);
    memcpy(l->sandbox_id, sb->id.id, sizeof l->sandbox_id);
    list_append(&b->lanes, &l->node);
    b->lanes_n++;
    return true;
}

static struct batch_lane *
find_idle(const struct batch *b, const struct spawn_limits *limits)
{
    for (struct list *it = b->lanes.next; it != &b->lanes; it = it->next) {
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is in no list any more
        struct batch_lane *l = lane_of(it);
        if (l->state == LANE_IDLE &&
            (limits == NULL || memcmp(&l->limits, limits, sizeof *limits) == 0))
            return l;
    }
    return NULL;
}

uint32_t
batch_lanes_max(const struct batch *b)
{
    return b->retry != NULL ? b->lanes_n + b->acquiring : b->parallel + b->parallel / 2;
}

// Whether sandboxes that are being reset will serve all jobs that wait. Another sandbox would come too late for them, and while it
// is on its way, none would be left that needs those.
static bool
will_suffice(const struct batch *b)
{
    uint32_t resetting = 0;
    list_each(it, &b->lanes)
    {
        const struct batch_lane *l = lane_of(it);
        resetting += l->state == LANE_RESETTING || l->state == LANE_WARMING;
    }
    struct list *it = b->queued.next;
    for (; it != &b->queued && resetting > 0; it = it->next)
        resetting--;
    return it == &b->queued;
}

bool
batch_lanes_have_room(const struct batch *b)
{
    if (find_idle(b, NULL) != NULL)
        return true;
    return b->lanes_n + b->acquiring < batch_lanes_max(b) && !will_suffice(b);
}

// The caller may have used it for something else.
static bool
is_as_given(const struct batch_lane *l, const struct sandbox *s)
{
    struct spawn_limits now;
    limits_to_spawn(&s->spec.limits, &now);
    return s->state == SANDBOX_RUNNING && s->jobs_n == 0 && !s->limits_pending && !s->forks.held &&
           !s->forks.asked && s->jobs_begun == l->begun &&
           memcmp(&now, &l->limits, sizeof now) == 0;
}

struct batch_lane *
batch_lane_take(struct batch *b, const struct limits *limits, struct sandbox **sb)
{
    struct spawn_limits wanted;
    struct batch_lane *l;
    limits_to_spawn(limits, &wanted);
    while ((l = find_idle(b, &wanted)) != NULL) {
        struct sandbox *s = sandbox_of(l);
        if (s != NULL && is_as_given(l, s)) {
            l->state = LANE_BUSY;
            l->jobs++;
            *sb = s;
            return l;
        }
        give_up(l);
    }
    l = find_idle(b, NULL);
    if (l != NULL && b->lanes_n + b->acquiring >= batch_lanes_max(b))
        give_up(l);
    return NULL;
}

void
batch_lane_done(struct batch_lane *l)
{
    l->state = LANE_USED;
}

void
batch_lane_started(struct batch_lane *l, const struct sandbox *s)
{
    l->begun = s->jobs_begun;
}

void
batch_lane_warmed(struct batch_lane *l, const struct sandbox *s)
{
    l->state = LANE_IDLE;
    l->begun = s->jobs_begun;
    if (l->idle_bytes == 0)
        l->idle_bytes = cgstat_memory(&s->dirs);
    batch_soon(l->batch);
}

// A full disk (storage: disk) needs fewer tries: each of them makes one.
static void
note_first(struct batch *b, const struct err *e)
{
    if (e == NULL) {
        b->unclean = 0;
        return;
    }
    b->unclean += e->code == ERR_RESOURCE_EXHAUSTED ? UNCLEAN_FULL : 1;
    b->unclean_why = *e;
}

static void
on_reset(void *cookie, struct sandbox *s, const struct err *e)
{
    struct batch_lane *l = cookie;
    struct batch *b = l->batch;
    l->state = LANE_IDLE;
    if (l->jobs == 0)
        note_first(b, e);
    if (e != NULL ||
        cgstat_memory(&s->dirs) > l->idle_bytes + l->limits.memory_bytes / MEMORY_PART) {
        give_up(l);
    } else {
        metrics_add(METRIC_BATCH_RESETS, 1);
        if (b->warm && batch_warm_prepare(l, s)) {
            l->state = LANE_WARMING;
            l->begun = s->jobs_begun;
        }
    }
    batch_soon(b);
}

static bool
is_needed(const struct batch_lane *l)
{
    const struct batch *b = l->batch;
    bool no_more = (b->last || b->over) && list_empty(&b->queued);
    return !no_more && l->jobs < JOBS_MAX && (l->jobs == 0 || !pool_is_short(b->all->srv->pool));
}

static void
reset(struct batch_lane *l)
{
    struct err ignored; // whatever the reason is, another sandbox takes its place
    struct sandbox *s = sandbox_of(l);
    batch_warm_drop(l);
    l->reset.waiter = (struct sandbox_waiter){.done = on_reset, .cookie = l};
    list_init(&l->reset.waiter.node);
    if (s == NULL || !is_as_given(l, s) || !is_needed(l) ||
        sandbox_reset(s, batch_warm_number(l), &l->reset, &ignored) < 0)
        give_up(l);
    else
        l->state = LANE_RESETTING;
}

static void
on_rest(void *cookie)
{
    struct batch *b = cookie;
    loop_timer_stop(&b->rest);
    list_each(it, &b->lanes) if (lane_of(it)->state == LANE_IDLE) give_up(lane_of(it));
}

void
batch_lanes_look(struct batch *b)
{
    list_each(it, &b->lanes)
    {
        struct batch_lane *l = lane_of(it);
        if (l->state == LANE_USED)
            reset(l);
        else if (l->state == LANE_IDLE && !is_needed(l))
            give_up(l);
    }
    const bool rests = b->lanes_n > 0 && list_empty(&b->queued) && list_empty(&b->running);
    if (!rests)
        loop_timer_stop(&b->rest);
    else if (b->rest == NULL)
        (void)loop_timer_start(b->all->srv->loop, &b->rest, REST_MS, on_rest, b);
}

void
batch_lanes_end(struct batch *b)
{
    loop_timer_stop(&b->rest);
    list_each(it, &b->lanes) give_up(lane_of(it));
}
