// SPDX-License-Identifier: Apache-2.0
// The broker's hold of the BPF maps (bpf/*.h): descriptors that the spawner sent, and what is mapped of them.
//
// The broker has no right to load or attach anything; operations on maps that it holds a descriptor of need none (since
// Linux 5.19, whatever kernel.unprivileged_bpf_disabled says). libbpf's bpf_map_*_elem work on fd[].
#pragma once

#include <stdint.h>

#include "../bpf/emit.h"
#include "../bpf/net.h"
#include "../bpf/watch.h"
#include "../proto/err.h"
#include "spawner/ops.h"

struct bpf {
    uint32_t has;    // enum spawn_bpf bits
    int fd[BPF_FDS]; // owned; -1 where absent
    uint32_t cpus;   // that the kernel may have
    // Mapped, read by slot, account or profile; NULL where absent. The kernel writes them at any time.
    const struct net_counters *net;             // BPF_SLOTS
    const uint64_t *lost;                       // lost_at(), of `cpus`
    const struct watch_account *accounts;       // WATCH_ACCOUNTS
    struct watch_profile_state *profile_states; // WATCH_PROFILES
    struct watch_profile *profiles;             // WATCH_PROFILES
};

// Takes the descriptors (owned from now on, also on failure) and maps what is there.
int bpf_open(struct bpf *b, uint32_t has, const int fds[BPF_FDS], struct err *e);
void bpf_close(struct bpf *b);
