// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_states().
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
