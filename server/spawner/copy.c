// SPDX-License-Identifier: Apache-2.0
// COPY, UNSEAL, COPIED: the requests and their replies. The tier makes the new layer (tree_copy.h), a keeper fills it (keeper_process.c),
// and the broker says when it is complete, or drops it.
#include <errno.h>
#include <stdio.h>

#include "io.h"
#include "keeper_process.h"
#include "spawner.h"
#include "tier.h"
#include "tree_copy.h"

static void
drop_again(struct spawner *s, struct slot *slot, uint32_t layer)
{
    struct err ignored;
    (void)tier_of(s, slot)->drop(s, slot, layer, &ignored);
}

static void
refuse(struct spawner *s, const struct slot *slot, struct answer *a, const struct err *why)
{
    struct err e = *why;
    (void)err_wrap(&e, "copy files of sandbox %s", slot->name);
    answer_err(s, a, &e);
}

void
copy_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    struct tree_copying made;
    struct scratch_size needs;
    if (q->op == SPAWN_COPY && q->from_generation != 0 &&
        (q->from_slot >= s->config->slots || q->arg == 0))
        broker_broken(s, "COPY: slot %u does not exist, or no layer of it", q->from_slot);
    int r = tier_of(s, slot)->copy(s, slot, q, &made, &needs, &e);
    if (r > 0 && (r = scratch_wish(s, slot, &needs, q, a, &e)) == 0)
        return;
    int fd = r < 0 ? r : keeper_process_copy(s, slot, &made, &e);
    if (r == 0 && fd < 0)
        drop_again(s, slot, made.layer);
    if (fd < 0) {
        if (r == 0)
            tree_copying_close(&made);
        refuse(s, slot, a, &e);
        return;
    }
    slot->layers->copy = made.layer;
    slot->layers->copy_fd = io_keep_fd(made.target_fd);
    made.target_fd = -1;
    tree_copying_close(&made);
    answer_reply(a)->ok = 1;
    answer_reply(a)->layer = made.layer;
    answer_reply(a)->fds = 1;
    answer_send(s, a, &fd, 1);
}

void
copy_with_disk(struct spawner *s, struct slot *slot, const struct spawn_request *q,
               struct answer *a, const struct err *why)
{
    if (slot->scratch_fd >= 0)
        copy_handle(s, slot, q, a);
    else
        refuse(s, slot, a, why);
    io_close(&slot->scratch_fd);
}

void
copy_done(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    if (tier_of(s, slot)->copied(s, slot, q, &e) == 0) {
        answer_ok(s, a);
        return;
    }
    (void)err_wrap(&e, "complete layer %u of sandbox %s", q->arg, slot->name);
    answer_err(s, a, &e);
}
