// SPDX-License-Identifier: Apache-2.0
// See pool_private.h: changes limits and network of a ready sandbox to those of a request, and then gives it to the
// request.
#include "pool_private.h"

#include "server/base/metrics.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

static void
request_free(struct pool_request *r)
{
    *r->name = NULL;
    pool_order_forget(r);
    loop_timer_stop(&r->too_long);
    sandbox_spec_clear(&r->spec);
    free(r);
}

void
pool_refuse(struct pool_request *r, const struct err *e)
{
    void (*done)(void *, struct sandbox *, const struct err *) = r->done;
    void *cookie = r->cookie;
    metrics_add(METRIC_POOL_FAILED, 1);
    sandbox_release(r->tenant, &r->spec.limits);
    request_free(r);
    done(cookie, NULL, e);
}

static void
hand_over(struct pool_request *r, struct sandbox *s)
{
    void (*done)(void *, struct sandbox *, const struct err *) = r->done;
    void *cookie = r->cookie;
    request_free(r);
    done(cookie, s, NULL);
}

static void
refuse_taken(struct pool_request *r, struct sandbox *s, const struct err *e)
{
    struct err why = *e;
    void (*done)(void *, struct sandbox *, const struct err *) = r->done;
    void *cookie = r->cookie;
    metrics_add(METRIC_POOL_FAILED, 1);
    request_free(r);
    if (s != NULL) {
        (void)err_wrap(&why, "template %s", s->spec.image->name);
        sandbox_destroy(s, &why, NULL);
    }
    done(cookie, NULL, &why);
}

static void
on_files(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct pool_request *r = cookie;
    r->sandbox = NULL;
    if (failed != NULL)
        refuse_taken(r, s, failed);
    else
        hand_over(r, s);
}

// The last step for a template that was made from work.
static void
give_files(struct pool_request *r, struct sandbox *s, struct image *image)
{
    struct err e;
    if (image->begin(image, s, on_files, r, &r->laying, &e) == 0)
        r->sandbox = s;
    else
        refuse_taken(r, s, &e);
}

// Its template may have been replaced while it waited.
static void
renew_image(struct sandbox_spec *spec)
{
    struct image *now =
        spec->image->current != NULL ? spec->image->current(spec->image) : spec->image;
    if (now == NULL || now == spec->image) // NULL: its begin() says so
        return;
    image_unref(spec->image);
    spec->image = image_ref(now);
}

static void
give(struct pool_request *r, struct sandbox *s)
{
    struct err e;
    if (sandbox_check_name(r->tpool->pool->all, r->tenant->name, r->spec.name, &e) < 0) {
        sandbox_destroy(s, &e, NULL);
        pool_refuse(r, &e);
        return;
    }
    metrics_observe(METRIC_POOL_WAIT, 0, uv_hrtime() - r->since_ns);
    if (r->spec.image != NULL && !r->spec.has_files)
        renew_image(&r->spec);
    struct image *image = r->spec.has_files ? NULL : r->spec.image;
    sandbox_take(s, r->tenant, &r->spec);
    r->taken = true;
    if (image == NULL)
        hand_over(r, s);
    else
        give_files(r, s, image);
}

// Its sandbox could not be changed as requested.
static void
fail_with_sandbox(struct pool_request *r, struct sandbox *s, const struct err *e)
{
    struct err why = *e;
    pool_refuse(r, &why);
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

// Sets its network, the last step before it is given to the request.
static void
connect_it(struct pool_request *r, struct sandbox *s)
{
    struct err e;
    r->waiter = (struct sandbox_waiter){.done = on_networked, .cookie = r};
    sandbox_simulate(s, r->spec.simulation);
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
on_mounted(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pool_request *r = cookie;
    r->sandbox = NULL;
    if (e == NULL)
        connect_it(r, s);
    else
        fail_with_sandbox(r, s, e);
}

// Its volumes. The waiter may be called before this returns.
static void
mount_it(struct pool_request *r, struct sandbox *s)
{
    struct err e;
    r->waiter = (struct sandbox_waiter){.done = on_mounted, .cookie = r};
    if (r->spec.mounts == NULL) {
        connect_it(r, s);
        return;
    }
    r->sandbox = s;
    if (sandbox_mount(s, r->spec.mounts, &r->waiter, &e) < 0) {
        r->sandbox = NULL;
        fail_with_sandbox(r, s, &e);
    }
}

static void
on_limited(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pool_request *r = cookie;
    r->sandbox = NULL;
    if (e == NULL)
        mount_it(r, s);
    else
        fail_with_sandbox(r, s, e);
}

void
pool_serve(struct pool_request *r, struct sandbox *s)
{
    struct spawn_limits have;
    struct spawn_limits want;
    const uint64_t now_ns = uv_hrtime();
    share_begin(&s->share, r->tenant, now_ns);
    pace_seen(r->tenant, now_ns);
    pace_begin(&s->young, r->tenant, r->tpool->pool->processors, now_ns);
    share_limits(&s->spec.limits, false, &have);
    share_limits(&r->spec.limits, s->share.computes, &want);
    if (memcmp(&have, &want, sizeof have) == 0) {
        mount_it(r, s);
        return;
    }
    struct err e;
    r->waiter = (struct sandbox_waiter){.done = on_limited, .cookie = r};
    if (sandbox_limit(s, &r->spec.limits, &r->waiter, &e) == 0)
        r->sandbox = s;
    else
        fail_with_sandbox(r, s, &e);
}

void
pool_cancel(struct pool_request *r)
{
    struct sandbox *s = r->sandbox;
    if (!r->taken)
        sandbox_release(r->tenant, &r->spec.limits);
    if (s != NULL) {
        struct err e;
        (void)err_set(&e, ERR_CANCELLED, "it is not needed any more");
        if (r->taken)
            s->spec.image->unwait(r->laying);
        else
            sandbox_unwait(&r->waiter);
        sandbox_destroy(s, &e, NULL);
    } else {
        pool_unqueue(r);
    }
    request_free(r);
}
