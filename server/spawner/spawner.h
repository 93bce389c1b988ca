// SPDX-License-Identifier: Apache-2.0
// What the spawner's files share: the table of slots, and who owns what in it.
//
//   main.c      start, the loop, the end          request.c  operations and the state each is allowed in
//   slot.c      the table and its moves           reply.c    answers on their way to the broker
//   birth.c     CREATE                            death.c    DESTROY, FREEZE: what is waited for by polling
//   netns.c     NET_OPEN, NET_DIAL                programs.c the loader's gifts, WATCH
//   tier.h, tier_process.c  what a sandbox is
//   relay_process.c  RELAY               reader_process.c  READ, and the reader's ROOT
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgroup.h"
#include "child.h"
#include "filter.h"
#include "ops.h"
#include "tree.h"

enum slot_state {
    SLOT_FREE,
    SLOT_QUEUED,   // CREATE asked for, its turn has not come
    SLOT_BORN,     // the child is on its way to exec
    SLOT_LIVE,     // handed out
    SLOT_FREEZING, // FREEZE asked for, not yet so
    SLOT_FROZEN,
    SLOT_REMOVING, // killed; waits until it is empty and gone
    SLOT_STATES_N
};

enum {
    BIRTHS_MAX = 16, // children on their way at once: more would only fight for the processors
    BIRTH_MS = 60 * 1000,
    FREEZE_MS = 5 * 1000,
    REMOVE_MS = 30 * 1000,
    NETNS_POOL_MAX = 256,
    DEAD_POLL_MS = 1000, // a sandbox that would not go in REMOVE_MS: still tried, at this pace
};

struct answer; // reply.c

struct slot {
    enum slot_state state;
    uint32_t number;
    uint32_t generation; // of the sandbox that it holds, or held last; 0: none yet
    uint32_t uid;        // first host id of its range
    int userns_fd;       // made at first use, kept for ever
    // One sandbox.
    char name[CGROUP_NAME_BYTES];
    uint32_t root; // in use by it, from QUEUED until FREE
    struct spawn_limits limits;
    bool limits_unsure; // a change of them failed halfway: all are written with the next
    struct cgroup_sandbox cgroup;
    int pid_fd;  // -1: no process, or reaped
    int disk_fd; // for tree_resize
    // A birth.
    int channel_fd;
    int channel_theirs_fd; // the child's ends, open until it has spoken
    int socket_theirs_fd;
    int net_fd;
    int userns_low_fd; // userns_fd where the child can reach it
    int socket_fd;     // the broker's end of the guest's socket
    // What is asked for and not yet answered; owned. NULL: nobody waits.
    struct answer *answer;
    uint64_t deadline_ns;
    uint64_t poll_ns;  // when to look again; SLOT_FREEZING, SLOT_REMOVING
    uint64_t pause_ns; // and the pause after that
    bool freeze;       // SLOT_FREEZING: what for
    // One of: the free list, the queue of births, the list of those that are polled.
    struct slot *next;
    struct slot *previous;
};

struct slot_list {
    struct slot *head;
    struct slot *tail;
};

// The BPF programs (programs.c). Every descriptor is -1 where there is none; those of links are kept by nobody's name.
struct programs {
    int map[BPF_FDS]; // the relay's needs "names"; the rest are closed once the broker has them
    int flows_fd;     // "flows", for reading
    int syscalls_fd;  // the program of the syscall tracepoint
    int syscalls_link_fd;
    int attacher_fd; // pidfd of the process that attaches it; said_fd: what it says
    int said_fd;
    int say_fd;
    bool guarded; // the relay's own programs are attached
    struct answer *watch_answer;
};

struct spawner {
    const struct spawn_config *config;
    struct cgroups cgroups;
    struct tree *tree;
    struct filter guest_filter;
    int job_filter_fd;
    int exe_fd; // the guest, a sealed memfd
    int null_fd;
    int proc_fd;
    int net_home_fd;
    int mount_home_fd;
    int time_home_fd; // -1: the kernel has no time namespaces
    struct programs programs;
    int relay_fd; // its pidfd; -1: it has ended
    struct answer *relay_answer;
    int reader_fd;                // its pidfd; -1: there is none
    int reader_asks_fd;           // its socket; -1: closed
    struct answer *reader_answer; // a READ that waits for its end
    int epoll_fd;
    int ids_fd; // ids.h; -1: ranges are not locked
    bool cores_piped;
    bool reading; // requests are read: nothing is stuck in `answers`
    int net_pool[NETNS_POOL_MAX];
    uint32_t net_n;
    uint32_t births;
    struct slot *slots;
    struct slot_list free;
    struct slot_list queued;
    struct slot_list polled;
    struct answer *answers_head;
    struct answer *answers_tail;
};

// Who an epoll event is for: kind in the high half, slot number in the low.
enum event_kind {
    EVENT_BROKER,
    EVENT_CHANNEL,
    EVENT_PROCESS,
    EVENT_ATTACHER,
    EVENT_RELAY,
    EVENT_READER,
    EVENT_READER_ASKS,
};
bool event_add(const struct spawner *s, int fd, enum event_kind kind, uint32_t slot,
               uint32_t events);

// slot.c

// The table, all free. False without memory.
bool slots_init(struct spawner *s);
// At the end: drops the answers that slots owe. Fine before slots_init().
void slots_drop(struct spawner *s);
// A free one whose ids no other spawner of this host uses. NULL: there is none.
struct slot *slot_take(struct spawner *s);
// A move of the state machine; an impossible one aborts. Puts the slot into the list of its new state.
void slot_move(struct spawner *s, struct slot *slot, enum slot_state to);

// reply.c

// An answer to a request, begun when it arrives. NULL without memory.
struct answer *answer_new(const struct spawn_request *q);
void answer_drop(struct answer *a);
// The part that is sent, to be filled.
struct spawn_reply *answer_reply(struct answer *a);
// Sends it, or queues it while the socket is full. Consumes a; fds[0..n) are sent and closed.
void answer_send(struct spawner *s, struct answer *a, const int *fds, unsigned n);
// It went well / it did not. Consumes a.
void answer_ok(struct spawner *s, struct answer *a);
void answer_err(struct spawner *s, struct answer *a, const struct err *e);
// The socket takes packets again.
void answers_flush(struct spawner *s);
// At the end: drops what was not sent.
void answers_drop(struct spawner *s);

// request.c

// Reads what the broker asks for. False at end of file.
bool request_read(struct spawner *s);
// Says what it was on stderr, cleans up everything and ends the process: the broker is broken or hostile.
__attribute__((noreturn, format(printf, 2, 3))) void broker_broken(struct spawner *s,
                                                                   const char *fmt, ...);

// birth.c

// Starts queued births while there is room.
void births_start(struct spawner *s);
// The channel of a birth has something.
void birth_heard(struct spawner *s, struct slot *slot);
// Its first process ended before the guest ran.
void birth_ended(struct spawner *s, struct slot *slot);
// It took too long.
void birth_late(struct spawner *s, struct slot *slot);

// tier_process.c

// Makes one network namespace ahead; false when the pool is full or none can be made now.
bool netns_fill(struct spawner *s);

// death.c

// Kills and removes; slot->answer, if any, is answered when it is gone: with its error when reply.err has one.
void removal_start(struct spawner *s, struct slot *slot);
// Begins to freeze or thaw; slot->answer is answered when it is so.
void freeze_start(struct spawner *s, struct slot *slot, bool freeze);
// Looks at every slot that waits. Returns milliseconds until the next look, -1: none waits.
int polled_look(struct spawner *s);
// Its first process has ended: reaps it.
void process_ended(struct spawner *s, struct slot *slot);
