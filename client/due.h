// SPDX-License-Identifier: Apache-2.0
// When a handle must be looked at, whatever the socket says. Lock held; times are CLOCK_MONOTONIC, 0 is never.
#pragma once

#include <stdint.h>

struct stockade;

// The earlier one of two times.
uint64_t due_earlier(uint64_t a, uint64_t b);

// When the broker must have said something; 0: nobody waits for it.
uint64_t due_quiet_ns(const struct stockade *s);

// The nearest of all: a call's deadline, silence, a connection attempt.
uint64_t due_ns(const struct stockade *s);
