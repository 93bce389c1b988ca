// SPDX-License-Identifier: Apache-2.0
// The position of a scan in a message: a chain of steps on the stack, outermost last, converted to text only for an
// error. Shared by wire.c and validate.c.
#pragma once

#include <stddef.h>

#include "err.h"

struct path {
    const struct path *up; // the message that contains this field; NULL: the outermost
    const char *field;
    ptrdiff_t index; // of a repeated field, or -1
};

// Writes a path such as "limits.cpu" or "env[3].name" and returns its length; truncates the end if necessary.
size_t path_write(const struct path *at, char *out, size_t n);

// Writes *e: INVALID_ARGUMENT for the field at this path (without a path: for the message). Returns -EINVAL.
int path_refuse(const struct path *at, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
