// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Writes every system call below one cgroup to a ring: only for recordings, not for the broker.
#include <linux/errno.h>

#include "../../../bpf/vmlinux_min.h"
#include "../../../bpf/watch.h"
#include "record.h"

char _license[] SEC("license") = "GPL";

const volatile __u32 container_level = 1;
const volatile __u64 container_id = 0;

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 26);
} records SEC(".maps");

__u64 lost;

static __always_inline __u8
class_of(long result)
{
    switch (result < 0 && result > -4096 ? -result : 0) {
    case 0:
        return WATCH_OK;
    case EPERM:
    case EACCES:
        return WATCH_DENIED;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
        return WATCH_MISSING;
    case ENOSYS:
    case EOPNOTSUPP:
        return WATCH_NOSYS;
    case EAGAIN:
    case EINTR:
        return WATCH_AGAIN;
    case EINVAL:
    case EFAULT:
    case EBADF:
        return WATCH_INVALID;
    default:
        return WATCH_OTHER;
    }
}

static __always_inline __u64
exe_of(struct task_struct *task)
{
    struct mm_struct *mm = task->mm;
    struct file *file = mm ? mm->exe_file : 0;
    if (!file)
        return 0;
    struct inode *inode = file->f_inode;
    // Ranges of ids start at multiples of 65,536; jobs have the 1000th id of their range, and files of the host
    // belong to its root.
    bool own = (inode->i_uid.val & 0xffff) == 1000;
    return (inode->i_ino & ~(1ULL << 63)) | (own ? 1ULL << 63 : 0);
}

SEC("tp_btf/sys_exit")
int
BPF_PROG(record_exit, struct pt_regs *regs, long result)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct cgroup *at = task->cgroups->dfl_cgrp;
    // Jobs: SANDBOX/job-N and nested cgroups. Not the guest, which is a part of Stockade.
    if ((__u32)at->level < container_level + 2)
        return 0;
    struct cgroup *container = 0, *box = 0;
    if (bpf_probe_read_kernel(&container, sizeof container, &at->ancestors[container_level]) ||
        BPF_CORE_READ(container, kn, id) != container_id ||
        bpf_probe_read_kernel(&box, sizeof box, &at->ancestors[container_level + 1]))
        return 0;
    struct recorded *r = bpf_ringbuf_reserve(&records, sizeof *r, 0);
    if (!r) {
        __sync_fetch_and_add(&lost, 1);
        return 0;
    }
    r->sandbox = BPF_CORE_READ(box, kn, id);
    r->exe = exe_of(task);
    r->thread = (__u32)task->pid;
#if defined(__TARGET_ARCH_x86)
    __u64 n = regs->orig_ax;
#else
    __u64 n = (__u32)regs->syscallno;
#endif
    r->number = n < WATCH_SYSCALLS - 1 ? (__u16)n : WATCH_SYSCALLS - 1;
    r->error = class_of(result);
    r->zero = 0;
    bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
    return 0;
}
