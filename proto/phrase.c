// SPDX-License-Identifier: Apache-2.0
// See phrase.h.
#include "phrase.h"

#include <stdarg.h>
#include <stdio.h>

void
phrase_add(struct phrase *t, const char *fmt, ...)
{
    va_list ap;
    if (t->used >= t->n)
        return;
    va_start(ap, fmt);
    const int n = vsnprintf(t->bytes + t->used, t->n - t->used, fmt, ap);
    va_end(ap);
    t->used += n > 0 ? (size_t)n : 0;
}
