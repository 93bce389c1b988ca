// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: sandbox_states(), sandbox_graft().
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

enum { SPARE_BYTES = 1 << 20, SPARE_INODES = 256, INODES_MAX = 1 << 24 };

struct grafting {
    struct sandbox *sandbox;
    struct sandbox_graft want;
    uint32_t slot, generation; // of the other, which may end meanwhile
};

static void
on_copied(void *cookie, struct sandbox *s, const struct sandbox_copied *r, const struct err *failed)
{
    const struct grafting g = *(struct grafting *)cookie;
    free(cookie);
    g.want.done(g.want.cookie, s, r->layer, r->bytes, failed);
    sandbox_let_go(s);
}

// Files of a layer in memory belong to the ids of the other sandbox, and this kernel cannot map those in a mount.
static int
copy_instead(struct grafting *g, struct err *e)
{
    const struct sandbox_graft *w = &g->want;
    const uint64_t inodes = w->inodes + SPARE_INODES;
    if (w->bytes > w->copy_max) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                        "this kernel cannot share files in memory between sandboxes, and "
                        "%llu MiB are more than may be copied",
                        (unsigned long long)(w->bytes >> 20));
        err_detail(e, "COPY_BYTES", "copy_bytes_max", "raise it, or remove files");
        return r;
    }
    const struct sandbox_copy copy = {.from = w->layer,
                                      .below = w->below,
                                      .other = g->slot,
                                      .other_generation = g->generation,
                                      .bytes = w->bytes + w->bytes / 8 + SPARE_BYTES,
                                      .inodes = inodes < INODES_MAX ? (uint32_t)inodes : INODES_MAX,
                                      .ms = w->ms,
                                      .done = on_copied,
                                      .cookie = g};
    return sandbox_copy(g->sandbox, &copy, e);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_grafted(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    const struct grafting g = *(struct grafting *)cookie;
    struct err e;
    (void)fds;
    if (reply->ok == 0 && strcmp(reply->err.reason, "LAYER_IDS_UNSUPPORTED") == 0) {
        if (copy_instead(cookie, &e) == 0)
            return;
    } else if (reply->ok == 0)
        e = reply->err;
    else if (g.sandbox->state == SANDBOX_DELETING)
        (void)err_set(&e, ERR_ABORTED, "the sandbox is being deleted");
    else
        e.code = ERR_OK;
    free(cookie);
    g.want.done(g.want.cookie, g.sandbox, reply->layer, 0, e.code != ERR_OK ? &e : NULL);
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
    *asked = (struct grafting){s, *g, g->from->slot, g->from->generation};
    asked->want.from = NULL;
    r = spawn_graft(s->all->srv->spawn, s->slot, s->generation, &from, on_grafted, asked, e);
    if (r < 0)
        free(asked);
    else
        sandbox_hold(s);
    return r;
}
