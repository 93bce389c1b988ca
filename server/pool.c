// See pool.h.
#include "pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "loop.h"
#include "net_policy.h"
#include "network.h"
#include "sandbox.h"
#include "server.h"
#include "spawn.h"

enum {
    MAKING_MAX = 4, // at one time, of one template: the spawner makes one after the other
    BACK_OFF_MIN_MS = 50,
    BACK_OFF_MAX_MS = 5000,
    LATER_MS = 3,      // making one competes with the job that has just begun: let that go first
    GIVE_UP_MS = 2000, // a request that has waited this long gets the failure instead
};

// What there is of one template.
struct shelf {
    struct pool *pool;
    const struct config_template *template;
    struct list ready;
    uint32_t ready_n, making;
    struct list waiting;
    uint32_t waiting_n;
    uint64_t back_off_ms; // 0: none
    uint32_t failures;    // in a row
    struct err last;      // what the last of them was
    struct loop_timer *timer;
};

struct pool {
    struct server *srv;
    struct sandboxes *all;
    bool stopped;
    uint32_t waiting_n;
    uint32_t shelves_n;
    struct shelf shelf[CONFIG_TEMPLATES_MAX];
};

struct pool_request {
    struct list node;
    struct shelf *shelf;
    struct owner *tenant;
    struct sandbox_spec spec;
    uint64_t since_ns;
    struct loop_timer *too_long;
    struct sandbox *sandbox;    // gets its limits or its network
    struct pool_request **name; // the caller's, emptied at the end
    struct sandbox_waiter waiter;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e);
    void *cookie;
};

static void refill(struct shelf *shelf);

static void
request_free(struct pool_request *r)
{
    *r->name = NULL;
    loop_timer_stop(&r->too_long);
    sandbox_spec_clear(&r->spec);
    free(r);
}

static void
unqueue(struct pool_request *r)
{
    list_remove(&r->node);
    loop_timer_stop(&r->too_long);
    r->shelf->waiting_n--;
    r->shelf->pool->waiting_n--;
}

static void
fail(struct pool_request *r, const struct err *e)
{
    void (*done)(void *, struct sandbox *, const struct err *) = r->done;
    void *cookie = r->cookie;
    sandbox_release(r->tenant);
    request_free(r);
    done(cookie, NULL, e);
}

static void
give(struct pool_request *r, struct sandbox *s)
{
    struct err e;
    if (sandbox_check_name(r->shelf->pool->all, r->tenant->name, r->spec.name, &e) < 0) {
        sandbox_destroy(s, &e, NULL);
        fail(r, &e);
        return;
    }
    sandbox_take(s, r->tenant, &r->spec);
    void (*done)(void *, struct sandbox *, const struct err *) = r->done;
    void *cookie = r->cookie;
    request_free(r);
    done(cookie, s, NULL);
}

// Its sandbox could not be made what the request wants.
static void
fail_with_sandbox(struct pool_request *r, struct sandbox *s, const struct err *e)
{
    struct err why = *e;
    fail(r, &why);
    sandbox_destroy(s, &why, NULL);
}

static void
on_networked(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pool_request *r = cookie;
    r->sandbox = NULL;
    if (e == NULL)
        give(r, s);
    else
        fail_with_sandbox(r, s, e);
}

// Its network, the last before it is given away.
static void
connect_it(struct pool_request *r, struct sandbox *s)
{
    struct err e;
    r->waiter = (struct sandbox_waiter){.done = on_networked, .cookie = r};
    int n = r->spec.network != NULL ? sandbox_network(s, r->spec.network, &r->waiter, &e) : 1;
    if (n > 0) {
        give(r, s);
    } else if (n == 0) {
        r->sandbox = s;
    } else {
        fail_with_sandbox(r, s, &e);
    }
}

static void
on_limited(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pool_request *r = cookie;
    r->sandbox = NULL;
    if (e == NULL)
        connect_it(r, s);
    else
        fail_with_sandbox(r, s, e);
}

// A ready sandbox is off the shelf and becomes the request's.
static void
serve(struct pool_request *r, struct sandbox *s)
{
    struct spawn_limits have;
    struct spawn_limits want;
    limits_to_spawn(&s->spec.limits, &have);
    limits_to_spawn(&r->spec.limits, &want);
    if (memcmp(&have, &want, sizeof have) == 0) {
        connect_it(r, s);
        return;
    }
    struct err e;
    r->waiter = (struct sandbox_waiter){.done = on_limited, .cookie = r};
    if (sandbox_limit(s, &r->spec.limits, &r->waiter, &e) == 0)
        r->sandbox = s;
    else
        fail_with_sandbox(r, s, &e);
}

static struct sandbox *
take_ready(struct shelf *shelf)
{
    if (list_empty(&shelf->ready))
        return NULL;
    struct sandbox *s = list_entry(shelf->ready.next, struct sandbox, pool_node);
    list_remove(&s->pool_node);
    shelf->ready_n--;
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

// There is no room for more: those who have waited this long are told.
static void
give_up(struct shelf *shelf, uint64_t waited_ms, const struct err *e)
{
    uint64_t now = uv_hrtime();
    while (!list_empty(&shelf->waiting)) {
        struct pool_request *r = list_entry(shelf->waiting.next, struct pool_request, node);
        if (now - r->since_ns < waited_ms * UINT64_C(1000000))
            return;
        unqueue(r);
        fail(r, e);
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
    unqueue(r);
    fail(r, &e);
}

static int
wait_its_turn(struct pool_request *r)
{
    uint64_t ms = r->spec.limits.v[LIMIT_WALL_MS];
    struct shelf *shelf = r->shelf;
    ms = ms < POOL_WAIT_MIN_MS ? POOL_WAIT_MIN_MS : ms > POOL_WAIT_MAX_MS ? POOL_WAIT_MAX_MS : ms;
    if (loop_timer_start(shelf->pool->srv->loop, &r->too_long, ms, on_too_long, r) < 0)
        return -ENOMEM;
    list_append(&shelf->waiting, &r->node);
    shelf->waiting_n++;
    shelf->pool->waiting_n++;
    return 0;
}

// Made for a request that was given up meanwhile. False: it is wanted.
static bool
is_too_many(struct shelf *shelf, struct sandbox *s)
{
    struct err e;
    if (!list_empty(&shelf->waiting) || shelf->ready_n < shelf->template->pool)
        return false;
    (void)err_set(&e, ERR_CANCELLED, "nobody wants it any more");
    sandbox_destroy(s, &e, NULL);
    return true;
}

static void
on_made(void *cookie, struct sandbox *s, const struct err *e)
{
    struct shelf *shelf = cookie;
    shelf->making--;
    if (s != NULL) {
        shelf->back_off_ms = 0;
        shelf->failures = 0;
        if (is_too_many(shelf, s))
            return;
        list_append(&shelf->ready, &s->pool_node);
        shelf->ready_n++;
    } else if (!shelf->pool->stopped) {
        log_err(LOG_WARNING, "pool", e);
        shelf->failures++;
        shelf->last = *e;
        back_off(shelf);
    }
    if (list_empty(&shelf->waiting)) {
        refill(shelf);
        return;
    }
    struct pool_request *r = list_entry(shelf->waiting.next, struct pool_request, node);
    unqueue(r);
    if (s != NULL)
        serve(r, take_ready(shelf));
    else
        fail(r, e);
    refill(shelf);
}

// Begins to make what is missing.
static void
refill(struct shelf *shelf)
{
    struct pool *p = shelf->pool;
    if (p->stopped || shelf->timer != NULL)
        return;
    uint32_t want = shelf->template->pool + shelf->waiting_n;
    while (shelf->ready_n + shelf->making < want && shelf->making < MAKING_MAX) {
        struct err e;
        shelf->making++;
        if (sandbox_create(p->all, shelf->template, on_made, shelf, &e) == 0)
            continue;
        shelf->making--;
        give_up(shelf, e.code == ERR_UNAVAILABLE ? 0 : GIVE_UP_MS, &e);
        back_off(shelf);
        return;
    }
}

// After one was taken. A pool that is well filled has time; one that is not, or a request that waits, has none.
static void
refill_soon(struct shelf *shelf)
{
    bool has_time = shelf->waiting_n == 0 && shelf->ready_n * 2 >= shelf->template->pool;
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
    p->shelves_n = srv->config->templates_n;
    for (uint32_t i = 0; i < p->shelves_n; i++) {
        struct shelf *shelf = &p->shelf[i];
        shelf->pool = p;
        shelf->template = &srv->config->template[i];
        list_init(&shelf->ready);
        list_init(&shelf->waiting);
        refill(shelf);
    }
    return p;
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
        shelf->failures = 0; // those of a spawner that hung
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
shelf_of(struct pool *p, const struct config_template *t)
{
    size_t i = (size_t)(t - p->srv->config->template);
    assert(i < p->shelves_n);
    return &p->shelf[i];
}

static int
refuse(const struct pool *p, struct err *e)
{
    if (p->stopped)
        return err_set(e, ERR_UNAVAILABLE, "the broker is stopping");
    int r =
        err_set(e, ERR_RESOURCE_EXHAUSTED, "%u requests wait for a sandbox already", p->waiting_n);
    err_detail(e, "QUEUE_FULL", "quotas.queue", "try again later");
    return r;
}

// Is a ready sandbox other than what is asked for?
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
    if (p->stopped || (must_wait && p->waiting_n >= p->srv->config->quotas.queue))
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
    list_init(&q->node);
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
    if (!must_wait)
        serve(q, take_ready(shelf));
    refill_soon(shelf);
    return 0;
}

void
pool_cancel(struct pool_request *r)
{
    struct sandbox *s = r->sandbox;
    sandbox_release(r->tenant);
    if (s != NULL) {
        struct err e;
        (void)err_set(&e, ERR_CANCELLED, "nobody wants it any more");
        sandbox_unwait(&r->waiter);
        sandbox_destroy(s, &e, NULL);
    } else {
        unqueue(r);
    }
    request_free(r);
}

void
pool_lost(struct pool *p, struct sandbox *s)
{
    struct shelf *shelf = shelf_of(p, s->spec.template);
    if (list_empty(&s->pool_node))
        return; // it was somebody's already
    list_remove(&s->pool_node);
    shelf->ready_n--;
    if (!p->stopped && shelf->timer == NULL)
        back_off(shelf);
}

uint32_t
pool_ready(const struct pool *p, const struct config_template *t)
{
    return p->shelf[t - p->srv->config->template].ready_n;
}
