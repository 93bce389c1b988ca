// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h: bring_begin(). Where the kernel cannot share layers in memory between sandboxes (Linux before 6.3), a fork gets
// copies of them, one after the other, and then shows them:
//
//   parent   1 <- 2 <- 3        graft 1, 2, 3: sandbox_graft() copies what is in memory, and shares what is on the disk
//   child    1 <- 2 <- 3 <- (now): restore
//
// The parent may end at any time, so it is found again by its id. Its layers stay as long as the caller keeps `busy` set.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "server/base/server.h"
#include "server/sandbox/sandbox.h"
#include "snapshots_private.h"

struct bring {
    char parent[ID_TEXT_MAX + 1], tenant[32];
    struct sandboxes *all;
    uint32_t chain[LAYERS_DEPTH], n; // of the parent, the lowest first
    uint32_t at;                     // the next one
    uint32_t below;                  // the child's highest one
    uint64_t until_ns;
    uint32_t ms; // of all copies together
    uint64_t bytes_max, copied;
    struct sandbox_swap swap;
    bring_done *done;
    void *cookie;
};

static void
end(struct bring *b, struct sandbox *child, const struct err *failed)
{
    const struct bring was = *b;
    free(b);
    if (child->snapshots != NULL)
        child->snapshots->busy--;
    was.done(was.cookie, child, was.copied, failed);
}

static void
on_shown(void *cookie, struct sandbox *child, const struct err *failed)
{
    struct bring *b = cookie;
    if (failed == NULL && child->snapshots != NULL)
        layers_go_on(child->snapshots, b->swap.layer);
    end(b, child, failed);
}

static int next(struct bring *b, struct sandbox *child, struct err *e);

static struct sandbox *
parent_of(const struct bring *b, struct err *e)
{
    struct err ignored;
    struct sandbox *s = sandbox_find(b->all, b->tenant, b->parent, &ignored);
    if (s != NULL && s->state != SANDBOX_DELETING && s->snapshots != NULL)
        return s;
    (void)err_set(e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    return NULL;
}

// The copy that was too late knows only the time that the others left to it.
static int
too_long(const struct bring *b, struct err *e)
{
    int r = err_set(e, ERR_DEADLINE_EXCEEDED,
                    "on this kernel a fork costs a copy, which took longer than %u ms", b->ms);
    err_detail(e, "COPY_TIME", "copy_ms_max", "raise it, or remove files");
    return r;
}

static void
on_grafted(void *cookie, struct sandbox *child, uint32_t layer, uint64_t copied,
           const struct err *failed)
{
    struct bring *b = cookie;
    struct err e;
    struct sandbox *parent = failed != NULL ? NULL : parent_of(b, &e);
    if (failed != NULL && strcmp(failed->reason, "COPY_TIME") == 0) {
        (void)too_long(b, &e);
        failed = &e;
    }
    if (parent == NULL || child->snapshots == NULL) {
        end(b, child, failed != NULL ? failed : &e);
        return;
    }
    layers_grafted(child, parent, b->chain[b->at++], layer, b->below);
    b->below = layer;
    b->copied += copied;
    if (next(b, child, &e) < 0)
        end(b, child, &e);
}

static int
next(struct bring *b, struct sandbox *child, struct err *e)
{
    const uint64_t now = uv_hrtime();
    if (b->at == b->n)
        return sandbox_restore(child, b->below, &b->swap, e);
    if (now >= b->until_ns)
        return too_long(b, e);
    const struct sandbox *parent = parent_of(b, e);
    if (parent == NULL)
        return err_errno(e);
    const struct layer *l = layer_of(parent->snapshots, b->chain[b->at]);
    if (l == NULL)
        return err_set(e, ERR_ABORTED, "a layer was dropped meanwhile");
    const struct sandbox_graft g = {.from = parent,
                                    .layer = b->chain[b->at],
                                    .below = b->below,
                                    .bytes = l->bytes,
                                    .inodes = l->inodes,
                                    .copy_max =
                                        b->bytes_max > b->copied ? b->bytes_max - b->copied : 0,
                                    .ms = (uint32_t)((b->until_ns - now) / 1000000) + 1,
                                    .done = on_grafted,
                                    .cookie = b};
    return sandbox_graft(child, &g, e);
}

// What is clearly too much is refused before anything is copied. Layers that are also in the state directory may be shared.
static int
check_size(const struct snapshots_box *from, uint32_t layer, uint64_t bytes_max, struct err *e)
{
    uint64_t bytes = 0;
    const struct layer *l = NULL;
    for (uint32_t at = layer; (l = layer_of(from, at)) != NULL; at = l->below)
        bytes += l->kept != NULL ? 0 : l->bytes;
    if (bytes <= bytes_max)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "on this kernel a fork costs a copy: the files take %llu MiB, and at most "
                    "%llu MiB may be copied",
                    (unsigned long long)(bytes >> 20), (unsigned long long)(bytes_max >> 20));
    err_detail(e, "COPY_BYTES", "copy_bytes_max", "raise it, or remove files");
    return r;
}

static int
list_chain(struct bring *b, const struct snapshots_box *from, uint32_t layer, struct err *e)
{
    uint32_t down[LAYERS_DEPTH], n = 0;
    const struct layer *l = NULL;
    for (uint32_t at = layer; n < LAYERS_DEPTH && (l = layer_of(from, at)) != NULL; at = l->below)
        down[n++] = at;
    while (n > 0)
        b->chain[b->n++] = down[--n];
    return b->n > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", layer);
}

static int
begin(struct bring *b, struct sandbox *child, const struct sandbox *parent,
      const struct bring_want *w, struct err *e)
{
    int r = check_size(parent->snapshots, w->layer, w->bytes_max, e);
    if (r == 0)
        r = list_chain(b, parent->snapshots, w->layer, e);
    if (r == 0 && snapshots_box_of(child) == NULL)
        r = err_sys(e, ENOMEM, "write down the layers");
    if (r < 0)
        return r;
    r = next(b, child, e);
    if (r == 0)
        child->snapshots->busy++;
    return r;
}

int
bring_begin(struct sandbox *child, const struct sandbox *parent, const struct bring_want *w,
            bring_done *done, void *cookie, struct err *e)
{
    struct bring *b = calloc(1, sizeof *b);
    if (b == NULL || parent->snapshots == NULL) {
        free(b);
        return err_sys(e, ENOMEM, "copy files");
    }
    b->all = parent->all;
    b->bytes_max = w->bytes_max;
    b->ms = w->ms;
    b->until_ns = uv_hrtime() + w->ms * UINT64_C(1000000);
    b->done = done;
    b->cookie = cookie;
    (void)snprintf(b->parent, sizeof b->parent, "%s", parent->id.id);
    (void)snprintf(b->tenant, sizeof b->tenant, "%s", parent->tenant->name);
    list_init(&b->swap.waiter.node);
    b->swap.waiter.done = on_shown;
    b->swap.waiter.cookie = b;
    int r = begin(b, child, parent, w, e);
    if (r < 0)
        free(b);
    return r;
}
