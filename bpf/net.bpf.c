// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Network verdicts. The programs are attached once, to the cgroup that holds the sandboxes. net.h describes how a
// connection leaves a sandbox.
//
//   socket()        INET and INET6, TCP and UDP only, up to the sandbox's limit (net_count.h)
//   connect, sendto an allowed destination is rewritten to a flow of the relay; others get EPERM, are counted and reported
//   getpeername, recvfrom
//                   show the destination that the job passed to connect or sendto
//   bind            loopback addresses only, and not the relay's port
//   setsockopt      the options that ordinary programs set (net_options.h)
//   close           releases the flow and the count of the socket
//   packets         the boundary: a socket sends and receives only loopback packets without IP options, and reaches the
//                   relay only by a flow that the current policy allows. This also stops what the calls above missed.
//   sockops         notices when a TCP socket releases its flow, and when one listens
//   devices         terminals, and /dev/null and similar ones
//
// A sandbox without an entry in "sandboxes" is refused everything. user_family is ignored; the hook determines the
// protocol (bind and sendto accept AF_UNSPEC as AF_INET).
#include "vmlinux_min.h"

#include "net_count.h"
#include "net_flow.h"
#include "net_listen.h"
#include "net_options.h"
#include "net_packet.h"
#include "net_verdict.h"

enum { ENOBUFS = 105, TCP_CLOSE = 7, DENY = 0, ALLOW = 1 };

static __always_inline struct bpf_sandbox *current_box(void)
{
    return box_of(bpf_get_current_ancestor_cgroup_id((int)sandbox_level));
}

enum way { WAY_FULL = -3, WAY_DENIED = -2, WAY_DIRECT = -1 }; // other values: the number of a flow

// When a connected IPv6 socket with an IPv4 peer sends, the kernel calls the hook with the peer's address, which is
// already the flow's address.
static __always_inline bool goes_on(const struct bpf_sandbox *box, const struct target *t,
                                    __u32 hook)
{
    __u32 number;
    if (hook != NET_HOOK_SENDMSG || !flow_of(t, &number))
        return false;
    struct net_flow *f = flow_find(box, number);
    return f && flow_verdict(box, f, t->protocol) == NET_REASON_NONE;
}

// Decides where a connect or sendto goes.
static __always_inline int way_out(struct bpf_sandbox *box, const struct target *t, __u32 type,
                                   __u32 hook)
{
    __u32 number;
    __u32 rule = NO_RULE;
    __u32 index = 0;
    int reason;
    struct net_counters *n = counters_of(box);
    if (!n)
        return WAY_DENIED;
    bool inside = is_local(t) && t->port != NET_RELAY_PORT &&
                  !(t->port == NET_DNS_PORT && box->mode != NET_NONE && box->mode != NET_OFF);
    if (inside && hook == NET_HOOK_CONNECT && t->protocol == IPPROTO_TCP && sockets_full(box, n)) {
        report_denied(box, t, type, hook, NET_SOCKETS); // otherwise it would wait for its listener
        return WAY_DENIED;
    }
    if (inside || goes_on(box, t, hook))
        return WAY_DIRECT;
    if (flow_of(t, &number) || (is_local(t) && t->port == NET_RELAY_PORT))
        reason = NET_NO_RULE; // a job must not name a flow by its number
    else
        reason = policy_verdict(box, t, &rule, &index);
    bool probe = reason == NET_NO_RULE && hook == NET_HOOK_CONNECT && is_probe(box, t, index);
    if (probe)
        reason = NET_REASON_NONE;
    if (reason == NET_REASON_NONE && over_quota(box, n, 1))
        reason = NET_QUOTA;
    __u32 flow = reason == NET_REASON_NONE ? flow_make(box, t, hook == NET_HOOK_CONNECT) : NO_ENTRY;
    if (reason == NET_REASON_NONE && flow == NO_ENTRY)
        reason = NET_FULL;
    if (reason != NET_REASON_NONE) {
        __sync_fetch_and_add(&n->connects_denied, 1);
        report_denied(box, t, type, hook, (__u32)reason);
        return reason == NET_FULL ? WAY_FULL : WAY_DENIED;
    }
    if (probe || t->port == NET_DNS_PORT) // the relay replies to queries, counts and reports them
        return (int)(flow & NET_FLOW_V4_MASK);
    __sync_fetch_and_add(&n->connects_allowed, 1);
    report_connect(box, t, type, hook, rule, index);
    return (int)(flow & NET_FLOW_V4_MASK);
}

static __always_inline void target_v4(const struct bpf_sock_addr *ctx, struct target *t)
{
    set_v4(t, ctx->user_ip4);
    t->port = bpf_ntohs((__u16)ctx->user_port);
    t->protocol = (__u8)ctx->protocol;
}

static __always_inline void target_v6(const struct bpf_sock_addr *ctx, struct target *t)
{
    set_v6(t, ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]);
    t->port = bpf_ntohs((__u16)ctx->user_port);
    t->protocol = (__u8)ctx->protocol;
}

static __always_inline void write_v6(struct bpf_sock_addr *ctx, __u32 a, __u32 b, __u32 c, __u32 d)
{
    ctx->user_ip6[0] = a;
    ctx->user_ip6[1] = b;
    ctx->user_ip6[2] = c;
    ctx->user_ip6[3] = d;
}

// Stores the flow that the socket holds. False: the socket must not connect there.
static __always_inline bool settle(struct bpf_sock_addr *ctx, const struct bpf_sandbox *box,
                                   __u32 hook, int way)
{
    if (way == WAY_FULL)
        bpf_set_retval(-ENOBUFS); // ENOBUFS instead of a policy's EPERM: the program may try again
    if (way < WAY_DIRECT)
        return false;
    if (hook != NET_HOOK_CONNECT)
        return true;
    if (way >= 0)
        return socket_keep(box, ctx->sk, (__u32)way);
    struct net_socket *s = ctx->sk ? bpf_sk_storage_get(&net_sockets, ctx->sk, 0, 0) : 0;
    if (s)
        socket_let_go(s);
    return true;
}

static __always_inline int go_v4(struct bpf_sock_addr *ctx, __u32 hook)
{
    struct bpf_sandbox *box = current_box();
    struct target t = {0};
    if (!box)
        return DENY;
    target_v4(ctx, &t);
    int way = way_out(box, &t, ctx->type, hook);
    if (!settle(ctx, box, hook, way))
        return DENY;
    if (way >= 0) {
        ctx->user_ip4 = bpf_htonl(NET_FLOW_V4 | (__u32)way);
        ctx->user_port = bpf_htons(NET_RELAY_PORT);
    }
    return ALLOW;
}

static __always_inline int go_v6(struct bpf_sock_addr *ctx, __u32 hook)
{
    struct bpf_sandbox *box = current_box();
    struct target t = {0};
    if (!box)
        return DENY;
    target_v6(ctx, &t);
    int way = way_out(box, &t, ctx->type, hook);
    if (!settle(ctx, box, hook, way))
        return DENY;
    if (way < 0)
        return ALLOW;
    if (t.family == AF_INET)
        write_v6(ctx, 0, 0, bpf_htonl(0xffff), bpf_htonl(NET_FLOW_V4 | (__u32)way));
    else
        write_v6(ctx, flow_word(0), flow_word(1), 0, bpf_htonl((__u32)way));
    ctx->user_port = bpf_htons(NET_RELAY_PORT);
    return ALLOW;
}

SEC("cgroup/connect4")
int net_connect4(struct bpf_sock_addr *ctx)
{
    return go_v4(ctx, NET_HOOK_CONNECT);
}

SEC("cgroup/connect6")
int net_connect6(struct bpf_sock_addr *ctx)
{
    return go_v6(ctx, NET_HOOK_CONNECT);
}

SEC("cgroup/sendmsg4")
int net_sendmsg4(struct bpf_sock_addr *ctx)
{
    return go_v4(ctx, NET_HOOK_SENDMSG);
}

SEC("cgroup/sendmsg6")
int net_sendmsg6(struct bpf_sock_addr *ctx)
{
    return go_v6(ctx, NET_HOOK_SENDMSG);
}

// Shows the destination that the job named instead of the flow's address. These hooks cannot refuse.
static __always_inline int show_v4(struct bpf_sock_addr *ctx)
{
    struct bpf_sandbox *box = current_box();
    struct target t = {0};
    __u32 number;
    target_v4(ctx, &t);
    if (!box || !flow_of(&t, &number))
        return ALLOW;
    const struct net_flow *f = flow_find(box, number);
    if (f && f->family == AF_INET) {
        ctx->user_ip4 = ((const __u32 *)f->address)[3];
        ctx->user_port = bpf_htons(f->port);
    }
    return ALLOW;
}

static __always_inline int show_v6(struct bpf_sock_addr *ctx)
{
    struct bpf_sandbox *box = current_box();
    struct target t = {0};
    __u32 number;
    target_v6(ctx, &t);
    if (!box || !flow_of(&t, &number))
        return ALLOW;
    const struct net_flow *f = flow_find(box, number);
    if (f && f->family == t.family) {
        const __u32 *a = (const __u32 *)f->address;
        write_v6(ctx, a[0], a[1], a[2], a[3]);
        ctx->user_port = bpf_htons(f->port);
    }
    return ALLOW;
}

SEC("cgroup/getpeername4")
int net_getpeername4(struct bpf_sock_addr *ctx)
{
    return show_v4(ctx);
}

SEC("cgroup/getpeername6")
int net_getpeername6(struct bpf_sock_addr *ctx)
{
    return show_v6(ctx);
}

SEC("cgroup/recvmsg4")
int net_recvmsg4(struct bpf_sock_addr *ctx)
{
    return show_v4(ctx);
}

SEC("cgroup/recvmsg6")
int net_recvmsg6(struct bpf_sock_addr *ctx)
{
    return show_v6(ctx);
}

static __always_inline int may_bind(const struct bpf_sock_addr *ctx, const struct target *t)
{
    struct bpf_sandbox *box = current_box();
    if (!box)
        return DENY;
    if (is_local(t) && t->port != NET_RELAY_PORT)
        return ALLOW;
    report_denied(box, t, ctx->type, NET_HOOK_BIND, NET_BIND);
    return DENY;
}

SEC("cgroup/bind4")
int net_bind4(struct bpf_sock_addr *ctx)
{
    struct target t = {0};
    target_v4(ctx, &t);
    return may_bind(ctx, &t);
}

SEC("cgroup/bind6")
int net_bind6(struct bpf_sock_addr *ctx)
{
    struct target t = {0};
    target_v6(ctx, &t);
    return may_bind(ctx, &t);
}

SEC("cgroup/sock_create")
int net_socket(struct bpf_sock *ctx)
{
    struct bpf_sandbox *box = current_box();
    bool inet = ctx->family == AF_INET || ctx->family == AF_INET6;
    bool tcp = ctx->type == SOCK_STREAM && ctx->protocol == IPPROTO_TCP;
    bool udp = ctx->type == SOCK_DGRAM && ctx->protocol == IPPROTO_UDP;
    if (!box)
        return DENY;
    bool known = inet && (tcp || udp) && box->mode != NET_OFF;
    if (known && socket_made(ctx, box))
        return ALLOW;
    struct target t = {.protocol = (__u8)ctx->protocol, .family = (__u8)ctx->family};
    report_denied(box, &t, ctx->type, NET_HOOK_SOCKET, known ? NET_SOCKETS : NET_SOCKET_TYPE);
    return DENY;
}

// close(): no descriptor of the socket is left. A TCP socket may still send queued data.
SEC("cgroup/sock_release")
int net_release(struct bpf_sock *ctx)
{
    struct net_socket *s = bpf_sk_storage_get(&net_sockets, ctx, 0, 0);
    if (s && !s->counted)
        socket_let_go(s);
    socket_uncount(bpf_sk_storage_get(&socket_counts, ctx, 0, 0), COUNTED_MADE);
    return ALLOW;
}

SEC("cgroup/setsockopt")
int net_setsockopt(struct bpf_sockopt *ctx)
{
    struct bpf_sandbox *box = current_box();
    if (!box)
        return DENY;
    if (!option_allowed(ctx->level, (__u32)ctx->optname)) {
        // The address field of the event holds the level and the number of the option.
        struct target t = {.ip = {bpf_htonl((__u32)ctx->level), bpf_htonl((__u32)ctx->optname)}};
        report_denied(box, &t, 0, NET_HOOK_OPTION, NET_OPTION);
        return DENY;
    }
    option_pass(ctx);
    return ALLOW;
}

static __always_inline int packet(struct __sk_buff *skb, bool out)
{
    struct bpf_sandbox *box = box_of(bpf_skb_ancestor_cgroup_id(skb, (int)sandbox_level));
    struct packet p = {0};
    if (!box)
        return DENY;
    struct net_counters *n = counters_of(box);
    if (!n)
        return DENY;
    read_packet(skb, out, &p);
    int reason = p.opens && !out && sockets_full(box, n) ? NET_SOCKETS
                                                         : packet_verdict(skb, box, n, &p, out);
    if (reason == NET_REASON_NONE)
        return ALLOW;
    count_denied(box, (__u32)reason);
    __u64 cgroup = bpf_skb_ancestor_cgroup_id(skb, (int)sandbox_level + 1);
    __u32 hook = out ? NET_HOOK_EGRESS : NET_HOOK_INGRESS;
    bool first = is_first_refusal(box, &p.peer, 0, hook, (__u32)reason);
    struct event *e =
        emit_reserve(box, cgroup, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event), first);
    if (e) {
        fill(e, &p.peer, 0, hook, (__u32)reason, NO_RULE, 0);
        bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    }
    return DENY;
}

SEC("cgroup_skb/egress")
int net_egress(struct __sk_buff *skb)
{
    return packet(skb, true);
}

SEC("cgroup_skb/ingress")
int net_ingress(struct __sk_buff *skb)
{
    return packet(skb, false);
}

SEC("sockops")
int net_sockops(struct bpf_sock_ops *ctx)
{
    __u32 op = ctx->op;
    bool taken = op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
    if (op == BPF_SOCK_OPS_TCP_LISTEN_CB && ctx->sk)
        socket_listens(ctx, ctx->sk);
    if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_STATE_CB && !taken)
        return 1;
    struct bpf_sock *sk = ctx->sk;
    if (sk && taken)
        socket_taken(ctx, sk);
    else if (sk && op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == TCP_CLOSE)
        socket_uncount(bpf_sk_storage_get(&socket_counts, sk, 0, 0), COUNTED_TAKEN);
    struct net_socket *s = sk ? bpf_sk_storage_get(&net_sockets, sk, 0, 0) : 0;
    if (!s || (!s->held && !s->counted))
        return 1;
    struct bpf_sandbox *box = box_of(s->cgroup);
    struct net_counters *n = box ? counters_of(box) : 0;
    if (op == BPF_SOCK_OPS_STATE_CB) {
        if (ctx->args[1] != TCP_CLOSE || !s->counted)
            return 1;
        s->counted = 0;
        socket_let_go(s);
        if (n)
            __sync_fetch_and_add(&n->sockets, -1);
        return 1;
    }
    if (!n)
        return 1;
    if (op == BPF_SOCK_OPS_TCP_CONNECT_CB && !s->counted) {
        if (bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG)) {
            failed(box);
            return 1;
        }
        s->counted = 1;
        __sync_fetch_and_add(&n->sockets, 1);
    }
    return 1;
}

SEC("cgroup/dev")
int net_device(struct bpf_cgroup_dev_ctx *ctx)
{
    __u32 major = ctx->major;
    __u32 minor = ctx->minor;
    bool memory =
        major == 1 && (minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9);
    bool terminal = (major == 5 && (minor == 0 || minor == 2)) || (major >= 136 && major <= 143);
    if ((ctx->access_type & 0xffff) == BPF_DEVCG_DEV_CHAR && (memory || terminal))
        return ALLOW;
    struct bpf_sandbox *box = current_box();
    struct target t = {.ip = {bpf_htonl(major), bpf_htonl(minor)}};
    if (box)
        report_denied(box, &t, 0, NET_HOOK_DEVICE, NET_DEVICE);
    return DENY;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
