// Paths of the methods that the library calls, and which of them change nothing when they are done twice.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct method {
    const char *path;
    bool idempotent;
};

// All of them, ended by {0}; a test compares it with the descriptor set.
extern const struct method methods[];

// False for a method that is not known: it gets an idempotency key.
bool method_is_idempotent(const char *path);
