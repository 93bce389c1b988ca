// SPDX-License-Identifier: Apache-2.0
// See work.h: names and extended attributes, both of any bytes, and as many as a sandbox may have; and what all tasks share.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "work.h"

enum {
    NOBODY = 65534,
    LIST_MAX = 64 * 1024,
    ACL_HEAD = 4,
    ACL_ENTRY = 8,
    ACL_USER = 2,
    ACL_GROUP = 8
};

int
work_goes_on(struct err *e)
{
    struct pollfd p = {.fd = KEEP_BROKER_FD, .events = POLLIN};
    if (poll(&p, 1, 0) == 0)
        return 0;
    (void)err_set(e, ERR_CANCELLED, "the broker has given it up");
    return -ECANCELED;
}

uint32_t
work_shift_id(uint32_t id, uint32_t from, uint32_t to)
{
    return id - from < SPAWN_IDS_PER_SANDBOX ? to + (id - from) : to + NOBODY;
}

// ---- the parts of a layer

const char *const work_parts[] = {"s", "b", "c", "d", "e", "f", "g", "h", "i",
                                  "j", "k", "l", "m", "n", "o", "p", NULL};
_Static_assert(KEEP_PARTS_MAX == sizeof work_parts / sizeof work_parts[0], "parts and their end");

bool
work_is_part(unsigned number)
{
    return work_parts[number][0] != 'k';
}

int
work_open_part(int layer_fd, const char *part, struct err *e)
{
    int fd = openat(layer_fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ENOENT : err_sys(e, errno, "open a layer");
}

// ---- what is not kept

int
work_too_large(uint64_t bytes_max, struct err *e)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the files take more than %" PRIu64 " bytes, all that is left for the caller",
                    bytes_max);
    err_detail(e, "KEPT_BYTES", "quotas.kept_bytes_per_caller",
               "delete kept snapshots and sleeping sandboxes, or remove files");
    return r;
}

int
work_too_deep(struct err *e)
{
    int r =
        err_set(e, ERR_FAILED_PRECONDITION, "folders are more than %d levels deep", KEEP_DEPTH_MAX);
    err_detail(e, "LAYER_DEEP", NULL, "remove them in the sandbox");
    return r;
}

int
work_is_device(struct err *e)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "the files contain a device, which is not kept");
    err_detail(e, "LAYER_DEVICE", NULL, "remove it in the sandbox");
    return r;
}

int
work_disk_full(const char *subject, const char *hint, const char *what, struct err *e)
{
    int r = err_sys(e, errno, "%s", what);
    if (e->sys == ENOSPC || e->sys == EDQUOT) {
        e->code = ERR_RESOURCE_EXHAUSTED;
        err_detail(e, "DISK_FULL", subject, hint);
    }
    return r;
}

// ---- names

static int
by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int
add(struct names *out, size_t *used, size_t *room, const char *name)
{
    size_t n = strlen(name) + 1;
    if (*used + n > *room) {
        size_t more = *room == 0 ? 4096 : *room * 2;
        char *bytes = realloc(out->bytes, more);
        if (bytes == NULL)
            return -ENOMEM;
        out->bytes = bytes;
        *room = more;
    }
    memcpy(out->bytes + *used, name, n);
    *used += n;
    out->n++;
    return 0;
}

static int
sort(struct names *out)
{
    out->name = calloc(out->n + 1, sizeof *out->name);
    if (out->name == NULL)
        return -ENOMEM;
    const char *end = out->bytes;
    for (size_t i = 0; i < out->n; i++) {
        out->name[i] = (char *)(uintptr_t)end;
        end += strlen(end) + 1;
    }
    if (out->n > 1)
        qsort(out->name, out->n, sizeof *out->name, by_bytes);
    return 0;
}

int
names_read(int folder, struct names *out, struct err *e)
{
    *out = (struct names){0};
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int r = err_sys(e, errno, "list a folder");
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    size_t used = 0, room = 0;
    int rc = 0;
    errno = 0;
    for (const struct dirent *it = readdir(d); it != NULL && rc == 0; it = readdir(d))
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
            rc = add(out, &used, &room, it->d_name);
    if (rc == 0 && errno != 0)
        rc = -errno;
    (void)closedir(d);
    if (rc == 0)
        rc = sort(out);
    if (rc == 0)
        return 0;
    names_free(out);
    return err_sys(e, -rc, "list a folder");
}

void
names_free(struct names *n)
{
    free(n->name);
    free(n->bytes);
    *n = (struct names){0};
}

// ---- extended attributes

bool
xattrs_is_kept(const char *name)
{
    return strncmp(name, "user.", 5) == 0 || strcmp(name, "trusted.overlay.opaque") == 0 ||
           strcmp(name, "system.posix_acl_access") == 0 ||
           strcmp(name, "system.posix_acl_default") == 0;
}

static int
sort_list(struct xattrs *x)
{
    struct names all = {.bytes = x->names};
    for (size_t at = 0; at < x->bytes; at += strlen(x->names + at) + 1)
        all.n++;
    if (all.n < 2)
        return 0;
    char *to = malloc(x->bytes);
    if (to == NULL || sort(&all) < 0) {
        free(to);
        return -ENOMEM;
    }
    size_t at = 0;
    for (size_t i = 0; i < all.n; i++) {
        size_t n = strlen(all.name[i]) + 1;
        memcpy(to + at, all.name[i], n);
        at += n;
    }
    free(all.name);
    free(x->names);
    x->names = to;
    return 0;
}

int
xattrs_list(int fd, struct xattrs *x, struct err *e)
{
    ssize_t n = flistxattr(fd, NULL, 0);
    if (n == 0 || (n < 0 && errno == ENOTSUP))
        return 0;
    if (n < 0 || n > LIST_MAX)
        return err_sys(e, n < 0 ? errno : E2BIG, "list extended attributes");
    x->names = calloc(1, (size_t)n + 1);
    if (x->names == NULL || (n = flistxattr(fd, x->names, (size_t)n)) < 0 ||
        (x->bytes = (size_t)n, sort_list(x)) < 0)
        return err_sys(e, x->names == NULL ? ENOMEM : errno, "list extended attributes");
    return 0;
}

long
xattrs_get(int fd, struct xattrs *x, const char *name, struct err *e)
{
    if (x->value == NULL && (x->value = malloc(XATTR_SIZE_MAX)) == NULL)
        return err_sys(e, ENOMEM, "read an extended attribute");
    ssize_t n = fgetxattr(fd, name, x->value, XATTR_SIZE_MAX);
    return n < 0 ? err_sys(e, errno, "read an extended attribute") : n;
}

void
xattrs_free(struct xattrs *x)
{
    free(x->names);
    free(x->value);
    *x = (struct xattrs){0};
}

static uint32_t
get32(const char *at)
{
    const unsigned char *p = (const unsigned char *)at;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// struct posix_acl_xattr_entry (linux/posix_acl_xattr.h): tag, permissions, id; all little-endian.
int
xattrs_shift_acl(const char *name, char *value, size_t n, uint32_t from, uint32_t to, struct err *e)
{
    if (strncmp(name, "system.posix_acl_", 17) != 0)
        return 0;
    if (n < ACL_HEAD || (n - ACL_HEAD) % ACL_ENTRY != 0)
        return err_set(e, ERR_INTERNAL, "an access control list of %zu bytes", n);
    for (size_t at = ACL_HEAD; at < n; at += ACL_ENTRY) {
        unsigned tag = get32(value + at) & 0xffff;
        if (tag != ACL_USER && tag != ACL_GROUP)
            continue;
        uint32_t id = work_shift_id(get32(value + at + 4), from, to);
        for (int i = 0; i < 4; i++)
            value[at + 4 + (size_t)i] = (char)(id >> 8 * i & 0xff);
    }
    return 0;
}
