// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h. Joins layers of a sandbox in the background, before more lie on each other than an overlay can have.
//
//   1 <- 2 <- 3 <- 4 <- (now)    =>    1 <- J <- (now)        J has what 2, 3 and 4 show together
//             3: "s"                   1 <- 2 <- 3: "s"       a snapshot keeps its layers
//
// A stockade-keeper in the cgroup of the sandbox makes J (sandbox_copy()), so its memory and its time count there; jobs may run. When
// J is complete, the files on 4, and the snapshots of 4, are on J, and layers that nothing needs are dropped. The lowest layer stays as
// it is, and so does one that a transaction began on. Bounded: the layers of one join, its bytes, its time, and how many are in progress.
// Loop thread only.
//
// Which layers: those that take least are copied, so a large layer stays where it is, and what was joined already is joined
// again only with others of its size. A file is copied a few times in a thousand snapshots.
#include "snapshots_private.h"

#include <stdlib.h>

#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"

enum {
    AT_ONCE = 2, // of all sandboxes; the rest of the keepers is for callers
    SOON_MS = 20,
    AGAIN_MS = 1000,
    AGAIN_MS_MAX = 60 * 1000,
    // a file system in memory rounds up differently than one on a disk counts
    SPARE_BYTES = 1 << 20,
    SPARE_INODES = 256,
};

// Whose joins are in progress: no tenant has two of them.
static const struct tenant *running[AT_ONCE];

// ---- which

// A layer in the state directory takes no memory until it is joined.
static uint64_t
cost_of(const struct layer *l)
{
    return l->kept != NULL ? 2 * l->bytes : l->bytes;
}

// The lowest layer is a folder of the sandbox's first file system, which ends with it, so joining it would free nothing.
static bool
may_join(const struct layer *l)
{
    return l->below != 0 && l->pins == 0;
}

// The n layers from chain[at] on, if they can be joined.
static bool
look_at(const struct snapshots_box *b, const uint32_t *chain, uint32_t n, struct join_plan *out,
        uint64_t *cost)
{
    *out = (struct join_plan){.from = chain[0], .n = n};
    *cost = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct layer *l = layer_of(b, chain[i]);
        if (!may_join(l))
            return false;
        out->bytes += l->bytes;
        out->inodes += l->inodes;
        out->below = l->below;
        *cost += cost_of(l);
    }
    return out->bytes <= JOIN_BYTES_MAX && out->inodes <= JOIN_INODES_MAX;
}

static bool
choose_of(const struct snapshots_box *b, const uint32_t *chain, uint32_t depth, uint32_t n,
          struct join_plan *out)
{
    struct join_plan one;
    uint64_t cost, least = UINT64_MAX;
    for (uint32_t at = 0; at + n <= depth; at++) {
        if (!look_at(b, chain + at, n, &one, &cost) || cost >= least)
            continue;
        least = cost;
        *out = one;
    }
    return least != UINT64_MAX;
}

bool
join_choose(const struct snapshots_box *b, struct join_plan *out)
{
    uint32_t chain[LAYERS_DEPTH], depth = 0;
    const struct layer *l = NULL;
    for (uint32_t at = b->top; depth < LAYERS_DEPTH && (l = layer_of(b, at)) != NULL; at = l->below)
        chain[depth++] = at;
    bool found = false;
    for (uint32_t n = JOIN_LAYERS; depth >= JOIN_DEPTH && n >= JOIN_LEAST && !found; n /= 2)
        found = choose_of(b, chain, depth, n, out);
    return found;
}

// ---- when

static void
on_time(void *cookie)
{
    struct sandbox *s = cookie;
    loop_timer_stop(&s->snapshots->join.timer);
    join_look(s);
}

static void
try_later(struct sandbox *s, uint64_t ms)
{
    struct join *j = &s->snapshots->join;
    if (j->timer == NULL)
        (void)loop_timer_start(sandboxes_server(s->all)->loop, &j->timer, ms, on_time, s);
}

void
join_end(struct join *j)
{
    loop_timer_stop(&j->timer);
}

// ---- its end

// The work of the joined layers, the lowest first. NULL: none is known.
static struct work *
work_of(const struct snapshots_box *b, const struct join_plan *p)
{
    uint32_t chain[JOIN_LAYERS], n = 0, at = p->from;
    struct work *w = work_new();
    for (; n < p->n && layer_of(b, at) != NULL; at = layer_of(b, at)->below)
        chain[n++] = at;
    while (w != NULL && n > 0) {
        const struct work *of = layer_of(b, chain[--n])->work;
        for (uint32_t i = 0; of != NULL && i < of->n; i++)
            work_add(w, &of->step[i], WORK_BYTES_MAX - w->bytes);
        if (of != NULL)
            w->omitted += of->omitted;
    }
    if (w != NULL && w->n == 0 && w->omitted == 0) {
        work_unref(w);
        w = NULL;
    }
    return w;
}

// As the spawner did for its part (spawner/tree_copy.c).
static bool
put_instead(struct sandbox *s, const struct join_plan *p, const struct sandbox_copied *r)
{
    struct snapshots_box *b = s->snapshots;
    const struct layer l = {
        .below = p->below, .bytes = r->bytes, .inodes = r->inodes, .work = work_of(b, p)};
    if (layer_put(s, r->layer, &l) == NULL)
        return false;
    for (uint32_t n = 1; n <= b->layers_n; n++)
        if (b->layer[n - 1].there && b->layer[n - 1].below == p->from && n != r->layer)
            b->layer[n - 1].below = r->layer;
    list_each(it, &b->list)
    {
        struct snapshot *named = list_entry(it, struct snapshot, node);
        if (named->layer == p->from)
            named->layer = r->layer;
    }
    if (b->top == p->from)
        b->top = r->layer;
    return true;
}

static void
on_joined(void *cookie, struct sandbox *s, const struct sandbox_copied *r, const struct err *failed)
{
    struct snapshots_box *b = s->snapshots;
    struct join *j = &b->join;
    (void)cookie;
    j->runs = false;
    if (*j->slot == b->tenant)
        *j->slot = NULL;
    if (failed == NULL && put_instead(s, &j->plan, r)) {
        j->wait_ms = 0;
        metrics_add(METRIC_JOINS, 1);
        metrics_add(METRIC_JOINED_LAYERS, j->plan.n);
        metrics_add(METRIC_JOINED_BYTES, r->bytes);
    } else if (s->state != SANDBOX_DELETING) {
        j->wait_ms = j->wait_ms == 0 ? AGAIN_MS : 2 * j->wait_ms;
        if (j->wait_ms > AGAIN_MS_MAX)
            j->wait_ms = AGAIN_MS_MAX;
        metrics_add(METRIC_JOINS_FAILED, 1);
        try_later(s, j->wait_ms);
    }
    layers_prune(s, b);
}

// ---- its begin

static const struct tenant **
slot_for(const struct tenant *t)
{
    const struct tenant **slot = NULL;
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (running[i] == t)
            return NULL;
        if (running[i] == NULL)
            slot = &running[i];
    }
    return slot;
}

static bool
begin(struct sandbox *s, const struct join_plan *p, const struct tenant **slot)
{
    struct err ignored;
    const struct sandbox_copy want = {.from = p->from,
                                      .below = p->below,
                                      .instead = p->from,
                                      .bytes = p->bytes + p->bytes / 8 + SPARE_BYTES,
                                      .inodes = (uint32_t)p->inodes + SPARE_INODES,
                                      .ms = JOIN_MS,
                                      .done = on_joined};
    struct join *j = &s->snapshots->join;
    if (sandbox_copy(s, &want, &ignored) < 0)
        return false;
    *slot = s->snapshots->tenant;
    j->slot = slot;
    j->runs = true;
    j->plan = *p;
    return true;
}

void
join_look(struct sandbox *s)
{
    struct join_plan p;
    struct join *j = &s->snapshots->join;
    if (j->runs || j->timer != NULL || s->state == SANDBOX_DELETING ||
        !join_choose(s->snapshots, &p))
        return;
    const struct tenant **slot = slot_for(s->snapshots->tenant);
    if (slot == NULL)
        try_later(s, SOON_MS);
    else if (!begin(s, &p, slot))
        try_later(s, AGAIN_MS);
}

bool
join_makes_room(struct sandbox *s, uint32_t n)
{
    const struct snapshots_box *b = s->snapshots;
    if (layers_depth(b, b->top) + n <= LAYERS_DEPTH)
        return false;
    join_look(s);
    return b->join.runs || (b->join.timer != NULL && b->join.wait_ms == 0);
}
