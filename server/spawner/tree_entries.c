// SPDX-License-Identifier: Apache-2.0
// See tree_swap_private.h. Nothing here lists more than the first level of an upper layer: its names are those of the root
// directory, or of /usr. Only jobs that are root inside can create any there, so their number is bounded: the spawner waits.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

enum { ENTRIES_BYTES = 4096, ENTRIES_MAX = 1024 };

static bool
is_real(const struct dirent64 *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

// 1: it was moved; 0: it stays.
static int
move_entry(int from, int to, const struct dirent64 *entry, struct err *e)
{
    if (!is_real(entry))
        return 0;
    return renameat(from, entry->d_name, to, entry->d_name) < 0 ? err_sys(e, errno, "move an entry")
                                                                : 1;
}

static int
check_number(int folder, const char *name, struct err *e)
{
    _Alignas(struct dirent64) char buffer[ENTRIES_BYTES];
    long n = 1;
    for (uint32_t count = 0; n > 0;) {
        n = getdents64(folder, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(e, errno, "list %s", name);
        for (long at = 0; at < n; count++)
            at += ((const struct dirent64 *)(const void *)(buffer + at))->d_reclen;
        if (count > ENTRIES_MAX) {
            (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                          "more than %d names were created in the root directory, or in /usr",
                          ENTRIES_MAX);
            err_detail(e, "TOP_ENTRIES", "files", "put them into a folder, or remove them");
            return -E2BIG;
        }
    }
    return 0;
}

// Lists the folder from its start again after each turn, because the entries that were listed have moved.
int
tree_move_entries(const char *from_name, const char *to_name, struct err *e)
{
    _Alignas(struct dirent64) char buffer[ENTRIES_BYTES];
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int auto_close from = openat(AT_FDCWD, from_name, flags);
    int auto_close to = openat(AT_FDCWD, to_name, flags);
    if (from < 0 || to < 0)
        return err_sys(e, errno, "open %s and %s", from_name, to_name);
    int rc = check_number(from, from_name, e);
    if (rc < 0)
        return rc;
    for (bool more = true; more;) {
        more = false;
        long n = lseek(from, 0, SEEK_SET) < 0 ? -1 : getdents64(from, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(e, errno, "list %s", from_name);
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            rc = move_entry(from, to, entry, e);
            if (rc < 0)
                return rc;
            more = more || rc > 0;
            at += entry->d_reclen;
        }
    }
    return 0;
}

static bool
is_empty(int dir, const char *name)
{
    _Alignas(struct dirent64) char buffer[ENTRIES_BYTES];
    int auto_close u = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    long n = u < 0 ? -1 : getdents64(u, buffer, sizeof buffer);
    bool empty = n >= 0;
    for (long at = 0; at < n && empty;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
        empty = !is_real(entry);
        at += entry->d_reclen;
    }
    return empty;
}

bool
tree_upper_is_empty(const struct tree_layers *l, uint32_t parts)
{
    bool empty = true;
    for (uint32_t part = 0; part < parts && empty; part++) {
        char name[TREE_PART];
        tree_part_upper(l->upper, part, name);
        empty = is_empty(l->upper_fd, name + sizeof "00/" - 1);
    }
    return empty;
}

int
tree_make_mount_point(const char *name, struct err *e)
{
    return mkdirat(AT_FDCWD, name, 0555) < 0 && errno != EEXIST
               ? err_sys(e, errno, "create %s", name)
               : 0;
}

int
tree_attach(int fd, const char *name, struct err *e)
{
    int rc = tree_make_mount_point(name, e);
    return rc < 0 ? rc : mount_attach(fd, AT_FDCWD, name, e);
}

int
tree_move_mount(int from, int to, const char *path, struct err *e)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve =
                               RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH};
    int auto_close fd = (int)syscall(SYS_openat2, from, path, &how, sizeof how);
    return fd < 0 ? err_sys(e, errno, "open the mount %s", path) : mount_attach(fd, to, path, e);
}
