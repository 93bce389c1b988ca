// What is done about a finding: throttle, pause, kill. Logging and telling have happened already.
//
// A sandbox is looked up again by its id: between a finding and this, its owner may have deleted it.
#include <stdlib.h>

#include "anomaly_private.h"
#include "log.h"
#include "sandbox.h"
#include "server.h"

static const uint64_t throttle_part = 10; // a throttled sandbox keeps this part of its CPU quota

struct act {
    struct sandbox_waiter waiter;
    struct anomaly *all;
    uint32_t slot, generation; // of the sandbox
};

static struct anomaly_block *
block_of(const struct act *one)
{
    struct anomaly_block *b = one->all->block[one->slot];
    return b != NULL && b->generation == one->generation ? b : NULL;
}

static void
on_done(void *cookie, struct sandbox *s, const struct err *e)
{
    struct act *one = cookie;
    (void)s;
    if (e != NULL)
        log_err(LOG_WARNING, "anomaly-response", e);
    if (block_of(one) != NULL)
        block_of(one)->pausing = false;
    free(one);
}

static int
throttle(struct anomaly_block *b, struct sandbox *s, struct sandbox_waiter *w, struct err *e)
{
    struct limits limits = s->spec.limits;
    uint64_t *cpu = &limits.v[LIMIT_CPU_MILLIS];
    uint64_t least = limit_table[LIMIT_CPU_MILLIS].min;
    *cpu = *cpu / throttle_part > least ? *cpu / throttle_part : least;
    int r = sandbox_limit(s, &limits, w, e);
    if (r == 0) {
        s->spec.limits = limits;
        b->throttled = true;
    }
    return r;
}

// Everything of the sandbox goes, not the job alone: what attacks may have left others behind in it.
static void
kill_it(const struct anomaly_block *b, struct sandbox *s)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "stopped by %s", b->why);
    sandbox_destroy(s, &e, NULL);
}

// What goes on is answered again and again; the answer may still hold, or be on its way.
static bool
is_done(const struct anomaly_block *b, const struct sandbox *s, enum anomaly_response what)
{
    if (what == RESPONSE_THROTTLE)
        return b->throttled;
    return what == RESPONSE_PAUSE && (b->pausing || s->state == SANDBOX_PAUSED);
}

static void
act_on(struct anomaly_block *b, enum anomaly_response what)
{
    struct server *srv = b->all->srv;
    struct err e;
    struct sandbox *s = sandbox_find(srv->sandboxes, b->tenant, b->sandbox_id, &e);
    if (s == NULL || s->state == SANDBOX_DELETING || is_done(b, s, what))
        return;
    log_event(LOG_WARNING, "anomaly-response", "%s sandbox %s: %s", anomaly_response_name(what),
              b->sandbox_id, b->why);
    if (what == RESPONSE_KILL) {
        kill_it(b, s);
        return;
    }
    struct act *one = calloc(1, sizeof *one);
    if (one == NULL)
        return;
    list_init(&one->waiter.node);
    one->waiter.done = on_done;
    one->waiter.cookie = one;
    one->all = b->all;
    one->slot = s->slot;
    one->generation = s->generation;
    b->pausing = what == RESPONSE_PAUSE;
    int r = what == RESPONSE_PAUSE ? sandbox_pause(s, &one->waiter, &e)
                                   : throttle(b, s, &one->waiter, &e);
    if (r < 0) {
        log_err(LOG_WARNING, "anomaly-response", &e);
        b->pausing = false;
        free(one);
    }
}

void
anomaly_act(struct anomaly *a)
{
    while (!list_empty(&a->acting)) {
        struct anomaly_block *b = list_entry(a->acting.next, struct anomaly_block, acting);
        enum anomaly_response what = b->act;
        list_remove(&b->acting);
        b->act = 0;
        act_on(b, what);
    }
}
