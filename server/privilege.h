// SPDX-License-Identifier: Apache-2.0
// The part of the start that needs root: creates files and folders, and then drops root for good.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"
#include "server/config/config.h"

// Accounts of the broker after privilege_drop(), of its socket, and of the relay.
struct identity {
    uid_t uid;
    gid_t gid;
    gid_t socket_gid;
    uid_t reader_uid; // of the account that may read metrics and events of all tenants; 0: none
    uid_t relay_uid;  // of the relay's process
    gid_t relay_gid;
};

// The broker's account is "stockade", or the first id of the configured range if that account does not exist; no
// sandbox uses this id. The relay's is "stockade-relay", or the second id of that range. The socket's group is the
// configured one, else "stockade" if it exists, else the broker's own (then only root and the broker may connect).
int privilege_identity(const struct config *c, struct identity *out, struct err *e);

// FAILED_PRECONDITION, with a hint, unless this process is root.
int privilege_check_root(struct err *e);

// Creates the state directory (root's, 0755) and the folders of ipc addresses (the broker's, 0755), and locks the state
// directory until the process ends: FAILED_PRECONDITION if another broker has the lock. A state directory that exists
// must be empty or one of ours.
int privilege_prepare(const struct config *c, const struct identity *who, struct err *e);

// Removes the folders and the lock that privilege_prepare() made, if they are still empty, because the start has failed.
void privilege_undo(void);

// The same checks of what exists, without the lock, and nothing is created.
int privilege_check_state_dir(const struct config *c, const struct identity *who, struct err *e);
int privilege_check_sockets(const struct config *c, const struct identity *who, struct err *e);

// Drops root: ids, groups, all capability sets; sets no_new_privs and non-dumpable, and verifies all of it. Single
// thread.
int privilege_drop(const struct identity *who, struct err *e);

// Path of one of our own programs: in the folder of this executable (a build tree), else in the installed folder.
int privilege_program(const char *name, char *out, size_t out_n, struct err *e);

// Opens such a program for sandboxes to execute. O_PATH: nobody can read or change it through the descriptor, which the
// caller owns.
int privilege_open_program(const char *name, int *fd, struct err *e);
