// SPDX-License-Identifier: Apache-2.0
// Checks 245 to 264: /proc, file by file. A file of this kernel that was not reviewed is a failure, so a new file of
// a new kernel is noticed here first.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 12, FILES_LEAST = 200, PATH_BYTES = 1024 };

// Reviewed: the sandbox's own, or the same on every host, or shown on purpose.
static const char *const shown[] = {
    "cpuinfo", "dma",  "execdomains", "filesystems", "loadavg", "meminfo", "mounts",      "net",
    "self",    "stat", "sys",         "sysvipc",     "uptime",  "version", "thread-self", NULL,
};

// Reviewed: the files that Linux 6.1 to 6.18 have for each process. Some show the host: "sched" and "timens_offsets"
// its uptime, "status" its processors, "stat" and "numa_maps" where a task ran. SECURITY.md says so.
static const char *const of_a_process[] = {
    "arch_status",
    "attr",
    "autogroup",
    "auxv",
    "cgroup",
    "children",
    "clear_refs",
    "cmdline",
    "comm",
    "coredump_filter",
    "cpu_resctrl_groups",
    "cpuset",
    "cwd",
    "environ",
    "exe",
    "fail-nth",
    "fd",
    "fdinfo",
    "gid_map",
    "io",
    "ksm_merging_pages",
    "ksm_stat",
    "latency",
    "limits",
    "loginuid",
    "make-it-fail",
    "map_files",
    "maps",
    "mem",
    "mountinfo",
    "mounts",
    "mountstats",
    "net",
    "ns",
    "numa_maps",
    "oom_adj",
    "oom_score",
    "oom_score_adj",
    "pagemap",
    "patch_state",
    "personality",
    "projid_map",
    "root",
    "sched",
    "schedstat",
    "seccomp_cache",
    "sessionid",
    "setgroups",
    "smaps",
    "smaps_rollup",
    "stack",
    "stat",
    "statm",
    "status",
    "syscall",
    "task",
    "timens_offsets",
    "timers",
    "timerslack_ns",
    "uid_map",
    "wchan",
    NULL,
};

static bool
is_in(const char *const *list, const char *name)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static bool
is_number(const char *name)
{
    return name[0] >= '0' && name[0] <= '9';
}

static int files;
static char opened[PATH_BYTES];

// Looks at every file below, except those of other processes. True at the first one that opens for writing.
static bool
find_writable(const char *folder, int depth)
{
    DIR *d = depth < DEPTH_MAX ? opendir(folder) : NULL;
    for (struct dirent *e = NULL; d != NULL && opened[0] == '\0' && (e = readdir(d)) != NULL;) {
        char path[PATH_BYTES];
        struct stat st;
        if (e->d_name[0] == '.' || (depth == 0 && is_number(e->d_name)))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path ||
            lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            (void)find_writable(path, depth + 1);
        } else if (S_ISREG(st.st_mode)) {
            files++;
            int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
            if (fd < 0)
                fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
            if (fd >= 0)
                (void)snprintf(opened, sizeof opened, "%s", path);
        }
    }
    if (d != NULL)
        (void)closedir(d);
    return opened[0] != '\0';
}

static int
nothing_opens_for_writing(void)
{
    if (find_writable("/proc", 0) || find_writable("/proc/self", 1) ||
        find_writable("/proc/thread-self", 1))
        return escaped("%s opens for writing", opened);
    if (files < FILES_LEAST)
        return escaped("only %d files: the check sees nothing", files);
    return held("%d files, none opens for writing", files);
}

static bool
is_empty(const char *path)
{
    char byte;
    struct stat st;
    if (lstat(path, &st) != 0)
        return true;
    if (S_ISDIR(st.st_mode)) {
        DIR *d = opendir(path);
        int n = 0;
        while (d != NULL && readdir(d) != NULL)
            n++;
        if (d != NULL)
            (void)closedir(d);
        return n <= 2;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool empty = fd < 0 || read(fd, &byte, 1) <= 0;
    if (fd >= 0)
        (void)close(fd);
    return empty;
}

static int
nothing_new_in_proc(void)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, "/proc/%s", e->d_name);
        n++;
        if (e->d_name[0] != '.' && !is_number(e->d_name) && !is_in(shown, e->d_name) &&
            !is_empty(path))
            return escaped("%s shows something, and is not on the list of what may", path);
    }
    static const char *const hidden[] = {"/proc/sys/fs", "/proc/sys/kernel/pty",
                                         "/proc/sys/kernel/random/boot_id"};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (!is_empty(hidden[i]))
            return escaped("%s shows something", hidden[i]);
    return n > 20 ? held("%d names: reviewed, empty or refused", n)
                  : escaped("only %d names: the check sees nothing", n);
}

static int
nothing_new_of_a_process(void)
{
    static const char *const folders[] = {"/proc/self", "/proc/thread-self"};
    int n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        DIR *d = opendir(folders[i]);
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; n++)
            if (e->d_name[0] != '.' && !is_in(of_a_process, e->d_name))
                return escaped("%s/%s is new: review it", folders[i], e->d_name);
        if (d != NULL)
            (void)closedir(d);
    }
    return n > 60 ? held("%d names, all reviewed", n) : escaped("only %d names", n);
}

// Each costs the kernel a grace period when its owner ends, for which the end of the sandbox waits.
static int
no_pressure_triggers(void)
{
    static const char *const paths[] = {"/proc/pressure/memory", "/proc/pressure/cpu",
                                        "/proc/pressure/io", "/sys/fs/cgroup/memory.pressure"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (open(paths[i], O_RDWR | O_CLOEXEC | O_NONBLOCK) >= 0)
            return escaped("%s takes triggers", paths[i]);
    return held("no file to set one: %s", strerror(errno));
}

// It must not matter here whether root of the host has CAP_SYS_RESOURCE, which the kernel's own minimum depends on.
static int
oom_score(void)
{
    char text[32] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    (void)!read(fd, text, sizeof text - 1);
    if (strtol(text, NULL, 10) != 1000)
        return escaped("oom_score_adj is %s", text);
    static const char *const names[] = {"/proc/self/oom_score_adj", "/proc/self/oom_adj",
                                        "/proc/thread-self/oom_score_adj"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fd = open(names[i], O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && (write(fd, "999", 3) == 3 || write(fd, "0", 1) == 1))
            return escaped("lowered %s", names[i]);
    }
    return held("1000, and cannot be lowered: %s", strerror(errno));
}

const struct check proc_checks[] = {
    {245, "no file in /proc opens for writing", "/proc is read-only", nothing_opens_for_writing},
    {246, "/proc shows what was reviewed, and no more", "covers over all that is not on a list",
     nothing_new_in_proc},
    {247, "of a process /proc has what was reviewed", "the list of this check",
     nothing_new_of_a_process},
    {248, "no trigger of pressure can be set", "covers over /proc, no cgroupfs",
     no_pressure_triggers},
    {77, "oom_score_adj cannot be lowered", "read-only /proc; oom_score_adj_min set by root",
     oom_score},
    {0, NULL, NULL, NULL},
};
