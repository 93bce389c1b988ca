// SPDX-License-Identifier: Apache-2.0
// See approval.h: the table of approvals, what is read at the start, and who follows changes.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approval_private.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "proto/validate.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "server/state/state.h"

bool
approval_is_pending(const struct approval *a)
{
    return a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
}

bool
approval_is_approved(const struct approval *a)
{
    return a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED;
}

const Stockade__V1__Approval *
approval_unpack(const struct approval *a, struct arena *arena, struct err *e)
{
    ProtobufCMessage *m = NULL;
    int r = wire_unpack(&stockade__v1__approval__descriptor, a->packed, a->packed_n, arena, &m, e);
    return r == 0 ? (const Stockade__V1__Approval *)m : NULL;
}

// ---- one approval in memory

static void
copy_text(char *to, size_t n, const char *from)
{
    (void)snprintf(to, n, "%s", from);
}

// They never change.
static bool
keep_approvers(struct approval *a, const Stockade__V1__Approval *m)
{
    size_t room = 1;
    for (size_t i = 0; i < m->n_approvers; i++)
        room += strlen(m->approvers[i]) + 1;
    if (a->approvers != NULL)
        return true;
    char *p = a->approvers = malloc(room);
    if (p == NULL)
        return false;
    for (size_t i = 0; i < m->n_approvers; i++)
        p = stpcpy(p, m->approvers[i]) + 1;
    a->approvers_n = (uint32_t)m->n_approvers;
    return true;
}

bool
approval_summarize(struct approval *a, const Stockade__V1__Approval *m)
{
    if (m->digest.len != APPROVAL_DIGEST || strlen(m->tenant) >= sizeof a->tenant ||
        strlen(m->requester) >= sizeof a->requester || m->id[0] == '\0' ||
        (m->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED && m->grant == NULL))
        return false;
    copy_text(a->id.id, sizeof a->id.id, m->id);
    copy_text(a->tenant, sizeof a->tenant, m->tenant);
    copy_text(a->requester, sizeof a->requester, m->requester);
    memcpy(a->digest, m->digest.data, APPROVAL_DIGEST);
    a->state = m->state;
    a->revision = m->revision;
    a->created_ms = approval_time_ms(m->create_time);
    a->expires_ms = approval_time_ms(m->expire_time);
    a->valid_until_ms = approval_time_ms(m->valid_until);
    a->ended_ms = approval_time_ms(m->end_time);
    return keep_approvers(a, m);
}

struct approval *
approval_new(struct approvals *all)
{
    struct approval *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->all = all;
    a->timer.fire = approval_on_time;
    list_init(&a->node);
    list_init(&a->changed);
    a->waiting_last = &a->waiting;
    return a;
}

void
approval_drop(struct approval *a)
{
    struct approvals *all = a->all;
    if (a->id.id[0] != '\0')
        idtable_remove(&all->ids, &a->id);
    list_remove(&a->node);
    list_remove(&a->changed);
    timers_clear(all->timers, &a->timer);
    for (struct approval_op *op = a->waiting, *after; op != NULL; op = after) {
        after = op->after;
        approval_op_free(op);
    }
    free(a->packed);
    free(a->approvers);
    free(a);
}

void
approval_count(struct approvals *all, const struct approval *a, int by)
{
    all->kept += (uint32_t)by;
    if (!approval_is_pending(a))
        return;
    all->pending += (uint32_t)by;
    metrics_move(METRIC_APPROVALS_PENDING, 0, by);
}

// ---- those whose data key was forgotten

// What is left is its id, its tenant and its times.
static bool
make_empty(struct approval *a, const char *id, const char *tenant, int64_t now_ms)
{
    static const uint8_t zeros[APPROVAL_DIGEST];
    Stockade__V1__Approval m = STOCKADE__V1__APPROVAL__INIT;
    Google__Protobuf__Timestamp made = GOOGLE__PROTOBUF__TIMESTAMP__INIT,
                                end = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    made.seconds = a->created_ms / 1000;
    end.seconds = now_ms / 1000;
    m.id = (char *)(uintptr_t)id;
    m.tenant = (char *)(uintptr_t)tenant;
    m.reason = (char *)(uintptr_t) "its data key was forgotten, so nobody can decrypt it";
    m.digest = (ProtobufCBinaryData){sizeof zeros, (uint8_t *)(uintptr_t)zeros};
    m.needed = 1;
    m.state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED;
    m.create_time = a->created_ms != 0 ? &made : NULL;
    m.end_time = &end;
    m.revision = ++a->all->revision;
    const size_t n = stockade__v1__approval__get_packed_size(&m);
    uint8_t *packed = malloc(n);
    if (packed == NULL || !approval_summarize(a, &m)) {
        free(packed);
        return false;
    }
    (void)stockade__v1__approval__pack(&m, packed);
    if (a->packed != NULL)
        sodium_memzero(a->packed, a->packed_n);
    free(a->packed);
    a->packed = packed;
    a->packed_n = n;
    a->has_command = false;
    return true;
}

static void
forget(struct approval *a)
{
    struct approvals *all = a->all;
    const struct approval before = *a;
    approval_count(all, a, -1);
    if (!make_empty(a, before.id.id, before.tenant, access_now_ms(all->access)))
        a->state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED; // it permits nothing
    approval_count(all, a, 1);
    timers_clear(all->timers, &a->timer);
    list_remove(&a->changed);
    list_append(&all->changed, &a->changed);
    approval_notify(all, a);
}

void
approvals_forget(struct approvals *all, const char *tenant)
{
    list_each(at, &all->made)
    {
        struct approval *a = container_of(at, struct approval, node);
        if (a->shown && a->writing == NULL && strcmp(a->tenant, tenant) == 0)
            forget(a);
    }
}

// ---- at the start

static bool
load_empty(struct approval *a, const struct state_value *v)
{
    char id[sizeof a->id.id], tenant[sizeof a->tenant];
    if (v[3].n == 0 || v[3].n >= sizeof id || v[4].n >= sizeof tenant)
        return false;
    (void)snprintf(id, sizeof id, "%.*s", (int)v[3].n, (const char *)v[3].bytes);
    (void)snprintf(tenant, sizeof tenant, "%.*s", (int)v[4].n, (const char *)v[4].bytes);
    return make_empty(a, id, tenant, access_now_ms(a->all->access));
}

static bool
load_message(struct approval *a, const struct state_value *v, struct arena *arena, struct err *e)
{
    a->packed = malloc(v[2].n + 1);
    a->packed_n = v[2].n;
    if (a->packed != NULL)
        memcpy(a->packed, v[2].bytes, v[2].n);
    const Stockade__V1__Approval *m = a->packed != NULL ? approval_unpack(a, arena, e) : NULL;
    return m != NULL && validate_message(&m->base, e) == 0 && approval_summarize(a, m);
}

static int
load(void *cookie, const struct state_value *v, struct err *e)
{
    struct approvals *all = cookie;
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    struct approval *a = approval_new(all);
    if (a == NULL || arena == NULL) {
        free(a);
        return err_sys(e, ENOMEM, "read the approvals");
    }
    const bool forgotten = v[2].kind == STATE_FORGOTTEN;
    if (!(forgotten ? load_empty(a, v) : load_message(a, v, arena, e))) {
        a->id.id[0] = '\0';
        approval_drop(a);
        return err_set(e, ERR_DATA_LOSS, "an approval in the database is damaged");
    }
    a->order = (uint64_t)v[0].number;
    a->has_command = v[1].n == APPROVAL_DIGEST && !forgotten;
    if (a->has_command)
        memcpy(a->around, v[1].bytes, APPROVAL_DIGEST);
    a->shown = true;
    idtable_add(&all->ids, &a->id);
    list_append(&all->made, &a->node);
    all->order = a->order;
    all->revision = a->revision > all->revision ? a->revision : all->revision;
    approval_count(all, a, 1);
    if (approval_is_pending(a))
        approval_set_timer(a, a->expires_ms - access_now_ms(all->access));
    return 0;
}

static int
compare_revisions(const void *one, const void *other)
{
    const struct approval *const *a = one, *const *b = other;
    return ((*a)->revision > (*b)->revision) - ((*a)->revision < (*b)->revision);
}

static int
order_by_change(struct approvals *all, struct err *e)
{
    size_t n = 0;
    struct approval **auto_free sorted = calloc(all->kept + 1, sizeof(void *));
    if (sorted == NULL)
        return err_sys(e, ENOMEM, "read the approvals");
    list_each(at, &all->made) sorted[n++] = container_of(at, struct approval, node);
    qsort(sorted, n, sizeof(void *), compare_revisions);
    for (size_t i = 0; i < n; i++)
        list_append(&all->changed, &sorted[i]->changed);
    return 0;
}

static void
name_metrics(void)
{
    static const char *const names[] = {NULL, NULL, "approved", "denied", "expired", "cancelled"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        metrics_name_value(METRIC_BY_APPROVAL, i, names[i]);
}

int
approvals_new(struct access *access, struct state *state, uv_loop_t *loop, struct approvals **out,
              struct err *e)
{
    struct approvals *all = calloc(1, sizeof *all);
    if (all == NULL)
        return err_sys(e, ENOMEM, "read the approvals");
    all->access = access;
    all->state = state;
    list_init(&all->made);
    list_init(&all->changed);
    list_init(&all->watchers);
    name_metrics();
    all->timers = timers_new(loop);
    int r = all->timers != NULL ? state_read(state, STATE_APPROVALS, load, all, e)
                                : err_sys(e, ENOMEM, "read the approvals");
    if (r == 0)
        r = order_by_change(all, e);
    if (r < 0) {
        approvals_free(all);
        return err_wrap(e, "read the approvals");
    }
    *out = all;
    return 0;
}

void
approvals_free(struct approvals *all)
{
    if (all == NULL)
        return;
    list_each(at, &all->made)
    {
        struct approval *a = container_of(at, struct approval, node);
        approval_count(all, a, a->shown ? -1 : 0);
        approval_drop(a);
    }
    if (all->timers != NULL)
        timers_close(all->timers);
    free(all);
}

void
approval_notify(struct approvals *all, const struct approval *a)
{
    struct list now;
    list_init(&now);
    while (!list_empty(&all->watchers)) { // those that are added meanwhile have seen it
        struct list *w = all->watchers.next;
        list_remove(w);
        list_append(&now, w);
    }
    while (!list_empty(&now)) {
        struct approval_watcher *w = container_of(now.next, struct approval_watcher, node);
        list_remove(&w->node);
        list_append(&all->watchers, &w->node);
        w->changed(w->cookie, a);
    }
}

// ---- reading

struct approval *
approval_by_id(const struct approvals *all, const char *id)
{
    struct idnode *node = idtable_find(&all->ids, id);
    struct approval *a = node != NULL ? container_of(node, struct approval, id) : NULL;
    return a != NULL && a->shown ? a : NULL;
}

bool
approval_names(const struct approval *a, const char *name)
{
    const char *approver = a->approvers;
    bool named = false;
    for (uint32_t i = 0; i < a->approvers_n && !named; i++) {
        named = approver_is(approver, name);
        approver += strlen(approver) + 1;
    }
    return named;
}

bool
approval_is_visible(const struct approval *a, const struct principal *who, const char *whose)
{
    char name[PRINCIPAL_NAME];
    if (whose == NULL || strcmp(a->tenant, whose) == 0)
        return true;
    principal_name(who, name);
    return approval_names(a, name);
}

const struct approval *
approvals_find(const struct approvals *all, const struct principal *who, const char *whose,
               const char *id, struct err *e)
{
    const struct approval *a = approval_by_id(all, id);
    if (a != NULL && approval_is_visible(a, who, whose))
        return a;
    (void)id_not_found("approval", "", id, e);
    return NULL;
}

const struct approval *
approvals_next(const struct approvals *all, const struct approval *a)
{
    for (struct list *at = a != NULL ? a->node.next : all->made.next; at != &all->made;
         at = at->next) {
        const struct approval *next = container_of(at, struct approval, node);
        if (next->shown)
            return next;
    }
    return NULL;
}

const struct approval *
approvals_next_changed(const struct approvals *all, const struct approval *a)
{
    struct list *at = a->changed.next;
    return at != &all->changed ? container_of(at, struct approval, changed) : NULL;
}

const struct approval *
approvals_changed_after(const struct approvals *all, uint64_t revision)
{
    const struct approval *found = NULL;
    for (struct list *at = all->changed.prev; at != &all->changed; at = at->prev) {
        const struct approval *a = container_of(at, struct approval, changed);
        if (a->revision <= revision)
            break;
        found = a;
    }
    return found;
}

uint64_t
approvals_revision(const struct approvals *all)
{
    return list_empty(&all->changed)
               ? 0
               : container_of(all->changed.prev, struct approval, changed)->revision;
}

Stockade__V1__Approval *
approval_message(const struct approval *a, bool with_request, struct arena *arena)
{
    struct err e;
    Stockade__V1__Approval *m = (Stockade__V1__Approval *)(uintptr_t)approval_unpack(a, arena, &e);
    if (m != NULL && !with_request)
        m->request = (ProtobufCBinaryData){0};
    return m;
}

void
approvals_watch(struct approvals *all, struct approval_watcher *w)
{
    list_append(&all->watchers, &w->node);
}

void
approvals_end(struct approvals *all)
{
    approval_notify(all, NULL);
}
