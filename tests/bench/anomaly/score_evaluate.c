// SPDX-License-Identifier: Apache-2.0
// The tests of score.c: trained types, untrained types, and a profile per template.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/watch.h"
#include "score.h"

enum part { TRAIN, CALIBRATE, TEST };

static const char *const variant_names[VARIANTS] = {"one set for all", "per executable"};
static const double grave = 2;  // SEVERITY_NOTICE
static const double margin = 4; // above the highest of calibration
static const double product = SCORE_THRESHOLD;

// How the score of a run is computed.
enum rule {
    SEQUENCES, // unseen trigrams alone
    REFUSALS,  // new refusals alone
    WIRES,     // tripwires alone
    LEARNT,    // both learnt ones
    ALL,
    RULES,
};
static const char *const rule_names[RULES] = {"sequences", "new refusals", "tripwires",
                                              "sequences, new refusals", "all three"};

static enum part
part_of(const struct run *r)
{
    return r->number % 4 < 2 ? TRAIN : r->number % 4 == 2 ? CALIBRATE : TEST;
}

static double
figure(const struct profile *p, const struct run *r, enum rule rule)
{
    double sequences = profile_score(p, r);
    double refusals = profile_new_refusals(p, r) > 0 ? WATCH_WINDOW : 0;
    double wires = (double)r->severity >= grave ? (double)r->severity * WATCH_WINDOW : 0;
    switch (rule) {
    case SEQUENCES:
        return sequences;
    case REFUSALS:
        return refusals;
    case WIRES:
        return wires;
    case LEARNT:
        return sequences + refusals;
    case ALL:
    case RULES:
        break;
    }
    return sequences + refusals + wires;
}

struct figures {
    double *benign, *attack;
    size_t benign_n, attack_n;
};

static void
add(double **all, size_t *n, double v)
{
    *all = need(realloc(*all, (*n + 1) * sizeof **all));
    (*all)[(*n)++] = v;
}

static void
add_run(struct figures *f, const struct profile *p, const struct run *r, enum rule rule)
{
    if (r->attack)
        add(&f->attack, &f->attack_n, figure(p, r, rule));
    else
        add(&f->benign, &f->benign_n, figure(p, r, rule));
}

static void
clear(struct figures *f)
{
    free(f->benign);
    free(f->attack);
    *f = (struct figures){0};
}

static size_t
types_of(const struct set *s, const char *out[SCORE_TYPES])
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        bool known = s->run[i].attack;
        for (size_t k = 0; k < n && !known; k++)
            known = strcmp(out[k], s->run[i].type) == 0;
        if (!known && n < SCORE_TYPES)
            out[n++] = s->run[i].type;
    }
    return n;
}

static void
print_row(const char *test, enum variant v, enum rule rule, struct figures *f)
{
    double a = auc(f->benign, f->benign_n, f->attack, f->attack_n);
    double at1 = tpr_at(f->benign, f->benign_n, f->attack, f->attack_n, 0.01);
    double at0 = tpr_at(f->benign, f->benign_n, f->attack, f->attack_n, 0);
    (void)printf("| %s | %s | %s | %.3f | %.2f | %.2f | %zu | %zu |\n", test, variant_names[v],
                 rule_names[rule], a, at0, at1, f->benign_n, f->attack_n);
}

// Trained on all types, tested with other runs of them.
static void
known_types(const struct set *s, enum variant v, enum rule rule)
{
    struct figures f = {0};
    struct profile *p = profile_new(v);
    for (size_t i = 0; i < s->n; i++)
        if (!s->run[i].attack && part_of(&s->run[i]) == TRAIN)
            profile_learn(p, &s->run[i]);
    for (size_t i = 0; i < s->n; i++)
        if (s->run[i].attack || part_of(&s->run[i]) == TEST)
            add_run(&f, p, &s->run[i], rule);
    print_row("known types", v, rule, &f);
    profile_free(p);
    clear(&f);
}

// Trained on all types but one, which is tested. The figures of all such tests are combined.
static void
unseen_types(const struct set *s, enum variant v, enum rule rule, bool each)
{
    const char *types[SCORE_TYPES];
    size_t n = types_of(s, types);
    struct figures all = {0};
    for (size_t k = 0; k < n; k++) {
        struct figures one = {0};
        struct profile *p = profile_new(v);
        for (size_t i = 0; i < s->n; i++)
            if (!s->run[i].attack && strcmp(s->run[i].type, types[k]) != 0 &&
                part_of(&s->run[i]) != TEST)
                profile_learn(p, &s->run[i]);
        for (size_t i = 0; i < s->n; i++)
            if (s->run[i].attack || strcmp(s->run[i].type, types[k]) == 0) {
                add_run(&one, p, &s->run[i], rule);
                add_run(&all, p, &s->run[i], rule);
            }
        if (each)
            (void)printf("  - %s: %.3f\n", types[k],
                         auc(one.benign, one.benign_n, one.attack, one.attack_n));
        profile_free(p);
        clear(&one);
    }
    if (!each)
        print_row("unseen benign type", v, rule, &all);
    clear(&all);
}

// The fraction of these runs that are reported at a threshold.
static double
rate_above(const double *v, size_t n, double threshold)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += v[i] > threshold ? 1 : 0;
    return n > 0 ? (double)found / (double)n : 0;
}

struct template_sums {
    double auc, tpr, worst, calibrated_tpr, calibrated_fp, product_tpr, product_fp;
    double new_best, new_tpr,
        new_fp; // with new executables: without false alarms, at the rule's own threshold
};

static struct template_sums
one_template(const struct set *s, const char *type, enum variant v, enum rule rule)
{
    struct figures f = {0};
    struct figures calibration = {0};
    struct figures fresh = {0}; // with new executables as well
    struct profile *p = profile_new(v);
    for (size_t i = 0; i < s->n; i++)
        if (!s->run[i].attack && strcmp(s->run[i].type, type) == 0 && part_of(&s->run[i]) == TRAIN)
            profile_learn(p, &s->run[i]);
    for (size_t i = 0; i < s->n; i++) {
        const struct run *r = &s->run[i];
        if (!r->attack && strcmp(r->type, type) != 0)
            continue;
        if (!r->attack && part_of(r) == CALIBRATE)
            add_run(&calibration, p, r, rule);
        if (!r->attack && part_of(r) != TEST)
            continue;
        add_run(&f, p, r, rule);
        double more = figure(p, r, rule) + (profile_new_exes(p, r) > 0 ? WATCH_WINDOW : 0);
        if (r->attack)
            add(&fresh.attack, &fresh.attack_n, more);
        else
            add(&fresh.benign, &fresh.benign_n, more);
    }
    double highest = margin;
    for (size_t i = 0; i < calibration.benign_n; i++)
        if (calibration.benign[i] + margin > highest)
            highest = calibration.benign[i] + margin;
    struct template_sums t = {
        .auc = auc(f.benign, f.benign_n, f.attack, f.attack_n),
        .tpr = tpr_at(f.benign, f.benign_n, f.attack, f.attack_n, 0),
        .calibrated_tpr = rate_above(f.attack, f.attack_n, highest),
        .calibrated_fp = rate_above(f.benign, f.benign_n, highest),
        .product_tpr = rate_above(f.attack, f.attack_n, product - 1),
        .product_fp = rate_above(f.benign, f.benign_n, product - 1),
        .new_best = tpr_at(fresh.benign, fresh.benign_n, fresh.attack, fresh.attack_n, 0),
        .new_tpr = rate_above(fresh.attack, fresh.attack_n, product - 1),
        .new_fp = rate_above(fresh.benign, fresh.benign_n, product - 1),
    };
    t.worst = t.tpr;
    profile_free(p);
    clear(&f);
    clear(&calibration);
    clear(&fresh);
    return t;
}

static void
print_template(const char *type, const struct template_sums *t)
{
    (void)printf(
        "  - %s: AUC %.3f, TPR at 0 FP %.2f, with new executables %.2f, at %.0f %.2f (FP %.2f)\n",
        type, t->auc, t->tpr, t->new_best, product, t->new_tpr, t->new_fp);
}

static void
per_template(const struct set *s, enum variant v, enum rule rule, bool each)
{
    const char *types[SCORE_TYPES];
    size_t n = types_of(s, types);
    struct template_sums sum = {.worst = 1};
    for (size_t k = 0; k < n; k++) {
        struct template_sums t = one_template(s, types[k], v, rule);
        sum.auc += t.auc / (double)n;
        sum.tpr += t.tpr / (double)n;
        sum.worst = t.tpr < sum.worst ? t.tpr : sum.worst;
        sum.calibrated_tpr += t.calibrated_tpr / (double)n;
        sum.calibrated_fp += t.calibrated_fp / (double)n;
        sum.product_tpr += t.product_tpr / (double)n;
        sum.product_fp += t.product_fp / (double)n;
        sum.new_best += t.new_best / (double)n;
        sum.new_tpr += t.new_tpr / (double)n;
        sum.new_fp += t.new_fp / (double)n;
        if (each)
            print_template(types[k], &t);
    }
    if (!each)
        (void)printf(
            "| %s | %s | %.3f | %.2f | %.2f | %.2f / %.2f | %.2f / %.2f | %.3f | %.3f / %.2f |\n",
            variant_names[v], rule_names[rule], sum.auc, sum.tpr, sum.worst, sum.calibrated_tpr,
            sum.calibrated_fp, sum.product_tpr, sum.product_fp, sum.new_best, sum.new_tpr,
            sum.new_fp);
}

// Each run, and the attacks that nothing detects.
static void
run_by_run(const struct set *s)
{
    struct profile *p = profile_new(PER_EXE);
    double highest = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->run[i].attack && part_of(&s->run[i]) == TRAIN)
            profile_learn(p, &s->run[i]);
    for (size_t i = 0; i < s->n; i++)
        if (!s->run[i].attack && part_of(&s->run[i]) == TEST &&
            figure(p, &s->run[i], ALL) > highest)
            highest = figure(p, &s->run[i], ALL);
    (void)printf(
        "\nrun by run, all types trained, per executable (the highest benign test: %.0f)\n",
        highest);
    for (size_t i = 0; i < s->n; i++) {
        const struct run *r = &s->run[i];
        if (!r->attack && part_of(r) != TEST)
            continue;
        (void)printf(
            "  %c %-20s %2u  unseen %5.1f  new refusals %2u  new executables %2u  tripwires %u%s\n",
            r->attack ? 'a' : 'b', r->type, r->number, profile_score(p, r),
            profile_new_refusals(p, r), profile_new_exes(p, r), r->severity,
            r->attack && figure(p, r, ALL) <= highest ? "  MISSED" : "");
    }
    profile_free(p);
}

int
evaluate(const struct set *s)
{
    (void)printf("\n| test | profile | score | AUC | TPR at 0 FP | at 1 %% | benign | attacks |\n"
                 "|---|---|---|---|---|---|---|---|\n");
    for (enum variant v = 0; v < VARIANTS; v++)
        for (enum rule r = 0; r < RULES; r++)
            known_types(s, v, r);
    for (enum variant v = 0; v < VARIANTS; v++)
        for (enum rule r = 0; r < RULES; r++)
            unseen_types(s, v, r, false);
    (void)printf(
        "\nper template, mean over the types; TPR / FP at a threshold %.0f above the highest of "
        "runs that are neither trained nor tested (calibrated), at the rule's own (%.0f), and "
        "with new executables\n\n"
        "| profile | score | AUC | TPR at 0 FP | worst | calibrated | at %.0f | and new "
        "executables | at %.0f |\n|---|---|---|---|---|---|---|---|---|\n",
        margin, product, product, product);
    for (enum variant v = 0; v < VARIANTS; v++)
        for (enum rule r = 0; r < RULES; r++)
            per_template(s, v, r, false);
    (void)printf("\nunseen benign type by type (per executable, all three), AUC\n");
    unseen_types(s, PER_EXE, ALL, true);
    (void)printf("\nper template (per executable, all three)\n");
    per_template(s, PER_EXE, ALL, true);
    run_by_run(s);
    return 0;
}
