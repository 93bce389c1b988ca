// SPDX-License-Identifier: Apache-2.0
// Questions of callers about sandboxes: which are theirs, their names, and their maximum number. See sandbox.h.
#include "mounts.h"
#include "simulation.h"
#include "private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "server/policy/network.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "image.h"
#include "spawn.h"

// ---- without a network

static int
born_without(struct sandbox *s, struct err *e)
{
    (void)s;
    (void)e;
    return 0;
}

static int
limit_without(struct sandbox *s, const struct limits *limits, struct err *e)
{
    (void)s;
    (void)limits;
    (void)e;
    return 0;
}

static int
change_without(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e)
{
    (void)n;
    (void)w;
    return err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s: this broker has no networks", s->id.id);
}

static bool
close_without(struct sandbox *s, void (*done)(void *cookie), void *cookie)
{
    (void)s;
    (void)done;
    (void)cookie;
    return false;
}

static bool
settle_without(struct sandbox *s, struct sandbox_settler *w)
{
    (void)s;
    (void)w;
    return false;
}

static void
forget_without(struct sandbox *s)
{
    (void)s;
}

static const struct sandbox_networks no_networks = {
    .born = born_without,
    .limit = limit_without,
    .change = change_without,
    .close = close_without,
    .settle = settle_without,
    .forget = forget_without,
};

void
sandboxes_set_networks(struct sandboxes *all, const struct sandbox_networks *networks)
{
    all->networks = networks;
}

void
sandboxes_set_mounters(struct sandboxes *all, const struct sandbox_mounters *mounters)
{
    all->mounters = mounters;
}

void
sandboxes_set_jobs(struct sandboxes *all, const struct sandbox_jobs *jobs)
{
    all->jobs = jobs;
}

void
sandboxes_set_absent(struct sandboxes *all,
                     bool (*has_name)(void *cookie, const char *tenant, const char *name),
                     void *cookie)
{
    all->absent_has_name = has_name;
    all->absent_cookie = cookie;
}

// ---- the table

static void
name_states(void)
{
    static const char *const names[SANDBOX_STATES_N] = {
        [SANDBOX_CREATING] = "CREATING", [SANDBOX_READY] = "READY",
        [SANDBOX_RUNNING] = "RUNNING",   [SANDBOX_PAUSING] = "PAUSING",
        [SANDBOX_PAUSED] = "PAUSED",     [SANDBOX_RESUMING] = "RESUMING",
        [SANDBOX_SWAPPING] = "SWAPPING", [SANDBOX_DELETING] = "DELETING",
        [SANDBOX_COPYING] = "COPYING",
    };
    _Static_assert((int)SANDBOX_STATES_N == (int)METRIC_VALUES_STATE, "a value for each state");
    for (uint32_t i = 0; i < SANDBOX_STATES_N; i++)
        metrics_name_value(METRIC_BY_STATE, i, names[i]);
}

struct sandboxes *
sandboxes_new(struct server *srv, const struct sandbox_settings *settings)
{
    struct sandboxes *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    all->settings = settings;
    all->networks = &no_networks;
    if (srv->tenants != NULL)
        srv->tenants->named = &settings->metrics_tenants;
    name_states();
    list_init(&all->owned);
    return all;
}

void
sandboxes_free(struct sandboxes *all)
{
    if (all == NULL)
        return;
    assert(all->table.n == 0 && list_empty(&all->owned));
    free(all);
}

void
sandbox_table_remove(struct sandbox *s)
{
    list_remove(&s->node);
    list_remove(&s->pool_node);
    idtable_remove(&s->all->table, &s->id);
}

void
sandbox_table_settle(struct sandboxes *all)
{
    if (all->table.n > 0 || all->none_left == NULL)
        return;
    void (*done)(void *) = all->none_left;
    all->none_left = NULL;
    done(all->none_left_cookie);
}

// What a sandbox takes of its tenant's quotas.
static const struct {
    enum quota quota;
    int limit; // -1: one sandbox
    enum ledger_account leaving;
} takes[] = {
    {QUOTA_SANDBOXES, -1, LEDGER_LEAVING_SANDBOXES},
    {QUOTA_CPU_MILLIS, LIMIT_CPU_MILLIS, LEDGER_LEAVING_CPU_MILLIS},
    {QUOTA_MEMORY_BYTES, LIMIT_MEMORY_BYTES, LEDGER_LEAVING_MEMORY_BYTES},
    {QUOTA_DISK_BYTES, LIMIT_DISK_BYTES, LEDGER_LEAVING_DISK_BYTES},
};
enum { TAKES = sizeof takes / sizeof takes[0] };

static uint64_t
taken(size_t i, const struct limits *l)
{
    return takes[i].limit < 0 ? 1 : l->v[takes[i].limit];
}

static void
give_back(struct tenant *t, const struct limits *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tenant_release(t, quota_table[takes[i].quota].account, taken(i, l));
}

int
sandbox_reserve(struct sandboxes *all, const char *tenant, const struct limits *limits,
                struct tenant **out, struct err *e)
{
    int r = 0;
    struct tenant *t = tenant_hold(all->srv->tenants, tenant);
    if (t == NULL)
        return err_sys(e, ENOMEM, "create a sandbox");
    for (size_t i = 0; i < TAKES && r == 0; i++) {
        r = tenant_charge_quota(t, takes[i].quota, taken(i, limits), e);
        if (r < 0)
            give_back(t, limits, i);
    }
    if (r < 0) {
        tenant_drop(t);
        return r;
    }
    *out = t;
    return 0;
}

void
sandbox_release(struct tenant *t, const struct limits *limits)
{
    give_back(t, limits, TAKES);
    tenant_drop(t);
}

static void
release_leaving(struct tenant *t, const struct limits *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tenant_release(t, takes[i].leaving, taken(i, l));
}

bool
sandbox_leave(struct tenant *t, const struct limits *limits)
{
    struct err e;
    for (size_t i = 0; i < TAKES; i++)
        if (tenant_charge(t, takes[i].leaving, taken(i, limits), UINT64_MAX, &e) < 0) {
            release_leaving(t, limits, i);
            return false;
        }
    give_back(t, limits, TAKES);
    return true;
}

void
sandbox_left(struct tenant *t, const struct limits *limits)
{
    release_leaving(t, limits, TAKES);
    tenant_drop(t);
}

bool
sandbox_may_follow(const struct tenant *t)
{
    for (size_t i = 0; i < TAKES; i++)
        if (tenant_held(t, takes[i].leaving) > tenant_quota(t, takes[i].quota))
            return false;
    return true;
}

static bool
belongs_to(const struct sandbox *s, const char *tenant)
{
    return s->tenant != NULL && strcmp(s->tenant->name, tenant) == 0;
}

static struct sandbox *
find_by_name(const struct sandboxes *all, const char *tenant, const char *name)
{
    for (struct list *it = all->owned.next; it != &all->owned; it = it->next) {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (belongs_to(s, tenant) && s->state != SANDBOX_DELETING &&
            strcmp(s->spec.name, name) == 0)
            return s;
    }
    return NULL;
}

int
sandbox_check_name(const struct sandboxes *all, const char *tenant, const char *name, struct err *e)
{
    const bool absent = name[0] != '\0' && all->absent_has_name != NULL &&
                        all->absent_has_name(all->absent_cookie, tenant, name);
    if (!absent && (name[0] == '\0' || find_by_name(all, tenant, name) == NULL))
        return 0;
    int r = err_set(e, ERR_ALREADY_EXISTS, "a sandbox with the name %s already exists", name);
    err_detail(e, "NAME_TAKEN", name, "delete it first, or choose another name");
    return r;
}

struct sandbox *
sandbox_find(struct sandboxes *all, const char *tenant, const char *id, struct err *e)
{
    struct idnode *n = idtable_find(&all->table, id);
    struct sandbox *s = n != NULL ? list_entry(n, struct sandbox, id) : NULL;
    if (s == NULL || !belongs_to(s, tenant))
        s = find_by_name(all, tenant, id);
    if (s == NULL) {
        (void)id_not_found("sandbox", all->settings->node, id, e);
        if (e->hint[0] == '\0') // not of another node
            err_detail(e, NULL, NULL, "'stockade ls' lists your sandboxes");
    }
    return s;
}

void
sandbox_spec_clear(struct sandbox_spec *spec)
{
    free(spec->labels);
    network_unref(spec->network);
    image_unref(spec->image);
    mounts_unref(spec->mounts);
    simulation_unref(spec->simulation);
    spec->simulation = NULL;
    spec->mounts = NULL;
    spec->labels = NULL;
    spec->labels_n = 0;
    spec->network = NULL;
    spec->image = NULL;
}

int
sandbox_copy_labels(struct sandbox_spec *spec, size_t more, struct err *e)
{
    struct label *copy = calloc(spec->labels_n + more + 1, sizeof *copy);
    if (copy == NULL)
        return err_sys(e, ENOMEM, "set labels");
    if (spec->labels_n > 0)
        memcpy(copy, spec->labels, spec->labels_n * sizeof *copy);
    spec->labels = copy;
    return 0;
}

void
sandbox_take_labels(struct sandbox *s, struct sandbox_spec *from)
{
    free(s->spec.labels);
    s->spec.labels = from->labels;
    s->spec.labels_n = from->labels_n;
    from->labels = NULL;
    from->labels_n = 0;
}

static struct label *
find_label(struct sandbox_spec *spec, const char *key)
{
    for (uint32_t i = 0; i < spec->labels_n; i++)
        if (strcmp(spec->labels[i].key, key) == 0)
            return &spec->labels[i];
    return NULL;
}

int
sandbox_set_label(struct sandbox_spec *spec, const char *key, const char *value, struct err *e)
{
    struct label *l = find_label(spec, key);
    if (value[0] == '\0') {
        if (l != NULL)
            *l = spec->labels[--spec->labels_n];
        return 0;
    }
    if (l == NULL) {
        if (spec->labels_n == LABELS_MAX)
            return err_field(e, "metadata", "the sandbox would have more than %d labels",
                             LABELS_MAX);
        l = &spec->labels[spec->labels_n++];
        (void)snprintf(l->key, sizeof l->key, "%s", key);
    }
    (void)snprintf(l->value, sizeof l->value, "%s", value);
    return 0;
}

void
sandbox_unwait(struct sandbox_waiter *w)
{
    list_remove(&w->node);
}

int
sandbox_check_running(const struct sandbox *s, struct err *e)
{
    static const char *const words[SANDBOX_STATES_N] = {
        [SANDBOX_CREATING] = "being created", [SANDBOX_READY] = "not assigned",
        [SANDBOX_PAUSING] = "being paused",   [SANDBOX_PAUSED] = "paused",
        [SANDBOX_RESUMING] = "being resumed", [SANDBOX_SWAPPING] = "getting another layer of files",
        [SANDBOX_DELETING] = "being deleted", [SANDBOX_COPYING] = "frozen, for a copy of its files",
    };
    if (s->state == SANDBOX_RUNNING)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is %s", s->id.id, words[s->state]);
    if (s->state == SANDBOX_PAUSED)
        err_detail(e, "SANDBOX_PAUSED", NULL, "resume it first");
    return r;
}

bool
sandbox_is_held_up(const struct sandbox *s)
{
    return s->state == SANDBOX_PAUSING || s->state == SANDBOX_PAUSED ||
           s->state == SANDBOX_RESUMING || s->state == SANDBOX_SWAPPING ||
           s->state == SANDBOX_COPYING;
}

uint32_t
sandboxes_count(const struct sandboxes *all)
{
    return (uint32_t)all->table.n;
}

uint32_t
sandboxes_count_of(const struct sandboxes *all, const char *tenant)
{
    const struct tenant *t = tenant_find(all->srv->tenants, tenant);
    return t != NULL ? (uint32_t)tenant_held(t, LEDGER_SANDBOXES) : 0;
}

struct list *
sandboxes_owned(struct sandboxes *all)
{
    return &all->owned;
}

bool
sandboxes_have(const struct sandboxes *all, const struct template *t)
{
    for (size_t b = 0; b < ID_BUCKETS; b++)
        for (struct idnode *n = all->table.bucket[b]; n != NULL; n = n->next)
            if (list_entry(n, struct sandbox, id)->spec.template == t)
                return true;
    return false;
}

struct server *
sandboxes_server(const struct sandboxes *all)
{
    return all->srv;
}

struct observers *
sandboxes_observers(struct sandboxes *all)
{
    return &all->observers;
}

unsigned
observers_add(struct observers *all, const struct observer *o)
{
    assert(all->n < OBSERVERS_MAX);
    all->one[all->n] = *o;
    return all->n++;
}

uint32_t
sandbox_tenant_metric(const struct sandbox *s)
{
    return s->tenant != NULL ? metrics_tenant(s->tenant->name, s->all->settings->metrics_tenants)
                             : 0;
}

const struct sandbox_settings *
sandboxes_settings(const struct sandboxes *all)
{
    return all->settings;
}

// Starts again after each sandbox that had waiters, because a callback may remove any sandbox.
static void
fail_waiters(struct sandboxes *all, size_t bucket, const struct err *e)
{
    struct idnode *n = all->table.bucket[bucket];
    while (n != NULL) {
        struct sandbox *s = list_entry(n, struct sandbox, id);
        bool any = false;
        for (struct list *it = s->waiters.next; it != &s->waiters && !any; it = it->next) {
            enum sandbox_wait what = list_entry(it, struct sandbox_waiter, node)->what;
            any = what == WAIT_STATE || what == WAIT_DELETE;
        }
        n = n->next;
        if (!any)
            continue;
        s->pending++; // keeps the sandbox for the second call
        sandbox_notify(s, WAIT_STATE, e);
        s->pending--;
        sandbox_notify(s, WAIT_DELETE, e);
        n = all->table.bucket[bucket];
    }
}

void
sandboxes_spawner_hangs(struct sandboxes *all)
{
    struct err e;
    (void)spawn_say_hangs(&e);
    for (size_t b = 0; b < ID_BUCKETS; b++)
        fail_waiters(all, b, &e);
}

// NULL: every sandbox in this bucket is being deleted.
static struct sandbox *
first_living(const struct sandboxes *all, size_t bucket)
{
    struct idnode *n = all->table.bucket[bucket];
    while (n != NULL && list_entry(n, struct sandbox, id)->state == SANDBOX_DELETING)
        n = n->next;
    return n != NULL ? list_entry(n, struct sandbox, id) : NULL;
}

void
sandboxes_destroy_all(struct sandboxes *all, void (*done)(void *cookie), void *cookie)
{
    struct err why;
    struct sandbox *s = NULL;
    (void)stopping_say(&why, ERR_CANCELLED);
    all->none_left = done;
    all->none_left_cookie = cookie;
    for (size_t b = 0; b < ID_BUCKETS; b++)
        while ((s = first_living(all, b)) != NULL)
            sandbox_destroy(s, &why, NULL);
    sandbox_table_settle(all);
}
