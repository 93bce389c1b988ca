// SPDX-License-Identifier: Apache-2.0
// See confine.h. The filter is an allow-list. Calls that start or trace processes kill the relay; all others fail
// with EPERM.
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "relay.h"

enum { ARGS_MAX = 2, LAST_FD = RELAY_FLOWS_FD };

struct rule {
    int nr;
    uint32_t args_n;
    struct scmp_arg_cmp args[ARGS_MAX];
};

#define ARG(n, mask, value)                                                                        \
    {                                                                                              \
        (n), SCMP_CMP_MASKED_EQ, (mask), (value)                                                   \
    }
#define ANY(name)                                                                                  \
    {                                                                                              \
        SCMP_SYS(name), 0,                                                                         \
        {                                                                                          \
            {                                                                                      \
                0                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
#define ONE(name, n, mask, value)                                                                  \
    {                                                                                              \
        SCMP_SYS(name), 1,                                                                         \
        {                                                                                          \
            ARG(n, mask, value)                                                                    \
        }                                                                                          \
    }
#define SOCKET(family, type)                                                                       \
    {                                                                                              \
        SCMP_SYS(socket), 2,                                                                       \
        {                                                                                          \
            ARG(0, UINT32_MAX, family), ARG(1, 0xf, type)                                          \
        }                                                                                          \
    }
#define EXACT UINT32_MAX

static const struct rule allowed[] = {
    SOCKET(AF_INET, SOCK_STREAM),
    SOCKET(AF_INET, SOCK_DGRAM),
    SOCKET(AF_INET6, SOCK_STREAM),
    SOCKET(AF_INET6, SOCK_DGRAM),
    ANY(connect),
    ANY(bind),
    ANY(accept4),
    ANY(shutdown),
    ANY(getsockname),
    ANY(getpeername),
    ANY(getsockopt),
    ANY(setsockopt),
    ANY(sendto),
    ANY(sendmsg),
    ANY(recvfrom),
    ANY(recvmsg),
    ANY(read),
    ANY(write),
    ANY(writev),
    ANY(close),
    ANY(epoll_ctl),
    ANY(epoll_wait),
    ANY(epoll_pwait),
    ANY(poll),
    ANY(ppoll),
    ONE(fcntl, 1, EXACT, F_GETFL),
    ONE(fcntl, 1, EXACT, F_SETFL),
    ONE(fcntl, 1, EXACT, F_GETFD),
    ONE(fcntl, 1, EXACT, F_SETFD),
    ONE(ioctl, 1, EXACT, FIONBIO),
    ONE(ioctl, 1, EXACT, FIONREAD),
    ONE(ioctl, 1, EXACT, SIOCOUTQ),
    ONE(bpf, 0, EXACT, BPF_MAP_LOOKUP_ELEM),
    ONE(bpf, 0, EXACT, BPF_MAP_UPDATE_ELEM),
    ONE(bpf, 0, EXACT, BPF_MAP_DELETE_ELEM),
    ONE(mmap, 2, PROT_EXEC, 0),
    ONE(mprotect, 2, PROT_EXEC, 0),
    ANY(munmap),
    ANY(mremap),
    ANY(madvise),
    ANY(brk),
    ANY(futex),
    ANY(clock_gettime),
    ANY(gettimeofday),
    ANY(time),
    ANY(getrandom),
    ANY(nanosleep),
    ANY(clock_nanosleep),
    ANY(sched_yield),
    ANY(getpid),
    ANY(gettid),
    ANY(tgkill), // for abort()
    ANY(rt_sigprocmask),
    ANY(rt_sigaction),
    ANY(rt_sigreturn),
    ANY(sigaltstack),
    ANY(restart_syscall),
    ANY(exit),
    ANY(exit_group),
};

static const int deadly[] = {
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork),   SCMP_SYS(vfork),
    SCMP_SYS(clone),  SCMP_SYS(clone3),   SCMP_SYS(ptrace),
};

int
confine_check(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2] = {{0}};
    int death = 0;
    if (syscall(SYS_capget, &header, now) < 0 || prctl(PR_GET_PDEATHSIG, &death) < 0)
        return err_sys(e, errno, "check privileges");
    uint32_t any = now[0].effective | now[1].effective | now[0].permitted | now[1].permitted |
                   now[0].inheritable | now[1].inheritable;
    if (getuid() == 0 || geteuid() == 0 || getgid() == 0 || any != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "the relay must have no privileges");
    if (death == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "the relay would outlive its parent");
    return 0;
}

int
confine_begin(uint64_t *files, struct err *e)
{
    static const int none[] = {RLIMIT_CORE, RLIMIT_NPROC, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE,
                               RLIMIT_RTPRIO};
    struct rlimit l;
    sigset_t all;
    // it ends with its socket or its parent, so ^C at a terminal must not end it
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    int fd = -1;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd < RELAY_SOCKET_FD);
    if (fd < 0 || close_range(LAST_FD + 1, ~0U, 0) < 0)
        return err_sys(e, errno, "close descriptors");
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct rlimit zero = {0, 0};
        if (setrlimit((__rlimit_resource_t)none[i], &zero) < 0)
            return err_sys(e, errno, "set a limit");
    }
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return err_sys(e, errno, "read a limit");
    l.rlim_cur = l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0)
        return err_sys(e, errno, "set a limit");
    *files = l.rlim_cur;
    return 0;
}

static int
add_rules(scmp_filter_ctx ctx)
{
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (size_t i = 0; rc == 0 && i < sizeof allowed / sizeof allowed[0]; i++) {
        const struct rule *r = &allowed[i];
        if (r->nr >= 0) // negative: the call does not exist on this architecture
            rc = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, r->nr, r->args_n, r->args);
    }
    for (size_t i = 0; rc == 0 && i < sizeof deadly / sizeof deadly[0]; i++)
        if (deadly[i] >= 0)
            rc = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, deadly[i], 0);
    return rc;
}

int
confine_finish(struct err *e)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(e, errno, "drop privileges");
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (ctx == NULL)
        return err_sys(e, ENOMEM, "make the filter");
    int rc = add_rules(ctx);
    if (rc == 0)
        rc = seccomp_load(ctx);
    seccomp_release(ctx);
    return rc < 0 ? err_sys(e, rc, "load the filter") : 0;
}
