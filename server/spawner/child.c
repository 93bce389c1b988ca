// SPDX-License-Identifier: Apache-2.0
// See child.h. Everything below child_main() runs in the new process: nothing there allocates, locks or logs.
//
// The order of the steps, and the reasons:
//
//   descriptors   shared with us at first, so that clone does not copy thousands; now the low ones are copied
//   v1 cgroups    fast through `tasks` while the process has one thread; before anything is charged
//   oom, hostname, network   need root of the first user namespace
//   cgroup ns     joined while that is permitted; its root is SANDBOX, which the sandbox must not leave
//   tree          mounts are made by real root, so that the user namespace above the job's owns and locks them; so are the
//                 bounds of the IPC namespace, through the sandbox's own /proc (tree_proc.c)
//   guest of root, user ns   from here on root has no rights outside; groups were emptied at the spawner's start
//   bounding, uid, capabilities   the set can be reduced only with CAP_SETPCAP; a change of uid clears PDEATHSIG
//   session, keyring, rlimits     charged to the sandbox's own ids
//   stdio, descriptors  the last use of the spawner's descriptors; only the guest's descriptors are left
//   report        the spawner gets the disk's descriptor; only exec is missing. If the spawner has ended: EPIPE
//   no new privileges, filter     last, because it forbids most of the above
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/fdpass.h"
#include "holder.h"
#include "io.h"

// The descriptors' numbers before exec, in addition to ops.h's enum. The channel and the program are closed by exec.
enum { FD_CHANNEL = 7, FD_EXE = 8, FD_DISK = 9 };
_Static_assert((int)FD_DISK <= (int)FD_CHILD_MAX,
               "the spawner keeps these numbers free of its own");

// The guest keeps these: to start jobs under their uid, to signal them, and to drop the others for them. Where jobs are root
// inside, it also keeps what they have.
enum {
    KEPT = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL | 1u << CAP_SETPCAP,
    CAPABILITIES = 64,
    LOW_CAPABILITIES = 32,
};

struct child {
    const struct child_plan *plan;
    int disk_fd;
    int oom_fd;
};

static int
step_descriptors(struct child *c, struct err *e)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(e, errno, "ask to die with the spawner");
    if (syscall(SYS_close_range, FD_KEEP_MIN, ~0u, CLOSE_RANGE_UNSHARE) < 0)
        return err_sys(e, errno, "leave the spawner's descriptors");
    sigset_t none;
    (void)sigemptyset(&none);
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    for (uint64_t left = c->plan->ignored; left != 0; left &= left - 1)
        (void)sigaction(__builtin_ctzll(left) + 1, &usual, NULL);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return err_sys(e, errno, "unblock signals");
    return 0;
}

static int
step_v1_cgroups(struct child *c, struct err *e)
{
    for (int i = 0; i < CG_N; i++) {
        int fd = c->plan->cgroup->tasks_fd[i];
        if (fd >= 0 && write(fd, "0", 1) != 1)
            return err_sys(e, errno, "enter a v1 cgroup");
    }
    return 0;
}

static int
step_oom(struct child *c, struct err *e)
{
    static const char name[] = "self/oom_score_adj";
    c->oom_fd = openat(c->plan->proc_fd, name, O_WRONLY | O_CLOEXEC);
    if (c->oom_fd < 0)
        return err_sys(e, errno, "open /proc/%s", name);
    return io_write_u64_at(c->plan->proc_fd, name, OOM_SCORE_GUEST, e);
}

static int
step_hostname(struct child *c, struct err *e)
{
    const char *name = c->plan->hostname;
    if (sethostname(name, strlen(name)) < 0)
        return err_sys(e, errno, "set the host name");
    return 0;
}

static int
step_network(struct child *c, struct err *e)
{
    if (c->plan->net_fd < 0)
        return holder_network_namespace_here(c->plan->proc_fd, e);
    if (setns(c->plan->net_fd, CLONE_NEWNET) < 0)
        return err_sys(e, errno, "join the network namespace");
    return 0;
}

static int
step_cgroup_namespace(struct child *c, struct err *e)
{
    int fd = c->plan->cgroup->ns_fd;
    int r = fd >= 0 ? setns(fd, CLONE_NEWCGROUP) : unshare(CLONE_NEWCGROUP);
    return r < 0 ? err_sys(e, errno, "enter the cgroup namespace") : 0;
}

static int
step_tree(struct child *c, struct err *e)
{
    return c->plan->enter(c->plan->tree, &c->plan->sandbox, &c->disk_fd, e);
}

// Root inside gets no capabilities from exec, and no program can change that.
static int
set_secure_bits(unsigned also, struct err *e)
{
    const unsigned bits = SECBIT_KEEP_CAPS | SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | also;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return err_sys(e, errno, "set the secure bits");
    return 0;
}

static int
become(uid_t id, struct err *e)
{
    if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return err_sys(e, errno, "become the guest's user");
    return 0;
}

// Where jobs are root inside, the guest's id has no mapping in the user namespace, so it is taken before, and with all
// capabilities, which joining the namespace needs.
static int
step_guest_of_root(struct child *c, struct err *e)
{
    if (!c->plan->user_root)
        return 0;
    int r = set_secure_bits(SECBIT_NO_SETUID_FIXUP, e);
    return r < 0 ? r : become(c->plan->sandbox.uid + SANDBOX_UID_GUEST_OF_ROOT, e);
}

static int
step_user_namespace(struct child *c, struct err *e)
{
    if (getgroups(0, NULL) != 0)
        return err_set(e, ERR_INTERNAL, "supplementary groups are not empty");
    if (setns(c->plan->sandbox.userns_fd, CLONE_NEWUSER) < 0)
        return err_sys(e, errno, "join the user namespace");
    return 0;
}

static uint32_t
kept(const struct child *c)
{
    return (uint32_t)KEPT | (c->plan->user_root ? SPAWN_ROOT_CAPABILITIES : 0);
}

static bool
is_kept(const struct child *c, unsigned capability)
{
    return capability < LOW_CAPABILITIES && (kept(c) >> capability & 1) != 0;
}

static int
step_bounding(struct child *c, struct err *e)
{
    for (unsigned i = 0; i < CAPABILITIES; i++) {
        if (!is_kept(c, i) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0) {
            if (errno == EINVAL) // above the kernel's last capability
                return 0;
            return err_sys(e, errno, "drop capability %u from the bounding set", i);
        }
    }
    return 0;
}

static int
step_ids(struct child *c, struct err *e)
{
    int r = set_secure_bits(0, e);
    if (r == 0 && !c->plan->user_root)
        r = become(SANDBOX_UID_GUEST, e);
    if (r < 0)
        return r;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(e, errno, "ask to die with the spawner");
    return 0;
}

static int
step_capabilities(struct child *c, struct err *e)
{
    const uint32_t bits = kept(c);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct data[2] = {{bits, bits, bits}};
    if (syscall(SYS_capset, &head, data) < 0)
        return err_sys(e, errno, "set the capabilities");
    for (unsigned i = 0; i < LOW_CAPABILITIES; i++) {
        if (is_kept(c, i) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) < 0)
            return err_sys(e, errno, "keep capability %u through exec", i);
    }
    return 0;
}

static int
step_session(struct child *c, struct err *e)
{
    (void)c;
    if (setsid() < 0)
        return err_sys(e, errno, "begin a session");
    // A kernel without keyrings has none that could leak.
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0) < 0 && errno != ENOSYS)
        return err_sys(e, errno, "begin a session keyring");
    (void)umask(022);
    return 0;
}

// Disables core dumps. If core_pattern is a pipe, the limit must be 1, because the kernel ignores 0 then (core(5)).
// The guest sets the other limits, which are the same for every job.
static int
step_rlimits(struct child *c, struct err *e)
{
    const rlim_t core = c->plan->cores_piped ? 1 : 0;
    const struct {
        int which;
        rlim_t limit;
    } rows[] = {
        {RLIMIT_CORE, core},
        {RLIMIT_NOFILE, 64UL * 1024},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlimit now;
        __rlimit_resource_t which = (__rlimit_resource_t)rows[i].which;
        if (getrlimit(which, &now) < 0)
            return err_sys(e, errno, "read resource limit %d", rows[i].which);
        rlim_t limit = rows[i].limit < now.rlim_max ? rows[i].limit : now.rlim_max;
        now = (struct rlimit){limit, limit};
        if (setrlimit(which, &now) < 0)
            return err_sys(e, errno, "set resource limit %d", rows[i].which);
    }
    return 0;
}

// Moves the guest's descriptors to their numbers and closes all others.
static int
step_last_descriptors(struct child *c, struct err *e)
{
    const struct child_plan *p = c->plan;
    const struct {
        int from;
        int to;
        int flags;
    } rows[] = {
        {p->null_fd, STDIN_FILENO, 0},
        {p->null_fd, STDOUT_FILENO, 0},
        {p->null_fd, STDERR_FILENO, 0},
        {p->socket_fd, GUEST_FD_BROKER, 0},
        {p->cgroup->tree_fd, GUEST_FD_CGROUP, 0},
        {p->job_filter_fd, GUEST_FD_SECCOMP, 0},
        {c->oom_fd, GUEST_FD_OOM, 0},
        {p->channel_fd, FD_CHANNEL, O_CLOEXEC},
        {p->exe_fd, FD_EXE, O_CLOEXEC},
        {c->disk_fd, FD_DISK, O_CLOEXEC},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (dup3(rows[i].from, rows[i].to, rows[i].flags) < 0)
            return err_sys(e, errno, "place descriptor %d", rows[i].to);
    }
    if (syscall(SYS_close_range, FD_DISK + 1, ~0u, 0) < 0)
        return err_sys(e, errno, "close the other descriptors");
    return 0;
}

// Sends one packet on the channel, optionally with a descriptor. False: the spawner has ended.
static bool
say(int channel_fd, const struct err *e, int fd)
{
    const struct fdpass m = {(void *)(uintptr_t)e, sizeof *e, &fd, fd >= 0};
    return fdpass_send(channel_fd, &m, 0) == 0;
}

static int
step_report(struct child *c, struct err *e)
{
    (void)c;
    static const struct err done = {.code = ERR_OK};
    if (!say(FD_CHANNEL, &done, FD_DISK))
        return err_sys(e, errno, "report to the spawner");
    (void)close(FD_DISK);
    return 0;
}

static int
step_filter(struct child *c, struct err *e)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(e, errno, "forbid new privileges");
    return filter_load(c->plan->filter, e);
}

static int
step_exec(struct child *c, struct err *e)
{
    (void)c;
    static char name[] = "stockade-guest";
    char *const argv[] = {name, NULL};
    char *const envp[] = {NULL};
    (void)syscall(SYS_execveat, FD_EXE, "", argv, envp, AT_EMPTY_PATH);
    return err_sys(e, errno, "execute the guest");
}

static int (*const steps[])(struct child *, struct err *) = {
    step_descriptors, step_v1_cgroups,    step_oom,
    step_hostname,    step_network,       step_cgroup_namespace,
    step_tree,        step_guest_of_root, step_user_namespace,
    step_bounding,    step_ids,           step_capabilities,
    step_session,     step_rlimits,       step_last_descriptors,
    step_report,      step_filter,        step_exec,
};

// Before step_last_descriptors the channel has its old number, afterwards another one; sending to one of both works.
static __attribute__((noreturn)) void
child_main(const struct child_plan *p)
{
    struct child c = {.plan = p, .disk_fd = -1, .oom_fd = -1};
    struct err e = {.code = ERR_OK};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i](&c, &e) < 0)
            break;
    }
    if (!say(p->channel_fd, &e, -1))
        (void)say(FD_CHANNEL, &e, -1);
    _exit(70);
}

// Each must be below FD_KEEP_MIN, because the child's first step closes the others.
static bool
is_in_reach(const struct child_plan *p)
{
    const struct cgroup_sandbox *g = p->cgroup;
    const int fds[] = {g->guest_fd, g->tree_fd,       g->ns_fd,   p->sandbox.userns_fd,
                       p->net_fd,   p->socket_fd,     p->exe_fd,  p->channel_fd,
                       p->null_fd,  p->job_filter_fd, p->proc_fd, p->sandbox.scratch_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= FD_KEEP_MIN)
            return false;
    }
    for (int i = 0; i < CG_N; i++) {
        if (g->tasks_fd[i] >= FD_KEEP_MIN)
            return false;
    }
    return true;
}

int
child_start(const struct child_plan *p, int *pid_fd, struct err *e)
{
    if (!is_in_reach(p))
        return err_sys(e, EMFILE, "clone the sandbox's first process");
    int fd = -1;
    struct clone_args args = {
        .flags = (uint64_t)CLONE_FILES | CLONE_INTO_CGROUP | CLONE_NEWIPC | CLONE_NEWNS |
                 CLONE_NEWPID | CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&fd,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)(p->cgroup->guest_fd >= 0 ? p->cgroup->guest_fd : p->cgroup->fd),
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        child_main(p);
    if (pid < 0)
        return err_sys(e, errno, "clone the sandbox's first process");
    *pid_fd = fd;
    return 0;
}
