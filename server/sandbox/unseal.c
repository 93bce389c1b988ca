// SPDX-License-Identifier: Apache-2.0
// See private.h: unseal_begin(). A sealed layer of the state directory is decrypted into a new layer in the sandbox's memory, by a keeper in
// its cgroup:
//
//   UNSEAL -> order with the key ... answer -> COPIED -> done
//
// The host has a few keepers at a time, and a sandbox has one copy at a time: who finds none waits.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "keeper.h"
#include "private.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/vault/vault.h"
#include "spawn.h"

// A layer of 4 GiB takes a few seconds; a keeper that hangs is given up.
enum { AGAIN_MS = 20, WAIT_MS = 60 * 1000, WORK_MS = 600 * 1000 };

struct unsealing {
    struct sandbox *sandbox; // held
    uint8_t key_id[SEALED_KEY_ID];
    uint8_t digest[SPAWN_DIGEST_BYTES];
    uint64_t bytes, entries;
    uint32_t below, layer; // layer 0: it was not made yet
    unseal_done *done;
    uint64_t began_ns;
    int fd; // to the keeper; -1: none
    struct loop_poll *poll;
    struct loop_timer *timer; // waits for a keeper, or for its answer
};

static void
let_go(struct unsealing *u)
{
    loop_poll_stop(&u->poll);
    loop_timer_stop(&u->timer);
    if (u->fd >= 0)
        (void)close(u->fd);
    u->fd = -1;
}

static void
end(struct unsealing *u, const struct err *e)
{
    struct sandbox *s = u->sandbox;
    const uint32_t layer = u->layer;
    unseal_done *done = u->done;
    let_go(u);
    s->unsealing = NULL;
    free(u);
    if (e != NULL && layer != 0)
        sandbox_drop_layer(s, layer);
    if (s->state == SANDBOX_SWAPPING)
        done(s, layer, e);
    sandbox_let_go(s);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_complete(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    (void)fds;
    end(cookie, reply->ok != 0 ? NULL : &reply->err);
}

static void
complete(struct unsealing *u)
{
    struct err e;
    const struct sandbox *s = u->sandbox;
    const uint32_t layers[2] = {u->layer, 0};
    let_go(u);
    if (spawn_copied(s->all->srv->spawn, s->slot, s->generation, layers, on_complete, u, &e) < 0)
        end(u, &e);
}

static void
on_answer(void *cookie, int events)
{
    struct unsealing *u = cookie;
    struct keep_answer a;
    (void)events;
    if (!keeper_answer(u->fd, KEEPER_DECRYPTS, &a))
        return;
    if (a.ok != 0)
        complete(u);
    else
        end(u, &a.err);
}

static void
on_deadline(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the files could not be decrypted in %d s",
                  WORK_MS / 1000);
    end(cookie, &e);
}

// The key is in this packet, and nowhere else in the broker.
static int
give_order(struct unsealing *u, struct err *e)
{
    struct keep_order order = {.op = KEEP_COPY, .bytes_max = UINT64_MAX};
    memcpy(order.digest, u->digest, sizeof order.digest);
    int r = vault_key(u->sandbox->all->srv->vault, u->key_id, &order.key, e);
    if (r == 0)
        r = keeper_order(u->fd, KEEPER_DECRYPTS, &order, -1, e);
    sealed_key_wipe(&order.key);
    return r;
}

static int
wait_for_answer(struct unsealing *u, struct err *e)
{
    uv_loop_t *loop = u->sandbox->all->srv->loop;
    int r = loop_poll_start(loop, &u->poll, u->fd, UV_READABLE, on_answer, u);
    if (r == 0)
        r = loop_timer_start(loop, &u->timer, WORK_MS, on_deadline, u);
    return r < 0 ? err_sys(e, -r, "wait for the keeper") : 0;
}

static int ask(struct unsealing *u, struct err *e);

static void
on_again(void *cookie)
{
    struct unsealing *u = cookie;
    struct err e;
    loop_timer_stop(&u->timer);
    sandbox_copy_make_way(u->sandbox);
    if (ask(u, &e) < 0)
        end(u, &e);
}

static bool
wait_for_keeper(struct unsealing *u, const struct err *e)
{
    const bool busy = strcmp(e->reason, "KEEPERS") == 0 || strcmp(e->reason, "COPYING") == 0;
    return busy && u->sandbox->state == SANDBOX_SWAPPING &&
           uv_hrtime() - u->began_ns < WAIT_MS * UINT64_C(1000000) &&
           loop_timer_start(u->sandbox->all->srv->loop, &u->timer, AGAIN_MS, on_again, u) == 0;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_begun(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct unsealing *u = cookie;
    struct err e;
    if (reply->ok == 0) {
        if (!wait_for_keeper(u, &reply->err))
            end(u, &reply->err);
        return;
    }
    u->fd = fds[0];
    u->layer = reply->layer;
    if (u->sandbox->state != SANDBOX_SWAPPING)
        (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    else if (give_order(u, &e) == 0 && wait_for_answer(u, &e) == 0)
        return;
    end(u, &e);
}

// What its files take in memory: each one fills its last page.
static int
ask(struct unsealing *u, struct err *e)
{
    enum { PAGE = 4096 };
    const struct sandbox *s = u->sandbox;
    const uint64_t bytes = u->bytes + u->entries * PAGE;
    const struct spawn_unsealing plan = {
        .below = u->below,
        .digest = u->digest,
        .bytes = bytes < SPAWN_DISK_BYTES_MAX ? bytes : SPAWN_DISK_BYTES_MAX,
        .inodes =
            u->entries < SPAWN_DISK_INODES_MAX ? (uint32_t)u->entries : SPAWN_DISK_INODES_MAX};
    return spawn_unseal(s->all->srv->spawn, s->slot, s->generation, &plan, on_begun, u, e);
}

int
unseal_begin(struct sandbox *s, const struct sandbox_adoption *a, unseal_done *done, struct err *e)
{
    const uint8_t below = a->below[a->done];
    if (!vault_has(s->all->srv->vault, a->sealed[a->done].key_id)) {
        struct sealed_key none;
        return vault_key(s->all->srv->vault, a->sealed[a->done].key_id, &none, e);
    }
    struct unsealing *u = calloc(1, sizeof *u);
    if (u == NULL)
        return err_sys(e, ENOMEM, "decrypt files");
    *u = (struct unsealing){.sandbox = s,
                            .bytes = a->sealed[a->done].bytes,
                            .entries = a->sealed[a->done].entries,
                            .below = below == 0 ? 0 : a->layer[below - 1],
                            .done = done,
                            .began_ns = uv_hrtime(),
                            .fd = -1};
    memcpy(u->key_id, a->sealed[a->done].key_id, sizeof u->key_id);
    memcpy(u->digest, a->digest[a->done], sizeof u->digest);
    sandbox_copy_make_way(s);
    int r = ask(u, e);
    if (r < 0) {
        free(u);
        return r;
    }
    s->unsealing = u;
    sandbox_hold(s);
    return 0;
}

// What waits for the spawner ends with its answer.
void
unseal_stop(struct sandbox *s)
{
    struct err e;
    struct unsealing *u = s->unsealing;
    if (u == NULL || (u->poll == NULL && u->timer == NULL))
        return;
    (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    end(u, &e);
}
