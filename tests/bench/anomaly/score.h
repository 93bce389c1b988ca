// SPDX-License-Identifier: Apache-2.0
// Shared by the files of bench-anomaly_score.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum { SCORE_EXES = 4096, SCORE_TYPES = 128 };

// Three calls in a row.
struct token {
    uint32_t bit; // bit in a profile, as in the kernel
    uint16_t exe;
    bool ends; // the last one of its window
};

// A call that was refused (WATCH_DENIED).
struct refusal {
    uint16_t exe, number;
};

struct placed {
    struct recorded r;
    size_t at;
};

struct run {
    char type[64];
    unsigned number;
    bool attack;
    uint64_t sandbox;
    unsigned severity; // of the most severe finding of the tripwires
    struct token *token;
    size_t n;
    struct refusal *refusal; // each kind once
    size_t refusals;
    struct placed *calls;
    size_t calls_n, calls_room;
};

struct set {
    struct run *run;
    size_t n, room;
};

struct profile; // of all executables

// The variants that are compared.
enum variant {
    ONE_SET, // one set of trigrams for all executables
    PER_EXE, // one set for each; unknown executables are not scored, as in the kernel
    VARIANTS,
};

_Noreturn void die(const char *why);
void *need(void *p); // exits if p is NULL
struct run *set_add(struct set *s);
bool exe_is_own(uint16_t exe);

struct profile *profile_new(enum variant v);
void profile_free(struct profile *p);
void profile_learn(struct profile *p, const struct run *r);

// The default threshold of the rule unseen-sequence.
enum { SCORE_THRESHOLD = 8 };

// The highest number of unseen trigrams in a window, relative to its executable's threshold: SCORE_THRESHOLD is
// reported.
double profile_score(const struct profile *p, const struct run *r);
// Number of executables that are not in the profile.
unsigned profile_new_exes(const struct profile *p, const struct run *r);
// Number of refused calls that were never refused before for their executable, which the kernel reports.
unsigned profile_new_refusals(const struct profile *p, const struct run *r);

// Area under the curve, and the fraction of the attacks that is found at this fraction of false alarms.
double auc(const double *benign, size_t benign_n, const double *attack, size_t attack_n);
double tpr_at(double *benign, size_t benign_n, const double *attack, size_t attack_n,
              double false_alarms);

int evaluate(const struct set *s);
int adfa_score(const char *folder);
