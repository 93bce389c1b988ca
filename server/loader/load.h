// SPDX-License-Identifier: Apache-2.0
// The protocol between the spawner and the loader: one header for both ends of their socket.
//
// The loader is a process of its own because it needs much code for a short time: at start, libbpf parses the
// programs and the kernel's types once, as root. Only descriptors remain. The spawner, which stays root as long as
// the broker runs, is not linked with libbpf.
//
//   spawner --SOCK_SEQPACKET, struct load_order--------------------------> loader    descriptors 4, 5: cgroups of the
//                                                                                sandboxes, of the relay
//   loader  --struct load_report, with descriptors (SCM_RIGHTS)----------> spawner   and the loader ends
//
// Descriptors of the report, in this order: the maps with a bit in `maps`; "flows" opened read-only, if its flag is
// set; the syscall program, if its flag is set; links_n links. A link keeps its program attached, and a program keeps
// its maps.
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
    uint32_t flows;    // 1: "flows", read-only
    uint32_t syscalls; // 1: the syscall program
    uint32_t links_n;
    uint32_t features_n;
    struct spawn_feature feature[LOAD_FEATURES_MAX];
    // messages of libbpf and of the kernel's verifier about programs that did not load
    char log[SPAWN_BPF_LOG_MAX];
};
