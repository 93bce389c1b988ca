// SPDX-License-Identifier: Apache-2.0
// What the spawner knows of its cgroups: those of the host, and those of one sandbox. cgroup.h has what is done with them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops.h"

// CPU time needs no controller: every v2 cgroup has cpu.stat, on hybrid hosts too.
enum cgroup_controller { CG_MEMORY, CG_CPU, CG_PIDS, CG_IO, CG_N };
enum cgroup_body { CG_ABSENT, CG_V1, CG_V2 };

enum {
    CGROUP_JOBS_MAX = 1024,  // cgroup.max.descendants of a sandbox, in addition to its `guest`
    CGROUP_NAME_BYTES = 33,  // hex form of an id
    CGROUP_GUEST_PIDS = 1,   // added to the pids limit
    CGROUP_EMPTY_MS = 10000, // timeout for the whole container to become empty
};

struct cgroups {
    int fd;       // the container, v2
    int lock_fd;  // the same, locked, so that a second spawner fails
    int relay_fd; // CONTAINER-relay, v2: the relay's, with net_relay.bpf.c
    char path[SPAWN_PATH_MAX];
    enum cgroup_body body[CG_N];
    int v1_fd[CG_N];  // containers of v1 controllers, otherwise -1
    char subtree[64]; // what is enabled below each sandbox, such as "+memory +pids"
    bool hybrid;
    bool nsdelegate;
    bool guest_apart;              // pid 1 is in SANDBOX/guest, otherwise in SANDBOX
    bool delegated;                // found by systemd's delegation mark, not at the root
    struct cgroup_leaf *idle_head; // cgroup_leaf.c; owned
    struct cgroup_leaf *idle_tail;
    uint32_t idle_n;
    uint32_t leaves_made;
};

// The cgroups of one sandbox. All descriptors are owned; -1: none.
struct cgroup_sandbox {
    int fd;                   // SANDBOX
    int guest_fd;             // SANDBOX/guest, for CLONE_INTO_CGROUP; -1: use fd
    int tree_fd;              // open_tree of SANDBOX, for the guest
    int ns_fd;                // cgroup namespace rooted at SANDBOX; -1: the child makes its own
    int v1_fd[CG_N];          // leaves of v1 controllers
    int tasks_fd[CG_N];       // their `tasks`
    struct cgroup_leaf *leaf; // leaves for reuse (cgroup_leaf.h); NULL: none
};
#define CGROUP_SANDBOX_EMPTY                                                                       \
    (struct cgroup_sandbox)                                                                        \
    {                                                                                              \
        .fd = -1, .guest_fd = -1, .tree_fd = -1, .ns_fd = -1, .v1_fd = {-1, -1, -1, -1},           \
        .tasks_fd = {-1, -1, -1, -1}, .leaf = NULL,                                                \
    }
_Static_assert(CG_N == 4, "CGROUP_SANDBOX_EMPTY names each");
