// Between the files of the tripwires: anomaly_box.c, anomaly_ticks.c, anomaly_names.c.
#pragma once

#include <stddef.h>

#include "anomaly_box.h"

// FNV-1a 64, never 0.
uint64_t box_hash(const void *bytes, size_t n, uint64_t seed);

// The subject has not been told yet; from now on it has. Remembers BOX_TOLD of them.
bool box_first(struct box *b, uint64_t subject);

// Adds n at this moment; the sum of the window.
int64_t box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n);

// The score reaches the rule's threshold, and the rule was not raised within its window: raise it now.
bool box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score);

// Counts one in the rule's window, and tells each subject once however often it comes.
void box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject,
               const char *text);

// A finding, unless there were BOX_FINDINGS_BURST in this minute already.
void box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score,
               const char *text);

static inline const struct anomaly_policy *
box_rule(const struct box *b, enum anomaly_rule rule)
{
    return &b->policy->rule[rule];
}
