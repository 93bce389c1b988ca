// SPDX-License-Identifier: Apache-2.0
// See private.h: issuers of JSON Web Tokens, and what the holders of their tokens are.
//
//   issuers:
//     - issuer: https://token.actions.githubusercontent.com
//       audience: stockade.example.org
//       jwks_file: /etc/stockade/github.jwks
//       algorithms: [RS256]
//       clock_skew: 60s
//       token_ttl: 1h
//       grants:
//         - {claims: {repository: acme/app, ref: refs/heads/main}, tenant: ci, scopes: [sandbox.write, process.run]}
#include "private.h"

#include <stdio.h>
#include <string.h>

#include "server/access/issuers.h"

enum { SKEW_MS = 60000, SKEW_MAX_MS = 600000, TTL_MS = 3600000, TTL_MAX_MS = 86400000 };

static int
read_algorithms(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                void *to)
{
    struct jwt_issuer *i = to;
    (void)k;
    i->algorithms = 0;
    for (const struct yaml_node *it = n->kind == YAML_LIST ? n->child : NULL; it != NULL;
         it = it->next) {
        const enum jwt_algorithm a =
            it->kind == YAML_TEXT ? jwt_algorithm_find(it->text) : JWT_ALGORITHMS_N;
        if (a == JWT_ALGORITHMS_N)
            return config_fail(r, it, "must be RS256, ES256 or EdDSA");
        i->algorithms |= UINT32_C(1) << a;
    }
    return i->algorithms != 0
               ? 0
               : config_fail(r, n, "must be a list with RS256, ES256 or EdDSA in it");
}

static int
read_claims(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct jwt_grant *g = to;
    (void)k;
    if (n->kind != YAML_MAP)
        return config_fail(r, n,
                           "must be a mapping of claims to texts, such as {sub: 'repo:acme/*'}");
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        struct jwt_claim *c = &g->claims[g->claims_n];
        if (g->claims_n == JWT_CLAIMS_MAX)
            return config_fail(r, it, "more than %d claims", JWT_CLAIMS_MAX);
        if (it->kind != YAML_TEXT || it->text[0] == '\0' || strlen(it->text) >= sizeof c->pattern)
            return config_fail(r, it, "must be a text of 1 to %zu bytes", sizeof c->pattern - 1);
        if (strlen(it->key) >= sizeof c->name)
            return config_fail(r, it, "the name of a claim has at most %zu bytes",
                               sizeof c->name - 1);
        (void)snprintf(c->name, sizeof c->name, "%s", it->key);
        (void)snprintf(c->pattern, sizeof c->pattern, "%s", it->text);
        g->claims_n++;
    }
    return 0;
}

static int
read_scopes(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct jwt_grant *g = to;
    (void)k;
    return config_scopes(r, n, &g->scopes);
}

static int
read_tenant(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct jwt_grant *g = to;
    (void)k;
    return config_tenant(r, n, g->tenant);
}

static const struct config_key grant_keys[] = {
    {"claims", read_claims, 0, 0, 0, 0, NULL},
    {"tenant", read_tenant, 0, 0, 0, 0, NULL},
    {"scopes", read_scopes, 0, 0, 0, 0, NULL},
    {0},
};

static int
read_grants(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct jwt_issuer *i = to;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n,
                           "must be a list of grants: claims, tenant and, if not all, scopes");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        struct jwt_grant *g = &i->grants[i->grants_n];
        if (i->grants_n == JWT_GRANTS_MAX)
            return config_fail(r, it, "more than %d grants", JWT_GRANTS_MAX);
        *g = (struct jwt_grant){.scopes = scopes_without_credentials(scopes_usual())};
        if (it->kind != YAML_MAP)
            return config_fail(r, it, "must be a mapping: claims, tenant and, if not all, scopes");
        int rc = config_read_map(r, grant_keys, it, g);
        if (rc < 0)
            return rc;
        if (g->tenant[0] == '\0' || g->claims_n == 0)
            return config_fail(r, it,
                               "needs a tenant, and claims: without any, whoever the issuer "
                               "knows would be this tenant");
        i->grants_n++;
    }
    return 0;
}

static const struct config_key issuer_keys[] = {
    {"issuer", config_read_text, AT(jwt_issuer, issuer), 0, 0, NULL},
    {"audience", config_read_text, AT(jwt_issuer, audience), 0, 0, NULL},
    {"jwks_file", config_read_path, AT(jwt_issuer, file), 0, 0, NULL},
    {"algorithms", read_algorithms, 0, 0, 0, 0, NULL},
    {"clock_skew", config_read_ms, AT(jwt_issuer, skew_ms), 0, SKEW_MAX_MS, NULL},
    {"token_ttl", config_read_ms, AT(jwt_issuer, ttl_ms), 1000, TTL_MAX_MS, NULL},
    {"grants", read_grants, 0, 0, 0, 0, NULL},
    {0},
};

static int
read_issuer(const struct config_reader *r, struct yaml_node *n, struct issuer_settings *s)
{
    struct jwt_issuer *i = &s->issuer[s->n];
    memset(i, 0, sizeof *i); // with its padding: configurations are compared as bytes
    i->skew_ms = SKEW_MS;
    i->ttl_ms = TTL_MS;
    if (n->kind != YAML_MAP)
        return config_fail(
            r, n, "must be a mapping with issuer, audience, jwks_file, algorithms and grants");
    int rc = config_read_map(r, issuer_keys, n, i);
    if (rc < 0)
        return rc;
    if (i->issuer[0] == '\0' || i->audience[0] == '\0' || i->file[0] == '\0' ||
        i->algorithms == 0 || i->grants_n == 0)
        return config_fail(r, n, "needs issuer, audience, jwks_file, algorithms and grants");
    for (uint32_t k = 0; k < s->n; k++)
        if (strcmp(s->issuer[k].issuer, i->issuer) == 0)
            return config_fail(r, n, "the issuer %.200s is in the list twice", i->issuer);
    s->n++;
    return 0;
}

int
config_read_issuers(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                    void *to)
{
    struct issuer_settings *s = config_field(k, to);
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of issuers");
    memset(s, 0, sizeof *s);
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (s->n == JWT_ISSUERS_MAX)
            return config_fail(r, it, "more than %d issuers", JWT_ISSUERS_MAX);
        int rc = read_issuer(r, it, s);
        if (rc < 0)
            return rc;
    }
    return 0;
}
