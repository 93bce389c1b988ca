// SPDX-License-Identifier: Apache-2.0
// The files of an audit log on the command line: each file as it is named, and all files of a log in a folder, in their order.
#pragma once

#include "proto/audit.h"

// One file. Returns 0 to go on, 1 to end, or a negative errno.
typedef int audit_file_fn(void *cookie, int fd, const char *name, struct err *e);
int audit_files_each(const char *const *paths, int n, audit_file_fn *file, void *cookie,
                     struct err *e);

// One frame of a file, in their order. Returns as above.
typedef int audit_frame_fn(void *cookie, const struct audit_frame *f, struct err *e);
int audit_frames_each(const char *const *paths, int n, audit_frame_fn *frame, void *cookie,
                      struct err *e);
