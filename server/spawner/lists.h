// SPDX-License-Identifier: Apache-2.0
// LISTS: how much memory the kernel holds for lists of names that no cgroup is charged for, and how many of them a sandbox may
// hold. The broker decides (sandbox/lists.h). Spawner only.
#pragma once

#include "spawner.h"

// Replies at once, with `amount` (enum spawn_op: SPAWN_LISTS).
void lists_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                  struct answer *a);
