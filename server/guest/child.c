// SPDX-License-Identifier: Apache-2.0
// See child.h. Nothing here allocates, locks or logs. The child runs on the memory of the sleeping guest, so it
// writes only to the report and to its stack. Other jobs must not reach it: it already has the job's user, but until
// exec its memory is the guest's. Therefore it is non-dumpable.
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/spawner/ops.h"
#include "path.h"

enum { KEYCTL_JOIN = 1, EXIT_FAILED = 125, LINK_FD = 3, LOW_CAPABILITIES = 32 };

// By system call, because C libraries declare the type of a resource differently.
int
guest_limit(int resource, rlim_t value, struct err *e)
{
    struct rlimit old;
    if (syscall(SYS_prlimit64, 0, resource, NULL, &old) < 0)
        return err_sys(e, errno, "read limit %d", resource);
    if (value > old.rlim_max)
        value = old.rlim_max;
    const struct rlimit new = {.rlim_cur = value, .rlim_max = value};
    if (syscall(SYS_prlimit64, 0, resource, &new, NULL) < 0)
        return err_sys(e, errno, "set limit %d", resource);
    return 0;
}

static int
lead_a_session(const struct guest_plan *p, struct err *e)
{
    if (setsid() < 0)
        return err_sys(e, errno, "start a session");
    if (p->terminal >= 0 && ioctl(p->terminal, TIOCSCTTY, 0) < 0)
        return err_sys(e, errno, "take the terminal");
    return 0;
}

// Each goes above all others first, because it may have the number of another one.
static int
set_agent_descriptors(const struct guest_plan *p, struct err *e)
{
    enum { ABOVE = 64 };
    const int from[] = {p->socket, p->script, p->program};
    int high[3] = {-1, -1, -1};
    for (int i = 0; i < 3; i++)
        if (from[i] >= 0 && (high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, ABOVE)) < 0)
            return err_sys(e, errno, "place descriptor %d", AGENT_FD_SOCKET + i);
    for (int i = 0; i < 3; i++) {
        (void)close(AGENT_FD_SOCKET + i);
        int flags = AGENT_FD_SOCKET + i == AGENT_FD_PROGRAM ? O_CLOEXEC : 0;
        if (high[i] >= 0 && dup3(high[i], AGENT_FD_SOCKET + i, flags) < 0)
            return err_sys(e, errno, "place descriptor %d", AGENT_FD_SOCKET + i);
    }
    return 0;
}

static int
set_stdio(const struct guest_plan *p, struct err *e)
{
    if (p->socket >= 0)
        return set_agent_descriptors(p, e);
    for (int i = 0; i < 3; i++)
        if (dup2(p->terminal >= 0 ? p->terminal : p->stdio[i], i) < 0)
            return err_sys(e, errno, "hand over descriptor %d", i);
    if (p->link >= 0 && dup2(p->link, LINK_FD) < 0)
        return err_sys(e, errno, "hand over descriptor %d", LINK_FD);
    return 0;
}

static int
set_limits(const struct guest_plan *p, struct err *e)
{
    const struct {
        int resource;
        rlim_t value;
    } limits[] = {{RLIMIT_NOFILE, p->files_max},
                  {RLIMIT_FSIZE, p->file_bytes_max},
                  {RLIMIT_NPROC, p->tasks_max},
                  {RLIMIT_CPU, p->cpu_seconds_max != 0 ? p->cpu_seconds_max : RLIM_INFINITY}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        int rc = guest_limit(limits[i].resource, limits[i].value, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

// A change of ids resets the dumpable flag to fs.suid_dumpable. It is cleared again before the capabilities are
// dropped, because a process without them could trace this one otherwise.
static int
become_the_user(const struct guest_plan *p, struct err *e)
{
    const uid_t id = p->user_root ? 0 : SANDBOX_UID_JOB;
    const uint32_t bits = p->user_root ? SPAWN_ROOT_CAPABILITIES : 0;
    if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return err_sys(e, errno, "become the job's user");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(e, errno, "be non-dumpable");
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct data[2] = {{bits, bits, bits}};
    if (syscall(SYS_capset, &header, data) < 0)
        return err_sys(e, errno, "drop capabilities");
    return 0;
}

// No program gets capabilities by its file or its user, because exec ignores both (the secure bits, no_new_privs). Those of
// root inside are ambient, which exec keeps, and the kernel drops them with the last change from uid 0 to another one.
static int
keep_capabilities(const struct guest_plan *p, struct err *e)
{
    for (int i = 0; p->user_root && i < LOW_CAPABILITIES; i++)
        if ((SPAWN_ROOT_CAPABILITIES >> i & 1) != 0 &&
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) < 0)
            return err_sys(e, errno, "keep capability %d", i);
    return 0;
}

static int
join_a_keyring(const struct guest_plan *p, struct err *e)
{
    (void)p;
    if (syscall(SYS_keyctl, KEYCTL_JOIN, NULL) < 0 && errno != ENOSYS)
        return err_sys(e, errno, "join a keyring of its own");
    return 0;
}

static int
enter_workdir(const struct guest_plan *p, struct err *e)
{
    (void)umask(022);
    return chdir(p->workdir) < 0 ? err_sys(e, errno, "enter %s", p->workdir) : 0;
}

static int
unblock_signals(const struct guest_plan *p, struct err *e)
{
    (void)p;
    sigset_t none;
    (void)sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? err_sys(e, errno, "unblock signals") : 0;
}

static int
close_the_rest(const struct guest_plan *p, struct err *e)
{
    unsigned from = p->socket >= 0 ? AGENT_FD_PROGRAM + 1 : STDERR_FILENO + 1;
    if (p->link >= 0)
        from = LINK_FD + 1;
    return syscall(SYS_close_range, from, ~0U, 0) < 0 ? err_sys(e, errno, "close descriptors") : 0;
}

// The mode off of the network, a filter of its own in front of that of all jobs. Other architectures need no test here: the
// other filter kills them, and the stricter one of two answers wins (seccomp(2)). The family is an int, the low half of the
// argument. BPF programs refuse INET sockets as well (bpf/net.bpf.c), but see no other family.
static int
refuse_sockets(const struct guest_plan *p, struct err *e)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half is the first");
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    if (p->network_off && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_sys(e, errno, "load the filter of sockets");
    return 0;
}

static int
load_filter(const struct guest_plan *p, struct err *e)
{
    const struct sock_fprog program = {.len = p->filter_n, .filter = p->filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_sys(e, errno, "load the system call filter");
    return 0;
}

struct step {
    int (*run)(const struct guest_plan *, struct err *);
    int exit_code; // exit code of a job that fails in this step
};

// The order, and the reasons: the session before the terminal, which must belong to a session leader. The terminal
// before stdio, which may be the terminal. Then the guest's descriptors are closed, before any path is opened,
// because a path may lead to one of them (/proc/self/fd, or a link to it that another job left). Limits before the
// change of user, so that they are set when the job's other processes can send signals. Then the user, and then the
// capabilities, because a change between two ordinary users keeps them. Then what must belong to the job's user: its
// keyring and its folder. The filters are last, because they refuse much of the above.
static const struct step steps[] = {
    {lead_a_session, 0},  {set_stdio, 0},         {close_the_rest, 0}, {set_limits, 0},
    {become_the_user, 0}, {keep_capabilities, 0}, {join_a_keyring, 0}, {enter_workdir, 126},
    {unblock_signals, 0}, {refuse_sockets, 0},    {load_filter, 0},
};

// Returns only on failure.
static int
execute(const struct guest_plan *p)
{
    if (p->program < 0)
        return guest_path_exec(p->args, p->env);
    (void)syscall(SYS_execveat, AGENT_FD_PROGRAM, "", p->args, p->env, AT_EMPTY_PATH);
    return -errno;
}

// Not inlined: its stack frame is below the guest's.
_Noreturn __attribute__((noinline)) void
guest_child_run(const struct guest_plan *plan, struct guest_report *report)
{
    struct err *e = &report->err;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i].run(plan, e) < 0) {
            report->exit_code = steps[i].exit_code;
            report->failed = 1;
            _exit(EXIT_FAILED);
        }
    int rc = execute(plan);
    (void)err_sys(e, -rc, "execute %.200s", plan->args[0]);
    report->exit_code = guest_path_exit_code(rc);
    report->failed = 1;
    _exit(EXIT_FAILED);
}
