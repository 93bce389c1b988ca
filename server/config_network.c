// See config_network.h.
//
//   network:
//     mode: allowlist
//     outbound:
//       - "*.example.com:443/tcp"
//       - {to: 192.0.2.0/24, bytes_max: 1G, queries_per_minute: 60}
//     inbound: [8080, 9000-9010]
//     egress_bytes_max: 10G
#include "config_network.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/target.h"
#include "net_rule.h"

struct place {
    struct network *n;
    struct yaml_node **bad;
    char *what;
};

static bool fail(const struct place *p, struct yaml_node *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bool
fail(const struct place *p, struct yaml_node *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->what, CONFIG_WHAT_MAX, fmt, ap);
    va_end(ap);
    *p->bad = at;
    return false;
}

// A number, with K, M, G or T (1024 each).
static bool
read_number(const struct place *p, struct yaml_node *at, uint64_t min, uint64_t max, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    char *end = NULL;
    if (at->kind != YAML_TEXT || at->text[0] < '0' || at->text[0] > '9')
        return fail(p, at, "must be a number");
    errno = 0;
    uint64_t v = strtoull(at->text, &end, 10);
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (errno != 0 || (*end != '\0' && (suffix == NULL || end[1] != '\0')))
        return fail(p, at, "\"%.40s\" is no number that is understood here", at->text);
    int shift = suffix != NULL ? 10 * (int)(suffix - suffixes + 1) : 0;
    bool too_much = v > UINT64_MAX >> shift;
    v <<= shift;
    if (too_much || v > max || (v < min && v != 0))
        return fail(p, at, "must be 0, or from %" PRIu64 " to %" PRIu64, min, max);
    *out = v;
    return true;
}

static bool
read_mode(const struct place *p, struct yaml_node *at)
{
    static const char *const names[] = {"", "none", "allowlist", "open"};
    for (int i = NET_NONE; at->kind == YAML_TEXT && i <= NET_OPEN; i++)
        if (strcmp(at->text, names[i]) == 0) {
            p->n->mode = (enum net_mode)i;
            return true;
        }
    return fail(p, at, "must be none, allowlist or open");
}

static bool
read_target(const struct place *p, struct yaml_node *at, struct relay_rule *r)
{
    struct target_text t;
    struct err e;
    const char *what = "";
    if (at->kind != YAML_TEXT)
        return fail(p, at, "must be a destination, such as example.com:443");
    if (target_parse(at->text, &t, &e) < 0)
        return fail(p, at, "%s", e.text);
    if (!(t.is_name ? net_rule_domain(t.host, r, &what) : net_rule_cidr(t.host, r, &what)))
        return fail(p, at, "%s: %s", t.host, what);
    if (t.first != 0)
        (void)net_rule_add_ports(r, t.first, t.last, t.protocol);
    else if (t.protocol != 0)
        (void)net_rule_add_ports(r, 1, UINT16_MAX, t.protocol);
    return true;
}

static bool
read_rule_keys(const struct place *p, struct yaml_node *map, struct relay_rule *r)
{
    uint64_t queries = 0;
    bool fine = true;
    for (struct yaml_node *n = map->child; n != NULL && fine; n = n->next) {
        if (strcmp(n->key, "to") == 0)
            fine = read_target(p, n, r);
        else if (strcmp(n->key, "bytes_max") == 0)
            fine = read_number(p, n, 1, UINT64_MAX, &r->bytes_max);
        else if (strcmp(n->key, "queries_per_minute") == 0)
            fine = read_number(p, n, 1, 60000, &queries);
        else
            fine = fail(p, n, "there is no such key");
    }
    r->queries_per_minute = (uint32_t)queries;
    return fine && (r->kind != 0 || fail(p, map, "a rule must have \"to\""));
}

static bool
read_outbound(const struct place *p, struct yaml_node *list)
{
    if (list->kind != YAML_LIST)
        return fail(p, list, "must be a list of destinations");
    for (struct yaml_node *it = list->child; it != NULL; it = it->next) {
        struct relay_rule *r = network_add_rule(p->n);
        if (r == NULL)
            return fail(p, it, "more than %d rules", NET_RULES);
        if (!(it->kind == YAML_MAP ? read_rule_keys(p, it, r) : read_target(p, it, r)))
            return false;
    }
    return true;
}

static bool
read_inbound(const struct place *p, struct yaml_node *list)
{
    if (list->kind != YAML_LIST)
        return fail(p, list, "must be a list of ports");
    for (struct yaml_node *it = list->child; it != NULL; it = it->next) {
        if (p->n->inbound_n == NETWORK_INBOUND)
            return fail(p, it, "more than %d ranges", NETWORK_INBOUND);
        struct network_range *r = &p->n->inbound[p->n->inbound_n++];
        if (it->kind != YAML_TEXT || !target_ports(it->text, &r->first, &r->last))
            return fail(p, it, "must be a port, or two as A-B");
    }
    return true;
}

static bool
read_limit(const struct place *p, struct yaml_node *at)
{
    static const struct {
        uint64_t min, max;
    } bounds[NETWORK_LIMITS] = {
        [NETWORK_EGRESS_BYTES] = {1, UINT64_MAX},
        [NETWORK_INGRESS_BYTES] = {1, UINT64_MAX},
        [NETWORK_EGRESS_RATE] = {NETWORK_RATE_MIN, NETWORK_RATE_MAX},
        [NETWORK_INGRESS_RATE] = {NETWORK_RATE_MIN, NETWORK_RATE_MAX},
        [NETWORK_QUERIES] = {1, 60000},
    };
    for (int i = 0; i < NETWORK_LIMITS; i++)
        if (strcmp(at->key, network_limit_name[i]) == 0)
            return read_number(p, at, bounds[i].min, bounds[i].max, &p->n->limit[i]);
    return fail(p, at, "there is no such key");
}

static bool
read_keys(const struct place *p, struct yaml_node *map)
{
    bool fine = map->kind == YAML_MAP || fail(p, map, "must be a mapping of keys to values");
    for (struct yaml_node *n = fine ? map->child : NULL; n != NULL && fine; n = n->next) {
        if (strcmp(n->key, "mode") == 0)
            fine = read_mode(p, n);
        else if (strcmp(n->key, "outbound") == 0)
            fine = read_outbound(p, n);
        else if (strcmp(n->key, "inbound") == 0)
            fine = read_inbound(p, n);
        else
            fine = read_limit(p, n);
    }
    if (fine && p->n->mode == NET_NONE && p->n->rules_n > 0)
        fine = fail(p, map, "has rules, but its mode is none");
    return fine;
}

bool
config_read_network(struct yaml_node *map, struct network **out, struct yaml_node **bad,
                    // NOLINTNEXTLINE(readability-non-const-parameter): fail() writes there
                    char what[CONFIG_WHAT_MAX])
{
    struct place p = {.n = network_new(), .bad = bad, .what = what};
    if (p.n == NULL)
        return fail(&p, map, "no memory");
    if (!read_keys(&p, map)) {
        network_unref(p.n);
        return false;
    }
    network_unref(*out);
    *out = p.n;
    return true;
}
