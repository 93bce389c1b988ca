// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For the programs of watch.bpf.c: finds the sandbox and the cgroup of a task, and the account that counts it.
//
// The cgroup of a task is three pointers away. Its ancestors at the level of the sandboxes and one level below decide
// which job it belongs to, however deep a job nests. They are read once per cgroup, and cached by its id:
//
//   recent   direct-mapped, one word each: id of a cgroup (of any level below) and number of its account, or OUTSIDE. Ids
//            are never used again, so an entry cannot become wrong while a process is in the cgroup. Or UNBORN: the sandbox
//            was not in the table of sandboxes yet, as during its birth, when it makes hundreds of calls
//   cells    hash: id of the cgroup directly below a sandbox -> account
//   guesses  by the low bits of a thread's id: number of the account that counted it last, verified by the account's
//            own id. The CPU reads it in parallel with the pointers to the cgroup, not after them
//
// Here and in the programs, pointers of the kernel are followed with BPF_CORE_READ. The verifier could do it by their types, but
// it then compares names with all types of the kernel for each pointer on each path that it follows (btf_nested_type_is_trusted,
// kernel/bpf/btf.c), which took half of the time to load the programs. What each system call passes (watch_sys_exit) is the exception.
#pragma once

#include "vmlinux_min.h"
#include "emit.h"
#include "watch.h"

enum {
    RECENT = 4096,
    RECENT_BITS = 14,
    OUTSIDE = WATCH_ACCOUNTS,
    UNBORN,
    GUESSES = 8192,
};
_Static_assert(UNBORN < 1 << RECENT_BITS, "fits beside the id");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WATCH_ACCOUNTS);
    __type(key, __u64);
    __type(value, struct watch_cell);
} cells SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, WATCH_ACCOUNTS);
    __type(key, __u32);
    __type(value, struct watch_account);
} accounts SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, WATCH_ACCOUNTS);
    __type(value, __u32);
} accounts_free SEC(".maps");
// Global variables need no lookup and no key in memory.
static volatile __u64 recent[RECENT];
static volatile __u32 guesses[GUESSES];
// 0, and the verifier does not know it. Before Linux 6.7 it checks the callback of a bpf_loop for the first round only, and
// removes the branches that the values of that round rule out. So what a later round branches on begins with this.
static volatile __u32 unknown_zero;

struct location {
    __u64 sandbox;                 // id of the sandbox's cgroup
    __u64 cgroup;                  // id of the cgroup directly below it, or its own
    struct bpf_sandbox *box;       // entry of the sandbox
    struct watch_account *account; // NULL: none was free
};

// An index with only the bits of `mask`. In assembler, because the compiler would remove a mask that it can prove
// unnecessary, and the verifier needs it.
static __always_inline __u64 bounded(__u64 index, const __u64 mask)
{
    asm volatile("%0 &= %1" : "+r"(index) : "i"(mask));
    return index;
}

// The number of the account of a cgroup; OUTSIDE; UNBORN; or a larger number if it is not cached.
static __always_inline __u64 recent_get(__u64 cgroup)
{
    return recent[bounded(cgroup, RECENT - 1)] ^ cgroup << RECENT_BITS;
}

static __always_inline void recent_put(__u64 cgroup, __u32 number)
{
    recent[bounded(cgroup, RECENT - 1)] = cgroup << RECENT_BITS | number;
}

// Finds the ids for a cgroup at the sandboxes' level or below. False: the cgroup is not in a sandbox.
static __always_inline bool find_ids(struct cgroup *at, __u64 own, __u64 *sandbox, __u64 *cgroup)
{
    if (sandbox_parent && ancestor_id(at, sandbox_level - 1) != sandbox_parent) {
        recent_put(own, OUTSIDE);
        return false;
    }
    *sandbox = ancestor_id(at, sandbox_level);
    *cgroup = (__u32)BPF_CORE_READ(at, level) == sandbox_level ? *sandbox
                                                               : ancestor_id(at, sandbox_level + 1);
    return true;
}

// One helper clears an account: the verifier would follow each round of a loop over its words, in each program.
static const struct watch_account empty_account;

// Clears everything, then sets the id: until then nobody takes it for an account of this cgroup.
static __always_inline void account_begin(struct watch_account *account,
                                          const struct bpf_sandbox *box, __u64 cgroup)
{
    (void)bpf_probe_read_kernel(account, sizeof *account, &empty_account);
    account->slot = box->slot;
    account->generation = box->generation;
    account->template = box->template;
    account->watch = box->watch;
    __sync_lock_test_and_set(&account->cgroup, cgroup);
}

// A new account for a cgroup directly below a sandbox. On failure no account is used up.
static __always_inline bool account_new(__u64 cgroup, const struct bpf_sandbox *box, __u32 *number)
{
    if (bpf_map_pop_elem(&accounts_free, number))
        return false;
    struct watch_account *account = bpf_map_lookup_elem(&accounts, number);
    if (!account)
        return false;
    account_begin(account, box, cgroup);
    struct watch_cell cell = {.account = *number, .slot = box->slot, .generation = box->generation};
    if (bpf_map_update_elem(&cells, &cgroup, &cell, BPF_NOEXIST) == 0)
        return true;
    account->cgroup = 0;
    bpf_map_push_elem(&accounts_free, number, 0);
    struct watch_cell *known = bpf_map_lookup_elem(&cells, &cgroup); // another CPU was faster
    if (known)
        *number = known->account;
    return known;
}

// What locate() finds, as numbers.
struct owner {
    __u64 sandbox, cgroup; // as in struct location
    __u32 account;         // WATCH_ACCOUNTS: none
    __u32 zero;
};

static __always_inline __u32 account_of(__u64 cgroup, const struct bpf_sandbox *box)
{
    struct watch_cell *known = bpf_map_lookup_elem(&cells, &cgroup);
    __u32 number = known ? known->account : 0;
    if (!known && !account_new(cgroup, box, &number)) {
        emit_lost(box->slot, CLASS_UNCOUNTED);
        return WATCH_ACCOUNTS;
    }
    struct watch_account *account = bpf_map_lookup_elem(&accounts, &number);
    if (!account)
        return WATCH_ACCOUNTS;
    // Copies the flags that the broker has changed.
    __u32 watch = box->watch | (account->watch & WATCH_TERMINAL);
    if (account->watch != watch)
        account->watch = watch;
    return number;
}

// Where the cgroup at this address is. 0: in no sandbox of the table. Not static: the verifier checks it once, not on each path of each
// program. That is why it returns numbers, and its callers look up again what they stand for.
__noinline int locate(__u64 address, struct owner *owner)
{
    struct cgroup *at = (struct cgroup *)address;
    if (!owner)
        return false;
    __u64 own = BPF_CORE_READ(at, kn, id);
    if ((__u32)BPF_CORE_READ(at, level) < sandbox_level || recent_get(own) == OUTSIDE)
        return false;
    __u64 sandbox = 0, cgroup = 0;
    if (!find_ids(at, own, &sandbox, &cgroup))
        return false;
    owner->sandbox = sandbox;
    owner->cgroup = cgroup;
    struct bpf_sandbox *box = bpf_map_lookup_elem(&sandboxes, &sandbox);
    if (!box)
        return false;
    __u32 account = account_of(cgroup, box);
    owner->account = account;
    if (account != WATCH_ACCOUNTS)
        recent_put(own, account);
    return true;
}

// False: the task is not in a sandbox.
static __noinline int find(struct task_struct *task, struct location *p)
{
    struct owner owner = {};
    const int found = locate((__u64)BPF_CORE_READ(task, cgroups, dfl_cgrp), &owner);
    p->sandbox = owner.sandbox;
    p->cgroup = owner.cgroup;
    p->account = 0;
    p->box = found ? bpf_map_lookup_elem(&sandboxes, &owner.sandbox) : 0;
    if (!p->box)
        return false;
    p->account = bpf_map_lookup_elem(&accounts, &owner.account);
    return true;
}

// Whether the current task's cgroup is known to be in no sandbox, or in one that still is not in the table: one lookup, and no
// pointer is followed if the cgroup is the sandbox's own. Not static: the verifier checks it once, not on each path.
__noinline int is_uncounted(__u64 own, __u32 level)
{
    __u64 which = recent_get(own);
    __u64 sandbox = own;
    if (which != UNBORN)
        return which == OUTSIDE;
    if (level != sandbox_level)
        sandbox = ancestor_id(BPF_CORE_READ(bpf_get_current_task_btf(), cgroups, dfl_cgrp),
                              sandbox_level);
    return !bpf_map_lookup_elem(&sandboxes, &sandbox);
}

// The account of the current cgroup, which is not cached yet. NULL: not in a sandbox, or no account was free.
static __noinline struct watch_account *first_sight(void)
{
    struct location p = {};
    struct task_struct *task = bpf_get_current_task_btf();
    if (find(task, &p))
        return p.account;
    if (p.sandbox && !p.box)
        recent_put(BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id), UNBORN);
    return 0;
}

// Adds one to a counter of an account that may be NULL.
#define COUNT(account, field)                                                                      \
    do {                                                                                           \
        if (account)                                                                               \
            __sync_fetch_and_add(&(account)->field, 1);                                            \
    } while (0)
