// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The decisions of net.bpf.c: its maps, the class of a destination, the policy's verdict, and the events about it.
// net_flow.h has the flows.
#pragma once

#include "emit.h"
#include "net.h"
#include "net_ranges.h"
#include "watch.h"

enum { AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1, SOCK_DGRAM = 2, NO_RULE = 0xffffffff };

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, NET_RULE_ENTRIES);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct net_rule_key);
    __type(value, struct net_rule);
} rules SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NET_NAMES);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct net_name_key);
    __type(value, struct net_name);
} names SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NET_FLOWS);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct net_flow_key);
    __type(value, struct net_flow);
} flows SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BPF_SLOTS);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct net_counters);
} net_counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, NET_MARK_ENTRIES);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct net_mark_key);
    __type(value, struct net_mark);
} marks SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NET_OWN);
    __type(key, __u8[16]);
    __type(value, struct net_own_address);
} own SEC(".maps");

// A destination of a job; `ip` as words in network order.
struct target {
    __u32 ip[4];
    __u16 port; // host order
    __u8 protocol;
    __u8 family;
};

static __always_inline struct bpf_sandbox *box_of(__u64 id)
{
    return bpf_map_lookup_elem(&sandboxes, &id);
}

static __always_inline struct net_counters *counters_of(const struct bpf_sandbox *box)
{
    __u32 slot = box->slot;
    return bpf_map_lookup_elem(&net_counters, &slot);
}

static __always_inline void failed(const struct bpf_sandbox *box)
{
    struct net_counters *n = counters_of(box);
    if (n)
        __sync_fetch_and_add(&n->failures, 1);
}

static __always_inline void set_v4(struct target *t, __u32 ip)
{
    t->ip[0] = 0;
    t->ip[1] = 0;
    t->ip[2] = bpf_htonl(0xffff);
    t->ip[3] = ip;
    t->family = AF_INET;
}

static __always_inline void set_v6(struct target *t, __u32 a, __u32 b, __u32 c, __u32 d)
{
    t->ip[0] = a;
    t->ip[1] = b;
    t->ip[2] = c;
    t->ip[3] = d;
    t->family = a == 0 && b == 0 && c == bpf_htonl(0xffff) ? AF_INET : AF_INET6;
}

// Loopback, or the unspecified address, which the kernel treats as loopback.
static __always_inline bool is_local(const struct target *t)
{
    if (t->family == AF_INET)
        return bpf_ntohl(t->ip[3]) >> 24 == 127 || t->ip[3] == 0;
    return t->ip[0] == 0 && t->ip[1] == 0 && t->ip[2] == 0 && bpf_ntohl(t->ip[3]) <= 1;
}

static const __u8 flow_prefix[8] = NET_FLOW_V6_PREFIX;

static __always_inline __u32 flow_word(int i)
{
    return bpf_htonl(net_word(flow_prefix + i * 4));
}

// The flow that an address of the relay stands for; false: it stands for none.
static __always_inline bool flow_of(const struct target *t, __u32 *number)
{
    __u32 last = bpf_ntohl(t->ip[3]);
    if (t->port != NET_RELAY_PORT)
        return false;
    if (t->family == AF_INET) {
        *number = last & NET_FLOW_V4_MASK;
        return (last & ~(__u32)NET_FLOW_V4_MASK) == NET_FLOW_V4;
    }
    *number = last;
    return t->ip[0] == flow_word(0) && t->ip[1] == flow_word(1) && t->ip[2] == 0;
}

// The index of a synthetic address; false: it is not synthetic.
static __always_inline bool synthetic(const struct target *t, __u32 *index)
{
    __u32 last = bpf_ntohl(t->ip[3]);
    if (t->family == AF_INET) {
        *index = last & NET_SYNTHETIC_V4_MASK;
        return (last & ~(__u32)NET_SYNTHETIC_V4_MASK) == NET_SYNTHETIC_V4;
    }
    *index = last;
    return t->ip[0] == bpf_htonl(0x20010002) && t->ip[1] == 0 && t->ip[2] == 0;
}

struct port_list {
    struct net_ports ports[NET_PORTS];
};

// named: how many bits of the address a rule must name. Global, so the verifier checks it once in each program.
__noinline int port_allowed(const struct port_list *list, __u32 n, const struct target *t,
                            __u32 named, __u32 *rule)
{
    if (!list || !t || !rule)
        return false;
    const struct net_ports *ports = list->ports;
    for (__u32 i = 0; i < NET_PORTS; i++) {
        if (i >= n)
            break;
        if (t->port < ports[i].first || t->port > ports[i].last)
            continue;
        if (ports[i].protocol != 0 && ports[i].protocol != t->protocol)
            continue;
        if (ports[i].special < named)
            continue;
        *rule = ports[i].rule;
        return true;
    }
    return false;
}

static __always_inline int name_verdict(const struct bpf_sandbox *box, const struct target *t,
                                        __u32 index, __u32 *rule)
{
    struct net_name_key key = {.slot = box->slot, .index = index};
    const struct net_name *name = bpf_map_lookup_elem(&names, &key);
    if (!name || name->generation != box->generation)
        return NET_NO_RULE;
    if (name->n == 0 || port_allowed((const void *)name->ports, name->n, t, 0, rule))
        return NET_REASON_NONE;
    return NET_NO_RULE;
}

// C libraries connect UDP sockets only to sort addresses, so connecting one to a name is not counted or refused yet.
// Its packets are judged.
static __always_inline bool is_probe(const struct bpf_sandbox *box, const struct target *t,
                                     __u32 index)
{
    struct net_name_key key = {.slot = box->slot, .index = index - 1};
    const struct net_name *name = index != 0 ? bpf_map_lookup_elem(&names, &key) : 0;
    return name && name->generation == box->generation && t->protocol == 17 /* UDP */ &&
           t->port != 0;
}

static __always_inline bool rule_allows(const struct bpf_sandbox *box, const struct target *t,
                                        __u32 named, bool host, __u32 *rule)
{
    struct net_rule_key key = {.prefixlen = NET_BITS_SET + 128, .rule_set = box->rule_set};
    if (box->rule_set == 0)
        return false;
    if (!host) // otherwise ::, which stands for all of them
        __builtin_memcpy(key.address, t->ip, sizeof key.address);
    const struct net_rule *found = bpf_map_lookup_elem(&rules, &key);
    return found && port_allowed((const void *)found->ports, found->n, t, named, rule);
}

static __always_inline struct net_words words_of(const struct target *t)
{
    return (struct net_words){
        {bpf_ntohl(t->ip[0]), bpf_ntohl(t->ip[1]), bpf_ntohl(t->ip[2]), bpf_ntohl(t->ip[3])}};
}

// net_special_bits() of the words. A global function, so the verifier checks its many paths once, not for each call.
__noinline __u32 special_bits(__u32 a, __u32 b, __u32 c, __u32 d)
{
    return net_range_bits_of((struct net_words){{a, b, c, d}}, 0, 128);
}

// 2: an address of this host. 1: an address that contains one, which "host" does not include. 0: another.
static __always_inline int is_own(const struct target *t)
{
    __u32 ip[4] = {t->ip[0], t->ip[1], t->ip[2], t->ip[3]};
    __u32 v4;
    const struct net_own_address *o = bpf_map_lookup_elem(&own, ip);
    if (o)
        return o->host ? 2 : 1;
    if (t->family == AF_INET || net_carries_v4(words_of(t), &v4) == 0)
        return 0;
    ip[0] = 0;
    ip[1] = 0;
    ip[2] = bpf_htonl(0xffff);
    ip[3] = bpf_htonl(v4);
    return bpf_map_lookup_elem(&own, ip) ? 1 : 0;
}

// The policy's verdict on a destination outside. `index`: of a synthetic name + 1; 0 for others. Global like
// special_bits(), so no argument is uninitialized or NULL.
__noinline int policy_verdict(const struct bpf_sandbox *box, const struct target *t, __u32 *rule,
                              __u32 *index)
{
    __u32 number;
    if (!box || !t || !rule || !index)
        return NET_NO_RULE;
    *rule = NO_RULE;
    *index = 0;
    if (box->mode != NET_ALLOWLIST && box->mode != NET_OPEN)
        return NET_MODE_NONE;
    if (t->port == 0) // never a destination; the relay does not connect to it
        return NET_NO_RULE;
    if (t->port == NET_DNS_PORT)
        return NET_REASON_NONE;
    if (synthetic(t, &number)) {
        *index = number + 1;
        return name_verdict(box, t, number, rule);
    }
    int mine = is_own(t);
    struct net_words a = words_of(t);
    __u32 named = mine ? 128 : special_bits(a.w[0], a.w[1], a.w[2], a.w[3]);
    if (rule_allows(box, t, named, false, rule) || (box->mode == NET_OPEN && named == 0))
        return NET_REASON_NONE;
    if (mine == 2 && rule_allows(box, t, 128, true, rule))
        return NET_REASON_NONE;
    return NET_NO_RULE;
}

static __always_inline bool mark_is_about(const struct net_mark_range *r, const struct target *t,
                                          __u32 of, bool name)
{
    return t->port >= r->first && t->port <= r->last &&
           (r->protocol == 0 || r->protocol == t->protocol) && r->of & of && (!name || r->any);
}

// The marks that are about a destination, each of which is counted. of: enum net_mark_of. *first: one counts its first
// one in this sandbox. Global like special_bits().
__noinline __u64 marks_of(const struct bpf_sandbox *box, const struct target *t, __u32 of,
                          __u32 *first)
{
    struct net_mark_key key = {.prefixlen = 128};
    __u32 number;
    __u64 found = 0;
    if (!box || !t || !first)
        return 0;
    const bool name = synthetic(t, &number);
    if (!name) // otherwise ::, where the ranges of every address are
        __builtin_memcpy(key.address, t->ip, sizeof key.address);
    const struct net_mark *m = bpf_map_lookup_elem(&marks, &key);
    struct net_counters *n = m ? counters_of(box) : 0;
    if (!n)
        return 0;
    for (__u32 i = 0; i < NET_MARK_RANGES; i++) {
        if (i >= m->n)
            break;
        __u32 mark = m->range[i].mark & (NET_MARKS - 1);
        __u64 bit = 1ULL << mark;
        if (found & bit || !mark_is_about(&m->range[i], t, of, name))
            continue;
        found |= bit;
        if (__sync_fetch_and_add(&n->marked[mark], 1) == 0)
            *first = 1;
    }
    return found;
}

static __always_inline void fill(struct event *e, const struct target *t, __u32 type, __u32 hook,
                                 __u32 reason, __u32 rule, __u32 index)
{
    struct net_event *body = (struct net_event *)(e + 1);
    __builtin_memcpy(body->address, t->ip, sizeof body->address);
    body->port = t->port;
    body->family = t->family;
    body->protocol = t->protocol;
    body->type = (__u8)type;
    body->reason = (__u8)reason;
    body->hook = (__u8)hook;
    body->zero = 0;
    body->rule = rule;
    body->index = index;
    body->marks = 0;
}

static __always_inline void count_denied(const struct bpf_sandbox *box, __u32 reason)
{
    struct net_counters *n = counters_of(box);
    if (n && reason < NET_REASONS)
        __sync_fetch_and_add(&n->denied[reason], 1);
}

static __always_inline __u64 hash_of(const struct target *t, __u32 type, __u32 hook, __u32 reason)
{
    __u64 hash = (__u64)t->ip[0] << 32 | t->ip[1];
    hash = hash * 0x9e3779b97f4a7c15ULL ^ ((__u64)t->ip[2] << 32 | t->ip[3]);
    hash =
        hash * 0x9e3779b97f4a7c15ULL ^ ((__u64)t->port << 48 | (__u64)t->protocol << 40 |
                                        (__u64)hook << 32 | reason << 16 | type << 8 | t->family);
    return hash;
}

// True if no such refusal of this destination was reported in the last minute.
static __always_inline bool is_first_refusal(const struct bpf_sandbox *box, const struct target *t,
                                             __u32 type, __u32 hook, __u32 reason)
{
    return emit_is_first(box->slot, box->generation, hash_of(t, type, hook, reason));
}

// Counts and reports a refusal by the current process. Global like special_bits().
__noinline int report_denied(const struct bpf_sandbox *box, const struct target *t, __u32 type,
                             __u32 hook, __u32 reason)
{
    if (!box || !t)
        return false;
    __u64 cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level + 1);
    __u32 ruled = 0;
    count_denied(box, reason);
    bool first = is_first_refusal(box, t, type, hook, reason);
    __u64 found = hook == NET_HOOK_CONNECT || hook == NET_HOOK_SENDMSG
                      ? marks_of(box, t, NET_MARK_DENIED, &ruled)
                      : 0;
    struct event *e =
        emit_begin(box, cgroup, EVENT_DENIED, found ? CLASS_RULED_NETWORK : CLASS_DENIAL,
                   sizeof(struct net_event), first || ruled);
    if (!e)
        return false;
    fill(e, t, type, hook, reason, NO_RULE, 0);
    ((struct net_event *)(e + 1))->marks = found;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    return true;
}

static __always_inline void report_connect(const struct bpf_sandbox *box, const struct target *t,
                                           __u32 type, __u32 hook, __u32 rule, __u32 index)
{
    if (!(box->watch & WATCH_EVENTS))
        return;
    __u64 cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level + 1);
    __u32 ruled = 0;
    bool first =
        emit_is_first_of(box->slot, box->generation, hash_of(t, type, hook, 0), FIRSTS_CONNECTIONS);
    __u64 found = marks_of(box, t, NET_MARK_CONNECT, &ruled);
    struct event *e =
        emit_begin(box, cgroup, EVENT_CONNECT, found ? CLASS_RULED_NETWORK : CLASS_NETWORK,
                   sizeof(struct net_event), first || ruled);
    if (!e)
        return;
    fill(e, t, type, hook, NET_REASON_NONE, rule, index);
    ((struct net_event *)(e + 1))->marks = found;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}
