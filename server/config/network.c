// SPDX-License-Identifier: Apache-2.0
// See read.h.
//
//   network:
//     mode: allowlist
//     outbound:
//       - "*.example.com:443/tcp"
//       - "@pypi"
//       - {to: 192.0.2.0/24, bytes_max: 1G, queries_per_minute: 60}
//     inbound: [8080, 9000-9010]
//     egress_bytes_max: 10G
#include "proto/config_read.h"
#include "private.h"

#include <string.h>

#include "proto/target.h"
#include "server/policy/network.h"

// A number, with K, M, G or T; 0: not set.
static int
read_number(const struct config_reader *r, const struct yaml_node *at, uint64_t min, uint64_t max,
            uint64_t *out)
{
    uint64_t v = 0;
    int err = config_number(r, at, quantity_bytes, 0, max, &v);
    if (err == 0 && v < min && v != 0)
        err = config_fail(r, at, "must be 0, or from %llu to %llu", (unsigned long long)min,
                          (unsigned long long)max);
    if (err == 0)
        *out = v;
    return err;
}

static int
read_mode(const struct config_reader *r, const struct yaml_node *at, struct network *n)
{
    const char *const words[] = {network_mode_name[NET_NONE], network_mode_name[NET_ALLOWLIST],
                                 network_mode_name[NET_OPEN], network_mode_name[NET_OFF], NULL};
    uint32_t i = 0;
    int err = config_word(r, at, words, &i);
    if (err == 0)
        n->mode = (enum net_mode)(NET_NONE + i);
    return err;
}

static int
read_target(const struct config_reader *r, const struct yaml_node *at, struct network *n)
{
    struct err e;
    if (at->kind != YAML_TEXT)
        return config_fail(r, at, "must be a destination, such as example.com:443");
    return network_add_target(n, at->text, &e) < 0 ? config_fail(r, at, "%s", e.text) : 0;
}

// A limit of a set holds for each of its rules.
static int
read_rule_keys(const struct config_reader *r, const struct yaml_node *map, struct network *n)
{
    uint64_t bytes = 0;
    uint64_t queries = 0;
    uint32_t from = n->rules_n;
    int err = 0;
    for (const struct yaml_node *it = map->child; it != NULL && err == 0; it = it->next) {
        if (strcmp(it->key, "to") == 0)
            err = read_target(r, it, n);
        else if (strcmp(it->key, "bytes_max") == 0)
            err = read_number(r, it, 1, UINT64_MAX, &bytes);
        else if (strcmp(it->key, "queries_per_minute") == 0)
            err = read_number(r, it, 1, NETWORK_QUERIES_MAX, &queries);
        else
            err = config_fail(r, it, "there is no such key");
    }
    for (uint32_t i = from; i < n->rules_n; i++) {
        n->rules[i].bytes_max = bytes;
        n->rules[i].queries_per_minute = (uint32_t)queries;
    }
    if (err == 0 && n->rules_n == from)
        err = config_fail(r, map, "a rule must have \"to\"");
    return err;
}

static int
read_outbound(const struct config_reader *r, const struct yaml_node *list, struct network *n)
{
    int err = list->kind == YAML_LIST ? 0 : config_fail(r, list, "must be a list of destinations");
    for (const struct yaml_node *it = err == 0 ? list->child : NULL; it != NULL && err == 0;
         it = it->next)
        err = it->kind == YAML_MAP ? read_rule_keys(r, it, n) : read_target(r, it, n);
    return err;
}

static int
read_inbound(const struct config_reader *r, const struct yaml_node *list, struct network *n)
{
    if (list->kind != YAML_LIST)
        return config_fail(r, list, "must be a list of ports");
    for (const struct yaml_node *it = list->child; it != NULL; it = it->next) {
        if (n->inbound_n == NETWORK_INBOUND)
            return config_fail(r, it, "more than %d ranges", NETWORK_INBOUND);
        struct network_range *range = &n->inbound[n->inbound_n++];
        if (it->kind != YAML_TEXT || !target_ports(it->text, &range->first, &range->last))
            return config_fail(r, it, "must be a port, or a range A-B");
    }
    return 0;
}

static int
read_limit(const struct config_reader *r, const struct yaml_node *at, struct network *n)
{
    static const struct {
        uint64_t min, max;
    } bounds[NETWORK_LIMITS] = {
        [NETWORK_EGRESS_BYTES] = {1, UINT64_MAX},
        [NETWORK_INGRESS_BYTES] = {1, UINT64_MAX},
        [NETWORK_EGRESS_RATE] = {NETWORK_RATE_MIN, NETWORK_RATE_MAX},
        [NETWORK_INGRESS_RATE] = {NETWORK_RATE_MIN, NETWORK_RATE_MAX},
        [NETWORK_QUERIES] = {1, NETWORK_QUERIES_MAX},
    };
    for (int i = 0; i < NETWORK_LIMITS; i++)
        if (strcmp(at->key, network_limit_name[i]) == 0)
            return read_number(r, at, bounds[i].min, bounds[i].max, &n->limit[i]);
    return config_fail(r, at, "there is no such key");
}

static int
read_keys(const struct config_reader *r, const struct yaml_node *map, struct network *n)
{
    int err =
        map->kind == YAML_MAP ? 0 : config_fail(r, map, "must be a mapping of keys to values");
    for (const struct yaml_node *it = err == 0 ? map->child : NULL; it != NULL && err == 0;
         it = it->next) {
        if (strcmp(it->key, "mode") == 0)
            err = read_mode(r, it, n);
        else if (strcmp(it->key, "outbound") == 0)
            err = read_outbound(r, it, n);
        else if (strcmp(it->key, "inbound") == 0)
            err = read_inbound(r, it, n);
        else
            err = read_limit(r, it, n);
    }
    if (err == 0 && !network_leads_out(n) && n->rules_n > 0)
        err = config_fail(r, map, "has rules, but its mode is %s", network_mode_name[n->mode]);
    if (err == 0 && n->mode == NET_OFF && n->inbound_n > 0)
        err = config_fail(r, map, "has inbound ports, but its mode is off");
    return err;
}

int
config_read_network(const struct config_reader *r, const struct config_key *k,
                    struct yaml_node *map, void *to)
{
    struct network **out = config_field(k, to);
    struct network *n = network_new();
    int err = n != NULL ? read_keys(r, map, n) : config_fail(r, map, "no memory");
    if (err < 0) {
        network_unref(n);
        return err;
    }
    network_unref(*out);
    *out = n;
    return 0;
}
