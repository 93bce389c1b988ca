// SPDX-License-Identifier: Apache-2.0
// All sandboxes, by id and by tenant.
//
//   CREATING --guest says Ready--> READY --sandbox_take--> RUNNING <--resume/pause--> PAUSED
//      |                             |                        |  \                     /
//      | failed                      |                        |   PAUSING     RESUMING
//      v                             v                        v        \     /
//    (freed) <------nothing is left------------------------ DELETING <--------- (from anywhere)
//
// and RUNNING <--sandbox_seal, _restore, _inherit, _reset--> SWAPPING, RUNNING <--sandbox_copy--> COPYING, from where it may be
// deleted, too.
//
// READY ones are in the pool and have no owner. A sandbox is freed when the spawner has reported that nothing is left
// of it and no request about it is pending. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/sandbox.h"
#include "proto/err.h"
#include "cgstat.h"
#include "template.h"
#include "fork_rate.h"
#include "server/base/idtable.h"
#include "limits.h"
#include "lists.h"
#include "pace.h"
#include "share.h"
#include "server/base/list.h"
#include "server/rpc/tenants.h"
#include "server/spawner/ops.h"

struct bill_rusage;
struct guest_link;
struct limits;
struct loop_timer;
struct mounts;
struct nap;
struct network;
struct sandbox;
struct sandbox_waiter;
struct sandbox_adoption;
struct sandbox_copying;
struct simulation;
struct observers;
struct snapshots_box;
struct zygote;
struct sandboxes;
struct server;

enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_READY,
    SANDBOX_RUNNING,
    SANDBOX_PAUSING,
    SANDBOX_PAUSED,
    SANDBOX_RESUMING,
    SANDBOX_SWAPPING,
    SANDBOX_COPYING, // frozen, for a copy of its files
    SANDBOX_DELETING,
    SANDBOX_STATES_N,
};

// Whether it has an interpreter that was started ahead.
enum sandbox_warmth { SANDBOX_COLD, SANDBOX_WARMING, SANDBOX_WARM };

struct label {
    char key[65];
    char value[257];
};

enum { LABELS_MAX = 32 };
enum { SANDBOX_OURS = 4 };

// What a sandbox that was asleep keeps: it goes on as the one that it was.
struct sandbox_identity {
    char id[ID_TEXT_MAX + 1];
    char name[65];
    uint64_t order; // sandbox_next_order()
    int64_t created_ms, expires_ms;
};

// A request for a sandbox, checked and complete.
struct sandbox_spec {
    const struct template *template;
    struct limits limits;
    struct limits asked; // limits that the caller set; 0: not set
    char name[65];
    struct label *labels; // owned
    uint32_t labels_n;
    uint64_t ttl_ms;         // 0: unlimited
    uint64_t sleep_after_ms; // 0: it does not fall asleep by itself (server/sleep)
    // Borrowed until it is taken; then `name` is empty. NULL: it is a new one.
    const struct sandbox_identity *was;
    struct network *network; // owned: its policy; NULL: no network
    struct image *image;     // owned: files to begin with; NULL: only the template's
    bool has_files;          // it gets its files from elsewhere: a fork, or one that was asleep
    struct mounts *mounts;   // owned: what is mounted in it; NULL: nothing
    struct simulation *simulation; // counted: nothing leaves it; NULL: it is real
};

// The state of a sandbox's network in the programs and the relay. Written only through struct sandbox_networks.
struct sandbox_net {
    uint64_t cgroup_id;       // its key in BPF maps; 0: no entry
    struct bpf_sandbox entry; // as written there
    struct network *in_force; // owned: the policy; NULL: no network
    struct network *wanted;   // owned: the policy to apply when its listeners have been made
    bool under_way;           // the relay got a policy, and has not confirmed it yet
};

// One that waits until the traffic of a sandbox so far is settled: everything that was reported about it has arrived.
struct sandbox_settler {
    struct list node; // the waiter may remove it
    void (*done)(struct sandbox_settler *w);
};

// The functions of the layer above for the network of a sandbox, registered once at start. Without them no sandbox
// has a network.
struct sandbox_networks {
    // The spawner has made it, and nothing runs in it yet: makes its entry, without network.
    int (*born)(struct sandbox *s, struct err *e);
    // Its limits will change to these.
    int (*limit)(struct sandbox *s, const struct limits *limits, struct err *e);
    // See sandbox_network().
    int (*change)(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e);
    // Cuts its flows and closes its listeners. True: `done` will be called; false: there is nothing to close.
    bool (*close)(struct sandbox *s, void (*done)(void *cookie), void *cookie);
    // A job ends: true: w->done is called when its traffic is settled, if w still waits then; false: it is settled, or cannot be.
    bool (*settle)(struct sandbox *s, struct sandbox_settler *w);
    // Nothing of it is left: frees what `net` owns. Also called if `born` was not.
    void (*forget)(struct sandbox *s);
};

// The functions of the layer that has the volumes, registered once at the start. Without them nothing can be mounted.
struct sandbox_mounters {
    // Starts to mount these in a READY sandbox, before it is given to a request: sandbox_mounted() follows, perhaps at once.
    int (*mount)(struct sandbox *s, struct mounts *m, struct err *e);
    // Nothing of it is left: its volumes have one user less.
    void (*forget)(struct sandbox *s);
};

// Events of a sandbox for its jobs and agent programs, registered by job.c. Not called for a sandbox that has none.
struct sandbox_jobs {
    // A message of the guest about job `number`. False: it is impossible in this state. `terminal` is *owned*.
    bool (*started)(struct sandbox *s, uint32_t number, uint32_t pid, int terminal);
    bool (*failed)(struct sandbox *s, uint32_t number, uint32_t exit_code, int sys,
                   const char *text);
    bool (*exited)(struct sandbox *s, uint32_t number, uint32_t status,
                   const struct bill_rusage *usage);
    // Wall-clock time stops, or continues.
    void (*paused)(struct sandbox *s, bool paused);
    // The sandbox is being deleted, for this reason: all running jobs and agents end.
    void (*gone)(struct sandbox *s, const struct err *why);
};

// All layers above may read it. Only sandbox.c, change.c and table.c write it, except for `net` (above), `forks`
// (fork_rate.c), `lists` (lists_watch.c), `snapshots` (snapshot/), `zygote` (code/), `nap` (sleep/), `pool_node`, `warmth` and `fresh` (pool*.c), and the lists and
// counts of jobs (job.c) and agents
// (agent.c). Other layers request changes, which may be refused.
struct sandbox {
    struct idnode id; // must be first
    uint8_t id_bytes[ID_BYTES];
    struct list node; // all that have an owner, in the order of `order`
    struct list pool_node;
    struct sandboxes *all;
    uint64_t order; // increases with each sandbox that is taken
    enum sandbox_state state;
    struct tenant *tenant;  // NULL while it has no owner
    struct limits reserved; // of the tenant's quotas
    struct sandbox_spec spec;
    uint64_t begun_ns;  // when its birth was requested: uv_hrtime()
    int64_t created_ms; // CLOCK_REALTIME
    int64_t expires_ms; // 0: never

    uint32_t root; // the spawner's number of its root
    bool live;     // the spawner has made it: slot and generation are valid
    uint32_t slot, generation;
    struct sandbox_net net;
    struct cgroup_dirs dirs; // owned
    struct guest_link *link;
    struct cgstat fresh; // its counters when its guest became ready

    struct list jobs; // running jobs
    uint32_t jobs_n;
    uint32_t jobs_begun; // last assigned job number

    struct list agents; // agent programs (agent.c)
    uint32_t agents_n, agents_begun;
    uint64_t ours[SANDBOX_OURS]; // cgroups of the last programs of ours among them; 0: none

    // Of the layer volume/, which alone uses them: the first `mounted` of these are mounted; owned.
    struct mounts *mounts;
    uint32_t mounted;
    uint32_t ours_n;         // of `ours` above
    struct list mounts_node; // of all that have one

    // From its first policy to its end, so a later change of the policy does not make it real; owned. NULL: it is real.
    struct simulation *simulation;

    struct snapshots_box *snapshots; // of the layer snapshot/, which alone uses it
    struct zygote *zygote;           // of the layer code/, likewise
    struct nap *nap;                 // of the layer sleep/, likewise
    bool woken;                      // it was asleep before it was taken
    bool leaving;                    // it is not of its tenant's quotas any more: sandbox_leave()
    bool falls_asleep;          // it is being destroyed, and is found again: sandbox_fall_asleep()
    enum sandbox_warmth warmth; // of pool_warm.c, while it is READY
    uint32_t warm_version;      // of its template, when it was made

    struct share share;
    struct pace_young young;
    struct fork_rate forks;
    struct lists_of lists;

    uint32_t pending;    // requests to the spawner and to the relay
    bool limits_pending; // at the spawner
    struct limits limits_wanted;
    uint32_t swap_tries;
    bool swap_waits;                 // for what still runs, with wait_timer
    struct sandbox_copying *copying; // of copy.c; NULL: nothing is being copied
    struct unsealing *unsealing;     // of unseal.c; NULL: no layer is being decrypted
    struct sandbox_swap_plan {
        uint32_t op, layer, from_slot, from_generation, stays;
        struct sandbox_adoption *adopt;
    } swap_plan;
    bool network_closing;
    bool sockets; // a process was started that can make other sockets than unix ones
    bool destroy_sent, destroyed;
    uint32_t kills_pending; // KILL_JOB requests without a reply
    bool destroy_failed;    // the spawner could not remove all of it
    struct list waiters;
    struct loop_timer *ttl, *wait_timer;
    const struct sandbox_maker *maker; // borrowed, with its cookie
    void *maker_cookie;
};

enum sandbox_wait {
    WAIT_STATE,   // the pause or resume
    WAIT_LIMITS,  // new limits
    WAIT_NETWORK, // the network policy
    WAIT_SWAP,    // it has another upper layer
    WAIT_MOUNTS,  // what is mounted in it
    WAIT_DELETE,  // nothing is left
};

// A waiter for a change of state. Embedded; the callback is called once, unless sandbox_unwait() removes it.
struct sandbox_waiter {
    struct list node;
    enum sandbox_wait what;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e); // s NULL for WAIT_DELETE
    void *cookie;
};

// Creates the table of the broker; the settings are borrowed. Free it with sandboxes_free() when no sandbox is left.
// NULL: out of memory.
struct sandboxes *sandboxes_new(struct server *srv, const struct sandbox_settings *settings);
void sandboxes_free(struct sandboxes *all); // accepts NULL

// The creator of a sandbox, which keeps it while it is READY.
struct sandbox_maker {
    void (*created)(void *cookie, struct sandbox *s,
                    const struct err *e);          // READY; s NULL: it failed
    void (*lost)(void *cookie, struct sandbox *s); // a READY one is being destroyed
    void (*young_ended)(void *cookie);             // pace.h; NULL: nobody waits for that
    void (*left)(void *cookie); // one that a tenant had is removed; NULL: nobody waits for that
};

// Starts to create a sandbox with these limits. It has no owner yet: see sandbox_take. Counts towards quotas.sandboxes from now on:
// RESOURCE_EXHAUSTED.
int sandbox_create(struct sandboxes *all, const struct template *t, const struct limits *limits,
                   const struct sandbox_maker *maker, void *cookie, struct err *e);

// Reserves one sandbox with these limits of the caller's quotas: RESOURCE_EXHAUSTED, or UNAVAILABLE (ledger.h). On success *out is its
// tenant, held: sandbox_take() or sandbox_release() with the same limits must follow.
int sandbox_reserve(struct sandboxes *all, const char *tenant, const struct limits *limits,
                    struct tenant **out, struct err *e);
void sandbox_release(struct tenant *t, const struct limits *limits);

// A sandbox that is being removed takes nothing of its tenant's quotas any more, so that the next one need not wait for that:
// sandbox_leave() moves what it had reserved to accounts of its own, and sandbox_left() follows. Their bound: while more than a
// whole quota is being removed, the tenant's next sandboxes wait (sandbox_may_follow()), so a tenant has at most twice its
// quota. False: its ledger cannot be saved; sandbox_release() follows.
bool sandbox_leave(struct tenant *t, const struct limits *limits);
void sandbox_left(struct tenant *t, const struct limits *limits);
bool sandbox_may_follow(const struct tenant *t);

// ALREADY_EXISTS if another sandbox of the caller has this name. "" is always free.
int sandbox_check_name(const struct sandboxes *all, const char *tenant, const char *name,
                       struct err *e);

// Names that callers have given to sandboxes which are not here now. Registered once, at the start.
void sandboxes_set_absent(struct sandboxes *all,
                          bool (*has_name)(void *cookie, const char *tenant, const char *name),
                          void *cookie);

// The next number in the order of sandboxes, for one that was not taken here.
uint64_t sandbox_next_order(struct sandboxes *all);

// Gives a READY sandbox to an owner: RUNNING. Takes spec->labels and the reservation. With spec->was it gets another id.
void sandbox_take(struct sandbox *s, struct tenant *t, struct sandbox_spec *spec);

// The owner of the sandbox may not start anything in it: after a second without a job, the guest removes the cgroup
// that it made in advance for the first job. Sandboxes in the pool keep it.
void sandbox_rest_soon(struct sandbox *s);

// Finds a sandbox of the caller by id or name. Otherwise NULL and NOT_FOUND, with the same text for other callers'
// sandboxes.
struct sandbox *sandbox_find(struct sandboxes *all, const char *tenant, const char *id,
                             struct err *e);

// Sets the time to live, from now on.
void sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms);

// Copies the labels of a spec, with room for `more`.
int sandbox_copy_labels(struct sandbox_spec *spec, size_t more, struct err *e);

// Makes the labels of such a copy the sandbox's.
void sandbox_take_labels(struct sandbox *s, struct sandbox_spec *from);

// Sets a label, or removes it (empty value). INVALID_ARGUMENT beyond LABELS_MAX.
int sandbox_set_label(struct sandbox_spec *spec, const char *key, const char *value, struct err *e);

// Applies other limits to a READY or RUNNING sandbox and calls the waiter. They become `spec.limits` when the spawner
// confirms them. FAILED_PRECONDITION while an earlier change is not confirmed yet.
int sandbox_limit(struct sandbox *s, const struct limits *limits, struct sandbox_waiter *w,
                  struct err *e);

// Reports its CPU time so far, and asks the spawner for another weight if that is due (share.h).
void sandbox_share(struct sandbox *s, uint64_t cpu_ns, uint64_t now_ns);

// `began`: tasks started since the last check. Stops the sandbox while it is above quotas.forks_per_second (fork_rate.h).
void sandbox_forked(struct sandbox *s, uint64_t began, uint64_t now_ns);

// Starts to pause or resume, and calls the waiter. FAILED_PRECONDITION: wrong state.
int sandbox_pause(struct sandbox *s, struct sandbox_waiter *w, struct err *e);
int sandbox_resume(struct sandbox *s, struct sandbox_waiter *w, struct err *e);

// A request for a fresh upper layer. Embedded.
struct sandbox_swap {
    struct sandbox_waiter waiter; // done and cookie are the caller's
    // On success, in the callback. Layers have numbers from 1 on, per sandbox; `layer` is the one below the upper one now.
    uint32_t layer;
    bool fresh; // there is a new upper layer; false: nothing was written since the last one
    uint64_t bytes, inodes; // of the upper layer that was replaced
};

// Starts to seal what it has written as a layer; to drop that, and to go on above an earlier layer; or to go on above a
// layer of another sandbox, which must be kept until the answer. Calls the waiter. Nothing is copied; files and memory of
// a layer stay those of the sandbox that wrote them, within its limits. The contents are hostile: nobody here opens them.
// FAILED_PRECONDITION: it is not RUNNING, or has a job (reason JOBS_RUN); the waiter may get RESOURCE_EXHAUSTED (LAYERS): it
// has as many layers as it may have. After a failure the sandbox is as it was (one that would inherit is lost); until the answer
// no job can be started in it.
int sandbox_seal(struct sandbox *s, struct sandbox_swap *w, struct err *e);
int sandbox_restore(struct sandbox *s, uint32_t layer, struct sandbox_swap *w, struct err *e);
int sandbox_inherit(struct sandbox *s, const struct sandbox *from, uint32_t layer,
                    struct sandbox_swap *w, struct err *e);

// Starts to make a new layer with a copy of others, of which the one that lies lowest lies on `below`; or (from 0) of what it has
// written since its last layer. For that it is frozen: its jobs stop, and go on after it. Nothing that it shows changes. done is
// called once, later, also when the sandbox is being deleted by then. The copy counts to the sandbox's limits of disk, inodes and
// memory, and the work to its CPU time. FAILED_PRECONDITION: it is not RUNNING, or (COPYING) another copy is in progress.
// RESOURCE_EXHAUSTED: COPY_MEMORY; and in done COPY_BYTES, DISK_FULL, LAYERS. DEADLINE_EXCEEDED (COPY_TIME). After a failure the
// sandbox is as it was. A copy of its own layers, for which nobody waits, ends with ABORTED when another one begins.
struct sandbox_copied {
    uint32_t layer; // 0: it failed
    uint64_t bytes, inodes;
    uint64_t frozen_ns, copy_ns;
};
typedef void sandbox_copy_done(void *cookie, struct sandbox *s, const struct sandbox_copied *r,
                               const struct err *e);
struct sandbox_copy {
    uint32_t from, below;
    // `from` is a layer of the sandbox in this slot, and the only one that is copied: it lies on `below` then; generation 0: its own
    uint32_t other, other_generation;
    // files on this layer are on the copy from then on, since they are the same; 0: none
    uint32_t instead;
    uint64_t bytes; // the copy takes at most these
    uint32_t inodes;
    uint32_t ms; // maximum time
    sandbox_copy_done *done;
    void *cookie;
};
int sandbox_copy(struct sandbox *s, const struct sandbox_copy *want, struct err *e);

// A request for two states of its files, for a program inside it that compares them: layers, or 0 for the files of now.
// Embedded; done is called once, unless sandbox_states_forget() comes before. fds: enum spawn_state_fd, *owned* by the callback;
// nobody here opens anything in them.
struct sandbox_states {
    void (*done)(void *cookie, int fds[SPAWN_FDS_MAX], const struct err *e);
    void *cookie;
    struct sandbox_states_asked *asked;
};

// FAILED_PRECONDITION: it is not RUNNING. The callback may get NOT_FOUND: no such layer, or none at all.
int sandbox_states(struct sandbox *s, uint32_t from, uint32_t to, struct sandbox_states *q,
                   struct err *e);
void sandbox_states_forget(struct sandbox_states *q);

// Starts to make it ready for another job of its owner, which will find nothing of the jobs before (spawner/reset.c); once
// before its first job, and then before each. Waits for the processes that were killed, for at most two seconds. Refusals
// and the waiter as above; after a failure its owner must give it up. stays: the number of an agent of one process, which jobs must
// not be able to change (batch/warm.c), or 0: all agents end.
int sandbox_reset(struct sandbox *s, uint32_t stays, struct sandbox_swap *w, struct err *e);

// Starts to show layers of the state directory (server/store), each after the one that it lies on, instead of what it has written since
// its last layer. Otherwise like sandbox_restore(). `a` must stay valid until the answer. A layer that is sealed (vault/vault.h) is
// decrypted into the sandbox's memory, and counts to its limits of disk, inodes and memory: RESOURCE_EXHAUSTED (DISK_FULL, COPY_MEMORY).
// DATA_LOSS: it is damaged (LAYER_DAMAGED), or its data key was forgotten (KEY_FORGOTTEN).
enum { SANDBOX_ADOPT_MAX = 250 };
struct sandbox_adoption {
    uint32_t n; // at least 1
    const uint8_t *digest[SANDBOX_ADOPT_MAX];
    uint8_t below[SANDBOX_ADOPT_MAX]; // its index, counted from 1; 0: none
    struct sandbox_sealed {
        const uint8_t *key_id; // of its data key; NULL: it is not sealed
        uint64_t bytes, entries;
    } sealed[SANDBOX_ADOPT_MAX];
    uint8_t top;                       // the one that the files of now go on from
    uint32_t layer[SANDBOX_ADOPT_MAX]; // on success: their numbers
    uint32_t done;
};
int sandbox_adopt(struct sandbox *s, struct sandbox_adoption *a, struct sandbox_swap *w,
                  struct err *e);

// Starts to make a layer of another sandbox one of its own, on its layer `below` (0: on its root). What is shown does not change
// before a sandbox_restore(), and jobs may run. Where the kernel cannot share it, it is copied, with the limits and failures of
// sandbox_copy(). done is called once, later, also when the sandbox is being deleted by then; layer: the new one; copied: the bytes that
// the copy takes, 0: it is none. The waiter may get RESOURCE_EXHAUSTED (LAYERS, DISK_FULL).
typedef void sandbox_graft_done(void *cookie, struct sandbox *s, uint32_t layer, uint64_t copied,
                                const struct err *e);
struct sandbox_graft {
    const struct sandbox *from;
    uint32_t layer, below;
    uint64_t bytes, inodes; // what the layer takes
    uint64_t copy_max;      // a copy of more is refused (COPY_BYTES)
    uint32_t ms;            // maximum time of a copy
    sandbox_graft_done *done;
    void *cookie;
};
int sandbox_graft(struct sandbox *s, const struct sandbox_graft *g, struct err *e);

// Drops a layer on which no other lies. Nobody waits; a failure is logged, and the layer stays until the sandbox ends.
void sandbox_drop_layer(struct sandbox *s, uint32_t layer);

// Starts to destroy it. Jobs end with `why` (code CANCELLED: cancelled; others: failed), and so does what others wait for, with
// ABORTED instead of CANCELLED, or UNAVAILABLE when the broker stops. w may be NULL. Does nothing if it is already being destroyed.
// A sandbox that was live exists until a later turn of the loop; another one may be freed when this returns.
void sandbox_destroy(struct sandbox *s, const struct err *why, struct sandbox_waiter *w);

// The same for one whose files were kept: observers know it by `falls_asleep`.
void sandbox_fall_asleep(struct sandbox *s, const struct err *why, struct sandbox_waiter *w);

// Kills a job's processes through the spawner.
void sandbox_kill_job(struct sandbox *s, uint32_t job);

// False while the spawner has not replied to a kill: then it is not the guest's fault if the job still runs.
bool sandbox_kills_done(const struct sandbox *s);

void sandbox_unwait(struct sandbox_waiter *w);

// Changes the policy. 1: done; 0: w is called when it is in force, or with the failure (then the old policy stays).
// Negative: refused, and nothing has changed; FAILED_PRECONDITION (NETWORK_OFF_STAYS): to or from the mode off, with an owner.
int sandbox_network(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e);

// A READY sandbox without a policy is simulated from now on. Accepts NULL: it stays real.
void sandbox_simulate(struct sandbox *s, struct simulation *m);

// Mounts volumes in a READY sandbox. 1: there is nothing to do; 0: w is called when all are mounted, or with the failure (then
// destroy the sandbox). Negative: refused.
int sandbox_mount(struct sandbox *s, struct mounts *m, struct sandbox_waiter *w, struct err *e);

// For struct sandbox_mounters: calls the waiter (s may be freed when it returns, unless it is held).
void sandbox_mounted(struct sandbox *s, const struct err *e);

// Its jobs have no sockets but unix ones (NET_OFF), from its first job to its end.
bool sandbox_network_is_off(const struct sandbox *s);

// The same for a process that is started now; remembers if it can make other sockets.
bool sandbox_starts_off(struct sandbox *s);

// See struct sandbox_networks.settle.
bool sandbox_settle_traffic(struct sandbox *s, struct sandbox_settler *w);

// For struct sandbox_networks: adds w to the waiters for the network; calls all of them (s may be freed when it
// returns); reports that the policy in force is another one, or (not `other`) was put in force again.
void sandbox_network_wait(struct sandbox *s, struct sandbox_waiter *w);
void sandbox_network_done(struct sandbox *s, const struct err *e);
void sandbox_network_changed(struct sandbox *s, bool other);

// A DELETING sandbox is freed when nothing is left of it and it has no holders. Each request about it holds it until
// its callback returns, so it outlives everything that its own callbacks start. s may be freed after the second
// function.
void sandbox_hold(struct sandbox *s);
void sandbox_let_go(struct sandbox *s);

// Frees the members of a spec.
void sandbox_spec_clear(struct sandbox_spec *spec);

// The value of the label "tenant" for its owner (metrics.h).
uint32_t sandbox_tenant_metric(const struct sandbox *s);

// FAILED_PRECONDITION unless it accepts jobs now.
int sandbox_check_running(const struct sandbox *s, struct err *e);
// Whether it accepts none now, but will again: it is frozen, or gets another layer of files. Only PAUSED lasts until a call ends it.
bool sandbox_is_held_up(const struct sandbox *s);

// Number of sandboxes: in total (including ready ones and those being removed), and of a tenant; and the list of all
// that have an owner, oldest first.
uint32_t sandboxes_count(const struct sandboxes *all);
uint32_t sandboxes_count_of(const struct sandboxes *all, const char *tenant);
struct list *sandboxes_owned(struct sandboxes *all);

// True while a sandbox of this template exists, including ready ones and those that are being deleted.
bool sandboxes_have(const struct sandboxes *all, const struct template *t);

struct server *sandboxes_server(const struct sandboxes *all);
const struct sandbox_settings *sandboxes_settings(const struct sandboxes *all);
// The layers above register here at start.
struct observers *sandboxes_observers(struct sandboxes *all);
void sandboxes_set_jobs(struct sandboxes *all, const struct sandbox_jobs *jobs);
void sandboxes_set_mounters(struct sandboxes *all, const struct sandbox_mounters *mounters);
void sandboxes_set_networks(struct sandboxes *all, const struct sandbox_networks *networks);

// The spawner does not respond: waiters for a pause, a resume or a deletion fail. The operation continues when the
// spawner does.
void sandboxes_spawner_hangs(struct sandboxes *all);

// Destroys all; calls `done` when none is left.
void sandboxes_destroy_all(struct sandboxes *all, void (*done)(void *cookie), void *cookie);
