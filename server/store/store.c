// SPDX-License-Identifier: Apache-2.0
// See store.h. The lists of records and layers in memory are what the broker believes; they change when the disk has. load.c fills
// them at the start.
//
//   keep    reserve -> PUT each layer that is not known -> write the record -> add it, done
//   failure, or nobody waits -> what was held is released -> REMOVE of each layer that nothing holds
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/keeper.h"
#include "server/sandbox/sandbox.h"
#include "server/vault/vault.h"
#include "private.h"
#include "spool.h"

struct store_op {
    struct store *s;
    store_done *done; // NULL: nobody waits
    void *cookie;
    struct stored *r; // KEEP: not in the list yet; CHECK: borrowed
    bool checks;
    uint64_t began_ns; // KEEP
    uint32_t at;
    uint32_t slot, generation;
    uint32_t part[STORE_LAYERS_MAX]; // numbers; 0: known
    // KEEP: where the layers belong in the record: first those that were known, then the parts
    uint8_t index[STORE_LAYERS_MAX];
    struct spool *from; // KEEP: not NULL: the layers are its streams
    uint32_t parts_max;
    bool set_id;
};
_Static_assert(STORE_LAYERS_MAX <= UINT8_MAX, "`index`");

// ---- layers

void
store_digest_text(const uint8_t digest[SPAWN_DIGEST_BYTES], char out[STORE_DIGEST_TEXT])
{
    (void)sodium_bin2hex(out, STORE_DIGEST_TEXT, digest, SPAWN_DIGEST_BYTES);
}

void
store_digest_all(const struct stored *r, char out[STORE_DIGEST_TEXT])
{
    uint8_t digest[SPAWN_DIGEST_BYTES];
    crypto_generichash_state h;
    (void)crypto_generichash_init(&h, NULL, 0, sizeof digest);
    for (uint32_t i = 0; i < r->layers_n; i++)
        (void)crypto_generichash_update(&h, r->layer[i]->digest, sizeof r->layer[i]->digest);
    (void)crypto_generichash_final(&h, digest, sizeof digest);
    store_digest_text(digest, out);
}

struct stored_layer *
store_layer(struct store *s, const struct stored_layer *like)
{
    list_each(it, &s->layers)
    {
        struct stored_layer *l = list_entry(it, struct stored_layer, node);
        if (memcmp(l->digest, like->digest, sizeof l->digest) == 0)
            return l;
    }
    struct stored_layer *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    memcpy(l->digest, like->digest, sizeof l->digest);
    memcpy(l->key_id, like->key_id, sizeof l->key_id);
    l->bytes = like->bytes;
    l->entries = like->entries;
    list_append(&s->layers, &l->node);
    metrics_move(METRIC_KEPT_LAYERS, 0, 1);
    metrics_move(METRIC_KEPT_BYTES, 0, (int64_t)l->bytes);
    return l;
}

void
store_layer_free(struct stored_layer *l)
{
    metrics_move(METRIC_KEPT_LAYERS, 0, -1);
    metrics_move(METRIC_KEPT_BYTES, 0, -(int64_t)l->bytes);
    list_remove(&l->node);
    free(l);
}

void
store_hold(struct stored_layer *l)
{
    l->holders++;
}

// A keeper that was killed has left what the next sweep removes.
static void
on_removed(void *cookie, const struct keep_answer *a)
{
    if (a->ok != 0)
        return;
    log_err(LOG_WARNING, "store", &a->err);
    store_sweep(cookie);
}

static bool
is_needed(void *cookie, const uint8_t digest[SPAWN_DIGEST_BYTES])
{
    const struct store *s = cookie;
    for (const struct list *it = s->layers.next; it != &s->layers; it = it->next)
        if (memcmp(list_entry((struct list *)(uintptr_t)it, struct stored_layer, node)->digest,
                   digest, SPAWN_DIGEST_BYTES) == 0)
            return true;
    return false;
}

void
store_let_go(struct store *s, struct stored_layer *l)
{
    struct err e;
    if (l == NULL || --l->holders > 0)
        return;
    struct keepers_work w = {.order = {.op = KEEP_REMOVE}, .list_fd = -1, .is_needed = is_needed};
    memcpy(w.order.digest, l->digest, sizeof w.order.digest);
    store_layer_free(l);
    if (!s->closing && !s->unreadable && keepers_add(s->keepers, &w, on_removed, s, &e) < 0)
        log_err(LOG_WARNING, "store", &e);
}

// ---- records

uint64_t
stored_bytes(const struct stored *r)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->layers_n; i++)
        sum += r->layer[i]->bytes;
    return sum;
}

uint64_t
stored_entries(const struct stored *r)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->layers_n; i++)
        sum += r->layer[i]->entries;
    return sum;
}

void
store_list(struct stored *r)
{
    metrics_move(METRIC_KEPT_RECORDS, r->kind, 1);
    r->listed = true;
    r->pending = r->dropped = false;
}

void
store_record_free(struct store *s, struct stored *r)
{
    if (r == NULL)
        return;
    if (r->listed)
        metrics_move(METRIC_KEPT_RECORDS, r->kind, -1);
    list_remove(&r->node);
    for (uint32_t i = 0; i < r->layers_n; i++)
        store_let_go(s, r->layer[i]);
    if (r->tenant != NULL)
        tenant_drop(r->tenant);
    free(r->about);
    free(r);
}

struct list *
store_records(struct store *s)
{
    return &s->records;
}

struct stored *
store_find(const struct store *s, const char *tenant, enum store_kind kind, const char *name)
{
    for (const struct list *it = s->records.next; it != &s->records; it = it->next) {
        struct stored *r = list_entry((struct list *)(uintptr_t)it, struct stored, node);
        if (!r->dropped && r->kind == kind && strcmp(r->tenant->name, tenant) == 0 &&
            (strcmp(r->id, name) == 0 || (name[0] != '\0' && strcmp(r->name, name) == 0)))
            return r;
    }
    return NULL;
}

// ---- keep, check

static void
op_end(struct store_op *op, const struct err *e)
{
    struct store *s = op->s;
    struct stored *r = op->r;
    struct err ignored;
    s->ops--;
    if (!op->checks && e != NULL)
        metrics_add(METRIC_KEEPS_FAILED, 1);
    else if (!op->checks)
        metrics_observe(METRIC_KEEP_TIME, 0, uv_hrtime() - op->began_ns);
    if (op->checks) {
        if (op->done != NULL)
            op->done(op->cookie, r, e);
        for (uint32_t i = 0; i < r->layers_n; i++)
            store_let_go(s, r->layer[i]);
        r->tenant = NULL; // a copy
        free(r);
    } else if (e != NULL) {
        store_record_free(s, r);
        if (op->done != NULL)
            op->done(op->cookie, NULL, e);
    } else if (op->done != NULL) {
        op->done(op->cookie, r, NULL);
    } else {
        (void)store_drop(s, r, NULL, NULL, &ignored);
    }
    free(op);
}

static void
on_record_written(void *cookie, const struct err *e)
{
    struct store_op *op = cookie;
    if (e == NULL)
        store_list(op->r);
    op_end(op, e);
}

static void op_next(struct store_op *op);

static void
on_put(void *cookie, const struct keep_answer *a)
{
    struct store_op *op = cookie;
    struct stored *r = op->r;
    struct err e;
    if (a->ok == 0) {
        if (a->err.code == ERR_INTERNAL || strcmp(a->err.reason, KEEPER_KILLED) == 0)
            store_sweep(op->s); // as in on_removed()
        op_end(op, &a->err);
        return;
    }
    struct stored_layer like = {.bytes = a->bytes, .entries = a->entries};
    memcpy(like.digest, a->digest, sizeof like.digest);
    memcpy(like.key_id, r->key_id, sizeof like.key_id);
    struct stored_layer *l = store_layer(op->s, &like);
    if (l == NULL) {
        (void)err_sys(&e, ENOMEM, "keep a layer"); // the next start removes it
        op_end(op, &e);
        return;
    }
    store_hold(l);
    r->layer[r->layers_n++] = l;
    l->sound = a->known == 0 || l->sound;
    op->at++;
    uint32_t records = 0;
    if (store_held(op->s, r->tenant, &records) > tenant_quota(r->tenant, QUOTA_KEPT_BYTES)) {
        (void)store_refuse_bytes(op->s, r->tenant, 0, &e);
        op_end(op, &e);
        return;
    }
    op_next(op);
}

static void
on_checked(void *cookie, const struct keep_answer *a)
{
    struct store_op *op = cookie;
    struct stored_layer *l = op->r->layer[op->at++];
    if (a->ok == 0) {
        l->damaged = strcmp(a->err.reason, "KEY_FORGOTTEN") != 0 &&
                     (a->err.code == ERR_DATA_LOSS || a->err.code == ERR_NOT_FOUND);
        struct err e = a->err;
        if (l->damaged) {
            metrics_add(METRIC_KEPT_DAMAGED, 1);
            log_err(LOG_ERROR, "store", &a->err);
            e.code = ERR_DATA_LOSS;
        }
        op_end(op, &e);
        return;
    }
    l->sound = true;
    op_next(op);
}

static int
begin_check(struct store_op *op, struct err *e)
{
    struct keepers_work w = {.order = {.op = KEEP_CHECK}, .list_fd = -1};
    while (op->at < op->r->layers_n && op->r->layer[op->at]->sound)
        op->at++;
    if (op->at == op->r->layers_n)
        return 1;
    memcpy(w.order.digest, op->r->layer[op->at]->digest, sizeof w.order.digest);
    memcpy(w.key_id, op->r->layer[op->at]->key_id, sizeof w.key_id);
    return keepers_add(op->s->keepers, &w, on_checked, op, e);
}

static void
put_in_order(struct store_op *op)
{
    struct stored *r = op->r;
    struct stored_layer *was[STORE_LAYERS_MAX];
    memcpy(was, r->layer, sizeof was);
    for (uint32_t i = 0; i < r->layers_n; i++)
        r->layer[op->index[i]] = was[i];
}

// The next stream of the spool.
static int
begin_import(struct store_op *op, struct err *e)
{
    const struct spool_stream *of = spool_stream(op->from, op->at);
    struct keepers_work w = {.order = {.op = KEEP_IMPORT,
                                       .bytes_max = tenant_quota(op->r->tenant, QUOTA_KEPT_BYTES),
                                       .at = of->at,
                                       .file_bytes = of->file_bytes,
                                       .parts_max = op->parts_max,
                                       .set_id = op->set_id,
                                       .file_key = *spool_key(op->from)},
                             .list_fd = fcntl(spool_fd(op->from), F_DUPFD_CLOEXEC, 0)};
    memcpy(w.order.digest, of->digest, sizeof w.order.digest);
    memcpy(w.key_id, op->r->key_id, sizeof w.key_id);
    int rc = w.list_fd < 0 ? err_sys(e, errno, "read an archive")
                           : keepers_add(op->s->keepers, &w, on_put, op, e);
    if (rc < 0 && w.list_fd >= 0)
        (void)close(w.list_fd);
    sealed_key_wipe(&w.order.file_key);
    return rc;
}

// The next layer that is not known, or the record.
static int
begin_put(struct store_op *op, uint32_t parts_n, struct err *e)
{
    if (op->at == parts_n)
        put_in_order(op);
    if (op->at == parts_n)
        return store_write(op->s, op->r, op->r->id, on_record_written, op, e);
    if (op->from != NULL)
        return begin_import(op, e);
    struct keepers_work w = {
        .order = {.op = KEEP_PUT, .bytes_max = tenant_quota(op->r->tenant, QUOTA_KEPT_BYTES)},
        .slot = op->slot,
        .generation = op->generation,
        .layer = op->part[op->at],
        .list_fd = -1};
    memcpy(w.key_id, op->r->key_id, sizeof w.key_id);
    return keepers_add(op->s->keepers, &w, on_put, op, e);
}

static void
op_next(struct store_op *op)
{
    struct err e;
    if (op->from != NULL && op->done == NULL) { // its spool may be gone
        (void)err_set(&e, ERR_CANCELLED, "nobody waits for it");
        op_end(op, &e);
        return;
    }
    uint32_t parts_n = op->from != NULL ? spool_streams(op->from) : 0;
    while (!op->checks && op->from == NULL && parts_n < STORE_LAYERS_MAX && op->part[parts_n] != 0)
        parts_n++;
    int rc = op->checks ? begin_check(op, &e) : begin_put(op, parts_n, &e);
    if (rc != 0)
        op_end(op, rc < 0 ? &e : NULL);
}

// The data key of its tenant is on the disk.
static void
on_key(void *cookie, const struct err *e)
{
    struct store_op *op = cookie;
    if (e == NULL)
        op_next(op);
    else
        op_end(op, e);
}

// 1: it has the data key that it needs, or none; 0: it will go on when it has.
static int
need_key(struct store_op *op, struct err *e)
{
    struct vault *v = op->s->srv->vault;
    return vault_is_on(v) ? vault_need(v, op->r->tenant->name, op->r->key_id, on_key, op, e) : 1;
}

static bool
name_is_taken(struct store *s, const struct tenant *t, const struct store_want *w)
{
    list_each(it, &s->records)
    {
        const struct stored *r = list_entry(it, struct stored, node);
        if (store_counts_to(r, t) && r->kind == w->kind && strcmp(r->name, w->name) == 0)
            return true;
    }
    return false;
}

static int
check_want(struct store *s, const struct store_want *w, const struct tenant *t, struct err *e)
{
    uint32_t records = 0;
    const uint64_t held = store_held(s, t, &records);
    if (w->name[0] != '\0' && !w->again && name_is_taken(s, t, w)) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "%s keeps a state with the name %s already",
                        w->tenant, w->name);
        err_detail(e, "NAME_IN_USE", "name", "choose another name, or delete that one");
        return r;
    }
    if (records >= STORE_RECORDS_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%s keeps %u states, the maximum for one caller",
                        t->name, records);
        err_detail(e, "KEPT_RECORDS", "records", "delete some of them");
        return r;
    }
    return held < tenant_quota(t, QUOTA_KEPT_BYTES) ? 0 : store_refuse_bytes(s, t, 0, e);
}

static struct stored *
record_new(struct store *s, const struct sandbox *from, const struct store_want *w)
{
    uint8_t unused[ID_BYTES];
    struct stored *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    list_init(&r->node);
    r->store = s;
    r->kind = w->kind;
    r->order = ++s->order;
    r->created_ms = now_wall_ms();
    r->about = malloc(w->about_n + 1);
    r->tenant = tenant_hold(s->srv->tenants, w->tenant);
    if (r->about == NULL || r->tenant == NULL) {
        store_record_free(s, r);
        return NULL;
    }
    if (w->about_n > 0)
        memcpy(r->about, w->about, w->about_n);
    r->about_n = w->about_n;
    if (w->id[0] == '\0')
        id_make(sandboxes_settings(s->srv->sandboxes)->node, unused, r->id);
    else
        (void)snprintf(r->id, sizeof r->id, "%s", w->id);
    (void)snprintf(r->name, sizeof r->name, "%s", w->name);
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", from != NULL ? from->id.id : "");
    (void)snprintf(r->template, sizeof r->template, "%s",
                   from != NULL ? from->spec.template->name : w->template);
    return r;
}

int
store_keep(struct store *s, const struct sandbox *from, const struct store_want *want,
           store_done *done, void *cookie, struct store_op **out, struct err *e)
{
    int rc = store_available(s, e);
    if (rc < 0)
        return rc;
    struct stored *r = record_new(s, from, want);
    struct store_op *op = calloc(1, sizeof *op);
    if (r == NULL || op == NULL) {
        free(op);
        store_record_free(s, r);
        return err_sys(e, ENOMEM, "keep files");
    }
    *op = (struct store_op){.s = s,
                            .done = done,
                            .cookie = cookie,
                            .r = r,
                            .began_ns = uv_hrtime(),
                            .slot = from != NULL ? from->slot : 0,
                            .generation = from != NULL ? from->generation : 0,
                            .from = want->from_spool,
                            .parts_max = want->parts_max,
                            .set_id = want->set_id};
    rc = check_want(s, want, r->tenant, e);
    uint32_t parts_n = 0;
    for (uint32_t i = 0; i < want->layers_n && rc == 0; i++) {
        if (want->part[i].known == NULL) {
            op->part[parts_n++] = want->part[i].layer;
            continue;
        }
        store_hold(want->part[i].known);
        op->index[r->layers_n] = (uint8_t)i;
        r->layer[r->layers_n++] = want->part[i].known;
    }
    for (uint32_t i = 0, at = r->layers_n; i < want->layers_n; i++)
        if (want->part[i].known == NULL)
            op->index[at++] = (uint8_t)i;
    for (uint32_t i = 0; want->from_spool != NULL && i < spool_streams(want->from_spool); i++)
        op->index[parts_n++] = (uint8_t)i;
    r->pending = r->dropped = true;
    list_append(&s->records, &r->node);
    s->ops++;
    *out = op;
    if (rc == 0)
        rc = need_key(op, e);
    if (rc == 1)
        rc = begin_put(op, parts_n, e);
    if (rc == 0)
        return 0;
    *out = NULL;
    s->ops--;
    free(op);
    store_record_free(s, r);
    return rc;
}

int
store_check(struct store *s, struct stored *r, store_done *done, void *cookie,
            struct store_op **out, struct err *e)
{
    struct store_op *op = calloc(1, sizeof *op);
    struct stored *copy = malloc(sizeof *copy); // the record may be dropped meanwhile
    *out = NULL;
    if (op == NULL || copy == NULL) {
        free(op);
        free(copy);
        return err_sys(e, ENOMEM, "check kept files");
    }
    *copy = *r;
    copy->about = NULL;
    list_init(&copy->node);
    for (uint32_t i = 0; i < r->layers_n; i++)
        store_hold(r->layer[i]);
    *op = (struct store_op){.s = s, .done = done, .cookie = cookie, .r = copy, .checks = true};
    s->ops++;
    int rc = begin_check(op, e);
    if (rc == 0)
        *out = op;
    else
        op_end(op, rc < 0 ? e : NULL);
    return 0;
}

void
store_unwait(struct store_op *op)
{
    op->done = NULL;
}
