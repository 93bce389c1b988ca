// SPDX-License-Identifier: Apache-2.0
// The table of open disks, for disk.c, and for disk_host.c, whose folders of the host have mount points in the same namespace.
#pragma once

#include "disk.h"

enum { DISK_MOUNT_POINT = 8 };

struct disk {
    enum { DISK_FREE, DISK_OPENING, DISK_READY } state;
    bool host; // a folder of the host, of this root
    uint32_t root;
    uint32_t kind;
    uint8_t id[16];
    uint32_t users; // sandboxes
    // Of a folder of the host.
    bool writable;
    uint32_t uid, gid;
};

struct disks {
    int space_fd;  // -1: not made yet
    int nobody_fd; // a user namespace that maps no id of a file; -1: not made yet
    uint32_t hosts_n;
    struct disk disk[SPAWN_DISKS_MAX];
};

// The name of its folder in the space.
void disk_mount_point(uint32_t number, char out[DISK_MOUNT_POINT]);

// NULL: all are in use.
struct disk *disk_free(struct disks *d, struct err *e);

// Unmounts it. *helper_fd: see tree_helper_run().
int disk_unmount(const struct disks *d, uint32_t number, int *helper_fd, struct err *e);

// Reaps a helper whose end nobody waits for.
void disk_settle(int helper_fd);
