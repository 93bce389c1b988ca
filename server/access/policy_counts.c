// SPDX-License-Identifier: Apache-2.0
// Counts of calls, for rates and histories: one number each, the time at which its bucket will be empty (the generic cell rate
// algorithm, ITU-T I.371). It needs no timer, and a full table forgets the bucket that is empty first.
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy_private.h"

enum { SETS = 2048, WAYS = 8 };

struct bucket {
    uint64_t key;      // 0: none
    uint64_t empty_ns; // when it will be
};

struct policy_counts {
    uint8_t secret[crypto_shorthash_KEYBYTES];
    struct bucket set[SETS][WAYS];
};

struct policy_counts *
policy_counts_new(void)
{
    struct policy_counts *c = calloc(1, sizeof *c);
    if (c != NULL)
        randombytes_buf(c->secret, sizeof c->secret);
    return c;
}

void
policy_counts_free(struct policy_counts *c)
{
    free(c);
}

// Callers choose names, so they must not be able to find two with the same key.
static uint64_t
key_of(const struct policy_counts *c, const char *rule, const struct policy_bucket *b,
       const struct policy_call *call)
{
    uint8_t text[POLICY_RULE_NAME + 64] = {0};
    uint8_t out[crypto_shorthash_BYTES];
    uint64_t key = 0;
    (void)snprintf((char *)text, POLICY_RULE_NAME, "%s", rule);
    if (b->of != STOCKADE__V1__POLICY_COUNT__POLICY_COUNT_EVERYONE)
        (void)snprintf((char *)text + POLICY_RULE_NAME, 32, "%s", call->tenant);
    if (b->of == STOCKADE__V1__POLICY_COUNT__POLICY_COUNT_CREDENTIAL)
        memcpy(text + POLICY_RULE_NAME + 32, call->credential_id, sizeof call->credential_id);
    (void)crypto_shorthash(out, text, sizeof text, c->secret);
    memcpy(&key, out, sizeof key);
    return key != 0 ? key : 1;
}

static struct bucket *
find(struct policy_counts *c, uint64_t key, bool add)
{
    struct bucket *set = c->set[key % SETS];
    struct bucket *least = &set[0];
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].key == key)
            return &set[i];
        if (set[i].empty_ns < least->empty_ns)
            least = &set[i];
    }
    if (!add)
        return NULL;
    *least = (struct bucket){.key = key};
    return least;
}

uint64_t
policy_wait_ns(const struct policy_bucket *b, const char *rule, const struct policy_call *c,
               uint32_t weight, uint64_t *key)
{
    const uint64_t full = b->room_ns / b->step_ns + 1;
    uint64_t held = b->step_ns * (c->calls_before < full ? c->calls_before : full);
    *key = 0;
    if (c->counts != NULL) {
        *key = key_of(c->counts, rule, b, c);
        const struct bucket *at = find(c->counts, *key, false);
        held = at != NULL && at->empty_ns > c->now_ns ? at->empty_ns - c->now_ns : 0;
    }
    const uint64_t with = held + b->step_ns * weight;
    return with > b->room_ns ? with - b->room_ns : 0;
}

bool
policy_add_hit(struct policy_decision *out, uint64_t key, const struct policy_bucket *b)
{
    for (uint32_t i = 0; i < out->hits_n && key != 0; i++)
        if (out->hit[i].key == key) {
            out->hit[i].weight++;
            return true;
        }
    if (key != 0 && out->hits_n == POLICY_HITS_MAX)
        return false;
    if (key != 0)
        out->hit[out->hits_n++] = (struct policy_hit){key, b->step_ns, b->room_ns, 1};
    return true;
}

void
policy_count(struct policy_counts *counts, const struct policy_decision *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < d->hits_n && counts != NULL; i++) {
        struct bucket *b = find(counts, d->hit[i].key, true);
        b->empty_ns =
            (b->empty_ns > now_ns ? b->empty_ns : now_ns) + d->hit[i].step_ns * d->hit[i].weight;
    }
}
