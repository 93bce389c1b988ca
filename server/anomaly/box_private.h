// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the tripwires: box.c, ticks.c, names.c, destinations.c, tools.c.
#pragma once

#include <stddef.h>

#include "box.h"
#include "bpf/net.h"
#include "server/telemetry/finding.h"

// FNV-1a 64, never 0.
uint64_t box_hash(const void *bytes, size_t n, uint64_t seed);

// Adds n now; returns the sum of the window.
int64_t box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n);

// Sets a rule's scores of the current job and of the whole sandbox. True: one reaches the threshold; call box_raise()
// then.
bool box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double job, double whole);

// Counts n in the rule's windows, and reports each subject once within a window.
void box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject, uint64_t n,
               const char *text);

// Raises a finding, unless the rule was reported within its window, or there were BOX_FINDINGS_BURST in this minute.
void box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score,
               const char *text);

// The two halves of box_raise(): marks the rule as reported for a window; and handles a new or repeated finding.
void box_keep_quiet(struct box *b, enum anomaly_rule rule, uint64_t now_ns);
void box_say(struct box *b, bool is_new, enum anomaly_rule rule, uint64_t now_ns, double score,
             const char *text);

// The number of the current job; 0: unknown.
static inline uint32_t
box_job_number(const struct box *b)
{
    return b->job != NULL ? b->job->number : 0;
}

// Counts an event that also has a counter.
static inline void
box_seen(struct box *b, enum anomaly_rule rule)
{
    b->whole.seen[rule]++;
    if (b->job != NULL)
        b->job->scope.seen[rule]++;
}

// tools.c: a program of the host that manages keys was executed; and whether it may open this sensitive path in its own
// folder.
void box_tool_executed(struct box *b, const struct watch_exec *x);
bool box_tool_opens(const struct box *b, const struct event *head, const struct watch_open *o);

// destinations.c: EVENT_DENIED, EVENT_CONNECT and EVENT_LISTEN.
void box_network(struct box *b, const struct event *head, const struct net_event *e);

static inline const struct anomaly_policy *
box_rule(const struct box *b, enum anomaly_rule rule)
{
    return &b->policy->rule[rule];
}
