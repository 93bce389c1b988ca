// SPDX-License-Identifier: Apache-2.0
// A sandbox of the pool gets the volumes and the folders of the host of the request that will have it, one after the other, before it is given away: each is
// opened if it is not open yet, and mounted by the spawner.
#include <errno.h>
#include <stdlib.h>

#include "volumes_private.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"

// It may free the sandbox.
static void
end(struct mounting *m, const struct err *e)
{
    struct sandbox *s = m->sandbox;
    list_remove(&m->node);
    mounts_unref(m->mounts);
    free(m);
    sandbox_mounted(s, e);
    sandbox_let_go(s);
}

static void
next(struct mounting *m)
{
    struct err e;
    if (m->sandbox->state == SANDBOX_DELETING) {
        (void)err_set(&e, ERR_CANCELLED, "the sandbox is being deleted");
        end(m, &e);
        return;
    }
    if (m->next == m->mounts->n) {
        end(m, NULL);
        return;
    }
    const struct mount *one = &m->mounts->mount[m->next];
    if (one->host) {
        mounting_go_on(m, NULL, NULL);
        return;
    }
    if (!one->read_only && volumes_check_clear(m->all, "mount it read-only", &e) < 0) {
        end(m, &e);
        return;
    }
    struct entry *v = entry_by_id(m->all, one->volume);
    if (v == NULL || v->doomed) {
        (void)err_set(&e, ERR_NOT_FOUND, "volume %s was removed meanwhile", one->name);
        end(m, &e);
        return;
    }
    list_append(&v->waiting, &m->waiting);
    entry_settle(v);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_mounted(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct mounting *m = cookie;
    struct sandbox *s = m->sandbox;
    (void)fds;
    const struct mount *one = &m->mounts->mount[m->next];
    struct entry *v = one->host ? NULL : entry_by_id(m->all, one->volume);
    if (v != NULL) { // always for a volume: it cannot go while a mount is pending
        v->pending--;
        v->volume.users += reply->ok != 0;
    }
    if (reply->ok == 0) {
        if (v != NULL)
            entry_settle(v);
        end(m, &reply->err);
        return;
    }
    if (s->mounts == NULL) {
        s->mounts = mounts_ref(m->mounts);
        list_append(&m->all->holders, &s->mounts_node);
    }
    s->mounted = ++m->next;
    next(m);
}

void
mounting_go_on(struct mounting *m, struct entry *v, const struct err *failed)
{
    struct err e;
    const struct sandbox *s = m->sandbox;
    const struct mount *one = &m->mounts->mount[m->next];
    const struct spawn_mount mount = {.disk = v != NULL ? v->number : 0,
                                      .host = v == NULL ? one->volume : NULL,
                                      .read_only = one->read_only,
                                      .at = one->at};
    if (failed == NULL && s->state == SANDBOX_DELETING)
        (void)err_set(&e, ERR_CANCELLED, "the sandbox is being deleted");
    else if (failed != NULL)
        e = *failed;
    else if (spawn_mount(m->all->srv->spawn, s->slot, s->generation, &mount, on_mounted, m, &e) ==
             0) {
        if (v != NULL)
            v->pending++;
        return;
    }
    (void)err_wrap(&e, "mount %s%s", one->host ? "" : "volume ", one->name);
    end(m, &e);
}

static int
mount(struct sandbox *s, struct mounts *mounts, struct err *e)
{
    struct volumes *vs = sandboxes_server(s->all)->volumes;
    struct mounting *m = calloc(1, sizeof *m);
    if (m == NULL)
        return err_sys(e, ENOMEM, "mount volumes");
    *m = (struct mounting){.all = vs, .sandbox = s, .mounts = mounts_ref(mounts)};
    list_init(&m->waiting);
    list_append(&vs->mountings, &m->node);
    sandbox_hold(s);
    next(m);
    return 0;
}

static void
forget(struct sandbox *s)
{
    const struct volumes *vs = sandboxes_server(s->all)->volumes;
    if (s->mounts != NULL)
        list_remove(&s->mounts_node);
    for (uint32_t i = 0; s->mounts != NULL && i < s->mounted; i++) {
        const struct mount *one = &s->mounts->mount[i];
        struct entry *v = one->host ? NULL : entry_by_id(vs, one->volume);
        if (v == NULL)
            continue;
        v->volume.users--;
        entry_settle(v);
    }
    mounts_unref(s->mounts);
    s->mounts = NULL;
    s->mounted = 0;
}

const struct sandbox_mounters volume_mounters = {mount, forget};
