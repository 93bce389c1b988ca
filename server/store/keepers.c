// SPDX-License-Identifier: Apache-2.0
// See private.h. Each work is one process: the spawner starts it, it gets one order, gives one answer, and exits.
//
//   queue -> spawn_keep(), spawn_keeper() -> fd -> order ... answer -> done -> the next
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/sandbox/keeper.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/spawn.h"
#include "server/vault/vault.h"
#include "private.h"

enum { RUNNING_MAX = SPAWN_KEEPERS_MAX - 1, QUEUE_MAX = 1024, AGAIN_MS = 20 };

struct work {
    struct list node; // of the queue
    struct keepers *k;
    struct keepers_work what;
    keepers_done *done;
    void *cookie;
    int fd;
    struct loop_poll *poll;
};

struct keepers {
    struct server *srv;
    struct list queue, active;
    uint32_t queued, running;
    bool alone; // the one that runs must be
    bool stopped;
    struct loop_timer *again;
};

static void next(struct keepers *k);

static bool
is_exclusive(const struct work *w)
{
    return w->what.order.op == KEEP_REMOVE || w->what.order.op == KEEP_SWEEP;
}

static void
end(struct work *w, const struct keep_answer *a)
{
    struct keepers *k = w->k;
    list_remove(&w->node);
    loop_poll_stop(&w->poll);
    if (w->fd >= 0)
        (void)close(w->fd);
    k->running--;
    k->alone = false;
    w->done(w->cookie, a);
    if (w->what.list_fd >= 0)
        (void)close(w->what.list_fd);
    sealed_key_wipe(&w->what.order.file_key);
    free(w);
    next(k);
}

static void
end_failed(struct work *w, const struct err *e)
{
    const struct keep_answer a = {.err = *e};
    end(w, &a);
}

static void
end_stopped(struct work *w)
{
    struct err e;
    (void)stopping_say(&e, ERR_UNAVAILABLE);
    end_failed(w, &e);
}

static void
on_answer(void *cookie, int events)
{
    (void)events;
    struct work *w = cookie;
    struct keep_answer a;
    if (keeper_answer(w->fd, KEEPER_STORES, &a))
        end(w, &a);
}

static void
on_again(void *cookie)
{
    struct keepers *k = cookie;
    loop_timer_stop(&k->again);
    next(k);
}

// Keepers of an earlier work have not been reaped yet.
static bool
try_later(struct work *w, const struct err *e)
{
    struct keepers *k = w->k;
    if (strcmp(e->reason, "KEEPERS") != 0 ||
        loop_timer_start(k->srv->loop, &k->again, AGAIN_MS, on_again, k) < 0)
        return false;
    k->running--;
    k->alone = false;
    return true;
}

static void
put_back(struct keepers *k, struct work *w)
{
    if (w->what.list != NULL && w->what.list_fd >= 0) { // what stays may be more then
        (void)close(w->what.list_fd);
        w->what.list_fd = -1;
    }
    list_remove(&w->node);
    list_append(k->queue.next, &w->node); // before the first
    k->queued++;
}

// A key is in its packet, and not in the queue.
static int
give_order(struct work *w, struct err *e)
{
    struct keep_order order = w->what.order;
    int rc = sealed_id_is_none(w->what.key_id)
                 ? 0
                 : vault_key(w->k->srv->vault, w->what.key_id, &order.key, e);
    if (rc == 0)
        rc = keeper_order(w->fd, KEEPER_STORES, &order, w->what.list_fd, e);
    sealed_key_wipe(&order.key);
    sealed_key_wipe(&order.file_key);
    return rc;
}

static void
on_started(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct work *w = cookie;
    struct err e;
    if (w->k->stopped) {
        spawn_close_fds(fds);
        end_stopped(w);
        return;
    }
    if (reply->ok == 0) {
        if (try_later(w, &reply->err))
            put_back(w->k, w);
        else
            end_failed(w, &reply->err);
        return;
    }
    w->fd = fds[0];
    int rc = give_order(w, &e);
    if (rc == 0 &&
        (rc = loop_poll_start(w->k->srv->loop, &w->poll, w->fd, UV_READABLE, on_answer, w)) < 0)
        (void)err_sys(&e, -rc, "wait for the keeper");
    if (rc < 0)
        end_failed(w, &e);
}

static void
start(struct work *w)
{
    struct err e;
    struct spawn *spawn = w->k->srv->spawn;
    w->k->running++;
    w->k->alone = is_exclusive(w);
    if (w->what.is_needed != NULL && w->what.is_needed(w->cookie, w->what.order.digest)) {
        const struct keep_answer stays = {.ok = 1};
        end(w, &stays);
        return;
    }
    if (w->what.list != NULL && (w->what.list_fd = w->what.list(w->cookie, &e)) < 0) {
        w->what.list_fd = -1;
        end_failed(w, &e);
        return;
    }
    int rc = w->what.order.op == KEEP_PUT ? spawn_keep(spawn, w->what.slot, w->what.generation,
                                                       w->what.layer, on_started, w, &e)
                                          : spawn_keeper(spawn, on_started, w, &e);
    if (rc < 0)
        end_failed(w, &e);
}

static void
next(struct keepers *k)
{
    while (!k->stopped && !list_empty(&k->queue) && !k->alone && k->running < RUNNING_MAX &&
           k->again == NULL) {
        struct work *w = list_entry(k->queue.next, struct work, node);
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): start() has removed the one before from the list
        if (is_exclusive(w) && k->running > 0)
            return;
        list_remove(&w->node);
        list_append(&k->active, &w->node);
        k->queued--;
        start(w);
    }
}

struct keepers *
keepers_new(struct server *srv)
{
    struct keepers *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->srv = srv;
    list_init(&k->queue);
    list_init(&k->active);
    return k;
}

void
keepers_stop(struct keepers *k)
{
    k->stopped = true;
    loop_timer_stop(&k->again);
    while (!list_empty(&k->queue)) {
        struct work *w = list_entry(k->queue.next, struct work, node);
        k->queued--;
        k->running++;
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): end() has removed the one before from the list
        end_stopped(w);
    }
    for (struct list *it = k->active.next; it != &k->active;) {
        struct work *w = list_entry(it, struct work, node);
        it = it->next;
        if (w->poll != NULL) // the others wait for the spawner
            end_stopped(w);
    }
}

bool
keepers_are_quiet(const struct keepers *k)
{
    return k->running == 0 && k->queued == 0;
}

void
keepers_free(struct keepers *k)
{
    if (k != NULL)
        loop_timer_stop(&k->again);
    free(k);
}

int
keepers_add(struct keepers *k, const struct keepers_work *what, keepers_done *done, void *cookie,
            struct err *e)
{
    struct work *w = k->queued < QUEUE_MAX && !k->stopped ? calloc(1, sizeof *w) : NULL;
    if (w == NULL) {
        int rc = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u layers already wait to be written or read",
                         k->queued);
        err_detail(e, "KEEPERS", NULL, "try again later");
        return rc;
    }
    *w = (struct work){.k = k, .what = *what, .done = done, .cookie = cookie, .fd = -1};
    list_append(&k->queue, &w->node);
    k->queued++;
    next(k);
    return 0;
}
