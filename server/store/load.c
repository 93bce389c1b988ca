// SPDX-License-Identifier: Apache-2.0
// See store.h: the start and the end. Records are read before the broker listens; layers that none of them has are removed in
// the background, before any is written.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/vault/vault.h"
#include "private.h"

enum { SWEEPS_FAILED_MAX = 3 };

static int
take(struct store *s, struct file_content *c, struct err *e)
{
    struct stored *r = malloc(sizeof *r);
    struct tenant *t = tenant_hold(s->srv->tenants, c->tenant);
    if (r == NULL || t == NULL) {
        free(r);
        if (t != NULL)
            tenant_drop(t);
        return err_sys(e, ENOMEM, "read a record");
    }
    *r = c->r;
    r->store = s;
    list_init(&r->node);
    r->tenant = t;
    r->about = take_ptr(c->r.about);
    r->layers_n = 0;
    for (uint32_t i = 0; i < c->r.layers_n; i++) {
        struct stored_layer like = {.bytes = c->layer[i].bytes, .entries = c->layer[i].entries};
        memcpy(like.digest, c->layer[i].digest, sizeof like.digest);
        memcpy(like.key_id, c->key_id[i], sizeof like.key_id);
        struct stored_layer *l = store_layer(s, &like);
        if (l == NULL) {
            store_record_free(s, r);
            return err_sys(e, ENOMEM, "read a record");
        }
        store_hold(l);
        r->layer[r->layers_n++] = l;
    }
    s->order = r->order > s->order ? r->order : s->order;
    struct list *at = s->records.next;
    while (at != &s->records && list_entry(at, struct stored, node)->order < r->order)
        at = at->next;
    list_append(at, &r->node); // before it
    store_list(r);
    return 0;
}

// A copy under another name would be a second record with the same file.
static int
check_path(const struct store *s, const char *path, const struct file_content *c, struct err *e)
{
    char own[STORE_PATH_MAX];
    file_path(s->state_dir, c->r.id, own);
    return strcmp(own, path) == 0
               ? 0
               : err_set(e, ERR_DATA_LOSS, "not a valid record: it is the file of %s", c->r.id);
}

// A data key that was forgotten leaves what the head says.
static int
decrypt(const struct store *s, struct file_content *c, struct err *e)
{
    struct sealed_key auto_sealed_key key;
    if (sealed_id_is_none(c->r.key_id))
        return 0;
    int rc = vault_key(s->srv->vault, c->r.key_id, &key, e);
    if (rc == 0)
        return file_unseal(&c->r, &key, e);
    if (strcmp(e->reason, "KEY_FORGOTTEN") != 0)
        return rc;
    free(take_ptr(c->r.about));
    c->r.about_n = 0;
    c->r.unreadable = true;
    return 0;
}

static int
load_one(struct store *s, const char *path, struct err *e)
{
    uint8_t *auto_free bytes = NULL;
    size_t n = 0;
    struct file_content *auto_free c = calloc(1, sizeof *c);
    int rc = c == NULL ? err_sys(e, ENOMEM, "read a record") : file_read(path, &bytes, &n, e);
    if (rc == 0)
        rc = file_unpack(bytes, n, c, e);
    if (rc == 0)
        rc = check_path(s, path, c, e);
    if (rc == 0)
        rc = decrypt(s, c, e);
    if (rc == 0)
        rc = take(s, c, e);
    if (c != NULL)
        free(c->r.about); // NOLINT(clang-analyzer-unix.Malloc): c is auto_free
    return rc;
}

// Left where it is: a broker of a later version, or its owner, may still need it.
static void
leave(struct store *s, const char *path, const struct err *e)
{
    s->unreadable = true;
    log_event(
        LOG_ERROR, "store",
        "%s: %s; it is left there, and no layer is removed: restore the file from a backup, or "
        "move it away and restart the broker",
        path, e->text);
}

static bool
has_end(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static int
load_all(struct store *s, struct err *e)
{
    char folder[STORE_PATH_MAX], path[STORE_PATH_MAX + 256];
    (void)snprintf(folder, sizeof folder, "%s/" STORE_FOLDER, s->state_dir);
    DIR *d = opendir(folder);
    if (d == NULL || fchmod(dirfd(d), 0700) < 0) {
        int rc = err_sys(e, errno, "open %s", folder);
        if (d != NULL)
            (void)closedir(d);
        return rc;
    }
    for (const struct dirent *it = readdir(d); it != NULL; it = readdir(d)) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, it->d_name);
        if (has_end(it->d_name, ".record.new"))
            (void)unlink(path); // a crash was faster
        else if (has_end(it->d_name, ".record") && load_one(s, path, e) < 0)
            leave(s, path, e);
    }
    (void)closedir(d);
    return 0;
}

// ---- what is encrypted

bool
stored_can_be_read(const struct stored *r)
{
    const struct vault *v = r->store->srv->vault;
    bool can = !r->unreadable && vault_has(v, r->key_id);
    for (uint32_t i = 0; i < r->layers_n; i++)
        can = can && vault_has(v, r->layer[i]->key_id);
    return can;
}

void
store_count(const struct store *s, struct store_encrypted *out)
{
    *out = (struct store_encrypted){0};
    for (const struct list *it = s->layers.next; it != &s->layers; it = it->next) {
        const struct stored_layer *l =
            list_entry((struct list *)(uintptr_t)it, struct stored_layer, node);
        *(sealed_id_is_none(l->key_id) ? &out->plain_layers : &out->encrypted_layers) += 1;
    }
    for (const struct list *it = s->records.next; it != &s->records; it = it->next) {
        const struct stored *r = list_entry((struct list *)(uintptr_t)it, struct stored, node);
        if (r->dropped)
            continue;
        *(sealed_id_is_none(r->key_id) ? &out->plain_records : &out->encrypted_records) += 1;
        out->unreadable_records += !stored_can_be_read(r);
    }
}

// ---- what nothing needs

static void
on_swept(void *cookie, const struct keep_answer *a)
{
    struct store *s = cookie;
    s->sweeping = false;
    if (a->ok != 0) {
        s->sweeps_failed = 0;
        if (a->removed > 0)
            log_event(LOG_INFO, "store", "%llu %s that no state of files needs %s removed",
                      (unsigned long long)a->removed, plural(a->removed, "layer", "layers"),
                      plural(a->removed, "was", "were"));
        return;
    }
    log_err(LOG_WARNING, "store", &a->err);
    if (++s->sweeps_failed < SWEEPS_FAILED_MAX) // the next start does it otherwise
        store_sweep(s);
}

// When its turn has come: no layer is being written.
static int
list_layers(void *cookie, struct err *e)
{
    struct store *s = cookie;
    int auto_close fd = memfd_create("layers", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "list the layers");
    list_each(it, &s->layers)
    {
        const struct stored_layer *l = list_entry(it, struct stored_layer, node);
        if (write(fd, l->digest, sizeof l->digest) != (ssize_t)sizeof l->digest)
            return err_sys(e, errno, "list the layers");
    }
    return take_fd(&fd);
}

void
store_sweep(struct store *s)
{
    const struct keepers_work w = {.order = {.op = KEEP_SWEEP}, .list_fd = -1, .list = list_layers};
    struct err e;
    if (s->sweeping || s->closing || s->unreadable)
        return;
    s->sweeping = true; // first, because it may fail at once
    if (keepers_add(s->keepers, &w, on_swept, s, &e) == 0)
        return;
    s->sweeping = false;
    log_err(LOG_WARNING, "store", &e);
}

// ---- start and end

int
store_available(const struct store *s, struct err *e)
{
    if (s != NULL && !s->closing)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "this broker cannot keep files");
    err_detail(e, "NO_STORE", "state_dir", "see the broker's log");
    return r;
}

struct store *
store_new(struct server *srv, const char *state_dir, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    if (s == NULL || (s->keepers = keepers_new(srv)) == NULL) {
        free(s);
        (void)err_sys(e, ENOMEM, "open the store");
        return NULL;
    }
    metrics_name_value(METRIC_BY_KEPT, STORE_SNAPSHOT, "SNAPSHOT");
    metrics_name_value(METRIC_BY_KEPT, STORE_SLEEPER, "SLEEPER");
    metrics_name_value(METRIC_BY_KEPT, STORE_TEMPLATE, "TEMPLATE");
    s->srv = srv;
    s->state_dir = state_dir;
    list_init(&s->records);
    list_init(&s->layers);
    if (load_all(s, e) < 0) {
        store_free(s);
        return NULL;
    }
    store_sweep(s);
    return s;
}

void
store_stop(struct store *s)
{
    if (s == NULL)
        return;
    s->closing = true;
    keepers_stop(s->keepers);
}

bool
store_is_quiet(const struct store *s)
{
    return s == NULL || (s->writes == 0 && s->ops == 0 && keepers_are_quiet(s->keepers));
}

void
store_free(struct store *s)
{
    if (s == NULL)
        return;
    s->closing = true;
    while (!list_empty(&s->records))
        store_record_free(s, list_entry(s->records.next, struct stored, node));
    while (!list_empty(&s->layers))
        store_layer_free(list_entry(s->layers.next, struct stored_layer, node));
    keepers_free(s->keepers);
    free(s);
}
