// SPDX-License-Identifier: Apache-2.0
// See state_folder.h.
#include "state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "auto.h"

int
state_folder_open(const char *path, struct err *e)
{
    struct stat st;
    int auto_close fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open state directory %s", path);
    if (st.st_uid != 0 || (st.st_mode & 022) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "state directory %s: must belong to root and be writable by no one else",
                       path);
    return take_fd(&fd);
}
