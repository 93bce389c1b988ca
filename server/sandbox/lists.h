// SPDX-License-Identifier: Apache-2.0
// Bounds the memory that jobs make the kernel hold for lists of names.
//
// overlayfs merges the names of a folder that comes from several layers into a list, and keeps it as long as a descriptor of the folder
// exists that has read it; after each change of the folder, the next descriptor gets a list of its own (fs/overlayfs/readdir.c).
// No cgroup is charged for that: 64 to 512 bytes per name. No kernel has a limit for it, and no hook of BPF or seccomp sees a
// list, so the broker looks:
//
//   every 100 ms, while a sandbox has such folders: kernel memory of the host (20 us); every 2 s, and when it has grown by 8 MiB:
//   the general part of it that is charged to no cgroup (1 ms)
//     16 MiB above its lowest  ->  descriptors of folders, per sandbox. None has many: that is the new lowest
//     128 MiB above it         ->  destroys the sandbox whose descriptors may hold most, one after the other until it is below
//
// So one sandbox can hold 128 MiB at most, and what it can make between two looks. Sandboxes are counted one after the other, and below
// 128 MiB counts take at most a fifth of the spawner's time, so that many sandboxes with many descriptors delay no other requests.
//
// Its jobs end with OUTCOME_LIMIT, and the kernel frees the lists with their descriptors. A sandbox may hold most if its number
// of descriptors, times the names that its files have, is highest, since no interface shows whose a list is. One with few names and
// few open folders is never destroyed. Descriptors in a socket can hold further sockets, so nobody sees how many they are:
// a sandbox in which some stay is destroyed when what is seen does not explain the growth. lists_watch.c does this; here is what it keeps.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop_timer;

// The reason of the error with which a sandbox is destroyed.
#define SANDBOX_KERNEL_MEMORY "KERNEL_MEMORY"

// Of one sandbox.
struct lists_of {
    bool watched;
    bool due;           // its folders are to be counted
    bool ends;          // it was destroyed for its lists
    uint64_t inherited; // names in layers of other sandboxes
    uint64_t names;     // the most that were seen
    uint64_t folders;   // descriptors, at the last look
    uint64_t hidden;    // on their way through sockets, then
    uint32_t hides_for; // so many looks
};

// Of all.
struct lists {
    struct loop_timer *timer; // NULL: nothing is watched
    uint32_t watched, ending;
    uint32_t asked; // replies that are missing
    uint32_t turn;
    uint64_t began_ns,
        again_ns;      // uv_hrtime() of the last count, and from which there may be another one
    uint64_t low, now; // bytes that are not charged
    bool stale;        // `now` is older than the end of a sandbox that held lists
    uint64_t slabs, slabs_now; // charged ones, too; when `now` was read, and at the last look
};
