// SPDX-License-Identifier: Apache-2.0
// What the spawner and the loader say to each other: the one header that both ends of their socket agree on.
//
// The loader is a process of its own because it is large and short: libbpf parses the programs and the kernel's types as
// root, once, at start; what stays is descriptors. The spawner, which is root for as long as the broker runs, links none
// of it.
//
//   spawner --SOCK_SEQPACKET, struct load_order--------------------------> loader    descriptors 4, 5: cgroups of the
//                                                                                sandboxes, of the relay
//   loader  --struct load_report, with descriptors (SCM_RIGHTS)----------> spawner   and the loader ends
//
// Descriptors of the report, in this order: maps (those with their bit in `maps`), "flows" for reading alone, the syscall
// program (each when its flag is set), links_n links. A link is what keeps its program attached, and the program its maps.
#pragma once

#include "proto/fdpass.h"
#include "server/spawner/ops.h"

enum {
    LOAD_SOCKET_FD = 3,
    LOAD_CGROUP_FD = 4,
    LOAD_RELAY_FD = 5,
    LOAD_LINKS_MAX = 96,
    LOAD_FEATURES_MAX = 6,
    LOAD_FDS_MAX = BPF_FDS + 2 + LOAD_LINKS_MAX,
};
_Static_assert((int)LOAD_FDS_MAX <= (int)FDPASS_MAX, "one packet takes all");

struct load_order {
    uint32_t sandbox_level; // of the cgroup of a sandbox; that of the root is 0
};

struct load_report {
    uint32_t bpf;      // bits of enum spawn_bpf
    uint32_t maps;     // bits of enum spawn_bpf_fd
    uint32_t flows;    // 1: "flows" for reading
    uint32_t syscalls; // 1: the syscall program
    uint32_t links_n;
    uint32_t features_n;
    struct spawn_feature feature[LOAD_FEATURES_MAX];
    char log[SPAWN_BPF_LOG_MAX]; // what libbpf and the kernel's verifier said of what did not load
};
