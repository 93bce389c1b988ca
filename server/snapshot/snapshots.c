// SPDX-License-Identifier: Apache-2.0
// See snapshots.h.
#include "snapshots_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "proto/container_of.h"
#include "proto/now.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/sandbox/job.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"

enum { LOOK_MS = 2, STOP_MS = 10 * 1000, ROOM_MS = 30 * 1000 };

struct snapshot_op {
    struct list node; // of those that wait for a time
    struct sandbox_swap swap;
    struct server *srv;
    bool restores;
    bool nameless; // seals only
    char name[SNAPSHOT_NAME];
    char sandbox[ID_TEXT_MAX + 1], tenant[32]; // while its jobs end
    uint64_t stop_until_ns;
    uint32_t room;          // for so many layers
    uint64_t room_until_ns; // 0: it has not waited for it
    struct loop_timer *timer;
    snapshot_done *done; // NULL: nobody waits
    void *cookie;
};

static struct list waiting = {&waiting, &waiting};

// ---- what there is

struct snapshots_box *
snapshots_box_of(struct sandbox *s)
{
    if (s->snapshots == NULL) {
        s->snapshots = calloc(1, sizeof *s->snapshots);
        if (s->snapshots != NULL)
            list_init(&s->snapshots->list);
    }
    return s->snapshots;
}

struct list *
snapshots_of(const struct sandbox *s)
{
    return s->snapshots == NULL || s->snapshots->n == 0 ? NULL : &s->snapshots->list;
}

static struct snapshot *
look_up(const struct sandbox *s, const char *name)
{
    if (s->snapshots == NULL)
        return NULL;
    list_each(it, &s->snapshots->list)
    {
        struct snapshot *p = list_entry(it, struct snapshot, node);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

const struct snapshot *
snapshots_find(const struct sandbox *s, const char *name, struct err *e)
{
    const struct snapshot *p = look_up(s, name);
    if (p == NULL) {
        (void)err_set(e, ERR_NOT_FOUND, "sandbox %s has no snapshot %s", s->id.id, name);
        err_detail(e, "SNAPSHOT_UNKNOWN", "name", "'stockade snapshot ls SANDBOX' lists them");
    }
    return p;
}

const struct snapshot *
snapshots_current(const struct sandbox *s)
{
    struct snapshots_box *b = s->snapshots;
    const struct snapshot *found = NULL;
    uint32_t at = b == NULL ? 0 : b->top;
    for (unsigned i = 0; i < LAYERS_DEPTH && found == NULL; i++) {
        const struct layer *l = b == NULL ? NULL : layer_of(b, at);
        if (l == NULL)
            return NULL;
        list_each(it, &b->list)
        {
            const struct snapshot *p = list_entry(it, struct snapshot, node);
            if (p->layer == at)
                found = p; // the youngest of equal ones
        }
        at = l->below;
    }
    return found;
}

// ---- the end of an operation

static void
op_free(struct snapshot_op *op)
{
    loop_timer_stop(&op->timer);
    if (op->node.next != NULL)
        list_remove(&op->node);
    free(op);
}

static void
op_end(struct snapshot_op *op, struct sandbox *s, const struct snapshot *p, const struct err *e)
{
    if (op->done != NULL)
        op->done(op->cookie, s, p, e);
    op_free(op);
}

static int
check_new(const struct sandbox *s, const char *name, struct err *e)
{
    if (name[0] != '\0' && look_up(s, name) != NULL) {
        int r =
            err_set(e, ERR_ALREADY_EXISTS, "sandbox %s has a snapshot %s already", s->id.id, name);
        err_detail(e, "NAME_IN_USE", "name", "choose another name, or delete that one");
        return r;
    }
    if (s->snapshots == NULL || s->snapshots->n < SNAPSHOTS_OF_SANDBOX)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "sandbox %s has %d snapshots, its maximum", s->id.id,
                    SNAPSHOTS_OF_SANDBOX);
    err_detail(e, "SNAPSHOTS", "snapshots", "delete some of them");
    return r;
}

static void
choose_name(const struct sandbox *s, char out[SNAPSHOT_NAME])
{
    uint64_t n = s->snapshots->order;
    do
        (void)snprintf(out, SNAPSHOT_NAME, "snapshot-%" PRIu64, n++);
    while (look_up(s, out) != NULL);
}

static struct snapshot *
add(struct sandbox *s, const char *name, uint32_t layer)
{
    struct snapshots_box *b = s->snapshots;
    struct snapshot *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->order = ++b->order;
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    if (name[0] == '\0')
        choose_name(s, p->name);
    p->created_ms = now_wall_ms();
    p->layer = layer;
    const struct layer *l = layer_of(b, layer);
    p->bytes = l != NULL ? l->bytes : 0;
    p->inodes = l != NULL ? l->inodes : 0;
    layers_sum(b, layer, &p->bytes_in_all, &p->inodes_in_all);
    list_append(&b->list, &p->node);
    b->n++;
    return p;
}

bool
snapshots_busy(const struct sandbox *s)
{
    return s->snapshots != NULL && s->snapshots->busy > 0;
}

const struct snapshot *
snapshots_name(struct sandbox *s, const char *name, uint32_t layer)
{
    return snapshots_box_of(s) != NULL ? add(s, name, layer) : NULL;
}

static void
on_swapped(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct snapshot_op *op = cookie;
    struct snapshots_box *b = s->snapshots;
    struct err e;
    const struct snapshot *p = NULL;
    b->busy--;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "%s", op->restores ? "restore a snapshot" : "make a snapshot");
        op_end(op, s, NULL, &e);
        return;
    }
    if (op->restores) {
        layers_go_on(b, op->swap.layer);
        p = look_up(s, op->name); // it may have been deleted in the meantime
    } else {
        if (op->swap.fresh)
            layers_sealed(s, op->swap.layer, op->swap.bytes, op->swap.inodes);
        if (op->nameless || check_new(s, op->name, &e) < 0)
            ; // or another one was faster
        else if ((p = add(s, op->name, op->swap.layer)) == NULL)
            (void)err_sys(&e, ENOMEM, "make a snapshot");
    }
    layers_prune(s, b);
    op_end(op, s, p, p == NULL && !op->restores && !op->nameless ? &e : NULL);
}

static void
on_copied(void *cookie, struct sandbox *s, uint32_t layer, const struct copied_cost *cost,
          const struct err *failed)
{
    struct snapshot_op *op = cookie;
    struct snapshot *p = NULL;
    struct err e;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "make a snapshot");
    } else if (check_new(s, op->name, &e) < 0) {
        ; // another one was faster
    } else if ((p = add(s, op->name, layer)) == NULL) {
        (void)err_sys(&e, ENOMEM, "make a snapshot");
    } else {
        p->copied_bytes = cost->bytes;
        p->frozen_us = cost->frozen_us;
    }
    op_end(op, s, p, p == NULL ? &e : NULL);
}

// ---- its begin

static void on_look(void *cookie);

static int
look_later(struct snapshot_op *op, const char *why, struct err *e)
{
    if (loop_timer_start(op->srv->loop, &op->timer, LOOK_MS, on_look, op) < 0)
        return err_sys(e, ENOMEM, "%s", why);
    if (op->node.next == NULL)
        list_append(&waiting, &op->node);
    return 0;
}

// Until layers have been joined, so that there can be another one.
static int
wait_for_room(struct snapshot_op *op, const struct sandbox *s, struct err *e)
{
    (void)snprintf(op->sandbox, sizeof op->sandbox, "%s", s->id.id);
    (void)snprintf(op->tenant, sizeof op->tenant, "%s", s->tenant->name);
    if (op->room_until_ns == 0)
        op->room_until_ns = uv_hrtime() + ROOM_MS * UINT64_C(1000000);
    return look_later(op, "wait for layers to be joined", e);
}

static bool
must_wait(const struct snapshot_op *op, struct sandbox *s)
{
    return !op->restores && (op->room_until_ns == 0 || uv_hrtime() < op->room_until_ns) &&
           join_makes_room(s, op->room);
}

static int
swap(struct snapshot_op *op, struct sandbox *s, struct err *e)
{
    const struct snapshot *p = NULL;
    if (!op->restores && layers_may_add(s, e) < 0)
        return err_errno(e);
    if (must_wait(op, s))
        return wait_for_room(op, s, e);
    if (op->restores && (p = snapshots_find(s, op->name, e)) == NULL)
        return err_errno(e);
    op->swap.waiter.done = on_swapped;
    op->swap.waiter.cookie = op;
    int r =
        op->restores ? sandbox_restore(s, p->layer, &op->swap, e) : sandbox_seal(s, &op->swap, e);
    if (r == 0)
        s->snapshots->busy++;
    else
        (void)err_wrap(e, "%s", op->restores ? "restore a snapshot" : "make a snapshot");
    return r;
}

// Until the jobs have ended.
static void
on_look(void *cookie)
{
    struct snapshot_op *op = cookie;
    struct err e;
    struct sandbox *s = sandbox_find(op->srv->sandboxes, op->tenant, op->sandbox, &e);
    loop_timer_stop(&op->timer);
    list_remove(&op->node);
    op->node.next = NULL;
    if (s == NULL) {
        op_end(op, NULL, NULL, &e);
    } else if (s->jobs_n == 0 || uv_hrtime() >= op->stop_until_ns) {
        if (swap(op, s, &e) < 0)
            op_end(op, s, NULL, &e);
    } else if (look_later(op, "wait for the jobs to end", &e) < 0) {
        op_end(op, s, NULL, &e);
    }
}

static int
stop_first(struct snapshot_op *op, struct sandbox *s, struct err *e)
{
    struct list *next = NULL;
    int r = sandbox_check_running(s, e);
    if (r < 0)
        return r;
    (void)snprintf(op->sandbox, sizeof op->sandbox, "%s", s->id.id);
    (void)snprintf(op->tenant, sizeof op->tenant, "%s", s->tenant->name);
    op->stop_until_ns = uv_hrtime() + STOP_MS * UINT64_C(1000000);
    for (struct list *it = s->jobs.next; it != &s->jobs; it = next) {
        next = it->next;
        job_cancel(job_of_sandbox(it),
                   op->restores ? "a snapshot is restored" : "a snapshot is made");
    }
    return look_later(op, "wait for the jobs to end", e);
}

static int
begin(struct sandbox *s, const struct snapshot_op *like, bool stop, struct snapshot_op **out,
      struct err *e)
{
    struct snapshot_op *op = malloc(sizeof *op);
    if (op == NULL || snapshots_box_of(s) == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "begin with a snapshot");
    }
    *op = *like;
    op->srv = sandboxes_server(s->all);
    list_init(&op->swap.waiter.node);
    int r = stop && s->jobs_n > 0 ? stop_first(op, s, e) : swap(op, s, e);
    if (r < 0)
        op_free(op);
    else
        *out = op;
    return r;
}

static int
begin_copy(struct sandbox *s, const struct snapshot_op *like, const struct while_jobs_run *how,
           struct snapshot_op **out, struct err *e)
{
    struct snapshot_op *op = malloc(sizeof *op);
    if (op == NULL)
        return err_sys(e, ENOMEM, "begin with a snapshot");
    *op = *like;
    int r = copied_begin(s, how, on_copied, op, e);
    if (r < 0)
        free(op);
    else
        *out = op;
    return r < 0 ? err_wrap(e, "make a snapshot") : 0;
}

int
snapshots_create(struct sandbox *s, const char *name, const struct while_jobs_run *how,
                 snapshot_done *done, void *cookie, struct snapshot_op **out, struct err *e)
{
    struct snapshot_op op = {.room = 1, .done = done, .cookie = cookie};
    (void)snprintf(op.name, sizeof op.name, "%s", name);
    int r = check_new(s, name, e);
    if (r < 0)
        return r;
    return how->copy && s->jobs_n > 0 ? begin_copy(s, &op, how, out, e)
                                      : begin(s, &op, how->stop, out, e);
}

int
snapshots_restore(struct sandbox *s, const char *name, bool stop, snapshot_done *done, void *cookie,
                  struct snapshot_op **out, struct err *e)
{
    struct snapshot_op op = {.restores = true, .done = done, .cookie = cookie};
    (void)snprintf(op.name, sizeof op.name, "%s", name);
    if (snapshots_find(s, name, e) == NULL)
        return err_errno(e);
    return begin(s, &op, stop, out, e);
}

int
snapshots_seal(struct sandbox *s, bool stop, snapshot_done *done, void *cookie,
               struct snapshot_op **out, struct err *e)
{
    return snapshots_seal_for(s, 1, stop, done, cookie, out, e);
}

int
snapshots_seal_for(struct sandbox *s, uint32_t room, bool stop, snapshot_done *done, void *cookie,
                   struct snapshot_op **out, struct err *e)
{
    const struct snapshot_op op = {.room = room, .nameless = true, .done = done, .cookie = cookie};
    return begin(s, &op, stop, out, e);
}

// Each may begin another one: a commit goes on with the next of its steps, which fails then.
void
snapshots_stop(void)
{
    while (!list_empty(&waiting)) {
        struct snapshot_op *op = list_entry(waiting.next, struct snapshot_op, node);
        struct err e;
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        op_end(op, NULL, NULL, &e);
    }
}

void
snapshot_unwait(struct snapshot_op *op)
{
    op->done = NULL; // what has begun is completed
}

int
snapshots_delete(struct sandbox *s, const char *name, struct err *e)
{
    struct snapshot *p = look_up(s, name);
    if (p == NULL) {
        (void)snapshots_find(s, name, e);
        return err_errno(e);
    }
    list_remove(&p->node);
    free(p);
    s->snapshots->n--;
    layers_prune(s, s->snapshots);
    return 0;
}

// ---- with the sandboxes

static void
on_gone(void *cookie, struct sandbox *s)
{
    (void)cookie;
    struct snapshots_box *b = s->snapshots;
    if (b == NULL)
        return;
    list_each(it, &b->list) free(list_entry(it, struct snapshot, node));
    join_end(&b->join);
    layers_clear(b);
    work_unref(b->now);
    free(b);
    s->snapshots = NULL;
}

void
snapshots_observe(struct sandboxes *all)
{
    const struct observer o = {.gone = on_gone};
    (void)observers_add(sandboxes_observers(all), &o);
}
