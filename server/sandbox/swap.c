// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_seal(), sandbox_restore(), sandbox_inherit(), sandbox_reset(). What a snapshot, a fork, a template, a
// transaction or the next job of a batch begins with.
#include <errno.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/container_of.h"
#include "proto/plural.h"
#include "agent.h"
#include "cgstat.h"
#include "private.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "spawn.h"

enum { TRIES = 400, TRIES_SOON = 8, SOON_MS = 1, AGAIN_MS = 5, AGENTS_MS = 10 };

// The one who waits for the layer; NULL: nobody any more.
static struct sandbox_swap *
find(struct sandbox *s)
{
    for (struct list *it = s->waiters.next; it != &s->waiters; it = it->next) {
        struct sandbox_waiter *w = list_entry(it, struct sandbox_waiter, node);
        if (w->what == WAIT_SWAP)
            return container_of(w, struct sandbox_swap, waiter);
    }
    return NULL;
}

static int ask_when_settled(struct sandbox *s, struct err *e);

static void
finish(struct sandbox *s, const struct err *e)
{
    sandbox_move(s, SANDBOX_RUNNING);
    sandbox_notify(s, WAIT_SWAP, e);
}

// The disk is another one now. Its predecessor is measured for the last time.
static void
take_disk(struct sandbox *s, struct sandbox_swap *w, int disk_fd)
{
    struct statfs fs;
    int *fd = &s->dirs.fd[SPAWN_FD_DISK];
    if (w != NULL && *fd >= 0 && fstatfs(*fd, &fs) == 0) {
        w->bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        w->inodes = fs.f_files - fs.f_ffree;
    }
    if (*fd >= 0)
        (void)close(*fd);
    *fd = disk_fd;
}

static void
succeed(struct sandbox *s, const struct spawn_reply *reply, int disk_fd)
{
    struct sandbox_swap *w = find(s);
    bool fresh = reply->fds != 0;
    if (fresh)
        take_disk(s, w, disk_fd);
    if (w != NULL) {
        w->layer = reply->layer;
        w->fresh = fresh;
    }
    lists_watch(s);
    finish(s, NULL);
}

static void
on_again(void *cookie)
{
    struct sandbox *s = cookie;
    struct err e;
    loop_timer_stop(&s->wait_timer);
    s->swap_waits = false;
    if (ask_when_settled(s, &e) < 0)
        finish(s, &e);
}

static bool
wait_ms(struct sandbox *s, uint64_t ms)
{
    s->swap_waits = loop_timer_start(s->all->srv->loop, &s->wait_timer, ms, on_again, s) == 0;
    return s->swap_waits;
}

// What a job left was killed with it, and may need a moment to go; on a busy host, seconds.
static bool
try_later(struct sandbox *s)
{
    if (s->swap_tries == TRIES)
        return false;
    uint64_t ms = s->swap_tries++ < TRIES_SOON ? SOON_MS : AGAIN_MS;
    return wait_ms(s, ms);
}

// The layers that came before the failure are dropped again, the highest first.
static void
undo_adoption(struct sandbox *s)
{
    struct sandbox_adoption *a = s->swap_plan.adopt;
    while (a != NULL && a->done > 0)
        sandbox_drop_layer(s, a->layer[--a->done]);
}

// The next layer, or when all are there, the swap itself.
static void
adopted(struct sandbox *s, uint32_t layer)
{
    struct err e;
    struct sandbox_swap_plan *p = &s->swap_plan;
    p->adopt->layer[p->adopt->done++] = layer;
    if (p->adopt->done == p->adopt->n) {
        p->op = SPAWN_RESTORE;
        p->layer = p->adopt->layer[p->adopt->top - 1];
    }
    if (ask_when_settled(s, &e) < 0) {
        undo_adoption(s);
        finish(s, &e);
    }
}

static void
on_swapped(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    if (s->state != SANDBOX_SWAPPING) // it is being deleted
        spawn_close_fds(fds);
    else if (reply->ok != 0 && reply->op == SPAWN_ADOPT)
        adopted(s, reply->layer);
    else if (reply->ok != 0)
        succeed(s, reply, fds[0]);
    else if (strcmp(reply->err.reason, "JOBS_RUN") != 0 || !try_later(s)) {
        undo_adoption(s);
        finish(s, &reply->err);
    }
    sandbox_let_go(s);
}

static void
on_unsealed(struct sandbox *s, uint32_t layer, const struct err *e)
{
    if (e == NULL) {
        adopted(s, layer);
        return;
    }
    undo_adoption(s);
    finish(s, e);
}

// The next layer of those that it adopts.
static int
ask_adopt(struct sandbox *s, struct err *e)
{
    const struct sandbox_adoption *a = s->swap_plan.adopt;
    const uint8_t below = a->below[a->done];
    if (a->sealed[a->done].key_id != NULL)
        return unseal_begin(s, a, on_unsealed, e);
    const struct spawn_kept next = {below == 0 ? 0 : a->layer[below - 1], a->digest[a->done]};
    return spawn_adopt(s->all->srv->spawn, s->slot, s->generation, &next, on_swapped, s, e);
}

static int
ask(struct sandbox *s, struct err *e)
{
    struct spawn *spawn = s->all->srv->spawn;
    const struct sandbox_swap_plan *p = &s->swap_plan;
    const struct spawn_source from = {p->from_slot, p->from_generation, p->layer, 0};
    int r = p->op == SPAWN_ADOPT  ? ask_adopt(s, e)
            : p->op == SPAWN_SEAL ? spawn_seal(spawn, s->slot, s->generation, on_swapped, s, e)
            : p->op == SPAWN_RESET
                ? spawn_reset(spawn, s->slot, s->generation, p->stays, on_swapped, s, e)
            : p->op == SPAWN_RESTORE
                ? spawn_restore(spawn, s->slot, s->generation, p->layer, on_swapped, s, e)
                : spawn_inherit(spawn, s->slot, s->generation, &from, on_swapped, s, e);
    if (r == 0 && s->unsealing == NULL) // that holds it itself
        sandbox_hold(s);
    return r;
}

// The spawner sees which cgroups are populated; a zombie is in none, but the next job would see it in /proc.
static int
ask_when_settled(struct sandbox *s, struct err *e)
{
    if (s->swap_plan.op != SPAWN_RESET ||
        cgstat_tasks(&s->dirs) <= (s->swap_plan.stays != 0 ? 2 : 1))
        return ask(s, e);
    if (try_later(s))
        return 0;
    (void)err_set(e, ERR_FAILED_PRECONDITION, "a process of an earlier job does not end");
    err_detail(e, "JOBS_RUN", s->id.id, NULL);
    return -EBUSY;
}

static bool
has_agents(const struct sandbox *s)
{
    return s->agents_n > (s->swap_plan.stays != 0 ? 1 : 0);
}

void
swap_agent_ended(struct sandbox *s)
{
    if (s->state == SANDBOX_SWAPPING && s->swap_waits && !has_agents(s))
        on_again(s);
}

// An agent that still runs would be refused, so its end is waited for, which is an event. After AGENTS_MS the spawner is asked
// nevertheless, and says what still runs.
static int
end_agents(struct sandbox *s, struct err *e)
{
    struct err ended;
    (void)err_set(&ended, ERR_ABORTED, "the sandbox is getting another layer of files");
    sandbox_move(s, SANDBOX_SWAPPING); // so the owners of agents start nothing new in it
    agents_end(s, s->swap_plan.stays, &ended);
    if (s->state != SANDBOX_SWAPPING) // one of them has deleted it
        return sandbox_check_running(s, e);
    if (has_agents(s) && wait_ms(s, AGENTS_MS))
        return 0;
    int r = ask_when_settled(s, e);
    if (r < 0)
        sandbox_move(s, SANDBOX_RUNNING);
    return r;
}

static int
begin(struct sandbox *s, const struct sandbox_swap_plan *plan, struct sandbox_swap *w,
      struct err *e)
{
    observers_assert_idle(&s->all->observers);
    int r = sandbox_check_running(s, e);
    if (r == 0 && s->jobs_n > 0) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%u %s in sandbox %s", s->jobs_n,
                    plural(s->jobs_n, "process runs", "processes run"), s->id.id);
        err_detail(e, "JOBS_RUN", s->id.id,
                   "wait for them to end, delete contexts and checkpoints, or stop them (--stop)");
    }
    if (r < 0)
        return r;
    s->swap_plan = *plan;
    s->swap_tries = 0;
    s->swap_waits = false;
    r = end_agents(s, e);
    if (r < 0)
        return r;
    w->layer = 0;
    w->fresh = false;
    w->bytes = w->inodes = 0;
    w->waiter.what = WAIT_SWAP;
    list_append(&s->waiters, &w->waiter.node);
    return 0;
}

int
sandbox_seal(struct sandbox *s, struct sandbox_swap *w, struct err *e)
{
    const struct sandbox_swap_plan plan = {.op = SPAWN_SEAL};
    return begin(s, &plan, w, e);
}

int
sandbox_restore(struct sandbox *s, uint32_t layer, struct sandbox_swap *w, struct err *e)
{
    const struct sandbox_swap_plan plan = {.op = SPAWN_RESTORE, .layer = layer};
    return begin(s, &plan, w, e);
}

int
sandbox_inherit(struct sandbox *s, const struct sandbox *from, uint32_t layer,
                struct sandbox_swap *w, struct err *e)
{
    const struct sandbox_swap_plan plan = {.op = SPAWN_INHERIT,
                                           .layer = layer,
                                           .from_slot = from->slot,
                                           .from_generation = from->generation};
    lists_inherit(s, from);
    return begin(s, &plan, w, e);
}

int
sandbox_reset(struct sandbox *s, uint32_t stays, struct sandbox_swap *w, struct err *e)
{
    const struct sandbox_swap_plan plan = {.op = SPAWN_RESET, .stays = stays};
    cgstat_keep(&s->dirs);
    return begin(s, &plan, w, e);
}

int
sandbox_adopt(struct sandbox *s, struct sandbox_adoption *a, struct sandbox_swap *w, struct err *e)
{
    const struct sandbox_swap_plan plan = {.op = SPAWN_ADOPT, .adopt = a};
    a->done = 0;
    lists_inherit(s, NULL);
    return begin(s, &plan, w, e);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_dropped(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    if (reply->ok == 0 && s->state != SANDBOX_DELETING)
        log_err_about(LOG_WARNING, "drop-layer", &(struct log_about){.sandbox = s->id.id},
                      &reply->err);
    sandbox_let_go(s);
}

void
sandbox_drop_layer(struct sandbox *s, uint32_t layer)
{
    struct err e;
    if (s->state == SANDBOX_DELETING)
        return;
    if (spawn_drop(s->all->srv->spawn, s->slot, s->generation, layer, on_dropped, s, &e) < 0)
        log_err_about(LOG_WARNING, "drop-layer", &(struct log_about){.sandbox = s->id.id}, &e);
    else
        sandbox_hold(s);
}
