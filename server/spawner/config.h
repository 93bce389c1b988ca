// SPDX-License-Identifier: Apache-2.0
// Checks of the broker's configuration: pure, before any action.
#pragma once

#include <stdbool.h>

#include "ops.h"

enum { CONFIG_NETNS_POOL_MAX = 256 };

// Checks every field of the first packet. INVALID_ARGUMENT with the field's name.
int config_check(const struct spawn_config *c, struct err *e);

// True if no limit is 0 or above its maximum. A correct broker sends no other limits.
bool config_limits_ok(const struct spawn_limits *l, const struct spawn_limits *max);

// The same for a disk's bytes and inodes, with the maximum of any disk.
bool config_disk_ok(const struct spawn_limits *l);

// First host id of a slot's range (ops.h). Range 0 is not given to any slot.
uint32_t config_slot_uid(const struct spawn_config *c, uint32_t slot);
