// SPDX-License-Identifier: Apache-2.0
// SEAL, RESTORE, INHERIT, ADOPT, GRAFT, DROP, STATES, MOUNT, DISK_CLOSE: the requests and their replies. The tier does the work
// (tier_process.c, tree_swap.c).
//
// The spawner waits for the helper, which takes a fraction of a millisecond, so the state of the slot does not change and
// no second request comes between. The helper's own end may come later, and is an event.
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_host.h"
#include "io.h"
#include "own_process.h"
#include "spawner.h"
#include "tier.h"

static void
refuse(struct spawner *s, const struct slot *slot, const struct spawn_request *q, struct answer *a,
       const struct err *why)
{
    struct err e = *why;
    (void)err_wrap(&e, "%s sandbox %s",
                   q->op == SPAWN_SEAL      ? "seal the files of"
                   : q->op == SPAWN_RESTORE ? "restore the files of"
                   : q->op == SPAWN_RESET   ? "reset"
                                            : "give inherited files to",
                   slot->name);
    answer_err(s, a, &e);
}

void
swap_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    struct scratch_size needs;
    int disk_fd = -1;
    uint32_t layer = 0;
    if (q->op == SPAWN_INHERIT && q->from_slot >= s->config->slots)
        broker_broken(s, "INHERIT: slot %u does not exist", q->from_slot);
    int r = tier_of(s, slot)->swap(s, slot, q, &layer, &disk_fd, &needs, &e);
    if (r > 0 && (r = scratch_wish(s, slot, &needs, q, a, &e)) == 0)
        return;
    if (r == 0) {
        answer_reply(a)->ok = 1;
        answer_reply(a)->layer = layer;
        answer_reply(a)->fds = disk_fd >= 0;
        answer_send(s, a, &disk_fd, disk_fd >= 0);
        return;
    }
    if (r == -ENOTRECOVERABLE)
        tier_of(s, slot)->kill(slot);
    refuse(s, slot, q, a, &e);
}

void
swap_with_disk(struct spawner *s, struct slot *slot, const struct spawn_request *q,
               struct answer *a, const struct err *why)
{
    struct err e = *why;
    if (slot->scratch_fd >= 0 && slot->state == SLOT_LIVE) {
        (q->op == SPAWN_RESET ? reset_handle : swap_handle)(s, slot, q, a);
    } else {
        if (slot->scratch_fd >= 0)
            (void)err_set(&e, ERR_FAILED_PRECONDITION, "it was paused meanwhile");
        refuse(s, slot, q, a, &e);
    }
    io_close(&slot->scratch_fd);
}

void
swap_adopt(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    uint32_t layer = 0;
    if (q->op == SPAWN_GRAFT && q->from_slot >= s->config->slots)
        broker_broken(s, "GRAFT: slot %u does not exist", q->from_slot);
    if (tier_of(s, slot)->adopt(s, slot, q, &layer, &e) == 0) {
        answer_reply(a)->ok = 1;
        answer_reply(a)->layer = layer;
        answer_send(s, a, NULL, 0);
        return;
    }
    (void)err_wrap(&e, "give %s files to sandbox %s", q->op == SPAWN_GRAFT ? "changed" : "kept",
                   slot->name);
    answer_err(s, a, &e);
}

void
swap_drop(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    if (tier_of(s, slot)->drop(s, slot, q->arg, &e) == 0) {
        answer_ok(s, a);
        return;
    }
    (void)err_wrap(&e, "drop layer %u of sandbox %s", q->arg, slot->name);
    answer_err(s, a, &e);
}

void
swap_mount(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    struct disk_mount m = {.disk = q->arg, .read_only = q->read_only == 1, .userns_fd = -1};
    const uint32_t job = tree_root_is_user_root(s->tree, slot->root) ? 0 : SANDBOX_UID_JOB;
    const struct disk_host_user who = {slot->root, slot->uid, slot->uid + job};
    memcpy(m.at, q->at, sizeof m.at);
    int r = q->other == 1 ? disk_host_find(s, &who, q->id, &m, &e) : 0;
    if (r == 0 && (r = tier_of(s, slot)->mount(s, slot, &m, &e)) < 0)
        io_close(&m.userns_fd);
    if (r == 0) {
        answer_ok(s, a);
        return;
    }
    (void)err_wrap(&e, "mount at %s of sandbox %s", m.at, slot->name);
    answer_err(s, a, &e);
}

void
swap_disk_close(struct spawner *s, struct slot *none, const struct spawn_request *q,
                struct answer *a)
{
    (void)none;
    struct err e;
    int helper_fd = -1;
    int r = disk_close(s->disks, q->arg, &helper_fd, &e);
    swap_watch_helper(s, helper_fd);
    if (r < 0)
        answer_err(s, a, &e);
    else
        answer_ok(s, a);
}

void
swap_watch_helper(const struct spawner *s, int helper_fd)
{
    if (helper_fd < 0 || event_add(s, helper_fd, EVENT_HELPER, (uint32_t)helper_fd, EPOLLIN))
        return;
    (void)waitid(P_PIDFD, (id_t)helper_fd, &(siginfo_t){.si_pid = 0}, WEXITED);
    (void)close(helper_fd);
}

void
states_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    int fds[STATE_FDS], send[STATE_FDS];
    unsigned n = 0;
    if (tier_of(s, slot)->states(s, slot, q->arg, q->other, fds, &e) < 0) {
        (void)err_wrap(&e, "compare states of the files of sandbox %s", slot->name);
        answer_err(s, a, &e);
        return;
    }
    for (unsigned i = 0; i < STATE_FDS; i++) {
        if (fds[i] < 0)
            continue;
        answer_reply(a)->fds |= 1u << i;
        send[n++] = fds[i];
    }
    answer_reply(a)->ok = 1;
    answer_send(s, a, send, n);
}

void
swap_helper_ended(struct spawner *s, int pid_fd)
{
    (void)own_process_ended(s, pid_fd);
}
