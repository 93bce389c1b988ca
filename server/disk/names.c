// SPDX-License-Identifier: Apache-2.0
// See names.h.
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/state_folder.h"

// Others can list it, because the broker compares the names with its own, and enter it by no other right: folders below it
// have files of any owner, mode and content.
int
names_folder(const char *state_dir, struct err *e)
{
    struct stat st;
    int auto_close state = state_folder_open(state_dir, e);
    if (state < 0)
        return state;
    if (mkdirat(state, "disks", 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "create %s/disks", state_dir);
    int auto_close fd = openat(state, "disks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s/disks", state_dir);
    if (st.st_uid != 0 || (st.st_mode & 033) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s/disks: must belong to root, with mode 0744",
                       state_dir);
    if ((st.st_mode & 0777) != 0744 && fchmod(fd, 0744) < 0)
        return err_sys(e, errno, "set the mode of %s/disks", state_dir);
    return take_fd(&fd);
}

void
names_of(const struct disk_order *o, char out[DISK_NAME_MAX])
{
    static const char *const kinds[SPAWN_DISK_KINDS_N] = {"volume", "layer"};
    int n = snprintf(out, DISK_NAME_MAX, "%s-", kinds[o->kind]);
    for (size_t i = 0; i < sizeof o->id; i++)
        n += snprintf(out + n, (size_t)(DISK_NAME_MAX - n), "%02x", o->id[i]);
}
