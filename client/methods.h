// SPDX-License-Identifier: Apache-2.0
// Paths of the methods that the library calls, and whether they get an idempotency key.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct method {
    const char *path;
    bool idempotent;
    // Gets a random idempotency key. Not for jobs and writes to stdin: the library never repeats them, and the broker
    // keeps every key for minutes, so many of them would exhaust the caller's quota.
    bool key;
};

// All methods, terminated by {0}; a test compares them with the descriptor set.
extern const struct method methods[];

// Whether a call of this method gets a key; true for unknown methods.
bool method_wants_key(const char *path);
