// SPDX-License-Identifier: Apache-2.0
// A test waits for events, not for time: it says which one, and fails with that name when it does not come. Where the
// machine is slow, as an emulated one, STOCKADE_SLOWNESS says how many times longer to wait. That bounds what never
// comes, and changes nothing of what is checked.
//
//   wait_until("the cgroup is empty", rmdir(path) == 0);
//   wait_within("the guest ends", 5000, waitpid(pid, &status, WNOHANG) == pid) do_meanwhile();
//
// tests/flow/patience.py has the same for Python.
#pragma once

#include <stdint.h>

enum { WAIT_MS = 30000 }; // no event of a test takes that long on a machine of its own

// The clock that does not jump (CLOCK_MONOTONIC).
uint64_t now_ms(void);

// How long to wait here for what takes ms at most elsewhere.
uint64_t scaled_ms(uint64_t ms);

// Where time itself is what is tested: says why it must pass.
void time_passes(const char *why, uint64_t ms);

struct waiting {
    const char *what;
    uint64_t ms, until_ms;
};

// For the macros: the deadline, and a pause of a millisecond that fails the test (cmocka's fail) after it.
struct waiting wait_begin(const char *what, uint64_t ms);
void wait_step(const struct waiting *w);

// Evaluates the condition each millisecond until it holds; the statement behind it is done between two looks.
#define wait_within(what, ms, condition)                                                           \
    for (const struct waiting waiting_ = wait_begin(what, ms); !(condition); wait_step(&waiting_))
#define wait_until(what, condition)                                                                \
    do {                                                                                           \
        wait_within(what, WAIT_MS, condition);                                                     \
    } while (0)
