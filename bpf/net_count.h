// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts the INET sockets of a sandbox: those that it made (sock_create to sock_release), and the connections to its
// listeners, accepted or not (until they close). A socket also has a queue of errors and corked datagrams, which no
// memory limit counts; the number of sockets bounds them.
#pragma once

#include "net_verdict.h"

struct socket_count {
    __u64 cgroup; // the sandbox's: hooks of sockops cannot ask for it
    __u32 as;     // enum counted: whether net_counters.held includes it
    __u32 zero;
};
enum counted { COUNTED_NOT, COUNTED_MADE, COUNTED_TAKEN };

// A connection to a listener gets a copy of the listener's entry (BPF_F_CLONE).
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
    __type(key, int);
    __type(value, struct socket_count);
} socket_counts SEC(".maps");

static __always_inline bool sockets_full(const struct bpf_sandbox *box,
                                         const struct net_counters *n)
{
    return box->sockets_max != 0 && n->held >= box->sockets_max;
}

// At socket(2). False: the limit is reached, or the socket cannot be counted.
static __always_inline bool socket_made(struct bpf_sock *ctx, const struct bpf_sandbox *box)
{
    struct net_counters *n = counters_of(box);
    if (!n)
        return false;
    __u32 before = __sync_fetch_and_add(&n->held, 1);
    bool fits = box->sockets_max == 0 || before < box->sockets_max;
    struct socket_count *c =
        fits ? bpf_sk_storage_get(&socket_counts, ctx, 0, BPF_SK_STORAGE_GET_F_CREATE) : 0;
    if (c) {
        c->cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level);
        c->as = COUNTED_MADE;
        return true;
    }
    __sync_fetch_and_add(&n->held, -1);
    if (fits)
        failed(box);
    return false;
}

// If the sandbox no longer exists, there is nothing to count. Cgroup ids are not used again.
static __always_inline void socket_uncount(struct socket_count *c, __u32 as)
{
    if (!c || c->as != as)
        return;
    c->as = COUNTED_NOT;
    struct bpf_sandbox *box = box_of(c->cgroup);
    struct net_counters *n = box ? counters_of(box) : 0;
    if (n)
        __sync_fetch_and_add(&n->held, -1);
}

// Counts a connection that a listener took. It is counted until the connection closes, because it may never get a
// descriptor.
static __always_inline void socket_taken(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
    struct socket_count *c = bpf_sk_storage_get(&socket_counts, sk, 0, 0);
    struct bpf_sandbox *box = c ? box_of(c->cgroup) : 0;
    struct net_counters *n = box ? counters_of(box) : 0;
    if (!c)
        return;
    c->as = COUNTED_NOT; // the copy has the listener's value
    if (!n)
        return;
    if (bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG)) {
        failed(box);
        return;
    }
    c->as = COUNTED_TAKEN;
    __sync_fetch_and_add(&n->held, 1);
}
