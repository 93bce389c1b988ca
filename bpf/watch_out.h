// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: is an open file a socket that is connected to outside? In a sandbox, outside is an address of a
// flow of the relay (net.h); loopback is inside.
#pragma once

#include <linux/stat.h>

#include "net.h"
#include "vmlinux_min.h"

enum { AF_INET = 2, AF_INET6 = 10 };
// net/tcp_states.h; connected datagram sockets are in the first. A connection that this side has closed for sending
// still receives, and one that the peer has closed still sends.
enum { SK_ESTABLISHED = 1, SK_FIN_WAIT1 = 4, SK_FIN_WAIT2 = 5, SK_CLOSE_WAIT = 8 };

static __always_inline bool carries_data(__u8 state)
{
    return state == SK_ESTABLISHED || state == SK_FIN_WAIT1 || state == SK_FIN_WAIT2 ||
           state == SK_CLOSE_WAIT;
}

static __always_inline bool is_socket(__u64 file)
{
    return file && (BPF_CORE_READ((struct file *)file, f_inode, i_mode) & S_IFMT) == S_IFSOCK;
}

static __always_inline bool is_outside_v4(__u32 ip, __u16 port)
{
    bool flow = (ip & ~(__u32)NET_FLOW_V4_MASK) == NET_FLOW_V4 && port == NET_RELAY_PORT;
    return flow || ip >> 24 != 127;
}

static __always_inline bool is_outside_v6(const __u32 ip[4], __u16 port)
{
    if (ip[0] != 0 || ip[1] != 0)
        return true;
    if (ip[2] == bpf_htonl(0xffff))
        return is_outside_v4(bpf_ntohl(ip[3]), port);
    return ip[2] != 0 || ip[3] != bpf_htonl(1);
}

// Global, so the verifier checks it once.
__noinline int leads_out(__u64 file)
{
    __u32 ip[4] = {};
    if (!is_socket(file))
        return false;
    struct socket *socket = BPF_CORE_READ((struct file *)file, private_data);
    struct sock *sk = BPF_CORE_READ(socket, sk);
    __u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    __u16 port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
    if (!sk || port == 0 || !carries_data(state))
        return false;
    if (family == AF_INET)
        return is_outside_v4(bpf_ntohl(BPF_CORE_READ(sk, __sk_common.skc_daddr)), port);
    if (family != AF_INET6 || bpf_core_read(ip, sizeof ip, &sk->__sk_common.skc_v6_daddr))
        return false;
    return is_outside_v6(ip, port);
}
