// SPDX-License-Identifier: Apache-2.0
// See box.h. Counts, and which findings are due. conditions.c compares events with the conditions in the files of rules; ticks.c has
// the built-in conditions about counters, names.c about names, destinations.c about destinations.
#include "box.h"

#include <string.h>

#include "bpf/net.h"
#include "box_private.h"

void
box_init(struct box *b, struct box_evidence *evidence, const struct anomaly_config *policy,
         uint32_t cpu_millis, box_raise_fn *raise, void *cookie)
{
    *evidence = (struct box_evidence){.known_n = 0};
    *b = (struct box){.evidence = evidence,
                      .policy = policy,
                      .raise = raise,
                      .cookie = cookie,
                      .cpu_millis = cpu_millis};
    list_init(&b->jobs);
}

void
box_job_begin(struct box *b, struct box_job *j)
{
    list_init(&j->node);
    list_append(&b->jobs, &j->node);
}

void
box_job_end(struct box_job *j)
{
    list_remove(&j->node);
}

void
box_close(struct box *b)
{
    list_each(it, &b->jobs) list_remove(it);
}

void
box_enter(struct box *b, struct box_job *j, struct detect *rules)
{
    b->job = j;
    b->rules = rules;
    b->ours = false;
}

uint64_t
box_hash(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ULL;
    h ^= h >> 29;
    return h != 0 ? h : 1;
}

// True if the subject has not been reported within its window; marks it as reported.
static bool
is_first(struct box *b, uint64_t subject, uint64_t now_ns, uint64_t until_ns)
{
    uint32_t n = b->reported_n < BOX_REPORTED ? b->reported_n : BOX_REPORTED;
    uint32_t at = b->reported_n % BOX_REPORTED;
    for (uint32_t i = 0; i < n; i++) {
        if (b->reported[i].subject != subject)
            continue;
        if (now_ns < b->reported[i].until_ns)
            return false;
        at = i;
    }
    b->reported_n += at == b->reported_n % BOX_REPORTED;
    b->reported[at].subject = subject;
    b->reported[at].until_ns = until_ns;
    return true;
}

int64_t
box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n)
{
    uint64_t at = now_ns / (window_ms * 1000000 / BOX_BUCKETS);
    uint64_t gone = at > w->at ? at - w->at : 0;
    for (uint64_t i = 1; i <= gone && i <= BOX_BUCKETS; i++)
        w->bucket[(w->at + i) % BOX_BUCKETS] = 0;
    w->at += gone;
    int64_t sum = 0;
    if (__builtin_add_overflow(w->bucket[w->at % BOX_BUCKETS], n, &w->bucket[w->at % BOX_BUCKETS]))
        w->bucket[w->at % BOX_BUCKETS] = n > 0 ? INT32_MAX : INT32_MIN;
    for (int i = 0; i < BOX_BUCKETS; i++)
        sum += w->bucket[i];
    return sum;
}

// Many findings of one rule must not suppress those of another rule, whose response may be to kill.
static bool
is_within_burst(struct box_scope *of, enum anomaly_rule rule, uint64_t now_ns)
{
    uint64_t minute = now_ns / 60000000000ULL;
    if (minute != of->minute) {
        of->minute = minute;
        of->findings = 0;
        of->raised = 0;
    }
    bool first = (of->raised >> rule & 1) == 0;
    if (!first && of->findings >= BOX_FINDINGS_BURST)
        return false;
    of->raised |= UINT64_C(1) << rule;
    of->findings++;
    return true;
}

static struct box_scope *
scope_of(struct box *b)
{
    return b->job != NULL ? &b->job->scope : &b->whole;
}

void
box_say(struct box *b, bool is_new, enum anomaly_rule rule, uint64_t now_ns, double score,
        const char *text)
{
    enum box_voice voice = BOX_ANSWER;
    if (is_new)
        voice = is_within_burst(scope_of(b), rule, now_ns) ? BOX_REPORT : BOX_COUNT;
    b->raise(b->cookie, voice, rule, score, text);
}

// A finding about the whole sandbox is not reported again for each job.
void
box_keep_quiet(struct box *b, enum anomaly_rule rule, uint64_t now_ns)
{
    uint64_t until_ns = now_ns + box_rule(b, rule)->window_ms * 1000000;
    b->whole.quiet_ns[rule] = until_ns;
    if (b->job != NULL) {
        b->job->scope.quiet_ns[rule] = until_ns;
        return;
    }
    list_each(it, &b->jobs) list_entry(it, struct box_job, node)->scope.quiet_ns[rule] = until_ns;
}

void
box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score, const char *text)
{
    bool is_new = now_ns >= scope_of(b)->quiet_ns[rule];
    if (is_new)
        box_keep_quiet(b, rule, now_ns);
    box_say(b, is_new, rule, now_ns, score, text);
}

static bool
is_answered(const struct anomaly_policy *p)
{
    return p->response >= RESPONSE_THROTTLE;
}

bool
box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double job, double whole)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    bool of_job = b->job != NULL && job >= (double)p->threshold;
    bool of_whole = whole >= (double)p->threshold;
    if (p->enabled != 1 || (!of_job && !of_whole))
        return false;
    return is_answered(p) || (of_job && now_ns >= b->job->scope.quiet_ns[rule]) ||
           (of_whole && now_ns >= b->whole.quiet_ns[rule]);
}

bool
box_counted(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject, uint64_t n,
            struct box_due *due)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    struct box_scope *const scopes[] = {&b->whole, b->job != NULL ? &b->job->scope : NULL};
    const uint64_t until_ns = now_ns + p->window_ms * 1000000;
    assert(rule < RULES_WITH_WINDOWS || anomaly_rule_table[rule].threshold_max == 1);
    *due = (struct box_due){0};
    for (size_t i = 0; i < 2 && scopes[i] != NULL; i++) {
        const int32_t more = n < INT32_MAX ? (int32_t)n : INT32_MAX;
        int64_t sum = rule < RULES_WITH_WINDOWS
                          ? box_window_add(&scopes[i]->window[rule], now_ns, p->window_ms, more)
                          : more;
        if (p->enabled != 1 || sum < (int64_t)p->threshold)
            continue;
        uint64_t key = subject + rule + (i > 0 ? b->job->number * 0x9e3779b97f4a7c15ULL : 0);
        due->is_new = is_first(b, key, now_ns, until_ns) || due->is_new;
        due->sum = sum > due->sum ? sum : due->sum;
    }
    return due->is_new || (due->sum > 0 && is_answered(p));
}

void
box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject, uint64_t n,
          const char *text)
{
    struct box_due due;
    if (box_counted(b, rule, now_ns, subject, n, &due))
        box_say(b, due.is_new, rule, now_ns, (double)due.sum, text);
}

// ---- events

// Only a written rule asks for the path, or the call: the counters of the tripwires do not have it, and it is no tripwire's.
static bool
is_written(const struct event *head, const void *body)
{
    if (head->kind == EVENT_DANGEROUS)
        return ((const struct watch_syscall *)body)->own == WATCH_OWN_RULED;
    return head->kind == EVENT_OPEN &&
           ((const struct watch_open *)body)->rule >= WATCH_SENSITIVE_WRITTEN &&
           ((const struct watch_open *)body)->op != WATCH_FILE_PRELOAD;
}

static void
note_seen(struct box *b, const struct event *head, const void *body)
{
    const struct watch_exec *x = body;
    const struct watch_open *o = body;
    if (head->kind == EVENT_EXEC) {
        if (x->fresh != 0)
            box_seen(b, RULE_NEW_EXECUTABLE);
        if (x->socket != 0)
            box_seen(b, RULE_REMOTE_SHELL);
        if (x->memfd != 0)
            box_seen(b, RULE_UNNAMED_EXEC);
    } else if (head->kind == EVENT_OPEN) {
        box_seen(b, o->op == WATCH_FILE_LOOK      ? RULE_SENSITIVE_LOOK
                    : o->op == WATCH_FILE_PRELOAD ? RULE_PRELOADED_LIBRARY
                                                  : RULE_SENSITIVE_PATH);
    } else if (head->kind == EVENT_TERMINAL) {
        box_seen(b, RULE_REMOTE_SHELL);
    } else if (head->kind == EVENT_LISTEN) {
        box_seen(b, RULE_OPEN_LISTENER);
    } else if (head->kind == EVENT_DANGEROUS) {
        box_seen(b, RULE_DANGEROUS_SYSCALL);
    } else if (head->kind == EVENT_URING) {
        box_seen(b, RULE_IO_URING);
    } else if (head->kind == EVENT_OOM) {
        box_seen(b, RULE_OOM);
    }
}

void
box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe,
          struct detect_event *ev)
{
    static const uint32_t sizes[EVENT_KINDS] = {
        [EVENT_DENIED] = sizeof(struct net_event),
        [EVENT_CONNECT] = sizeof(struct net_event),
        [EVENT_EXEC] = sizeof(struct watch_exec),
        [EVENT_OPEN] = sizeof(struct watch_open),
        [EVENT_DANGEROUS] = sizeof(struct watch_syscall),
        [EVENT_URING] = sizeof(struct watch_syscall),
        [EVENT_PROFILE] = sizeof(struct watch_score),
        [EVENT_TERMINAL] = sizeof(struct watch_terminal),
        [EVENT_LISTEN] = sizeof(struct net_event),
    };
    if (event->kind >= EVENT_KINDS || event->size < sizes[event->kind])
        return;
    if (is_written(event, body))
        return;
    note_seen(b, event, body);
    if (event->kind == EVENT_DENIED || event->kind == EVENT_CONNECT)
        box_network(b, event, body);
    if (event->kind == EVENT_EXEC) {
        box_tool_executed(b, body);
        box_known_executed(b, event, body);
        box_transfer(b, event, body);
        box_looks(b, event, body);
    }
    if (ev != NULL)
        box_conditions(b, event, body, exe, ev);
}
