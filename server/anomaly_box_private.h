// SPDX-License-Identifier: Apache-2.0
// Between the files of the tripwires: anomaly_box.c, anomaly_ticks.c, anomaly_names.c.
#pragma once

#include <stddef.h>

#include "anomaly_box.h"

// FNV-1a 64, never 0.
uint64_t box_hash(const void *bytes, size_t n, uint64_t seed);

// Adds n at this moment; the sum of the window.
int64_t box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n);

// A rule's scores: of the job that the call is about, and of the whole sandbox. True: one reaches the threshold, and is
// to be raised or answered. Call box_raise() then.
bool box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double job, double whole);

// Counts n in the rule's windows, and reports each subject once within a window however often it comes.
void box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject, uint64_t n,
               const char *text);

// A finding, unless the rule has been reported within its window, or there were BOX_FINDINGS_BURST in this minute already.
void box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score,
               const char *text);

// Its two halves: the rule has been reported for a window from now on, and what becomes of a finding that is new or is not.
void box_keep_quiet(struct box *b, enum anomaly_rule rule, uint64_t now_ns);
void box_say(struct box *b, bool is_new, enum anomaly_rule rule, uint64_t now_ns, double score,
             const char *text);

// The number of the job that the call is about; 0: not known.
static inline uint32_t
box_job_number(const struct box *b)
{
    return b->job != NULL ? b->job->number : 0;
}

// An event that has come, for what a counter says has happened.
static inline void
box_seen(struct box *b, enum anomaly_rule rule)
{
    b->whole.seen[rule]++;
    if (b->job != NULL)
        b->job->scope.seen[rule]++;
}

// anomaly_tools.c: a program of the host's that keeps keys has been executed; and whether an open of a sensitive path is
// what such a program does with its own folder.
void box_tool_executed(struct box *b, const struct watch_exec *x);
bool box_tool_opens(const struct box *b, const struct event *head, const struct watch_open *o);

static inline const struct anomaly_policy *
box_rule(const struct box *b, enum anomaly_rule rule)
{
    return &b->policy->rule[rule];
}
