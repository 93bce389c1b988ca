// SPDX-License-Identifier: Apache-2.0
// Checks 41 to 50: namespaces, capabilities, identity, mounts, clocks.
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned long flag;
} kinds[] = {{"mnt", CLONE_NEWNS},    {"pid", CLONE_NEWPID},  {"net", CLONE_NEWNET},
             {"ipc", CLONE_NEWIPC},   {"uts", CLONE_NEWUTS},  {"cgroup", CLONE_NEWCGROUP},
             {"user", CLONE_NEWUSER}, {"time", CLONE_NEWTIME}};
enum { KINDS_N = sizeof kinds / sizeof kinds[0] };

// ESCAPE_NS contains the targets of /proc/self/ns/* on the host.
static int
own_namespaces(void)
{
    char path[64], name[64], wanted[80];
    for (int i = 0; i < KINDS_N; i++) {
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i].name);
        ssize_t n = readlink(path, name, sizeof name - 1);
        if (n < 0)
            return strcmp(kinds[i].name, "time") == 0 ? skipped("no time namespaces")
                                                      : escaped("%s: unreadable", path);
        name[n] = '\0';
        (void)snprintf(wanted, sizeof wanted, " %s ", name);
        if (strstr(parameter("ESCAPE_NS"), wanted) != NULL)
            return escaped("%s is the host's", name);
    }
    return held("%d namespaces differ from the host's", KINDS_N);
}

static long
clone_with(unsigned long flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    if (child > 0)
        (void)waitpid((pid_t)child, NULL, 0);
    return child;
}

static long
clone3_with(unsigned long flags)
{
    struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        _exit(0);
    if (child > 0)
        (void)waitpid((pid_t)child, NULL, 0);
    return child;
}

#if defined(__x86_64__)
// The i386 entry: its number for unshare is 310.
static void
unshare_by_int80(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(310L), "b"((long)CLONE_NEWUSER) : "memory");
    _exit(result == 0 ? 99 : 0);
}
#endif

static int
user_namespace(void)
{
    // tests one barrier at a time: the filter returns EPERM, the namespace's limit would return ENOSPC
    if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM)
        return escaped("unshare: %s", strerror(errno));
    if (clone_with(CLONE_NEWUSER) > 0 || errno != EPERM)
        return escaped("clone: %s", strerror(errno));
    char most[8] = "";
    int fd = open("/proc/sys/user/max_user_namespaces", O_RDONLY | O_CLOEXEC);
    if (read(fd, most, sizeof most - 1) < 1 || strcmp(most, "0\n") != 0)
        return escaped("without the filter %s user namespaces could be made", most);
    (void)close(fd);
    if (clone3_with(CLONE_NEWUSER) > 0)
        return escaped("clone3");
    if (errno != ENOSYS)
        return escaped("clone3 says %s, not ENOSYS: libc would not fall back", strerror(errno));
#if defined(__x86_64__)
    int status = in_child(unshare_by_int80);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
        return escaped("int 0x80");
#endif
    return held("unshare, clone, clone3 and int 0x80 refused, and none allowed below");
}

static int
other_namespaces(void)
{
    for (int i = 0; i < KINDS_N; i++) {
        if (unshare((int)kinds[i].flag) == 0)
            return escaped("unshare %s", kinds[i].name);
        if (errno != EPERM && errno != ENOSYS)
            return escaped("unshare %s: %s", kinds[i].name, strerror(errno));
        // CLONE_NEWTIME is the exit-signal byte of the old clone: only unshare and clone3 have it
        if (kinds[i].flag != CLONE_NEWTIME && clone_with(kinds[i].flag) > 0)
            return escaped("clone %s", kinds[i].name);
        if (clone3_with(kinds[i].flag) > 0)
            return escaped("clone3 %s", kinds[i].name);
    }
    return held("no new namespace of %d kinds", KINDS_N);
}

static int
enter_namespaces(void)
{
    char path[64];
    for (int i = 0; i < KINDS_N; i++) {
        for (int pid = 0; pid < 3; pid++) {
            (void)snprintf(path, sizeof path, pid == 0 ? "/proc/self/ns/%s" : "/proc/%2$d/ns/%1$s",
                           kinds[i].name, pid);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (setns(fd, 0) == 0 ||
                errno != EPERM) // with other rights the kernel would return another error
                return escaped("%s: %s", path, strerror(errno));
            if (fd >= 0)
                (void)close(fd);
        }
    }
    return held("setns: %s", strerror(errno));
}

// The value after "Key:" in a status file.
static bool
status_value(const char *file, const char *key, char *value, size_t n)
{
    FILE *f = fopen(file, "re");
    char line[512];
    bool there = false;
    while (f != NULL && !there && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) {
            (void)snprintf(value, n, "%s", line + strlen(key) + strspn(line + strlen(key), ": \t"));
            value[strcspn(value, "\n")] = '\0';
            there = true;
        }
    if (f != NULL)
        (void)fclose(f);
    return there;
}

static int
capability_sets(void)
{
    const char *sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
    char value[64];
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (!status_value("/proc/self/status", sets[i], value, sizeof value) ||
            strtoull(value, NULL, 16) != 0)
            return escaped("%s is %s", sets[i], value);
    return held("five empty sets");
}

static void *
look_at_thread(void *result)
{
    char path[64], nnp[16] = "", mode[16] = "";
    (void)snprintf(path, sizeof path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
    (void)status_value(path, "NoNewPrivs", nnp, sizeof nnp);
    (void)status_value(path, "Seccomp:", mode, sizeof mode);
    *(bool *)result = strcmp(nnp, "1") == 0 && strcmp(mode, "2") == 0;
    return NULL;
}

static int
filter_on_threads(void)
{
    bool here = false, there = false;
    pthread_t thread;
    (void)look_at_thread(&here);
    if (pthread_create(&thread, NULL, look_at_thread, &there) != 0)
        return escaped("no thread: the check sees nothing");
    (void)pthread_join(thread, NULL);
    return here && there ? held("no_new_privs and a filter on both threads")
                         : escaped("%d %d", here, there);
}

static int
become_others(void)
{
    gid_t group = 0;
    if (setgroups(1, &group) == 0)
        return escaped("setgroups");
    if (setuid(0) == 0 || setresuid(999, 999, 999) == 0 || setresuid(0, 0, 0) == 0)
        return escaped("uid %u", getuid());
    if (setgid(0) == 0 || setresgid(999, 999, 999) == 0)
        return escaped("gid %u", getgid());
    return held("uid %u, gid %u: %s", getuid(), getgid(), strerror(errno));
}

static int
show_yourself(void)
{
    (void)execl(self_path, "show", "300", parameter("ESCAPE_NONCE"), (char *)NULL);
    return 1;
}

static int
mount_things(void)
{
    (void)mkdir("/tmp/m", 0755);
    if (mount("none", "/tmp/m", "tmpfs", 0, NULL) == 0 ||
        mount("none", "/tmp/m", "proc", 0, NULL) == 0 ||
        mount("/usr", "/tmp/m", NULL, MS_BIND, NULL) == 0 ||
        mount("none", "/tmp/m", "overlay", 0, "lowerdir=/usr,upperdir=/tmp,workdir=/var/tmp") == 0)
        return escaped("mount");
    if (!refused(-1))
        return escaped("mount: %s", strerror(errno));
    if (!refused(syscall(SYS_fsopen, "tmpfs", 0)) ||
        !refused(syscall(SYS_open_tree, AT_FDCWD, "/usr", 1)) ||
        !refused(syscall(SYS_move_mount, -1, "", AT_FDCWD, "/tmp/m", 4)) ||
        !refused(syscall(SYS_fspick, AT_FDCWD, "/", 0)) ||
        !refused(syscall(SYS_fsmount, -1, 0, 0)) ||
        !refused(syscall(SYS_pivot_root, "/tmp/m", "/tmp/m")))
        return escaped("new mount API: %s", strerror(errno));
    return held("old and new mount calls refused");
}

static int
set_clock_and_name(void)
{
    struct timespec t = {1, 0};
    struct timeval v = {1, 0};
    struct timex x = {.modes = ADJ_TICK, .tick = 10000};
    if (clock_settime(CLOCK_REALTIME, &t) == 0 || settimeofday(&v, NULL) == 0 || adjtimex(&x) >= 0)
        return escaped("the clock");
    if (sethostname("escaped", 7) == 0 || setdomainname("escaped", 7) == 0)
        return escaped("the name");
    return held("%s", strerror(errno));
}

const struct check namespace_checks[] = {
    {41, "each namespace differs from the host's", "eight namespaces", own_namespaces},
    {42, "no user namespace can be made",
     "seccomp: unshare, clone flags, clone3 ENOSYS, i386 killed", user_namespace},
    {43, "no other namespace can be made", "seccomp, no capability", other_namespaces},
    {44, "no namespace can be entered", "seccomp on setns", enter_namespaces},
    {45, "five capability sets are empty", "capset, bounding set dropped", capability_sets},
    {46, "no_new_privs and the filter are on every thread", "prctl and seccomp before exec",
     filter_on_threads},
    {47, "nobody else can be become", "no CAP_SETUID, setgroups denied", become_others},
    {48, "its uid on the host is of its own range", "user namespace with a range per sandbox",
     show_yourself},
    {49, "nothing can be mounted", "seccomp, no capability over the mount namespace", mount_things},
    {50, "clock and host name cannot be set", "seccomp, no capability", set_clock_and_name},
    {0, NULL, NULL, NULL},
};
