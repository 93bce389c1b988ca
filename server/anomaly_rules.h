// SPDX-License-Identifier: Apache-2.0
// The rules that look for what is wrong, as one table: name, unit, bounds and usual values; and what the configuration
// makes of them. Plain data: nothing here allocates.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum anomaly_rule {
    RULE_DENIED_FAN_OUT,
    RULE_DANGEROUS_SYSCALL,
    RULE_NEW_EXECUTABLE,
    RULE_UNNAMED_EXEC,
    RULE_REMOTE_SHELL,
    RULE_FORK_STORM,
    RULE_MASS_RENAME,
    RULE_MASS_UNLINK,
    RULE_FORK_RATE,
    RULE_MASS_REWRITE,
    RULE_MASS_RELINK,
    RULE_SENSITIVE_PATH,
    RULE_SENSITIVE_LOOK,
    RULE_MINING,
    RULE_BEACONING,
    RULE_LARGE_UPLOAD,
    RULE_SIGNAL_STORM,
    RULE_IO_URING,
    RULE_OOM,
    RULE_DNS_TUNNEL,
    RULE_RATE_SHIFT,
    RULE_UNSEEN_SEQUENCE,
    RULE_NEW_REFUSAL,
    ANOMALY_RULES,
};

// A rule as it is in force. In the configuration 0 stands for "not said".
struct anomaly_policy {
    uint32_t enabled;  // 1: yes, 2: no
    uint32_t severity; // enum severity
    uint32_t response; // enum anomaly_response
    uint32_t zero;
    uint64_t threshold; // it is raised when the score reaches this
    uint64_t
        window_ms; // what is counted together; and how long it then stays quiet about the same thing
};

struct anomaly_rule_row {
    const char *name;
    const char *meaning; // of its score, for people
    uint64_t threshold_min, threshold_max;
    uint64_t window_min_ms, window_max_ms;
    struct anomaly_policy usual;
};
extern const struct anomaly_rule_row anomaly_rule_table[ANOMALY_RULES];

// Of the host, and of a template in place of the host's.
struct anomaly_config {
    struct anomaly_policy rule[ANOMALY_RULES];
    // 1: the system call tracepoint is wanted, for the rules that need it; 2: it is not; 0: not said.
    uint32_t syscalls;
    // Runs of a template until its profiles are frozen, plus 1; 1: no profiles; 0: not said.
    uint32_t learn;
};

// The table's usual values; no profiles.
void anomaly_config_usual(struct anomaly_config *out);

// What *c does not say it gets from `above`.
void anomaly_config_inherit(struct anomaly_config *c, const struct anomaly_config *above);

// The number of the rule of that name; -1: there is none.
int anomaly_rule_find(const char *name);

// "log", "alert", "throttle", "pause", "kill", and "info", "notice", "warning", "critical"; NULL for other numbers. The
// ways back give 0 for other words.
const char *anomaly_response_name(uint32_t response);
const char *anomaly_severity_name(uint32_t severity);
uint32_t anomaly_response_find(const char *name);
uint32_t anomaly_severity_find(const char *name);
