// SPDX-License-Identifier: Apache-2.0
// See kept.h. The sandbox may end at any time: it is found again by its id. Its layers stay as long as `busy` is set.
#include "kept.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "noted.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/vault/vault.h"
#include "snapshots_private.h"

struct kept_op {
    struct server *srv;
    char sandbox[ID_TEXT_MAX + 1], tenant[32];
    store_done *kept; // both NULL: nobody waits
    kept_lay_done *laid;
    void *cookie;
    struct store_op *storing;                  // NULL: it has ended
    uint32_t chain[STORE_LAYERS_MAX], chain_n; // numbers, each after the one that it lies on
    const struct kept_tree *tree;              // that lies in the sandbox soon; NULL: a chain
    struct sandbox_adoption adoption;
    struct sandbox_swap swap;
    struct stored_layer *layer[STORE_LAYERS_MAX]; // that lie in the sandbox soon; held
    struct work *work[STORE_LAYERS_MAX];          // of these
    uint32_t layers_n;
    uint8_t *about; // of a snapshot
    size_t about_n;
    struct err e;
    bool begins; // kept_lay() has not returned: a failure is its result
    bool failed, stop;
};

static struct sandbox *
find(const struct kept_op *op)
{
    struct err ignored;
    struct sandbox *s = sandbox_find(op->srv->sandboxes, op->tenant, op->sandbox, &ignored);
    return s == NULL || s->state == SANDBOX_DELETING ? NULL : s;
}

static struct kept_op *
op_new(const struct sandbox *s, void *cookie)
{
    struct kept_op *op = calloc(1, sizeof *op);
    if (op == NULL)
        return NULL;
    op->srv = sandboxes_server(s->all);
    op->cookie = cookie;
    (void)snprintf(op->sandbox, sizeof op->sandbox, "%s", s->id.id);
    (void)snprintf(op->tenant, sizeof op->tenant, "%s", s->tenant->name);
    list_init(&op->swap.waiter.node);
    return op;
}

static void
op_free(struct kept_op *op)
{
    for (uint32_t i = 0; i < op->layers_n; i++)
        store_let_go(op->srv->store, op->layer[i]);
    for (uint32_t i = 0; i < STORE_LAYERS_MAX; i++)
        work_unref(op->work[i]);
    free(op->about);
    free(op);
}

void
kept_unwait(struct kept_op *op)
{
    if (op->kept != NULL && op->storing != NULL) {
        struct sandbox *s = find(op);
        store_unwait(op->storing);
        if (s != NULL && s->snapshots != NULL)
            s->snapshots->busy--;
        op_free(op);
        return;
    }
    op->laid = NULL;
}

struct stored *
kept_find(const struct server *srv, const char *tenant, const char *name, struct err *e)
{
    struct stored *r =
        srv->store == NULL ? NULL : store_find(srv->store, tenant, STORE_SNAPSHOT, name);
    if (r == NULL) {
        (void)err_set(e, ERR_NOT_FOUND, "there is no kept snapshot %s", name);
        err_detail(e, "SNAPSHOT_UNKNOWN", "name", "'stockade snapshot ls' lists them");
    }
    return r;
}

// ---- keep

static void
note_layers(struct kept_op *op, struct snapshots_box *b, const struct stored *r)
{
    for (uint32_t i = 0; i < op->chain_n && i < r->layers_n; i++) {
        struct layer *l = layer_of(b, op->chain[i]);
        if (l == NULL || l->kept == r->layer[i])
            continue;
        if (l->kept != NULL)
            store_let_go(op->srv->store, l->kept);
        l->kept = r->layer[i];
        l->store = op->srv->store;
        store_hold(l->kept);
    }
}

static void
on_kept(void *cookie, struct stored *r, const struct err *e)
{
    struct kept_op *op = cookie;
    struct sandbox *s = find(op);
    op->storing = NULL;
    if (s != NULL && s->snapshots != NULL) {
        s->snapshots->busy--;
        if (r != NULL)
            note_layers(op, s->snapshots, r);
        layers_prune(s, s->snapshots);
    }
    op->kept(op->cookie, r, e);
    op_free(op);
}

static void
list_chain(struct kept_op *op, struct snapshots_box *b, uint32_t layer)
{
    uint32_t down[STORE_LAYERS_MAX], n = 0;
    const struct layer *l = NULL;
    for (uint32_t at = layer; n < STORE_LAYERS_MAX && (l = layer_of(b, at)) != NULL; at = l->below)
        down[n++] = at;
    while (n > 0)
        op->chain[op->chain_n++] = down[--n];
}

// Without memory it has no description, which is better than no copy.
static void
describe(struct kept_op *op, struct snapshots_box *b, uint32_t layer)
{
    struct arena *auto_arena a = arena_new(WORK_ARENA_BYTES);
    Stockade__Work__Work *m = a == NULL ? NULL : noted_message(b, layer, a);
    if (m != NULL)
        op->about = work_pack(m, STORE_ABOUT_MAX, &op->about_n);
    if (op->about == NULL)
        op->about_n = 0;
}

int
kept_begin(struct sandbox *s, uint32_t layer, const struct kept_want *want, store_done *done,
           void *cookie, struct kept_op **out, struct err *e)
{
    struct store *store = sandboxes_server(s->all)->store;
    int rc = store_available(store, e);
    if (rc == 0 && s->simulation != NULL) {
        rc = err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is simulated, and leaves nothing",
                     s->id.id);
        err_detail(e, "SIMULATED", s->id.id, "keep the files of the sandbox that it began with");
    }
    if (rc < 0)
        return rc;
    struct kept_op *op = op_new(s, cookie);
    if (op == NULL || snapshots_box_of(s) == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "keep files");
    }
    op->kept = done;
    if (want->tree == NULL)
        list_chain(op, s->snapshots, layer);
    for (uint32_t i = 0; want->tree != NULL && i < want->tree->n; i++)
        op->chain[op->chain_n++] = want->tree->number[i];
    if (want->about == NULL)
        describe(op, s->snapshots, layer);
    struct store_want w = {.kind = want->kind,
                           .tenant = op->tenant,
                           .id = want->id,
                           .name = want->name,
                           .again = want->again,
                           .about = want->about != NULL ? want->about : op->about,
                           .about_n = want->about != NULL ? want->about_n : op->about_n,
                           .layers_n = op->chain_n};
    for (uint32_t i = 0; i < op->chain_n; i++) {
        w.part[i].layer = op->chain[i];
        struct stored_layer *known = layer_of(s->snapshots, op->chain[i])->kept;
        if (known != NULL && vault_is_current(op->srv->vault, op->tenant, known->key_id))
            w.part[i].known = known;
    }
    rc = store_keep(store, s, &w, on_kept, op, &op->storing, e);
    if (rc < 0) {
        op_free(op);
        return rc;
    }
    s->snapshots->busy++;
    *out = op;
    return 0;
}

// ---- lay

static void
laid(struct kept_op *op, struct sandbox *s, const struct err *e)
{
    if (op->laid != NULL)
        op->laid(op->cookie, s, e);
    op_free(op);
}

static void
on_adopted(void *cookie, struct sandbox *s, const struct err *e)
{
    struct kept_op *op = cookie;
    struct snapshots_box *b = s->snapshots;
    struct err none;
    b->busy--;
    for (uint32_t i = 0; e == NULL && i < op->layers_n; i++) {
        const uint8_t below = op->adoption.below[i];
        const struct layer l = {.below = below == 0 ? 0 : op->adoption.layer[below - 1],
                                .bytes = op->layer[i]->bytes,
                                .inodes = op->layer[i]->entries,
                                .kept = op->layer[i],
                                .work = take_ptr(op->work[i]),
                                .store = op->srv->store};
        store_hold(l.kept);
        (void)layer_put(s, op->adoption.layer[i], &l);
    }
    if (e == NULL)
        layers_go_on(b, op->swap.layer);
    if (e == NULL && op->tree != NULL && kept_tree_name(op->tree, &op->adoption, b, &none) < 0)
        e = &none;
    layers_prune(s, b);
    laid(op, s, e);
}

// The work of the layers, if it is known: the files can be used also with a damaged description.
static void
take_work(struct kept_op *op, const struct stored *r)
{
    struct err e;
    struct arena *auto_arena a = arena_new(WORK_ARENA_BYTES);
    Stockade__Work__Work *m = NULL;
    if (a == NULL || r->kind != STORE_SNAPSHOT || work_unpack(r, a, &m, &e) < 0)
        return;
    for (uint32_t i = 0; i < r->layers_n; i++)
        op->work[i] = work_of_layer(m, i);
}

static int
adopt(struct kept_op *op, struct sandbox *s, struct err *e)
{
    if (snapshots_box_of(s) == NULL)
        return err_sys(e, ENOMEM, "show kept files");
    op->adoption.n = op->layers_n;
    op->adoption.top = op->tree != NULL ? op->tree->top : (uint8_t)op->layers_n;
    for (uint32_t i = 0; i < op->layers_n; i++) {
        const struct stored_layer *l = op->layer[i];
        op->adoption.digest[i] = l->digest;
        op->adoption.sealed[i] = (struct sandbox_sealed){
            sealed_id_is_none(l->key_id) ? NULL : l->key_id, l->bytes, l->entries};
        op->adoption.below[i] = op->tree != NULL ? op->tree->below[i] : (uint8_t)i;
    }
    op->swap.waiter.done = on_adopted;
    op->swap.waiter.cookie = op;
    int rc = sandbox_adopt(s, &op->adoption, &op->swap, e);
    if (rc == 0)
        s->snapshots->busy++;
    return rc;
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct kept_op *op = cookie;
    struct err e;
    (void)p;
    if (failed != NULL)
        laid(op, s, failed);
    else if (adopt(op, s, &e) < 0)
        laid(op, s, &e);
}

// What it has written becomes a layer first, which is dropped then. A new sandbox has written nothing.
static int
make_way(struct kept_op *op, struct sandbox *s, struct err *e)
{
    struct snapshot_op *sealing = NULL;
    const bool fresh = s->jobs_begun == 0 && s->agents_begun == 0 && s->snapshots == NULL;
    return fresh ? adopt(op, s, e) : snapshots_seal(s, op->stop, on_sealed, op, &sealing, e);
}

static void
on_checked(void *cookie, struct stored *r, const struct err *failed)
{
    struct kept_op *op = cookie;
    struct err e;
    struct sandbox *s = find(op);
    op->storing = NULL;
    for (uint32_t i = 0; failed == NULL && i < r->layers_n; i++) {
        op->layer[op->layers_n++] = r->layer[i];
        store_hold(r->layer[i]);
    }
    if (failed != NULL)
        e = *failed;
    else if (s == NULL)
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    else if (make_way(op, s, &e) == 0)
        return;
    op->e = e;
    op->failed = true;
    if (!op->begins)
        laid(op, s, &e);
}

int
kept_lay(struct sandbox *s, struct stored *r, bool stop, kept_lay_done *done, void *cookie,
         struct kept_op **out, struct err *e)
{
    const struct kept_files f = {.r = r};
    return kept_lay_files(s, &f, stop, done, cookie, out, e);
}

int
kept_lay_files(struct sandbox *s, const struct kept_files *f, bool stop, kept_lay_done *done,
               void *cookie, struct kept_op **out, struct err *e)
{
    struct stored *r = f->r;
    int rc = sandbox_check_running(s, e);
    if (rc == 0 && strcmp(r->template, s->spec.template->name) != 0) {
        rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "the files come from a sandbox of template %s, and this one is of %s",
                     r->template, s->spec.template->name);
        err_detail(e, "OTHER_TEMPLATE", "template", "create a sandbox of that template");
    }
    if (rc < 0)
        return rc;
    struct kept_op *op = op_new(s, cookie);
    if (op == NULL)
        return err_sys(e, ENOMEM, "show kept files");
    op->laid = done;
    op->stop = stop;
    op->begins = true;
    op->tree = f->tree;
    if (f->work == NULL)
        take_work(op, r);
    for (uint32_t i = 0; f->work != NULL && i < r->layers_n; i++)
        op->work[i] = work_ref(f->work[i]);
    rc = store_check(op->srv->store, r, on_checked, op, &op->storing, e);
    op->begins = false;
    if (rc == 0 && op->failed) {
        *e = op->e;
        rc = err_errno(e);
    }
    if (rc < 0)
        op_free(op);
    else
        *out = op;
    return rc;
}
