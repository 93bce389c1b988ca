// SPDX-License-Identifier: Apache-2.0
// Detection rules that users have written (proto/detect.h): each event that telemetry publishes is compared with them.
//
// The findings that they make are published as well, but not compared: no rule can feed itself.
#include <stdio.h>
#include <string.h>

#include "private.h"
#include "proto/detect.h"
#include "proto/now.h"
#include "proto/utf8.h"
#include "server/base/metrics.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "stockade/v1/telemetry_service.pb-c.h"
#include "tenant_rules.h"

// Findings of a sandbox per minute, and the first of each rule.
enum { WRITTEN_BURST = 64 };

struct writing {
    struct anomaly *all;
    struct sandbox *sandbox;
    const Stockade__V1__Event *event;
    bool of_tenant; // its rules are compared
    uint64_t lost;  // events that only the kernel counted; 0: it came
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
is_within_burst(struct written_burst *b, uint32_t rule, uint64_t now_ns)
{
    const uint64_t minute = now_ns / 60000000000ULL;
    uint64_t *word = &b->had[rule / 64 % (sizeof b->had / sizeof b->had[0])];
    if (minute != b->minute)
        *b = (struct written_burst){.minute = minute};
    const bool first = (*word >> rule % 64 & 1) == 0;
    if (!first && b->n >= WRITTEN_BURST)
        return false;
    *word |= UINT64_C(1) << rule % 64;
    b->n++;
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

// A finding about the event's sandbox, and job. NULL b: out of memory.
static void
give(const struct writing *w, struct anomaly_block *b, enum box_voice voice, struct finding *out)
{
    struct anomaly *a = w->all;
    out->tenant_rule = w->of_tenant;
    a->sandbox = w->sandbox;
    a->event_ns = 0;
    a->pid = w->event->pid;
    (void)snprintf(a->comm, sizeof a->comm, "%s", w->event->comm);
    a->writing = true;
    anomaly_give(b, voice, ANOMALY_RULES, out, job_of_event(w->sandbox, w->event));
    a->writing = false;
}

static void
note_lost(struct finding *out, uint64_t lost)
{
    char note[80];
    const int n = snprintf(note, sizeof note, " (counted by the kernel; events lost: %llu)",
                           (unsigned long long)lost);
    const size_t room = sizeof out->text - 1 - (size_t)n, length = strlen(out->text);
    const size_t at = length > room ? utf8_cut(out->text, room) : length;
    (void)snprintf(out->text + at, sizeof out->text - at, "%s", note);
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    const struct writing *w = cookie;
    struct finding out = {.severity = (enum severity)f->rule->severity,
                          .response = response_of(f),
                          .snapshot_first = f->rule->snapshot_first,
                          .score = (double)f->score,
                          .threshold = (double)f->threshold};
    if (f->why == DETECT_REPEATED && out.response < RESPONSE_THROTTLE)
        return;
    struct anomaly_block *b = anomaly_block_of(w->all, w->sandbox);
    if (b == NULL)
        return;
    enum box_voice voice = BOX_ANSWER;
    if (f->why != DETECT_REPEATED)
        voice = is_within_burst(w->of_tenant ? &b->own : &b->written, f->index,
                                (uint64_t)now_ns(CLOCK_BOOTTIME))
                    ? BOX_REPORT
                    : BOX_COUNT;
    (void)snprintf(out.rule, sizeof out.rule, "%s", f->rule->id);
    (void)snprintf(out.text, sizeof out.text, "%s", f->text);
    if (w->lost > 0)
        note_lost(&out, w->lost);
    finding_tags(&out, f->rule->n_tags, (const char *const *)f->rule->tags);
    give(w, b, voice, &out);
}

static void
compare(const struct writing *w, struct detect *d, const struct detect_event *ev)
{
    const struct detect_totals before = detect_totals(d);
    detect_event(d, ev, on_found, (void *)(uintptr_t)w);
    const struct detect_totals after = detect_totals(d);
    metrics_add(METRIC_RULE_COMPARISONS, after.compared - before.compared);
    metrics_add(METRIC_RULE_COUNTS_DISPLACED, after.displaced - before.displaced);
}

// The rules of the tenant have a share of the time.
static void
compare_own(const struct writing *w, struct tenant_rules *t, const struct detect_event *ev)
{
    struct finding out = {.severity = SEVERITY_WARNING,
                          .response = RESPONSE_ALERT,
                          .score = RULE_SECOND_NS / 1000.0,
                          .threshold = RULE_SECOND_NS / 1000.0};
    bool report = false;
    if (tenant_rules_may_compare(t, ev->now_ns, &report)) {
        compare(w, t->rules, ev);
        t->spent_ns += (uint64_t)now_ns(CLOCK_BOOTTIME) - ev->now_ns;
        return;
    }
    metrics_add(METRIC_RULE_EVENTS_SKIPPED, 1);
    detect_skip(t->rules, ev->now_ns);
    struct anomaly_block *b = report ? anomaly_block_of(w->all, w->sandbox) : NULL;
    if (b == NULL)
        return;
    (void)snprintf(out.rule, sizeof out.rule, "%s", RULE_OVER_BUDGET);
    (void)snprintf(out.text, sizeof out.text,
                   "comparing events with the tenant's rules took more than %d ms in a second; the "
                   "other events of that second were not compared",
                   RULE_SECOND_NS / 1000000);
    give(w, b, BOX_REPORT, &out);
}

// ---- lost events

#define BIT(kind) (UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_##kind)
static const struct {
    const char *class; // record_class_name()
    uint64_t kinds;
} classes[] = {
    {"denial", BIT(DENIED)},
    {"alarm", BIT(EXEC) | BIT(REMOTE_TERMINAL) | BIT(OUT_OF_MEMORY)},
    {"exec", BIT(EXEC)},
    {"new-executable", BIT(EXEC)},
    {"exit", BIT(EXIT)},
    {"file", BIT(SENSITIVE_OPEN)},
    {"network", BIT(CONNECT) | BIT(LISTEN) | BIT(LOOKUP) | BIT(FLOW) | BIT(FLOW_ENDED)},
    {"signal", BIT(SIGNAL)},
    {"syscall", BIT(DANGEROUS_CALL) | BIT(IO_URING)},
    {"ruled-network", BIT(DENIED) | BIT(CONNECT)},
    {"ruled-call", BIT(DANGEROUS_CALL)},
};
#undef BIT
_Static_assert(sizeof classes / sizeof classes[0] == WRITTEN_CLASSES, "a minute for each");

// Rules that may have missed events say so, once a minute for each class: a flood must not hide from a rule without a trace.
static void
report_lost(const struct writing *w, struct detect *d, uint32_t class, uint64_t now_ns)
{
    const uint64_t lost = w->event->lost->events, minute = now_ns / 60000000000ULL + 1;
    uint64_t missed = 0;
    struct finding out = {
        .severity = SEVERITY_INFO, .response = RESPONSE_LOG, .score = (double)lost, .threshold = 1};
    char ids[96];
    const uint32_t n = detect_lost(d, &(struct detect_lost){classes[class].kinds, lost, now_ns},
                                   ids, sizeof ids, &missed);
    metrics_add(METRIC_RULE_EVENTS_LOST, missed);
    struct anomaly_block *b = n > 0 ? anomaly_block_of(w->all, w->sandbox) : NULL;
    if (b == NULL || b->lost_minute[w->of_tenant][class] == minute)
        return;
    b->lost_minute[w->of_tenant][class] = minute;
    (void)snprintf(out.rule, sizeof out.rule, "%s", RULE_EVENTS_LOST);
    (void)snprintf(out.text, sizeof out.text,
                   "%llu events of class %s were lost, so rules about them (%u) may have missed "
                   "some: %s",
                   (unsigned long long)lost, classes[class].class, n, ids);
    give(w, b, BOX_REPORT, &out);
}

static void
events_lost(struct anomaly *a, struct sandbox *s, const Stockade__V1__Event *m,
            const struct tenant_rules *own)
{
    const uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    for (uint32_t i = 0; i < WRITTEN_CLASSES; i++) {
        if (strcmp(m->lost->event_class, classes[i].class) != 0)
            continue;
        report_lost(&(struct writing){a, s, m, false, 0}, a->settings->rules, i, now);
        if (own != NULL)
            report_lost(&(struct writing){a, s, m, true, 0}, own->rules, i, now);
    }
}

// This is called while a tripwire's finding is published, too: its subject stays.
struct subject {
    struct sandbox *sandbox;
    uint64_t event_ns;
    uint32_t pid;
    char comm[64];
};

static struct subject
subject_of(const struct anomaly *a)
{
    struct subject s = {.sandbox = a->sandbox, .event_ns = a->event_ns, .pid = a->pid};
    memcpy(s.comm, a->comm, sizeof s.comm);
    return s;
}

static void
subject_again(struct anomaly *a, const struct subject *s)
{
    a->sandbox = s->sandbox;
    a->event_ns = s->event_ns;
    a->pid = s->pid;
    memcpy(a->comm, s->comm, sizeof a->comm);
}

void
anomaly_counted(struct anomaly *a, struct sandbox *s, const Stockade__V1__Event *m, int rule,
                const struct detect_event *ev)
{
    const struct subject before = subject_of(a);
    const struct writing w = {a, s, m, false, ev->times};
    detect_counted(a->settings->rules, rule, ev, on_found, (void *)(uintptr_t)&w);
    subject_again(a, &before);
}

// A finding of a tripwire is evidence for those that are about several together. What they find is none for each other.
static void
correlate(struct anomaly *a, struct sandbox *s, const Stockade__V1__Event *m)
{
    struct detect_event ev;
    struct anomaly_block *b = a->correlating ? NULL : anomaly_block_of(a, s);
    if (b == NULL || !anomaly_fill_event(a, s, m, (uint64_t)now_ns(CLOCK_BOOTTIME), &ev))
        return;
    a->correlating = true;
    box_finding(&b->box, &ev);
    a->correlating = false;
}

void
anomaly_written(void *anomaly, struct sandbox *s, const struct Stockade__V1__Event *m)
{
    struct anomaly *a = anomaly;
    struct detect *d = a->settings->rules;
    struct detect_event ev;
    if (a->writing || s->tenant == NULL)
        return;
    if (m->kind == STOCKADE__V1__EVENT_KIND__EVENT_KIND_FINDING)
        correlate(a, s, m);
    const bool host = detect_wants(d, (uint32_t)m->kind);
    struct tenant_rules *const all_own = tenant_rules_find(a->srv->rules, s->tenant->name);
    struct tenant_rules *own = all_own;
    if (own != NULL && !detect_wants(own->rules, (uint32_t)m->kind))
        own = NULL;
    const bool lost = m->detail_case == STOCKADE__V1__EVENT__DETAIL_LOST;
    if (!host && own == NULL && !lost)
        return;
    const struct subject before = subject_of(a);
    if (lost)
        events_lost(a, s, m, all_own);
    detect_fill(m, (uint64_t)now_ns(CLOCK_BOOTTIME), &ev);
    if (host)
        compare(&(struct writing){a, s, m, false, 0}, d, &ev);
    if (host && own != NULL)
        ev.now_ns = (uint64_t)now_ns(CLOCK_BOOTTIME); // the host's rules took their time
    if (own != NULL)
        compare_own(&(struct writing){a, s, m, true, 0}, own, &ev);
    subject_again(a, &before);
}

// ---- for others

void
anomaly_tripwire_tags(const struct anomaly *a, uint32_t rule, struct finding *f)
{
    const struct anomaly_rule_row *row = &anomaly_rule_table[rule];
    const int i = detect_find(a->settings->rules, row->name);
    struct detect_view v;
    if (i >= 0 && detect_view(a->settings->rules, (uint32_t)i, &v) && v.rule->n_tags > 0) {
        finding_tags(f, v.rule->n_tags, (const char *const *)v.rule->tags);
        return;
    }
    const char *tags[FINDING_TAGS_MAX];
    char text[FINDING_TAGS], *rest = NULL;
    size_t n = 0;
    (void)snprintf(text, sizeof text, "%s", row->tags);
    for (char *t = strtok_r(text, " ", &rest); t != NULL && n < FINDING_TAGS_MAX;
         t = strtok_r(NULL, " ", &rest))
        tags[n++] = t;
    finding_tags(f, n, tags);
}

bool
anomaly_has_written(const struct anomaly *a, const char *tenant, const char *rule)
{
    return detect_find(a->settings->rules, rule) >= 0 || strcmp(rule, RULE_OVER_BUDGET) == 0 ||
           strcmp(rule, RULE_EVENTS_LOST) == 0 || tenant_rules_have(a->srv->rules, tenant, rule);
}

bool
anomaly_fill_event(const struct anomaly *a, const struct sandbox *s, const Stockade__V1__Event *m,
                   uint64_t time_ns, struct detect_event *out)
{
    const struct sandbox_spec *spec = &s->spec;
    if (!detect_has_tripwires(a->settings->rules, (uint32_t)m->kind))
        return false;
    detect_fill(m, time_ns, out);
    for (uint32_t i = 0; i < spec->labels_n && i < DETECT_LABELS_MAX; i++) {
        out->label_key[i] = spec->labels[i].key;
        out->label_value[i] = spec->labels[i].value;
        out->labels_n++;
    }
    return true;
}
