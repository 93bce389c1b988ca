// SPDX-License-Identifier: Apache-2.0
// stockade-guest: pid 1 of a sandbox. It starts jobs for the broker, reports how they ended, and reaps their orphaned
// processes.
//
// It runs next to hostile code, so it has few privileges: a uid of its own (999) that jobs cannot trace or signal,
// the capabilities to become the job's user and to kill, and a filter that allows no mounts and no namespaces. Where jobs are
// root inside, its uid has no mapping in the user namespace, so that they cannot become it, and it passes capabilities on. It
// reads only its socket; of the data of a job, only exit statuses reach it. It ends when the broker closes the socket
// or the spawner ends. The sandbox ends with it, because the end of pid 1 kills all processes of the namespace.
//
//   broker --SEQPACKET (guest.proto)--> loop --clone3 into job-N--> job
//                                        ^----- SIGCHLD (signalfd) --'
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/spawner/ops.h"
#include "cgroup.h"
#include "child.h"
#include "jobs.h"
#include "packet.h"

enum {
    FILTER_BYTES_MAX = 32 * 1024,
    PAGE_MAX = 64 * 1024, // the largest page size of all processors
    STACK_KEPT = 1024,    // below the frame of the function that returns the stack's pages
    STACK_BYTES = 64 * 1024,
    CAPABILITIES_MAX = 63,
};

uint8_t guest_filter[FILTER_BYTES_MAX + PAGE_MAX] GUEST_LAST; // its whole pages

// Writes to the spawner's log if stderr is connected to it, then ends the sandbox.
static _Noreturn void
die(const struct err *e)
{
    (void)dprintf(2, "stockade-guest: %s\n", e->text);
    _exit(1);
}

// Whether jobs are root inside: then the spawner left the guest their capabilities.
static bool
is_of_root(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].permitted & SPAWN_ROOT_CAPABILITIES) == SPAWN_ROOT_CAPABILITIES;
}

// Verifies what the spawner set up before exec. If it is incomplete, jobs would have more rights than documented.
static int
check_confinement(bool of_root, struct err *e)
{
    const uid_t uid = of_root ? SANDBOX_UID_OVERFLOW : SANDBOX_UID_GUEST;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return err_set(e, ERR_FAILED_PRECONDITION, "no_new_privs is not set");
    if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
        return err_set(e, ERR_FAILED_PRECONDITION, "no system call filter is loaded");
    if (getuid() != uid || getpid() != 1)
        return err_set(e, ERR_FAILED_PRECONDITION, "not the first process of a sandbox");
    return 0;
}

// The bounding set is inherited, so it is emptied once here for all jobs. Then SETPCAP is dropped. What jobs have as root
// inside stays permitted, not effective, and inheritable, as the ambient capabilities of a job must be (child.c).
static int
drop_capabilities(bool of_root, struct err *e)
{
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (int cap = 0; cap <= CAPABILITIES_MAX; cap++) {
        // dropping copies the credentials, so only present ones are dropped
        int there = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
        if (there < 0 && errno == EINVAL) // above the kernel's last capability
            break;
        if (there != 0 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return err_sys(e, errno, "empty the bounding set");
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const uint32_t kept = 1U << CAP_SETUID | 1U << CAP_SETGID | 1U << CAP_KILL;
    const uint32_t passed_on = of_root ? SPAWN_ROOT_CAPABILITIES : 0;
    const struct __user_cap_data_struct data[2] = {
        {.permitted = kept | passed_on, .effective = kept, .inheritable = passed_on}};
    return syscall(SYS_capset, &header, data) < 0 ? err_sys(e, errno, "drop capabilities") : 0;
}

// Limits that are the same for every job, inherited from here. Real-time and nice priorities would exceed the CPU
// share; the others bound kernel memory that the host counts per user. The spawner disabled core dumps already,
// because only it knows whether the host needs 0 or 1 for that.
static int
set_limits(struct err *e)
{
    static const struct {
        int resource;
        rlim_t value;
    } limits[] = {{RLIMIT_MEMLOCK, 8 << 20},
                  {RLIMIT_MSGQUEUE, 819200},
                  {RLIMIT_SIGPENDING, 8192},
                  {RLIMIT_RTPRIO, 0},
                  {RLIMIT_NICE, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        int rc = guest_limit(limits[i].resource, limits[i].value, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

// The filter is mapped, so all sandboxes share its pages, and at an address in our own memory, because another
// address would need additional page tables.
static struct sock_filter *
map_filter(unsigned short *n, struct err *e)
{
    struct stat st;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at = guest_filter + (size_t)(-(uintptr_t)guest_filter % page);
    if (fstat(GUEST_FD_SECCOMP, &st) < 0 || st.st_size <= 0 || st.st_size > FILTER_BYTES_MAX ||
        (size_t)st.st_size % sizeof(struct sock_filter) != 0 ||
        mmap(at, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_POPULATE,
             GUEST_FD_SECCOMP, 0) != at) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "map the jobs' filter");
        return NULL;
    }
    (void)close(GUEST_FD_SECCOMP);
    *n = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
    return at;
}

// Ensures that descriptors 0 to 2 exist, so that a job's descriptor cannot get their numbers, and that none exists
// above the known ones.
static int
tidy_descriptors(struct err *e)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != fd)
            return err_set(e, ERR_FAILED_PRECONDITION, "descriptor %d is not there", fd);
    if (syscall(SYS_close_range, GUEST_FD_OOM + 1, ~0U, 0) < 0 ||
        fcntl(GUEST_FD_BROKER, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(GUEST_FD_CGROUP, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(GUEST_FD_OOM, F_SETFD, FD_CLOEXEC) < 0)
        return err_sys(e, errno, "close descriptors");
    return 0;
}

// All signals have their default action, for the jobs: the spawner saw to that. They are blocked in this process: SIGCHLD
// arrives through a descriptor.
static int
open_signals(struct err *e)
{
    sigset_t set;
    (void)sigfillset(&set);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return err_sys(e, errno, "block signals");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_sys(e, errno, "open signals") : fd;
}

static int
say_ready(void)
{
    Stockade__Guest__Ready ready = STOCKADE__GUEST__READY__INIT;
    ready.version = 1;
    Stockade__Guest__Event event = STOCKADE__GUEST__EVENT__INIT;
    event.event_case = STOCKADE__GUEST__EVENT__EVENT_READY;
    event.ready = &ready;
    return guest_packet_send(GUEST_FD_BROKER, &event, -1);
}

#if defined(__x86_64__)
#define LIBC   "/lib/x86_64-linux-gnu/libc.so.6"
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define LIBC   "/lib/aarch64-linux-gnu/libc.so.6"
#define LOADER "/lib/ld-linux-aarch64.so.1"
#else
#define LIBC   "/lib/libc.so.6"
#define LOADER "/lib/ld.so.1"
#endif

// Looks up the files that nearly every job opens, while nobody waits: each sandbox has its own file systems, so the
// first lookup of a file in them takes about 10 us.
static void
look_around(void)
{
    static const char *const paths[] = {"/home/agent",      LOADER,    "/etc/ld.so.preload",
                                        "/etc/ld.so.cache", "/bin/sh", LIBC};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        (void)access(paths[i], F_OK);
}

// Returns the stack's pages below this frame to the kernel. Not inlined, so that no data of ours is there.
static __attribute__((noinline)) void
give_back_stack(void)
{
    uintptr_t end = (uintptr_t)__builtin_frame_address(0) - STACK_KEPT;
    end -= end % (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)madvise((void *)(end - STACK_BYTES), STACK_BYTES, MADV_DONTNEED);
}

// Serves until the broker closes the socket.
static void
serve(int signals)
{
    struct pollfd fds[2] = {{.fd = GUEST_FD_BROKER, .events = POLLIN},
                            {.fd = signals, .events = POLLIN}};
    bool more = false;
    for (;;) {
        int timeout = guest_jobs_tidy();
        if (poll(fds, 2, more ? 0 : timeout) < 0 && errno != EINTR)
            return;
        if (fds[1].revents != 0) {
            struct signalfd_siginfo info;
            (void)!read(signals, &info, sizeof info);
        }
        if ((fds[1].revents != 0 || more) && guest_jobs_reap(&more) < 0)
            return;
        if (fds[0].revents == 0)
            continue;
        struct guest_packet packet;
        if (guest_packet_receive(GUEST_FD_BROKER, &packet) <= 0)
            return;
        int rc = guest_jobs_request(&packet);
        // Nobody waits for the removal of a job, and the sandbox may be idle afterwards.
        bool keep = packet.request->request_case != STOCKADE__GUEST__REQUEST__REQUEST_REMOVE;
        guest_packet_done(&packet, keep);
        if (!keep)
            give_back_stack();
        if (rc < 0)
            return;
    }
}

int
main(void)
{
    struct err e;
    unsigned short filter_n = 0;
    struct sock_filter *filter = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_DUMPABLE, 0);
    const bool of_root = is_of_root();
    if (check_confinement(of_root, &e) < 0 || tidy_descriptors(&e) < 0 ||
        (filter = map_filter(&filter_n, &e)) == NULL)
        die(&e);
    guest_jobs_init(GUEST_FD_BROKER, GUEST_FD_CGROUP, filter, filter_n, of_root);
    int signals = -1;
    if (set_limits(&e) < 0 || drop_capabilities(of_root, &e) < 0 ||
        (signals = open_signals(&e)) < 0)
        die(&e);
    (void)setsid();
    if (say_ready() == 0) {
        guest_cgroup_prepare();
        look_around();
        serve(signals);
    }
    _exit(0);
}
