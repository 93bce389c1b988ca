// SPDX-License-Identifier: Apache-2.0
// The system calls that jobs may make, as a table. Any other call is refused with EPERM; SECURITY.md has the reasons,
// and a test has a list of calls that must stay refused.
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
    int nr; // negative if the architecture lacks the call
    struct filter_arg args[FILTER_ARGS_MAX];
};

extern const struct filter_rule filter_job_rules[];
extern const unsigned filter_job_rules_n;

// Additional calls for the guest, and the errno for its jobs.
struct filter_extra {
    struct filter_rule rule;
    int job_error;
};
extern const struct filter_extra filter_guest_extras[];
extern const unsigned filter_guest_extras_n;

// Refused calls of jobs that fail with another errno than EPERM, because programs can handle it.
extern const struct filter_extra filter_job_answers[];
extern const unsigned filter_job_answers_n;

// Calls that libc replaces by older ones if they are missing: ENOSYS.
extern const int filter_absent[];
extern const unsigned filter_absent_n;

// Calls that programs can do without, since some file systems lack the feature: EOPNOTSUPP.
extern const int filter_unsupported[];
extern const unsigned filter_unsupported_n;

// The most descriptors that one poll or select waits for; more fail with EINVAL.
enum { FILTER_POLL_MAX = 1024 };

// The highest system call number when the table was made; later calls fail with ENOSYS.
enum { FILTER_NR_REVIEWED = 469 };
