// SPDX-License-Identifier: Apache-2.0
// A policy from what jobs did and were denied, for a person to review: `stockade policy learn`, and `--learn` of run and exec.
//
// A layer for each template allows the commands that were seen, with networks within the destinations that were seen, and denies
// other ways to run something there. Programs that the jobs executed by themselves are named in comments: a policy decides about calls.
#pragma once

#include <stdio.h>

#include "proto/err.h"
#include "stockade/v1/record.pb-c.h"

struct learning;

// Free it with learning_free(). NULL: out of memory.
struct learning *learning_new(void);
void learning_free(struct learning *l);

// Adds a job: its template, its words, terminated by NULL, and what the kernel saw of it (NULL: nothing). RESOURCE_EXHAUSTED: too much.
int learning_add(struct learning *l, const char *template, const char *const *args, size_t args_n,
                 const Stockade__V1__Record *record, struct err *e);

// Writes the policy. It was read back and its tests have passed before. FAILED_PRECONDITION: no job was added.
int learning_write(const struct learning *l, FILE *to, struct err *e);

// The same to a file that must not exist; "-": stdout.
int learning_save(const struct learning *l, const char *path, struct err *e);
