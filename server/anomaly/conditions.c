// SPDX-License-Identifier: Apache-2.0
// Tripwires whose conditions are in the files of rules (stockade-rules(5)): proto/detect.h compares an event with them, and the box
// counts, in tables of its own for each job and for the sandbox as a whole. So no other sandbox and no flood of values displaces a
// count, and the counters of the kernel (ticks.c) feed the same counts.
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "proto/detect.h"
#include "sensitive.h"

_Static_assert((int)DETECT_TEXT <= (int)FINDING_TEXT_MAX, "a sentence fits into a finding");

// Writes the sentence only when a finding is due.
struct matching {
    struct box *box;
    const struct event *head;
    const void *body;
    bool said;
    char sentence[FINDING_TEXT_MAX];
};

static const char *
text_of(struct matching *w, enum anomaly_rule rule, uint32_t i, const struct detect_event *ev,
        const struct box_due *due, char out[DETECT_TEXT])
{
    struct detect_event with = *ev;
    char values[FINDING_TEXT_MAX];
    if (!w->said && w->head != NULL)
        box_sentence(w->head, w->body, ev, w->sentence);
    w->said = true;
    with.sentence = w->sentence[0] != '\0' ? w->sentence : NULL;
    if (due->of_values)
        with.values = box_distinct_names(w->box, rule, ev->now_ns, values);
    return detect_tripwire_text(w->box->rules, i, &with, (uint64_t)due->sum,
                                box_rule(w->box, rule)->window_ms, out);
}

static void
count_distinct(struct matching *w, enum anomaly_rule rule, const struct detect *d, uint32_t i,
               const struct detect_event *ev, int of)
{
    char text[DETECT_TEXT];
    uint32_t of_job = 0;
    const struct box_value value = {
        detect_tripwire_value(d, i, ev),
        of < DETECT_TEXTS && ev->text[of] != NULL ? ev->text[of] : "",
    };
    if (value.hash == 0)
        return;
    const uint32_t n = box_note_distinct(w->box, rule, &value, ev->now_ns, &of_job);
    const struct box_due due = {.sum = n, .is_new = true, .of_values = true};
    if (box_crossed(w->box, rule, ev->now_ns, of_job, (double)due.sum))
        box_raise(w->box, rule, ev->now_ns, (double)due.sum, text_of(w, rule, i, ev, &due, text));
}

static void
look_at_number(struct matching *w, enum anomaly_rule rule, uint32_t i,
               const struct detect_event *ev, int of)
{
    char text[DETECT_TEXT];
    const uint64_t n = (ev->has >> of & 1) != 0 ? ev->number[of - DETECT_TEXTS] : 0;
    const struct box_due due = {.sum = n < INT64_MAX ? (int64_t)n : INT64_MAX, .is_new = true};
    if (box_crossed(w->box, rule, ev->now_ns, (double)n, (double)n))
        box_raise(w->box, rule, ev->now_ns, (double)n, text_of(w, rule, i, ev, &due, text));
}

static void
on_match(void *cookie, const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    struct matching *w = cookie;
    char text[DETECT_TEXT];
    struct detect_view v;
    struct box_due due;
    if (!detect_view(d, i, &v))
        return;
    const int found = anomaly_rule_find(v.rule->id);
    if (found < 0)
        return;
    const enum anomaly_rule rule = (enum anomaly_rule)found;
    if (v.function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_DISTINCT)
        count_distinct(w, rule, d, i, ev, v.of);
    else if (v.function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_GREATEST)
        look_at_number(w, rule, i, ev, v.of);
    else if (box_counted(w->box, rule, ev->now_ns, detect_tripwire_subject(d, i, ev), 1, &due))
        box_say(w->box, due.is_new, rule, ev->now_ns, (double)due.sum,
                text_of(w, rule, i, ev, &due, text));
}

// Each name of a key is one kind of credential: ssh tries them all.
static const char *
kind_of_path(const struct watch_open *o)
{
    const char *pattern = anomaly_sensitive_at(o->rule);
    return pattern != NULL && strncmp(pattern, "id_", 3) == 0 ? ".ssh" : pattern;
}

static void
add_facts_of_open(struct box *b, const struct event *head, const struct watch_open *o,
                  struct detect_event *ev)
{
    enum box_grade grade = BOX_GRADE_NONE;
    if (b->ours || box_own_opens(b, o) || box_tool_opens(b, head, o))
        grade = BOX_GRADE_OWN;
    else if (o->op == WATCH_FILE_PRELOAD)
        grade = box_runs_own_program(b, head->pid) ? BOX_GRADE_ON_WAY : BOX_GRADE_NONE;
    else
        grade = box_known_opens(b, head, o);
    detect_set_number(ev, DETECT_OWN_TOOL, grade);
    if (o->op != WATCH_FILE_PRELOAD)
        detect_set_text(ev, DETECT_REASON, kind_of_path(o));
}

// What only the box knows of an event.
static void
add_facts(struct box *b, const struct event *head, const void *body, enum box_exe exe,
          struct detect_event *ev)
{
    if (head->kind == EVENT_EXEC)
        detect_set_number(ev, DETECT_UNPROFILED, exe == BOX_EXE_NEW);
    if (head->kind == EVENT_OPEN)
        add_facts_of_open(b, head, body, ev);
    if (head->kind == EVENT_DANGEROUS)
        detect_set_number(ev, DETECT_OWN_TOOL, ((const struct watch_syscall *)body)->own != 0);
    if (head->kind == EVENT_PROFILE)
        detect_set_number(ev, DETECT_PROFILE, ((const struct watch_score *)body)->profile);
}

void
box_conditions(struct box *b, const struct event *head, const void *body, enum box_exe exe,
               struct detect_event *ev)
{
    struct matching w = {.box = b, .head = head, .body = body};
    add_facts(b, head, body, exe, ev);
    detect_tripwires(b->rules, ev, on_match, &w);
}

void
box_finding(struct box *b, const struct detect_event *ev)
{
    struct matching w = {.box = b};
    detect_tripwires(b->rules, ev, on_match, &w);
}
