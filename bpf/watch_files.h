// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For watch.bpf.c: calls that name a file. Opened, created, moved and removed files are counted. An access to a
// sensitive path is reported, however the job wrote the path (watch_path.h).
#pragma once

#include <linux/fcntl.h>
#include <linux/stat.h>

#include "watch_calls.h"
#include "watch_match.h"

static __always_inline __u64 argument(struct pt_regs *regs, int n)
{
#if defined(__TARGET_ARCH_x86)
    return n == 0   ? regs->di
           : n == 1 ? regs->si
           : n == 2 ? regs->dx
           : n == 3 ? regs->r10
                    : regs->r8;
#else
    return n == 0 ? regs->orig_x0 : regs->regs[n];
#endif
}

static __always_inline __u64 number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
    return regs->orig_ax;
#else
    return (__u32)regs->syscallno;
#endif
}

enum { RENAME_EXCHANGE = 2 }; // linux/fs.h: the file of the new name gets the old one

// A path as a call names it. Contains numbers only, so that functions that are verified separately can take it.
struct named {
    __u64 text;   // address of the text; 0: none
    __u64 walked; // the open file, if the call returned one; see struct walk
    __s32 at; // the directory that a relative path starts from: a descriptor, AT_FDCWD or NOWHERE
    __u32 op; // enum watch_file_op
    __u32 flags;
    __s32 result;
    __u32 n;         // length of the text in the scratch buffer, with its NUL; 0: unreadable
    __u32 rule;      // the rule that it matches
    __u32 in_kernel; // whether the text is in kernel memory
    __u32 base_only; // use only the directory `at`, without the text
};

enum { NOWHERE = -1 };

// Shows the end of the path: the sensitive part is there.
static __always_inline void show_built(struct watch_open *body, const struct path_scratch *s)
{
    __u32 n = FULL_MAX - s->at;
    __u32 from = n < WATCH_PATH ? s->at : FULL_MAX - WATCH_PATH + 1;
    body->resolved_n = n < WATCH_PATH ? n : WATCH_PATH - 1;
    (void)bpf_probe_read_kernel(body->resolved, sizeof body->resolved,
                                &s->full[bounded(from, FULL_MAX - 1)]);
}

enum { MADE_HERE = 0x100000 }; // FMODE_CREATED (linux/fs.h): the open made the file

// Which job made a file, by the mark of its inode: the id of its cgroup. A file that takes the place of another one in memory and on the
// disk was created, too, so its maker takes the place of the other.
enum { MADE_FILES = 16384 };
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, MADE_FILES);
    __type(key, __u64);
    __type(value, __u64);
} made_files SEC(".maps");

// Which file it is. Its address is its own while it is in memory, and a number is its own in its file system. Not inline: its stack is
// not added to those of the calls below (Linux 6.1 allows 512 bytes for a chain of them).
static __noinline int identify(__u64 file, struct watch_open *body)
{
    const __u64 golden = 0x9e3779b97f4a7c15ULL;
    __u32 mode = 0;
    __u16 type = 0;
    __u64 inode = 0, number = 0;
    if (!body || !file ||
        bpf_probe_read_kernel(&mode, sizeof mode,
                              (void *)(file + bpf_core_field_offset(struct file, f_mode))) ||
        bpf_probe_read_kernel(&inode, sizeof inode,
                              (void *)(file + bpf_core_field_offset(struct file, f_inode))) ||
        bpf_probe_read_kernel(&type, sizeof type,
                              (void *)(inode + bpf_core_field_offset(struct inode, i_mode))) ||
        bpf_probe_read_kernel(&number, sizeof number,
                              (void *)(inode + bpf_core_field_offset(struct inode, i_ino))))
        return 0;
    body->made = (mode & MADE_HERE) != 0;
    body->folder = (type & S_IFMT) == S_IFDIR;
    body->file = inode ^ number * golden;
    return 1;
}

static __noinline int is_made_by(__u64 mark, __u64 cgroup)
{
    __u64 *maker = mark ? bpf_map_lookup_elem(&made_files, &mark) : 0;
    return maker && *maker == cgroup;
}

static __noinline int note_made(__u64 file, struct watch_account *account)
{
    const __u64 golden = 0x9e3779b97f4a7c15ULL;
    __u32 mode = 0;
    __u64 inode = 0, number = 0;
    if (!account || !file ||
        bpf_probe_read_kernel(&mode, sizeof mode,
                              (void *)(file + bpf_core_field_offset(struct file, f_mode))) ||
        !(mode & MADE_HERE) ||
        bpf_probe_read_kernel(&inode, sizeof inode,
                              (void *)(file + bpf_core_field_offset(struct file, f_inode))) ||
        bpf_probe_read_kernel(&number, sizeof number,
                              (void *)(inode + bpf_core_field_offset(struct inode, i_ino))))
        return 0;
    __u64 mark = inode ^ number * golden;
    __u64 maker = account->cgroup;
    bpf_map_update_elem(&made_files, &mark, &maker, BPF_ANY);
    return 0;
}

static __noinline int report_file(struct named *f, struct path_scratch *s)
{
    struct location p = {};
    if (!f || !s || !find(bpf_get_current_task_btf(), &p))
        return 0;
    if (f->op == WATCH_FILE_PRELOAD)
        COUNT(p.account, preloads);
    else if (f->op == WATCH_FILE_LOOK && f->rule < WATCH_SENSITIVE_WRITTEN)
        COUNT(p.account, looks_sensitive);
    else if (f->rule < WATCH_SENSITIVE_WRITTEN)
        COUNT(p.account, opens_sensitive);
    bool first = emit_is_first(p.box->slot, p.box->generation,
                               p.cgroup ^ (__u64)f->rule << 40 ^ (__u64)f->op << 56);
    struct event *e =
        emit_begin(p.box, p.cgroup, EVENT_OPEN, CLASS_FILE, sizeof(struct watch_open), first);
    if (!e)
        return 0;
    struct watch_open *body = (void *)(e + 1);
    body->flags = f->flags;
    body->result = f->result;
    body->rule = f->rule;
    body->op = f->op;
    body->made = 0;
    body->folder = 0;
    body->file = 0;
    if (identify(f->walked, body) && !body->made && is_made_by(body->file, p.cgroup))
        body->made = 2;
    body->path_n = f->n == 0 ? 0 : f->n <= WATCH_PATH ? f->n - 1 : WATCH_PATH - 1;
    (void)bpf_probe_read_kernel(body->path, sizeof body->path, s->text);
    show_built(body, s);
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
    return 0;
}

// Of two matches: the sensitive one, or the only one.
static __always_inline int better_of(int rule, int later)
{
    return later != 0 && (rule == 0 || !path_goes_on((__u32)later)) ? later : rule;
}

// Checks a path. For an opened file, the walk shows everything that the text can show, except the names of symbolic
// links. For other calls, the text is appended to its base directory and checked. A sensitive base directory was
// reported when it was opened or became the working directory. Returns the rule's number + 1; 0: none.
static __always_inline int look_at(const struct named *f, struct path_scratch *s)
{
    int rule = 0;
    if (f->walked && path_above_file(f->walked, ABOVE_HINTS)) {
        build_begin(s);
        path_above_file(f->walked, ABOVE_BUILD);
        rule = path_match(f->result);
    }
    if (!path_goes_on((__u32)rule))
        return rule;
    if (f->base_only) {
        if (!path_above_base(f->at, ABOVE_HINTS))
            return rule;
        build_begin(s);
        path_above_base(f->at, ABOVE_BUILD);
        return better_of(rule, path_match(f->result));
    }
    if (f->n < 2 || !path_text_hints(f->n))
        return rule;
    bool based = s->text[0] != '/' && f->at != NOWHERE;
    build_begin(s);
    path_text(f->n);
    if (based)
        path_above_base(f->at, ABOVE_BUILD);
    return better_of(rule, path_match(f->result));
}

// Global, so the verifier checks it once.
__noinline int path_named(struct named *f)
{
    struct path_scratch *s = scratch_of_cpu();
    if (!f || !s)
        return 0;
    long n = f->in_kernel ? bpf_probe_read_kernel_str(s->text, sizeof s->text, (void *)f->text)
                          : bpf_probe_read_user_str(s->text, sizeof s->text, (void *)f->text);
    f->n = n > 0 && n <= TEXT_MAX ? (__u32)n : 0;
    int rule = look_at(f, s);
    if (rule == 0)
        return 0;
    f->rule = (__u32)rule - 1;
    report_file(f, s);
    return 1;
}

// Notes that an existing file's content is about to be replaced.
static __noinline int rewritten(__u64 file, struct watch_account *account)
{
    __u32 mode = 0;
    __u16 type = 0;
    __u64 inode = 0, number = 0;
    if (!account || !file ||
        bpf_probe_read_kernel(&mode, sizeof mode,
                              (void *)(file + bpf_core_field_offset(struct file, f_mode))) ||
        mode & MADE_HERE ||
        bpf_probe_read_kernel(&inode, sizeof inode,
                              (void *)(file + bpf_core_field_offset(struct file, f_inode))) ||
        bpf_probe_read_kernel(&type, sizeof type,
                              (void *)(inode + bpf_core_field_offset(struct inode, i_mode))) ||
        (type & S_IFMT) != S_IFREG ||
        bpf_probe_read_kernel(&number, sizeof number,
                              (void *)(inode + bpf_core_field_offset(struct inode, i_ino))) ||
        number == account->last_rewritten)
        return 0;
    account->last_rewritten = number;
    COUNT(account, rewrites);
    return 1;
}

static __always_inline void opened(struct pt_regs *regs, long result, __u32 what,
                                   struct watch_account *account)
{
    bool at_cwd = what == OPEN || what == CREAT;
    __u64 flags = O_WRONLY;
    if (what == OPEN)
        flags = argument(regs, 1);
    else if (what == OPENAT)
        flags = argument(regs, 2);
    else if (what == OPENAT2) // its first member
        if (bpf_probe_read_user(&flags, sizeof flags, (void *)argument(regs, 2)))
            flags = 0;
    if (result >= 0 && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH))
        COUNT(account, opens_write);
    if (result >= 0 && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
        COUNT(account, opens_exclusive);
    struct named f = {.op = WATCH_FILE_OPEN,
                      .text = argument(regs, at_cwd ? 0 : 1),
                      .flags = (__u32)flags,
                      .result = (__s32)result,
                      .at = at_cwd ? AT_FDCWD : (__s32)argument(regs, 0)};
    if (result >= 0)
        f.walked = file_of(bpf_get_current_task_btf(), (__s32)result);
    if (f.walked && (what == CREAT || flags & O_CREAT))
        note_made(f.walked, account);
    if (f.walked && (flags & O_ACCMODE) != O_RDONLY && !(flags & (O_PATH | O_APPEND)))
        rewritten(f.walked, account);
    int hint = path_glance(f.text);
    if (hint < 0 && result != -EFAULT)
        COUNT(account, failures);
    if (hint > 0 || (f.walked && path_above_file(f.walked, ABOVE_HINTS)))
        path_named(&f);
}

// A path among the arguments; `at`: its directory, AT_FDCWD or NOWHERE. A missing path is not sensitive.
static __always_inline int path_flagged(__u64 text, __s32 at, __u32 op, __s32 result, __u32 flags)
{
    struct named f = {.text = text, .op = op, .result = result, .at = at, .flags = flags};
    if (result == -ENOENT || result == -ENOTDIR || result == -EFAULT || path_glance(text) <= 0)
        return 0;
    return path_named(&f);
}

static __always_inline int path_argument(__u64 text, __s32 at, __u32 op, __s32 result)
{
    return path_flagged(text, at, op, result, 0);
}

// Another working directory; checks the path by which it was named.
static __always_inline void entered(__u64 text)
{
    struct named f = {.text = text, .op = WATCH_FILE_LOOK, .at = AT_FDCWD, .base_only = true};
    path_named(&f);
}

static __always_inline __s32 directory(struct pt_regs *regs, int n)
{
    return (__s32)argument(regs, n);
}

// A look relative to the descriptor of a directory is not checked: programs that walk through trees make thousands,
// and reading a name costs a tenth of such a call. A sensitive directory was reported when it was opened.
static __always_inline void looked(struct pt_regs *regs, long result, __u32 what)
{
    bool at_cwd = what == LOOK;
    if (at_cwd || directory(regs, 0) == AT_FDCWD)
        path_argument(argument(regs, at_cwd ? 0 : 1), AT_FDCWD, WATCH_FILE_LOOK, (__s32)result);
}

// Calls that name one or two paths and return no file.
static __always_inline void named(struct pt_regs *regs, long result, __u32 what,
                                  struct watch_account *account)
{
    __s32 r = (__s32)result;
    if (result == 0 && (what == RENAME || what == RENAMEAT))
        COUNT(account, renames);
    if (result == 0 && (what == UNLINK || what == UNLINKAT))
        COUNT(account, unlinks);
    if (result == 0 && (what == LINK || what == LINKAT))
        COUNT(account, links);
    if (result == 0 && what == TRUNCATE)
        COUNT(account, rewrites);
    if (what <= LOOKAT)
        looked(regs, result, what);
    else if (what == CHDIR) {
        if (result == 0)
            entered(argument(regs, 0));
    } else if (what == UNLINK)
        path_argument(argument(regs, 0), AT_FDCWD, WATCH_FILE_UNLINK, r);
    else if (what == UNLINKAT)
        path_argument(argument(regs, 1), directory(regs, 0), WATCH_FILE_UNLINK, r);
    else if (what == TRUNCATE)
        path_argument(argument(regs, 0), AT_FDCWD, WATCH_FILE_TRUNCATE, r);
    else if (what == RENAME || what == LINK) {
        __u32 op = what == RENAME ? WATCH_FILE_RENAME : WATCH_FILE_LINK;
        path_argument(argument(regs, 0), AT_FDCWD, op, r);
        path_flagged(argument(regs, 1), AT_FDCWD, op, r, WATCH_NEW_NAME);
    } else if (what == RENAMEAT || what == LINKAT) {
        __u32 op = what == RENAMEAT ? WATCH_FILE_RENAME : WATCH_FILE_LINK;
        path_argument(argument(regs, 1), directory(regs, 0), op, r);
        bool exchange = number(regs) == __NR_renameat2 && argument(regs, 4) & RENAME_EXCHANGE;
        path_flagged(argument(regs, 3), directory(regs, 2), op, r, exchange ? 0 : WATCH_NEW_NAME);
    } else if (what == SYMLINK || what == SYMLINKAT) {
        bool plain = what == SYMLINK;
        path_argument(argument(regs, 0), NOWHERE, WATCH_FILE_SYMLINK, r);
        path_argument(argument(regs, plain ? 1 : 2), plain ? AT_FDCWD : directory(regs, 1),
                      WATCH_FILE_SYMLINK, r);
    } else if (result < 0 && what == EXEC) // watch_exec sees successful calls
        path_argument(argument(regs, 0), AT_FDCWD, WATCH_FILE_EXEC, r);
    else if (result < 0 && what == EXECAT)
        path_argument(argument(regs, 1), directory(regs, 0), WATCH_FILE_EXEC, r);
}

// A file that is executed now: checks its name, and the program that runs (for a script, its interpreter).
static __always_inline void look_at_exec(struct task_struct *task, const char *filename)
{
    struct named f = {.text = (__u64)filename,
                      .op = WATCH_FILE_EXEC,
                      .at = AT_FDCWD,
                      .in_kernel = true,
                      .walked = (__u64)BPF_CORE_READ(task, mm, exe_file)};
    path_named(&f);
}
