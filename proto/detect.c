// SPDX-License-Identifier: Apache-2.0
// See detect.h: events, and what can be seen of the rules.
#include <string.h>

#include <time.h>

#include "arena.h"
#include "detect_private.h"
#include "now.h"
#include "yaml_tree.h"
#include "yaml_write.h"

const struct detect_bounds detect_bounds_host = {
    .rules = 1024, .steps = 8192, .table_bytes = 64 << 20, .work = 20000000};
enum { TIMED = 256 };

const struct detect_bounds detect_bounds_tenant = {
    .rules = 32, .steps = 1024, .table_bytes = 2 << 20, .work = 200000};

bool
detect_is_excepted(const struct detect_rule *r, const struct detect_event *ev)
{
    for (uint32_t i = 0; i < r->exceptions_n; i++)
        if (detect_parts_match(&r->exception[i], ev))
            return true;
    return false;
}

// From the last step of a sequence to the first, so that one event is not two steps.
static void
compare(struct detect *d, struct detect_rule *r, const struct detect_event *ev,
        detect_found_fn *found, void *cookie)
{
    r->looked_at++;
    d->totals.compared++;
    for (uint32_t i = r->matches_n; i > 0; i--) {
        if (!detect_matches(&r->match[i - 1], ev))
            continue;
        if (detect_is_excepted(r, ev)) {
            r->excepted++;
            return;
        }
        r->matched++;
        detect_table_count(d, r, i - 1, ev, found, cookie);
    }
}

// One in 256 events is timed. The clock takes as long as a cheap rule, so that is left out.
void
detect_compare(struct detect *d, struct detect_rule *r, const struct detect_event *ev,
               detect_found_fn *found, void *cookie)
{
    if (d->events % TIMED != 0) {
        compare(d, r, ev, found, cookie);
        return;
    }
    const uint64_t before = (uint64_t)now_ns(CLOCK_MONOTONIC);
    const uint64_t from = (uint64_t)now_ns(CLOCK_MONOTONIC);
    compare(d, r, ev, found, cookie);
    const uint64_t took = (uint64_t)now_ns(CLOCK_MONOTONIC) - from;
    r->timed_ns += took > from - before ? took - (from - before) : 0;
    r->timed++;
}

struct comparing {
    struct detect *d;
    const struct detect_event *ev;
    detect_found_fn *found;
    void *cookie;
};

// A rule that is found twice is compared once.
static void
compare_found(void *cookie, uint32_t rule)
{
    const struct comparing *c = cookie;
    struct detect_rule *r = &c->d->rule[rule];
    if (!r->enabled || r->event == c->d->events)
        return;
    r->event = c->d->events;
    detect_compare(c->d, r, c->ev, c->found, c->cookie);
}

void
detect_event(struct detect *d, const struct detect_event *ev, detect_found_fn *found, void *cookie)
{
    const struct detect_kind *k = d != NULL && ev->kind < DETECT_KINDS ? d->kind[ev->kind] : NULL;
    if (k == NULL)
        return;
    struct comparing c = {d, ev, found, cookie};
    detect_begin(d);
    for (uint32_t i = 0; i < k->rules_n; i++)
        if (d->rule[k->rule[i]].enabled)
            detect_compare(d, &d->rule[k->rule[i]], ev, found, cookie);
    detect_index_find(k, ev, compare_found, &c);
}

// ---- views

struct detect_totals
detect_totals(const struct detect *d)
{
    return d != NULL ? d->totals : (struct detect_totals){0, 0};
}

bool
detect_wants(const struct detect *d, uint32_t kind)
{
    return d != NULL && kind < DETECT_KINDS && d->kind[kind] != NULL && d->kind[kind]->written;
}

void
detect_digest(const struct detect *d, uint8_t out[DETECT_DIGEST])
{
    if (d != NULL)
        memcpy(out, d->digest, DETECT_DIGEST);
    else
        memset(out, 0, DETECT_DIGEST);
}

uint32_t
detect_count(const struct detect *d)
{
    return d != NULL ? d->rules_n : 0;
}

size_t
detect_bytes(const struct detect *d)
{
    size_t n = d != NULL ? arena_used(d->arena) : 0;
    for (uint32_t i = 0; d != NULL && i < d->trees_n; i++)
        n += yaml_tree_bytes(d->tree[i]);
    return n;
}

uint32_t
detect_tests(const struct detect *d)
{
    return d != NULL ? d->tests_n : 0;
}

// Events that the BPF programs report only if something is suspicious: refused, sensitive, dangerous, or not in the profile. A rule
// about all of them, without a condition or a count, is decided there.
static bool
is_of_kernel(const struct detect_rule *r)
{
    static const uint32_t kinds[] = {
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_IO_URING,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_OUT_OF_MEMORY,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_REMOTE_TERMINAL,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_PROFILE,
    };
    const struct detect_match *m = &r->match[0];
    uint64_t left[DETECT_KINDS / 64];
    memcpy(left, m->kinds, sizeof left);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        left[kinds[i] / 64] &= ~(UINT64_C(1) << kinds[i] % 64);
    return r->matches_n == 1 && !r->m->tripwire && r->threshold == 1 && r->exceptions_n == 0 &&
           m->all_n + m->any_n + m->not_n == 0 && (left[0] | left[1]) == 0;
}

// ---- paths

// "/a/b/": a folder that is not one of all programs.
static bool
is_folder(const char *text)
{
    const char *second = text[0] == '/' ? strchr(text + 1, '/') : NULL;
    return second != NULL && second[1] != '\0' && text[strlen(text) - 1] == '/';
}

// The texts of a rule's field `path`, if it needs one of them and the kernel can watch for all: whole paths and folders.
static const struct detect_part *
paths_of(const struct detect_match *m)
{
    const uint32_t open = STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN;
    if ((m->kinds[open / 64] >> open % 64 & 1) == 0)
        return NULL;
    for (uint32_t i = 0; i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            bool fine = p->field == DETECT_PATH && p->suffix_n + p->glob_n == 0;
            for (size_t n = 0; fine && n < p->exact.n; n++)
                fine = p->exact.word[n][0] == '/';
            for (size_t n = 0; fine && n < p->prefix_n; n++)
                fine = is_folder(p->prefix[n]);
            if (fine)
                return p;
        }
    return NULL;
}

static uint32_t
each_path(const struct detect_rule *r, detect_path_fn *each, void *cookie)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->matches_n && !r->m->tripwire; i++) {
        const struct detect_part *p = paths_of(&r->match[i]);
        for (size_t k = 0; p != NULL && each != NULL && k < p->exact.n; k++)
            each(cookie, p->exact.word[k], false);
        for (size_t k = 0; p != NULL && each != NULL && k < p->prefix_n; k++)
            each(cookie, p->prefix[k], true);
        n += p != NULL ? (uint32_t)(p->exact.n + p->prefix_n) : 0;
    }
    return n;
}

void
detect_paths(const struct detect *d, detect_path_fn *each, void *cookie)
{
    for (uint32_t i = 0; i < detect_count(d); i++)
        if (d->rule[i].enabled)
            (void)each_path(&d->rule[i], each, cookie);
}

// The kernel reports the paths of the rule, and the rule asks for nothing else.
static bool
is_of_paths(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    return r->matches_n == 1 && r->threshold == 1 && r->exceptions_n == 0 && m->all_n == 1 &&
           m->all[0].n == 1 && m->any_n + m->not_n == 0 && each_path(r, NULL, NULL) > 0 &&
           m->kinds[0] + m->kinds[1] ==
               UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN % 64;
}

bool
detect_view(const struct detect *d, uint32_t i, struct detect_view *out)
{
    if (i >= detect_count(d))
        return false;
    const struct detect_rule *r = &d->rule[i];
    *out = (struct detect_view){.rule = r->m,
                                .file = r->file,
                                .line = r->line,
                                .enabled = r->enabled,
                                .tripwire = r->m->tripwire,
                                .builtin = r->m->builtin != NULL,
                                .function = r->function,
                                .of = r->of,
                                .in_kernel = is_of_kernel(r) || is_of_paths(r),
                                .kernel_paths = each_path(r, NULL, NULL),
                                .measured_ns = r->timed > 0 ? r->timed_ns / r->timed : 0,
                                .steps = r->steps,
                                .table_bytes = r->table.bytes,
                                .window_ms = r->window_ns / 1000000,
                                .threshold = r->threshold,
                                .looked_at = r->looked_at,
                                .matched = r->matched,
                                .excepted = r->excepted,
                                .findings = r->findings,
                                .displaced = r->displaced};
    return true;
}

size_t
detect_definition(const struct detect *d, uint32_t i, char *out, size_t n)
{
    Stockade__V1__DetectionRule m = *d->rule[i].m;
    m.n_tests = 0;
    return yaml_write(&m.base, YAML_BLOCK, out, n);
}

int
detect_find(const struct detect *d, const char *id)
{
    for (uint32_t i = detect_count(d); i > 0; i--)
        if (strcmp(d->rule[i - 1].m->id, id) == 0)
            return (int)i - 1;
    return -1;
}

void
detect_enable(struct detect *d, uint32_t i, bool enabled)
{
    d->rule[i].enabled = enabled;
    if (d->rule[i].table.slot != NULL)
        detect_table_clear(&d->rule[i]);
}

void
detect_free(struct detect *d)
{
    if (d == NULL)
        return;
    for (uint32_t i = 0; i < d->trees_n; i++)
        yaml_tree_free(d->tree[i]);
    arena_free(d->arena); // d itself is in it
}
