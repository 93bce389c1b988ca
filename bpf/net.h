// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Network verdicts: the data that user space writes for net.bpf.c, and the data that it reads.
//
// A sandbox's network namespace has a loopback interface and no route to outside. Connections to outside go through
// the relay (server/relay), which listens inside the namespace: connect and sendmsg to a destination that the policy
// allows are rewritten to
//
//   127.128.0.0/9      : NET_RELAY_PORT    flow number in the lower 23 bits          (AF_INET)
//   fd53:746f:636b::/64: NET_RELAY_PORT    flow number in the lower 32 bits          (AF_INET6)
//
// and the relay reads the destination from map "flows". It checks the destination against the policy again before it
// connects, because a job can connect to any flow address directly. Destination port 53 is a flow like any other, but
// the relay replies to the queries itself, for every address. getpeername and recvmsg show the destination that the
// job named.
//
// Names: the relay resolves allowed names to synthetic addresses, 198.18.0.0/15 (RFC 2544) or 2001:2::/48 (RFC 5180)
// plus an index, and writes map "names" before it replies. A synthetic address without an entry is refused.
//
// IPv4 addresses are stored as v4-mapped IPv6 (::ffff:a.b.c.d); a v4-mapped destination is the IPv4 one.
#pragma once

#include "sandbox.h"

enum {
    NET_RELAY_PORT = 15, // below 1024: a job cannot bind it
    NET_DNS_PORT = 53,
    NET_FLOW_V4 = 0x7f800000, // 127.128.0.0, host order
    NET_FLOW_V4_MASK = 0x007fffff,
    NET_SYNTHETIC_V4 = 0xc6120000, // 198.18.0.0/15, host order
    NET_SYNTHETIC_V4_MASK = 0x0001ffff,
    NET_PORTS = 8,             // port ranges of one prefix or name
    NET_RULES = 256,           // rules of one policy
    NET_FLOWS_PER_SLOT = 1024, // destinations of one sandbox at a time
    // how long a flow is kept after the last datagram of an unconnected socket; the relay keeps its end for
    // RELAY_UDP_IDLE_MS
    NET_FLOW_LOOSE_MS = 61000,
    NET_FLOWS = 1048576,      // of all sandboxes
    NET_FLOW_NUMBERS = 65536, // of these flows, those that can be found by destination
    NET_NAMES = 262144,       // names with an address, of all sandboxes
    NET_NAMES_PER_SLOT = 4096,
    NET_RULE_ENTRIES = 524288, // prefixes, of all rule sets
    NET_OWN = 4096,            // addresses of the host
    NET_NAMED = 262144,        // prefixes of rules that name special addresses, of all sandboxes
    NET_NAMED_PORTS = 16,
    NET_BITS_SET = 32, // bits of net_rule_key before the address
    NET_MARKS = 64,    // destinations that detection rules of the host ask for: a bit each
    NET_MARK_RANGES = 8,
    NET_MARK_ENTRIES = 512, // prefixes: twice as many as are in use, for a change
};

#define NET_FLOW_V6_PREFIX                                                                         \
    {                                                                                              \
        0xfd, 0x53, 0x74, 0x6f, 0x63, 0x6b, 0, 0                                                   \
    } // + 4 zero bytes + flow
#define NET_SYNTHETIC_V6_PREFIX                                                                    \
    {                                                                                              \
        0x20, 0x01, 0, 2, 0, 0                                                                     \
    } // + 6 zero bytes + index

// Ports first to last, of a protocol (IPPROTO_TCP, IPPROTO_UDP; 0: both). rule: number of the rule in its policy, for
// events and for the counter of each rule.
struct net_ports {
    __u16 first, last;
    __u8 protocol;
    // rules: how many bits of an address the rule names (net_ranges.h): the bits of its prefix if it is a whole
    // address or lies within a special range, otherwise 0
    __u8 special;
    __u8 zero[2];
    __u32 rule;
};

// Map "rules", LPM_TRIE. prefixlen counts rule_set as well: NET_BITS_SET + the prefix of the v4-mapped address. Only
// the longest match decides, so an entry holds the ports of all prefixes of its set that contain it. An IPv6 prefix
// must not match IPv4 addresses: a set with a prefix shorter than ::ffff:0:0/96 has an extra entry for ::ffff:0:0/96.
struct net_rule_key {
    __u32 prefixlen;
    __u32 rule_set;
    __u8 address[16];
};

struct net_rule {
    __u32 n;
    struct net_ports ports[NET_PORTS];
};

// The entry of a set for ::/128, which is never a destination, holds the ports of its rules for "host": this host's
// own addresses.
//
// Map "own", HASH: the host's addresses, v4-mapped. Written by the broker when they change. The value says whether
// "host" includes the address. Only a rule for "host" or for the whole address allows one of these addresses.
struct net_own_address {
    __u32 host; // 0: loopback, link-local, metadata
};

// Map "named", LPM_TRIE: the special addresses and whole addresses that the rules of all sandboxes name.
// net_relay.bpf.c judges the relay by it. Written by the broker. ::/128 stands for "host". `bits`: the length of the
// prefix again. An entry holds only the ports of its own prefix, so a lookup that does not find the port continues
// with the next shorter prefix. n 0: every port.
struct net_named_key {
    __u32 prefixlen;
    __u8 address[16];
};

struct net_named_ports {
    __u32 bits;
    __u32 n;
    struct net_ports ports[NET_NAMED_PORTS];
};

// Map "marks", LPM_TRIE: the destinations that detection rules of the host ask for, for all sandboxes. Written by the
// broker, also while programs run. prefixlen is that of the v4-mapped address; an IPv6 prefix that contains
// ::ffff:0:0/96 is about IPv4, too. Only the longest match decides, so an entry holds the ranges of all prefixes that
// contain it. Each connect or sendmsg that leaves the sandbox, allowed or refused, adds one to the counter of each
// mark that is about it (net_counters.marked), and its event has the marks' bits, and a class of its own. So the loss
// of such an event is a difference between the counter and the events.
struct net_mark_key {
    __u32 prefixlen;
    __u8 address[16];
};

enum net_mark_of { NET_MARK_CONNECT = 1, NET_MARK_DENIED = 2 }; // bits: events

struct net_mark_range {
    __u16 first, last; // ports
    __u8 protocol;     // IPPROTO_TCP, IPPROTO_UDP; 0: both
    __u8 of;           // enum net_mark_of
    __u8 any;          // 1: of every address, so also of names, which have none
    __u8 mark;         // below NET_MARKS
};

struct net_mark {
    __u32 n;
    struct net_mark_range range[NET_MARK_RANGES];
};

// Map "names", HASH: addresses that the relay assigned. Written by the relay. n 0: every port.
struct net_name_key {
    __u32 slot;
    __u32 index;
};

struct net_name {
    __u32 generation;
    __u32 n;
    struct net_ports ports[NET_PORTS];
};

// Map "flows", HASH: the destination of a flow. Written by the kernel. Sockets of a sandbox with the same destination
// share a flow. A sandbox has NET_FLOWS_PER_SLOT flow entries. The low bits of a flow's number are the index of its
// entry; the other bits count how often the entry was used. So a number is used again after 8,192 destinations in one
// entry, which are 8 million of the sandbox. An entry is used again only when no socket is connected to its flow and
// no unconnected socket has used it for NET_FLOW_LOOSE_MS. While all entries are in use, a new destination is
// refused: ENOBUFS, NET_FULL.
struct net_flow_key {
    __u32 slot;
    __u32 entry;
};

#define NET_FLOW_ENTRY(number) ((number) & (NET_FLOWS_PER_SLOT - 1))

// `user` is the last process that used the flow. Events name it; no decision depends on it.
struct net_user {
    __u64 cgroup; // of the job, one level below the sandbox's
    __u32 pid;
    __u32 zero;
    char comm[16];
};

struct net_flow {
    __u8 address[16];
    __u16 port; // host order
    __u8 protocol;
    __u8 family; // AF_INET, AF_INET6; a v4-mapped address is AF_INET
    __u32 generation;
    // the rule set that allowed it last; after a change, the next packet is checked again
    __u32 rule_set;
    __u32 mode;
    __u32 number;
    // connected sockets, including closed TCP sockets that still send; NET_FLOW_TAKEN: the entry is being reused
    __u32 holders;
    // CLOCK_MONOTONIC, of the last datagram of an unconnected socket in either direction, at most 1 s too early; 0:
    // none
    __u64 loose_ns;
    struct net_user user;
};
#define NET_FLOW_TAKEN 0x80000000u

// The reason of a refusal. Events report it, and net_counters counts it.
enum net_reason {
    NET_REASON_NONE = 0,
    NET_NO_POLICY,    // the sandbox has no entry
    NET_MODE_NONE,    // the sandbox has no network
    NET_NO_RULE,      // no rule allows the destination
    NET_SOCKET_TYPE,  // family, type or protocol of socket(2)
    NET_OPTION,       // setsockopt: an option that is not on the list
    NET_BIND,         // an address or port that may not be bound
    NET_QUOTA,        // egress_bytes_max
    NET_PACKET,       // a packet that no connect or sendmsg allowed
    NET_UNIX,         // a socket file of the host
    NET_DEVICE,       // a device
    NET_NAME,         // relay: the name, or its query type, is not allowed
    NET_NAME_RATE,    // relay: too many queries
    NET_NAME_ADDRESS, // relay: it resolves to loopback, private, link-local or metadata addresses
    NET_NAME_QUOTA,   // relay: byte quota of a name's rule
    NET_FULL,         // too many destinations; relay: too many connections or names
    NET_SOCKETS,      // sockets_max: another INET socket, or another connection to a listener
    NET_IN_QUOTA,     // relay: ingress_bytes_max
    NET_REASONS,
};

// Map "net_counters", mmapable ARRAY by slot. Monotonic while the generation is the same; the broker clears it at CREATE.
struct net_counters {
    __u64 out_bytes, out_packets; // to the relay, from the sandbox's sockets; payload, without DNS
    __u64 in_bytes, in_packets;
    __u64 connects_allowed, connects_denied; // connect and unconnected sendmsg
    __u64 denied[NET_REASONS];
    __u32 sockets; // open TCP sockets to the relay
    // where the search for a free entry continues; if below NET_FLOWS_PER_SLOT: later entries are empty
    __u32 flows;
    __u32 held; // INET sockets, and connections that its listeners took
    __u32 zero;
    __u64 failures; // failed helpers: a map was full, or an address could not be rewritten
    __u64 listens;  // EVENT_LISTEN events, including lost ones
    // The kernel as a witness of the relay's reports, without DNS (server/network/witness.h). Payload that is sent again
    // counts once: a position in the stream counts when it is passed for the first time.
    __u64 tcp_sent;         // payload that the sandbox's sockets sent
    __u64 tcp_acknowledged; // of that, what the kernel acknowledged at the relay's end
    __u64 tcp_received;     // payload that arrived
    __u64 udp_sent, udp_received;
    __u32 connections; // TCP connections that the relay's listener accepted
    __u32 resets;      // RST packets of them, in either direction
    __u64 marked[NET_MARKS];
};

// Body of EVENT_DENIED, EVENT_CONNECT and EVENT_LISTEN (emit.h).
struct net_event {
    // v4-mapped; NET_UNIX: the beginning of the path; NET_DEVICE: major and minor; NET_OPTION: level and option, as
    // big-endian words
    __u8 address[16];
    __u16 port;
    __u8 family; // AF_*, as passed by the job
    __u8 protocol;
    __u8 type;   // SOCK_*
    __u8 reason; // enum net_reason; NET_REASON_NONE: allowed
    __u8 hook;   // enum net_hook
    __u8 zero;
    __u32 rule;  // the rule that allowed it; ~0: none
    __u32 index; // of a synthetic name + 1; 0: none
    __u64 marks; // bits: those that are about it
};

enum net_hook {
    NET_HOOK_SOCKET = 1,
    NET_HOOK_CONNECT,
    NET_HOOK_SENDMSG,
    NET_HOOK_BIND,
    NET_HOOK_OPTION,
    NET_HOOK_EGRESS,
    NET_HOOK_INGRESS,
    NET_HOOK_DEVICE,
    NET_HOOK_UNIX,
    NET_HOOK_RELAY,
    NET_HOOK_LISTEN, // on an address other than loopback: on all addresses
};
