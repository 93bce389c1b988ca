// SPDX-License-Identifier: Apache-2.0
// A test waits for events, not for time: it names the event, and fails with that name if the event does not occur. On
// a slow machine, such as an emulated one, STOCKADE_SLOWNESS multiplies the timeouts. The timeouts only limit how
// long a test waits for an event that never occurs.
//
//   wait_until("the cgroup is empty", rmdir(path) == 0);
//   wait_within("the guest ends", 5000, waitpid(pid, &status, WNOHANG) == pid) do_meanwhile();
//
// tests/flow/slowness.py has the same for Python.
#pragma once

#include <stdint.h>

enum { WAIT_MS = 30000 }; // on an ordinary machine no event of a test takes that long

// CLOCK_MONOTONIC, which never jumps.
uint64_t now_ms(void);

// A timeout of `ms`, multiplied on slow machines.
uint64_t scaled_ms(uint64_t ms);

// For tests where time itself is tested: lets time pass, with the reason.
void time_passes(const char *why, uint64_t ms);

struct waiting {
    const char *what;
    uint64_t ms, until_ms;
};

// For the macros: makes the deadline; pauses for a millisecond, and fails the test (cmocka's fail) after the
// deadline.
struct waiting wait_begin(const char *what, uint64_t ms);
void wait_step(const struct waiting *w);

// Evaluates the condition each millisecond until it is true; runs the statement after it in between.
#define wait_within(what, ms, condition)                                                           \
    for (const struct waiting waiting_ = wait_begin(what, ms); !(condition); wait_step(&waiting_))
#define wait_until(what, condition)                                                                \
    do {                                                                                           \
        wait_within(what, WAIT_MS, condition);                                                     \
    } while (0)
