// SPDX-License-Identifier: Apache-2.0
// See made.h. A record may be dropped at any time: it is found again by its id.
#include "made.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kept.h"
#include "made_private.h"
#include "noted.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "server/base/log.h"
#include "server/base/server.h"
#include "server/keeper/keep.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/template.h"
#include "server/store/spool.h"
#include "snapshots_private.h"

_Static_assert(TEMPLATE_PATHS_MAX + 2 <= 'k' - 'a', "no part of a layer is `k` (keeper/work.h)");

struct made_all {
    struct server *srv;
    struct list list;
    struct list archives; // on their way
};

struct made_op {
    struct made_all *all;
    struct made *m;
    struct snapshot_op *sealing; // NULL: it has ended
    struct kept_op *keeping;     // NULL: it has not begun
    struct store_op *storing;    // of a spool; NULL: it has not begun
    bool replace;
    made_done *done; // NULL: nobody waits
    void *cookie;
};

static void
made_free(struct image *i)
{
    struct made *m = container_of(i, struct made, image);
    for (uint32_t k = 0; k < m->layers_n; k++)
        work_unref(m->work[k]);
    free(m->image.env);
    free(m);
}

// It is not found any more; sandboxes may still refer to it.
static void
forget(struct made *m)
{
    m->ready = false;
    m->record[0] = '\0';
    list_remove(&m->node);
    image_unref(&m->image);
}

struct made_all *
made_all_new(struct server *s)
{
    struct made_all *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = s;
    list_init(&all->list);
    list_init(&all->archives);
    return all;
}

void
made_all_free(struct made_all *all)
{
    while (all != NULL && !list_empty(&all->list))
        forget(list_entry(all->list.next, struct made, node));
    free(all);
}

struct list *
made_list(struct made_all *all)
{
    return &all->list;
}

// ---- for archives.c

struct list *
made_archives(struct made_all *all)
{
    return &all->archives;
}

const char *
made_node(const struct made_all *all)
{
    return sandboxes_settings(all->srv->sandboxes)->node;
}

int
made_export(const struct made *m, struct spool *to, store_done *done, void *cookie,
            struct store_exporting **out, struct err *e)
{
    struct store *store = m->all->srv->store;
    struct stored *r = store_find(store, m->tenant, STORE_TEMPLATE, m->record);
    return r == NULL ? err_set(e, ERR_NOT_FOUND, "there is no template %s", m->image.name)
                     : store_export(store, r, to, done, cookie, out, e);
}

static bool
is_named(const struct made *m, const char *tenant, const char *name)
{
    return strcmp(m->image.name, name) == 0 && strcmp(m->tenant, tenant) == 0;
}

static bool
is_being_deleted(const struct made *m)
{
    return !m->ready && m->record[0] != '\0';
}

struct made *
made_find(const struct made_all *all, const char *tenant, const char *name)
{
    for (struct list *it = all->list.next; it != &all->list; it = it->next) {
        struct made *m = list_entry(it, struct made, node);
        if (m->ready && is_named(m, tenant, name))
            return m;
    }
    return NULL;
}

const struct template *
made_template(const struct made *m)
{
    const struct sandbox_settings *s = sandboxes_settings(m->all->srv->sandboxes);
    for (uint32_t i = 0; i < s->templates_n; i++)
        if (!s->template[i].removed && strcmp(s->template[i].name, m->host_template) == 0)
            return &s->template[i];
    return NULL;
}

// ---- a new sandbox gets the files

static int
image_begin(struct image *i, struct sandbox *s, image_done *done, void *cookie, void **op,
            struct err *e)
{
    struct made *m = container_of(i, struct made, image);
    struct kept_op *laying = NULL;
    struct kept_files f = {.work = m->work};
    f.r = m->ready ? store_find(m->all->srv->store, m->tenant, STORE_TEMPLATE, m->record) : NULL;
    if (f.r == NULL)
        return err_set(e, ERR_NOT_FOUND, "it was deleted meanwhile");
    if (strcmp(m->host_template, s->spec.template->name) != 0) {
        (void)err_set(e, ERR_ABORTED, "it was replaced by one of template %s of the host meanwhile",
                      m->host_template);
        err_detail(e, "TEMPLATE_REPLACED", "template", "try again");
        return err_errno(e);
    }
    int rc = kept_lay_files(s, &f, false, done, cookie, &laying, e);
    *op = laying;
    return rc;
}

static void
image_unwait(void *op)
{
    kept_unwait(op);
}

static struct image *
image_current(struct image *i)
{
    struct made *m = container_of(i, struct made, image);
    struct made *now = m->ready ? m : made_find(m->all, m->tenant, i->name);
    return now == NULL ? NULL : &now->image;
}

// ---- from a record

static struct made *
made_new(struct made_all *all, const char *tenant, const char *name)
{
    struct made *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->image = (struct image){.refs = 1,
                              .begin = image_begin,
                              .unwait = image_unwait,
                              .current = image_current,
                              .free = made_free};
    m->all = all;
    (void)snprintf(m->image.name, sizeof m->image.name, "%s", name);
    (void)snprintf(m->tenant, sizeof m->tenant, "%s", tenant);
    list_append(&all->list, &m->node);
    return m;
}

const struct store *
made_store(const struct made *m)
{
    return m->all->srv->store;
}

// Those of the same name: this one has taken their place.
static void
delete_others(const struct made *m)
{
    list_each(it, &m->all->list)
    {
        struct made *one = list_entry(it, struct made, node);
        struct made_op *op = NULL;
        struct err e;
        if (one != m && one->ready && is_named(one, m->tenant, m->image.name) &&
            made_delete(one, NULL, NULL, &op, &e) < 0)
            log_err(LOG_WARNING, "template", &e);
    }
}

void
made_load(struct made_all *all)
{
    struct store *store = all->srv->store;
    if (store == NULL)
        return;
    list_each(it, store_records(store))
    {
        const struct stored *r = list_entry(it, struct stored, node);
        struct err e;
        if (r->kind != STORE_TEMPLATE || r->dropped)
            continue;
        struct made *m = made_new(all, r->tenant->name, r->name);
        if (m != NULL && made_read_record(m, r, &e) == 0) {
            delete_others(m);
            continue;
        }
        if (m == NULL)
            (void)err_sys(&e, ENOMEM, "read a template");
        else
            forget(m);
        (void)err_wrap(&e, "template %s of %s is not used, and stays on the disk", r->name,
                       r->tenant->name);
        log_err(LOG_ERROR, "template", &e);
    }
}

// ---- making one

static void
end(struct made_op *op, const struct err *failed)
{
    struct made *m = op->m;
    struct err e;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "make template %s", m->image.name);
        forget(m);
        op->done(op->cookie, NULL, &e);
    } else {
        log_event(LOG_INFO, "template-made", "%s of %s, from %s%s", m->image.name, m->tenant,
                  m->loaded_by[0] != '\0' ? "an archive" : "sandbox ", m->sandbox);
        delete_others(m);
        op->done(op->cookie, m, NULL);
    }
    free(op);
}

static void
on_kept(void *cookie, struct stored *r, const struct err *failed)
{
    struct made_op *op = cookie;
    struct err e;
    struct err ignored;
    if (failed != NULL) {
        end(op, failed);
    } else if (made_read_record(op->m, r, &e) == 0) {
        end(op, NULL);
    } else {
        (void)store_drop(op->all->srv->store, r, NULL, NULL, &ignored);
        end(op, &e);
    }
}

int
made_may_add(const struct made_all *all, const char *tenant, const char *name, bool replace,
             struct err *e)
{
    uint32_t n = 0, named = 0;
    for (struct list *it = all->list.next; it != &all->list; it = it->next) {
        const struct made *m = list_entry(it, struct made, node);
        n += strcmp(m->tenant, tenant) == 0 && !(replace && is_being_deleted(m));
        named += is_named(m, tenant, name);
    }
    if (named > 0 && !replace) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "a template with the name %s already exists", name);
        err_detail(e, "NAME_TAKEN", "name",
                   "replace it (--replace), delete it first, or choose another name");
        return r;
    }
    if (n < MADE_OF_TENANT || (n == MADE_OF_TENANT && named > 0))
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "there are %d templates, the maximum for one caller",
                    MADE_OF_TENANT);
    err_detail(e, "TEMPLATES", tenant, "delete some of them");
    err_rule(e, "templates", "as many as there are");
    return r;
}

static int
keep(struct made_op *op, struct sandbox *from, uint32_t layer, struct err *e)
{
    size_t n = 0;
    uint8_t *auto_free about = made_describe(op->m, from, layer, &n, e);
    if (about == NULL)
        return err_errno(e);
    const struct kept_want want = {.kind = STORE_TEMPLATE,
                                   .id = "",
                                   .name = op->m->image.name,
                                   .again = op->replace,
                                   .about = about,
                                   .about_n = n};
    return kept_begin(from, layer, &want, on_kept, op, &op->keeping, e);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct made_op *op = cookie;
    struct err e;
    (void)p;
    op->sealing = NULL;
    if (failed != NULL)
        end(op, failed);
    else if (keep(op, s, s->snapshots->top, &e) < 0)
        end(op, &e);
}

// What the caller wants, until the record says it.
static struct made *
reserve(struct made_all *all, const struct sandbox *from, const struct made_spec *spec)
{
    struct made *m = made_new(all, from->tenant->name, spec->name);
    if (m == NULL)
        return NULL;
    m->image.env = calloc(spec->env_n + 1, sizeof *m->image.env);
    if (m->image.env == NULL) {
        forget(m);
        return NULL;
    }
    for (uint32_t i = 0; i < spec->env_n; i++)
        m->image.env[m->image.env_n++] = spec->env[i];
    (void)snprintf(m->image.workdir, sizeof m->image.workdir, "%s", spec->workdir);
    (void)snprintf(m->snapshot, sizeof m->snapshot, "%s", spec->snapshot);
    return m;
}

int
made_create(struct made_all *all, struct sandbox *from, const struct made_spec *spec,
            made_done *done, void *cookie, struct made_op **out, struct err *e)
{
    const struct snapshot *p = NULL;
    int r = sandbox_check_running(from, e);
    if (r == 0)
        r = store_available(all->srv->store, e);
    if (r == 0)
        r = made_may_add(all, from->tenant->name, spec->name, spec->replace, e);
    if (r == 0 && spec->snapshot[0] != '\0' &&
        (p = snapshots_find(from, spec->snapshot, e)) == NULL) {
        err_detail(e, NULL, "snapshot", NULL);
        r = err_errno(e);
    }
    if (r < 0)
        return r;
    struct made_op *op = calloc(1, sizeof *op);
    if (op == NULL || (op->m = reserve(all, from, spec)) == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "make a template");
    }
    op->all = all;
    op->replace = spec->replace;
    op->done = done;
    op->cookie = cookie;
    *out = op;
    r = p != NULL ? keep(op, from, p->layer, e)
                  : snapshots_seal(from, spec->stop, on_sealed, op, &op->sealing, e);
    if (r < 0) {
        forget(op->m);
        free(op);
    }
    return r;
}

int
made_take(struct made_all *all, const struct made_foreign *f, made_done *done, void *cookie,
          struct made_op **out, struct err *e)
{
    struct store *store = all->srv->store;
    const struct store_want want = {.kind = STORE_TEMPLATE,
                                    .tenant = f->tenant,
                                    .id = "",
                                    .name = f->name,
                                    .again = f->replace,
                                    .about = f->about,
                                    .about_n = f->about_n,
                                    .from_spool = f->from,
                                    .template = f->on->name,
                                    .parts_max = f->on->root_writable ? KEEP_PARTS_MAX : 1,
                                    .set_id = f->on->user_root};
    int r = made_may_add(all, f->tenant, f->name, f->replace, e);
    if (r == 0 && spool_streams(f->from) > LAYERS_DEPTH) {
        r = err_set(e, ERR_INVALID_ARGUMENT, "the archive is refused: it has more than %d layers",
                    LAYERS_DEPTH);
        err_detail(e, "ARCHIVE_REFUSED", "archive", "no template has so many");
    }
    if (r < 0)
        return r;
    struct made_op *op = calloc(1, sizeof *op);
    struct made *m = op == NULL ? NULL : made_new(all, f->tenant, f->name);
    if (m == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "load a template");
    }
    *op =
        (struct made_op){.all = all, .m = m, .replace = f->replace, .done = done, .cookie = cookie};
    r = store_available(store, e);
    if (r == 0)
        r = store_keep(store, NULL, &want, on_kept, op, &op->storing, e);
    if (r < 0) {
        forget(m);
        free(op);
        return r;
    }
    *out = op;
    return 0;
}

// ---- the end of one

static void
on_dropped(void *cookie, struct stored *r, const struct err *failed)
{
    struct made_op *op = cookie;
    (void)r;
    if (failed == NULL || made_find(op->all, op->m->tenant, op->m->image.name) != NULL)
        forget(op->m); // of one that was replaced, the next start deletes the record
    else
        op->m->ready = true; // it is still there
    if (failed != NULL && op->done == NULL)
        log_err(LOG_WARNING, "template", failed);
    if (op->done != NULL)
        op->done(op->cookie, NULL, failed);
    free(op);
}

int
made_delete(struct made *m, made_done *done, void *cookie, struct made_op **out, struct err *e)
{
    struct store *store = m->all->srv->store;
    struct stored *r = store_find(store, m->tenant, STORE_TEMPLATE, m->record);
    struct made_op *op = calloc(1, sizeof *op);
    if (op == NULL || r == NULL) {
        free(op);
        return op == NULL ? err_sys(e, ENOMEM, "delete a template")
                          : err_set(e, ERR_NOT_FOUND, "there is no template %s", m->image.name);
    }
    *op = (struct made_op){.all = m->all, .m = m, .done = done, .cookie = cookie};
    int rc = store_drop(store, r, on_dropped, op, e);
    if (rc < 0) {
        free(op);
        return rc;
    }
    m->ready = false;
    *out = op;
    return 0;
}

// A deletion goes on.
void
made_unwait(struct made_op *op)
{
    op->done = NULL;
    if (op->sealing != NULL)
        snapshot_unwait(op->sealing);
    else if (op->keeping != NULL)
        kept_unwait(op->keeping);
    else if (op->storing != NULL)
        store_unwait(op->storing);
    else
        return;
    forget(op->m);
    free(op);
}
