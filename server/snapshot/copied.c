// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h: layers that are made by a copy. While jobs run, what they have written cannot become a layer that lies below
// them, so it is copied: the sandbox is frozen for that time, and its files of now go on from where they did. The copy is a layer on the
// same one:
//
//   1 <- (now)    =>    1 <- 2,  1 <- (now)        2: what (now) had at that moment
#include "snapshots_private.h"

#include <errno.h>
#include <stdlib.h>

#include "server/sandbox/sandbox.h"

enum { COPY_INODES = 1 << 24 };

struct copied_op {
    copied_done *done;
    void *cookie;
};

// 0: out of memory, or the spawner broke its promise.
static uint32_t
write_down(struct sandbox *s, const struct sandbox_copied *r)
{
    const struct snapshots_box *b = s->snapshots;
    const struct layer l = {
        .below = b->top, .bytes = r->bytes, .inodes = r->inodes, .work = work_copy(b->now)};
    if (l.work == NULL && b->now != NULL)
        return 0;
    return layer_put(s, r->layer, &l) != NULL ? r->layer : 0;
}

static void
on_copied(void *cookie, struct sandbox *s, const struct sandbox_copied *r, const struct err *failed)
{
    struct copied_op *op = cookie;
    struct snapshots_box *b = s->snapshots;
    const struct copied_cost cost = {r->bytes, (uint32_t)(r->frozen_ns / 1000)};
    struct err e;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "copy the files of sandbox %s", s->id.id);
    } else if (write_down(s, r) == 0) {
        sandbox_drop_layer(s, r->layer);
        (void)err_sys(&e, ENOMEM, "write down a copy");
    } else {
        e.code = ERR_OK;
    }
    op->done(op->cookie, s, r->layer, &cost, e.code != ERR_OK ? &e : NULL);
    free(op);
    b->busy--;
    layers_prune(s, b);
}

int
copied_begin(struct sandbox *s, const struct while_jobs_run *how, copied_done *done, void *cookie,
             struct err *e)
{
    struct copied_op *op = NULL;
    int r = layers_may_add(s, e);
    if (r < 0)
        return r;
    op = calloc(1, sizeof *op);
    if (op == NULL || snapshots_box_of(s) == NULL) {
        free(op);
        return err_sys(e, ENOMEM, "copy files");
    }
    *op = (struct copied_op){done, cookie};
    const struct sandbox_copy want = {.bytes =
                                          how->bytes_max != 0 ? how->bytes_max : COPY_BYTES_USUAL,
                                      .inodes = COPY_INODES,
                                      .ms = how->ms_max != 0 ? how->ms_max : COPY_MS_USUAL,
                                      .done = on_copied,
                                      .cookie = op};
    r = sandbox_copy(s, &want, e);
    if (r < 0) {
        free(op);
        return r;
    }
    s->snapshots->busy++;
    return 0;
}
