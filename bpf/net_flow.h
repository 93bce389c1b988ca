// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Flows of net.bpf.c: the numbers that stand for destinations, and the sockets that hold them. net.h says when a
// number is used again.
//
//   connect                 holds the flow for the socket (struct net_socket)
//   connect elsewhere, close of the socket
//                           releases it; a TCP socket that has started to connect releases it in TCP_CLOSE, because it may
//                           send for a while after close()
//   sendmsg without connect holds it for NET_FLOW_LOOSE_MS from the last datagram in either direction
#pragma once

#include "net_verdict.h"

enum { NS_PER_MS = 1000000, LOOSE_STEP_NS = 1000000000 };

// The flow to a destination, so that sockets can share it. Other sandboxes may push out an entry: then two flows lead
// to one destination, which is harmless.
struct flow_number_key {
    __u32 slot;
    __u32 generation;
    struct target target;
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, NET_FLOW_NUMBERS);
    __type(key, struct flow_number_key);
    __type(value, __u32);
} flow_numbers SEC(".maps");

// The flow that a socket holds, and the sandbox of the socket for sockops hooks, which cannot ask for the cgroup.
struct net_socket {
    __u64 cgroup; // the sandbox's
    __u32 slot, generation;
    __u32 number; // of the flow
    __u32 zero;
    __u8 held;
    __u8 counted; // TCP, from SYN_SENT on: sockops reports its end
    __u8 begun;   // TCP, from the first SYN ACK on
    __u8 zeros[5];
    // TCP: the sequence numbers behind the last payload that was sent, acknowledged and received
    __u32 sent, acknowledged, received;
    __u32 zero2;
};
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct net_socket);
} net_sockets SEC(".maps");

static __always_inline struct net_flow *flow_at(__u32 slot, __u32 generation, __u32 number)
{
    struct net_flow_key key = {.slot = slot, .entry = NET_FLOW_ENTRY(number)};
    struct net_flow *f = bpf_map_lookup_elem(&flows, &key);
    return f && f->generation == generation && f->number == number ? f : 0;
}

static __always_inline struct net_flow *flow_find(const struct bpf_sandbox *box, __u32 number)
{
    return flow_at(box->slot, box->generation, number);
}

// Whether an existing flow is still allowed. Checked again after a change of the policy; for names each time, because
// the relay adds and removes them.
static __always_inline int flow_verdict(const struct bpf_sandbox *box, struct net_flow *f,
                                        __u8 protocol)
{
    struct target t = {.port = f->port, .protocol = f->protocol, .family = f->family};
    __u32 rule = NO_RULE;
    __u32 index = 0;
    if (f->protocol != protocol)
        return NET_PACKET;
    __builtin_memcpy(t.ip, f->address, sizeof t.ip);
    if (f->rule_set == box->rule_set && f->mode == box->mode && !synthetic(&t, &index))
        return NET_REASON_NONE;
    int reason = policy_verdict(box, &t, &rule, &index);
    if (reason == NET_REASON_NONE) {
        f->rule_set = box->rule_set;
        f->mode = box->mode;
    }
    return reason;
}

// Notes a packet of the flow.
static __always_inline void flow_used(struct net_flow *f)
{
    if (f->loose_ns == 0)
        return;
    __u64 now = bpf_ktime_get_coarse_ns();
    if (now - f->loose_ns >= LOOSE_STEP_NS)
        f->loose_ns = now;
}

static __always_inline void fill_user(struct net_user *u)
{
    u->cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level + 1);
    u->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(u->comm, sizeof u->comm);
}

static __always_inline bool same_target(const struct net_flow *f, const struct target *t)
{
    const __u32 *a = (const __u32 *)f->address;
    return a[0] == t->ip[0] && a[1] == t->ip[1] && a[2] == t->ip[2] && a[3] == t->ip[3] &&
           f->port == t->port && f->protocol == t->protocol;
}

// For a socket that connects, or sends without connecting. False: the entry is being given to another flow.
static __always_inline bool flow_hold(struct net_flow *f, bool connects)
{
    if (!connects) {
        f->loose_ns = bpf_ktime_get_coarse_ns();
        return !(*(volatile __u32 *)&f->holders & NET_FLOW_TAKEN);
    }
    return !(__sync_fetch_and_add(&f->holders, 1) & NET_FLOW_TAKEN);
}

static __always_inline void flow_let_go(__u32 slot, __u32 generation, __u32 number)
{
    struct net_flow *f = flow_at(slot, generation, number);
    if (f)
        __sync_fetch_and_add(&f->holders, -1);
}

enum { NO_ENTRY = 0xffffffff };

struct entry_search {
    __u64 now;
    __u32 slot, generation;
    __u32 from;
    __u32 number; // found; NO_ENTRY
    bool empty;   // the entry was empty
};

// Takes the entry if no socket holds it.
static long entry_check(__u32 i, struct entry_search *s)
{
    struct net_flow_key key = {.slot = s->slot, .entry = NET_FLOW_ENTRY(s->from + i)};
    struct net_flow *f = bpf_map_lookup_elem(&flows, &key);
    if (!f) {
        s->number = key.entry;
        s->empty = true;
        return 1;
    }
    __u32 holders = f->holders;
    if (f->generation == s->generation) {
        if (holders != 0 ||
            (f->loose_ns != 0 && s->now - f->loose_ns < (__u64)NET_FLOW_LOOSE_MS * NS_PER_MS))
            return 0;
    } else if (holders & NET_FLOW_TAKEN) {
        return 0;
    }
    if (__sync_val_compare_and_swap(&f->holders, holders, NET_FLOW_TAKEN) != holders)
        return 0;
    s->number = (f->number + NET_FLOWS_PER_SLOT) & NET_FLOW_V4_MASK;
    s->empty = false;
    return 1;
}

// A number for a new flow; NO_ENTRY: all entries are in use.
static __always_inline __u32 entry_take(const struct bpf_sandbox *box, struct net_counters *n,
                                        bool *empty)
{
    struct entry_search s = {.now = bpf_ktime_get_coarse_ns(),
                             .slot = box->slot,
                             .generation = box->generation,
                             .from = __sync_fetch_and_add(&n->flows, 1),
                             .number = NO_ENTRY};
    long looked = bpf_loop(NET_FLOWS_PER_SLOT, entry_check, &s, 0);
    if (looked > 1) // the next search begins after the entries that this one found in use
        __sync_fetch_and_add(&n->flows, (__u32)looked - 1);
    *empty = s.empty;
    return s.number;
}

static __always_inline bool flow_put(const struct bpf_sandbox *box, const struct target *t,
                                     __u32 number, bool empty, bool connects)
{
    struct net_flow_key at = {.slot = box->slot, .entry = NET_FLOW_ENTRY(number)};
    struct net_flow f = {.port = t->port,
                         .protocol = t->protocol,
                         .family = t->family,
                         .generation = box->generation,
                         .rule_set = box->rule_set,
                         .mode = box->mode,
                         .number = number,
                         .holders = connects,
                         .loose_ns = connects ? 0 : bpf_ktime_get_coarse_ns()};
    __builtin_memcpy(f.address, t->ip, sizeof f.address);
    fill_user(&f.user);
    // Not "< 0": before Linux 6.4 the upper half of these helpers' results is zero.
    if (bpf_map_update_elem(&flows, &at, &f, empty ? BPF_NOEXIST : BPF_ANY) == 0)
        return true;
    struct net_flow *taken = empty ? 0 : bpf_map_lookup_elem(&flows, &at);
    if (taken)
        taken->holders = 0;
    return false;
}

enum { TAKEN_BY_ANOTHER = 0xfffffffe };

// A new flow in a free entry; TAKEN_BY_ANOTHER: another CPU was faster. Global, like the next, so the verifier checks it once in each
// program.
__noinline __u32 flow_new(const struct bpf_sandbox *box, const struct target *t, __u32 connects)
{
    struct net_counters *n = box ? counters_of(box) : 0;
    bool empty;
    if (!n || !t)
        return NO_ENTRY;
    __u32 number = entry_take(box, n, &empty);
    if (number == NO_ENTRY)
        return NO_ENTRY;
    return flow_put(box, t, number, empty, connects != 0) ? number : TAKEN_BY_ANOTHER;
}

// The number of the flow to a destination, held for a socket that connects to it. Makes the flow if there is none.
// NO_ENTRY: all entries are in use, or the map is full. If two CPUs make a flow to one destination, later sockets use
// the second one.
__noinline __u32 flow_make(const struct bpf_sandbox *box, const struct target *t, bool connects)
{
    if (!box || !t)
        return NO_ENTRY;
    struct flow_number_key key = {.slot = box->slot, .generation = box->generation, .target = *t};
    __u32 *known = bpf_map_lookup_elem(&flow_numbers, &key);
    if (known) {
        __u32 number = *known;
        struct net_flow *f = flow_find(box, number);
        if (f && same_target(f, t) && flow_hold(f, connects)) {
            fill_user(&f->user);
            return number;
        }
    }
    for (int i = 0; i < 4; i++) { // another CPU may take the same empty entry
        __u32 number = flow_new(box, t, connects);
        if (number == TAKEN_BY_ANOTHER)
            continue;
        if (number != NO_ENTRY && bpf_map_update_elem(&flow_numbers, &key, &number, BPF_ANY) != 0)
            failed(box);
        return number;
    }
    failed(box);
    return NO_ENTRY;
}

static __always_inline void socket_let_go(struct net_socket *s)
{
    if (!s->held)
        return;
    s->held = 0;
    flow_let_go(s->slot, s->generation, s->number);
}

// Connects the socket to the flow and holds the flow for it. False: no memory.
static __always_inline bool socket_keep(const struct bpf_sandbox *box, struct bpf_sock *sk,
                                        __u32 number)
{
    struct net_socket *s =
        sk ? bpf_sk_storage_get(&net_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : 0;
    if (!s) {
        flow_let_go(box->slot, box->generation, number);
        failed(box);
        return false;
    }
    socket_let_go(s);
    s->cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level);
    s->slot = box->slot;
    s->generation = box->generation;
    s->number = number;
    s->held = 1;
    return true;
}
