// SPDX-License-Identifier: Apache-2.0
// See policy_answer.h.
#include "policy_answer.h"

#include <string.h>

#include "proto/quantity.h"
#include "proto/utf8.h"
#include "proto/yaml_write.h"

#define VERDICT(name) STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_##name

enum { TEXT_MAX = 4096 };

static int
no_memory(struct err *e)
{
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "explain the call: out of memory");
}

Stockade__V1__PolicyVerdict
policy_verdict_message(enum policy_verdict v)
{
    static const Stockade__V1__PolicyVerdict verdicts[] = {
        [POLICY_ALLOW] = VERDICT(ALLOW),
        [POLICY_LIMIT] = VERDICT(LIMIT),
        [POLICY_ASK] = VERDICT(ASK),
        [POLICY_DENY] = VERDICT(DENY),
    };
    return verdicts[v];
}

// ---- a decision

void
policy_answer_step(void *cookie, const struct policy_step *step)
{
    struct policy_answering *x = cookie;
    Stockade__V1__PolicyStep *to = arena_alloc(x->a, sizeof *to);
    if (x->out->steps == NULL)
        x->out->steps = arena_alloc(x->a, POLICY_STEPS_MAX * sizeof(void *));
    x->failed = x->failed || to == NULL || x->out->steps == NULL;
    if (x->failed || x->out->n_steps == POLICY_STEPS_MAX)
        return;
    stockade__v1__policy_step__init(to);
    to->kind = step->kind;
    to->layer = step->layer;
    to->rule = step->rule;
    to->verdict = policy_verdict_message(step->verdict);
    to->reason = step->reason;
    to->file = step->file;
    to->line = step->line;
    x->out->steps[x->out->n_steps++] = to;
}

static int
put_questions(struct policy_answering *x, const struct policy_decision *d, struct err *e)
{
    Stockade__V1__ExplainResponse *out = x->out;
    out->questions = arena_alloc(x->a, (POLICY_ASKS_MAX + 1) * sizeof(void *));
    for (uint32_t i = 0; out->questions != NULL && i < d->asks_n; i++) {
        const struct policy_asked *from = &d->ask[i];
        Stockade__V1__PolicyQuestion *to = arena_alloc(x->a, sizeof *to);
        if (to == NULL)
            return no_memory(e);
        stockade__v1__policy_question__init(to);
        to->rule = from->rule;
        to->reason = from->reason;
        to->approvers = from->ask->approvers;
        to->n_approvers = from->ask->n_approvers;
        to->need = from->ask->need != 0 ? from->ask->need : 1;
        to->timeout_ms = from->timeout_ms;
        out->questions[out->n_questions++] = to;
    }
    return out->questions != NULL ? 0 : no_memory(e);
}

static int
put_limits(struct policy_answering *x, const struct policy_decision *d, struct err *e)
{
    Stockade__V1__PolicyLimits *l = arena_alloc(x->a, sizeof *l);
    if (l == NULL)
        return no_memory(e);
    stockade__v1__policy_limits__init(l);
    const struct {
        enum limit limit;
        const char **text;
    } rows[] = {
        {LIMIT_MEMORY_BYTES, &l->memory},
        {LIMIT_CPU_MILLIS, &l->cpus},
        {LIMIT_CPU_TIME_MS, &l->cpu_time},
        {LIMIT_WALL_MS, &l->timeout},
        {LIMIT_PIDS, &l->pids},
        {LIMIT_DISK_BYTES, &l->disk},
        {LIMIT_OUTPUT_BYTES, &l->output},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[QUANTITY_TEXT];
        const uint64_t v = d->most.v[rows[i].limit];
        if (v == 0)
            continue;
        (void)quantity_write(v, limits_units((int)rows[i].limit), text);
        const char *kept = arena_copy(x->a, text, strlen(text));
        if (kept == NULL)
            return no_memory(e);
        *rows[i].text = kept;
        x->out->limits = l;
    }
    return 0;
}

int
policy_answer_decision(struct policy_answering *x, const struct policy_decision *d, struct err *e)
{
    Stockade__V1__ExplainResponse *out = x->out;
    if (x->failed)
        return no_memory(e);
    out->verdict = policy_verdict_message(d->verdict);
    out->rule = d->rule;
    out->reason = d->reason;
    if (d->verdict == POLICY_DENY) {
        out->allowed = d->allowed;
        out->field = d->field;
        out->retry_ms = d->retry_ms;
        return 0;
    }
    int r = d->verdict == POLICY_ASK ? put_questions(x, d, e) : 0;
    return r == 0 ? put_limits(x, d, e) : r;
}

// ---- differences

static const char *
as_yaml(struct arena *a, const ProtobufCMessage *m)
{
    char text[TEXT_MAX + 1];
    if (m == NULL)
        return "";
    const size_t n = yaml_write(m, YAML_LINE, text, sizeof text);
    return arena_copy(a, text, n <= TEXT_MAX ? n : utf8_cut(text, TEXT_MAX));
}

void
policy_answer_difference(void *cookie, const struct policy_difference *d)
{
    struct policy_differing *x = cookie;
    Stockade__V1__PolicyServiceDiffResponse *to = x->out;
    if (to->n_differences == POLICY_DIFFERENCES_MAX) {
        to->cut = true;
        return;
    }
    if (to->differences == NULL)
        to->differences = arena_alloc(x->a, POLICY_DIFFERENCES_MAX * sizeof(void *));
    Stockade__V1__PolicyDifference *one = arena_alloc(x->a, sizeof *one);
    const char *before = as_yaml(x->a, d->before), *after = as_yaml(x->a, d->after);
    const char *layer = arena_copy(x->a, d->layer, strlen(d->layer));
    const char *rule = arena_copy(x->a, d->rule, strlen(d->rule));
    const char *file = arena_copy(x->a, d->file, strlen(d->file));
    x->failed = x->failed || to->differences == NULL || one == NULL || before == NULL ||
                after == NULL || layer == NULL || rule == NULL || file == NULL;
    if (x->failed)
        return;
    stockade__v1__policy_difference__init(one);
    one->change = d->change;
    one->layer = layer;
    one->rule = rule;
    one->before = before;
    one->after = after;
    one->file = file;
    one->line = d->line;
    to->differences[to->n_differences++] = one;
}
