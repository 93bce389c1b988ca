// SPDX-License-Identifier: Apache-2.0
// See holder.h.
#include "holder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "clone_here.h"
#include "io.h"
#include "ops.h"

// Runs on the sleeping parent's stack and memory; writes only *fd.
static __attribute__((noinline, noreturn)) void
cgroup_holder(int proc_fd, volatile int *fd)
{
    int opened = openat(proc_fd, "self/ns/cgroup", O_RDONLY | O_CLOEXEC);
    *fd = opened < 0 ? -errno : opened;
    _exit(0);
}

int
holder_cgroup_namespace(int cgroup_fd, int proc_fd, struct err *e)
{
    static volatile int fd;
    static struct clone_args args;
    fd = -EIO;
    args = (struct clone_args){
        .flags =
            (uint64_t)CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_NEWCGROUP | CLONE_INTO_CGROUP,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)cgroup_fd,
    };
    long pid = clone_here(&args);
    if (pid == 0)
        cgroup_holder(proc_fd, &fd);
    if (pid < 0)
        return err_sys(e, (int)-pid, "clone a holder into the cgroup");
    while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (fd < 0)
        return err_sys(e, -fd, "open the holder's cgroup namespace");
    return fd;
}

// The kernel counts some resources per user (inotify instances, pending signals, bytes of message queues, locked
// memory) in a user namespace and again for its owner in the namespace above (ucounts). So the owner is an id of the
// sandbox: with root as owner, one sandbox could use up the amounts of the host's root and of all other sandboxes.
// The real user stays root, for whom the number of processes is not limited (enforced_nproc_rlimit in
// kernel/user_namespace.c).
static bool
make_user_namespace(uint32_t uid)
{
    return prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) == 0 &&
           setresuid((uid_t)-1, uid, (uid_t)-1) == 0 && unshare(CLONE_NEWUSER) == 0;
}

struct user_plan {
    uint32_t owner;
    uint32_t from[2]; // first id inside, of users and of groups
    uint32_t to[2];   // first host id
    uint32_t ids;
    bool of_root;
};

// As the guest's, for all users of the namespace together.
static bool
limit_users(void)
{
    static const struct {
        __rlimit_resource_t which;
        rlim_t limit;
    } rows[] = {{RLIMIT_MEMLOCK, 8 << 20}, {RLIMIT_MSGQUEUE, 819200}, {RLIMIT_SIGPENDING, 8192}};
    bool good = true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && good; i++)
        good = setrlimit(rows[i].which, &(struct rlimit){rows[i].limit, rows[i].limit}) == 0;
    return good;
}

// Forbids user namespaces below its own, sends a byte, and waits to be killed or for the end of its parent.
static __attribute__((noreturn)) void
user_holder(const struct user_plan *p, int proc_fd, int said_fd, int wait_fd)
{
    struct err e;
    char byte = 0;
    if ((!p->of_root || limit_users()) && make_user_namespace(p->owner) &&
        io_write_at(proc_fd, "sys/user/max_user_namespaces", "0", &e) == 0)
        byte = 1;
    if (write(said_fd, &byte, 1) == 1)
        (void)!read(wait_fd, &byte, 1);
    _exit(0);
}

static int
write_maps(pid_t pid, const struct user_plan *p, int proc_fd, struct err *e)
{
    char path[40];
    char map[64];
    static const char *const files[] = {"setgroups", "uid_map", "gid_map"};
    for (size_t i = p->of_root ? 1 : 0; i < sizeof files / sizeof files[0]; i++) {
        const size_t of = i == 2;
        (void)snprintf(path, sizeof path, "%d/%s", (int)pid, files[i]);
        (void)snprintf(map, sizeof map, "%u %u %u\n", p->from[of], p->to[of], p->ids);
        int r = io_write_at(proc_fd, path, i == 0 ? "deny" : map, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int
make_user(const struct user_plan *p, int proc_fd, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "user namespace: make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    struct clone_args args = {.exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        (void)close(ours);
        user_holder(p, proc_fd, theirs, theirs);
    }
    if (pid < 0)
        return err_sys(e, errno, "user namespace: clone");
    (void)close(take_fd(&theirs));
    char byte = 0;
    int fd = -1;
    int r = 0;
    if (read(ours, &byte, 1) != 1 || byte != 1)
        r = err_set(e, ERR_INTERNAL, "user namespace: cannot make it, or forbid others below it");
    if (r == 0)
        r = write_maps((pid_t)pid, p, proc_fd, e);
    if (r == 0) {
        char path[40];
        (void)snprintf(path, sizeof path, "%ld/ns/user", pid);
        fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
        r = fd < 0 ? err_sys(e, errno, "user namespace: open %s", path) : fd;
    }
    (void)close(take_fd(&ours));
    while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

int
holder_user_namespace(uint32_t uid, int proc_fd, struct err *e)
{
    return holder_user_namespace_from(0, uid, proc_fd, e);
}

int
holder_user_namespace_from(uint32_t from, uint32_t uid, int proc_fd, struct err *e)
{
    const struct user_plan p = {uid, {from, from}, {uid, uid}, SPAWN_IDS_PER_SANDBOX, false};
    return make_user(&p, proc_fd, e);
}

int
holder_user_namespace_pair(const struct holder_pair *p, uint32_t owner, int proc_fd, struct err *e)
{
    const struct user_plan plan = {owner, {p->uid, p->gid}, {p->to_uid, p->to_gid}, 1, false};
    return make_user(&plan, proc_fd, e);
}

int
holder_user_namespace_of_root(uint32_t uid, int proc_fd, struct err *e)
{
    const struct user_plan p = {uid, {0, 0}, {uid, uid}, SANDBOX_UID_GUEST_OF_ROOT, true};
    return make_user(&p, proc_fd, e);
}

// In the current network namespace: enables the loopback interface, and opens the namespace through the same socket.
// Any family can do that; INET would be refused in the cgroup of a sandbox that has no policy yet (bpf/net.bpf.c).
static int
loopback_up(struct err *e)
{
    int auto_close s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return err_sys(e, errno, "network namespace: socket");
    struct ifreq lo = {.ifr_name = "lo"};
    lo.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(s, SIOCSIFFLAGS, &lo) < 0)
        return err_sys(e, errno, "network namespace: bring the loopback up");
    int fd = ioctl(s, SIOCGSKNS);
    if (fd < 0)
        return err_sys(e, errno, "network namespace: open");
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

// Sets limits of the current network namespace only. A TCP socket's queue of errors can be as long as its receive
// buffer, whose default maximum is 6 MiB or more, and no memory limit counts it. No limit counts the remains of
// connections either: TIME_WAIT, and cached data about addresses.
static int
bound_tcp(int proc_fd, struct err *e)
{
    static const char *const rows[][2] = {
        {"sys/net/ipv4/tcp_rmem", "4096 131072 524288"},
        {"sys/net/ipv4/tcp_max_tw_buckets", "16384"},
        {"sys/net/ipv4/tcp_no_metrics_save", "1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int r = io_write_at(proc_fd, rows[i][0], rows[i][1], e);
        if (r < 0)
            return err_wrap(e, "network namespace");
    }
    return 0;
}

static int
set_up_network(int proc_fd, struct err *e)
{
    int r = bound_tcp(proc_fd, e);
    return r < 0 ? r : loopback_up(e);
}

int
holder_network_namespace(int home_fd, int proc_fd, struct err *e)
{
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(e, errno, "network namespace: unshare");
    int fd = set_up_network(proc_fd, e);
    if (setns(home_fd, CLONE_NEWNET) < 0) {
        if (fd >= 0)
            (void)close(fd);
        return err_sys(e, errno, "network namespace: go back to our own");
    }
    return fd;
}

int
holder_network_namespace_here(int proc_fd, struct err *e)
{
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(e, errno, "network namespace: unshare");
    int auto_close fd = set_up_network(proc_fd, e);
    return fd < 0 ? fd : 0;
}
