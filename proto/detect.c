// SPDX-License-Identifier: Apache-2.0
// See detect.h: events, and what can be seen of the rules.
#include <stdio.h>
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
        const struct detect_part *known, detect_found_fn *found, void *cookie)
{
    r->looked_at++;
    d->totals.compared++;
    for (uint32_t i = r->matches_n; i > 0; i--) {
        if (!detect_matches(&r->match[i - 1], ev, known))
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
               const struct detect_part *known, detect_found_fn *found, void *cookie)
{
    if (d->events % TIMED != 0) {
        compare(d, r, ev, known, found, cookie);
        return;
    }
    const uint64_t before = (uint64_t)now_ns(CLOCK_MONOTONIC);
    const uint64_t from = (uint64_t)now_ns(CLOCK_MONOTONIC);
    compare(d, r, ev, known, found, cookie);
    const uint64_t took = (uint64_t)now_ns(CLOCK_MONOTONIC) - from;
    r->timed_ns += took > from - before ? took - (from - before) : 0;
    r->timed++;
}

enum { PAIRS_FEW = 8 };
struct comparing {
    struct detect *d;
    const struct detect_event *ev;
    detect_found_fn *found;
    void *cookie;
    uint32_t words;
    uint64_t pair[DETECT_PAIR_WORDS], other[DETECT_PAIR_WORDS]; // rules of which this part matches
};

static void
note(uint64_t *bits, const uint64_t *more, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        bits[w] |= more[w];
}

// A rule that is found twice is compared once. If there is nothing to compare, most only count, which takes two cache lines of each.
static void
compare_found(void *cookie, const struct detect_entry *e)
{
    struct comparing *c = cookie;
    struct detect *d = c->d;
    const uint64_t event = d->events;
    const bool timed = event % TIMED == 0;
    uint64_t counted = 0;
    if (e->pair != NULL)
        note(c->pair, e->pair, c->words);
    for (uint32_t i = 0; i < e->rules_n; i++) {
        struct detect_rule *r = &d->rule[e->rule[i].rule];
        if (!r->enabled || r->event == event)
            continue;
        r->event = event;
        if (!e->rule[i].only || timed || c->ev->ruled) {
            detect_compare(d, r, c->ev, e->rule[i].whole ? r->key : NULL, c->found, c->cookie);
            continue;
        }
        r->looked_at++;
        r->matched++;
        counted++;
        detect_table_count(d, r, 0, c->ev, c->found, c->cookie);
    }
    d->totals.compared += counted;
}

static void
note_others(void *cookie, const struct detect_entry *e)
{
    struct comparing *c = cookie;
    note(c->other, e->pair, c->words);
}

static void
compare_pair(struct comparing *c, struct detect_rule *r, bool each, bool other)
{
    if (!r->enabled)
        return;
    if (each) {
        detect_compare(c->d, r, c->ev, r->key, c->found, c->cookie);
        return;
    }
    r->looked_at++;
    c->d->totals.compared++;
    if (!other)
        return;
    r->matched++;
    detect_table_count(c->d, r, 0, c->ev, c->found, c->cookie);
}

// Rules of two parts, of which one matches. If there are many, the index finds the rules of which the other one does, too: the text is
// compared once for all of them.
static void
compare_pairs(struct comparing *c, const struct detect_index *other)
{
    int n = 0;
    for (uint32_t w = 0; w < c->words; w++)
        n += __builtin_popcountll(c->pair[w]);
    const bool each = n <= PAIRS_FEW || c->ev->ruled || c->d->events % TIMED == 0;
    if (!each)
        detect_index_find(other, c->ev, note_others, c);
    for (uint32_t w = 0; n > 0 && w < c->words; w++)
        for (uint64_t left = c->pair[w]; left != 0; left &= left - 1) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(left);
            compare_pair(c, &c->d->rule[w * 64 + bit], each, (c->other[w] >> bit & 1) != 0);
        }
}

void
detect_event(struct detect *d, const struct detect_event *ev, detect_found_fn *found, void *cookie)
{
    const struct detect_kind *k = d != NULL && ev->kind < DETECT_KINDS ? d->kind[ev->kind] : NULL;
    if (k == NULL)
        return;
    struct comparing c = {
        .d = d, .ev = ev, .found = found, .cookie = cookie, .words = detect_pair_words(d)};
    detect_begin(d);
    for (uint32_t i = 0; i < k->rules_n; i++)
        if (d->rule[k->rule[i]].enabled)
            detect_compare(d, &d->rule[k->rule[i]], ev, NULL, found, cookie);
    detect_index_find(&k->key, ev, compare_found, &c);
    if (k->other != NULL)
        compare_pairs(&c, k->other);
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

uint32_t
detect_lost(struct detect *d, const struct detect_lost *lost, char *out, size_t n, uint64_t *missed)
{
    uint32_t found = 0;
    size_t at = 0;
    out[0] = '\0';
    *missed = 0;
    for (uint32_t i = 0; i < detect_count(d); i++) {
        struct detect_rule *r = &d->rule[i];
        bool is = false;
        for (uint32_t k = 0; k < r->matches_n && r->enabled && !r->m->tripwire; k++)
            is = is || (r->match[k].kinds[0] & lost->kinds) != 0;
        found += is;
        if (is && at + strlen(r->m->id) + sizeof ", " <= n)
            at += (size_t)snprintf(out + at, n - at, "%s%s", at > 0 ? ", " : "", r->m->id);
        if (!is || r->counted)
            continue;
        r->missed += lost->events;
        r->incomplete_ns = lost->now_ns + r->window_ns;
        *missed += lost->events;
    }
    return found;
}

void
detect_skip(struct detect *d, uint64_t now_ns)
{
    d->skipped_ns = now_ns;
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
                                .measured_ns = r->timed > 0 ? r->timed_ns / r->timed : 0,
                                .steps = r->steps,
                                .table_bytes = r->table.bytes,
                                .window_ms = r->window_ns / 1000000,
                                .threshold = r->threshold,
                                .looked_at = r->looked_at,
                                .matched = r->matched,
                                .excepted = r->excepted,
                                .findings = r->findings,
                                .displaced = r->displaced,
                                .missed = r->missed,
                                .incomplete_ns = r->incomplete_ns};
    if (d->skipped_ns > 0 && !r->m->tripwire && d->skipped_ns + r->window_ns > out->incomplete_ns)
        out->incomplete_ns = d->skipped_ns + r->window_ns;
    detect_decide(r, out);
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
    d->rule[i].incomplete_ns = 0;
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
