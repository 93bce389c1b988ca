// SPDX-License-Identifier: Apache-2.0
// Agent programs: programs of ours that work inside a sandbox for the broker, such as the one that reads and writes its
// files.
//
//   agent_start() --> STARTING --Started--> RUNNING --its socket closed, agent_close(), idle--> ENDING --Exited--> (freed)
//
// The guest starts one like a job: under the jobs' uid, with their filter, in a cgroup job-N of its own, so that memory,
// CPU time and processes count towards the sandbox's limits. Instead of pipes it has /dev/null, and one end of a
// SOCK_SEQPACKET pair at descriptor 3 (AGENT_FD_SOCKET). It is a program of ours, passed as a descriptor, which no path of
// the sandbox leads to; or, with program_fd -1, a program of the sandbox's root, with a script of ours at descriptor 4
// (AGENT_FD_SCRIPT; /dev/fd/4).
//
// Jobs have the same uid: they can stop or kill it, so nothing that it reports is trusted, and who waits for it sets a
// timeout. A program of ours has mode 0711: what the jobs' uid cannot read is non-dumpable from its exec on (execve(2),
// PR_SET_DUMPABLE), so no job can open its memory or its descriptors. A program of the root is not protected like that
// before it has called prctl(2) itself.
//
// An agent is no process of the caller: it is in no list, has no bill, and does not prevent that the sandbox is sealed
// (sandbox_seal() and its like end all agents). Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

struct agent;
struct sandbox;

enum {
    AGENT_PACKET_MAX = 64 * 1024, // in both directions
    AGENT_QUEUE_MAX = 256,        // packets that it has not read yet
    AGENT_QUEUE_BYTES = 1024 * 1024,
    AGENTS_OF_SANDBOX = 16,
};

struct agent_spec {
    const char *const
        *args; // args_n of them; without program_fd args[0] is looked up in PATH of env
    size_t args_n;
    const char *const *env; // "NAME=value"
    size_t env_n;
    const char *workdir; // absolute
    int program_fd;      // borrowed; -1: args[0]
    int script_fd;       // borrowed; -1: none
    bool takes_fd;       // its packets may contain a descriptor
};

struct agent_events {
    // execve(2) succeeded. May be NULL.
    void (*started)(void *cookie);
    // A packet, aligned for any type, borrowed. *fd: -1, or a descriptor to take with take_fd(). Negative: it breaks
    // the protocol, *e says why, and the agent is killed.
    int (*packet)(void *cookie, const void *bytes, size_t n, int *fd, struct err *e);
    // All packets were sent that agent_send() had queued. May be NULL.
    void (*drained)(void *cookie);
    // It has ended, or could not be started; `why` is never NULL. The last event; the agent is freed after it.
    // CANCELLED: the sandbox is being removed. RESOURCE_EXHAUSTED: it ran out of memory. UNAVAILABLE: it was killed, or
    // ended by itself.
    void (*ended)(void *cookie, const struct err *why);
};

// Starts one in a READY or RUNNING sandbox. FAILED_PRECONDITION, RESOURCE_EXHAUSTED. Packets may be sent from now on. On
// success *out is borrowed until `ended` or agent_close().
int agent_start(struct sandbox *s, const struct agent_spec *spec, const struct agent_events *events,
                void *cookie, struct agent **out, struct err *e);

// Sends or queues one packet, with a descriptor if fd >= 0 (*owned* by this, also on failure). RESOURCE_EXHAUSTED: it does
// not read; nothing was sent.
int agent_send(struct agent *a, const void *bytes, size_t n, int fd, struct err *e);

// While it is held, none of its packets are read: it waits when its socket is full.
void agent_hold(struct agent *a, bool held);

// Begins an agent whose process another agent or an interpreter will fork: *theirs, *owned* by the caller, is its end of the
// socket, for that process. It has the number of the next job, because it can become one (agent_give()).
//
//   agent_fork() --packet with its pid--> agent_adopt() --guest--> started --agent_give()--> (freed; a job has its process)
//
// Until it is adopted it is an ordinary process of the one that forked it, and closing its socket ends it, because it is a
// program of ours. After agent_adopt() it is like any other agent. Errors as of agent_start(). It ends with UNAVAILABLE and this reason if
// it, or what forks it, closed the socket or ended before it ran, or named a process that cannot be it.
#define AGENT_UNFIT "AGENT_UNFIT"
int agent_fork(struct sandbox *s, const struct agent_events *events, void *cookie,
               struct agent **out, int *theirs, struct err *e);
int agent_adopt(struct agent *a, uint32_t pid, struct err *e);

// For job.c: it is a job from now on. Passes n descriptors to its process in one packet (*owned* by this, also on failure)
// and frees the agent, without an event. On failure it is killed, and reported as ended. FAILED_PRECONDITION: it does not run.
int agent_give(struct agent *a, const int *fds, size_t n, struct err *e);
bool agent_is_running(const struct agent *a); // not so once it is being killed, before `ended`
uint32_t agent_number(const struct agent *a);
uint32_t agent_pid(const struct agent *a); // inside the sandbox

// Whether the kernel has killed a process of it for want of memory since the last such answer: then *e says so. Where the kernel counts
// for whole sandboxes only (cgroup v1), any process of the sandbox.
bool agent_out_of_memory(struct agent *a, struct err *e);

// Signal to its main process.
int agent_signal(struct agent *a, uint32_t signal, struct err *e);

// True: the cgroup of a program of ours that works in the sandbox, or did. It acts on requests of callers, and no job can enter its cgroup.
bool agents_are_ours(struct sandbox *s, uint64_t cgroup);

// Ends it: closes its socket and kills all its processes. No further event is called.
void agent_close(struct agent *a);

// ---- for the other files of this folder

// Numbers of agents' cgroups: above those of all jobs.
#define AGENT_NUMBER_FIRST SPAWN_AGENT_FIRST

// Messages of the guest. False: impossible in this state.
bool agents_started(struct sandbox *s, uint32_t number, uint32_t pid);
bool agents_failed(struct sandbox *s, uint32_t number, int sys, const char *text);
bool agents_exited(struct sandbox *s, uint32_t number, uint32_t status);

// Whether one runs that is not being ended.
bool agents_live(const struct sandbox *s);

// All end, for this reason: the guest no longer exists (agents_gone), or is to kill them, but not the one with the number `but`
// (0: all). An owner may close others, and delete the sandbox, when its own has ended.
void agents_gone(struct sandbox *s, const struct err *why);
void agents_end(struct sandbox *s, uint32_t but, const struct err *why);
