// Telemetry: what watch.bpf.c counts and tells, and the profiles that it compares with.
//
// Counters belong to an account. Each cgroup directly below a sandbox (guest, job-N) gets one when the kernel first sees
// it, so figures are per job whatever the job forks or nests; the sandbox's are the sum of its jobs' and of those that
// have ended. Map "cells" (HASH, key: the cgroup's id) says which; the broker looks a job up there by the inode number of
// its directory, and gives the account back (map "accounts_free", QUEUE of __u32) when it has read it for the last time.
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
};

// Classes of errors: what a job is refused tells more than which number it was.
enum watch_error {
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

struct watch_cell {
    __u32 account;
    __u32 slot;
    __u32 generation;
    __u32 zero;
};

// Map "accounts", mmapable ARRAY. Cleared by the kernel when it gives the account out.
struct watch_account {
    __u64 cgroup; // the id it belongs to
    __u64 begun_ns;
    __u64 syscalls[WATCH_SYSCALLS];
    __u64 errors[WATCH_ERRORS];
    __u64 forks, execs, exits, exits_by_signal;
    __u64 opens_write; // files opened for writing
    __u64 opens_sensitive;
    __u64 unlinks, renames;
    __u64 signals; // sent to another process
    __u64 io_urings, memfd_execs, ooms;
    __u64 failures; // helpers that failed
};

enum watch_flag {
    WATCH_EVENTS = 1,  // exec, exit and the like as events, not only what alarms
    WATCH_PROFILE = 2, // compare with (or teach) profiles
};

// An executable, told apart by what a job cannot choose: the file system's kind, the inode, size and owner as the sandbox
// sees it.
struct watch_exe_key {
    __u64 inode;
    __u64 size;
    __u64 magic; // of its super block
    __u32 template;
    __u32 owner; // uid inside the sandbox's user namespace, or ~0
};

// Map "exes", HASH. Written by the broker.
struct watch_exe {
    __u32 profile; // 0: known, but without a profile
    __u32 zero;
};

enum watch_profile_mode {
    WATCH_PROFILE_OFF = 0,
    WATCH_PROFILE_LEARN = 1, // bits are set
    WATCH_PROFILE_JUDGE = 2, // what is unseen is counted; above the threshold it is told
};

// Map "profile_states", mmapable ARRAY by profile; "profiles", mmapable ARRAY of the bitsets.
struct watch_profile_state {
    __u32 mode;
    __u32 threshold; // unseen of WATCH_WINDOW that is told
    __u64 trigrams;  // judged or learnt
    __u64 unseen;
    __u64 windows, alerts;
};

struct watch_profile {
    __u64 bits[WATCH_PROFILE_BITS / 64];
};

// The bit of three syscalls in a row (STIDE with n = 3: Forrest et al., "A sense of self for Unix processes", 1996).
static inline __u32 watch_trigram(__u32 first, __u32 second, __u32 third)
{
    __u64 three = (__u64)(first & 511) << 18 | (__u64)(second & 511) << 9 | (third & 511);
    return (__u32)(three * 0x9e3779b97f4a7c15ULL >> 46);
}

// Bodies of events (emit.h).
struct watch_exec {
    struct watch_exe_key exe;
    __u64 args_hash;
    __u8 known; // "exes" has it
    __u8 memfd; // the file has no name: a memfd, or deleted
    __u8 zero[2];
    __u32 path_n;
    char path[WATCH_PATH]; // as given to exec, cut
};

struct watch_exit {
    __u32 code;
    __u32 signal;
    __u64 lived_ns;
};

struct watch_open {
    __u32 flags; // O_*
    __u32 path_n;
    char path[WATCH_PATH];
};

struct watch_syscall { // EVENT_DANGEROUS, EVENT_URING
    __u32 number;
    __s32 result;
    __u64 args[2];
};

struct watch_signal {
    __u32 signal;
    __u32 target;
};

struct watch_score { // EVENT_PROFILE
    __u32 profile;
    __u32 unseen;
    __u32 window;
    __u32 last[3]; // the trigram that went over
};
