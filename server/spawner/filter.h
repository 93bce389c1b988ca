// seccomp filters: compiled once at start with libseccomp, loaded with one system call by every child.
//
// The job's filter is an allow-list for the native architecture (i386 and x32 are killed); what is refused and why:
// SECURITY.md. Policy answers EPERM, calls with a fallback in libc answer ENOSYS (clone3 and others), an unknown number
// ENOSYS. The guest's filter allows what the guest does (start, signal and reap jobs, its socket, seccomp(2) itself)
// and everything that the job's filter allows, since jobs inherit it.
#pragma once

#include <linux/filter.h>

#include "../../proto/err.h"

struct filter {
    struct sock_filter *code; // owned
    unsigned short n;
};

// Spawner, at start. On success both are filled, *job_fd is a sealed memfd with the job's code: struct sock_filter[].
int filter_compile(struct filter *guest, struct filter *job, int *job_fd, struct err *e);

// Child: loads a filter. no_new_privs must be set. No allocation.
int filter_load(const struct filter *f, struct err *e);
