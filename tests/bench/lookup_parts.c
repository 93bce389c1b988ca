// SPDX-License-Identifier: Apache-2.0
// The cost of each part of a sandbox for a job's file lookups, without a broker: `find` over two folders of /usr and
// the start of Python, with another mount at /usr, the spawner's filters and a cgroup, in a mount namespace of its
// own.
//
//   lookup_parts ROUNDS
//
// All rows alternate. Cold: the first run in a newly mounted
// overlay; otherwise the second. If other programs run meanwhile, compare min_us.
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/spawner/filter.h"
#include "server/spawner/tree_mount.h"

#define ID_MAP "0 1900000000 65536"
#define PLACE  "/run/stockade-bench" // a tmpfs in this namespace only

enum { JOB_ID = 1900001000, ROWS_N = 9 };

struct row {
    const char *name;
    bool overlay, upper, idmapped, filter, cgroup;
};

static const struct row rows[ROWS_N] = {
    {.name = "plain bind"},
    {.name = "plain bind, with filters", .filter = true},
    {.name = "id-mapped bind", .idmapped = true},
    {.name = "overlay, read-only", .overlay = true},
    {.name = "overlay with an upper folder", .overlay = true, .upper = true},
    {.name = "overlay with an upper folder, id-mapped",
     .overlay = true,
     .upper = true,
     .idmapped = true},
    {.name = "overlay with an upper folder, and filters",
     .overlay = true,
     .upper = true,
     .filter = true},
    {.name = "the same, id-mapped, with filters",
     .overlay = true,
     .upper = true,
     .idmapped = true,
     .filter = true},
    {.name = "the same, in a memory cgroup",
     .overlay = true,
     .upper = true,
     .idmapped = true,
     .filter = true,
     .cgroup = true},
};

static const char *const find[] = {"/usr/bin/find", "/usr/share/doc", "/usr/lib/python3", NULL};
static const char *const python[] = {"/usr/bin/python3", "-c", "pass", NULL};
static struct filter guest_filter, job_filter;
static int userns = -1;
static int tasks = -1; // of the cgroup; -1: it could not be made
static char cgroup[64];

static void
check(int rc, const struct err *e)
{
    if (rc < 0)
        bench_die("%s", e->text);
}

static void
write_map(pid_t pid, const char *file)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, ID_MAP, sizeof ID_MAP - 1) < 0)
        bench_die("%s: %m", path);
    (void)close(fd);
}

static void
make_userns(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    write_map(pid, "uid_map");
    write_map(pid, "gid_map");
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    if (userns < 0)
        bench_die("%s: %m", path);
}

// One level below the root, where the memory controller is: its accounting is measured, not its limit.
static void
make_cgroup(void)
{
    static const char *const tops[][2] = {{"/sys/fs/cgroup/memory", "tasks"},
                                          {"/sys/fs/cgroup", "cgroup.procs"}};
    bool v1 = access("/sys/fs/cgroup/memory/tasks", F_OK) == 0;
    char path[96];
    (void)snprintf(cgroup, sizeof cgroup, "%s/stockade-bench-%d", tops[v1 ? 0 : 1][0], getpid());
    (void)snprintf(path, sizeof path, "%s/%s", cgroup, tops[v1 ? 0 : 1][1]);
    if (mkdir(cgroup, 0755) == 0)
        tasks = open(path, O_WRONLY | O_CLOEXEC);
    if (tasks < 0)
        (void)fprintf(stderr, "%s: %s; that row has no cgroup\n", cgroup, strerror(errno));
}

static void
prepare(void)
{
    struct err e = {0};
    int job_fd = -1;
    make_cgroup();
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        (mkdir(PLACE, 0755) < 0 && errno != EEXIST))
        bench_die("mount namespace: %m");
    make_userns();
    check(filter_compile(&guest_filter, &job_filter, &job_fd, &e), &e);
}

static int
mount_overlay(const struct row *r, struct err *e)
{
    const struct mount_option options[] = {
        {"index", "off"},
        {"metacopy", "off"},
        {"xino", "on"},
        {"redirect_dir", "nofollow"},
        {"lowerdir", r->upper ? PLACE "/lower" : PLACE "/lower:" PLACE "/empty"},
        {"upperdir", PLACE "/upper"},
        {"workdir", PLACE "/work"},
    };
    return mount_new("overlay", options, r->upper ? 7 : 5, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

// Mounts the row's /usr, like spawner/tree_enter.c.
static void
cover_usr(const struct row *r)
{
    struct err e = {0};
    static const char *const folders[] = {PLACE "/lower", PLACE "/empty", PLACE "/upper",
                                          PLACE "/work"};
    if (mount("tmpfs", PLACE, "tmpfs", 0, "mode=0755") < 0)
        bench_die("tmpfs: %m");
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        (void)mkdir(folders[i], 0755);
    int fd =
        mount_clone(AT_FDCWD, "/usr", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, &e);
    check(fd, &e);
    if (r->idmapped)
        check(mount_idmap(fd, userns, &e), &e);
    if (r->overlay) {
        check(mount_attach(fd, AT_FDCWD, PLACE "/lower", &e), &e);
        (void)close(fd);
        fd = mount_overlay(r, &e);
        check(fd, &e);
    }
    check(mount_attach(fd, AT_FDCWD, "/usr", &e), &e);
    (void)close(fd);
}

static void
uncover_usr(void)
{
    if (umount2("/usr", MNT_DETACH) < 0 || umount2(PLACE, MNT_DETACH) < 0)
        bench_die("umount: %m");
}

static __attribute__((noreturn)) void
become_job(const struct row *r, const char *const argv[])
{
    struct err e = {0};
    static char path[] = "PATH=/usr/bin";
    char *env[] = {path, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (r->cgroup && tasks >= 0 && write(tasks, "0", 1) != 1)
        _exit(126);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(JOB_ID, JOB_ID, JOB_ID) < 0 || setresuid(JOB_ID, JOB_ID, JOB_ID) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || chdir("/") < 0)
        _exit(126);
    if (r->filter && (filter_load(&guest_filter, &e) < 0 || filter_load(&job_filter, &e) < 0))
        _exit(126);
    (void)execve(argv[0], (char *const *)(uintptr_t)argv, env);
    _exit(127);
}

// The processor time of one run, in microseconds.
static double
run(const struct row *r, const char *const argv[])
{
    pid_t pid = fork();
    if (pid == 0)
        become_job(r, argv);
    int status = -1;
    struct rusage u = {0};
    if (pid < 0 || wait4(pid, &status, 0, &u) < 0 || status != 0)
        bench_die("%s, %s: status %x", argv[0], r->name, (unsigned)status);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void
measure(const char *const argv[], const char *bench, long rounds)
{
    struct samples cold[ROWS_N] = {0}, warm[ROWS_N] = {0};
    for (long i = -1; i < rounds; i++) {
        for (int k = 0; k < ROWS_N; k++) {
            cover_usr(&rows[k]);
            double first = run(&rows[k], argv);
            double next = run(&rows[k], argv);
            uncover_usr();
            if (i < 0)
                continue;
            samples_add(&cold[k], first);
            samples_add(&warm[k], next);
        }
    }
    for (int k = 0; k < ROWS_N; k++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s, cold", rows[k].name);
        warm[k].row = rows[k].name;
        cold[k].row = name;
        samples_print(&warm[k], bench, "");
        if (rows[k].overlay)
            samples_print(&cold[k], bench, "");
        else
            free(cold[k].us);
    }
}

int
main(int argc, char **argv)
{
    if (argc < 2)
        bench_die("usage: lookup_parts ROUNDS");
    long rounds = strtol(argv[1], NULL, 10);
    prepare();
    measure(find, "look-ups by part, find", rounds);
    measure(python, "look-ups by part, python3 -c pass", rounds);
    (void)rmdir(PLACE);
    if (tasks >= 0)
        (void)rmdir(cgroup);
    return 0;
}
