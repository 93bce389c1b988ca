// SPDX-License-Identifier: Apache-2.0
// See detect.h: the tripwires of the broker. Their rules come from files; the broker counts, in tables of its own that belong to one
// sandbox each.
#include <errno.h>
#include <string.h>

#include "arena.h"
#include "config_read.h"
#include "detect_private.h"
#include "yaml_tree.h"

static const unsigned char shipped[] = {
#include "tripwires.inc"
};

struct detect_file
detect_tripwire_file(void)
{
    return (struct detect_file){"tripwires.yaml of the broker", (const char *)shipped,
                                sizeof shipped};
}

// ---- a later file

static int
check_same(const struct config_reader *file, const struct detect_rule *earlier,
           const struct detect_rule *now, struct yaml_node *node)
{
    const Stockade__V1__DetectionRule *m = now->m, *before = earlier->m;
    const Stockade__V1__DetectionAggregate *a = m->aggregate;
    if (a != NULL && a->function != 0 && (now->function != earlier->function))
        return config_fail(file, detect_node(node, "aggregate"), "a tripwire keeps its function");
    if (a != NULL && a->of != 0 && now->of != earlier->of)
        return config_fail(file, detect_node(node, "aggregate"),
                           "a tripwire keeps the field `of` that it counts");
    if (m->counter[0] != '\0' && strcmp(m->counter, before->counter) != 0)
        return config_fail(file, detect_node(node, "counter"), "a tripwire keeps its counter");
    const bool was = before->builtin != NULL;
    if ((m->match != NULL && was) || (m->builtin != NULL && !was) ||
        (m->builtin != NULL && was &&
         strcmp(m->builtin->condition, before->builtin->condition) != 0))
        return config_fail(file, detect_node(node, m->match != NULL ? "match" : "builtin"),
                           was ? "this tripwire keeps its built-in condition, %s"
                               : "this tripwire has a match, and no built-in condition%s",
                           was ? before->builtin->condition : "");
    return 0;
}

static void
merge_aggregate(const Stockade__V1__DetectionAggregate *earlier,
                Stockade__V1__DetectionAggregate *to)
{
    to->threshold = to->threshold != 0 ? to->threshold : earlier->threshold;
    to->window = to->window[0] != '\0' ? to->window : earlier->window;
    to->function = to->function != 0 ? to->function : earlier->function;
    to->of = to->of != 0 ? to->of : earlier->of;
    if (to->n_once_for == 0) {
        to->once_for = earlier->once_for;
        to->n_once_for = earlier->n_once_for;
    }
}

// The rule as all files together say it.
static int
merge_message(struct arena *a, const Stockade__V1__DetectionRule *earlier, struct detect_rule *out)
{
    Stockade__V1__DetectionRule *m = arena_alloc(a, sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    *m = *out->m;
    m->description = m->description[0] != '\0' ? m->description : earlier->description;
    m->message = m->message[0] != '\0' ? m->message : earlier->message;
    m->counter = m->counter[0] != '\0' ? m->counter : earlier->counter;
    m->response = m->response != 0 ? m->response : earlier->response;
    m->match = m->match != NULL ? m->match : earlier->match;
    m->builtin = m->builtin != NULL ? m->builtin : earlier->builtin;
    if (m->n_tags == 0) {
        m->tags = earlier->tags;
        m->n_tags = earlier->n_tags;
    }
    if (m->aggregate == NULL) {
        m->aggregate = earlier->aggregate;
    } else if (earlier->aggregate != NULL) {
        Stockade__V1__DetectionAggregate *g = arena_alloc(a, sizeof *g);
        if (g == NULL)
            return -ENOMEM;
        *g = *m->aggregate;
        merge_aggregate(earlier->aggregate, g);
        m->aggregate = g;
    }
    out->m = m;
    return 0;
}

static int
merge_exceptions(struct arena *a, const struct detect_rule *earlier, struct detect_rule *out)
{
    const uint32_t n = earlier->exceptions_n + out->exceptions_n;
    struct detect_parts *all = arena_alloc(a, (n + 1) * sizeof *all);
    Stockade__V1__DetectionException **of = arena_alloc(a, (n + 1) * sizeof(void *));
    Stockade__V1__DetectionRule *m =
        (Stockade__V1__DetectionRule *)(uintptr_t)out->m; // merged: ours
    if (all == NULL || of == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const bool old = i < earlier->exceptions_n;
        const uint32_t at = old ? i : i - earlier->exceptions_n;
        all[i] = old ? earlier->exception[at] : out->exception[at];
        of[i] = old ? earlier->m->exceptions[at] : out->m->exceptions[at];
        out->steps += old ? all[i].steps : 0;
    }
    out->exception = all;
    out->exceptions_n = n;
    m->exceptions = of;
    m->n_exceptions = n;
    return 0;
}

static void
merge_counts(const struct detect_rule *earlier, const Stockade__V1__DetectionAggregate *own,
             struct detect_rule *out)
{
    if (own == NULL || own->threshold == 0)
        out->threshold = earlier->threshold;
    if (own == NULL || own->window[0] == '\0')
        out->window_ns = earlier->window_ns;
    out->function = earlier->function;
    out->of = earlier->of;
    if (out->once_n == 0) {
        out->once_n = earlier->once_n;
        memcpy(out->once, earlier->once, sizeof out->once);
    }
}

int
detect_inherit(const struct config_reader *file, struct arena *a, const struct detect_rule *earlier,
               struct yaml_node *node, struct detect_rule *out)
{
    const Stockade__V1__DetectionAggregate *own = out->m->aggregate;
    const bool replaces = out->m->match != NULL;
    const bool says = out->m->message[0] != '\0';
    int r = check_same(file, earlier, out, node);
    if (r < 0)
        return r;
    r = merge_message(a, earlier->m, out);
    if (r == 0 && !replaces)
        r = merge_exceptions(a, earlier, out);
    if (r < 0)
        return err_sys(file->e, ENOMEM, "read a rule");
    merge_counts(earlier, own, out);
    out->message = says ? out->message : earlier->message;
    if (replaces || earlier->matches_n == 0)
        return 0;
    out->matches_n = 1;
    out->match[0] = earlier->match[0];
    out->steps += earlier->match[0].steps;
    return 0;
}

// ---- events

static const struct detect_kind *
kind_of(const struct detect *d, uint32_t kind)
{
    return d != NULL && kind < DETECT_KINDS ? d->kind[kind] : NULL;
}

bool
detect_has_tripwires(const struct detect *d, uint32_t kind)
{
    const struct detect_kind *k = kind_of(d, kind);
    return k != NULL && k->tripwires_n > 0;
}

void
detect_tripwires(struct detect *d, const struct detect_event *ev, detect_tripwire_fn *each,
                 void *cookie)
{
    const struct detect_kind *k = kind_of(d, ev->kind);
    for (uint32_t i = 0; k != NULL && i < k->tripwires_n; i++) {
        struct detect_rule *r = &d->rule[k->tripwire[i]];
        r->looked_at++;
        d->totals.compared++;
        if (!detect_matches(&r->match[0], ev, NULL))
            continue;
        const bool known = detect_is_excepted(r, ev);
        r->excepted += known;
        r->matched += !known;
        if (!known)
            each(cookie, d, k->tripwire[i], ev);
    }
}

void
detect_tripwires_dry(struct detect *d, const struct detect_event *ev, detect_found_fn *found,
                     void *cookie)
{
    const struct detect_kind *k = kind_of(d, ev->kind);
    if (k != NULL)
        detect_begin(d);
    for (uint32_t i = 0; k != NULL && i < k->tripwires_n; i++)
        if (d->rule[k->tripwire[i]].enabled)
            detect_compare(d, &d->rule[k->tripwire[i]], ev, NULL, found, cookie);
}

uint64_t
detect_tripwire_subject(const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    return detect_subject(d, &d->rule[i], ev);
}

uint64_t
detect_tripwire_value(const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    return d->rule[i].of >= 0 ? detect_value(d, d->rule[i].of, ev) : 0;
}

const char *
detect_tripwire_text(const struct detect *d, uint32_t i, const struct detect_event *ev,
                     uint64_t score, uint64_t window_ms, char out[DETECT_TEXT])
{
    const struct detect_said said = {ev, score, window_ms * 1000000};
    return detect_write(&d->rule[i], &said, out);
}
