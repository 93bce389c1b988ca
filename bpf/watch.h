// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Telemetry: the counters and events of watch.bpf.c, and the profiles that it compares system calls with.
//
// Counters belong to an account. Each cgroup directly below a sandbox (guest, job-N) gets one when the kernel first
// sees it, so the counters are per job, including all processes and nested cgroups of the job. The counters of a
// sandbox are the sum over its jobs, including ended ones. Map "cells" (HASH, key: the cgroup's id) has the number of
// the account; the broker looks up a job there by the inode number of its directory. After it has read the account
// for the last time, the broker gives it back: it deletes the cell, then pushes the number to map "accounts_free"
// (QUEUE of __u32; the loader fills it with all numbers at start). It does so only after the cgroup is empty and
// removed; otherwise a remaining process would get another account.
//
// Programs, and when they run:
//
//   watch_exec, watch_fork, watch_exit, watch_signal, watch_oom    attached at start
//   watch_uring         attached at start where the kernel has the tracepoint "io_uring_create" (CONFIG_IO_URING): the one
//                       program that the loader may have to leave out (bpf_program__set_autoload)
//   watch_sys_exit      attached only while it is needed (bpf_program__set_autoattach(false)): the tracepoint costs every
//                                             process of the host. It sees calls that seccomp refused with an errno. A call for which seccomp
//                       killed the process never returns; watch_signal sees it
//
// Only while watch_sys_exit is attached: syscalls, errors, no_file, opens_write, opens_exclusive, opens_sensitive, unlinks,
// renames, the io_uring calls that were refused, preloads, terminals connected to outside, EVENT_OPEN,
// EVENT_TERMINAL, EVENT_DANGEROUS, EVENT_URING (except a successful io_uring_setup), profiles.
//
// EVENT_DANGEROUS omits the first call of every job, which joins a new session keyring without a name.
//
// A call is counted when it returns. So a successful fork counts twice (it returns in the parent and in the child),
// and exit, exit_group and calls that a signal ends do not count. Result and flags of a call are exact. A path is
// read from the job's memory after the call: another thread may have changed it in between. For a successful open,
// the path is that of the opened file. For other calls, symbolic links in the path are not followed, but making one
// is reported. A look (stat and similar calls) is reported if its path is absolute or relative to the working
// directory. It is not reported if the path is relative to another directory's descriptor: that directory was
// reported when it was opened.
#pragma once

#include "sandbox.h"

enum {
    WATCH_ACCOUNTS = 8192,
    // numbers that are counted separately; the last one counts all higher numbers
    WATCH_SYSCALLS = 512,
    WATCH_PROFILES = 256,
    WATCH_PROFILE_BITS = 262144, // 32 KiB
    WATCH_WINDOW = 200,          // system calls of a thread that are scored together
    WATCH_EXES = 16384,
    WATCH_PATH = 256,
    WATCH_ARGV = 384, // bytes of the arguments that events contain
    WATCH_CWD = 128,
    WATCH_ARGS = 4096, // bytes of the arguments that are hashed
    // built-in sensitive paths at most; the numbers of configured paths start here
    WATCH_SENSITIVE = 128,
    // the numbers of paths start here that only a written rule asks for: they are no sensitive ones
    WATCH_SENSITIVE_WRITTEN = 192,
    WATCH_THREADS = 65536, // threads whose profile state is kept, by the low bits of their ids
};

// Classes of errors. The kind of refusal says more than the exact number.
enum watch_error {
    // always 0 in an account: the broker computes it, as all system calls minus the other classes
    WATCH_OK = 0,
    WATCH_DENIED,  // EPERM, EACCES
    WATCH_MISSING, // ENOENT, ENOTDIR, ESRCH
    WATCH_AGAIN,   // EAGAIN, EINTR and the restarts, EINPROGRESS
    WATCH_FULL,    // ENOMEM, ENOSPC, EMFILE, ENFILE, EDQUOT
    WATCH_NOSYS,   // ENOSYS, EOPNOTSUPP
    WATCH_INVALID, // EINVAL, EFAULT, EBADF
    WATCH_OTHER,
    WATCH_ERRORS,
};

// Map ".data.calls", one entry of WATCH_SYSCALLS bytes: what the programs do about each call (watch_calls.h). The broker
// adds this bit to calls that a detection rule of the host names and that are not dangerous. Each of them is an
// EVENT_DANGEROUS of its own class, and counted only in `syscalls`; if `own` is WATCH_OWN_RULED, it is no dangerous call.
enum { WATCH_CALL_RULED = 128 };

struct watch_cell {
    __u32 account;
    __u32 slot;
    __u32 generation;
    __u32 zero;
};

// Map "accounts", mmapable ARRAY. The kernel clears an account when it assigns it.
struct watch_account {
    __u64 cgroup; // the cgroup it belongs to; 0 while it is being cleared
    __u32 slot;
    __u32 generation;
    __u32 template;
    __u32 watch; // enum watch_flag of the sandbox, read again at each fork, exec and exit
    __u64 syscalls[WATCH_SYSCALLS];
    __u64 errors[WATCH_ERRORS];
    __u64 forks;           // processes, not threads, that began in it, including a job's first
    __u64 execs;           //
    __u64 exits;           // processes that ended in it
    __u64 exits_by_signal; // of those
    __u64 opens_write;     // files opened for writing
    // attempts to open, move, link, remove, truncate or execute a sensitive path, successful or not
    // It leaves out paths that only a written rule asks for, and so does looks_sensitive.
    __u64 opens_sensitive;
    // existing files opened for writing without appending, or truncated to nothing; the same file twice in a row
    // counts once
    __u64 rewrites;
    __u64 last_rewritten;   // inode
    __u64 links;            // hard links made
    __u64 looks_sensitive;  // stat and similar calls on existing sensitive paths
    __u64 unlinks, renames; // successful ones; rmdir as well
    // To another process by kill and similar calls, without SIGURG, and to processes that do not exist.
    __u64 signals;
    __u64 io_urings; // rings that were made, and refused io_uring calls
    __u64 memfd_execs;
    __u64 ooms; // processes that the OOM killer ended
    // the highest RLIMIT_FSIZE that a write exceeded: a job may lower its own limit (ulimit -f)
    __u64 oversized_at;
    __u64 oversized; // writes that exceeded this limit: SIGXFSZ from the kernel, ignored or not
    // profile states replaced by another thread's (WATCH_THREADS), so a window started again
    __u64 evicted;
    __u64 failures;  // failed helpers: part of an event or a profile is missing
    __u64 dangerous; // calls that EVENT_DANGEROUS reports, including lost events
    // like watch_exec.socket, and EVENT_TERMINAL including lost events
    __u64 socket_execs;
    __u64 preloads;        // like WATCH_FILE_PRELOAD
    __u64 new_execs;       // like watch_exec.fresh
    __u64 opens_exclusive; // like opens_write, for files that the call made (O_EXCL)
    __u64
        reported_calls[WATCH_SYSCALLS / 64]; // bits: dangerous calls of these numbers were reported
    __u64 tasks;                             // processes and threads that began in it
    // like oversized_at and oversized, for RLIMIT_NOFILE: calls that it refused (EMFILE)
    __u64 no_file_at, no_file;
};

enum watch_flag {
    WATCH_EVENTS = 1,  // events for exec, exit and signals, not only for alarms
    WATCH_PROFILE = 2, // compare with (or teach) profiles; events for exec of unknown executables
    WATCH_NEW = 4,     // the profile is frozen: an executable that is not in "exes" is new
    WATCH_NEW_OWN = 8, // the same for files of the sandbox
    // set by the kernel only: a program was executed on a terminal that a job made
    WATCH_TERMINAL = 256,
};

// An executable, identified by properties that a job cannot choose: the file system's type, the inode, size, and
// owner as seen in the sandbox. For a script it is the interpreter.
struct watch_exe_key {
    __u64 inode;
    __u64 size;
    __u64 magic; // of its super block
    __u32 template;
    __u32 owner; // uid inside the sandbox's user namespace, or ~0
};

// Map "exes", HASH. Written by the broker. Read at exec, and at the first call of a thread.
struct watch_exe {
    __u32 profile; // 0: known, but without a profile
    __u32 zero;
};

enum watch_profile_mode {
    WATCH_PROFILE_OFF = 0,
    WATCH_PROFILE_LEARN = 1, // set the bits
    WATCH_PROFILE_JUDGE = 2, // count unseen trigrams, and report them above the threshold
};

// Map "profile_states", mmapable ARRAY by profile; "profiles", mmapable ARRAY of the bitsets. The broker writes mode
// and threshold. The kernel adds to the other fields at the end of each window of a thread, and at the end of the
// thread.
struct watch_profile_state {
    __u32 mode;
    // reported if more than this many of the WATCH_WINDOW calls of a thread are unseen; once per window
    __u32 threshold;
    __u64 trigrams; // judged or learnt
    __u64 unseen;   // LEARN: number of new trigrams
    __u64 windows, alerts;
    // LEARN: the highest number of new trigrams in one window since the broker set it to 0
    __u32 most;
    __u32 zero;
};

struct watch_profile {
    __u64 bits[WATCH_PROFILE_BITS / 64];
};

// The bit of three syscalls in a row (STIDE with n = 3: Forrest et al., "A sense of self for Unix processes", 1996).
// Numbers above are WATCH_SYSCALLS - 1. The bit (WATCH_REFUSED, WATCH_REFUSED, number) is special: the program was
// refused that call (WATCH_DENIED). A call that is refused for the first time is reported immediately, as an
// EVENT_PROFILE with these three as `last`, once per window. Few calls of benign programs are refused, and the same
// ones in each run.
enum { WATCH_REFUSED = 510 };

static inline __u32 watch_trigram(__u32 first, __u32 second, __u32 third)
{
    __u64 three = (__u64)(first & 511) << 18 | (__u64)(second & 511) << 9 | (third & 511);
    return (__u32)(three * 0x9e3779b97f4a7c15ULL >> 46);
}

// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923): start with WATCH_FNV, then add byte by byte.
#define WATCH_FNV 0xcbf29ce484222325ULL

static inline __u64 watch_fnv(__u64 hash, unsigned char byte)
{
    return (hash ^ byte) * 0x00000100000001b3ULL;
}

// Sensitive paths. A pattern is compared, component by component, with the path of the opened file, and with the text
// of the job appended to its working directory or the directory of its descriptor:
//
//   /etc/shadow, /proc/#/environ    from the beginning: the path itself, or anything below it. # is a number
//   .ssh, .aws/credentials          one or two components, anywhere in the path
//
// Map "sensitive_hints", one entry: for each pattern the bit (watch_hint()) of a component that all matching paths
// contain.
//
// Map "sensitive", ARRAY of WATCH_SENSITIVE_SLOTS: a pattern with hash h (FNV-1a of its text) is in one of the
// WATCH_SENSITIVE_PROBES slots from h on. Written by the broker, at start and while programs run.
enum {
    WATCH_SENSITIVE_SLOTS = 1024,
    WATCH_SENSITIVE_PROBES = 3,
};

struct watch_sensitive {
    __u64 hash; // 0: free
    __u32 rule; // the broker's number, contained in the event
    __u32 when; // enum watch_when
};

enum watch_when {         // bits
    WATCH_WHEN_NAMED = 0, // successful or not
    WATCH_WHEN_THERE = 1, // only if the file exists: benign programs look for it
    // only if the call was refused: below a directory that may be another name of the root
    WATCH_WHEN_DENIED = 2,
    WATCH_WHEN_LAST = 4, // the path itself, without anything below it
};

enum { WATCH_HINT_BITS = 16384 };
struct watch_hints {
    __u64 bits[WATCH_HINT_BITS / 64];
};

// The bit of a component: of its first eight bytes, padded with NUL.
static inline __u32 watch_hint(__u64 begin)
{
    return (__u32)(begin * 0x9e3779b97f4a7c15ULL >> 50);
}

static inline __u32 watch_sensitive_slot(__u64 hash, __u32 probe)
{
    return ((__u32)(hash * 0x9e3779b97f4a7c15ULL >> 54) + probe) & (WATCH_SENSITIVE_SLOTS - 1);
}

// Bodies of events (emit.h). Text has no terminator, and the bytes after its length are not cleared.
struct watch_exec { // class ALARM if memfd or socket, NEW if fresh, otherwise PROCESS
    struct watch_exe_key exe;
    // FNV-1a of the arguments with their NULs, at most WATCH_ARGS bytes; 0: unreadable
    __u64 args_hash;
    __u8 known; // it is in "exes"
    __u8 memfd; // the file has no name: a memfd, O_TMPFILE, or deleted
    // stdin, stdout and stderr are one socket, or stdin and stdout are connected to outside
    __u8 socket;
    __u8 fresh; // it is not in a frozen profile (WATCH_NEW)
    __u32 path_n;
    char path[WATCH_PATH]; // as passed to exec, truncated
    __u32 parent;          // the parent process, in the host's pid namespace
    __u32 uid;             // inside the sandbox's user namespace, or ~0
    __u32 args_n;          // bytes of all arguments with their NULs
    // bits: which of the descriptors 0 to 31 are files without a name, such as a memfd
    __u32 nameless;
    __u32 zero;
    __u32 cwd_n;
    char argv[WATCH_ARGV]; // the beginning of the arguments
    char cwd[WATCH_CWD];   // the end of the path
};

struct watch_exit {
    __u32 code;   // 0 to 255
    __u32 signal; // the signal that ended it, or 0
    __u64 lived_ns;
};

// The operation on a sensitive path.
enum watch_file_op {
    WATCH_FILE_OPEN = 1,
    WATCH_FILE_LOOK, // stat, access, readlink and similar calls
    WATCH_FILE_RENAME,
    WATCH_FILE_LINK,
    WATCH_FILE_SYMLINK,
    WATCH_FILE_UNLINK,
    WATCH_FILE_TRUNCATE,
    WATCH_FILE_EXEC,
    // a library of the sandbox: LD_PRELOAD and similar (watch_load.h). No path, only `resolved`
    WATCH_FILE_PRELOAD,
    WATCH_FILE_OPS,
};

enum { WATCH_NEW_NAME = 1 }; // nothing that had this name is seen, or moved away: the file gets it

struct watch_open {
    __u32 flags;  // O_*, for an open; for a rename or a link: WATCH_NEW_NAME, or 0
    __s32 result; // descriptor, 0, or -errno
    __u32 rule;
    __u32 op; // enum watch_file_op
    __u32 path_n, resolved_n;
    // 1: this open created the file; 2: an earlier one of the same job did, under any name; 0: not known
    __u32 made;
    __u32 folder; // 1: it is a folder
    // Of an opened file: the same for one file while it is in memory, under any name; 0: unknown.
    __u64 file;
    char path[WATCH_PATH]; // as written by the job, truncated
    // absolute: of the opened file, otherwise of the text; the end of the path
    char resolved[WATCH_PATH];
};

enum { WATCH_OWN_RULED = 2 };
struct
    watch_syscall { // EVENT_DANGEROUS, EVENT_URING; the first of each number in a job needs no budget
    __u32 number;
    __s32 result;
    __u64 args[2];
    __u32 arch; // AUDIT_ARCH_* if the filter killed the process for it: int 0x80, x32; otherwise 0
    // 1: of a program of the host that was built for the architecture, as the loaders that ldd asks; or, refused: ptrace by a debugger of
    // the host, or by a process that attaches to its parent, whose memory it shares, as LeakSanitizer does; perf_event_open by perf of the
    // host; and reading the kernel's log. WATCH_OWN_RULED: only a rule asks for it
    __u32 own;
};

struct watch_signal {
    __u32 signal;
    __u32 target; // the target process, in the host's pid namespace
};

// EVENT_TERMINAL: about the process that holds the master side and is connected to outside; once a second.
struct watch_terminal {
    __u32 shell; // the process that was executed on the terminal, in the host's pid namespace
    __u32 zero;
    char comm[16]; // of the shell
};

struct watch_score { // EVENT_PROFILE
    __u32 profile;
    __u32 unseen;
    __u32 window;  // its calls so far
    __u32 last[3]; // the trigram that exceeded the threshold
};

_Static_assert(sizeof(struct watch_account) ==
                   24 + 8 * (WATCH_SYSCALLS + WATCH_ERRORS + 28 + WATCH_SYSCALLS / 64),
               "no padding");
_Static_assert(sizeof(struct watch_exec) == 328 + WATCH_ARGV + WATCH_CWD &&
                   sizeof(struct watch_open) == 40 + 2 * WATCH_PATH,
               "no padding");
