// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For the programs of watch.bpf.c: the executable of a process, and the profiles that its calls are compared with.
#pragma once

#include "watch_find.h"

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WATCH_EXES);
    __type(key, struct watch_exe_key);
    __type(value, struct watch_exe);
} exes SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, WATCH_PROFILES);
    __type(key, __u32);
    __type(value, struct watch_profile_state);
} profile_states SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, WATCH_PROFILES);
    __type(key, __u32);
    __type(value, struct watch_profile);
} profiles SEC(".maps");

// The state of a thread, indexed by the low bits of its id; id and start time identify it.
struct thread {
    __u64 start_ns;
    __u32 tid;          // 0: unused
    __u16 before, last; // calls; NO_CALL: none yet
    __u16 profile;      // 0: none
    __u8 seen, unseen;  // in this window: trigrams, and those that are not in the profile
    __u8 reported;
    __u8 zero[3];
};
_Static_assert(sizeof(struct thread) == 24 && WATCH_WINDOW < 256, "small");

enum { NO_CALL = 0xffff };

static struct thread threads[WATCH_THREADS];

// Programs can only be loaded in the initial user namespace (they need CAP_BPF there), so the spawner is in it, and
// the namespaces of sandboxes are one level below.
enum {
    SANDBOX_USERNS_LEVEL = 1,
    USERNS_LEVELS = 33, // the kernel's limit of nesting (kernel/user_namespace.c)
};

// Maps a uid of the host into the sandbox's user namespace. It ignores nested namespaces, in which a job could choose
// the uid.
__noinline __u32 exe_uid_inside(__u32 uid)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct user_namespace *ns = BPF_CORE_READ(task, cred, user_ns);
    for (int i = 0; i < USERNS_LEVELS; i++) {
        if (BPF_CORE_READ(ns, level) <= SANDBOX_USERNS_LEVEL)
            break;
        ns = BPF_CORE_READ(ns, parent);
    }
    struct uid_gid_extent extent[5];
    __u32 n = BPF_CORE_READ(ns, uid_map.nr_extents);
    if (bpf_core_read(extent, sizeof extent, &ns->uid_map.extent))
        return ~0U;
#pragma unroll
    for (__u32 i = 0; i < 5; i++) {
        if (i < n && n <= 5 && uid - extent[i].lower_first < extent[i].count)
            return uid - extent[i].lower_first + extent[i].first;
    }
    return ~0U;
}

// False: the process has no executable (any more).
static __always_inline bool exe_key(struct task_struct *task, __u32 template,
                                    struct watch_exe_key *key)
{
    struct file *file = BPF_CORE_READ(task, mm, exe_file);
    if (!file)
        return false;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    key->inode = BPF_CORE_READ(inode, i_ino);
    key->size = (__u64)BPF_CORE_READ(inode, i_size);
    key->magic = BPF_CORE_READ(inode, i_sb, s_magic);
    key->template = template;
    key->owner = exe_uid_inside(BPF_CORE_READ(inode, i_uid.val));
    return true;
}

// No link leads to the file, or not the link by which it was opened: it was deleted, or is a memfd.
static __always_inline bool exe_nameless(struct task_struct *task)
{
    struct file *file = BPF_CORE_READ(task, mm, exe_file);
    if (!file)
        return false;
    return BPF_CORE_READ(file, f_inode, i_nlink) == 0 ||
           !BPF_CORE_READ(file, f_path.dentry, d_hash.pprev);
}

// A job can make files with its own uid only. Files of the sandbox's root, or of an unmapped owner, belong to the
// host.
static __always_inline bool exe_is_own(const struct watch_exe_key *key)
{
    return key->owner != 0 && key->owner != ~0U;
}

// True if the template's profile is frozen and does not contain the executable.
static __always_inline bool exe_is_new(__u32 watch, const struct watch_exe_key *key,
                                       const struct watch_exe *exe)
{
    return !exe && watch & (exe_is_own(key) ? WATCH_NEW_OWN : WATCH_NEW);
}

static __always_inline struct thread *profile_thread(struct task_struct *task)
{
    return &threads[bounded((__u32)task->pid, WATCH_THREADS - 1)];
}

static __always_inline bool profile_is_of(const struct thread *t, struct task_struct *task)
{
    return t->tid == (__u32)task->pid && t->start_ns == task->start_time;
}

// The end of a window: adds its counts to the profile.
static __always_inline void profile_flush(struct thread *t)
{
    __u32 at = t->profile;
    struct watch_profile_state *state = bpf_map_lookup_elem(&profile_states, &at);
    if (state && at && t->seen) {
        __sync_fetch_and_add(&state->trigrams, t->seen);
        __sync_fetch_and_add(&state->windows, 1);
        if (t->unseen)
            __sync_fetch_and_add(&state->unseen, t->unseen);
    }
    t->seen = t->unseen = t->reported = 0;
}

// A thread makes its first call, or executes another program (exe: it is in "exes").
static __always_inline void profile_begin(struct thread *t, struct task_struct *task,
                                          const struct watch_exe *exe)
{
    t->tid = (__u32)task->pid;
    t->start_ns = task->start_time;
    t->before = t->last = NO_CALL;
    t->profile = exe && exe->profile < WATCH_PROFILES ? (__u16)exe->profile : 0;
    t->seen = t->unseen = t->reported = 0;
}

// The thread has ended, or has executed something else.
static __always_inline void profile_end(struct task_struct *task)
{
    struct thread *t = profile_thread(task);
    if (!profile_is_of(t, task))
        return;
    profile_flush(t);
    t->tid = 0;
}

// Global, like the next three, so the verifier checks it once.
__noinline int profile_first_sight(struct thread *t, struct watch_account *account)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (!t || !account)
        return 0;
    if (t->tid) // of a living thread: ended threads clear theirs
        COUNT(account, evicted);
    struct watch_exe_key key = {};
    struct watch_exe *exe = 0;
    if (exe_key(task, account->template, &key))
        exe = bpf_map_lookup_elem(&exes, &key);
    else
        COUNT(account, failures);
    profile_begin(t, task, exe);
    return 0;
}

enum { REPORTED_SEQUENCE = 1, REPORTED_REFUSAL = 2 }; // thread.reported

__noinline int profile_report(struct thread *t, struct watch_profile_state *state, __u32 call,
                              __u32 what)
{
    struct location p;
    if (!t || !state || !find(bpf_get_current_task_btf(), &p))
        return 0;
    t->reported |= what;
    __sync_fetch_and_add(&state->alerts, 1);
    struct event *e = emit_begin(p.box, p.cgroup, EVENT_PROFILE, CLASS_PROFILE,
                                 sizeof(struct watch_score), false);
    if (!e)
        return 0;
    struct watch_score *score = (void *)(e + 1);
    score->profile = t->profile;
    score->unseen = t->unseen;
    score->window = t->seen;
    score->last[0] = what == REPORTED_REFUSAL ? WATCH_REFUSED : t->before;
    score->last[1] = what == REPORTED_REFUSAL ? WATCH_REFUSED : t->last;
    score->last[2] = call;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    return 0;
}

// Compares a refused call with the profile, or adds it.
__noinline int profile_refused(struct thread *t, __u32 call)
{
    if (!t)
        return 0;
    __u32 at = t->profile;
    struct watch_profile_state *state = bpf_map_lookup_elem(&profile_states, &at);
    struct watch_profile *profile = bpf_map_lookup_elem(&profiles, &at);
    if (!at || !state || !profile)
        return 0;
    __u32 bit = watch_trigram(WATCH_REFUSED, WATCH_REFUSED, call);
    __u64 *word = &profile->bits[bounded(bit >> 6, WATCH_PROFILE_BITS / 64 - 1)];
    __u64 mask = 1ULL << (bit & 63);
    if (*word & mask)
        return 0;
    if (state->mode == WATCH_PROFILE_LEARN)
        __sync_fetch_and_or(word, mask);
    else if (state->mode == WATCH_PROFILE_JUDGE && !(t->reported & REPORTED_REFUSAL))
        profile_report(t, state, call, REPORTED_REFUSAL);
    return 0;
}

// Compares one call of a thread with the profile of its executable, or adds it.
static __always_inline int profile_call(struct watch_account *account, __u32 call, __u32 refused)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (!account)
        return 0;
    struct thread *t = profile_thread(task);
    if (!profile_is_of(t, task))
        profile_first_sight(t, account);
    __u32 at = t->profile;
    struct watch_profile_state *state = bpf_map_lookup_elem(&profile_states, &at);
    struct watch_profile *profile = bpf_map_lookup_elem(&profiles, &at);
    if (!at || !state || !profile)
        return 0;
    __u32 mode = state->mode;
    if (refused)
        profile_refused(t, call);
    if (t->before != NO_CALL && mode != WATCH_PROFILE_OFF) {
        __u32 bit = watch_trigram(t->before, t->last, call);
        __u64 *word = &profile->bits[bounded(bit >> 6, WATCH_PROFILE_BITS / 64 - 1)];
        __u64 mask = 1ULL << (bit & 63);
        t->seen++;
        if (!(*word & mask)) {
            t->unseen++;
            if (mode == WATCH_PROFILE_LEARN) {
                __sync_fetch_and_or(word, mask);
                if (t->unseen > state->most)
                    state->most = t->unseen;
            } else if (t->unseen > state->threshold && !(t->reported & REPORTED_SEQUENCE)) {
                profile_report(t, state, call, REPORTED_SEQUENCE);
            }
        }
        if (t->seen >= WATCH_WINDOW)
            profile_flush(t);
    }
    t->before = t->last;
    t->last = (__u16)call;
    return 0;
}
