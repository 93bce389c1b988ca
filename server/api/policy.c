// SPDX-License-Identifier: Apache-2.0
// stockade.v1.PolicyService: what the policy says (Show, ListSets), what would change (Diff), and reading it again (Reload). Explain is
// in policy_explain.c.
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "pending.h"
#include "policy_explain.h"
#include "proto/destinations.h"
#include "proto/glob.h"
#include "server/access/policy_answer.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/config/reloader.h"

enum { REPLY_MAX = 3 * 1024 * 1024 };

// ---- Show

static bool
matches(size_t n, const char *const *patterns, const char *text)
{
    for (size_t i = 0; i < n; i++)
        if (glob_match(patterns[i], text, strlen(text)))
            return true;
    return n == 0;
}

// Of a list of tenants, the patterns that mean this one, so that no caller learns the names of others. NULL: all.
static bool
keep_tenants(struct arena *a, const char *tenant, size_t *n, const char ***patterns)
{
    const char **kept = arena_alloc(a, (*n + 1) * sizeof(void *));
    size_t used = 0;
    for (size_t i = 0; kept != NULL && i < *n; i++)
        if (tenant == NULL || glob_match((*patterns)[i], tenant, strlen(tenant)))
            kept[used++] = (*patterns)[i];
    *patterns = kept;
    *n = used;
    return kept != NULL;
}

static Stockade__V1__PolicyRule *
shown_rule(struct arena *a, const Stockade__V1__PolicyRule *from, const char *tenant)
{
    Stockade__V1__PolicyRule *r = arena_alloc(a, sizeof *r);
    Stockade__V1__PolicyMatch *m = arena_alloc(a, sizeof *m);
    if (r == NULL || m == NULL)
        return NULL;
    *r = *from;
    r->n_tests = 0;
    r->tests = NULL;
    if (r->match == NULL)
        return r;
    *m = *r->match;
    r->match = m;
    return keep_tenants(a, tenant, &m->n_tenants, (const char ***)(void *)&m->tenants) ? r : NULL;
}

static bool
add_rules(struct arena *a, const struct policy *p, uint32_t layer, const char *tenant,
          Stockade__V1__PolicyLayerShown *to)
{
    struct policy_layer_view v;
    (void)policy_layer_at(p, layer, &v);
    to->rules = arena_alloc(a, (v.m->n_rules + 1) * sizeof(void *));
    for (size_t i = 0; i < v.m->n_rules && to->rules != NULL; i++) {
        const Stockade__V1__PolicyMatch *m = v.m->rules[i]->match;
        Stockade__V1__PolicyRuleShown *one = arena_alloc(a, sizeof *one);
        if (one == NULL)
            return false;
        if (m != NULL && tenant != NULL &&
            !matches(m->n_tenants, (const char *const *)m->tenants, tenant))
            continue;
        stockade__v1__policy_rule_shown__init(one);
        one->rule = shown_rule(a, v.m->rules[i], tenant);
        one->line = policy_rule_line(p, layer, (uint32_t)i);
        if (one->rule == NULL)
            return false;
        to->rules[to->n_rules++] = one;
    }
    return to->rules != NULL;
}

static Stockade__V1__PolicyLayerShown *
shown_layer(struct arena *a, const struct policy *p, uint32_t i, const char *tenant)
{
    struct policy_layer_view v;
    Stockade__V1__PolicyLayerShown *to = arena_alloc(a, sizeof *to);
    Stockade__V1__PolicyLayer *l = arena_alloc(a, sizeof *l);
    (void)policy_layer_at(p, i, &v);
    if (to == NULL || l == NULL)
        return NULL;
    stockade__v1__policy_layer_shown__init(to);
    *l = *v.m;
    l->n_rules = 0;
    l->rules = NULL;
    to->kind = v.kind;
    to->layer = l;
    to->file = v.file;
    to->line = v.line;
    return keep_tenants(a, tenant, &l->n_tenants, (const char ***)(void *)&l->tenants) &&
                   add_rules(a, p, i, tenant, to)
               ? to
               : NULL;
}

// False: out of memory.
static bool
show_layers(struct arena *a, const struct policy *p, const char *tenant, const char *template,
            Stockade__V1__PolicyServiceShowResponse *out)
{
    struct policy_layer_view v;
    size_t bytes = 0;
    out->layers = arena_alloc(a, (POLICY_LAYERS_MAX + 1) * sizeof(void *));
    for (uint32_t i = 0; out->layers != NULL && policy_layer_at(p, i, &v); i++) {
        if ((tenant != NULL &&
             !matches(v.m->n_tenants, (const char *const *)v.m->tenants, tenant)) ||
            (template[0] != '\0' &&
             !matches(v.m->n_templates, (const char *const *)v.m->templates, template)))
            continue;
        Stockade__V1__PolicyLayerShown *one = shown_layer(a, p, i, tenant);
        if (one == NULL)
            return false;
        bytes += stockade__v1__policy_layer_shown__get_packed_size(one);
        out->cut = bytes > REPLY_MAX;
        if (out->cut)
            break;
        out->layers[out->n_layers++] = one;
    }
    return out->layers != NULL;
}

static void
show(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *template = ((const Stockade__V1__PolicyServiceShowRequest *)req)->template_;
    Stockade__V1__PolicyServiceShowResponse response =
        STOCKADE__V1__POLICY_SERVICE_SHOW_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct policy_view v;
    if (a == NULL || !show_layers(a, s->config->policy, call_whose(c), template, &response)) {
        convert_no_memory(c);
        return;
    }
    policy_view(s->config->policy, &v);
    response.digest = (ProtobufCBinaryData){sizeof v.digest, v.digest};
    call_reply(c, &response.base);
}

// ---- ListSets

static void
list_sets(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    enum { SETS_MAX = 64 };
    Stockade__V1__ListSetsResponse response = STOCKADE__V1__LIST_SETS_RESPONSE__INIT;
    Stockade__V1__DestinationSet one[SETS_MAX], *all[SETS_MAX];
    (void)s;
    (void)req;
    for (const struct destination_set *d = destination_sets;
         d->name != NULL && response.n_sets < SETS_MAX; d++) {
        Stockade__V1__DestinationSet *to = &one[response.n_sets];
        stockade__v1__destination_set__init(to);
        to->name = d->name;
        to->about = d->about;
        to->destinations = (const char **)(uintptr_t)d->to;
        while (d->to[to->n_destinations] != NULL)
            to->n_destinations++;
        all[response.n_sets++] = to;
    }
    response.version = destination_sets_version;
    response.sets = all;
    call_reply(c, &response.base);
}

// ---- Diff

// The policies of templates stay as they are, unless a configuration is given as well.
static bool
with_templates(struct arena *a, const struct policy *now, const Stockade__V1__PolicyFiles *given,
               Stockade__V1__PolicyFiles *out)
{
    struct policy_view v;
    bool has = false;
    policy_view(now, &v);
    *out = *given;
    out->files = arena_alloc(a, (given->n_files + v.files->n_files + 1) * sizeof(void *));
    for (size_t i = 0; i < given->n_files && out->files != NULL; i++) {
        out->files[i] = given->files[i];
        has = has || given->files[i]->configuration;
    }
    for (size_t i = 0; i < v.files->n_files && out->files != NULL && !has; i++)
        if (v.files->files[i]->configuration)
            out->files[out->n_files++] = v.files->files[i];
    return out->files != NULL;
}

static void
diff(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    Stockade__V1__PolicyServiceDiffResponse response =
        STOCKADE__V1__POLICY_SERVICE_DIFF_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct policy_differing all = {a, &response, false};
    Stockade__V1__PolicyFiles files;
    struct policy_view before, after;
    struct policy *next = NULL;
    struct err e;
    if (a == NULL ||
        !with_templates(a, s->config->policy,
                        ((const Stockade__V1__PolicyServiceDiffRequest *)req)->files, &files)) {
        convert_no_memory(c);
        return;
    }
    int r = policy_read(&files, &next, &e);
    if (r == 0)
        r = policy_diff(s->config->policy, next, policy_answer_difference, &all, &e);
    policy_view(s->config->policy, &before);
    policy_view(next, &after);
    response.digest_before = (ProtobufCBinaryData){sizeof before.digest, before.digest};
    response.digest_after = (ProtobufCBinaryData){sizeof after.digest, after.digest};
    if (r < 0)
        call_fail(c, &e);
    else if (all.failed)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
    policy_free(next);
}

// ---- Reload

static void
on_reloaded(void *cookie, const struct config_reloaded *what, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__PolicyServiceReloadResponse response =
        STOCKADE__V1__POLICY_SERVICE_RELOAD_RESPONSE__INIT;
    uint8_t digest[POLICY_DIGEST];
    memcpy(digest, what->digest, sizeof digest);
    response.digest = (ProtobufCBinaryData){sizeof digest, digest};
    response.layers = what->layers;
    response.rules = what->rules;
    response.tests = what->tests;
    response.changed = what->policy_changed;
    if (e == NULL)
        call_reply(p->call, &response.base);
    pending_end(p, e);
}

static void
reload(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const bool check = ((const Stockade__V1__PolicyServiceReloadRequest *)req)->check;
    const struct config_reloader *by = s->reloader;
    struct err e;
    struct pending *p = pending_new(s, c, NULL, by->unask);
    if (p == NULL)
        return;
    void *asked = by->ask(by->cookie, check, on_reloaded, p, &e);
    pending_begun(p, asked != NULL ? 1 : -1, asked, &e);
}

#define OWN(name, message, handler)                                                                \
    {                                                                                              \
        "/stockade.v1.PolicyService/" name,                                                        \
            &stockade__v1__policy_service_##message##_request__descriptor,                         \
            &stockade__v1__policy_service_##message##_response__descriptor, handler                \
    }

const struct call_method policy_methods[] = {
    {"/stockade.v1.PolicyService/Explain", &stockade__v1__explain_request__descriptor,
     &stockade__v1__explain_response__descriptor, policy_explain},
    OWN("Show", show, show),
    {"/stockade.v1.PolicyService/ListSets", &stockade__v1__list_sets_request__descriptor,
     &stockade__v1__list_sets_response__descriptor, list_sets},
    OWN("Reload", reload, reload),
    OWN("Diff", diff, diff),
    {0},
};
