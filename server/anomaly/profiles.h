// SPDX-License-Identifier: Apache-2.0
// Profiles: per template, the executables that its jobs run; per executable, the sequences of system calls that it
// makes. The kernel sets and compares the bits (bpf/watch.h); this file decides for which executables, and since
// when.
//
//   OFF --a job, where the configuration says `learn`--> LEARNING --enough runs, or freeze--> FROZEN
//    ^                                                      |                                   |
//    +----------------------------- reset ------------------+-----------------------------------+
//                                     import: FROZEN, from anywhere
//
// LEARNING: each program that runs becomes known, and gets a profile while the kernel has a free one. FROZEN: calls
// are compared with profiles, and an executable that is not known is reported. Files that a sandbox made are never
// profiled, because their inode numbers mean nothing in the next sandbox. The set only learns whether jobs execute
// such files.
//
// The kernel looks up an executable at exec, so from its first run the profile learns only its name.
//
// The profile also learns how much benign runs differ: `surprise` is the highest number of new sequences in one
// window of a run, not counting the first run. It is near zero for a compiler, and high for an interpreter, whose
// calls depend on its script, and for a program with racing threads. The rule's threshold is added to it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/watch.h"
#include "proto/err.h"
#include "box.h"
#include "image.h"
#include "server/sandbox/bpf.h"
#include "server/sandbox/template.h"

enum {
    PROFILES_EXES = IMAGE_EXES_MAX,
    PROFILES_RUNS_MAX = 1000000,
    PROFILES_THRESHOLD_MAX = WATCH_WINDOW / 2, // the highest threshold that `surprise` can cause
};

// Numbers as in stockade.v1.ProfileState.
enum profiles_state { PROFILES_OFF = 1, PROFILES_LEARNING = 2, PROFILES_FROZEN = 3 };

struct profile_set {
    char template[64];
    char learnt_from[64]; // another template, whose profile was imported; or ""
    enum profiles_state state;
    uint32_t wanted;    // runs until it is frozen; 0: does not learn automatically
    uint32_t threshold; // of the rule unseen-sequence
    uint32_t runs, version;
    uint64_t frozen_s; // seconds since 1970; 0: not frozen
    bool own_files;    // jobs executed files of their own
    bool changed;      // changes since it was saved
};

struct profile_exe {
    struct watch_exe_key key;
    uint32_t slot; // index in the kernel's maps; 0: none
    uint64_t execs;
    uint64_t trigrams;       // the kernel's counter at the end of the last run
    uint32_t runs, surprise; // runs that added something
    char path[WATCH_PATH];   // the path of its first exec
};

struct profiles {
    struct bpf *bpf; // borrowed; fd[] may be -1 (then only the mapped arrays are used)
    struct profile_set set[TEMPLATES_MAX];
    uint32_t sets_n;
    struct profile_exe exe[PROFILES_EXES];
    uint32_t exes_n;
    bool taken[WATCH_PROFILES];
    uint32_t next_slot; // free slots are assigned in turn, so a released one is reused late
    uint64_t left_out;  // executables that were not added for lack of room
};

// Without profiles in the kernel (bpf NULL, or not mapped) every set stays OFF.
bool profiles_possible(const struct profiles *p);

// An executable was executed. BOX_EXE_NEW: it is not in a frozen set. Adds it to a learning one.
enum box_exe profiles_exec(struct profiles *p, uint32_t template, const struct watch_exec *x);

// A job has ended. True: this froze the set.
bool profiles_run(struct profiles *p, uint32_t template);

// FAILED_PRECONDITION: the set does not learn, or has learnt nothing.
int profiles_freeze(struct profiles *p, uint32_t template, struct err *e);

// Deletes the profile, and learns again if the configuration says so.
void profiles_reset(struct profiles *p, uint32_t template);

// Writes the set as a file; the caller frees *bytes. FAILED_PRECONDITION: it is empty.
int profiles_export(const struct profiles *p, uint32_t template, uint8_t **bytes, size_t *n,
                    struct err *e);

// Reads a set from a file; on failure nothing has changed. `again`: restores a saved set in its state. Otherwise it is
// FROZEN, with a version above the current one.
int profiles_import(struct profiles *p, uint32_t template, const uint8_t *bytes, size_t n,
                    bool again, struct err *e);

// The kernel's counters of an executable; zero if it has no profile.
struct watch_profile_state profiles_figures(const struct profiles *p, const struct profile_exe *x);
uint32_t profiles_bits(const struct profiles *p, const struct profile_exe *x);
