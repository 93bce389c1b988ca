// SPDX-License-Identifier: Apache-2.0
// See policy_private.h: whether one rule matches a call. One function for each part of a match, in a table, the cheapest first.
//
// What is compared is bounded: a call whose texts are so long that WORK_MAX bytes do not suffice is refused as a whole.
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "policy_private.h"
#include "proto/glob.h"
#include "server/policy/rule.h"

enum { WORK_MAX = 32 * 1024 * 1024, OF_EACH = 16 };

// ---- texts

// A pattern that is searched for in the text costs its length; others end at the first byte that differs.
static bool
matches(const char *pattern, const char *text, size_t n, struct policy_work *w)
{
    const size_t start = strcspn(pattern, "*");
    const bool searched =
        pattern[start] != '\0' && pattern[start + 1] != '\0' && strncmp(pattern, text, start) == 0;
    const uint64_t cost = OF_EACH + (searched ? n : 0);
    w->spent = w->spent || cost > w->left;
    if (w->spent)
        return false;
    w->left -= cost;
    return glob_match(pattern, text, n);
}

bool
policy_words_match(size_t n, const char *const *patterns, const char *text, struct policy_work *w)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (matches(patterns[i], text, length, w))
            return true;
    return false;
}

// The exact words of a set.
static bool
has_word(size_t n, const char *const *words, const char *text)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], text) == 0)
            return true;
    return false;
}

static bool
tenant(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    return m->n_tenants == 0 || policy_words_match(m->n_tenants, m->tenants, w->call->tenant, w);
}

static bool
credential(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    return m->n_credentials == 0 || has_word(m->n_credentials, m->credentials, w->call->credential);
}

static bool
mode(const struct policy_rule *r, struct policy_work *w)
{
    const char *m = r->match->mode;
    return m[0] == '\0' || strcmp(m, w->call->simulated ? "simulate" : "execute") == 0;
}

static bool template(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    const char *name = w->call->deed->template;
    return m->n_templates == 0 ||
           (name != NULL && policy_words_match(m->n_templates, m->templates, name, w));
}

static bool
language(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    const char *name = w->call->language;
    return m->n_languages == 0 ||
           (name[0] != '\0' && policy_words_match(m->n_languages, m->languages, name, w));
}

// ---- commands

static bool
command_fits(const struct policy_command *p, struct policy_work *w)
{
    const struct deed_command *c = w->command;
    if (c->args_n < p->n || (c->args_n > p->n && !p->more) ||
        (p->program != 0 && p->program != w->program))
        return false;
    for (size_t i = 0; i < p->n; i++)
        if (!matches(p->word[i], c->args[i], strlen(c->args[i]), w))
            return false;
    return true;
}

static bool
command(const struct policy_rule *r, struct policy_work *w)
{
    if (r->commands_n == 0)
        return true;
    for (size_t i = 0; i < r->commands_n && w->command != NULL; i++)
        if (command_fits(&r->commands[i], w))
            return true;
    return false;
}

static bool
make_line(struct policy_work *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->command->args_n; i++)
        n += strlen(w->command->args[i]) + 1;
    w->line = malloc(n + 1);
    if (w->line == NULL)
        return false;
    char *to = w->line;
    for (size_t i = 0; i < w->command->args_n; i++) {
        if (i > 0)
            *to++ = ' ';
        to = stpcpy(to, w->command->args[i]);
    }
    *to = '\0';
    w->line_n = (size_t)(to - w->line);
    return true;
}

static bool
line(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    if (m->n_lines == 0 || w->command == NULL)
        return m->n_lines == 0;
    if (w->line == NULL && !make_line(w)) {
        w->spent = true;
        return false;
    }
    for (size_t i = 0; i < m->n_lines; i++)
        if (matches(m->lines[i], w->line, w->line_n, w))
            return true;
    return false;
}

// ---- paths and labels

// Resolves "." and ".." and removes repeated slashes; the result is not longer.
static char *
clean(const char *path)
{
    char *out = malloc(strlen(path) + 2);
    size_t n = 0;
    for (const char *p = path; out != NULL && *p != '\0';) {
        p += strspn(p, "/");
        const size_t part = strcspn(p, "/");
        if (part == 2 && memcmp(p, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/') {
            }
        } else if (part > 0 && !(part == 1 && *p == '.')) {
            if (n > 0 || path[0] == '/')
                out[n++] = '/';
            memcpy(out + n, p, part);
            n += part;
        }
        p += part;
    }
    if (out != NULL && n == 0 && path[0] == '/')
        out[n++] = '/';
    if (out != NULL)
        out[n] = '\0';
    return out;
}

static bool
clean_paths(struct policy_work *w)
{
    w->paths = calloc(w->call->paths_n, sizeof(char *));
    for (size_t i = 0; i < w->call->paths_n && w->paths != NULL; i++) {
        w->paths[i] = clean(w->call->paths[i]);
        if (w->paths[i] == NULL)
            return false;
    }
    return w->paths != NULL;
}

// Any of them for a rule that narrows, all of them for a rule that allows.
static bool
path(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    const bool all = r->verdict == POLICY_ALLOW;
    if (m->n_paths == 0 || w->call->paths_n == 0)
        return m->n_paths == 0;
    if (w->paths == NULL && !clean_paths(w)) {
        w->spent = true;
        return false;
    }
    for (size_t i = 0; i < w->call->paths_n; i++)
        if (policy_words_match(m->n_paths, m->paths, w->paths[i], w) != all)
            return !all;
    return all;
}

static bool
label(const struct policy_rule *r, struct policy_work *w)
{
    const Stockade__V1__PolicyMatch *m = r->match;
    for (size_t i = 0; i < w->call->labels_n && m->n_labels > 0; i++)
        if (policy_words_match(m->n_labels, m->labels, w->call->labels[i], w))
            return true;
    return m->n_labels == 0;
}

// ---- network and limits

static bool
ports_meet(const struct relay_rule *a, const struct relay_rule *b)
{
    if (a->ports_n == 0 || b->ports_n == 0)
        return true;
    for (uint32_t i = 0; i < a->ports_n; i++)
        for (uint32_t k = 0; k < b->ports_n; k++) {
            const struct net_ports *p = &a->ports[i], *q = &b->ports[k];
            if (p->first <= q->last && q->first <= p->last &&
                (p->protocol == 0 || q->protocol == 0 || p->protocol == q->protocol))
                return true;
        }
    return false;
}

// An open network leads to all names and to all addresses but the special ones, which need a rule of their own.
static bool
meets(const struct network *call, const struct relay_rule *of)
{
    if (call->mode == NET_OPEN && !net_rule_is_special(of))
        return true;
    for (uint32_t i = 0; i < call->rules_n; i++) {
        const struct relay_rule *to = &call->rules[i];
        if (ports_meet(to, of) && (net_rule_within(to, of) || net_rule_within(of, to)))
            return true;
    }
    return false;
}

static bool
destination(const struct policy_rule *r, struct policy_work *w)
{
    const struct deed *d = w->call->deed;
    const bool allows = r->verdict == POLICY_ALLOW;
    if (r->destinations == NULL)
        return true;
    if (d->unknown)
        return !allows;
    if (!d->has_network)
        return false;
    if (d->network == NULL || !network_leads_out(d->network))
        return allows;
    if (allows)
        return network_is_within(d->network, r->destinations);
    if (r->destinations->mode == NET_OPEN)
        return true;
    for (uint32_t i = 0; i < r->destinations->rules_n; i++)
        if (meets(d->network, &r->destinations->rules[i]))
            return true;
    return false;
}

// Whether a limit in force is higher than here, or absent.
static bool
is_above(const struct limits *in_force, const struct limits *here)
{
    for (int i = 0; i < LIMITS_N; i++)
        if (here->v[i] != 0 && (in_force->v[i] == 0 || in_force->v[i] > here->v[i]))
            return true;
    return false;
}

static bool
limit(const struct policy_rule *r, struct policy_work *w)
{
    const struct deed *d = w->call->deed;
    if (!r->has_above && !r->has_within)
        return true;
    if (d->unknown)
        return r->verdict != POLICY_ALLOW;
    if (d->limits == NULL)
        return false;
    return (!r->has_above || is_above(d->limits, &r->above)) &&
           (!r->has_within || !is_above(d->limits, &r->within));
}

// ---- time and history

static bool
time_of_day(const struct policy_rule *r, struct policy_work *w)
{
    enum { DAY_MINUTES = 24 * 60, THURSDAY = 3 };
    if (r->days == 0)
        return true;
    const int64_t minutes = w->call->now_ms / 60000;
    const unsigned minute = (unsigned)(minutes % DAY_MINUTES);
    unsigned day = (unsigned)((minutes / DAY_MINUTES + THURSDAY) % 7); // 1970 began with one
    if (r->from > r->until && minute < r->until)
        day = (day + 6) % 7; // it began the day before
    const bool within = r->from < r->until ? minute >= r->from && minute < r->until
                                           : minute >= r->from || minute < r->until;
    return (r->days >> day & 1) != 0 && (r->from == r->until || within);
}

// The last part: all others match.
static bool
history(const struct policy_rule *r, struct policy_work *w)
{
    uint64_t key = 0;
    if (r->history.step_ns == 0)
        return true;
    const bool over = policy_wait_ns(&r->history, r->name, w->call, 1, &key) > 0;
    if (!over && !policy_add_hit(w->out, key, &r->history))
        w->spent = true;
    return over;
}

static bool (*const parts[])(const struct policy_rule *r, struct policy_work *w) = {
    command,     tenant, credential, mode, template,    language, limit,
    time_of_day, label,  line,       path, destination, history,
};

bool
policy_rule_matches(const struct policy_rule *r, struct policy_work *w)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!parts[i](r, w) || w->spent)
            return false;
    return true;
}

// ---- the work

void
policy_work_begin(struct policy_work *w, const struct policy_call *c, struct policy_decision *out)
{
    *w = (struct policy_work){.call = c, .left = WORK_MAX, .out = out};
}

void
policy_work_command(struct policy_work *w, const struct deed_command *c)
{
    free(w->line);
    w->line = NULL;
    w->command = c;
    w->program = c != NULL && c->args_n > 0 ? policy_program(c->args[0]) : 0;
}

void
policy_work_end(struct policy_work *w)
{
    free(w->line);
    for (size_t i = 0; i < w->call->paths_n && w->paths != NULL; i++)
        free(w->paths[i]);
    free(w->paths);
}
