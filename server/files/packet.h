// SPDX-License-Identifier: Apache-2.0
// A packet from stockade-files (files_agent/protocol.h), which jobs of the sandbox may have replaced: hostile.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct files_packet {
    uint32_t kind;       // enum files_kind: MESSAGE, DATA, BUSY or END
    const uint8_t *body; // borrowed: of MESSAGE and DATA
    size_t body_n;
    bool succeeded; // END
    struct err why; // END that failed: its text can be shown
};

// Reads one. INTERNAL: it breaks the protocol.
int files_packet_read(const void *bytes, size_t n, struct files_packet *out, struct err *e);
