// SPDX-License-Identifier: Apache-2.0
// Checks 270 to 289: what a job tries that is root inside, with capabilities in its own user namespace. Each holds for other
// jobs as well.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { LAST_CAPABILITY = 63, GUEST = 1, IDS = 65536 };

// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID
static const unsigned seven = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER |
                              1U << CAP_FSETID | 1U << CAP_KILL | 1U << CAP_SETGID |
                              1U << CAP_SETUID;

static bool
read_capabilities(struct __user_cap_data_struct data[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capget, &head, data) == 0;
}

static int
more_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2];
    if (!read_capabilities(now) || (now[0].permitted & ~seven) != 0 || now[1].permitted != 0)
        return escaped("permitted: %08x %08x", now[0].permitted, now[1].permitted);
    for (int cap = 0; cap <= LAST_CAPABILITY; cap++) {
        struct __user_cap_data_struct want[2] = {now[0], now[1]};
        unsigned bit = 1U << (cap % 32);
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) < 0) // above the kernel's last one
            break;
        if ((now[cap / 32].permitted & bit) != 0)
            continue;
        want[cap / 32].permitted |= bit;
        want[cap / 32].effective |= bit;
        if (syscall(SYS_capset, &head, want) == 0)
            return escaped("capability %d was raised", cap);
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) == 0)
            return escaped("capability %d became ambient", cap);
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
            return escaped("capability %d is in the bounding set", cap);
    }
    if (prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0)
        return escaped("the secure bits were cleared");
    return held("%08x and no more", now[0].permitted);
}

static int
by_file(void)
{
    struct {
        unsigned magic, permitted, inheritable, permitted_high, inheritable_high;
    } v2 = {0x02000001, ~0U, ~0U, ~0U, ~0U};
    char path[] = "/tmp/set-idXXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return escaped("no file: %s", strerror(errno));
    if (syscall(SYS_setxattr, path, "security.capability", &v2, sizeof v2, 0) == 0 ||
        fsetxattr(fd, "security.capability", &v2, sizeof v2, 0) == 0 ||
        setxattr(path, "trusted.overlay.opaque", "y", 1, 0) == 0)
        return escaped("an extended attribute was set");
    (void)close(fd);
    (void)unlink(path);
    return held("%s", strerror(errno));
}

// Files of the host that are set-id give no right, whatever the user is.
static int
by_set_id(void)
{
    static const char *const programs[] = {"/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd",
                                           "/usr/bin/newgrp"};
    struct stat st;
    int seen = 0;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if (stat(programs[i], &st) < 0 || (st.st_mode & S_ISUID) == 0)
            continue;
        seen++;
        pid_t child = fork();
        if (child == 0) {
            int null = open("/dev/null", O_RDWR);
            (void)dup2(null, 1);
            (void)dup2(null, 2);
            if (setresgid(1000, 1000, 1000) < 0 || setresuid(1000, 1000, 1000) < 0)
                _exit(77);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            execl(programs[i], programs[i], "--version", NULL);
            _exit(78);
        }
        (void)waitpid(child, NULL, 0);
    }
    struct __user_cap_data_struct now[2];
    return read_capabilities(now) && (now[0].permitted & ~seven) == 0
               ? held("%d programs; every mount is nosuid", seen)
               : escaped("capabilities changed");
}

static void
become_any(void)
{
    // The guest's is the last id, which has no mapping.
    for (int id = 1; id < IDS; id++) {
        struct rlimit l = {3, 3};
        if (setresuid((uid_t)-1, (uid_t)id, 0) < 0)
            continue;
        if (syscall(SYS_prlimit64, GUEST, RLIMIT_NOFILE, &l, NULL) == 0)
            _exit(1);
        if (seteuid(0) < 0)
            _exit(2);
    }
}

static int
guest(void)
{
    char path[64], target[64];
    struct rlimit l = {3, 3};
    static const char *const files[] = {"mem", "environ", "maps", "root",   "cwd",   "exe",
                                        "fd",  "fd/4",    "fd/3", "ns/mnt", "stack", "syscall"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/%s", GUEST, files[i]);
        if (open(path, O_RDONLY | O_CLOEXEC) >= 0 || readlink(path, target, sizeof target) > 0)
            return escaped("%s", path);
    }
    if (syscall(SYS_prlimit64, GUEST, RLIMIT_NOFILE, &l, NULL) == 0)
        return escaped("its limits were changed");
    if (setpriority(PRIO_PROCESS, GUEST, 19) == 0)
        return escaped("its priority was changed");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (sched_setaffinity(GUEST, sizeof one, &one) == 0)
        return escaped("its processors were changed");
    int status = in_child(become_any);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return escaped("as another user: %d", status);
    for (int signal = 1; signal <= 64; signal++)
        (void)kill(GUEST, signal);
    bool there = kill(GUEST, 0) == 0 || errno == EPERM;
    return there ? held("the guest is out of reach") : escaped("the guest is gone");
}

static int
devices(void)
{
    static const struct {
        unsigned major, minor;
    } rows[] = {{0, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 11}, {8, 0}, {10, 200}, {10, 229}, {259, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dev_t d = makedev(rows[i].major, rows[i].minor);
        if (mknod("/tmp/node", S_IFCHR | 0666, d) == 0 ||
            mknod("/usr/node", S_IFBLK | 0666, d) == 0 ||
            mknod("/dev/node", S_IFCHR | 0666, d) == 0)
            return escaped("device %u:%u was made", rows[i].major, rows[i].minor);
    }
    if (chmod("/dev/null", 0) == 0 || chown("/dev/null", 1, 1) == 0 || unlink("/dev/null") == 0 ||
        rename("/dev/null", "/dev/nil") == 0 || rename("/dev", "/dev2") == 0 ||
        rmdir("/dev/pts") == 0)
        return escaped("/dev was changed");
    return held("%s", strerror(errno));
}

// Writable files of /proc and /sys, as root sees them. Returns how many could be opened for writing.
static int
writable_below(int dir, const char *path, int depth)
{
    DIR *d = fdopendir(dir);
    int found = 0;
    if (d == NULL)
        return 0;
    for (struct dirent *it = readdir(d); it != NULL && found == 0; it = readdir(d)) {
        char name[512];
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0 || it->d_type == DT_LNK)
            continue;
        (void)snprintf(name, sizeof name, "%s/%s", path, it->d_name);
        if (it->d_type == DT_DIR) {
            int sub = openat(dirfd(d), it->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (sub >= 0 && depth > 0)
                found += writable_below(sub, name, depth - 1);
            else if (sub >= 0)
                (void)close(sub);
            continue;
        }
        int fd = openat(dirfd(d), it->d_name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            (void)printf("%s can be written\n", name);
            (void)close(fd);
            found++;
        }
    }
    (void)closedir(d);
    return found;
}

static int
proc_files(void)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int n = writable_below(proc, "/proc", 8);
    return n == 0 && proc >= 0 ? held("all of /proc is read-only") : escaped("%d files", n);
}

// Files that only the host's root may read: inside, root is not that.
static int
secrets_of_proc(void)
{
    static const char *const files[] = {
        "/proc/kcore",           "/proc/kmsg",        "/proc/kpagecount", "/proc/kpageflags",
        "/proc/slabinfo",        "/proc/vmallocinfo", "/proc/timer_list", "/proc/pagetypeinfo",
        "/proc/kallsyms",        "/proc/iomem",       "/proc/keys",       "/proc/sysrq-trigger",
        "/proc/bus/pci/devices", "/proc/config.gz",   "/proc/self/stack", "/proc/sched_debug",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char byte;
        int fd = open(files[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && read(fd, &byte, 1) > 0)
            return escaped("%s can be read", files[i]);
        if (fd >= 0)
            (void)close(fd);
    }
    return held("nothing to read");
}

static int
cgroup_files(void)
{
    static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max",
                                        "/sys/fs/cgroup/cgroup.procs",
                                        "/sys/fs/cgroup/cpuset.cpus.effective"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int fd = open(files[i], O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            return escaped("%s can be written", files[i]);
        if (chmod(files[i], 0666) == 0 || unlink(files[i]) == 0)
            return escaped("%s was changed", files[i]);
    }
    if (mkdir("/sys/fs/cgroup/x", 0755) == 0 || rmdir("/sys/fs/cgroup") == 0 ||
        rename("/sys/fs/cgroup", "/sys/fs/x") == 0 || rename("/sys", "/sys2") == 0)
        return escaped("/sys/fs/cgroup was changed");
    return held("%s", strerror(errno));
}

static int
mounts(void)
{
    static const char *const types[] = {"tmpfs",  "proc", "sysfs", "overlay", "cgroup2",
                                        "devpts", "fuse", "bpf",   "debugfs", "ext4"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (mount("none", "/mnt", types[i], 0, NULL) == 0)
            return escaped("%s was mounted", types[i]);
        if (syscall(SYS_fsopen, types[i], 0) >= 0)
            return escaped("%s was opened", types[i]);
    }
    static const char *const places[] = {"/",    "/usr",     "/proc",
                                         "/dev", "/dev/shm", "/sys/fs/cgroup"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (umount2(places[i], MNT_DETACH) == 0 ||
            mount(places[i], "/mnt", NULL, MS_BIND, NULL) == 0 ||
            mount(NULL, places[i], NULL, MS_REMOUNT | MS_BIND, NULL) == 0)
            return escaped("%s", places[i]);
    if (chroot("/tmp") == 0 || syscall(SYS_pivot_root, "/", "/") == 0)
        return escaped("another root");
    return held("%s", strerror(errno));
}

static int
namespaces(void)
{
    static const int flags[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (unshare(flags[i]) == 0 || syscall(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0, 0) >= 0)
            return escaped("a namespace of kind %x", (unsigned)flags[i]);
    if (sethostname("x", 1) == 0 || setdomainname("x", 1) == 0)
        return escaped("the host name was changed");
    return held("%s", strerror(errno));
}

static int
keys_and_traces(void)
{
    if (syscall(SYS_keyctl, 0, -3, 0) >= 0 || syscall(SYS_keyctl, 1, 0) >= 0 ||
        syscall(SYS_add_key, "user", "x", "y", 1, -3) >= 0 ||
        syscall(SYS_request_key, "user", "x", 0, -3) >= 0)
        return escaped("a key");
    if (syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, GUEST, 0, 0) == 0 ||
        syscall(SYS_process_vm_readv, GUEST, NULL, 0, NULL, 0, 0) >= 0 ||
        syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, GUEST, 0), 3, 0) >= 0)
        return escaped("the guest was traced");
    return held("%s", strerror(errno));
}

// A limit that is higher than the job's needs a capability that root inside has not.
static int
limits(void)
{
    static const __rlimit_resource_t which[] = {
        RLIMIT_NPROC,    RLIMIT_NOFILE,     RLIMIT_FSIZE, RLIMIT_CPU,    RLIMIT_MEMLOCK,
        RLIMIT_MSGQUEUE, RLIMIT_SIGPENDING, RLIMIT_NICE,  RLIMIT_RTPRIO, RLIMIT_CORE};
    for (size_t i = 0; i < sizeof which / sizeof which[0]; i++) {
        struct rlimit l;
        if (getrlimit(which[i], &l) < 0 || l.rlim_max == RLIM_INFINITY)
            continue;
        l.rlim_cur = ++l.rlim_max;
        if (setrlimit(which[i], &l) == 0)
            return escaped("limit %u was raised", (unsigned)which[i]);
    }
    if (setpriority(PRIO_PROCESS, 0, -5) == 0 && getpriority(PRIO_PROCESS, 0) < 0)
        return escaped("a higher priority");
    struct sched_param p = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &p) == 0)
        return escaped("real-time scheduling");
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "-1000", 5) > 0)
        return escaped("the OOM killer spares it");
    return held("none was raised");
}

// The host's own files are lower layers: a change is a copy.
static int
lower_layers(void)
{
    struct stat before, after;
    if (stat("/usr/bin/env", &before) < 0)
        return skipped("no /usr/bin/env");
    int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    (void)!write(again, "x", 1); // into the copy; the harness compares the host's
    (void)chmod("/usr/bin/env", 0700);
    (void)!chown("/usr/bin/env", 5, 5);
    (void)unlink("/usr/bin/cat");
    return stat("/usr/bin/env", &after) == 0
               ? held("mode %o, then %o: a copy", before.st_mode, after.st_mode)
               : escaped("%s", strerror(errno));
}

static int
raw_sockets(void)
{
    if (socket(AF_INET, SOCK_RAW, 1) >= 0 || socket(AF_PACKET, SOCK_RAW, 0) >= 0 ||
        socket(AF_NETLINK, SOCK_RAW, 9 /* NETLINK_AUDIT */) >= 0 ||
        socket(AF_NETLINK, SOCK_RAW, 12 /* NETLINK_NETFILTER */) >= 0)
        return escaped("a socket");
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
    if (s >= 0 && (setsockopt(s, IPPROTO_IP, 19 /* IP_TRANSPARENT */, &on, sizeof on) == 0 ||
                   setsockopt(s, SOL_SOCKET, SO_MARK, &on, sizeof on) == 0 ||
                   setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &on, sizeof on) == 0))
        return escaped("a socket option");
    return held("%s", strerror(errno));
}

const struct check root_checks[] = {
    {270, "no capability beyond seven can be had", "the bounding set is empty, secure bits",
     more_capabilities},
    {271, "no file can carry capabilities or attributes of overlayfs", "seccomp on setxattr",
     by_file},
    {272, "set-id programs of the host give no right", "nosuid, no_new_privs", by_set_id},
    {273, "the guest cannot be reached as any user", "its id has no mapping, non-dumpable", guest},
    {274, "no device can be made, and /dev cannot be changed",
     "seccomp, no CAP_MKNOD, read-only mount", devices},
    {275, "no file of /proc can be written", "read-only mount", proc_files},
    {276, "what only the host's root may read of /proc stays so", "root inside has another id",
     secrets_of_proc},
    {277, "what shows the limits cannot be changed", "read-only mount", cgroup_files},
    {278, "no mount can be made, changed or removed", "seccomp, no CAP_SYS_ADMIN, locked mounts",
     mounts},
    {279, "no namespace can be made", "seccomp, max_user_namespaces 0", namespaces},
    {280, "no key and no trace", "seccomp", keys_and_traces},
    {281, "no limit can be raised", "no CAP_SYS_RESOURCE, no CAP_SYS_NICE", limits},
    {282, "a write to a file of the host is a copy", "overlay with read-only lower layers",
     lower_layers},
    {283, "no raw socket, and no option of a network administrator", "seccomp, no CAP_NET_ADMIN",
     raw_sockets},
    {0, NULL, NULL, NULL},
};
