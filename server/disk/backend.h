// SPDX-License-Identifier: Apache-2.0
// The two kinds of disks, as a table: the first that works on a host makes its new disks (order.h).
#pragma once

#include "order.h"

struct backend {
    uint32_t number; // enum disk_backend

    // Whether this host has what it needs. A negative errno, with the reason.
    int (*probe)(int folder, struct err *e);

    // Makes a disk. ALREADY_EXISTS: there is one of the name; RESOURCE_EXHAUSTED: the host's disk is full. After a failure
    // nothing is left.
    int (*make)(int folder, const char *name, const struct disk_order *o, struct err *e);

    // A detached mount of it, owned; nosuid and nodev. UNAVAILABLE: it is still in use elsewhere.
    int (*open)(int folder, const char *name, struct err *e);

    // Removes it. Does nothing if it does not exist.
    int (*remove)(int folder, const char *name, struct err *e);
};

extern const struct backend backend_project;
extern const struct backend backend_image;

// Makes a scratch disk: an image without a name. A detached mount of it, owned, is its only user; nosuid and nodev.
// RESOURCE_EXHAUSTED: the host's disk is full.
int image_scratch(int folder, const struct disk_order *o, struct err *e);

// Gives the space of a scratch disk that no file needs back to the host. `fd`: a folder of it, O_PATH; nobody writes to it any more.
int image_trim(int fd, struct err *e);
