// SPDX-License-Identifier: Apache-2.0
// See files.h: sandboxes for the files of volumes. Each is an ordinary sandbox of the tenant, from the pool, which counts towards
// its quotas and which it can see and delete; so whatever a volume holds meets the barriers that a job meets, and the broker opens
// nothing of it.
//
//   files_hold() -> pool_acquire() -> ready -> operations -> a minute without any: destroyed
#include "private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"

enum { IDLE_MS = 60 * 1000 };

struct holder {
    struct list node;
    struct files *all;
    char tenant[32];
    uint8_t volume[16];
    char sandbox[ID_TEXT_MAX + 1]; // "": it waits for the pool
    struct pool_request *request;
    struct list waiting;      // struct files_wait
    struct loop_timer *timer; // ends it when it is idle
};

struct files_wait {
    struct list node;
    struct files_wait **name; // of the one who waits
    files_ready *ready;
    void *cookie;
};

static void
holder_free(struct holder *h)
{
    loop_timer_stop(&h->timer);
    list_remove(&h->node);
    free(h);
}

void
files_unwait(struct files_wait *w)
{
    *w->name = NULL;
    list_remove(&w->node);
    free(w);
}

void
holders_free(struct files *all)
{
    list_each(it, &all->holders)
    {
        struct holder *h = list_entry(it, struct holder, node);
        list_each(at, &h->waiting) files_unwait(list_entry(at, struct files_wait, node));
        holder_free(h);
    }
}

// NULL: there is none any more; the caller may have deleted it.
static struct sandbox *
sandbox_of(const struct holder *h)
{
    struct err ignored;
    struct sandbox *s = sandbox_find(h->all->srv->sandboxes, h->tenant, h->sandbox, &ignored);
    return s != NULL && s->state != SANDBOX_DELETING ? s : NULL;
}

const char *
holder_root(const struct files *all, const struct sandbox *s)
{
    for (struct list *it = all->holders.next; it != &all->holders; it = it->next)
        if (strcmp(list_entry(it, struct holder, node)->sandbox, s->id.id) == 0)
            return FILES_VOLUME_AT;
    return "/";
}

static struct holder *
find(const struct files *all, const char *tenant, const uint8_t volume[16])
{
    for (struct list *it = all->holders.next; it != &all->holders; it = it->next) {
        struct holder *h = list_entry(it, struct holder, node);
        if (memcmp(h->volume, volume, sizeof h->volume) == 0 && strcmp(h->tenant, tenant) == 0)
            return h;
    }
    return NULL;
}

static void
end(struct holder *h)
{
    struct err e;
    struct sandbox *s = sandbox_of(h);
    holder_free(h);
    (void)err_set(&e, ERR_CANCELLED, "nobody works on the files of its volume any more");
    if (s != NULL)
        sandbox_destroy(s, &e, NULL);
}

static void
on_time(void *cookie)
{
    struct holder *h = cookie;
    const struct sandbox *s = sandbox_of(h);
    if (s == NULL || box_ops(h->all, s) == 0)
        end(h);
    else
        (void)loop_timer_start(h->all->srv->loop, &h->timer, IDLE_MS, on_time, h);
}

static void
serve(struct holder *h, struct sandbox *s, const struct err *e)
{
    while (!list_empty(&h->waiting)) {
        struct files_wait *w = list_entry(h->waiting.next, struct files_wait, node);
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): files_unwait() has removed the one before from the list
        files_ready *ready = w->ready;
        void *cookie = w->cookie;
        files_unwait(w);
        ready(cookie, s, e);
    }
}

static void
on_sandbox(void *cookie, struct sandbox *s, const struct err *e)
{
    struct holder *h = cookie;
    if (s != NULL) {
        (void)snprintf(h->sandbox, sizeof h->sandbox, "%s", s->id.id);
        (void)loop_timer_start(h->all->srv->loop, &h->timer, IDLE_MS, on_time, h);
        sandbox_rest_soon(s);
    }
    serve(h, s, e);
    if (s == NULL)
        holder_free(h);
}

static struct holder *
holder_new(struct files *all, const char *tenant, const uint8_t volume[16])
{
    struct holder *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->all = all;
    (void)snprintf(h->tenant, sizeof h->tenant, "%s", tenant);
    memcpy(h->volume, volume, sizeof h->volume);
    list_init(&h->waiting);
    list_append(&all->holders, &h->node);
    return h;
}

static struct files_wait *
wait_for(struct holder *h, files_ready *ready, void *cookie, struct files_wait **name)
{
    struct files_wait *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    *w = (struct files_wait){.name = name, .ready = ready, .cookie = cookie};
    list_init(&w->node);
    list_append(&h->waiting, &w->node);
    *name = w;
    return w;
}

// The first one waits for it.
static int
acquire(struct holder *h, struct sandbox_spec *spec, struct err *e)
{
    struct pool *pool = h->all->srv->pool;
    int r = pool_acquire(pool, h->tenant, spec, on_sandbox, h, &h->request, e);
    if (r == 0)
        return 0;
    sandbox_spec_clear(spec);
    files_unwait(list_entry(h->waiting.next, struct files_wait, node));
    holder_free(h);
    return r;
}

int
files_hold(struct files *all, const char *tenant, struct sandbox_spec *spec, files_ready *ready,
           void *cookie, struct files_wait **out, struct err *e)
{
    const uint8_t *volume = spec->mounts->mount[0].volume;
    struct holder *h = find(all, tenant, volume);
    if (h != NULL && h->sandbox[0] != '\0' && sandbox_of(h) == NULL) {
        holder_free(h);
        h = NULL;
    }
    const bool exists = h != NULL;
    if (!exists)
        h = holder_new(all, tenant, volume);
    struct files_wait *w = h != NULL ? wait_for(h, ready, cookie, out) : NULL;
    if (w == NULL && h != NULL && !exists)
        holder_free(h);
    if (w != NULL && !exists)
        return acquire(h, spec, e);
    sandbox_spec_clear(spec);
    if (w == NULL)
        return err_sys(e, ENOMEM, "work on the files of a volume");
    if (h->sandbox[0] != '\0')
        serve(h, sandbox_of(h), NULL);
    return 0;
}

void
files_let_go(struct files *all, const char *tenant, const uint8_t volume[16])
{
    struct holder *h = find(all, tenant, volume);
    const struct sandbox *s = h != NULL && h->sandbox[0] != '\0' ? sandbox_of(h) : NULL;
    if (s != NULL && box_ops(all, s) == 0)
        end(h);
}
