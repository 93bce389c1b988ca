// SPDX-License-Identifier: Apache-2.0
// Which ranges of host ids are in use, by all spawners of this host: two brokers with the same configuration must not give the
// same ids to two sandboxes. A byte of IDS_PATH per range, locked (F_OFD_SETLK, fcntl(2)) as long as its slot is in use; the
// kernel unlocks when the spawner ends, however it ends.
#pragma once

#include "spawner.h"

#define IDS_PATH "/run/stockade.ids"

// Opens it, root's own. Without it ranges are not locked, which is a feature that is absent and degraded.
void ids_open(struct spawner *s, struct spawn_features *f);

// False: another spawner uses this range now.
bool ids_take(const struct spawner *s, const struct slot *slot);
void ids_give(const struct spawner *s, const struct slot *slot);
