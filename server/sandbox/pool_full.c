// SPDX-License-Identifier: Apache-2.0
// See pool_private.h: a queue that is full, and what is said about a template that is gone.
#include "proto/plural.h"
#include "pool_private.h"

#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"

enum { RETRY_MIN_MS = 100, RETRY_MAX_MS = 10 * 1000 };

// The oldest request has waited for about as long as the whole queue takes.
int
pool_say_full(struct pool *p, struct err *e)
{
    const uint64_t ms = pool_oldest_wait_ns(p) / 1000000;
    if (p->stopped)
        return stopping_say(e, ERR_UNAVAILABLE);
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s for a sandbox", p->waiting_n,
                    plural(p->waiting_n, "request already waits", "requests already wait"));
    err_detail(e, "QUEUE_FULL", "quotas.queue", "try again later");
    e->retry_ms = ms < RETRY_MIN_MS   ? RETRY_MIN_MS
                  : ms > RETRY_MAX_MS ? RETRY_MAX_MS
                                      : (uint32_t)ms;
    metrics_add(METRIC_POOL_FULL, 1);
    return r;
}

int
pool_say_removed(const struct template *t, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "the template %s was removed or disabled", t->name);
}

bool
pool_make_room(struct pool *p, const char *tenant)
{
    const struct tenant *t = tenant_find(p->srv->tenants, tenant);
    struct template_pool *of = NULL;
    struct pool_line *longest = NULL;
    uint32_t has = 0;
    struct err e;
    if (p->waiting_n < sandboxes_settings(p->all)->quotas.queue)
        return true;
    for (uint32_t i = 0; i < p->tpools_n; i++) {
        struct pool_line *line = pool_queue_longest(&p->tpool[i].waiting);
        has += t != NULL ? pool_queue_of(&p->tpool[i].waiting, t) : 0;
        if (line == NULL || (longest != NULL && line->n <= longest->n))
            continue;
        longest = line;
        of = &p->tpool[i];
    }
    if (of == NULL || longest->n <= has + 1)
        return false;
    struct pool_request *r = pool_request_of(pool_line_last(longest));
    (void)pool_say_full(p, &e);
    pool_unqueue(r);
    pool_refuse(r, &e);
    return true;
}
