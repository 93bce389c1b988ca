// SPDX-License-Identifier: Apache-2.0
// A finding of a detector: plain data. anomaly/ makes it, stores it and responds to it; telemetry publishes it and
// adds it to the record of its job.
#pragma once

#include <stdbool.h>
#include <stddef.h>
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
    RESPONSE_LOG = 1, // stored, in the record, and an event
    RESPONSE_ALERT,   // also a warning in the broker's log
    RESPONSE_THROTTLE,
    RESPONSE_PAUSE,
    RESPONSE_KILL,
    RESPONSE_DENY_NETWORK, // beside the others, not stronger than they are
};

enum {
    FINDING_TEXT_MAX = 256,
    FINDING_RULE = 48,
    FINDING_LABELS = 512,
    FINDING_TAGS = 320,
    FINDING_SILENCE = 17,
};

struct finding {
    uint64_t sequence; // increases, from 1; 0: withheld, because there were too many in this minute
    uint64_t of_tenant;      // increases over the tenant's findings, from 1
    uint64_t time_ns;        // CLOCK_REALTIME
    uint64_t event_ns;       // CLOCK_BOOTTIME of the event that caused it; 0: a tick did
    char rule[FINDING_RULE]; // such as "denied-fan-out"
    enum severity severity;
    enum response response;
    double score, threshold;
    char text[FINDING_TEXT_MAX]; // one sentence, UTF-8, no control bytes
    char sandbox_id[ID_TEXT_MAX + 1];
    char process_id[ID_TEXT_MAX + 1]; // "": the whole sandbox
    char template[64];
    char tenant[32];
    char sandbox_name[65];
    uint32_t pid;                // in the host's pid namespace; 0: unknown
    char comm[64];               // UTF-8
    char labels[FINDING_LABELS]; // "KEY\0VALUE\0", as many as fit
    uint32_t labels_n;
    char tags[FINDING_TAGS]; // "T1059\0...", as many as fit
    uint32_t tags_n;
    bool tenant_rule;              // the tenant wrote the rule
    char silence[FINDING_SILENCE]; // the silence that applied; "": none
    bool silenced;                 // no alert is raised
    bool snapshot_first;           // before the response
};

// Sets the tags, as many as fit.
void finding_tags(struct finding *f, size_t n, const char *const *tags);

// Writes pointers to the tags. Returns their number.
enum { FINDING_TAGS_MAX = 16 };
uint32_t finding_tag_list(const struct finding *f, const char *out[FINDING_TAGS_MAX]);

// "warning", "throttle"; NULL: no such number.
const char *finding_severity_name(uint32_t severity);
const char *finding_response_name(uint32_t response);

// The number of a name; 0: no such name.
uint32_t finding_severity_find(const char *name);
uint32_t finding_response_find(const char *name);
