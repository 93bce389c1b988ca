// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For net.bpf.c: detects a TCP socket of a job that listens on an address other than loopback. Inside a sandbox these
// are only 0.0.0.0 and ::, and nobody outside can reach them; but the attempt says something about the program.
#pragma once

#include "net_count.h"

enum { TCP = 6 };

// 127.0.0.0/8, also v4-mapped, and ::1.
static __always_inline bool is_loopback(const struct target *t)
{
    if (t->family == AF_INET)
        return bpf_ntohl(t->ip[3]) >> 24 == 127;
    return t->ip[0] == 0 && t->ip[1] == 0 && t->ip[2] == 0 && bpf_ntohl(t->ip[3]) == 1;
}

static __always_inline void report_listen(const struct bpf_sandbox *box, const struct target *t)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct cgroup *at = BPF_CORE_READ(task, cgroups, dfl_cgrp);
    __u64 cgroup = ancestor_id(at, sandbox_level + 1);
    bool first = emit_is_first(box->slot, box->generation,
                               cgroup << 32 ^ (__u64)t->port << 8 ^ NET_HOOK_LISTEN);
    struct event *e =
        emit_reserve(box, cgroup, EVENT_LISTEN, CLASS_NETWORK, sizeof(struct net_event), first);
    if (!e)
        return;
    e->pid = (__u32)BPF_CORE_READ(task, tgid);
    e->tid = (__u32)BPF_CORE_READ(task, pid);
    (void)BPF_CORE_READ_INTO(&e->comm, task, comm);
    fill(e, t, SOCK_STREAM, NET_HOOK_LISTEN, NET_REASON_NONE, NO_RULE, 0);
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

// listen(2) has succeeded.
static __always_inline void socket_listens(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
    struct socket_count *c = bpf_sk_storage_get(&socket_counts, sk, 0, 0);
    struct bpf_sandbox *box = c ? box_of(c->cgroup) : 0;
    struct net_counters *n = box ? counters_of(box) : 0;
    struct target t = {.protocol = TCP, .port = (__u16)ctx->local_port};
    if (!n)
        return;
    if (ctx->family == AF_INET)
        set_v4(&t, ctx->local_ip4);
    else
        set_v6(&t, ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3]);
    if (is_loopback(&t))
        return;
    __sync_fetch_and_add(&n->listens, 1);
    report_listen(box, &t);
}
