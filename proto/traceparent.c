// SPDX-License-Identifier: Apache-2.0
// See traceparent.h.
#include "traceparent.h"

#include <string.h>

static bool
is_id(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n && strspn(text, "0") < n;
}

bool
traceparent_valid(const char *text)
{
    enum {
        TRACE = 3,
        TRACE_DIGITS = 32,
        SPAN = 36,
        SPAN_DIGITS = 16,
        FLAGS = 53,
        FLAGS_DIGITS = 2
    };
    return strlen(text) == TRACEPARENT_LENGTH && strncmp(text, "00-", TRACE) == 0 &&
           is_id(text + TRACE, TRACE_DIGITS) && text[SPAN - 1] == '-' &&
           is_id(text + SPAN, SPAN_DIGITS) && text[FLAGS - 1] == '-' &&
           strspn(text + FLAGS, "0123456789abcdef") == FLAGS_DIGITS;
}
