// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: collects the facts about an exec.
#pragma once

#include <linux/fcntl.h>
#include <linux/stat.h>

#include "watch_exe.h"
#include "watch_out.h"
#include "watch_path.h"

struct args {
    unsigned char bytes[WATCH_ARGS];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct args);
} args_scratch SEC(".maps");

enum { HASH_STEP = 16 };

struct hashing {
    const struct args *args;
    __u32 n;
    __u64 hash;
};

static long hash_bytes(__u32 step, struct hashing *h)
{
    for (__u32 i = 0; i < HASH_STEP; i++) {
        __u32 at = step * HASH_STEP + i;
        if (at >= h->n)
            return 1;
        h->hash = watch_fnv(h->hash, h->args->bytes[at & (WATCH_ARGS - 1)]);
    }
    return 0;
}

// Copies the arguments to the scratch buffer; *size: bytes of all of them.
__noinline __u64 hash_args(struct watch_account *account, __u32 *size)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct mm_struct *mm = task->mm;
    __u32 zero = 0;
    struct args *args = bpf_map_lookup_elem(&args_scratch, &zero);
    if (!args || !mm)
        return 0;
    __u64 n = mm->arg_end - mm->arg_start;
    if (size)
        *size = (__u32)n;
    if (n > WATCH_ARGS)
        n = WATCH_ARGS;
    if (bpf_probe_read_user(args->bytes, (__u32)n, (void *)mm->arg_start)) {
        COUNT(account, failures);
        return 0;
    }
    struct hashing h = {.args = args, .n = (__u32)n, .hash = WATCH_FNV};
    bpf_loop(WATCH_ARGS / HASH_STEP, hash_bytes, &h, 0);
    return h.hash;
}

// The pattern of a remote shell: its stdin, stdout and stderr are one socket, or both stdin and stdout are connected
// to outside. Benign programs that start others over sockets, such as node, use a separate socket for each of the
// three, and none is connected to outside.
static __always_inline bool talks_to_a_socket(const __u64 file[3])
{
    if (file[0] && file[0] == file[1] && file[0] == file[2])
        return is_socket(file[0]);
    return leads_out(file[0]) && leads_out(file[1]);
}

static __always_inline void standard_files(struct task_struct *task, __u64 file[3])
{
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    if (table && BPF_CORE_READ(table, max_fds) >= 3)
        (void)bpf_probe_read_kernel(file, 3 * sizeof file[0], BPF_CORE_READ(table, fd));
}

// Facts about an exec.
struct exec_facts {
    struct watch_exe_key key;
    bool known, fresh, memfd, socket;
};

struct files_seen {
    __u64 file[32];
    __u32 nameless; // bits
    __u32 zero;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct files_seen);
} files_scratch SEC(".maps");

struct files_scan {
    struct files_seen *seen;
};

static long see_file(__u32 i, struct files_scan *scan)
{
    struct files_seen *seen = scan->seen;
    struct file *file = (struct file *)seen->file[bounded(i, 31)];
    if (file && (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFREG &&
        BPF_CORE_READ(file, f_inode, i_nlink) == 0)
        seen->nameless |= 1U << (i & 31);
    return 0;
}

// Which descriptors of the new program are files without a name: it may have been started to run one of them.
__noinline __u32 nameless_descriptors(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 zero = 0;
    struct files_scan scan = {.seen = bpf_map_lookup_elem(&files_scratch, &zero)};
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    if (!scan.seen || !table || BPF_CORE_READ(table, max_fds) < 32 ||
        bpf_probe_read_kernel(scan.seen->file, sizeof scan.seen->file, BPF_CORE_READ(table, fd)))
        return 0;
    scan.seen->nameless = 0;
    bpf_loop(32, see_file, &scan, 0);
    return scan.seen->nameless;
}

// Arguments, parent, uid and working directory.
static __always_inline void show_process(struct watch_exec *body, struct task_struct *task,
                                         struct watch_account *account)
{
    __u32 zero = 0, size = 0;
    struct args *args = bpf_map_lookup_elem(&args_scratch, &zero);
    struct path_scratch *s = scratch_of_cpu();
    body->args_hash = hash_args(account, &size);
    body->args_n = size;
    body->parent = (__u32)BPF_CORE_READ(task, real_parent, tgid);
    body->uid = exe_uid_inside(BPF_CORE_READ(task, cred, uid.val));
    body->cwd_n = 0;
    body->nameless = nameless_descriptors();
    body->zero = 0;
    if (args)
        (void)bpf_probe_read_kernel(body->argv, sizeof body->argv, args->bytes);
    if (!s)
        return;
    build_begin(s);
    path_above_base(AT_FDCWD, ABOVE_BUILD);
    __u32 n = FULL_MAX - s->at;
    body->cwd_n = n < WATCH_CWD ? n : WATCH_CWD;
    __u32 from = n < WATCH_CWD ? s->at : FULL_MAX - WATCH_CWD;
    (void)bpf_probe_read_kernel(body->cwd, sizeof body->cwd, &s->full[bounded(from, FULL_MAX - 1)]);
}

static __always_inline void report_exec(const struct location *p, const struct exec_facts *f,
                                        const char *path)
{
    bool alarm = f->memfd || f->socket;
    __u64 what = f->key.inode * 4 + (__u64)f->memfd * 2 + f->socket + f->key.size * FIRSTS_BITS;
    bool first = (alarm || f->fresh) &&
                 emit_is_first(p->box->slot, p->box->generation, what ^ p->cgroup << 32);
    struct event *e = emit_begin(p->box, p->cgroup, EVENT_EXEC,
                                 alarm      ? CLASS_ALARM
                                 : f->fresh ? CLASS_NEW
                                            : CLASS_PROCESS,
                                 sizeof(struct watch_exec), first);
    if (!e)
        return;
    struct watch_exec *body = (void *)(e + 1);
    body->exe = f->key;
    body->known = f->known;
    body->memfd = f->memfd;
    body->socket = f->socket;
    body->fresh = f->fresh;
    show_process(body, bpf_get_current_task_btf(), p->account);
    long n = bpf_probe_read_kernel_str(body->path, sizeof body->path, path);
    if (n < 0)
        COUNT(p->account, failures);
    body->path_n = n < 1 ? 0 : (__u32)n - 1;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}
