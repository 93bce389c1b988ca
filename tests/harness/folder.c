// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "tests/harness/folder.h"

enum { TMPFS = 0x01021994 /* linux/magic.h */ };
static const unsigned long long room = 4ULL << 30;

const char *
test_folder(void)
{
    static const char memory[] = "/dev/shm";
    struct statfs kind;
    struct statvfs st;
    if (getenv("STOCKADE_TEST_ON_DISK") || statfs(memory, &kind) < 0 || kind.f_type != TMPFS ||
        statvfs(memory, &st) < 0 || st.f_flag & ST_NOEXEC || st.f_bavail * st.f_frsize < room)
        return "/tmp";
    return memory;
}
