// SPDX-License-Identifier: Apache-2.0
// An event as it is kept and sent: packed once, shared by all who have it.
#pragma once

#include <stdint.h>

#include "server/base/idtable.h"

// One event, packed: `bytes` is its length as a varint and the message behind it, so that it can stand in a repeated
// field as it is.
struct event_packed {
    uint32_t refs;
    uint32_t n;      // bytes in all
    uint32_t head_n; // of those, the length
    uint32_t kind, severity;
    uint64_t sequence;
    char sandbox_id[ID_TEXT_MAX + 1], process_id[ID_TEXT_MAX + 1], tenant[32];
    uint8_t bytes[];
};
