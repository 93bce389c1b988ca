// SPDX-License-Identifier: Apache-2.0
// See anomaly_rules.h.
#include "anomaly_rules.h"

#include <stddef.h>
#include <string.h>

#include "anomaly.h"

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)

#define USUAL(severity, response, threshold, window)                                               \
    {                                                                                              \
        1, SEVERITY_##severity, RESPONSE_##response, 0, threshold, window                          \
    }

// Usual thresholds lie above what the benign jobs of tests/bench/anomaly do: builds, package managers, interpreters.
const struct anomaly_rule_row anomaly_rule_table[ANOMALY_RULES] = {
    [RULE_DENIED_FAN_OUT] = {"denied-fan-out", "different destinations that were refused", 1, 64,
                             SECOND, HOUR, USUAL(WARNING, ALERT, 8, MINUTE)},
    [RULE_DANGEROUS_SYSCALL] = {"dangerous-syscall", "system calls that honest jobs do not make", 1,
                                1000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE)},
    [RULE_NEW_EXECUTABLE] = {"new-executable",
                             "executables that the template's frozen profile does not know", 1, 1,
                             SECOND, HOUR, USUAL(NOTICE, ALERT, 1, MINUTE)},
    [RULE_UNNAMED_EXEC] = {"unnamed-exec", "executed files without a name: memfd, or deleted", 1, 1,
                           SECOND, HOUR, USUAL(CRITICAL, ALERT, 1, MINUTE)},
    [RULE_REMOTE_SHELL] = {"remote-shell",
                           "executed files whose stdin, stdout and stderr are one socket", 1, 1,
                           SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE)},
    [RULE_FORK_STORM] = {"fork-storm",
                         "tasks more than before; those that execute something weigh half", 2,
                         100000, 100, HOUR, USUAL(WARNING, ALERT, 100, SECOND)},
    [RULE_MASS_RENAME] = {"mass-rename", "files renamed that were not made for it", 2, 10000000,
                          100, HOUR, USUAL(WARNING, ALERT, 500, 10 * SECOND)},
    [RULE_MASS_UNLINK] = {"mass-unlink", "files removed", 2, 10000000, 100, HOUR,
                          USUAL(NOTICE, LOG, 2000, 10 * SECOND)},
    [RULE_FORK_RATE] = {"fork-rate", "processes made, ended ones included", 2, 10000000, 100, HOUR,
                        USUAL(NOTICE, LOG, 5000, 5 * SECOND)},
    [RULE_MASS_REWRITE] = {"mass-rewrite", "existing files opened for writing, or cut to nothing",
                           2, 10000000, 100, HOUR, USUAL(NOTICE, LOG, 300, 10 * SECOND)},
    [RULE_MASS_RELINK] = {"mass-relink", "files linked under another name, and removed", 2,
                          10000000, 100, HOUR, USUAL(NOTICE, LOG, 500, 10 * SECOND)},
    [RULE_SENSITIVE_PATH] = {"sensitive-path",
                             "sensitive files opened, moved, linked, removed or executed", 1,
                             1000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE)},
    [RULE_SENSITIVE_LOOK] = {"sensitive-look", "sensitive files that were looked at: stat, access",
                             1, 1000000, SECOND, HOUR, USUAL(NOTICE, LOG, 1, MINUTE)},
    [RULE_MINING] = {"mining",
                     "percent of its CPUs, while it neither talks, prints nor works on files", 10,
                     100, SECOND, 24 * HOUR, USUAL(NOTICE, LOG, 90, 5 * MINUTE)},
    [RULE_BEACONING] = {"beaconing", "percent of regularity of 8 or more connections to one place",
                        1, 100, SECOND, 24 * HOUR, USUAL(WARNING, ALERT, 85, 30 * MINUTE)},
    [RULE_LARGE_UPLOAD] = {"large-upload", "KiB sent", 1, UINT64_C(1) << 30, SECOND, 24 * HOUR,
                           USUAL(WARNING, ALERT, 65536, 10 * MINUTE)},
    [RULE_SIGNAL_STORM] = {"signal-storm", "signals to other processes", 2, 10000000, 100, HOUR,
                           USUAL(WARNING, ALERT, 200, SECOND)},
    [RULE_IO_URING] = {"io-uring-use", "uses of io_uring, which hides system calls", 1, 1000000,
                       SECOND, HOUR, USUAL(NOTICE, ALERT, 1, MINUTE)},
    [RULE_OOM] = {"oom", "processes killed for want of memory", 1, 1000000, SECOND, HOUR,
                  USUAL(NOTICE, ALERT, 1, MINUTE)},
    [RULE_DNS_TUNNEL] = {"dns-tunnel",
                         "bytes of random-looking names that were asked for below one domain", 32,
                         10000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1000, MINUTE)},
    [RULE_RATE_SHIFT] = {"rate-shift", "deviations from the job's own mean, summed up", 5, 100000,
                         SECOND, HOUR, USUAL(INFO, LOG, 60, MINUTE)},
    [RULE_UNSEEN_SEQUENCE] = {"unseen-sequence",
                              "sequences of system calls, of 200, that the profile does not have",
                              1, 200, SECOND, HOUR, USUAL(WARNING, ALERT, 8, MINUTE)},
    [RULE_NEW_REFUSAL] = {"new-refusal",
                          "system calls that were refused, which never happened to the program", 1,
                          1000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE)},
};

static const char *const responses[] = {"log", "alert", "throttle", "pause", "kill"};
static const char *const severities[] = {"info", "notice", "warning", "critical"};

void
anomaly_config_usual(struct anomaly_config *out)
{
    for (int i = 0; i < ANOMALY_RULES; i++)
        out->rule[i] = anomaly_rule_table[i].usual;
    out->syscalls = 1;
    out->learn = 1;
}

void
anomaly_config_inherit(struct anomaly_config *c, const struct anomaly_config *above)
{
    for (int i = 0; i < ANOMALY_RULES; i++) {
        struct anomaly_policy *own = &c->rule[i];
        const struct anomaly_policy *from = &above->rule[i];
        own->enabled = own->enabled != 0 ? own->enabled : from->enabled;
        own->severity = own->severity != 0 ? own->severity : from->severity;
        own->response = own->response != 0 ? own->response : from->response;
        own->threshold = own->threshold != 0 ? own->threshold : from->threshold;
        own->window_ms = own->window_ms != 0 ? own->window_ms : from->window_ms;
    }
    c->syscalls = c->syscalls != 0 ? c->syscalls : above->syscalls;
    c->learn = c->learn != 0 ? c->learn : above->learn;
}

int
anomaly_rule_find(const char *name)
{
    for (int i = 0; i < ANOMALY_RULES; i++)
        if (strcmp(anomaly_rule_table[i].name, name) == 0)
            return i;
    return -1;
}

static uint32_t
find(const char *const *names, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i + 1;
    return 0;
}

const char *
anomaly_response_name(uint32_t response)
{
    return response >= 1 && response <= 5 ? responses[response - 1] : NULL;
}

const char *
anomaly_severity_name(uint32_t severity)
{
    return severity >= 1 && severity <= 4 ? severities[severity - 1] : NULL;
}

uint32_t
anomaly_response_find(const char *name)
{
    return find(responses, 5, name);
}

uint32_t
anomaly_severity_find(const char *name)
{
    return find(severities, 4, name);
}
