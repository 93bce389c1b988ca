// SPDX-License-Identifier: Apache-2.0
// A process that works in the mount namespace of a sandbox with real root's rights. It shares the spawner's memory and
// descriptors; the spawner waits for it as after vfork(2). It must not allocate, lock or log, and follows no link.
#pragma once

#include "proto/err.h"

// Runs it. Returns what `work` returned, or -ENOTRECOVERABLE if the process ended on its way. *helper_fd: owned, its pidfd, to
// be reaped when it ends; -1: none began.
int tree_helper_run(int (*work)(void *cookie, struct err *e), void *cookie, int *helper_fd,
                    struct err *e);

// For `work`: enters the mount namespace of a sandbox, of whose first process this is a pidfd. ABORTED: it is ending, and its removal
// was not requested yet.
int tree_helper_enter(int guest_fd, struct err *e);
