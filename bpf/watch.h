// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Telemetry: what watch.bpf.c counts and tells, and the profiles that it compares with.
//
// Counters belong to an account. Each cgroup directly below a sandbox (guest, job-N) gets one when the kernel first sees
// it, so figures are per job whatever the job forks or nests; the sandbox's are the sum of its jobs' and of those that
// have ended. Map "cells" (HASH, key: the cgroup's id) says which; the broker looks a job up there by the inode number of
// its directory, and gives the account back when it has read it for the last time: first it deletes the cell, then it
// pushes the number to map "accounts_free" (QUEUE of __u32; the loader fills it with all of them at start). Only once the
// cgroup is empty and removed: a process that is still in it would be given another account.
//
// Programs, and when they run:
//
//   watch_exec, watch_fork, watch_exit, watch_signal, watch_oom    attached at start
//   watch_uring         attached at start where the kernel has the tracepoint "io_uring_create" (CONFIG_IO_URING): the one
//                       program that the loader may have to leave out (bpf_program__set_autoload)
//   watch_sys_exit      attached while somebody wants it (bpf_program__set_autoattach(false)): the tracepoint costs every
//                       process of the host. It sees what seccomp refused with an errno; a call that seccomp killed the
//                       process for is seen by watch_signal: it never returns
//
// Only while watch_sys_exit is attached: syscalls, errors, opens_write, opens_exclusive, opens_sensitive, unlinks, renames, the io_uring
// calls that were refused, preloads, terminals that lead out, EVENT_OPEN, EVENT_TERMINAL, EVENT_DANGEROUS, EVENT_URING (but the successful io_uring_setup), profiles.
//
// EVENT_DANGEROUS leaves out what every job begins with: a session keyring of its own, without a name.
//
// A call is counted when it returns. So a successful fork counts twice (it returns to the parent and to the child), and
// exit, exit_group and what a signal ends inside the call never do. Result and flags of a call are exact. A path is read
// from the job's memory after the call: another thread may have changed it in between. Of an open that succeeded the file
// itself says where it is; of other calls symbolic links in the path are not followed, but making one is reported. A look
// (stat and the like) is reported when it is made by path or from the working directory, not by the descriptor of another
// directory: that was reported when it was opened.
#pragma once

#include "sandbox.h"

enum {
    WATCH_ACCOUNTS = 8192,
    WATCH_SYSCALLS = 512, // numbers counted one by one; the last one counts all above
    WATCH_PROFILES = 256,
    WATCH_PROFILE_BITS = 262144, // 32 KiB
    WATCH_WINDOW = 200,          // syscalls of a thread that are scored together
    WATCH_EXES = 16384,
    WATCH_PATH = 256,
    WATCH_ARGV = 384, // bytes of the arguments that are shown
    WATCH_CWD = 128,
    WATCH_ARGS = 4096, // bytes of the arguments that are hashed
    // built-in sensitive paths at most; those of the configuration are counted from here
    WATCH_SENSITIVE = 128,
    WATCH_THREADS = 65536, // threads whose profile state is kept, by the low bits of their id
};

// Classes of errors: what a job is refused tells more than which number it was.
enum watch_error {
    WATCH_OK = 0,  // always 0 in an account: it is the sum of all syscalls less the other classes
    WATCH_DENIED,  // EPERM, EACCES
    WATCH_MISSING, // ENOENT, ENOTDIR, ESRCH
    WATCH_AGAIN,   // EAGAIN, EINTR and the restarts, EINPROGRESS
    WATCH_FULL,    // ENOMEM, ENOSPC, EMFILE, ENFILE, EDQUOT
    WATCH_NOSYS,   // ENOSYS, EOPNOTSUPP
    WATCH_INVALID, // EINVAL, EFAULT, EBADF
    WATCH_OTHER,
    WATCH_ERRORS,
};

struct watch_cell {
    __u32 account;
    __u32 slot;
    __u32 generation;
    __u32 zero;
};

// Map "accounts", mmapable ARRAY. Cleared by the kernel when it gives the account out.
struct watch_account {
    __u64 cgroup; // the id it belongs to; 0 while it is cleared
    __u32 slot;
    __u32 generation;
    __u32 template;
    __u32 watch; // enum watch_flag of the sandbox, looked up again at each fork, exec and exit
    __u64 syscalls[WATCH_SYSCALLS];
    __u64 errors[WATCH_ERRORS];
    __u64 forks;           // processes that began in it, not threads; a job's first one as well
    __u64 execs;           //
    __u64 exits;           // processes that ended in it
    __u64 exits_by_signal; // of those
    __u64 opens_write;     // files opened for writing
    // tries to open, move, link, remove, truncate or execute a sensitive path, whatever came of
    // them
    __u64 opens_sensitive;
    // existing files opened for writing, but not for appending, or cut to nothing; one after
    // another the same file counts once
    __u64 rewrites;
    __u64 last_rewritten;   // inode
    __u64 links;            // hard links made
    __u64 looks_sensitive;  // sensitive paths that were there and were looked at: stat and the like
    __u64 unlinks, renames; // that succeeded; rmdir as well
    __u64 signals;          // sent to another process by kill and the like
    __u64 io_urings;        // rings made, and io_uring calls that were refused
    __u64 memfd_execs;
    __u64 ooms; // processes that the OOM killer ended
    // the highest RLIMIT_FSIZE that a write met: a job may lower its own (ulimit -f)
    __u64 oversized_at;
    __u64 oversized; // writes that this limit refused: SIGXFSZ of the kernel's, ignored or not
    __u64 evicted;   // profile states lost to another thread (WATCH_THREADS): a window began anew
    __u64 failures;  // helpers that failed: something of an event or a profile is missing
    __u64 dangerous; // calls that EVENT_DANGEROUS reports, whether there was room for it or not
    // as watch_exec.socket, and EVENT_TERMINAL whether there was room for it or not
    __u64 socket_execs;
    __u64 preloads;                        // as WATCH_FILE_PRELOAD
    __u64 new_execs;                       // as watch_exec.fresh
    __u64 opens_exclusive;                 // as opens_write, of files that the call made (O_EXCL)
    __u64 told_calls[WATCH_SYSCALLS / 64]; // bits: dangerous calls of these numbers were reported
    __u64 tasks;                           // processes and threads that began in it
};

enum watch_flag {
    WATCH_EVENTS = 1,  // exec, exit and signals as events, not only what alarms
    WATCH_PROFILE = 2, // compare with (or teach) profiles; execs of unknown executables as events
    WATCH_NEW = 4,     // the profile is frozen: an executable that "exes" does not have is new
    WATCH_NEW_OWN = 8, // the same for files of the sandbox's own
    WATCH_TERMINAL = 256, // the kernel's own: a program was executed on a terminal that a job made
};

// An executable, told apart by what a job cannot choose: the file system's kind, the inode, size and owner as the sandbox
// sees it. Of a script it is the interpreter.
struct watch_exe_key {
    __u64 inode;
    __u64 size;
    __u64 magic; // of its super block
    __u32 template;
    __u32 owner; // uid inside the sandbox's user namespace, or ~0
};

// Map "exes", HASH. Written by the broker. Looked up at exec, and at the first call of a thread.
struct watch_exe {
    __u32 profile; // 0: known, but without a profile
    __u32 zero;
};

enum watch_profile_mode {
    WATCH_PROFILE_OFF = 0,
    WATCH_PROFILE_LEARN = 1, // bits are set
    WATCH_PROFILE_JUDGE = 2, // what is unseen is counted; above the threshold it is told
};

// Map "profile_states", mmapable ARRAY by profile; "profiles", mmapable ARRAY of the bitsets. The broker writes mode and
// threshold, the kernel adds to the rest at the end of each window of a thread, and of the thread.
struct watch_profile_state {
    __u32 mode;
    // told when more than this many of the WATCH_WINDOW calls of a thread are unseen, once per
    // window
    __u32 threshold;
    __u64 trigrams; // judged or learnt
    __u64 unseen;   // LEARN: that were new
    __u64 windows, alerts;
    __u32 most; // LEARN: new ones of one window, at most, since the broker set it to 0
    __u32 zero;
};

struct watch_profile {
    __u64 bits[WATCH_PROFILE_BITS / 64];
};

// The bit of three syscalls in a row (STIDE with n = 3: Forrest et al., "A sense of self for Unix processes", 1996).
// Numbers above are WATCH_SYSCALLS - 1. (WATCH_REFUSED, WATCH_REFUSED, number) is a bit of its own kind: the program has
// been refused that call (WATCH_DENIED). One that it was never refused before is told at once, as an EVENT_PROFILE with
// these three as `last`, once per window; honest work is refused little, and the same each time.
enum { WATCH_REFUSED = 510 };

static inline __u32 watch_trigram(__u32 first, __u32 second, __u32 third)
{
    __u64 three = (__u64)(first & 511) << 18 | (__u64)(second & 511) << 9 | (third & 511);
    return (__u32)(three * 0x9e3779b97f4a7c15ULL >> 46);
}

// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923): begin with WATCH_FNV, then byte by byte.
#define WATCH_FNV 0xcbf29ce484222325ULL

static inline __u64 watch_fnv(__u64 hash, unsigned char byte)
{
    return (hash ^ byte) * 0x00000100000001b3ULL;
}

// Sensitive paths. A pattern is compared with the path of the file that was opened, and with what the job wrote behind its
// working directory or descriptor, component by component:
//
//   /etc/shadow, /proc/#/environ    from the beginning: the path itself, or anything below it. # is a number
//   .ssh, .aws/credentials          one or two components, anywhere in the path
//
// Map "sensitive_hints", one entry: a bit for a component that each path with this pattern has, by watch_hint().
//
// Map "sensitive", ARRAY of WATCH_SENSITIVE_SLOTS: a pattern with hash h (FNV-1a of its text) is in one of the
// WATCH_SENSITIVE_PROBES slots from h on. Written by the broker, at start and while programs run.
enum {
    WATCH_SENSITIVE_SLOTS = 1024,
    WATCH_SENSITIVE_PROBES = 3,
};

struct watch_sensitive {
    __u64 hash; // 0: free
    __u32 rule; // the broker's number, told in the event
    __u32 when; // enum watch_when
};

enum watch_when {         // bits
    WATCH_WHEN_NAMED = 0, // whatever came of the call
    WATCH_WHEN_THERE = 1, // not when there is no such file: honest programs look for it
    // only when the call was refused: below a directory that may be the root by another name
    WATCH_WHEN_DENIED = 2,
    WATCH_WHEN_LAST = 4, // not what is below it
};

enum { WATCH_HINT_BITS = 16384 };
struct watch_hints {
    __u64 bits[WATCH_HINT_BITS / 64];
};

// The bit of a component, by its first eight bytes, NUL behind a shorter one.
static inline __u32 watch_hint(__u64 begin)
{
    return (__u32)(begin * 0x9e3779b97f4a7c15ULL >> 50);
}

static inline __u32 watch_sensitive_slot(__u64 hash, __u32 probe)
{
    return ((__u32)(hash * 0x9e3779b97f4a7c15ULL >> 54) + probe) & (WATCH_SENSITIVE_SLOTS - 1);
}

// Bodies of events (emit.h). Text is not terminated and not cleared behind its length.
struct watch_exec { // class ALARM when memfd or socket, NEW when fresh, else PROCESS
    struct watch_exe_key exe;
    __u64 args_hash; // FNV-1a of the arguments with their NULs, WATCH_ARGS at most; 0: unreadable
    __u8 known;      // "exes" has it
    __u8 memfd;      // the file has no name: a memfd, O_TMPFILE, or deleted
    __u8 socket;     // stdin, stdout and stderr are one socket, or stdin and stdout lead out
    __u8 fresh;      // a frozen profile does not know it (WATCH_NEW)
    __u32 path_n;
    char path[WATCH_PATH]; // as given to exec, cut
    __u32 parent;          // process, of the host
    __u32 uid;             // inside the sandbox's user namespace, or ~0
    __u32 args_n;          // bytes of all arguments with their NULs
    __u32 nameless;        // bits: of descriptors 0 to 31 that are files without a name, as a memfd
    __u32 zero;
    __u32 cwd_n;
    char argv[WATCH_ARGV]; // the beginning of them
    char cwd[WATCH_CWD];   // the end of it
};

struct watch_exit {
    __u32 code;   // 0 to 255
    __u32 signal; // that ended it, or 0
    __u64 lived_ns;
};

// What was done to a sensitive path.
enum watch_file_op {
    WATCH_FILE_OPEN = 1,
    WATCH_FILE_LOOK, // stat, access, readlink and the like
    WATCH_FILE_RENAME,
    WATCH_FILE_LINK,
    WATCH_FILE_SYMLINK,
    WATCH_FILE_UNLINK,
    WATCH_FILE_TRUNCATE,
    WATCH_FILE_EXEC,
    // a library that the sandbox wrote: LD_PRELOAD and similar (watch_load.h). No path, `resolved` alone
    WATCH_FILE_PRELOAD,
    WATCH_FILE_OPS,
};

struct watch_open {
    __u32 flags;  // O_*, of an open
    __s32 result; // descriptor, 0, or -errno
    __u32 rule;
    __u32 op; // enum watch_file_op
    __u32 path_n, resolved_n;
    char path[WATCH_PATH]; // as the job wrote it, cut
    // absolute: of the file that was opened, else of the text; the end of it
    char resolved[WATCH_PATH];
};

struct
    watch_syscall { // EVENT_DANGEROUS, EVENT_URING; the first of each number in a job needs no budget
    __u32 number;
    __s32 result;
    __u64 args[2];
    __u32 arch; // AUDIT_ARCH_*, where the filter ended the process for it: int 0x80, x32; else 0
    __u32 zero;
};

struct watch_signal {
    __u32 signal;
    __u32 target; // process, of the host
};

// EVENT_TERMINAL, of the process that holds the other end and is connected to outside; once a second.
struct watch_terminal {
    __u32 shell; // process that was executed on the terminal, of the host
    __u32 zero;
    char comm[16]; // of that
};

struct watch_score { // EVENT_PROFILE
    __u32 profile;
    __u32 unseen;
    __u32 window;  // calls of it so far
    __u32 last[3]; // the trigram that went over
};

_Static_assert(sizeof(struct watch_account) ==
                   24 + 8 * (WATCH_SYSCALLS + WATCH_ERRORS + 26 + WATCH_SYSCALLS / 64),
               "no padding");
_Static_assert(sizeof(struct watch_exec) == 328 + WATCH_ARGV + WATCH_CWD &&
                   sizeof(struct watch_open) == 24 + 2 * WATCH_PATH,
               "no padding");
