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
#include "server/base/stopping.h"
#include "spawn.h"

enum {
    BACK_OFF_MIN_MS = 50,
    BACK_OFF_MAX_MS = 5000,
    // making a sandbox competes with the job that has just started: give it a head start
    LATER_MS = 3,
    GIVE_UP_MS = 2000, // a request that has waited this long gets the failure instead
    KEPT_PART = 4,     // of the pool, for tenants that have few sandboxes
};

static void
waiting(struct pool *p, int by)
{
    p->waiting_n += (uint32_t)by;
    metrics_move(METRIC_POOL_WAITING, 0, by);
}

static void
ready(struct template_pool *tpool, int by)
{
    tpool->ready_n += (uint32_t)by;
    metrics_move(METRIC_POOL_READY, tpool->template->number, by);
}

void
pool_unqueue(struct pool_request *r)
{
    if (r->entry.line == NULL)
        return;
    pool_queue_remove(&r->tpool->waiting, &r->entry);
    loop_timer_stop(&r->too_long);
    waiting(r->tpool->pool, -1);
}

// The number of ready ones that this tenant leaves to others: a tenant with more sandboxes than the pool has leaves the
// last ones, so that another tenant's job starts without waiting for a birth.
static uint32_t
kept_from(const struct template_pool *tpool, const struct tenant *t)
{
    uint32_t pool = tpool->template->pool;
    const uint64_t has =
        t != NULL ? tenant_held(t, LEDGER_SANDBOXES) + tenant_held(t, LEDGER_LEAVING_SANDBOXES) : 0;
    return has > pool ? pool / KEPT_PART : 0;
}

static bool
may_take(void *cookie, struct pool_entry *p)
{
    const struct template_pool *tpool = cookie;
    const struct pool_request *r = pool_request_of(p);
    return tpool->ready_n >= kept_from(tpool, r->tenant) && pool_may_begin(tpool->pool, r->tenant);
}

static bool
may_take_ready(void *cookie, struct pool_entry *p)
{
    const struct template_pool *tpool = cookie;
    const struct pool_request *r = pool_request_of(p);
    return tpool->ready_n > kept_from(tpool, r->tenant) && pool_warm_fits(tpool, &r->spec.limits) &&
           pool_may_begin(tpool->pool, r->tenant);
}

static bool
fits(void *cookie, struct pool_entry *p)
{
    return pool_warm_fits(cookie, &pool_request_of(p)->spec.limits);
}

struct pool_request *
pool_take(struct template_pool *tpool, bool (*may)(void *cookie, struct pool_entry *p),
          void *cookie)
{
    struct pool_entry *p = pool_queue_take_if(&tpool->waiting, may, cookie);
    if (p == NULL)
        return NULL;
    loop_timer_stop(&pool_request_of(p)->too_long);
    waiting(tpool->pool, -1);
    return pool_request_of(p);
}

static struct pool_request *
take_waiting(struct template_pool *tpool, bool (*may)(void *cookie, struct pool_entry *p))
{
    return pool_take(tpool, may, tpool);
}

// It is not in the pool any more.
static void
leave(struct template_pool *tpool, struct sandbox *s)
{
    list_remove(&s->pool_node);
    if (s->warmth != SANDBOX_WARMING)
        ready(tpool, -1);
    pool_warm_leaves(tpool, s);
}

static struct sandbox *
take_ready(struct template_pool *tpool)
{
    if (list_empty(&tpool->ready))
        return NULL;
    struct sandbox *s = list_entry(tpool->ready.next, struct sandbox, pool_node);
    leave(tpool, s);
    return s;
}

static void
on_timer(void *cookie)
{
    struct template_pool *tpool = cookie;
    loop_timer_stop(&tpool->timer);
    pool_refill(tpool);
}

static void
back_off(struct template_pool *tpool)
{
    uint64_t ms = tpool->back_off_ms * 2;
    ms = ms < BACK_OFF_MIN_MS ? BACK_OFF_MIN_MS : ms > BACK_OFF_MAX_MS ? BACK_OFF_MAX_MS : ms;
    tpool->back_off_ms = ms;
    (void)loop_timer_start(tpool->pool->srv->loop, &tpool->timer, ms, on_timer, tpool);
}

static bool
note_older(void *cookie, struct pool_entry *p)
{
    uint64_t *since_ns = cookie;
    if (pool_request_of(p)->since_ns < *since_ns)
        *since_ns = pool_request_of(p)->since_ns;
    return false;
}

uint64_t
pool_oldest_wait_ns(struct pool *p)
{
    const uint64_t now_ns = uv_hrtime();
    uint64_t since_ns = now_ns;
    for (uint32_t i = 0; i < p->tpools_n; i++)
        (void)pool_queue_each_first(&p->tpool[i].waiting, note_older, &since_ns);
    return now_ns - since_ns;
}

struct giving_up {
    uint64_t before_ns;
    const struct err *why;
};

static bool
give_up_one(void *cookie, struct pool_entry *p)
{
    const struct giving_up *g = cookie;
    struct pool_request *r = pool_request_of(p);
    if (r->since_ns > g->before_ns)
        return false;
    pool_unqueue(r);
    pool_refuse(r, g->why);
    return true;
}

// No more sandboxes can be made: requests that have waited this long fail.
static void
give_up(struct template_pool *tpool, uint64_t waited_ms, const struct err *e)
{
    struct giving_up g = {uv_hrtime() - waited_ms * UINT64_C(1000000), e};
    while (pool_queue_each_first(&tpool->waiting, give_up_one, &g)) {
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
    struct template_pool *tpool = r->tpool;
    ms = ms < POOL_WAIT_MIN_MS ? POOL_WAIT_MIN_MS : ms > POOL_WAIT_MAX_MS ? POOL_WAIT_MAX_MS : ms;
    if (loop_timer_start(tpool->pool->srv->loop, &r->too_long, ms, on_too_long, r) < 0)
        return -ENOMEM;
    const struct pool_owner owner = {r->tenant, tenant_weight(r->tenant)};
    if (pool_queue_add(&tpool->waiting, &r->entry, owner) < 0) {
        loop_timer_stop(&r->too_long);
        return -ENOMEM;
    }
    waiting(tpool->pool, 1);
    return 0;
}

void
pool_discard(struct sandbox *s)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "it is not needed any more");
    sandbox_destroy(s, &e, NULL);
}

// Whether it matches its template as configured now.
bool
pool_is_current(const struct template_pool *tpool, const struct sandbox *s)
{
    const struct template *t = tpool->template;
    struct spawn_limits has;
    struct spawn_limits wants;
    limits_to_spawn(&s->spec.limits, &has);
    limits_to_spawn(&t->limits, &wants);
    return t->has_root && s->root == t->root && s->warm_version == t->warm_version &&
           memcmp(&has, &wants, sizeof has) == 0;
}

// False if it was made for a request that was cancelled meanwhile, or before the template changed. One that was made for a request that must
// not begin any more is kept, because it may soon.
static bool
is_wanted(struct template_pool *tpool, const struct sandbox *s)
{
    const uint32_t soon = tpool->waiting.n > 0 ? POOL_MAKING_MAX : 0;
    return pool_is_current(tpool, s) &&
           (pool_is_wanted(tpool) ||
            tpool->ready_n + tpool->warming_n < tpool->template->pool + soon);
}

void
pool_add_ready(struct template_pool *tpool, struct sandbox *s)
{
    struct pool_request *r = take_waiting(tpool, may_take);
    if (r != NULL) {
        pool_warm_leaves(tpool, s);
        pool_serve(r, s);
        return;
    }
    list_append(&tpool->ready, &s->pool_node);
    ready(tpool, 1);
}

static void
on_not_made(struct template_pool *tpool, const struct err *e)
{
    if (!tpool->pool->stopped) {
        log_err(LOG_WARNING, "pool", e);
        tpool->failures++;
        tpool->last = *e;
        back_off(tpool);
    }
    struct pool_request *r = take_waiting(tpool, NULL);
    if (r != NULL)
        pool_refuse(r, e);
}

// A request that waits gets it as it is; otherwise its interpreter is started first, if its template has one.
static void
on_made(void *cookie, struct sandbox *s, const struct err *e)
{
    struct template_pool *tpool = cookie;
    tpool->making--;
    if (s == NULL) {
        on_not_made(tpool, e);
        pool_refill(tpool);
        return;
    }
    tpool->back_off_ms = 0;
    tpool->failures = 0;
    if (!is_wanted(tpool, s))
        pool_discard(s);
    else if (pool_is_wanted(tpool) || !pool_warm_begin(tpool, s))
        pool_add_ready(tpool, s);
    pool_refill(tpool);
}

static void
on_lost(void *cookie, struct sandbox *s)
{
    struct template_pool *tpool = cookie;
    if (list_empty(&s->pool_node))
        return; // it already had an owner
    leave(tpool, s);
    if (!tpool->pool->stopped && tpool->timer == NULL)
        back_off(tpool);
}

static void
on_young_ended(void *cookie)
{
    const struct template_pool *tpool = cookie;
    pool_has_room(tpool->pool);
}

static void
on_left(void *cookie)
{
    const struct template_pool *tpool = cookie;
    pool_has_left(tpool->pool);
}

const struct sandbox_maker pool_maker = {
    .created = on_made, .lost = on_lost, .young_ended = on_young_ended, .left = on_left};

// Those whose interpreter starts take a slot of the pool, but not of a request that waits. Requests of tenants that may not begin more at
// the moment are served from the pool later.
static bool
needs_more(struct template_pool *tpool)
{
    if (tpool->making >= POOL_MAKING_MAX)
        return false;
    const uint32_t wanted = pool_is_wanted(tpool) ? tpool->waiting.n : 0;
    if (wanted > tpool->making)
        return true;
    if (pool_warm_measures(tpool))
        return false;
    return tpool->making + tpool->warming_n < POOL_MAKING_MAX &&
           tpool->ready_n + tpool->making + tpool->warming_n < tpool->template->pool + wanted;
}

// No more can be made, so nothing is gained by keeping some.
static void
serve_from_kept(struct template_pool *tpool)
{
    struct pool_request *r = NULL;
    while (!list_empty(&tpool->ready) && (r = take_waiting(tpool, fits)) != NULL)
        pool_serve(r, take_ready(tpool));
}

void
pool_serve_ready(struct template_pool *tpool)
{
    struct pool_request *r = NULL;
    while (!list_empty(&tpool->ready) && (r = take_waiting(tpool, may_take_ready)) != NULL)
        pool_serve(r, take_ready(tpool));
}

void
pool_cannot_make(struct template_pool *tpool, const struct err *e)
{
    serve_from_kept(tpool);
    give_up(tpool, e->code == ERR_UNAVAILABLE ? 0 : GIVE_UP_MS, e);
    back_off(tpool);
}

// Starts to make missing sandboxes.
void
pool_refill(struct template_pool *tpool)
{
    struct pool *p = tpool->pool;
    const struct template *t = tpool->template;
    if (p->stopped || tpool->timer != NULL || !t->has_root)
        return;
    if (tpool->to_order) {
        pool_order_refill(tpool);
        return;
    }
    while (needs_more(tpool)) {
        struct err e;
        tpool->making++;
        if (sandbox_create(p->all, t, &t->limits, &pool_maker, tpool, &e) == 0)
            continue;
        tpool->making--;
        pool_cannot_make(tpool, &e);
        return;
    }
}

// After a sandbox was taken: waits a little if the pool is at least half full and no request waits; otherwise makes
// one now.
static void
refill_soon(struct template_pool *tpool)
{
    bool has_time = tpool->waiting.n == 0 && tpool->ready_n * 2 >= tpool->template->pool;
    if (has_time && tpool->timer == NULL) {
        (void)loop_timer_start(tpool->pool->srv->loop, &tpool->timer, LATER_MS, on_timer, tpool);
        return;
    }
    if (!has_time && tpool->back_off_ms == 0)
        loop_timer_stop(&tpool->timer);
    pool_refill(tpool);
}

struct pool *
pool_new(struct server *srv, struct sandboxes *all)
{
    struct pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->srv = srv;
    p->all = all;
    p->processors = pool_processors();
    const struct sandbox_settings *settings = sandboxes_settings(all);
    _Static_assert((int)TEMPLATES_MAX == (int)METRIC_VALUES_TEMPLATE, "a value for each template");
    p->tpools_n = 2 * TEMPLATES_MAX;
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        struct template_pool *tpool = &p->tpool[i];
        tpool->pool = p;
        tpool->template = &settings->template[i % TEMPLATES_MAX];
        tpool->to_order = i >= TEMPLATES_MAX;
        list_init(&tpool->ready);
        list_init(&tpool->warming);
        pool_queue_init(&tpool->waiting);
    }
    return p;
}

static void
discard_from(struct template_pool *tpool, struct list *of)
{
    list_each(it, of)
    {
        struct sandbox *s = list_entry(it, struct sandbox, pool_node);
        if (pool_is_current(tpool, s) && tpool->ready_n + tpool->warming_n <= tpool->template->pool)
            continue;
        leave(tpool, s);
        pool_discard(s);
    }
}

// Also discards those above a lowered `pool`.
static void
discard_old(struct template_pool *tpool)
{
    discard_from(tpool, &tpool->warming);
    discard_from(tpool, &tpool->ready);
}

void
pool_reloaded(struct pool *p)
{
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        struct template_pool *tpool = &p->tpool[i];
        struct err e;
        const char *name = tpool->template->has_root ? tpool->template->name : NULL;
        if (!tpool->to_order) // one that was removed has none any more
            metrics_name_value(METRIC_BY_TEMPLATE, i, name);
        discard_old(tpool);
        if (!tpool->template->has_root) {
            (void)pool_say_removed(tpool->template, &e);
            give_up(tpool, 0, &e);
        }
        pool_refill(tpool);
    }
}

void
pool_stop(struct pool *p)
{
    struct err e;
    (void)stopping_say(&e, ERR_UNAVAILABLE);
    p->stopped = true;
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        loop_timer_stop(&p->tpool[i].timer);
        give_up(&p->tpool[i], 0, &e);
    }
    loop_timer_stop(&p->pace);
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
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        struct template_pool *tpool = &p->tpool[i];
        if (hangs) {
            give_up(tpool, 0, &e);
            continue;
        }
        tpool->failures = 0; // failures while the spawner hung do not count
        tpool->back_off_ms = 0;
        loop_timer_stop(&tpool->timer);
        pool_refill(tpool);
    }
}

bool
pool_fails(const struct pool *p, struct err *why)
{
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        const struct template_pool *tpool = &p->tpool[i];
        if (tpool->failures < POOL_FAILURES || tpool->ready_n > 0)
            continue;
        *why = tpool->last;
        return true;
    }
    return false;
}

static struct template_pool *
tpool_of(struct pool *p, const struct sandbox_spec *spec)
{
    const uint32_t number = spec->template->number;
    assert(number < TEMPLATES_MAX);
    return &p->tpool[pool_is_to_order(spec) ? TEMPLATES_MAX + number : number];
}

// Whether a ready sandbox differs from the request.
static bool
needs_spawner(const struct template_pool *tpool, const struct sandbox_spec *spec)
{
    struct spawn_limits have;
    struct spawn_limits want;
    limits_to_spawn(&tpool->template->limits, &have);
    limits_to_spawn(&spec->limits, &want);
    bool way_out = spec->network != NULL && network_leads_out(spec->network);
    return way_out || memcmp(&have, &want, sizeof have) != 0;
}

int
pool_acquire(struct pool *p, const char *tenant, struct sandbox_spec *spec,
             void (*done)(void *cookie, struct sandbox *s, const struct err *e), void *cookie,
             struct pool_request **out, struct err *e)
{
    struct template_pool *tpool = tpool_of(p, spec);
    struct tenant *t = tenant_find(p->srv->tenants, tenant);
    bool must_wait = tpool->ready_n <= kept_from(tpool, t) ||
                     !pool_warm_fits(tpool, &spec->limits) || !pool_may_begin(p, t) ||
                     pool_is_behind(tpool, t);
    if (!spec->template->has_root)
        return pool_say_removed(spec->template, e);
    if (p->stopped || (must_wait && !pool_make_room(p, tenant)))
        return pool_say_full(p, e);
    if (!spawn_answers(p->srv->spawn) && (must_wait || needs_spawner(tpool, spec)))
        return spawn_say_hangs(e);
    int r = sandbox_check_name(p->all, tenant, spec->name, e);
    if (r < 0)
        return r;
    struct pool_request *q = calloc(1, sizeof *q);
    if (q == NULL)
        return err_sys(e, ENOMEM, "wait for a sandbox");
    r = sandbox_reserve(p->all, tenant, &spec->limits, &q->tenant, e);
    if (r < 0) {
        free(q);
        return r;
    }
    q->tpool = tpool;
    q->spec = *spec;
    q->since_ns = uv_hrtime();
    pace_seen(q->tenant, q->since_ns);
    if (must_wait && wait_its_turn(q) < 0) {
        sandbox_release(q->tenant, &q->spec.limits);
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
        pool_serve(q, take_ready(tpool));
    refill_soon(tpool);
    return 0;
}

uint32_t
pool_ready(const struct pool *p, const struct template *t)
{
    return p->tpool[t->number].ready_n;
}

bool
pool_is_short(const struct pool *p)
{
    return p->waiting_n > 0 &&
           sandboxes_count(p->all) >= sandboxes_settings(p->all)->quotas.sandboxes;
}
