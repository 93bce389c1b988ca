// SPDX-License-Identifier: Apache-2.0
// See work.h: seal_into(), unseal_from(), carry_out(), carry_in(): sealed layers as files, and streams on their way to others.
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
seal_into(int folder, int layer_fd, const struct seal *seal, struct digest *out, struct err *e)
{
    static struct sealed_writer w;
    int auto_close fd =
        openat(folder, KEEP_SEALED, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return work_disk_full("state_dir", NULL, "create a file", e);
    w.put = put;
    w.cookie = &fd;
    int rc = seal_layer(layer_fd, seal, &w, out, e);
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

// ---- on their way

struct span {
    int fd;
    uint64_t left;
};

static long
get_of_span(void *cookie, void *bytes, size_t room, struct err *e)
{
    struct span *s = cookie;
    const size_t most = room < s->left ? room : (size_t)s->left;
    long n = get(&s->fd, bytes, most, e);
    s->left -= n > 0 ? (uint64_t)n : 0;
    return n;
}

int
carry_out(const struct carry *c, int to, struct digest *layer, struct digest *stream, struct err *e)
{
    static struct sealed_writer w;
    struct unseal_tee tee = {.key = c->to_key, .to = &w};
    const struct unseal u = {.key = c->key, .layer_fd = -1, .tee = &tee};
    const struct seal seal = {c->to_key, KEEP_ID_BASE, c->bytes_max};
    w.put = put;
    w.cookie = &to;
    int rc = c->layer_fd >= 0 ? seal_layer(c->layer_fd, &seal, &w, stream, e)
                              : unseal_from(c->sealed, &u, layer, e);
    if (c->layer_fd < 0)
        *stream = tee.out;
    sodium_memzero(&w, sizeof w);
    return rc;
}

int
carry_in(int file, uint64_t bytes, const struct unseal *u, const struct sealed_key *key,
         struct digest *stream, struct digest *layer, struct err *e)
{
    static struct sealed_writer w;
    static struct sealed_reader r;
    struct span span = {file, bytes};
    struct unseal how = *u;
    struct unseal_tee tee = {.key = key, .to = &w};
    int auto_close fd = -1;
    if (key != NULL) {
        fd = openat(u->layer_fd, KEEP_SEALED, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0600);
        if (fd < 0)
            return work_disk_full("state_dir", NULL, "create a file", e);
        how.tee = &tee;
        how.layer_fd = -1;
    }
    w.put = put;
    w.cookie = &fd;
    r.get = get_of_span;
    r.cookie = &span;
    int rc = unseal_layer(&r, &how, stream, e);
    *layer = tee.out;
    sodium_memzero(&w, sizeof w);
    sodium_memzero(&r, sizeof r);
    return rc;
}
