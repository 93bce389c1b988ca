// SPDX-License-Identifier: Apache-2.0
// See policy.h: the decision.
//
//   for each layer that applies
//     for each command of the call (once, if it has none)
//       the first candidate of the method that matches, or `otherwise`     --> deny: the end, unless each layer has to answer
//   then the limits of all rules with the verdict limit, and last their rates
#include "policy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "policy_private.h"
#include "proto/plural.h"
#include "proto/quantity.h"

#define NS_PER_MS UINT64_C(1000000)

const char *const policy_verdict_name[] = {
    [POLICY_ALLOW] = "allow",
    [POLICY_LIMIT] = "limit",
    [POLICY_ASK] = "ask",
    [POLICY_DENY] = "deny",
};

// What is collected of the layers, beside the decision.
struct collected {
    const struct policy_rule *most[LIMITS_N]; // the rule that a limit comes from
    const struct policy_rule *rate[POLICY_HITS_MAX];
    uint32_t rate_calls[POLICY_HITS_MAX];
    uint32_t rates_n;
};

// ---- one rule

static bool
add_ask(struct policy_decision *out, const struct policy_rule *r)
{
    assert(r->m->ask != NULL);
    for (uint32_t i = 0; i < out->asks_n; i++)
        if (strcmp(out->ask[i].rule, r->name) == 0)
            return true;
    if (out->asks_n == POLICY_ASKS_MAX)
        return false;
    struct policy_asked *a = &out->ask[out->asks_n++];
    *a = (struct policy_asked){.ask = r->m->ask, .timeout_ms = r->timeout_ms};
    (void)snprintf(a->rule, sizeof a->rule, "%s", r->name);
    (void)snprintf(a->reason, sizeof a->reason, "%s", r->m->reason);
    return true;
}

static bool
add_limit(struct policy_decision *out, struct collected *of, const struct policy_rule *r)
{
    for (int i = 0; i < LIMITS_N; i++)
        if (r->most.v[i] != 0 && (out->most.v[i] == 0 || r->most.v[i] < out->most.v[i])) {
            out->most.v[i] = r->most.v[i];
            of->most[i] = r;
        }
    if (r->rate.step_ns == 0)
        return true;
    for (uint32_t i = 0; i < of->rates_n; i++)
        if (of->rate[i] == r) {
            of->rate_calls[i]++;
            return true;
        }
    if (of->rates_n == POLICY_HITS_MAX)
        return false;
    of->rate[of->rates_n] = r;
    of->rate_calls[of->rates_n++] = 1;
    return true;
}

// The first rule that decides what the decision says.
static void
decided_by(struct policy_decision *out, enum policy_verdict verdict, const char *rule,
           const char *reason)
{
    if (verdict <= out->verdict)
        return;
    out->verdict = verdict;
    (void)snprintf(out->rule, sizeof out->rule, "%s", rule);
    (void)snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void
deny(struct policy_decision *out, const struct policy_layer *l, const struct policy_rule *r)
{
    if (out->verdict == POLICY_DENY)
        return;
    decided_by(out, POLICY_DENY, r != NULL ? r->name : l->m->name,
               r != NULL ? r->m->reason : l->m->reason);
    out->of_request = strcmp(l->kind, "request") == 0;
    policy_allowed(l, r, out);
}

static void
deny_size(struct policy_decision *out)
{
    out->verdict = POLICY_DENY;
    out->rule[0] = '\0';
    (void)snprintf(out->reason, sizeof out->reason,
                   "the call is too large for the rules that it must be compared with");
    (void)snprintf(out->allowed, sizeof out->allowed, "shorter or fewer commands and paths");
}

// ---- one layer

static bool
applies(const struct policy_layer *l, struct policy_work *w)
{
    const char *template = w->call->deed->template;
    const Stockade__V1__PolicyLayer *m = l->m;
    if (m->n_tenants > 0 && !policy_words_match(m->n_tenants, m->tenants, w->call->tenant, w))
        return false;
    return m->n_templates == 0 ||
           (template != NULL && policy_words_match(m->n_templates, m->templates, template, w));
}

// NULL: none matches.
static const struct policy_rule *
first_match(const struct policy_layer *l, uint32_t method, struct policy_work *w)
{
    for (uint32_t i = l->first[method]; i < l->first[method + 1] && !w->spent; i++) {
        const struct policy_candidate *c = &l->candidates[i];
        if ((c->program == 0 || c->program == w->program) &&
            policy_rule_matches(&l->rules[c->rule], w))
            return &l->rules[c->rule];
    }
    return NULL;
}

static void
take(const struct policy_layer *l, const struct policy_rule *r, struct policy_work *w,
     struct collected *of)
{
    const enum policy_verdict verdict = r != NULL ? r->verdict : l->otherwise;
    if (w->spent)
        return;
    if (verdict == POLICY_DENY)
        deny(w->out, l, r);
    if (r == NULL || verdict == POLICY_DENY || verdict == POLICY_ALLOW)
        return;
    w->spent = verdict == POLICY_ASK ? !add_ask(w->out, r) : !add_limit(w->out, of, r);
    if (!w->spent)
        decided_by(w->out, verdict, r->name, r->m->reason);
}

static void
ask_layer(const struct policy_layer *l, uint32_t method, struct policy_work *w,
          struct collected *of, struct policy_step *step)
{
    const struct deed *d = w->call->deed;
    *step = (struct policy_step){.layer = l->m->name,
                                 .kind = l->kind,
                                 .rule = "",
                                 .reason = "",
                                 .file = l->file,
                                 .line = l->line};
    for (size_t i = 0; i < (d->commands_n > 0 ? d->commands_n : 1) && !w->spent; i++) {
        policy_work_command(w, d->commands_n > 0 ? &d->commands[i] : NULL);
        const struct policy_rule *r = first_match(l, method, w);
        const enum policy_verdict verdict = r != NULL ? r->verdict : l->otherwise;
        take(l, r, w, of);
        if (i > 0 && verdict <= step->verdict)
            continue;
        step->verdict = verdict;
        step->rule = r != NULL ? r->m->id : "";
        step->reason = r != NULL ? r->m->reason : l->m->reason;
        step->line = r != NULL ? r->line : l->line;
        if (verdict == POLICY_DENY)
            break;
    }
}

struct asking {
    const struct policy *p; // NULL: none
    policy_step_fn *step;   // NULL: the first denial ends it
    void *cookie;
    struct collected *of;
};

static void
ask_layers(const struct asking *a, uint32_t method, struct policy_work *w)
{
    for (uint32_t i = 0; a->p != NULL && i < a->p->layers_n && !w->spent; i++) {
        struct policy_step one;
        if (!applies(&a->p->layers[i], w))
            continue;
        if (w->out->verdict == POLICY_DENY && a->step == NULL)
            break;
        ask_layer(&a->p->layers[i], method, w, a->of, &one);
        if (a->step != NULL && !w->spent)
            a->step(a->cookie, &one);
    }
}

// ---- limits and rates

static void
deny_limit(struct policy_decision *out, const struct policy_rule *r, int i, uint64_t now)
{
    char most[QUANTITY_TEXT], text[QUANTITY_TEXT];
    const struct quantity_unit *units = limits_units(i);
    out->verdict = POLICY_DENY;
    (void)snprintf(out->rule, sizeof out->rule, "%s", r->name);
    (void)quantity_write(out->most.v[i], units, most);
    (void)snprintf(out->reason, sizeof out->reason, "%s %s is more than %s%s%.180s",
                   limit_table[i].key,
                   now != 0 ? quantity_write(now, units, text) : "without limit", most,
                   r->m->reason[0] != '\0' ? ": " : "", r->m->reason);
    (void)snprintf(out->allowed, sizeof out->allowed, "%s up to %s", limit_table[i].key, most);
    (void)snprintf(out->field, sizeof out->field, "limits.%s", limit_table[i].name);
}

// A limit that the request leaves to its template is lowered; one that it sets is refused.
static void
check_limits(const struct policy_call *c, const struct collected *of, struct policy_decision *out)
{
    for (int i = 0; i < LIMITS_N && out->verdict != POLICY_DENY; i++) {
        if (of->most[i] == NULL || (c->deed->limits == NULL && !c->deed->unknown))
            continue;
        const uint64_t now = c->deed->limits != NULL ? c->deed->limits->v[i] : 0;
        if (now != 0 && now <= out->most.v[i])
            continue;
        if ((c->can_fill >> i & 1) != 0)
            out->fill |= UINT32_C(1) << i;
        else
            deny_limit(out, of->most[i], i, now);
    }
}

static void
deny_rate(struct policy_decision *out, const struct policy_rule *r, uint32_t calls,
          uint64_t wait_ns)
{
    char period[QUANTITY_TEXT], wait[QUANTITY_TEXT];
    const struct policy_bucket *b = &r->rate;
    const bool never = (uint64_t)calls * b->step_ns > b->room_ns;
    out->verdict = POLICY_DENY;
    out->retry_ms = never ? 0 : wait_ns / NS_PER_MS + 1;
    // Whole seconds are easier to read; RetryInfo has the milliseconds.
    const uint64_t shown_ms =
        out->retry_ms > 10000 ? (out->retry_ms + 998) / 1000 * 1000 : out->retry_ms;
    (void)snprintf(out->rule, sizeof out->rule, "%s", r->name);
    (void)snprintf(out->allowed, sizeof out->allowed, "%llu %s in %s, %llu at once",
                   (unsigned long long)b->calls, plural(b->calls, "call", "calls"),
                   quantity_write(b->period_ms, quantity_time_ms, period),
                   (unsigned long long)(b->room_ns / b->step_ns));
    if (never)
        (void)snprintf(out->reason, sizeof out->reason, "%u commands at once are too many", calls);
    else
        (void)snprintf(out->reason, sizeof out->reason,
                       "too many calls; the next may come in %s%s%.180s",
                       quantity_write(shown_ms, quantity_time_ms, wait),
                       r->m->reason[0] != '\0' ? ": " : "", r->m->reason);
}

static void
check_rates(const struct policy_call *c, const struct collected *of, struct policy_decision *out)
{
    for (uint32_t i = 0; i < of->rates_n && out->verdict != POLICY_DENY; i++) {
        const struct policy_rule *r = of->rate[i];
        uint64_t key = 0;
        const uint64_t wait = policy_wait_ns(&r->rate, r->name, c, of->rate_calls[i], &key);
        if (wait > 0) {
            deny_rate(out, r, of->rate_calls[i], wait);
            return;
        }
        for (uint32_t k = 0; k < of->rate_calls[i]; k++)
            if (!policy_add_hit(out, key, &r->rate))
                deny_size(out);
    }
}

// ---- all

void
policy_decide(const struct policy *p, const struct policy_call *c, policy_step_fn *step,
              void *cookie, struct policy_decision *out)
{
    struct policy_work w;
    struct collected of = {.rates_n = 0};
    memset(out, 0, offsetof(struct policy_decision, ask));
    out->most = (struct limits){0};
    out->fill = out->hits_n = 0;
    const bool asked = p != NULL || c->request != NULL;
    const uint32_t method = asked ? policy_method(c->deed->method) : POLICY_METHODS_MAX;
    if (method == POLICY_METHODS_MAX)
        return;
    policy_work_begin(&w, c, out);
    ask_layers(&(struct asking){p, step, cookie, &of}, method, &w);
    ask_layers(&(struct asking){c->request, step, cookie, &of}, method, &w);
    if (w.spent)
        deny_size(out);
    policy_work_end(&w);
    check_limits(c, &of, out);
    check_rates(c, &of, out);
}

int
policy_refuse(const struct policy_decision *d, const char *method, struct err *e)
{
    const bool rate = d->retry_ms != 0;
    int r = err_set(e, rate ? ERR_RESOURCE_EXHAUSTED : ERR_PERMISSION_DENIED,
                    "the policy refuses %s%s%s%s%s", method, d->reason[0] != '\0' ? ": " : "",
                    d->reason, d->rule[0] != '\0' ? "; rule " : "", d->rule);
    char hint[sizeof e->hint];
    const char *allowed = d->allowed[0] != '\0' ? d->allowed : "no call like it";
    if (d->of_request)
        (void)snprintf(hint, sizeof hint, "change the policy that was sent with the call");
    else if (d->rule[0] == '\0')
        (void)snprintf(hint, sizeof hint, "make several smaller calls");
    else
        (void)snprintf(hint, sizeof hint, "for more, ask this host's administrator to change %s",
                       d->rule);
    err_detail(e, rate ? "POLICY_RATE" : "POLICY_DENIED", d->field, hint);
    err_rule(e, d->rule, allowed);
    e->retry_ms = d->retry_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)d->retry_ms;
    return r;
}
