// SPDX-License-Identifier: Apache-2.0
// The keepers' processes (../keeper/keep.h), started on request of the broker. The spawner decides which folder and which layer
// they get.
#pragma once

#include "spawner.h"

// KEEP: starts one with a layer of the slot. The reply has the broker's end of its socket.
void keeper_process_keep(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                         struct answer *a);
// KEEPER: the same without a layer.
void keeper_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                          struct answer *a);
// One that copies layers in memory (tree_copy.h), in the cgroup of the slot. *fd: the broker's end of its socket, owned.
struct tree_copying;
int keeper_process_copy(struct spawner *s, const struct slot *slot, const struct tree_copying *c,
                        struct err *e);
// One has ended: reaps it.
void keeper_process_ended(struct spawner *s, int pid_fd);
