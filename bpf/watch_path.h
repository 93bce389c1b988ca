// For watch.bpf.c: is a path one of the sensitive ones? See watch.h for what a pattern means.
#pragma once

#include "watch_find.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, WATCH_SENSITIVE_SLOTS);
    __type(key, __u32);
    __type(value, struct watch_sensitive);
} sensitive SEC(".maps");

struct path_text {
    char text[WATCH_PATH];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct path_text);
} path_scratch SEC(".maps");

// A path is read once, byte by byte; three hashes grow: of all of it, of the component, of the last two components.
struct path_scan {
    const struct path_text *path;
    __u64 whole, one, two;
    __u64 whole_before, two_before; // as the component began
    __u32 length;                   // of the component
    bool absolute, second, digits, dot;
    __u32 found;
    __u32 rule;
};

static __always_inline void path_compare(struct path_scan *s, __u64 hash)
{
#pragma unroll
    for (__u32 i = 0; i < WATCH_SENSITIVE_PROBES; i++) {
        __u32 at = watch_sensitive_slot(hash, i);
        struct watch_sensitive *known = bpf_map_lookup_elem(&sensitive, &at);
        if (known && known->hash == hash && !s->found) {
            s->found = 1;
            s->rule = known->rule;
        }
    }
}

static __always_inline void path_component_ends(struct path_scan *s)
{
    if (s->length == 0 || (s->dot && s->length == 1)) { // "//" and "/./" are "/"
        s->whole = s->whole_before;
        s->two = s->two_before;
    } else {
        if (s->digits) {
            s->whole = watch_fnv(s->whole_before, '#');
            s->one = watch_fnv(WATCH_FNV, '#');
            s->two = watch_fnv(s->two_before, '#');
        }
        if (s->absolute)
            path_compare(s, s->whole);
        path_compare(s, s->one);
        if (s->second)
            path_compare(s, s->two);
        s->second = true;
        s->whole = s->whole_before = watch_fnv(s->whole, '/');
        s->two = s->two_before = watch_fnv(s->one, '/');
    }
    s->one = WATCH_FNV;
    s->length = 0;
    s->digits = true;
    s->dot = true;
}

static long path_byte(__u32 at, struct path_scan *s)
{
    unsigned char c = (unsigned char)s->path->text[at & (WATCH_PATH - 1)];
    if (c == '/' || c == 0) {
        path_component_ends(s);
        return c == 0 || s->found != 0;
    }
    s->whole = watch_fnv(s->whole, c);
    s->one = watch_fnv(s->one, c);
    s->two = watch_fnv(s->two, c);
    s->length++;
    s->digits = s->digits && c >= '0' && c <= '9';
    s->dot = s->dot && c == '.';
    return 0;
}

static __always_inline bool path_is_sensitive(const struct path_text *path, __u32 n, __u32 *rule)
{
    struct path_scan s = {.path = path, .one = WATCH_FNV, .digits = true, .dot = true};
    s.absolute = path->text[0] == '/';
    s.whole = s.whole_before = s.absolute ? watch_fnv(WATCH_FNV, '/') : WATCH_FNV;
    s.two = s.two_before = WATCH_FNV;
    bpf_loop(n, path_byte, &s, 0);
    *rule = s.rule;
    return s.found != 0;
}
