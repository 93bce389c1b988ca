// Events from the kernel: their head, classes, budgets and losses, for programs and for the broker.
//
// Two rings, neither of which wakes anybody per event: "alerts" for what has to be seen soon, "events" for the rest. The
// broker drains both every 10 ms. Each sandbox has a budget per class, so one sandbox, or one kind of noise, cannot
// silence another; what does not fit the budget or the ring is counted per sandbox, class and CPU in "lost".
#pragma once

#include "sandbox.h"

enum {
    EMIT_ALERTS_BYTES = 1 << 20,
    EMIT_EVENTS_BYTES = 4 << 20,
};

enum event_class {
    CLASS_DENIAL = 0,  // alerts
    CLASS_ALARM = 1,   // alerts: profile, dangerous, memfd, oom
    CLASS_PROCESS = 2, // exec, exit
    CLASS_FILE = 3,
    CLASS_NETWORK = 4,
    CLASS_SIGNAL = 5,
    EVENT_CLASSES = 8,
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
    EVENT_KINDS,
};

struct event {
    __u64 time_ns; // CLOCK_BOOTTIME
    __u64 cgroup;  // directly below the sandbox (guest, job-N), or the sandbox's own
    __u32 slot;
    __u32 generation;
    __u32 pid; // of the host
    __u32 tid;
    __u16 kind; // enum event_kind
    __u16 class;
    __u32 size; // of the body behind this head
    char comm[16];
};

// Map "budgets", ARRAY by slot * EVENT_CLASSES + class: a bucket of `burst` tokens that fills at `per_second`. Map
// "budget_rates", ARRAY by class, is written by the broker.
struct budget {
    __u64 filled_ns;
    __u64 tokens; // thousandths
};

struct budget_rate {
    __u32 per_second;
    __u32 burst;
};

#ifdef __bpf__
// The maps, one definition for all objects: the loader gives each object the same ones.
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
    __uint(max_entries, EVENT_CLASSES);
    __type(key, __u32);
    __type(value, struct budget_rate);
} budget_rates SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, BPF_SLOTS *EVENT_CLASSES);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, BPF_SLOTS * 2);
    __type(key, __u64);
    __type(value, struct bpf_sandbox);
} sandboxes SEC(".maps");

// Set by the loader before load: the level of the cgroup of a sandbox (the root of the hierarchy is 0).
const volatile __u32 sandbox_level = 2;

static __always_inline void emit_lost(__u32 at)
{
    __u64 *n = bpf_map_lookup_elem(&lost, &at);
    if (n)
        (*n)++;
}

// One token of the sandbox's budget for this class; false: counted as lost.
static __always_inline bool emit_allowed(__u32 slot, __u32 class)
{
    __u32 at = slot * EVENT_CLASSES + class;
    __u32 key = class;
    struct budget *b = bpf_map_lookup_elem(&budgets, &at);
    struct budget_rate *rate = bpf_map_lookup_elem(&budget_rates, &key);
    if (!b || !rate)
        return false;
    __u64 now = bpf_ktime_get_ns();
    __u64 full = (__u64)rate->burst * 1000;
    __u64 tokens = b->tokens;
    __u64 elapsed_us = (now - b->filled_ns) / 1000;
    if (elapsed_us > 1000000)
        tokens = full;
    else
        tokens += elapsed_us * rate->per_second / 1000;
    if (elapsed_us > 0)
        b->filled_ns = now;
    if (tokens > full)
        tokens = full;
    bool yes = tokens >= 1000;
    b->tokens = yes ? tokens - 1000 : tokens;
    if (!yes)
        emit_lost(at);
    return yes;
}

// Room for an event with a body of `size` (a constant) in its ring, the head filled; NULL: lost, and counted. Submit with
// bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP).
static __always_inline struct event *emit_begin(const struct bpf_sandbox *box, __u64 cgroup,
                                                __u32 kind, __u32 class, __u32 size)
{
    if (!emit_allowed(box->slot, class))
        return 0;
    struct event *e;
    if (class <= CLASS_ALARM)
        e = bpf_ringbuf_reserve(&alerts, sizeof *e + size, 0);
    else
        e = bpf_ringbuf_reserve(&events, sizeof *e + size, 0);
    if (!e) {
        emit_lost(box->slot * EVENT_CLASSES + class);
        return 0;
    }
    __u64 id = bpf_get_current_pid_tgid();
    e->time_ns = bpf_ktime_get_boot_ns();
    e->cgroup = cgroup;
    e->slot = box->slot;
    e->generation = box->generation;
    e->pid = id >> 32;
    e->tid = (__u32)id;
    e->kind = (__u16)kind;
    e->class = (__u16) class;
    e->size = size;
    bpf_get_current_comm(e->comm, sizeof e->comm);
    return e;
}
#endif
