// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_copy().
//
//   from 0       RUNNING -> COPYING: freeze -> COPY -> order ... answer -> COPIED -> thaw -> RUNNING
//   a layer      RUNNING, and other states meanwhile: COPY -> order ... answer -> COPIED
//
// The keeper is in the sandbox's cgroup, so it ends with it. When it fails, or takes longer than the caller allows, the layer is dropped
// and the sandbox thawed at once: the keeper sees that its socket is closed, and ends.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <uv.h>

#include "agent.h"
#include "cgstat.h"
#include "keeper.h"
#include "private.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "spawn.h"

enum { AGAIN_MS = 20 };

struct sandbox_copying {
    struct sandbox *sandbox; // held
    struct sandbox_copy want;
    struct sandbox_copied result;
    struct err failed; // code 0: not so far
    bool frozen;       // a freeze was requested
    uint64_t frozen_at_ns, began_ns;
    int fd;                       // to the keeper; -1: none
    struct sandbox_copying *next; // waits until this one has made way; NULL: none
    struct loop_poll *poll;
    struct loop_timer *timer;
    struct loop_timer *again; // asks for a keeper; NULL: not planned
};

// ---- the end

static void start_next(struct sandbox_copying *c);

static void
end(struct sandbox_copying *c)
{
    struct sandbox *s = c->sandbox;
    const struct err failed = c->failed;
    const struct sandbox_copied result = c->result;
    const struct sandbox_copy want = c->want;
    struct sandbox_copying *next = c->next;
    s->copying = NULL;
    free(c);
    if (next != NULL)
        start_next(next);
    if (failed.code == ERR_OK && want.from == 0) {
        metrics_add(METRIC_COPIES, 1);
        metrics_add(METRIC_COPIED_BYTES, result.bytes);
    }
    want.done(want.cookie, s, &result, failed.code != ERR_OK ? &failed : NULL);
    sandbox_let_go(s);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_thawed(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox_copying *c = cookie;
    struct sandbox *s = c->sandbox;
    (void)fds;
    if (c->frozen_at_ns != 0)
        c->result.frozen_ns = uv_hrtime() - c->frozen_at_ns;
    metrics_add(METRIC_COPY_FROZEN, c->result.frozen_ns);
    if (reply->ok == 0 && c->failed.code == ERR_OK)
        c->failed = reply->err;
    if (s->state == SANDBOX_COPYING) {
        sandbox_move(s, SANDBOX_RUNNING);
        if (!list_empty(&s->jobs))
            s->all->jobs->paused(s, false);
    }
    end(c);
}

static void
fail(struct sandbox_copying *c, const struct err *e)
{
    if (c->failed.code == ERR_OK)
        c->failed = *e;
}

static void
thaw(struct sandbox_copying *c)
{
    struct err e;
    struct sandbox *s = c->sandbox;
    if (!c->frozen || s->state == SANDBOX_DELETING) {
        if (s->state == SANDBOX_DELETING)
            (void)err_set(&c->failed, ERR_ABORTED, "the sandbox is being deleted");
        end(c);
        return;
    }
    if (spawn_still(s->all->srv->spawn, s->slot, s->generation, false, on_thawed, c, &e) == 0)
        return;
    const struct spawn_reply none = {.err = e};
    on_thawed(c, &none, NULL);
}

static void
let_keeper_go(struct sandbox_copying *c)
{
    loop_poll_stop(&c->poll);
    loop_timer_stop(&c->timer);
    loop_timer_stop(&c->again);
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
}

static void
give_up(struct sandbox_copying *c, const struct err *e)
{
    fail(c, e);
    let_keeper_go(c);
    if (c->result.layer != 0)
        sandbox_drop_layer(c->sandbox, c->result.layer);
    c->result.layer = 0;
    thaw(c);
}

// ---- the copy

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_copied(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox_copying *c = cookie;
    (void)fds;
    if (reply->ok == 0)
        give_up(c, &reply->err);
    else
        thaw(c);
}

static void
complete(struct sandbox_copying *c)
{
    struct err e;
    struct sandbox *s = c->sandbox;
    const uint32_t layers[2] = {c->result.layer, c->want.instead};
    c->result.copy_ns = uv_hrtime() - c->began_ns;
    let_keeper_go(c);
    if (spawn_copied(s->all->srv->spawn, s->slot, s->generation, layers, on_copied, c, &e) < 0)
        give_up(c, &e);
}

static void
on_answer(void *cookie, int events)
{
    struct sandbox_copying *c = cookie;
    struct keep_answer a;
    (void)events;
    if (!keeper_answer(c->fd, KEEPER_COPIES, &a))
        return;
    if (a.ok == 0) {
        give_up(c, &a.err);
        return;
    }
    c->result.bytes = a.bytes;
    c->result.inodes = a.entries;
    complete(c);
}

static void
on_deadline(void *cookie)
{
    struct sandbox_copying *c = cookie;
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the copy took longer than %u ms", c->want.ms);
    err_detail(&e, "COPY_TIME", "copy_ms_max",
               "raise it, or make the snapshot while no job runs, which copies nothing");
    give_up(c, &e);
}

static int ask(struct sandbox_copying *c, struct err *e);

static void
on_again(void *cookie)
{
    struct sandbox_copying *c = cookie;
    struct err e;
    loop_timer_stop(&c->again);
    if (c->sandbox->state == SANDBOX_DELETING)
        (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    else if (ask(c, &e) == 0)
        return;
    give_up(c, &e);
}

// The host has a few keepers at a time. A fork waits for one; no job is frozen meanwhile.
static bool
wait_for_keeper(struct sandbox_copying *c, const struct err *e)
{
    return c->want.other_generation != 0 && strcmp(e->reason, "KEEPERS") == 0 &&
           uv_hrtime() - c->began_ns < c->want.ms * UINT64_C(1000000) &&
           loop_timer_start(c->sandbox->all->srv->loop, &c->again, AGAIN_MS, on_again, c) == 0;
}

static int
wait_for_answer(struct sandbox_copying *c, struct err *e)
{
    uv_loop_t *loop = c->sandbox->all->srv->loop;
    int r = loop_poll_start(loop, &c->poll, c->fd, UV_READABLE, on_answer, c);
    if (r == 0 && c->timer == NULL)
        r = loop_timer_start(loop, &c->timer, c->want.ms, on_deadline, c);
    return r < 0 ? err_sys(e, -r, "wait for the keeper") : 0;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_begun(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox_copying *c = cookie;
    struct keep_order order = {.op = KEEP_COPY, .bytes_max = UINT64_MAX};
    struct err e;
    if (reply->ok == 0) {
        if (!wait_for_keeper(c, &reply->err))
            give_up(c, &reply->err);
        return;
    }
    c->fd = fds[0];
    c->result.layer = reply->layer;
    if (c->sandbox->state == SANDBOX_DELETING || c->next != NULL) {
        (void)err_set(&e, ERR_ABORTED,
                      c->next != NULL ? "another copy takes its place"
                                      : "the sandbox is being deleted");
        give_up(c, &e);
        return;
    }
    if (keeper_order(c->fd, KEEPER_COPIES, &order, -1, &e) < 0 || wait_for_answer(c, &e) < 0)
        give_up(c, &e);
}

static int
ask(struct sandbox_copying *c, struct err *e)
{
    const struct sandbox *s = c->sandbox;
    const struct spawn_copy plan = {c->want.from,   c->want.below, c->want.bytes,
                                    c->want.inodes, c->want.other, c->want.other_generation};
    if (c->began_ns == 0)
        c->began_ns = uv_hrtime();
    return spawn_copy(s->all->srv->spawn, s->slot, s->generation, &plan, on_begun, c, e);
}

// ---- its begin

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_still(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox_copying *c = cookie;
    struct sandbox *s = c->sandbox;
    struct err e;
    (void)fds;
    if (reply->ok == 0) {
        // it was thawed again
        fail(c, &reply->err);
        c->frozen = false;
        if (s->state == SANDBOX_COPYING)
            sandbox_move(s, SANDBOX_RUNNING);
        end(c);
        return;
    }
    c->frozen_at_ns = uv_hrtime();
    if (s->state == SANDBOX_DELETING) {
        thaw(c);
        return;
    }
    if (!list_empty(&s->jobs))
        s->all->jobs->paused(s, true);
    if (ask(c, &e) < 0)
        give_up(c, &e);
}

// What would fail for sure is refused before anything is frozen.
static int
check_size(const struct sandbox *s, const struct sandbox_copy *want, struct err *e)
{
    struct statfs fs;
    const int fd = s->dirs.fd[SPAWN_FD_DISK];
    if (fd < 0 || fstatfs(fd, &fs) < 0)
        return 0;
    const uint64_t written =
        want->from != 0 ? want->bytes : (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    const uint64_t memory = s->spec.limits.v[LIMIT_MEMORY_BYTES];
    const uint64_t held = cgstat_memory_held(&s->dirs);
    if (memory == 0 || held + written <= memory)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "a copy of %llu MiB does not fit: %llu MiB of %llu MiB of memory are in use",
                    (unsigned long long)(written >> 20), (unsigned long long)(held >> 20),
                    (unsigned long long)(memory >> 20));
    err_detail(e, "COPY_MEMORY", "memory_bytes", "raise the limit, or write fewer files");
    return r;
}

// Its own layers are joined in the background.
static bool
is_join(const struct sandbox_copy *want)
{
    return want->from != 0 && want->other_generation == 0;
}

// Nobody waits for a join, so it gives way to other copies.
static bool
gives_way(const struct sandbox_copying *c, const struct sandbox_copy *want)
{
    return is_join(&c->want) && !is_join(want) && c->next == NULL;
}

static int
check(const struct sandbox *s, const struct sandbox_copy *want, struct err *e)
{
    int r = sandbox_check_running(s, e);
    if (r == 0 && s->copying != NULL && !gives_way(s->copying, want)) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "files of sandbox %s are being copied", s->id.id);
        err_detail(e, "COPYING", s->id.id, "try again");
    }
    return r < 0 ? r : check_size(s, want, e);
}

static int
start(struct sandbox_copying *c, struct err *e)
{
    struct sandbox *s = c->sandbox;
    int r = c->frozen
                ? spawn_still(s->all->srv->spawn, s->slot, s->generation, true, on_still, c, e)
                : ask(c, e);
    if (r < 0)
        return r;
    s->copying = c;
    if (c->frozen)
        sandbox_move(s, SANDBOX_COPYING);
    return 0;
}

// The sandbox may have changed since the request.
static void
start_next(struct sandbox_copying *c)
{
    struct err e;
    int r = sandbox_check_running(c->sandbox, &e);
    if (r == 0)
        r = check_size(c->sandbox, &c->want, &e);
    if (r == 0)
        r = start(c, &e);
    if (r == 0)
        return;
    c->frozen = false;
    fail(c, &e);
    end(c);
}

// A request to the spawner cannot be taken back; its reply ends the copy.
static void
make_way(struct sandbox_copying *c)
{
    struct err e;
    if (c->poll == NULL)
        return;
    (void)err_set(&e, ERR_ABORTED, "another copy takes its place");
    give_up(c, &e);
}

int
sandbox_copy(struct sandbox *s, const struct sandbox_copy *want, struct err *e)
{
    int r = check(s, want, e);
    if (r < 0)
        return r;
    struct sandbox_copying *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_sys(e, ENOMEM, "copy files");
    *c = (struct sandbox_copying){.sandbox = s, .want = *want, .frozen = want->from == 0, .fd = -1};
    if (s->copying != NULL) {
        s->copying->next = c;
        sandbox_hold(s);
        make_way(s->copying);
        return 0;
    }
    r = start(c, e);
    if (r < 0)
        free(c);
    else
        sandbox_hold(s);
    return r;
}

void
sandbox_copy_make_way(struct sandbox *s)
{
    if (s->copying != NULL && is_join(&s->copying->want))
        make_way(s->copying);
}

// The sandbox is being deleted: its keeper need not go on. What waits for the spawner ends with its answer.
void
sandbox_copy_stop(struct sandbox *s)
{
    struct err e;
    struct sandbox_copying *c = s->copying;
    if (c == NULL || c->poll == NULL)
        return;
    (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    give_up(c, &e);
}
