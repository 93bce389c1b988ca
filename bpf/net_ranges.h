// Addresses that are nobody's on the open internet: loopback, private, link-local, metadata, multicast, reserved, and those
// that carry an IPv4 address inside (RFC 6890 and its registries). One is reached only by a rule whose prefix lies within
// such a range and so names it: 0.0.0.0/0 names none of them.
//
// Read by the programs and by the broker, which marks rules with it. Addresses are IPv6, IPv4 ones v4-mapped.
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#include <stdbool.h>
#endif

static inline __u32 net_word(const __u8 *a)
{
    return (__u32)a[0] << 24 | (__u32)a[1] << 16 | (__u32)a[2] << 8 | a[3];
}

static inline bool net_is_v4(const __u8 address[16])
{
    return net_word(address) == 0 && net_word(address + 4) == 0 && net_word(address + 8) == 0xffff;
}

// The prefix of the range that an IPv4 address (host order) lies in; 0: none.
static inline __u32 net_special_bits4(__u32 a)
{
    __u32 first = a >> 24;
    if (first == 0 || first == 10 || first == 127)
        return 8;
    if (a >> 22 == 0x64400000 >> 22) // 100.64.0.0/10, shared; metadata of one cloud
        return 10;
    if (a >> 20 == 0xac100000 >> 20) // 172.16.0.0/12
        return 12;
    if (a >> 16 == 0xa9fe ||
        a >> 16 == 0xc0a8) // 169.254.0.0/16: link-local, metadata; 192.168.0.0/16
        return 16;
    if (a >> 17 == 0xc6120000 >> 17) // 198.18.0.0/15, benchmarks: the synthetic addresses
        return 15;
    // 192.0.0.0/24: metadata of one cloud; 192.0.2.0, 198.51.100.0, 203.0.113.0: documentation; 192.88.99.0: 6to4 relays
    if (a >> 8 == 0xc00000 || a >> 8 == 0xc00002 || a >> 8 == 0xc63364 || a >> 8 == 0xcb0071 ||
        a >> 8 == 0xc05863)
        return 24;
    if (a == 0xa83f8110) // 168.63.129.16, metadata of one cloud
        return 32;
    return first >= 224 ? 4 : 0; // multicast, reserved
}

// The same of any address; an IPv4 one counts 96 bits more.
static inline __u32 net_special_bits(const __u8 address[16])
{
    __u32 first = net_word(address);
    if (net_is_v4(address)) {
        __u32 bits = net_special_bits4(net_word(address + 12));
        return bits != 0 ? bits + 96 : 0;
    }
    if (first >> 29 != 1) // 2000::/3 is what there is of global unicast
        return first >> 31 ? 1 : first >> 30 ? 2 : 3;
    if (first >> 16 == 0x2002) // 6to4: an IPv4 address inside
        return 16;
    if (first >> 9 == 0x20010000 >> 9) // IETF: Teredo, ORCHID, benchmarks
        return 23;
    if (first == 0x20010db8) // documentation
        return 32;
    return first >> 12 == 0x3fff0 ? 20 : 0; // documentation
}
