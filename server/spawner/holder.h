// SPDX-License-Identifier: Apache-2.0
// Short-lived processes that exist only to make the kernel create a namespace.
#pragma once

#include <stdint.h>

#include "proto/err.h"

// Makes a cgroup namespace rooted at a cgroup: a process is created there, opens its own namespace into the shared
// descriptor table, and exits, while the spawner sleeps (as with vfork). Returns the descriptor, or a negative errno
// with e.
int holder_cgroup_namespace(int cgroup_fd, int proc_fd, struct err *e);

// Makes a user namespace, owned by uid, that maps inside 0..65535 to [uid, uid + 65536), without setgroups, and without
// user namespaces below it. Returns the descriptor, or a negative errno with e.
int holder_user_namespace(uint32_t uid, int proc_fd, struct err *e);

// The same for a sandbox whose jobs are root inside: it maps all ids but the last, the guest's. apt and su set supplementary
// groups, which are ids of the range, too. Each of the 65,535 users has limits of its own, so those that the kernel counts for
// all of them together are set here (ucounts: set_userns_rlimit_max in kernel/user_namespace.c).
int holder_user_namespace_of_root(uint32_t uid, int proc_fd, struct err *e);

// The same as the first, but it maps [from, from + 65536), for mounts that show files of one sandbox to another (mount_setattr(2)).
int holder_user_namespace_from(uint32_t from, uint32_t uid, int proc_fd, struct err *e);

// For mounts, too: it maps one user and one group only, to those of a sandbox whose range begins at `owner`.
struct holder_pair {
    uint32_t uid, gid; // on the disk
    uint32_t to_uid, to_gid;
};
int holder_user_namespace_pair(const struct holder_pair *p, uint32_t owner, int proc_fd,
                               struct err *e);

// Makes a network namespace with an enabled loopback interface, owned by the first user namespace. Changes the
// caller's own namespace for a moment; home_fd is the one to return to. Returns the descriptor, or a negative errno
// with e.
int holder_network_namespace(int home_fd, int proc_fd, struct err *e);

// In a child: makes a new network namespace for itself, with loopback up.
int holder_network_namespace_here(int proc_fd, struct err *e);
