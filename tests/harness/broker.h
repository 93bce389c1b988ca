// SPDX-License-Identifier: Apache-2.0
// A private broker for tests in C: real binaries, its own socket, state and cgroup; and short functions to use it
// through libstockade.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/stockade.h"
#include "tests/harness/wait.h"

struct test_broker {
    char folder[64], address[128];
    pid_t pid;
    struct stockade *s;
};

extern struct test_broker broker;

// For a group of tests (cmocka): they are skipped if they cannot run here.
int start_broker(void **state);
int stop_broker(void **state);

// The output of a job.
struct record {
    size_t text_n;
    uint64_t bytes, gap_bytes, chunks;
    unsigned gaps, limit_gaps;
    char id[33], sandbox[33];
    bool stop_at_start; // cancel the call when the job runs
    char text[4096];
};

// For a call whose output goes to *r.
struct stockade_handlers handlers(struct record *r);

// Makes "sh -c SCRIPT" the command. Returns the script.
const char *shell(struct stockade_command *c, const char *script);

// Runs a script to its end in a fresh sandbox; free the result with stockade_free().
const struct stockade_result *run(const char *script, const struct stockade_limits *limits,
                                  struct record *rec);

// Creates a sandbox that stays; delete() asserts that it existed and does not any more.
void create(const char *name);
void delete (const char *name);

// Waits until the sandbox does not exist.
void wait_for_removal(const char *sandbox);

// Starts a script in a sandbox; with detach, *r may be NULL and its stdin stays open.
int start(const char *sandbox, const char *script, bool detach, struct record *rec,
          const struct stockade_result **r, struct stockade_error *e);
void start_detached(const char *sandbox, const char *script, struct record *rec);

// Waits until the job has ended, and asserts the outcome.
void wait_for_end(const struct record *rec, uint32_t outcome);
