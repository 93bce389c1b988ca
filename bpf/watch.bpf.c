// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Telemetry of sandboxes: counters per cgroup of a job, events, and profiles. See watch.h for the contract.
//
// watch_sys_exit is by far the most frequent program: while it is attached, it runs at every system call of the host.
// For a process outside of the sandboxes it compares two levels. For a process inside it follows a few pointers,
// verifies a guess, and does one atomic addition (watch_find.h). Rare cases are separate functions.
//
// The others run when a process begins, executes, ends or sends a signal.
#include <linux/stat.h>

#include "watch_exec.h"
#include "watch_files.h"
#include "watch_load.h"
#include "watch_terminal.h"

char _license[] SEC("license") = "Dual BSD/GPL";

// Fields that show how the running kernel declares a tracepoint.
struct trace_event_raw_sched_process_exit {
    bool group_dead;
} __attribute__((preserve_access_index));
struct trace_event_raw_mark_victim {
    __u32 uid;
} __attribute__((preserve_access_index));

// linux/socket.h does not give the numbers of address families to BPF programs.
enum { AF_UNIX = 1, AF_NETLINK = 16 };
enum { SOCK_RAW = 3, SOCK_PACKET = 10 };
enum { JOIN_SESSION_KEYRING = 1 }; // linux/keyctl.h
enum { RLIMIT_FSIZE = 1, RLIMIT_NOFILE = 7 };

// ---- system calls

// The word and the bit that record whether a dangerous call of this number was reported. NULL: no account.
static __always_inline __u64 *reported_word(struct watch_account *account, __u32 call, __u64 *bit)
{
    if (!account)
        return 0;
    *bit = 1ULL << (call & 63);
    return &account->reported_calls[bounded(call >> 6, WATCH_SYSCALLS / 64 - 1)];
}

// The body of an event about a call; the caller fills it and submits it. NULL: the event is lost.
static __always_inline struct watch_syscall *begin_syscall(const struct location *p, __u16 kind,
                                                           __u32 class, __u32 call)
{
    __u64 bit = 0;
    __u64 *word = reported_word(p->account, call, &bit);
    struct event *e = emit_begin(p->box, p->cgroup, kind, class, sizeof(struct watch_syscall),
                                 word && !(*word & bit));
    if (!e)
        return 0;
    if (word)
        __sync_fetch_and_or(word, bit);
    return (void *)(e + 1);
}

static __always_inline void submit_syscall(struct watch_syscall *body)
{
    bpf_ringbuf_submit((struct event *)(void *)body - 1, BPF_RB_NO_WAKEUP);
}

enum { PTRACE_ATTACH = 16 };
enum { LOG_READ_ALL = 3, LOG_SIZE = 10 }; // syslog(2)

// The id of a process inside its namespace.
static __always_inline __s32 id_inside(struct task_struct *task)
{
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    __u32 level = BPF_CORE_READ(pid, level);
    __s32 id = 0;
    (void)bpf_probe_read_kernel(&id, sizeof id,
                                (char *)pid + bpf_core_field_offset(struct pid, numbers) +
                                    (__u64)level * bpf_core_type_size(struct upid) +
                                    bpf_core_field_offset(struct upid, nr));
    return id;
}

struct thread_search {
    __u64 node, head; // of the list of threads
    __s32 target;
    __u32 found;
};

static long look_at_thread(__u32 i, struct thread_search *s)
{
    if (s->node == s->head)
        return 1;
    struct task_struct *thread =
        (void *)(s->node - bpf_core_field_offset(struct task_struct, thread_node));
    struct list_head *node = &thread->thread_node;
    s->found |= id_inside(thread) == s->target;
    s->node = (__u64)BPF_CORE_READ(node, next);
    return 0;
}

// The process shares its memory with its parent, and names one of its threads: it could read and write all of it without ptrace.
// LeakSanitizer makes such a process to stop the threads of its own program. Of more threads than these the first are known.
enum { OWN_THREADS = 256 };
static __noinline int is_of_own_memory(__s32 target)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_struct *parent = BPF_CORE_READ(task, real_parent, group_leader);
    if (!task->mm || task->mm != BPF_CORE_READ(parent, mm))
        return 0;
    struct signal_struct *signal = BPF_CORE_READ(parent, signal);
    struct thread_search s = {.node = (__u64)BPF_CORE_READ(signal, thread_head.next),
                              .head = (__u64)&signal->thread_head,
                              .target = target,
                              .found = unknown_zero};
    bpf_loop(OWN_THREADS, look_at_thread, &s, 0);
    return s.found != 0;
}

// The program is one of the host that is for this call, or a process that one has forked: a debugger, or a profiler. The file decides: a
// process chooses its own name.
static __noinline int is_tool_for(__u32 call)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct watch_exe_key key = {};
    char name[8] = {};
    if (!exe_key(task, 0, &key) || exe_is_own(&key) ||
        bpf_probe_read_kernel_str(
            name, sizeof name, BPF_CORE_READ(task, mm, exe_file, f_path.dentry, d_name.name)) < 0)
        return 0;
    if (call == __NR_perf_event_open)
        return bpf_strncmp(name, sizeof name, "perf") == 0;
    return bpf_strncmp(name, sizeof name, "gdb") == 0 ||
           bpf_strncmp(name, sizeof name, "strace") == 0 ||
           bpf_strncmp(name, sizeof name, "ltrace") == 0;
}

// Refused calls of honest programs: dmesg reads the log of the kernel, or asks for its size; perf and debuggers are made for their
// calls, and LeakSanitizer attaches to its own memory.
static __noinline int is_excused(struct pt_regs *regs, __u32 call)
{
    if (call == __NR_syslog)
        return argument(regs, 0) == LOG_READ_ALL || argument(regs, 0) == LOG_SIZE;
    if (call == __NR_perf_event_open)
        return is_tool_for(call);
    return call == __NR_ptrace &&
           (is_tool_for(call) ||
            (argument(regs, 0) == PTRACE_ATTACH && is_of_own_memory((__s32)argument(regs, 1))));
}

static __always_inline void report_syscall(__u16 kind, struct pt_regs *regs, long result,
                                           __u32 call)
{
    struct location p;
    if (!find(bpf_get_current_task_btf(), &p))
        return;
    if (kind == EVENT_DANGEROUS)
        COUNT(p.account, dangerous);
    struct watch_syscall *body = begin_syscall(&p, kind, CLASS_SYSCALL, call);
    if (!body)
        return;
    body->number = call;
    body->result = (__s32)result;
    body->args[0] = argument(regs, 0);
    body->args[1] = argument(regs, 1);
    body->arch = 0;
    body->own = kind == EVENT_DANGEROUS && result == -EPERM && is_excused(regs, call);
    submit_syscall(body);
}

// A call that a rule of the host names. Global, so the verifier checks it once.
__noinline int report_ruled(__u32 call, __s32 result, __u64 first, __u64 second)
{
    struct location p;
    if (!find(bpf_get_current_task_btf(), &p))
        return 0;
    struct watch_syscall *body = begin_syscall(&p, EVENT_DANGEROUS, CLASS_RULED_CALL, call);
    if (!body)
        return 0;
    *body = (struct watch_syscall){
        .number = call, .result = result, .args = {first, second}, .own = WATCH_OWN_RULED};
    submit_syscall(body);
    return 1;
}

// Families and types that programs of a job do not need. The table of sockets in net.bpf.c has the permitted ones.
// The C library uses netlink to list addresses.
static __always_inline bool socket_is_strange(__u32 family, __u32 type)
{
    type &= 0xf; // SOCK_NONBLOCK and SOCK_CLOEXEC lie above
    if (family == AF_INET || family == AF_INET6)
        return type == SOCK_RAW || type == SOCK_PACKET;
    return family != AF_UNIX && family != AF_NETLINK;
}

// Harmless uses of dangerous calls: they spend no budget. Each job begins with JOIN_SESSION_KEYRING without a name.
static __always_inline bool is_harmless(struct pt_regs *regs, __u32 call)
{
    if (call == __NR_socket)
        return !socket_is_strange(argument(regs, 0), argument(regs, 1));
    return call == __NR_keyctl && (__u32)argument(regs, 0) == JOIN_SESSION_KEYRING &&
           argument(regs, 1) == 0;
}

// Global, so the verifier checks it once.
__noinline int special_call(__s64 result, __u32 call, struct watch_account *account)
{
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
    __u32 what = special_of(bounded(call, WATCH_SYSCALLS - 1));
    if (!account)
        return 0;
    if (what >= OPEN && what <= CREAT) {
        opened(regs, result, what, account);
    } else if (what <= LAST_NAMED) {
        named(regs, result, what, account);
    } else if (what == FTRUNCATE) {
        if (result == 0 && argument(regs, 1) == 0)
            rewritten(file_of(bpf_get_current_task_btf(), (__s32)argument(regs, 0)), account);
    } else if (what == CHMOD || what == CHMODAT) {
        if (argument(regs, what == CHMOD ? 1 : 2) & S_ISUID)
            report_syscall(EVENT_DANGEROUS, regs, result, call);
    } else if (what == STARTED) {
        load_ends();
    } else if (what == REACHES) {
        take_over_watch();
    } else if (what == URING) {
        if (result >= 0) // watch_uring reports it
            return 0;
        COUNT(account, io_urings);
        report_syscall(EVENT_URING, regs, result, call);
    } else if (!is_harmless(regs, call)) {
        report_syscall(EVENT_DANGEROUS, regs, result, call);
    }
    return 0;
}

static __always_inline void count_error(long result, struct watch_account *account)
{
    __u32 class = error_class[bounded((__u64)-result, ERRORS_KNOWN - 1)];
    if (class == 0)
        class = WATCH_OTHER;
    __sync_fetch_and_add(&account->errors[bounded(class, WATCH_ERRORS - 1)], 1);
}

// RLIMIT_NOFILE refused a descriptor. A higher limit than before restarts the count: a job may lower its own.
static __noinline int count_no_file(struct watch_account *account)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (!account)
        return 0;
    __u64 limit = BPF_CORE_READ(task, signal, rlim[RLIMIT_NOFILE].rlim_cur);
    if (limit > account->no_file_at) {
        account->no_file_at = limit;
        account->no_file = 0;
    }
    if (limit == account->no_file_at)
        COUNT(account, no_file);
    return 0;
}

// Handles a call that needs more than counting.
static __noinline int count_call(struct pt_regs *regs, long result, struct watch_account *account)
{
    __u64 n = number(regs);
    if (!account)
        return 0;
    if (n == (__u64)-1 || n == (__u32)-1) // the kernel clears it on the way out of a signal handler
        n = __NR_rt_sigreturn;
    __u32 call = n < WATCH_SYSCALLS - 1 ? (__u32)n : WATCH_SYSCALLS - 1;
    __sync_fetch_and_add(&account->syscalls[bounded(call, WATCH_SYSCALLS - 1)], 1);
    if ((__u64)result >= -KERNEL_ERRORS)
        count_error(result, account);
    // signal_generate does not see signals to processes that do not exist. A job that sends signals to all ids meets few that do.
    if (result == -ESRCH && call == __NR_kill && argument(regs, 1) != 0)
        COUNT(account, signals);
    if (result == -EMFILE && call != __NR_inotify_init1)
        count_no_file(account);
    if (account->watch & WATCH_PROFILE)
        profile_call(account, call, result == -EPERM || result == -EACCES);
    if (account->watch & WATCH_TERMINAL) {
        look_at_terminal((__s32)argument(regs, call == __NR_sendfile ? 1 : 0), account->slot,
                         account->generation);
        __u64 name = result < 0 ? 0 : named_address(regs, call);
        if (name)
            look_at_datagram(name, account->slot, account->generation);
    }
    __u32 what = special_of(bounded(call, WATCH_SYSCALLS - 1));
    if (special_calls[bounded(call, WATCH_SYSCALLS - 1)] & WATCH_CALL_RULED)
        report_ruled(call, (__s32)result, argument(regs, 0), argument(regs, 1));
    // Called here, because the stacks of all nested functions together have at most 512 bytes.
    if (what == MAP)
        mapped(regs, result);
    else if (what != ORDINARY)
        special_call(result, call, account);
    return 0;
}

// The account of the current cgroup, when the guess was wrong.
static __noinline struct watch_account *guess_again(__u64 cgroup, __u32 level)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (is_uncounted(cgroup, level))
        return 0;
    __u64 which = recent_get(cgroup);
    if (which >= OUTSIDE)
        return first_sight();
    __u32 key = (__u32)which;
    guesses[bounded((__u32)task->pid, GUESSES - 1)] = key;
    return bpf_map_lookup_elem(&accounts, &key);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(watch_sys_exit, struct pt_regs *regs, long result)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 guess = guesses[bounded((__u32)task->pid, GUESSES - 1)];
    struct cgroup *at = task->cgroups->dfl_cgrp;
    if ((__u32)at->level < sandbox_level)
        return 0;
    __u64 id = at->kn->id;
    struct watch_account *account = bpf_map_lookup_elem(&accounts, &guess);
    if (!account || account->cgroup != id)
        account = guess_again(id, (__u32)at->level);
    if (!account)
        return 0;
    __u64 n = number(regs);
    if (n >= WATCH_SYSCALLS || special_calls[n] >= MORE || (__u64)result >= -KERNEL_ERRORS ||
        account->watch & (WATCH_PROFILE | WATCH_TERMINAL))
        return count_call(regs, result, account);
    __sync_fetch_and_add(&account->syscalls[n], 1);
    if (special_calls[n] != ORDINARY) // looking at a file is frequent and nearly always irrelevant
        looked(regs, result, special_calls[n]);
    return 0;
}

// A ring was made. If seccomp refuses that, watch_sys_exit shows the attempt.
SEC("tp_btf/io_uring_create")
int BPF_PROG(watch_uring, int fd)
{
    struct location p;
    if (!find(bpf_get_current_task_btf(), &p))
        return 0;
    COUNT(p.account, io_urings);
    struct watch_syscall *body = begin_syscall(&p, EVENT_URING, CLASS_SYSCALL, __NR_io_uring_setup);
    if (!body)
        return 0;
    *body = (struct watch_syscall){.number = __NR_io_uring_setup, .result = fd};
    submit_syscall(body);
    return 0;
}

// ---- processes

// The facts about the program that the current process executes now, but for its standard files. Global, so the verifier checks it once,
// and nothing that comes later for each combination of its results.
__noinline int look_at_program(struct exec_facts *f, struct watch_account *account, __u32 template,
                               __u32 watch)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct watch_exe_key key = {};
    struct watch_exe *exe = 0;
    if (!f)
        return 0;
    if (exe_key(task, template, &key))
        exe = bpf_map_lookup_elem(&exes, &key);
    else
        COUNT(account, failures);
    f->key = key;
    f->known = exe != 0;
    f->memfd = exe_nameless(task);
    if (f->memfd)
        COUNT(account, memfd_execs);
    f->fresh = !f->memfd && exe_is_new(watch, &key, exe);
    if (f->fresh)
        COUNT(account, new_execs);
    if (watch & WATCH_PROFILE) {
        profile_end(task);
        profile_begin(profile_thread(task), task, exe);
    }
    return 1;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(watch_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
    struct location p;
    if (!find(task, &p))
        return 0;
    COUNT(p.account, execs);
    struct exec_facts f = {};
    look_at_program(&f, p.account, p.box->template, p.box->watch);
    if (p.box->watch & ~WATCH_TERMINAL)
        look_at_exec(task, bprm->filename);
    __u64 file[3] = {};
    standard_files(task, file);
    note_terminals(&p, file);
    load_begins(exe_is_own(&f.key));
    f.socket = talks_to_a_socket(file);
    if (f.socket)
        COUNT(p.account, socket_execs);
    if (f.memfd || f.socket || p.box->watch & WATCH_EVENTS ||
        (!f.known && p.box->watch & WATCH_PROFILE))
        report_exec(&p, &f, bprm->filename);
    return 0;
}

// Counted in the child's cgroup: the guest makes a job's first process, but it is born in job-N.
SEC("tp_btf/sched_process_fork")
int BPF_PROG(watch_fork, struct task_struct *parent, struct task_struct *child)
{
    struct location p;
    if (!find(child, &p))
        return 0;
    COUNT(p.account, tasks);
    if (child->pid == child->tgid)
        COUNT(p.account, forks);
    return 0;
}

// Processes with several threads that have been counted as ended, for kernels that do not report which thread was the
// last: two threads that end at the same time both find that no other thread is left.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u64);
    __type(value, __u32);
} ended SEC(".maps");

static __always_inline bool is_last_thread(__u64 *ctx, struct task_struct *task)
{
    if (bpf_core_field_exists(struct trace_event_raw_sched_process_exit, group_dead))
        return ctx[1] & 0xff;
    if (BPF_CORE_READ(task, signal, live.counter) != 0)
        return false;
    __u64 key = BPF_CORE_READ(task, group_leader, start_time) ^ (__u64)(__u32)task->tgid << 40;
    __u32 one = 1;
    return BPF_CORE_READ(task, signal, nr_threads) == 1 ||
           bpf_map_update_elem(&ended, &key, &one, BPF_NOEXIST) == 0;
}

static __always_inline void report_exit(const struct location *p, __u32 status,
                                        struct task_struct *task)
{
    struct event *e =
        emit_begin(p->box, p->cgroup, EVENT_EXIT, CLASS_EXIT, sizeof(struct watch_exit), false);
    if (!e)
        return;
    struct watch_exit *body = (void *)(e + 1);
    body->code = status >> 8 & 0xff;
    body->signal = status & 0x7f;
    body->lived_ns = bpf_ktime_get_ns() - BPF_CORE_READ(task, group_leader, start_time);
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

// `task` may differ from the current task: the OOM killer runs in the task that allocates memory.
static __always_inline void report_oom(const struct location *p, struct task_struct *task)
{
    COUNT(p->account, ooms);
    struct event *e = emit_begin(p->box, p->cgroup, EVENT_OOM, CLASS_ALARM, 0, false);
    if (!e)
        return;
    e->pid = (__u32)task->tgid;
    e->tid = (__u32)task->pid;
    bpf_probe_read_kernel(e->comm, sizeof e->comm, task->comm);
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

enum { SIGNAL_GROUP_EXIT = 4 }; // include/linux/sched/signal.h

SEC("tp_btf/sched_process_exit")
int watch_exit(__u64 *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct location p;
    if (!find(task, &p))
        return 0;
    if (p.box->watch & WATCH_PROFILE)
        profile_end(task);
    if (!is_last_thread(ctx, task))
        return 0;
    __u32 status = (__u32)(BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT
                               ? BPF_CORE_READ(task, signal, group_exit_code)
                               : BPF_CORE_READ(task, group_leader, exit_code));
    COUNT(p.account, exits);
    if (status & 0x7f)
        COUNT(p.account, exits_by_signal);
    if (!bpf_core_field_exists(struct trace_event_raw_mark_victim, uid) &&
        BPF_CORE_READ(task, signal, oom_mm))
        report_oom(&p, task);
    if (p.box->watch & WATCH_EVENTS)
        report_exit(&p, status, task);
    return 0;
}

// Older kernels pass only the pid of the victim; watch_exit recognizes it by its mark.
SEC("tp_btf/mark_victim")
int watch_oom(__u64 *ctx)
{
    if (!bpf_core_field_exists(struct trace_event_raw_mark_victim, uid))
        return 0;
    struct task_struct *task = (void *)ctx[0];
    struct location p;
    if (task && find(task, &p))
        report_oom(&p, task);
    return 0;
}

// The codes of signals that a process sends by kill, tgkill, sigqueue or pidfd_send_signal. Signals of the kernel
// have other codes.
enum {
    FROM_KILL = 0,
    FROM_QUEUE = -1,
    FROM_TKILL = -6,
    FILE_TOO_LARGE = 25 /* SIGXFSZ */
};
enum { BAD_CALL = 31 /* SIGSYS */, URGENT = 23 /* SIGURG */, FROM_SECCOMP = 1 /* SYS_SECCOMP */ };

// SEND_SIG_NOINFO, which only the kernel uses. It is detected by a failing read: the verifier assumes that a
// tracepoint's arguments are never NULL, and removes a comparison.
static __always_inline bool is_without_info(struct kernel_siginfo *info)
{
    int code;
    return bpf_core_read(&code, sizeof(code), &info->si_code) != 0;
}

// The program is a file of the host, and has 32-bit addresses: its own calls are of another architecture than ours, and this is its first
// one. A program with 64-bit addresses that makes one tries to get around the filter.
static __noinline int is_native_program(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct watch_exe_key key = {};
    return exe_key(task, 0, &key) && !exe_is_own(&key) &&
           BPF_CORE_READ(task, mm, task_size) <= 1ULL << 32;
}

// A call for which the seccomp filter kills the process: a call of another architecture, such as int 0x80 and x32.
static __noinline int report_killed(struct kernel_siginfo *info)
{
    struct location p;
    if (!info || BPF_CORE_READ(info, si_code) != FROM_SECCOMP ||
        !find(bpf_get_current_task_btf(), &p))
        return 0;
    COUNT(p.account, dangerous);
    __u32 call = (__u32)BPF_CORE_READ(info, _sifields._sigsys._syscall);
    struct watch_syscall *body =
        begin_syscall(&p, EVENT_DANGEROUS, CLASS_SYSCALL, call & (WATCH_SYSCALLS - 1));
    if (!body)
        return 0;
    *body = (struct watch_syscall){.number = call,
                                   .result = -ENOSYS,
                                   .arch = BPF_CORE_READ(info, _sifields._sigsys._arch),
                                   .own = (__u32)is_native_program()};
    submit_syscall(body);
    return 1;
}

// A higher limit than before restarts the count. Two simultaneous writes may lose one.
static __always_inline void count_oversized(struct watch_account *account, struct task_struct *task)
{
    if (!account)
        return;
    __u64 limit = BPF_CORE_READ(task, signal, rlim[RLIMIT_FSIZE].rlim_cur);
    if (limit > account->oversized_at) {
        account->oversized_at = limit;
        account->oversized = 0;
    }
    if (limit == account->oversized_at)
        COUNT(account, oversized);
}

SEC("tp_btf/signal_generate")
int BPF_PROG(watch_signal, int signal, struct kernel_siginfo *info, struct task_struct *target)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct location p;
    if (!target || (__u64)info == 1) // SEND_SIG_PRIV
        return 0;
    if (target->tgid == task->tgid) {
        if (signal == BAD_CALL && (__u64)info > 1)
            report_killed(info);
        if (signal == FILE_TOO_LARGE && is_without_info(info) && find(task, &p))
            count_oversized(p.account, task);
        return 0;
    }
    int code = info ? BPF_CORE_READ(info, si_code) : FROM_KILL;
    if ((code != FROM_KILL && code != FROM_QUEUE && code != FROM_TKILL) || !find(task, &p))
        return 0;
    // SIGURG is ignored unless a program asks for it: it ends and stops nobody. Servers wake up each other with it.
    if (signal != URGENT)
        COUNT(p.account, signals);
    if (!(p.box->watch & WATCH_EVENTS))
        return 0;
    struct event *e =
        emit_begin(p.box, p.cgroup, EVENT_SIGNAL, CLASS_SIGNAL, sizeof(struct watch_signal), false);
    if (!e)
        return 0;
    struct watch_signal *body = (void *)(e + 1);
    body->signal = (__u32)signal;
    body->target = (__u32)target->tgid;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    return 0;
}
