// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Packets for net.bpf.c: reads the other end from a packet, and decides whether it may pass.
#pragma once

#include "net_flow.h"

enum { IPPROTO_TCP = 6, IPPROTO_UDP = 17, UDP_HEADER = 8, QUOTA_SLACK = 4194304 };

// The other end, as the packet's headers say.
struct packet {
    struct target peer;
    __u32 payload;
    bool plain; // a complete TCP or UDP header directly after an IP header without options
    bool reset;
    bool bare;                    // TCP: only an acknowledgement
    bool opens;                   // TCP: the first packet of a connection
    bool takes;                   // TCP: the answer to it
    __u32 sequence, acknowledged; // TCP
};

static __always_inline __u32 big_endian(const __u8 *bytes)
{
    return (__u32)bytes[0] << 24 | (__u32)bytes[1] << 16 | (__u32)bytes[2] << 8 | bytes[3];
}

static __always_inline void read_ports(struct __sk_buff *skb, __u32 at, bool out, struct packet *p)
{
    __be16 ports[2];
    __u8 h[10]; // TCP: sequence number, acknowledgement, the header's length, flags
    if (bpf_skb_load_bytes(skb, at, ports, sizeof ports) < 0)
        return;
    p->peer.port = bpf_ntohs(out ? ports[1] : ports[0]);
    p->plain = p->peer.protocol == IPPROTO_UDP;
    __u32 headers = at + UDP_HEADER;
    if (p->peer.protocol == IPPROTO_TCP && bpf_skb_load_bytes(skb, at + 4, h, sizeof h) == 0) {
        p->plain = true;
        p->sequence = big_endian(h);
        p->acknowledged = big_endian(h + 4);
        p->reset = (h[9] & 4) != 0;
        p->opens = (h[9] & 0x12) == 2; // SYN without ACK
        p->takes = (h[9] & 0x12) == 0x12;
        headers = at + (h[8] >> 4) * 4;
        p->bare = h[9] == 0x10 && skb->len == headers;
    }
    p->payload = skb->len > headers ? skb->len - headers : 0;
}

static __always_inline void read_packet(struct __sk_buff *skb, bool out, struct packet *p)
{
    if (skb->protocol == bpf_htons(0x0800)) {
        __u8 h[20];
        __u32 ip[2];
        if (bpf_skb_load_bytes(skb, 0, h, sizeof h) < 0)
            return;
        __builtin_memcpy(ip, h + 12, sizeof ip);
        set_v4(&p->peer, out ? ip[1] : ip[0]);
        p->peer.protocol = h[9];
        bool fragment = (h[6] & 0x3f) != 0 || h[7] != 0; // MF or an offset
        if (h[0] == 0x45 && !fragment)
            read_ports(skb, sizeof h, out, p);
        return;
    }
    __u32 ip[4];
    __u8 next;
    if (skb->protocol != bpf_htons(0x86dd) || bpf_skb_load_bytes(skb, 6, &next, 1) < 0 ||
        bpf_skb_load_bytes(skb, out ? 24 : 8, ip, sizeof ip) < 0)
        return;
    set_v6(&p->peer, ip[0], ip[1], ip[2], ip[3]);
    p->peer.protocol = next;
    read_ports(skb, 40, out, p);
}

static __always_inline bool over_quota(const struct bpf_sandbox *box, const struct net_counters *n,
                                       __u32 len)
{
    // The relay counts the bytes that it sends and cuts at the quota. This counts the bytes that jobs send, including
    // retransmitted and still buffered ones, so it allows some more.
    __u64 most = box->egress_bytes_max;
    return most != 0 && len != 0 && n->out_bytes + len > most + most / 4 + QUOTA_SLACK;
}

// Adds how far `to` is beyond *at, which it becomes. Another CPU may have a packet of the same socket.
static __always_inline void advance(__u32 *at, __u32 to, __u64 *sum, struct net_counters *n)
{
    for (int i = 0; i < 4; i++) {
        __u32 before = *(volatile __u32 *)at;
        __s32 more = (__s32)(to - before);
        if (more <= 0)
            return;
        if (__sync_val_compare_and_swap(at, before, to) == before) {
            __sync_fetch_and_add(sum, (__u64)(__u32)more);
            return;
        }
    }
    __sync_fetch_and_add(&n->failures, 1);
}

// Counts the payload of a packet that passes. A SYN begins the numbers, also when it is repeated.
static __always_inline void witness_tcp(struct net_socket *s, struct net_counters *n,
                                        const struct packet *p, bool out)
{
    if (p->reset)
        __sync_fetch_and_add(&n->resets, 1);
    if (out && p->opens) {
        s->sent = p->sequence + 1;
        s->acknowledged = p->sequence + 1;
        s->begun = 0;
    } else if (!out && p->takes && !s->begun) {
        s->received = p->sequence + 1;
        s->begun = 1;
        __sync_fetch_and_add(&n->connections, 1);
    } else if (out && p->payload) {
        advance(&s->sent, p->sequence + p->payload, &n->tcp_sent, n);
    } else if (!out && s->begun) {
        // a FIN has a number as well, but is no payload
        __u32 sent = *(volatile __u32 *)&s->sent;
        __u32 to = (__s32)(p->acknowledged - sent) > 0 ? sent : p->acknowledged;
        advance(&s->acknowledged, to, &n->tcp_acknowledged, n);
        if (p->payload)
            advance(&s->received, p->sequence + p->payload, &n->tcp_received, n);
    }
}

static __always_inline void witness(struct __sk_buff *skb, struct net_counters *n,
                                    const struct packet *p, bool out)
{
    if (p->peer.protocol == IPPROTO_UDP) {
        __sync_fetch_and_add(out ? &n->udp_sent : &n->udp_received, p->payload);
        return;
    }
    struct bpf_sock *sk = skb->sk;
    if (sk)
        sk = bpf_sk_fullsock(sk);
    struct net_socket *s = sk ? bpf_sk_storage_get(&net_sockets, sk, 0, 0) : 0;
    if (s)
        witness_tcp(s, n, p, out);
    else if (p->payload)
        __sync_fetch_and_add(&n->failures, 1);
}

static __always_inline int packet_verdict(struct __sk_buff *skb, const struct bpf_sandbox *box,
                                          struct net_counters *n, const struct packet *p, bool out)
{
    __u32 number;
    __u32 packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
    if (!p->plain)
        return NET_PACKET;
    if (!flow_of(&p->peer, &number)) {
        if (!is_local(&p->peer) || p->peer.port == NET_RELAY_PORT)
            return NET_PACKET;
        return NET_REASON_NONE;
    }
    struct net_flow *f = flow_find(box, number);
    int reason = f ? flow_verdict(box, f, p->peer.protocol) : NET_PACKET;
    // queries have a rate limit, no quota
    __u32 payload = f && f->port == NET_DNS_PORT ? 0 : p->payload;
    if (reason == NET_REASON_NONE && out && over_quota(box, n, payload))
        reason = NET_QUOTA;
    // A reset ends a forbidden connection, so it must pass. So must an acknowledgement that asks for a valid reset
    // (RFC 5961, 3.2), because earlier packets were dropped here.
    if (reason != NET_REASON_NONE && !(out ? p->bare : p->reset))
        return reason;
    if (f) {
        flow_used(f);
        if (f->port != NET_DNS_PORT)
            witness(skb, n, p, out);
    }
    __sync_fetch_and_add(out ? &n->out_bytes : &n->in_bytes, payload);
    __sync_fetch_and_add(out ? &n->out_packets : &n->in_packets, packets);
    return NET_REASON_NONE;
}
