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
    bool bare;  // TCP: only an acknowledgement
    bool opens; // TCP: the first packet of a connection
};

static __always_inline void read_ports(struct __sk_buff *skb, __u32 at, bool out, struct packet *p)
{
    __be16 ports[2];
    __u8 h[2]; // the header's length, flags
    if (bpf_skb_load_bytes(skb, at, ports, sizeof ports) < 0)
        return;
    p->peer.port = bpf_ntohs(out ? ports[1] : ports[0]);
    p->plain = p->peer.protocol == IPPROTO_UDP;
    __u32 headers = at + UDP_HEADER;
    if (p->peer.protocol == IPPROTO_TCP && bpf_skb_load_bytes(skb, at + 12, h, sizeof h) == 0) {
        p->plain = true;
        p->reset = (h[1] & 4) != 0;
        p->opens = (h[1] & 0x12) == 2; // SYN without ACK
        headers = at + (h[0] >> 4) * 4;
        p->bare = h[1] == 0x10 && skb->len == headers;
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
    if (f)
        flow_used(f);
    __sync_fetch_and_add(out ? &n->out_bytes : &n->in_bytes, payload);
    __sync_fetch_and_add(out ? &n->out_packets : &n->in_packets, packets);
    return NET_REASON_NONE;
}
