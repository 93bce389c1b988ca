// SPDX-License-Identifier: Apache-2.0
// A policy from what jobs did and were denied, for a person to review: `stockade policy learn`, and `--learn` of run and exec.
//
//   records of jobs, kept events --> learn.c: sets of words by template --> learn_layer.c: messages --> YAML
//
// A layer for each template allows the commands that were seen, with networks within the destinations that were seen, and the transfers of
// files that were seen, and denies others. A policy decides about calls, so what the jobs did by themselves (programs that they executed,
// sensitive paths that they touched) is named in comments. Comments also name the job that each entry comes from, and everything that is
// not known: a policy that may be too narrow says so.
#pragma once

#include <stdio.h>

#include "proto/err.h"
#include "stockade/v1/telemetry_service.pb-c.h"

struct learning;

// Free it with learning_free(). NULL: out of memory.
struct learning *learning_new(void);
void learning_free(struct learning *l);

// A job; all borrowed.
struct learnt_job {
    const char *template, *id;
    const char *const *args;
    size_t args_n;
    const Stockade__V1__Record *record; // what the kernel saw of it; NULL: nothing
    bool ended;
};

// Adds a job. RESOURCE_EXHAUSTED: too much.
int learning_add(struct learning *l, const struct learnt_job *j, struct err *e);

// Adds an event: FILE_TRANSFER or SENSITIVE_OPEN; others are ignored.
int learning_add_event(struct learning *l, const Stockade__V1__Event *event, struct err *e);

// Notes that what was learnt may be incomplete: "job 0123abcd: its record is not kept".
int learning_note(struct learning *l, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Writes the policy. It was read back with its comments, and its tests have passed before. FAILED_PRECONDITION: no job was added.
int learning_write(const struct learning *l, FILE *to, struct err *e);

// The same to a file that must not exist; "-": stdout.
int learning_save(const struct learning *l, const char *path, struct err *e);
