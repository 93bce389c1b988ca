// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Addresses that are not public: one table for the BPF programs, the relay and the broker. It contains IANA's
// special-purpose registries (RFC 6890), multicast, reserved ranges, and the metadata services of clouds, which
// return credentials. Addresses are IPv6, IPv4 ones v4-mapped.
//
// Only a rule that names a special address allows it: the rule's prefix must lie within the smallest range of the
// table that contains the address. 0.0.0.0/0 names none; 100.64.0.0/10 names carriers' NAT, but not 100.100.100.200
// in it, which is metadata. An IPv6 address that contains an IPv4 address is judged by the IPv4 address.
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#include <stdbool.h>
#endif

#define NET_INLINE                                                                                 \
    static inline __attribute__((always_inline)) // BPF programs cannot pass a struct to a function
#define NET_METADATA 1
#define NET_LOCAL    2 // loopback, link-local

// X(four bytes, prefix, kind), the longest prefix first
#define NET_RANGES_V4(X)                                                                           \
    X(100, 100, 100, 200, 32, NET_METADATA) /* Alibaba */                                          \
    X(168, 63, 129, 16, 32, NET_METADATA)   /* Azure's wire server */                              \
    X(169, 254, 0, 23, 32, NET_METADATA)    /* Tencent */                                          \
    X(169, 254, 10, 10, 32, NET_METADATA)   /* Vultr and others */                                 \
    X(169, 254, 42, 42, 32, NET_METADATA)   /* Scaleway */                                         \
    X(192, 0, 0, 192, 32, NET_METADATA)     /* Oracle */                                           \
    X(169, 254, 169, 0, 24, NET_METADATA)   /* most clouds */                                      \
    X(169, 254, 170, 0, 24, NET_METADATA)   /* AWS: credentials of tasks and pods */               \
    X(192, 0, 0, 0, 24, 0)                  /* protocol assignments */                             \
    X(192, 0, 2, 0, 24, 0)                  /* documentation */                                    \
    X(192, 88, 99, 0, 24, 0)                /* 6to4 relays */                                      \
    X(198, 51, 100, 0, 24, 0)               /* documentation */                                    \
    X(203, 0, 113, 0, 24, 0)                /* documentation */                                    \
    X(169, 254, 0, 0, 16, NET_LOCAL)        /* link-local */                                       \
    X(192, 168, 0, 0, 16, 0)                /* private */                                          \
    X(198, 18, 0, 0, 15, 0)                 /* benchmarks: our synthetic ones */                   \
    X(172, 16, 0, 0, 12, 0)                 /* private */                                          \
    X(100, 64, 0, 0, 10, 0)                 /* carriers' NAT */                                    \
    X(0, 0, 0, 0, 8, 0)                     /* "this network" */                                   \
    X(10, 0, 0, 0, 8, 0)                    /* private */                                          \
    X(127, 0, 0, 0, 8, NET_LOCAL)           /* loopback */                                         \
    X(224, 0, 0, 0, 4, 0)                   /* multicast */                                        \
    X(240, 0, 0, 0, 4, 0)                   /* reserved, broadcast */

// X(four words, prefix, kind), the longest prefix first
#define NET_RANGES_V6(X)                                                                           \
    X(0, 0, 0, 1, 128, NET_LOCAL)                      /* loopback */                              \
    X(0xfe800000, 0, 0, 0xa9fea9fe, 128, NET_METADATA) /* OpenStack */                             \
    X(0x0064ff9b, 0x00010000, 0, 0, 48, 0) /* local NAT64: the destination is unknown */           \
    X(0xfd00a9fe, 0xa9fe0000, 0, 0, 48, NET_METADATA) /* Exoscale, Equinix and others */           \
    X(0x20010002, 0, 0, 0, 48, 0)                     /* benchmarks: our synthetic ones */         \
    X(0xfd000ec2, 0, 0, 0, 32, NET_METADATA)          /* AWS */                                    \
    X(0xfd2000ce, 0, 0, 0, 32, NET_METADATA)          /* Google */                                 \
    X(0x20010db8, 0, 0, 0, 32, 0)                     /* documentation */                          \
    X(0x20010000, 0, 0, 0, 23, 0)                     /* IETF: Teredo, benchmarks, ORCHID */       \
    X(0x3fff0000, 0, 0, 0, 20, 0)                     /* documentation */                          \
    X(0x20020000, 0, 0, 0, 16, 0)                     /* 6to4 */                                   \
    X(0xfe800000, 0, 0, 0, 10, NET_LOCAL)             /* link-local */                             \
    X(0xfec00000, 0, 0, 0, 10, 0)                     /* site-local */                             \
    X(0xff000000, 0, 0, 0, 8, 0)                      /* multicast */                              \
    X(0xfc000000, 0, 0, 0, 7, 0)                      /* unique local; our flow addresses */       \
    X(0, 0, 0, 0, 3, 0)                               /* unassigned, IPv4-compatible */            \
    X(0x40000000, 0, 0, 0, 2, 0)                      /* unassigned; 2000::/3 is in use */         \
    X(0x80000000, 0, 0, 0, 1, 0)                      /* unassigned, and the rest */

NET_INLINE __u32 net_word(const __u8 *a)
{
    return (__u32)a[0] << 24 | (__u32)a[1] << 16 | (__u32)a[2] << 8 | a[3];
}

NET_INLINE bool net_is_v4(const __u8 address[16])
{
    return net_word(address) == 0 && net_word(address + 4) == 0 && net_word(address + 8) == 0xffff;
}

// The mask of a word of a prefix; `bits`: bits of the prefix from this word on.
NET_INLINE __u32 net_mask(int bits)
{
    return bits <= 0 ? 0 : bits >= 32 ? 0xffffffff : 0xffffffff << (32 - bits);
}

// The length of the smallest range of this kind (0: any), with at most `most` bits, that contains an IPv4 address
// (host order); 0: none.
NET_INLINE __u32 net_range_bits4(__u32 ip, int kind, int most)
{
#define X(a, b, c, d, bits, of)                                                                    \
    if (((ip ^ ((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))) & net_mask(bits)) == 0 &&          \
        (bits) <= most && (kind == 0 || kind == (of)))                                             \
        return (bits);
    NET_RANGES_V4(X)
#undef X
    return 0;
}

// An address in words of host order.
struct net_words {
    __u32 w[4];
};

NET_INLINE struct net_words net_words(const __u8 address[16])
{
    return (struct net_words){
        {net_word(address), net_word(address + 4), net_word(address + 8), net_word(address + 12)}};
}

// Like net_range_bits4(), for an IPv6 address that is not v4-mapped. Ignores a contained IPv4 address.
NET_INLINE __u32 net_range_bits6(struct net_words at, int kind, int most)
{
#define X(a, b, c, d, bits, of)                                                                    \
    if (((at.w[0] ^ (a)) & net_mask(bits)) == 0 && ((at.w[1] ^ (b)) & net_mask((bits)-32)) == 0 && \
        ((at.w[2] ^ (c)) & net_mask((bits)-64)) == 0 &&                                            \
        ((at.w[3] ^ (d)) & net_mask((bits)-96)) == 0 && (bits) <= most &&                          \
        (kind == 0 || kind == (of)))                                                               \
        return (bits);
    NET_RANGES_V6(X)
#undef X
    return 0;
}

NET_INLINE bool net_is_nat64(struct net_words a)
{
    return a.w[0] == 0x0064ff9b && a.w[1] == 0 && a.w[2] == 0;
}

// The position of the IPv4 address in an IPv6 address that contains one; *v4 is that address in host order. 0: it
// contains none. NAT64 (RFC 6052), 6to4 (RFC 3056), ISATAP (RFC 5214).
NET_INLINE __u32 net_carries_v4(struct net_words a, __u32 *v4)
{
    bool isatap = (a.w[2] & 0xfcffffff) == 0x00005efe && a.w[0] != 0;
    if (a.w[0] >> 16 == 0x2002) {
        *v4 = a.w[0] << 16 | a.w[1] >> 16;
        return 16;
    }
    *v4 = a.w[3];
    return net_is_nat64(a) || isatap ? 96 : 0;
}

// The length of the smallest range around an address, of the ranges with at most `most` bits; 0: none. A rule names
// the address if it has at least as many bits.
NET_INLINE __u32 net_range_bits_of(struct net_words a, int kind, int most)
{
    __u32 v4;
    if (a.w[0] == 0 && a.w[1] == 0 && a.w[2] == 0xffff) {
        __u32 bits = net_range_bits4(a.w[3], kind, most - 96);
        return bits != 0 ? bits + 96 : 0;
    }
    __u32 at = net_carries_v4(a, &v4);
    if (at != 0) {
        __u32 inside = net_range_bits4(v4, kind, most - (int)at);
        if (inside != 0)
            return at + inside;
        if (net_is_nat64(a)) // NAT64 leads to all of IPv4
            return 0;
    }
    return net_range_bits6(a, kind, most);
}

NET_INLINE __u32 net_range_bits(const __u8 address[16], int kind, int most)
{
    return net_range_bits_of(net_words(address), kind, most);
}

// How many bits of an address a rule must have at least to allow it; 0: the address is public, and every rule may
// allow it.
NET_INLINE __u32 net_special_bits(const __u8 address[16])
{
    return net_range_bits(address, 0, 128);
}

// The same for metadata addresses only.
NET_INLINE __u32 net_metadata_bits(const __u8 address[16])
{
    return net_range_bits(address, NET_METADATA, 128);
}

// Whether the word "host" may include this address of the host.
NET_INLINE bool net_is_hosts(const __u8 address[16])
{
    return net_range_bits(address, NET_LOCAL, 128) == 0 && net_metadata_bits(address) == 0;
}
