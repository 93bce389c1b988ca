// Addresses that are nobody's on the open internet: one table, from which the programs, the relay and the broker take the
// same answer. It has IANA's special-purpose registries (RFC 6890), multicast, what is reserved, and where clouds answer
// with credentials (metadata). Addresses are IPv6, IPv4 ones v4-mapped.
//
// A special address is reached only by a rule that names it: one whose prefix lies within the smallest range of the table
// around it. 0.0.0.0/0 names none; 100.64.0.0/10 names carriers' NAT, but not 100.100.100.200 in there, which is metadata.
// Forms that carry an IPv4 address are judged by that one.
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#include <stdbool.h>
#endif

#define NET_METADATA 1
#define NET_LOCAL    2 // loopback, link-local

// X(four bytes, prefix, kind)
#define NET_RANGES_V4(X)                                                                           \
    X(0, 0, 0, 0, 8, 0)                     /* "this network" */                                   \
    X(10, 0, 0, 0, 8, 0)                    /* private */                                          \
    X(100, 64, 0, 0, 10, 0)                 /* carriers' NAT */                                    \
    X(100, 100, 100, 200, 32, NET_METADATA) /* Alibaba */                                          \
    X(127, 0, 0, 0, 8, NET_LOCAL)           /* loopback */                                         \
    X(168, 63, 129, 16, 32, NET_METADATA)   /* Azure's wire server */                              \
    X(169, 254, 0, 0, 16, NET_LOCAL)        /* link-local */                                       \
    X(169, 254, 0, 23, 32, NET_METADATA)    /* Tencent */                                          \
    X(169, 254, 10, 10, 32, NET_METADATA)   /* Vultr and others */                                 \
    X(169, 254, 42, 42, 32, NET_METADATA)   /* Scaleway */                                         \
    X(169, 254, 169, 0, 24, NET_METADATA)   /* most clouds: .254; AWS's DNS and clock, too */      \
    X(169, 254, 170, 0, 24, NET_METADATA)   /* AWS: credentials of tasks and pods */               \
    X(172, 16, 0, 0, 12, 0)                 /* private */                                          \
    X(192, 0, 0, 0, 24, 0)                  /* protocol assignments */                             \
    X(192, 0, 0, 192, 32, NET_METADATA)     /* Oracle */                                           \
    X(192, 0, 2, 0, 24, 0)                  /* documentation */                                    \
    X(192, 88, 99, 0, 24, 0)                /* 6to4 relays */                                      \
    X(192, 168, 0, 0, 16, 0)                /* private */                                          \
    X(198, 18, 0, 0, 15, 0)                 /* benchmarks: our own synthetic addresses */          \
    X(198, 51, 100, 0, 24, 0)               /* documentation */                                    \
    X(203, 0, 113, 0, 24, 0)                /* documentation */                                    \
    X(224, 0, 0, 0, 4, 0)                   /* multicast */                                        \
    X(240, 0, 0, 0, 4, 0)                   /* reserved, broadcast */

// X(four words, prefix, kind)
#define NET_RANGES_V6(X)                                                                           \
    X(0, 0, 0, 0, 3, 0)                      /* unassigned, loopback, IPv4-compatible */           \
    X(0, 0, 0, 1, 128, NET_LOCAL)            /* loopback */                                        \
    X(0x0064ff9b, 0x00010000, 0, 0, 48, 0)   /* local NAT64: who knows what is behind it */        \
    X(0x40000000, 0, 0, 0, 2, 0)             /* unassigned: 2000::/3 is global unicast */          \
    X(0x80000000, 0, 0, 0, 1, 0)             /* unassigned, and the rest */                        \
    X(0xfc000000, 0, 0, 0, 7, 0)             /* unique local; our flow addresses */                \
    X(0xfd000ec2, 0, 0, 0, 32, NET_METADATA) /* AWS */                                             \
    X(0xfd2000ce, 0, 0, 0, 32, NET_METADATA) /* Google */                                          \
    X(0xfd00a9fe, 0xa9fe0000, 0, 0, 48, NET_METADATA)  /* Exoscale, Equinix and others */          \
    X(0xfe800000, 0, 0, 0, 10, NET_LOCAL)              /* link-local */                            \
    X(0xfe800000, 0, 0, 0xa9fea9fe, 128, NET_METADATA) /* OpenStack */                             \
    X(0xfec00000, 0, 0, 0, 10, 0)                      /* site-local */                            \
    X(0xff000000, 0, 0, 0, 8, 0)                       /* multicast */                             \
    X(0x20010000, 0, 0, 0, 23, 0)                      /* IETF: Teredo, benchmarks, ORCHID */      \
    X(0x20010002, 0, 0, 0, 48, 0) /* benchmarks: our own synthetic addresses */                    \
    X(0x20010db8, 0, 0, 0, 32, 0) /* documentation */                                              \
    X(0x20020000, 0, 0, 0, 16, 0) /* 6to4 */                                                       \
    X(0x3fff0000, 0, 0, 0, 20, 0) /* documentation */

static inline __u32 net_word(const __u8 *a)
{
    return (__u32)a[0] << 24 | (__u32)a[1] << 16 | (__u32)a[2] << 8 | a[3];
}

static inline bool net_is_v4(const __u8 address[16])
{
    return net_word(address) == 0 && net_word(address + 4) == 0 && net_word(address + 8) == 0xffff;
}

// What a word of a prefix must be equal in; `bits`: of the prefix, from the word on.
static inline __u32 net_mask(int bits)
{
    return bits <= 0 ? 0 : bits >= 32 ? 0xffffffff : 0xffffffff << (32 - bits);
}

// The prefix of the smallest range of this kind (0: any), of at most `most` bits, that an IPv4 address (host order) lies
// in; 0: none.
static inline __u32 net_special_bits4(__u32 ip, int kind, int most)
{
    int found = 0;
#define X(a, b, c, d, bits, of)                                                                    \
    if (((ip ^ ((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))) & net_mask(bits)) == 0 &&          \
        (bits) > found && (bits) <= most && (kind == 0 || kind == (of)))                           \
        found = (bits);
    NET_RANGES_V4(X)
#undef X
    return (__u32)found;
}

// The same of an IPv6 address that is not v4-mapped, for what it is itself.
static inline __u32 net_special_bits6(const __u8 address[16], int kind, int most)
{
    __u32 w0 = net_word(address);
    __u32 w1 = net_word(address + 4);
    __u32 w2 = net_word(address + 8);
    __u32 w3 = net_word(address + 12);
    int found = 0;
#define X(a, b, c, d, bits, of)                                                                    \
    if (((w0 ^ (a)) & net_mask(bits)) == 0 && ((w1 ^ (b)) & net_mask((bits)-32)) == 0 &&           \
        ((w2 ^ (c)) & net_mask((bits)-64)) == 0 && ((w3 ^ (d)) & net_mask((bits)-96)) == 0 &&      \
        (bits) > found && (bits) <= most && (kind == 0 || kind == (of)))                           \
        found = (bits);
    NET_RANGES_V6(X)
#undef X
    return (__u32)found;
}

// Does an IPv6 address carry an IPv4 one, and leads there? *at: the bit where that begins; *v4 in host order. NAT64 (RFC
// 6052), 6to4 (RFC 3056), ISATAP (RFC 5214).
static inline bool net_carries_v4(const __u8 address[16], __u32 *v4, __u32 *at)
{
    __u32 w0 = net_word(address);
    bool nat64 = w0 == 0x0064ff9b && net_word(address + 4) == 0 && net_word(address + 8) == 0;
    bool isatap = (net_word(address + 8) & 0xfcffffff) == 0x00005efe && w0 != 0;
    if (w0 >> 16 == 0x2002) {
        *v4 = net_word(address + 2);
        *at = 16;
        return true;
    }
    *v4 = net_word(address + 12);
    *at = 96;
    return nat64 || isatap;
}

// The bits of an address that the smallest range around it holds, of those that hold at most `most`; 0: there is none. A
// rule names the address when it has that many at least.
static inline __u32 net_range_bits(const __u8 address[16], int kind, int most)
{
    __u32 v4;
    __u32 at;
    if (net_is_v4(address)) {
        __u32 bits = net_special_bits4(net_word(address + 12), kind, most - 96);
        return bits != 0 ? bits + 96 : 0;
    }
    __u32 found = net_special_bits6(address, kind, most);
    if (!net_carries_v4(address, &v4, &at))
        return found;
    __u32 inside = net_special_bits4(v4, kind, most - (int)at);
    if (inside != 0)
        return at + inside;
    return net_word(address) == 0x0064ff9b ? 0 : found; // NAT64 leads to all of IPv4
}

// How many bits of an address a rule must have at least to reach it; 0: the address is public, and any rule will do.
static inline __u32 net_special_bits(const __u8 address[16])
{
    return net_range_bits(address, 0, 128);
}

// The same for metadata alone.
static inline __u32 net_metadata_bits(const __u8 address[16])
{
    return net_range_bits(address, NET_METADATA, 128);
}

// May the word "host" mean it, when it is one of this host's own?
static inline bool net_is_hosts(const __u8 address[16])
{
    return net_range_bits(address, NET_LOCAL, 128) == 0 && net_metadata_bits(address) == 0;
}
