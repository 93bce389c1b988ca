// SPDX-License-Identifier: Apache-2.0
// What a detector found: plain data. Telemetry publishes it and keeps it in the record of its job; anomaly/ makes it, keeps
// it, and answers it.
#pragma once

#include <stdint.h>

#include "server/base/idtable.h"

// Numbers as in stockade.v1.Severity.
enum severity {
    SEVERITY_INFO = 1,
    SEVERITY_NOTICE = 2,
    SEVERITY_WARNING = 3,
    SEVERITY_CRITICAL = 4,
};

enum response {
    RESPONSE_LOG = 1, // kept, in the record, and an event
    RESPONSE_ALERT,   // and a warning in the broker's log
    RESPONSE_THROTTLE,
    RESPONSE_PAUSE,
    RESPONSE_KILL,
};

enum { FINDING_TEXT_MAX = 256, FINDING_LABELS = 512 };

struct finding {
    uint64_t sequence;  // counts up, from 1; 0: held back, since there were too many in a minute
    uint64_t of_tenant; // counts up over those of its tenant, from 1
    uint64_t time_ns;   // CLOCK_REALTIME
    uint64_t event_ns;  // CLOCK_BOOTTIME of the event that raised it; 0: a tick did
    const char *rule;   // constant, such as "denied-fan-out"
    enum severity severity;
    enum response response;
    double score, threshold;
    char text[FINDING_TEXT_MAX]; // one sentence, UTF-8, no control bytes
    char sandbox_id[ID_TEXT_MAX + 1];
    char process_id[ID_TEXT_MAX + 1]; // "": the sandbox as a whole
    char template[64];
    char tenant[32];
    char sandbox_name[65];
    uint32_t pid;                // of the host; 0: no process is known
    char comm[64];               // UTF-8
    char labels[FINDING_LABELS]; // "KEY\0VALUE\0", as many as fit
    uint32_t labels_n;
};

// "warning", "throttle"; NULL: there is no such number.
const char *finding_severity_name(uint32_t severity);
const char *finding_response_name(uint32_t response);

// The number of a word; 0: there is none.
uint32_t finding_severity_find(const char *name);
uint32_t finding_response_find(const char *name);
