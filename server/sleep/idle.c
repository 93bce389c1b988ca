// SPDX-License-Identifier: Apache-2.0
// See sleepers_private.h: when a sandbox was used last. A tick looks at those that fall asleep by themselves, and at those that are asleep and
// whose time to live has ended.
#include <stdlib.h>
#include <uv.h>

#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/code/context.h"
#include "server/code/live.h"
#include "server/files/files.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/snapshots.h"
#include "server/snapshot/transaction.h"
#include "sleepers_private.h"

enum { TICK_MS = 250 };
#define MS UINT64_C(1000000)

struct nap *
nap_of(struct sleepers *all, struct sandbox *s)
{
    if (s->nap != NULL || (s->nap = calloc(1, sizeof *s->nap)) == NULL)
        return s->nap;
    list_init(&s->nap->node);
    s->nap->box = s;
    s->nap->used_ns = uv_hrtime();
    if (s->spec.sleep_after_ms != 0)
        list_append(&all->naps, &s->nap->node);
    return s->nap;
}

void
nap_free(struct sandbox *s)
{
    if (s->nap != NULL)
        list_remove(&s->nap->node);
    free(s->nap);
    s->nap = NULL;
}

void
nap_used(struct sandbox *s)
{
    if (s->nap != NULL)
        s->nap->used_ns = uv_hrtime();
}

struct counting {
    uint32_t interpreters, contexts, checkpoints;
    bool busy;
};

static void
count_context(void *cookie, const struct context *c)
{
    struct counting *n = cookie;
    struct context_view v;
    context_view(c, &v);
    n->contexts += v.state != CONTEXT_DOWN;
    n->interpreters += v.process_id[0] != '\0';
    n->busy = n->busy || v.state == CONTEXT_STARTING || v.state == CONTEXT_BUSY || v.waiting > 0;
}

static void
count_checkpoint(void *cookie, const struct checkpoint *p)
{
    struct counting *n = cookie;
    struct checkpoint_view v;
    checkpoint_view(p, &v);
    n->checkpoints += v.lost[0] == '\0';
}

bool
idle_count(const struct sleepers *all, const struct sandbox *s, struct sleep_facts *f)
{
    struct counting n = {0};
    contexts_each(all->srv->contexts, s, count_context, &n);
    f->contexts = n.contexts;
    live_each(all->srv->contexts, s, count_checkpoint, &n); // their state was kept on purpose
    f->processes = n.checkpoints + (s->jobs_n > n.interpreters ? s->jobs_n - n.interpreters : 0);
    f->connections = forwards_of(all->srv->forwards, s);
    return n.busy || f->processes > 0;
}

static bool
is_idle(const struct sleepers *all, const struct sandbox *s)
{
    struct sleep_facts f = {0};
    return s->state == SANDBOX_RUNNING && s->simulation == NULL && !idle_count(all, s, &f) &&
           f.connections == 0 && files_of(all->srv->files, s) == 0 && !snapshots_busy(s) &&
           transactions_open(all->srv->transactions, s) == 0;
}

static void
look(struct sleepers *all, struct nap *n, uint64_t now_ns)
{
    struct err e;
    struct sandbox *s = n->box;
    if (n->fall != NULL || s->state == SANDBOX_DELETING ||
        now_ns - n->used_ns < s->spec.sleep_after_ms * MS)
        return;
    if (!is_idle(all, s)) {
        n->used_ns = now_ns;
        return;
    }
    if (fall_begin(all, s, false, true, &e) == 0)
        return;
    n->used_ns = now_ns; // again after that time
    if (!n->failed)
        log_err_about(LOG_WARNING, "sleep",
                      &(struct log_about){.sandbox = s->id.id, .tenant = s->tenant->name}, &e);
    n->failed = true;
}

static bool
expire_one(struct sleepers *all, int64_t now_ms)
{
    list_each(it, &all->list)
    {
        struct sleeper *sl = list_entry(it, struct sleeper, node);
        if (sl->state != SLEEPER_ASLEEP || sl->expires_ms == 0 || sl->expires_ms > now_ms)
            continue;
        log_event_about(LOG_INFO, "sandbox-expired",
                        &(struct log_about){.sandbox = sl->id.id, .tenant = sl->tenant}, "%s",
                        sl->id.id);
        sleeper_remove(sl);
        return true;
    }
    return false;
}

static bool
is_needed(const struct sleepers *all)
{
    for (const struct list *it = all->list.next; it != &all->list; it = it->next)
        if (list_entry((struct list *)(uintptr_t)it, struct sleeper, node)->expires_ms != 0)
            return true;
    return all->naps.next != &all->naps;
}

static void
on_tick(void *cookie)
{
    struct sleepers *all = cookie;
    const uint64_t now_ns = uv_hrtime();
    while (expire_one(all, now_wall_ms())) {
    }
    list_each(it, &all->naps) look(all, list_entry(it, struct nap, node), now_ns);
    loop_timer_stop(&all->tick);
    if (is_needed(all))
        idle_tick_start(all);
}

void
idle_tick_start(struct sleepers *all)
{
    if (all->tick == NULL && !all->stopped)
        (void)loop_timer_start(all->srv->loop, &all->tick, TICK_MS, on_tick, all);
}
