// SPDX-License-Identifier: Apache-2.0
// One volume, as the index keeps it and others read it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/list.h"

enum { VOLUME_NAME = 65 };

// Read-only for others.
struct volume {
    struct list node;       // of all, oldest first
    uint64_t order;         // increases with each
    uint8_t id[16];         // of its disk
    char name[VOLUME_NAME]; // unique among those of its tenant
    char tenant[32];
    uint64_t bytes;
    uint32_t inodes;
    int64_t created_ms; // CLOCK_REALTIME
    uint32_t users;     // sandboxes that have it, also those that are being deleted
    bool measured;      // the next two are known: it was open since the broker started
    uint64_t used_bytes, used_inodes;
};
