// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_swap_upper(). What a snapshot, a fork, a template or a transaction begins with.
#include <string.h>
#include <unistd.h>

#include "proto/container_of.h"
#include "private.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "spawn.h"

enum { TRIES = 40, AGAIN_MS = 5 };

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

static int ask(struct sandbox *s, struct err *e);

static void
finish(struct sandbox *s, int layer_fd, const struct err *e)
{
    struct sandbox_swap *w = find(s);
    if (w != NULL)
        w->layer_fd = layer_fd;
    else if (layer_fd >= 0)
        (void)close(layer_fd);
    sandbox_move(s, SANDBOX_RUNNING);
    sandbox_notify(s, WAIT_SWAP, e);
}

static void
on_again(void *cookie)
{
    struct sandbox *s = cookie;
    struct err e;
    loop_timer_stop(&s->wait_timer);
    if (ask(s, &e) < 0)
        finish(s, -1, &e);
}

// What a job left was killed with it, and may need a moment to go.
static bool
try_later(struct sandbox *s, const struct err *e)
{
    if (strcmp(e->reason, "JOBS_RUN") != 0 || s->swap_tries == TRIES)
        return false;
    s->swap_tries++;
    return loop_timer_start(s->all->srv->loop, &s->wait_timer, AGAIN_MS, on_again, s) == 0;
}

static void
on_swapped(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    struct err missing;
    const struct err *e = reply->ok != 0 ? NULL : &reply->err;
    if (s->state != SANDBOX_SWAPPING) { // it is being deleted
        spawn_close_fds(fds);
    } else if (e == NULL && fds[0] < 0) { // sealed it is, but we had no room for the descriptor
        (void)err_set(&missing, ERR_RESOURCE_EXHAUSTED,
                      "the broker has no free file descriptor for the layer");
        finish(s, -1, &missing);
    } else if (e == NULL || !try_later(s, e)) {
        finish(s, fds[0], e);
    }
    sandbox_let_go(s);
}

static int
ask(struct sandbox *s, struct err *e)
{
    int r = spawn_swap(s->all->srv->spawn, s->slot, s->generation, on_swapped, s, e);
    if (r == 0)
        sandbox_hold(s);
    return r;
}

int
sandbox_swap_upper(struct sandbox *s, struct sandbox_swap *w, struct err *e)
{
    int r = sandbox_check_running(s, e);
    if (r == 0 && s->jobs_n > 0) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%u processes run in sandbox %s", s->jobs_n,
                    s->id.id);
        err_detail(e, "JOBS_RUN", s->id.id, "wait for them to end, or stop them");
    }
    if (r == 0)
        r = ask(s, e);
    if (r < 0)
        return err_wrap(e, "seal the files");
    sandbox_move(s, SANDBOX_SWAPPING);
    s->swap_tries = 0;
    w->layer_fd = -1;
    w->waiter.what = WAIT_SWAP;
    list_append(&s->waiters, &w->waiter.node);
    return 0;
}
