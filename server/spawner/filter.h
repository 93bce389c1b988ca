// SPDX-License-Identifier: Apache-2.0
// seccomp filters: compiled once at start with libseccomp, loaded with one system call by every child.
//
// There are two, one on top of the other. The guest's is an allow-list for the native architecture (i386 and x32 are
// killed); what is refused and why: SECURITY.md. Policy answers EPERM, calls with a fallback in libc answer ENOSYS, an
// unknown number ENOSYS. Jobs inherit it, so theirs only takes back what the guest alone needs (clone3, which answers
// ENOSYS, and keyctl): a handful of instructions, since loading the whole list again costs each job 90 us. It is no filter
// by itself.
#pragma once

#include "filter_code.h"
#include "proto/err.h"

// Spawner, at start. On success both are filled, *job_fd is a sealed memfd with the job's code: struct sock_filter[].
int filter_compile(struct filter *guest, struct filter *job, int *job_fd, struct err *e);

// Child: loads a filter. no_new_privs must be set. No allocation.
int filter_load(const struct filter *f, struct err *e);
