// SPDX-License-Identifier: Apache-2.0
// See volumes.h: the table, Create and Delete.
#include "volumes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "index.h"
#include "volumes_private.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/spawn.h"

// ---- the table

static void
count(const struct volume *v, int sign)
{
    metrics_move(METRIC_VOLUMES, 0, sign);
    metrics_move(METRIC_VOLUMES_BYTES, 0, sign * (int64_t)v->bytes);
}

static struct entry *
add(struct volumes *vs, const struct volume *from)
{
    struct entry *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    count(from, 1);
    v->volume = *from;
    v->all = vs;
    v->state = VOLUME_CLOSED;
    v->disk_fd = -1;
    list_init(&v->waiting);
    list_init(&v->measuring);
    list_init(&v->volume.node);
    return v;
}

// In the order in which they were made.
static void
insert(struct volumes *vs, struct entry *v)
{
    struct list *at = vs->list.prev;
    while (at != &vs->list && list_entry(at, struct volume, node)->order > v->volume.order)
        at = at->prev;
    v->volume.node.prev = at;
    v->volume.node.next = at->next;
    at->next->prev = &v->volume.node;
    at->next = &v->volume.node;
    if (v->volume.order > vs->order)
        vs->order = v->volume.order;
}

static void
on_found(void *cookie, const struct volume *from)
{
    struct volumes *vs = cookie;
    struct entry *v = add(vs, from);
    if (v == NULL)
        log_event(LOG_ERROR, "volume", "%s: out of memory", from->name);
    else
        insert(vs, v);
}

struct volumes *
volumes_new(struct server *srv, const char *state_dir)
{
    struct volumes *vs = calloc(1, sizeof *vs);
    if (vs == NULL)
        return NULL;
    vs->srv = srv;
    (void)snprintf(vs->state_dir, sizeof vs->state_dir, "%s", state_dir);
    list_init(&vs->list);
    list_init(&vs->mountings);
    list_init(&vs->holders);
    index_read(state_dir, on_found, vs);
    return vs;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_swept(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    (void)cookie;
    (void)fds;
    if (reply->ok == 0)
        log_err(LOG_WARNING, "volume-left", &reply->err);
}

static void
on_stray(void *cookie, const uint8_t id[16])
{
    const struct volumes *vs = cookie;
    struct err e;
    struct spawn_disk d = {.kind = SPAWN_DISK_VOLUME};
    memcpy(d.id, id, sizeof d.id);
    log_event(LOG_WARNING, "volume-left", "a volume that was not complete is removed");
    if (spawn_disk_remove(vs->srv->spawn, &d, on_swept, NULL, &e) < 0)
        log_err(LOG_WARNING, "volume-left", &e);
}

void
volumes_sweep(struct volumes *vs)
{
    index_strays(vs->state_dir, on_stray, vs);
}

void
entry_free(struct entry *v)
{
    count(&v->volume, -1);
    loop_timer_stop(&v->timer);
    list_remove(&v->volume.node);
    list_each(it, &v->measuring) free(list_entry(it, struct volume_op, node));
    if (v->disk_fd >= 0)
        (void)close(v->disk_fd);
    free(v->op);
    free(v);
}

void
volumes_free(struct volumes *vs)
{
    if (vs == NULL)
        return;
    list_each(it, &vs->mountings)
    {
        struct mounting *m = list_entry(it, struct mounting, node);
        mounts_unref(m->mounts);
        free(m);
    }
    list_each(it, &vs->list) entry_free((struct entry *)list_entry(it, struct volume, node));
    free(vs);
}

struct entry *
entry_by_id(const struct volumes *vs, const uint8_t id[16])
{
    list_each(it, &vs->list)
    {
        struct entry *v = (struct entry *)list_entry(it, struct volume, node);
        if (memcmp(v->volume.id, id, sizeof v->volume.id) == 0)
            return v;
    }
    return NULL;
}

static struct entry *
look_up(const struct volumes *vs, const char *tenant, const char *name)
{
    list_each(it, &vs->list)
    {
        struct entry *v = (struct entry *)list_entry(it, struct volume, node);
        if (!v->doomed && strcmp(v->volume.name, name) == 0 &&
            strcmp(v->volume.tenant, tenant) == 0)
            return v;
    }
    return NULL;
}

const struct volume *
volume_find(const struct volumes *vs, const char *tenant, const char *name, struct err *e)
{
    const struct entry *v = look_up(vs, tenant, name);
    if (v != NULL && v->state != VOLUME_MAKING)
        return &v->volume;
    (void)err_set(e, ERR_NOT_FOUND, "there is no volume %s", name);
    err_detail(e, "NO_VOLUME", "volume", "stockade volume ls shows yours");
    return NULL;
}

const struct volume *
volume_next(const struct volumes *vs, const struct volume *before)
{
    struct list *it = before == NULL ? vs->list.next : before->node.next;
    for (; it != &vs->list; it = it->next) {
        const struct entry *v = (struct entry *)list_entry(it, struct volume, node);
        if (!v->doomed && v->state != VOLUME_MAKING)
            return &v->volume;
    }
    return NULL;
}

static bool
has(const struct mounts *m, uint32_t n, const struct volume *v)
{
    for (uint32_t i = 0; i < n; i++)
        if (!m->mount[i].host && memcmp(m->mount[i].volume, v->id, sizeof v->id) == 0)
            return true;
    return false;
}

uint32_t
volume_sandboxes(const struct volumes *vs, const struct volume *v)
{
    uint32_t n = 0;
    list_each(it, &vs->holders)
    {
        const struct sandbox *s = list_entry(it, struct sandbox, mounts_node);
        n += s->state != SANDBOX_DELETING && has(s->mounts, s->mounted, v);
    }
    return n;
}

// ---- operations

void
volume_unwait(struct volume_op *op)
{
    op->done = NULL;
}

void
entry_finish(struct entry *v, const struct err *e)
{
    struct volume_op *op = v->op;
    v->op = NULL;
    if (op != NULL && op->done != NULL)
        op->done(op->cookie, e == NULL && !v->doomed ? &v->volume : NULL, e);
    free(op);
}

static struct volume_op *
op_new(volume_done *done, void *cookie)
{
    struct volume_op *op = calloc(1, sizeof *op);
    if (op != NULL) {
        *op = (struct volume_op){.done = done, .cookie = cookie};
        list_init(&op->node);
    }
    return op;
}

// ---- what it holds

enum { INODES_OF_IMAGE = 10 }; // ext4: the reserved ones, the root folder among them

void
volume_look(const struct volume *volume)
{
    struct entry *v = (struct entry *)(uintptr_t)volume;
    struct statfs fs;
    if (v->disk_fd < 0 || fstatfs(v->disk_fd, &fs) < 0)
        return;
    // without the root folder, and in an image without those of the file system itself
    const uint64_t own = fs.f_files == volume->inodes + UINT64_C(1) ? 1 : INODES_OF_IMAGE;
    const uint64_t inodes = fs.f_files - fs.f_ffree;
    v->volume.measured = true;
    v->volume.used_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_frsize;
    v->volume.used_inodes = inodes > own ? inodes - own : 0;
}

int
volume_measure(const struct volume *volume, volume_done *done, void *cookie, struct volume_op **out,
               struct err *e)
{
    struct entry *v = (struct entry *)(uintptr_t)volume;
    volume_look(volume);
    if (volume->measured)
        return 1;
    struct volume_op *op = op_new(done, cookie);
    if (op == NULL)
        return err_sys(e, ENOMEM, "measure a volume");
    list_append(&v->measuring, &op->node);
    *out = op;
    entry_settle_soon(v);
    return 0;
}

// ---- Create

void
volumes_held(const struct volumes *vs, const char *tenant, struct volumes_held *out)
{
    *out = (struct volumes_held){0};
    list_each(it, &vs->list)
    {
        const struct volume *v = list_entry(it, struct volume, node);
        const bool own = strcmp(v->tenant, tenant) == 0;
        out->n += own;
        out->bytes += own ? v->bytes : 0;
    }
}

static int
check_quota(const struct volumes *vs, const struct volume_wanted *w, struct err *e)
{
    const struct quotas *q = vs->srv->tenants->quotas;
    const uint64_t most = quota_of(q, w->tenant, QUOTA_VOLUMES);
    const uint64_t most_bytes = quota_of(q, w->tenant, QUOTA_VOLUME_BYTES);
    struct volumes_held held;
    uint32_t of_all = 0;
    list_each(it, &vs->list)
    {
        of_all++;
    }
    if (of_all >= VOLUMES_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the broker has %d volumes, its maximum",
                        VOLUMES_MAX);
        err_detail(e, "VOLUMES", NULL, "remove some");
        return r;
    }
    volumes_held(vs, w->tenant, &held);
    if (held.n >= most)
        return quota_refuse(&(struct quota_refusal){QUOTA_VOLUMES, w->tenant, held.n, 1, most}, e);
    if (w->bytes <= most_bytes && held.bytes <= most_bytes - w->bytes)
        return 0;
    return quota_refuse(
        &(struct quota_refusal){QUOTA_VOLUME_BYTES, w->tenant, held.bytes, w->bytes, most_bytes},
        e);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_made(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct entry *v = cookie;
    struct err e;
    (void)fds;
    if (reply->ok == 0) {
        e = reply->err;
        (void)err_wrap(&e, "make volume %s", v->volume.name);
        entry_finish(v, &e);
        entry_free(v);
        return;
    }
    v->state = VOLUME_CLOSED;
    if (index_write(v->all->state_dir, &v->volume, &e) == 0) {
        entry_finish(v, NULL);
        return;
    }
    v->doomed = true;
    entry_finish(v, &e);
    entry_settle(v); // its disk goes
}

int
volumes_check_clear(const struct volumes *vs, const char *what, struct err *e)
{
    if (!sandboxes_settings(vs->srv->sandboxes)->encryption_required)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "the broker's configuration requires encryption, and volumes are on the disk "
                    "in clear");
    err_detail(e, "ENCRYPTION_REQUIRED", "encryption.required", what);
    return r;
}

int
volume_create(struct volumes *vs, const struct volume_wanted *w, volume_done *done, void *cookie,
              struct volume_op **out, struct err *e)
{
    struct volume record = {.bytes = w->bytes, .inodes = w->inodes, .created_ms = now_wall_ms()};
    if (look_up(vs, w->tenant, w->name) != NULL) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "there is a volume %s already", w->name);
        err_detail(e, "VOLUME_EXISTS", "name", "choose another name");
        return r;
    }
    int r = volumes_check_clear(vs, "keep files in snapshots", e);
    if (r == 0)
        r = check_quota(vs, w, e);
    if (r < 0)
        return r;
    (void)snprintf(record.name, sizeof record.name, "%s", w->name);
    (void)snprintf(record.tenant, sizeof record.tenant, "%s", w->tenant);
    if (getrandom(record.id, sizeof record.id, 0) != (ssize_t)sizeof record.id)
        return err_sys(e, errno, "choose an id");
    record.order = vs->order + 1;
    struct entry *v = add(vs, &record);
    struct volume_op *op = op_new(done, cookie);
    if (v == NULL || op == NULL) {
        free(v);
        free(op);
        return err_sys(e, ENOMEM, "make a volume");
    }
    v->state = VOLUME_MAKING;
    v->op = op;
    insert(vs, v);
    struct spawn_disk d = {.kind = SPAWN_DISK_VOLUME};
    memcpy(d.id, record.id, sizeof d.id);
    r = spawn_disk_make(vs->srv->spawn, &d, w->bytes, w->inodes, on_made, v, e);
    if (r < 0)
        entry_free(v);
    else
        *out = op;
    return r;
}

// ---- Delete

static void
delete_users(struct volumes *vs, const struct volume *v)
{
    struct err why;
    (void)err_set(&why, ERR_CANCELLED, "its volume %s is removed", v->name);
    list_each(it, &vs->holders)
    {
        struct sandbox *s = list_entry(it, struct sandbox, mounts_node);
        if (has(s->mounts, s->mounted, v))
            sandbox_destroy(s, &why, NULL);
    }
}

static int
check_unused(const struct volumes *vs, const struct entry *v, struct err *e)
{
    const uint32_t users = volume_sandboxes(vs, &v->volume);
    if (users == 0 && v->pending == 0 && list_empty(&v->waiting))
        return 0;
    int r = users > 0
                ? err_set(e, ERR_FAILED_PRECONDITION, "volume %s is mounted in %" PRIu32 " %s",
                          v->volume.name, users, plural(users, "sandbox", "sandboxes"))
                : err_set(e, ERR_FAILED_PRECONDITION, "volume %s is being mounted", v->volume.name);
    err_detail(e, "VOLUME_IN_USE", "volume",
               "remove the sandboxes that have it, then the volume, or use force (--force)");
    return r;
}

int
volume_delete(struct volumes *vs, const struct volume_unwanted *w, volume_done *done, void *cookie,
              struct volume_op **out, struct err *e)
{
    struct entry *v = look_up(vs, w->tenant, w->name);
    if (v == NULL || v->state == VOLUME_MAKING)
        return volume_find(vs, w->tenant, w->name, e) != NULL ? 0 : err_errno(e);
    if (w->force)
        delete_users(vs, &v->volume);
    int r = check_unused(vs, v, e);
    if (r < 0)
        return r;
    struct volume_op *op = op_new(done, cookie);
    if (op == NULL)
        return err_sys(e, ENOMEM, "remove a volume");
    r = index_remove(vs->state_dir, &v->volume, e);
    if (r < 0) {
        free(op);
        return r;
    }
    v->doomed = true;
    v->op = op;
    *out = op;
    entry_settle(v);
    return 0;
}
