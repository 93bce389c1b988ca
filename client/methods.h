// Paths of the methods that the library calls, and which of them change nothing when they are done twice.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct method {
    const char *path;
    bool idempotent;
    bool
        key; // gets a random idempotency key. Not each write to stdin: the library never repeats one, and the broker
             // keeps every key for minutes.
};

// All of them, ended by {0}; a test compares it with the descriptor set.
extern const struct method methods[];

// Whether a call of that method gets a key; one that is not known does.
bool method_wants_key(const char *path);
