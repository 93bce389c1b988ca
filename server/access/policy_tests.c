// SPDX-License-Identifier: Apache-2.0
// See policy.h: the tests that rules carry.
#include <stdio.h>

#include "policy_private.h"
#include "proto/now.h"

static int
fail_test(const struct policy_tested *t, struct err *e)
{
    const struct policy_decision *d = t->decision;
    return err_set(
        e, ERR_INVALID_ARGUMENT,
        "%s:%u:%u: rule %s: test %zu%s%.100s%s fails: it expects %s%s%s, but the decision is "
        "%s%s%s%s%s",
        t->file, t->line, t->column, t->rule, t->number, t->test->name[0] != '\0' ? " (" : "",
        t->test->name, t->test->name[0] != '\0' ? ")" : "", policy_word_of(t->test->expect),
        t->test->rule[0] != '\0' ? " by " : "", t->test->rule, policy_verdict_name[d->verdict],
        d->rule[0] != '\0' ? " by " : "", d->rule,
        d->verdict == POLICY_DENY && d->rule[0] == '\0' ? d->reason : "", t->note);
}

// A call of a test that says nothing about its tenant or template has the usual one, which the rule's layer may not be about.
static const char *
note_of(const struct policy_layer *l, const Stockade__V1__PolicyTest *t)
{
    const Stockade__V1__PolicyCall *c = t->call;
    if (l->m->n_tenants > 0 && (c == NULL || c->tenant[0] == '\0'))
        return "; the layer is about some tenants, and the call is of uid:1000: add tenant to it";
    if (l->m->n_templates > 0 && (c == NULL || c->template_[0] == '\0'))
        return "; the layer is about some templates, and the call has default: add template to it";
    return "";
}

static int
run_rule(const struct policy *p, const struct policy_layer *l, const struct policy_rule *r,
         policy_tested_fn *each, void *cookie, struct err *e)
{
    static struct policy_decision d;
    for (size_t k = 0; k < r->m->n_tests; k++) {
        const int rc = policy_test(p, r->m->tests[k], now_wall_ms(), &d, e);
        const struct policy_tested t = {.file = l->file,
                                        .line = r->line,
                                        .column = r->column,
                                        .rule = r->name,
                                        .number = k + 1,
                                        .test = r->m->tests[k],
                                        .decision = &d,
                                        .passed = rc > 0,
                                        .note = note_of(l, r->m->tests[k])};
        if (rc < 0)
            return err_wrap(e, "%s:%u:%u: rule %s: test %zu", t.file, t.line, t.column, t.rule,
                            t.number);
        if (each != NULL)
            each(cookie, &t);
        else if (rc == 0)
            return fail_test(&t, e);
    }
    return 0;
}

int
policy_run_tests(const struct policy *p, policy_tested_fn *each, void *cookie, struct err *e)
{
    int rc = 0;
    for (uint32_t l = 0; p != NULL && l < p->layers_n && rc == 0; l++)
        for (uint32_t i = 0; i < p->layers[l].rules_n && rc == 0; i++)
            rc = run_rule(p, &p->layers[l], &p->layers[l].rules[i], each, cookie, e);
    return rc;
}
