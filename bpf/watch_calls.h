// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: the meaning of system call numbers and of errors.
#pragma once

#include <asm/unistd.h>
#include <linux/errno.h>

#include "watch.h"

#define KERNEL_ERRORS 4095ULL
enum { ERRORS_KNOWN = 1024 }; // none above 530

static const __u8 error_class[ERRORS_KNOWN] = {
    [EPERM] = WATCH_DENIED,
    [EACCES] = WATCH_DENIED,
    [ENOENT] = WATCH_MISSING,
    [ENOTDIR] = WATCH_MISSING,
    [ESRCH] = WATCH_MISSING,
    [EAGAIN] = WATCH_AGAIN,
    [EINTR] = WATCH_AGAIN,
    [EINPROGRESS] = WATCH_AGAIN,
    [ENOMEM] = WATCH_FULL,
    [ENOSPC] = WATCH_FULL,
    [EMFILE] = WATCH_FULL,
    [ENFILE] = WATCH_FULL,
    [EDQUOT] = WATCH_FULL,
    [ENOSYS] = WATCH_NOSYS,
    [EOPNOTSUPP] = WATCH_NOSYS,
    [EINVAL] = WATCH_INVALID,
    [EFAULT] = WATCH_INVALID,
    [EBADF] = WATCH_INVALID,
    [512] = WATCH_AGAIN /* ERESTARTSYS */,
    [513] = WATCH_AGAIN /* ERESTARTNOINTR */,
    [514] = WATCH_AGAIN /* ERESTARTNOHAND */,
    [516] = WATCH_AGAIN /* ERESTART_RESTARTBLOCK */,
};

// Calls that need more than counting.
enum special {
    ORDINARY = 0,
    LOOK,   // path
    LOOKAT, // directory, path
    MORE,
    OPEN = MORE, // path, flags
    OPENAT,      // directory, path, flags
    OPENAT2,     // directory, path, struct open_how
    CREAT,       // path
    CHDIR,       // path
    UNLINK,
    UNLINKAT,
    RENAME, // path, path
    RENAMEAT,
    LINK,
    LINKAT,
    SYMLINK, // text, path
    SYMLINKAT,
    TRUNCATE,
    EXEC,
    EXECAT,
    LAST_NAMED = EXECAT,
    FTRUNCATE,
    CHMOD,   // path, mode; descriptor, mode
    CHMODAT, // directory, path, mode
    MAP,     // address, length, protection, flags, descriptor
    STARTED, // set_tid_address: the loader has mapped what the program needs
    REACHES, // may receive a descriptor or connect a socket: watch_terminal.h
    DANGEROUS,
    URING,
};

// The table also has the bits WATCH_CALL_RULED (watch.h), which the broker writes while the program runs.
#ifdef __bpf__
__u8 special_calls[WATCH_SYSCALLS] SEC(".data.calls") = {
#else
static const __u8 special_calls[WATCH_SYSCALLS] = {
#endif
#ifdef __NR_open
    [__NR_open] = OPEN,
    [__NR_creat] = CREAT,
    [__NR_stat] = LOOK,
    [__NR_lstat] = LOOK,
    [__NR_access] = LOOK,
    [__NR_readlink] = LOOK,
    [__NR_unlink] = UNLINK,
    [__NR_rmdir] = UNLINK,
    [__NR_rename] = RENAME,
    [__NR_link] = LINK,
    [__NR_symlink] = SYMLINK,
#endif
#ifdef __NR_newfstatat
    [__NR_newfstatat] = LOOKAT,
#endif
#ifdef __NR_renameat
    [__NR_renameat] = RENAMEAT,
#endif
#ifdef __NR_iopl
    [__NR_iopl] = DANGEROUS,
    [__NR_ioperm] = DANGEROUS,
    [__NR_modify_ldt] = DANGEROUS,
#endif
    [__NR_openat] = OPENAT,
    [__NR_openat2] = OPENAT2,
    [__NR_chdir] = CHDIR,
    [__NR_statx] = LOOKAT,
    [__NR_faccessat] = LOOKAT,
    [__NR_faccessat2] = LOOKAT,
    [__NR_readlinkat] = LOOKAT,
    [__NR_unlinkat] = UNLINKAT,
    [__NR_renameat2] = RENAMEAT,
    [__NR_linkat] = LINKAT,
    [__NR_symlinkat] = SYMLINKAT,
    [__NR_truncate] = TRUNCATE,
    [__NR_ftruncate] = FTRUNCATE,
    [__NR_fchmod] = CHMOD,
    [__NR_fchmodat] = CHMODAT,
    [__NR_connect] = REACHES,
    [__NR_recvmsg] = REACHES,
    [__NR_recvmmsg] = REACHES,
    [__NR_mmap] = MAP,
    [__NR_set_tid_address] = STARTED,
#ifdef __NR_chmod
    [__NR_chmod] = CHMOD,
#endif
    [__NR_execve] = EXEC,
    [__NR_execveat] = EXECAT,
    [__NR_socket] = DANGEROUS, // except the usual families and types: is_harmless()
    [__NR_io_uring_setup] = URING,
    [__NR_io_uring_enter] = URING,
    [__NR_io_uring_register] = URING,
    [__NR_ptrace] = DANGEROUS,
    [__NR_process_vm_readv] = DANGEROUS,
    [__NR_process_vm_writev] = DANGEROUS,
    [__NR_pidfd_getfd] = DANGEROUS,
    [__NR_kcmp] = DANGEROUS,
    [__NR_mount] = DANGEROUS,
    [__NR_umount2] = DANGEROUS,
    [__NR_pivot_root] = DANGEROUS,
    [__NR_chroot] = DANGEROUS,
    [__NR_open_tree] = DANGEROUS,
    [__NR_move_mount] = DANGEROUS,
    [__NR_fsopen] = DANGEROUS,
    [__NR_fsconfig] = DANGEROUS,
    [__NR_fsmount] = DANGEROUS,
    [__NR_fspick] = DANGEROUS,
    [__NR_mount_setattr] = DANGEROUS,
    [__NR_unshare] = DANGEROUS,
    [__NR_setns] = DANGEROUS,
    [__NR_bpf] = DANGEROUS,
    [__NR_perf_event_open] = DANGEROUS,
    [__NR_userfaultfd] = DANGEROUS,
    [__NR_open_by_handle_at] = DANGEROUS,
    [__NR_fanotify_init] = DANGEROUS,
    [__NR_keyctl] = DANGEROUS,
    [__NR_add_key] = DANGEROUS,
    [__NR_request_key] = DANGEROUS,
    [__NR_init_module] = DANGEROUS,
    [__NR_finit_module] = DANGEROUS,
    [__NR_delete_module] = DANGEROUS,
    [__NR_kexec_load] = DANGEROUS,
    [__NR_reboot] = DANGEROUS,
    [__NR_swapon] = DANGEROUS,
    [__NR_swapoff] = DANGEROUS,
    [__NR_acct] = DANGEROUS,
    [__NR_quotactl] = DANGEROUS,
    [__NR_syslog] = DANGEROUS,
    [__NR_settimeofday] = DANGEROUS,
    [__NR_clock_settime] = DANGEROUS,
    [__NR_sethostname] = DANGEROUS,
    [__NR_setdomainname] = DANGEROUS,
#ifdef __NR_kexec_file_load
    [__NR_kexec_file_load] = DANGEROUS,
#endif
};

static inline __u32 special_of(__u32 call)
{
    return special_calls[call & (WATCH_SYSCALLS - 1)] & ~(__u32)WATCH_CALL_RULED;
}
