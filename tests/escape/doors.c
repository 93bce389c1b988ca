// SPDX-License-Identifier: Apache-2.0
// Checks 218 on: kernel interfaces that an ordinary descriptor or process gives access to: options of sockets, ioctls
// of namespaces and terminals, prctl, madvise, scheduling.
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

static int
programs_on_sockets(void)
{
    static const uint64_t options[] = {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
                                       SO_ATTACH_REUSEPORT_EBPF};
    static const uint64_t highs[] = {0, 0xdead00000000UL};
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    const struct sock_fprog program = {1, all};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0)
        return escaped("SO_REUSEPORT: %s: the check sees nothing", strerror(errno));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (size_t k = 0; k < sizeof highs / sizeof highs[0]; k++)
            if (syscall(SYS_setsockopt, fd, SOL_SOCKET | highs[k], options[i] | highs[k], &program,
                        sizeof program) == 0 ||
                errno != EOPNOTSUPP)
                return escaped("option %d: %s", (int)options[i], strerror(errno));
    return held("four options: %s", strerror(errno));
}

// Requests of nsfs and pidfs that return a descriptor (linux/nsfs.h, linux/pidfd.h; newer than this machine's
// headers).
static int
namespaces_above(void)
{
    static const char *const names[] = {"mnt",    "net",  "ipc",  "uts",
                                        "cgroup", "user", "time", "pid"};
    enum {
        GET_OWNER = 0xb701,
        GET_PARENT,
        MNT_NEXT = 11,
        MNT_PREVIOUS,
        PIDFD_FIRST = 0xff01,
        PIDFD_N = 10
    };
    char info[64] = {16};
    int looked = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        looked += fd >= 0;
        if (ioctl(fd, GET_OWNER) >= 0)
            return escaped("the owner of %s", path);
        if (ioctl(fd, GET_PARENT) >= 0)
            return escaped("the parent of %s", path);
        for (unsigned next = MNT_NEXT; next <= MNT_PREVIOUS; next++)
            if (ioctl(fd, _IOR(0xb7, next, char[16]), info) >= 0)
                return escaped("a mount namespace beside %s", path);
    }
    int pid_1 = (int)syscall(SYS_pidfd_open, 1, 0);
    for (unsigned i = 0; i < PIDFD_N; i++)
        if (ioctl(pid_1, PIDFD_FIRST + i, 0) >= 0)
            return escaped("namespace %u of pid 1", i);
    return looked >= 7 ? held("%d namespaces: %s", looked, strerror(errno))
                       : escaped("only %d namespaces: the check sees nothing", looked);
}

static int
options_of_prctl(void)
{
    static const int some[] = {PR_SET_MM,
                               PR_SET_SECCOMP,
                               PR_MCE_KILL,
                               PR_SET_TSC,
                               PR_SET_IO_FLUSHER,
                               PR_TASK_PERF_EVENTS_DISABLE,
                               59 /* PR_SET_SYSCALL_USER_DISPATCH */,
                               62 /* PR_SCHED_CORE */,
                               67 /* PR_SET_MEMORY_MERGE */,
                               78 /* PR_FUTEX_HASH */,
                               0x59616d61 /* PR_SET_PTRACER */};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        if (!refused(prctl(some[i], 0, 0, 0, 0)))
            return escaped("prctl %d: %s", some[i], strerror(errno));
    return held("%zu that are not on the list: %s", sizeof some / sizeof some[0], strerror(errno));
}

static int
pages_of_the_host(void)
{
    long size = sysconf(_SC_PAGESIZE);
    char *page =
        mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    enum { POISON = 100, SOFT_OFFLINE = 101 };
    if (madvise(page, (size_t)size, POISON) == 0 || madvise(page, (size_t)size, SOFT_OFFLINE) == 0)
        return escaped("a page of the host is taken out of use");
    if (errno != EPERM && errno != EINVAL) // EINVAL: the kernel does not support it
        return escaped("madvise: %s", strerror(errno));
    return held("madvise: %s", strerror(errno));
}

static int
terminal_requests(void)
{
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlocked = 0;
    if (ioctl(fd, TIOCSPTLCK, &unlocked) != 0)
        return escaped("no terminal: %s: the check sees nothing", strerror(errno));
    int job_end = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    if (ioctl(job_end, TIOCSCTTY, 0) !=
        0) // the kernel refuses TIOCSTI on any but the controlling terminal
        return escaped("not its own: %s: the check sees nothing", strerror(errno));
    const int fds[] = {fd, job_end};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        char byte = 'x';
        if (!refused(ioctl(fds[i], TIOCSTI, &byte)))
            return escaped("TIOCSTI: %s", strerror(errno));
        if (ioctl(fds[i], TIOCCONS) == 0)
            return escaped("the host's console writes here");
        if (ioctl(fds[i], 0x5437 /* TIOCVHANGUP */) == 0)
            return escaped("hung up a terminal");
    }
    return held("nothing typed, no console: %s", strerror(errno));
}

// Only the fair class: nothing that has priority over others' work.
static int
scheduling_classes(void)
{
    enum { CLASSES = 16, EXT = 7 };
    struct sched_param none = {0}, one = {1};
    for (int class = 0; class < CLASSES; class ++) {
        bool fair =
            class == SCHED_OTHER || class == SCHED_BATCH || class == SCHED_IDLE || class == EXT;
        if (!fair &&
            (sched_setscheduler(0, class, &one) == 0 || sched_setscheduler(0, class, &none) == 0))
            return escaped("class %d", class);
    }
    return held("%d classes: %s", CLASSES, strerror(errno));
}

// The pipes of stdio belong to the broker, whose account has 16,384 pages for the pipes of all jobs
// (fs.pipe-user-pages-soft).
static int
pipes_of_the_broker(void)
{
    enum { PAGE = 4096, PAGES = 16384, JOBS = 340, MIB = 1 << 20 };
    int sum = 0;
    for (int fd = 0; fd <= 2; fd++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, (fd == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC | O_NONBLOCK);
        if (fcntl(fd, F_SETPIPE_SZ, MIB) >= 0 || fcntl(again, F_SETPIPE_SZ, MIB) >= 0 ||
            syscall(SYS_fcntl, fd, F_SETPIPE_SZ | 1L << 32, MIB) >= 0)
            return escaped("pipe %d holds %d bytes", fd, fcntl(fd, F_GETPIPE_SZ));
        int size = fcntl(fd, F_GETPIPE_SZ);
        if (size < 0)
            return escaped("descriptor %d is no pipe", fd);
        sum += size / PAGE;
    }
    if (sum * JOBS > PAGES)
        return escaped("%d pages, of which there are %d for all jobs", sum, PAGES);
    return held("%d pages, and no more", sum);
}

// When the sandbox ends, a kernel thread frees them one by one, for all sandboxes.
static int
ipc_objects(void)
{
    enum { MOST = 512, TRIED = 2000 };
    int queues = 0, sets = 0, segments = 0;
    while (queues < TRIED && msgget(IPC_PRIVATE, 0600) >= 0)
        queues++;
    while (sets < TRIED && semget(IPC_PRIVATE, 1, 0600) >= 0)
        sets++;
    while (segments < TRIED && shmget(IPC_PRIVATE, 4096, 0600) >= 0)
        segments++;
    bool some = queues > 0 && sets > 0 && segments > 0;
    return some && queues <= MOST && sets <= MOST && segments <= MOST
               ? held("%d queues, %d sets, %d segments", queues, sets, segments)
               : escaped("%d queues, %d sets, %d segments", queues, sets, segments);
}

// Where a host file is on its disk; and time stamps for every packet of the host.
static int
requests_of_the_host(void)
{
    static const unsigned long requests[] = {1,          0x8906,     0x8907,    0x80108906,
                                             0x80108907, 0xc020660b, 0xc0c0583b};
    uint64_t place[128] = {0, UINT64_MAX, 0, 8}; // struct fiemap: start, length, flags, extents
    int file = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    int datagrams = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        bool stamp = (requests[i] & 0xff00) == 0x8900;
        if (ioctl(stamp ? datagrams : file, requests[i], place) == 0 || errno != EOPNOTSUPP)
            return escaped("request %lx: %s", requests[i], strerror(errno));
    }
    return held("%s", strerror(errno));
}

const struct check door_checks[] = {
    {218, "no socket gets a program", "seccomp: memory of which the host has one amount",
     programs_on_sockets},
    {219, "no namespace above or beside can be had by descriptor",
     "user namespace; other uid, non-dumpable", namespaces_above},
    {220, "rare options of prctl are refused", "seccomp: a list of options", options_of_prctl},
    {221, "no page of the host is taken out of use", "no capability", pages_of_the_host},
    {222, "its own terminal takes no bytes and no console", "seccomp; no capability",
     terminal_requests},
    {223, "no class of scheduling goes before others", "RLIMIT_RTPRIO; no capability",
     scheduling_classes},
    {236, "IPC objects are few", "limits of the IPC namespace", ipc_objects},
    {237, "no file says where it lies on a disk", "seccomp", requests_of_the_host},
    {235, "the broker's pipes do not grow", "seccomp", pipes_of_the_broker},
    {0, NULL, NULL, NULL},
};
