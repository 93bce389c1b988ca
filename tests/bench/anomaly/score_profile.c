// SPDX-License-Identifier: Apache-2.0
// Profiles like the kernel's (bpf/watch.h), and the figures of a test: see score.h.
#include "score.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/watch.h"

struct profile {
    enum variant variant;
    struct watch_profile *of[SCORE_EXES];            // NULL: unknown
    bool own;                                        // files of the sandbox were executed
    unsigned surprise[SCORE_EXES], runs[SCORE_EXES]; // server/anomaly/profiles.h
};

void
die(const char *why)
{
    (void)fprintf(stderr, "bench-anomaly_score: %s\n", why);
    exit(1);
}

void *
need(void *p)
{
    if (p == NULL) {
        perror("bench-anomaly_score");
        exit(1);
    }
    return p;
}

struct run *
set_add(struct set *s)
{
    if (s->n == s->room) {
        s->room = s->room > 0 ? s->room * 2 : 64;
        s->run = need(realloc(s->run, s->room * sizeof *s->run));
    }
    s->run[s->n] = (struct run){0};
    return &s->run[s->n++];
}

struct profile *
profile_new(enum variant v)
{
    struct profile *p = need(calloc(1, sizeof *p));
    p->variant = v;
    return p;
}

void
profile_free(struct profile *p)
{
    for (size_t i = 0; i < SCORE_EXES; i++)
        free(p->of[i]);
    free(p);
}

static bool
has(const struct watch_profile *set, uint32_t bit)
{
    return (set->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

// False: the bit was set already.
static bool
put(struct watch_profile **set, uint32_t bit)
{
    if (*set == NULL)
        *set = need(calloc(1, sizeof **set));
    bool had = has(*set, bit);
    (*set)->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    return !had;
}

static uint32_t
refusal_bit(const struct refusal *r)
{
    return watch_trigram(WATCH_REFUSED, WATCH_REFUSED, r->number);
}

static size_t
set_of(const struct profile *p, uint16_t exe)
{
    return p->variant == ONE_SET ? 0 : exe;
}

// Like settle_run() of the broker.
static void
settle_run(struct profile *p, const unsigned *most, const bool *active)
{
    for (size_t x = 0; x < SCORE_EXES; x++) {
        if (!active[x])
            continue;
        if (p->runs[x]++ > 0 && most[x] > p->surprise[x])
            p->surprise[x] = most[x];
    }
}

void
profile_learn(struct profile *p, const struct run *r)
{
    unsigned *most = need(calloc(SCORE_EXES, sizeof *most));
    bool *active = need(calloc(SCORE_EXES, sizeof *active));
    unsigned unseen = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct token *t = &r->token[i];
        size_t x = set_of(p, t->exe);
        if (p->variant != ONE_SET && exe_is_own(t->exe)) {
            p->own = true;
        } else {
            active[x] = true;
            unseen += put(&p->of[x], t->bit) ? 1 : 0;
            most[x] = unseen > most[x] ? unseen : most[x];
        }
        if (t->ends)
            unseen = 0;
    }
    settle_run(p, most, active);
    free(most);
    free(active);
    for (size_t i = 0; i < r->refusals; i++)
        if (!exe_is_own(r->refusal[i].exe))
            (void)put(&p->of[set_of(p, r->refusal[i].exe)], refusal_bit(&r->refusal[i]));
}

// Like threshold_of() of the broker.
static double
threshold_of(const struct profile *p, size_t x)
{
    unsigned sum = SCORE_THRESHOLD + p->surprise[x];
    return sum < WATCH_WINDOW / 2 ? sum : WATCH_WINDOW / 2;
}

double
profile_score(const struct profile *p, const struct run *r)
{
    double most = 0;
    unsigned unseen = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct token *t = &r->token[i];
        size_t x = set_of(p, t->exe);
        if (p->of[x] != NULL && !has(p->of[x], t->bit))
            unseen++;
        double part = unseen * SCORE_THRESHOLD / threshold_of(p, x);
        most = part > most ? part : most;
        if (t->ends)
            unseen = 0;
    }
    return most;
}

unsigned
profile_new_refusals(const struct profile *p, const struct run *r)
{
    unsigned n = 0;
    for (size_t i = 0; i < r->refusals; i++) {
        const struct watch_profile *set = p->of[set_of(p, r->refusal[i].exe)];
        n += set != NULL && !has(set, refusal_bit(&r->refusal[i])) ? 1 : 0;
    }
    return n;
}

unsigned
profile_new_exes(const struct profile *p, const struct run *r)
{
    static bool seen[SCORE_EXES];
    unsigned n = 0;
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < r->n; i++) {
        uint16_t x = r->token[i].exe;
        if (!seen[x] && p->of[x] == NULL && !(exe_is_own(x) && p->own))
            n++;
        seen[x] = true;
    }
    return n;
}

double
auc(const double *benign, size_t benign_n, const double *attack, size_t attack_n)
{
    double sum = 0;
    for (size_t i = 0; i < attack_n; i++)
        for (size_t k = 0; k < benign_n; k++)
            sum += attack[i] > benign[k] ? 1 : attack[i] < benign[k] ? 0 : 0.5;
    return benign_n > 0 && attack_n > 0 ? sum / (double)(benign_n * attack_n) : 0.5;
}

static int
downwards(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

double
tpr_at(double *benign, size_t benign_n, const double *attack, size_t attack_n, double false_alarms)
{
    size_t allowed = (size_t)(false_alarms * (double)benign_n);
    qsort(benign, benign_n, sizeof *benign, downwards);
    double above = benign_n > allowed ? benign[allowed] : -1;
    size_t found = 0;
    for (size_t i = 0; i < attack_n; i++)
        found += attack[i] > above ? 1 : 0;
    return attack_n > 0 ? (double)found / (double)attack_n : 0;
}
