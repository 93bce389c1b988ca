// SPDX-License-Identifier: Apache-2.0
// See caveats.h: one function for each kind of caveat, in a table.
#include "caveats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/rules.h"
#include "proto/validate.h"
#include "server/policy/network.h"
#include "server/rpc/principal.h"
#include "server/sandbox/limits.h"

typedef const Stockade__V1__Caveat caveat;
#define CASE(name) STOCKADE__V1__CAVEAT__CAVEAT_##name

bool
caveats_match(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

static bool
has_word(const Stockade__V1__CaveatWords *w, const char *text)
{
    for (size_t i = 0; i < w->n_words; i++)
        if (strcmp(w->words[i], text) == 0)
            return true;
    return false;
}

// The words of a caveat, for a hint.
static const char *
listed(const Stockade__V1__CaveatWords *w, char out[96])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < w->n_words && n < 90; i++)
        n += (size_t)snprintf(out + n, 96 - n, "%s%s", i > 0 ? ", " : "", w->words[i]);
    return out[0] != '\0' ? out : "none";
}

static int
refuse(struct err *e, const char *kind, const char *what, const char *allowed)
{
    char hint[192], rule[64], text[128];
    int r = err_set(e, ERR_PERMISSION_DENIED, "the token does not allow %s", what);
    (void)snprintf(hint, sizeof hint,
                   "it allows: %.100s; for more, ask its maker for another token", allowed);
    (void)snprintf(rule, sizeof rule, "token/%s", kind);
    (void)snprintf(text, sizeof text, "%s: %.100s", kind, allowed);
    err_detail(e, "CAVEAT", kind, hint);
    err_rule(e, rule, text);
    return r;
}

static int
methods(caveat *c, const struct deed *d, struct err *e)
{
    char list[96];
    for (size_t i = 0; i < c->methods->n_words; i++)
        if (caveats_match(c->methods->words[i], d->method))
            return 0;
    return refuse(e, "methods", d->method, listed(c->methods, list));
}

static int
sandboxes(caveat *c, const struct deed *d, struct err *e)
{
    char list[96];
    if (d->harmless || d->follows ||
        (!d->makes && d->sandbox_id != NULL &&
         (has_word(c->sandboxes, d->sandbox_id) ||
          (d->sandbox_name[0] != '\0' && has_word(c->sandboxes, d->sandbox_name)))))
        return 0;
    return refuse(e, "sandboxes",
                  d->makes ? "other sandboxes to be made"
                           : "calls that do not concern its sandboxes",
                  listed(c->sandboxes, list));
}

static int
templates(caveat *c, const struct deed *d, struct err *e)
{
    char list[96];
    if (d->harmless || d->follows || (d->template != NULL && has_word(c->templates, d->template)))
        return 0;
    return refuse(e, "templates", "calls that do not concern sandboxes of its templates",
                  listed(c->templates, list));
}

static bool
has_name(const char *const *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i], name) == 0)
            return true;
    return false;
}

static bool
tool_fits(const Stockade__V1__CaveatTool *t, const struct deed_command *c)
{
    if (c->args_n == 0 || strcmp(t->program, c->args[0]) != 0)
        return false;
    const size_t given = c->args_n - 1;
    if (given < t->n_args || (given > t->n_args && !t->more_args))
        return false;
    for (size_t i = 0; i < t->n_args; i++)
        if (!caveats_match(t->args[i], c->args[i + 1]))
            return false;
    for (size_t i = 0; i < c->env_n; i++)
        if (!has_name((const char *const *)t->env, t->n_env, c->env[i]))
            return false;
    return true;
}

static int
tools(caveat *c, const struct deed *d, struct err *e)
{
    char what[96], list[96] = "";
    size_t n = 0;
    if (!d->runs)
        return 0;
    for (size_t i = 0; i < c->tools->n_tools && n < 90; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "",
                              c->tools->tools[i]->program);
    if (d->commands_n == 0)
        return refuse(e, "tools", "this way to run code", list);
    for (size_t i = 0; i < d->commands_n; i++) {
        bool fits = false;
        for (size_t k = 0; k < c->tools->n_tools && !fits; k++)
            fits = tool_fits(c->tools->tools[k], &d->commands[i]);
        (void)snprintf(what, sizeof what, "%.60s with these arguments",
                       d->commands[i].args_n > 0 ? d->commands[i].args[0] : "it");
        if (!fits)
            return refuse(e, "tools", what, list);
    }
    return 0;
}

// The destinations of a caveat as a policy.
static struct network *
policy_of(const Stockade__V1__CaveatWords *w)
{
    struct network *n = network_new();
    bool whole = n != NULL;
    if (whole)
        n->mode = w->n_words > 0 ? NET_ALLOWLIST : NET_NONE;
    for (size_t i = 0; i < w->n_words && whole; i++) {
        struct err none;
        whole = network_add_target(n, w->words[i], &none) == 0;
    }
    if (whole)
        return n;
    network_unref(n);
    return NULL;
}

static int
network(caveat *c, const struct deed *d, struct err *e)
{
    char list[96];
    if (d->unknown)
        return refuse(e, "network", "calls whose network is not known", listed(c->network, list));
    if (!d->has_network)
        return 0;
    if (d->network == NULL || !network_leads_out(d->network))
        return 0;
    struct network *most = policy_of(c->network);
    const bool within = most != NULL && network_is_within(d->network, most);
    network_unref(most);
    return within ? 0
                  : refuse(e, "network", "a sandbox whose network leads further",
                           listed(c->network, list));
}

static int
limits(caveat *c, const struct deed *d, struct err *e)
{
    const Stockade__V1__CaveatLimits *l = c->limits;
    const struct {
        enum limit limit;
        uint64_t most;
    } rows[] = {
        {LIMIT_MEMORY_BYTES, l->memory_bytes},
        {LIMIT_CPU_MILLIS, l->cpu_millis},
        {LIMIT_CPU_TIME_MS, l->cpu_time_ms},
        {LIMIT_WALL_MS, l->wall_ms},
        {LIMIT_PIDS, l->pids},
        {LIMIT_DISK_BYTES, l->disk_bytes},
        {LIMIT_OUTPUT_BYTES, l->output_bytes},
    };
    char what[80], most[32];
    if (d->unknown)
        return refuse(e, "limits", "calls whose limits are not known",
                      "sandboxes and jobs within its limits");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && d->limits != NULL; i++) {
        const uint64_t v = d->limits->v[rows[i].limit];
        if (rows[i].most == 0 || (v != 0 && v <= rows[i].most))
            continue;
        (void)snprintf(what, sizeof what, "so high a limit %s", limit_table[rows[i].limit].name);
        (void)snprintf(most, sizeof most, "at most %llu", (unsigned long long)rows[i].most);
        return refuse(e, "limits", what, most);
    }
    return 0;
}

static int (*const rows[])(caveat *c, const struct deed *d, struct err *e) = {
    [CASE(METHODS)] = methods, [CASE(SANDBOXES)] = sandboxes, [CASE(TEMPLATES)] = templates,
    [CASE(TOOLS)] = tools,     [CASE(NETWORK)] = network,     [CASE(LIMITS)] = limits,
};

static const bool is_named[sizeof rows / sizeof rows[0]] = {
    [CASE(METHODS)] = true, [CASE(SANDBOXES)] = true, [CASE(TEMPLATES)] = true};

static int
allow(const struct token *t, const struct deed *d, bool named, struct err *e)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->block[i]->n_caveats; k++) {
            caveat *c = t->block[i]->caveats[k];
            const size_t kind = (size_t)c->caveat_case;
            if (kind >= sizeof rows / sizeof rows[0] || rows[kind] == NULL ||
                (named && !is_named[kind]))
                continue;
            int r = rows[kind](c, d, e);
            if (r < 0)
                return r;
        }
    return 0;
}

int
caveats_allow(const struct token *t, const struct deed *d, struct err *e)
{
    return allow(t, d, false, e);
}

int
caveats_allow_named(const struct token *t, const struct deed *d, struct err *e)
{
    return allow(t, d, true, e);
}

static int
invalid(struct err *e, const char *reason, const char *why)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the token is not valid: %s", why);
    err_detail(e, reason, "authorization", "'stockade token inspect' shows what it says");
    return r;
}

int
caveats_valid(const struct token *t, int64_t now_ms, const char *audience, struct err *e)
{
    const uint64_t now = (uint64_t)now_ms;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->block[i]->n_caveats; k++) {
            caveat *c = t->block[i]->caveats[k];
            if (c->caveat_case == CASE(EXPIRES_MS) && now >= c->expires_ms)
                return invalid(e, "TOKEN_EXPIRED", "it has expired");
            if (c->caveat_case == CASE(NOT_BEFORE_MS) && now < c->not_before_ms)
                return invalid(e, "TOKEN_EARLY", "it is not valid yet");
            if (c->caveat_case == CASE(AUDIENCE) && !has_word(c->audience, audience))
                return invalid(e, "TOKEN_AUDIENCE", "it is for another broker");
        }
    return 0;
}

static bool
is_method(const char *pattern)
{
    static const char begin[] = "/stockade.v1.";
    const struct method_rules *m = NULL;
    for (size_t i = 0; (m = validate_method_at(i)) != NULL; i++)
        if (strncmp(m->path, begin, sizeof begin - 1) == 0 &&
            caveats_match(pattern, m->path + sizeof begin - 1))
            return true;
    return false;
}

static int
check_methods(caveat *c, struct err *e)
{
    for (size_t i = 0; i < c->methods->n_words; i++)
        if (!is_method(c->methods->words[i]))
            return err_field(e, "methods", "no method is %.64s; write it as ProcessService/Run",
                             c->methods->words[i]);
    return 0;
}

static int
check_network(caveat *c, struct err *e)
{
    struct network *n = network_new();
    int r = n != NULL ? 0 : err_sys(e, ENOMEM, "read the destinations");
    for (size_t i = 0; i < c->network->n_words && r == 0; i++) {
        struct err why;
        if (network_add_target(n, c->network->words[i], &why) != 0)
            r = err_field(e, "network.outbound", "%s", why.text);
    }
    network_unref(n);
    return r;
}

int
caveats_check(const Stockade__V1__TokenBlock *block, struct err *e)
{
    uint64_t expires = UINT64_MAX, from = 0;
    int r = 0;
    for (size_t k = 0; k < block->n_caveats && r == 0; k++) {
        caveat *c = block->caveats[k];
        if (c->caveat_case == CASE(METHODS))
            r = check_methods(c, e);
        else if (c->caveat_case == CASE(NETWORK))
            r = check_network(c, e);
        else if (c->caveat_case == CASE(EXPIRES_MS) && c->expires_ms < expires)
            expires = c->expires_ms;
        else if (c->caveat_case == CASE(NOT_BEFORE_MS) && c->not_before_ms > from)
            from = c->not_before_ms;
    }
    if (r == 0 && from >= expires)
        r = err_field(e, "not_before_ms", "it would expire before it is valid");
    return r;
}

static uint32_t
bits_of(const char *const *words, size_t n)
{
    uint32_t set = 0, one = 0;
    for (size_t i = 0; i < n; i++)
        if (scopes_read(words[i], &one))
            set |= one;
    return set;
}

uint32_t
caveats_scopes(const struct token *t)
{
    uint32_t set = bits_of((const char *const *)t->block[0]->scopes, t->block[0]->n_scopes);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->block[i]->n_caveats; k++) {
            caveat *c = t->block[i]->caveats[k];
            if (c->caveat_case == CASE(SCOPES))
                set &= bits_of((const char *const *)c->scopes->words, c->scopes->n_words);
        }
    return scopes_without_credentials(set);
}
