// SPDX-License-Identifier: Apache-2.0
// See work.h: seal_into(), unseal_from(): sealed layers as files.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/auto.h"
#include "work.h"

static int
put(void *cookie, const void *bytes, size_t n, struct err *e)
{
    const int fd = *(const int *)cookie;
    const char *from = bytes;
    while (n > 0) {
        ssize_t w = write(fd, from, n);
        if (w <= 0) {
            errno = w == 0 ? ENOSPC : errno;
            return work_disk_full("state_dir",
                                  "free some space on the disk of the state directory, or delete "
                                  "kept snapshots",
                                  "write a file", e);
        }
        from += w;
        n -= (size_t)w;
    }
    return 0;
}

static long
get(void *cookie, void *bytes, size_t room, struct err *e)
{
    const int fd = *(const int *)cookie;
    size_t n = 0;
    while (n < room) {
        ssize_t r = read(fd, (char *)bytes + n, room - n);
        if (r < 0)
            return err_sys(e, errno, "read a file");
        if (r == 0)
            break;
        n += (size_t)r;
    }
    return (long)n;
}

int
seal_into(int folder, int place, const struct seal *seal, struct digest *out, struct err *e)
{
    static struct sealed_writer w;
    int auto_close fd =
        openat(folder, KEEP_SEALED, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return work_disk_full("state_dir", NULL, "create a file", e);
    w.put = put;
    w.cookie = &fd;
    int rc = seal_layer(place, seal, &w, out, e);
    sodium_memzero(&w, sizeof w);
    return rc;
}

int
unseal_from(int file, const struct unseal *u, struct digest *out, struct err *e)
{
    static struct sealed_reader r;
    r.get = get;
    r.cookie = &file;
    int rc = unseal_layer(&r, u, out, e);
    sodium_memzero(&r, sizeof r);
    return rc;
}
