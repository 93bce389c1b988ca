// SPDX-License-Identifier: Apache-2.0
// All sandboxes: by id, and under the caller that they belong to.
//
//   CREATING --guest says Ready--> READY --sandbox_take--> RUNNING <--resume/pause--> PAUSED
//      |                             |                        |  \                     /
//      | failed                      |                        |   PAUSING     RESUMING
//      v                             v                        v        \     /
//    (freed) <------nothing is left------------------------ DELETING <--------- (from anywhere)
//
// READY ones are the pool's and belong to nobody. A sandbox is freed once the spawner has said that nothing is left of
// it and no request about it is without an answer. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../bpf/sandbox.h"
#include "../proto/err.h"
#include "cgstat.h"
#include "config.h"
#include "fork_rate.h"
#include "idtable.h"
#include "limits.h"
#include "list.h"

struct guest_link;
struct loop_timer;
struct network;
struct sandboxes;
struct server;

enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_READY,
    SANDBOX_RUNNING,
    SANDBOX_PAUSING,
    SANDBOX_PAUSED,
    SANDBOX_RESUMING,
    SANDBOX_DELETING,
    SANDBOX_STATES_N,
};

// Who a sandbox belongs to, with what it has of each quota. Lives as long as something counts in it.
struct owner {
    struct list node;
    char name[32];
    uint32_t sandboxes; // promised ones included
    uint32_t jobs;      // running
    struct list kept;   // finished jobs that are still attachable, oldest first
    uint32_t kept_n;
    uint32_t refs; // jobs that point here, running or not
};

struct label {
    char key[65];
    char value[257];
};

enum { LABELS_MAX = 32 };

// What a caller asked for, checked and complete.
struct sandbox_spec {
    const struct config_template *template;
    struct limits limits;
    struct limits asked; // of those, what the caller named; 0: nothing
    char name[65];
    struct label *labels; // owned
    uint32_t labels_n;
    uint64_t ttl_ms;         // 0: for ever
    struct network *network; // owned: what it gets; NULL: no way out
};

// Readable by all, written by sandbox.c (jobs: by job.c).
struct sandbox {
    struct idnode id; // first
    uint8_t id_bytes[ID_BYTES];
    struct list node; // all that belong to somebody, in the order of `order`
    struct list pool_node;
    struct sandboxes *all;
    uint64_t order; // counts up with each that is taken
    enum sandbox_state state;
    struct owner *tenant; // NULL while it is nobody's
    struct sandbox_spec spec;
    int64_t created_ms; // CLOCK_REALTIME
    int64_t expires_ms; // 0: never

    bool live; // the spawner has it: slot and generation hold
    uint32_t slot, generation;
    uint64_t cgroup_id;             // its key in BPF maps; 0: no entry
    struct bpf_sandbox entry;       // as written there
    struct network *network;        // owned: the policy in force; NULL: no way out
    struct network *network_wanted; // owned: its listeners are being made
    bool policies_under_way;        // the relay was given one, and has not said that it is in force
    struct cgroup_dirs dirs;        // owned
    struct guest_link *link;
    struct cgstat fresh; // its figures when its guest became ready

    struct list jobs; // those that run
    uint32_t jobs_n;
    uint32_t jobs_begun; // the last job number given away

    struct {
        uint64_t cpu_ns, at_ns; // its CPU time, and when that was looked at
        int64_t used_ns;        // CPU time beyond what it may use at its full weight
        bool computes;          // it has a tenth of its cpu_weight
        bool asked;             // the spawner is to change that
    } share;
    struct fork_rate forks;

    uint32_t pending; // requests at the spawner, and at the relay
    uint32_t limits_pending;
    bool network_closing;
    bool destroy_sent, destroyed;
    uint32_t kills_pending; // KILL_JOB that the spawner has not answered
    bool destroy_failed;    // the spawner could not remove all of it
    struct list waiters;
    struct loop_timer *ttl, *patience;
    void (*created)(void *cookie, struct sandbox *s, const struct err *e);
    void *created_cookie;
};

enum { SANDBOX_SHARE_MS = 300, SANDBOX_SHARE_PART = 10, SANDBOX_SHARE_REST = 20 };

enum sandbox_wait {
    WAIT_STATE,   // the pause or resume
    WAIT_LIMITS,  // other limits
    WAIT_NETWORK, // the network policy
    WAIT_DELETE,  // nothing is left
};

// Somebody who waits for a change of state. Embedded; the callback comes once, or sandbox_unwait() takes it back.
struct sandbox_waiter {
    struct list node;
    enum sandbox_wait what;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e); // s NULL for WAIT_DELETE
    void *cookie;
};

// One for the broker, as long as it runs.
struct sandboxes *sandboxes_new(struct server *srv);

// Begins to make one. `created` is told READY, or why not (s is NULL then). Nobody's yet: see sandbox_take. Counts in
// quotas.sandboxes from now on: RESOURCE_EXHAUSTED.
int sandbox_create(struct sandboxes *all, const struct config_template *t,
                   void (*created)(void *cookie, struct sandbox *s, const struct err *e),
                   void *cookie, struct err *e);

// A place under the caller's quota, for a sandbox that is coming: RESOURCE_EXHAUSTED. On success *out is its tenant:
// sandbox_take() or sandbox_release() must follow.
int sandbox_reserve(struct sandboxes *all, const char *tenant, struct owner **out, struct err *e);
void sandbox_release(struct owner *t);

// ALREADY_EXISTS when a live sandbox of the caller has this name. "" is free.
int sandbox_check_name(const struct sandboxes *all, const char *tenant, const char *name,
                       struct err *e);

// A READY sandbox becomes somebody's: RUNNING. Takes spec->labels and the reserved place.
void sandbox_take(struct sandbox *s, struct owner *t, struct sandbox_spec *spec);

// It was handed out, and nothing may ever be started in it: if nothing is for a second, its guest gives up the cgroup that
// it made ahead for the first job. Those of the pool keep theirs.
void sandbox_rest_soon(struct sandbox *s);

// The caller's own, by id or name. NULL and NOT_FOUND otherwise, in the same words for others' and for none.
struct sandbox *sandbox_find(struct sandboxes *all, const char *tenant, const char *id,
                             struct err *e);

// New time to live, from now.
void sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms);

// Gives a spec labels of its own, with room for `more`.
int sandbox_copy_labels(struct sandbox_spec *spec, size_t more, struct err *e);

// Sets or (empty value) removes a label where there is room. INVALID_ARGUMENT beyond LABELS_MAX.
int sandbox_set_label(struct sandbox_spec *spec, const char *key, const char *value, struct err *e);

// Other limits for a READY or RUNNING one; the waiter is told. They are `spec.limits` only once the spawner has said so,
// and the caller writes them there.
int sandbox_limit(struct sandbox *s, const struct limits *limits, struct sandbox_waiter *w,
                  struct err *e);

// Its CPU time so far. Once a sandbox has used SANDBOX_SHARE_MS of CPU time, it has a tenth of its cpu_weight, so that what
// needs little, the start of a job above all, goes before what computes all the time. It may use one part in
// SANDBOX_SHARE_REST of a CPU for ever, and gets back by resting what it used beyond that.
void sandbox_share(struct sandbox *s, uint64_t cpu_ns, uint64_t now_ns);

// Begins to pause or resume; the waiter is told. FAILED_PRECONDITION in the wrong state.
int sandbox_pause(struct sandbox *s, struct sandbox_waiter *w, struct err *e);
int sandbox_resume(struct sandbox *s, struct sandbox_waiter *w, struct err *e);

// Begins to destroy it. Jobs end with `why` (code CANCELLED: cancelled; others: failed). w may be NULL. Fine when it is
// being destroyed already. s may be gone when this returns.
void sandbox_destroy(struct sandbox *s, const struct err *why, struct sandbox_waiter *w);

// Kills a job's processes through the spawner.
void sandbox_kill_job(struct sandbox *s, uint32_t job);

// False while the spawner has a kill to answer: then it is not the guest's fault that the job runs on.
bool sandbox_kills_done(const struct sandbox *s);

void sandbox_unwait(struct sandbox_waiter *w);

// For net_policy.c: w waits for the network; those that do are told. s may be gone when the second returns.
void sandbox_network_wait(struct sandbox *s, struct sandbox_waiter *w);
void sandbox_network_done(struct sandbox *s, const struct err *e);

// Frees what a spec owns.
void sandbox_spec_clear(struct sandbox_spec *spec);

// FAILED_PRECONDITION unless it takes jobs now.
int sandbox_check_running(const struct sandbox *s, struct err *e);

// How many there are: in all (ready and dying ones too), and of a tenant. `walk` starts with the oldest of all that
// belong to somebody.
uint32_t sandboxes_count(const struct sandboxes *all);
uint32_t sandboxes_count_of(const struct sandboxes *all, const char *tenant);
struct list *sandboxes_owned(struct sandboxes *all);

// Tenants come with their first use; NULL without memory. Call owner_settle after a count went down.
struct owner *owner_get(struct sandboxes *all, const char *name);
struct owner *owner_find(const struct sandboxes *all, const char *name);
void owner_settle(struct owner *t);

struct server *sandboxes_server(const struct sandboxes *all);

// The spawner hangs: who waits for a pause, a resume or a deletion is told so, and need not wait. What was asked for goes on
// when the spawner does.
void sandboxes_spawner_hangs(struct sandboxes *all);

// Destroys all; `done` once none is left.
void sandboxes_destroy_all(struct sandboxes *all, void (*done)(void *cookie), void *cookie);
