// SPDX-License-Identifier: Apache-2.0
// Which paths are sensitive: what the rules sensitive-path and sensitive-look are about. The kernel compares what jobs name
// and open (bpf/watch.h).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../bpf/watch.h"
#include "../proto/err.h"

enum {
    SENSITIVE_OWN_MAX = 64, // patterns of the configuration
    SENSITIVE_PATTERN_MAX = 128,
};

// What the configuration says: patterns beside the built-in ones, and which of those do not hold.
struct sensitive_config {
    char own[SENSITIVE_OWN_MAX][SENSITIVE_PATTERN_MAX];
    uint32_t own_n;
    bool without[WATCH_SENSITIVE];
};

// The kernel's side of it.
struct sensitive_table {
    struct watch_sensitive slot[WATCH_SENSITIVE_SLOTS];
    struct watch_hints hints;
};

// "/etc/shadow", "/proc/#/environ" (# is a number): the path or what is below it; ".ssh", ".aws/credentials": one or two
// components anywhere in it. INVALID_ARGUMENT with the reason for anything else.
int anomaly_sensitive_check(const char *pattern, struct err *e);

// Built-in pattern i, NULL beyond the last; and its number, -1 where it is none.
const char *anomaly_sensitive_at(uint32_t i);
int anomaly_sensitive_find(const char *pattern);

// Fills the table with what holds. Returns how many patterns found no room.
uint32_t anomaly_sensitive_fill(struct sensitive_table *t, const struct sensitive_config *c);

// Puts one pattern into a table: enum watch_when bits. False: all slots that it may have are taken.
bool anomaly_sensitive_place(struct sensitive_table *t, const char *pattern, uint32_t rule,
                             uint32_t when);

// Writes the table to the kernel's maps "sensitive" and "sensitive_hints". Returns how many entries failed.
uint32_t anomaly_sensitive_write(const struct sensitive_table *t, int sensitive_fd, int hints_fd);
