// SPDX-License-Identifier: Apache-2.0
// The broker's end of the spawner's socket: requests go out, callbacks come back on the loop thread.
//
//   spawn_start()    as root, single-threaded: forks, executes stockade-spawner, waits for its features
//   (privileges are dropped, threads may start)
//   spawn_attach()   from now on the loop reads replies
//   spawn_create() ... spawn_destroy()
//   spawn_close()    end of file is the spawner's order to kill every sandbox, remove all that it made, and leave
//
// A request function that returns 0 calls `done` exactly once, later, never from inside the request function. One that
// fails does not call it: UNAVAILABLE when the spawner is gone or hangs, RESOURCE_EXHAUSTED beyond SPAWN_PENDING_MAX
// requests without an answer. Nothing here blocks but spawn_start and spawn_close.
//
// A spawner hangs when nothing has been heard of it for three seconds though it was asked, or when it owes an answer for
// far too long (spawn.c has the table). Then CREATE, LIMIT, NET_OPEN and NET_DIAL that wait are answered with UNAVAILABLE,
// and what they still make is taken back when it comes; no new ones are accepted. What must happen some time (DESTROY,
// KILL_JOB) or has a state of its own (FREEZE, WATCH, RELAY) goes on and is answered when the spawner continues.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "../proto/err.h"
#include "spawner/ops.h"

enum {
    SPAWN_PENDING_MAX = 3 * (SPAWN_SLOTS_MAX + 1), // requests without an answer
    SPAWN_START_MS = 90 * 1000,                    // how long spawn_start waits for the features
};

struct spawn;

// The answer to one request. `reply` is borrowed and has been checked (err_sanitize); reply->ok 0: see reply->err.
// fds: by enum spawn_fd, -1 where absent; *owned* by the callback, which closes them or keeps them. Only a CREATE,
// NET_OPEN, NET_DIAL or RELAY that went well has any.
typedef void spawn_done(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX]);

// Closes those that are there, and makes them -1.
void spawn_close_fds(int fds[SPAWN_FDS_MAX]);

// Starts the spawner and gives it its configuration. Must be called as root, before threads exist and before the
// process drops its privileges: the spawner keeps them. On success *features (12 KB) is what it found, bpf_fds are the
// descriptors that came with it, *owned*, -1 where absent, and *out is *owned*: spawn_close(). On failure nothing is
// left: FAILED_PRECONDITION when another broker has the same cgroup.
int spawn_start(const char *binary, const struct spawn_config *config,
                struct spawn_features *features, int bpf_fds[BPF_FDS], struct spawn **out,
                struct err *e);

// The spawner's process id.
pid_t spawn_pid(const struct spawn *s);

// Reads replies on this loop from now on. on_gone: called once when the spawner has ended or broken the protocol; every
// request without an answer got its callback (UNAVAILABLE) before. All sandboxes are dead or dying by then.
int spawn_attach(struct spawn *s, uv_loop_t *loop, void (*on_gone)(void *cookie), void *cookie,
                 struct err *e);

// on_silent: called when the spawner begins to hang, and when it answers again.
void spawn_on_silent(struct spawn *s, void (*on_silent)(void *cookie, bool hangs), void *cookie);

// False while it hangs, and once it is gone. NULL (tests without one) is fine, and answers.
bool spawn_answers(const struct spawn *s);

// What is said to those who need it then: UNAVAILABLE.
int spawn_say_hangs(struct err *e);

// A new sandbox. reply: slot, generation, uid; fds: those of enum spawn_fd, or none at all when no descriptor
// was left for them. Its guest says Ready on SPAWN_FD_GUEST.
// RESOURCE_EXHAUSTED when no slot is free.
int spawn_create(struct spawn *s, const uint8_t id[16], uint32_t template,
                 const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e);

// New limits for a live sandbox. The reply says so when the kernel refuses one (less memory than is in use).
int spawn_limit(struct spawn *s, uint32_t slot, uint32_t generation,
                const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e);

// Stops or continues everything in a sandbox; answered when it is so.
int spawn_freeze(struct spawn *s, uint32_t slot, uint32_t generation, bool frozen, spawn_done *done,
                 void *cookie, struct err *e);

// Stops everything in a sandbox for a moment, or lets it go on: answered before it is so, and nothing while it is frozen.
int spawn_hold(struct spawn *s, uint32_t slot, uint32_t generation, bool held, spawn_done *done,
               void *cookie, struct err *e);

// Kills all of job-N; fine when there is none.
int spawn_kill_job(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t job,
                   spawn_done *done, void *cookie, struct err *e);

// Kills a sandbox and removes all of it; answered when nothing is left. Exactly once per CREATE that went well, also
// when its guest has ended by itself.
int spawn_destroy(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done,
                  void *cookie, struct err *e);

// The relay's listeners inside a sandbox's network namespace. fds: by enum spawn_net_fd; those of IPv6 are -1 where the
// kernel has none. FAILED_PRECONDITION while those of an earlier call are open.
int spawn_net_open(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done,
                   void *cookie, struct err *e);

// A connection to a port of a sandbox's loopback, 127.0.0.1 first, ::1 then. fds[0]: non-blocking, connected or still
// connecting. FAILED_PRECONDITION when nobody listens.
int spawn_net_dial(struct spawn *s, uint32_t slot, uint32_t generation, uint16_t port,
                   spawn_done *done, void *cookie, struct err *e);

// Attaches the syscall tracepoint, or detaches it; answered when it is so. FAILED_PRECONDITION without
// BPF_HAS_SYSCALLS, UNAVAILABLE while an earlier call is under way.
int spawn_watch(struct spawn *s, bool attached, spawn_done *done, void *cookie, struct err *e);

// A new relay, when the one before has ended. fds[0]: its socket, as BPF_FD_RELAY. FAILED_PRECONDITION while it runs, or
// where there is none.
int spawn_relay(struct spawn *s, spawn_done *done, void *cookie, struct err *e);

// Ends it all: requests without an answer get no callback, the loop handle is closed (run the loop once more before
// uv_loop_close), the spawner is given grace_ms to clean up and end. True when it did and found nothing wrong.
// NULL is fine.
bool spawn_close(struct spawn *s, uint32_t grace_ms);
