// SPDX-License-Identifier: Apache-2.0
// The broker's core (sandboxes and jobs) in the test's own process, over the real spawner, reader and guest: for what no RPC
// reaches.
#pragma once

#include "server/base/server.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "tests/harness/spawner.h"

enum { TEXT_MAX = 64 * 1024, WAIT_S = 60 };

extern uv_loop_t loop;
extern struct server srv;
extern struct sandbox *box; // of the test that runs
extern char text[TEXT_MAX]; // what its last job wrote

// Runs the loop until the condition holds.
#define until(condition)                                                                           \
    do {                                                                                           \
        uint64_t end_ = uv_hrtime() + (uint64_t)scaled_ms(WAIT_S * 1000) * 1000000;                \
        while (!(condition)) {                                                                     \
            assert_true(uv_hrtime() < end_);                                                       \
            (void)uv_run(&loop, UV_RUN_ONCE);                                                      \
        }                                                                                          \
    } while (0)

// Around all tests (cmocka): "skipped" where they cannot run.
int start_core(void **state);
int stop_core(void **state);

// The configuration, and what the spawner found.
const struct broker *core_broker(void);

// Around each: `box` is READY, or belongs to uid:1; and is gone.
int make_ready(void **state);
int make_box(void **state);
int remove_box(void **state);

// A request to the spawner itself (spawn_done).
struct wait {
    unsigned called;
    struct spawn_reply reply;
    int fds[SPAWN_FDS_MAX];
};

void on_done(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX]);

// Starts a script as a job of the box. With a reader as its follower's cookie, on_wake() collects what it writes.
struct reader {
    struct job_follower follower;
    size_t n;
    bool ended;
    uint32_t exit_code;
};

void on_wake(void *cookie);
int begin(const char *script, struct job **out, struct err *e);

// Runs a script to its end. Returns its exit code, or 1000; what it wrote is in `text`.
uint32_t sh(const char *script);
void assert_sh(const char *script, const char *expected);
