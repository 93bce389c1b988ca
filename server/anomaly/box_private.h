// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the tripwires: box.c, ticks.c, names.c, destinations.c, tools.c.
#pragma once

#include <assert.h>
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

// The same without the finding. True: it is due, or its response is.
struct box_due {
    int64_t sum;
    bool is_new;
    bool of_values; // it is the number of different values
};
bool box_counted(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject,
                 uint64_t n, struct box_due *due);

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

// Where the events of a rule are counted that also has a counter of the kernel.
static inline uint64_t *
box_seen_at(struct box_scope *of, enum anomaly_rule rule)
{
    static const enum anomaly_rule rules[BOX_SEEN] = {RULE_UNNAMED_EXEC,   RULE_NEW_EXECUTABLE,
                                                      RULE_REMOTE_SHELL,   RULE_PRELOADED_LIBRARY,
                                                      RULE_OPEN_LISTENER,  RULE_DANGEROUS_SYSCALL,
                                                      RULE_SENSITIVE_PATH, RULE_SENSITIVE_LOOK,
                                                      RULE_IO_URING,       RULE_OOM};
    for (uint32_t i = 0; i < BOX_SEEN; i++)
        if (rules[i] == rule)
            return &of->seen[i];
    assert(false); // a rule without a counter
    return NULL;
}

// Counts an event that also has a counter.
static inline void
box_seen(struct box *b, enum anomaly_rule rule)
{
    (*box_seen_at(&b->whole, rule))++;
    if (b->job != NULL)
        (*box_seen_at(&b->job->scope, rule))++;
}

// tools.c: a program of the host that manages keys was executed; and whether it may open this sensitive path in its own
// folder.
void box_tool_executed(struct box *b, const struct watch_exec *x);
bool box_tool_opens(const struct box *b, const struct event *head, const struct watch_open *o);

// known.c: a program was executed; and what its process opens.
enum box_grade {
    BOX_GRADE_NONE,     // nothing is known that excuses it
    BOX_GRADE_OWN,      // its own environment, or what ps opens whatever it does: nothing is shown
    BOX_GRADE_ON_WAY,   // a tool of the host came across it and was refused, and in similar cases
    BOX_GRADE_ACCOUNTS, // a program of the host for accounts looked for passwords, and was refused
};
void box_known_executed(struct box *b, const struct event *head, const struct watch_exec *x);
enum box_grade box_known_opens(const struct box *b, const struct event *head,
                               const struct watch_open *o);
// The process runs a file of the sandbox.
bool box_runs_own_program(const struct box *b, uint32_t pid);

// own.c: notes a credential that the job makes; true: this is one, or one that the job made before, or a public key.
bool box_own_opens(struct box *b, const struct watch_open *o);

// looks.c: a program was executed.
void box_looks(struct box *b, const struct event *head, const struct watch_exec *x);

// transfers.c: a program was executed.
void box_transfer(struct box *b, const struct event *head, const struct watch_exec *x);

// destinations.c: EVENT_DENIED and EVENT_CONNECT.
void box_network(struct box *b, const struct event *head, const struct net_event *e);

// distinct.c: notes a value of a rule that counts different ones: returns their number within the window; *of_job: those of this job.
struct box_value {
    uint64_t hash;
    const char *name;
};
uint32_t box_note_distinct(struct box *b, enum anomaly_rule rule, const struct box_value *value,
                           uint64_t now_ns, uint32_t *of_job);
// "a, b, c": the values within the window. Returns out.
const char *box_distinct_names(struct box *b, enum anomaly_rule rule, uint64_t now_ns,
                               char out[FINDING_TEXT_MAX]);

// conditions.c: compares an event with the conditions in the files of rules, and counts those that it fulfils.
void box_conditions(struct box *b, const struct event *head, const void *body, enum box_exe exe,
                    struct detect_event *ev);

// sentences.c: an event in words. "": it has none.
void box_sentence(const struct event *head, const void *body, const struct detect_event *ev,
                  char out[FINDING_TEXT_MAX]);

static inline const struct anomaly_policy *
box_rule(const struct box *b, enum anomaly_rule rule)
{
    return &b->policy->rule[rule];
}
