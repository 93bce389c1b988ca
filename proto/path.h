// SPDX-License-Identifier: Apache-2.0
// Where in a message a scan stands: a chain of steps on the stack, outermost last, written out only when something is
// wrong there. Shared by wire.c and validate.c.
#pragma once

#include <stddef.h>

#include "err.h"

struct path {
    const struct path *up; // the message that holds this field; NULL: the outermost
    const char *field;
    ptrdiff_t index; // of a repeated field, or -1
};

// Writes "limits.cpu" or "env[3].name" and returns its length; a path that does not fit is cut at its end.
size_t path_write(const struct path *at, char *out, size_t n);

// Writes *e: INVALID_ARGUMENT about the field there (without a path: about the message). Returns -EINVAL.
int path_refuse(const struct path *at, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
