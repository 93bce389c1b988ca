// SPDX-License-Identifier: Apache-2.0
// Between the files of bench-anomaly_score.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum { SCORE_EXES = 4096, SCORE_TYPES = 128 };

// Three calls in a row.
struct token {
    uint32_t bit; // in a profile, as the kernel has it
    uint16_t exe;
    bool ends; // the last of its window
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
    unsigned severity; // of the gravest finding of the tripwires
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

// What is looked at.
enum variant {
    ONE_SET, // one set of trigrams for all executables
    PER_EXE, // one for each; those that are not known are not scored: what the kernel does
    VARIANTS,
};

_Noreturn void die(const char *why);
void *need(void *p); // ends the program for NULL
struct run *set_add(struct set *s);
bool exe_is_own(uint16_t exe);

struct profile *profile_new(enum variant v);
void profile_free(struct profile *p);
void profile_learn(struct profile *p, const struct run *r);

// The threshold of the rule unseen-sequence, as it comes.
enum { SCORE_THRESHOLD = 8 };

// The most unseen trigrams of a window, as a part of what its executable's threshold is: SCORE_THRESHOLD is told.
double profile_score(const struct profile *p, const struct run *r);
// Executables that it does not know.
unsigned profile_new_exes(const struct profile *p, const struct run *r);
// Refused calls that its executable was never refused before: what the kernel tells.
unsigned profile_new_refusals(const struct profile *p, const struct run *r);

// Area under the curve, and the part of the attacks that is found when this part of the benign runs is.
double auc(const double *benign, size_t benign_n, const double *attack, size_t attack_n);
double tpr_at(double *benign, size_t benign_n, const double *attack, size_t attack_n,
              double false_alarms);

int evaluate(const struct set *s);
int adfa_score(const char *folder);
