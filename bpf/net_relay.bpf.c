// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Limits what the relay itself can reach. The programs are attached to the cgroup of the relay, which contains no
// other process. The relay parses data from strangers, so it may be compromised. Even then it can connect only to
// public addresses and to those loopback, link-local, metadata, private and own addresses of the host that a current
// rule of a sandbox, or the configuration of the name servers, names with their port (map "named").
//
//   socket()  INET and INET6, TCP and UDP only
//   packets   of a connected socket: judged by the address it is connected to, because NAT on the host may have changed the
//             packet; others: by the packet's destination. Packets over loopback go to the host itself.
#include "vmlinux_min.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "net.h"
#include "net_ranges.h"

enum {
    AF_INET = 2,
    AF_INET6 = 10,
    SOCK_STREAM = 1,
    SOCK_DGRAM = 2,
    IPPROTO_TCP = 6,
    IPPROTO_UDP = 17,
    LOOPBACK_IFINDEX = 1, // in every network namespace (include/net/flow.h)
    NESTED = 16,          // enclosing prefixes that are tried
    DENY = 0,
    ALLOW = 1,
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, NET_NAMED);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct net_named_key);
    __type(value, struct net_named_ports);
} named SEC(".maps");

struct goal {
    struct net_words to;
    __u16 port; // host order
    __u8 protocol;
};

// Global functions, so the verifier checks their many paths once.
__noinline __u32 relay_special_bits(__u32 a, __u32 b, __u32 c, __u32 d)
{
    return net_range_bits_of((struct net_words){{a, b, c, d}}, 0, 128);
}

__noinline __u32 relay_local_bits(__u32 a, __u32 b, __u32 c, __u32 d)
{
    struct net_words w = {{a, b, c, d}};
    return net_range_bits_of(w, NET_LOCAL, 128) + net_range_bits_of(w, NET_METADATA, 128);
}

__noinline int relay_port_named(const struct net_named_ports *n, __u32 port, __u32 protocol)
{
    if (!n)
        return false;
    for (__u32 i = 0; i < NET_NAMED_PORTS; i++) {
        const struct net_ports *p = &n->ports[i];
        if (i < n->n && port >= p->first && port <= p->last &&
            (p->protocol == 0 || p->protocol == protocol))
            return true;
    }
    return n->n == 0;
}

// Whether a rule of at least `bits` names the address.
static __always_inline bool is_named(const struct net_words *to, const struct goal *g, __u32 bits)
{
    struct net_named_key key = {.prefixlen = 128};
    for (int i = 0; i < 4; i++)
        ((__u32 *)key.address)[i] = bpf_htonl(to->w[i]);
    for (int i = 0; i < NESTED; i++) {
        const struct net_named_ports *n = bpf_map_lookup_elem(&named, &key);
        if (!n || n->bits < bits || n->bits > 128)
            return false;
        if (relay_port_named(n, g->port, g->protocol))
            return true;
        key.prefixlen = n->bits - 1; // the next shorter prefix
    }
    return false;
}

static __always_inline bool read_packet(struct __sk_buff *skb, struct goal *g)
{
    __u32 at = 40;
    __be32 ip[4];
    __be16 port = 0;
    if (skb->protocol == bpf_htons(0x0800)) {
        __u8 first;
        if (bpf_skb_load_bytes(skb, 16, &ip[3], 4) < 0 ||
            bpf_skb_load_bytes(skb, 0, &first, 1) < 0 ||
            bpf_skb_load_bytes(skb, 9, &g->protocol, 1) < 0)
            return false;
        g->to = (struct net_words){{0, 0, 0xffff, bpf_ntohl(ip[3])}};
        at = (first & 15) * 4;
    } else {
        if (skb->protocol != bpf_htons(0x86dd) || bpf_skb_load_bytes(skb, 24, ip, sizeof ip) < 0 ||
            bpf_skb_load_bytes(skb, 6, &g->protocol, 1) < 0)
            return false;
        for (int i = 0; i < 4; i++)
            g->to.w[i] = bpf_ntohl(ip[i]);
    }
    if (bpf_skb_load_bytes(skb, at + 2, &port, sizeof port) < 0)
        return false;
    g->port = bpf_ntohs(port);
    return true;
}

// Reads the address that the socket is connected to. False: it is not connected.
static __always_inline bool read_peer(struct __sk_buff *skb, struct goal *g)
{
    struct bpf_sock *sk = skb->sk;
    if (!sk)
        return false;
    sk = bpf_sk_fullsock(sk);
    if (!sk || sk->dst_port == 0)
        return false;
    // Volatile: the verifier requires a separate load with a constant offset for each field.
    const volatile struct bpf_sock *at = sk;
    __u32 v4 = at->dst_ip4;
    __u32 a = at->dst_ip6[0];
    __u32 b = at->dst_ip6[1];
    __u32 c = at->dst_ip6[2];
    __u32 d = at->dst_ip6[3];
    if (at->family == AF_INET)
        g->to = (struct net_words){{0, 0, 0xffff, bpf_ntohl(v4)}};
    else
        g->to = (struct net_words){{bpf_ntohl(a), bpf_ntohl(b), bpf_ntohl(c), bpf_ntohl(d)}};
    g->port = bpf_ntohs(sk->dst_port);
    g->protocol = (__u8)sk->protocol;
    return true;
}

SEC("cgroup_skb/egress")
int relay_egress(struct __sk_buff *skb)
{
    const struct net_words host = {{0, 0, 0, 0}}; // the entry of "host"
    struct goal packet = {0};
    struct goal g = {0};
    if (!read_packet(skb, &packet))
        return DENY;
    if (!read_peer(skb, &g))
        g = packet;
    bool same = g.to.w[0] == packet.to.w[0] && g.to.w[1] == packet.to.w[1] &&
                g.to.w[2] == packet.to.w[2] && g.to.w[3] == packet.to.w[3];
    bool own = same && skb->ifindex == LOOPBACK_IFINDEX;
    __u32 bits = 128;
    if (!own)
        bits = relay_special_bits(g.to.w[0], g.to.w[1], g.to.w[2], g.to.w[3]);
    if (bits == 0 || is_named(&g.to, &g, bits))
        return ALLOW;
    if (own && relay_local_bits(g.to.w[0], g.to.w[1], g.to.w[2], g.to.w[3]) == 0 &&
        is_named(&host, &g, 128))
        return ALLOW;
    return DENY;
}

SEC("cgroup/sock_create")
int relay_socket(struct bpf_sock *ctx)
{
    bool tcp = ctx->type == SOCK_STREAM && ctx->protocol == IPPROTO_TCP;
    bool udp = ctx->type == SOCK_DGRAM && ctx->protocol == IPPROTO_UDP;
    return (ctx->family == AF_INET || ctx->family == AF_INET6) && (tcp || udp) ? ALLOW : DENY;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
