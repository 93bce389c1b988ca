// SPDX-License-Identifier: Apache-2.0
// See store.h: records are written, amended and removed by a thread of libuv's pool, because fsync(2) can take seconds. No file is
// removed while it is being written.
#include <errno.h>
#include <stdlib.h>
#include <uv.h>

#include "server/base/log.h"
#include "server/base/server.h"
#include "server/vault/vault.h"
#include "private.h"

// ---- files, in another thread

struct writing {
    uv_work_t work;
    struct store *s;
    struct err e;
    int rc;
    uint8_t *bytes; // NULL: it is removed
    size_t n;
    char path[STORE_PATH_MAX];
    void (*done)(void *cookie, const struct err *e);
    void *cookie;
};

static void
in_thread(uv_work_t *work)
{
    struct writing *w = work->data;
    w->rc =
        w->bytes != NULL ? file_write(w->path, w->bytes, w->n, &w->e) : file_remove(w->path, &w->e);
}

static void
on_written(uv_work_t *work, int status)
{
    (void)status; // never cancelled
    struct writing *w = work->data;
    w->s->writes--;
    w->done(w->cookie, w->rc < 0 ? &w->e : NULL);
    free(w->bytes);
    free(w);
}

// r NULL: removes the file of `id`.
int
store_write(struct store *s, const struct stored *r, const char *id,
            void (*done)(void *cookie, const struct err *e), void *cookie, struct err *e)
{
    struct sealed_key auto_sealed_key key;
    const bool sealed = r != NULL && !sealed_id_is_none(r->key_id);
    if (sealed && vault_key(s->srv->vault, r->key_id, &key, e) < 0)
        return err_errno(e);
    struct writing *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "write a record");
    if (r != NULL && (w->bytes = file_pack(r, sealed ? &key : NULL, &w->n, e)) == NULL) {
        free(w);
        return err_errno(e);
    }
    w->s = s;
    w->work.data = w;
    w->done = done;
    w->cookie = cookie;
    file_path(s->state_dir, id, w->path);
    s->writes++;
    (void)uv_queue_work(s->srv->loop, &w->work, in_thread, on_written);
    return 0;
}

// ---- drop

struct store_dropping {
    struct store *s;
    struct stored *r;
    store_done *done;
    void *cookie;
};

static void
on_dropped(void *cookie, const struct err *e)
{
    struct store_dropping *d = cookie;
    if (e != NULL)
        d->r->dropped = false; // it is still there
    else
        store_record_free(d->s, d->r);
    if (d->done != NULL)
        d->done(d->cookie, NULL, e);
    else if (e != NULL)
        log_err(LOG_WARNING, "store", e);
    free(d);
}

int
store_drop(struct store *s, struct stored *r, store_done *done, void *cookie, struct err *e)
{
    struct store_dropping *d = calloc(1, sizeof *d);
    if (d == NULL)
        return err_sys(e, ENOMEM, "delete a record");
    *d = (struct store_dropping){s, r, done, cookie};
    if (r->amending) { // its file must not be written after it was removed
        r->dropping = d;
        r->dropped = true;
        return 0;
    }
    int rc = store_write(s, NULL, r->id, on_dropped, d, e);
    if (rc < 0)
        free(d);
    else
        r->dropped = true; // NOLINT(clang-analyzer-unix.Malloc): on_dropped() frees d
    return rc;
}

// ---- amend

static int amend(struct store *s, struct stored *r, struct err *e);

struct amending {
    struct store *s;
    struct stored *r;
};

static void
on_amended(void *cookie, const struct err *failed)
{
    const struct amending *a = cookie;
    struct stored *r = a->r;
    struct store_dropping *d = r->dropping;
    struct err e;
    if (failed != NULL)
        log_err(LOG_WARNING, "store", failed);
    r->amending = false;
    r->dropping = NULL;
    if (d != NULL) {
        if (store_write(a->s, NULL, r->id, on_dropped, d, &e) < 0)
            on_dropped(d, &e);
    } else if (r->again && amend(a->s, r, &e) < 0) {
        log_err(LOG_WARNING, "store", &e);
    }
    free(cookie);
}

static int
amend(struct store *s, struct stored *r, struct err *e)
{
    struct amending *a = calloc(1, sizeof *a);
    r->again = false;
    if (a == NULL)
        return err_sys(e, ENOMEM, "write a record again");
    *a = (struct amending){s, r};
    int rc = store_write(s, r, r->id, on_amended, a, e);
    if (rc < 0)
        free(a);
    else
        r->amending = true; // NOLINT(clang-analyzer-unix.Malloc): on_amended() frees a
    return rc;
}

int
store_amend(struct store *s, struct stored *r, uint8_t *about, size_t about_n, struct err *e)
{
    if (r->dropped || s->closing) {
        free(about);
        return 0;
    }
    free(r->about);
    r->about = about;
    r->about_n = about_n;
    r->again = r->amending;
    return r->amending ? 0 : amend(s, r, e);
}
