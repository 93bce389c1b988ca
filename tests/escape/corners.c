// SPDX-License-Identifier: Apache-2.0
// Checks 201 on: further ways. Each was first tried by hand against a broker; the first four succeeded at that time.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 * 1024 * 1024, ALARM_CLOCKS = 2 };

static int
touch(const char *path)
{
    return open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
}

// ---- memory that no limit counts

static int
attributes(void)
{
    static const char *const names[] = {"user.a",
                                        "user.overlay.opaque",
                                        "trusted.overlay.opaque",
                                        "security.capability",
                                        "security.selinux",
                                        "security.a",
                                        "system.posix_acl_access",
                                        "system.posix_acl_default"};
    static const char *const files[] = {"/tmp/a", "/dev/shm/a", "/home/agent"};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        int fd = touch(files[f]);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (setxattr(files[f], names[i], "x", 1, 0) == 0 || errno != EOPNOTSUPP ||
                lsetxattr(files[f], names[i], "x", 1, 0) == 0 || errno != EOPNOTSUPP ||
                (fd >= 0 && (fsetxattr(fd, names[i], "x", 1, 0) == 0 || errno != EOPNOTSUPP)))
                return escaped("%s of %s: %s", names[i], files[f], strerror(errno));
    }
    return held("%s, as of a file system without them", strerror(EOPNOTSUPP));
}

static int
huge_pages(void)
{
    static const int sizes[] = {0, 21 << 26, 30 << 26}; // the host's usual one, 2 MiB, 1 GiB
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | sizes[i], -1, 0);
        if (p != MAP_FAILED || errno != EPERM)
            return escaped("mmap: %s", p != MAP_FAILED ? "mapped" : strerror(errno));
        if (!refused(memfd_create("huge", MFD_HUGETLB | (unsigned)sizes[i])))
            return escaped("memfd_create");
        if (!refused(shmget(IPC_PRIVATE, HUGE_PAGE, IPC_CREAT | SHM_HUGETLB | sizes[i] | 0600)))
            return escaped("shmget");
    }
    return held("three ways to the host's huge pages, each: %s", strerror(errno));
}

static int
system_v(void)
{
    static struct {
        long type;
        char text[8192];
    } m = {.type = 1};
    long sets = 0, bytes = 0;
    for (int q; (q = msgget(IPC_PRIVATE, 0600)) >= 0;) {
        while (msgsnd(q, &m, sizeof m.text, IPC_NOWAIT) == 0)
            bytes += (long)sizeof m.text;
        if (bytes > 1L << 30)
            return escaped("%ld bytes of messages", bytes);
    }
    while (semget(IPC_PRIVATE, 32000, 0600) >= 0)
        if (++sets > 100000)
            return escaped("%ld sets", sets);
    return held("%ld bytes of messages, %ld sets of semaphores: %s", bytes, sets, strerror(errno));
}

// A descriptor in transit is open, but in no process's table.
static long
send_away(int through, int fd)
{
    enum { AT_ONCE = 250 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * AT_ONCE)];
    } control = {.bytes = {0}};
    char byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    int fds[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        fds[i] = fd;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    *h = (struct cmsghdr){CMSG_LEN(sizeof fds), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(h), fds, sizeof fds);
    return sendmsg(through, &m, MSG_DONTWAIT) < 0 ? 0 : AT_ONCE;
}

static int
descriptors_in_flight(void)
{
    long away = 0;
    for (long before = -1; before != away;) {
        int pair[2];
        before = away;
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0)
            break;
        away += send_away(pair[0], pair[1]); // into its own queue: it keeps itself open
        (void)close(pair[0]);
        (void)close(pair[1]);
        if (away > 1000000)
            return escaped("%ld descriptors in flight", away);
    }
    return held("%ld in flight, then %s", away, strerror(errno));
}

static int
terminals(void)
{
    int n = 0;
    while (n < 1000 && open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
        n++;
    return n <= 64 ? held("%d terminals, then %s", n, strerror(errno)) : escaped("%d", n);
}

// ---- rarely used kernel interfaces

static int
whiteouts(void)
{
    static const char *const folders[] = {"/tmp", "/dev/shm", "/home/agent"};
    char from[64], to[64];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(from, sizeof from, "%s/from", folders[i]);
        (void)snprintf(to, sizeof to, "%s/to", folders[i]);
        (void)close(touch(from));
        if (!refused(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_WHITEOUT)))
            return escaped("renameat2 in %s: %s", folders[i], strerror(errno));
        if (!refused(mknod(to, S_IFCHR | 0666, 0)))
            return escaped("mknod in %s: %s", folders[i], strerror(errno));
    }
    return held("no device 0:0: %s", strerror(errno));
}

static int
line_disciplines(void)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlocked = 0;
    int slave = ioctl(master, TIOCSPTLCK, &unlocked) == 0
                    ? ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)
                    : -1;
    if (slave < 0)
        return escaped("no terminal: the check sees nothing");
    for (int discipline = 0; discipline < 31; discipline++)
        if (!refused(syscall(SYS_ioctl, slave, TIOCSETD, &discipline)) ||
            !refused(syscall(SYS_ioctl, master, 0xabcd00000000UL | TIOCSETD, &discipline)))
            return escaped("discipline %d: %s", discipline, strerror(errno));
    if (!refused(ioctl(slave, TIOCCONS)) || !refused(ioctl(slave, TIOCVHANGUP)))
        return escaped("TIOCCONS or TIOCVHANGUP: %s", strerror(errno));
    return held("31 line disciplines: %s", strerror(errno));
}

static int
any_clone3(void)
{
    uint64_t args[64] = {CLONE_NEWUSER, [4] = SIGCHLD};
    for (size_t size = 0; size <= sizeof args; size += 8) {
        long child = syscall(SYS_clone3, args, size);
        if (child == 0)
            _exit(0);
        if (child > 0 || errno != ENOSYS)
            return escaped("of %zu bytes: %s", size, child > 0 ? "made" : strerror(errno));
    }
    return held("arguments of 0 to %zu bytes: %s", sizeof args, strerror(errno));
}

static int
alarms(void)
{
    static const clockid_t clocks[ALARM_CLOCKS] = {CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM};
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    for (int i = 0; i < ALARM_CLOCKS; i++)
        if (timerfd_create(clocks[i], TFD_CLOEXEC) >= 0 ||
            timer_create(clocks[i], &quiet, &timer) == 0)
            return escaped("clock %d wakes the host", clocks[i]);
    return held("%s", strerror(errno));
}

static int
file_systems(void)
{
    static const char *const places[] = {"/", "/usr", "/tmp", "/dev/shm", "/dev", "/proc"};
    struct fstrim_range all = {.len = UINT64_MAX};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC), zero = 0;
        if (fd < 0)
            return escaped("%s: %s: the check sees nothing", places[i], strerror(errno));
        if (ioctl(fd, FIFREEZE, &zero) == 0 || ioctl(fd, FITHAW, &zero) == 0 ||
            ioctl(fd, FITRIM, &all) == 0 || ioctl(fd, _IOR('X', 125, uint32_t), &zero) == 0)
            return escaped("froze, trimmed or shut down %s", places[i]);
        (void)close(fd);
    }
    int program = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    if (fcntl(program, F_SETLEASE, F_WRLCK) == 0 || fcntl(program, F_SETLEASE, F_RDLCK) == 0)
        return escaped("a lease on the host's file");
    if (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, program, 0) != MAP_FAILED)
        return escaped("a writable mapping of the host's file");
    return held("%zu file systems go on, no lease, no writable mapping",
                sizeof places / sizeof places[0]);
}

// ---- /proc, pid 1, limits, the network's settings

static int
about_itself(void)
{
    static const struct {
        const char *path, *text;
    } writes[] = {
        {"/proc/self/uid_map", "0 0 1"},       {"/proc/self/gid_map", "0 0 1"},
        {"/proc/self/setgroups", "allow"},     {"/proc/self/timens_offsets", "boottime 1 0"},
        {"/proc/self/oom_adj", "-17"},         {"/proc/thread-self/attr/exec", "unconfined"},
        {"/proc/self/attr/current", "kernel"}, {"/proc/mtrr", "disable=0"}};
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        int fd = open(writes[i].path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && write(fd, writes[i].text, strlen(writes[i].text)) > 0)
            return escaped("%s took \"%s\"", writes[i].path, writes[i].text);
        (void)close(fd);
    }
    DIR *files = opendir("/proc/self/map_files");
    for (struct dirent *d; files != NULL && (d = readdir(files)) != NULL;)
        if (d->d_name[0] != '.' && openat(dirfd(files), d->d_name, O_RDONLY | O_CLOEXEC) >= 0)
            return escaped("map_files/%s opens", d->d_name);
    uint64_t frame = 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    (void)!pread(pagemap, &frame, sizeof frame, (off_t)((uintptr_t)&frame / 4096 * sizeof frame));
    if ((frame & ((UINT64_C(1) << 55) - 1)) != 0)
        return escaped("a frame number");
    return held("%zu files refuse, no mapped file opens, no frame number is told",
                sizeof writes / sizeof writes[0]);
}

static int
pid_1(void)
{
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    siginfo_t forged = {.si_code = SI_QUEUE};
    struct rlimit none = {0, 0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    for (int s = 1; s <= 64; s++)
        if (!refused(kill(1, s)) || !refused(syscall(SYS_tgkill, 1, 1, s)) ||
            !refused(syscall(SYS_tkill, 1, s)) ||
            !refused(syscall(SYS_rt_sigqueueinfo, 1, s, &forged)) ||
            (fd >= 0 && !refused(syscall(SYS_pidfd_send_signal, fd, s, NULL, 0))))
            return escaped("signal %d: %s", s, strerror(errno));
    if (!refused(prlimit(1, RLIMIT_NOFILE, &none, NULL)) ||
        !refused(sched_setaffinity(1, sizeof one, &one)) ||
        !refused(setpriority(PRIO_PROCESS, 1, 19)) ||
        !refused(syscall(SYS_ioprio_set, 1, 1, 3 << 13)) || setpgid(1, 0) == 0)
        return escaped("a setting of pid 1: %s", strerror(errno));
    return held("64 signals by five calls, and five settings: %s", strerror(errno));
}

static int
raise_limits(void)
{
    static const int resources[] = {RLIMIT_CORE,    RLIMIT_CPU,      RLIMIT_FSIZE,
                                    RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE,
                                    RLIMIT_NOFILE,  RLIMIT_RTPRIO,   RLIMIT_SIGPENDING};
    for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
        struct rlimit now;
        if (getrlimit((unsigned)resources[i], &now) != 0 || now.rlim_max == RLIM_INFINITY)
            return escaped("limit %d is not there", resources[i]);
        now.rlim_max++;
        if (setrlimit((unsigned)resources[i], &now) == 0)
            return escaped("limit %d raised to %lu", resources[i], now.rlim_max);
    }
    return held("nine limits: %s", strerror(errno));
}

static int
set_up_a_network(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } up = {.head = {sizeof up, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
            .link = {.ifi_index = 1, .ifi_flags = IFF_UP | IFF_PROMISC, .ifi_change = ~0U}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer = {.error = {.error = 1}};
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_PROMISC};
    const unsigned long requests[] = {0x8914 /* SIOCSIFFLAGS */, 0x8916 /* SIOCSIFADDR */,
                                      0x8922 /* SIOCSIFMTU */,   0x890B /* SIOCADDRT */,
                                      0x8955 /* SIOCSARP */,     0x89a0 /* SIOCBRADDBR */};
    int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (send(route, &up, sizeof up, 0) < 0 || recv(route, &answer, sizeof answer, 0) < 0 ||
        answer.error.error != -EPERM)
        return escaped("RTM_NEWLINK: %d", answer.error.error);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        if (ioctl(fd, requests[i], &request) == 0)
            return escaped("ioctl %lx", requests[i]);
    return held("no link, address or route can be set: %s", strerror(errno));
}

// The kernel may count TCP buffers separately from memory, under the same limit: SMALL's 64 MiB.
static int
tcp_buffers(void)
{
    enum { PAIRS = 200, BLOCK = 65536 };
    static char block[BLOCK];
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), size = 4 * 1024 * 1024;
    if (bind(listener, (struct sockaddr *)&here, n) != 0 || listen(listener, PAIRS) != 0 ||
        getsockname(listener, (struct sockaddr *)&here, &n) != 0)
        return escaped("no listener: the check sees nothing");
    long kept = 0;
    for (int i = 0; i < PAIRS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        if (connect(fd, (struct sockaddr *)&here, n) != 0)
            break;
        for (ssize_t sent; (sent = send(fd, block, sizeof block, MSG_DONTWAIT)) > 0;)
            kept += sent;
    }
    return kept <= 192L * 1024 * 1024 ? held("the kernel kept %ld KiB", kept / 1024)
                                      : escaped("the kernel keeps %ld MiB", kept / 1024 / 1024);
}

static int
own_filters(void)
{
    static struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {1, allow};
    for (unsigned flags = 0; flags < 64; flags++)
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) >= 0)
            return escaped("loaded with flags %x", flags);
    if (errno != EINVAL && errno != EPERM)
        return escaped("seccomp: %s", strerror(errno));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
        return escaped("loaded by prctl");
    return held("no filter of its own: %s", strerror(errno));
}

static int
nothing_to_do(void)
{
    return HELD;
}

const struct check corner_checks[] = {
    {201, "no file gets an extended attribute", "seccomp: memory that no limit counts", attributes},
    {202, "the host's huge pages cannot be had", "seccomp: memory that no limit counts",
     huge_pages},
    {203, "no whiteout can be made", "seccomp on mknod and renameat2", whiteouts},
    {204, "no line discipline can be loaded", "seccomp on TIOCSETD; no capability",
     line_disciplines},
    {205, "System V messages and semaphores are counted as memory", "memory.max", system_v},
    {206, "descriptors in flight are bounded", "RLIMIT_NOFILE of the sandbox's own ids",
     descriptors_in_flight},
    {207, "terminals end at the limit", "max= of the sandbox's devpts", terminals},
    {208, "clone3 is absent whatever its size", "seccomp", any_clone3},
    {209, "no clock wakes the host", "no capability", alarms},
    {210, "no file system can be frozen, trimmed, shut down or leased",
     "no capability; overlay inodes, read-only mounts", file_systems},
    {211, "what /proc says of a job changes no right", "user namespace above; no capability",
     about_itself},
    {212, "pid 1 takes no signal and no setting", "other uid, no capability", pid_1},
    {213, "no hard limit can be raised", "no capability", raise_limits},
    {214, "its network cannot be set up", "network namespace owned from above; no capability",
     set_up_a_network},
    {215, "no descriptor of the guest is a folder to start in",
     "close_range before the first path is looked at", nothing_to_do},
    {216, "buffers of TCP are counted as memory", "memory.max; memory.kmem.tcp.limit_in_bytes",
     tcp_buffers},
    {217, "a job loads no filter of its own", "seccomp: memory that no limit counts", own_filters},
    {0, NULL, NULL, NULL},
};
