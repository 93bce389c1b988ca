// SPDX-License-Identifier: Apache-2.0
// Detection rules that users have written (proto/detect.h): each event that telemetry publishes is compared with them.
//
// The findings that they make are published as well, but not compared: no rule can feed itself.
#include <stdio.h>
#include <string.h>

#include "private.h"
#include "proto/detect.h"
#include "proto/now.h"
#include "server/base/metrics.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/telemetry_service.pb-c.h"

// Findings of a sandbox per minute, and the first of each rule.
enum { WRITTEN_BURST = 64 };

struct writing {
    struct anomaly *all;
    struct sandbox *sandbox;
    const Stockade__V1__Event *event;
};

static struct job *
job_of_event(struct sandbox *s, const Stockade__V1__Event *m)
{
    list_each(it, &s->jobs)
    {
        struct job *j = job_of_sandbox(it);
        if (m->process_id[0] != '\0' && strcmp(job_id(j), m->process_id) == 0)
            return j;
    }
    return NULL;
}

// Many findings of one rule must not suppress those of another one.
static bool
is_within_burst(struct anomaly_block *b, uint32_t rule, uint64_t now_ns)
{
    const uint64_t minute = now_ns / 60000000000ULL;
    uint64_t *word = &b->written[rule / 64 % (sizeof b->written / sizeof b->written[0])];
    if (minute != b->minute) {
        b->minute = minute;
        b->written_n = 0;
        memset(b->written, 0, sizeof b->written);
    }
    const bool first = (*word >> rule % 64 & 1) == 0;
    if (!first && b->written_n >= WRITTEN_BURST)
        return false;
    *word |= UINT64_C(1) << rule % 64;
    b->written_n++;
    return true;
}

// A rule whose counts did not suffice has not found anything about this sandbox.
static enum response
response_of(const struct detect_finding *f)
{
    const uint32_t response = f->rule->response != 0 ? f->rule->response : RESPONSE_ALERT;
    return f->why == DETECT_CROWDED && response > RESPONSE_ALERT ? RESPONSE_ALERT
                                                                 : (enum response)response;
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    const struct writing *w = cookie;
    struct anomaly *a = w->all;
    const Stockade__V1__Event *m = w->event;
    struct finding out = {.severity = (enum severity)f->rule->severity,
                          .response = response_of(f),
                          .score = (double)f->score,
                          .threshold = (double)f->threshold};
    if (f->why == DETECT_REPEATED && out.response < RESPONSE_THROTTLE)
        return;
    struct anomaly_block *b = anomaly_block_of(a, w->sandbox);
    if (b == NULL)
        return;
    enum box_voice voice = BOX_ANSWER;
    if (f->why != DETECT_REPEATED)
        voice =
            is_within_burst(b, f->index, (uint64_t)now_ns(CLOCK_BOOTTIME)) ? BOX_REPORT : BOX_COUNT;
    (void)snprintf(out.rule, sizeof out.rule, "%s", f->rule->id);
    (void)snprintf(out.text, sizeof out.text, "%s", f->text);
    a->sandbox = w->sandbox;
    a->event_ns = 0;
    a->pid = m->pid;
    (void)snprintf(a->comm, sizeof a->comm, "%s", m->comm);
    a->writing = true;
    anomaly_give(b, voice, ANOMALY_RULES, &out, job_of_event(w->sandbox, m));
    a->writing = false;
}

void
anomaly_written(void *anomaly, struct sandbox *s, const struct Stockade__V1__Event *m)
{
    struct anomaly *a = anomaly;
    struct detect *d = a->settings->rules;
    struct detect_event ev;
    if (a->writing || s->tenant == NULL || !detect_wants(d, (uint32_t)m->kind))
        return;
    struct writing w = {a, s, m};
    // This is called while a tripwire's finding is published, too: its subject stays.
    struct sandbox *const sandbox = a->sandbox;
    const uint64_t event_ns = a->event_ns;
    const uint32_t pid = a->pid;
    char comm[sizeof a->comm];
    memcpy(comm, a->comm, sizeof comm);
    detect_fill(m, (uint64_t)now_ns(CLOCK_BOOTTIME), &ev);
    const struct detect_totals before = detect_totals(d);
    detect_event(d, &ev, on_found, &w);
    const struct detect_totals after = detect_totals(d);
    metrics_add(METRIC_RULE_COMPARISONS, after.compared - before.compared);
    metrics_add(METRIC_RULE_COUNTS_DISPLACED, after.displaced - before.displaced);
    a->sandbox = sandbox;
    a->event_ns = event_ns;
    a->pid = pid;
    memcpy(a->comm, comm, sizeof comm);
}

bool
anomaly_has_written(const struct anomaly *a, const char *rule)
{
    return detect_find(a->settings->rules, rule) >= 0;
}
