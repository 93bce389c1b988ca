// SPDX-License-Identifier: Apache-2.0
// See detect.h: which rules an event is compared with.
//
// By the kind of the event; then, if a rule needs one of some texts in a field, only if the event may have one of them. The index
// knows whole texts, up to 63 bytes of beginnings and ends, and of a pattern the last four bytes of its longest part. It may name a
// rule that does not match after all; it never leaves one out that does.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "arena.h"
#include "detect_private.h"

enum { VALUES_MAX = 64 }; // a rule with more values is compared with each event

uint32_t
detect_index_hash(uint32_t how, uint32_t field, const char *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ULL ^ field ^ how << 8;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
        h ^= h >> 32;
    }
    uint64_t rest = 0;
    memcpy(&rest, bytes + i, n - i);
    h = (h ^ rest) * 0x9e3779b97f4a7c15ULL;
    return (uint32_t)((h ^ h >> 32 ^ h >> 16) % DETECT_SLOTS);
}

// ---- what a rule needs

// The longest part of a pattern without '*'.
static size_t
longest_part(const char *pattern, const char **out)
{
    size_t most = 0;
    for (const char *p = pattern; *p != '\0';) {
        const size_t n = strcspn(p, "*");
        if (n > most) {
            most = n;
            *out = p;
        }
        p += n + (p[n] == '*');
    }
    return most;
}

static bool
has_parts(const struct detect_part *p)
{
    const char *at = NULL;
    for (size_t i = 0; i < p->glob_n; i++)
        if (longest_part(p->glob[i], &at) < DETECT_GRAM)
            return false;
    return true;
}

// The part of the rule that the index can have; if there are several, the one with the fewest values. NULL: none.
static const struct detect_part *
key_of(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    const struct detect_part *best = NULL;
    size_t least = VALUES_MAX + 1;
    for (uint32_t i = 0; r->matches_n == 1 && i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            const size_t n = p->exact.n + p->prefix_n + p->suffix_n + p->glob_n;
            if (p->field >= DETECT_TEXTS || p->field == DETECT_TEMPLATE ||
                p->field == DETECT_TENANT || n >= least || !has_parts(p))
                continue;
            best = p;
            least = n;
        }
    return best;
}

// Whether the index decides it: whole values only.
static bool
is_plain(const struct detect_part *p)
{
    bool fine = p->field < DETECT_TEXTS && p->glob_n == 0 &&
                p->exact.n + p->prefix_n + p->suffix_n <= VALUES_MAX;
    for (size_t i = 0; i < p->prefix_n && fine; i++)
        fine = strlen(p->prefix[i]) <= DETECT_LENGTH_MAX;
    for (size_t i = 0; i < p->suffix_n && fine; i++)
        fine = strlen(p->suffix[i]) <= DETECT_LENGTH_MAX;
    return fine;
}

// The part beside the key, if the rule is these two and nothing else, and the index can decide both.
static const struct detect_part *
other_of(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    const struct detect_part *other = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++, n++)
            if (&m->all[i].part[k] != r->key)
                other = &m->all[i].part[k];
    return n == 2 && m->any_n + m->not_n + r->exceptions_n == 0 && is_plain(r->key) &&
                   is_plain(other)
               ? other
               : NULL;
}

static bool
is_of_kind(const struct detect_rule *r, uint32_t kind)
{
    for (uint32_t i = 0; i < r->matches_n; i++)
        if ((r->match[i].kinds[kind / 64] >> kind % 64 & 1) != 0)
            return true;
    return false;
}

// The entry of a value; a new one, if there is none. NULL: out of memory.
static struct detect_entry *
entry_of(struct detect *d, struct detect_index *k, const struct detect_entry *of)
{
    struct detect_entry **at =
        &k->slot[detect_index_hash(of->how, of->field, of->value, of->length)];
    for (struct detect_entry *e = *at; e != NULL; e = e->next)
        if (e->how == of->how && e->field == of->field && e->length == of->length &&
            memcmp(e->value, of->value, of->length) == 0)
            return e;
    struct detect_entry *one = arena_alloc(d->arena, sizeof *one);
    if (one == NULL)
        return NULL;
    *one = *of;
    one->next = *at;
    *at = one;
    return one;
}

uint32_t
detect_pair_words(const struct detect *d)
{
    return (d->rules_n + 63) / 64;
}

static int
add_pair(struct detect *d, struct detect_entry *e, uint32_t rule)
{
    if (e->pair == NULL)
        e->pair = arena_alloc(d->arena, detect_pair_words(d) * sizeof *e->pair);
    if (e->pair == NULL)
        return -ENOMEM;
    e->pair[rule / 64] |= UINT64_C(1) << rule % 64;
    return 0;
}

static int
add_pointer(struct detect *d, struct detect_entry *e, const struct detect_pointer *rule)
{
    if (e->rules_n == e->room) {
        const uint32_t room = e->room == 0 ? 1 : e->room * 2;
        struct detect_pointer *more = arena_alloc(d->arena, room * sizeof *more);
        if (more == NULL)
            return -ENOMEM;
        if (e->rules_n > 0)
            memcpy(more, e->rule, e->rules_n * sizeof *more);
        e->rule = more;
        e->room = room;
    }
    e->rule[e->rules_n++] = *rule;
    return 0;
}

// Whether the rule is its key and nothing else.
static bool
is_only_key(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    return r->exceptions_n == 0 && m->all_n == 1 && m->any_n == 0 && m->not_n == 0 &&
           m->all[0].n == 1;
}

// whole: a rule with this value in the field has the whole part.
static int
add_value(struct detect *d, struct detect_index *k, const struct detect_rule *r,
          const struct detect_entry *of, bool whole)
{
    struct detect_entry *e = entry_of(d, k, of);
    if (e == NULL)
        return -ENOMEM;
    k->fields[of->how] |= 1U << of->field;
    if (of->how == DETECT_BEGINS)
        k->begins[of->field] |= UINT64_C(1) << of->length;
    if (of->how == DETECT_ENDS)
        k->ends[of->field] |= UINT64_C(1) << of->length;
    if (whole && r->other != NULL)
        return add_pair(d, e, r->index);
    return add_pointer(d, e, &(struct detect_pointer){r->index, whole, whole && is_only_key(r)});
}

static int
add_key(struct detect *d, struct detect_index *k, const struct detect_rule *r,
        const struct detect_part *key)
{
    struct detect_entry e = {.field = key->field};
    int rc = 0;
    e.how = DETECT_WHOLE;
    for (size_t i = 0; i < key->exact.n && rc == 0; i++) {
        e.value = key->exact.word[i];
        e.length = key->exact.length[i];
        rc = add_value(d, k, r, &e, true);
    }
    e.how = DETECT_BEGINS;
    for (size_t i = 0; i < key->prefix_n && rc == 0; i++) {
        e.value = key->prefix[i];
        e.length = (uint32_t)strnlen(e.value, DETECT_LENGTH_MAX);
        rc = add_value(d, k, r, &e, e.value[e.length] == '\0');
    }
    e.how = DETECT_ENDS;
    for (size_t i = 0; i < key->suffix_n && rc == 0; i++) {
        const size_t n = strlen(key->suffix[i]);
        e.length = (uint32_t)(n < DETECT_LENGTH_MAX ? n : DETECT_LENGTH_MAX);
        e.value = key->suffix[i] + n - e.length;
        rc = add_value(d, k, r, &e, e.length == n);
    }
    e.how = DETECT_HAS;
    e.length = DETECT_GRAM;
    for (size_t i = 0; i < key->glob_n && rc == 0; i++) { // the end of a part differs most
        const size_t n = longest_part(key->glob[i], &e.value);
        e.value += n - DETECT_GRAM;
        rc = add_value(d, k, r, &e, false);
    }
    return rc;
}

static int
add_kind(struct detect *d, uint32_t kind)
{
    struct detect_kind *k = NULL;
    for (uint32_t i = 0; i < d->rules_n; i++) {
        struct detect_rule *r = &d->rule[i];
        if (!is_of_kind(r, kind))
            continue;
        if (k == NULL) {
            k = arena_alloc(d->arena, sizeof *k);
            d->kind[kind] = k;
            if (k != NULL)
                k->rule = arena_alloc(d->arena, d->rules_n * sizeof *k->rule);
            if (k != NULL)
                k->tripwire = arena_alloc(d->arena, d->rules_n * sizeof *k->tripwire);
            if (k == NULL || k->rule == NULL || k->tripwire == NULL)
                return -ENOMEM;
        }
        if (r->m->tripwire) {
            k->tripwire[k->tripwires_n++] = i;
            continue;
        }
        k->written = true;
        k->steps += r->steps;
        r->key = key_of(r);
        r->other = r->key != NULL ? other_of(r) : NULL;
        if (r->other != NULL && k->other == NULL)
            k->other = arena_alloc(d->arena, sizeof *k->other);
        if (r->key == NULL)
            k->rule[k->rules_n++] = i;
        else if ((r->other != NULL &&
                  (k->other == NULL || add_key(d, k->other, r, r->other) < 0)) ||
                 add_key(d, &k->key, r, r->key) < 0)
            return -ENOMEM;
    }
    return 0;
}

int
detect_index(struct detect *d, struct err *e)
{
    assert(detect_pair_words(d) <= DETECT_PAIR_WORDS);
    for (uint32_t kind = 0; kind < DETECT_KINDS; kind++)
        if (add_kind(d, kind) < 0)
            return err_sys(e, ENOMEM, "index the rules");
    return 0;
}

// ---- an event

struct finding_in {
    const struct detect_index *index;
    uint32_t field;
    detect_each_fn *each;
    void *cookie;
};

static void
look(const struct finding_in *f, enum detect_how how, const char *bytes, size_t n)
{
    const struct detect_entry *e = f->index->slot[detect_index_hash(how, f->field, bytes, n)];
    for (; e != NULL; e = e->next)
        if (e->how == (uint32_t)how && e->field == f->field && e->length == n &&
            memcmp(e->value, bytes, n) == 0)
            f->each(f->cookie, e);
}

static void
look_at_text(const struct finding_in *f, const char *text)
{
    const struct detect_index *k = f->index;
    const uint32_t bit = 1U << f->field;
    const size_t n = strlen(text);
    if ((k->fields[DETECT_WHOLE] & bit) != 0)
        look(f, DETECT_WHOLE, text, n);
    const uint64_t fits =
        n >= DETECT_LENGTH_MAX ? ~UINT64_C(0) : (UINT64_C(1) << (n + 1)) - 1; // lengths up to n
    for (uint64_t left = k->begins[f->field] & fits; left != 0; left &= left - 1)
        look(f, DETECT_BEGINS, text, (size_t)__builtin_ctzll(left));
    for (uint64_t left = k->ends[f->field] & fits; left != 0; left &= left - 1) {
        const size_t length = (size_t)__builtin_ctzll(left);
        look(f, DETECT_ENDS, text + n - length, length);
    }
    if ((k->fields[DETECT_HAS] & bit) != 0)
        for (size_t i = 0; i + DETECT_GRAM <= n; i++)
            look(f, DETECT_HAS, text + i, DETECT_GRAM);
}

void
detect_index_find(const struct detect_index *x, const struct detect_event *ev, detect_each_fn *each,
                  void *cookie)
{
    uint32_t left = (uint32_t)ev->has & (x->fields[DETECT_WHOLE] | x->fields[DETECT_BEGINS] |
                                         x->fields[DETECT_ENDS] | x->fields[DETECT_HAS]);
    for (; left != 0; left &= left - 1) {
        const struct finding_in f = {x, (uint32_t)__builtin_ctz(left), each, cookie};
        look_at_text(&f, ev->text[f.field]);
    }
}
