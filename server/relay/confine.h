// SPDX-License-Identifier: Apache-2.0
// The relay drops its rights: it verifies how the spawner started it, and restricts itself to a list of system calls.
#pragma once

#include <stdint.h>

#include "proto/err.h"

// Call before any input is read. FAILED_PRECONDITION: it runs as root, has a capability, or would outlive its parent.
int confine_check(struct err *e);

// Sets limits, opens descriptors 0 to 2, and closes all above the three that it inherited. *files is the maximum
// number of descriptors.
int confine_begin(uint64_t *files, struct err *e);

// Forbids files, programs, processes, executable mappings, and socket families other than IPv4 and IPv6.
int confine_finish(struct err *e);
