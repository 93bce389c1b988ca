// SPDX-License-Identifier: Apache-2.0
// See policy_private.h: what a caller that was refused may do instead, from what the rule is about.
#include <stdio.h>
#include <string.h>

#include "policy_private.h"
#include "proto/phrase.h"
#include "proto/quantity.h"

static void
add_words(struct phrase *l, const char *before, size_t n, const char *const *words)
{
    enum { SHOWN = 4 };
    phrase_add(l, "%s%s ", l->used > 0 ? "; " : "", before);
    for (size_t i = 0; i < n && i < SHOWN; i++)
        phrase_add(l, "%s%s", i > 0 ? ", " : "", words[i]);
    if (n > SHOWN)
        phrase_add(l, " and %zu more", n - SHOWN);
}

static void
add_limits(struct phrase *l, const struct limits *most)
{
    char text[QUANTITY_TEXT];
    for (int i = 0; i < LIMITS_N; i++)
        if (most->v[i] != 0)
            phrase_add(l, "%s%s up to %s", l->used > 0 ? "; " : "", limit_table[i].key,
                       quantity_write(most->v[i], limits_units(i), text));
}

// ---- a rule that denies: the part that a caller can change most easily

static void
of_rule(const struct policy_rule *r, struct phrase *l, struct policy_decision *out)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    const char *field = "";
    char period[QUANTITY_TEXT];
    if (m->n_commands > 0) {
        add_words(l, "commands other than", m->n_commands, m->commands);
        field = "command.args";
    } else if (m->n_lines > 0) {
        add_words(l, "commands without", m->n_lines, m->lines);
        field = "command.args";
    } else if (m->n_destinations > 0) {
        add_words(l, "networks without", m->n_destinations, m->destinations);
        field = "network.outbound";
    } else if (m->n_paths > 0) {
        add_words(l, "paths other than", m->n_paths, m->paths);
        field = "path";
    } else if (r->has_above) {
        add_limits(l, &r->above);
        field = "limits";
    } else if (m->n_languages > 0) {
        add_words(l, "languages other than", m->n_languages, m->languages);
        field = "language";
    } else if (m->n_templates > 0) {
        add_words(l, "templates other than", m->n_templates, m->templates);
        field = "template";
    } else if (r->days != 0) {
        phrase_add(l, "the same at other times (UTC)");
    } else if (r->history.step_ns != 0) {
        phrase_add(l, "at most %llu calls in %s", (unsigned long long)r->history.calls,
                   quantity_write(r->history.period_ms, quantity_time_ms, period));
    } else if (m->n_methods > 0) {
        add_words(l, "methods other than", m->n_methods, m->methods);
    } else if (m->mode[0] != '\0') {
        phrase_add(l,
                   strcmp(m->mode, "execute") == 0 ? "the same, simulated" : "the same, executed");
        field = "mode";
    } else {
        phrase_add(l, "no call of this caller");
    }
    // Beside what was named: the same call, later or less often.
    if (r->days != 0 && strstr(l->bytes, "at other times") == NULL)
        phrase_add(l, "; or the same at other times (UTC)");
    if (strcmp(m->mode, "execute") == 0 && strcmp(field, "mode") != 0)
        phrase_add(l, "; or the same, simulated");
    if (r->history.step_ns != 0 && strstr(l->bytes, "calls in") == NULL)
        phrase_add(l, "; or at most %llu calls in %s", (unsigned long long)r->history.calls,
                   quantity_write(r->history.period_ms, quantity_time_ms, period));
    (void)snprintf(out->field, sizeof out->field, "%s", field);
}

// ---- a layer that denies otherwise: what its rules allow

static void
of_layer(const struct policy_layer *layer, struct phrase *l)
{
    enum { SHOWN = 3 };
    unsigned shown = 0;
    for (uint32_t i = 0; i < layer->rules_n && shown < SHOWN; i++) {
        const struct policy_rule *r = &layer->rules[i];
        const Stockade__V1__PolicyMatch *m = r->match;
        if (r->verdict == POLICY_DENY)
            continue;
        shown++;
        if (m->n_commands > 0)
            add_words(l, "commands", m->n_commands, m->commands);
        else if (m->n_destinations > 0)
            add_words(l, "networks within", m->n_destinations, m->destinations);
        else if (m->n_paths > 0)
            add_words(l, "paths", m->n_paths, m->paths);
        else if (m->n_methods > 0)
            add_words(l, "methods", m->n_methods, m->methods);
        else
            phrase_add(l, "%swhat rule %s allows", l->used > 0 ? "; " : "", r->name);
    }
    if (shown == 0)
        phrase_add(l, "nothing that this layer applies to");
}

void
policy_allowed(const struct policy_layer *l, const struct policy_rule *r,
               struct policy_decision *out)
{
    struct phrase list = {out->allowed, sizeof out->allowed, 0};
    out->field[0] = '\0';
    if (r != NULL)
        of_rule(r, &list, out);
    else
        of_layer(l, &list);
}
