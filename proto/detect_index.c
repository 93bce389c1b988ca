// SPDX-License-Identifier: Apache-2.0
// See detect.h: which rules an event is compared with.
//
// By the kind of the event; then, if a rule needs one of some plain texts in a field, only if the event has one of them.
#include <errno.h>
#include <string.h>

#include "arena.h"
#include "detect_private.h"

enum { VALUES_MAX = 64 }; // a rule with more values is compared with each event

uint32_t
detect_index_hash(uint32_t field, const char *text)
{
    uint64_t h = 0xcbf29ce484222325ULL ^ field;
    const size_t n = strlen(text);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
        h ^= h >> 32;
    }
    for (; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3ULL;
    return (uint32_t)((h ^ h >> 32 ^ h >> 16) % DETECT_SLOTS);
}

// A field whose value must be one of the plain texts of the part. NULL: there is none.
static const struct detect_part *
key_of(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    for (uint32_t i = 0; r->matches_n == 1 && i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            if (p->field < DETECT_TEXTS && p->field != DETECT_TEMPLATE &&
                p->field != DETECT_TENANT && p->prefix_n + p->suffix_n + p->glob_n == 0 &&
                p->exact.n <= VALUES_MAX)
                return p;
        }
    return NULL;
}

static bool
is_of_kind(const struct detect_rule *r, uint32_t kind)
{
    for (uint32_t i = 0; i < r->matches_n; i++)
        if ((r->match[i].kinds[kind / 64] >> kind % 64 & 1) != 0)
            return true;
    return false;
}

static int
add_key(struct detect *d, struct detect_kind *k, const struct detect_rule *r,
        const struct detect_part *key)
{
    k->fields |= 1U << key->field;
    for (size_t i = 0; i < key->exact.n; i++) {
        struct detect_entry **at = &k->slot[detect_index_hash(key->field, key->exact.word[i])];
        struct detect_entry *one = arena_alloc(d->arena, sizeof *one);
        if (one == NULL)
            return -ENOMEM;
        *one = (struct detect_entry){r->index, key->field, key->exact.word[i], *at};
        *at = one;
    }
    return 0;
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
            if (k == NULL || k->rule == NULL)
                return -ENOMEM;
        }
        k->steps += r->steps;
        const struct detect_part *key = key_of(r);
        if (key == NULL)
            k->rule[k->rules_n++] = i;
        else if (add_key(d, k, r, key) < 0)
            return -ENOMEM;
    }
    return 0;
}

int
detect_index(struct detect *d, struct err *e)
{
    for (uint32_t kind = 0; kind < DETECT_KINDS; kind++)
        if (add_kind(d, kind) < 0)
            return err_sys(e, ENOMEM, "index the rules");
    return 0;
}
