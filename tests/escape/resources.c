// SPDX-License-Identifier: Apache-2.0
// Checks 58 to 81: exceeding limits. The harness sets a small limit for each, and reads the result and the bill. The
// program reports what it can see of the barrier itself.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// DISK_MIB, INODES and FILES are the limits that the harness sets for the checks that exceed them.
enum { MIB = 1024 * 1024, DISK_MIB = 16, INODES = 2000, FILES = 128 };

static int
anonymous_memory(void)
{
    for (int i = 0; i < 512; i++) {
        char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return held("mmap: %s after %d MiB", strerror(errno), i);
        memset(p, 1, MIB);
    }
    return escaped("512 MiB");
}

static int
fill(const char *folder, long mib_max)
{
    static char block[MIB];
    char path[128];
    (void)snprintf(path, sizeof path, "%s/fill", folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return escaped("open %s: %s", path, strerror(errno));
    for (long i = 0; i < mib_max; i++) {
        ssize_t n = write(fd, block, sizeof block);
        if (n != (ssize_t)sizeof block) {
            int why = n < 0 ? errno : ENOSPC;
            (void)unlink(path);
            (void)close(fd);
            return why == ENOSPC ? HELD : escaped("%s: %s", path, strerror(why));
        }
    }
    return escaped("%s took %ld MiB", folder, mib_max);
}

static int
tmpfs_and_shm(void)
{
    const char *folders[] = {"/tmp", "/dev/shm", "/home/agent", "/var/tmp", "/run"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (access(folders[i], W_OK) != 0)
            continue;
        int verdict = fill(folders[i], DISK_MIB + 1);
        if (verdict != HELD)
            return verdict;
    }
    return held("ENOSPC at the disk limit everywhere");
}

static int
memfd_and_sysv(void)
{
    static char block[MIB];
    int shm = shmget(IPC_PRIVATE, 512UL * MIB, IPC_CREAT | 0600);
    char *p = shm >= 0 ? shmat(shm, NULL, 0) : (void *)-1;
    for (size_t i = 0; p != (void *)-1 && i < 256; i++)
        p[i * MIB] = 1;
    int fd = memfd_create("fill", MFD_CLOEXEC);
    for (int i = 0; i < 512; i++)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block)
            return held("memfd: %s after %d MiB", strerror(errno), i);
    return escaped("512 MiB of memfd");
}

static int
page_cache(void)
{
    static char block[MIB];
    int fd = open("/tmp/cache", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    memset(block, 1, sizeof block);
    for (int i = 0; i < 24; i++)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block)
            return escaped("write: %s", strerror(errno));
    return held("wrote 24 MiB; the host reads the bill");
}

static int
pipe_buffers(void)
{
    static char block[MIB];
    int opened = 0;
    for (;;) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
            break;
        opened += 2;
        int size = 32 * MIB;
        (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        while (write(pair[0], block, sizeof block) > 0)
            ;
    }
    return opened < 100000 ? held("%d sockets, then %s", opened, strerror(errno))
                           : escaped("%d sockets", opened);
}

static int
page_tables(void)
{
    for (unsigned long i = 0; i < 512; i++) {
        char *p = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return held("mmap: %s", strerror(errno));
        (void)madvise(p, 1UL << 30, MADV_NOHUGEPAGE);
        // one page in each 2 MiB needs a page of page table and a page of memory
        for (unsigned long at = 0; at < 1UL << 30; at += 2UL * MIB)
            p[at] = 1;
    }
    return escaped("512 GiB mapped and touched");
}

static int
fork_bomb(void)
{
    int made = 0;
    for (int i = 0; i < 2000; i++) {
        pid_t child = fork();
        if (child == 0) {
            (void)pause();
            _exit(0);
        }
        if (child < 0)
            return errno == EAGAIN ? held("EAGAIN after %d", made)
                                   : escaped("fork: %s", strerror(errno));
        made++;
    }
    return escaped("%d processes", made);
}

static void *
wait_for_ever(void *unused)
{
    (void)pause();
    return unused;
}

static int
thread_bomb(void)
{
    pthread_attr_t small;
    (void)pthread_attr_init(&small);
    (void)pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_for_ever, NULL) != 0)
            return held("refused after %d threads", i);
    }
    return escaped("2000 threads");
}

static int
vfork_chain(void)
{
    for (int depth = 0; depth < 2000; depth++) {
        pid_t child = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
        if (child < 0) {
            // the deepest one reports through its exit status, which every ancestor passes on
            printf("held: refused at depth %d\n", depth);
            (void)fflush(stdout);
            _exit(HELD);
        }
        if (child > 0) {
            int status = 0;
            (void)waitpid(child, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
    }
    printf("ESCAPED: 2000 deep\n");
    (void)fflush(stdout);
    _exit(ESCAPED);
}

static int
disk_bytes(void)
{
    int verdict = fill("/home/agent", DISK_MIB + 1);
    return verdict == HELD ? held("ENOSPC") : verdict;
}

static int
disk_inodes(void)
{
    char path[64];
    (void)mkdir("/tmp/i", 0755);
    for (int i = 0; i < 200000; i++) {
        (void)snprintf(path, sizeof path, "/tmp/i/%d", i);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
            return errno == ENOSPC && i <= INODES
                       ? held("ENOSPC after %d", i)
                       : escaped("open: %s after %d", strerror(errno), i);
        (void)close(fd);
    }
    return escaped("200000 files");
}

static int
open_files(void)
{
    struct rlimit more = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        return escaped("raised RLIMIT_NOFILE");
    for (int i = 0; i < 70000; i++)
        if (open("/dev/null", O_RDONLY) < 0)
            return errno == EMFILE && i <= FILES ? held("EMFILE after %d", i)
                                                 : escaped("open: %s after %d", strerror(errno), i);
    return escaped("70000 open files");
}

static int
small_writes(void)
{
    int fd = open("/tmp/small", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (int i = 0; i < 50000; i++)
        if (pwrite(fd, "x", 1, (off_t)(i % 4096) * 512) != 1)
            return escaped("write: %s", strerror(errno));
    return held("50000 small writes; the host's disks saw none");
}

static int
fsync_storm(void)
{
    int fd = open("/tmp/sync", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (int i = 0; i < 5000; i++) {
        (void)!pwrite(fd, "x", 1, i);
        (void)fsync(fd);
    }
    sync();
    return held("5000 fsyncs; the host's journal saw none");
}

static void *
spin(void *unused)
{
    for (;;)
        ;
    return unused;
}

static int
all_cpus(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        (void)pthread_create(&thread, NULL, spin, NULL);
    (void)sleep(2);
    return held("spun for 2 s on 3 threads; the host reads the bill");
}

static int
priorities(void)
{
    struct sched_param rt = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &rt) == 0 || sched_setscheduler(0, SCHED_RR, &rt) == 0)
        return escaped("real time");
    struct {
        unsigned size, policy;
        unsigned long flags;
        int nice;
        unsigned priority;
        unsigned long runtime, deadline, period;
    } deadline = {
        .size = 48, .policy = 6, .runtime = 10000000, .deadline = 30000000, .period = 30000000};
    if (syscall(SYS_sched_setattr, 0, &deadline, 0) == 0)
        return escaped("SCHED_DEADLINE");
    if (setpriority(PRIO_PROCESS, 0, -5) == 0)
        return escaped("nice -5");
    if (syscall(SYS_ioprio_set, 1, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 0)) == 0)
        return escaped("ioprio RT");
    return held("%s", strerror(errno));
}

static int
much_output(void)
{
    static char block[MIB];
    memset(block, 'o', sizeof block);
    for (size_t i = 1023; i < sizeof block; i += 1024)
        block[i] = '\n';
    for (int i = 0; i < 48; i++)
        if (write(1, block, sizeof block) < 0)
            return ESCAPED;
    for (int i = 0; i < 20000; i++)
        if (write(2, ".", 1) != 1)
            return ESCAPED;
    return HELD;
}

static int
endless_line(void)
{
    static char block[MIB];
    memset(block, 'l', sizeof block);
    for (int i = 0; i < 16; i++)
        if (write(1, block, sizeof block) < 0)
            return ESCAPED;
    return HELD;
}

static void
crash(void)
{
    abort();
}

static int
core_dump(void)
{
    struct rlimit core = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &core) == 0)
        return escaped("raised RLIMIT_CORE");
    (void)!chdir("/tmp");
    int status = in_child(crash);
    if (WCOREDUMP(status) || access("/tmp/core", F_OK) == 0)
        return escaped("a core was written");
    return held("no core");
}

// Resources that the kernel counts per user: the harness runs it twice at once, and meanwhile checks what is left for
// root.
static int
what_a_user_has(void)
{
    int instances = 0, queues = 0;
    while (instances < 100000 && inotify_init1(IN_CLOEXEC) >= 0)
        instances++;
    const char *why = strerror(errno);
    char name[32];
    struct mq_attr large = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    for (; queues < 10000; queues++) {
        (void)snprintf(name, sizeof name, "/user%d", queues);
        if (mq_open(name, O_CREAT | O_RDWR, 0600, &large) == (mqd_t)-1)
            break;
    }
    bool own = instances >= 16 && queues >= 1, bounded = instances < 100000 && queues < 10000;
    int verdict = own && bounded ? held("%d instances, %d queues, then %s", instances, queues, why)
                                 : escaped("%d instances, %d queues", instances, queues);
    if (parameter("ESCAPE_STAY")[0] != '\0')
        (void)pause();
    return verdict;
}

static int
locked_memory(void)
{
    struct rlimit more = {1UL << 32, 1UL << 32};
    if (setrlimit(RLIMIT_MEMLOCK, &more) == 0)
        return escaped("raised RLIMIT_MEMLOCK");
    char *p = mmap(NULL, 64UL * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mlock(p, 64UL * MIB) == 0 || mlockall(MCL_FUTURE | MCL_CURRENT) == 0)
        return escaped("locked 64 MiB");
    return held("%s", strerror(errno));
}

static int
queues_and_timers(void)
{
    int timers = 0, queues = 0, signals = 0;
    timer_t timer;
    while (timers < 200000 && timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0)
        timers++;
    char name[32];
    struct mq_attr large = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    for (; queues < 10000; queues++) {
        (void)snprintf(name, sizeof name, "/q%d", queues);
        if (mq_open(name, O_CREAT | O_RDWR, 0600, &large) == (mqd_t)-1)
            break;
    }
    (void)signal(SIGRTMIN, SIG_IGN);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGRTMIN + 1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    while (signals < 500000 && sigqueue(getpid(), SIGRTMIN + 1, (union sigval){0}) == 0)
        signals++;
    if (timers >= 200000 || queues >= 10000 || signals >= 500000)
        return escaped("%d timers, %d queues, %d signals", timers, queues, signals);
    return held("%d timers, %d queues, %d signals, then refused", timers, queues, signals);
}

// Stays at every limit that does not end it: CPU, processes, disk, open files; until the timeout. It begins at the end of
// its input, which the harness closes for all at once. The children compute as soon as there are as many as the limit
// permits: before, they would keep their parent from it.
static int
everything_at_once(void)
{
    int all_there[2];
    char none;
    if (pipe2(all_there, O_CLOEXEC) != 0)
        return escaped("pipe: %s", strerror(errno));
    while (read(STDIN_FILENO, &none, 1) > 0)
        ;
    while (getpid() != 0) {
        pid_t child = fork();
        if (child == 0) {
            (void)close(all_there[1]);
            (void)!read(all_there[0], &none, 1);
            (void)spin(NULL);
        }
        if (child < 0) {
            (void)close(all_there[1]);
            all_there[1] = -1;
            (void)fill("/tmp", 64);
            while (open("/dev/null", O_RDONLY) >= 0)
                ;
        }
    }
    return ESCAPED;
}

const struct check resource_checks[] = {
    {58, "anonymous memory ends at the limit", "memory.max", anonymous_memory},
    {59, "tmpfs and /dev/shm end at the disk limit", "size= of the sandbox's tmpfs", tmpfs_and_shm},
    {60, "memfd and System V memory are counted", "memory.max", memfd_and_sysv},
    {61, "written files are counted as memory", "memory cgroup", page_cache},
    {62, "socket buffers are bounded", "RLIMIT_NOFILE, memory.max", pipe_buffers},
    {63, "page tables are counted", "memory.max", page_tables},
    {64, "a fork bomb ends at the limit", "pids.max", fork_bomb},
    {65, "threads end at the limit", "pids.max", thread_bomb},
    {66, "a vfork chain ends at the limit", "pids.max", vfork_chain},
    {67, "disk bytes end at the limit", "size= of the sandbox's tmpfs", disk_bytes},
    {68, "inodes end at the limit", "nr_inodes= of the sandbox's tmpfs", disk_inodes},
    {69, "open files end at the limit", "RLIMIT_NOFILE", open_files},
    {70, "small writes reach no disk", "the sandbox's files live in memory", small_writes},
    {71, "fsync reaches no journal", "the sandbox's files live in memory", fsync_storm},
    {72, "a CPU quota holds on all CPUs", "cpu.max", all_cpus},
    {73, "no priority can be raised", "seccomp, RLIMIT_RTPRIO, RLIMIT_NICE", priorities},
    {74, "much output is cut and counted", "output limit in the broker", much_output},
    {75, "an endless line is cut and counted", "output limit in the broker", endless_line},
    {76, "no core is written", "RLIMIT_CORE 0", core_dump},
    {78, "inotify instances and queues are counted for this sandbox alone",
     "own ids, also as the owner of the user namespace", what_a_user_has},
    {79, "memory cannot be locked beyond the limit", "RLIMIT_MEMLOCK", locked_memory},
    {80, "timers, queues and signals are bounded", "RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, memory.max",
     queues_and_timers},
    {81, "everything at once stays inside", "memory.max, cpu.max, pids.max", everything_at_once},
    {0, NULL, NULL, NULL},
};
