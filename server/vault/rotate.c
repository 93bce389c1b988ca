// SPDX-License-Identifier: Apache-2.0
// See vault.h: vault_rotate(), vault_forget().
//
// A rotation writes the newly wrapped keys beside the ones in use, as many changes with one number; the last change, of the proof,
// makes them the ones in use (a trigger of schema.c), and does nothing unless each key has one of that number. So a crash or a full
// disk leaves all keys wrapped by one master key or by the other.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "server/state/state.h"

// ---- rotate

struct rotation {
    struct vault *v;
    vault_done *done;
    void *cookie;
    uint8_t *master; // from sodium_malloc()
    int64_t round;
    uint32_t pending; // changes in the queue
    struct err failed;
    size_t n;
    struct {
        uint8_t id[SEALED_KEY_ID], wrapped[VAULT_WRAPPED];
    } key[];
};

static void
rotation_free(struct rotation *r)
{
    sodium_free(r->master);
    free(r);
}

static struct rotation *
rotation_new(struct vault *v, const uint8_t master[VAULT_MASTER])
{
    size_t n = 0;
    for (const struct list *it = v->keys.next; it != &v->keys; it = it->next)
        n++;
    struct rotation *r = calloc(1, sizeof *r + n * sizeof r->key[0]);
    if (r == NULL)
        return NULL;
    r->master = sodium_malloc(VAULT_MASTER);
    if (r->master == NULL) {
        rotation_free(r);
        return NULL;
    }
    r->v = v;
    r->failed.code = ERR_OK;
    randombytes_buf(&r->round, sizeof r->round);
    memcpy(r->master, master, VAULT_MASTER);
    (void)sodium_mprotect_readonly(r->master);
    return r;
}

static void
adopt(struct rotation *r)
{
    struct vault *v = r->v;
    for (size_t i = 0; i < r->n; i++) {
        struct data_key *k = vault_find(v, r->key[i].id);
        if (k != NULL)
            memcpy(k->wrapped, r->key[i].wrapped, VAULT_WRAPPED);
    }
    sodium_free(v->master);
    v->master = take_ptr(r->master);
}

static void
settle(struct rotation *r)
{
    const bool good = r->failed.code == ERR_OK;
    if (r->pending > 0)
        return;
    r->v->rotating = false;
    if (good)
        adopt(r);
    r->done(r->cookie, good ? NULL : &r->failed);
    rotation_free(r);
}

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    struct rotation *r = cookie;
    r->pending--;
    if (r->failed.code == ERR_OK && e != NULL)
        r->failed = *e;
    else if (r->failed.code == ERR_OK && rows == 0)
        (void)err_set(&r->failed, ERR_ABORTED, "a data key has changed meanwhile: try again");
    settle(r);
}

static int
queue(struct rotation *r, enum state_change c, const struct state_value *row, struct err *e)
{
    int rc = state_write(r->v->state, c, row, on_written, r, e);
    r->pending += rc == 0;
    return rc;
}

static int
wrap_one(struct rotation *r, const struct data_key *k, struct err *e)
{
    uint8_t data[VAULT_DATA];
    uint8_t *to = r->key[r->n].wrapped;
    if (unwrap_key(r->v->master, k, data) != 0)
        return err_set(e, ERR_DATA_LOSS, "the data key of %s is damaged", k->entry.tenant);
    wrap_key(r->master, &k->entry, data, to);
    sodium_memzero(data, sizeof data);
    memcpy(r->key[r->n++].id, k->entry.id, SEALED_KEY_ID);
    const struct state_value row[] = {STATE_OF_BYTES(k->entry.id, SEALED_KEY_ID),
                                      STATE_OF_BYTES(to, VAULT_WRAPPED), STATE_OF_NUMBER(r->round)};
    return queue(r, STATE_DATA_KEY_NEXT, row, e);
}

static int
wrap_all(struct rotation *r, struct err *e)
{
    uint8_t proof[VAULT_WRAPPED];
    const struct state_value row[] = {STATE_OF_BYTES(proof, sizeof proof),
                                      STATE_OF_NUMBER(r->round)};
    int rc = 0;
    list_each(it, &r->v->keys)
    {
        const struct data_key *k = (struct data_key *)list_entry(it, struct vault_entry, node);
        if (rc == 0 && k->entry.forgotten_ms == 0)
            rc = wrap_one(r, k, e);
    }
    wrap_proof(r->master, proof);
    return rc == 0 ? queue(r, STATE_ENCRYPTION_ROTATE, row, e) : rc;
}

static int
check_is_on(const struct vault *v, struct err *e)
{
    if (v->rotating)
        return err_set(e, ERR_UNAVAILABLE, "the master key is being rotated: try again");
    if (vault_is_on(v))
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "encryption is off");
    err_detail(e, "ENCRYPTION_OFF", "encryption", "set encryption.key_file (stockaded.yaml(5))");
    return r;
}

int
vault_rotate(struct vault *v, const uint8_t master[VAULT_MASTER], vault_done *done, void *cookie,
             struct err *e)
{
    int rc = check_is_on(v, e);
    if (rc == 0 && sodium_is_zero(master, VAULT_MASTER) == 1)
        rc = err_field(e, "key", "has nothing but zeros");
    if (rc == 0 && sodium_memcmp(master, v->master, VAULT_MASTER) == 0)
        rc = err_field(e, "key", "is the key that is in use");
    if (rc < 0)
        return rc;
    struct rotation *r = rotation_new(v, master);
    if (r == NULL)
        return err_sys(e, ENOMEM, "rotate the master key");
    r->done = done;
    r->cookie = cookie;
    rc = wrap_all(r, e);
    v->rotating = rc == 0 || r->pending > 0;
    if (rc == 0)
        return 0;
    if (r->pending == 0) {
        rotation_free(r);
        return rc;
    }
    r->failed = *e; // done is called with it
    return 0;
}

// ---- forget

struct forgetting {
    struct vault *v;
    vault_done *done;
    void *cookie;
    uint8_t id[SEALED_KEY_ID];
    int64_t now_ms;
};

static void
on_forgotten(void *cookie, uint64_t rows, const struct err *e)
{
    struct forgetting *f = cookie;
    struct data_key *k = vault_find(f->v, f->id);
    (void)rows;
    if (k != NULL)
        k->forgetting = false;
    if (e == NULL && k != NULL) {
        k->entry.forgotten_ms = f->now_ms;
        table_forget(f->v, k);
        sodium_memzero(k->wrapped, sizeof k->wrapped);
    }
    f->done(f->cookie, e);
    free(f);
}

int
vault_forget(struct vault *v, const char *tenant, vault_done *done, void *cookie, struct err *e)
{
    int r = check_is_on(v, e);
    struct data_key *k = r < 0 ? NULL : vault_of(v, tenant);
    if (r < 0)
        return r;
    if (k == NULL)
        return err_set(e, ERR_NOT_FOUND, "%s has no data key: nothing of it is encrypted", tenant);
    struct forgetting *f = malloc(sizeof *f);
    if (f == NULL)
        return err_sys(e, ENOMEM, "forget a data key");
    *f = (struct forgetting){.v = v, .done = done, .cookie = cookie, .now_ms = now_wall_ms()};
    memcpy(f->id, k->entry.id, sizeof f->id);
    const struct state_value row[] = {STATE_OF_BYTES(f->id, sizeof f->id),
                                      STATE_OF_NUMBER(f->now_ms)};
    r = state_write(v->state, STATE_DATA_KEY_FORGET, row, on_forgotten, f, e);
    k->forgetting = r == 0;
    if (r < 0)
        free(f);
    return r;
}
