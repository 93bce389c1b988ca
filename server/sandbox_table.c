// SPDX-License-Identifier: Apache-2.0
// What callers ask about sandboxes: which are theirs, what they are called, how many there may be. See sandbox.h.
#include "sandbox_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"
#include "server.h"
#include "spawn.h"

struct sandboxes *
sandboxes_new(struct server *srv)
{
    struct sandboxes *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    list_init(&all->owned);
    list_init(&all->tenants);
    return all;
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
    void (*told)(void *) = all->none_left;
    all->none_left = NULL;
    told(all->none_left_cookie);
}

struct owner *
owner_find(const struct sandboxes *all, const char *name)
{
    for (struct list *it = all->tenants.next; it != &all->tenants; it = it->next)
        if (strcmp(list_entry(it, struct owner, node)->name, name) == 0)
            return list_entry(it, struct owner, node);
    return NULL;
}

struct owner *
owner_get(struct sandboxes *all, const char *name)
{
    struct owner *t = owner_find(all, name);
    if (t != NULL)
        return t;
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    list_init(&t->kept);
    list_append(&all->tenants, &t->node);
    return t;
}

void
owner_settle(struct owner *t)
{
    if (t->sandboxes > 0 || t->refs > 0)
        return;
    list_remove(&t->node);
    free(t);
}

int
sandbox_reserve(struct sandboxes *all, const char *tenant, struct owner **out, struct err *e)
{
    uint32_t most = all->srv->config->quotas.sandboxes_per_caller;
    struct owner *t = owner_get(all, tenant);
    if (t == NULL)
        return err_sys(e, ENOMEM, "make a sandbox");
    if (t->sandboxes >= most) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                        "%s has %u sandboxes, the most that one caller may have", tenant, most);
        err_detail(
            e, "QUOTA_SANDBOXES", tenant,
            "delete some, or raise quotas.sandboxes_per_caller in the broker's configuration");
        return r;
    }
    t->sandboxes++;
    *out = t;
    return 0;
}

void
sandbox_release(struct owner *t)
{
    assert(t->sandboxes > 0);
    t->sandboxes--;
    owner_settle(t);
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
    if (name[0] == '\0' || find_by_name(all, tenant, name) == NULL)
        return 0;
    int r = err_set(e, ERR_ALREADY_EXISTS, "a sandbox with the name %s exists already", name);
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
    if (s == NULL)
        (void)err_set(e, ERR_NOT_FOUND, "there is no sandbox %s", id);
    return s;
}

void
sandbox_spec_clear(struct sandbox_spec *spec)
{
    free(spec->labels);
    network_unref(spec->network);
    spec->labels = NULL;
    spec->labels_n = 0;
    spec->network = NULL;
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
            return err_field(e, "metadata", "it would have more than %d labels", LABELS_MAX);
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
        [SANDBOX_CREATING] = "being made",    [SANDBOX_READY] = "nobody's",
        [SANDBOX_PAUSING] = "being paused",   [SANDBOX_PAUSED] = "paused",
        [SANDBOX_RESUMING] = "being resumed", [SANDBOX_DELETING] = "being deleted",
    };
    if (s->state == SANDBOX_RUNNING)
        return 0;
    return err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is %s", s->id.id, words[s->state]);
}

uint32_t
sandboxes_count(const struct sandboxes *all)
{
    return (uint32_t)all->table.n;
}

uint32_t
sandboxes_count_of(const struct sandboxes *all, const char *tenant)
{
    const struct owner *t = owner_find(all, tenant);
    return t != NULL ? t->sandboxes : 0;
}

struct list *
sandboxes_owned(struct sandboxes *all)
{
    return &all->owned;
}

struct server *
sandboxes_server(const struct sandboxes *all)
{
    return all->srv;
}

// Begins anew after each that had waiters: what a callback does may take any sandbox away.
static void
tell_hanging(struct sandboxes *all, size_t bucket, const struct err *e)
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
        s->pending++; // it stays for the second
        sandbox_tell(s, WAIT_STATE, e);
        s->pending--;
        sandbox_tell(s, WAIT_DELETE, e);
        n = all->table.bucket[bucket];
    }
}

void
sandboxes_spawner_hangs(struct sandboxes *all)
{
    struct err e;
    (void)spawn_say_hangs(&e);
    for (size_t b = 0; b < ID_BUCKETS; b++)
        tell_hanging(all, b, &e);
}

// NULL: none in this bucket that is not being deleted.
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
    (void)err_set(&why, ERR_CANCELLED, "the broker is stopping");
    all->none_left = done;
    all->none_left_cookie = cookie;
    for (size_t b = 0; b < ID_BUCKETS; b++)
        while ((s = first_living(all, b)) != NULL)
            sandbox_destroy(s, &why, NULL);
    sandbox_table_settle(all);
}
