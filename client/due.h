// SPDX-License-Identifier: Apache-2.0
// The time of the next work of a handle, even if nothing happens on its socket. Call everything here with the handle's lock
// held. Times are CLOCK_MONOTONIC in nanoseconds; 0: never.
#pragma once

#include <stdint.h>

struct stockade;

// The earlier one of two times.
uint64_t due_earlier(uint64_t a, uint64_t b);

// When the broker must have said something; 0: nobody waits for it.
uint64_t due_quiet_ns(const struct stockade *s);

// The nearest of all: a call's deadline, silence, a connection attempt.
uint64_t due_ns(const struct stockade *s);
