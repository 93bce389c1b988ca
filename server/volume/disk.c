// SPDX-License-Identifier: Apache-2.0
// Opening, closing and removing the disk of a volume. entry_settle() alone decides what is next; each answer of the spawner
// changes the state and calls it again.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "volumes_private.h"
#include "proto/auto.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"

enum {
    IDLE_MS = 10 * 1000, // it stays open for the next sandbox
    AGAIN_MS = 200,
    SOON_MS = 1,
};

static void begin_close(struct entry *v);

static struct spawn_disk
disk_of(const struct entry *v)
{
    struct spawn_disk d = {.kind = SPAWN_DISK_VOLUME};
    memcpy(d.id, v->volume.id, sizeof d.id);
    return d;
}

// Those that want to know what it holds, known or not.
static void
report(struct entry *v)
{
    while (!list_empty(&v->measuring)) {
        struct volume_op *op = list_entry(v->measuring.next, struct volume_op, node);
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): list_remove() has taken the one before from the list
        volume_done *done = op->done;
        void *cookie = op->cookie;
        list_remove(&op->node);
        free(op);
        if (done != NULL)
            done(cookie, &v->volume, NULL);
    }
}

static void
on_time(void *cookie)
{
    struct entry *v = cookie;
    loop_timer_stop(&v->timer);
    if (v->state == VOLUME_OPEN && v->volume.users == 0 && v->pending == 0 &&
        list_empty(&v->waiting))
        begin_close(v);
    else
        entry_settle(v);
}

static void
settle_in(struct entry *v, uint64_t ms)
{
    if (v->timer == NULL)
        (void)loop_timer_start(v->all->srv->loop, &v->timer, ms, on_time, v);
}

void
entry_settle_soon(struct entry *v)
{
    settle_in(v, SOON_MS);
}

// Those that wait get the disk, or the failure.
static void
serve(struct entry *v, const struct err *e)
{
    while (!list_empty(&v->waiting)) {
        struct mounting *m = list_entry(v->waiting.next, struct mounting, waiting);
        list_remove(&m->waiting);
        mounting_go_on(m, v, e);
    }
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_opened(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct entry *v = cookie;
    v->state = reply->ok != 0 ? VOLUME_OPEN : VOLUME_CLOSED;
    metrics_move(METRIC_VOLUMES_OPEN, 0, reply->ok != 0);
    v->number = reply->layer;
    v->disk_fd = take_fd(&fds[SPAWN_FD_DISK]);
    volume_look(&v->volume);
    report(v);
    if (reply->ok == 0)
        serve(v, &reply->err);
    entry_settle(v);
}

static void
begin_open(struct entry *v)
{
    struct err e;
    const struct spawn_disk d = disk_of(v);
    v->state = VOLUME_OPENING;
    if (spawn_disk_open(v->all->srv->spawn, &d, on_opened, v, &e) == 0)
        return;
    v->state = VOLUME_CLOSED;
    report(v);
    serve(v, &e);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_closed(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct entry *v = cookie;
    (void)fds;
    v->state = reply->ok != 0 ? VOLUME_CLOSED : VOLUME_OPEN;
    metrics_move(METRIC_VOLUMES_OPEN, 0, reply->ok != 0 ? -1 : 0);
    if (reply->ok == 0) {
        log_err(LOG_WARNING, "volume-close", &reply->err);
        settle_in(v, IDLE_MS);
        return;
    }
    entry_settle(v);
}

static void
begin_close(struct entry *v)
{
    struct err e;
    v->state = VOLUME_CLOSING;
    volume_look(&v->volume);
    if (v->disk_fd >= 0)
        (void)close(take_fd(&v->disk_fd)); // it would keep the disk mounted
    if (spawn_disk_close(v->all->srv->spawn, v->number, on_closed, v, &e) == 0)
        return;
    v->state = VOLUME_OPEN;
    settle_in(v, AGAIN_MS);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_removed(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct entry *v = cookie;
    (void)fds;
    if (reply->ok == 0 && strcmp(reply->err.reason, "DISKS_BUSY") == 0) {
        v->state = VOLUME_CLOSED;
        settle_in(v, AGAIN_MS);
        return;
    }
    if (reply->ok == 0) // the next start tries again: it has no record
        log_err(LOG_WARNING, "volume-left", &reply->err);
    entry_finish(v, reply->ok != 0 ? NULL : &reply->err);
    entry_free(v);
}

static void
begin_remove(struct entry *v)
{
    struct err e;
    const struct spawn_disk d = disk_of(v);
    v->state = VOLUME_REMOVING;
    report(v);
    if (spawn_disk_remove(v->all->srv->spawn, &d, on_removed, v, &e) == 0)
        return;
    log_err(LOG_WARNING, "volume-left", &e);
    entry_finish(v, &e);
    entry_free(v);
}

void
entry_settle(struct entry *v)
{
    if (v->state == VOLUME_OPEN && !list_empty(&v->waiting))
        serve(v, NULL);
    if (v->state == VOLUME_CLOSED && v->doomed)
        begin_remove(v);
    else if (v->state == VOLUME_CLOSED && (!list_empty(&v->waiting) || !list_empty(&v->measuring)))
        begin_open(v);
    else if (v->state != VOLUME_OPEN || v->volume.users > 0 || v->pending > 0)
        return;
    else if (v->doomed)
        begin_close(v);
    else if (v->timer == NULL)
        settle_in(v, IDLE_MS);
}
