// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: detects that the dynamic loader maps a library of the sandbox into a program because of
// LD_PRELOAD, LD_AUDIT, LD_LIBRARY_PATH, or the equivalent options of ld.so.
//
//   exec             looks for these in arguments and environment, and stores what it finds in "loading"
//   mmap             of code from a file, while the loader runs: checks the owner of the file. The check uses the file itself, so a
//                    symbolic link, a relative path or $ORIGIN hides nothing
//
// The loader maps preloaded libraries before all others, in order, as many files as LD_PRELOAD has entries. So a
// program may preload a library of the host and later load modules of the sandbox. Benign builds use LD_LIBRARY_PATH
// to run what they have built. It counts only if a program of the host gets a library of the sandbox that it is
// linked with: these are mapped before set_tid_address, which the loader of glibc calls afterwards.
#pragma once

#include <linux/mman.h>

#include "watch_exe.h"
#include "watch_files.h"

enum {
    LOADING = 8192,
    // of arguments and environment; an exec with more is treated as one that preloads
    LOAD_STRINGS = 8192,
    LOAD_STRING = 256,
    LOAD_AUDIT = 16, // files that audit libraries map before the preloaded ones
    LOAD_UNKNOWN = 64,
};

struct loading {
    __u64 start_ns;   // of the process
    __u64 last_inode; // its address; several segments of one file count once
    __u32 left;       // number of files that may still be preloaded
    __u8 paths;       // LD_LIBRARY_PATH, for a program of the host
    __u8 program;     // ld.so was executed: the first file is the program
    __u8 zero[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, LOADING);
    __type(key, __u32);
    __type(value, struct loading);
} loading SEC(".maps");

struct load_text {
    char text[LOAD_STRING];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct load_text);
} load_scratch SEC(".maps");

struct load_scan {
    __u64 at, end;
    struct load_text *s;
    __u32 left;
    __u8 paths, program;
    __u8 inside; // the previous read ended inside a long string
    __u8 option; // the next string is the value of --preload
};

static __always_inline __u64 load_word(const struct load_text *s, __u32 at)
{
    __u64 word;
    __builtin_memcpy(&word, s->text + at, sizeof word);
    return word;
}

#define WORD(a, b, c, d, e, f, g, h)                                                               \
    ((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |       \
     (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

// 1: equal. 0: not. Without a branch, which the verifier would follow for each byte of a text.
static __always_inline __u32 same_byte(unsigned char a, unsigned char b)
{
    return ((__u32)(a ^ b) - 1) >> 31;
}

// The number of files that the value of LD_PRELOAD in the scratch buffer may name. Global, as others here, so the
// verifier checks it once.
__noinline __u32 load_entries(__u64 n)
{
    __u32 zero = 0;
    __u32 entries = 1;
    struct load_text *s = bpf_map_lookup_elem(&load_scratch, &zero);
    if (!s || n == LOAD_STRING)
        return LOAD_UNKNOWN;
    for (__u32 i = 0; i < LOAD_STRING; i++) {
        unsigned char c = (unsigned char)s->text[i];
        if (c == 0)
            break;
        entries += same_byte(c, ':') + same_byte(c, ' ');
    }
    return entries;
}

static __always_inline void load_string(struct load_scan *l, long n)
{
    __u64 word = load_word(l->s, 0);
    if (l->option) {
        l->option = 0;
        l->left += load_entries((__u64)n);
    } else if (word == WORD('L', 'D', '_', 'P', 'R', 'E', 'L', 'O')) {
        l->left += n > (long)sizeof "LD_PRELOAD=" ? load_entries((__u64)n) : 0;
    } else if (word == WORD('L', 'D', '_', 'A', 'U', 'D', 'I', 'T')) {
        l->left += n > (long)sizeof "LD_AUDIT=" ? load_entries((__u64)n) + LOAD_AUDIT : 0;
    } else if (word == WORD('L', 'D', '_', 'L', 'I', 'B', 'R', 'A')) {
        // ldd sets LD_LIBRARY_VERSION, which names no library
        if (load_word(l->s, 8) == WORD('R', 'Y', '_', 'P', 'A', 'T', 'H', '='))
            l->paths = n > (long)sizeof "LD_LIBRARY_PATH=";
    } else if (word == WORD('-', '-', 'p', 'r', 'e', 'l', 'o', 'a')) {
        l->program = l->option = 1;
    } else if (word == WORD('-', '-', 'a', 'u', 'd', 'i', 't', 0)) {
        l->program = l->option = 1;
        l->left += LOAD_AUDIT;
    } else if (word == WORD('-', '-', 'l', 'i', 'b', 'r', 'a', 'r')) {
        l->program = l->paths = 1;
    }
}

static long load_next(__u32 i, struct load_scan *l)
{
    if (l->at >= l->end)
        return 1;
    long n = bpf_probe_read_user_str(l->s->text, LOAD_STRING, (void *)l->at);
    if (n <= 0)
        return 1;
    if (!l->inside)
        load_string(l, n);
    // A truncated string: the only NUL is the one that the helper wrote.
    l->inside = n == LOAD_STRING;
    l->at += (__u64)(n == LOAD_STRING ? n - 1 : n);
    return 0;
}

// The first instruction is the program's own: no loader runs before it. 1: the program is at a fixed address, so it is no loader
// either, and LD_LIBRARY_PATH is for the programs that it executes. Valgrind is one; it maps the program that it runs. 2: it may be a
// loader that was executed as a program: loaders have no fixed address.
static __always_inline int begins_itself(struct task_struct *task)
{
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    const __u64 at = BPF_CORE_READ(regs, PROGRAM_COUNTER);
    if (at < BPF_CORE_READ(task, mm, start_code) || at >= BPF_CORE_READ(task, mm, end_code))
        return 0;
    return at < 1ULL << 32 ? 1 : 2;
}

// own: the program is a file of the sandbox.
__noinline int load_begins(__u32 own)
{
    __u32 zero = 0;
    struct task_struct *task = bpf_get_current_task_btf();
    struct mm_struct *mm = task->mm;
    __u32 tgid = (__u32)task->tgid;
    struct load_scan l = {.s = bpf_map_lookup_elem(&load_scratch, &zero)};
    if (!l.s || !mm)
        return 0;
    l.at = mm->arg_start;
    l.end = mm->env_end;
    l.inside = l.option = (__u8)unknown_zero;
    bpf_loop(LOAD_STRINGS, load_next, &l, 0);
    if (l.at < l.end)
        l.left = LOAD_UNKNOWN;
    const int itself = begins_itself(task);
    if (itself == 1)
        l.paths = 0;
    if (l.left == 0 && (!l.paths || own)) {
        bpf_map_delete_elem(&loading, &tgid);
        return 0;
    }
    struct loading to = {.start_ns = BPF_CORE_READ(task, group_leader, start_time),
                         .left = l.left,
                         .paths = l.paths && !own,
                         .program = l.program || itself == 2};
    return (int)bpf_map_update_elem(&loading, &tgid, &to, BPF_ANY);
}

static __always_inline struct loading *loading_of(struct task_struct *task)
{
    __u32 tgid = (__u32)task->tgid;
    struct loading *l = bpf_map_lookup_elem(&loading, &tgid);
    return l && l->start_ns == BPF_CORE_READ(task, group_leader, start_time) ? l : 0;
}

static __always_inline void load_ends(void)
{
    struct loading *l = loading_of(bpf_get_current_task_btf());
    if (l)
        l->paths = 0;
}

static __noinline int report_preload(__u64 file)
{
    struct named f = {.op = WATCH_FILE_PRELOAD};
    struct path_scratch *s = scratch_of_cpu();
    if (!s)
        return 0;
    build_begin(s);
    path_above_file(file, ABOVE_BUILD);
    return report_file(&f, s);
}

static __always_inline bool is_own_file(__u64 file)
{
    struct watch_exe_key key = {
        .owner = exe_uid_inside(BPF_CORE_READ((struct file *)file, f_inode, i_uid.val))};
    return exe_is_own(&key);
}

// Code was mapped from a file.
static __noinline int mapped(struct pt_regs *regs, long result)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (!(argument(regs, 2) & PROT_EXEC) || (__u64)result >= -KERNEL_ERRORS)
        return 0;
    struct loading *l = loading_of(task);
    __u64 file = l ? file_of(task, (__s32)argument(regs, 4)) : 0;
    if (!l || !file || (l->left == 0 && !l->paths))
        return 0;
    __u64 inode = (__u64)BPF_CORE_READ((struct file *)file, f_inode);
    if (inode == l->last_inode)
        return 0;
    l->last_inode = inode;
    bool own = is_own_file(file);
    if (l->program) {
        l->program = 0;
        l->paths = l->paths && !own;
        return 0;
    }
    bool found = own && (l->left > 0 || l->paths);
    if (l->left > 0)
        l->left--;
    return found ? report_preload(file) : 0;
}
