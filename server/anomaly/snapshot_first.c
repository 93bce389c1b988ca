// SPDX-License-Identifier: Apache-2.0
// Takes a snapshot of a sandbox before a response to a finding: it keeps the evidence.
//
//   finding -> snapshot (jobs are frozen while it is copied) -> of a kill: the sandbox is paused, the snapshot is kept -> response
//
// Nothing that a job does makes it last: the copy has a bound of bytes and of time, and all together a deadline. Then, or if it fails,
// the response follows without it. A finding of the rule reports which of both it was.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/kept.h"
#include "server/snapshot/snapshots.h"
#include "server/store/store.h"

enum {
    DEADLINE_MS = 10000,
    COPY_MS = 5000,
    COPY_BYTES = 256 << 20,
    OF_SANDBOX = 3,
    KEPT_OF_TENANT = 8,
    AT_A_TIME = 4,
    AT_A_TIME_OF_TENANT = 2,
};
#define NAME_BEGINS "finding-"
static const char kept_full[] = "the tenant keeps eight of them: remove some";

struct anomaly_snap {
    struct list node; // in all->snaps
    struct anomaly *all;
    struct loop_timer *timer;
    uint32_t slot, generation;
    char tenant[32];
    char rule[FINDING_RULE]; // whose response it is
    bool of_tenant;
    enum response what;
    char name[SNAPSHOT_NAME];
    struct snapshot_op *op; // one of both
    struct kept_op *kept;
    struct sandbox_waiter pause;
    uint32_t layer;
};

static struct anomaly_block *
block_of(const struct anomaly_snap *p)
{
    struct anomaly_block *b = p->all->block[p->slot];
    return b != NULL && b->generation == p->generation ? b : NULL;
}

static void
drop(struct anomaly_snap *p)
{
    struct anomaly_block *b = block_of(p);
    if (b != NULL && b->snap == p)
        b->snap = NULL;
    loop_timer_stop(&p->timer);
    if (p->op != NULL)
        snapshot_unwait(p->op);
    if (p->kept != NULL)
        kept_unwait(p->kept);
    list_remove(&p->pause.node);
    list_remove(&p->node);
    free(p);
}

static uint32_t
kept_of(struct store *store, const char *tenant)
{
    uint32_t n = 0;
    struct list *all = store != NULL ? store_records(store) : NULL;
    for (struct list *it = all != NULL ? all->next : NULL; it != NULL && it != all; it = it->next) {
        const struct stored *r = list_entry(it, struct stored, node);
        n += r->kind == STORE_SNAPSHOT && strcmp(r->tenant->name, tenant) == 0 &&
             strncmp(r->name, NAME_BEGINS, sizeof NAME_BEGINS - 1) == 0;
    }
    return n;
}

// A finding of the rule about the snapshot. why NULL: it was taken.
static void
report(const struct anomaly_snap *p, struct anomaly_block *b, struct sandbox *s, const char *why)
{
    struct anomaly *a = p->all;
    struct finding f = {.severity = why != NULL ? SEVERITY_WARNING : SEVERITY_NOTICE,
                        .response = RESPONSE_LOG,
                        .tenant_rule = p->of_tenant};
    const int tripwire = p->of_tenant ? -1 : anomaly_rule_find(p->rule);
    metrics_add(why != NULL ? METRIC_SNAPSHOTS_FIRST_FAILED : METRIC_SNAPSHOTS_FIRST, 1);
    memcpy(f.rule, p->rule, sizeof f.rule);
    if (why == NULL)
        (void)snprintf(f.text, sizeof f.text, "snapshot %s was taken%s before the response, %s",
                       p->name, p->what == RESPONSE_KILL ? ", and kept," : "",
                       finding_response_name(p->what));
    else
        (void)snprintf(f.text, sizeof f.text,
                       "no snapshot was taken before the response, %s: %.180s",
                       finding_response_name(p->what), why);
    a->sandbox = s;
    a->job = NULL;
    a->event_ns = 0;
    a->pid = 0;
    a->comm[0] = '\0';
    a->writing = true; // written rules do not see it
    anomaly_give(b, BOX_REPORT, tripwire >= 0 ? (uint32_t)tripwire : (uint32_t)ANOMALY_RULES, &f,
                 NULL);
    a->writing = false;
}

// The snapshot is done, or will not be: the response follows.
static void
finish(struct anomaly_snap *p, const char *why)
{
    struct anomaly_block *b = block_of(p);
    struct err e;
    struct sandbox *s =
        b != NULL ? sandbox_find(p->all->srv->sandboxes, b->tenant, b->sandbox_id, &e) : NULL;
    const enum response what = p->what;
    if (s != NULL && s->state != SANDBOX_DELETING)
        report(p, b, s, why);
    drop(p);
    if (b != NULL)
        anomaly_respond(b, what);
}

static void
on_late(void *cookie)
{
    finish(cookie, "it took more than 10 s");
}

static void
on_kept(void *cookie, struct stored *r, const struct err *e)
{
    struct anomaly_snap *p = cookie;
    (void)r;
    p->kept = NULL;
    finish(p, e != NULL ? e->text : NULL);
}

static void
keep(struct anomaly_snap *p, struct sandbox *s)
{
    const struct kept_want want = {.kind = STORE_SNAPSHOT, .id = "", .name = p->name};
    struct err e;
    if (kept_of(p->all->srv->store, p->tenant) >= KEPT_OF_TENANT)
        finish(p, kept_full);
    else if (kept_begin(s, p->layer, &want, on_kept, p, &p->kept, &e) < 0)
        finish(p, e.text);
}

// If it cannot be paused, it runs on while its files are written down.
static void
on_paused(void *cookie, struct sandbox *s, const struct err *e)
{
    if (e != NULL)
        log_err(LOG_INFO, "anomaly-response", e);
    if (s != NULL && s->state != SANDBOX_DELETING)
        keep(cookie, s);
    else
        finish(cookie, "the sandbox is gone");
}

// Its files are safe; while they are written down, the sandbox rests.
static void
rest(struct anomaly_snap *p, struct sandbox *s, uint32_t layer)
{
    struct err e;
    p->layer = layer;
    p->pause.done = on_paused;
    p->pause.cookie = p;
    if (s->state == SANDBOX_PAUSED || sandbox_pause(s, &p->pause, &e) != 0)
        keep(p, s);
}

static void
on_made(void *cookie, struct sandbox *s, const struct snapshot *made, const struct err *e)
{
    struct anomaly_snap *p = cookie;
    p->op = NULL;
    if (e != NULL || made == NULL)
        finish(p, e != NULL ? e->text : "the sandbox is gone");
    else if (p->what == RESPONSE_KILL)
        rest(p, s, made->layer);
    else
        finish(p, NULL);
}

// ---- bounds

// NULL: there may be another one.
static const char *
refusal(const struct anomaly_block *b, enum response what, struct err *e)
{
    struct anomaly *a = b->all;
    uint32_t all = 0, own = 0;
    list_each(it, &a->snaps)
    {
        all++;
        own += strcmp(list_entry(it, struct anomaly_snap, node)->tenant, b->tenant) == 0;
    }
    if (b->snaps > OF_SANDBOX)
        return "the sandbox has had three of them";
    if (all > AT_A_TIME || own > AT_A_TIME_OF_TENANT)
        return "too many are being taken";
    if (what != RESPONSE_KILL)
        return NULL;
    if (store_available(a->srv->store, e) < 0)
        return e->text;
    return kept_of(a->srv->store, b->tenant) >= KEPT_OF_TENANT ? kept_full : NULL;
}

// ---- for act.c

static struct anomaly_snap *
snap_new(struct anomaly_block *b, const struct sandbox *s, enum response what)
{
    struct anomaly *a = b->all;
    struct anomaly_snap *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    *p = (struct anomaly_snap){.all = a,
                               .slot = s->slot,
                               .generation = s->generation,
                               .of_tenant = b->act_of_tenant,
                               .what = what};
    memcpy(p->tenant, b->tenant, sizeof p->tenant);
    memcpy(p->rule, b->act_rule, sizeof p->rule);
    (void)snprintf(p->name, sizeof p->name, NAME_BEGINS "%016" PRIx64,
                   (uint64_t)now_ns(CLOCK_REALTIME));
    list_init(&p->pause.node);
    list_append(&a->snaps, &p->node);
    b->snap = p;
    return p;
}

// A response that wants no snapshot does not wait; one that does joins the one in progress.
static bool
join(struct anomaly_block *b, enum response what, bool first)
{
    if (!first) {
        if (what >= b->snap->what)
            drop(b->snap);
        return false;
    }
    if (what > b->snap->what)
        b->snap->what = what;
    return true;
}

bool
anomaly_snap_begin(struct anomaly_block *b, struct sandbox *s, enum response what, bool first)
{
    const struct while_jobs_run how = {
        .copy = s->jobs_n > 0, .bytes_max = COPY_BYTES, .ms_max = COPY_MS};
    struct err e;
    if (b->snap != NULL)
        return join(b, what, first);
    struct anomaly_snap *p = first ? snap_new(b, s, what) : NULL;
    if (p == NULL)
        return false;
    b->snaps++;
    const char *why = refusal(b, what, &e);
    if (why == NULL && loop_timer_start(b->all->srv->loop, &p->timer, DEADLINE_MS, on_late, p) < 0)
        why = "out of memory";
    if (why == NULL && snapshots_create(s, p->name, &how, on_made, p, &p->op, &e) < 0)
        why = e.text;
    if (why == NULL)
        return true;
    report(p, b, s, why);
    drop(p);
    return false;
}

void
anomaly_snaps_end(struct anomaly *a)
{
    for (struct list *it = a->snaps.next, *next; it != &a->snaps; it = next) {
        next = it->next;
        drop(list_entry(it, struct anomaly_snap, node));
    }
}
