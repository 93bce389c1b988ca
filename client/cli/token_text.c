// SPDX-License-Identifier: Apache-2.0
// See token.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "token.h"

enum { CAVEATS_MAX = 32 };
#define CASE(name) STOCKADE__V1__CAVEAT__CAVEAT_##name

size_t
token_words(const char *list, struct arena *a, const char *out[TOKEN_WORDS])
{
    size_t n = 0;
    if (list == NULL)
        return 0;
    char *copy = arena_copy(a, list, strlen(list) + 1);
    char *rest = NULL;
    if (copy == NULL)
        return 0;
    for (char *one = strtok_r(copy, ", ", &rest); one != NULL && n < TOKEN_WORDS;
         one = strtok_r(NULL, ", ", &rest))
        out[n++] = one;
    return n;
}

// A new caveat of the block; NULL: the arena is full, or there are too many.
static Stockade__V1__Caveat *
add(struct arena *a, Stockade__V1__TokenBlock *b)
{
    if (b->caveats == NULL)
        b->caveats = arena_alloc(a, CAVEATS_MAX * sizeof(void *));
    Stockade__V1__Caveat *c = wire_make(a, &stockade__v1__caveat__descriptor);
    if (b->caveats == NULL || c == NULL || b->n_caveats == CAVEATS_MAX)
        return NULL;
    b->caveats[b->n_caveats++] = c;
    return c;
}

static Stockade__V1__CaveatWords *
words(struct arena *a, const char *const *list, size_t n)
{
    Stockade__V1__CaveatWords *w = wire_make(a, &stockade__v1__caveat_words__descriptor);
    const char **all = arena_alloc(a, (n + 1) * sizeof(void *));
    if (w == NULL || all == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        all[i] = list[i];
    w->words = all;
    w->n_words = n;
    return w;
}

static bool
add_words(struct arena *a, Stockade__V1__TokenBlock *b, Stockade__V1__Caveat__CaveatCase kind,
          const char *const *list, size_t n)
{
    Stockade__V1__CaveatWords *w = words(a, list, n);
    Stockade__V1__Caveat *c = w != NULL ? add(a, b) : NULL;
    if (c == NULL)
        return false;
    c->caveat_case = kind;
    c->methods = w; // all of these are one union
    return true;
}

static bool
add_list(struct arena *a, Stockade__V1__TokenBlock *b, Stockade__V1__Caveat__CaveatCase kind,
         const char *list)
{
    const char *all[TOKEN_WORDS];
    const size_t n = token_words(list, a, all);
    return list == NULL || add_words(a, b, kind, all, n);
}

static bool
add_number(struct arena *a, Stockade__V1__TokenBlock *b, Stockade__V1__Caveat__CaveatCase kind,
           uint64_t number)
{
    Stockade__V1__Caveat *c = add(a, b);
    if (c == NULL)
        return false;
    c->caveat_case = kind;
    c->uses = number; // all of these are one union
    return true;
}

int
token_scopes(const char *list, struct arena *a, Stockade__V1__TokenBlock *b)
{
    return add_list(a, b, CASE(SCOPES), list) ? 0 : -ENOMEM;
}

// "git clone *": a program, and a pattern for each argument; "..." at the end: any more.
static Stockade__V1__CaveatTool *
tool_of(struct arena *a, const char *text)
{
    Stockade__V1__CaveatTool *t = wire_make(a, &stockade__v1__caveat_tool__descriptor);
    const char **args = arena_alloc(a, TOKEN_WORDS * sizeof(void *));
    char *copy = arena_copy(a, text, strlen(text) + 1), *rest = NULL;
    if (t == NULL || args == NULL || copy == NULL)
        return NULL;
    const char *program = strtok_r(copy, " ", &rest);
    t->program = program != NULL ? program : "";
    t->args = args;
    for (char *one = strtok_r(NULL, " ", &rest); one != NULL && t->n_args < TOKEN_WORDS;
         one = strtok_r(NULL, " ", &rest)) {
        t->more_args = strcmp(one, "...") == 0;
        if (!t->more_args)
            args[t->n_args++] = one;
    }
    return t;
}

static bool
add_tools(const struct options *o, struct arena *a, Stockade__V1__TokenBlock *b)
{
    if (o->tools_n == 0)
        return true;
    Stockade__V1__CaveatTools *all = wire_make(a, &stockade__v1__caveat_tools__descriptor);
    Stockade__V1__CaveatTool **list = arena_alloc(a, o->tools_n * sizeof(void *));
    Stockade__V1__Caveat *c = all != NULL && list != NULL ? add(a, b) : NULL;
    if (c == NULL)
        return false;
    for (size_t i = 0; i < o->tools_n; i++) {
        list[i] = tool_of(a, o->tools[i]);
        if (list[i] == NULL)
            return false;
    }
    all->tools = list;
    all->n_tools = o->tools_n;
    c->caveat_case = CASE(TOOLS);
    c->tools = all;
    return true;
}

static bool
has_limits(const struct stockade_limits *l)
{
    return l->memory_bytes != 0 || l->cpu_millis != 0 || l->wall_ms != 0 || l->pids != 0;
}

static bool
add_limits(const struct options *o, struct arena *a, Stockade__V1__TokenBlock *b)
{
    if (!has_limits(&o->limits))
        return true;
    Stockade__V1__CaveatLimits *l = wire_make(a, &stockade__v1__caveat_limits__descriptor);
    Stockade__V1__Caveat *c = l != NULL ? add(a, b) : NULL;
    if (c == NULL)
        return false;
    l->memory_bytes = o->limits.memory_bytes;
    l->cpu_millis = (uint32_t)o->limits.cpu_millis;
    l->wall_ms = o->limits.wall_ms;
    l->pids = (uint32_t)o->limits.pids;
    c->caveat_case = CASE(LIMITS);
    c->limits = l;
    return true;
}

bool
token_has_caveats(const struct options *o)
{
    return o->methods != NULL || o->sandboxes != NULL || o->templates != NULL ||
           o->audience != NULL || o->tools_n > 0 || o->allow_n > 0 || o->network != NULL ||
           o->uses != 0 || o->not_before_ms != 0 || has_limits(&o->limits);
}

int
token_caveats(const struct options *o, struct arena *a, Stockade__V1__TokenBlock *b, struct err *e)
{
    const uint64_t now = (uint64_t)now_wall_ms();
    if (o->network != NULL && strcmp(o->network, "none") != 0)
        return err_field(e, "network", "only none; --allow names destinations");
    const bool whole =
        add_list(a, b, CASE(METHODS), o->methods) &&
        add_list(a, b, CASE(SANDBOXES), o->sandboxes) &&
        add_list(a, b, CASE(TEMPLATES), o->templates) && add_tools(o, a, b) &&
        ((o->allow_n == 0 && o->network == NULL) ||
         add_words(a, b, CASE(NETWORK), o->allow, o->allow_n)) &&
        add_limits(o, a, b) && (o->uses == 0 || add_number(a, b, CASE(USES), o->uses)) &&
        (o->not_before_ms == 0 || add_number(a, b, CASE(NOT_BEFORE_MS), now + o->not_before_ms)) &&
        (o->ttl_ms == 0 || add_number(a, b, CASE(EXPIRES_MS), now + o->ttl_ms)) &&
        add_list(a, b, CASE(AUDIENCE), o->audience);
    return whole ? 0
                 : err_set(e, ERR_RESOURCE_EXHAUSTED, "too many caveats, at most %d", CAVEATS_MAX);
}

static int
invalid(struct err *e, const char *reason, const char *why)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the token is not valid: %s", why);
    err_detail(e, reason, NULL, NULL);
    return r;
}

int
token_valid(const struct token *t, int64_t now_ms, const char *audience, struct err *e)
{
    const uint64_t now = (uint64_t)now_ms;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->block[i]->n_caveats; k++) {
            const Stockade__V1__Caveat *c = t->block[i]->caveats[k];
            bool ours = c->caveat_case != CASE(AUDIENCE);
            for (size_t w = 0; !ours && w < c->audience->n_words; w++)
                ours = strcmp(c->audience->words[w], audience) == 0;
            if (!ours)
                return invalid(e, "TOKEN_AUDIENCE", "it is for another broker");
            if (c->caveat_case == CASE(EXPIRES_MS) && now >= c->expires_ms)
                return invalid(e, "TOKEN_EXPIRED", "it has expired");
            if (c->caveat_case == CASE(NOT_BEFORE_MS) && now < c->not_before_ms)
                return invalid(e, "TOKEN_EARLY", "it is not valid yet");
        }
    return 0;
}

// ---- JSON

json_t *
token_json_of_time(const struct Google__Protobuf__Timestamp *t)
{
    return t != NULL ? json_of_time(t->seconds * 1000 + t->nanos / 1000000) : json_null();
}

static json_t *
list_of(const char *const *words_of, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, json_string(words_of[i]));
    return all;
}

static json_t *
json_of_tools(const Stockade__V1__CaveatTools *t)
{
    json_t *all = json_array();
    for (size_t i = 0; i < t->n_tools; i++)
        (void)json_array_append_new(
            all, json_pack("{ss so sb so}", "program", t->tools[i]->program, "args",
                           list_of((const char *const *)t->tools[i]->args, t->tools[i]->n_args),
                           "more_args", t->tools[i]->more_args, "env",
                           list_of((const char *const *)t->tools[i]->env, t->tools[i]->n_env)));
    return all;
}

static json_t *
json_of_limits(const Stockade__V1__CaveatLimits *l)
{
    return json_pack("{sI sI sI sI sI sI sI}", "memory_bytes", (json_int_t)l->memory_bytes,
                     "cpu_millis", (json_int_t)l->cpu_millis, "cpu_time_ms",
                     (json_int_t)l->cpu_time_ms, "wall_ms", (json_int_t)l->wall_ms, "pids",
                     (json_int_t)l->pids, "disk_bytes", (json_int_t)l->disk_bytes, "output_bytes",
                     (json_int_t)l->output_bytes);
}

static json_t *
json_of_caveat(const Stockade__V1__Caveat *c)
{
    static const char *const lists[] = {
        [CASE(SCOPES)] = "scopes",       [CASE(METHODS)] = "methods",
        [CASE(SANDBOXES)] = "sandboxes", [CASE(TEMPLATES)] = "templates",
        [CASE(NETWORK)] = "network",     [CASE(AUDIENCE)] = "audience",
    };
    const size_t kind = (size_t)c->caveat_case;
    if (kind < sizeof lists / sizeof lists[0] && lists[kind] != NULL)
        return json_pack("{so}", lists[kind],
                         list_of((const char *const *)c->methods->words, c->methods->n_words));
    if (c->caveat_case == CASE(TOOLS))
        return json_pack("{so}", "tools", json_of_tools(c->tools));
    if (c->caveat_case == CASE(LIMITS))
        return json_pack("{so}", "limits", json_of_limits(c->limits));
    if (c->caveat_case == CASE(USES))
        return json_pack("{sI}", "uses", (json_int_t)c->uses);
    return json_pack("{so}", c->caveat_case == CASE(EXPIRES_MS) ? "expires" : "not_before",
                     json_of_time((int64_t)c->expires_ms));
}

json_t *
token_json_of_block(const Stockade__V1__TokenBlock *b)
{
    json_t *caveats = json_array();
    for (size_t i = 0; i < b->n_caveats; i++)
        (void)json_array_append_new(caveats, json_of_caveat(b->caveats[i]));
    return json_pack("{ss so so}", "tenant", b->tenant, "scopes",
                     list_of((const char *const *)b->scopes, b->n_scopes), "caveats", caveats);
}
