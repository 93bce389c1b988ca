// SPDX-License-Identifier: Apache-2.0
// See private.h: a sandbox with its program.
#include "private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "proto/auto.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/sandbox/sandbox.h"

enum { IDLE_MS = 60 * 1000, LOOK_MS = 5000, SILENT_MS = 30 * 1000 };

void
box_free(struct box *b)
{
    loop_timer_stop(&b->timer);
    list_remove(&b->node);
    free(b);
}

static void
fail_all(struct box *b, const struct err *why)
{
    const struct err e = *why;
    for (uint32_t n = b->ops_n; n > 0; n--) { // the last one frees the box
        struct list *first = b->ops.next;
        files_op_finish(list_entry(first, struct files_op, of_box), &e);
    }
}

// ---- the program

static bool
is_silent(const struct files_op *op, uint64_t now)
{
    bool expects = !files_is_transfer(op->method) || op->finished || op->link.out.queued > 0;
    return expects && !op->link.held && now - op->heard_ns > SILENT_MS * UINT64_C(1000000);
}

static void
give_up(struct box *b)
{
    struct err e;
    (void)err_set(&e, ERR_UNAVAILABLE,
                  "the program that works on the files of sandbox %s did not respond for %d s",
                  b->sandbox->id.id, SILENT_MS / 1000);
    err_detail(&e, "FILES_SILENT", b->sandbox->id.id,
               "a process of the sandbox may have stopped it; try again");
    agent_close(take_ptr(b->agent));
    b->sandbox = NULL;
    fail_all(b, &e);
}

static void
on_look(void *cookie)
{
    struct box *b = cookie;
    if (b->ops_n == 0) { // idle
        if (b->agent != NULL)
            agent_close(take_ptr(b->agent));
        box_free(b);
        return;
    }
    uint64_t now = uv_hrtime();
    bool runs = b->sandbox != NULL && b->sandbox->state == SANDBOX_RUNNING;
    list_each(it, &b->ops)
    {
        struct files_op *op = list_entry(it, struct files_op, of_box);
        if (!runs)
            op->heard_ns = now; // paused time does not count
        if (is_silent(op, now) && b->agent != NULL) {
            give_up(b);
            return;
        }
    }
    box_look_soon(b);
}

void
box_look_soon(struct box *b)
{
    (void)loop_timer_start(b->all->srv->loop, &b->timer, b->ops_n == 0 ? IDLE_MS : LOOK_MS, on_look,
                           b);
}

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events
on_agent_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    (void)cookie;
    (void)bytes;
    (void)n;
    (void)fd;
    return err_set(e, ERR_INTERNAL, "stockade-files sent a packet on its own socket");
}

bool
box_is_ended(const struct box *b, struct err *why)
{
    const enum sandbox_state state = b->sandbox != NULL ? b->sandbox->state : SANDBOX_RUNNING;
    if (state == SANDBOX_DELETING)
        (void)err_set(why, ERR_ABORTED, "the sandbox is being deleted");
    else if (state == SANDBOX_SWAPPING)
        (void)err_set(why, ERR_ABORTED, "the sandbox is getting another layer of files");
    else if (b->sandbox == NULL && b->why.code == ERR_ABORTED)
        *why = b->why;
    else
        return false;
    return true;
}

// Its operations end with their own sockets, after what is still in them; unless nothing of the sandbox is left.
static void
on_agent_ended(void *cookie, const struct err *why)
{
    struct box *b = cookie;
    if (stopping_is(why)) // another one may be there soon
        (void)stopping_say(&b->why, ERR_UNAVAILABLE);
    else if (why->code == ERR_RESOURCE_EXHAUSTED || !box_is_ended(b, &b->why))
        b->why = *why;
    b->agent = NULL;
    b->sandbox = NULL;
    if (b->ops_n == 0)
        box_free(b);
    else if (why->code == ERR_CANCELLED || why->code == ERR_ABORTED || stopping_is(why))
        fail_all(b, stopping_is(why) ? &b->why : why);
}

static const struct agent_events agent_events = {.packet = on_agent_packet,
                                                 .ended = on_agent_ended};

static int
start(struct box *b, struct sandbox *s, struct err *e)
{
    const char *const root = holder_root(b->all, s);
    const bool own = strcmp(root, "/") == 0;
    const char *const args[] = {"stockade-files", root, own ? s->spec.template->workdir : "/"};
    const struct agent_spec spec = {.args = args,
                                    .args_n = 3,
                                    .workdir = "/",
                                    .program_fd = b->all->program_fd,
                                    .script_fd = -1};
    if (b->all->program_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "stockade-files is not installed");
    return agent_start(s, &spec, &agent_events, b, &b->agent, e);
}

static struct box *
find(const struct files *all, const struct sandbox *s)
{
    for (struct list *it = all->boxes.next; it != &all->boxes; it = it->next)
        if (list_entry(it, struct box, node)->sandbox == s)
            return list_entry(it, struct box, node);
    return NULL;
}

uint32_t
box_ops(const struct files *all, const struct sandbox *s)
{
    const struct box *b = find(all, s);
    return b != NULL ? b->ops_n : 0;
}

struct box *
box_of(struct files *all, struct sandbox *s, struct err *e)
{
    struct box *b = find(all, s);
    if (b != NULL)
        return b;
    b = calloc(1, sizeof *b);
    if (b == NULL) {
        (void)err_sys(e, ENOMEM, "work on files");
        return NULL;
    }
    b->all = all;
    list_init(&b->node);
    list_init(&b->ops);
    if (start(b, s, e) < 0) {
        free(b);
        return NULL;
    }
    b->sandbox = s;
    list_append(&all->boxes, &b->node);
    box_look_soon(b);
    return b;
}

uint32_t
files_cut_off(struct files *all, const struct sandbox *s, const struct err *why)
{
    struct box *b = find(all, s);
    if (b == NULL)
        return 0;
    uint32_t n = b->ops_n;
    if (b->agent != NULL)
        agent_close(take_ptr(b->agent)); // the next operation starts another one
    b->sandbox = NULL;
    n > 0 ? fail_all(b, why) : box_free(b); // the last operation frees the box
    return n;
}
