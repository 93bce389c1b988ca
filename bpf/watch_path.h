// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: is a path sensitive? watch.h explains patterns.
//
// There are three steps, from cheap to expensive:
//
//   a hint    the text, or the names of a dentry and its parents, contain a component of some pattern: its
//             first eight bytes are looked up in the bits of "sensitive_hints". Most paths have none
//   a path    text and names are joined into one absolute path, without "." and ".."
//   a match   the hashes of its components are looked up in "sensitive" (watch_match.h)
//
// For an open, the walk starts at the opened file itself, so no symbolic link, working directory or descriptor can
// hide it. Other calls return no file: for them the text is used, and the directory that it starts from.
#pragma once

#include <linux/fcntl.h>

#include "watch_find.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct watch_hints);
} sensitive_hints SEC(".maps");

enum {
    TEXT_MAX = 4096,      // PATH_MAX
    FULL_MAX = 8192,      // a text appended to a directory
    GLANCE = 96,          // bytes that the first check reads
    HINT_CHUNK = 32,      // bytes that are checked in one step
    NAMES_MAX = 40,       // parents that are followed
    DENTRY_HEAD_MAX = 128 // of a dentry, up to the beginning of its short name
};

// A directory that has no hint in its own name or in those above it: the next calls that start there need no walk. It
// is checked again after CLEAN_USES, because a directory above it may be moved.
enum { CLEAN = 64, CLEAN_USES = 64 };
struct clean {
    __u64 dentry, mnt;
    __u32 uses;
    __u32 zero;
};

// One buffer per CPU.
struct path_scratch {
    char text[TEXT_MAX]; // as written by the job
    char full[FULL_MAX + 256];
    __u32 start; // start of the current component of the text
    // State of the path under construction: its start in `full`, the number of names that ".." removes, the length of
    // the text, and the end of the current component.
    __u32 at, skip, n, end;
    __u32 zero;
    struct clean clean[CLEAN];
    struct dentry_head {
        char bytes[DENTRY_HEAD_MAX];
    } head;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct path_scratch);
} path_scratch SEC(".maps");

static __always_inline struct path_scratch *scratch_of_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&path_scratch, &zero);
}

// ---- hints

static __always_inline bool is_hint(const struct watch_hints *hints, __u64 begin)
{
    __u32 at = watch_hint(begin);
    return hints->bits[bounded(at >> 6, WATCH_HINT_BITS / 64 - 1)] >> (at & 63) & 1;
}

// The first eight bytes of a name, or fewer.
static __always_inline __u64 cut_begin(__u64 begin, __u32 length)
{
    return length < 8 ? begin & ((1ULL << (length * 8 & 63)) - 1) : begin;
}

static __always_inline bool is_text_hint(const struct path_scratch *s,
                                         const struct watch_hints *hints, __u32 start, __u32 end)
{
    const char *at = &s->text[bounded(start, TEXT_MAX - 1)];
    __u64 begin;
    asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(begin) : "r"(at));
    return is_hint(hints, cut_begin(begin, end - start));
}

// The verifier checks the functions below that are not static once, each separately.

// Looks for hints in one chunk of the scratch buffer's text. 0: the text goes on.
enum { HINT_NONE = 1, HINT_FOUND };
__noinline int path_hint_chunk(struct path_scratch *s, const struct watch_hints *hints, __u32 chunk)
{
    if (!s || !hints)
        return HINT_NONE;
    __u32 from = chunk * HINT_CHUNK;
    const char *text = &s->text[bounded(from, TEXT_MAX - HINT_CHUNK)];
    __u32 start = s->start;
    const __u32 zero =
        unknown_zero; // else the verifier follows each start of a component on its own
#pragma unroll
    for (int i = 0; i < HINT_CHUNK; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c != '/' && c != 0)
            continue;
        if (is_text_hint(s, hints, start, from + (__u32)i))
            return HINT_FOUND;
        if (c == 0)
            return HINT_NONE;
        start = from + (__u32)i + 1 + zero;
    }
    s->start = start;
    return 0;
}

struct hint_scan {
    struct path_scratch *s;
    struct watch_hints *hints;
    __u64 result; // of the last chunk
};

static long hint_chunk(__u32 chunk, struct hint_scan *h)
{
    h->result = (__u64)path_hint_chunk(h->s, h->hints, chunk);
    return h->result != 0;
}

static __always_inline bool hint_ready(struct hint_scan *h)
{
    __u32 zero = 0;
    h->s = scratch_of_cpu();
    h->hints = bpf_map_lookup_elem(&sensitive_hints, &zero);
    if (!h->s || !h->hints)
        return false;
    h->s->start = 0;
    return true;
}

// Looks for hints in the scratch buffer's text. n: its length with the NUL.
__noinline int path_text_hints(__u32 n)
{
    struct hint_scan h = {};
    if (!hint_ready(&h) || n > TEXT_MAX)
        return 0;
    bpf_loop((n + HINT_CHUNK - 1) / HINT_CHUNK, hint_chunk, &h, 0);
    return h.result == HINT_FOUND;
}

// The same for a text in the job's memory; most texts need no more. 1: it has a hint, or is long. 0: it has none. -1:
// it cannot be read.
__noinline int path_glance(__u64 text)
{
    struct hint_scan h = {};
    if (!hint_ready(&h))
        return 0;
    long n = bpf_probe_read_user_str(h.s->text, GLANCE, (void *)text);
    if (n < 0 || n == GLANCE)
        return n < 0 ? -1 : 1;
#pragma unroll
    for (__u32 i = 0; i < GLANCE / HINT_CHUNK; i++)
        if (hint_chunk(i, &h))
            break;
    return h.result == HINT_FOUND;
}

// ---- names of a dentry and its parents, up to the root of the task

// Addresses are stored as numbers; bpf_probe_read_kernel() reads what they point to.
struct walk {
    __u64 dentry, mnt, top;      // top: the root of the mount
    __u64 root_dentry, root_mnt; // of the task
    __u64 name, begin; // of this dentry: the address and the first eight bytes of its name
    __u32 length;
    __u32 zero;
};

static __always_inline void walk_root(struct walk *w, struct task_struct *task)
{
    struct fs_struct *fs = task->fs;
    w->root_dentry = fs ? (__u64)fs->root.dentry : 0;
    w->root_mnt = fs ? (__u64)fs->root.mnt : 0;
}

// To be called before the first name, and after entering another mount.
static __always_inline bool walk_top(struct walk *w)
{
    __u64 at = w->mnt + bpf_core_field_offset(struct vfsmount, mnt_root);
    return w->mnt && w->dentry && !bpf_probe_read_kernel(&w->top, sizeof w->top, (void *)at);
}

// From a struct path. Its pointers are only read, compared and hashed as numbers.
static __always_inline bool walk_path(struct walk *w, const void *at)
{
    struct {
        __u64 mnt, dentry;
    } path = {};
    if (bpf_probe_read_kernel(&path, sizeof path, at))
        return false;
    w->mnt = path.mnt;
    w->dentry = path.dentry;
    return true;
}

static __always_inline bool walk_file(struct walk *w, __u64 file)
{
    return file && walk_path(w, (void *)(file + bpf_core_field_offset(struct file, f_path)));
}

// Goes from the root of a mount to its mount point. False: it is mounted nowhere above.
static __always_inline bool walk_across(struct walk *w)
{
    __u64 parent = 0;
    __u64 mount = w->mnt - bpf_core_field_offset(struct mount, mnt);
    if (w->mnt == w->root_mnt ||
        bpf_probe_read_kernel(&parent, sizeof parent,
                              (void *)(mount + bpf_core_field_offset(struct mount, mnt_parent))) ||
        parent == mount ||
        bpf_probe_read_kernel(
            &w->dentry, sizeof w->dentry,
            (void *)(mount + bpf_core_field_offset(struct mount, mnt_mountpoint))))
        return false;
    w->mnt = parent + bpf_core_field_offset(struct mount, mnt);
    return walk_top(w);
}

// Reads the current dentry, and goes to its parent. 1: w has a name. 0: it was the root of a mount. -1: the root of
// the task.
__noinline int path_walk_up(struct walk *w, struct dentry_head *to)
{
    if (!w || !to)
        return -1;
    char *head = to->bytes;
    const __u32 parent_at = bpf_core_field_offset(struct dentry, d_parent);
    const __u32 length_at = bpf_core_field_offset(struct dentry, d_name.len);
    const __u32 name_at = bpf_core_field_offset(struct dentry, d_name.name);
    __u32 short_at = bpf_core_field_exists(((struct dentry___short *)0)->d_shortname)
                         ? bpf_core_field_offset(struct dentry___short, d_shortname)
                         : bpf_core_field_offset(struct dentry, d_iname);
    if (w->dentry == w->root_dentry && w->mnt == w->root_mnt)
        return -1;
    if (w->dentry == w->top)
        return walk_across(w) ? 0 : -1;
    if (short_at > DENTRY_HEAD_MAX - 8 ||
        bpf_probe_read_kernel(head, short_at + 8, (void *)w->dentry))
        return -1;
    __u64 parent = *(__u64 *)(head + parent_at);
    if (parent == w->dentry)
        return -1;
    w->length = *(__u32 *)(head + length_at);
    w->name = *(__u64 *)(head + name_at);
    w->begin = *(__u64 *)(head + short_at);
    if (w->name != w->dentry + short_at &&
        bpf_probe_read_kernel(&w->begin, sizeof w->begin, (void *)w->name))
        return -1;
    w->begin = cut_begin(w->begin, w->length);
    w->dentry = parent;
    return 1;
}

// ---- a path, built from its end

static __always_inline void build_begin(struct path_scratch *s)
{
    s->at = FULL_MAX;
    s->skip = 0;
    s->n = 0;
    s->end = 0;
}

// Prepends a name, which is in kernel memory.
static __always_inline void build_name(struct path_scratch *s, const void *name, __u32 length)
{
    volatile __u32 *at = &s->at;
    volatile __u32 *skip = &s->skip;
    length = (__u32)bounded(length, 255);
    if (*skip > 0) {
        (*skip)--;
        return;
    }
    if (*at < length + 1 || *at > FULL_MAX)
        return;
    *at -= length + 1;
    __u32 to = *at;
    s->full[bounded(to, FULL_MAX - 1)] = '/';
    (void)bpf_probe_read_kernel(&s->full[bounded(to + 1, FULL_MAX - 1)], length, name);
}

static __always_inline void build_component(struct path_scratch *s, __u32 from)
{
    __u32 length = s->end - from;
    const char *name = &s->text[bounded(from, TEXT_MAX - 1)];
    bool dot = name[0] == '.';
    if (length == 0 || (dot && length == 1))
        return;
    if (dot && length == 2 && s->text[bounded(from + 1, TEXT_MAX - 1)] == '.')
        s->skip++;
    else
        build_name(s, name, length);
}

struct build {
    struct path_scratch *s;
};

// Copies backwards: the i-th byte before the end.
static long build_byte(__u32 i, struct build *b)
{
    struct path_scratch *s = b->s;
    __u32 at = s->n - 1 - i;
    if (s->text[bounded(at, TEXT_MAX - 1)] != '/')
        return 0;
    build_component(s, at + 1);
    s->end = at;
    return 0;
}

// Builds the path of the text. n: its length with the NUL.
__noinline int path_text(__u32 n)
{
    struct build b = {.s = scratch_of_cpu()};
    if (!b.s || n < 2 || n > TEXT_MAX)
        return 0;
    b.s->n = b.s->end = n - 1;
    bpf_loop(n - 1, build_byte, &b, 0);
    if (b.s->text[0] != '/')
        build_component(b.s, 0);
    return 0;
}

enum { ABOVE_HINTS, ABOVE_BUILD };

// Small: watch_sys_exit and what it calls on the way to path_walk_up() have 512 bytes of stack.
struct above {
    struct walk w;
    struct path_scratch *s;
    struct watch_hints *hints;
    __u32 what, found;
};

static long above_name(__u32 i, struct above *a)
{
    int got = path_walk_up(&a->w, &a->s->head);
    if (got <= 0)
        return got < 0;
    if (a->what == ABOVE_BUILD) {
        build_name(a->s, (const void *)a->w.name, a->w.length);
        return 0;
    }
    a->found = is_hint(a->hints, a->w.begin);
    return a->found != 0;
}

static __always_inline struct clean *clean_of(struct above *a)
{
    __u64 at = a->w.dentry >> 6 ^ a->w.dentry >> 12 ^ a->w.mnt >> 8;
    return &a->s->clean[bounded(at, CLEAN - 1)];
}

// So that the verifier sees the first name like all others, and need not follow each round of the loop.
static __always_inline void above_unknown(struct above *a)
{
    a->found = a->w.top = a->w.name = a->w.begin = unknown_zero;
    a->w.length = unknown_zero;
}

static __always_inline bool above_ready(struct above *a)
{
    __u32 zero = 0;
    a->s = scratch_of_cpu();
    a->hints = bpf_map_lookup_elem(&sensitive_hints, &zero);
    return a->s && a->hints;
}

// Whether a hint is among the names from here up.
static __always_inline bool above_hints(struct above *a)
{
    struct clean *c = clean_of(a);
    __u64 dentry = a->w.dentry, mnt = a->w.mnt;
    if (c->dentry == dentry && c->mnt == mnt && c->uses < CLEAN_USES) {
        c->uses++;
        return false;
    }
    if (!walk_top(&a->w))
        return false;
    bpf_loop(NAMES_MAX, above_name, a, 0);
    if (!a->found) {
        c->dentry = dentry;
        c->mnt = mnt;
        c->uses = 0;
    }
    return a->found;
}

static __always_inline __u64 file_of(struct task_struct *task, __s32 fd)
{
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    __u64 file = 0;
    if (!table || fd < 0 || (__u32)fd >= BPF_CORE_READ(table, max_fds) ||
        bpf_probe_read_kernel(&file, sizeof file,
                              (void *)((__u64)BPF_CORE_READ(table, fd) + (__u64)(__u32)fd * 8)))
        return 0;
    return file;
}

// From a file upward: looks for a hint among the names, or builds the path. 1: a hint was found.
__noinline int path_above_file(__u64 file, __u32 what)
{
    struct above a = {.what = what};
    above_unknown(&a);
    walk_root(&a.w, bpf_get_current_task_btf());
    if (!above_ready(&a) || !walk_file(&a.w, file) || !walk_top(&a.w))
        return 0;
    if (what == ABOVE_BUILD) {
        bpf_loop(NAMES_MAX, above_name, &a, 0);
        return 0;
    }
    return above_name(0, &a) ? a.found != 0 : above_hints(&a);
}

// The same from the directory that a relative path starts from.
__noinline int path_above_base(__s32 at, __u32 what)
{
    struct above a = {.what = what};
    above_unknown(&a);
    struct task_struct *task = bpf_get_current_task_btf();
    struct fs_struct *fs = task->fs;
    walk_root(&a.w, task);
    if (!fs || (at == AT_FDCWD ? !walk_path(&a.w, &fs->pwd) : !walk_file(&a.w, file_of(task, at))))
        return 0;
    if (!above_ready(&a)) // last, so that less is on the stack
        return 0;
    if (what != ABOVE_BUILD)
        return above_hints(&a);
    if (walk_top(&a.w))
        bpf_loop(NAMES_MAX, above_name, &a, 0);
    return 0;
}
