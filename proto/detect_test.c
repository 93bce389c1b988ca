// SPDX-License-Identifier: Apache-2.0
// See detect.h: the tests of a rule, which sees their events alone.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config_read.h"
#include "detect_private.h"
#include "glob.h"
#include "quantity.h"
#include "yaml_tree.h"

enum { FIRST_FIELD = 11, BEGIN_S = 1000000, VALUE_MAX = 2049, TEXT_OF_STEP = 256 };
static const uint64_t AFTER_MAX_MS = 24 * UINT64_C(3600000);

struct run {
    const struct config_reader *file;
    struct yaml_node *node; // of the test
    const Stockade__V1__DetectionTest *m;
    uint32_t event;    // the current one, from 1
    uint32_t findings; // so far
    bool failed;
};

static int
fail_expected(const struct run *r)
{
    const Stockade__V1__DetectionExpected *x = r->m->findings[r->findings];
    return config_fail(r->file, r->node, "the test fails: finding %u of %zu did not come%s%s",
                       r->findings + 1, r->m->n_findings, x->message[0] != '\0' ? ": " : "",
                       x->message);
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    struct run *r = cookie;
    if (f->why == DETECT_REPEATED || r->failed)
        return;
    r->failed = true;
    if (r->findings == r->m->n_findings) {
        (void)config_fail(r->file, r->node,
                          "the test fails: event %u caused a finding that is not expected: %s",
                          r->event, f->text);
        return;
    }
    const Stockade__V1__DetectionExpected *x = r->m->findings[r->findings];
    if (x->event != 0 && x->event != r->event)
        (void)config_fail(r->file, r->node,
                          "the test fails: event %u caused finding %u, and event %u should: %s",
                          r->event, r->findings + 1, x->event, f->text);
    else if (x->message[0] != '\0' && !glob_match(x->message, f->text, strlen(f->text)))
        (void)config_fail(r->file, r->node,
                          "the test fails: finding %u should say \"%s\", and says \"%s\"",
                          r->findings + 1, x->message, f->text);
    else
        r->failed = false;
    r->findings++;
}

// Replaces "{n}" by the number.
static const char *
number_text(const char *text, uint32_t number, char out[VALUE_MAX])
{
    const char *at = strstr(text, "{n}");
    if (at == NULL)
        return text;
    (void)snprintf(out, VALUE_MAX, "%.*s%u%s", (int)(at - text), text, number, at + 3);
    return out;
}

// The fields of a test's event have the names of those of an event.
static void
fill(const Stockade__V1__DetectionEvent *m, uint32_t number, char buffer[][VALUE_MAX],
     struct detect_event *out)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__detection_event__descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        const int field = f->id >= FIRST_FIELD ? detect_field_find(f->name, strlen(f->name)) : -1;
        const char *at = (const char *)m + f->offset;
        const char *text = NULL;
        uint64_t value = 0;
        if (field < 0)
            continue;
        if (f->type == PROTOBUF_C_TYPE_STRING) {
            memcpy((void *)&text, at, sizeof(void *));
            detect_set_text(out, (enum detect_field)field,
                            number_text(text, number, buffer[field]));
        } else {
            memcpy(&value, at, sizeof value);
            detect_set_number(out, (enum detect_field)field, value);
        }
    }
}

// The event as a flow, for its address and port.
static void
fill_destination(struct detect_event *ev, const char *destination)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__Flow f = STOCKADE__V1__FLOW__INIT;
    struct detect_event of;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_FLOW;
    m.flow = &f;
    f.destination = destination;
    detect_fill(&m, 0, &of);
    memcpy(ev->address, of.address, sizeof ev->address);
    memcpy(ev->host, of.host, sizeof ev->host);
    if (ev->text[DETECT_NAME] == NULL && of.text[DETECT_NAME] != NULL)
        detect_set_text(ev, DETECT_NAME, ev->host);
    if ((of.has >> DETECT_PORT & 1) != 0)
        detect_set_number(ev, DETECT_PORT, of.number[DETECT_PORT - DETECT_TEXTS]);
    ev->has |= of.has & UINT64_C(1) << DETECT_ADDRESS;
}

static void
make_event(const Stockade__V1__DetectionEvent *m, uint64_t now_ns, uint32_t number,
           struct detect_event *ev)
{
    static _Thread_local char buffer[DETECT_TEXTS][VALUE_MAX];
    *ev = (struct detect_event){.kind = (uint32_t)m->kind,
                                .now_ns = now_ns,
                                .job = m->job[0] != '\0' ? m->job : "job",
                                .sandbox = m->sandbox[0] != '\0' ? m->sandbox : "sandbox"};
    detect_set_number(ev, DETECT_TIME, now_ns);
    fill(m, number, buffer, ev);
    if (ev->text[DETECT_DESTINATION] != NULL)
        fill_destination(ev, ev->text[DETECT_DESTINATION]);
    for (size_t i = 0; i < m->n_labels && i < DETECT_LABELS_MAX; i++) {
        ev->label_key[i] = m->labels[i]->key;
        ev->label_value[i] = m->labels[i]->value;
        ev->labels_n++;
    }
}

static void
give(struct detect *d, struct detect_rule *rule, const Stockade__V1__DetectionEvent *m,
     uint64_t now_ns, uint32_t number, struct run *r)
{
    struct detect_event ev;
    make_event(m, now_ns, number, &ev);
    r->event++;
    detect_begin(d);
    detect_compare(d, rule, &ev, NULL, on_found, r);
}

// ---- what it may take

// Patterns are compared with each byte of a text.
static uint64_t
work_of(const Stockade__V1__DetectionEvent *m, uint32_t steps)
{
    const size_t n = strlen(m->arguments) + strlen(m->path) + strlen(m->executable);
    return (steps + 1) * (1 + (uint64_t)n / TEXT_OF_STEP);
}

static bool
spend(uint64_t *left, uint64_t work)
{
    const bool enough = work <= *left;
    *left -= enough ? work : *left;
    return enough;
}

static int
fail_work(const struct config_reader *file, struct yaml_node *node)
{
    return config_fail(file, node, "the tests of all rules take too long: they need fewer events");
}

static bool
read_after(const Stockade__V1__DetectionEvent *m, uint64_t *after_ms)
{
    return m->after[0] == '\0' ||
           (quantity_read(m->after, quantity_time_ms, after_ms) == 0 && *after_ms <= AFTER_MAX_MS);
}

static int
run_event(struct detect *d, struct detect_rule *rule, const Stockade__V1__DetectionEvent *m,
          struct yaml_node *node, uint64_t *now_ns, uint64_t *work, struct run *r)
{
    uint64_t after_ms = 0;
    const uint32_t times = m->times != 0 ? m->times : 1;
    if (!read_after(m, &after_ms))
        return config_fail(r->file, detect_node(node, "after"),
                           "must be a time up to 24h, such as 500ms");
    if (!spend(work, times * work_of(m, rule->steps)))
        return fail_work(r->file, node);
    for (uint32_t i = 1; i <= times && !r->failed; i++) {
        *now_ns += after_ms * 1000000;
        give(d, rule, m, *now_ns, i, r);
    }
    return 0;
}

static int
run_test(const struct config_reader *file, struct detect *d, struct detect_rule *rule,
         const Stockade__V1__DetectionTest *m, struct yaml_node *node, uint64_t *work)
{
    struct run r = {.file = file, .node = node, .m = m};
    struct yaml_node *it = detect_node(node, "events")->child;
    uint64_t now_ns = BEGIN_S * UINT64_C(1000000000);
    int rc = 0;
    if (!spend(work, 2 * rule->table.bytes / DETECT_CLEAR_BYTES))
        return fail_work(file, node);
    detect_table_clear(rule);
    for (size_t i = 0; i < m->n_events && rc == 0 && !r.failed; i++, it = it->next)
        rc = run_event(d, rule, m->events[i], it, &now_ns, work, &r);
    detect_table_clear(rule);
    if (rc < 0)
        return rc;
    if (!r.failed && r.findings < m->n_findings)
        return fail_expected(&r);
    return r.failed ? -1 : 0;
}

int
detect_test_rule(const struct config_reader *file, struct detect *d, struct detect_rule *r,
                 struct yaml_node *node, uint64_t *work)
{
    struct yaml_node *it = detect_node(node, "tests")->child;
    int rc = 0;
    for (size_t i = 0; i < r->m->n_tests && rc == 0; i++, it = it->next)
        rc = run_test(file, d, r, r->m->tests[i], it, work);
    r->timed = r->timed_ns = 0;
    r->looked_at = r->matched = r->excepted = r->findings = r->displaced = 0;
    return rc < 0 ? err_errno(file->e) : 0;
}

int
detect_try(struct detect *d, const struct detect_bounds *bounds,
           Stockade__V1__DetectionEvent *const *events, size_t n, const struct detect_trial *trial,
           struct err *e)
{
    uint64_t now_ns = BEGIN_S * UINT64_C(1000000000), after_ms = 0, left = bounds->work;
    struct detect_event ev;
    for (size_t i = 0; i < n; i++) {
        const Stockade__V1__DetectionEvent *m = events[i];
        const uint32_t times = m->times != 0 ? m->times : 1;
        const struct detect_kind *k =
            (uint32_t)m->kind < DETECT_KINDS ? d->kind[(uint32_t)m->kind] : NULL;
        after_ms = 0;
        if (!read_after(m, &after_ms))
            return err_field(e, "events",
                             "event %zu: after must be a time up to 24h, such as 500ms", i + 1);
        if (!spend(&left, times * work_of(m, k != NULL ? k->steps : 0))) {
            (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                          "comparing these events with all rules takes too long");
            err_detail(e, "RULE_TEST_WORK", "events", "give fewer events, or fewer of each");
            return -ENOSPC;
        }
        for (uint32_t t = 1; t <= times; t++) {
            now_ns += after_ms * 1000000;
            make_event(m, now_ns, t, &ev);
            trial->tried(trial->cookie);
            detect_event(d, &ev, trial->found, trial->cookie);
        }
    }
    return 0;
}
