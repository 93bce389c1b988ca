// SPDX-License-Identifier: Apache-2.0
// See cgroup.h.
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

enum { NAME_BYTES = 24 };

static int cgroups = -1;
static int first = -1; // the first job's, made in advance

static int
write_file(int dir, const char *name, const char *text)
{
    int auto_close fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = (ssize_t)strlen(text);
    return fd >= 0 && write(fd, text, (size_t)n) == n ? 0 : -errno;
}

static void
name_of(uint32_t job, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "job-%u", job);
}

static int
make(uint32_t job, struct err *e)
{
    char name[NAME_BYTES];
    name_of(job, name);
    if (mkdirat(cgroups, name, 0755) < 0)
        return err_sys(e, errno, "create cgroup %s", name);
    int fd = openat(cgroups, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int sys = errno;
        (void)unlinkat(cgroups, name, AT_REMOVEDIR);
        return err_sys(e, sys, "open cgroup %s", name);
    }
    (void)write_file(fd, "memory.oom.group", "1"); // exists only with the memory controller
    return fd;
}

void
guest_cgroup_init(int sandbox_fd)
{
    cgroups = sandbox_fd;
}

void
guest_cgroup_prepare(void)
{
    struct err ignored; // the first job reports the error
    first = make(GUEST_FIRST_JOB, &ignored);
}

void
guest_cgroup_unprepare(void)
{
    if (first < 0 || guest_cgroup_remove(GUEST_FIRST_JOB) < 0)
        return;
    (void)close(first);
    first = -1;
}

int
guest_cgroup_take(uint32_t job, struct err *e)
{
    return job == GUEST_FIRST_JOB && first >= 0 ? take_fd(&first) : make(job, e);
}

int
guest_cgroup_enter(int cgroup, pid_t pid, struct err *e)
{
    char text[NAME_BYTES];
    (void)snprintf(text, sizeof text, "%d", (int)pid);
    int r = write_file(cgroup, "cgroup.procs", text);
    return r < 0 ? err_sys(e, -r, "move process %d into its cgroup", (int)pid) : 0;
}

void
guest_cgroup_kill(int cgroup)
{
    (void)write_file(cgroup, "cgroup.kill", "1");
}

int
guest_cgroup_remove(uint32_t job)
{
    char name[NAME_BYTES];
    name_of(job, name);
    return unlinkat(cgroups, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}
