// SPDX-License-Identifier: Apache-2.0
// A broker of one's own for tests in C: real binaries, a private socket, state and cgroup; and short ways to ask it for
// things through libstockade.
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

// Of a group of tests (cmocka): "skipped" where they cannot run.
int start_broker(void **state);
int stop_broker(void **state);

// What came out of a job.
struct record {
    size_t text_n;
    uint64_t bytes, gap_bytes, chunks;
    unsigned gaps, limit_gaps;
    char id[33], sandbox[33];
    bool stop_at_start; // gives the call up once it runs
    char text[4096];
};

// Of a call whose output goes to *r.
struct stockade_handlers handlers(struct record *r);

// "sh -c SCRIPT" as the command. Gives the script.
const char *shell(struct stockade_command *c, const char *script);

// Runs a script to its end in a fresh sandbox; free the result with stockade_free().
const struct stockade_result *run(const char *script, const struct stockade_limits *limits,
                                  struct record *rec);

// A kept sandbox; delete() asserts that it was there and is not any more.
void create(const char *name);
void delete (const char *name);

// Until there is no such sandbox.
void wait_for_removal(const char *sandbox);

// Starts a script in a sandbox; with detach, *r may be NULL and its stdin stays open.
int start(const char *sandbox, const char *script, bool detach, struct record *rec,
          const struct stockade_result **r, struct stockade_error *e);
void start_detached(const char *sandbox, const char *script, struct record *rec);

// Until the job has ended, with that outcome.
void wait_for_end(const struct record *rec, uint32_t outcome);
