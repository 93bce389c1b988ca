// SPDX-License-Identifier: Apache-2.0
// Paths of the methods that the library calls, and which of them change nothing when they are done twice.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct method {
    const char *path;
    bool idempotent;
    // Gets a random idempotency key. Not a job and not each write to stdin: the library never repeats one, and the
    // broker keeps every key for minutes, so many of a caller at once would use up what it may have.
    bool key;
};

// All of them, ended by {0}; a test compares it with the descriptor set.
extern const struct method methods[];

// Whether a call of that method gets a key; one that is not known does.
bool method_wants_key(const char *path);
