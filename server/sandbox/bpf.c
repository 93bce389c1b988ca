// SPDX-License-Identifier: Apache-2.0
// See bpf.h. Maps that programs write and the broker reads are mapped once, so reading them needs no system call.
#include "bpf.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

// The kernel aligns the elements of an array to 8 bytes; our structs leave no gap between them.
_Static_assert(sizeof(struct net_counters) % 8 == 0, "an element is as far from the next as in C");
_Static_assert(sizeof(struct watch_account) % 8 == 0, "the same");
_Static_assert(sizeof(struct watch_profile_state) % 8 == 0, "the same");
_Static_assert(sizeof(struct watch_profile) % 8 == 0, "the same");

static const size_t net_bytes = BPF_SLOTS * sizeof(struct net_counters);
static const size_t account_bytes = WATCH_ACCOUNTS * sizeof(struct watch_account);
static const size_t state_bytes = WATCH_PROFILES * sizeof(struct watch_profile_state);
static const size_t profile_bytes = WATCH_PROFILES * sizeof(struct watch_profile);

static size_t
lost_bytes(const struct bpf *b)
{
    return (size_t)b->cpus * LOST_PER_CPU * sizeof(uint64_t);
}

// *at is NULL if the map is missing.
static int
map_one(const struct bpf *b, enum spawn_bpf_fd which, size_t bytes, int protection, void **at,
        struct err *e)
{
    *at = NULL;
    if (b->fd[which] < 0)
        return 0;
    void *p = mmap(NULL, bytes, protection, MAP_SHARED, b->fd[which], 0);
    if (p == MAP_FAILED)
        return err_sys(e, errno, "map BPF map %d", (int)which);
    *at = p;
    return 0;
}

static int
map_all(struct bpf *b, struct err *e)
{
    void *net = NULL;
    void *lost = NULL;
    void *accounts = NULL;
    void *states = NULL;
    void *profiles = NULL;
    int r = map_one(b, BPF_FD_NET_COUNTERS, net_bytes, PROT_READ, &net, e);
    if (r == 0)
        r = map_one(b, BPF_FD_LOST, lost_bytes(b), PROT_READ, &lost, e);
    if (r == 0)
        r = map_one(b, BPF_FD_ACCOUNTS, account_bytes, PROT_READ, &accounts, e);
    if (r == 0)
        r = map_one(b, BPF_FD_PROFILE_STATES, state_bytes, PROT_READ | PROT_WRITE, &states, e);
    if (r == 0)
        r = map_one(b, BPF_FD_PROFILES, profile_bytes, PROT_READ | PROT_WRITE, &profiles, e);
    b->net = net;
    b->lost = lost;
    b->accounts = accounts;
    b->profile_states = states;
    b->profiles = profiles;
    return r;
}

int
bpf_open(struct bpf *b, uint32_t has, const int fds[BPF_FDS], struct err *e)
{
    int cpus = libbpf_num_possible_cpus();
    *b = (struct bpf){.has = has, .cpus = cpus > 0 ? (uint32_t)cpus : 1};
    for (int i = 0; i < BPF_FDS; i++)
        b->fd[i] = fds[i];
    int r = map_all(b, e);
    if (r < 0)
        bpf_close(b);
    return r;
}

static void
unmap(const void *at, size_t bytes)
{
    if (at)
        (void)munmap((void *)(uintptr_t)at, bytes);
}

void
bpf_close(struct bpf *b)
{
    unmap(b->net, net_bytes);
    unmap(b->lost, lost_bytes(b));
    unmap(b->accounts, account_bytes);
    unmap(b->profile_states, state_bytes);
    unmap(b->profiles, profile_bytes);
    for (int i = 0; i < BPF_FDS; i++) {
        if (b->fd[i] >= 0)
            (void)close(b->fd[i]);
    }
    *b = (struct bpf){.has = 0};
    for (int i = 0; i < BPF_FDS; i++)
        b->fd[i] = -1;
}
