// SPDX-License-Identifier: Apache-2.0
// See archive.h.
#include "archive.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/zst.h"

static int
write_pipe(void *cookie, const void *bytes, size_t n, struct err *e)
{
    const struct archive *a = cookie;
    const char *at = bytes;
    while (n > 0) {
        ssize_t w = write(a->pipe, at, n);
        if (w < 0 && errno != EINTR)
            return err_sys(e, errno, "pack files");
        at += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
    return 0;
}

static ssize_t
read_pipe(void *cookie, void *bytes, size_t n, struct err *e)
{
    const struct archive *a = cookie;
    ssize_t r = 0;
    do
        r = read(a->pipe, bytes, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? err_sys(e, errno, "unpack files") : r;
}

static int
pack(struct archive *a)
{
    const struct tar_bounds none = {0};
    const struct tar_sink plain = {write_pipe, a};
    if (!a->compressed)
        return tar_pack(a->folder, ".", ".", &none, &plain, &a->counts, &a->error);
    struct zst_writer *z = zst_writer_new(&plain, &a->error);
    const struct tar_sink sink = {zst_write, z};
    int r = z == NULL ? err_errno(&a->error)
                      : tar_pack(a->folder, ".", ".", &none, &sink, &a->counts, &a->error);
    if (r == 0)
        r = zst_end(z, &a->error);
    zst_writer_free(z);
    return r;
}

static int
unpack(struct archive *a)
{
    const struct tar_bounds none = {0};
    const struct tar_source plain = {read_pipe, a};
    if (!a->compressed)
        return tar_unpack(a->folder, true, &none, &plain, &a->counts, &a->error);
    struct zst_reader *z = zst_reader_new(&plain, a->ratio_max, &a->error);
    const struct tar_source source = {zst_read, z};
    int r = z == NULL ? err_errno(&a->error)
                      : tar_unpack(a->folder, true, &none, &source, &a->counts, &a->error);
    zst_reader_free(z);
    return r;
}

static void *
run(void *cookie)
{
    struct archive *a = cookie;
    a->rc = a->pack ? pack(a) : unpack(a);
    (void)close(take_fd(&a->pipe));
    return NULL;
}

int
archive_begin(struct archive *a)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    a->pipe = ends[a->pack ? 1 : 0];
    int failed = pthread_create(&a->thread, NULL, run, a);
    if (failed == 0)
        return ends[a->pack ? 0 : 1];
    (void)close(ends[0]);
    (void)close(ends[1]);
    errno = failed;
    return -1;
}

int
archive_join(struct archive *a)
{
    (void)pthread_join(a->thread, NULL);
    return a->rc;
}
