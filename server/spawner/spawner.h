// SPDX-License-Identifier: Apache-2.0
// Shared by the spawner's files: the table of slots, and its owners.
//
//   main.c      start, the loop, the end          request.c  operations and the state each is allowed in
//   slot.c      the table and its states          reply.c    replies to the broker
//   birth.c     CREATE                            death.c    DESTROY, FREEZE, which need polling
//   netns.c     namespaces, NET_OPEN, DIAL        programs.c the loader's descriptors, WATCH
//   tier.h, tier_process.c  kinds of sandboxes
//   swap.c      SEAL, RESTORE, INHERIT, ADOPT, GRAFT, DROP    reset.c   RESET    disk.h, disk_process.h  DISK_MAKE to MOUNT
//   relay_process.c  RELAY               reader_process.c  READ, and the reader's ROOT
//   keeper_process.c KEEP, KEEPER        copy.c    COPY, COPIED        fetcher_process.c  FETCHER
//   scratch.c   disks for the files of one sandbox
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgroup.h"
#include "child.h"
#include "disk.h"
#include "filter.h"
#include "ops.h"
#include "tree.h"
#include "tree_swap.h"

enum slot_state {
    SLOT_FREE,
    SLOT_QUEUED,   // CREATE was requested and waits for its turn
    SLOT_BORN,     // the child is starting, up to exec
    SLOT_LIVE,     // the broker has it
    SLOT_FREEZING, // FREEZE was requested and is not complete
    SLOT_FROZEN,
    SLOT_REMOVING, // killed; waits until it is empty and removed
    SLOT_STATES_N
};

enum {
    // children that start at the same time: more would only compete for the processors
    BIRTHS_MAX = 16,
    BIRTH_MS = 60 * 1000,
    FREEZE_MS = 5 * 1000,
    REMOVE_MS = 30 * 1000,
    NETNS_POOL_MAX = 256,
    // interval of attempts for a sandbox that could not be removed in REMOVE_MS
    DEAD_POLL_MS = 1000,
};

struct answer;       // reply.c
struct scratch_wish; // scratch.c

struct scratch_size {
    uint64_t bytes;
    uint32_t inodes;
};

struct slot {
    enum slot_state state;
    uint32_t number;
    uint32_t generation; // of the current or last sandbox; 0: none yet
    uint32_t uid;        // first host id of its range
    int userns_fd;       // made at first use, never closed
    int userns_root_fd;  // the same, for sandboxes whose jobs are root inside
    // maps the ids of layers in the state directory to this range; the same
    int kept_userns_fd;
    // One sandbox.
    char name[CGROUP_NAME_BYTES];
    uint32_t root; // the root that it uses, from QUEUED until FREE
    struct spawn_limits limits;
    bool limits_unsure; // a change of the limits failed halfway: the next change writes all of them
    struct cgroup_sandbox cgroup;
    int pid_fd;                 // -1: no process, or reaped
    int disk_fd;                // for tree_resize and tree_swap
    struct tree_layers *layers; // owned; NULL: it has none, all is on the disk
    struct disk_mounts *mounts; // owned; NULL: it has none
    struct scratch_wish *wish;  // owned; NULL: it waits for no scratch disk
    int scratch_fd;             // a new scratch disk, at a number that the child can use; -1: none
    uint64_t scratch_bytes;     // what that was made for
    struct tree_in_use scratch_use; // of the one that it got last, when it was empty
    int queues_fd;                  // folder of its POSIX message queues; -1: it was never reset
    int sockets_fd;                 // /proc/net/sockstat of its network namespace; -1: as above
    int net_again_fd; // its network namespace, while another sandbox may get it; -1: none may
    // A birth.
    int channel_fd;
    int channel_theirs_fd; // the child's ends, open until its first report
    int socket_theirs_fd;
    int net_fd;
    int userns_low_fd; // userns_fd at a number that the child can use
    int socket_fd;     // the broker's end of the guest's socket
    // The pending reply; owned. NULL: none.
    struct answer *answer;
    uint64_t deadline_ns;
    uint64_t poll_ns;  // time of the next poll; SLOT_FREEZING, SLOT_REMOVING
    uint64_t pause_ns; // the interval after that
    bool freeze;       // SLOT_FREEZING: freeze or thaw
    bool still;        // it is frozen for a copy of its files (cgroup_still())
    // In one of: the free list, the queue of births, the list of polled slots.
    struct slot *next;
    struct slot *previous;
};

// Its file systems, for what works on them from outside.
static inline struct tree_of
tree_of(const struct slot *slot)
{
    return (struct tree_of){slot->pid_fd, slot->disk_fd, slot->layers};
}

struct slot_list {
    struct slot *head;
    struct slot *tail;
};

// The BPF programs (programs.c). A missing descriptor is -1. Those of links have no variable.
struct programs {
    // the relay needs "names"; the others are closed after the broker has got them
    int map[BPF_FDS];
    int flows_fd;    // "flows", read-only
    int syscalls_fd; // the program of the syscall tracepoint
    int syscalls_link_fd;
    int attacher_fd; // pidfd of the process that attaches it; said_fd: the pipe with its result
    int said_fd;
    int say_fd;
    bool guarded; // the relay's own programs are attached
    struct answer *watch_answer;
};

// One stockade-disk that works (disk_process.c).
struct disk_run {
    bool busy;
    struct answer *answer; // owned; NULL: it makes a scratch disk for the slot
    struct scratch_run {
        uint32_t slot, wish;
    } scratch;
    int socket_fd;
    bool opens;
    uint32_t number; // the disk that it opens
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
    int ipc_home_fd;
    int mount_home_fd;
    int time_home_fd; // -1: the kernel has no time namespaces
    struct programs programs;
    int relay_fd; // its pidfd; -1: it has ended
    struct answer *relay_answer;
    int reader_fd;                // its pidfd; -1: none runs
    int reader_asks_fd;           // its socket; -1: closed
    struct answer *reader_answer; // a READ that waits for the end of the reader
    struct disks *disks;
    bool disks_fine;
    bool scratch_fine;      // there can be scratch disks
    uint32_t scratch_waits; // those that wait until a stockade-disk may start
    uint32_t scratch_swaps; // swaps and copies that wait for a disk
    struct disk_run disk_run[SPAWN_DISK_RUNS_MAX];
    uint32_t keepers; // that run
    int fetcher_fd;   // the pidfd of the fetcher; -1: none runs
    uint64_t fetcher_until_ns;
    int epoll_fd;
    int ids_fd; // ids.h; -1: ranges are not locked
    bool cores_piped;
    uint64_t ignored; // signals that it inherited as ignored: bit 0 is signal 1
    bool reading;     // requests are read, because no reply is queued
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

// The receiver of an epoll event: kind in the high half, slot number in the low half.
enum event_kind {
    EVENT_BROKER,
    EVENT_CHANNEL,
    EVENT_PROCESS,
    EVENT_ATTACHER,
    EVENT_RELAY,  // the low half is the pidfd
    EVENT_READER, // the same
    EVENT_READER_ASKS,
    EVENT_HELPER,  // a process to be reaped; the low half is its pidfd
    EVENT_DISK,    // the low half is its number in disk_run
    EVENT_KEEPER,  // as EVENT_HELPER
    EVENT_FETCHER, // as EVENT_HELPER
};
bool event_add(const struct spawner *s, int fd, enum event_kind kind, uint32_t slot,
               uint32_t events);

// slot.c

// Makes the table, all slots free. False: out of memory.
bool slots_init(struct spawner *s);
// At the end: drops pending replies. May be called before slots_init().
void slots_drop(struct spawner *s);
// A free slot whose ids no other spawner of this host uses. NULL: none.
struct slot *slot_take(struct spawner *s);
// Changes the state; an impossible change aborts. Puts the slot into the list of its new state.
void slot_move(struct spawner *s, struct slot *slot, enum slot_state to);

// reply.c

// A reply, made when its request arrives. NULL: out of memory.
struct answer *answer_new(const struct spawn_request *q);
void answer_drop(struct answer *a);
// The part to fill in and send.
struct spawn_reply *answer_reply(struct answer *a);
// Sends it, or queues it while the socket is full. Consumes a; fds[0..n) are sent and closed.
void answer_send(struct spawner *s, struct answer *a, const int *fds, unsigned n);
// Replies with success, or with an error. Consumes a.
void answer_ok(struct spawner *s, struct answer *a);
void answer_err(struct spawner *s, struct answer *a, const struct err *e);
// Replies with one descriptor, which is consumed, or with the error if it is negative. Consumes a.
void answer_fd(struct spawner *s, struct answer *a, int fd, const struct err *e);
// The socket accepts packets again.
void answers_flush(struct spawner *s);
// At the end: drops unsent replies.
void answers_drop(struct spawner *s);

// request.c

// Reads requests of the broker. False: end of file.
bool request_read(struct spawner *s);
// The broker is faulty or hostile: writes the reason to stderr, cleans up everything and ends the process.
__attribute__((noreturn, format(printf, 2, 3))) void broker_broken(struct spawner *s,
                                                                   const char *fmt, ...);

// birth.c

// Starts queued births while fewer than BIRTHS_MAX are in progress.
void births_start(struct spawner *s);
// The channel of a birth is readable.
void birth_heard(struct spawner *s, struct slot *slot);
// It has the scratch disk that it waited for in slot->scratch_fd, or (-1) there is a reason.
void birth_with_disk(struct spawner *s, struct slot *slot, const struct err *why);
// Its first process ended before the guest ran.
void birth_ended(struct spawner *s, struct slot *slot);
// Its deadline has passed.
void birth_late(struct spawner *s, struct slot *slot);

// swap.c

// SEAL, RESTORE, INHERIT; ADOPT; DROP.
void swap_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                 struct answer *a);
void swap_adopt(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);
void swap_drop(struct spawner *s, struct slot *slot, const struct spawn_request *q,
               struct answer *a);
// The same for a swap, which takes the answer.
void swap_with_disk(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                    struct answer *a, const struct err *why);
// STATES.
void states_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                   struct answer *a);
// Takes the pidfd of a process that nobody waits for (-1: none), to reap it when it ends.
void swap_watch_helper(const struct spawner *s, int helper_fd);
// It has ended: reaps it.
void swap_helper_ended(struct spawner *s, int pid_fd);
// DISK_CLOSE; MOUNT.
void swap_disk_close(struct spawner *s, struct slot *none, const struct spawn_request *q,
                     struct answer *a);
void swap_mount(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);

// copy.c

// COPY, COPIED.
void copy_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                 struct answer *a);
// As of swap_with_disk().
void copy_with_disk(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                    struct answer *a, const struct err *why);
void copy_done(struct spawner *s, struct slot *slot, const struct spawn_request *q,
               struct answer *a);

// reset.c

// RESET.
void reset_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                  struct answer *a);

// scratch.c

// For a swap with its request and its answer, which it takes on success; NULL: for a birth. FAILED_PRECONDITION: NO_DISKS.
int scratch_wish(struct spawner *s, struct slot *slot, const struct scratch_size *size,
                 const struct spawn_request *q, struct answer *a, struct err *e);

// stockade-disk has answered: a descriptor, which it takes, or the reason.
void scratch_made(struct spawner *s, const struct scratch_run *run, int fd, const struct err *why);

// A stockade-disk has ended, so that another one may start.
void scratch_next(struct spawner *s);

// The sandbox is being removed: a swap that waits is answered.
void scratch_forget(struct spawner *s, struct slot *slot);
// At the end: the same without an answer.
void scratch_drop(struct spawner *s, struct slot *slot);
// Ends swaps that have waited too long. Returns milliseconds until the next look, -1: none waits.
int scratch_look(struct spawner *s);

// netns.c

// Makes one network namespace in advance; false: the pool is full, or it failed.
bool netns_fill(struct spawner *s);
// Its first process runs: keeps its network namespace for another sandbox, as far as there is none yet.
void netns_remember(struct spawner *s, struct slot *slot);
// Nothing of the sandbox is left: another one gets its network namespace if that is as new.
void netns_give(struct spawner *s, struct slot *slot);

// tier_process.c

// FAILED_PRECONDITION: its guest has ended, or (JOBS_RUN, -EBUSY) a process of a job is there. stays: the number of a job that may
// have one thread; or 0.
int slot_check_idle(const struct slot *slot, uint32_t stays, struct err *e);

// death.c

// Kills and removes; slot->answer, if any, is sent when nothing is left: with its error if reply.err has one.
void removal_start(struct spawner *s, struct slot *slot);
// Starts to freeze or thaw; slot->answer is sent when that is complete.
void freeze_start(struct spawner *s, struct slot *slot, bool freeze);
// Polls every slot that waits. Returns milliseconds until the next poll, -1: none waits.
int polled_look(struct spawner *s);
// Its first process has ended: reaps it.
void process_ended(struct spawner *s, struct slot *slot);
