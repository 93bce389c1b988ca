// SPDX-License-Identifier: Apache-2.0
// See private.h: issuers of JSON Web Tokens, and what the holders of their tokens are.
//
//   issuers:
//     - issuer: https://token.actions.githubusercontent.com
//       audience: stockade.example.org
//       jwks_url: https://token.actions.githubusercontent.com/.well-known/jwks
//       algorithms: [RS256]
//       clock_skew: 60s
//       token_ttl: 1h
//       grants:
//         - {claims: {repository: acme/app, ref: refs/heads/main}, tenant: ci, scopes: [sandbox.write, process.run]}
#include "private.h"

#include <stdio.h>
#include <string.h>

#include "server/access/issuers.h"
#include "server/fetcher/fetch.h"

enum {
    SKEW_MS = 60000,
    SKEW_MAX_MS = 600000,
    TTL_MS = 3600000,
    TTL_MAX_MS = 86400000,
    REFRESH_MS = 3600000,
    REFRESH_MAX_MS = 86400000,
    KEEP_MS = 86400000,
    KEEP_MAX_MS = 7 * 86400000,
    TIMEOUT_MS = 10000,
};

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
    int rc = config_scopes(r, n, &g->scopes);
    // Each exchange makes another principal, so with these one person could be several approvers.
    const uint32_t kept = scopes_of_operators(g->scopes);
    if (rc == 0 && kept != 0)
        return config_fail(r, n, "only operators give the right %s, with a key or a certificate",
                           scopes_first(kept));
    return rc;
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

// What a URL leads to is checked when it is fetched.
static int
read_url(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    struct jwt_issuer *i = to;
    (void)k;
    const char *text = n->kind == YAML_TEXT ? n->text : "";
    const bool plain = strncmp(text, "http://", strlen("http://")) == 0;
    if ((!plain && strncmp(text, "https://", strlen("https://")) != 0) ||
        strlen(text) >= sizeof i->url || strpbrk(text, "@#\\\"<> \t") != NULL)
        return config_fail(r, n, "must be https://HOST/PATH without a user, at most %zu bytes",
                           sizeof i->url - 1);
    for (const char *p = text; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return config_fail(r, n, "must be printable ASCII");
    (void)snprintf(i->url, sizeof i->url, "%s", text);
    return 0;
}

// Settings of a URL without one, and URLs that nobody should trust.
static int
check_source(const struct config_reader *r, const struct yaml_node *n, const struct jwt_issuer *i)
{
    if ((i->file[0] != '\0') == (i->url[0] != '\0'))
        return config_fail(r, n, "needs either jwks_file or jwks_url");
    if (i->url[0] == '\0' && (i->ca_file[0] != '\0' || i->private))
        return config_fail(r, n, "jwks_ca_file and jwks_private are settings of jwks_url");
    if (strncmp(i->url, "http://", strlen("http://")) == 0 && !i->private)
        return config_fail(r, n,
                           "jwks_url: http:// is for loopback only, and needs jwks_private: true");
    return i->keep_ms >= i->refresh_ms || i->url[0] == '\0'
               ? 0
               : config_fail(r, n, "jwks_keep must not be less than jwks_refresh");
}

static const struct config_key issuer_keys[] = {
    {"issuer", config_read_text, AT(jwt_issuer, issuer), 0, 0, NULL},
    {"audience", config_read_text, AT(jwt_issuer, audience), 0, 0, NULL},
    {"jwks_file", config_read_path, AT(jwt_issuer, file), 0, 0, NULL},
    {"jwks_url", read_url, 0, 0, 0, 0, NULL},
    {"jwks_ca_file", config_read_path, AT(jwt_issuer, ca_file), 0, 0, NULL},
    {"jwks_refresh", config_read_ms, AT(jwt_issuer, refresh_ms), 1000, REFRESH_MAX_MS, NULL},
    {"jwks_keep", config_read_ms, AT(jwt_issuer, keep_ms), 1000, KEEP_MAX_MS, NULL},
    {"jwks_timeout", config_read_ms, AT(jwt_issuer, timeout_ms), 100, FETCH_TIMEOUT_MS_MAX, NULL},
    {"jwks_private", config_read_bool, AT(jwt_issuer, private), 0, 0, NULL},
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
    i->refresh_ms = REFRESH_MS;
    i->keep_ms = KEEP_MS;
    i->timeout_ms = TIMEOUT_MS;
    if (n->kind != YAML_MAP)
        return config_fail(
            r, n,
            "must be a mapping with issuer, audience, jwks_file or jwks_url, algorithms and grants");
    int rc = config_read_map(r, issuer_keys, n, i);
    if (rc < 0)
        return rc;
    if (i->issuer[0] == '\0' || i->audience[0] == '\0' || i->algorithms == 0 || i->grants_n == 0)
        return config_fail(r, n,
                           "needs issuer, audience, jwks_file or jwks_url, algorithms and grants");
    rc = check_source(r, n, i);
    if (rc < 0)
        return rc;
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
