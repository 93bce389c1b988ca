// SPDX-License-Identifier: Apache-2.0
// /proc of a sandbox: of its own pid namespace, read-only, with covers over everything that shows the host.
//
// It is read-only because each writable file there is a risk. A trigger in /proc/pressure costs the kernel a grace
// period at its end, so thousands of them delay the end of a killed job by minutes. oom_score_adj makes the OOM
// killer choose others. Little is lost: a job cannot rename a process or lower its own timer slack through a file.
//
// The visible files are a list, and each new sandbox covers everything in its own /proc that is not in the list, so a
// newly loaded module or a newer kernel adds nothing. Each cover is a mount, which costs 6 us at the start and 3 us
// at the end of a sandbox. So files that only the host's root can open are not covered, because no process inside has
// that id; they are found at start.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "io.h"
#include "tree_internal.h"
#include "tree_mount.h"

enum { ENTRIES_BYTES = 4096 };

// The files in the kernel's /proc that a job sees besides processes and links: filesystems and version show the
// kernel, on purpose; dma and execdomains are the same on every machine; sys is for glibc, Go and Java; sysvipc and
// uptime belong to the sandbox's own namespaces.
static const char *const shown[] = {
    "dma", "execdomains", "filesystems", "sys", "sysvipc", "uptime", "version",
};

// Files that programs read to choose their size: replaced by the sandbox's own (tree_view.c).
static const char *const replaced[][2] = {
    {"cpuinfo", "/e/cpuinfo"},
    {"loadavg", "/e/loadavg"},
    {"meminfo", "/e/meminfo"},
    {"stat", "/e/stat"},
};

// Below /proc/sys: counters of the whole host, its terminals, and the id of this boot.
static const struct {
    const char *path;
    bool folder;
} hidden[] = {{"sys/fs", true}, {"sys/kernel/pty", true}, {"sys/kernel/random/boot_id", false}};

// A process, or a link, which shows only what its target shows.
static bool
is_a_jobs_own(const struct dirent64 *entry)
{
    return entry->d_type == DT_LNK || entry->d_name[0] == '.' ||
           (entry->d_name[0] >= '0' && entry->d_name[0] <= '9');
}

static bool
is_covered(const struct tree *t, const struct dirent64 *entry)
{
    if (is_a_jobs_own(entry))
        return false;
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        if (strcmp(entry->d_name, shown[i]) == 0)
            return false;
    for (uint32_t i = 0; i < t->closed_n; i++)
        if (strcmp(entry->d_name, t->closed[i]) == 0)
            return false;
    return true;
}

void
tree_proc_look(struct tree *t)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *d = proc != NULL ? readdir(proc) : NULL; d != NULL; d = readdir(proc)) {
        struct stat st;
        if (d->d_type == DT_REG && t->closed_n < TREE_CLOSED_MAX &&
            strlen(d->d_name) < sizeof t->closed[0] &&
            fstatat(dirfd(proc), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (st.st_mode & (S_IRWXG | S_IRWXO)) == 0)
            (void)snprintf(t->closed[t->closed_n++], sizeof t->closed[0], "%s", d->d_name);
    }
    if (proc != NULL)
        (void)closedir(proc);
}

// Uses mount(2), one call instead of three for a clone, because these are most of a sandbox's mounts. The cover is as
// read-only as /e. If the file has disappeared, with its module, it needs no cover.
static int
cover(const char *name, bool folder, struct err *e)
{
    const char *with = folder ? "/e/dir" : "/e/file";
    for (size_t i = 0; i < sizeof replaced / sizeof replaced[0]; i++)
        if (strcmp(name, replaced[i][0]) == 0)
            with = replaced[i][1];
    if (mount(with, name, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
        return err_sys(e, errno, "cover /proc/%s", name);
    return 0;
}

static int
cover_the_unknown(const struct tree *t, int proc, struct err *e)
{
    _Alignas(struct dirent64) char buffer[ENTRIES_BYTES];
    for (;;) {
        long n = getdents64(proc, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(e, errno, "list /proc");
        if (n == 0)
            return 0;
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            int rc = is_covered(t, entry) ? cover(entry->d_name, entry->d_type == DT_DIR, e) : 0;
            if (rc < 0)
                return rc;
            at += entry->d_reclen;
        }
    }
}

static int
cover_the_hidden(struct err *e)
{
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        int rc = cover(hidden[i].path, hidden[i].folder, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

// Bounds the new IPC namespace: at its end a kernel thread frees the objects of all namespaces one by one. Through the
// sandbox's own /proc, before it is read-only: in the host's, each namespace adds entries of the same names, and the
// kernel compares them all at each look-up.
static int
bound_ipc(int proc, struct err *e)
{
    static const char *const rows[][2] = {
        {"sys/kernel/msgmni", "512"},
        {"sys/kernel/sem", "1000 32000 500 512"},
        {"sys/kernel/shmmni", "512"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int r = io_write_at(proc, rows[i][0], rows[i][1], e);
        if (r < 0)
            return err_wrap(e, "bound the IPC namespace");
    }
    return 0;
}

int
tree_proc_make(const struct tree *t, int base, int root, struct err *e)
{
    const struct mount_option options[] = {{"hidepid", "invisible"}};
    int auto_close proc =
        mount_new_at("proc", options, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                     TREE_MAKING, e);
    if (proc < 0)
        return proc;
    struct statfs fs;
    if (fstatfs(proc, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return err_set(e, ERR_INTERNAL, "/proc is not a procfs");
    int rc = bound_ipc(proc, e);
    if (rc == 0)
        rc = mount_change(proc, MOUNT_ATTR_RDONLY, 0, e);
    if (rc == 0)
        rc = mount_attach(proc, root, "proc", e);
    if (rc < 0)
        return rc;
    int auto_close list = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list < 0 || fchdir(list) < 0)
        return err_sys(e, errno, "enter /proc");
    rc = cover_the_unknown(t, list, e);
    if (rc == 0)
        rc = cover_the_hidden(e);
    if (rc == 0 && fchdir(base) < 0)
        rc = err_sys(e, errno, "go back to the base");
    return rc;
}
