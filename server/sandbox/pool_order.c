// SPDX-License-Identifier: Apache-2.0
// See pool_private.h: sandboxes that are made for one request each. A disk is made with its sandbox and keeps its size (template.on_disk), so
// a request for another size than the template's can have no ready one.
//
//   request -> the queue of tpool (to_order), in which it takes its turn -> birth with its limits -> pool_serve()
//
// At most as many at a time as of a pool. One that fails fails its own request only.
#include "pool_private.h"

#include <errno.h>
#include <stdlib.h>

#include "server/base/log.h"
#include "server/base/server.h"
#include "server/base/stopping.h"

struct pool_order {
    struct template_pool *tpool;
    struct pool_request *request; // NULL: it was cancelled
};

bool
pool_is_to_order(const struct sandbox_spec *spec)
{
    const struct limits *has = &spec->template->limits;
    return spec->template->on_disk &&
           (spec->limits.v[LIMIT_DISK_BYTES] != has->v[LIMIT_DISK_BYTES] ||
            spec->limits.v[LIMIT_INODES] != has->v[LIMIT_INODES]);
}

void
pool_order_forget(struct pool_request *r)
{
    if (r->order != NULL)
        r->order->request = NULL;
    r->order = NULL;
}

// Whether the request can still have it.
static int
check(const struct template_pool *tpool, struct err *e)
{
    if (tpool->pool->stopped)
        return stopping_say(e, ERR_UNAVAILABLE);
    return tpool->template->has_root ? 0 : pool_say_removed(tpool->template, e);
}

static void
on_made(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct pool_order *o = cookie;
    struct template_pool *tpool = o->tpool;
    struct pool_request *r = o->request;
    struct err e = {.code = ERR_OK};
    free(o);
    tpool->making--;
    if (r != NULL)
        r->order = NULL;
    if (s != NULL) {
        s->maker = &pool_maker;
        s->maker_cookie = tpool;
    } else {
        e = *failed;
        log_err(LOG_WARNING, "pool", &e);
    }
    const bool fine = s != NULL && r != NULL && check(tpool, &e) == 0;
    if (fine)
        pool_serve(r, s);
    else if (r != NULL)
        pool_refuse(r, &e);
    if (!fine && s != NULL)
        pool_discard(s);
    pool_refill(tpool);
}

static const struct sandbox_maker maker = {.created = on_made};

// The first that may begin now.
struct next {
    struct template_pool *tpool;
    struct pool_request *request;
};

static bool
is_next(void *cookie, struct pool_entry *e)
{
    struct next *n = cookie;
    struct pool_request *r = pool_request_of(e);
    if (!pool_may_begin(n->tpool->pool, r->tenant))
        return false;
    n->request = r;
    return true;
}

static bool
is_this(void *cookie, struct pool_entry *e)
{
    return pool_request_of(e) == cookie;
}

static int
begin(struct template_pool *tpool, struct pool_request *r, struct err *e)
{
    struct pool_order *o = calloc(1, sizeof *o);
    if (o == NULL)
        return err_sys(e, ENOMEM, "create a sandbox");
    *o = (struct pool_order){tpool, r};
    int rc = sandbox_create(tpool->pool->all, tpool->template, &r->spec.limits, &maker, o, e);
    if (rc < 0) {
        free(o);
        return rc;
    }
    r->order = o;
    tpool->making++;
    pool_take(tpool, is_this, r);
    return 0;
}

void
pool_order_refill(struct template_pool *tpool)
{
    struct next next = {.tpool = tpool};
    struct err e;
    while (tpool->making < POOL_MAKING_MAX &&
           pool_queue_each_first(&tpool->waiting, is_next, &next)) {
        if (begin(tpool, next.request, &e) < 0) {
            pool_cannot_make(tpool, &e);
            return;
        }
    }
    if (tpool->waiting.n == 0)
        tpool->back_off_ms = 0;
}
