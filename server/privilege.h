// SPDX-License-Identifier: Apache-2.0
// Root's part of the start: places that only root can make, and then giving root up for good.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "../proto/err.h"
#include "config.h"

// Who the broker is after privilege_drop(), and which group its socket gets.
struct identity {
    uid_t uid;
    gid_t gid;
    gid_t socket_gid;
    uid_t relay_uid; // of the relay's process
    gid_t relay_gid;
};

// The account "stockade" where it exists, else the first id of the configured range, which no sandbox gets; the relay's
// is "stockade-relay", else the second id of that range. The socket's
// group: the configured one, else "stockade" where it exists, else the broker's own (only root and the broker then).
int privilege_identity(const struct config *c, struct identity *out, struct err *e);

// FAILED_PRECONDITION with what to do, unless this is root.
int privilege_check_root(struct err *e);

// Makes the state directory (root's, 0755), the folders of ipc addresses (the broker's, 0755), and takes the lock of the
// state directory, which ends with the process: FAILED_PRECONDITION when another broker has it.
int privilege_prepare(const struct config *c, const struct identity *who, struct err *e);

// Gives it up: ids, groups, all capability sets; sets no_new_privs, non-dumpable. Checked afterwards. Single thread.
int privilege_drop(const struct identity *who, struct err *e);

// Path of one of our own programs: beside this executable (a build tree), else in the installed folder.
int privilege_program(const char *name, char *out, size_t out_n, struct err *e);
