// SPDX-License-Identifier: Apache-2.0
// seccomp filters: compiled once at start with libseccomp, loaded with one system call by every child.
//
// There are two filters, one on top of the other. The guest's is an allow-list for the native architecture (i386 and
// x32 calls kill). SECURITY.md explains the refused calls. Refused calls fail with EPERM; calls with a fallback in
// libc, and unknown numbers, fail with ENOSYS. Jobs inherit this filter, so their own only forbids the calls that
// just the guest needs (clone3, with ENOSYS, and keyctl). It has only a few instructions, because loading the whole
// list again would cost each job 90 us. It is not sufficient by itself.
#pragma once

#include "filter_code.h"
#include "proto/err.h"

// Spawner, at start. On success both are filled, *job_fd is a sealed memfd with the job's code: struct sock_filter[].
int filter_compile(struct filter *guest, struct filter *job, int *job_fd, struct err *e);

// Child: loads a filter. no_new_privs must be set. No allocation.
int filter_load(const struct filter *f, struct err *e);
