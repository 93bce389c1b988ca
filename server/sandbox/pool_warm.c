// SPDX-License-Identifier: Apache-2.0
// See pool.h: sandboxes whose interpreter runs before they are ready.
//
//   made --quotas.warm_memory has room--> warming --pool_warmed()--> ready and warm
//     +-----it has none, or a request waits------------------------> ready
//
// What one costs is measured when it has become warm, and all that wait in the pools together stay within the bound. Before
// the first of a template has been measured, only that one is made.
#include "pool_private.h"

#include <stdio.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/metrics.h"

// A request may ask for less memory than a warm sandbox has used already.
enum { ROOM_FACTOR = 2 };

void
pool_set_warmer(struct pool *p, const struct pool_warmer *w)
{
    p->warmer = *w;
}

static struct template_pool *
tpool_of(struct pool *p, const struct template *t)
{
    return &p->tpool[t->number];
}

static uint64_t
used_by_all(const struct pool *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->tpools_n; i++)
        sum += (p->tpool[i].warm_n + p->tpool[i].warming_n) * p->tpool[i].warm_bytes;
    return sum;
}

static void
say_failed(struct template_pool *tpool, const char *why)
{
    (void)snprintf(tpool->warm_failed, sizeof tpool->warm_failed, "%.255s", why);
    tpool->warm_failed_version = tpool->template->warm_version;
}

static bool
has_room(const struct template_pool *tpool)
{
    const uint64_t most = sandboxes_settings(tpool->pool->all)->quotas.warm_memory;
    if (tpool->warm_bytes == 0)
        return most > 0 && tpool->warming_n == 0;
    return used_by_all(tpool->pool) + tpool->warm_bytes <= most;
}

bool
pool_warm_begin(struct template_pool *tpool, struct sandbox *s)
{
    const struct pool_warmer *w = &tpool->pool->warmer;
    struct err e;
    if (!tpool->template->warm || w->begin == NULL || !has_room(tpool))
        return false;
    if (w->begin(w->cookie, s, &e) < 0) {
        log_err_about(LOG_WARNING, "warm", &(struct log_about){.sandbox = s->id.id}, &e);
        say_failed(tpool, e.text);
        return false;
    }
    s->warmth = SANDBOX_WARMING;
    list_append(&tpool->warming, &s->pool_node);
    tpool->warming_n++;
    return true;
}

bool
pool_warm_measures(const struct template_pool *tpool)
{
    return tpool->template->warm && tpool->warm_bytes == 0 && tpool->making + tpool->warming_n > 0;
}

// Its memory, and its counters so far, which are not those of its jobs.
static void
measure(struct template_pool *tpool, struct sandbox *s)
{
    const uint64_t bytes = cgstat_memory_now(&s->dirs);
    if (bytes > 0)
        tpool->warm_bytes = bytes;
    metrics_set(METRIC_POOL_WARM_BYTES, tpool->template->number, (int64_t)tpool->warm_bytes);
    cgstat_read(&s->dirs, 0, &s->fresh);
}

void
pool_warmed(struct pool *p, struct sandbox *s, const struct err *e)
{
    struct template_pool *tpool = tpool_of(p, s->spec.template);
    if (s->state != SANDBOX_READY || s->warmth != SANDBOX_WARMING)
        return;
    list_remove(&s->pool_node);
    tpool->warming_n--;
    s->warmth = e == NULL ? SANDBOX_WARM : SANDBOX_COLD;
    if (e != NULL) {
        log_err_about(LOG_WARNING, "warm", &(struct log_about){.sandbox = s->id.id}, e);
        metrics_add(METRIC_POOL_WARM_FAILED, 1);
        say_failed(tpool, e->text);
    } else {
        measure(tpool, s);
    }
    if (!pool_is_current(tpool, s)) {
        pool_discard(s);
    } else {
        tpool->warm_n += s->warmth == SANDBOX_WARM;
        metrics_move(METRIC_POOL_WARM, tpool->template->number, s->warmth == SANDBOX_WARM);
        pool_add_ready(tpool, s);
    }
    pool_refill(tpool);
}

void
pool_warm_leaves(struct template_pool *tpool, const struct sandbox *s)
{
    if (s->warmth == SANDBOX_WARMING) {
        tpool->warming_n--;
    } else if (s->warmth == SANDBOX_WARM) {
        tpool->warm_n--;
        metrics_move(METRIC_POOL_WARM, tpool->template->number, -1);
    }
}

bool
pool_warm_fits(const struct template_pool *tpool, const struct limits *l)
{
    return tpool->warm_n == 0 ||
           l->v[LIMIT_MEMORY_BYTES] >= tpool->template->limits.v[LIMIT_MEMORY_BYTES] ||
           l->v[LIMIT_MEMORY_BYTES] / ROOM_FACTOR >= tpool->warm_bytes;
}

void
pool_warm_failed(struct pool *p, const struct template *t, const char *why)
{
    struct template_pool *tpool = tpool_of(p, t);
    if (strncmp(tpool->warm_failed, why, sizeof tpool->warm_failed - 1) == 0)
        return;
    log_event(LOG_WARNING, "warm", "template %s: %s", t->name, why);
    say_failed(tpool, why);
}

void
pool_warmth(const struct pool *p, const struct template *t, struct pool_warmth *out)
{
    const struct template_pool *tpool = &p->tpool[t->number];
    const char *failed = tpool->warm_failed_version == t->warm_version ? tpool->warm_failed : "";
    *out = (struct pool_warmth){
        .n = tpool->warm_n, .bytes_each = tpool->warm_bytes, .failed = t->warm ? failed : ""};
    if (t->warm && failed[0] == '\0' && tpool->warm_n < tpool->ready_n && tpool->warm_bytes > 0 &&
        !has_room(tpool))
        out->failed = "quotas.warm_memory is used up, so some of its sandboxes are not warm";
}
