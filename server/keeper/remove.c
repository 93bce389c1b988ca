// SPDX-License-Identifier: Apache-2.0
// See work.h: remove_tree(). As deep as a layer may be, which copy.c bounds.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/auto.h"
#include "work.h"

static int
remove_one(int folder, const char *name, unsigned depth, struct err *e)
{
    struct names auto_names all = {0};
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR || depth > KEEP_DEPTH_MAX + 2)
        return err_sys(e, errno, "remove a file");
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open a folder");
    int rc = names_read(fd, &all, e);
    for (size_t i = 0; i < all.n && rc == 0; i++)
        rc = remove_one(fd, all.name[i], depth + 1, e);
    return rc == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0 && errno != ENOENT
               ? err_sys(e, errno, "remove a folder")
               : rc;
}

int
remove_tree(int folder, const char *name, struct err *e)
{
    return remove_one(folder, name, 0, e);
}
