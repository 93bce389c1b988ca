// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Events from the kernel: their head, classes, budgets and losses, for programs and for the broker.
//
// There are two rings: "alerts" for urgent events and "events" for the others. Neither wakes the broker per event;
// the broker drains both every 10 ms. Each sandbox has a budget per class, so neither a sandbox nor a class can use
// up the budget of another. An event that exceeds its budget or finds the ring full is counted in "lost", per
// sandbox, class and CPU. "lost" is never cleared: the broker stores its values when it creates a sandbox. "lost" is
// an array that the broker maps into its memory, because the broker reads it several times per job, and reading a
// per-CPU map takes a system call.
//
// The first event of its kind needs no budget: the first refusal of each destination, the first exec of each unknown
// program (map "firsts"), the first connection to each allowed destination, the first of each dangerous system
// call of a job (in its account), and the first connection that a mark is about (net.h). So a flood of harmless or
// repeated events cannot hide a new one.
#pragma once

#include "sandbox.h"

enum {
    EMIT_ALERTS_BYTES = 1 << 20,
    EMIT_EVENTS_BYTES = 4 << 20,
};

enum event_class {
    CLASS_DENIAL = 0, // alerts
    // alerts: exec of a memfd or over a socket, a terminal connected to outside, oom
    CLASS_ALARM = 1,
    CLASS_PROCESS = 2, // exec of a known program, or of any program if no profile judges
    CLASS_FILE = 3,
    CLASS_NETWORK = 4,
    CLASS_SIGNAL = 5,
    // alerts: dangerous calls, io_uring. Separate from ALARM: a job can cause any number of them
    CLASS_SYSCALL = 6,
    CLASS_UNCOUNTED = 7, // no events: system calls of a cgroup that got no account
    // alerts. Separate from ALARM: a known program can be made to cause thousands
    CLASS_PROFILE = 8,
    CLASS_EXIT = 9, // separate from PROCESS: a fork costs a job less than an exec
    CLASS_NEW = 10, // alerts: exec of a program that is not in the profile
    // alerts: connections and system calls that a rule of the host asks for. Apart from NETWORK, DENIAL and SYSCALL: whatever
    // else a job does uses up none of their budgets, and they use up none of the others'
    CLASS_RULED_NETWORK = 11,
    CLASS_RULED_CALL = 12,
    EVENT_CLASSES = 13,
};

enum event_kind {
    EVENT_DENIED = 1, // struct net_event (net.h)
    EVENT_CONNECT,    // struct net_event
    EVENT_EXEC,       // struct watch_exec (watch.h)
    EVENT_EXIT,       // struct watch_exit
    EVENT_OPEN,       // struct watch_open: a sensitive path
    EVENT_SIGNAL,     // struct watch_signal
    EVENT_DANGEROUS,  // struct watch_syscall
    EVENT_URING,      // struct watch_syscall
    EVENT_OOM,        // no body
    EVENT_PROFILE,    // struct watch_score
    EVENT_TERMINAL,   // struct watch_terminal
    EVENT_LISTEN,     // struct net_event
    EVENT_KINDS,
};

struct event {
    __u64 time_ns; // CLOCK_BOOTTIME
    __u64 cgroup;  // directly below the sandbox (guest, job-N), or the sandbox's own cgroup
    __u32 slot;
    __u32 generation;
    __u32 pid; // in the host's pid namespace
    __u32 tid;
    __u16 kind; // enum event_kind
    __u16 class;
    __u32 size; // of the body after this header
    char comm[16];
};

// Map "budget_rates", ARRAY by class, written by the broker: up to `burst` events at once, and `per_second` on
// average. Every event of a class is lost while one of the two values is 0, as before the broker's first write.
struct budget_rate {
    __u32 per_second;
    __u32 burst;
};

// Map "lost": the index of a counter.
enum { LOST_PER_CPU = BPF_SLOTS * EVENT_CLASSES };
static inline __u32 lost_at(__u32 cpu, __u32 slot, __u32 class)
{
    return cpu * LOST_PER_CPU + slot * EVENT_CLASSES + class;
}

// Map "budgets", ARRAY by slot * EVENT_CLASSES + class, written by the kernel only. It is a token bucket in one word,
// so CPUs need no lock. The word is the time at which the next event would be due if events came at exactly
// `per_second` (the generic cell rate algorithm, ITU-T I.371). Each event advances it by one interval, and it is
// never more than `burst` intervals ahead of the clock.
struct budget {
    __u64 due_ns;
    __u32 generation;
    __u32 zero;
};

// Map "firsts", ARRAY by slot, written by the kernel only: a bit for each event that was reported in the last
// FIRSTS_NS. If two events have the same bit, the second one needs the budget. Connections have bits of their own, so that many
// allowed destinations hide no refusal.
#define FIRSTS_NS 60000000000ULL
enum { FIRSTS_BITS = 1024, FIRSTS_WORDS = FIRSTS_BITS / 64 };
enum firsts_of { FIRSTS_USUAL, FIRSTS_CONNECTIONS, FIRSTS_PARTS };
struct firsts {
    __u64 since_ns;
    __u32 generation;
    __u32 zero;
    __u64 bits[FIRSTS_PARTS * FIRSTS_WORDS];
};

#ifdef __bpf__
// The maps, defined once: the loader gives the same maps to each object.
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, EMIT_ALERTS_BYTES);
} alerts SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, EMIT_EVENTS_BYTES);
} events SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BPF_SLOTS *EVENT_CLASSES);
    __type(key, __u32);
    __type(value, struct budget);
} budgets SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BPF_SLOTS);
    __type(key, __u32);
    __type(value, struct firsts);
} firsts SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, EVENT_CLASSES);
    __type(key, __u32);
    __type(value, struct budget_rate);
} budget_rates SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, LOST_PER_CPU); // times the number of possible CPUs, by the loader
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, BPF_SLOTS * 2);
    __type(key, __u64);
    __type(value, struct bpf_sandbox);
} sandboxes SEC(".maps");

// Set by the loader before load: the level of a sandbox's cgroup (the root of the hierarchy is 0), and the id of the
// cgroup that holds the sandboxes. If the id is 0, every cgroup at that level is looked up in "sandboxes", also those
// of the host's processes.
const volatile __u32 sandbox_level = 2;
const volatile __u64 sandbox_parent = 0;

// The verifier refuses a pointer from an array that lies beyond the end of a struct, so the pointer is copied.
static __always_inline __u64 ancestor_id(struct cgroup *cgroup, __u32 level)
{
    struct cgroup *at = 0;
    if (bpf_core_read(&at, sizeof at, &cgroup->ancestors[level]))
        return 0;
    return BPF_CORE_READ(at, kn, id);
}

static __always_inline void emit_lost(__u32 slot, __u32 class)
{
    __u32 at = lost_at(bpf_get_smp_processor_id(), slot, class);
    __u64 *n = bpf_map_lookup_elem(&lost, &at);
    if (n) // an interrupt on the same CPU may add as well
        __sync_fetch_and_add(n, 1);
}

// The two functions below are not static: the verifier checks them once, not on each path of each program.

// Takes one event from the sandbox's budget for this class. 0: the budget is used up, or other CPUs changed it four times
// in a row.
__noinline int emit_allowed(__u32 slot, __u32 generation, __u32 class)
{
    __u32 at = slot * EVENT_CLASSES + class;
    __u32 key = class;
    struct budget *b = bpf_map_lookup_elem(&budgets, &at);
    struct budget_rate *rate = bpf_map_lookup_elem(&budget_rates, &key);
    if (!b || !rate || rate->per_second == 0)
        return false;
    if (b->generation != generation) { // left by an earlier sandbox in this slot
        b->due_ns = 0;
        b->generation = generation;
    }
    __u64 now = bpf_ktime_get_ns();
    __u64 interval = 1000000000ULL / rate->per_second;
    __u64 ahead = rate->burst * interval;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __u64 due = *(volatile __u64 *)&b->due_ns;
        __u64 from = due > now ? due : now;
        if (from + interval > now + ahead)
            return false;
        if (__sync_val_compare_and_swap(&b->due_ns, due, from + interval) == due)
            return true;
    }
    return false;
}

static __always_inline bool emit_is_alert(__u32 class)
{
    return class == CLASS_DENIAL || class == CLASS_ALARM || class == CLASS_SYSCALL ||
           class == CLASS_PROFILE || class == CLASS_NEW || class == CLASS_RULED_NETWORK ||
           class == CLASS_RULED_CALL;
}

// 1 if the sandbox has not reported this event recently; marks it as reported.
__noinline int emit_is_first_of(__u32 slot, __u32 generation, __u64 what, __u32 part)
{
    __u64 now = bpf_ktime_get_ns();
    struct firsts *f = bpf_map_lookup_elem(&firsts, &slot);
    if (!f)
        return false;
    if (f->generation != generation || now - f->since_ns > FIRSTS_NS) {
        __builtin_memset(f->bits, 0, sizeof f->bits);
        f->generation = generation;
        f->since_ns = now;
    }
    __u64 hash = what * 0x9e3779b97f4a7c15ULL;
    __u64 bit = 1ULL << (hash >> 58);
    __u64 *word = &f->bits[(hash >> 54 & (FIRSTS_WORDS - 1)) +
                           (part == FIRSTS_CONNECTIONS ? FIRSTS_WORDS : 0)];
    return !(__sync_fetch_and_or(word, bit) & bit);
}

static __always_inline bool emit_is_first(__u32 slot, __u32 generation, __u64 what)
{
    return emit_is_first_of(slot, generation, what, FIRSTS_USUAL);
}

// Reserves an event with a body of `size` bytes (a constant) in its ring, and fills the header except for the process
// (packets have none). NULL: the event is lost and counted. Submit with bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP).
// `first`: the event needs no budget.
static __always_inline struct event *emit_reserve(const struct bpf_sandbox *box, __u64 cgroup,
                                                  __u32 kind, __u32 class, __u32 size, bool first)
{
    struct event *e = 0;
    if (!first && !emit_allowed(box->slot, box->generation, class))
        ;
    else if (emit_is_alert(class))
        e = bpf_ringbuf_reserve(&alerts, sizeof *e + size, 0);
    else
        e = bpf_ringbuf_reserve(&events, sizeof *e + size, 0);
    if (!e) {
        emit_lost(box->slot, class);
        return 0;
    }
    e->time_ns = bpf_ktime_get_boot_ns();
    e->cgroup = cgroup;
    e->slot = box->slot;
    e->generation = box->generation;
    e->pid = 0;
    e->tid = 0;
    e->kind = (__u16)kind;
    e->class = (__u16) class;
    e->size = size;
    __builtin_memset(e->comm, 0, sizeof e->comm);
    return e;
}

// Like emit_reserve(), and fills in the current process.
static __always_inline struct event *emit_begin(const struct bpf_sandbox *box, __u64 cgroup,
                                                __u32 kind, __u32 class, __u32 size, bool first)
{
    struct event *e = emit_reserve(box, cgroup, kind, class, size, first);
    if (!e)
        return 0;
    __u64 id = bpf_get_current_pid_tgid();
    e->pid = id >> 32;
    e->tid = (__u32)id;
    bpf_get_current_comm(e->comm, sizeof e->comm);
    return e;
}
#endif
