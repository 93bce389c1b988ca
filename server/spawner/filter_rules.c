// SPDX-License-Identifier: Apache-2.0
// See filter_rules.h. Calls that libseccomp does not know yet have numbers; above 424 they are the same on every
// architecture.
#include "filter_rules.h"

#include <errno.h>
#ifdef __x86_64__
#include <asm/prctl.h>
#endif
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ANY(name)                                                                                  \
    {                                                                                              \
        .nr = SCMP_SYS(name)                                                                       \
    }
#define RAW(value)                                                                                 \
    {                                                                                              \
        .nr = (value)                                                                              \
    }
#define IF(name, ...)                                                                              \
    {                                                                                              \
        .nr = SCMP_SYS(name), .args = { __VA_ARGS__ }                                              \
    }
#define IS(i, v)                                                                                   \
    {                                                                                              \
        (i), UINT64_MAX, (uint64_t)(v)                                                             \
    }
#define MASKED(i, m, v)                                                                            \
    {                                                                                              \
        (i), (m), (v)                                                                              \
    }

// All flags of clone(2) that make a namespace; CLONE_NEWTIME is not possible there.
#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

// The type of a socket without its flags. The kernel reads the low 32 bits only.
#define TYPE(t)                      MASKED(1, 0xffffffff & ~(uint64_t)(SOCK_CLOEXEC | SOCK_NONBLOCK), (uint64_t)(t))
#define INET(family, type, protocol) IF(socket, IS(0, family), TYPE(type), IS(2, protocol))
#define OPTION(o)                    IF(prctl, IS(0, o))

const struct filter_rule filter_job_rules[] = {
    // files
    ANY(access),
    ANY(chdir),
    ANY(chmod),
    ANY(chown),
    ANY(close),
    ANY(close_range),
    ANY(copy_file_range),
    ANY(creat),
    ANY(dup),
    ANY(dup2),
    ANY(dup3),
    ANY(faccessat),
    ANY(faccessat2),
    ANY(fadvise64),
    ANY(fallocate),
    ANY(fchdir),
    ANY(fchmod),
    ANY(fchmodat),
    RAW(452) /* fchmodat2 */,
    ANY(fchown),
    ANY(fchownat),
    ANY(fcntl),
    ANY(fdatasync),
    ANY(fgetxattr),
    ANY(flistxattr),
    ANY(flock),
    ANY(fremovexattr),
    ANY(fstat),
    ANY(fstatfs),
    ANY(fsync),
    ANY(ftruncate),
    ANY(futimesat),
    ANY(getcwd),
    ANY(getdents),
    ANY(getdents64),
    ANY(getxattr),
    ANY(inotify_add_watch),
    ANY(inotify_init),
    ANY(inotify_init1),
    ANY(inotify_rm_watch),
    ANY(ioctl),
    ANY(lchown),
    ANY(lgetxattr),
    ANY(link),
    ANY(linkat),
    ANY(listxattr),
    ANY(llistxattr),
    ANY(lremovexattr),
    ANY(lseek),
    ANY(lstat),
    ANY(mkdir),
    ANY(mkdirat),
    ANY(newfstatat),
    ANY(open),
    ANY(openat),
    ANY(openat2),
    ANY(pipe),
    ANY(pipe2),
    ANY(pread64),
    ANY(preadv),
    ANY(preadv2),
    ANY(pwrite64),
    ANY(pwritev),
    ANY(pwritev2),
    ANY(read),
    ANY(readahead),
    ANY(readlink),
    ANY(readlinkat),
    ANY(readv),
    ANY(removexattr),
    ANY(rename),
    ANY(renameat),
    IF(renameat2, MASKED(4, RENAME_WHITEOUT, 0)),
    ANY(rmdir),
    ANY(sendfile),
    ANY(splice),
    ANY(stat),
    ANY(statfs),
    ANY(statx),
    ANY(symlink),
    ANY(symlinkat),
    ANY(sync_file_range),
    ANY(syncfs),
    ANY(tee),
    ANY(truncate),
    ANY(umask),
    ANY(unlink),
    ANY(unlinkat),
    ANY(utime),
    ANY(utimensat),
    ANY(utimes),
    ANY(write),
    ANY(writev),
    // no device files; the kernel uses the low 16 bits of a mode
    IF(mknod, MASKED(1, S_IFMT, 0)),
    IF(mknod, MASKED(1, S_IFMT, S_IFREG)),
    IF(mknod, MASKED(1, S_IFMT, S_IFIFO)),
    IF(mknod, MASKED(1, S_IFMT, S_IFSOCK)),
    IF(mknodat, MASKED(2, S_IFMT, 0)),
    IF(mknodat, MASKED(2, S_IFMT, S_IFREG)),
    IF(mknodat, MASKED(2, S_IFMT, S_IFIFO)),
    IF(mknodat, MASKED(2, S_IFMT, S_IFSOCK)),
    // memory, but not the host's huge pages, which no memory limit counts
    ANY(brk),
    RAW(451) /* cachestat */,
    ANY(madvise),
    ANY(membarrier),
    IF(memfd_create, MASKED(1, MFD_HUGETLB, 0)),
    ANY(mincore),
    ANY(mlock),
    ANY(mlock2),
    ANY(mlockall),
    IF(mmap, MASKED(3, MAP_HUGETLB, 0)),
    ANY(mprotect),
    ANY(mremap),
    RAW(462) /* mseal */,
    ANY(msync),
    ANY(munlock),
    ANY(munlockall),
    ANY(munmap),
    ANY(pkey_alloc),
    ANY(pkey_free),
    ANY(pkey_mprotect),
    // waiting
    ANY(epoll_create),
    ANY(epoll_create1),
    ANY(epoll_ctl),
    ANY(epoll_pwait),
    ANY(epoll_pwait2),
    ANY(epoll_wait),
    ANY(eventfd),
    ANY(eventfd2),
    ANY(futex),
    ANY(futex_waitv),
    ANY(poll),
    ANY(ppoll),
    ANY(pselect6),
    ANY(restart_syscall),
    ANY(select),
    ANY(signalfd),
    ANY(signalfd4),
    // processes and threads; clone without new namespaces
    IF(clone, MASKED(0, NAMESPACES, 0)),
    ANY(execve),
    ANY(execveat),
    ANY(exit),
    ANY(exit_group),
    ANY(fork),
    ANY(get_robust_list),
    ANY(getcpu),
    ANY(getpgid),
    ANY(getpgrp),
    ANY(getpid),
    ANY(getppid),
    ANY(getpriority),
    ANY(getrlimit),
    ANY(getrusage),
    ANY(getsid),
    ANY(gettid),
    ANY(ioprio_get),
    ANY(kill),
    ANY(pidfd_open),
    ANY(pidfd_send_signal),
    ANY(prlimit64),
    ANY(rseq),
    ANY(sched_get_priority_max),
    ANY(sched_get_priority_min),
    ANY(sched_getaffinity),
    ANY(sched_getattr),
    ANY(sched_getparam),
    ANY(sched_getscheduler),
    ANY(sched_rr_get_interval),
    ANY(sched_setaffinity),
    ANY(sched_setattr),
    ANY(sched_setparam),
    ANY(sched_setscheduler),
    ANY(sched_yield),
    ANY(set_robust_list),
    ANY(set_tid_address),
    ANY(setpgid),
    ANY(setpriority),
    ANY(setrlimit),
    ANY(setsid),
    ANY(tgkill),
    ANY(times),
    ANY(tkill),
    ANY(vfork),
    ANY(wait4),
    ANY(waitid),
    // ioprio_set except for the real-time class (class << 13)
    IF(ioprio_set, MASKED(2, 0xe000, 0)),
    IF(ioprio_set, MASKED(2, 0xe000, 0x4000)),
    IF(ioprio_set, MASKED(2, 0xe000, 0x6000)),
    // signals
    ANY(pause),
    ANY(rt_sigaction),
    ANY(rt_sigpending),
    ANY(rt_sigprocmask),
    ANY(rt_sigqueueinfo),
    ANY(rt_sigreturn),
    ANY(rt_sigsuspend),
    ANY(rt_sigtimedwait),
    ANY(rt_tgsigqueueinfo),
    ANY(sigaltstack),
    // ids and capabilities; without capabilities the set calls change nothing, and programs use them to drop rights
    ANY(capget),
    ANY(capset),
    ANY(getegid),
    ANY(geteuid),
    ANY(getgid),
    ANY(getgroups),
    ANY(getresgid),
    ANY(getresuid),
    ANY(getuid),
    ANY(setfsgid),
    ANY(setfsuid),
    ANY(setgid),
    ANY(setgroups),
    ANY(setregid),
    ANY(setresgid),
    ANY(setresuid),
    ANY(setreuid),
    ANY(setuid),
    ANY(sysinfo),
    ANY(uname),
    // clocks
    ANY(alarm),
    ANY(clock_getres),
    ANY(clock_gettime),
    ANY(clock_nanosleep),
    ANY(getitimer),
    ANY(gettimeofday),
    ANY(nanosleep),
    ANY(setitimer),
    ANY(time),
    ANY(timer_create),
    ANY(timer_delete),
    ANY(timer_getoverrun),
    ANY(timer_gettime),
    ANY(timer_settime),
    ANY(timerfd_create),
    ANY(timerfd_gettime),
    ANY(timerfd_settime),
    // System V and POSIX IPC, in the sandbox's own namespace
    ANY(mq_getsetattr),
    ANY(mq_notify),
    ANY(mq_open),
    ANY(mq_timedreceive),
    ANY(mq_timedsend),
    ANY(mq_unlink),
    ANY(msgctl),
    ANY(msgget),
    ANY(msgrcv),
    ANY(msgsnd),
    ANY(semctl),
    ANY(semget),
    ANY(semop),
    ANY(semtimedop),
    ANY(shmat),
    ANY(shmctl),
    ANY(shmdt),
    IF(shmget, MASKED(2, SHM_HUGETLB, 0)),
    // sockets: local ones, TCP, UDP, echo requests, and netlink to list interfaces; no raw sockets
    ANY(accept),
    ANY(accept4),
    ANY(bind),
    ANY(connect),
    ANY(getpeername),
    ANY(getsockname),
    ANY(getsockopt),
    ANY(listen),
    ANY(recvfrom),
    ANY(recvmmsg),
    ANY(recvmsg),
    ANY(sendmmsg),
    ANY(sendmsg),
    ANY(sendto),
    ANY(setsockopt),
    ANY(shutdown),
    IF(socket, IS(0, AF_UNIX)),
    IF(socketpair, IS(0, AF_UNIX)),
    INET(AF_INET, SOCK_STREAM, 0),
    INET(AF_INET, SOCK_STREAM, IPPROTO_TCP),
    INET(AF_INET, SOCK_DGRAM, 0),
    INET(AF_INET, SOCK_DGRAM, IPPROTO_UDP),
    INET(AF_INET, SOCK_DGRAM, IPPROTO_ICMP),
    INET(AF_INET6, SOCK_STREAM, 0),
    INET(AF_INET6, SOCK_STREAM, IPPROTO_TCP),
    INET(AF_INET6, SOCK_DGRAM, 0),
    INET(AF_INET6, SOCK_DGRAM, IPPROTO_UDP),
    INET(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6),
    INET(AF_NETLINK, SOCK_RAW, 0 /* NETLINK_ROUTE */),
    INET(AF_NETLINK, SOCK_DGRAM, 0),
    // restricting one's own rights
    ANY(getrandom),
    ANY(landlock_add_rule),
    ANY(landlock_create_ruleset),
    ANY(landlock_restrict_self),
    IF(personality, IS(0, 0)),
    IF(personality, IS(0, 8)),
    IF(personality, IS(0, 0x20000)),
    IF(personality, IS(0, 0x20008)),
    IF(personality, MASKED(0, 0xffffffff, 0xffffffff)),
#ifdef __x86_64__
    IF(arch_prctl, IS(0, ARCH_SET_GS)),
    IF(arch_prctl, IS(0, ARCH_SET_FS)),
    IF(arch_prctl, IS(0, ARCH_GET_FS)),
    IF(arch_prctl, IS(0, ARCH_GET_GS)),
    IF(arch_prctl, IS(0, ARCH_GET_CPUID)),
    IF(arch_prctl, IS(0, 0x1021)) /* ARCH_GET_XCOMP_SUPP */,
    IF(arch_prctl, IS(0, 0x1022)),
    IF(arch_prctl, IS(0, 0x1023)) /* ARCH_REQ_XCOMP_PERM: AMX in numerical libraries */,
    IF(arch_prctl, IS(0, 0x5001)) /* ARCH_SHSTK_ENABLE */,
    IF(arch_prctl, IS(0, 0x5003)),
    IF(arch_prctl, IS(0, 0x5005)),
#endif
    OPTION(PR_SET_PDEATHSIG),
    OPTION(PR_GET_PDEATHSIG),
    OPTION(PR_GET_DUMPABLE),
    OPTION(PR_SET_DUMPABLE),
    OPTION(PR_GET_KEEPCAPS),
    OPTION(PR_SET_KEEPCAPS),
    OPTION(PR_GET_TIMING),
    OPTION(PR_SET_NAME),
    OPTION(PR_GET_NAME),
    OPTION(PR_GET_SECCOMP),
    OPTION(PR_CAPBSET_READ),
    OPTION(PR_CAPBSET_DROP),
    OPTION(PR_GET_TSC),
    OPTION(PR_GET_SECUREBITS),
    OPTION(PR_SET_SECUREBITS),
    OPTION(PR_SET_TIMERSLACK),
    OPTION(PR_GET_TIMERSLACK),
    OPTION(PR_MCE_KILL_GET),
    OPTION(PR_SET_CHILD_SUBREAPER),
    OPTION(PR_GET_CHILD_SUBREAPER),
    OPTION(PR_SET_NO_NEW_PRIVS),
    OPTION(PR_GET_NO_NEW_PRIVS),
    OPTION(PR_SET_THP_DISABLE),
    OPTION(PR_GET_THP_DISABLE),
    OPTION(PR_CAP_AMBIENT),
    OPTION(PR_GET_SPECULATION_CTRL),
    OPTION(PR_SET_SPECULATION_CTRL),
    OPTION(PR_SET_VMA),
    OPTION(65) /* PR_SET_MDWE */,
    OPTION(66) /* PR_GET_MDWE */,
    OPTION(0x41555856) /* PR_GET_AUXV */,
#ifdef __aarch64__
    OPTION(PR_SVE_SET_VL),
    OPTION(PR_SVE_GET_VL),
    OPTION(PR_PAC_RESET_KEYS),
    OPTION(PR_SET_TAGGED_ADDR_CTRL),
    OPTION(PR_GET_TAGGED_ADDR_CTRL),
    OPTION(PR_PAC_SET_ENABLED_KEYS),
    OPTION(PR_PAC_GET_ENABLED_KEYS),
    OPTION(63) /* PR_SME_SET_VL */,
    OPTION(64) /* PR_SME_GET_VL */,
#endif
};
const unsigned filter_job_rules_n = sizeof filter_job_rules / sizeof filter_job_rules[0];

// clone3 with CLONE_INTO_CGROUP starts jobs. For jobs it is refused, because a filter cannot see its flags, which are
// in memory; libc falls back to clone. Each job starts with a keyring of its own (KEYCTL_JOIN_SESSION_KEYRING is 1)
// and a filter. Jobs cannot load further filters, as on a kernel without seccomp filters: each process could use 0.7
// MiB for compiled programs, which no limit counts and which the whole host shares (net.core.bpf_jit_limit).
const struct filter_extra filter_guest_extras[] = {
    {ANY(clone3), ENOSYS},
    {IF(keyctl, IS(0, 1)), EPERM},
    {IF(seccomp, IS(0, 1), IS(1, 0)), EINVAL}, // SECCOMP_SET_MODE_FILTER
};
const unsigned filter_guest_extras_n = sizeof filter_guest_extras / sizeof filter_guest_extras[0];

// useradd and groupadd give up unless the kernel has no audit, as it seems then. Owners of a file may drop its pages from memory,
// and root inside owns the host's /usr, whose pages are everybody's: that does nothing and succeeds, as POSIX_FADV_DONTNEED does.
const struct filter_extra filter_job_answers[] = {
    {IF(madvise, MASKED(2, UINT32_MAX, MADV_PAGEOUT)), 0},
    {IF(socket, IS(0, AF_NETLINK), MASKED(2, UINT32_MAX, NETLINK_AUDIT)), EPROTONOSUPPORT},
};
const unsigned filter_job_answers_n = sizeof filter_job_answers / sizeof filter_job_answers[0];

const int filter_absent[] = {
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    457, // statmount
    458, // listmount
    459, // lsm_get_self_attr
    460, // lsm_set_self_attr
    461, // lsm_list_modules
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
    467, // open_tree_attr
    468, // file_getattr
    469, // file_setattr
};
const unsigned filter_absent_n = sizeof filter_absent / sizeof filter_absent[0];

// Access control lists use up to 128 KiB of kernel memory per file, which no limit counts. Programs can handle file
// systems without extended attributes; EPERM would make them fail.
const int filter_unsupported[] = {
    SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(fsetxattr),
};
const unsigned filter_unsupported_n = sizeof filter_unsupported / sizeof filter_unsupported[0];
