// SPDX-License-Identifier: Apache-2.0
// See process.h.
#include "tests/harness/process.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

unsigned
process_fds(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}
