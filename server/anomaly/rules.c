// SPDX-License-Identifier: Apache-2.0
// See rules.h.
#include "rules.h"

#include <stddef.h>
#include <string.h>

#include "server/telemetry/finding.h"

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)

#define USUAL(severity, response, threshold, window)                                               \
    {                                                                                              \
        1, SEVERITY_##severity, RESPONSE_##response, 2, threshold, window                          \
    }

// Evidence, for the correlation with other evidence; and rules that count different values.
#define LOGGED(name, meaning, severity, tags)                                                      \
    {                                                                                              \
        name, meaning, 1, 1, SECOND, HOUR, USUAL(severity, LOG, 1, MINUTE), tags, NULL, NULL       \
    }
#define DISTINCT(name, meaning, most, threshold, tags)                                             \
    {                                                                                              \
        name, meaning, 1, most, SECOND, HOUR, USUAL(WARNING, ALERT, threshold, 5 * MINUTE), tags,  \
            NULL, NULL                                                                             \
    }

// The default thresholds are above the figures of the benign jobs of tests/bench/anomaly: builds, package managers,
// interpreters. Rules with severity info cannot separate attacks from benign work of the same amount (`rm -r`, a
// formatter, a shell's loop).
const struct anomaly_rule_row anomaly_rule_table[ANOMALY_RULES] = {
    [RULE_DENIED_FAN_OUT] = {"denied-fan-out", "different refused destinations", 1, 64, SECOND,
                             HOUR, USUAL(WARNING, ALERT, 8, MINUTE), "T1046", NULL, NULL},
    [RULE_DANGEROUS_SYSCALL] = {"dangerous-syscall", "system calls that honest jobs do not make", 1,
                                1000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE),
                                "T1068 T1611", NULL, "dangerous_calls"},
    [RULE_NEW_EXECUTABLE] = {"new-executable",
                             "executables that are not in the template's frozen profile", 1, 1,
                             SECOND, HOUR, USUAL(NOTICE, ALERT, 1, MINUTE), "T1204.002", NULL,
                             "unprofiled_execs"},
    [RULE_UNNAMED_EXEC] = {"unnamed-exec",
                           "executed files without a name: memfds, or deleted files", 1, 1, SECOND,
                           HOUR, USUAL(CRITICAL, ALERT, 1, MINUTE), "T1620", NULL, "unnamed_execs"},
    [RULE_REMOTE_SHELL] = {"remote-shell",
                           "remote shells: programs on a socket, or on a terminal that is "
                           "connected to outside",
                           1, 1, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE), "T1059.004", NULL,
                           "remote_shells"},
    [RULE_PRELOADED_LIBRARY] = {"preloaded-library",
                                "libraries that the sandbox wrote, loaded by LD_PRELOAD or similar",
                                1, 1000000, SECOND, HOUR, USUAL(NOTICE, LOG, 1, MINUTE),
                                "T1574.006", NULL, "preloads"},
    // Development servers do the same, and nobody outside can reach them.
    [RULE_OPEN_LISTENER] = {"open-listener", "TCP sockets that listen on all addresses", 1, 1000000,
                            SECOND, HOUR, USUAL(INFO, LOG, 1, MINUTE), "T1571", NULL, "listens"},
    [RULE_FORK_STORM] = {"fork-storm",
                         "increase in tasks; a task that executes a program counts half", 2, 100000,
                         100, HOUR, USUAL(WARNING, ALERT, 100, SECOND), "T1499", "task-growth",
                         NULL},
    [RULE_MASS_RENAME] = {"mass-rename", "files renamed, without files that were created for it", 2,
                          10000000, 100, HOUR, USUAL(INFO, LOG, 500, 10 * SECOND), "T1486",
                          "counter-increase", "renames"},
    [RULE_MASS_UNLINK] = {"mass-unlink", "files removed", 2, 10000000, 100, HOUR,
                          USUAL(INFO, LOG, 2000, 10 * SECOND), "T1485", "counter-increase",
                          "unlinks"},
    [RULE_FORK_RATE] = {"fork-rate", "processes created, including ended ones", 2, 10000000, 100,
                        HOUR, USUAL(INFO, LOG, 5000, 5 * SECOND), "", "counter-increase", "forks"},
    [RULE_MASS_REWRITE] = {"mass-rewrite", "existing files opened for writing, or truncated to 0",
                           2, 10000000, 100, HOUR, USUAL(INFO, LOG, 300, 10 * SECOND), "T1486",
                           "counter-increase", "rewrites"},
    [RULE_MASS_RELINK] = {"mass-relink", "files linked under another name, and removed", 2,
                          10000000, 100, HOUR, USUAL(INFO, LOG, 500, 10 * SECOND), "T1486",
                          "counter-increase", "links"},
    [RULE_MASS_WIPE] = {"mass-wipe", "existing files rewritten and removed at once", 2, 10000000,
                        100, HOUR, USUAL(WARNING, ALERT, 300, 10 * SECOND), "T1485",
                        "rewritten-and-removed", NULL},
    [RULE_MASS_ENCRYPT] = {"mass-encrypt", "existing files rewritten and renamed", 2, 10000000, 100,
                           HOUR, USUAL(WARNING, ALERT, 300, 10 * SECOND), "T1486",
                           "rewritten-and-renamed", NULL},
    [RULE_RECONNAISSANCE] = {"reconnaissance", "of six kinds of commands that explore the sandbox",
                             2, 6, SECOND, HOUR, USUAL(WARNING, ALERT, 5, MINUTE), "T1082 T1087",
                             "distinct-looks", NULL},
    [RULE_UPLOAD_TO_ADDRESS] =
        {"upload-to-address", "calls of curl or wget that send a file to an address without a name",
         1, 1000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE), "T1048", "file-to-address",
         NULL},
    [RULE_SENSITIVE_PATH] = {"sensitive-path",
                             "sensitive files opened, moved, linked, removed or executed", 1,
                             1000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE), "T1552.001",
                             NULL, "sensitive_uses"},
    [RULE_SENSITIVE_LOOK] = {"sensitive-look", "sensitive files examined by stat or access", 1,
                             1000000, SECOND, HOUR, USUAL(NOTICE, LOG, 1, MINUTE), "T1083", NULL,
                             "sensitive_looks"},
    [RULE_MINING] = {"mining",
                     "percent of its CPUs, without network traffic, output or file access", 10, 100,
                     SECOND, 24 * HOUR, USUAL(NOTICE, LOG, 90, 5 * MINUTE), "T1496",
                     "busy-without-work", NULL},
    [RULE_BEACONING] = {"beaconing",
                        "percent of regularity of 8 or more connections to one destination", 1, 100,
                        SECOND, 24 * HOUR, USUAL(WARNING, ALERT, 85, 30 * MINUTE), "T1071",
                        "regular-connections", NULL},
    [RULE_LARGE_UPLOAD] = {"large-upload", "KiB sent", 1, UINT64_C(1) << 30, SECOND, 24 * HOUR,
                           USUAL(WARNING, ALERT, 65536, 10 * MINUTE), "T1048", "counter-increase",
                           "out_bytes"},
    [RULE_SIGNAL_STORM] = {"signal-storm", "signals to other processes", 2, 10000000, 100, HOUR,
                           USUAL(WARNING, ALERT, 200, SECOND), "T1489", "counter-increase",
                           "signals"},
    [RULE_IO_URING] = {"io-uring-use", "uses of io_uring, which hides system calls", 1, 1000000,
                       SECOND, HOUR, USUAL(NOTICE, LOG, 1, MINUTE), "T1562", NULL, "io_urings"},
    [RULE_OOM] = {"oom", "processes killed for lack of memory", 1, 1000000, SECOND, HOUR,
                  USUAL(NOTICE, LOG, 1, MINUTE), "", NULL, "ooms"},
    [RULE_DNS_TUNNEL] = {"dns-tunnel", "bytes of random-looking names queried below one domain", 32,
                         10000000, SECOND, HOUR, USUAL(WARNING, ALERT, 1000, MINUTE), "T1071.004",
                         "random-names", NULL},
    [RULE_RATE_SHIFT] = {"rate-shift", "accumulated deviations from the job's own mean", 5, 100000,
                         SECOND, HOUR, USUAL(INFO, LOG, 60, MINUTE), "", "mean-shift", NULL},
    [RULE_KERNEL_MEMORY] = {"kernel-memory",
                            "percent of the kernel memory for lists of names at which a sandbox is "
                            "destroyed",
                            10, 100, SECOND, HOUR, USUAL(WARNING, ALERT, 50, MINUTE), "T1499",
                            "lists-of-names", NULL},
    [RULE_UNSEEN_SEQUENCE] = {"unseen-sequence",
                              "sequences of system calls, of 200, that are not in the profile", 1,
                              200, SECOND, HOUR, USUAL(WARNING, ALERT, 8, MINUTE), "", NULL, NULL},
    [RULE_NEW_REFUSAL] = {"new-refusal",
                          "system calls of a program that were refused for the first time", 1, 1000,
                          SECOND, HOUR, USUAL(WARNING, ALERT, 1, MINUTE), "", NULL, NULL},
    [RULE_CLOUD_METADATA] = {"cloud-metadata",
                             "refused addresses that are the metadata of different clouds", 1, 4,
                             SECOND, HOUR, USUAL(WARNING, ALERT, 2, MINUTE), "T1552.005", NULL,
                             NULL},
    [RULE_SHELL_CONNECTION] = {"shell-connection", "different refused destinations of bash itself",
                               1, 4, SECOND, HOUR, USUAL(WARNING, ALERT, 3, MINUTE), "T1059.004",
                               NULL, NULL},
    [RULE_WITNESS_MISMATCH] = {"witness-mismatch",
                               "records in which the kernel's and the relay's figures of the "
                               "traffic contradict each other",
                               1, 1, SECOND, HOUR, USUAL(CRITICAL, ALERT, 1, MINUTE), "",
                               "contradicting-witnesses", NULL},
    // Honest tools make these calls, too, and are refused: debuggers, profilers, builders of containers, test suites.
    [RULE_REFUSED_CALL] =
        LOGGED("refused-call", "refused system calls that tools make", NOTICE, "T1068"),
    [RULE_REFUSED_SOCKET] =
        LOGGED("refused-socket", "refused sockets of unusual kinds", NOTICE, "T1040"),
    [RULE_SET_ID_FILE] =
        LOGGED("set-id-file", "files that a job gave a set-user-ID bit", NOTICE, "T1548.001"),
    [RULE_MANY_REFUSED_CALLS] =
        DISTINCT("many-refused-calls", "different refused calls about namespaces and mounts", 8, 5,
                 "T1068 T1611"),
    [RULE_CREDENTIAL_USE] = LOGGED("credential-use", "credentials used", NOTICE, "T1552.001"),
    [RULE_CREDENTIAL_SWEEP] =
        DISTINCT("credential-sweep", "different kinds of credentials used", 8, 4, "T1552.001"),
    [RULE_SYSTEM_FILE] =
        LOGGED("system-file", "sensitive files that tools come across, or that are not there",
               NOTICE, "T1083"),
    [RULE_ACCOUNT_TOOL] = LOGGED(
        "account-tool", "programs for accounts that were refused the passwords", NOTICE, "T1548"),
    [RULE_STARTUP_FILE] = LOGGED("startup-file", "files that run programs later, or allow logins",
                                 NOTICE, "T1053.003 T1098.004"),
    [RULE_STARTUP_FILES] = DISTINCT(
        "startup-files", "different kinds of files that run programs later, or allow logins", 4, 2,
        "T1053.003 T1098.004"),
    [RULE_BARE_DESTINATION] =
        LOGGED("bare-destination", "refused connections to public addresses", INFO, "T1071"),
    [RULE_PRIVILEGE_LOOK] =
        LOGGED("privilege-look", "commands that look for privileges", NOTICE, "T1069"),
    [RULE_PRELOADED_PROGRAMS] = DISTINCT("preloaded-programs",
                                         "different programs of the host with a library of the "
                                         "sandbox",
                                         4, 2, "T1574.006"),
    [RULE_IO_URING_RING] = {"io-uring-ring", "rings of io_uring that were made", 1, 1, SECOND, HOUR,
                            USUAL(NOTICE, ALERT, 1, MINUTE), "T1562", NULL, NULL},
    [RULE_CREDENTIAL_CONNECTION] = DISTINCT("credential-connection",
                                            "a credential used, and a refused connection to a "
                                            "public address",
                                            4, 2, "T1552.001 T1041"),
    [RULE_COMBINED_EVIDENCE] =
        DISTINCT("combined-evidence", "different kinds of evidence", 8, 3, "T1068 T1548"),
};

const struct anomaly_parameter_row anomaly_parameter_table[ANOMALY_PARAMETERS] = {
    [PARAMETER_CONNECTIONS] = {RULE_BEACONING, "connections", 3, 1000, 8},
    [PARAMETER_INTERVAL_MS] = {RULE_BEACONING, "interval_ms", 1, 3600000, 200},
    [PARAMETER_NAME_LETTERS] = {RULE_DNS_TUNNEL, "letters", 4, 200, 12},
    // words of a language of this length are below
    [PARAMETER_NAME_MILLIBITS] = {RULE_DNS_TUNNEL, "millibits", 1, 8000, 2800},
    [PARAMETER_IDLE_BYTES] = {RULE_MINING, "idle_bytes", 1, 1 << 30, 512},
};

void
anomaly_config_usual(struct anomaly_config *out)
{
    for (int i = 0; i < ANOMALY_RULES; i++)
        out->rule[i] = anomaly_rule_table[i].usual;
    for (int i = 0; i < ANOMALY_PARAMETERS; i++)
        out->parameter[i] = anomaly_parameter_table[i].usual;
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
        own->snapshot = own->snapshot != 0 ? own->snapshot : from->snapshot;
        own->threshold = own->threshold != 0 ? own->threshold : from->threshold;
        own->window_ms = own->window_ms != 0 ? own->window_ms : from->window_ms;
    }
    for (int i = 0; i < ANOMALY_PARAMETERS; i++)
        c->parameter[i] = c->parameter[i] != 0 ? c->parameter[i] : above->parameter[i];
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
