// SPDX-License-Identifier: Apache-2.0
// The broker's end of a keeper's socket (server/keeper/keep.h): one order, one answer.
//
// A keeper can be killed at any moment, most often because its cgroup has no memory left. Then the error is RESOURCE_EXHAUSTED, with the
// reason COPY_MEMORY for a keeper in the cgroup of a sandbox, and KEEPER_KILLED for the others.
#pragma once

#include <stdbool.h>

#include "proto/err.h"
#include "server/keeper/keep.h"

#define KEEPER_KILLED "KEEPER_KILLED"

enum keeper_task { KEEPER_COPIES, KEEPER_DECRYPTS, KEEPER_STORES, KEEPER_TASKS };

// Sends the order; the descriptors stay with the caller, list_fd may be -1. If the keeper has already failed, the error is the one that it
// has reported.
int keeper_order(int fd, enum keeper_task task, const struct keep_order *order, int list_fd,
                 struct err *e);

// Whether there is an answer, which says what failed if its `ok` is 0.
bool keeper_answer(int fd, enum keeper_task task, struct keep_answer *out);
