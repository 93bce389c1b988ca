// SPDX-License-Identifier: Apache-2.0
// Requests: a table lists in which states of its slot each operation is allowed, and the loop checks it once.
//
// Three kinds of refusal:
//   a state that a correct broker can meet (a sandbox that is being removed, an old generation)   an error in the reply
//   the kernel or the host refuses                                                                an error in the reply
//   a request that no correct broker sends                                                        the end of everything
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"
#include "disk_host.h"
#include "disk_process.h"
#include "fetcher_process.h"
#include "proto/fdpass.h"
#include "io.h"
#include "keeper_process.h"
#include "lists.h"
#include "netns.h"
#include "programs.h"
#include "reader_process.h"
#include "relay_process.h"
#include "server/fetcher/fetch.h"
#include "spawner.h"
#include "tree_copy.h"

enum { REQUESTS_PER_TURN = 32 };

void
broker_broken(struct spawner *s, const char *fmt, ...)
{
    struct err e;
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("stockade-spawner: the broker is broken: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    relay_process_stop(s);
    if (cgroup_close(&s->cgroups, &e) < 0)
        (void)fprintf(stderr, "stockade-spawner: %s\n", e.text);
    exit(70);
}

static void
handle_create(struct spawner *s, struct slot *unused, const struct spawn_request *q,
              struct answer *a)
{
    (void)unused;
    struct err e;
    if (tree_root_take(s->tree, q->arg, &e) < 0) {
        answer_err(s, a, &e);
        return;
    }
    struct slot *slot = slot_take(s);
    if (!slot) {
        tree_root_leave(s->tree, q->arg);
        (void)err_set(&e, ERR_RESOURCE_EXHAUSTED, "all %u slots for sandboxes are in use%s",
                      s->config->slots,
                      s->free.head ? ", here or by another broker with the same ids" : "");
        err_detail(&e, "SANDBOXES_EXHAUSTED", "ids.slots",
                   "delete a sandbox, or raise ids.slots and restart the broker");
        answer_err(s, a, &e);
        return;
    }
    for (size_t i = 0; i < sizeof q->id; i++)
        (void)snprintf(slot->name + 2 * i, 3, "%02x", q->id[i]);
    slot->generation++;
    slot->root = q->arg;
    slot->limits = q->limits;
    slot->limits_unsure = false;
    slot->answer = a;
    slot_move(s, slot, SLOT_QUEUED);
    births_start(s);
}

// The upper layer gets what the sealed ones leave.
static int
resize(const struct spawner *s, const struct slot *slot, const struct spawn_limits *l,
       struct err *e)
{
    const struct tree_of p = tree_of(slot);
    if (slot->layers == NULL)
        return tree_resize(s->tree, slot->disk_fd, l->disk_bytes, l->inodes, e);
    if (!tree_layers_fit(slot->layers, l->disk_bytes, l->inodes)) {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "snapshots and the files that they share take more than the new limit");
        err_detail(e, "DISK_IN_USE", "disk_bytes", "delete snapshots, then lower the limit");
        return r;
    }
    return tree_fit_upper(s->tree, &p, l->disk_bytes, l->inodes, e);
}

static void
handle_limit(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    const struct spawn_limits *l = &q->limits;
    const struct spawn_limits *now = slot->limits_unsure ? NULL : &slot->limits;
    const bool other_disk =
        l->disk_bytes != slot->limits.disk_bytes || l->inodes != slot->limits.inodes;
    int r = 0;
    if (tree_root_is_on_disk(s->tree, slot->root) && other_disk) {
        r = err_set(&e, ERR_FAILED_PRECONDITION, "its files are on a disk of a fixed size");
        err_detail(&e, "DISK_FIXED", "disk_bytes",
                   "leave disk and inodes as the template has them");
    } else if (!now || other_disk) {
        r = resize(s, slot, l, &e);
    }
    if (r == 0)
        r = cgroup_limit(&s->cgroups, &slot->cgroup, slot->name, l, now, &e);
    if (r == 0)
        r = tree_view_change(s->tree, slot->disk_fd, l, now, &e);
    slot->limits_unsure = r < 0;
    if (r < 0) {
        (void)err_wrap(&e, "limit sandbox %s", slot->name);
        answer_err(s, a, &e);
        return;
    }
    slot->limits = *l;
    answer_ok(s, a);
}

static void
handle_freeze(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    if ((q->arg != 0) == (slot->state == SLOT_FROZEN)) {
        answer_ok(s, a);
        return;
    }
    slot->answer = a;
    if (slot->state == SLOT_LIVE)
        slot->still = q->arg == 2;
    freeze_start(s, slot, q->arg != 0);
}

// This is not a state of the slot: a later freeze or thaw overrides it.
static void
handle_hold(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    if (slot->state == SLOT_LIVE && cgroup_freeze(slot->cgroup.fd, q->arg == 1, &e) < 0)
        answer_err(s, a, &e);
    else
        answer_ok(s, a);
}

static void
handle_kill_job(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a)
{
    struct err e;
    if (cgroup_kill_job(slot->cgroup.fd, q->arg, &e) == 0) {
        answer_ok(s, a);
        return;
    }
    (void)err_wrap(&e, "kill job %u of sandbox %s", q->arg, slot->name);
    answer_err(s, a, &e);
}

static void
handle_destroy(struct spawner *s, struct slot *slot, const struct spawn_request *q,
               struct answer *a)
{
    if (q->arg == 0)
        io_close(&slot->net_again_fd);
    if (slot->answer) { // a FREEZE that is not needed any more
        struct err e;
        (void)err_set(&e, ERR_ABORTED, "sandbox %s is being removed", slot->name);
        answer_err(s, slot->answer, &e);
    }
    slot->answer = a;
    removal_start(s, slot);
}

static void
handle_unroot(struct spawner *s, struct slot *unused, const struct spawn_request *q,
              struct answer *a)
{
    (void)unused;
    struct err e;
    const int gave = tree_root_give_up(s->tree, q->arg, &e);
    disk_hosts_sweep(s);
    if (gave < 0)
        answer_err(s, a, &e);
    else
        answer_ok(s, a);
}

static void
handle_ping(struct spawner *s, struct slot *unused, const struct spawn_request *q, struct answer *a)
{
    (void)unused;
    (void)q;
    answer_ok(s, a);
}

#define IN(state) (1u << (state))
enum { IN_HANDED_OUT = IN(SLOT_LIVE) | IN(SLOT_FREEZING) | IN(SLOT_FROZEN) };

static const struct op_row {
    const char *name;
    void (*handler)(struct spawner *, struct slot *, const struct spawn_request *, struct answer *);
    unsigned states; // 0: the operation needs no slot
    uint32_t arg_min, arg_max;
    bool limits;
} op_rows[] = {
    [SPAWN_CREATE] = {"CREATE", handle_create, 0, 0, SPAWN_ROOTS_MAX - 1, true},
    [SPAWN_LIMIT] = {"LIMIT", handle_limit, IN_HANDED_OUT, 0, 0, true},
    [SPAWN_FREEZE] = {"FREEZE", handle_freeze, IN(SLOT_LIVE) | IN(SLOT_FROZEN), 0, 2, false},
    [SPAWN_KILL_JOB] = {"KILL_JOB", handle_kill_job, IN_HANDED_OUT, 0, UINT32_MAX, false},
    [SPAWN_DESTROY] = {"DESTROY", handle_destroy, IN_HANDED_OUT, 0, 1, false},
    [SPAWN_NET_OPEN] = {"NET_OPEN", netns_open, IN_HANDED_OUT, 0, 0, false},
    [SPAWN_NET_DIAL] = {"NET_DIAL", netns_dial, IN(SLOT_LIVE), 1, UINT16_MAX, false},
    [SPAWN_WATCH] = {"WATCH", programs_watch, 0, 0, 1, false},
    [SPAWN_RELAY] = {"RELAY", relay_process_again, 0, 0, 0, false},
    [SPAWN_PING] = {"PING", handle_ping, 0, 0, 0, false},
    [SPAWN_HOLD] = {"HOLD", handle_hold, IN_HANDED_OUT, 0, 1, false},
    [SPAWN_READ] = {"READ", reader_process_start, 0, 0, 0, false},
    [SPAWN_SEAL] = {"SEAL", swap_handle, IN(SLOT_LIVE), 0, 0, false},
    [SPAWN_RESTORE] = {"RESTORE", swap_handle, IN(SLOT_LIVE), 1, TREE_NUMBERS, false},
    [SPAWN_INHERIT] = {"INHERIT", swap_handle, IN(SLOT_LIVE), 1, TREE_NUMBERS, false},
    [SPAWN_RESET] = {"RESET", reset_handle, IN(SLOT_LIVE), 0, UINT32_MAX, false},
    [SPAWN_DROP] = {"DROP", swap_drop, IN(SLOT_LIVE) | IN(SLOT_FROZEN), 1, TREE_NUMBERS, false},
    [SPAWN_DISK_MAKE] = {"DISK_MAKE", disk_process_handle, 0, 0, SPAWN_DISK_KINDS_N - 1, false},
    [SPAWN_DISK_OPEN] = {"DISK_OPEN", disk_process_handle, 0, 0, SPAWN_DISK_KINDS_N - 1, false},
    [SPAWN_DISK_REMOVE] = {"DISK_REMOVE", disk_process_handle, 0, 0, SPAWN_DISK_KINDS_N - 1, false},
    [SPAWN_DISK_CLOSE] = {"DISK_CLOSE", swap_disk_close, 0, 0, SPAWN_DISKS_MAX - 1, false},
    [SPAWN_MOUNT] = {"MOUNT", swap_mount, IN(SLOT_LIVE), 0, SPAWN_DISKS_MAX - 1, false},
    [SPAWN_KEEP] = {"KEEP", keeper_process_keep, IN(SLOT_LIVE) | IN(SLOT_FROZEN), 1, TREE_NUMBERS,
                    false},
    [SPAWN_KEEPER] = {"KEEPER", keeper_process_start, 0, 0, 0, false},
    [SPAWN_ADOPT] = {"ADOPT", swap_adopt, IN(SLOT_LIVE), 0, TREE_NUMBERS, false},
    [SPAWN_GRAFT] = {"GRAFT", swap_adopt, IN(SLOT_LIVE), 1, TREE_NUMBERS, false},
    [SPAWN_STATES] = {"STATES", states_handle, IN(SLOT_LIVE), 0, TREE_NUMBERS, false},
    [SPAWN_COPY] = {"COPY", copy_handle, IN(SLOT_LIVE) | IN(SLOT_FROZEN), 0, TREE_NUMBERS, false},
    [SPAWN_COPIED] = {"COPIED", copy_done, IN(SLOT_LIVE) | IN(SLOT_FREEZING) | IN(SLOT_FROZEN), 1,
                      TREE_NUMBERS, false},
    [SPAWN_UNSEAL] = {"UNSEAL", copy_handle, IN(SLOT_LIVE), 0, 0, false},
    [SPAWN_FETCHER] = {"FETCHER", fetcher_process_start, 0, 1, FETCH_SECONDS_MAX, false},
    [SPAWN_LISTS] = {"LISTS", lists_handle, IN_HANDED_OUT, 0, SPAWN_LISTS_N - 1, false},
    [SPAWN_UNROOT] = {"UNROOT", handle_unroot, 0, 0, SPAWN_ROOTS_MAX - 1, false},
};
enum { OPS_N = sizeof op_rows / sizeof op_rows[0] };

// Only a sandbox that exists can become idle.
static bool
limits_ok(const struct spawner *s, const struct spawn_request *q)
{
    struct spawn_limits l = q->limits;
    if (q->op == SPAWN_LIMIT && l.cpu_weight == SPAWN_WEIGHT_IDLE)
        l.cpu_weight = 1;
    return config_limits_ok(&l, &s->config->limits_max);
}

// Refuses what no correct broker sends.
static void
check_form(struct spawner *s, const struct spawn_request *q)
{
    if (q->op >= OPS_N || !op_rows[q->op].handler)
        broker_broken(s, "operation %u does not exist", q->op);
    const struct op_row *row = &op_rows[q->op];
    if (q->op == SPAWN_MOUNT ? q->read_only > 1 || memchr(q->at, '\0', sizeof q->at) == NULL
                             : q->read_only != 0 || q->at[0] != '\0')
        broker_broken(s, "%s: a path or a flag that it does not have", row->name);
    if ((q->op == SPAWN_DISK_MAKE || q->op == SPAWN_COPY || q->op == SPAWN_UNSEAL) &&
        !config_disk_ok(&q->limits))
        broker_broken(s, "%s: a limit is 0 or beyond its maximum", row->name);
    const bool two = q->op == SPAWN_STATES || q->op == SPAWN_GRAFT || q->op == SPAWN_COPY ||
                     q->op == SPAWN_COPIED || q->op == SPAWN_UNSEAL;
    if (q->other > (two ? (uint32_t)TREE_NUMBERS : q->op == SPAWN_MOUNT ? 1U : 0U))
        broker_broken(s, "%s: a second layer %u", row->name, q->other);
    if (q->arg < row->arg_min || q->arg > row->arg_max ||
        (q->op == SPAWN_RESET && q->arg != 0 && q->arg < SPAWN_AGENT_FIRST))
        broker_broken(s, "%s: argument %u is out of range", row->name, q->arg);
    if (row->limits && !limits_ok(s, q))
        broker_broken(s, "%s: a limit is 0 or beyond its maximum", row->name);
    if (row->states == 0)
        return;
    if (q->slot >= s->config->slots)
        broker_broken(s, "%s: slot %u does not exist", row->name, q->slot);
    const struct slot *slot = &s->slots[q->slot];
    bool known = slot->state != SLOT_QUEUED && slot->state != SLOT_BORN;
    if (q->generation == 0 || q->generation > slot->generation ||
        (q->generation == slot->generation && !known))
        broker_broken(s, "%s: slot %u never was of generation %u", row->name, q->slot,
                      q->generation);
}

static void
request_handle(struct spawner *s, const struct spawn_request *q)
{
    check_form(s, q);
    const struct op_row *row = &op_rows[q->op];
    struct answer *a = answer_new(q);
    if (!a)
        broker_broken(s, "%s: no memory for an answer", row->name);
    struct slot *slot = row->states ? &s->slots[q->slot] : NULL;
    struct err e;
    if (slot && (slot->generation != q->generation || slot->state == SLOT_FREE)) {
        (void)err_set(&e, ERR_NOT_FOUND, "the sandbox of slot %u was removed", q->slot);
        answer_err(s, a, &e);
    } else if (slot && !(row->states & IN(slot->state))) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "%s: sandbox %s is being %s", row->name,
                      slot->name, slot->state == SLOT_REMOVING ? "removed" : "frozen or thawed");
        answer_err(s, a, &e);
    } else {
        row->handler(s, slot, q, a);
    }
}

bool
request_read(struct spawner *s)
{
    for (int i = 0; i < REQUESTS_PER_TURN && s->reading; i++) {
        struct spawn_request q;
        struct fdpass m = {&q, sizeof q, NULL, 0};
        int r = fdpass_receive(SPAWN_SOCKET_FD, &m, MSG_DONTWAIT);
        if (r == -EAGAIN)
            return true;
        if (r == 0 || (r < 0 && m.n == 0))
            return false;
        if (r < 0 || m.n != sizeof q)
            broker_broken(s, "a request of %zu bytes, or with descriptors", m.n);
        request_handle(s, &q);
    }
    return true;
}
