// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the BPF programs know of a sandbox: one entry per sandbox, written by the broker, read by every program.
//
// Programs find it by the id of the ancestor of the current cgroup (or the socket's) at the level of the sandboxes, so
// whatever a job forks, execs or nests is found as well. A process below the sandboxes' cgroup whose sandbox has no entry
// is refused everything (fail closed). The id of a cgroup is the inode number of its directory in the v2 hierarchy
// (Documentation/admin-guide/cgroup-v2.rst; kernfs ids).
//
// This file is read by clang -target bpf and by the broker's compiler: plain fixed-size types, no padding left open.
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    BPF_SLOTS = 4096, // slots of the spawner: the index of everything that is kept per sandbox
};

// How a sandbox reaches the network. Numbers as in stockade.v1.NetworkMode.
enum net_mode {
    NET_NONE = 1,
    NET_ALLOWLIST = 2,
    NET_OPEN = 3,
};

// Map "sandboxes", BPF_MAP_TYPE_HASH, key: __u64 cgroup id.
struct bpf_sandbox {
    __u32 slot;
    // of the slot: entries of others that name the slot hold for this generation only
    __u32 generation;
    __u32 mode;             // enum net_mode
    __u32 rule_set;         // key of its rules (net.h); 0: none
    __u32 template;         // number of its template: profiles belong to it (watch.h)
    __u32 watch;            // enum watch_flag bits (watch.h); 0: counted only
    __u64 egress_bytes_max; // bytes that may leave through the relay in its life; 0: no limit
    __u64 egress_rate;      // bytes per second, which the relay keeps; 0: no limit
    __u32 sockets_max;      // INET sockets at a time; 0: no limit
    __u32 zero;
};
