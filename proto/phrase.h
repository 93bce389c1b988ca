// SPDX-License-Identifier: Apache-2.0
// A text that is put together from parts, in a buffer of the caller. What does not fit is cut.
//
//   struct phrase t = {.bytes = buffer, .n = sizeof buffer};
//   phrase_add(&t, "%s%u", t.used > 0 ? ", " : "", port);
#pragma once

#include <stddef.h>

struct phrase {
    char *bytes; // borrowed
    size_t n;    // size of the buffer
    size_t used; // length of the text without its NUL; n or more: it was cut
};

// Appends one part. A text that was cut stays as it is.
void phrase_add(struct phrase *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
