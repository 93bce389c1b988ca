// SPDX-License-Identifier: Apache-2.0
// The names in one folder, sorted, for List, Copy and archives. Memory is the sandbox's, and bounded here as well.
#pragma once

#include <stddef.h>

#include "proto/err.h"

enum { NAMES_MAX = 1000 * 1000 }; // of one folder

struct names {
    char *text;  // owned: one after the other, each with its NUL
    char **name; // owned: n of them, in byte order
    size_t n;
};

// Reads the folder, which is borrowed and must be open for reading. RESOURCE_EXHAUSTED: more than NAMES_MAX.
int names_read(int folder, struct names *out, struct err *e);
void names_free(struct names *all);
