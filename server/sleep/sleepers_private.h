// SPDX-License-Identifier: Apache-2.0
// Shared by sleepers.c (the index, calls that wait), fall.c (falling asleep), wake.c (waking up), idle.c (what is idle) and describe.c
// (records).
#pragma once

#include "server/base/idtable.h"
#include "server/snapshot/kept.h"
#include "sleeper.pb-c.h"
#include "sleepers.h"

// What this layer knows of a sandbox that is here (sandbox.h: `nap`).
struct nap {
    struct list node;    // of those that fall asleep by themselves
    struct sandbox *box; // that has it
    uint64_t used_ns;    // uv_hrtime()
    struct fall *fall;   // it is falling asleep
    bool failed;         // the last attempt, which was logged
};

struct sleepers {
    struct server *srv;
    struct sleep_settings settings;
    struct idtable table; // struct sleeper
    struct list list;     // the same, by order
    struct list naps;     // struct nap
    struct loop_timer *tick, *soon;
    bool stopped;
};

struct sleep_waiter {
    struct list node; // of a fall
    sleep_done *done; // NULL: nobody waits
    void *cookie;
};

// A call that waits for a sandbox.
struct parked {
    struct list node;
    struct call *call;
};
// NULL: out of memory.
struct parked *park(struct list *to, struct call *c);
// e NULL: they go on. The list may be in an object that is freed meanwhile.
void unpark(struct list *of, const struct err *e);

// ---- sleepers.c

// Adds one, or finds the one that has this id; its record is not set. NULL: out of memory.
struct sleeper *sleeper_add(struct sleepers *all, const char *id, uint64_t order);
void sleeper_remove(struct sleeper *sl);
// The same; `w` hears when its record is gone. After a failure nothing has changed.
int sleeper_forget(struct sleeper *sl, struct sleep_waiter *w, struct err *e);
struct sleeper *sleeper_by_id(const struct sleepers *all, const char *id);
// Another record, or none, instead of its own, which is removed in the background.
void sleeper_set_record(struct sleeper *sl, struct stored *r);
// Another state; counted.
void sleeper_move(struct sleeper *sl, enum sleeper_state to);
// After a change: notes whether the sandbox that it was is still there.
void sleeper_check_left(struct sleeper *sl);
// Calls wait for it, and the sandbox that it was may be gone: looks soon.
void sleepers_look_soon(struct sleepers *all);
// The sandbox, if it is here and not being deleted.
struct sandbox *sleepers_box(const struct sleepers *all, const char *tenant, const char *id);

// ---- fall.c

int fall_begin(struct sleepers *all, struct sandbox *s, bool stop, bool idle, struct err *e);
// A call needs the sandbox, which stays awake. False: not at once; the call waits in *waiting.
bool fall_cancel(struct fall *f, struct list **waiting);
void fall_wait(struct fall *f, struct sleep_waiter *w);
// The sandbox is being deleted. `w` (may be NULL) hears when nothing of the record is left.
void fall_doom(struct fall *f, struct sleep_waiter *w);

// ---- wake.c

// Starts to wake it up; its calls hear of it.
void wake_begin(struct sleeper *sl);
// It is deleted: the calls get this error. What has become of it so far stays.
void wake_abandon(struct sleeper *sl, const struct err *e);

// ---- idle.c

// NULL: out of memory.
struct nap *nap_of(struct sleepers *all, struct sandbox *s);
void nap_free(struct sandbox *s);
void nap_used(struct sandbox *s);
// What would be lost now, without operations on files; true: something runs that is no idle context.
bool idle_count(const struct sleepers *all, const struct sandbox *s, struct sleep_facts *f);
void idle_tick_start(struct sleepers *all);

// ---- describe.c

// *owned*. NULL: out of memory, or too long (*e).
uint8_t *describe_pack(const struct sleepers *all, const struct sandbox *s,
                       const struct kept_tree *tree, const struct sleep_facts *f, size_t *n,
                       struct err *e);
// Unpacks and checks a record, into an arena (*owned*). DATA_LOSS: it is damaged; FAILED_PRECONDITION: of a later version.
int describe_read(const struct stored *r, struct arena **a, Stockade__Sleeper__Sleeper **m,
                  struct err *e);
// The layers and names of a record. On success *out owns memory.
int describe_tree(const Stockade__Sleeper__Sleeper *m, struct kept_tree *out, struct err *e);
// Notes in the record that it is awake.
void describe_awake(struct sleeper *sl);
