// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: detects a remote shell on a terminal. The shell has no socket: its stdin and stdout are a
// pseudo-terminal, and another process copies between the master side and a socket that is connected to outside.
//
//   exec            on a terminal that the job made itself: stored in "terminals". (The guest makes the terminal of `exec -it`.)
//                   From then on each call of the sandbox is checked (WATCH_TERMINAL), in all its jobs: one of them
//                   may have the master side already
//   a later call    with the master side as its descriptor: does the calling process have a socket that is connected to
//                   outside? Or one that sends a datagram to an address outside that the call names: does it have the
//                   master side? So the order of events, the relation of the processes, and the way that the descriptor
//                   took do not matter
#pragma once

#include "watch_files.h"
#include "watch_out.h"
#include "watch_path.h"

// TERMINAL_FILES: descriptors of a process that are checked, the default maximum of the limit `files`.
enum { TERMINALS = 8192, TERMINAL_FILES = 65536 };
enum { DEVICE_TTY = 5 << 20, DEVICE_PTMX = 5 << 20 | 2, MAJOR_PTS = 136, MAJOR_PTS_LAST = 143 };
#define TERMINAL_LOOK_NS  10000000ULL   // interval between two checks of a terminal
#define TERMINAL_AGAIN_NS 1000000000ULL // interval between two reports of a terminal
enum {
    SENDERS = 8192,
    SENDER_SHARE = 100
}; // a thread that sends spends at most a hundredth of its time on checks

struct terminal {
    __u64 next_ns;  // the next check of a call with its master side
    __u64 again_ns; // the next report
    __u64 cgroup;   // of the job that executed a program on it
    __u32 slot, generation;
    __u32 shell;
    __u32 zero;
    char comm[16];
};

// Key: the address of the master side in the kernel. A new terminal may get the address of an earlier one.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, TERMINALS);
    __type(key, __u64);
    __type(value, struct terminal);
} terminals SEC(".maps");

// Key: a thread that sends datagrams to addresses that it names. Value: the time of its next check.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SENDERS);
    __type(key, __u32);
    __type(value, __u64);
} senders SEC(".maps");

static __always_inline __u32 device_of(__u64 file)
{
    struct inode *inode = BPF_CORE_READ((struct file *)file, f_inode);
    return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFCHR ? BPF_CORE_READ(inode, i_rdev) : 0;
}

static __always_inline struct tty_struct *terminal_of(__u64 file)
{
    struct tty_file_private *of = BPF_CORE_READ((struct file *)file, private_data);
    return BPF_CORE_READ(of, tty);
}

// The master side of a terminal, if this user opened it; 0: not a terminal, or another user's. All descriptors from
// one open of ptmx lead to one file.
static __always_inline __u64 other_end(__u64 file, __u32 uid)
{
    __u32 device = device_of(file);
    __u32 major = device >> 20;
    if (device != DEVICE_TTY && (major < MAJOR_PTS || major > MAJOR_PTS_LAST))
        return 0;
    struct tty_struct *other = BPF_CORE_READ(terminal_of(file), link);
    struct list_head *first = BPF_CORE_READ(other, tty_files.next);
    if (!other ||
        (__u64)first == (__u64)other + bpf_core_field_offset(struct tty_struct, tty_files))
        return 0;
    struct tty_file_private *opened =
        (void *)((__u64)first - bpf_core_field_offset(struct tty_file_private, list));
    return BPF_CORE_READ(opened, file, f_cred, uid.val) == uid ? (__u64)other : 0;
}

// Checks one of the standard files of a program that is executed.
__noinline int note_terminal(__u64 file, __u64 cgroup, __u32 slot, __u32 generation)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 other = file ? other_end(file, task->cred->uid.val) : 0;
    if (!other)
        return 0;
    struct terminal *known = bpf_map_lookup_elem(&terminals, &other);
    if (known && known->cgroup == cgroup)
        return WATCH_TERMINAL;
    struct terminal t = {
        .cgroup = cgroup, .slot = slot, .generation = generation, .shell = (__u32)task->tgid};
    bpf_get_current_comm(t.comm, sizeof t.comm);
    bpf_map_update_elem(&terminals, &other, &t, BPF_ANY);
    return WATCH_TERMINAL;
}

struct same_sandbox {
    __u32 slot, generation;
};

static long watch_terminals_in(__u32 i, struct same_sandbox *of)
{
    struct watch_account *account = bpf_map_lookup_elem(&accounts, &i);
    if (!account)
        return 1;
    if (account->slot == of->slot && account->generation == of->generation)
        __sync_fetch_and_or(&account->watch, WATCH_TERMINAL);
    return 0;
}

// Checks stdin and stdout.
static __always_inline void note_terminals(const struct location *p, const __u64 file[3])
{
    __u32 slot = p->box->slot;
    __u32 generation = p->box->generation;
    int found = note_terminal(file[0], p->cgroup, slot, generation) |
                note_terminal(file[1], p->cgroup, slot, generation);
    if (!found)
        return;
    bool known = __sync_fetch_and_or(&p->box->watch, WATCH_TERMINAL) & WATCH_TERMINAL;
    struct same_sandbox of = {.slot = slot, .generation = generation};
    if (!known)
        bpf_loop(WATCH_ACCOUNTS, watch_terminals_in, &of, 0);
    if (p->account)
        __sync_fetch_and_or(&p->account->watch, WATCH_TERMINAL);
}

// Another job of the sandbox may have made the terminal and sent its master side: then this job is checked, too.
static __noinline int take_over_watch(void)
{
    struct location p = {};
    return find(bpf_get_current_task_btf(), &p);
}

struct out_scan {
    __u64 files, open; // the table of descriptors, and the bitmap of those in use
    __u64 word;        // of the bitmap
    __u64 found;       // for a master side: its address
    __u32 fd, end;
    // Generation 0: the search is for a socket that is connected to outside.
    struct same_sandbox masters;
};

// The address of a master side on which a job of the sandbox executed a program; 0: another file.
static __always_inline __u64 master_side(__u64 file, const struct same_sandbox *of)
{
    __u64 end = file && device_of(file) == DEVICE_PTMX ? (__u64)terminal_of(file) : 0;
    struct terminal *t = end ? bpf_map_lookup_elem(&terminals, &end) : 0;
    return t && t->slot == of->slot && t->generation == of->generation ? end : 0;
}

// One descriptor, or 64 that are not in use.
static long out_file(__u32 i, struct out_scan *scan)
{
    __u32 fd = scan->fd;
    __u64 at = 0;
    if (fd >= scan->end)
        return 1;
    if (fd % 64 == 0) {
        scan->word = bpf_probe_read_kernel(&at, sizeof at, (void *)(scan->open + fd / 8)) ? 0 : at;
        at = 0;
    }
    __u64 left = scan->word >> fd % 64;
    // Else the verifier follows each value of the low six bits.
    scan->fd = (left ? fd + 1 : (fd | 63) + 1) + unknown_zero;
    if (!(left & 1) || bpf_probe_read_kernel(&at, sizeof at, (void *)(scan->files + (__u64)fd * 8)))
        return 0;
    if (scan->masters.generation)
        scan->found = master_side(at, &scan->masters);
    else
        scan->found = leads_out(at);
    return scan->found != 0;
}

// Searches the task's descriptors: with a sandbox for a master side, else for a socket that is connected to outside.
static __always_inline __u64 find_open(struct task_struct *task, struct same_sandbox masters)
{
    struct files_struct *files = task->files;
    struct fdtable *table = files ? files->fdt : 0;
    if (!table)
        return 0;
    struct out_scan scan = {
        .files = (__u64)table->fd, .open = (__u64)table->open_fds, .masters = masters};
    __u32 n = table->max_fds;
    scan.fd = unknown_zero; // else the verifier follows each value of fd
    scan.word = unknown_zero;
    scan.end = n < TERMINAL_FILES ? n : TERMINAL_FILES;
    bpf_loop(TERMINAL_FILES + TERMINAL_FILES / 64, out_file, &scan, 0);
    return scan.found;
}

static __noinline int report_terminal(struct terminal *t, __u64 other)
{
    struct location p = {};
    if (!t || !find(bpf_get_current_task_btf(), &p))
        return 0;
    COUNT(p.account, socket_execs);
    bool first = emit_is_first(p.box->slot, p.box->generation, other ^ p.cgroup << 32);
    struct event *e = emit_begin(p.box, p.cgroup, EVENT_TERMINAL, CLASS_ALARM,
                                 sizeof(struct watch_terminal), first);
    if (!e)
        return 0;
    struct watch_terminal *body = (void *)(e + 1);
    body->shell = t->shell;
    body->zero = 0;
    __builtin_memcpy(body->comm, t->comm, sizeof body->comm);
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    return 1;
}

// A call of the sandbox whose descriptor may be a master side. Global, so the verifier checks it once.
__noinline int look_at_terminal(__s32 fd, __u32 slot, __u32 generation)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 file = file_of(task, fd);
    if (!file || device_of(file) != DEVICE_PTMX)
        return 0;
    __u64 end = (__u64)terminal_of(file);
    struct terminal *t = bpf_map_lookup_elem(&terminals, &end);
    __u64 now = bpf_ktime_get_ns();
    if (!t || t->slot != slot || t->generation != generation || now < t->next_ns)
        return 0;
    t->next_ns = now + TERMINAL_LOOK_NS;
    if (!find_open(task, (struct same_sandbox){}))
        return 0;
    t->next_ns = t->again_ns = now + TERMINAL_AGAIN_NS;
    return report_terminal(t, end);
}

// Of a call that sends datagrams: the address of the address in the job's memory, 0: the socket is connected. Both struct
// msghdr and struct mmsghdr begin with it.
static __always_inline __u64 named_address(struct pt_regs *regs, __u32 call)
{
    __u64 at = call == __NR_sendto ? argument(regs, 4) : argument(regs, 1);
    __u64 name = 0;
    if (call == __NR_sendto)
        return at;
    if (call == __NR_sendmsg || call == __NR_sendmmsg)
        (void)bpf_probe_read_user(&name, sizeof name, (void *)at);
    return name;
}

// Global, so the verifier checks it once, like the next.
__noinline int address_is_outside(__u64 name)
{
    struct {
        __u16 family, port;
        __u32 v4, v6[4]; // struct sockaddr_in; struct sockaddr_in6 has the flow label first
    } a = {};
    if (bpf_probe_read_user(&a, 8, (void *)name))
        return false;
    if (a.family == AF_INET || a.family == 0) // sendto(2) accepts AF_UNSPEC
        return a.v4 != 0 && is_outside_v4(bpf_ntohl(a.v4), bpf_ntohs(a.port));
    return a.family == AF_INET6 && !bpf_probe_read_user(&a, sizeof a, (void *)name) &&
           (a.v6[0] | a.v6[1] | a.v6[2] | a.v6[3]) != 0 && is_outside_v6(a.v6, bpf_ntohs(a.port));
}

__noinline __u64 find_master(__u32 slot, __u32 generation)
{
    return find_open(bpf_get_current_task_btf(), (struct same_sandbox){slot, generation});
}

// A datagram was sent to the address at `name`, without connect(2). Global, so the verifier checks it once.
__noinline int look_at_datagram(__u64 name, __u32 slot, __u32 generation)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 thread = (__u32)task->pid;
    __u64 now = bpf_ktime_get_ns();
    __u64 *next = bpf_map_lookup_elem(&senders, &thread);
    if ((next && now < *next) || !address_is_outside(name))
        return 0;
    __u64 end = find_master(slot, generation);
    __u64 then = bpf_ktime_get_ns();
    then += (then - now) * SENDER_SHARE;
    bpf_map_update_elem(&senders, &thread, &then, BPF_ANY);
    struct terminal *t = end ? bpf_map_lookup_elem(&terminals, &end) : 0;
    if (!t || now < t->again_ns)
        return 0;
    t->again_ns = now + TERMINAL_AGAIN_NS;
    return report_terminal(t, end);
}
