// SPDX-License-Identifier: Apache-2.0
// The system calls that jobs may make, as a table. What is not in it is refused with EPERM: the reasons are told in
// SECURITY.md, and a test holds a list of what must stay refused.
#pragma once

#include <stdint.h>

enum { FILTER_ARGS_MAX = 3 };

// One condition on an argument: (argument & mask) == value. A mask of 0 ends the list.
struct filter_arg {
    uint8_t index;
    uint64_t mask;
    uint64_t value;
};

struct filter_rule {
    int nr; // negative where the architecture lacks the call
    struct filter_arg args[FILTER_ARGS_MAX];
};

extern const struct filter_rule filter_job_rules[];
extern const unsigned filter_job_rules_n;

// What the guest may do besides, and what its jobs are answered.
struct filter_extra {
    struct filter_rule rule;
    int job_error;
};
extern const struct filter_extra filter_guest_extras[];
extern const unsigned filter_guest_extras_n;

// Calls that libc replaces by an older one when they are missing: ENOSYS.
extern const int filter_absent[];
extern const unsigned filter_absent_n;

// Calls that programs do without where a file system lacks what they ask for: EOPNOTSUPP.
extern const int filter_unsupported[];
extern const unsigned filter_unsupported_n;

// The highest number that was looked at when the table was made; later ones answer ENOSYS.
enum { FILTER_NR_REVIEWED = 469 };
