// SPDX-License-Identifier: Apache-2.0
// An event as it is stored and sent: packed once, shared by all holders.
#pragma once

#include <stdint.h>

#include "server/base/idtable.h"

// One packed event: `bytes` is its length as a varint, followed by the message, so it can be used as an entry of a
// repeated field.
struct event_packed {
    uint32_t refs;
    uint32_t n;      // number of bytes in total
    uint32_t head_n; // of these, the bytes of the length
    uint32_t kind, severity;
    uint64_t sequence;
    char sandbox_id[ID_TEXT_MAX + 1], process_id[ID_TEXT_MAX + 1], tenant[32];
    uint8_t bytes[];
};
