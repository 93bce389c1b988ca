// SPDX-License-Identifier: Apache-2.0
// See live.h.
#include "live.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context_private.h"
#include "image.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/sandbox/sandbox.h"

struct checkpoint {
    struct list node; // oldest first
    struct contexts *all;
    struct sandbox *sandbox; // NULL: it has gone
    char sandbox_id[ID_TEXT_MAX + 1], context_id[ID_TEXT_MAX + 1], name[CHECKPOINT_NAME_MAX + 1];
    const struct language *language;
    struct image *image; // NULL: it is not made yet, or lost
    struct live_op *op;  // that makes it, also while that waits, or uses it
    uint32_t count;
    uint64_t bytes;
    int64_t created_ms; // 0: it is not made yet
    struct err lost;    // code OK: it is not
    struct loop_timer *gone;
};

struct live_op {
    struct list node; // oldest first
    struct contexts *all;
    enum live_kind kind;
    struct context *context; // NULL: it was deleted
    struct checkpoint *checkpoint;
    struct image *image; // NULL: it has not begun
    bool given;          // the checkpoint has the new image
    bool unmade;         // the checkpoint that it waited for was not made
    uint32_t count;
    live_done *done; // NULL: it was called, or nobody waits
    void *cookie;
    char job[ID_TEXT_MAX + 1]; // to be cancelled at its end, "": none
    const char *why;
    int link; // owned: keeps the job's link open until then; -1: none
};

static struct checkpoint *
of_list(struct list *node)
{
    return list_entry(node, struct checkpoint, node);
}

static struct live_op *
op_of(struct list *node)
{
    return list_entry(node, struct live_op, node);
}

// ---- checkpoints

static struct checkpoint *
find(const struct contexts *all, const struct sandbox *s, const char *name)
{
    for (struct list *it = all->checkpoints.next; it != &all->checkpoints; it = it->next)
        if (of_list(it)->sandbox == s && strcmp(of_list(it)->name, name) == 0)
            return of_list(it);
    return NULL;
}

static int
not_found(const struct sandbox *s, const char *name, struct err *e)
{
    int r = err_set(e, ERR_NOT_FOUND, "sandbox %s has no checkpoint %s", s->id.id, name);
    err_detail(e, "CHECKPOINT_UNKNOWN", name, "'stockade checkpoint ls SANDBOX' lists them");
    return r;
}

static void
on_checkpoint_ready(void *cookie)
{
    (void)cookie;
}

static void
on_checkpoint_ended(void *cookie, const struct err *why)
{
    struct checkpoint *p = cookie;
    p->image = NULL;
    p->lost = *why;
}

static const struct image_events checkpoint_events = {.ready = on_checkpoint_ready,
                                                      .ended = on_checkpoint_ended};

// Nothing uses it.
static void
checkpoint_free(struct checkpoint *p)
{
    assert(p->op == NULL);
    if (p->image != NULL)
        image_close(p->image);
    loop_timer_stop(&p->gone);
    list_remove(&p->node);
    if (p->created_ms != 0)
        metrics_move(METRIC_CHECKPOINTS, 0, -1);
    free(p);
}

static int
check_new(const struct contexts *all, const struct sandbox *s, const char *name, struct err *e)
{
    unsigned n = 0;
    for (struct list *it = all->checkpoints.next; it != &all->checkpoints; it = it->next)
        n += of_list(it)->sandbox == s;
    if (n >= CHECKPOINTS_OF_SANDBOX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "sandbox %s already has %u checkpoints",
                        s->id.id, n);
        err_detail(e, "CHECKPOINTS_OF_SANDBOX", s->id.id, "delete one first");
        return r;
    }
    if (find(all, s, name) == NULL)
        return 0;
    return err_set(e, ERR_ALREADY_EXISTS, "sandbox %s already has a checkpoint %s", s->id.id, name);
}

static struct checkpoint *
checkpoint_new(struct context *c, const char *name, struct err *e)
{
    struct contexts *all = c->all;
    char made[CHECKPOINT_NAME_MAX + 1];
    if (name[0] == '\0') {
        for (unsigned n = 1; n == 1 || find(all, c->sandbox, made) != NULL; n++)
            (void)snprintf(made, sizeof made, "checkpoint-%u", n);
        name = made;
    }
    if (check_new(all, c->sandbox, name, e) < 0)
        return NULL;
    struct checkpoint *p = calloc(1, sizeof *p);
    if (p == NULL) {
        (void)err_sys(e, ENOMEM, "make a checkpoint");
        return NULL;
    }
    p->all = all;
    p->sandbox = c->sandbox;
    p->language = c->language;
    memcpy(p->sandbox_id, c->sandbox_id, sizeof p->sandbox_id);
    memcpy(p->context_id, c->id.id, sizeof p->context_id);
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    list_append(&all->checkpoints, &p->node);
    return p;
}

// ---- operations

static void
cancel_job(struct jobs *jobs, const char *id, const char *why)
{
    uint32_t n = 0;
    struct job *job = job_find_beginning(jobs, NULL, id, &n);
    if (job != NULL)
        job_cancel(job, why);
}

// It is not made: what waits for it fails in live_go_on().
static void
unmake(struct checkpoint *p)
{
    list_each(it, &p->all->ops)
    {
        struct live_op *op = op_of(it);
        op->unmade |= op->checkpoint == p;
        op->checkpoint = op->checkpoint != p ? op->checkpoint : NULL;
    }
    checkpoint_free(p);
}

// Ends it: what waited for its context or its checkpoint begins.
static void
op_free(struct live_op *op)
{
    struct contexts *all = op->all;
    struct checkpoint *p = op->checkpoint;
    if (op->job[0] != '\0')
        cancel_job(all->srv->jobs, op->job, op->why);
    if (op->context != NULL && op->context->op == op) {
        op->context->op = NULL;
        cell_pump_soon(op->context, 0);
    }
    if (p != NULL && p->op == op)
        p->op = NULL;
    if (p != NULL && p->created_ms == 0 && op->kind == LIVE_CHECKPOINT)
        unmake(p);
    if (op->link >= 0)
        (void)close(op->link);
    list_remove(&op->node);
    free(op);
    (void)loop_timer_start(all->srv->loop, &all->live_again, 0, live_go_on, all);
}

static void
answer(struct live_op *op, const struct checkpoint *made, const struct context *c,
       const struct err *e)
{
    live_done *done = op->done;
    op->done = NULL;
    if (done != NULL)
        done(op->cookie, made, c, e);
}

static void
fail(struct live_op *op, const struct err *e)
{
    if (op->image != NULL)
        image_close(take_ptr(op->image));
    answer(op, NULL, NULL, e);
    op_free(op);
}

// The checkpoint goes on with the new image, and the one that it had becomes an interpreter. Not in a sandbox that was frozen or got new files
// meanwhile: both stay as they are.
static void
give(struct live_op *op)
{
    struct checkpoint *p = op->checkpoint;
    struct image *old = p->image;
    struct context *c = op->context;
    struct err e;
    if (c->sandbox != NULL && sandbox_check_running(c->sandbox, &e) < 0) {
        fail(op, &e);
        return;
    }
    p->image = op->image;
    op->given = true;
    int r = op->kind == LIVE_RESTORE ? context_replace(c, old, p->count, &e)
                                     : context_of_image(c, old, p->count, &c, &e);
    if (r < 0) {
        answer(op, NULL, NULL, &e);
        return;
    }
    op->context = c;
    c->op = op; // its interpreter is the parent of the new image
    answer(op, NULL, c, NULL);
}

static void
on_forked(void *cookie, uint64_t bytes, uint32_t count)
{
    struct live_op *op = cookie;
    struct checkpoint *p = op->checkpoint;
    struct err e;
    if (op->context == NULL && op->kind != LIVE_CHECKPOINT) {
        (void)err_set(&e, ERR_NOT_FOUND, "the context was deleted");
        fail(op, &e);
        return;
    }
    if (op->kind != LIVE_CHECKPOINT && p != NULL) {
        give(op);
        return;
    }
    const struct sandbox *s = p != NULL             ? p->sandbox
                              : op->context != NULL ? op->context->sandbox
                                                    : NULL;
    op->count = count;
    if (s == NULL)
        return; // it ends with its sandbox
    if (image_check_memory(s, bytes, &e) < 0) {
        fail(op, &e);
        return;
    }
    if (p == NULL)
        return; // until it is ready
    p->image = op->image;
    p->bytes = bytes;
    p->count = count;
    p->created_ms = now_wall_ms();
    op->given = true;
    metrics_move(METRIC_CHECKPOINTS, 0, 1);
    answer(op, p, NULL, NULL);
}

static void
on_ready(void *cookie)
{
    struct live_op *op = cookie;
    struct image *image = op->image;
    struct context *made = NULL;
    struct err e;
    op->image = NULL;
    if (op->checkpoint != NULL) {
        image_pass(image, &checkpoint_events, op->checkpoint);
    } else if (op->context == NULL) {
        image_close(image);
        (void)err_set(&e, ERR_NOT_FOUND, "the context was deleted");
        answer(op, NULL, NULL, &e);
    } else if (context_of_image(op->context, image, op->count, &made, &e) < 0) {
        answer(op, NULL, NULL, &e);
    } else {
        answer(op, NULL, made, NULL);
    }
    op_free(op);
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct live_op *op = cookie;
    op->image = NULL;
    if (op->given && op->checkpoint != NULL)
        on_checkpoint_ended(op->checkpoint, why);
    fail(op, why);
}

static const struct image_events op_events = {
    .forked = on_forked, .ready = on_ready, .ended = on_ended};

static int
no_state(const struct context *c, const char *what, const char *hint, struct err *e)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "context %s %s", c->id.id, what);
    err_detail(e, "LIVE_STATE", c->id.id, hint);
    return r;
}

// The interpreter of the context is to be forked.
static int
check_context(const struct context *c, struct err *e)
{
    if (c->state == CONTEXT_DOWN || c->job == NULL || c->dying)
        return no_state(c, "has no interpreter, and so no state", "run a cell first", e);
    if (c->state == CONTEXT_STARTING || !job_has_started(c->job))
        return no_state(c, "is starting", "try again when it is idle", e);
    if (c->state == CONTEXT_BUSY || c->waiting_n > 0)
        return no_state(c, "runs a cell", "wait for its end, or interrupt it", e);
    return 0;
}

static int
fork_interpreter(struct live_op *op, struct err *e)
{
    struct context *c = op->context;
    int theirs = -1;
    int r = check_context(c, e);
    if (r < 0)
        return r;
    op->image = image_new(c->sandbox, &op_events, op, &theirs, e);
    if (op->image == NULL)
        return err_errno(e);
    r = kernel_link_send_fd(&c->link, "fork", theirs, e);
    if (r < 0)
        image_close(take_ptr(op->image));
    return r;
}

static int
fork_checkpoint(struct live_op *op, struct err *e)
{
    const struct checkpoint *p = op->checkpoint;
    if (p->lost.code != ERR_OK) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION, "checkpoint %s is lost: %s", p->name, p->lost.text);
        err_detail(e, "CHECKPOINT_LOST", p->name, "delete it");
        return r;
    }
    int r = op->kind == LIVE_FORK ? image_check_memory(p->sandbox, p->bytes, e) : 0;
    if (r < 0)
        return r;
    op->image = image_fork(p->image, &op_events, op, e);
    return op->image != NULL ? 0 : err_errno(e);
}

static bool
is_free(const struct live_op *op)
{
    const struct context *c = op->context;
    const struct checkpoint *p = op->checkpoint;
    return (c == NULL || c->op == NULL || (p != NULL && op->kind == LIVE_FORK)) &&
           (p == NULL || p->op == NULL || p->op == op);
}

// 0: it has begun.
static int
begin(struct live_op *op, struct err *e)
{
    struct context *c = op->context;
    const bool from_checkpoint = op->checkpoint != NULL && op->kind != LIVE_CHECKPOINT;
    if (op->unmade || c == NULL || c->sandbox == NULL)
        return err_set(e, ERR_NOT_FOUND, "the %s",
                       op->unmade ? "checkpoint was not made" : "context was deleted");
    int r = sandbox_check_running(c->sandbox, e);
    if (r == 0)
        r = from_checkpoint ? fork_checkpoint(op, e) : fork_interpreter(op, e);
    if (r < 0)
        return r;
    if (op->checkpoint != NULL)
        op->checkpoint->op = op;
    if (!from_checkpoint || op->kind == LIVE_RESTORE)
        c->op = op;
    return 0;
}

void
live_go_on(void *cookie)
{
    struct contexts *all = cookie;
    struct err e;
    loop_timer_stop(&all->live_again);
    list_each(it, &all->ops)
    {
        struct live_op *op = op_of(it);
        if (op->image != NULL || op->given || !is_free(op))
            continue;
        if (begin(op, &e) < 0)
            fail(op, &e);
    }
}

// Which checkpoint it is about.
static int
choose(struct live_op *op, const char *name, struct err *e)
{
    struct context *c = op->context;
    if (!c->language->forks) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "the live state of %s cannot be kept or forked",
                        c->language->name);
        err_detail(e, "LIVE_STATE", "language", "use python, or snapshots of the files");
        return r;
    }
    if (op->kind == LIVE_FORK && name[0] == '\0')
        return 0;
    op->checkpoint =
        op->kind == LIVE_CHECKPOINT ? checkpoint_new(c, name, e) : find(c->all, c->sandbox, name);
    if (op->checkpoint == NULL)
        return op->kind == LIVE_CHECKPOINT ? err_errno(e) : not_found(c->sandbox, name, e);
    if (op->kind == LIVE_CHECKPOINT)
        op->checkpoint->op = op;
    return 0;
}

int
live_begin(enum live_kind kind, struct context *c, const char *name, live_done *done, void *cookie,
           struct live_op **out, struct err *e)
{
    struct live_op *op = calloc(1, sizeof *op);
    if (op == NULL)
        return err_sys(e, ENOMEM, "fork an interpreter");
    *op = (struct live_op){
        .all = c->all, .kind = kind, .context = c, .done = done, .cookie = cookie, .link = -1};
    list_append(&c->all->ops, &op->node);
    int r = kind == LIVE_FORK ? context_check_room(c->all, c->sandbox, e) : 0;
    if (r == 0)
        r = choose(op, name, e);
    if (r == 0 && is_free(op))
        r = begin(op, e);
    if (r < 0) {
        op->done = NULL;
        op_free(op);
        return r;
    }
    *out = op;
    return 0;
}

void
live_forget(struct live_op *op)
{
    op->done = NULL;
}

void
live_kill_later(struct context *c, const char *why)
{
    struct live_op *op = c->op;
    (void)snprintf(op->job, sizeof op->job, "%s", job_id(c->job));
    op->why = why;
    if (op->link < 0 && c->link.fd >= 0)
        op->link = fcntl(c->link.fd, F_DUPFD_CLOEXEC, 0);
}

void
live_context_gone(struct context *c)
{
    list_each(it, &c->all->ops) if (op_of(it)->context == c) op_of(it)->context = NULL;
}

// Operations that have not given it their image fail.
static void
checkpoint_remove(struct checkpoint *p, const struct err *why)
{
    const bool made = p->created_ms != 0;
    struct list *ops = &p->all->ops;
    list_each(it, ops) // the operation that makes it frees it
    {
        struct live_op *op = op_of(it);
        if (op->checkpoint != p)
            continue;
        if (!op->given) {
            fail(op, why);
            continue;
        }
        op->image = NULL;
        op->checkpoint = NULL;
        p->op = NULL;
        op_free(op);
    }
    if (made)
        checkpoint_free(p);
}

static void
on_gone(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_NOT_FOUND, "the sandbox was deleted");
    checkpoint_remove(cookie, &e);
}

void
live_sandbox_gone(struct contexts *all, const struct sandbox *s)
{
    list_each(it, &all->checkpoints)
    {
        struct checkpoint *p = of_list(it);
        if (p->sandbox != s)
            continue;
        p->sandbox = NULL;
        (void)loop_timer_start(all->srv->loop, &p->gone, 0, on_gone, p);
    }
}

void
live_end(struct contexts *all)
{
    struct err e;
    (void)stopping_say(&e, ERR_UNAVAILABLE);
    while (!list_empty(&all->checkpoints))
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is in no list any more
        checkpoint_remove(of_list(all->checkpoints.next), &e);
    while (!list_empty(&all->ops))
        fail(op_of(all->ops.next), &e);
    loop_timer_stop(&all->live_again);
}

int
live_delete(struct contexts *all, const struct sandbox *s, const char *name, struct err *e)
{
    struct checkpoint *p = find(all, s, name);
    struct err none = {0};
    if (p == NULL || p->created_ms == 0)
        return not_found(s, name, e);
    for (struct list *it = all->ops.next; it != &all->ops; it = it->next)
        if (op_of(it)->checkpoint == p && !op_of(it)->given)
            return err_set(e, ERR_FAILED_PRECONDITION, "checkpoint %s is being used", name);
    checkpoint_remove(p, &none);
    return 0;
}

void
checkpoint_view(const struct checkpoint *p, struct checkpoint_view *out)
{
    *out = (struct checkpoint_view){
        .name = p->name,
        .sandbox_id = p->sandbox_id,
        .context_id = p->context_id,
        .language = p->language->name,
        .lost = p->lost.code != ERR_OK ? p->lost.text : "",
        .count = p->count,
        .bytes = p->bytes,
        .created_ms = p->created_ms,
    };
}

void
live_each(const struct contexts *all, const struct sandbox *s,
          void (*fn)(void *cookie, const struct checkpoint *p), void *cookie)
{
    for (struct list *it = all->checkpoints.next; it != &all->checkpoints; it = it->next)
        if (of_list(it)->sandbox == s && of_list(it)->created_ms != 0)
            fn(cookie, of_list(it));
}
