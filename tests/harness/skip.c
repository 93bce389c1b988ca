// SPDX-License-Identifier: Apache-2.0
// See skip.h.
#include "tests/harness/skip.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
skip_program(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fputs("skipped: ", stdout);
    (void)vprintf(format, args);
    (void)puts("");
    va_end(args);
    exit(77);
}

int
need_root(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_program("needs root");
    return 0;
}
