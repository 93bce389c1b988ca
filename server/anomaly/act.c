// SPDX-License-Identifier: Apache-2.0
// Carries out the response to a finding: throttle, pause or kill. The finding has been logged and published before.
//
// A sandbox is looked up again by its id, because its owner may have deleted it since the finding.
#include <errno.h>
#include <stdlib.h>

#include "private.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/policy/network.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"

static const uint64_t throttle_part = 10; // a throttled sandbox keeps a tenth of its CPU quota

struct act {
    struct sandbox_waiter waiter;
    struct anomaly *all;
    uint32_t slot, generation; // of the sandbox
    enum response what;
};

static struct anomaly_block *
block_of(const struct act *one)
{
    struct anomaly_block *b = one->all->block[one->slot];
    return b != NULL && b->generation == one->generation ? b : NULL;
}

static bool *
pending_of(struct anomaly_block *b, enum response what)
{
    if (what == RESPONSE_DENY_NETWORK)
        return &b->denying;
    return what == RESPONSE_PAUSE ? &b->pausing : &b->throttling;
}

static void
on_done(void *cookie, struct sandbox *s, const struct err *e)
{
    struct act *one = cookie;
    struct anomaly_block *b = block_of(one);
    bool throttled = one->what == RESPONSE_THROTTLE && e == NULL;
    if (e != NULL) {
        metrics_add_by(METRIC_RESPONSES_FAILED, one->what, 0, 1);
        log_err(LOG_WARNING, "anomaly-response", e);
    }
    (void)s;
    if (b != NULL) {
        b->throttled = b->throttled || throttled;
        *pending_of(b, one->what) = false;
    }
    free(one);
}

static int
throttle(struct act *one, struct sandbox *s, struct err *e)
{
    struct limits limits = s->spec.limits;
    uint64_t *cpu = &limits.v[LIMIT_CPU_MILLIS];
    uint64_t least = limit_table[LIMIT_CPU_MILLIS].min;
    *cpu = *cpu / throttle_part > least ? *cpu / throttle_part : least;
    return sandbox_limit(s, &limits, &one->waiter, e);
}

// A policy that allows nothing; of a sandbox whose network is off already there is nothing to deny.
static int
deny_network(struct act *one, struct sandbox *s, struct err *e)
{
    struct network *none = network_new();
    if (none == NULL)
        return err_sys(e, ENOMEM, "deny the network");
    const int r = sandbox_network(s, none, &one->waiter, e);
    network_unref(none);
    return r;
}

// Removes the whole sandbox, not only the job, because an attack may have left other processes behind.
static void
kill_it(const struct anomaly_block *b, struct sandbox *s)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "stopped by %s", b->why);
    sandbox_destroy(s, &e, NULL);
}

// A finding that persists requests its response again and again. True: the response is in effect or under way.
static bool
is_done(const struct anomaly_block *b, const struct sandbox *s, enum response what)
{
    if (what == RESPONSE_DENY_NETWORK)
        return b->denying || s->net.in_force == NULL || !network_leads_out(s->net.in_force);
    if (what == RESPONSE_THROTTLE)
        return b->throttled || b->throttling;
    return what == RESPONSE_PAUSE && (b->pausing || s->state == SANDBOX_PAUSED);
}

// Pause, throttle or deny the network: requests it from the spawner.
static void
ask(struct anomaly_block *b, struct sandbox *s, enum response what)
{
    struct err e;
    bool *asked = pending_of(b, what);
    struct act *one = calloc(1, sizeof *one);
    if (one == NULL) {
        (void)err_sys(&e, ENOMEM, "%s sandbox %s", finding_response_name(what), b->sandbox_id);
        metrics_add_by(METRIC_RESPONSES_FAILED, what, 0, 1);
        log_err(LOG_ERROR, "anomaly-response", &e);
        return;
    }
    *one = (struct act){.all = b->all, .slot = s->slot, .generation = s->generation, .what = what};
    list_init(&one->waiter.node);
    one->waiter.done = on_done;
    one->waiter.cookie = one;
    *asked = true;
    int r = what == RESPONSE_PAUSE          ? sandbox_pause(s, &one->waiter, &e)
            : what == RESPONSE_DENY_NETWORK ? deny_network(one, s, &e)
                                            : throttle(one, s, &e);
    if (r == 0)
        return;
    if (r > 0) {
        on_done(one, s, NULL);
        return;
    }
    metrics_add_by(METRIC_RESPONSES_FAILED, what, 0, 1);
    log_err(LOG_WARNING, "anomaly-response", &e);
    *asked = false;
    free(one);
}

// first: a snapshot is taken before it.
static void
act_on(struct anomaly_block *b, enum response what, bool first)
{
    struct server *srv = b->all->srv;
    struct err e;
    struct sandbox *s = sandbox_find(srv->sandboxes, b->tenant, b->sandbox_id, &e);
    if (s == NULL || s->state == SANDBOX_DELETING) {
        log_event(LOG_INFO, "anomaly-response", "sandbox %s ended before the response: %s",
                  b->sandbox_id, b->why);
        return;
    }
    if (is_done(b, s, what) ||
        (what != RESPONSE_DENY_NETWORK && anomaly_snap_begin(b, s, what, first)))
        return;
    const struct log_about about = {.sandbox = b->sandbox_id, .tenant = b->tenant};
    log_event_about(LOG_WARNING, "anomaly-response", &about, "%s sandbox %s: %s",
                    finding_response_name(what), b->sandbox_id, b->why);
    metrics_add_by(METRIC_RESPONSES, what, 0, 1);
    if (what == RESPONSE_KILL) {
        kill_it(b, s);
        return;
    }
    ask(b, s, what);
}

void
anomaly_respond(struct anomaly_block *b, enum response what)
{
    act_on(b, what, false);
}

void
anomaly_act(struct anomaly *a)
{
    while (!list_empty(&a->acting)) {
        struct anomaly_block *b = list_entry(a->acting.next, struct anomaly_block, acting);
        enum response what = b->act;
        const bool deny = b->deny_network;
        list_remove(&b->acting);
        b->act = 0;
        b->deny_network = false;
        // First: a sandbox that is removed has no network to deny.
        if (deny)
            act_on(b, RESPONSE_DENY_NETWORK, false);
        if (what != 0)
            act_on(b, what, b->first);
    }
}
