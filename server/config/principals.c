// SPDX-License-Identifier: Apache-2.0
// See private.h: the tenants of uids and groups.
//
//   principals:
//     - {uid: 1000, tenant: team-a}
//     - {group: ci, tenant: ci, scopes: [sandbox.read, sandbox.write, process.run]}
#include "private.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/rpc/principal.h"

// A number, or the name of an account or group of this host.
static int
read_id(const struct config_reader *r, const struct yaml_node *n, bool group, uint32_t *out)
{
    const char *text = n->kind == YAML_TEXT ? n->text : "";
    if (text[0] != '\0' && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 10) {
        const unsigned long long number = strtoull(text, NULL, 10);
        if (number >= UINT32_MAX)
            return config_fail(r, n, "must be less than %u", UINT32_MAX);
        *out = (uint32_t)number;
        return 0;
    }
    const struct group *g = group && text[0] != '\0' ? getgrnam(text) : NULL;
    const struct passwd *p = !group && text[0] != '\0' ? getpwnam(text) : NULL;
    if (g == NULL && p == NULL)
        return config_fail(r, n, "there is no %s %.40s on this host", group ? "group" : "account",
                           text);
    *out = g != NULL ? g->gr_gid : p->pw_uid;
    return 0;
}

int
config_scopes(const struct config_reader *r, const struct yaml_node *n, uint32_t *out)
{
    *out = 0;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of rights, such as [sandbox.read, process.run]");
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        uint32_t one = 0;
        if (it->kind != YAML_TEXT || !scopes_read(it->text, &one) || one == 0)
            return config_fail(r, it, "there is no right %.40s",
                               it->kind == YAML_TEXT ? it->text : "of this kind");
        *out |= one;
    }
    return 0;
}

int
config_tenant(const struct config_reader *r, const struct yaml_node *n, char out[PRINCIPAL_TENANT])
{
    if (n->kind != YAML_TEXT || strchr(n->text, ':') != NULL || strcmp(n->text, "*") == 0 ||
        strcmp(n->text, "tcp") == 0 || !principal_is_tenant(n->text))
        return config_fail(
            r, n,
            "must be a letter from a to z, then at most %d letters, digits, '.', '_' "
            "and '-', and not tcp",
            PRINCIPAL_TENANT - 2);
    (void)snprintf(out, PRINCIPAL_TENANT, "%s", n->text);
    return 0;
}

static int
read_key(const struct config_reader *r, const struct yaml_node *n, struct principal_row *row,
         bool *has_id)
{
    static const char *const keys[] = {"uid", "group", "tenant", "scopes"};
    if (strcmp(n->key, "tenant") == 0)
        return config_tenant(r, n, row->tenant);
    if (strcmp(n->key, "scopes") == 0)
        return config_scopes(r, n, &row->scopes);
    if (strcmp(n->key, "uid") != 0 && strcmp(n->key, "group") != 0)
        return config_no_such(r, n, "key", keys, sizeof keys / sizeof keys[0]);
    if (*has_id)
        return config_fail(r, n, "a row has a uid or a group, not both");
    *has_id = true;
    row->group = strcmp(n->key, "group") == 0;
    int err = read_id(r, n, row->group, &row->id);
    if (err == 0 && !row->group && row->id == 0)
        return config_fail(r, n, "root is an operator, and no tenant of this table");
    return err;
}

static int
read_row(const struct config_reader *r, const struct yaml_node *n, struct principal_row *row)
{
    bool has_id = false;
    int err = 0;
    *row = (struct principal_row){.scopes = scopes_usual()};
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping, such as {uid: 1000, tenant: team-a}");
    for (const struct yaml_node *it = n->child; it != NULL && err == 0; it = it->next)
        err = read_key(r, it, row, &has_id);
    if (err == 0 && (!has_id || row->tenant[0] == '\0'))
        return config_fail(r, n, "needs a uid or a group, and a tenant");
    return err;
}

int
config_read_principals(const struct config_reader *r, const struct config_key *k,
                       struct yaml_node *n, void *to)
{
    struct principal_map *map = config_field(k, to);
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of mappings of uids and groups to tenants");
    map->n = 0;
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (map->n == PRINCIPAL_ROWS_MAX)
            return config_fail(r, it, "more than %d rows", PRINCIPAL_ROWS_MAX);
        int err = read_row(r, it, &map->row[map->n]);
        if (err < 0)
            return err;
        map->n++;
    }
    return 0;
}
