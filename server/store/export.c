// SPDX-License-Identifier: Apache-2.0
// See store.h: store_spool_new(), store_export(). Layers are held until the end, so the record may be dropped meanwhile.
//
//   store_check() -> EXPORT of each layer -> done
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "private.h"
#include "spool.h"

_Static_assert((int)SPOOL_STREAMS_MAX == (int)STORE_LAYERS_MAX, "a stream for each layer");

struct store_exporting {
    struct store *s;
    struct spool *to;
    store_done *done; // NULL: nobody waits
    void *cookie;
    struct store_op *checking;
    bool begins, failed;
    struct err e;
    uint32_t n, at;
    struct stored_layer *layer[STORE_LAYERS_MAX]; // held
};

struct spool *
store_spool_new(struct store *s, struct err *e)
{
    char folder[STORE_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s/" STORE_FOLDER, s->state_dir);
    return spool_new(s->srv, folder, &s->writes, e);
}

static void
end(struct store_exporting *x, const struct err *e)
{
    for (uint32_t i = 0; i < x->n; i++)
        store_let_go(x->s, x->layer[i]);
    if (x->done != NULL)
        x->done(x->cookie, NULL, e);
    free(x);
}

static int export_next(struct store_exporting *x, struct err *e);

static void
on_exported(void *cookie, const struct keep_answer *a)
{
    struct store_exporting *x = cookie;
    struct err e = a->err;
    struct spool_stream like = {.bytes = a->stream};
    memcpy(like.digest, a->digest, sizeof like.digest);
    int rc = x->done == NULL ? err_set(&e, ERR_CANCELLED, "nobody waits for the archive")
             : a->ok == 0    ? err_errno(&a->err)
                             : spool_add(x->to, &like, &e);
    if (rc == 0 && ++x->at < x->n)
        rc = export_next(x, &e);
    if (rc < 0)
        end(x, &e);
    else if (x->at == x->n)
        end(x, NULL);
}

static int
export_next(struct store_exporting *x, struct err *e)
{
    const struct stored_layer *l = x->layer[x->at];
    struct keepers_work w = {
        .order = {.op = KEEP_EXPORT, .bytes_max = UINT64_MAX, .file_key = *spool_key(x->to)},
        .list_fd = fcntl(spool_fd(x->to), F_DUPFD_CLOEXEC, 0)};
    memcpy(w.order.digest, l->digest, sizeof w.order.digest);
    memcpy(w.key_id, l->key_id, sizeof w.key_id);
    int rc = w.list_fd < 0 ? err_sys(e, errno, "write an archive")
                           : keepers_add(x->s->keepers, &w, on_exported, x, e);
    if (rc < 0 && w.list_fd >= 0)
        (void)close(w.list_fd);
    sealed_key_wipe(&w.order.file_key);
    return rc;
}

static void
on_checked(void *cookie, struct stored *r, const struct err *failed)
{
    struct store_exporting *x = cookie;
    struct err e = failed != NULL ? *failed : (struct err){0};
    int rc = failed != NULL ? err_errno(failed) : 0;
    x->checking = NULL;
    if (rc == 0 && x->done == NULL)
        rc = err_set(&e, ERR_CANCELLED, "nobody waits for the archive");
    for (uint32_t i = 0; rc == 0 && i < r->layers_n; i++) {
        x->layer[x->n++] = r->layer[i];
        store_hold(r->layer[i]);
    }
    if (rc == 0 && x->n == 0)
        rc = err_set(&e, ERR_INTERNAL, "it has no layers");
    if (rc == 0)
        rc = export_next(x, &e);
    if (rc == 0)
        return;
    x->e = e;
    x->failed = true;
    if (!x->begins)
        end(x, &e);
}

int
store_export(struct store *s, struct stored *r, struct spool *to, store_done *done, void *cookie,
             struct store_exporting **out, struct err *e)
{
    struct store_exporting *x = calloc(1, sizeof *x);
    if (x == NULL)
        return err_sys(e, ENOMEM, "write an archive");
    x->s = s;
    x->to = to;
    x->done = done;
    x->cookie = cookie;
    x->begins = true;
    int rc = store_check(s, r, on_checked, x, &x->checking, e);
    x->begins = false;
    if (rc == 0 && x->failed) {
        *e = x->e;
        rc = err_errno(e);
    }
    if (rc < 0) {
        x->done = NULL;
        end(x, NULL);
        return rc;
    }
    *out = x;
    return 0;
}

void
store_export_unwait(struct store_exporting *x)
{
    x->done = NULL;
}
