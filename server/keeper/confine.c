// SPDX-License-Identifier: Apache-2.0
// See work.h: confine(). What is left is what reading and writing the files of a layer takes: it can neither start a program,
// nor mount, connect or trace, and the folder of layers is its root.
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "work.h"

// CAP_SYS_ADMIN: trusted.overlay.opaque (xattr(7)). CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER, CAP_FSETID: files of any owner.
#define CAPABILITIES                                                                               \
    (1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID |              \
     1u << CAP_SYS_ADMIN)

static const int allowed[] = {
    SCMP_SYS(openat),          SCMP_SYS(close),         SCMP_SYS(fstat),
    SCMP_SYS(fstatfs),         SCMP_SYS(newfstatat),    SCMP_SYS(statx),
    SCMP_SYS(getdents64),      SCMP_SYS(lseek),         SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),        SCMP_SYS(read),          SCMP_SYS(ftruncate),
    SCMP_SYS(readlinkat),      SCMP_SYS(symlinkat),     SCMP_SYS(linkat),
    SCMP_SYS(mkdirat),         SCMP_SYS(mknodat),       SCMP_SYS(unlinkat),
    SCMP_SYS(renameat),        SCMP_SYS(renameat2),     SCMP_SYS(fchown),
    SCMP_SYS(fchownat),        SCMP_SYS(fchmod),        SCMP_SYS(fchmodat),
    SCMP_SYS(getuid),          SCMP_SYS(utimensat),     SCMP_SYS(flistxattr),
    SCMP_SYS(fgetxattr),       SCMP_SYS(fsetxattr),     SCMP_SYS(fsync),
    SCMP_SYS(syncfs),          SCMP_SYS(fcntl),         SCMP_SYS(poll),
    SCMP_SYS(ppoll),           SCMP_SYS(sendto),        SCMP_SYS(sendmsg),
    SCMP_SYS(recvmsg),         SCMP_SYS(recvfrom),      SCMP_SYS(mmap),
    SCMP_SYS(munmap),          SCMP_SYS(mremap),        SCMP_SYS(mprotect),
    SCMP_SYS(madvise),         SCMP_SYS(brk),           SCMP_SYS(futex),
    SCMP_SYS(getrandom),       SCMP_SYS(clock_gettime), SCMP_SYS(sigaltstack),
    SCMP_SYS(rt_sigprocmask),  SCMP_SYS(rt_sigaction),  SCMP_SYS(rt_sigreturn),
    SCMP_SYS(restart_syscall), SCMP_SYS(getpid),        SCMP_SYS(gettid),
    SCMP_SYS(tgkill),          SCMP_SYS(write),         SCMP_SYS(exit),
    SCMP_SYS(exit_group),      SCMP_SYS(sched_yield),   SCMP_SYS(sched_getaffinity),
};

static int
drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2] = {{.effective = CAPABILITIES, .permitted = CAPABILITIES}};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, now) < 0)
        return err_sys(e, errno, "drop capabilities");
    return 0;
}

static int
load_filter(struct err *e)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (ctx == NULL)
        return err_sys(e, ENOMEM, "make the filter");
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; rc == 0 && i < sizeof allowed / sizeof allowed[0]; i++)
        if (allowed[i] >= 0) // negative: the call does not exist on this architecture
            rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
    if (rc == 0)
        rc = seccomp_load(ctx);
    seccomp_release(ctx);
    return rc < 0 ? err_sys(e, -rc, "load the filter") : 0;
}

// Two descriptors for each level of a tree that is copied.
static int
raise_files(struct err *e)
{
    const rlim_t files = 3 * (rlim_t)KEEP_DEPTH_MAX;
    const struct rlimit l = {files, files};
    return setrlimit(RLIMIT_NOFILE, &l) < 0 ? err_sys(e, errno, "set a limit") : 0;
}

int
confine(int folder, struct err *e)
{
    int rc = raise_files(e);
    if (rc == 0 && (fchdir(folder) < 0 || chroot(".") < 0))
        rc = err_sys(e, errno, "enter the folder of layers");
    if (rc == 0)
        rc = drop_capabilities(e);
    return rc == 0 ? load_filter(e) : rc;
}
