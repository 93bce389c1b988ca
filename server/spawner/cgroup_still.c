// SPDX-License-Identifier: Apache-2.0
// See cgroup.h: a sandbox whose files stay as they are while a process of ours, in its cgroup, copies them.
//
//   v2, with pid 1 apart    guest/ and each job-N/ are frozen, copy/ is not
//   otherwise               SANDBOX is frozen; the process is only in the leaves of v1 controllers
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "cgroup.h"
#include "cgroup_leaf.h"
#include "io.h"

static const char copy_name[] = "copy";

static bool
is_to_be_still(const struct dirent *entry)
{
    return entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
           strcmp(entry->d_name, copy_name) != 0;
}

// 1: it is as it should be; 0: not yet. It is written each time, whatever the event says: that is 0 also in a cgroup that is to be
// frozen, until its last process is, and again while one that was killed ends.
static int
freeze_and_look(int fd, bool frozen, struct err *e)
{
    int r = cgroup_freeze(fd, frozen, e);
    if (r < 0)
        return r;
    r = cgroup_event(fd, "frozen");
    return r < 0 ? err_sys(e, -r, "look at a cgroup") : r == (int)frozen;
}

// One that was removed meanwhile is as it should be.
static int
still_one(int parent, const char *name, bool frozen, struct err *e)
{
    int auto_close fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT)
        return err_sys(e, errno, "open a cgroup");
    int r = fd < 0 ? 1 : freeze_and_look(fd, frozen, e);
    return r == -ENODEV || r == -ENOENT ? 1 : r;
}

// The guest first: as soon as it is still, no further cgroup comes.
static int
still_children(int sandbox_fd, bool frozen, struct err *e)
{
    int all = still_one(sandbox_fd, "guest", frozen, e);
    int fd = all < 0 ? -1 : openat(sandbox_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int r = all < 0 ? all : err_sys(e, errno, "list the sandbox's cgroup");
        io_close(&fd);
        return r;
    }
    for (const struct dirent *it = readdir(d); it != NULL && all >= 0; it = readdir(d)) {
        int one = is_to_be_still(it) ? still_one(sandbox_fd, it->d_name, frozen, e) : 1;
        if (one < 1)
            all = one;
    }
    (void)closedir(d);
    return all;
}

int
cgroup_still(const struct cgroups *cg, int sandbox_fd, bool frozen, struct err *e)
{
    if (cg->guest_apart) {
        int all = still_children(sandbox_fd, frozen, e);
        // it may be held (HOLD), which would stop the copier, too
        int r = all == 1 && frozen ? cgroup_freeze(sandbox_fd, false, e) : 0;
        return r < 0 ? r : all;
    }
    return freeze_and_look(sandbox_fd, frozen, e);
}

int
cgroup_copier_open(const struct cgroups *cg, const struct cgroup_sandbox *s,
                   struct cgroup_copier *out, struct err *e)
{
    *out = (struct cgroup_copier){.fd = -1, .tasks_fd = {-1, -1, -1, -1}};
    for (int c = 0; c < CG_N; c++) {
        if (s->leaf == NULL || s->leaf->fd[c] < 0)
            continue;
        out->tasks_fd[c] = openat(s->leaf->fd[c], "tasks", O_WRONLY | O_CLOEXEC);
        if (out->tasks_fd[c] < 0)
            return err_sys(e, errno, "open a v1 cgroup's tasks");
    }
    if (!cg->guest_apart)
        return 0;
    if (mkdirat(s->fd, copy_name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make the copier's cgroup");
    out->fd = openat(s->fd, copy_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return out->fd < 0 ? err_sys(e, errno, "open the copier's cgroup") : 0;
}

void
cgroup_copier_close(struct cgroup_copier *c)
{
    io_close(&c->fd);
    for (int i = 0; i < CG_N; i++)
        io_close(&c->tasks_fd[i]);
}
