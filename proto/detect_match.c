// SPDX-License-Identifier: Apache-2.0
// See detect.h: whether an event matches.
#include <stdio.h>
#include <string.h>

#include "detect_private.h"
#include "glob.h"
#include "prefix.h"

static bool
is_word(const struct detect_words *w, const char *text, uint32_t n)
{
    size_t low = 0;
    size_t high = w->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        int order = n < w->length[middle] ? -1 : n > w->length[middle];
        if (order == 0)
            order = memcmp(text, w->word[middle], n);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

static bool
text_matches(const struct detect_part *p, const char *text)
{
    const size_t n = strlen(text);
    if (p->exact.n > 0 && is_word(&p->exact, text, (uint32_t)n))
        return true;
    for (size_t i = 0; i < p->prefix_n; i++)
        if (strncmp(text, p->prefix[i], strlen(p->prefix[i])) == 0)
            return true;
    for (size_t i = 0; i < p->suffix_n; i++) {
        const size_t tail = strlen(p->suffix[i]);
        if (tail <= n && memcmp(text + n - tail, p->suffix[i], tail) == 0)
            return true;
    }
    for (size_t i = 0; i < p->glob_n; i++)
        if (glob_match(p->glob[i], text, n))
            return true;
    return false;
}

static bool
number_matches(const struct detect_part *p, uint64_t number)
{
    for (size_t i = 0; i < p->numbers_n; i++)
        if (p->number[i] == number)
            return true;
    return p->has_range && number >= p->min && (p->max == 0 || number <= p->max);
}

static bool
address_matches(const struct detect_part *p, const uint8_t address[16])
{
    for (size_t i = 0; i < p->networks_n; i++)
        if (prefix_equal(p->network[i].address, address, p->network[i].bits))
            return true;
    return false;
}

static bool
label_matches(const struct detect_part *p, const struct detect_event *ev)
{
    char text[64 + 256 + 2];
    for (size_t i = 0; i < ev->labels_n; i++) {
        const int n =
            snprintf(text, sizeof text, "%.64s=%.256s", ev->label_key[i], ev->label_value[i]);
        for (size_t k = 0; n > 0 && k < p->glob_n; k++)
            if (glob_match(p->glob[k], text, (size_t)n))
                return true;
    }
    return false;
}

bool
detect_part_matches(const struct detect_part *p, const struct detect_event *ev)
{
    if (p->field == DETECT_LABELS)
        return label_matches(p, ev);
    if ((ev->has >> p->field & 1) == 0)
        return false;
    if (p->field < DETECT_TEXTS)
        return text_matches(p, ev->text[p->field]);
    if (p->field == DETECT_ADDRESS)
        return address_matches(p, ev->address);
    return number_matches(p, ev->number[p->field - DETECT_TEXTS]);
}

static bool
parts_match(const struct detect_parts *p, const struct detect_event *ev,
            const struct detect_part *known)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (&p->part[i] != known && !detect_part_matches(&p->part[i], ev))
            return false;
    return true;
}

bool
detect_parts_match(const struct detect_parts *p, const struct detect_event *ev)
{
    return parts_match(p, ev, NULL);
}

bool
detect_matches(const struct detect_match *m, const struct detect_event *ev,
               const struct detect_part *known)
{
    bool one = m->any_n == 0;
    if (ev->kind >= DETECT_KINDS || (m->kinds[ev->kind / 64] >> ev->kind % 64 & 1) == 0)
        return false;
    if (ev->ruled && !m->calls)
        return false;
    for (uint32_t i = 0; i < m->all_n; i++)
        if (!parts_match(&m->all[i], ev, known))
            return false;
    for (uint32_t i = 0; i < m->any_n && !one; i++)
        one = detect_parts_match(&m->any[i], ev);
    for (uint32_t i = 0; i < m->not_n && one; i++)
        one = !detect_parts_match(&m->not [i], ev);
    return one;
}
