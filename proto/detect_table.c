// SPDX-License-Identifier: Apache-2.0
// See detect.h: the counts of a rule, in a table of fixed size.
//
//   scope (job, sandbox or tenant) --hash--> a set of DETECT_WAYS counts --key--> the count
//
// The key is the scope and, with `by`, the value of a field. If the set is full, the least recently used count of the same scope
// gives way if the scope has more than half of the set, otherwise the least recently used one.
#include <sodium.h>
#include <string.h>

#include "arena.h"
#include "detect_private.h"

// A count of a tripwire reports each kind of event, as the broker's own tables do.
static bool
has_once(const struct detect_rule *r)
{
    const bool counts = r->function == 0 ||
                        r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_COUNT;
    return r->once_n > 0 || (r->m->tripwire && counts);
}

size_t
detect_table_size(const struct detect_rule *r, struct detect_table *t)
{
    const Stockade__V1__DetectionAggregate *a = r->m->aggregate;
    if (r->matches_n == 0) { // the broker's own code counts
        *t = (struct detect_table){.bytes = 0};
        return 0;
    }
    const uint32_t usual = r->m->tripwire ? 16 : 256; // of tripwires, for tests and dry runs
    const uint32_t keys = a == NULL || a->keys == 0 ? usual : a->keys < 16 ? 16 : a->keys;
    const bool distinct =
        r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_DISTINCT;
    const bool sequence =
        r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SEQUENCE;
    *t = (struct detect_table){.ways = r->by >= 0 ? DETECT_WAYS_BY : DETECT_WAYS};
    t->sets = (keys + t->ways - 1) / t->ways;
    t->more_n = distinct ? (uint32_t)r->threshold : sequence ? r->matches_n : 0;
    const size_t slots = (size_t)t->sets * t->ways;
    const size_t each = distinct ? sizeof *t->seen : sequence ? sizeof *t->step_ns : 0;
    t->bytes = slots * (sizeof *t->slot + sizeof *t->tenth + t->more_n * each);
    t->bytes += has_once(r) ? slots * DETECT_ONCE * sizeof *t->once : 0;
    return t->bytes;
}

void *
detect_lines(struct arena *a, size_t bytes)
{
    uint8_t *p = arena_alloc(a, bytes + DETECT_LINE - 1);
    return p != NULL ? p + (-(uintptr_t)p % DETECT_LINE) : NULL;
}

int
detect_table_make(struct detect_rule *r, struct arena *a)
{
    struct detect_table *t = &r->table;
    const size_t slots = (size_t)t->sets * t->ways;
    r->counts = r->function == 0 ||
                r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_COUNT ||
                r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_RATE;
    t->slot = detect_lines(a, slots * sizeof *t->slot);
    t->tenth = arena_alloc(a, slots * sizeof *t->tenth);
    bool fine = t->slot != NULL && t->tenth != NULL;
    if (r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_DISTINCT) {
        t->seen = arena_alloc(a, slots * t->more_n * sizeof *t->seen);
        fine = fine && t->seen != NULL;
    } else if (t->more_n > 0) {
        t->step_ns = arena_alloc(a, slots * t->more_n * sizeof *t->step_ns);
        fine = fine && t->step_ns != NULL;
    }
    if (has_once(r)) {
        t->once = arena_alloc(a, slots * DETECT_ONCE * sizeof *t->once);
        fine = fine && t->once != NULL;
    }
    return fine ? 0 : -1;
}

void
detect_table_clear(struct detect_rule *r)
{
    struct detect_table *t = &r->table;
    const size_t slots = (size_t)t->sets * t->ways;
    memset(t->slot, 0, slots * sizeof *t->slot);
    memset(t->tenth, 0, slots * sizeof *t->tenth);
    if (t->seen != NULL)
        memset(t->seen, 0, slots * t->more_n * sizeof *t->seen);
    if (t->step_ns != NULL)
        memset(t->step_ns, 0, slots * t->more_n * sizeof *t->step_ns);
    if (t->once != NULL)
        memset(t->once, 0, slots * DETECT_ONCE * sizeof *t->once);
    t->crowded_ns = 0;
    t->last = 0;
}

// ---- keys

static uint64_t
hash(const struct detect *d, const void *bytes, size_t n)
{
    uint64_t h = 0;
    (void)crypto_shorthash((uint8_t *)&h, bytes, n, d->seed);
    return h != 0 ? h : 1;
}

uint64_t
detect_value(const struct detect *d, int field, const struct detect_event *ev)
{
    if ((ev->has >> field & 1) == 0)
        return 0;
    if (field < DETECT_TEXTS)
        return hash(d, ev->text[field], strlen(ev->text[field]));
    if (field == DETECT_ADDRESS)
        return hash(d, ev->address, sizeof ev->address);
    return hash(d, &ev->number[field - DETECT_TEXTS], sizeof ev->number[0]);
}

// All rules have one of three scopes, so each is hashed once for an event.
static uint64_t
scope_of(struct detect *d, const struct detect_rule *r, const struct detect_event *ev)
{
    uint64_t *known = &d->scope[r->per];
    if (*known != 0)
        return *known;
    const char *id = ev->job;
    if (r->per == STOCKADE__V1__DETECTION_SCOPE__DETECTION_SCOPE_TENANT)
        id = ev->text[DETECT_TENANT] != NULL ? ev->text[DETECT_TENANT] : "";
    else if (r->per == STOCKADE__V1__DETECTION_SCOPE__DETECTION_SCOPE_SANDBOX || id[0] == '\0')
        id = ev->sandbox;
    *known = hash(d, id, strlen(id));
    return *known;
}

// Each field is hashed once for an event.
static uint64_t
value_of(struct detect *d, int field, const struct detect_event *ev)
{
    if ((d->valued >> field & 1) == 0) {
        d->value[field] = detect_value(d, field, ev);
        d->valued |= UINT64_C(1) << field;
    }
    return d->value[field];
}

// Where an event is counted: the hash of the rule's scope, and the key of the count.
struct location {
    uint64_t scope, key;
};

static struct location
location_of(struct detect *d, const struct detect_rule *r, const struct detect_event *ev)
{
    const uint64_t scope = scope_of(d, r, ev);
    const uint64_t key =
        r->by >= 0 ? scope ^ value_of(d, r->by, ev) * 0x9e3779b97f4a7c15ULL : scope;
    return (struct location){scope, key != 0 ? key : 1};
}

// What a finding of once_for is about.
uint64_t
detect_subject(const struct detect *d, const struct detect_rule *r, const struct detect_event *ev)
{
    uint64_t h = ev->kind + UINT64_C(1);
    for (uint32_t i = 0; i < r->once_n; i++)
        h = (h ^ detect_value(d, r->once[i], ev)) * 0x9e3779b97f4a7c15ULL;
    return h != 0 ? h : 1;
}

// ---- slots

static bool
is_live(const struct detect_rule *r, const struct detect_slot *s, uint64_t now_ns)
{
    return s->key != 0 && (now_ns < s->last_ns + r->window_ns || now_ns < s->quiet_ns);
}

static uint32_t
victim_of(const struct detect_table *t, uint32_t first, uint64_t scope)
{
    uint32_t own = 0, oldest = first, oldest_own = first;
    uint64_t at = UINT64_MAX, at_own = UINT64_MAX;
    for (uint32_t i = first; i < first + t->ways; i++) {
        const struct detect_slot *s = &t->slot[i];
        if (s->key == 0)
            return i;
        if (s->last_ns < at) {
            at = s->last_ns;
            oldest = i;
        }
        if (s->scope != scope)
            continue;
        own++;
        if (s->last_ns < at_own) {
            at_own = s->last_ns;
            oldest_own = i;
        }
    }
    return own > t->ways / 2 ? oldest_own : oldest;
}

static void
begin_slot(struct detect_table *t, uint32_t i, uint64_t scope, uint64_t key)
{
    t->slot[i] = (struct detect_slot){.key = key, .scope = scope};
    memset(&t->tenth[i], 0, sizeof t->tenth[i]);
    if (t->seen != NULL)
        memset(&t->seen[(size_t)i * t->more_n], 0, t->more_n * sizeof *t->seen);
    if (t->step_ns != NULL)
        memset(&t->step_ns[(size_t)i * t->more_n], 0, t->more_n * sizeof *t->step_ns);
    if (t->once != NULL)
        memset(&t->once[(size_t)i * DETECT_ONCE], 0, DETECT_ONCE * sizeof *t->once);
}

static bool
is_slot(const struct detect_slot *s, uint64_t scope, uint64_t key)
{
    return s->key == key && s->scope == scope;
}

// The number of the key's slot. *displaced: another count that mattered was given up.
static uint32_t
slot_of(struct detect_rule *r, uint64_t scope, uint64_t key, uint64_t now_ns, bool *displaced)
{
    struct detect_table *t = &r->table;
    if (is_slot(&t->slot[t->last], scope, key))
        return t->last;
    const uint32_t first = (uint32_t)(scope % t->sets) * t->ways;
    for (t->last = first; t->last < first + t->ways; t->last++)
        if (is_slot(&t->slot[t->last], scope, key))
            return t->last;
    t->last = victim_of(t, first, scope);
    *displaced = is_live(r, &t->slot[t->last], now_ns);
    begin_slot(t, t->last, scope, key);
    return t->last;
}

// ---- counts

static uint64_t
add(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

// Begins the tenth of the window that it is now. The one that ended takes the place of the one that left the window.
static void
turn(const struct detect_rule *r, struct detect_slot *s, uint64_t now_ns)
{
    enum { OLDER = DETECT_BUCKETS - 1 };
    uint64_t *tenth = r->table.tenth[s - r->table.slot];
    const uint64_t tenth_ns = r->window_ns / DETECT_BUCKETS;
    const uint64_t at = now_ns / tenth_ns;
    const uint64_t gone = at > s->at ? at - s->at : 0;
    if (gone > 0)
        tenth[s->at % OLDER] = s->sum;
    for (uint64_t i = 1; i < gone && i <= OLDER; i++)
        tenth[(s->at + i) % OLDER] = 0;
    s->at += gone;
    s->end_ns = (s->at + 1) * tenth_ns;
    s->sum = 0;
    s->before = 0;
    for (int i = 0; i < OLDER; i++)
        s->before = add(s->before, tenth[i]);
}

// Divides, and sums up, once in a tenth of the window.
static uint64_t
count(const struct detect_rule *r, struct detect_slot *s, uint64_t now_ns, uint64_t n)
{
    if (now_ns >= s->end_ns)
        turn(r, s, now_ns);
    s->sum = add(s->sum, n);
    return add(s->before, s->sum);
}

// The number of different values within the window, this one included; at most the threshold.
static uint64_t
count_distinct(struct detect_rule *r, uint32_t slot, uint64_t now_ns, uint64_t value)
{
    struct detect_seen *seen = &r->table.seen[(size_t)slot * r->table.more_n];
    const uint32_t hashed = (uint32_t)(value ^ value >> 32);
    const uint32_t at = (uint32_t)(now_ns / (r->window_ns / DETECT_BUCKETS)) | 1U << 31;
    uint32_t mine = UINT32_MAX, oldest = 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->table.more_n; i++) {
        const bool live = seen[i].at != 0 && at - seen[i].at < DETECT_BUCKETS;
        if (live && seen[i].hash == hashed)
            mine = i;
        else if (seen[i].at < seen[oldest].at)
            oldest = i;
        n += live;
    }
    n += mine == UINT32_MAX;
    seen[mine != UINT32_MAX ? mine : oldest] = (struct detect_seen){hashed, at};
    return n < r->threshold ? n : r->threshold;
}

// Keeps for each step the latest time at which a sequence that has come so far began. True: this was the last step.
static bool
advance(struct detect_rule *r, uint32_t slot, uint32_t step, uint64_t now_ns)
{
    uint64_t *began = &r->table.step_ns[(size_t)slot * r->table.more_n];
    if (step == 0) {
        began[0] = now_ns;
        return false;
    }
    if (began[step - 1] == 0 || now_ns - began[step - 1] > r->window_ns)
        return false;
    began[step] = began[step - 1];
    return step + 1 == r->matches_n;
}

static uint64_t
score_of(struct detect *d, struct detect_rule *r, uint32_t slot, uint32_t step,
         const struct detect_event *ev)
{
    struct detect_slot *s = &r->table.slot[slot];
    switch ((int)r->function) {
    case STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_DISTINCT:
        return count_distinct(r, slot, ev->now_ns, value_of(d, r->of, ev));
    case STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SUM:
        return count(r, s, ev->now_ns, ev->number[r->of - DETECT_TEXTS]);
    case STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_GREATEST:
        return ev->number[r->of - DETECT_TEXTS];
    case STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SEQUENCE:
        return advance(r, slot, step, ev->now_ns) ? r->threshold : 0;
    default:
        return count(r, s, ev->now_ns, ev->times > 1 ? ev->times : 1);
    }
}

static void
report(struct detect_rule *r, enum detect_why why, uint64_t score, const char *text,
       detect_found_fn *found, void *cookie)
{
    const struct detect_finding f = {r->index, r->m, why, score, r->threshold, text};
    r->findings += why != DETECT_REPEATED;
    found(cookie, &f);
}

static void
report_crowded(struct detect *d, struct detect_rule *r, uint64_t now_ns, detect_found_fn *found,
               void *cookie)
{
    r->displaced++;
    d->totals.displaced++;
    r->incomplete_ns = now_ns + r->window_ns;
    if (now_ns < r->table.crowded_ns)
        return;
    r->table.crowded_ns = now_ns + r->window_ns;
    report(
        r, DETECT_CROWDED, r->displaced,
        "the rule had to give up counts, because there are too many at a time: what they counted "
        "may be missing",
        found, cookie);
}

// True: it is not known, and now it is.
static bool
is_first(struct detect_rule *r, uint32_t slot, uint64_t subject, uint64_t now_ns)
{
    struct detect_once *all = &r->table.once[(size_t)slot * DETECT_ONCE], *to = all;
    for (uint32_t i = 0; i < DETECT_ONCE; i++) {
        if (all[i].subject == subject && now_ns < all[i].until_ns)
            return false;
        if (all[i].until_ns < to->until_ns)
            to = &all[i];
    }
    *to = (struct detect_once){subject, now_ns + r->window_ns};
    return true;
}

// The threshold is reached. Apart, because most events only count and need no room for a sentence.
static __attribute__((noinline)) void
reach(struct detect *d, struct detect_rule *r, uint32_t slot, uint64_t score,
      const struct detect_event *ev, detect_found_fn *found, void *cookie)
{
    char text[DETECT_TEXT];
    struct detect_slot *s = &r->table.slot[slot];
    const bool is_new = r->table.once != NULL
                            ? is_first(r, slot, detect_subject(d, r, ev), ev->now_ns)
                            : ev->now_ns >= s->quiet_ns;
    if (is_new)
        s->quiet_ns = ev->now_ns + r->window_ns;
    const struct detect_said said = {ev, score, r->window_ns};
    report(r, is_new ? DETECT_FOUND : DETECT_REPEATED, score,
           is_new ? detect_write(r, &said, text) : "", found, cookie);
}

// Counts one if the key is that of the last event and nothing but numbers changes. False: nothing was done.
static bool
count_again(const struct detect_rule *r, const struct location *location,
            const struct detect_event *ev)
{
    struct detect_slot *s = &r->table.slot[r->table.last];
    const uint64_t now_ns = ev->now_ns;
    if (!r->counts || ev->times > 1 || !is_slot(s, location->scope, location->key) ||
        now_ns >= s->end_ns || s->before + s->sum + 1 >= r->threshold)
        return false;
    s->sum++;
    s->last_ns = now_ns;
    return true;
}

void
detect_table_count(struct detect *d, struct detect_rule *r, uint32_t step,
                   const struct detect_event *ev, detect_found_fn *found, void *cookie)
{
    bool displaced = false;
    const struct location location = location_of(d, r, ev);
    if (count_again(r, &location, ev))
        return;
    if (r->of >= 0 && (ev->has >> r->of & 1) == 0)
        return;
    const uint32_t i = slot_of(r, location.scope, location.key, ev->now_ns, &displaced);
    const uint64_t score = score_of(d, r, i, step, ev);
    r->table.slot[i].last_ns = ev->now_ns;
    if (displaced)
        report_crowded(d, r, ev->now_ns, found, cookie);
    if (score >= r->threshold)
        reach(d, r, i, score, ev, found, cookie);
}
