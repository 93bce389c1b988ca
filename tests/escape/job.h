// SPDX-License-Identifier: Apache-2.0
// Hostile programs: each tries one way out of a sandbox and must fail, and names the barrier that stops it.
//
// One static program, `escape-job`, holds them all; the harness (escape.py) sends it into a sandbox through stdin and
// runs `escape-job NUMBER` as a job. Numbers below 200 are those of the list of checks that this began with. A program says what it
// saw on stdout and returns HELD, ESCAPED or SKIPPED. What only the host can see (hashes, processes, the bill) is
// checked by the harness.
//
// What the harness tells a program comes in environment variables ESCAPE_*.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum verdict { HELD = 0, ESCAPED = 10, SKIPPED = 77 };

struct check {
    int number;
    const char *says;    // a sentence that is true when the barrier holds
    const char *barrier; // what stops it
    int (*run)(void);
};

extern const struct check filesystem_checks[], process_checks[], namespace_checks[],
    kernel_checks[], resource_checks[], credential_checks[], corner_checks[], door_checks[],
    proc_checks[], socket_checks[], uncharged_checks[];

// Prints a line and gives the verdict.
int say(enum verdict verdict, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define held(...)    say(HELD, __VA_ARGS__)
#define escaped(...) say(ESCAPED, __VA_ARGS__)
#define skipped(...) say(SKIPPED, __VA_ARGS__)

// An ESCAPE_ variable, or "".
const char *parameter(const char *name);
long parameter_number(const char *name);

// True when the last call failed with EPERM, ENOSYS or EACCES: refused by policy, and not for its arguments.
bool refused(long result);

// Runs fn in a child: its exit status as wait(2) has it. A hang is killed after some seconds.
int in_child(void (*fn)(void));

// Path of this program inside the sandbox.
extern const char *self_path;
