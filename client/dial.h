// SPDX-License-Identifier: Apache-2.0
// From an address to a connected socket whose peer has said that it is a broker (the SP hello).
#pragma once

#include <stdint.h>

#include "../proto/err.h"
#include "address.h"

// Connects until deadline_ns (CLOCK_MONOTONIC). The descriptor is non-blocking and close-on-exec. Errors: link_open().
int dial(int *out, const struct address *a, uint64_t deadline_ns, struct err *e);

// The hello on a connected, non-blocking socket: sends ours, awaits theirs.
int dial_hello(int fd, uint64_t deadline_ns, struct err *e);
