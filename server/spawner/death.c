// SPDX-License-Identifier: Apache-2.0
// DESTROY and FREEZE, which the kernel completes with delay. Waiting slots are polled, at short intervals first and
// then at longer ones: cgroup.events notifies at most every 10 ms, which is longer than the whole operation.
//
// The relevant process of a sandbox is pid 1 of its pid namespace: before its pidfd reports its end, the kernel has
// killed and reaped everything in the namespace.
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup_leaf.h"
#include "io.h"
#include "spawner.h"
#include "tier.h"

enum { PAUSE_FIRST_NS = 1000 * 1000, PAUSE_LAST_NS = 20 * 1000 * 1000 };

static void
look_later(struct slot *slot, uint64_t now_ns)
{
    slot->poll_ns = now_ns + slot->pause_ns;
    if (slot->pause_ns < PAUSE_LAST_NS)
        slot->pause_ns *= 2;
}

static void
look_first(struct slot *slot, unsigned deadline_ms)
{
    slot->deadline_ns = io_now_ns() + deadline_ms * UINT64_C(1000000);
    slot->poll_ns = 0;
    slot->pause_ns = PAUSE_FIRST_NS;
}

void
process_ended(struct spawner *s, struct slot *slot)
{
    siginfo_t info = {.si_pid = 0};
    // The event may be about an earlier process of the slot.
    if (slot->pid_fd < 0 || waitid(P_PIDFD, (id_t)slot->pid_fd, &info, WEXITED | WNOHANG) < 0 ||
        info.si_pid == 0)
        return;
    // A child that is starting may have a copy of the pidfd, which would keep the event for the slot's next process.
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, slot->pid_fd, NULL);
    io_close(&slot->pid_fd);
    if (slot->state == SLOT_REMOVING)
        slot->poll_ns = 0; // the slot waits for this
}

void
removal_start(struct spawner *s, struct slot *slot)
{
    tier_of(s, slot)->kill(slot);
    io_close(&slot->disk_fd);
    if (slot->layers != NULL) {
        io_close(&slot->layers->upper_fd);
        io_close(&slot->layers->copy_fd);
        io_close(&slot->layers->under_fd);
    }
    scratch_forget(s, slot);
    io_close(&slot->scratch_fd);
    look_first(slot, REMOVE_MS);
    slot_move(s, slot, SLOT_REMOVING);
    if (slot->pid_fd >= 0) // its end is reported as an event
        slot->poll_ns = slot->deadline_ns;
}

static void
removal_done(struct spawner *s, struct slot *slot)
{
    struct answer *a = slot->answer;
    io_close(&slot->cgroup.fd);
    netns_give(s, slot);
    cgroup_leaf_give(&s->cgroups, slot->cgroup.leaf, slot->limits_unsure ? NULL : &slot->limits);
    slot_move(s, slot, SLOT_FREE);
    if (!a)
        return;
    if (answer_reply(a)->err.code == ERR_OK)
        answer_ok(s, a);
    else
        answer_send(s, a, NULL, 0);
}

// The sandbox cannot be removed in time: reports that once, and continues to try; the slot stays in use.
static void
removal_late(struct spawner *s, struct slot *slot, const struct err *why, uint64_t now_ns)
{
    struct err e = *why;
    (void)err_wrap(&e, "remove sandbox %s: not gone after %d s", slot->name, REMOVE_MS / 1000);
    if (slot->answer)
        answer_err(s, slot->answer, &e);
    slot->answer = NULL;
    slot->deadline_ns = UINT64_MAX;
    slot->poll_ns = now_ns + DEAD_POLL_MS * UINT64_C(1000000);
}

static void
removal_look(struct spawner *s, struct slot *slot, uint64_t now_ns)
{
    struct err e;
    process_ended(
        // before its event is read, so that a deadline does not ignore an end that has happened
        s, slot);
    if (slot->pid_fd < 0) {
        int r = tier_of(s, slot)->remove(s, slot, &e);
        if (r == 0) {
            removal_done(s, slot);
            return;
        }
        tier_of(s, slot)->kill(slot); // processes that joined after the first kill
    } else {
        (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "its first process still exists");
    }
    if (now_ns >= slot->deadline_ns)
        removal_late(s, slot, &e, now_ns);
    else
        look_later(slot, now_ns);
}

void
freeze_start(struct spawner *s, struct slot *slot, bool freeze)
{
    struct err e;
    if (!slot->still && cgroup_freeze(slot->cgroup.fd, freeze, &e) < 0) {
        answer_err(s, slot->answer, &e);
        slot->answer = NULL;
        return;
    }
    slot->freeze = freeze;
    look_first(slot, FREEZE_MS);
    slot_move(s, slot, SLOT_FREEZING);
}

// 0, 1, or a negative errno.
static int
is_frozen(const struct spawner *s, const struct slot *slot)
{
    struct err ignored;
    if (!slot->still)
        return cgroup_event(slot->cgroup.fd, "frozen");
    int done = cgroup_still(&s->cgroups, slot->cgroup.fd, slot->freeze, &ignored);
    return done < 0 ? done : (done == 1) == slot->freeze;
}

static void
freeze_look(struct spawner *s, struct slot *slot, uint64_t now_ns)
{
    struct err e;
    int frozen = is_frozen(s, slot);
    if (frozen != (int)slot->freeze && frozen >= 0 && now_ns < slot->deadline_ns) {
        look_later(slot, now_ns);
        return;
    }
    struct answer *a = slot->answer;
    slot->answer = NULL;
    if (frozen == (int)slot->freeze) {
        slot_move(s, slot, slot->freeze ? SLOT_FROZEN : SLOT_LIVE);
        answer_ok(s, a);
        return;
    }
    if (slot->still)
        (void)cgroup_still(&s->cgroups, slot->cgroup.fd, false, &e);
    else
        (void)cgroup_freeze(slot->cgroup.fd, false, &e);
    slot_move(s, slot, SLOT_LIVE);
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "sandbox %s does not %s in %d s", slot->name,
                  slot->freeze ? "freeze" : "thaw", FREEZE_MS / 1000);
    answer_err(s, a, &e);
}

static void
look(struct spawner *s, struct slot *slot, uint64_t now_ns)
{
    if (slot->state == SLOT_BORN) {
        birth_late(s, slot);
    } else if (slot->state == SLOT_FREEZING) {
        freeze_look(s, slot, now_ns);
    } else {
        assert(slot->state == SLOT_REMOVING);
        removal_look(s, slot, now_ns);
    }
}

int
polled_look(struct spawner *s)
{
    uint64_t now_ns = io_now_ns();
    uint64_t next_ns = UINT64_MAX;
    struct slot *next = NULL;
    for (struct slot *slot = s->polled.head; slot; slot = next) {
        next = slot->next; // polling may move this slot, but no other
        if (slot->poll_ns <= now_ns)
            look(s, slot, now_ns);
    }
    for (const struct slot *slot = s->polled.head; slot; slot = slot->next) {
        if (slot->poll_ns < next_ns)
            next_ns = slot->poll_ns;
    }
    if (next_ns == UINT64_MAX)
        return -1;
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns + 999999) / 1000000);
}
