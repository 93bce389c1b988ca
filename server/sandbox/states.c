// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_states(), sandbox_graft().
#include <errno.h>
#include <stdlib.h>

#include "private.h"
#include "server/base/server.h"
#include "spawn.h"

// Exists until the spawner answers, also when nobody waits any more.
struct sandbox_states_asked {
    struct sandbox *sandbox;
    struct sandbox_states *q; // NULL: nobody waits
};

static void
on_states(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox_states_asked *asked = cookie;
    struct sandbox_states *q = asked->q;
    struct sandbox *s = asked->sandbox;
    free(asked);
    if (q == NULL) {
        spawn_close_fds(fds);
    } else {
        q->asked = NULL;
        q->done(q->cookie, fds, reply->ok != 0 ? NULL : &reply->err);
    }
    sandbox_let_go(s);
}

int
sandbox_states(struct sandbox *s, uint32_t from, uint32_t to, struct sandbox_states *q,
               struct err *e)
{
    const uint32_t layers[2] = {from, to};
    int r = sandbox_check_running(s, e);
    if (r < 0)
        return r;
    struct sandbox_states_asked *asked = calloc(1, sizeof *asked);
    if (asked == NULL)
        return err_sys(e, ENOMEM, "compare states of files");
    *asked = (struct sandbox_states_asked){s, q};
    r = spawn_states(s->all->srv->spawn, s->slot, s->generation, layers, on_states, asked, e);
    if (r < 0) {
        free(asked);
        return r;
    }
    q->asked = asked;
    sandbox_hold(s);
    return 0;
}

void
sandbox_states_forget(struct sandbox_states *q)
{
    if (q->asked != NULL)
        q->asked->q = NULL;
    q->asked = NULL;
}

// ---- a layer of another sandbox

struct grafting {
    struct sandbox *sandbox;
    sandbox_graft_done *done;
    void *cookie;
};

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_grafted(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    const struct grafting g = *(struct grafting *)cookie;
    struct err e;
    (void)fds;
    free(cookie);
    if (reply->ok == 0)
        e = reply->err;
    else if (g.sandbox->state == SANDBOX_DELETING)
        (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    else
        e.code = ERR_OK;
    g.done(g.cookie, g.sandbox, reply->layer, e.code != ERR_OK ? &e : NULL);
    sandbox_let_go(g.sandbox);
}

int
sandbox_graft(struct sandbox *s, const struct sandbox_graft *g, struct err *e)
{
    const struct spawn_source from = {g->from->slot, g->from->generation, g->layer, g->below};
    int r = sandbox_check_running(s, e);
    if (r < 0)
        return r;
    struct grafting *asked = calloc(1, sizeof *asked);
    if (asked == NULL)
        return err_sys(e, ENOMEM, "give files to a sandbox");
    *asked = (struct grafting){s, g->done, g->cookie};
    r = spawn_graft(s->all->srv->spawn, s->slot, s->generation, &from, on_grafted, asked, e);
    if (r < 0)
        free(asked);
    else
        sandbox_hold(s);
    return r;
}
