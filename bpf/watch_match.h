// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: does the path that watch_path.h built match a pattern? See watch.h.
#pragma once

#include "watch_path.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, WATCH_SENSITIVE_SLOTS);
    __type(key, __u32);
    __type(value, struct watch_sensitive);
} sensitive SEC(".maps");

// A path is read once, byte by byte, while three hashes are updated: of the whole path, of the component, and of the
// last two components.
struct path_scan {
    struct path_scratch *s;
    __u64 whole, one, two;
    __u64 whole_before, two_before; // their values when the component began
    __u32 from;
    __u32 length;         // of the component
    __u32 second, digits; // bools
    __u32 found;          // the rule's number + 1
    __s32 result;         // of the call
    bool last;            // component
};

// The number + 1 of the rule that this hash stands for, after a call with this result; 0: none. last: of a whole path,
// or of its end. Global, so the verifier checks it once.
__noinline int path_rule(__u64 hash, __s32 result, __u32 last)
{
    bool missing = result == -ENOENT || result == -ENOTDIR;
    bool denied = result == -EACCES || result == -EPERM;
#pragma unroll
    for (__u32 i = 0; i < WATCH_SENSITIVE_PROBES; i++) {
        __u32 at = watch_sensitive_slot(hash, i);
        struct watch_sensitive *known = bpf_map_lookup_elem(&sensitive, &at);
        if (!known || known->hash != hash || (known->when & WATCH_WHEN_THERE && missing) ||
            (known->when & WATCH_WHEN_DENIED && !denied) ||
            (known->when & WATCH_WHEN_LAST && !last))
            continue;
        return (int)known->rule + 1;
    }
    return 0;
}

// Nothing found, or only what a written rule asks for: a sensitive path that comes later counts before it.
static __always_inline bool path_goes_on(__u32 found)
{
    return found == 0 || found > WATCH_SENSITIVE_WRITTEN;
}

static __always_inline void path_compare(struct path_scan *s, __u64 hash)
{
    if (!path_goes_on(s->found))
        return;
    __u32 found = (__u32)path_rule(hash, s->result, s->last);
    if (found != 0 && (s->found == 0 || !path_goes_on(found)))
        s->found = found;
}

static __always_inline void path_component_ends(struct path_scan *s)
{
    if (s->length > 0) {
        if (s->digits) {
            s->whole = watch_fnv(s->whole_before, '#');
            s->one = watch_fnv(WATCH_FNV, '#');
            s->two = watch_fnv(s->two_before, '#');
        }
        path_compare(s, s->whole);
        path_compare(s, s->one);
        if (s->second)
            path_compare(s, s->two);
        s->second = true;
        s->two = s->two_before = watch_fnv(s->one, '/');
    }
    s->whole = s->whole_before = watch_fnv(s->whole, '/');
    s->one = WATCH_FNV;
    s->length = 0;
    s->digits = true;
}

static long path_byte(__u32 i, struct path_scan *s)
{
    __u32 at = s->from + i;
    unsigned char c = at < FULL_MAX ? (unsigned char)s->s->full[bounded(at, FULL_MAX - 1)] : 0;
    if (c == '/' || c == 0) {
        s->last = c == 0;
        path_component_ends(s);
        return c == 0 || !path_goes_on(s->found);
    }
    s->whole = watch_fnv(s->whole, c);
    s->one = watch_fnv(s->one, c);
    s->two = watch_fnv(s->two, c);
    s->length++;
    s->digits = s->digits && c >= '0' && c <= '9';
    return 0;
}

// Matches the built path. Returns the rule's number + 1; 0: none.
__noinline int path_match(__s32 result)
{
    struct path_scan s = {.s = scratch_of_cpu(),
                          .one = WATCH_FNV,
                          .whole = WATCH_FNV,
                          .two = WATCH_FNV,
                          .two_before = WATCH_FNV,
                          .whole_before = WATCH_FNV,
                          .length = unknown_zero,
                          .second = unknown_zero,
                          .digits = unknown_zero + 1,
                          .found = unknown_zero,
                          .result = result};
    if (!s.s)
        return 0;
    s.from = s.s->at;
    bpf_loop(FULL_MAX + 1, path_byte, &s, 0);
    return (int)s.found;
}
