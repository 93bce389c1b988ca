// SPDX-License-Identifier: Apache-2.0
// See pool.h: the pools of ready sandboxes, and the requests that wait for one. pool_serve.c gives a sandbox to a
// request.
#include "pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/policy/network.h"
#include "pool_private.h"
#include "sandbox.h"
#include "server/base/server.h"
#include "spawn.h"

enum {
    MAKING_MAX = 4, // at a time, per template: the spawner makes them one after the other
    BACK_OFF_MIN_MS = 50,
    BACK_OFF_MAX_MS = 5000,
    // making a sandbox competes with the job that has just started: give it a head start
    LATER_MS = 3,
    GIVE_UP_MS = 2000, // a request that has waited this long gets the failure instead
};

static void refill(struct shelf *shelf);

static void
waiting(struct pool *p, int by)
{
    p->waiting_n += (uint32_t)by;
    metrics_move(METRIC_POOL_WAITING, 0, by);
}

static void
ready(struct shelf *shelf, int by)
{
    shelf->ready_n += (uint32_t)by;
    metrics_move(METRIC_POOL_READY, shelf->template->number, by);
}

void
pool_unqueue(struct pool_request *r)
{
    if (r->place.line == NULL)
        return;
    pool_queue_remove(&r->shelf->waiting, &r->place);
    loop_timer_stop(&r->too_long);
    waiting(r->shelf->pool, -1);
}

static struct pool_request *
request_of(struct pool_place *p)
{
    return list_entry(p, struct pool_request, place);
}

// The next waiting request. NULL: none.
static struct pool_request *
take_waiting(struct shelf *shelf)
{
    struct pool_place *p = pool_queue_take(&shelf->waiting);
    if (p == NULL)
        return NULL;
    loop_timer_stop(&request_of(p)->too_long);
    waiting(shelf->pool, -1);
    return request_of(p);
}

static struct sandbox *
take_ready(struct shelf *shelf)
{
    if (list_empty(&shelf->ready))
        return NULL;
    struct sandbox *s = list_entry(shelf->ready.next, struct sandbox, pool_node);
    list_remove(&s->pool_node);
    ready(shelf, -1);
    return s;
}

static void
on_timer(void *cookie)
{
    struct shelf *shelf = cookie;
    loop_timer_stop(&shelf->timer);
    refill(shelf);
}

static void
back_off(struct shelf *shelf)
{
    uint64_t ms = shelf->back_off_ms * 2;
    ms = ms < BACK_OFF_MIN_MS ? BACK_OFF_MIN_MS : ms > BACK_OFF_MAX_MS ? BACK_OFF_MAX_MS : ms;
    shelf->back_off_ms = ms;
    (void)loop_timer_start(shelf->pool->srv->loop, &shelf->timer, ms, on_timer, shelf);
}

struct giving_up {
    uint64_t before_ns;
    const struct err *why;
};

static bool
give_up_one(void *cookie, struct pool_place *p)
{
    const struct giving_up *g = cookie;
    struct pool_request *r = request_of(p);
    if (r->since_ns > g->before_ns)
        return false;
    pool_unqueue(r);
    pool_refuse(r, g->why);
    return true;
}

// No more sandboxes can be made: requests that have waited this long fail.
static void
give_up(struct shelf *shelf, uint64_t waited_ms, const struct err *e)
{
    struct giving_up g = {uv_hrtime() - waited_ms * UINT64_C(1000000), e};
    while (pool_queue_each_first(&shelf->waiting, give_up_one, &g)) {
    }
}

static void
on_too_long(void *cookie)
{
    struct pool_request *r = cookie;
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "no sandbox became free in %llu ms",
                  (unsigned long long)((uv_hrtime() - r->since_ns) / 1000000));
    err_detail(&e, "NO_SANDBOX_IN_TIME", NULL, "try again later");
    pool_unqueue(r);
    pool_refuse(r, &e);
}

static int
wait_its_turn(struct pool_request *r)
{
    uint64_t ms = r->spec.limits.v[LIMIT_WALL_MS];
    struct shelf *shelf = r->shelf;
    ms = ms < POOL_WAIT_MIN_MS ? POOL_WAIT_MIN_MS : ms > POOL_WAIT_MAX_MS ? POOL_WAIT_MAX_MS : ms;
    if (loop_timer_start(shelf->pool->srv->loop, &r->too_long, ms, on_too_long, r) < 0)
        return -ENOMEM;
    if (pool_queue_add(&shelf->waiting, &r->place, r->tenant) < 0) {
        loop_timer_stop(&r->too_long);
        return -ENOMEM;
    }
    waiting(shelf->pool, 1);
    return 0;
}

static void
discard(struct sandbox *s)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "it is not needed any more");
    sandbox_destroy(s, &e, NULL);
}

// Whether it matches its template as configured now.
static bool
is_current(const struct shelf *shelf, const struct sandbox *s)
{
    const struct template *t = shelf->template;
    struct spawn_limits has;
    struct spawn_limits wants;
    limits_to_spawn(&s->spec.limits, &has);
    limits_to_spawn(&t->limits, &wants);
    return t->has_root && s->root == t->root && memcmp(&has, &wants, sizeof has) == 0;
}

// False if it was made for a request that was cancelled meanwhile, or before the template changed.
static bool
is_wanted(const struct shelf *shelf, const struct sandbox *s)
{
    return is_current(shelf, s) && (shelf->waiting.n > 0 || shelf->ready_n < shelf->template->pool);
}

static void
on_made(void *cookie, struct sandbox *s, const struct err *e)
{
    struct shelf *shelf = cookie;
    shelf->making--;
    if (s != NULL) {
        shelf->back_off_ms = 0;
        shelf->failures = 0;
        if (!is_wanted(shelf, s)) {
            discard(s);
            refill(shelf);
            return;
        }
        list_append(&shelf->ready, &s->pool_node);
        ready(shelf, 1);
    } else if (!shelf->pool->stopped) {
        log_err(LOG_WARNING, "pool", e);
        shelf->failures++;
        shelf->last = *e;
        back_off(shelf);
    }
    struct pool_request *r = take_waiting(shelf);
    if (r == NULL) {
        refill(shelf);
        return;
    }
    if (s != NULL)
        pool_serve(r, take_ready(shelf));
    else
        pool_refuse(r, e);
    refill(shelf);
}

static void
on_lost(void *cookie, struct sandbox *s)
{
    struct shelf *shelf = cookie;
    if (list_empty(&s->pool_node))
        return; // it already had an owner
    list_remove(&s->pool_node);
    ready(shelf, -1);
    if (!shelf->pool->stopped && shelf->timer == NULL)
        back_off(shelf);
}

static const struct sandbox_maker maker = {.created = on_made, .lost = on_lost};

// Starts to make missing sandboxes.
static void
refill(struct shelf *shelf)
{
    struct pool *p = shelf->pool;
    if (p->stopped || shelf->timer != NULL || !shelf->template->has_root)
        return;
    uint32_t want = shelf->template->pool + shelf->waiting.n;
    while (shelf->ready_n + shelf->making < want && shelf->making < MAKING_MAX) {
        struct err e;
        shelf->making++;
        if (sandbox_create(p->all, shelf->template, &maker, shelf, &e) == 0)
            continue;
        shelf->making--;
        give_up(shelf, e.code == ERR_UNAVAILABLE ? 0 : GIVE_UP_MS, &e);
        back_off(shelf);
        return;
    }
}

// After a sandbox was taken: waits a little if the pool is at least half full and no request waits; otherwise makes
// one now.
static void
refill_soon(struct shelf *shelf)
{
    bool has_time = shelf->waiting.n == 0 && shelf->ready_n * 2 >= shelf->template->pool;
    if (has_time && shelf->timer == NULL) {
        (void)loop_timer_start(shelf->pool->srv->loop, &shelf->timer, LATER_MS, on_timer, shelf);
        return;
    }
    if (!has_time && shelf->back_off_ms == 0)
        loop_timer_stop(&shelf->timer);
    refill(shelf);
}

struct pool *
pool_new(struct server *srv, struct sandboxes *all)
{
    struct pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->srv = srv;
    p->all = all;
    const struct sandbox_settings *settings = sandboxes_settings(all);
    _Static_assert((int)TEMPLATES_MAX == (int)METRIC_VALUES_TEMPLATE, "a value for each template");
    p->shelves_n = TEMPLATES_MAX;
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        struct shelf *shelf = &p->shelf[i];
        shelf->pool = p;
        shelf->template = &settings->template[i];
        list_init(&shelf->ready);
        pool_queue_init(&shelf->waiting);
    }
    return p;
}

// Also discards those above a lowered `pool`.
static void
discard_old(struct shelf *shelf)
{
    list_each(it, &shelf->ready)
    {
        struct sandbox *s = list_entry(it, struct sandbox, pool_node);
        if (is_current(shelf, s) && shelf->ready_n <= shelf->template->pool)
            continue;
        list_remove(&s->pool_node);
        ready(shelf, -1);
        discard(s);
    }
}

void
pool_reloaded(struct pool *p)
{
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        struct shelf *shelf = &p->shelf[i];
        struct err e;
        const char *name = shelf->template->has_root ? shelf->template->name : NULL;
        metrics_name_value(METRIC_BY_TEMPLATE, i, name); // one that was removed has none any more
        discard_old(shelf);
        if (!shelf->template->has_root) {
            (void)err_set(&e, ERR_NOT_FOUND, "the template %s was removed or disabled",
                          shelf->template->name);
            give_up(shelf, 0, &e);
        }
        refill(shelf);
    }
}

void
pool_stop(struct pool *p)
{
    struct err e;
    (void)err_set(&e, ERR_UNAVAILABLE, "the broker is stopping");
    p->stopped = true;
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        loop_timer_stop(&p->shelf[i].timer);
        give_up(&p->shelf[i], 0, &e);
    }
}

void
pool_free(struct pool *p)
{
    if (p == NULL)
        return;
    pool_stop(p);
    free(p);
}

void
pool_spawner(struct pool *p, bool hangs)
{
    struct err e;
    (void)spawn_say_hangs(&e);
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        struct shelf *shelf = &p->shelf[i];
        if (hangs) {
            give_up(shelf, 0, &e);
            continue;
        }
        shelf->failures = 0; // failures while the spawner hung do not count
        shelf->back_off_ms = 0;
        loop_timer_stop(&shelf->timer);
        refill(shelf);
    }
}

bool
pool_fails(const struct pool *p, struct err *why)
{
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        const struct shelf *shelf = &p->shelf[i];
        if (shelf->failures < POOL_FAILURES || shelf->ready_n > 0)
            continue;
        *why = shelf->last;
        return true;
    }
    return false;
}

static struct shelf *
shelf_of(struct pool *p, const struct template *t)
{
    assert(t->number < p->shelves_n);
    return &p->shelf[t->number];
}

static int
refuse(const struct pool *p, struct err *e)
{
    if (p->stopped)
        return err_set(e, ERR_UNAVAILABLE, "the broker is stopping");
    int r =
        err_set(e, ERR_RESOURCE_EXHAUSTED, "%u requests already wait for a sandbox", p->waiting_n);
    err_detail(e, "QUEUE_FULL", "quotas.queue", "try again later");
    metrics_add(METRIC_POOL_FULL, 1);
    return r;
}

// Makes room in the queue for another request of the tenant. If the queue is full, the tenant with the most requests
// loses its newest one, if it still has more than this tenant then.
static bool
has_room(struct pool *p, const char *tenant)
{
    const struct tenant *t = tenant_find(p->srv->tenants, tenant);
    struct shelf *of = NULL;
    struct pool_line *longest = NULL;
    uint32_t has = 0;
    struct err e;
    if (p->waiting_n < sandboxes_settings(p->all)->quotas.queue)
        return true;
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        struct pool_line *line = pool_queue_longest(&p->shelf[i].waiting);
        has += t != NULL ? pool_queue_of(&p->shelf[i].waiting, t) : 0;
        if (line == NULL || (longest != NULL && line->n <= longest->n))
            continue;
        longest = line;
        of = &p->shelf[i];
    }
    if (of == NULL || longest->n <= has + 1)
        return false;
    struct pool_request *r = request_of(pool_line_last(longest));
    (void)refuse(p, &e);
    pool_unqueue(r);
    pool_refuse(r, &e);
    return true;
}

// Whether a ready sandbox differs from the request.
static bool
needs_spawner(const struct shelf *shelf, const struct sandbox_spec *spec)
{
    struct spawn_limits have;
    struct spawn_limits want;
    limits_to_spawn(&shelf->template->limits, &have);
    limits_to_spawn(&spec->limits, &want);
    bool way_out = spec->network != NULL && spec->network->mode != NET_NONE;
    return way_out || memcmp(&have, &want, sizeof have) != 0;
}

int
pool_acquire(struct pool *p, const char *tenant, struct sandbox_spec *spec,
             void (*done)(void *cookie, struct sandbox *s, const struct err *e), void *cookie,
             struct pool_request **out, struct err *e)
{
    struct shelf *shelf = shelf_of(p, spec->template);
    bool must_wait = list_empty(&shelf->ready);
    if (!spec->template->has_root)
        return err_set(e, ERR_NOT_FOUND, "the template %s was removed or disabled",
                       spec->template->name);
    if (p->stopped || (must_wait && !has_room(p, tenant)))
        return refuse(p, e);
    if (!spawn_answers(p->srv->spawn) && (must_wait || needs_spawner(shelf, spec)))
        return spawn_say_hangs(e);
    int r = sandbox_check_name(p->all, tenant, spec->name, e);
    if (r < 0)
        return r;
    struct pool_request *q = calloc(1, sizeof *q);
    if (q == NULL)
        return err_sys(e, ENOMEM, "wait for a sandbox");
    r = sandbox_reserve(p->all, tenant, &q->tenant, e);
    if (r < 0) {
        free(q);
        return r;
    }
    q->shelf = shelf;
    q->spec = *spec;
    q->since_ns = uv_hrtime();
    if (must_wait && wait_its_turn(q) < 0) {
        sandbox_release(q->tenant);
        free(q);
        return err_sys(e, ENOMEM, "wait for a sandbox");
    }
    spec->labels = NULL;
    spec->labels_n = 0;
    spec->network = NULL;
    q->done = done;
    q->cookie = cookie;
    q->name = out;
    *out = q;
    metrics_add(must_wait ? METRIC_POOL_MISSES : METRIC_POOL_HITS, 1);
    if (!must_wait)
        pool_serve(q, take_ready(shelf));
    refill_soon(shelf);
    return 0;
}

uint32_t
pool_ready(const struct pool *p, const struct template *t)
{
    return p->shelf[t->number].ready_n;
}
