// SPDX-License-Identifier: Apache-2.0
// See made.h. Sandboxes may end at any time: they are found again by their ids. While a template is made, the layers of its source
// stay, because `busy` is set.
#include "made.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/container_of.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/server.h"
#include "server/policy/network.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/template.h"
#include "snapshots_private.h"

// No uid, and no name of a transport: no caller is called so (rpc/principal.h).
#define HOLDERS "templates"

struct made_all {
    struct server *srv;
    struct list list;
    uint64_t order;
};

struct made_op {
    struct made_all *all;
    struct made *m;
    struct pool_request *request;
    struct sandbox_swap swap;
    uint32_t layer; // of the source
    bool holds;
    made_done *done; // NULL: nobody waits
    void *cookie;
};

static struct sandbox *
find(const struct made_all *all, const char *tenant, const char *id)
{
    struct err ignored;
    struct sandbox *s =
        id[0] == '\0' ? NULL : sandbox_find(all->srv->sandboxes, tenant, id, &ignored);
    return s == NULL || s->state == SANDBOX_DELETING ? NULL : s;
}

void
made_steps_free(struct made_step *steps, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < steps[i].destinations_n; k++)
            free(steps[i].destinations[k]);
        free(steps[i].destinations);
        free(steps[i].command);
        free(steps[i].digest);
    }
    free(steps);
}

static void
made_free(struct image *i)
{
    struct made *m = container_of(i, struct made, image);
    made_steps_free(m->steps, m->steps_n);
    free(m->image.env);
    free(m);
}

struct made_all *
made_all_new(struct server *s)
{
    struct made_all *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = s;
    list_init(&all->list);
    return all;
}

void
made_all_free(struct made_all *all)
{
    while (all != NULL && !list_empty(&all->list)) {
        struct made *m = list_entry(all->list.next, struct made, node);
        list_remove(&m->node);
        image_unref(&m->image);
    }
    free(all);
}

struct list *
made_list(struct made_all *all)
{
    return &all->list;
}

static struct made *
find_named(const struct made_all *all, const char *tenant, const char *name)
{
    for (struct list *it = all->list.next; it != &all->list; it = it->next) {
        struct made *m = list_entry(it, struct made, node);
        if (strcmp(m->image.name, name) == 0 && strcmp(m->tenant, tenant) == 0)
            return m;
    }
    return NULL;
}

struct made *
made_find(const struct made_all *all, const char *tenant, const char *name)
{
    struct made *m = find_named(all, tenant, name);
    return m != NULL && m->ready ? m : NULL;
}

void
made_delete(struct made *m)
{
    struct err why;
    struct sandbox *holder = find(m->all, HOLDERS, m->holder);
    (void)err_set(&why, ERR_CANCELLED, "its template was deleted");
    m->holder[0] = '\0';
    list_remove(&m->node);
    if (holder != NULL)
        sandbox_destroy(holder, &why, NULL);
    image_unref(&m->image);
}

// ---- a new sandbox gets the files

static int
image_begin(struct image *i, struct sandbox *s, struct sandbox_swap *w, struct err *e)
{
    struct made *m = container_of(i, struct made, image);
    struct sandbox *holder = find(m->all, HOLDERS, m->holder);
    if (m->holder[0] == '\0')
        return err_set(e, ERR_NOT_FOUND, "it was deleted meanwhile");
    if (holder == NULL)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "its files were lost with the sandbox that held them: make it again");
    int r = layers_share(holder, m->layer, e);
    return r < 0 ? r : sandbox_inherit(s, holder, m->layer, w, e);
}

static int
image_end(struct image *i, struct sandbox *s, const struct sandbox_swap *w, struct err *e)
{
    struct made *m = container_of(i, struct made, image);
    struct sandbox *holder = find(m->all, HOLDERS, m->holder);
    if (holder == NULL)
        return err_set(e, ERR_ABORTED, "it was deleted meanwhile");
    sandbox_rest_soon(s);
    return layers_write_down(s, holder, m->layer, w->layer, e);
}

// ---- making one

static void
let_source_go(struct made_op *op)
{
    struct sandbox *s = find(op->all, op->m->tenant, op->m->sandbox);
    if (!op->holds || s == NULL || s->snapshots == NULL)
        return;
    s->snapshots->busy--;
    layers_prune(s, s->snapshots);
}

static void
end(struct made_op *op, const struct err *failed)
{
    struct made *m = op->m;
    struct err e;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "make template %s", m->image.name);
    }
    let_source_go(op);
    if (failed == NULL && op->done != NULL) {
        log_event(LOG_INFO, "template-made", "%s of %s, from sandbox %s", m->image.name, m->tenant,
                  m->sandbox);
        op->done(op->cookie, m, NULL);
    } else {
        made_delete(m);
        if (op->done != NULL)
            op->done(op->cookie, NULL, &e);
    }
    free(op);
}

static void
on_inherited(void *cookie, struct sandbox *holder, const struct err *failed)
{
    struct made_op *op = cookie;
    struct made *m = op->m;
    struct err e;
    struct sandbox *from = find(op->all, m->tenant, m->sandbox);
    m->layer = op->swap.layer;
    if (failed != NULL)
        e = *failed;
    else if (from == NULL || from->snapshots == NULL)
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    else if (layers_write_down(holder, from, op->layer, m->layer, &e) == 0) {
        m->ready = true;
        layers_sum(holder->snapshots, m->layer, &m->bytes, &m->inodes);
        sandbox_rest_soon(holder);
        end(op, NULL);
        return;
    }
    end(op, &e);
}

static void
on_holder(void *cookie, struct sandbox *holder, const struct err *failed)
{
    struct made_op *op = cookie;
    struct err e;
    if (holder == NULL) {
        end(op, failed);
        return;
    }
    (void)snprintf(op->m->holder, sizeof op->m->holder, "%s", holder->id.id);
    const struct sandbox *from = find(op->all, op->m->tenant, op->m->sandbox);
    op->swap.waiter.done = on_inherited;
    op->swap.waiter.cookie = op;
    if (from == NULL)
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    else if (sandbox_inherit(holder, from, op->layer, &op->swap, &e) == 0)
        return;
    end(op, &e);
}

static void
take_layers(struct made_op *op, struct sandbox *from)
{
    struct err e;
    struct sandbox_spec spec = {
        .template = op->m->template, .limits = op->m->template->limits, .has_files = true};
    from->snapshots->busy++;
    op->holds = true;
    int r = layers_share(from, op->layer, &e);
    if (r == 0)
        r = pool_acquire(op->all->srv->pool, HOLDERS, &spec, on_holder, op, &op->request, &e);
    if (r < 0)
        end(op, &e);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *e)
{
    struct made_op *op = cookie;
    struct err gone;
    (void)p;
    if (e == NULL && s != NULL && op->done != NULL) {
        op->layer = s->snapshots->top;
        take_layers(op, s);
        return;
    }
    (void)err_set(&gone, ERR_CANCELLED, "nobody waits for it");
    end(op, e != NULL ? e : &gone);
}

static int
check(const struct made_all *all, const struct sandbox *from, const char *name, struct err *e)
{
    uint32_t n = 0;
    for (struct list *it = all->list.next; it != &all->list; it = it->next)
        n += strcmp(list_entry(it, struct made, node)->tenant, from->tenant->name) == 0;
    if (find_named(all, from->tenant->name, name) != NULL) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "a template with the name %s already exists", name);
        err_detail(e, "NAME_TAKEN", "name", "delete it first, or choose another name");
        return r;
    }
    if (n < MADE_OF_TENANT)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "there are %d templates, the maximum for one caller",
                    MADE_OF_TENANT);
    err_detail(e, "TEMPLATES", from->tenant->name, "delete some of them");
    return r;
}

// The environment of the template below, and the spec's after it.
static bool
join_env(struct image *to, const struct image *on, const struct made_spec *spec)
{
    const uint32_t below = on != NULL ? on->env_n : 0;
    to->env = calloc(below + spec->env_n + 1, sizeof *to->env);
    if (to->env == NULL)
        return false;
    for (uint32_t i = 0; i < below; i++)
        to->env[to->env_n++] = on->env[i];
    for (uint32_t i = 0; i < spec->env_n && to->env_n < TEMPLATE_ENV_MAX; i++)
        to->env[to->env_n++] = spec->env[i];
    return true;
}

// Takes the spec's steps.
static struct made *
make(struct made_all *all, const struct sandbox *from, struct made_spec *spec)
{
    struct made *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    const struct image *on = from->spec.image;
    *m = (struct made){
        .image = {.refs = 1, .begin = image_begin, .end = image_end, .free = made_free},
        .all = all,
        .order = ++all->order,
        .template = from->spec.template,
        .created_ms = now_wall_ms()};
    if (!join_env(&m->image, on, spec)) {
        free(m);
        return NULL;
    }
    m->steps = spec->steps;
    m->steps_n = spec->steps_n;
    spec->steps = NULL;
    spec->steps_n = 0;
    (void)snprintf(m->network, sizeof m->network, "%s",
                   from->net.in_force == NULL ? "none"
                                              : network_mode_name[from->net.in_force->mode]);
    (void)snprintf(m->image.name, sizeof m->image.name, "%s", spec->name);
    (void)snprintf(m->image.workdir, sizeof m->image.workdir, "%s",
                   spec->workdir[0] != '\0' ? spec->workdir
                   : on != NULL             ? on->workdir
                                            : "");
    (void)snprintf(m->tenant, sizeof m->tenant, "%s", from->tenant->name);
    (void)snprintf(m->made_on, sizeof m->made_on, "%s",
                   on != NULL ? on->name : from->spec.template->name);
    (void)snprintf(m->sandbox, sizeof m->sandbox, "%s", from->id.id);
    (void)snprintf(m->snapshot, sizeof m->snapshot, "%s", spec->snapshot);
    list_append(&all->list, &m->node);
    return m;
}

int
made_create(struct made_all *all, struct sandbox *from, struct made_spec *spec, made_done *done,
            void *cookie, struct made_op **out, struct err *e)
{
    struct snapshot_op *sealing = NULL;
    const struct snapshot *p = NULL;
    int r = sandbox_check_running(from, e);
    if (r == 0)
        r = check(all, from, spec->name, e);
    if (r == 0 && spec->snapshot[0] != '\0' &&
        (p = snapshots_find(from, spec->snapshot, e)) == NULL)
        r = err_errno(e);
    if (r < 0)
        return r;
    struct made_op *op = calloc(1, sizeof *op);
    if (op == NULL || (op->m = make(all, from, spec)) == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "make a template");
    }
    op->all = all;
    op->done = done;
    op->cookie = cookie;
    list_init(&op->swap.waiter.node);
    *out = op;
    if (p == NULL) {
        r = snapshots_seal(from, spec->stop, on_sealed, op, &sealing, e);
        if (r < 0) {
            made_delete(op->m);
            free(op);
        }
        return r;
    }
    op->layer = p->layer;
    take_layers(op, from);
    return 0;
}

void
made_cancel(struct made_op *op)
{
    struct err why;
    op->done = NULL;
    if (op->request == NULL)
        return; // the files are being sealed, or given to the holder
    pool_cancel(op->request);
    (void)err_set(&why, ERR_CANCELLED, "nobody waits for it");
    end(op, &why);
}
