// SPDX-License-Identifier: Apache-2.0
// The first process of a sandbox, from clone3 to the guest's first instruction.
#pragma once

#include "cgroup.h"
#include "filter.h"
#include "ops.h"
#include "tree.h"

// The input of a birth. All borrowed; the child may share our descriptor table until its first message, so descriptors
// that it uses are below FD_KEEP_MIN and stay open until then.
struct child_plan {
    const struct cgroup_sandbox *cgroup;
    const struct tree *tree;
    int (*enter)(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e);
    struct tree_sandbox sandbox; // userns_fd too
    const struct filter *filter; // the guest's
    const char *hostname;
    bool user_root; // jobs are root inside
    int net_fd;     // a ready network namespace; -1: the child makes one
    int socket_fd;
    int channel_fd; // AF_UNIX SOCK_SEQPACKET to the spawner
    int job_filter_fd;
    int exe_fd;
    int null_fd;
    int proc_fd;
    bool cores_piped; // core_pattern is a pipe: see child.c
    uint64_t ignored; // signals that the spawner inherited as ignored: bit 0 is signal 1
};

// Starts it. *pid_fd: owned by the caller, readable when the process has ended. The channel then receives a struct
// err with code ERR_OK and the descriptor for tree_resize when everything except exec is done, followed by end of
// file when the guest runs; or a struct err with the failure.
int child_start(const struct child_plan *p, int *pid_fd, struct err *e);
