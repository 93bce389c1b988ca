// SPDX-License-Identifier: Apache-2.0
// See path.h. The recursion follows the nesting of the message, which WIRE_DEPTH_MAX bounds.
#include "path.h"

#include <stdarg.h>
#include <stdio.h>

// The number of characters that snprintf has stored in n bytes.
static size_t
written(int length, size_t n)
{
    if (length < 0 || n == 0)
        return 0;
    return (size_t)length < n ? (size_t)length : n - 1;
}

size_t
path_write(const struct path *at, char *out, size_t n)
{
    if (n > 0)
        out[0] = '\0';
    if (at == NULL)
        return 0;
    size_t used = path_write(at->up, out, n);
    const char *dot = used > 0 ? "." : "";
    used += written(snprintf(out + used, n - used, "%s%s", dot, at->field), n - used);
    if (at->index >= 0)
        used += written(snprintf(out + used, n - used, "[%td]", at->index), n - used);
    return used;
}

int
path_refuse(const struct path *at, struct err *e, const char *fmt, ...)
{
    char text[256];
    char field[sizeof e->subject];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (path_write(at, field, sizeof field) == 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "malformed message: %s", text);
    return err_field(e, field, "%s", text);
}
