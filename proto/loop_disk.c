// SPDX-License-Identifier: Apache-2.0
// See loop_disk.h.
#include "loop_disk.h"

#include <stddef.h>
#include <unistd.h>

static const char *const PROGRAMS[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4",
                                       "/usr/bin/mkfs.ext4"};

const char *
loop_disk_mkfs(void)
{
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof PROGRAMS[0]; i++)
        if (access(PROGRAMS[i], X_OK) == 0)
            return PROGRAMS[i];
    return NULL;
}

const char *
loop_disk_missing(void)
{
    if (loop_disk_mkfs() == NULL)
        return "mkfs.ext4 is not installed (package e2fsprogs)";
    return access(LOOP_CONTROL, F_OK) == 0 ? NULL
                                           : LOOP_CONTROL
               " does not exist: there are no loop devices";
}
