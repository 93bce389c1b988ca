// SPDX-License-Identifier: Apache-2.0
// The broker's access to the BPF maps (bpf/*.h): descriptors from the spawner, and memory mappings of some maps.
//
// The broker has no right to load or attach programs. Operations on a map by its descriptor need no right (since Linux
// 5.19, whatever kernel.unprivileged_bpf_disabled is). libbpf's bpf_map_*_elem functions work on fd[].
#pragma once

#include <stdint.h>

#include "bpf/emit.h"
#include "bpf/net.h"
#include "bpf/watch.h"
#include "proto/err.h"
#include "server/spawner/ops.h"

struct bpf {
    uint32_t has;    // enum spawn_bpf bits
    int fd[BPF_FDS]; // owned; -1: missing
    uint32_t cpus;   // that the kernel may use
    // Mapped, indexed by slot, account or profile; NULL if missing. The kernel writes them at any time.
    const struct net_counters *net;             // BPF_SLOTS
    const uint64_t *lost;                       // lost_at(), of `cpus`
    const struct watch_account *accounts;       // WATCH_ACCOUNTS
    struct watch_profile_state *profile_states; // WATCH_PROFILES
    struct watch_profile *profiles;             // WATCH_PROFILES
};

// Takes ownership of the descriptors (also on failure) and maps the maps.
int bpf_open(struct bpf *b, uint32_t has, const int fds[BPF_FDS], struct err *e);
void bpf_close(struct bpf *b);
