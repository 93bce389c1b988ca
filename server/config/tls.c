// SPDX-License-Identifier: Apache-2.0
// See private.h: certificates of tls+tcp addresses, and which certificate makes a caller which tenant.
//
//   tls:
//     certificate: /etc/stockade/tls/server.pem
//     key: /etc/stockade/tls/server.key
//     client_ca: /etc/stockade/tls/clients.pem
//     clients:
//       - {name: "URI:spiffe://example.org/ci", tenant: ci, scopes: [sandbox.write, process.run]}
#include "private.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/config_read.h"
#include "server/rpc/principal.h"
#include "server/rpc/tls.h"

static int
read_version(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    static const char *const words[] = {"1.3", "1.2", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static int
read_subject(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    static const char *const kinds[] = {"URI:", "DNS:", "email:"};
    for (size_t i = 0; n->kind == YAML_TEXT && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(n->text, kinds[i], strlen(kinds[i])) == 0 && n->text[strlen(kinds[i])] != '\0')
            return config_read_text(r, k, n, to);
    return config_fail(r, n,
                       "must be a name of the certificate's subjectAltName with its kind, "
                       "such as DNS:ci.example.org, URI:spiffe://example.org/ci or "
                       "email:ci@example.org");
}

static int
read_scopes(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct tls_client *c = to;
    (void)k;
    if (n->kind != YAML_LIST || n->child == NULL)
        return config_fail(r, n, "must be a list of scopes, such as [sandbox.write, process.run]");
    c->scopes = 0;
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        enum scope scope = it->kind == YAML_TEXT ? scope_find(it->text) : SCOPE_UNKNOWN;
        if (scope == SCOPE_UNKNOWN)
            return config_fail(r, it, "there is no such scope; stockaded(8) lists them");
        c->scopes |= UINT32_C(1) << scope;
    }
    return 0;
}

static const struct config_key client_keys[] = {
    {"name", read_subject, AT(tls_client, name), 0, 0, NULL},
    {"tenant", config_read_name, AT(tls_client, tenant), 0, 0, NULL},
    {"scopes", read_scopes, 0, 0, 0, 0, NULL},
    {0},
};

static int
read_client(const struct config_reader *r, struct yaml_node *n, struct tls_files *f)
{
    struct tls_client *c = &f->clients[f->clients_n];
    *c = (struct tls_client){.scopes = scopes_usual()};
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping: name, tenant and, if not all, scopes");
    int rc = config_read_map(r, client_keys, n, c);
    if (rc < 0)
        return rc;
    if (c->name[0] == '\0' || c->tenant[0] == '\0')
        return config_fail(r, n, "needs a name and a tenant");
    for (uint32_t i = 0; i < f->clients_n; i++)
        if (strcmp(f->clients[i].name, c->name) == 0)
            return config_fail(r, n, "the name %.200s is in the list twice", c->name);
    f->clients_n++;
    return 0;
}

static int
read_clients(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    struct tls_files *f = to;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of clients");
    f->clients_n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (f->clients_n == TLS_CLIENTS_MAX)
            return config_fail(r, it, "more than %d clients", TLS_CLIENTS_MAX);
        int rc = read_client(r, it, f);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static const struct config_key keys[] = {
    {"certificate", config_read_path, AT(tls_files, certificate), 0, 0, NULL},
    {"key", config_read_path, AT(tls_files, key), 0, 0, NULL},
    {"client_ca", config_read_path, AT(tls_files, client_ca), 0, 0, NULL},
    {"require_client_certificate", config_read_bool, AT(tls_files, require), 0, 0, NULL},
    {"version", read_version, AT(tls_files, old), 0, 0, NULL},
    {"clients", read_clients, 0, 0, 0, 0, NULL},
    {0},
};

int
config_read_tls(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                void *to)
{
    struct config *c = to;
    (void)k;
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping with certificate and key");
    int rc = config_read_map(r, keys, n, &c->tls);
    if (rc < 0)
        return rc;
    if ((c->tls.certificate[0] == '\0') != (c->tls.key[0] == '\0'))
        return config_fail(r, n, "certificate and key are set together");
    c->rpc.tls = c->tls.certificate[0] != '\0';
    return c->rpc.tls || n->child == NULL ? 0 : config_fail(r, n, "needs certificate and key");
}
