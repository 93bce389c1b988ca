// Addresses that are nobody's on the open internet: loopback, private, link-local, metadata, multicast, reserved, and those
// that carry an IPv4 address inside. Reached only by a rule with a prefix that names them (RFC 6890 and its registries).
//
// Read by the programs and by the relay, which asks it again about what a name resolves to. Addresses are IPv6, IPv4 ones
// v4-mapped.
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

// In host order.
static inline bool net_is_special4(__u32 a)
{
    return a >> 24 == 0 || a >> 24 == 10 || a >> 24 == 127 ||
           a >> 22 == 0x64400000 >> 22 || // 100.64.0.0/10, shared
           a >> 16 == 0xa9fe ||           // 169.254.0.0/16, link-local and metadata
           a >> 20 == 0xac100000 >> 20 || // 172.16.0.0/12
           a >> 8 == 0xc00000 ||          // 192.0.0.0/24, IETF; metadata of one cloud
           a >> 8 == 0xc00002 ||          // 192.0.2.0/24, documentation
           a >> 8 == 0xc05863 ||          // 192.88.99.0/24, 6to4 relays
           a >> 16 == 0xc0a8 ||           // 192.168.0.0/16
           a >> 17 == 0xc6120000 >> 17 || // 198.18.0.0/15, benchmarks: our synthetic ones
           a >> 8 == 0xc63364 || a >> 8 == 0xcb0071 || // 198.51.100.0/24, 203.0.113.0/24
           a == 0xa83f8110 ||                          // 168.63.129.16, metadata of one cloud
           a >> 28 >= 14;                              // 224.0.0.0/4 and above: multicast, reserved
}

static inline bool net_is_special(const __u8 address[16])
{
    if (net_is_v4(address))
        return net_is_special4(net_word(address + 12));
    __u32 first = net_word(address);
    return first >> 29 != 1 ||              // 2000::/3 is what there is of global unicast
           first >> 16 == 0x2002 ||         // 6to4: an IPv4 address inside
           first >> 9 == 0x20010000 >> 9 || // 2001::/23, IETF: Teredo, ORCHID, benchmarks
           first == 0x20010db8 ||           // documentation
           first >> 12 == 0x3fff0;          // 3fff::/20, documentation
}
