// SPDX-License-Identifier: Apache-2.0
// The relay locks itself in: what it was given at exec is checked, and what it can do afterwards is a list of system calls.
#pragma once

#include <stdint.h>

#include "../../proto/err.h"

// Before anything is read. FAILED_PRECONDITION: it runs as root, with a capability, or would outlive its parent.
int confine_check(struct err *e);

// Limits, descriptors 0 to 2, and none above the three that it was given. *files is how many it may have.
int confine_begin(uint64_t *files, struct err *e);

// No more files, programs, processes, mappings to execute, or families but IPv4 and IPv6.
int confine_finish(struct err *e);
