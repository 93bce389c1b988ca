// SPDX-License-Identifier: Apache-2.0
// See disk_host.h.
#include "disk_host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "disk_private.h"
#include "holder.h"
#include "io.h"
#include "proto/auto.h"
#include "spawner.h"
#include "tree_helper.h"
#include "tree_mount.h"

// No file has this id: systemd and shadow end below it, and -1 and -2 mean something.
enum { NOBODYS = 0x7fffffff };

struct placing {
    int space_fd, fd, userns_fd;
    uint32_t number;
};

// Also tests that its ids can be mapped.
static int
attach(void *cookie, struct err *e)
{
    const struct placing *w = cookie;
    char name[DISK_MOUNT_POINT];
    disk_mount_point(w->number, name);
    if (setns(w->space_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the namespace of disks");
    int rc = mount_attach(w->fd, AT_FDCWD, name, e);
    if (rc < 0)
        return rc;
    int auto_close copy = mount_clone(AT_FDCWD, name, 0, e);
    rc = copy < 0 ? copy : mount_idmap(copy, w->userns_fd, e);
    if (rc < 0)
        (void)umount2(name, MNT_DETACH);
    return rc;
}

static int
check(int fd, struct stat *st, struct err *e)
{
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) < 0 || fstat(fd, st) < 0)
        return err_sys(e, errno, "look at a folder");
    if (!S_ISDIR(st->st_mode) || (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
        return err_field(e, "hosts", "a descriptor is none of a mounted folder");
    return 0;
}

static int
nobody(struct spawner *s, struct err *e)
{
    // to_uid: the last id of the first range, which no sandbox has
    const uint32_t to = s->config->id_base + SPAWN_IDS_PER_SANDBOX - 1;
    const struct holder_pair p = {NOBODYS, NOBODYS, to, to};
    if (s->disks->nobody_fd >= 0)
        return s->disks->nobody_fd;
    int fd = holder_user_namespace_pair(&p, to, s->proc_fd, e);
    if (fd >= 0)
        s->disks->nobody_fd = fd = io_keep_fd(fd);
    return fd;
}

static int
add(struct spawner *s, uint32_t root, const struct spawn_host *h, int fd, struct err *e)
{
    struct stat st;
    int rc = check(fd, &st, e);
    if (rc == 0 && h->writable > 1)
        rc = err_field(e, "hosts", "writable is 0 or 1");
    if (rc == 0 && h->writable != 0 && (st.st_uid == 0 || st.st_gid == 0))
        rc = err_field(e, "hosts", "jobs must not write to a folder of root or of the group root");
    struct disk *it = rc == 0 ? disk_free(s->disks, e) : NULL;
    if (it == NULL)
        return err_errno(e);
    struct placing w = {disks_space(s->disks, s->proc_fd, e), fd, -1,
                        (uint32_t)(it - s->disks->disk)};
    int helper_fd = -1;
    if (w.space_fd < 0 || (w.userns_fd = nobody(s, e)) < 0)
        return err_errno(e);
    rc = tree_helper_run(attach, &w, &helper_fd, e);
    disk_settle(helper_fd);
    if (rc < 0)
        return rc;
    *it = (struct disk){.state = DISK_READY,
                        .host = true,
                        .root = root,
                        .writable = h->writable != 0,
                        .uid = st.st_uid,
                        .gid = st.st_gid};
    memcpy(it->id, h->id, sizeof it->id);
    s->disks->hosts_n++;
    return 0;
}

static void
drop(struct spawner *s, struct disk *it)
{
    struct err ignored; // only without memory for a helper; the mount ends with the spawner then
    int helper_fd = -1;
    (void)disk_unmount(s->disks, (uint32_t)(it - s->disks->disk), &helper_fd, &ignored);
    disk_settle(helper_fd);
    it->state = DISK_FREE;
    s->disks->hosts_n--;
}

static struct disk *
find(struct disks *d, uint32_t root, const uint8_t id[16])
{
    for (uint32_t i = 0; i < SPAWN_DISKS_MAX && d->hosts_n > 0; i++) {
        struct disk *it = &d->disk[i];
        if (it->state != DISK_FREE && it->host && it->root == root &&
            (id == NULL || memcmp(it->id, id, sizeof it->id) == 0))
            return it;
    }
    return NULL;
}

int
disk_hosts_add(struct spawner *s, uint32_t root, const struct spawn_root *r, const int *fds,
               struct err *e)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->hosts_n && rc == 0; i++)
        rc = find(s->disks, root, r->host[i].id) != NULL
                 ? err_field(e, "hosts", "two folders have the same id")
                 : add(s, root, &r->host[i], fds[i], e);
    for (struct disk *it; rc < 0 && (it = find(s->disks, root, NULL)) != NULL;)
        drop(s, it);
    return rc < 0 ? err_wrap(e, "folders of the host") : 0;
}

void
disk_hosts_sweep(struct spawner *s)
{
    for (uint32_t i = 0; i < SPAWN_DISKS_MAX && s->disks->hosts_n > 0; i++) {
        struct disk *it = &s->disks->disk[i];
        if (it->state != DISK_FREE && it->host && !tree_root_exists(s->tree, it->root))
            drop(s, it);
    }
}

int
disk_host_find(struct spawner *s, const struct disk_host_user *who, const uint8_t id[16],
               struct disk_mount *m, struct err *e)
{
    const struct disk *it = find(s->disks, who->root, id);
    if (it == NULL)
        return err_set(e, ERR_NOT_FOUND, "its template does not list this folder of the host");
    if (!it->writable && !m->read_only)
        return err_set(e, ERR_PERMISSION_DENIED, "its template lists this folder as read-only");
    const struct holder_pair p = {it->uid, it->gid, who->job, who->job};
    int fd =
        it->writable ? holder_user_namespace_pair(&p, who->first, s->proc_fd, e) : nobody(s, e);
    if (fd >= 0 && !it->writable && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return err_sys(e, errno, "copy a descriptor");
    if (fd < 0)
        return fd;
    m->host = true;
    m->disk = (uint32_t)(it - s->disks->disk);
    m->userns_fd = io_keep_fd(fd);
    return 0;
}
