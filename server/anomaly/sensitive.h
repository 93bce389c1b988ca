// SPDX-License-Identifier: Apache-2.0
// Sensitive paths, for the rules sensitive-path and sensitive-look. The kernel compares the paths of jobs with them
// (bpf/watch.h).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/watch.h"
#include "proto/err.h"

enum {
    SENSITIVE_OWN_MAX = 64,     // patterns of the configuration
    SENSITIVE_WRITTEN_MAX = 64, // paths of detection rules
    SENSITIVE_PATTERN_MAX = 128,
};

// The configuration: additional patterns, and disabled built-in ones.
struct sensitive_config {
    char own[SENSITIVE_OWN_MAX][SENSITIVE_PATTERN_MAX];
    uint32_t own_n;
    bool without[WATCH_SENSITIVE];
};

// The tables of the kernel.
struct sensitive_table {
    struct watch_sensitive slot[WATCH_SENSITIVE_SLOTS];
    struct watch_hints hints;
};

// A pattern: "/etc/shadow", "/proc/#/environ" (# is a number): the path and everything below it; ".ssh",
// ".aws/credentials": one or two components anywhere in a path. INVALID_ARGUMENT with the reason for anything else.
int anomaly_sensitive_check(const char *pattern, struct err *e);

// Built-in pattern i, NULL beyond the last; and the number of a pattern, -1 if it is not built in.
const char *anomaly_sensitive_at(uint32_t i);
int anomaly_sensitive_find(const char *pattern);

// Built-in pattern i protects credentials, which a job may also make for itself.
bool anomaly_sensitive_is_credential(uint32_t i);

// Fills the table with the patterns in force. Returns how many did not fit.
uint32_t anomaly_sensitive_fill(struct sensitive_table *t, const struct sensitive_config *c);

// Adds one pattern to a table: enum watch_when bits. False: its slots are all in use.
bool anomaly_sensitive_add(struct sensitive_table *t, const char *pattern, uint32_t rule,
                           uint32_t when);

// Adds the paths that detection rules need (proto/detect.h). Returns how many did not fit.
struct detect;
uint32_t anomaly_sensitive_rules(struct sensitive_table *t, const struct detect *rules);

// The paths of the rules can be watched. INVALID_ARGUMENT: one cannot, or there are too many.
int anomaly_sensitive_check_rules(const struct detect *rules, struct err *e);

// Writes the table to the kernel's maps "sensitive" and "sensitive_hints". Returns how many entries failed.
uint32_t anomaly_sensitive_write(const struct sensitive_table *t, int sensitive_fd, int hints_fd);
