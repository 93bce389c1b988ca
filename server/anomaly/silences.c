// SPDX-License-Identifier: Apache-2.0
// See silences.h: what is in force, and how it changes.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/state/state.h"
#include "silences_private.h"

static const int64_t ttl_max_ms = (int64_t)SILENCE_TTL_MAX_S * 1000;

void
silences_add(struct silences *all, struct silence *s)
{
    s->order = ++all->order;
    list_append(&all->silences, &s->node);
    metrics_set(METRIC_SILENCES, 0, all->silences_n);
}

void
silences_remove(struct silences *all, struct silence *s)
{
    list_remove(&s->node);
    all->silences_n--;
    metrics_set(METRIC_SILENCES, 0, all->silences_n);
    free(s);
}

struct silence *
silences_find(const struct silences *all, const char *id)
{
    for (struct list *it = all->silences.next; it != &all->silences; it = it->next) {
        struct silence *s = list_entry(it, struct silence, node);
        if (strcmp(s->id, id) == 0)
            return s;
    }
    return NULL;
}

static bool
has_expired(const struct silence *s)
{
    return now_wall_ms() >= s->expires_ms || (uint64_t)now_ns(CLOCK_BOOTTIME) >= s->until_ns;
}

static void
remove_expired(struct silences *all)
{
    list_each(it, &all->silences)
    {
        struct silence *s = list_entry(it, struct silence, node);
        if (!has_expired(s))
            continue;
        log_event(LOG_INFO, "anomaly", "silence %s of rule %s has expired", s->id, s->rule);
        silences_forget(all, s->id);
        silences_remove(all, s);
    }
}

const struct silence *
silences_next(struct silences *all, const struct silence *after)
{
    if (after == NULL)
        remove_expired(all);
    struct list *next = after != NULL ? after->node.next : all->silences.next;
    return next != &all->silences ? list_entry(next, struct silence, node) : NULL;
}

void
silences_forget_tenant(struct silences *all, const char *tenant)
{
    list_each(it, &all->silences)
    {
        struct silence *s = list_entry(it, struct silence, node);
        if (strcmp(state_sealing_tenant(s->tenant), tenant) != 0)
            continue;
        log_event(LOG_WARNING, "anomaly", "silence %s of rule %s has gone with its data key", s->id,
                  s->rule);
        silences_remove(all, s);
    }
    list_each(it, &all->acknowledged)
    {
        struct acknowledged *a = list_entry(it, struct acknowledged, node);
        if (strcmp(a->tenant, tenant) == 0)
            acknowledged_remove(all, a);
    }
}

// ---- findings

static bool
concerns(const struct silence *s, const struct finding *f)
{
    return strcmp(s->rule, f->rule) == 0 &&
           (strcmp(s->tenant, "*") == 0 || strcmp(s->tenant, f->tenant) == 0) &&
           (s->sandbox_id[0] == '\0' || strcmp(s->sandbox_id, f->sandbox_id) == 0) &&
           (s->template[0] == '\0' || strcmp(s->template, f->template) == 0) &&
           (s->comm[0] == '\0' || strcmp(s->comm, f->comm) == 0) && !has_expired(s);
}

void
silences_apply(struct silences *all, struct finding *f, bool report)
{
    for (struct list *it = all != NULL ? all->silences.next : NULL;
         it != NULL && it != &all->silences; it = it->next) {
        struct silence *s = list_entry(it, struct silence, node);
        if (!concerns(s, f))
            continue;
        const bool may = s->by_host || f->tenant_rule;
        s->matched += report;
        if (f->silence[0] == '\0' || (may && !f->silenced))
            memcpy(f->silence, s->id, sizeof f->silence);
        f->silenced = f->silenced || may;
        if (may && (f->response == RESPONSE_ALERT || s->response))
            f->response = RESPONSE_LOG;
    }
}

// ---- changes

static int
full(struct err *e, const char *reason, const char *what, int most)
{
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "there are %d %s already", most, what);
    err_detail(e, reason, NULL, "delete some that are no longer needed");
    return -ENOSPC;
}

static struct silences_op *
op_new(struct silences *all, const struct silences_call *call, struct err *e)
{
    struct silences_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        (void)err_sys(e, ENOMEM, "change silences");
        return NULL;
    }
    op->all = all;
    list_append(&all->writing, &op->node);
    op->done = call->done;
    op->cookie = call->cookie;
    return op;
}

static void
op_free(struct silences_op *op)
{
    list_remove(&op->node);
    free(op->silence);
    acknowledged_free(op->acknowledged);
    free(op);
}

static int
begin(struct silences_op *op, const struct silences_call *call, struct err *e)
{
    int r = silences_write(op, e);
    if (r < 0) {
        if (op->silence != NULL)
            op->all->silences_n--;
        op_free(op);
        return r;
    }
    *call->op = op;
    return 0;
}

// Those that the tenant made, with those that are being written.
static uint32_t
count_of(const struct silences *all, const char *tenant)
{
    uint32_t n = 0;
    for (struct list *it = all->silences.next; it != &all->silences; it = it->next) {
        const struct silence *s = list_entry(it, struct silence, node);
        n += !s->by_host && strcmp(s->tenant, tenant) == 0;
    }
    for (struct list *it = all->writing.next; it != &all->writing; it = it->next) {
        const struct silence *s = list_entry(it, struct silences_op, node)->silence;
        n += s != NULL && !s->by_host && strcmp(s->tenant, tenant) == 0;
    }
    return n;
}

int
silence_create(struct silences *all, const struct silence *want, const struct silences_call *call,
               struct err *e)
{
    remove_expired(all);
    if (!want->by_host && count_of(all, want->tenant) >= SILENCES_TENANT_MAX)
        return full(e, "SILENCES_OF_TENANT", "silences of the tenant", SILENCES_TENANT_MAX);
    const int most = want->by_host ? SILENCES_MAX : SILENCES_MAX / 4 * 3;
    if (all->silences_n >= (uint32_t)most)
        return full(e, "SILENCES", "silences", most);
    struct silences_op *op = op_new(all, call, e);
    struct silence *s = op != NULL ? calloc(1, sizeof *s) : NULL;
    if (s == NULL) {
        if (op != NULL)
            op_free(op);
        return err_sys(e, ENOMEM, "change silences");
    }
    uint8_t number[(FINDING_SILENCE - 1) / 2];
    int64_t ttl = want->expires_ms - want->created_ms;
    ttl = ttl > ttl_max_ms ? ttl_max_ms : ttl;
    *s = *want;
    randombytes_buf(number, sizeof number);
    (void)sodium_bin2hex(s->id, sizeof s->id, number, sizeof number);
    s->created_ms = now_wall_ms();
    s->expires_ms = s->created_ms + ttl;
    s->until_ns = (uint64_t)now_ns(CLOCK_BOOTTIME) + (uint64_t)ttl * 1000000;
    op->silence = s;
    all->silences_n++;
    return begin(op, call, e);
}

static int
no_silence(struct err *e, const char *id)
{
    (void)err_set(e, ERR_NOT_FOUND, "there is no silence %.16s", id);
    err_detail(e, "", "silence_id", "'stockade anomalies silences' lists them");
    return -ENOENT;
}

int
silence_delete(struct silences *all, const char *tenant, bool host, const char *id,
               const struct silences_call *call, struct err *e)
{
    remove_expired(all);
    const struct silence *s = silences_find(all, id);
    if (s == NULL || (tenant != NULL && strcmp(s->tenant, tenant) != 0))
        return no_silence(e, id);
    if (s->by_host && !host) {
        (void)err_set(e, ERR_PERMISSION_DENIED, "silence %s was made by the host", s->id);
        err_detail(e, "HOST_SILENCE", s->id, "ask the host's operator");
        return -EPERM;
    }
    struct silences_op *op = op_new(all, call, e);
    if (op == NULL)
        return err_errno(e);
    memcpy(op->removed, s->id, sizeof op->removed);
    return begin(op, call, e);
}

static struct acknowledged *
acknowledged_copy(const struct acknowledged *of)
{
    struct acknowledged *a = malloc(sizeof *a);
    uint8_t *finding = malloc(of->finding_n + 1);
    if (a == NULL || finding == NULL) {
        free(a);
        free(finding);
        return NULL;
    }
    *a = *of;
    a->finding = finding;
    if (of->finding_n > 0)
        memcpy(finding, of->finding, of->finding_n);
    return a;
}

static int
begin_acknowledged(struct silences *all, const struct acknowledged *of, enum acknowledging what,
                   const struct silences_call *call, struct err *e)
{
    struct silences_op *op = op_new(all, call, e);
    if (op == NULL)
        return err_errno(e);
    op->what = what;
    op->acknowledged = acknowledged_copy(of);
    if (op->acknowledged != NULL)
        return begin(op, call, e);
    op_free(op);
    return err_sys(e, ENOMEM, "acknowledge a finding");
}

// Whether there will be room when it is on the disk: those that are being written have theirs, and each of them that came when all was
// full takes the place of another one of its tenant.
static bool
has_room(const struct silences *all, const struct acknowledged *want, enum acknowledging *what)
{
    uint32_t coming = 0, displacing = 0, own = 0;
    for (struct list *it = all->writing.next; it != &all->writing; it = it->next) {
        const struct silences_op *op = list_entry(it, struct silences_op, node);
        const struct acknowledged *a = op->acknowledged;
        coming += a != NULL && op->what != ACKNOWLEDGING_ENDS;
        displacing += a != NULL && op->what == ACKNOWLEDGING_DISPLACES &&
                      a->by_host == want->by_host && strcmp(a->tenant, want->tenant) == 0;
    }
    *what = ACKNOWLEDGING;
    if (all->acknowledged_n + coming < ACKNOWLEDGED_MAX)
        return true;
    *what = ACKNOWLEDGING_DISPLACES;
    (void)acknowledged_oldest(all, want->tenant, want->by_host, &own);
    return own > displacing;
}

int
acknowledged_put(struct silences *all, const struct acknowledged *want,
                 const struct silences_call *call, struct err *e)
{
    enum acknowledging what;
    if (!has_room(all, want, &what))
        return full(e, "ACKNOWLEDGEMENTS", "acknowledged findings", ACKNOWLEDGED_MAX);
    return begin_acknowledged(all, want, what, call, e);
}

int
acknowledged_withdraw(struct silences *all, const struct acknowledged *which, const char *tenant,
                      const struct silences_call *call, struct err *e)
{
    const struct acknowledged *a =
        acknowledged_find(all, which->instance, which->sequence, which->by_host);
    if (a != NULL && (tenant == NULL || strcmp(a->tenant, tenant) == 0))
        return begin_acknowledged(all, a, ACKNOWLEDGING_ENDS, call, e);
    (void)err_set(e, ERR_NOT_FOUND, "finding %llu was not acknowledged",
                  (unsigned long long)which->sequence);
    err_detail(e, "", "sequence", "'stockade anomalies acknowledged' lists those that were");
    return -ENOENT;
}

void
silences_unwait(struct silences_op *op)
{
    op->done = NULL;
}

// The oldest ones of the tenant give way.
static void
make_room(struct silences *all, const struct acknowledged *newest)
{
    uint32_t n = 0;
    struct acknowledged *old = acknowledged_oldest(all, newest->tenant, newest->by_host, &n);
    if (old == NULL || (n < ACKNOWLEDGED_TENANT_MAX && all->acknowledged_n < ACKNOWLEDGED_MAX))
        return;
    metrics_add(METRIC_ACKNOWLEDGEMENTS_DISPLACED, 1);
    acknowledged_forget(all, old);
    acknowledged_remove(all, old);
}

static void
take_effect(struct silences_op *op)
{
    struct silences *all = op->all;
    if (op->silence != NULL) {
        silences_add(all, take_ptr(op->silence));
        return;
    }
    if (op->acknowledged == NULL) {
        struct silence *s = silences_find(all, op->removed); // NULL: it has expired meanwhile
        if (s != NULL)
            silences_remove(all, s);
        return;
    }
    const struct acknowledged *key = op->acknowledged;
    struct acknowledged *old = (struct acknowledged *)(uintptr_t)acknowledged_find(
        all, key->instance, key->sequence, key->by_host);
    if (old != NULL)
        acknowledged_remove(all, old);
    if (op->what == ACKNOWLEDGING_ENDS)
        return;
    make_room(all, key);
    acknowledged_add(all, take_ptr(op->acknowledged));
}

void
silences_finish(struct silences_op *op, const struct err *e)
{
    const struct silence *made = op->silence;
    if (e == NULL)
        take_effect(op);
    else if (op->silence != NULL)
        op->all->silences_n--;
    if (op->done != NULL)
        op->done(op->cookie, e == NULL ? made : NULL, e);
    op_free(op);
}
