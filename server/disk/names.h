// SPDX-License-Identifier: Apache-2.0
// The folder of disks, and the names in it.
#pragma once

#include "order.h"

// Opens STATE_DIR/disks, which only root can enter, and makes it if it does not exist. Owned by the caller.
int names_folder(const char *state_dir, struct err *e);

// KIND-ID.
void names_of(const struct disk_order *o, char out[DISK_NAME_MAX]);
