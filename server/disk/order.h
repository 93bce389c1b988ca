// SPDX-License-Identifier: Apache-2.0
// The protocol between the spawner and stockade-disk, a root process that makes, mounts or removes one disk and exits: one
// header for both ends of their socket.
//
// A disk is a folder that lasts, below the state directory, with a quota of bytes and inodes that the kernel enforces. There
// are two kinds, which look the same once they are mounted:
//
//   DISK_PROJECT  STATE_DIR/disks/NAME is a folder with a project id, whose quota is the limit: ext4 and xfs that are mounted
//                 with prjquota
//   DISK_IMAGE    STATE_DIR/disks/NAME is the image of an ext4 file system, whose size is the limit, on a loop device.
//                 All its bytes are allocated when it is made, so a disk of the host that is full later harms none
//
//   spawner       --struct disk_order, with the namespace of open disks (DISK_OPEN)--> stockade-disk
//   stockade-disk --struct disk_answer, with a descriptor of the mount (OPEN, SCRATCH)--> spawner     then it exits
//
// An image is mounted only if this program made it: nobody else can write to it but through the kernel's file system. The
// program locks an image (flock(2)) before it binds it to a loop device, which keeps the lock as long as anything is mounted
// from it, so no image is ever mounted twice, by whatever broker. A loop device goes with the last mount.
//
// The names of disks are made of a kind and an id, so no path comes from the broker.
//
// A scratch disk holds the files of one sandbox. It is an image without a name (O_TMPFILE), so that nothing of it is left
// whichever process is killed, and has no journal, because nobody reads it after a crash. Its descriptor is its only owner: a
// mount that is attached nowhere, which the first process of the sandbox attaches.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

enum {
    DISK_SOCKET_FD = 3,
    DISK_SPACE_FD = 4,  // DISK_OPEN: the mount namespace of open disks
    DISK_TRIM_FD = 4,   // DISK_SCRATCH with `trim`: O_PATH
    DISK_SECONDS = 120, // then an alarm of its own ends the program; not while it removes files
    DISK_NAME_MAX = 48,
};

enum disk_op { DISK_PROBE, DISK_MAKE, DISK_OPEN, DISK_REMOVE, DISK_SCRATCH, DISK_OPS_N };
enum disk_backend { DISK_NONE, DISK_PROJECT, DISK_IMAGE };

struct disk_order {
    uint32_t op;   // enum disk_op
    uint32_t kind; // enum spawn_disk_kind; PROBE: 0
    uint8_t id[16];
    uint64_t bytes; // MAKE, SCRATCH
    uint32_t inodes;
    uint32_t trim; // SCRATCH: 1: first, the file system at DISK_TRIM_FD is trimmed
    // OPEN: the folder of the namespace that it is mounted at (spawner/disk.h)
    uint32_t mount_point;
    uint32_t mkfs_id; // uid and gid of the program that formats an image, and of nothing else
    char state_dir[SPAWN_PATH_MAX];
};

struct disk_answer {
    uint32_t ok;
    uint32_t backend;       // PROBE: which one new disks get; OPEN: which one it is
    uint32_t scratch;       // PROBE: there can be scratch disks
    struct err err;         // PROBE with ok: the reason in its text why it is not the better one
    struct err scratch_err; // PROBE without scratch: the reason
};
