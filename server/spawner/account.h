// SPDX-License-Identifier: Apache-2.0
// Between fork and exec of a process that parses data from strangers: it gives up root.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// No capability and no way to get one, no groups but this one, these ids; and it ends with the spawner. False: see errno.
bool account_become(uint32_t uid, uint32_t gid);
