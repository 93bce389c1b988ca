// SPDX-License-Identifier: Apache-2.0
// Ranges of host ids in use by all spawners of this host: two brokers with the same configuration must not use the same
// ids. Each range in use is a locked byte of IDS_PATH (F_OFD_SETLK, fcntl(2)); the kernel unlocks it when the spawner
// ends, in any way.
#pragma once

#include "spawner.h"

#define IDS_PATH "/run/stockade.ids"

// Opens the file, which must belong to root. Without it ranges are not locked, which is reported as a degraded feature.
void ids_open(struct spawner *s, struct spawn_features *f);

// False: another spawner uses this range now.
bool ids_take(const struct spawner *s, const struct slot *slot);
void ids_give(const struct spawner *s, const struct slot *slot);
