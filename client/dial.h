// SPDX-License-Identifier: Apache-2.0
// Connects to an address, and checks with the SP hello that the peer is a broker.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "address.h"

// Connects until deadline_ns (CLOCK_MONOTONIC). The descriptor is non-blocking and close-on-exec. Errors: link_open().
int dial(int *out, const struct address *a, uint64_t deadline_ns, struct err *e);

// Exchanges the hello on a connected, non-blocking socket.
int dial_hello(int fd, uint64_t deadline_ns, struct err *e);
