// SPDX-License-Identifier: Apache-2.0
// The table of rules: name, unit, bounds and default settings; and the settings in the configuration. Plain data:
// nothing here allocates.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum anomaly_rule {
    RULE_DENIED_FAN_OUT,
    RULE_DANGEROUS_SYSCALL,
    RULE_NEW_EXECUTABLE,
    RULE_UNNAMED_EXEC,
    RULE_REMOTE_SHELL,
    RULE_PRELOADED_LIBRARY,
    RULE_OPEN_LISTENER,
    RULE_FORK_STORM,
    RULE_MASS_RENAME,
    RULE_MASS_UNLINK,
    RULE_FORK_RATE,
    RULE_MASS_REWRITE,
    RULE_MASS_RELINK,
    RULE_MASS_WIPE,
    RULE_MASS_ENCRYPT,
    RULE_UPLOAD_TO_ADDRESS,
    RULE_SENSITIVE_PATH,
    RULE_SENSITIVE_LOOK,
    RULE_LARGE_UPLOAD,
    RULE_SIGNAL_STORM,
    RULE_IO_URING,
    RULE_OOM,
    RULE_DNS_TUNNEL,
    RULE_UNSEEN_SEQUENCE,
    RULE_NEW_REFUSAL,
    RULE_WITNESS_MISMATCH,
    // The following keep no counts in windows (box.h): their conditions have their own, or one event is enough.
    RULES_WITH_WINDOWS,
    RULE_RECONNAISSANCE = RULES_WITH_WINDOWS,
    RULE_MINING,
    RULE_BEACONING,
    RULE_RATE_SHIFT,
    RULE_KERNEL_MEMORY,
    RULE_CLOUD_METADATA,
    RULE_SHELL_CONNECTION,
    // Evidence, which is only logged, and what is found if several kinds of it come together.
    RULE_REFUSED_CALL,
    RULE_REFUSED_SOCKET,
    RULE_SET_ID_FILE,
    RULE_MANY_REFUSED_CALLS,
    RULE_CREDENTIAL_USE,
    RULE_CREDENTIAL_SWEEP,
    RULE_SYSTEM_FILE,
    RULE_ACCOUNT_TOOL,
    RULE_STARTUP_FILE,
    RULE_STARTUP_FILES,
    RULE_BARE_DESTINATION,
    RULE_PRIVILEGE_LOOK,
    RULE_PRELOADED_PROGRAMS,
    RULE_IO_URING_RING,
    RULE_CREDENTIAL_CONNECTION,
    RULE_COMBINED_EVIDENCE,
    ANOMALY_RULES,
};

// Numbers of built-in conditions.
enum anomaly_parameter {
    PARAMETER_CONNECTIONS,    // before their regularity is computed
    PARAMETER_INTERVAL_MS,    // faster connections are normal work
    PARAMETER_NAME_LETTERS,   // of a name's part that may carry data
    PARAMETER_NAME_MILLIBITS, // entropy of each letter of such a part
    PARAMETER_IDLE_BYTES,     // traffic in 100 ms of a sandbox that counts as idle
    ANOMALY_PARAMETERS,
};

struct anomaly_parameter_row {
    enum anomaly_rule rule;
    const char *name;
    uint64_t min, max, usual;
};
extern const struct anomaly_parameter_row anomaly_parameter_table[ANOMALY_PARAMETERS];

// The settings of a rule in force. In the configuration 0 means "not set".
struct anomaly_policy {
    uint32_t enabled;   // 1: yes, 2: no
    uint32_t severity;  // enum severity
    uint32_t response;  // enum response
    uint32_t snapshot;  // before the response; 1: yes, 2: no
    uint64_t threshold; // the rule raises a finding at this score
    uint64_t window_ms; // time over which it counts, and in which it reports a subject once
};

struct anomaly_rule_row {
    const char *name;
    const char *meaning; // unit of its score
    uint64_t threshold_min, threshold_max;
    uint64_t window_min_ms, window_max_ms;
    struct anomaly_policy usual;
    const char *tags; // with spaces between them
    // The condition that decides, if it is not in the file of rules. NULL: it is there.
    const char *builtin;
    const char *counter; // of the kernel, behind its events. NULL: none
};
extern const struct anomaly_rule_row anomaly_rule_table[ANOMALY_RULES];

// Settings of the host, and of a template, which override the host's.
struct anomaly_config {
    struct anomaly_policy rule[ANOMALY_RULES];
    // 1: use the syscall tracepoint, for the rules that need it; 2: do not; 0: not set.
    uint32_t syscalls;
    // Runs of a template until its profile is frozen, plus 1; 1: no profiles; 0: not set.
    uint32_t learn;
    uint64_t parameter[ANOMALY_PARAMETERS]; // 0: not set
};

// The default settings; no profiles.
void anomaly_config_usual(struct anomaly_config *out);

// Fills the settings that *c does not set from `above`.
void anomaly_config_inherit(struct anomaly_config *c, const struct anomaly_config *above);

// The number of the rule with this name; -1: not found.
int anomaly_rule_find(const char *name);
