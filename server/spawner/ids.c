// SPDX-License-Identifier: Apache-2.0
// See ids.h.
#include "ids.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "feature.h"
#include "io.h"

void
ids_open(struct spawner *s, struct spawn_features *f)
{
    struct stat st;
    int fd = open(IDS_PATH, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int sys = errno;
    bool ours = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 &&
                (st.st_mode & (S_IRWXG | S_IRWXO)) == 0;
    s->ids_fd = ours ? fd : -1;
    feature_add(f, "id-ranges", ours, true, "%s: %s%s", IDS_PATH,
                ours      ? "each range of ids is one sandbox's at a time on this host"
                : fd >= 0 ? "does not belong to root"
                          : strerror(sys),
                ours ? "" : "; another broker here may use the same ids (ids.base)");
    if (!ours)
        io_close(&fd);
}

static bool
lock(const struct spawner *s, const struct slot *slot, short type)
{
    struct flock l = {.l_type = type,
                      .l_whence = SEEK_SET,
                      .l_start = slot->uid / SPAWN_IDS_PER_SANDBOX,
                      .l_len = 1};
    return s->ids_fd < 0 || fcntl(s->ids_fd, F_OFD_SETLK, &l) == 0 ||
           (errno != EAGAIN && errno != EACCES);
}

bool
ids_take(const struct spawner *s, const struct slot *slot)
{
    return lock(s, slot, F_WRLCK);
}

void
ids_give(const struct spawner *s, const struct slot *slot)
{
    (void)lock(s, slot, F_UNLCK);
}
