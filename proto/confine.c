// SPDX-License-Identifier: Apache-2.0
// See confine.h. The filter is a list of what is refused, not of what is allowed: name resolution and TLS are libraries
// whose calls differ between hosts. What starts, traces or attacks something is on it. A thread may be made, because libcurl
// resolves names in one; a process may not.
#include "confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "leak.h"

static int
drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(e, errno, "drop privileges");
    return 0;
}

// These end the process, and so do ptrace(2) and clone(2) of a process. LeakSanitizer needs both at the end.
static const int deadly[] = {
    SCMP_SYS(execve),     SCMP_SYS(execveat),         SCMP_SYS(fork),
    SCMP_SYS(vfork),      SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
    SCMP_SYS(bpf),        SCMP_SYS(init_module),      SCMP_SYS(finit_module),
    SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load),
};

// These fail.
static const int refused[] = {
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsmount),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(setuid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(personality),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(process_madvise),
    SCMP_SYS(memfd_create),
    SCMP_SYS(memfd_secret),
    SCMP_SYS(swapon),
    SCMP_SYS(reboot),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(syslog),
};

// libc then asks no name service daemon, but /etc/hosts and the DNS. libcurl makes pairs of streams for its threads; one of a pair of
// datagrams could be sent anywhere.
static int
refuse_local(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_EQ, AF_UNIX, 0));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socketpair), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_DGRAM));
    return rc;
}

static int
add_rules(scmp_filter_ctx ctx)
{
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; rc == 0 && i < sizeof deadly / sizeof deadly[0]; i++)
        if (deadly[i] >= 0) // negative: the call does not exist on this architecture
            rc = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, deadly[i], 0);
    for (size_t i = 0; rc == 0 && i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i] >= 0)
            rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
    if (rc == 0) // a filter cannot read its arguments; libc then calls clone
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
#ifndef LEAK_WITH_ASAN
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, SCMP_SYS(ptrace), 0);
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
#endif
    if (rc == 0) // no raw packets: families above INET6 but NETLINK, which lists addresses
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(mmap), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, 6, 6)); // writable and executable
    return rc;
}

int
confine_filter(bool local, struct err *e)
{
    int r = drop_capabilities(e);
    if (r < 0)
        return r;
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (ctx == NULL)
        return err_sys(e, ENOMEM, "make the filter");
    int rc = add_rules(ctx);
    if (rc == 0 && !local)
        rc = refuse_local(ctx);
    if (rc == 0)
        rc = seccomp_load(ctx);
    seccomp_release(ctx);
    return rc < 0 ? err_sys(e, rc, "load the filter") : 0;
}
