// SPDX-License-Identifier: Apache-2.0
// The broker's end of the spawner's socket: sends requests, and calls back on the loop thread.
//
//   spawn_start()    as root, single-threaded: forks, executes stockade-spawner, waits for its features
//   (privileges are dropped, threads may start)
//   spawn_attach()   from now on the loop reads replies
//   spawn_create() ... spawn_destroy()
//   spawn_close()    end of file: the spawner kills every sandbox, removes all that it made, and exits
//
// A request function that returns 0 calls `done` exactly once, later, never from inside the request function. One
// that fails does not call it: UNAVAILABLE if the spawner has ended or hangs, RESOURCE_EXHAUSTED beyond
// SPAWN_PENDING_MAX pending requests. Only spawn_start and spawn_close block.
//
// A spawner hangs if it has sent nothing for three seconds while requests are pending, or if a request is pending
// beyond its timeout (see the table in spawn.c). Then pending CREATE, LIMIT, NET_OPEN, NET_DIAL, READ and STATES requests
// fail with UNAVAILABLE, and what they still make is removed when the late reply arrives; no new ones are accepted.
// Requests that must succeed eventually (DESTROY, KILL_JOB, UNROOT) or that change a state (FREEZE, WATCH, RELAY)
// stay pending until the spawner continues.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

enum {
    SPAWN_PENDING_MAX = 3 * (SPAWN_SLOTS_MAX + 1), // pending requests
};

struct spawn;

// The reply to one request. `reply` is borrowed and has been checked (err_sanitize); reply->ok 0: see reply->err.
// fds: by enum spawn_fd, -1: missing; *owned* by the callback. Only a successful CREATE, NET_OPEN, NET_DIAL, RELAY, READ,
// SEAL, RESTORE, INHERIT, KEEP, KEEPER or STATES has any.
typedef void spawn_done(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX]);

// Closes the descriptors and sets them to -1.
void spawn_close_fds(int fds[SPAWN_FDS_MAX]);

// Starts the spawner and gives it its configuration. Must be called as root, before threads exist and before the
// process drops its privileges: the spawner keeps them. On success *features (12 KB) is what it found, bpf_fds are
// the descriptors that came with it (*owned*, -1: missing), and *out is *owned*: spawn_close(). On failure nothing is
// left; FAILED_PRECONDITION: another broker has the same cgroup.
int spawn_start(const char *binary, const struct spawn_config *config,
                struct spawn_features *features, int bpf_fds[BPF_FDS], struct spawn **out,
                struct err *e);

// Pid of the spawner.
pid_t spawn_pid(const struct spawn *s);

// Reads replies on this loop from now on. Calls on_gone once when the spawner has ended or broken the protocol, after
// the callbacks of all open requests (UNAVAILABLE). All sandboxes are dead or dying by then.
int spawn_attach(struct spawn *s, uv_loop_t *loop, void (*on_gone)(void *cookie), void *cookie,
                 struct err *e);

// on_silent: called when the spawner stops responding, and when it responds again.
void spawn_on_silent(struct spawn *s, void (*on_silent)(void *cookie, bool hangs), void *cookie);

// False while it does not respond, and after it ended. NULL (tests without one): true.
bool spawn_answers(const struct spawn *s);

// The error of calls that need the spawner while it hangs: UNAVAILABLE.
int spawn_say_hangs(struct err *e);

// Creates a sandbox of a root. reply: slot, generation, uid; fds: those of enum spawn_fd, or none at all if no descriptor
// was left for them. Its guest sends Ready on SPAWN_FD_GUEST. RESOURCE_EXHAUSTED: no slot is free; NOT_FOUND: no such
// root.
int spawn_create(struct spawn *s, const uint8_t id[16], uint32_t root,
                 const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e);

// Sets the limits of a live sandbox. The reply reports a limit that the kernel refuses (less memory than is in use).
int spawn_limit(struct spawn *s, uint32_t slot, uint32_t generation,
                const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e);

// Freezes or thaws a sandbox; answered when it is done.
int spawn_freeze(struct spawn *s, uint32_t slot, uint32_t generation, bool frozen, spawn_done *done,
                 void *cookie, struct err *e);

// The same for all but a process that copies its files.
int spawn_still(struct spawn *s, uint32_t slot, uint32_t generation, bool still, spawn_done *done,
                void *cookie, struct err *e);

// Freezes a sandbox for a moment, or lets it continue: answered before it is done. No effect on a paused sandbox.
int spawn_hold(struct spawn *s, uint32_t slot, uint32_t generation, bool held, spawn_done *done,
               void *cookie, struct err *e);

// Kernel memory of the host, or the sandbox's part in it (sandbox/lists.h).
int spawn_lists(struct spawn *s, uint32_t slot, uint32_t generation, enum spawn_lists what,
                spawn_done *done, void *cookie, struct err *e);

// Kills all processes of job-N. Does nothing if it does not exist.
int spawn_kill_job(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t job,
                   spawn_done *done, void *cookie, struct err *e);

// Kills a sandbox and removes all of it; answered when nothing is left. Call it exactly once per successful CREATE,
// also if its guest has ended.
// off: no process in it could make a socket other than a unix one, so another sandbox may get its network namespace.
int spawn_destroy(struct spawn *s, uint32_t slot, uint32_t generation, bool off, spawn_done *done,
                  void *cookie, struct err *e);

// Makes the relay's listeners inside a sandbox's network namespace. fds: by enum spawn_net_fd; those of IPv6 are -1 if
// the kernel has no IPv6. FAILED_PRECONDITION: those of an earlier call are open.
int spawn_net_open(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done,
                   void *cookie, struct err *e);

// Connects to a port of a sandbox's loopback, first 127.0.0.1, then ::1. fds[0]: non-blocking, connected or still
// connecting. FAILED_PRECONDITION: nothing listens.
int spawn_net_dial(struct spawn *s, uint32_t slot, uint32_t generation, uint16_t port,
                   spawn_done *done, void *cookie, struct err *e);

// Attaches or detaches the syscall tracepoint; answered when it is done. FAILED_PRECONDITION without BPF_HAS_SYSCALLS,
// UNAVAILABLE during an earlier call.
int spawn_watch(struct spawn *s, bool attached, spawn_done *done, void *cookie, struct err *e);

// Starts a new relay after the earlier one has ended. fds[0]: its socket, as BPF_FD_RELAY. FAILED_PRECONDITION: it
// still runs, or this host has none.
int spawn_relay(struct spawn *s, spawn_done *done, void *cookie, struct err *e);

// Starts the reader of the configuration (reader/read.h) after the earlier one has ended. fds[0]: our end of its socket.
int spawn_read(struct spawn *s, spawn_done *done, void *cookie, struct err *e);

// Gives up a root: no more sandboxes are created from it, and the spawner removes it with the last one.
int spawn_unroot(struct spawn *s, uint32_t root, spawn_done *done, void *cookie, struct err *e);

// Layers of the files of a sandbox (ops.h: SEAL, RESTORE, INHERIT, RESET, DROP). fds[0] of the first four: what replaces
// SPAWN_FD_DISK; -1: nothing does. No job may run.
int spawn_seal(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done, void *cookie,
               struct err *e);
int spawn_restore(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer,
                  spawn_done *done, void *cookie, struct err *e);
struct spawn_source {
    uint32_t slot, generation, layer;
    uint32_t below; // GRAFT: the layer under it, or 0
};
int spawn_inherit(struct spawn *s, uint32_t slot, uint32_t generation,
                  const struct spawn_source *from, spawn_done *done, void *cookie, struct err *e);
int spawn_reset(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t stays,
                spawn_done *done, void *cookie, struct err *e);
int spawn_drop(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer,
               spawn_done *done, void *cookie, struct err *e);

// Disks (disk/order.h): one is named by its kind and id. open: reply->layer is its number.
struct spawn_disk {
    uint32_t kind; // enum spawn_disk_kind
    uint8_t id[16];
};
int spawn_disk_make(struct spawn *s, const struct spawn_disk *disk, uint64_t bytes, uint32_t inodes,
                    spawn_done *done, void *cookie, struct err *e);
int spawn_disk_open(struct spawn *s, const struct spawn_disk *disk, spawn_done *done, void *cookie,
                    struct err *e);
int spawn_disk_remove(struct spawn *s, const struct spawn_disk *disk, spawn_done *done,
                      void *cookie, struct err *e);
int spawn_disk_close(struct spawn *s, uint32_t number, spawn_done *done, void *cookie,
                     struct err *e);

// Mounts an open disk in a sandbox; or, with its id, a folder of the host that its root has. `at` is copied, at most SPAWN_AT_MAX with its end; a longer one is INVALID_ARGUMENT.
struct spawn_mount {
    uint32_t disk;
    const uint8_t *host; // its id (mounts_host_id()); NULL: a disk
    bool read_only;
    const char *at;
};
int spawn_mount(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_mount *m,
                spawn_done *done, void *cookie, struct err *e);
// Layers in the state directory (ops.h: KEEP, KEEPER, ADOPT). fds[0] of the first two: our end of the keeper's socket
// (keeper/keep.h).
int spawn_keep(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer,
               spawn_done *done, void *cookie, struct err *e);
int spawn_keeper(struct spawn *s, spawn_done *done, void *cookie, struct err *e);
// fds[0]: our end of the fetcher's socket (fetcher/fetch.h). It is killed after so many seconds.
int spawn_fetcher(struct spawn *s, uint32_t seconds, spawn_done *done, void *cookie, struct err *e);
struct spawn_kept {
    uint32_t below;        // the layer under it, or 0
    const uint8_t *digest; // SPAWN_DIGEST_BYTES
};
int spawn_adopt(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_kept *kept,
                spawn_done *done, void *cookie, struct err *e);

// A layer of another sandbox becomes one of this sandbox, on layer `from->below` (ops.h: GRAFT). reply->layer: its number.
int spawn_graft(struct spawn *s, uint32_t slot, uint32_t generation,
                const struct spawn_source *from, spawn_done *done, void *cookie, struct err *e);

// A new layer with a copy of layers from `from` down to `below`, or (from 0) of what was written since the last one; and: it is complete
// (ops.h: COPY, COPIED). reply->layer: its number; fds[0]: the keeper that copies. layers: this one, and the one that it replaces (0: none).
struct spawn_copy {
    uint32_t from, below;
    uint64_t bytes;
    uint32_t inodes;
    uint32_t other, other_generation; // the slot that `from` is a layer of; 0: its own
};
int spawn_copy(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_copy *copy,
               spawn_done *done, void *cookie, struct err *e);
int spawn_copied(struct spawn *s, uint32_t slot, uint32_t generation, const uint32_t layers[2],
                 spawn_done *done, void *cookie, struct err *e);

// A new layer for the files of a sealed one of the state directory, on layer `below` (ops.h: UNSEAL); otherwise as spawn_copy().
struct spawn_unsealing {
    uint32_t below;
    const uint8_t *digest; // SPAWN_DIGEST_BYTES
    uint64_t bytes;
    uint32_t inodes;
};
int spawn_unseal(struct spawn *s, uint32_t slot, uint32_t generation,
                 const struct spawn_unsealing *u, spawn_done *done, void *cookie, struct err *e);

// Two states of the files of a sandbox (ops.h: STATES). fds: as enum spawn_state_fd.
int spawn_states(struct spawn *s, uint32_t slot, uint32_t generation, const uint32_t layers[2],
                 spawn_done *done, void *cookie, struct err *e);

// Closes the socket, so that the spawner ends, and calls the callbacks of all open requests (UNAVAILABLE), but not
// on_gone. Requests are refused from now on. Does nothing if the spawner has ended.
void spawn_abandon(struct spawn *s);

// Ends the spawner: requests without an answer get no callback, the loop handle is closed (run the loop once more
// before uv_loop_close), and the spawner has grace_ms to clean up and exit. True: it did, and found no problem. Accepts
// NULL.
bool spawn_close(struct spawn *s, uint32_t grace_ms);
