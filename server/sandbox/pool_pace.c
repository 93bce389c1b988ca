// SPDX-License-Identifier: Apache-2.0
// See pool_private.h and pace.h: requests of tenants that begin as many sandboxes at a time as they may. They wait in the queue with all
// others, and are tried again when one of their young sandboxes ends or is not young any more.
#include "pool_private.h"

#include <unistd.h>

#include "server/base/server.h"

#define NS_PER_MS UINT64_C(1000000)

uint32_t
pool_processors(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (uint32_t)n : 1;
}

static void
on_pace(void *cookie)
{
    struct pool *p = cookie;
    loop_timer_stop(&p->pace);
    for (uint32_t i = 0; i < p->tpools_n && !p->stopped; i++) {
        if (p->tpool[i].waiting.n == 0)
            continue;
        pool_serve_ready(&p->tpool[i]);
        pool_refill(&p->tpool[i]);
    }
}

// Without memory for the timer the request is tried again with the next sandbox.
bool
pool_may_begin(struct pool *p, struct tenant *t)
{
    const uint64_t now_ns = uv_hrtime();
    uint64_t again_ns = 0;
    if (t != NULL && !sandbox_may_follow(t))
        return false; // pool_has_left() follows
    if (t == NULL || pace_may(t, p->processors, now_ns, &again_ns))
        return true;
    if (p->pace == NULL)
        (void)loop_timer_start(p->srv->loop, &p->pace, (again_ns - now_ns) / NS_PER_MS + 1, on_pace,
                               p);
    return false;
}

bool
pool_is_behind(const struct template_pool *tpool, const struct tenant *t)
{
    return t != NULL && tpool->pool->pace != NULL && pool_queue_of(&tpool->waiting, t) > 0;
}

void
pool_has_room(struct pool *p)
{
    if (p->pace != NULL && !p->stopped)
        (void)loop_timer_start(p->srv->loop, &p->pace, 0, on_pace, p);
}

void
pool_has_left(struct pool *p)
{
    if (p->waiting_n > 0 && !p->stopped)
        (void)loop_timer_start(p->srv->loop, &p->pace, 0, on_pace, p);
}

static bool
may_begin(void *cookie, struct pool_entry *e)
{
    const struct template_pool *tpool = cookie;
    return pool_may_begin(tpool->pool, pool_request_of(e)->tenant);
}

bool
pool_is_wanted(struct template_pool *tpool)
{
    return tpool->waiting.n > 0 && pool_queue_each_first(&tpool->waiting, may_begin, tpool);
}
