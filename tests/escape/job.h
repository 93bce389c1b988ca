// SPDX-License-Identifier: Apache-2.0
// Hostile programs: each tries one way out of a sandbox, which must fail, and names the barrier that stops it.
//
// One static program, `escape-job`, contains all of them. The harness (escape.py) sends it into a sandbox through
// stdin and runs `escape-job NUMBER` as a job. Numbers below 200 come from the original list of checks. A check
// prints what it saw on stdout and returns HELD, ESCAPED or SKIPPED. The harness checks what only the host can see
// (hashes, processes, the bill).
//
// The harness passes parameters in environment variables ESCAPE_*.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum verdict { HELD = 0, ESCAPED = 10, SKIPPED = 77 };

struct check {
    int number;
    const char *says;    // a sentence that is true if the barrier works
    const char *barrier; // the barrier
    int (*run)(void);
};

extern const struct check filesystem_checks[], process_checks[], namespace_checks[],
    kernel_checks[], resource_checks[], credential_checks[], corner_checks[], door_checks[],
    proc_checks[], socket_checks[], uncharged_checks[], root_checks[];

// Prints a line and returns the verdict.
int say(enum verdict verdict, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define held(...)    say(HELD, __VA_ARGS__)
#define escaped(...) say(ESCAPED, __VA_ARGS__)
#define skipped(...) say(SKIPPED, __VA_ARGS__)

// An ESCAPE_ variable, or "".
const char *parameter(const char *name);
long parameter_number(const char *name);

// Whether the last call failed with EPERM, ENOSYS or EACCES: refused by policy, not because of its arguments.
bool refused(long result);

// Runs fn in a child. Returns its exit status as from wait(2). A hanging child is killed after some seconds.
int in_child(void (*fn)(void));

// Path of this program inside the sandbox.
extern const char *self_path;
