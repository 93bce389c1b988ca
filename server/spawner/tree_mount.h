// SPDX-License-Identifier: Apache-2.0
// Mounts by descriptor: thin helpers over the mount API of Linux 5.2 and later, for both parts of the tree. Nothing
// here allocates or locks; all may run between clone3 and execve.
#pragma once

#include <stdint.h>

#include "proto/err.h"

struct mount_option {
    const char *key;
    const char *value; // NULL: a flag
};

// Makes a new file system of that type, not attached yet. `attributes`: MOUNT_ATTR_*. Returns a descriptor, owned by
// the caller.
int mount_new(const char *type, const struct mount_option *options, int n, unsigned attributes,
              struct err *e);

// The same with one system call instead of one for each option and a few more, attached at a folder that is the caller's own:
// links in the path would be followed. For values without a comma, 240 bytes in all.
int mount_new_at(const char *type, const struct mount_option *options, int n, unsigned attributes,
                 const char *path, struct err *e);

// Makes a detached copy of the mount (without those below it) at a path, with additional attributes. Returns an owned
// descriptor.
int mount_clone(int dir, const char *path, unsigned attributes, struct err *e);

// Makes a detached mount show its files with the ids of a user namespace. The second one also adds attributes.
int mount_idmap(int fd, int userns_fd, struct err *e);
int mount_idmap_and(int fd, int userns_fd, unsigned attributes, struct err *e);

// Attaches a detached mount to a folder or file below `dir`. Does not follow links.
int mount_attach(int fd, int dir, const char *path, struct err *e);

// Adds and removes attributes of one mount.
int mount_change(int fd, unsigned set, unsigned clear, struct err *e);

// Makes an attached mount the root and drops the old root with everything below it. The working directory becomes
// "/".
int mount_become_root(int fd, struct err *e);
