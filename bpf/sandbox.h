// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the BPF programs know about a sandbox: one entry per sandbox, written by the broker and read by every program.
//
// Programs find it by the id of the ancestor of the current cgroup (or the socket's) at the level of the sandboxes,
// so they also find the processes that a job forks and executes, and nested cgroups. A process below the sandboxes'
// cgroup whose sandbox has no entry is refused everything (fail closed). The id of a cgroup is the inode number of
// its directory in the v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst; kernfs ids).
//
// Both clang -target bpf and the broker's compiler read this file: use plain types of fixed size, and explicit
// padding.
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    BPF_SLOTS = 4096, // slots of the spawner, which index all data per sandbox
};

// How a sandbox reaches the network. Numbers as in stockade.v1.NetworkMode.
enum net_mode {
    NET_NONE = 1,
    NET_ALLOWLIST = 2,
    NET_OPEN = 3,
    NET_OFF = 4, // no sockets but unix ones
};

// Map "sandboxes", BPF_MAP_TYPE_HASH, key: __u64 cgroup id.
struct bpf_sandbox {
    __u32 slot;
    // of the slot: other entries for this slot are valid for this generation only
    __u32 generation;
    __u32 mode;     // enum net_mode
    __u32 rule_set; // key of its rules (net.h); 0: none
    __u32 template; // number of its template, which selects the profiles (watch.h)
    __u32 watch;    // enum watch_flag bits (watch.h); 0: counted only
    // bytes that may leave through the relay in the sandbox's life; 0: no limit
    __u64 egress_bytes_max;
    __u64 egress_rate; // bytes per second, enforced by the relay; 0: no limit
    __u32 sockets_max; // INET sockets at a time; 0: no limit
    __u32 zero;
};
