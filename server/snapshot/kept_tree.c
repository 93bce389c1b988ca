// SPDX-License-Identifier: Apache-2.0
// See kept.h: all layers of a sandbox as a list, for a record of the store, and its snapshots.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "kept.h"
#include "server/sandbox/sandbox.h"
#include "snapshots_private.h"

// Its index; 0: not in the list.
static uint8_t
index_of(const struct kept_tree *t, uint32_t number)
{
    for (uint32_t i = 0; number != 0 && i < t->n; i++)
        if (t->number[i] == number)
            return (uint8_t)(i + 1);
    return 0;
}

static bool
can_follow(const struct kept_tree *t, const struct layer *l, uint32_t number)
{
    return l->there && index_of(t, number) == 0 && (l->below == 0 || index_of(t, l->below) != 0);
}

// False: there is no room.
static bool
add_all(struct kept_tree *t, const struct snapshots_box *b)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t number = 1; number <= b->layers_n; number++) {
            const struct layer *l = layer_of(b, number);
            if (!can_follow(t, l, number))
                continue;
            if (t->n == STORE_LAYERS_MAX)
                return false;
            t->below[t->n] = index_of(t, l->below);
            t->work[t->n] = work_ref(l->work);
            t->number[t->n++] = number;
            more = true;
        }
    }
    return true;
}

static int
add_names(struct kept_tree *t, struct snapshots_box *b, struct err *e)
{
    t->names = calloc(b->n + 1, sizeof *t->names);
    if (t->names == NULL)
        return err_sys(e, ENOMEM, "list the snapshots");
    list_each(it, &b->list)
    {
        const struct snapshot *p = list_entry(it, struct snapshot, node);
        struct kept_name *to = &t->names[t->names_n++];
        *to = (struct kept_name){
            .created_ms = p->created_ms, .order = p->order, .layer = index_of(t, p->layer)};
        memcpy(to->name, p->name, sizeof to->name);
    }
    return 0;
}

int
kept_tree_of(struct sandbox *s, struct kept_tree *out, struct err *e)
{
    struct snapshots_box *b = s->snapshots;
    *out = (struct kept_tree){0};
    if (b == NULL)
        return 0;
    if (!add_all(out, b)) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "sandbox %s has more than %d layers of files",
                        s->id.id, STORE_LAYERS_MAX);
        err_detail(e, "LAYERS", "layers", "delete snapshots, or restore an early one");
        kept_tree_clear(out);
        return r;
    }
    out->top = index_of(out, b->top);
    int r = add_names(out, b, e);
    if (r < 0)
        kept_tree_clear(out);
    return r;
}

void
kept_tree_clear(struct kept_tree *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        work_unref(t->work[i]);
    free(t->names);
    *t = (struct kept_tree){0};
}

int
kept_tree_name(const struct kept_tree *t, const struct sandbox_adoption *a, struct snapshots_box *b,
               struct err *e)
{
    for (uint32_t i = 0; i < t->names_n; i++) {
        const struct kept_name *from = &t->names[i];
        const uint32_t layer = from->layer == 0 ? 0 : a->layer[from->layer - 1];
        const struct layer *l = layer_of(b, layer);
        struct snapshot *p = calloc(1, sizeof *p);
        if (p == NULL)
            return err_sys(e, ENOMEM, "list the snapshots");
        *p = (struct snapshot){.order = from->order,
                               .created_ms = from->created_ms,
                               .layer = layer,
                               .bytes = l == NULL ? 0 : l->bytes,
                               .inodes = l == NULL ? 0 : l->inodes};
        memcpy(p->name, from->name, sizeof p->name);
        layers_sum(b, p->layer, &p->bytes_in_all, &p->inodes_in_all);
        b->order = from->order > b->order ? from->order : b->order;
        list_append(&b->list, &p->node);
        b->n++;
    }
    return 0;
}

uint64_t
kept_missing(const struct sandbox *s)
{
    struct statfs fs;
    uint64_t bytes = 0;
    for (uint32_t i = 0; s->snapshots != NULL && i < s->snapshots->layers_n; i++) {
        const struct layer *l = &s->snapshots->layer[i];
        bytes += l->there && l->kept == NULL ? l->bytes : 0;
    }
    if (s->dirs.fd[SPAWN_FD_DISK] >= 0 && fstatfs(s->dirs.fd[SPAWN_FD_DISK], &fs) == 0)
        bytes += (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    return bytes;
}
